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
import psutil
import pytest
import time_machine

from shop_pipeline.core.lake import Lake, row_count
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.builders import rows_of
from shop_pipeline_tests.conftest import Shop, World, clean_environment, run_shop, wait_until
from shop_pipeline_tests.servers import ConnectServer, DagsterDev

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


def test_shop_up_serves_this_folder_until_it_is_stopped(tmp_path: Path) -> None:
    """C93: it says what is switched off; a port that is taken is a sentence; Ctrl-C leaves nothing behind."""
    server = ShopUp(tmp_path)
    server.start(clean_environment())
    try:
        found = wait_until("it answers", lambda: _assets(server))
        assert "orders_daily" in found
        assert "switched off: till_daily, " in server.log
        ran = run_shop("up", "--port", str(server.port), folder=tmp_path)
        assert ran.status == 2
        assert f"Port {server.port} is taken" in ran.err
    finally:
        assert server.process is not None
        family = psutil.Process(server.process.pid).children(recursive=True)
        server.process.send_signal(signal.SIGINT)
        server.process.wait(60)
        gone, left = psutil.wait_procs(family, timeout=30)
        server.stop()
    assert not left, gone


def _assets(server: DagsterDev) -> set[str]:
    try:
        nodes = server.graphql("{ assetNodes { assetKey { path } } }")["assetNodes"]
    except OSError:
        return set()
    return {"/".join(node["assetKey"]["path"]) for node in nodes}
