"""Load days, then verify them: the one unit of work, the same for a day and for a range.

Read the source of the days asked for, judge every row, refuse the days that break the contract, write the good days in
one commit, set aside what is quarantined, compare what landed with the source, and put every step in the run log.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core import changes, delta_writes, disk, duck, gates, interrupts, quarantine, volume
from shop_pipeline.core.batch import (
    CUT_OTHERWISE,
    Reading,
    counted_within,
    difference,
    judged_in_spark,
    read_by_duckdb,
    read_by_spark,
)
from shop_pipeline.core.changes import Changes
from shop_pipeline.core.contract import Contract, Rule
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.drift import check_types
from shop_pipeline.core.errors import ShopError, SourceRefused, SourceUnavailable, TableUnreadable, in_a_line
from shop_pipeline.core.fault_points import Point, reached
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import APPEND, CHECK, FAILED, LOAD, STARTED, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.outcome import DayResult, Status
from shop_pipeline.core.scratch import Scratch
from shop_pipeline.core.sources import Drift, OpenSource, Source, Split
from shop_pipeline.core.spark import SMALL_LOAD, pin_session
from shop_pipeline.core.spark_remote import lost
from shop_pipeline.core.verify import Checked, compare, unequal

APPENDED = "appended, not verified"
Clock = Callable[[], datetime]
Progress = Callable[[str], None]
GiveSpark = Callable[[int | None], SparkSession]


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
    def ledger(self) -> Ledger:
        """The run log of the same lake."""
        return Ledger(self.lake)

    def load(
        self,
        spark: GiveSpark,
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
            SchemaChanged: the table's columns have other types than the contract's; nothing was written.
            CommitConflict: others committed to the table each time; nothing was written.
            DiskFull: no space is left; nothing is half written.
            Exception: the engine or the store failed; the days are in run_log as failed, and nothing is half written.
        """
        again = self._again(sorted(self.rule.day(key) for key in keys))
        with Scratch() as scratch, disk.full_in_a_sentence(self.lake.uri, str(scratch), again):
            attempt = _Attempt(self, APPEND if append else LOAD, run_id, clock, {self.rule.day(key): key for key in keys}, scratch)
            try:
                with interrupts.kept():
                    attempt.start()
                    with closing(_Loading(attempt, spark, append, progress)) as loading:
                        results = loading.run()
            except BaseException as error:
                # A person's Ctrl-C and Dagster's "terminate" are none of Exception's kind, and are logged as well.
                attempt.close_failed(error)
                raise
        return [results[self.rule.day(key)] for key in keys]

    def check(self, keys: Sequence[str], *, run_id: str, clock: Clock) -> list[DayResult]:
        """Compare the days of these keys with their source again, without loading. Starts no JVM.

        A mismatch closes the day for everything downstream, a match opens it; where no comparison can be made nothing
        changes.
        """
        with Scratch() as scratch:
            attempt = _Attempt(self, CHECK, run_id, clock, {self.rule.day(key): key for key in keys}, scratch)
            days = sorted(attempt.keys)
            try:
                source = self.source.open(days)
            except (SourceUnavailable, SourceRefused) as problem:
                return [attempt.not_opened(self.rule.day(key), str(problem)) for key in keys]
            with closing(source) as opened:
                attempt.fingerprints = opened.fingerprints(days)
                checked = compare(self.lake, self.table, self.contract, opened, days, scratch=scratch)
                attempt.version, attempt.table_identity = checked.version, checked.table_id
                results = attempt.results(opened, checked, days)
            attempt.close([results[day] for day in days])
        return [results[self.rule.day(key)] for key in keys]

    def _again(self, days: Sequence[date]) -> str:
        keys = [self.rule.key(day) for day in days]
        return f"{self.rule.key_name} {keys[0]}" if len(keys) == 1 else f"{self.rule.key_name}s {keys[0]} to {keys[-1]}"

    def key_text(self, day: date) -> str:
        """A day's key, as messages name it: `run date 2026-09-02`."""
        return f"{self.rule.key_name} {self.rule.key(day)}"


@dataclass
class _Attempt:
    """One try at some days: what it knows of earlier ones, and the rows it owes the run log."""

    daily: DailyLoad
    kind: str
    run_id: str
    clock: Clock
    keys: dict[date, str]
    scratch: Path
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    version: int | None = None
    retries: int = 0
    may_have_written: bool = False
    table_identity: str | None = None
    fingerprints: Mapping[date, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started_at = self.clock()
        self.open_days = set(self.keys)
        self.con = duck.connect(self.scratch)
        try:
            self.table: DeltaTable | None = self.daily.lake.open(self.daily.table)
        except TableUnreadable:
            # A check says so of each day; a load stops here, before it writes.
            if self.kind != CHECK:
                raise
            self.table = None
        self.table_identity = None if self.table is None else table_id(self.table)

    @cached_property
    def history(self) -> Mapping[date, Entry]:
        """The newest successful load of each verified day."""
        return self.daily.ledger.history(self.daily.contract.sql_name, self.table_identity)

    def not_opened(self, day: date, problem: str) -> DayResult:
        """The result of a check whose source cannot be reached, which says nothing of the day."""
        return DayResult(
            self.daily.rule.key(day),
            day,
            Status.NOT_CHECKED,
            f"NOT CHECKED {day}: {problem}",
            "",
            retriable=True,
            duration=self.seconds,
            checks=gates.not_judged(self.daily.contract, day, "the day was not compared with its source"),
        )

    def start(self) -> None:
        """Note that the days are being loaded: until they are closed, nobody may read them."""
        self.daily.ledger.append([self._entry(day, STARTED) for day in sorted(self.keys)])
        reached(Point.AFTER_STARTED)

    def close(self, results: Sequence[DayResult]) -> None:
        """Note how the days ended."""
        reached(Point.BEFORE_CLOSING)
        self.daily.ledger.append([self._closing(result) for result in results])
        self.open_days -= {result.day for result in results}

    def close_failed(self, error: BaseException) -> None:
        """Close what is still open after an error; stay silent (and so leave the days closed) if a write may be under way."""
        if self.may_have_written and self.version is None:
            return
        try:
            if self.version is not None and self.table_identity is None:
                written = self.daily.lake.open(self.daily.table, self.version)
                self.table_identity = None if written is None else table_id(written)
            failed = [
                replace(self._entry(day, FAILED), problem=in_a_line(error), delta_version=self.version)
                for day in sorted(self.open_days)
            ]
            self.daily.ledger.append(failed)
        except Exception as second:
            # The first error is the one to be told of; the days stay closed, as after a kill.
            error.add_note(f"run_log could not be written to either: {second}")

    def _entry(self, day: date, status: str) -> Entry:
        return Entry(
            run_id=self.run_id,
            run_at=self.started_at if status == STARTED else self.clock(),
            table_name=self.daily.contract.sql_name,
            row_count=None,
            max_event_time=None,
            status=status,
            day=day,
            run_date=date.fromisoformat(self.daily.rule.key(day)),
            fingerprint=None,
            quarantined=None,
            problem=None,
            delta_version=None,
            duration=None,
            kind=self.kind,
            attempt=self.name,
            table_id=self.table_identity,
        )

    def _closing(self, result: DayResult) -> Entry:
        seen = result.comparison
        wrote = result.version is not None
        return replace(
            self._entry(result.day, SUCCEEDED if result.ok else FAILED),
            row_count=result.rows if wrote else None,
            max_event_time=seen.max_event_time if seen else None,
            fingerprint=seen.fingerprint if seen else None,
            quarantined=result.quarantined if seen or result.records else None,
            flagged=result.flagged if seen or result.records else None,
            broken=json.dumps({rule.name: rows for rule, rows in result.broken}) if result.broken else None,
            drift=json.dumps(_drift_as_json(result)) if result.drift else None,
            profile=json.dumps(dict(result.profile)) if result.profile else None,
            source_fingerprint=result.source_fingerprint,
            problem=None if result.ok else result.sentence,
            delta_version=result.version,
            duration=result.duration,
            retries=result.retries if wrote else None,
        )

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return (self.clock() - self.started_at).total_seconds()

    def judgements(self, rows: Mapping[date, int]) -> dict[date, volume.Judgement | None]:
        """The volume of each of these days against the days before it, those of this batch included."""
        known = {day: entry.row_count or 0 for day, entry in self.history.items()}
        return gates.judge_volumes(self.daily.contract.volume, known, rows)

    def results(self, opened: OpenSource, checked: Checked, days: Sequence[date]) -> dict[date, DayResult]:
        """The results of days that were compared with their source, or could not be."""
        # A load that could not be verified has written all the same, and so closes its day; a check has not.
        written, again = (None, "check") if self.kind == CHECK else (self.version, "load")
        rows = {day: checked.comparisons[day].table_rows for day in days if day in checked.comparisons}
        judgements, profiles = self.judgements(rows), self._profiles(checked)
        results = {}
        for day in days:
            key = self.daily.rule.key(day)
            if day in checked.not_checked:
                sentence = f"NOT CHECKED {day}: {checked.not_checked[day]} and {again} {self.daily.key_text(day)} again."
                results[day] = DayResult(
                    key,
                    day,
                    Status.NOT_CHECKED,
                    sentence,
                    opened.name(day),
                    retriable=True,
                    version=written,
                    retries=self.retries,
                    duration=self.seconds,
                    checks=gates.not_judged(self.daily.contract, day, "the day was not compared with its source"),
                )
            else:
                results[day] = self._compared(opened, day, checked, judgements[day], profiles)
        return results

    def _profiles(self, checked: Checked) -> Mapping[date, Mapping[str, float]]:
        """The share of each column's commonest value: of days verified before, and of this batch's."""
        earlier = {day: json.loads(entry.profile) for day, entry in self.history.items() if entry.profile}
        now = {
            day: {name: share for name, (_, share) in seen.top.items()} for day, seen in checked.comparisons.items() if seen.equal
        }
        return earlier | now

    def _compared(
        self,
        opened: OpenSource,
        day: date,
        checked: Checked,
        judgement: volume.Judgement | None,
        profiles: Mapping[date, Mapping[str, float]],
    ) -> DayResult:
        contract, key = self.daily.contract, self.daily.rule.key(day)
        seen, reading = checked.comparisons[day], checked.readings[day]
        checks = gates.judge_day(contract, day, reading, seen, judgement, profiles)
        fatal = [*gates.empty_gate(contract, reading), *(each.sentence for each in checks if not each.passed and each.fatal)]
        ok = seen.equal and not fatal
        line = seen.line if ok or not seen.equal else f"PROBLEM {seen.line.removeprefix('ok ')}"
        sentence = "\n".join([line, *(f"  {each}" for each in (*seen.details, *fatal))])
        warnings = gates.warnings(self.con, contract, opened, day, self.daily.key_text(day), reading)
        spoken = (gates.VOLUME, gates.VALUE_DISTRIBUTION)
        warnings += opened.remarks() if day == max(self.keys) else []
        warnings += [
            f"{each.sentence} ({self.daily.key_text(day)})"
            for each in checks
            if not each.passed and not each.fatal and each.name in spoken and reading.records
        ]
        return DayResult(
            key,
            day,
            Status.VERIFIED if ok else Status.MISMATCH,
            sentence,
            opened.name(day),
            retriable=not seen.equal,
            comparison=seen,
            records=reading.records,
            rows=seen.table_rows,
            failing=reading.failing,
            quarantined=reading.quarantined,
            flagged=reading.flagged,
            table_rows=checked.total_rows,
            version=self.version,
            retries=self.retries,
            duration=self.seconds,
            drift=opened.drift(day),
            warnings=tuple(warnings),
            broken=_broken(contract, reading),
            checks=checks,
            profile={name: round(share, 2) for name, (_, share) in seen.top.items()},
            log_line=gates.log_line(contract, reading),
            source_fingerprint=self.fingerprints.get(day, reading.fingerprint),
        )


@dataclass
class _Loading:
    """The steps of loading the days of an attempt; `results` fills as days are settled."""

    attempt: _Attempt
    spark: GiveSpark
    append: bool
    progress: Progress
    results: dict[date, DayResult] = field(default_factory=dict)
    starting: Future[SparkSession] | None = None
    held: OpenSource | None = None

    def __post_init__(self) -> None:
        self.daily = self.attempt.daily
        self.contract = self.daily.contract
        self.days = sorted(self.attempt.keys)

    def close(self) -> None:
        """Let go of the source."""
        if self.held is not None:
            self.held.close()

    def run(self) -> dict[date, DayResult]:
        """Load the days, and close each of them in the run log.

        What an engine says of the source is told in the source's words.
        """
        try:
            return self._run()
        except Exception as error:
            explained = None if self.held is None or isinstance(error, ShopError) else self.held.explain(error) or lost(error)
            if explained is None:
                raise
            raise explained from error

    def _run(self) -> dict[date, DayResult]:
        check_types(self.contract, self.attempt.table)
        self._start_spark_early()
        reached(Point.BEFORE_READ)
        self.held = self.opened = self.daily.source.open(self.days)
        self.attempt.fingerprints = self.opened.fingerprints(self.days)
        for day, why in self.opened.refused.items():
            status = Status.MISSING if day in self.opened.missing else Status.REFUSED
            sentence = f"{day} was not loaded: {why} and {self._again(day)}."
            self.results[day] = self._refused(day, sentence, status=status, why="the day has no readable source")
        there = self._open_days()
        self.readings = read_by_duckdb(self.attempt.con, self.contract, self.opened, there) if there else {}
        self._judge()
        reached(Point.AFTER_JUDGING)
        self.progress(f"read {len(there)} of {len(self.days)} days; {len(self.results)} refused or missing")
        if self._open_days():
            self._write()
        if self._open_days():
            self._verify()
        self.attempt.close([self.results[day] for day in self.days])
        self.progress(f"{sum(1 for each in self.results.values() if each.ok)} of {len(self.days)} days verified")
        return self.results

    def _start_spark_early(self) -> None:
        """Start Spark beside DuckDB's reading where that is long; where it is short, days that are refused start no JVM."""
        size = self.daily.source.size(self.days)
        if size is not None and size > SMALL_LOAD:
            self.starting = ThreadPoolExecutor(1).submit(self.spark, size)

    def _session(self) -> SparkSession:
        started = self.spark(self.opened.size(self._open_days())) if self.starting is None else self.starting.result()
        return pin_session(started)

    def _open_days(self) -> list[date]:
        return [day for day in self.days if day not in self.results]

    def _again(self, day: date) -> str:
        return f"rerun {self.daily.key_text(day)}"

    def _judge(self) -> None:
        """Refuse the days that break a rule whose action is fail."""
        judgements = self.attempt.judgements({day: self.readings[day].good for day in self._open_days()})
        for day in self._open_days():
            reading, judgement = self.readings[day], judgements[day]
            sentence = gates.refusal(self.attempt.con, self.contract, self.opened, day, reading, judgement, self._again(day))
            if sentence is not None:
                self.results[day] = self._refused(day, sentence, judgement=judgement)

    def _write(self) -> None:
        """Write the days on which Spark reads what DuckDB read; the others, and files that changed, are refused."""
        days = self._open_days()
        session = self._session()
        splits = None if self.append else self.opened.known_splits({day: self.readings[day].records for day in days})
        if splits is not None and self._written_in_one_pass(session, splits):
            return
        rows = judged_in_spark(self.opened.rows_in_spark(session, days), self.contract)
        by_spark, splits = read_by_spark(rows, self.contract, days)
        self._refuse_changed(days)
        for day in self._open_days():
            differs = difference(self.readings[day], by_spark[day], self.contract)
            if differs:
                self.results[day] = self._read_differently(day, differs)
        # A day that was refused just now is missing from the baseline of those after it.
        self._judge()
        good = self._open_days()
        if good:
            kept = rows if good == days else rows.where(F.col("order_date").isin(good))
            if any(self.readings[day].quarantined for day in good):
                kept = self._accepted(kept)
            self._commit(kept, splits, good)

    def _written_in_one_pass(self, session: SparkSession, splits: Sequence[Split]) -> bool:
        """Write a big day without having Spark read it beforehand. What was written is compared with what DuckDB read while the
        table's lock is held, and taken back where it is not the same: the day is refused, as if it had been read before.

        Returns:
            False where Spark cut the file otherwise than foreseen; nothing was written then.
        """
        (day,) = self._open_days()
        rows = judged_in_spark(self.opened.rows_of_known_splits(session, day), self.contract)

        def wrong(version: int) -> str | None:
            if self.opened.changed([day]):
                return "the file changed"
            lake, table, reading = self.daily.lake, self.daily.table, self.readings[day]
            return unequal(lake, table, self.contract, self.opened, day, reading, version=version, scratch=self.attempt.scratch)

        try:
            self._commit(self._accepted(counted_within(rows, splits)), splits, [day], wrong)
        except delta_writes.NotAccepted as problem:
            self._refuse_changed([day])
            self.results.setdefault(day, self._read_differently(day, str(problem)))
        except Exception as error:
            # Spark's own, or py4j's around it: the text alone is in both.
            if CUT_OTHERWISE not in str(error):
                raise
            return False
        return True

    def _refuse_changed(self, days: Sequence[date]) -> None:
        for day, why in self.opened.changed(days).items():
            self.results[day] = self._refused(day, f"{day} was not loaded: {why} and {self._again(day)}.", retriable=True)

    def _read_differently(self, day: date, how: str) -> DayResult:
        why = f"two engines read {self.opened.name(day)} differently ({how}). Look at the {self.opened.noun}, mend it"
        return self._refused(day, f"{day} was not loaded: {why} and {self._again(day)}.")

    def _accepted(self, rows: DataFrame) -> DataFrame:
        return rows.where(f"_broken & {self.contract.bad_bits} = 0")

    def _commit(
        self, rows: DataFrame, splits: Sequence[Split], days: Sequence[date], wrong: Callable[[int], str | None] | None = None
    ) -> None:
        """Write rows as these days' in one commit, and remember its version."""
        self.progress(f"writing {len(days)} days")
        attempt = self.attempt
        mark = json.dumps({"attempt": attempt.name, "run_id": attempt.run_id})
        typed = self._typed(self.opened.with_seq(rows, splits), self.opened.new_columns(days))
        reached(Point.BEFORE_COMMIT)
        lake, table, statistics = self.daily.lake, self.daily.table, self.contract.searched
        attempt.may_have_written = True
        try:
            if self.append:
                commit = delta_writes.append(lake, table, typed, mark, statistics=statistics)
            else:
                commit = delta_writes.replace_days(lake, table, typed, days, mark, statistics=statistics, wrong=wrong)
        except delta_writes.NotAccepted:
            attempt.may_have_written = False
            raise
        except BaseException:
            attempt.version = delta_writes.version_of(lake, table, mark)
            attempt.may_have_written = attempt.version is not None
            raise
        attempt.version, attempt.retries = commit.version, commit.retries
        reached(Point.AFTER_COMMIT)

    def _typed(self, rows: DataFrame, new: Sequence[str]) -> DataFrame:
        typed = {column.name: F.col(column.typed_name) for column in self.contract.columns}
        typed["order_date"] = F.col("order_date")
        day = F.col("order_date").cast("timestamp")
        version = self.contract.source_version
        typed["_source_version"] = day if version is None else F.coalesce(typed[version], day)
        typed["_source_seq"] = F.col("_source_seq")
        # A string, for a datetime would go through the machine's own time zone.
        typed["_loaded_at"] = F.lit(self.attempt.started_at.strftime("%Y-%m-%d %H:%M:%S.%f")).cast("timestamp")
        return rows.select(*[typed[name].alias(name) for name, _ in self.contract.table_columns], *map(F.col, new))

    def _verify(self) -> None:
        """Set aside what is quarantined of the days that were written, and compare them with their source."""
        attempt, days = self.attempt, self._open_days()
        if not self.append:
            with_rows = [day for day in days if self.readings[day].quarantined]
            attempt.retries += quarantine.replace(
                self.daily.lake, self.contract, self.daily.rule, attempt.con, self.opened, days, with_rows, attempt.run_id
            )
        reached(Point.BEFORE_CHECK)
        checked = compare(
            self.daily.lake,
            self.daily.table,
            self.contract,
            self.opened,
            days,
            version=attempt.version,
            readings=self.readings,
            scratch=attempt.scratch,
        )
        attempt.table_identity = checked.table_id or attempt.table_identity
        results = attempt.results(self.opened, checked, days)
        if self.append:
            results = {
                day: replace(each, status=Status.APPENDED, sentence=APPENDED, retriable=False) for day, each in results.items()
            }
        changed = self._changes(days)
        self.results |= {day: replace(each, changes=changed.get(day)) for day, each in results.items()}

    def _changes(self, days: Sequence[date]) -> Mapping[date, Changes]:
        """What this load changed in the days. It is for people to read: where it cannot be told, the day is none the worse."""
        if self.attempt.version is None:
            return {}
        try:
            return changes.of_load(self.daily.lake, self.contract, self.attempt.version, days, self.attempt.scratch)
        except (ShopError, duckdb.Error) as error:
            return dict.fromkeys(days, Changes(None, None, None, f"not known: {in_a_line(error)}"))

    def _refused(
        self,
        day: date,
        sentence: str,
        *,
        status: Status = Status.REFUSED,
        retriable: bool = False,
        why: str = "the day was refused",
        judgement: volume.Judgement | None = None,
    ) -> DayResult:
        there = day not in self.opened.refused
        reading = self.readings.get(day) if there else None
        return DayResult(
            self.daily.rule.key(day),
            day,
            status,
            sentence,
            self.opened.name(day),
            retriable=retriable,
            records=reading.records if reading else 0,
            failing=reading.failing if reading else 0,
            quarantined=reading.quarantined if reading else 0,
            flagged=reading.flagged if reading else 0,
            duration=self.attempt.seconds,
            drift=self.opened.drift(day) if there else Drift(),
            broken=_broken(self.contract, reading) if reading else (),
            checks=gates.not_judged(self.contract, day, why, judgement),
            log_line=gates.log_line(self.contract, reading) if reading else None,
            source_fingerprint=self.attempt.fingerprints.get(day, reading.fingerprint if reading else None),
        )


def _broken(contract: Contract, reading: Reading) -> tuple[tuple[Rule, int], ...]:
    return tuple((rule, rows) for rule, rows in zip(contract.rules, reading.broken, strict=True) if rows)


def _drift_as_json(result: DayResult) -> dict[str, object]:
    drift = result.drift
    return {"added": list(drift.added), "ignored": list(drift.ignored), "reordered": drift.reordered}
