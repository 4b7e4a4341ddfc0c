"""`silver_orders`: a row is one order, its newest row among all verified days.

What changes is worked out by DuckDB under the table's lock (`silver_changes`), written to a file and merged by Spark in one
commit; then every row of the merged days is accounted for (`silver_check`). Where nothing changes there is no commit, and no
JVM is started.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core import delta_writes, disk, duck, interrupts, lateness
from shop_pipeline.core.attempts import Attempt
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.drift import check_columns
from shop_pipeline.core.fault_points import Point, reached
from shop_pipeline.core.lake import Lake, files_that_may_hold, view
from shop_pipeline.core.ledger import MERGE, Ledger
from shop_pipeline.core.readable import Readable, pinned
from shop_pipeline.core.scratch import Scratch
from shop_pipeline.core.silver_changes import DELETE, FELL_BACK, INSERT, UPDATE, Changes, Comparison, Ranges, columns, within
from shop_pipeline.core.silver_check import Account, accounts, twice_in_silver
from shop_pipeline.core.spark import pin_session

TABLE = "silver_orders"
DESCRIPTION = "A row is one order: the newest of its rows among all verified days."
UNIQUE, RECONCILES = "order_id_is_unique", "reconciles_with_bronze"
STAGING = ".staging"
EXAMPLES = 5

GiveSpark = Callable[[int | None], SparkSession]


@dataclass(frozen=True)
class MergedDay:
    """What a merge did with a day. `sentence` says it to a person; without an `account` nothing of the day was merged."""

    key: str
    day: date
    ok: bool
    sentence: str
    retriable: bool = False
    account: Account | None = None
    changed: Mapping[str, int] = field(default_factory=dict)
    spread: Mapping[int, int] = field(default_factory=dict)
    repeated_keys: tuple[str, ...] = ()
    version: int | None = None
    retries: int = 0
    log_line: str | None = None

    @property
    def late_rows(self) -> int:
        """How many of the day's rows came after their event's day."""
        return sum(rows for late, rows in self.spread.items() if late > 0)


def properties(contract: Contract) -> dict[str, str]:
    """Silver's table properties: changes can be read from it, and files are searched by key, event time and source day."""
    searched = (*contract.searched, "_source_day")
    return {"delta.enableChangeDataFeed": "true", "delta.dataSkippingStatsColumns": ",".join(searched)}


class _Moved(Exception):
    """The table before silver has a newer version than the one that was read: begin again."""


@dataclass(frozen=True)
class Silver:
    """Silver beside the table that it is made of."""

    lake: Lake
    upstream: Contract
    rule: KeyRule

    def merge(self, spark: GiveSpark, keys: Sequence[str], *, run_id: str, clock: Callable[[], datetime]) -> list[MergedDay]:
        """Bring silver up to date with the days of these keys; each has its own result, in the order of the keys.

        Args:
            spark: gives the session for a merge of so many bytes; called only when a row changes.

        Raises:
            SchemaChanged: silver's columns have other types than the contract's; nothing was written.
            CommitConflict: others committed to silver each time; nothing was written.
            DiskFull: no space is left; nothing is half written.
        """
        again = f"{self.rule.key_name} {keys[0]} of {TABLE}"
        with Scratch() as scratch, disk.full_in_a_sentence(self.lake.uri, str(scratch), again):
            merging = _Merging(self, spark, {self.rule.day(key): key for key in keys}, run_id, clock, scratch)
            try:
                with interrupts.kept():
                    results = merging.run()
            except BaseException as error:
                merging.close_failed(error)
                raise
        return [results[self.rule.day(key)] for key in keys]

    def key_text(self, day: date) -> str:
        """A day's key, as messages name it."""
        return f"{self.rule.key_name} {self.rule.key(day)}"


@dataclass
class _Merging:
    """One try at merging some days."""

    silver: Silver
    spark: GiveSpark
    keys: dict[date, str]
    run_id: str
    clock: Callable[[], datetime]
    scratch: Path
    results: dict[date, MergedDay] = field(default_factory=dict)
    # Set around a commit: an error in it may have left one or not.
    may_have_written: bool = False
    table: DeltaTable = field(init=False)
    version: int | None = None
    retries: int = 0
    # What was changed, by kind and day.
    done: Counter[tuple[str, date]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.lake, self.contract = self.silver.lake, self.silver.upstream
        self.attempt = Attempt(Ledger(self.lake), TABLE, MERGE, self.run_id, self.clock, self.keys)

    def run(self) -> dict[date, MergedDay]:
        """Merge the days, and close each of them in the run log."""
        with self.lake.commit_lock(TABLE):
            while not self._tried():
                self.results.clear()
        self._close()
        return self.results

    def _tried(self) -> bool:
        """Whether it came to its end; False when the table before silver moved on and it must begin again."""
        try:
            compared = self._compare()
            if compared is not None:
                self.attempt.start(self.days, self.present, self.table)
                self._merge(compared)
                reached(Point.AFTER_MERGE)
                self._account(compared)
        except _Moved:
            return False
        return True

    def _compare(self) -> Comparison | None:
        """Read the days that may be read and pass the gate; the others have their result now. None when no day is left."""
        table, self.readable = pinned(self.lake, self.contract, sorted(self.keys))
        self.con = duck.connect(self.scratch)
        for day, readable in self.readable.items():
            if not readable.ok:
                self._refuse(day, unreadable_sentence(self.contract, self.silver, day, readable))
        good = [day for day in sorted(self.keys) if day not in self.results]
        if table is None or not good:
            return None
        self.table = table
        view(self.con, "bronze", self.table, good)
        self._gate(good)
        self._make_table()
        while days := [day for day in good if day not in self.results]:
            view(self.con, "bronze", self.table, days)
            self.days = days
            compared = Comparison(self.con, self.contract, days)
            self._take_present(compared)
            # Whether other days are needed, and readable, is known before anything is noted or written.
            self.changes = compared.changes(self._other_days)
            if not self.changes.undecided:
                return compared
            # Without the days that wait for another, for what they have lost stays as it was.
            self._hold_back(self.changes.undecided)
        return None

    def _hold_back(self, undecided: Sequence[tuple[date, Any, date]]) -> None:
        """Refuse the days that lost orders to a day that may not be read: once it may, its rows would be missed."""
        for day in sorted({day for day, _, _ in undecided}):
            lost = [(key, other) for of, key, other in undecided if of == day]
            named = ", ".join(f"{self.contract.key} {key} ({other})" for key, other in lost[:EXAMPLES])
            others = sorted({other for _, other in lost})
            table, keys = self.contract.sql_name, ", ".join(self.silver.key_text(other) for other in others)
            self._refuse(
                day,
                f"{day} was not merged into {TABLE} ({self.silver.key_text(day)}): it lost orders whose newest row is now one of a "
                f"day that is not verified: {named}. Load {keys} of {table} (or check it), then run {TABLE} for both.",
            )

    def _gate(self, days: Sequence[date]) -> None:
        """Refuse the days with rows that have no key, or rows of a key of which none is the newest."""
        key, quoted = self.contract.key, duck.identifier(self.contract.key)
        rows = self.con.execute(
            f"SELECT order_date, count(*), count(*) FILTER ({quoted} IS NULL) FROM bronze GROUP BY 1"
        ).fetchall()
        self.con.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE again AS SELECT order_date, {quoted}, count(*) AS times FROM bronze
            WHERE {quoted} IS NOT NULL GROUP BY ALL HAVING count(*) > 1
            """
        )
        again = dict(self.con.execute("SELECT order_date, count(*) FROM again GROUP BY 1").fetchall())
        self.log_lines = {
            day: f"Rows: {total}, null keys: {nulls}, keys with duplicates: {again.get(day, 0)}" for day, total, nulls in rows
        }
        for day, _, nulls in rows:
            if nulls:
                seqs = self.con.execute(
                    f"SELECT _source_seq FROM bronze WHERE order_date = ? AND {quoted} IS NULL ORDER BY 1 LIMIT {EXAMPLES}", [day]
                ).fetchall()
                where = ", ".join(str(seq) for (seq,) in seqs)
                self._refuse(day, f"Quality gate: {nulls} rows have a null {key}\n  {key} is NULL at {where}", gate=True)
        tied = self.con.execute(
            f"""
            SELECT order_date, {quoted}, count(*) FROM bronze SEMI JOIN again USING (order_date, {quoted})
            GROUP BY order_date, {quoted}, _source_version, _source_seq HAVING count(*) > 1 ORDER BY ALL
            """
        ).fetchall()
        for day in sorted({day for day, _, _ in tied} - set(self.results)):
            keys = [value for of, value, _ in tied if of == day]
            named = ", ".join(f"{key} {value}" for value in keys[:EXAMPLES])
            more = f" and {len(keys) - EXAMPLES} more" if len(keys) > EXAMPLES else ""
            self._refuse(day, f"Quality gate: {len(keys)} keys have rows of which none is the newest: {named}{more}", gate=True)

    def _refuse(self, day: date, sentence: str, *, gate: bool = False) -> None:
        if gate:
            table = self.contract.sql_name
            again = f"Load {self.silver.key_text(day)} of {table} again, then run {TABLE} for it."
            sentence = f"{sentence}\n{day} was not merged into {TABLE} ({self.silver.key_text(day)}). {again}"
        self.results[day] = MergedDay(self.keys[day], day, False, sentence, log_line=getattr(self, "log_lines", {}).get(day))

    def _make_table(self) -> None:
        """Silver as the contract has it: made, or given the columns that the contract has gained."""
        wanted = columns(self.contract)
        self.lake.create(TABLE, wanted, DESCRIPTION, properties=properties(self.contract))
        check_columns(TABLE, wanted, self.contract.origin, self._silver())
        self.lake.widen(TABLE, wanted)

    def _silver(self, version: int | None = None) -> DeltaTable:
        table = self.lake.open(TABLE, version)
        if table is None:
            raise RuntimeError(f"{TABLE} is not there")
        return table

    def _take_present(self, compared: Comparison, version: int | None = None) -> None:
        """Silver's rows that are of these days or keys, from the files that may hold them."""
        self.present = self._silver(version)
        ranges, days = compared.ranges(), [(day, day) for day in self.days]
        by = [("_source_day", days), (self.contract.key, ranges or [])]
        view(self.con, "silver", self.present, files=None if ranges is None else files_that_may_hold(self.present, *by))
        compared.take_present("silver")

    def _other_days(self, ranges: Ranges) -> bool:
        """The views `other` and `closed`: rows of other days, in files that may hold keys within the ranges."""
        files = None if ranges is None else files_that_may_hold(self.table, (self.contract.key, ranges))
        view(self.con, "other_files", self.table, files=files)
        found = self.con.execute(f"SELECT DISTINCT order_date FROM other_files WHERE order_date NOT IN ({_days(self.days)})")
        others = sorted(day for (day,) in found.fetchall())
        if not others:
            return False
        again, readable = pinned(self.lake, self.contract, others)
        if again is None or again.version() != self.table.version():
            raise _Moved
        good = [day for day in others if readable[day].ok]
        for name, chosen in (("other", good), ("closed", [day for day in others if day not in good])):
            listed = _days(chosen) or "NULL"
            self.con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM other_files WHERE order_date IN ({listed})")
        return True

    def _merge(self, compared: Comparison) -> None:
        """Merge what changes in one commit; one that another came before is worked out anew."""
        tries = 0
        while self.changes.counts:
            tries += 1
            try:
                commit = self._commit(compared, self.changes)
            except Exception as error:
                if not delta_writes.is_conflict(error):
                    raise
                if tries == delta_writes.TRIES:
                    raise delta_writes.conflict(TABLE, tries, error) from error
                commit = None
            if commit is not None:
                self.version = commit.version
                self.done += self.changes.counts
                if commit.read_version == self.present.version():
                    break
            # Someone who does not take the lock came in between: what is there now decides.
            self.retries += 1
            self._take_present(compared)
            self.changes = compared.changes(self._other_days)
            if self.changes.undecided:
                raise _Moved
        if self.version is None:
            self.version = self.present.version()

    def _commit(self, compared: Comparison, changes: Changes) -> delta_writes.Commit:
        with self._staging() as folder:
            file = folder / f"{self.attempt.name}.parquet"
            compared.write(file)
            session = pin_session(self.spark(file.stat().st_size))
            rows = session.read.parquet(str(file)).select(
                *[F.col(name).cast(kind) for name, kind in columns(self.contract)], F.col("_gone")
            )
            days = _days(self.days)
            newer = (
                f"t._source_day IN ({days}) OR (s._source_version, s._source_day, s._source_seq) > "
                "(t._source_version, t._source_day, t._source_seq)"
            )
            names = [name for name, _ in columns(self.contract)]
            merge = delta_writes.Merge(self.contract.key, names, within(self.contract, changes.ranges), newer, changes.clauses)
            mark = json.dumps({"attempt": self.attempt.name, "run_id": self.run_id, "days": [str(day) for day in self.days]})
            reached(Point.BEFORE_MERGE)
            self.may_have_written = True
            try:
                commit = delta_writes.merge_rows(self.lake, TABLE, rows, merge, mark)
            except BaseException:
                found = delta_writes.version_of(self.lake, TABLE, mark)
                self.version = self.version if found is None else found
                self.may_have_written = self.version is not None
                raise
            return commit

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """A folder beside the tables, where Spark finds it wherever it runs. What a killed run left in it is cleared away."""
        folder = Path(self.lake.uri) / STAGING / TABLE
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _account(self, compared: Comparison) -> None:
        """Account for every row of the merged days, at the version that was committed."""
        if self.version != self.present.version():
            self._take_present(compared, self.version)
        twice = twice_in_silver(compared)
        found = accounts(compared, self.days)
        spreads = lateness.measure(self.con)
        lateness.replace(self.lake, self.days, spreads)
        for day in self.days:
            account = found[day]
            ok = account.reconciles and day not in twice
            changed = {kind: self.done[kind, day] for kind in (INSERT, UPDATE, FELL_BACK, DELETE)}
            self.results[day] = MergedDay(
                self.keys[day],
                day,
                ok,
                self._sentence(day, account, twice.get(day, [])),
                retriable=not ok,
                account=account,
                changed=changed,
                spread=spreads.get(day, {}),
                repeated_keys=tuple(twice.get(day, [])),
                version=self.version,
                retries=self.retries,
                log_line=self.log_lines.get(day, "Rows: 0, null keys: 0, keys with duplicates: 0"),
            )

    def _sentence(self, day: date, account: Account, twice: Sequence[str]) -> str:
        if account.reconciles and not twice:
            return f"ok {day} ({self.silver.key_text(day)}): {account.line}"
        lines = [f"PROBLEM {day} ({self.silver.key_text(day)}): {account.line}"]
        if twice:
            lines.append(f"{TABLE} has {len(twice)} keys more than once: {', '.join(twice[:EXAMPLES])}")
        lines += [f"not accounted for: {each}" for each in account.wrong_examples]
        return "\n  ".join(lines)

    def _close(self) -> None:
        reached(Point.BEFORE_CLOSING_MERGE)
        ends: dict[date, tuple[bool, dict[str, Any]]] = {}
        for day in sorted(self.attempt.open_days):
            result, verdict = self.results[day], self.readable[day].verdict
            ends[day] = (
                result.ok,
                {
                    "row_count": None if result.account is None else result.account.kept,
                    "fingerprint": None if verdict.entry is None else verdict.entry.fingerprint,
                    "problem": None if result.ok else result.sentence,
                    "delta_version": result.version,
                    "retries": result.retries,
                },
            )
        self.attempt.close(ends)

    def close_failed(self, error: BaseException) -> None:
        """Close what is still open after an error; stay silent (and so leave it closed) if a commit may be under way."""
        if self.version is not None or not self.may_have_written:
            self.attempt.fail(error, self.version)


def unreadable_sentence(upstream: Contract, silver: Silver, day: date, readable: Readable) -> str:
    """Why a day of the table before silver may not be read on, and what to do."""
    table, key = upstream.sql_name, silver.key_text(day)
    if readable.drift is not None and readable.verdict.verified:
        return (
            f"{readable.drift}\n{day} was not merged into {TABLE} ({key}): the columns of {table} are not those of "
            f"{upstream.origin}. Add a new column to the contract (or set newColumns to ignore), reload {key} of {table}, "
            f"then run {TABLE} for it."
        )
    return (
        f"{day} was not merged into {TABLE} ({key}): {table} is not verified for it ({readable.verdict.problem}). "
        f"Load {key} of {table}, then run {TABLE} for it."
    )


def _days(days: Sequence[date]) -> str:
    """Days as a list of SQL literals."""
    return ", ".join(f"DATE '{day}'" for day in days)
