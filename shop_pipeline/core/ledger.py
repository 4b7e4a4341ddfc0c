"""`run_log`: a row for the start and one for the end of every attempt at a day, and what they say about it.

Appended through delta-rs: milliseconds, no JVM, and safe between processes. Every append is a file, and a load reads the log:
so that a load costs the same after a thousand others, whoever appends makes one file of many from time to time.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date, datetime

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from shop_pipeline.core import disk, duck
from shop_pipeline.core.lake import Lake, data_files, row_count, table_id, view

TABLE = "run_log"
STARTED, SUCCEEDED, FAILED = "started", "succeeded", "failed"
# What an attempt was: a load that replaced the day, one that appended to it, a check that wrote nothing; a merge of the day
# into silver, a recomputation of the figures that it touches.
LOAD, APPEND, CHECK, MERGE, RECOMPUTE = "load", "append", "check", "merge", "recompute"
# So many small files are made one; a file of this size is left alone, so that a long log is not written anew each time.
MANY_FILES, BIG_FILE = 32, 8 * 1024 * 1024

COLUMNS = (
    ("run_id", "STRING"),
    ("run_at", "TIMESTAMP"),
    ("table_name", "STRING"),
    ("row_count", "BIGINT"),
    ("max_event_time", "TIMESTAMP"),
    ("status", "STRING"),
    ("day", "DATE"),
    ("run_date", "DATE"),
    ("fingerprint", "STRING"),
    ("quarantined", "BIGINT"),
    ("problem", "STRING"),
    ("delta_version", "BIGINT"),
    ("duration", "DOUBLE"),
    ("kind", "STRING"),
    ("attempt", "STRING"),
    ("table_id", "STRING"),
    ("flagged", "BIGINT"),
    ("broken", "STRING"),
    ("drift", "STRING"),
    ("profile", "STRING"),
    ("retries", "BIGINT"),
    ("upstream_id", "STRING"),
    ("upstream_version", "BIGINT"),
    ("source_fingerprint", "STRING"),
)
_ARROW = {
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "BIGINT": pa.int64(),
    "DATE": pa.date32(),
    "DOUBLE": pa.float64(),
}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS])


@dataclass(frozen=True)
class Entry:
    """A row of run_log. `delta_version` is set when the attempt wrote (or, for a check, the version it looked at).

    `row_count` counts the day's rows in the table. As JSON: `broken`, the rows that broke each rule; `drift`, how the source's
    columns differed from the contract's; `profile`, the share (percent) of each column's commonest value. `retries` counts how
    often others' commits made this one start over. `upstream_id` and `upstream_version` say what a merge or a recomputation read.
    `source_fingerprint` is the content that an attempt looked at, refused or not (see Source.fingerprints).
    """

    run_id: str
    run_at: datetime
    table_name: str
    row_count: int | None
    max_event_time: datetime | None
    status: str
    day: date
    run_date: date
    fingerprint: str | None
    quarantined: int | None
    problem: str | None
    delta_version: int | None
    duration: float | None
    kind: str
    attempt: str
    table_id: str | None
    flagged: int | None = None
    broken: str | None = None
    drift: str | None = None
    profile: str | None = None
    retries: int | None = None
    upstream_id: str | None = None
    upstream_version: int | None = None
    source_fingerprint: str | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether a day of a table may be read, and if so at which version it was verified.

    `problem` says why not.
    """

    verified: bool
    version: int | None
    problem: str | None
    entry: Entry | None


@dataclass(frozen=True)
class Ledger:
    """The run log of a lake."""

    lake: Lake

    def append(self, entries: Sequence[Entry]) -> None:
        """Add rows, in one commit."""
        if not entries:
            return
        with disk.panics_are_errors():
            self._append(entries)

    def _append(self, entries: Sequence[Entry]) -> None:
        log = self.lake.open(TABLE)
        if log is None:
            self.lake.create(TABLE, COLUMNS, "A row for the start and one for the end of every attempt at a day.")
            log = DeltaTable(self.lake.table_uri(TABLE))
        rows = {field.name: [getattr(entry, field.name) for entry in entries] for field in fields(Entry)}
        # A log that an earlier version began takes on the columns that have come since.
        write_deltalake(log, pa.table(rows, schema=SCHEMA), mode="append", schema_mode="merge")
        if sum(size < BIG_FILE for size in data_files(log)["bytes"].to_pylist()) > MANY_FILES:
            self._sum_up(log)

    def _sum_up(self, log: DeltaTable) -> None:
        """Make one file of many, and sum up their commits. No row changes, and the files that a reader has begun to read stay."""
        with self.lake.commit_lock_if_free(TABLE) as free:
            # What was to be noted is noted: where this cannot be done now, the next append does it.
            if free:
                with suppress(DeltaError, OSError), disk.panics_are_errors():
                    log.optimize.compact(target_size=BIG_FILE)
                    log.create_checkpoint()

    def row_count(self) -> int:
        """How many rows the log has."""
        log = self.lake.open(TABLE)
        return 0 if log is None else row_count(log)

    def entries(self, table: str, days: Iterable[date] | None = None) -> list[Entry]:
        """The rows about a table (all days, or some), oldest first."""
        log = self.lake.open(TABLE)
        if log is None:
            return []
        con = duck.small()
        view(con, "run_log", log)
        there = {each.name for each in log.schema().fields}
        names = ", ".join(name if name in there else f"NULL AS {name}" for name in (field.name for field in fields(Entry)))
        wanted = None if days is None else [day.isoformat() for day in days]
        rows = con.execute(
            f"SELECT {names} FROM run_log WHERE table_name = ? AND (? OR list_contains(?, CAST(day AS VARCHAR))) "
            # A start and its end may fall on one instant.
            f"ORDER BY run_at, CASE status WHEN '{STARTED}' THEN 0 ELSE 1 END",
            [table, wanted is None, wanted or []],
        ).fetchall()
        return [Entry(*row) for row in rows]

    def made(self, table: str, table_identity: str, upstream_identity: str) -> dict[date, int]:
        """The days of a table that were made well, each with the newest version of the table before it that it was made from."""
        log = self.lake.open(TABLE)
        if log is None or "upstream_version" not in {each.name for each in log.schema().fields}:
            return {}
        con = duck.small()
        view(con, "run_log", log)
        return dict(
            con.execute(
                f"SELECT day, max(upstream_version) FROM run_log WHERE status = '{SUCCEEDED}' AND table_name = ? AND table_id = ? "
                "AND upstream_id = ? GROUP BY day",
                [table, table_identity, upstream_identity],
            ).fetchall()
        )

    def history(self, table: str, table_identity: str | None) -> Mapping[date, Entry]:
        """The newest successful load of each day that is verified now: what later days are compared with."""
        return loaded(self.entries(table), table_identity)

    def verdicts(self, table: str, days: Sequence[date], table_identity: str | None) -> Mapping[date, Verdict]:
        """For each day: may it be read? `table_identity` is the present table's id, None when there is no table."""
        by_day: dict[date, list[Entry]] = {day: [] for day in days}
        for entry in self.entries(table, days):
            by_day[entry.day].append(entry)
        return {day: verdict(entries, table_identity) for day, entries in by_day.items()}


def present_verdicts(lake: Lake, name: str, days: Sequence[date]) -> Mapping[date, Verdict]:
    """For each day of a table (by its name in the lake), as it is there now: may it be read?"""
    table = lake.open(name)
    return Ledger(lake).verdicts(name.replace("/", "."), days, None if table is None else table_id(table))


def loaded(log: Sequence[Entry], table_identity: str | None) -> Mapping[date, Entry]:
    """The newest successful load of each day that is verified, from the rows about a table, oldest first."""
    by_day: dict[date, list[Entry]] = {}
    for entry in log:
        by_day.setdefault(entry.day, []).append(entry)
    found = {}
    for day, entries in by_day.items():
        loads = [each for each in entries if each.kind == LOAD and each.status == SUCCEEDED and each.row_count is not None]
        if loads and verdict(entries, table_identity).verified:
            found[day] = loads[-1]
    return found


def verdict(entries: Sequence[Entry], table_identity: str | None) -> Verdict:
    """What the rows about one day, oldest first, say of it.

    The newest version that an attempt wrote, or that a check looked at, decides. An attempt that started and never ended
    may have written: it closes the day until a later one that wrote, or a check, has settled it. An attempt that failed
    before it wrote changes nothing.
    """
    if table_identity is None:
        return Verdict(False, None, "it was never loaded", None)
    known = [entry for entry in entries if entry.table_id in (table_identity, None)]
    ended = {entry.attempt for entry in known if entry.status != STARTED}
    settled = [entry for entry in known if entry.status != STARTED and entry.delta_version is not None]
    last_settled = max((entry.run_at for entry in settled), default=None)
    open_ones = [entry for entry in known if entry.status == STARTED and entry.attempt not in ended]
    if open_ones and (last_settled is None or open_ones[-1].run_at > last_settled):
        left = open_ones[-1]
        return Verdict(False, None, f"run {left.run_id} started it and has not ended (killed, or still running)", left)
    if not settled:
        failed = [entry for entry in known if entry.status == FAILED]
        why = f"it was never loaded: {failed[-1].problem}" if failed else "it was never loaded"
        return Verdict(False, None, why, failed[-1] if failed else None)
    newest = max(settled, key=lambda entry: (entry.delta_version or 0, entry.run_at))
    if newest.status == SUCCEEDED:
        return Verdict(True, newest.delta_version, None, newest)
    return Verdict(False, newest.delta_version, newest.problem, newest)
