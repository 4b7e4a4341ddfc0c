"""Which days of a range a backfill runs, by what became of them before and by what their source has now."""

from collections.abc import Mapping, Sequence
from datetime import date
from enum import Enum

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import APPEND, LOAD, Entry, Ledger
from shop_pipeline.core.sources import BYTES, Source


class Reprocess(Enum):
    """`none`: the days never tried; `failed`: those and the failed; `completed`: all; `changed`: whose source is not what was
    loaded."""

    NONE = "none"
    FAILED = "failed"
    COMPLETED = "completed"
    CHANGED = "changed"


def choose(
    mode: Reprocess, lake: Lake, source: Source | None, contract: Contract, made: Sequence[str], days: Sequence[date]
) -> list[date]:
    """The days to run, in order.

    Args:
        source: needed for `changed` alone.
        made: the tables that are made of the loaded one; a day that one of them lacks has failed.

    Raises:
        SourceUnavailable, SourceRefused: the source could not be looked at (`changed` alone asks it).
    """
    if mode is Reprocess.COMPLETED:
        return sorted(days)
    if mode is Reprocess.CHANGED:
        if source is None:
            raise ValueError("whether a source has changed takes the source")
        return changed_days(lake, source, contract, days)
    tried = {each.day for each in Ledger(lake).entries(contract.sql_name, days) if each.kind in (LOAD, APPEND)}
    never = set(days) - tried
    if mode is Reprocess.FAILED:
        never |= _failed(lake, [contract.table, *made], days)
    return sorted(never)


def _failed(lake: Lake, tables: Sequence[str], days: Sequence[date]) -> set[date]:
    """The days that are not verified in one of the tables."""
    failed = set()
    for name in tables:
        table = lake.open(name)
        verdicts = Ledger(lake).verdicts(name.replace("/", "."), days, None if table is None else table_id(table))
        failed |= {day for day, verdict in verdicts.items() if not verdict.verified}
    return failed


def changed_days(lake: Lake, source: Source, contract: Contract, days: Sequence[date]) -> list[date]:
    """The days that have a source whose content is not what was loaded, those never loaded among them."""
    there = sorted(set(days) - source.missing(days))
    now, loaded = source.fingerprints(there) if there else {}, loaded_contents(lake, contract)
    # What cannot be read is not what was loaded; contents of different kinds of hash say nothing of each other.
    return [day for day in there if day not in now or now[day] != content(loaded.get(day))]


def loaded_contents(lake: Lake, contract: Contract) -> Mapping[date, Entry]:
    """The load that each verified day has its rows from."""
    table = lake.open(contract.table)
    return Ledger(lake).history(contract.sql_name, None if table is None else table_id(table))


def content(entry: Entry | None) -> str | None:
    """What stands for the source's content that an attempt looked at. Earlier versions noted it for files only."""
    return None if entry is None else entry.source_fingerprint or entry.fingerprint


def comparable(one: str, other: str) -> bool:
    """Whether two contents that differ are for sure not the same: hashed alike, or one of them could not be read as rows."""
    kinds = {each.rsplit(":", 1)[-1] for each in (one, other)}
    return len(kinds) == 1 or BYTES in kinds
