"""Where an asset's code and contract are, for the web UI's links into an editor."""

import warnings
from collections.abc import Callable
from importlib.resources import files
from inspect import unwrap
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_shared.utils.warnings import BetaWarning

from shop_pipeline.core.contract import Contract


def code_references(contract: Contract, **made_by: Callable[..., object]) -> dict[str, Any]:
    """The metadata that names a contract's file and functions, each function by what it is called in the UI."""
    with warnings.catch_warnings():
        # Marked so by Dagster; a test holds what is relied on here.
        warnings.simplefilter("ignore", BetaWarning)
        functions = [
            dg.LocalFileCodeReference(file_path=code.co_filename, line_number=code.co_firstlineno, label=label)
            for label, code in ((label, unwrap(each).__code__) for label, each in made_by.items())
        ]
        contract_file = dg.LocalFileCodeReference(file_path=str(_file(contract)), line_number=1, label="contract")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[*functions, contract_file])}


def _file(contract: Contract) -> Path:
    """The file of a contract: its own folder's, or the one that comes with the package."""
    own = Path(contract.origin)
    return own.absolute() if own.is_file() else Path(str(files("shop_pipeline"))).parent / own
