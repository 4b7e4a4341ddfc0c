"""Loads at the same time: B5, B6, C48, C50, C51, C79, C114."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from delta.exceptions import DeltaConcurrentModificationException
from deltalake.exceptions import CommitFailedError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from shop_pipeline.core import delta_writes
from shop_pipeline.core.days import day_predicate
from shop_pipeline.core.delta_writes import condition, is_conflict, over_conflicts, replace_days
from shop_pipeline.core.errors import CommitConflict
from shop_pipeline.core.lake import Lake
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.conftest import TALLY, World, run_date
from shop_pipeline_tests.fire import Commands, assert_nothing_lost, count_commits, fingerprint, in_files, in_table, month, put
from shop_pipeline_tests.servers import ConnectServer

DAYS = list(month(0))
KEYS = [run_date(day) for day in DAYS]
FOUR = DAYS[1:5]


def slow_rows(session: SparkSession, day: date) -> DataFrame:
    """A day's row that takes some seconds to compute, so that writers who start together have all read one snapshot."""
    work = "SELECT count(*) FROM range(0, 12000000) WHERE id % 7 = hash(id) % 7"
    return session.sql(f"SELECT CAST(({work}) * 0 + {day.day} AS INT) AS order_id, DATE '{day}' AS order_date").coalesce(1)


def make_table(lake: Lake, layout: list[str], session: SparkSession) -> str:
    """A table with a row of 1 September, with these partition columns."""
    uri = lake.table_uri("t")
    first = session.sql("SELECT 1 AS order_id, DATE '2026-09-01' AS order_date")
    first.write.format("delta").partitionBy(*layout).save(uri)
    return uri


def orders(world: World) -> list[int]:
    return [order for (order,) in world.query("SELECT order_id FROM t ORDER BY 1", "t")]


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "winners"), [([], 1), (["order_date"], 4)])
def test_the_bare_writer_conflicts_where_days_are_no_partitions(world: World, layout: list[str], winners: int) -> None:
    """B5: four writers that have all read one snapshot; the losers change nothing, and succeed when run again."""
    session = world.spark.session()
    uri = make_table(world.lake, layout, session)
    barrier = threading.Barrier(4)

    def write(day: date, rows: DataFrame) -> PySparkException | None:
        try:
            rows.write.format("delta").mode("overwrite").option("replaceWhere", day_predicate([day])).save(uri)
        except PySparkException as error:
            return error
        return None

    def write_together(day: date) -> PySparkException | None:
        rows = slow_rows(session, day)
        barrier.wait()
        return write(day, rows)

    with ThreadPoolExecutor(4) as pool:
        errors = dict(zip(FOUR, pool.map(write_together, FOUR), strict=True))
    lost = [day for day, error in errors.items() if error is not None]
    assert len(lost) == 4 - winners
    assert orders(world) == sorted([1, *(day.day for day in FOUR if day not in lost)])
    for error in errors.values():
        if error is not None:
            assert condition(error).startswith("DELTA_CONCURRENT_APPEND")
            assert is_conflict(error)
    TALLY.add(conflicts=len(lost))
    for day in lost:
        rows = session.sql(f"SELECT {day.day} AS order_id, DATE '{day}' AS order_date")
        assert write(day, rows) is None
    assert orders(world) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("layout", [[], ["order_date"]])
def test_the_products_writer_loses_no_day_on_either_layout(world: World, layout: list[str]) -> None:
    """B5: 4 of 4, for they take turns."""
    session = world.spark.session()
    make_table(world.lake, layout, session)
    rows = {day: session.sql(f"SELECT {day.day} AS order_id, DATE '{day}' AS order_date") for day in FOUR}
    with ThreadPoolExecutor(4) as pool:
        commits = list(pool.map(lambda day: replace_days(world.lake, "t", rows[day], [day], f"mark {day}"), FOUR))
    assert orders(world) == [1, 2, 3, 4, 5]
    assert sorted(commit.version for commit in commits) == [1, 2, 3, 4]
    assert {commit.retries for commit in commits} == {0}


@pytest.mark.slow
def test_a_writer_without_the_lock_costs_a_retry_and_no_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """C51: another tool commits while the product's write is under way; the product's starts over, and says how often."""
    session = world.spark.session()
    uri = make_table(world.lake, [], session)
    rows = slow_rows(session, FOUR[0])
    started = threading.Event()
    to_its_end = delta_writes._to_its_end

    def tell(*arguments: Any) -> None:  # noqa: ANN401
        started.set()
        to_its_end(*arguments)

    monkeypatch.setattr(delta_writes, "_to_its_end", tell)
    other = session.sql("SELECT 99 AS order_id, DATE '2026-09-30' AS order_date")

    def interfere() -> None:
        started.wait()
        threading.Event().wait(1)
        other.write.format("delta").mode("append").save(uri)

    thread = threading.Thread(target=interfere)
    thread.start()
    commit = replace_days(world.lake, "t", rows, FOUR[:1], "mine")
    thread.join()
    assert commit.retries == 1
    assert orders(world) == [1, 2, 99]
    TALLY.add(conflicts=1, retries=commit.retries)


def test_only_conflicts_are_tried_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """C51: any other error fails at once; a conflict that stays is told, with what to do."""
    monkeypatch.setattr(delta_writes, "LONGEST_WAIT", 0.01)
    calls = []

    def fail(error: Exception) -> None:
        calls.append(error)
        raise error

    for error in (ValueError("no"), OSError(28, "No space left on device"), PySparkException("x", "DELTA_REPLACE_WHERE_MISMATCH")):
        calls.clear()
        with pytest.raises(type(error)):
            over_conflicts("t", lambda error=error: fail(error))
        assert len(calls) == 1
    for conflict in (
        CommitFailedError("x"),
        PySparkException("x", "DELTA_CONCURRENT_DELETE_READ.WITH_PARTITION_HINT", {}),
        PySparkException("x", "DELTA_METADATA_CHANGED", {}),
    ):
        calls.clear()
        with pytest.raises(CommitConflict, match=rf"each of {delta_writes.TRIES} times .* run the same days again"):
            over_conflicts("t", lambda conflict=conflict: fail(conflict))
        assert len(calls) == delta_writes.TRIES
    assert not is_conflict(DeltaConcurrentModificationException("x"))


def test_first_writes_at_once(world: World) -> None:
    """B6, C50, C51: eight loads of eight days into a lake that is not there yet."""
    put(world.landing, {day: rows for day, rows in month(0).items() if day in DAYS[:8]})
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda key: world.load([key])[0], KEYS[:8]))
    assert [result.ok for result in results] == [True] * 8, [result.sentence for result in results]
    assert all(verdict.verified for verdict in world.verdicts(DAYS[:8]).values())
    assert_nothing_lost(world.landing, world.lake)
    count_commits(world.lake)
    ((log,),) = world.query("SELECT max(retries) FROM run_log", "run_log")
    assert log == 0


@pytest.mark.slow
def test_four_processes_write_different_days_and_the_same(
    spark: SparkResource, connect_server: ConnectServer, tmp_path: Path
) -> None:
    """C51, C79, C114: two JVMs of their own, a Spark server's, and this one; in any order the tables end the same."""
    folder = tmp_path / "world"
    folder.mkdir()
    put(folder / "landing", {day: rows for day, rows in month(3).items() if day in DAYS[:5]})
    local = {"SHOP_SPARK_MASTER": "local[1]", "SHOP_SPARK_MEMORY": "1g"}
    with (
        dg.DagsterInstance.ephemeral() as instance,
        ThreadPoolExecutor(4) as pool,
        Commands(**local) as one,
        Commands(**local) as two,
        Commands(SHOP_SPARK_REMOTE=connect_server.url) as three,
    ):
        world = World(folder, spark, instance)
        # Some days are one's own, some are others' as well; a commit a day.
        ranges = [KEYS[0:3], KEYS[1:4], KEYS[2:5], KEYS[3:0:-1]]

        def by_command(commands: Commands, keys: list[str]) -> int:
            return commands.run(folder=folder, keys=keys, apart=True)

        statuses = [pool.submit(by_command, commands, ranges[n]) for n, commands in enumerate((one, two))]
        statuses.append(pool.submit(by_command, three, ranges[2]))
        own = pool.submit(lambda: [world.load([key])[0].ok for key in ranges[3]])
        assert [status.result() for status in statuses] == [0, 0, 0], (folder / "shop.log").read_text()[-3000:]
        assert all(own.result())
        assert fingerprint(in_table(world.lake)) == fingerprint(in_files(world.landing))
        assert_nothing_lost(world.landing, world.lake)
        assert all(verdict.verified for verdict in world.verdicts(DAYS[:5]).values())
        count_commits(world.lake)
