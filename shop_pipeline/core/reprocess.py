"""Which days of a range a backfill runs, by what became of them before and by what their source has now."""

from collections.abc import Mapping, Sequence
from datetime import date
from enum import Enum

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import APPEND, LOAD, SUCCEEDED, Entry, Ledger, present_verdicts
from shop_pipeline.core.sources import BYTES, Source


class Reprocess(Enum):
    """`none`: the days never tried; `failed`: those, the failed, and those of which the tables further on have nothing or something
    older; `completed`: all; `changed`: those whose source is not what was loaded."""

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
    newest: dict[date, Entry] = {}
    for entry in Ledger(lake).entries(contract.sql_name, days):
        if entry.kind in (LOAD, APPEND):
            newest[entry.day] = entry
    taken = set(days) - set(newest)
    if mode is Reprocess.FAILED:
        # A newest attempt that failed may have left earlier rows in force.
        taken |= {day for day, entry in newest.items() if entry.status != SUCCEEDED}
        taken |= _closed(lake, contract.table, days) | behind(lake, contract, made, days)
    return sorted(taken)


def _closed(lake: Lake, name: str, days: Sequence[date]) -> set[date]:
    """The days of a table that may not be read."""
    return {day for day, verdict in present_verdicts(lake, name, days).items() if not verdict.verified}


def behind(lake: Lake, contract: Contract, made: Sequence[str], days: Sequence[date]) -> set[date]:
    """The verified days of which a table made of the loaded one has nothing, nothing good, or something older."""
    last = {day: entry.run_at for day, entry in loaded_contents(lake, contract).items() if day in set(days)}
    found: set[date] = set()
    for name in made:
        closed = _closed(lake, name, list(last))
        ended: dict[date, Entry] = {}
        for entry in Ledger(lake).entries(name.replace("/", "."), list(last)):
            if entry.status == SUCCEEDED:
                ended[entry.day] = entry
        found |= {day for day, at in last.items() if day in closed or day not in ended or ended[day].run_at < at}
        last = {day: ended[day].run_at for day in last if day in ended}
    return found


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


def backfill_command(source: str, first: str, last: str, *options: str) -> str:
    """The command that runs some partitions of a source."""
    whose = [] if source == "till" else ["--source", source]
    return " ".join(["shop", "backfill", first, last, *options, *whose])
