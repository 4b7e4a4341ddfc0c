"""`daily_sales`: what the shop sold on a day, from verified days alone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.delta_writes import replace_days
from shop_pipeline.core.drift import schema_gate
from shop_pipeline.core.errors import NotVerified
from shop_pipeline.core.lake import Lake, data_files, row_count, table_id
from shop_pipeline.core.ledger import Ledger, Verdict
from shop_pipeline.core.spark import pin_session

TABLE = "daily_sales"
COLUMNS = (("order_date", "DATE"), ("orders", "BIGINT"), ("revenue", "DECIMAL(20,2)"))
DESCRIPTION = "A row is a day's sales: how many orders, and what they came to."


@dataclass(frozen=True)
class Sales:
    """What recomputing days wrote: the version, and how many days the table has now."""

    version: int
    rows: int


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
    return _pinned(lake, upstream, days)[1]


def _pinned(lake: Lake, upstream: Contract, days: Sequence[date]) -> tuple[DeltaTable | None, dict[date, Readable]]:
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


def recompute_sales(
    lake: Lake, upstream: Contract, spark: Callable[[int | None], SparkSession], days: Sequence[date], run_id: str
) -> Sales:
    """Replace these days in daily_sales by what the upstream table says of them, all read at one version.

    Raises:
        NotVerified: a day may not be read on; nothing was written.
    """
    opened, readable = _pinned(lake, upstream, days)
    closed = [day for day in days if not readable[day].ok]
    if closed or opened is None:
        raise NotVerified(f"{upstream.sql_name} cannot be read on for {', '.join(map(str, closed))}; load those days first.")
    files = data_files(opened)
    size = sum(
        bytes_ for day, bytes_ in zip(files["order_date"].to_pylist(), files["bytes"].to_pylist(), strict=True) if day in days
    )
    session = pin_session(spark(size))
    rows = (
        session.read.format("delta")
        .option("versionAsOf", opened.version())
        .load(lake.table_uri(upstream.table))
        .where(F.col("order_date").isin(list(days)))
        .groupBy("order_date")
        .agg(F.count(F.lit(1)).alias("orders"), F.sum("amount").alias("revenue"))
        .select(*[F.col(name).cast(kind) for name, kind in COLUMNS])
        # One file a day, whatever the number of shuffle partitions.
        .repartition(1)
    )
    commit = replace_days(lake, TABLE, rows, days, json.dumps({"run_id": run_id, "days": [str(day) for day in days]}))
    table = lake.open(TABLE, commit.version)
    return Sales(commit.version, 0 if table is None else row_count(table))
