"""`restatements`: a row for each time that a published figure changed, with what it was, what it is, and why.

The commit that replaces figures carries what it restates, so that neither can be without the other; from there it is copied
into the table by that run or, where it died, by the next.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from shop_pipeline.core import disk, duck
from shop_pipeline.core.lake import Lake, table_id, view

TABLE = "restatements"
COLUMNS = (
    ("order_date", "DATE"),
    ("orders_before", "BIGINT"),
    ("orders_after", "BIGINT"),
    ("revenue_before", "DECIMAL(20,2)"),
    ("revenue_after", "DECIMAL(20,2)"),
    ("first_order_at_before", "TIMESTAMP"),
    ("first_order_at_after", "TIMESTAMP"),
    ("last_order_at_before", "TIMESTAMP"),
    ("last_order_at_after", "TIMESTAMP"),
    ("cause", "STRING"),
    ("run_id", "STRING"),
    ("restated_at", "TIMESTAMP"),
    ("gold_version", "BIGINT"),
    ("gold_id", "STRING"),
)
DESCRIPTION = "A row is one time that a published figure of a day (order_date) changed."
_ARROW = {
    "DATE": pa.date32(),
    "BIGINT": pa.int64(),
    "DECIMAL(20,2)": pa.decimal128(20, 2),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS])
LATE, CORRECTION, DELETION = "late rows", "correction", "deletion"
# Nothing in silver's change feed explains it: the figures had been changed by hand, or the feed is gone.
UNKNOWN = "not known from the change feed"
# Every run catches up, so that few commits of gold can be ahead of it.
_LOOK_BACK = 200
_CENT = Decimal("0.01")


@dataclass(frozen=True)
class Figures:
    """A day's figures, but for data_as_of."""

    orders: int
    revenue: Decimal | None
    average_order: Decimal | None
    first_order_at: datetime | None
    last_order_at: datetime | None

    def __str__(self) -> str:
        return f"{self.orders} orders, {self.revenue}"


def average(revenue: Decimal | None, orders: int) -> Decimal | None:
    """What an order came to, in cents, halves rounded up."""
    return None if revenue is None else (revenue / orders).quantize(_CENT, ROUND_HALF_UP)


@dataclass(frozen=True)
class Restated:
    """A published figure that changes. None before or after: the day had, or has, no orders."""

    order_date: date
    before: Figures | None
    after: Figures | None
    cause: str

    def as_json(self) -> dict[str, Any]:
        """As the commit carries it."""
        made: dict[str, Any] = {"order_date": self.order_date.isoformat(), "cause": self.cause}
        for when, figures in (("before", self.before), ("after", self.after)):
            made[f"orders_{when}"] = 0 if figures is None else figures.orders
            revenue = Decimal("0.00") if figures is None else figures.revenue
            made[f"revenue_{when}"] = None if revenue is None else str(revenue)
            for name in ("first_order_at", "last_order_at"):
                time = None if figures is None else getattr(figures, name)
                made[f"{name}_{when}"] = None if time is None else time.isoformat()
        return made


def causes(con: duckdb.DuckDBPyConnection, key: str, days: Sequence[date]) -> dict[date, str]:
    """Why the figures of some days change, from the table `feed` of silver's changes.

    What counts is where an order was before all of them and where it is after: one that came with a later day's source is a late
    row, one that is gone a deletion, and anything else a correction.
    """
    quoted = duck.identifier(key)
    listed = ", ".join(f"DATE '{day}'" for day in days)
    # Of one commit, what was comes before what is.
    order = "_commit_version, CASE WHEN _change_type IN ('delete', 'update_preimage') THEN 0 ELSE 1 END"
    rows = con.execute(
        f"""
        WITH steps AS (SELECT *, row_number() OVER (PARTITION BY {quoted} ORDER BY {order}) AS step,
                              count(*) OVER (PARTITION BY {quoted}) AS steps FROM feed),
             net AS (SELECT {quoted},
                            max(order_date) FILTER (step = 1 AND _change_type <> 'insert') AS was,
                            max(order_date) FILTER (step = steps AND _change_type <> 'delete') AS is_now,
                            max(_source_day) FILTER (step = steps) AS source_day FROM steps GROUP BY 1),
             by_day AS (SELECT unnest(list_distinct([was, is_now])) AS day,
                               CASE WHEN is_now IS NULL THEN '{DELETION}'
                                    WHEN was IS NULL AND source_day > is_now THEN '{LATE}'
                                    ELSE '{CORRECTION}' END AS cause FROM net)
        SELECT day, cause, count(*) FROM by_day WHERE day IN ({listed}) GROUP BY ALL ORDER BY ALL
        """
    ).fetchall()
    said: dict[date, list[str]] = {}
    order_of = [LATE, CORRECTION, DELETION]
    for day, cause, orders in sorted(rows, key=lambda row: (row[0], order_of.index(row[1]))):
        said.setdefault(day, []).append(f"{cause} ({orders} order{'' if orders == 1 else 's'})")
    return {day: ", ".join(each) for day, each in said.items()}


def catch_up(lake: Lake, gold: str) -> int:
    """Copy what gold's commits restated and the table does not have yet; says how many rows that were. Under gold's lock."""
    lake.create(TABLE, COLUMNS, DESCRIPTION, partitioned=False)
    table, figures = lake.open(TABLE), lake.open(gold)
    if table is None or figures is None:
        return 0
    identity = table_id(figures)
    con = duck.connect()
    view(con, "had", table)
    ((last,),) = con.execute("SELECT coalesce(max(gold_version), -1) FROM had WHERE gold_id = ?", [identity]).fetchall()
    rows: list[Mapping[str, Any]] = []
    for commit in figures.history(min(max(figures.version() - last, 1), _LOOK_BACK)):
        if commit["version"] > last:
            rows += _of_commit(commit, identity)
    if rows:
        made = pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA)
        with disk.panics_are_errors():
            write_deltalake(lake.table_uri(TABLE), made, mode="append")
    return len(rows)


def _of_commit(commit: Mapping[str, Any], identity: str) -> list[Mapping[str, Any]]:
    try:
        said = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        # Somebody else's commit.
        return []
    return [
        {
            **{name: _as(kind, each.get(name)) for name, kind in COLUMNS if name in each},
            "run_id": said["run_id"],
            "restated_at": datetime.fromisoformat(said["at"]),
            "gold_version": int(commit["version"]),
            "gold_id": identity,
        }
        for each in (said.get("restated") or [] if isinstance(said, dict) else [])
    ]


def _as(kind: str, value: Any) -> Any:  # noqa: ANN401 - one of JSON's values in, one of Arrow's out
    if value is None or kind in ("STRING", "BIGINT"):
        return value
    if kind == "DATE":
        return date.fromisoformat(value)
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if kind == "TIMESTAMP" else Decimal(value)
