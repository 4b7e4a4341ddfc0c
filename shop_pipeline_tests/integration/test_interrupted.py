"""Loads that are told to stop, or that fail, at each named point: C95, C96, C105, A14, D7."""

import os
import signal
import threading
import time
from datetime import date

import dagster as dg
import pytest

from shop_pipeline.core import delta_writes, fault_points
from shop_pipeline.core.fault_points import Point
from shop_pipeline.core.ledger import FAILED
from shop_pipeline_tests.conftest import DAILY_SALES, ORDERS_DAILY, World, failure_text, run_date
from shop_pipeline_tests.fire import fingerprint, in_files, in_table, month, put

DAYS = [date(2026, 9, 1), date(2026, 9, 2)]
KEYS = [run_date(day) for day in DAYS]
COMMITTED = {Point.AFTER_COMMIT, Point.BEFORE_CHECK, Point.BEFORE_CLOSING, Point.BEFORE_DAGSTER_HEARS}


def put_two(world: World, version: int) -> None:
    put(world.landing, {day: rows for day, rows in month(version).items() if day in DAYS})


@pytest.mark.parametrize("point", list(Point))
def test_a_cancelled_run_says_so_and_the_day_is_before_or_after(world: World, point: Point) -> None:
    """C95, C105: as "terminate" in the UI does it. What was good stays good where nothing was written; what was written and not
    compared is closed; a rerun completes."""
    put_two(world, 0)
    assert world.run(KEYS).success
    before = fingerprint(in_table(world.lake))
    put_two(world, 1)
    end = fault_points.watch(lambda reached: os.kill(os.getpid(), signal.SIGINT) if reached is point else None)
    try:
        with pytest.raises(dg.DagsterExecutionInterruptedError):
            world.run(KEYS)
    finally:
        end()
    after = fingerprint(in_files(world.landing))
    assert fingerprint(in_table(world.lake)) == (after if point in COMMITTED else before)
    last = [world.log(day)[-1] for day in DAYS]
    if point is Point.BEFORE_DAGSTER_HEARS:
        assert all(world.verdict(day).verified for day in DAYS)
    else:
        assert [each.status for each in last] == [FAILED] * 2
        assert {each.problem for each in last} == {"it was cancelled (DagsterExecutionInterruptedError)"}
        # The state of the data is another thing than the state of the last run.
        assert all(world.verdict(day).verified == (point not in COMMITTED) for day in DAYS)
        assert all((each.delta_version is not None) == (point in COMMITTED) for each in last)
    assert world.run(KEYS, ORDERS_DAILY, DAILY_SALES).success
    assert fingerprint(in_table(world.lake)) == after


def test_the_lock_is_kept_until_the_jvm_has_stopped_too(world: World) -> None:
    """Python's wait for Spark is broken off by Ctrl-C; the write behind it would commit later, when the lock is someone else's."""
    session = world.spark.session()
    endless = session.sql(
        "SELECT count(*) AS order_id, DATE '2026-09-01' AS order_date FROM range(0, 100000000000000) WHERE id % 7 = hash(id) % 7"
    )
    first = session.sql("SELECT CAST(1 AS BIGINT) AS order_id, DATE '2026-09-01' AS order_date")
    delta_writes.replace_days(world.lake, "t", first, DAYS[:1], "first")

    def interrupt() -> None:
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        delta_writes.replace_days(world.lake, "t", endless, DAYS[:1], "endless")
    assert delta_writes.version_of(world.lake, "t", "endless") is None
    assert world.version("t") == 0
    assert delta_writes.replace_days(world.lake, "t", first.union(first), DAYS[:1], "second").version == 1


@pytest.mark.parametrize("point", list(Point))
def test_an_error_anywhere_is_logged_and_the_steps_own_retry_heals_it(world: World, point: Point) -> None:
    """A14, D7: once, as a lost connection would; the retry repeats load and check."""
    put_two(world, 0)
    left = [1]

    def fail_once(reached: Point) -> None:
        if reached is point and left:
            left.pop()
            raise ConnectionError("the connection was lost")

    end = fault_points.watch(fail_once)
    try:
        assert world.run(KEYS, ORDERS_DAILY, DAILY_SALES).success
    finally:
        end()
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

    end = fault_points.watch(fail)
    try:
        result = world.run(KEYS[:1])
    finally:
        end()
    assert not result.success
    assert failure_text(result).startswith("A disk is full (")
    assert "MB left). Nothing was half written; free some space and load run date 2026-09-02 again." in failure_text(result)
    assert [each.status for each in world.log(DAYS[0])] == ["started", "failed"] * 3
