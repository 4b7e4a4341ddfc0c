"""What only processes of their own can show: kills, exits, no JVM, machines with another clock."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path

import dagster as dg
import duckdb
import psutil
import pytest
import time_machine

from shop_pipeline.core.lake import Lake, row_count
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.builders import rows_of
from shop_pipeline_tests.conftest import Shop, World, clean_environment, run_shop, wait_until
from shop_pipeline_tests.servers import ConnectServer, DagsterDev, free_port

pytestmark = [pytest.mark.slow, pytest.mark.apart]
WITHOUT_JAVA = {"JAVA_HOME": "/nowhere"}


def has_rows(lake: Lake, at_least: int) -> bool:
    table = lake.open("orders_daily")
    return table is not None and row_count(table) >= at_least


def test_thirty_checks_exit_cleanly_without_java(world: World) -> None:
    """E4, and a reader that used to abort at exit: thirty processes, thirty statuses that can be trusted."""
    day = date(2026, 9, 1)
    world.put(day, rows_of(day, 1, 3))
    world.run(["2026-09-02"])

    def check(_: int) -> tuple[int, str]:
        ran = run_shop("check", "2026-09-02", folder=world.folder, **WITHOUT_JAVA)
        return ran.status, ran.out

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(check, range(30)))
    assert found == [(0, "ok 2026-09-01: 3 rows for the file's 3 orders, 0 missing\n")] * 30


def test_a_killed_backfill_started_again_ends_the_same(tmp_path: Path, connect_server: ConnectServer) -> None:
    """B2: SIGKILL after the first days were committed; again; the same table as without the kill."""
    remote = {"SHOP_SPARK_REMOTE": connect_server.url}
    tables = []
    for name in ("killed", "whole"):
        folder = tmp_path / name
        folder.mkdir()
        assert run_shop("sample", folder=folder).status == 0
        command = ("backfill", "2026-09-02", "2026-09-07", "--days-per-run", "2")
        if name == "killed":
            process = subprocess.Popen(
                [str(Path(sys.executable).parent / "shop"), *command],
                cwd=folder,
                env=clean_environment(**remote),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            wait_until("two days are committed", partial(has_rows, Lake(str(folder / "lake")), 8))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        ran = run_shop(*command, folder=folder, **remote)
        assert ran.out == "ran 6 runs, 0 failed; orders_daily has 6 days, 22 orders\n", ran.err
        with dg.DagsterInstance.ephemeral() as instance:
            world = World(folder, SparkResource(spark_config={}), instance)
            tables.append(world.query("SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL"))
            assert world.query("SELECT count(*), sum(orders) FROM daily_sales", "daily_sales") == [(6, 22)]
    assert tables[0] == tables[1]


def test_september_loads_on_a_machine_whose_clock_says_january(shop: Shop) -> None:
    """B1"""
    with time_machine.travel("2026-01-01T12:00:00+00:00"):
        shop("sample")
        ran = shop("backfill", "2026-09-30", "2026-10-01")
        assert ran.out == "ran 2 runs, 0 failed; orders_daily has 2 days, 11 orders\n", ran.err
        assert shop("check", "2026-10-01").status == 0


def test_first_loads_at_once_in_a_fresh_folder(tmp_path: Path, connect_server: ConnectServer) -> None:
    """B6, C50: four processes make DAGSTER_HOME, the table and the log at the same time; nothing is lost or spoilt."""
    remote = {"SHOP_SPARK_REMOTE": connect_server.url}
    assert run_shop("sample", folder=tmp_path).status == 0
    keys = [f"2026-09-{day:02d}" for day in range(2, 6)]
    with ThreadPoolExecutor(4) as pool:
        ran = list(pool.map(lambda key: run_shop("load", key, folder=tmp_path, **remote), keys))
    assert [each.status for each in ran] == [0] * 4, [each.err for each in ran]
    assert [each.out.split(", ")[0] for each in ran] == [
        f"run 2026-09-{day + 1:02d} loaded 2026-09-{day:02d}: {rows} rows" for day, rows in ((1, 3), (2, 5), (3, 4), (4, 3))
    ]
    assert run_shop("check", keys[0], folder=tmp_path).out == "ok 2026-09-01: 3 rows for the file's 3 orders, 0 missing\n"
    table = Lake(str(tmp_path / "lake")).open("orders_daily")
    assert table is not None
    assert row_count(table) == 15


def test_the_exit_status_of_a_pipe_is_the_answer(tmp_path: Path) -> None:
    """Results on standard output, all else on standard error, no colour when it is not a terminal."""
    ran = run_shop("check", "2026-09-02", folder=tmp_path)
    assert ran.status == 1
    assert ran.out.startswith("NOT CHECKED 2026-09-01: ")
    assert "\x1b" not in ran.out + ran.err
    assert "Traceback" not in ran.err


class ShopUp(DagsterDev):
    """`shop up` in a folder of one's own."""

    def start(self, environment: dict[str, str]) -> None:
        self.launch([str(Path(sys.executable).parent / "shop"), "up", "--port", str(self.port)], environment)
        self.wait_for_port(120)

    def javas(self) -> list[psutil.Process]:
        """The JVM of its Spark server, once it is noted."""
        assert self.process is not None
        return [each for each in psutil.Process(self.process.pid).children(recursive=True) if "java" in each.name()]


def test_shop_up_serves_this_folder_until_it_is_stopped(tmp_path: Path) -> None:
    """C93: it says what is switched off; a port that is taken is a sentence; runs share its Spark; Ctrl-C leaves nothing."""
    server = ShopUp(tmp_path)
    server.start(clean_environment())
    try:
        found = wait_until("it answers", lambda: _assets(server))
        assert "orders_daily" in found
        assert "switched off: till_daily, " in server.log
        ran = run_shop("up", "--port", str(server.port), folder=tmp_path)
        assert ran.status == 2
        assert f"Port {server.port} is taken" in ran.err
        ran = run_shop("up", "--port", str(free_port()), folder=tmp_path)
        assert ran.status == 2
        assert "Another `shop up` runs over" in ran.err
        wait_until("Spark is ready", lambda: "Spark's server is ready" in server.log, 60)
        assert run_shop("sample", folder=tmp_path).status == 0
        assert run_shop("load", "2026-09-02", folder=tmp_path, **WITHOUT_JAVA).out.startswith("run 2026-09-02 loaded 2026-09-01: 3")
        _killed_in_mid_load(server, tmp_path)
        # A server that hangs is told of, and not waited for.
        (java,) = server.javas()
        java.suspend()
        ran = run_shop("load", "2026-09-03", folder=tmp_path, SHOP_SPARK_FALLBACK="fail")
        java.resume()
        assert ran.status == 2
        assert "The Spark server of `shop up` does not answer" in ran.err
    finally:
        assert server.process is not None
        family = psutil.Process(server.process.pid).children(recursive=True)
        assert any("java" in each.name() for each in family)
        server.process.send_signal(signal.SIGINT)
        server.process.wait(60)
        gone, left = psutil.wait_procs(family, timeout=30)
        server.stop()
    assert not left, gone
    assert not (tmp_path / "dagster_home" / "spark_server" / "address.json").exists()


def _killed_in_mid_load(server: ShopUp, folder: Path) -> None:
    """Spark's server is killed while it writes: the run says so, tries again on the server that was started anew, and is exact."""
    file = folder / "landing" / "orders" / "2026-09-09.csv"
    orders = 1_000_000
    duckdb.sql(
        f"""
        COPY (SELECT i AS order_id, printf('C%02d', i % 20) AS customer_id, (i % 97 + 1) / 4 AS amount,
                     strftime(TIMESTAMP '2026-09-09 08:00:00' + INTERVAL (i % 40000) SECOND, '%Y-%m-%dT%H:%M:%S') AS ordered_at
              FROM range(10000, 10000 + {orders}) t(i)) TO '{file}' (HEADER)
        """
    )
    (java,) = server.javas()
    command = [str(Path(sys.executable).parent / "shop"), "load", "2026-09-10"]
    said = folder / "load.err"
    with said.open("w") as err:
        loading = subprocess.Popen(
            command, cwd=folder, env=clean_environment(**WITHOUT_JAVA), stdout=subprocess.PIPE, stderr=err, text=True
        )
        try:
            wait_until("it writes", lambda: "writing 1 days" in said.read_text())
            java.kill()
            out, _ = loading.communicate(timeout=180)
        finally:
            loading.kill()
    text = said.read_text()
    assert loading.returncode == 0, text
    assert out == f"run 2026-09-10 loaded 2026-09-09: {orders} rows, orders_daily has {orders + 3}\n"
    assert "The Spark server went away while it was at work" in text
    assert "Traceback" not in text
    assert "StatusCode" not in text
    checked = run_shop("check", "2026-09-10", folder=folder)
    assert checked.out == f"ok 2026-09-09: {orders} rows for the file's {orders} orders, 0 missing\n"


def test_shop_up_killed_leaves_no_spark(tmp_path: Path) -> None:
    """Not even kill -9 leaves a JVM or a web server behind, and the next `shop` passes over what it noted."""
    server = ShopUp(tmp_path)
    server.start(clean_environment())
    try:
        wait_until("Spark is ready", lambda: "Spark's server is ready" in server.log, 60)
        assert server.process is not None
        family = psutil.Process(server.process.pid).children(recursive=True)
        server.process.kill()
        _, left = psutil.wait_procs(family, timeout=60)
        assert not left
    finally:
        server.stop()
    ran = run_shop("load", "2026-09-02", folder=tmp_path, **WITHOUT_JAVA)
    assert (ran.status, ran.out) == (2, "")
    assert "JAVA_HOME is /nowhere" in ran.err


def _assets(server: DagsterDev) -> set[str]:
    try:
        nodes = server.graphql("{ assetNodes { assetKey { path } } }")["assetNodes"]
    except OSError:
        return set()
    return {"/".join(node["assetKey"]["path"]) for node in nodes}
