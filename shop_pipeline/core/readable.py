"""Which days may be read on from a table, and at which version."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from deltalake import DeltaTable

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.drift import schema_gate
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import Ledger, Verdict

# How often a table is looked at again while loads commit to it.
_LOOKS = 20


@dataclass(frozen=True)
class Readable:
    """Whether a day may be read on from a table: the run log's verdict on it, and what the schema gate says (None: nothing)."""

    verdict: Verdict
    drift: str | None

    @property
    def ok(self) -> bool:
        """Whether it may."""
        return self.verdict.verified and self.drift is None


def readable_days(lake: Lake, upstream: Contract, days: Sequence[date]) -> dict[date, Readable]:
    """What may be read on from an upstream table."""
    return pinned(lake, upstream, days)[1]


def pinned(lake: Lake, upstream: Contract, days: Sequence[date]) -> tuple[DeltaTable | None, dict[date, Readable]]:
    """The upstream table at a version, and what may be read of it at just that version.

    The version is taken before the verdicts: a load says in run_log that it has started before it commits, so a commit that is
    in this version and not yet verified closes its day here. It is the newest, not the one that a day was verified at, for old
    versions are vacuumed away. A day verified at a newer one came in between: look again. Where it stays so, the table has been
    put back to an earlier state, and what run_log says of that day is about rows that are no longer there.
    """
    for last in (*[False] * _LOOKS, True):
        table = lake.open(upstream.table)
        verdicts = Ledger(lake).verdicts(upstream.sql_name, days, None if table is None else table_id(table))
        if table is not None and last:
            verdicts = {day: _there(verdict, table.version()) for day, verdict in verdicts.items()}
        if table is None or max((each.version or 0 for each in verdicts.values()), default=0) <= table.version():
            break
    held = {} if table is None else schema_gate(upstream, table, verdicts)
    return table, {day: Readable(verdict, held.get(day)) for day, verdict in verdicts.items()}


def _there(verdict: Verdict, newest: int) -> Verdict:
    """A verdict on a version that the table has; on another one, why the day may not be read."""
    if (verdict.version or 0) <= newest:
        return verdict
    problem = f"it was verified at version {verdict.version} and the table ends with {newest}: it was put back; load the day again"
    return Verdict(False, None, problem, verdict.entry)
