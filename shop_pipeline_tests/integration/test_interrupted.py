"""Loads that are told to stop, or that fail, at each named point: C95, C96, C105, A14, D7."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from pathlib import Path

import psutil
import pytest

from shop_pipeline.core import batch, delta_writes, fault_points, query
from shop_pipeline.core.fault_points import OF_A_LOAD, Point
from shop_pipeline.core.ledger import FAILED
from shop_pipeline_tests.builders import HEADER, write_day
from shop_pipeline_tests.conftest import (
    DAILY_SALES,
    ORDERS_DAILY,
    SILVER_ORDERS,
    Shop,
    World,
    clean_environment,
    failure_text,
    run_date,
    wait_until,
)
from shop_pipeline_tests.fire import fingerprint, in_files, in_table, month, put
from shop_pipeline_tests.stopped import LONG, stopped_within

DAYS = [date(2026, 9, 1), date(2026, 9, 2)]
KEYS = [run_date(day) for day in DAYS]
COMMITTED = {Point.AFTER_COMMIT, Point.BEFORE_CHECK, Point.BEFORE_CLOSING, Point.BEFORE_DAGSTER_HEARS}


def put_two(world: World, version: int) -> None:
    put(world.landing, {day: rows for day, rows in month(version).items() if day in DAYS})


@contextmanager
def watched(watcher: fault_points.Watcher) -> Iterator[None]:
    end = fault_points.watch(watcher)
    try:
        yield
    finally:
        end()


def interrupt_at(point: Point) -> AbstractContextManager[None]:
    """Ctrl-C at a point."""
    return watched(lambda reached: os.kill(os.getpid(), signal.SIGINT) if reached is point else None)


def test_a_cancelled_load_says_so_and_the_day_is_before_or_after(world: World) -> None:
    """C95, C105: what was good stays good where nothing was written; what was written and not compared is closed; a rerun
    completes. The state of the data is another thing than the state of the last run."""
    put_two(world, 0)
    assert all(result.ok for result in world.load(KEYS))
    for version, point in enumerate(OF_A_LOAD[:-1], start=1):
        before = fingerprint(in_table(world.lake))
        put_two(world, version)
        with pytest.raises(KeyboardInterrupt), interrupt_at(point):
            world.load(KEYS)
        after = fingerprint(in_files(world.landing))
        assert fingerprint(in_table(world.lake)) == (after if point in COMMITTED else before), point
        last = [world.log(day)[-1] for day in DAYS]
        assert {(each.status, each.problem) for each in last} == {(FAILED, "it was cancelled (KeyboardInterrupt)")}
        verdicts = world.verdicts(DAYS)
        assert {verdicts[day].verified for day in DAYS} == {point not in COMMITTED}, point
        assert {each.delta_version is not None for each in last} == {point in COMMITTED}, point
        assert all(result.ok for result in world.load(KEYS))
        assert fingerprint(in_table(world.lake)) == after


@pytest.mark.parametrize("point", [Point.BEFORE_COMMIT, Point.AFTER_COMMIT])
def test_a_stopped_run_is_not_tried_again_by_its_step(world: World, point: Point) -> None:
    """C96: Dagster's own RetryPolicy would; nothing is made of a day that was stopped."""
    put_two(world, 0)
    with interrupt_at(point):
        assert not world.run(KEYS, ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    assert [each.status for each in world.log(DAYS[0])] == ["started", "failed"]
    assert world.materialized(ORDERS_DAILY) == world.materialized(DAILY_SALES) == set()
    assert world.run(KEYS, ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    assert fingerprint(in_table(world.lake)) == fingerprint(in_files(world.landing))


def put_big(landing: Path) -> None:
    """A day that DuckDB reads for a while."""
    lines = [f"{1000 + n},C0{n % 5 + 1},{10 + n % 90}.50,{DAYS[0]}T09:15:{n % 60:02d}" for n in range(300_000)]
    write_day(landing, DAYS[0], "\n".join([HEADER, *lines, ""]))


def test_a_run_that_is_stopped_while_duckdb_reads_is_not_tried_again(world: World) -> None:
    """C96: DuckDB makes an ordinary error of it."""
    put_big(world.landing)
    with stopped_within(batch.read_by_duckdb):
        ran = world.run(KEYS[:1])
    assert not ran.success
    assert [(each.status, each.problem) for each in world.log(DAYS[0])] == [
        ("started", None),
        ("failed", "it was cancelled (DagsterExecutionInterruptedError)"),
    ]
    assert fingerprint(in_table(world.lake)) == fingerprint({})


@pytest.mark.parametrize(
    ("arguments", "within"),
    [
        (("load", KEYS[0]), batch.read_by_duckdb),
        (("check", KEYS[0]), batch.read_by_duckdb),
        (("plan", KEYS[0], KEYS[0]), batch.read_by_duckdb),
        (("sql", LONG), query.select),
    ],
    ids=["load", "check", "plan", "sql"],
)
def test_ctrl_c_while_duckdb_reads_stops_the_command(
    shop: Shop, tmp_path: Path, arguments: Sequence[str], within: Callable[..., object]
) -> None:
    put_big(tmp_path / "landing")
    if arguments[0] == "check":
        # What was never loaded is not read.
        assert shop("load", KEYS[0]).status == 0
    with stopped_within(within):
        ran = shop(*arguments)
    assert (ran.status, ran.out, ran.err.splitlines()[-1]) == (130, "", "shop: stopped; run the same command again to finish")


def test_ctrl_c_stops_the_whole_command(shop: Shop, tmp_path: Path) -> None:
    """And not only the run that it falls into; the same command again finishes."""
    put(tmp_path / "landing", {day: rows for day, rows in month(0).items() if day in DAYS})
    with interrupt_at(Point.BEFORE_READ):
        ran = shop("backfill", *KEYS, "--days-per-run", "1")
    assert (ran.status, ran.out) == (130, "")
    assert "stopped; run the same command again to finish" in ran.err
    log = shop("sql", "SELECT count(*) n FROM run_log", "--json").out
    assert log == '[{"n": 2}]\n'
    assert shop("backfill", *KEYS, "--days-per-run", "1").out == "ran 2 runs, 0 failed; orders_daily has 2 days, 9 orders\n"


def test_spark_leaves_ctrl_c_as_it_was(world: World) -> None:
    """PySpark's own way with it prints tracebacks, and asks the JVM for an answer while another one is on its way."""
    world.spark.session()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


HELD_IN_A_LOAD = """
import time
from pathlib import Path
from shop_pipeline import cli
from shop_pipeline.core.fault_points import Point, watch

watch(lambda reached: (Path("there").touch(), time.sleep(60)) if reached is Point.BEFORE_READ else None)
cli.main()
"""


def test_the_ctrl_c_of_a_terminal_is_told_in_a_sentence(tmp_path: Path) -> None:
    """It reaches every process of the command: those that Dagster starts beside a run print no tracebacks."""
    put(tmp_path / "landing", {day: rows for day, rows in month(0).items() if day in DAYS})
    with subprocess.Popen(
        [sys.executable, "-c", HELD_IN_A_LOAD, "load", KEYS[0]],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        try:
            wait_until("it loads", (tmp_path / "there").exists)
            family = psutil.Process(command.pid).children(recursive=True)
            assert sum(any("watch_orphans" in word for word in each.cmdline()) for each in family) == 2
            # Until they have started: one that is still importing would be ended without a word.
            time.sleep(1)
            os.killpg(command.pid, signal.SIGINT)
            out, err = command.communicate(timeout=60)
        finally:
            command.kill()
    assert (command.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "shop: stopped; run the same command again to finish"
    assert "Traceback" not in err
    _, left = psutil.wait_procs(family, timeout=30)
    assert not left


@pytest.mark.parametrize("seconds", [0.05, 2])
def test_the_lock_is_kept_until_the_jvm_has_stopped_too(world: World, seconds: float) -> None:
    """Python's wait for Spark is broken off by Ctrl-C; the write behind it would commit later, when the lock is someone else's.

    Also when it comes before the write has begun a job that could be stopped.
    """
    session = world.spark.session()
    endless = session.sql(
        "SELECT count(*) AS order_id, DATE '2026-09-01' AS order_date FROM range(0, 100000000000000) WHERE id % 7 = hash(id) % 7"
    )
    first = session.sql("SELECT CAST(1 AS BIGINT) AS order_id, DATE '2026-09-01' AS order_date")
    delta_writes.replace_days(world.lake, "t", first, DAYS[:1], "first")

    def interrupt() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        delta_writes.replace_days(world.lake, "t", endless, DAYS[:1], "endless")
    assert delta_writes.version_of(world.lake, "t", "endless") is None
    assert world.version("t") == 0
    assert delta_writes.replace_days(world.lake, "t", first.union(first), DAYS[:1], "second").version == 1


@pytest.mark.parametrize("point", [Point.AFTER_JUDGING, Point.AFTER_COMMIT, Point.BEFORE_DAGSTER_HEARS])
def test_an_error_is_logged_and_the_steps_own_retry_heals_it(world: World, point: Point) -> None:
    """A14, D7: once, as a lost connection would; the retry repeats load and check."""
    put_two(world, 0)
    left = [1]

    def fail_once(reached: Point) -> None:
        if reached is point and left:
            left.pop()
            raise ConnectionError("the connection was lost")

    with watched(fail_once):
        assert world.run(KEYS, ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    assert not left
    statuses = [each.status for each in world.log(DAYS[0])]
    if point is Point.BEFORE_DAGSTER_HEARS:
        assert statuses == ["started", "succeeded"] * 2
    else:
        assert statuses == ["started", "failed", "started", "succeeded"]
        assert world.log(DAYS[0])[1].problem == "ConnectionError: the connection was lost"
    assert fingerprint(in_table(world.lake)) == fingerprint(in_files(world.landing))
    assert world.materialized(ORDERS_DAILY) == world.materialized(DAILY_SALES) == set(KEYS)


def test_an_error_each_time_is_told_in_the_end(world: World) -> None:
    put_two(world, 0)

    def fail(reached: Point) -> None:
        if reached is Point.BEFORE_READ:
            raise OSError(28, "No space left on device")

    with watched(fail):
        result = world.run(KEYS[:1])
    assert not result.success
    assert failure_text(result).startswith("A disk is full (")
    assert "MB left). Nothing was half written; free some space and load run date 2026-09-02 again." in failure_text(result)
    assert [each.status for each in world.log(DAYS[0])] == ["started", "failed"] * 3
