"""`daily_sales`: a row is what the shop sold on a day of events; from silver, and so from verified days alone.

Silver's change feed says which days were touched since the figures were made last. Their figures are worked out by DuckDB; where
they differ from what stands there, Spark works them out as well and replaces them, in one commit that also says which
published figures it restates. Where nothing differs there is no commit, and no JVM is started.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core import delta_writes, duck, restatements, silver
from shop_pipeline.core.attempts import Attempt
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import KeyRule, day_predicate
from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.fault_points import Point, reached
from shop_pipeline.core.lake import Lake, data_files, files_of_days, files_that_may_hold, row_count, table_id, view
from shop_pipeline.core.ledger import RECOMPUTE, Entry, Ledger
from shop_pipeline.core.readable import readable_days
from shop_pipeline.core.restatements import Figures
from shop_pipeline.core.spark import pin_session

TABLE = "daily_sales"
COLUMNS = (
    ("order_date", "DATE"),
    ("orders", "BIGINT"),
    ("revenue", "DECIMAL(20,2)"),
    ("average_order", "DECIMAL(20,2)"),
    ("first_order_at", "TIMESTAMP"),
    ("last_order_at", "TIMESTAMP"),
    ("data_as_of", "TIMESTAMP"),
)
DESCRIPTION = "A row is a day's sales: how many orders were taken on it, and what they came to, whichever file brought them."
EQUALS_SILVER = "equals_silver"
EXAMPLES = 5

GiveSpark = Callable[[int | None], SparkSession]


def amount_column(contract: Contract) -> str | None:
    """The column that revenue is the sum of: the first decimal one; None where there is none."""
    return next((column.name for column in contract.columns if column.type.startswith("DECIMAL")), None)


@dataclass(frozen=True)
class FiguresOfDay:
    """What became of a key's day: whether the figures that its rows go into are what silver says. `sentence` says it.

    `touched`: the days of events whose figures were looked at; `changed`: those that were replaced; `restated`: those of them
    that had been published; `partial`: those whose own source may not be read on, or never came; `lacking`: verified days that
    silver, made anew, does not have yet.
    """

    key: str
    day: date
    ok: bool
    sentence: str
    retriable: bool = False
    checked: bool = False
    touched: tuple[date, ...] = ()
    changed: tuple[date, ...] = ()
    restated: tuple[date, ...] = ()
    partial: tuple[date, ...] = ()
    lacking: tuple[date, ...] = ()
    figures: Figures | None = None
    figures_line: str = ""
    version: int | None = None
    rows: int = 0
    retries: int = 0


@dataclass(frozen=True)
class Gold:
    """The figures, and what they are made of. `lookback`: days that are still expected to change, before the newest."""

    lake: Lake
    upstream: Contract
    rule: KeyRule
    lookback: int = 0

    def recompute(self, spark: GiveSpark, keys: Sequence[str], *, run_id: str, clock: Callable[[], datetime]) -> list[FiguresOfDay]:
        """Bring the figures up to date with silver, those that the rows of these keys' days go into in any case.

        Raises:
            CommitConflict, DiskFull: nothing was written.
        """
        working = _Working(self, spark, {self.rule.day(key): key for key in keys}, run_id, clock)
        with working.attempt.failing(f"{self.rule.key_name} {keys[0]} of {TABLE}"):
            results = working.run()
        return [results[self.rule.day(key)] for key in keys]

    def key_text(self, day: date) -> str:
        """A day's key, as messages name it."""
        return f"{self.rule.key_name} {self.rule.key(day)}"


@dataclass
class _Working:
    """One try at bringing the figures up to date."""

    gold: Gold
    spark: GiveSpark
    keys: dict[date, str]
    run_id: str
    clock: Callable[[], datetime]
    results: dict[date, FiguresOfDay] = field(default_factory=dict)
    silver: DeltaTable = field(init=False)
    # Verified days that silver was not given, where it matters.
    lacking: list[date] = field(default_factory=list)
    version: int | None = None
    retries: int = 0

    def __post_init__(self) -> None:
        self.lake, self.ledger = self.gold.lake, Ledger(self.gold.lake)
        self.con = duck.connect()
        self.attempt = Attempt(self.ledger, TABLE, RECOMPUTE, self.run_id, self.clock, self.keys)

    def run(self) -> dict[date, FiguresOfDay]:
        """One at a time: what is read, compared and replaced belongs together."""
        with self.lake.commit_lock(f"{TABLE}.figures"):
            self.lake.create(TABLE, COLUMNS, DESCRIPTION)
            self.lake.widen(TABLE, COLUMNS)
            restatements.catch_up(self.lake, TABLE)
            self._which_days()
            if self.days:
                self.attempt.start(self.days, self._gold(), self.silver)
                self._work()
                restatements.catch_up(self.lake, TABLE)
                reached(Point.BEFORE_CLOSING_FIGURES)
                self.attempt.close({day: self._end(self.results[day]) for day in self.days})
        return self.results

    def _end(self, result: FiguresOfDay) -> tuple[bool, dict[str, Any]]:
        return result.ok, {
            "row_count": None if result.figures is None else result.figures.orders,
            "problem": None if result.ok else result.sentence,
            "delta_version": result.version,
            "retries": result.retries,
        }

    def _which_days(self) -> None:
        """The keys' days that silver has as the table before it is; the others have their result now."""
        days = sorted(self.keys)
        # Silver first: what is verified when it is asked for afterwards may be newer than silver, and is then held back.
        opened = self.lake.open(silver.TABLE)
        if opened is not None:
            self.silver = opened
        readable = readable_days(self.lake, self.gold.upstream, days)
        identity = None if opened is None else table_id(opened)
        merged = self.ledger.verdicts(silver.TABLE, days, identity)
        for day in days:
            before, here = readable[day], merged[day]
            name, key = self.gold.upstream.sql_name, self.gold.key_text(day)
            if not before.ok:
                problem = before.drift if before.verdict.verified else before.verdict.problem
                then = f"Load {key} of {name}, then run {silver.TABLE} and {TABLE} for it."
                what = f"{name} cannot be read on for it ({problem}). {then}"
            elif not here.verified:
                what = f"{silver.TABLE} does not have it ({here.problem}). Run {silver.TABLE} for {key}, then {TABLE}."
            elif _fingerprint(here.entry) != _fingerprint(before.verdict.entry):
                what = f"{silver.TABLE} has an earlier state of it than {name}. Run {silver.TABLE} for {key}, then {TABLE}."
            else:
                continue
            self.results[day] = FiguresOfDay(self.keys[day], day, False, f"{day} was not made ({key}): {what}")
        self.days = [day for day in days if day not in self.results]

    def _work(self) -> None:
        gold = self._gold()
        self.made = self.ledger.made(TABLE, table_id(gold), table_id(self.silver))
        feed = self._touched_since()
        touched = (self._days_of_silver(gold) if feed is None else feed) | self._days_of_rows() | set(self.days)
        wanted = self._by_duckdb(touched)
        before = read_figures(self.con, gold, touched)
        changed = sorted(day for day in touched if wanted.get(day) != before.get(day))
        restated = self._restated(changed, before, wanted, known=bool(feed))
        self.version = int(gold.version())
        if changed:
            self._replace(changed, restated)
            gold = self._gold(self.version)
        there = read_figures(self.con, gold, touched)
        wrong = sorted(day for day in touched if there.get(day) != wanted.get(day))
        rows, partial = row_count(gold), self._partial(changed)
        line = f"the figures of {_listed(touched)} are what {silver.TABLE} says"
        if wrong:
            details = [f"  {each}: {there.get(each)}, by a second engine {wanted.get(each)}" for each in wrong[:EXAMPLES]]
            line = "\n".join([f"the figures of {_listed(wrong)} are not what {silver.TABLE} says", *details])
        for day in self.days:
            sentence = f"{'PROBLEM' if wrong else 'ok'} {day} ({self.gold.key_text(day)}): {line}"
            self.results[day] = FiguresOfDay(
                self.keys[day],
                day,
                not wrong,
                sentence,
                retriable=bool(wrong),
                checked=True,
                touched=tuple(sorted(touched)),
                changed=tuple(changed),
                restated=tuple(each.order_date for each in restated),
                partial=partial,
                lacking=tuple(self.lacking),
                figures=there.get(day),
                figures_line=line,
                version=self.version,
                rows=rows,
                retries=self.retries,
            )

    def _partial(self, changed: Sequence[date]) -> tuple[date, ...]:
        """Of the days whose figures changed, those whose own source may not be read on, or never came."""
        others = [day for day in changed if day not in self.days]
        readable = readable_days(self.lake, self.gold.upstream, others) if others else {}
        return tuple(day for day in others if not readable[day].ok)

    def _gold(self, version: int | None = None) -> DeltaTable:
        table = self.lake.open(TABLE, version)
        if table is None:
            raise RuntimeError(f"{TABLE} is not there")
        return table

    def _touched_since(self) -> set[date] | None:
        """The days of events that silver's changes since the last recomputation touched; None when that cannot be told.

        Where there are changes, they are in the table `feed`.
        """
        cursor = max(self.made.values(), default=None)
        if cursor is None or cursor > self.silver.version():
            return None
        if cursor == self.silver.version():
            return set()
        try:
            changes = pa.table(self.silver.load_cdf(starting_version=cursor + 1, ending_version=self.silver.version()))
        except (DeltaError, OSError, pa.ArrowException):
            # Its files may be vacuumed away, or someone switched it off: every day is looked at instead.
            return None
        names = f"{duck.identifier(self.gold.upstream.key)}, order_date, _source_day, _change_type, _commit_version"
        self.con.register("_feed", changes)
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE feed AS SELECT {names} FROM _feed")
        self.con.unregister("_feed")
        return {day for (day,) in self.con.execute("SELECT DISTINCT order_date FROM feed").fetchall()}

    def _days_of_silver(self, gold: DeltaTable) -> set[date]:
        """The days that silver can speak of: all, or, while it is made anew, those that it has been given.

        What it was not given yet is no reason to take a figure back.
        """
        upstream = self.lake.open(self.gold.upstream.table)
        days = set() if upstream is None else set(data_files(upstream)["order_date"].to_pylist())
        readable = readable_days(self.lake, self.gold.upstream, sorted(days))
        merged = self.ledger.verdicts(silver.TABLE, sorted(days), table_id(self.silver))
        self.lacking = sorted(day for day in days if readable[day].ok and not merged[day].verified)
        if self.lacking:
            return {day for day in days if merged[day].verified}
        return {day for table in (gold, self.silver) for day in data_files(table)["order_date"].to_pylist()}

    def _days_of_rows(self) -> set[date]:
        """The days of events of silver's rows that came with these days' sources."""
        files = files_that_may_hold(self.silver, ("_source_day", [(day, day) for day in self.days]))
        view(self.con, "came", self.silver, files=files)
        days = ", ".join(f"DATE '{day}'" for day in self.days)
        return {
            day for (day,) in self.con.execute(f"SELECT DISTINCT order_date FROM came WHERE _source_day IN ({days})").fetchall()
        }

    def _by_duckdb(self, days: Collection[date]) -> dict[date, Figures]:
        time, amount = self._columns()
        view(self.con, "sold", self.silver, days)
        rows = self.con.execute(
            f"""
            SELECT order_date, count(*), CAST(sum({duck.identifier(amount)}) AS DECIMAL(20, 2)),
                   min({duck.identifier(time)}), max({duck.identifier(time)}) FROM sold GROUP BY 1
            """
        ).fetchall()
        return {
            day: Figures(orders, revenue, restatements.average(revenue, orders), *times) for day, orders, revenue, *times in rows
        }

    def _columns(self) -> tuple[str, str]:
        """The columns of a row's time and of its amount."""
        contract = self.gold.upstream
        time = contract.event_time
        amount = amount_column(contract)
        if time is None or amount is None:
            raise ShopError(f"{TABLE} needs a time and a decimal amount, and {contract.origin} has not both.")
        return time.name, amount

    def _restated(
        self,
        changed: Sequence[date],
        before: Mapping[date, Figures],
        after: Mapping[date, Figures],
        *,
        known: bool,
    ) -> list[restatements.Restated]:
        """The published figures among those that change, each with its cause."""
        published = set(before) | set(self.made)
        newest = max(published, default=date.max)
        old = [day for day in changed if day in published and day <= newest - timedelta(days=self.gold.lookback)]
        causes = restatements.causes(self.con, self.gold.upstream.key, old) if known and old else {}
        return [restatements.Restated(day, before.get(day), after.get(day), causes.get(day, restatements.UNKNOWN)) for day in old]

    def _replace(self, days: Sequence[date], restated: Sequence[restatements.Restated]) -> None:
        """Replace the figures of these days by Spark's, all read from one version of silver."""
        files = files_of_days(self.silver, set(days))
        session = pin_session(self.spark(sum(files["bytes"].to_pylist())))
        time, amount = self._columns()
        revenue = F.sum(amount).cast("DECIMAL(20,2)")
        # A string, for a datetime would go through the machine's own time zone.
        made_at = F.lit(self.attempt.started_at.strftime("%Y-%m-%d %H:%M:%S.%f")).cast("timestamp")
        rows = (
            session.read.format("delta")
            .option("versionAsOf", self.silver.version())
            .load(self.lake.table_uri(silver.TABLE))
            # As text: a date of Python's goes through a calendar in which some days are others.
            .where(day_predicate(days))
            .groupBy("order_date")
            .agg(
                F.count(F.lit(1)).alias("orders"),
                revenue.alias("revenue"),
                F.round(revenue / F.count(F.lit(1)), 2).alias("average_order"),
                F.min(time).alias("first_order_at"),
                F.max(time).alias("last_order_at"),
            )
            .withColumn("data_as_of", made_at)
            .select(*[F.col(name).cast(kind) for name, kind in COLUMNS])
            # One file a day, whatever the number of shuffle partitions.
            .repartition(1)
        )
        mark = json.dumps(
            {
                "attempt": self.attempt.name,
                "run_id": self.run_id,
                "at": self.attempt.started_at.isoformat(),
                "restated": [each.as_json() for each in restated],
            }
        )
        reached(Point.BEFORE_FIGURES)
        commit = delta_writes.replace_days(self.lake, TABLE, rows, days, mark)
        reached(Point.AFTER_FIGURES)
        self.version, self.retries = commit.version, commit.retries


def read_figures(con: duckdb.DuckDBPyConnection, gold: DeltaTable, days: Collection[date]) -> dict[date, Figures]:
    """The figures of these days that have any."""
    view(con, "figures", gold, days)
    rows = con.execute("SELECT order_date, orders, revenue, average_order, first_order_at, last_order_at FROM figures").fetchall()
    return {day: Figures(*rest) for day, *rest in rows}


def _fingerprint(entry: Entry | None) -> str | None:
    return None if entry is None else entry.fingerprint


def _listed(days: Collection[date]) -> str:
    named = ", ".join(map(str, sorted(days)[:EXAMPLES]))
    return named if len(days) <= EXAMPLES else f"{named} and {len(days) - EXAMPLES} more"
