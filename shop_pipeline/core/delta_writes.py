"""The only writers of Spark's tables."""

import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from shop_pipeline.core.days import day_predicate
from shop_pipeline.core.errors import CommitConflict
from shop_pipeline.core.lake import Lake

# How many commits to look back for one's own: other processes may have committed since.
_LOOK_BACK = 200
# Others that commit to the same table without its lock are met with so many tries, with a random wait of some seconds.
TRIES = 8
LONGEST_WAIT = 10.0
LOOK_UP = 0.2
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# Threads that stay: a new one costs a new connection to the JVM.
_writers = ThreadPoolExecutor(8, thread_name_prefix="commit")


@dataclass(frozen=True)
class Commit:
    """What a writer did: the table's version that has its rows, and how often others' commits made it start over.

    `read_version` is the one that a merge was made on.
    """

    version: int
    retries: int = 0
    read_version: int | None = None


def read_ahead(lake: Lake, table: str, days: Sequence[date]) -> Callable[[SparkSession], None]:
    """What has a session look which files have rows of these days: Delta keeps the answer, which their replacement begins with.

    It may fail: what is wrong is wrong for the replacement too, which says so.
    """

    def look(session: SparkSession) -> None:
        with suppress(Exception):
            if lake.open(table) is not None:
                session.read.format("delta").load(lake.table_uri(table)).where(day_predicate(days)).inputFiles()

    return look


class NotAccepted(Exception):
    """A commit was judged to be wrong and taken back: the table has the rows that it had before."""


def replace_days(
    lake: Lake,
    table: str,
    rows: DataFrame,
    days: Sequence[date],
    mark: str,
    *,
    statistics: Sequence[str] = (),
    wrong: Callable[[int], str | None] | None = None,
) -> Commit:
    """Replace the rows of exactly these days by `rows`, in one commit; every other day stays as it is.

    A table that is not there yet is made by that commit; a column that it lacks is added, and reads NULL in older rows.

    Args:
        rows: the table's columns, by name; every row's order_date must be one of `days`.
        statistics: of which columns a new table keeps the range per file; by default of all.
        mark: written into the commit as its userMetadata, unique to this call, and found again by it.
        wrong: says, while the table's lock is still held, what is wrong with a version; then it is taken back.

    Returns:
        The commit; its version is the present one where there was nothing to change.

    Raises:
        pyspark AnalysisException, condition DELTA_REPLACE_WHERE_MISMATCH: a row lies outside `days`; nothing changed.
        CommitConflict: writers that do not take the table's lock were in the way each time; nothing changed.
        NotAccepted: it was `wrong`.
    """
    writer = (
        rows.write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", day_predicate(days))
        .option("partitionOverwriteMode", "static")
    )
    with lake.commit_lock(table):
        before = None if wrong is None else lake.open(table)
        commit = _save(lake, table, rows.sparkSession, writer, mark, statistics)
        why = None if wrong is None else wrong(commit.version)
        if why is not None and _taken_back(lake, table, before, commit.version, days):
            raise NotAccepted(why)
        return commit


def _taken_back(lake: Lake, table: str, before: DeltaTable | None, version: int, days: Sequence[date]) -> bool:
    """Take the newest commit back; not where it is not the newest, or not the next after what there was: others' would go too."""
    now = lake.open(table)
    if now is None or now.version() != version or (before is not None and before.version() != version - 1):
        return False
    if before is None:
        now.delete(day_predicate(days))
    else:
        now.restore(before.version())
    return True


@dataclass(frozen=True)
class Merge:
    """What a merge does: `key` and `columns` by name; SQL over the table's row `t` and the new one `s`.

    `within`: true for every row of the table that a new one may meet, so that other files are not read. `newer`: the new row may
    replace the table's. `changes`: which of insert, update and delete there are; a new row with `_gone` deletes.
    """

    key: str
    columns: Sequence[str]
    within: str
    newer: str
    changes: frozenset[str]

    def statement(self, target: str, source: str) -> str:
        """The MERGE, in Spark SQL. Only the clauses that are needed: without updates and deletes it rewrites no file."""
        pairs = ", ".join(f"t.`{name}` = s.`{name}`" for name in self.columns)
        names, values = (", ".join(f"{of}`{name}`" for name in self.columns) for of in ("", "s."))
        clauses = {
            "delete": "WHEN MATCHED AND s._gone THEN DELETE",
            "update": f"WHEN MATCHED AND NOT s._gone AND ({self.newer}) THEN UPDATE SET {pairs}",
            "insert": f"WHEN NOT MATCHED AND NOT s._gone THEN INSERT ({names}) VALUES ({values})",
        }
        chosen = " ".join(clause for change, clause in clauses.items() if change in self.changes)
        return f"MERGE INTO {target} AS t USING {source} AS s ON t.`{self.key}` = s.`{self.key}` AND ({self.within}) {chosen}"


def merge_rows(lake: Lake, table: str, rows: DataFrame, merge: Merge, mark: str) -> Commit:
    """Merge `rows` into a table that is there, in one commit. Two rows of one key fail it.

    The caller holds the table's lock, for what is to be merged was decided under it, and `rows` must not change between two
    readings: a merge reads them twice.

    Raises:
        what is_conflict knows: another commit came first; nothing changed, and what is to be merged must be decided anew.
    """
    session, name = rows.sparkSession, f"merging_{uuid.uuid4().hex}"
    target = "delta.`" + lake.table_uri(table).replace("`", "``") + "`"
    rows.createOrReplaceTempView(name)
    session.conf.set(_USER_METADATA, mark)
    try:
        _to_its_end(session, lambda: _run(session, merge.statement(target, name)))
    finally:
        session.conf.unset(_USER_METADATA)
        session.catalog.dropTempView(name)
    commit = _commit_of(lake, table, mark)
    if commit is None:
        raise RuntimeError(f"{table} has no commit marked {mark} after the merge")
    return Commit(int(commit["version"]), read_version=int(commit["readVersion"]))


def _run(session: SparkSession, statement: str) -> None:
    session.sql(statement).collect()


def append(lake: Lake, table: str, rows: DataFrame, mark: str, *, statistics: Sequence[str] = ()) -> Commit:
    """Add `rows` whatever is there: a rerun doubles them. Only for showing that damage."""
    with lake.commit_lock(table):
        return _save(lake, table, rows.sparkSession, rows.write.format("delta").mode("append"), mark, statistics)


def _save(lake: Lake, table: str, session: SparkSession, writer: DataFrameWriter, mark: str, statistics: Sequence[str]) -> Commit:
    """Commit. A table that is not there is made by the same commit, partitioned by order_date. The caller holds its lock."""

    def once() -> None:
        made = writer
        if lake.open(table) is None:
            made = made.partitionBy("order_date")
            if statistics:
                made = made.option("delta.dataSkippingStatsColumns", ",".join(statistics))
        made = made.option("mergeSchema", "true").option("userMetadata", mark)
        _to_its_end(session, lambda: made.save(lake.table_uri(table)))

    retries = over_conflicts(table, once)
    version = version_of(lake, table, mark)
    if version is not None:
        return Commit(version, retries)
    # Delta commits nothing where nothing changes: no rows for days that have none. The table is as it should be.
    unchanged = lake.open(table)
    if unchanged is None:
        raise RuntimeError(f"{table} is not there after the write marked {mark}")
    return Commit(int(unchanged.version()), retries)


def over_conflicts(table: str, write: Callable[[], None]) -> int:
    """Call `write` until no other commit is in its way, and say how often it was called again.

    Raises:
        CommitConflict: it was in the way TRIES times.
    """
    tries = 0

    def tried(state: RetryCallState) -> None:
        nonlocal tries
        tries = state.attempt_number

    try:
        Retrying(
            retry=retry_if_exception(is_conflict),
            stop=stop_after_attempt(TRIES),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT),
            before=tried,
            reraise=True,
        )(write)
    except Exception as error:
        if is_conflict(error):
            raise conflict(table, tries, error) from error
        raise
    return tries - 1


def conflict(table: str, tries: int, error: Exception) -> CommitConflict:
    """The sentence about a conflict after so many tries."""
    return CommitConflict(
        f"Others committed to {table} each of {tries} times that this commit was tried ({condition(error)}); nothing "
        "was written. Find out what else writes to it without the table's lock, and run the same days again."
    )


def is_conflict(error: BaseException) -> bool:
    """Whether Delta refused a commit only because another one came first: the same write can pass when it is tried again."""
    return isinstance(error, CommitFailedError) or condition(error).startswith(
        ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
    )


def condition(error: BaseException) -> str:
    """The name of an error: Spark's and Delta's error condition, else its class.

    Delta's conflicts, as Python classes of classic Spark, have no condition; their text begins with it, in brackets.
    """
    if not isinstance(error, PySparkException):
        return type(error).__name__
    named = re.match(r"\[([A-Z0-9_.]+)\]", str(error))
    return error.getCondition() or (named[1] if named else type(error).__name__)


def _to_its_end(session: SparkSession, write: Callable[[], None]) -> None:
    """Run a write to its end, even when this thread is told to stop meanwhile.

    The JVM goes on when Python's wait for it is broken off, and would commit after the table's lock was let go. So it is
    told to stop as well, and its answer is waited for.
    """
    writing = _writers.submit(write)
    try:
        # In short waits: not every way to interrupt this thread wakes it from a long one.
        while not wait([writing], timeout=LOOK_UP).done:
            pass
    except BaseException:
        # Again and again: one call ends the jobs that run, and a write that is being planned begins its job after that.
        stopping = True
        while stopping:
            with suppress(Exception):
                session.interruptAll()
            stopping = not wait([writing], timeout=LOOK_UP).done
        raise
    writing.result()


def version_of(lake: Lake, table: str, mark: str) -> int | None:
    """The version of the commit with this mark; None when there is none among the newest."""
    commit = _commit_of(lake, table, mark)
    return None if commit is None else int(commit["version"])


def _commit_of(lake: Lake, table: str, mark: str) -> dict[str, Any] | None:
    written = lake.open(table)
    for commit in [] if written is None else written.history(_LOOK_BACK):
        if commit.get("userMetadata") == mark:
            return commit
    return None


def history(table: DeltaTable, limit: int) -> list[dict[str, object]]:
    """The last changes of a table, newest first: version, operation, predicate (None for all), rows_written (None if unknown)."""
    rows = []
    for commit in table.history(limit):
        written = commit.get("operationMetrics", {}).get("numOutputRows")
        rows.append(
            {
                "version": int(commit["version"]),
                "operation": str(commit.get("operation")),
                "predicate": commit.get("operationParameters", {}).get("predicate"),
                "rows_written": None if written is None else int(written),
            }
        )
    return rows
