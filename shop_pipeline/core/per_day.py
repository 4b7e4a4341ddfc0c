"""`shopflow/orders_per_day`: a row is how many orders the web shop took on a day and how many of them were delivered.

The days of a run are recomputed from verified rows alone: by DuckDB first, and where that differs from what stands there by
Spark, which merges one row a day; then the two are compared. A day without orders has no row.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core import delta_writes, duck
from shop_pipeline.core.attempts import Attempt
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import KeyRule, day_predicate
from shop_pipeline.core.lake import Lake, files_of_days, row_count, view
from shop_pipeline.core.ledger import RECOMPUTE, Ledger
from shop_pipeline.core.readable import Readable, pinned
from shop_pipeline.core.spark import pin_session

TABLE = "shopflow/orders_per_day"
COLUMNS = (("order_date", "DATE"), ("orders", "BIGINT"), ("delivered", "BIGINT"), ("data_as_of", "TIMESTAMP"))
DESCRIPTION = "A row is how many orders the web shop took on a day, and how many of them are delivered by now."
DELIVERED = "delivered"
INSERT, UPDATE, DELETE = "insert", "update", "delete"

Counts = tuple[int, int]
GiveSpark = Callable[[int | None], SparkSession]


@dataclass(frozen=True)
class CountedDay:
    """What became of a day: its counts (None: no orders), and whether they are what the table before it says."""

    key: str
    day: date
    ok: bool
    sentence: str
    retriable: bool = False
    counts: Counts | None = None
    changed: bool = False
    version: int | None = None
    rows: int = 0
    retries: int = 0


@dataclass(frozen=True)
class PerDay:
    """The counts, and the table that they are made of."""

    lake: Lake
    upstream: Contract
    rule: KeyRule

    def recompute(self, spark: GiveSpark, keys: Sequence[str], *, run_id: str, clock: Callable[[], datetime]) -> list[CountedDay]:
        """Recompute the days of these keys; each has its own result, in the order of the keys.

        Raises:
            CommitConflict, DiskFull: nothing was written.
        """
        working = _Counting(self, spark, {self.rule.day(key): key for key in keys}, run_id, clock)
        with working.attempt.failing(f"{self.rule.key_name} {keys[0]} of {TABLE}"):
            results = working.run()
        return [results[self.rule.day(key)] for key in keys]


@dataclass
class _Counting:
    """One try at recomputing some days."""

    made: PerDay
    spark: GiveSpark
    keys: dict[date, str]
    run_id: str
    clock: Callable[[], datetime]
    results: dict[date, CountedDay] = field(default_factory=dict)
    upstream: DeltaTable = field(init=False)

    def __post_init__(self) -> None:
        self.lake, self.contract = self.made.lake, self.made.upstream
        self.attempt = Attempt(Ledger(self.lake), TABLE.replace("/", "."), RECOMPUTE, self.run_id, self.clock, self.keys)
        self.con = duck.connect()

    def run(self) -> dict[date, CountedDay]:
        """Recompute the days that may be read, under the table's lock: what is compared and replaced belongs together."""
        with self.lake.commit_lock(TABLE):
            opened, readable = pinned(self.lake, self.contract, sorted(self.keys))
            for day, each in readable.items():
                if not each.ok:
                    self.results[day] = CountedDay(self.keys[day], day, False, self._unreadable(day, each))
            days = [day for day in sorted(self.keys) if day not in self.results]
            if opened is not None and days:
                self.upstream = opened
                self.lake.create(TABLE, COLUMNS, DESCRIPTION, partitioned=False)
                self.attempt.start(days, self._table(), opened)
                self._recompute(days)
                self.attempt.close({day: self._end(self.results[day]) for day in days})
        return self.results

    def _recompute(self, days: Sequence[date]) -> None:
        wanted, before = self._by_duckdb(days), self._there(days)
        changed = {day for day in days if wanted.get(day) != before.get(day)}
        commit = self._merge(sorted(changed), before, wanted) if changed else None
        there, table = self._there(days), self._table()
        for day in days:
            counts = there.get(day)
            ok = counts == wanted.get(day)
            orders, delivered = counts or (0, 0)
            sentence = f"ok {day}: {orders} orders, {delivered} delivered"
            if not ok:
                sentence = f"PROBLEM {day}: {counts} orders and delivered, by a second engine {wanted.get(day)}"
            self.results[day] = CountedDay(
                self.keys[day],
                day,
                ok,
                sentence,
                retriable=not ok,
                counts=counts,
                changed=day in changed,
                version=int(table.version()) if commit is None else commit.version,
                rows=row_count(table),
                retries=0 if commit is None else commit.retries,
            )

    def _by_duckdb(self, days: Sequence[date]) -> dict[date, Counts]:
        view(self.con, "orders", self.upstream, days)
        rows = self.con.execute(
            f"SELECT order_date, count(*), count(*) FILTER (status = '{DELIVERED}') FROM orders GROUP BY 1"
        ).fetchall()
        return {day: (orders, delivered) for day, orders, delivered in rows}

    def _there(self, days: Sequence[date]) -> dict[date, Counts]:
        view(self.con, "counted", self._table())
        listed = ", ".join(f"DATE '{day}'" for day in days)
        rows = self.con.execute(f"SELECT order_date, orders, delivered FROM counted WHERE order_date IN ({listed})").fetchall()
        return {day: (orders, delivered) for day, orders, delivered in rows}

    def _table(self) -> DeltaTable:
        table = self.lake.open(TABLE)
        if table is None:
            raise RuntimeError(f"{TABLE} is not there")
        return table

    def _merge(self, changed: Sequence[date], before: Mapping[date, Counts], wanted: Mapping[date, Counts]) -> delta_writes.Commit:
        """Merge one row a day, in one commit; days without orders are deleted."""
        files = files_of_days(self.upstream, set(changed))
        session = pin_session(self.spark(sum(files["bytes"].to_pylist())))
        made_at = F.lit(self.attempt.started_at.strftime("%Y-%m-%d %H:%M:%S.%f")).cast("timestamp")
        days = session.sql("SELECT explode(array(" + ", ".join(f"DATE '{day}'" for day in changed) + ")) AS order_date")
        orders = (
            session.read.format("delta")
            .option("versionAsOf", self.upstream.version())
            .load(self.lake.table_uri(self.contract.table))
            .where(day_predicate(changed))
        )
        rows = (
            days.join(orders, "order_date", "left")
            .groupBy("order_date")
            .agg(
                F.count(self.contract.key).alias("orders"),
                F.count(F.when(F.col("status") == DELIVERED, 1)).alias("delivered"),
            )
            .withColumn("data_as_of", made_at)
            .select(*[F.col(name).cast(kind) for name, kind in COLUMNS], (F.col("orders") == 0).alias("_gone"))
        )
        kinds = {DELETE if day not in wanted else UPDATE if day in before else INSERT for day in changed}
        within = f"t.order_date BETWEEN DATE '{changed[0]}' AND DATE '{changed[-1]}'"
        merge = delta_writes.Merge("order_date", [name for name, _ in COLUMNS], within, "true", frozenset(kinds))
        mark = json.dumps({"attempt": self.attempt.name, "run_id": self.run_id, "days": [str(day) for day in changed]})
        commits: list[delta_writes.Commit] = []
        retries = delta_writes.over_conflicts(
            TABLE, lambda: commits.append(delta_writes.merge_rows(self.lake, TABLE, rows, merge, mark))
        )
        return delta_writes.Commit(commits[-1].version, retries)

    def _unreadable(self, day: date, readable: Readable) -> str:
        table, key = self.contract.sql_name, f"{self.made.rule.key_name} {self.keys[day]}"
        problem = readable.drift if readable.verdict.verified else readable.verdict.problem
        return (
            f"{day} was not counted: {table} cannot be read on for it ({problem}). Load {key} of {table}, then run {TABLE} for it."
        )

    def _end(self, result: CountedDay) -> tuple[bool, dict[str, Any]]:
        return result.ok, {
            "row_count": (result.counts or (0, 0))[0],
            "problem": None if result.ok else result.sentence,
            "delta_version": result.version,
            "retries": result.retries,
        }
