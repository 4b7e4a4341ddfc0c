"""E5, B2, A14, C77: a load killed at each named point, or anywhere, leaves before or after; a rerun ends the same."""

import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest

from shop_pipeline.core.delta_writes import replace_days
from shop_pipeline.core.fault_points import OF_A_LOAD, Point
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.conftest import World, run_date, wait_until
from shop_pipeline_tests.fire import (
    Commands,
    Reader,
    assert_nothing_lost,
    count_commits,
    fingerprint,
    in_files,
    in_table,
    month,
    put,
)
from shop_pipeline_tests.servers import ConnectServer

pytestmark = [pytest.mark.slow, pytest.mark.apart]

DAYS = list(month(0))
KEYS = [run_date(day) for day in DAYS]
COMMITTED = {Point.AFTER_COMMIT, Point.BEFORE_CHECK, Point.BEFORE_CLOSING, Point.BEFORE_DAGSTER_HEARS}


def loaded(world: World, keys: list[str]) -> bool:
    return all(result.ok for result in world.load(keys))


def killed_at_each_point(world: World, commands: Commands, keys: list[str]) -> None:
    """At each point: the files change, a load is killed there, the table is looked at, the load is run again.

    A day's loads are those of `shop`; a range's are without Dagster but for the last point, which is Dagster's.
    """
    days = [day for day, key in zip(DAYS, KEYS, strict=True) if key in keys]
    put(world.landing, month(0))
    assert loaded(world, KEYS)
    with Reader(world.lake) as reader:
        before = reader.allow(in_files(world.landing))
        for version, point in enumerate(OF_A_LOAD, start=1):
            changed = month(version)
            put(world.landing, {day: changed[day] for day in days})
            after = reader.allow(in_files(world.landing))
            assert after != before
            if len(keys) == 1:
                command = ["load", *keys]
            else:
                command = ["backfill", keys[0], keys[-1]] if point is Point.BEFORE_DAGSTER_HEARS else []
            assert commands.run(*command, folder=world.folder, keys=keys, at=point) == -signal.SIGKILL, point
            assert reader.now() == (after if point in COMMITTED else before), point
            # What has not ended, or was never compared, feeds nothing; Dagster's hearing of it is not needed for that.
            verified = {day for day, verdict in world.verdicts(DAYS).items() if verdict.verified}
            assert verified == set(DAYS) - (set() if point is Point.BEFORE_DAGSTER_HEARS else set(days)), point
            assert loaded(world, keys), point
            assert fingerprint(in_table(world.lake)) == fingerprint(in_files(world.landing)), point
            assert all(verdict.verified for verdict in world.verdicts(DAYS).values())
            assert world.query("SELECT count(*), count(DISTINCT order_date) FROM orders_quarantine", "orders_quarantine") == [
                (30, 30)
            ]
            before = after
    assert_nothing_lost(world.landing, world.lake)
    count_commits(world.lake)


def in_two_worlds(spark: SparkResource, folder: Path, work: Callable[[World, int], None]) -> None:
    """Do something in two worlds at once."""
    with dg.DagsterInstance.ephemeral() as one, dg.DagsterInstance.ephemeral() as other, ThreadPoolExecutor(2) as pool:
        worlds = [World(folder / "one", spark, one), World(folder / "other", spark, other)]
        for world in worlds:
            world.folder.mkdir()
        for done in [pool.submit(work, world, n) for n, world in enumerate(worlds)]:
            done.result()


def test_killed_at_each_point(spark: SparkResource, connect_server: ConnectServer, tmp_path: Path) -> None:
    """A day, and a range of 30, each in a world of its own; a reader polls all the while (A6)."""

    def work(world: World, number: int) -> None:
        with Commands(SHOP_SPARK_REMOTE=connect_server.url) as commands:
            killed_at_each_point(world, commands, [KEYS[14]] if number == 0 else KEYS)

    in_two_worlds(spark, tmp_path, work)


def killed_in_mid_write(world: World, commands: Commands, dice: random.Random) -> None:
    """A month's load whose JVM is writing is killed with its JVM, and once more without it."""
    put(world.landing, month(0))
    assert loaded(world, KEYS)
    table = Path(world.lake.table_uri("orders_daily"))
    with Reader(world.lake) as reader:
        reader.allow(in_files(world.landing))
        for version, with_its_jvm in enumerate((True, False), start=1):
            put(world.landing, month(version))
            after = reader.allow(in_files(world.landing))
            there = set(table.rglob("*.parquet"))
            pid = commands.start(folder=world.folder, keys=KEYS)
            wait_until("Spark writes", lambda there=there: set(table.rglob("*.parquet")) - there, pause=0.05)
            time.sleep(dice.uniform(0, 0.8))
            if with_its_jvm:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
            assert commands.wait() == -signal.SIGKILL
            # At once, while the JVM of the killed process may still be about to commit.
            assert loaded(world, KEYS)
            assert reader.now() == after
            assert fingerprint(in_table(world.lake)) == fingerprint(in_files(world.landing))
    assert_nothing_lost(world.landing, world.lake)
    count_commits(world.lake)


def test_killed_while_spark_writes(spark: SparkResource, tmp_path: Path) -> None:
    """Processes with a JVM of their own, killed at moments of no choice."""

    def work(world: World, number: int) -> None:
        with Commands(SHOP_SPARK_MASTER="local[2]", SHOP_SPARK_MEMORY="1g") as commands:
            killed_in_mid_write(world, commands, random.Random(number))

    in_two_worlds(spark, tmp_path, work)


def reloaded(world: World, number: int) -> None:
    """A hundred reloads that alternate between two contents of a day."""
    put(world.landing, month(number))
    assert loaded(world, KEYS[:2])
    row = """SELECT {n} AS order_id, 'C01' AS customer_id, CAST(5 AS DECIMAL(10,2)) AS amount,
        TIMESTAMP '2026-09-01 09:00:00' AS ordered_at, DATE '2026-09-01' AS order_date,
        TIMESTAMP '2026-09-01' AS _source_version, '{n}' AS _source_seq, TIMESTAMP '2026-09-02' AS _loaded_at"""
    session = world.spark.session()
    contents = [session.sql(" UNION ALL ".join(row.format(n=n) for n in range(count))).coalesce(1) for count in (2, 6)]
    with Reader(world.lake, pause=0.1) as reader:
        reader.allow(in_table(world.lake))
        for content in contents:
            replace_days(world.lake, "orders_daily", content, DAYS[:1], "allowed")
            reader.allow(in_table(world.lake))
        for n in range(100):
            replace_days(world.lake, "orders_daily", contents[n % 2], DAYS[:1], f"reload {n}")
    assert set(reader.seen) <= reader.allowed
    assert len(set(reader.seen) & reader.allowed) >= 2
    assert sum(reader.seen.values()) > 100
    count_commits(world.lake)


def test_a_reader_sees_only_before_or_after(spark: SparkResource, tmp_path: Path) -> None:
    """A6: polled by count and sum through 200 reloads, of two tables at once."""
    in_two_worlds(spark, tmp_path, reloaded)
