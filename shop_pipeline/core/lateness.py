"""`late_arrivals`: how many days after its event each row of a day's source came, and what lookback follows from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from shop_pipeline.core import disk, duck
from shop_pipeline.core.days import day_predicate
from shop_pipeline.core.delta_writes import over_conflicts
from shop_pipeline.core.lake import Lake, view

TABLE = "late_arrivals"
COLUMNS = (("order_date", "DATE"), ("days_late", "INT"), ("rows", "BIGINT"))
DESCRIPTION = "A row is how many rows of a day's source (order_date) came so many days after their event; 0 is on the day itself."
SCHEMA = pa.schema([("order_date", pa.date32()), ("days_late", pa.int32()), ("rows", pa.int64())])
# The share of rows that a proposed lookback is to have seen arrive.
COVERED = 0.99

Spread = Mapping[int, int]


@dataclass(frozen=True)
class Proposal:
    """The smallest lookback (days) after which `covered` (a share) of all rows had arrived."""

    lookback: int
    covered: float

    def __str__(self) -> str:
        return f"{self.lookback} days ({100 * self.covered:.2f} % of all rows had come by then)"


def measure(con: duckdb.DuckDBPyConnection) -> dict[date, dict[int, int]]:
    """For each day, rows by how late they came, from the view `arrived`."""
    found: dict[date, dict[int, int]] = {}
    for day, late, rows in con.execute(
        "SELECT _source_day, date_diff('day', order_date, _source_day), count(*) FROM arrived GROUP BY ALL ORDER BY ALL"
    ).fetchall():
        found.setdefault(day, {})[late] = rows
    return found


def replace(lake: Lake, days: Sequence[date], spreads: Mapping[date, Spread]) -> None:
    """Replace what the table says of these days."""
    lake.create(TABLE, COLUMNS, DESCRIPTION, partitioned=False)
    rows = [(day, late, count) for day in sorted(days) for late, count in sorted(spreads.get(day, {}).items())]
    if rows == sorted(read(lake, days)):
        return
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    table = pa.table([pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)

    def write() -> None:
        write_deltalake(lake.table_uri(TABLE), table, mode="overwrite", predicate=day_predicate(days))

    with lake.commit_lock(TABLE), disk.panics_are_errors():
        over_conflicts(TABLE, write)


def read(lake: Lake, days: Sequence[date] | None = None) -> list[tuple[date, int, int]]:
    """The table's rows about some days (all by default)."""
    table = lake.open(TABLE)
    if table is None:
        return []
    con = duck.connect()
    view(con, "late", table)
    which = "true" if days is None else day_predicate(days)
    return con.execute(f"SELECT order_date, days_late, rows FROM late WHERE {which} ORDER BY ALL").fetchall()


def overall(lake: Lake) -> dict[int, int]:
    """Rows by how late they came, over all days."""
    spread: dict[int, int] = {}
    for _, late, rows in read(lake):
        spread[late] = spread.get(late, 0) + rows
    return dict(sorted(spread.items()))


def propose(spread: Spread, share: float = COVERED) -> Proposal | None:
    """The lookback that follows from how late rows came; None where there are none."""
    total, so_far = sum(spread.values()), 0
    for late, rows in sorted(spread.items()):
        so_far += rows
        if so_far >= share * total > 0:
            return Proposal(max(late, 0), so_far / total)
    return None
