"""The real web server, daemon, code server and runs, killed and started again; runs cancelled by a person."""

import os
import signal
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import dagster as dg
import psutil
import pytest

from shop_pipeline.core.ledger import STARTED
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.conftest import TALLY, World, environment_in, run_date, wait_until
from shop_pipeline_tests.fire import assert_nothing_lost, count_commits, fingerprint, in_files, in_table, month, put
from shop_pipeline_tests.integration.test_dagster_dev import asset, finish, finish_run, launch_backfill
from shop_pipeline_tests.integration.test_lets_no_one_in import LOOPBACK, listening
from shop_pipeline_tests.servers import ConnectServer, DagsterDev

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.daemon]

DAYS = list(month(0))
KEYS = [run_date(day) for day in DAYS]
RUNS = "{ runsOrError(limit: 20) { ... on Runs { results { runId status tags { key value } assetSelection { path } } } } }"
TERMINATE = """
mutation($id: String!) { terminateRun(runId: $id) { __typename ... on TerminateRunFailure { message }
  ... on PythonError { message } } }
"""


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, connect_server: ConnectServer) -> Iterator[DagsterDev]:
    """`make dev` over a fresh folder, not started yet; its runs share a warm Spark server."""
    made = DagsterDev(tmp_path_factory.mktemp("killed"))
    yield made
    made.stop()


def start(server: DagsterDev, connect_server: ConnectServer) -> None:
    server.start(
        environment_in(
            server.folder,
            SHOP_SPARK_REMOTE=connect_server.url,
        )
    )
    wait_until("the web server answers", lambda: answers(server))


def answers(server: DagsterDev) -> bool:
    try:
        server.graphql(RUNS)
    except OSError:
        return False
    return True


def kill(server: DagsterDev) -> None:
    """SIGKILL to web server, daemon, code server and runs at once, as a machine that is switched off does it."""
    assert server.process is not None
    group = psutil.Process(server.process.pid)
    everything = [*group.children(recursive=True), group]
    for each in everything:
        each.kill()
    TALLY.add(kills=1, processes=len(everything))
    server.process.wait()
    psutil.wait_procs(everything, timeout=30)


def runs(server: DagsterDev) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.graphql(RUNS)["runsOrError"]["results"]
    return found


def when_run(server: DagsterDev, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    found: dict[str, Any] = wait_until(what, lambda: next(filter(holds, runs(server)), None), timeout=240)
    return found


def of(run: dict[str, Any], name: str) -> bool:
    return {"path": [name]} in (run["assetSelection"] or [])


def test_a_backfill_whose_daemon_is_killed_three_times(
    server: DagsterDev, connect_server: ConnectServer, instance: dg.DagsterInstance
) -> None:
    """B2, C97, C101, C109: before its first run, in mid-run, and before what is made of it; each time all processes. It ends
    complete, nothing by hand. Then a run is cancelled: it stays so (C96), and the next one completes the days (C95)."""
    put(server.folder / "landing", month(0))
    start(server, connect_server)
    assert server.process is not None
    found = listening(psutil.Process(server.process.pid))
    assert found
    assert found <= LOOPBACK
    backfill = launch_backfill(server, KEYS)
    kill(server)

    start(server, connect_server)
    when_run(server, "orders_daily is being loaded", lambda run: of(run, "orders_daily") and run["status"] == "STARTED")
    kill(server)

    start(server, connect_server)
    wait_until("all days are loaded", lambda: asset(server, "orders_daily")["partitionStats"]["numMaterialized"] == 30, timeout=300)
    kill(server)

    start(server, connect_server)
    assert finish(server, backfill) == "COMPLETED_SUCCESS"
    world = World(server.folder, SparkResource(spark_config={}), instance)
    for name in ("orders_daily", "silver_orders", "daily_sales"):
        stats = asset(server, name)["partitionStats"]
        assert (stats["numMaterialized"], stats["numFailed"]) == (30, 0)
    assert fingerprint(in_table(world.lake)) == fingerprint(in_files(world.landing))
    assert world.query("SELECT count(*), sum(orders) FROM daily_sales", "daily_sales") == [(30, in_files(world.landing).total())]
    assert all(verdict.verified for verdict in world.verdicts(DAYS).values())
    assert not [run for run in runs(server) if run["status"] not in ("SUCCESS", "FAILURE")]

    before = fingerprint(in_table(world.lake))
    put(server.folder / "landing", month(1))
    known = {run["runId"] for run in runs(server)}
    # The run cannot end before it is cancelled: it waits for this lock.
    with world.lake.commit_lock("orders_daily"):
        launch_backfill(server, KEYS, ["orders_daily"])
        run = when_run(server, "a run", lambda run: run["runId"] not in known and run["status"] == "STARTED")
        wait_until("its load has started", lambda: world.log(DAYS[0])[-1].status == STARTED)
        answer = server.graphql(TERMINATE, id=run["runId"])["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer
        assert finish_run(server, run["runId"])["status"] == "CANCELED"
    assert fingerprint(in_table(world.lake)) == before
    assert world.log(DAYS[0])[-1].problem == "it was cancelled (DagsterExecutionInterruptedError)"
    assert all(verdict.verified for verdict in world.verdicts(DAYS).values())
    assert finish(server, launch_backfill(server, KEYS)) == "COMPLETED_SUCCESS"
    assert {each["status"] for each in runs(server) if each["runId"] not in {*known, run["runId"]}} == {"SUCCESS"}
    assert_nothing_lost(world.landing, world.lake)
    assert all(verdict.verified for verdict in world.verdicts(DAYS).values())
    count_commits(world.lake)


def test_a_killed_shop_is_closed_by_the_next(tmp_path: Any) -> None:  # noqa: ANN401
    """B8, C101: its record says STARTED until the next `shop` finds that its process is dead."""
    from shop_pipeline.core.fault_points import Point
    from shop_pipeline_tests.fire import Commands

    put(tmp_path / "landing", {date(2026, 9, 1): month(0)[date(2026, 9, 1)]})
    with Commands() as commands:
        assert commands.run("load", "2026-09-02", folder=tmp_path, at=Point.AFTER_STARTED) == -signal.SIGKILL
        home = tmp_path / "dagster_home"
        os.environ["DAGSTER_HOME"] = str(home)
        try:
            with dg.DagsterInstance.get() as instance:
                (run,) = instance.get_runs()
                assert run.status is dg.DagsterRunStatus.STARTED
                assert commands.run("check", "2026-09-02", folder=tmp_path) == 1
                closed = instance.get_run_by_id(run.run_id)
                assert closed is not None
                assert closed.status is dg.DagsterRunStatus.FAILURE
        finally:
            del os.environ["DAGSTER_HOME"]
    assert "closed as failed: its process has died" in (tmp_path / "shop.log").read_text()
