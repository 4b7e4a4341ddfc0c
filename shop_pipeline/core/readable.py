"""Which days may be read on from a table, and at which version."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from deltalake import DeltaTable

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.drift import schema_gate
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import Ledger, Verdict


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
    versions are vacuumed away. A day verified at a newer one came in between: look again.
    """
    while True:
        table = lake.open(upstream.table)
        verdicts = Ledger(lake).verdicts(upstream.sql_name, days, None if table is None else table_id(table))
        if table is None or max((each.version or 0 for each in verdicts.values()), default=0) <= table.version():
            held = {} if table is None else schema_gate(upstream, table, verdicts)
            return table, {day: Readable(verdict, held.get(day)) for day, verdict in verdicts.items()}
