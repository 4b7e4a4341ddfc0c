"""Load days, then verify them: the one unit of work, the same for a day and for a range.

Read the source of the days asked for, judge every row, refuse the days that break the contract, write the good days in
one commit, compare what landed with the source, and put every step in the run log.
"""

import json
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core import delta_writes, duck
from shop_pipeline.core.batch import (
    EXAMPLES,
    Fingerprints,
    Reading,
    difference,
    read_by_duckdb,
    read_by_spark,
    violations,
)
from shop_pipeline.core.contract import Action, Contract
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.errors import TableUnreadable
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import APPEND, CHECK, FAILED, LOAD, STARTED, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.sources import OpenSource, Source
from shop_pipeline.core.spark import pin_session
from shop_pipeline.core.verify import Checked, Comparison, compare

APPENDED = "appended, not verified"
Clock = Callable[[], datetime]
Progress = Callable[[str], None]


class Status(StrEnum):
    """How an attempt at a day ended."""

    VERIFIED = "verified"
    REFUSED = "refused"
    MISSING = "missing"
    MISMATCH = "mismatch"
    APPENDED = "appended"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class DayResult:
    """What became of a day. `sentence` says it to a person; `retriable` is false where only a person can help."""

    key: str
    day: date
    status: Status
    sentence: str
    source_name: str
    retriable: bool = False
    comparison: Comparison | None = None
    records: int = 0
    rows: int = 0
    table_rows: int = 0
    version: int | None = None
    duration: float = 0.0

    @property
    def warning(self) -> str | None:
        """What is odd about a day that was loaded all the same."""
        if self.comparison is not None and self.comparison.source_rows == 0:
            return f"{self.day} has no orders: {self.source_name} has a header and nothing else (run date {self.key})"
        return None

    @property
    def ok(self) -> bool:
        """Whether the day was loaded (or checked) and found equal to its source."""
        return self.status is Status.VERIFIED


@dataclass
class _Attempt:
    """One try at some days, and the rows it owes the run log."""

    load: "DailyLoad"
    run_id: str
    kind: str
    clock: Clock
    started_at: datetime
    open_days: dict[date, str]
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    version: int | None = None
    may_have_written: bool = False
    table_identity: str | None = None

    def entry(self, day: date, status: str) -> Entry:
        return Entry(
            run_id=self.run_id,
            run_at=self.started_at if status == STARTED else self.clock(),
            table_name=self.load.sql_name,
            row_count=None,
            max_event_time=None,
            status=status,
            day=day,
            run_date=date.fromisoformat(self.load.rule.key(day)),
            fingerprint=None,
            quarantined=None,
            problem=None,
            delta_version=None,
            duration=None,
            kind=self.kind,
            attempt=self.attempt,
            table_id=self.table_identity,
        )

    def close(self, results: Sequence[DayResult]) -> None:
        self.identify()
        entries = []
        for result in results:
            self.open_days.pop(result.day, None)
            seen = result.comparison
            entries.append(
                replace(
                    self.entry(result.day, SUCCEEDED if result.ok else FAILED),
                    row_count=result.rows if result.version is not None else None,
                    max_event_time=seen.max_event_time if seen else None,
                    fingerprint=seen.fingerprint if seen else None,
                    quarantined=seen.quarantined if seen else None,
                    problem=None if result.ok else result.sentence,
                    delta_version=result.version,
                    duration=result.duration,
                )
            )
        self.load.ledger.append(entries)

    def identify(self) -> None:
        """Note which table was written: the first load of all has made it."""
        if self.version is not None:
            written = self.load.lake.open(self.load.table, self.version)
            self.table_identity = None if written is None else table_id(written)

    def close_failed(self, problem: str) -> None:
        """Close what is still open after an error; stay silent (and so leave the days closed) if a write may be under way."""
        if self.may_have_written and self.version is None:
            return
        self.identify()
        self.load.ledger.append(
            [replace(self.entry(day, FAILED), problem=problem, delta_version=self.version) for day in sorted(self.open_days)]
        )


@dataclass(frozen=True)
class DailyLoad:
    """A source, a table, a contract, and which day a key stands for."""

    lake: Lake
    source: Source
    contract: Contract
    rule: KeyRule

    @property
    def table(self) -> str:
        """The table's name, which is its folder and its asset's key."""
        return self.contract.table

    @property
    def sql_name(self) -> str:
        """The table's name in SQL and in run_log."""
        return self.table.replace("/", ".")

    @property
    def ledger(self) -> Ledger:
        """The run log of the same lake."""
        return Ledger(self.lake)

    def load(
        self,
        spark: Callable[[int | None], SparkSession],
        keys: Sequence[str],
        *,
        run_id: str,
        clock: Clock,
        append: bool = False,
        progress: Progress = lambda _: None,
    ) -> list[DayResult]:
        """Load and verify the days of these keys; each has its own result, in the order of the keys.

        Args:
            spark: gives the session for a load of so many bytes; called only when there is a day to write.
            append: add to the day instead of replacing it, and do not verify it (shows what a plain append does).

        Raises:
            Exception: the engine or the store failed; the days are in run_log as failed, and nothing is half written.
        """
        days = {self.rule.day(key): key for key in keys}
        attempt = self._start(APPEND if append else LOAD, run_id, clock, days)
        self.ledger.append([attempt.entry(day, STARTED) for day in sorted(days)])
        try:
            results = self._load(spark, attempt, sorted(days), append, progress)
        except Exception as error:
            attempt.close_failed(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:1000])
            raise
        return [results[self.rule.day(key)] for key in keys]

    def _start(self, kind: str, run_id: str, clock: Clock, days: Mapping[date, str]) -> _Attempt:
        try:
            table = self.lake.open(self.table)
        except TableUnreadable:
            # A check says so of each day; a load is stopped below, before it writes.
            if kind != CHECK:
                raise
            table = None
        identity = None if table is None else table_id(table)
        return _Attempt(self, run_id, kind, clock, clock(), dict(days), table_identity=identity)

    def _load(
        self, spark: Callable[[int | None], SparkSession], attempt: _Attempt, days: list[date], append: bool, progress: Progress
    ) -> dict[date, DayResult]:
        results: dict[date, DayResult] = {}
        with tempfile.TemporaryDirectory(prefix="shop-") as scratch:
            con = duck.connect(Path(scratch))
            opened = self.source.open(days)
            for day, why in opened.refused.items():
                status = Status.MISSING if day in opened.missing else Status.REFUSED
                results[day] = replace(self._refused(attempt, opened, day, why), status=status)
            there = [day for day in days if day not in results]
            readings = read_by_duckdb(con, self.contract, opened, there) if there else {}
            for day in there:
                broken = self._broken(con, opened, day, readings[day][0])
                if broken:
                    results[day] = self._refused(attempt, opened, day, f"{broken}. Mend the file")
            good = [day for day in there if day not in results]
            progress(f"read {len(there)} of {len(days)} days; {len(results)} refused or missing")
            if good:
                results |= self._write(spark, attempt, opened, readings, good, append, progress)
                written = [day for day in good if day not in results]
                if written:
                    results |= self._finish(attempt, opened, readings, written, append, Path(scratch))
        attempt.close([results[day] for day in days])
        progress(f"{sum(1 for each in results.values() if each.ok)} of {len(days)} days verified")
        return results

    def _write(
        self,
        spark: Callable[[int | None], SparkSession],
        attempt: _Attempt,
        opened: OpenSource,
        readings: Mapping[date, tuple[Reading, Fingerprints]],
        days: list[date],
        append: bool,
        progress: Progress,
    ) -> dict[date, DayResult]:
        """Write the days on which Spark reads what DuckDB read; the others, and files that changed, come back refused."""
        session = pin_session(spark(opened.size(days)))
        rows = opened.rows_in_spark(session, days)
        by_spark, splits = read_by_spark(rows, self.contract, days)
        refused = {
            day: replace(self._refused(attempt, opened, day, why), retriable=True) for day, why in opened.changed(days).items()
        }
        for day in days:
            differs = difference(readings[day][0], by_spark[day], self.contract)
            if differs and day not in refused:
                why = f"two engines read {opened.name(day)} differently ({differs}). Look at the file, mend it"
                refused[day] = self._refused(attempt, opened, day, why)
        good = [day for day in days if day not in refused]
        if not good:
            return refused
        progress(f"writing {len(good)} days")
        mark = json.dumps({"attempt": attempt.attempt, "run_id": attempt.run_id})
        typed = self._typed(opened.with_seq(rows.where(F.col("order_date").isin(good)), splits), attempt)
        attempt.may_have_written = True
        try:
            if append:
                attempt.version = delta_writes.append(self.lake, self.table, typed, mark)
            else:
                attempt.version = delta_writes.replace_days(self.lake, self.table, typed, good, mark)
        except Exception:
            attempt.version = delta_writes.version_of(self.lake, self.table, mark)
            attempt.may_have_written = attempt.version is not None
            raise
        return refused

    def _typed(self, rows: DataFrame, attempt: _Attempt) -> DataFrame:
        typed = {column.name: F.expr(column.typed) for column in self.contract.columns}
        typed["order_date"] = F.col("order_date")
        typed["_source_version"] = F.col("order_date").cast("timestamp")
        typed["_source_seq"] = F.col("_source_seq")
        # A string, for a datetime would go through the machine's own time zone.
        typed["_loaded_at"] = F.lit(attempt.started_at.strftime("%Y-%m-%d %H:%M:%S.%f")).cast("timestamp")
        return rows.select(*[typed[name].alias(name) for name, _ in self.contract.table_columns])

    def _finish(
        self,
        attempt: _Attempt,
        opened: OpenSource,
        readings: Mapping[date, tuple[Reading, Fingerprints]],
        days: list[date],
        append: bool,
        scratch: Path,
    ) -> dict[date, DayResult]:
        checked = compare(
            self.lake,
            self.table,
            self.contract,
            opened,
            days,
            version=attempt.version,
            readings=readings,
            scratch=scratch,
        )
        results = self._results(attempt, opened, checked, days)
        if append:
            results = {
                day: replace(result, status=Status.APPENDED, sentence=APPENDED, retriable=False) for day, result in results.items()
            }
        return results

    def check(self, keys: Sequence[str], *, run_id: str, clock: Clock) -> list[DayResult]:
        """Compare the days of these keys with their source again, without loading. Starts no JVM.

        A mismatch closes the day for everything downstream, a match opens it; where no comparison can be made nothing
        changes.
        """
        days = {self.rule.day(key): key for key in keys}
        attempt = self._start(CHECK, run_id, clock, days)
        opened = self.source.open(sorted(days))
        with tempfile.TemporaryDirectory(prefix="shop-") as scratch:
            checked = compare(self.lake, self.table, self.contract, opened, sorted(days), scratch=Path(scratch))
        attempt.version = checked.version
        attempt.table_identity = checked.table_id
        results = self._results(attempt, opened, checked, sorted(days))
        attempt.close(list(results.values()))
        return [results[self.rule.day(key)] for key in keys]

    def _results(self, attempt: _Attempt, opened: OpenSource, checked: Checked, days: Sequence[date]) -> dict[date, DayResult]:
        seconds = (attempt.clock() - attempt.started_at).total_seconds()
        # A load that could not be verified has written all the same, and so closes its day; a check has not.
        written, again = (None, "check") if attempt.kind == CHECK else (attempt.version, "load")
        results = {}
        for day in days:
            key = self.rule.key(day)
            if day in checked.not_checked:
                sentence = f"NOT CHECKED {day}: {checked.not_checked[day]} and {again} {self._key_text(day)} again."
                results[day] = DayResult(
                    key, day, Status.NOT_CHECKED, sentence, opened.name(day), True, version=written, duration=seconds
                )
                continue
            seen = checked.comparisons[day]
            status = Status.VERIFIED if seen.equal else Status.MISMATCH
            sentence = "\n".join([seen.line, *(f"  {detail}" for detail in seen.details)])
            results[day] = DayResult(
                key,
                day,
                status,
                sentence,
                opened.name(day),
                not seen.equal,
                seen,
                seen.source_rows,
                seen.table_rows,
                checked.total_rows,
                attempt.version,
                seconds,
            )
        return results

    def _refused(self, attempt: _Attempt, opened: OpenSource, day: date, why: str) -> DayResult:
        seconds = (attempt.clock() - attempt.started_at).total_seconds()
        sentence = f"{day} was not loaded: {why} and rerun {self._key_text(day)}."
        return DayResult(self.rule.key(day), day, Status.REFUSED, sentence, opened.name(day), duration=seconds)

    def _broken(self, con: duck.Connection, opened: OpenSource, day: date, reading: Reading) -> str | None:
        """Which promises the day breaks whose action is fail: how many rows, and the first five."""
        if not reading.failing:
            return None
        found = violations(con, self.contract, opened, day, [Action.FAIL], EXAMPLES)
        total = sum(n for rule, n in zip(self.contract.rules, reading.broken, strict=True) if rule.action is Action.FAIL)
        more = f"; and {total - len(found)} more" if total > len(found) else ""
        return f"{opened.name(day)}, " + "; ".join(str(each) for each in found) + more

    def _key_text(self, day: date) -> str:
        return f"{self.rule.key_name} {self.rule.key(day)}"
