"""When columns change: a table against its contract, and a day's source against it, for whoever reads on from the table."""

import json
from collections.abc import Mapping, Sequence
from datetime import date

from deltalake import DeltaTable

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.errors import SchemaChanged
from shop_pipeline.core.ledger import Verdict

_SQL_TYPES = {"integer": "INT", "long": "BIGINT", "string": "STRING", "timestamp": "TIMESTAMP", "date": "DATE", "double": "DOUBLE"}


def table_types(table: DeltaTable) -> dict[str, str]:
    """The columns of a table and their SQL types."""
    found = {}
    for field in table.schema().fields:
        kind = str(getattr(field.type, "type", field.type)).replace(" ", "")
        found[field.name] = _SQL_TYPES.get(kind, kind.upper())
    return found


def check_types(contract: Contract, table: DeltaTable | None) -> None:
    """Raises SchemaChanged when a column of the table has another type than the contract's; both are named."""
    check_columns(contract.sql_name, contract.table_columns, contract.origin, table)


def check_columns(name: str, columns: Sequence[tuple[str, str]], origin: str, table: DeltaTable | None) -> None:
    """Raises SchemaChanged when a column of the table `name` has another type than in `columns`, which come from `origin`."""
    if table is None:
        return
    types = table_types(table)
    changed = [
        f"{column} is {types[column]} in the table and {kind} in the contract"
        for column, kind in columns
        if column in types and types[column] != kind
    ]
    if changed:
        raise SchemaChanged(
            f"{name} was not loaded: {'; '.join(changed)}, and a type is never changed by the way. "
            f"Bring {origin} back to the table's types, or move the table's folder away and load its days again."
        )


def schema_gate(contract: Contract, table: DeltaTable, verdicts: Mapping[date, Verdict]) -> dict[date, str]:
    """The days that must not be read on from a table, each with the gate's sentence.

    A column that the table lacks holds back every day; one that a day's source brought and the contract does not know holds
    back that day.
    """
    types = table_types(table)
    missing = sorted(name for name, _ in contract.table_columns if name not in types)
    held = {}
    for day, verdict in verdicts.items():
        brought = json.loads(verdict.entry.drift)["added"] if verdict.entry is not None and verdict.entry.drift else []
        new = sorted(set(brought) - set(contract.names))
        if new or missing:
            held[day] = drift_sentence(new, missing)
    return held


def drift_sentence(new: Sequence[str], missing: Sequence[str]) -> str:
    """The gate's words."""
    return f"Schema drift: new {sorted(new)}, missing {sorted(missing)}"
