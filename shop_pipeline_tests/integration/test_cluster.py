"""The same project on a Spark standalone cluster: the month, a correction, a worker that dies in mid-load, a Connect server."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import duckdb
import psutil
import pytest
from deltalake import DeltaTable

from shop_pipeline.core.ports import free_port
from shop_pipeline.core.sample import write_september
from shop_pipeline.core.spark import CONNECT_PORT
from shop_pipeline_tests.builders import HEADER
from shop_pipeline_tests.conftest import REPOSITORY, Ran, clean_environment, run_shop, wait_until
from shop_pipeline_tests.servers import StandaloneCluster, _Process

pytestmark = [pytest.mark.slow, pytest.mark.spark]

BIG_DAY = date(2026, 9, 1)
BIG = 200_000
MEMORY = "800m"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    made = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start(workers=2)
        yield made
    finally:
        made.stop()


def on(cluster: StandaloneCluster) -> dict[str, str]:
    """Settings for that cluster. There is no Python for its workers: none of the work needs it."""
    return {"SHOP_SPARK_MASTER": cluster.url, "SHOP_SPARK_MEMORY": MEMORY, "PYSPARK_PYTHON": "/nowhere"}


def differing_rows(folder: Path) -> tuple[int, int, int]:
    """Rows in the files, those that are in them alone, those that are in the table alone; read by none of the project's code."""
    table = DeltaTable(str(folder / "lake" / "orders_daily"))
    names = HEADER.split(",")
    columns = "order_id INT, customer_id VARCHAR, amount DECIMAL(10, 2), ordered_at TIMESTAMP"
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE files ({columns})")
    con.execute(f"CREATE TABLE loaded ({columns})")
    # Both kinds of line end may be in a file.
    con.execute(f"COPY files FROM '{folder}/landing/orders/*.csv' (HEADER, STRICT_MODE false)")
    con.execute(
        f"INSERT INTO loaded SELECT {', '.join(names)} FROM read_parquet($1, hive_partitioning = false)", [table.file_uris()]
    )
    both = "SELECT count(*) FROM (FROM {} EXCEPT ALL FROM {})"
    counts = ["SELECT count(*) FROM files", both.format("files", "loaded"), both.format("loaded", "files")]
    found = [con.execute(count).fetchall()[0][0] for count in counts]
    return found[0], found[1], found[2]


def documented_server() -> str:
    """The command of docs/clusters.md that starts a Connect server."""
    blocks = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs" / "clusters.md").read_text(), re.DOTALL)
    (command,) = [block for block in blocks if "SparkConnectServer" in block]
    return str(command)


@contextmanager
def connect_server(cluster: StandaloneCluster, folder: Path) -> Iterator[str]:
    """The documented server before the cluster, but for the master, the port and the memory; gives its address."""
    server = _Process(folder)
    folder.mkdir()
    (folder / ".venv").symlink_to(REPOSITORY / ".venv")
    command = documented_server()
    here = {"'local[*]'": cluster.url, str(CONNECT_PORT): str(server.port), "-memory 2g": f"-memory {MEMORY}"}
    for documented, value in here.items():
        assert documented in command
        command = command.replace(documented, value)
    try:
        server.launch(["bash", "-c", command], clean_environment(SPARK_LOCAL_IP="127.0.0.1"))
        server.wait_for_port(60)
        yield f"sc://127.0.0.1:{server.port}"
    finally:
        server.stop()


def test_a_month_and_its_correction_through_a_connect_server(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """The month by a driver of the command's own; then a late order, by the documented server before the same cluster."""
    write_september(tmp_path / "landing", force=False)
    ran = run_shop("backfill", "2026-09-02", "2026-10-01", folder=tmp_path, **on(cluster))
    assert (ran.status, ran.out) == (0, "ran 30 runs, 0 failed; orders_daily has 30 days, 130 orders\n"), ran.err
    assert differing_rows(tmp_path) == (130, 0, 0)
    figures = run_shop("sql", "SELECT sum(orders), count(*) FROM daily_sales", folder=tmp_path)
    assert figures.last.split() == ["130", "30"]
    assert all(list(worker.folder.glob("app-*/*/stderr")) for worker in cluster.workers), "a worker had nothing to do"
    with (tmp_path / "landing" / "orders" / "2026-09-15.csv").open("a") as file:
        file.write("2131,C02,19.99,2026-09-15T20:30:00\n")
    with connect_server(cluster, tmp_path / "server") as url:
        remote = {"SHOP_SPARK_REMOTE": url, "JAVA_HOME": "/nowhere"}
        ran = run_shop("load", "2026-09-16", folder=tmp_path, **remote)
    assert ran.out == "run 2026-09-16 loaded 2026-09-15: 4 rows, orders_daily has 131\n", ran.err
    assert differing_rows(tmp_path) == (131, 0, 0)
    assert len(cluster.state()["completedapps"]) == 2


def writing(worker: psutil.Process, lake: Path) -> list[tuple[psutil.Process, Path]]:
    """The executors of a worker that have a data file of the lake open, each with the file: they run a task of a load."""
    found = []
    for executor in worker.children(recursive=True):
        try:
            files = [Path(each.path) for each in executor.open_files()]
        except psutil.Error:
            continue
        found += [(executor, file) for file in files if file.is_relative_to(lake) and file.suffix == ".parquet"]
    return found


def test_a_worker_killed_in_mid_load_costs_time_and_no_row(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """The worker and its executor, as when their machine dies, while the executor writes a file of the day."""
    landing, lake = tmp_path / "landing" / "orders", tmp_path / "lake"
    landing.mkdir(parents=True)
    duckdb.execute(
        f"""COPY (SELECT i AS order_id, 'C' || i % 1000 AS customer_id, CAST(i % 9973 AS DECIMAL(10, 2)) / 100 AS amount,
                strftime(TIMESTAMP '{BIG_DAY}' + to_milliseconds(i * 80), '%Y-%m-%dT%H:%M:%S') AS ordered_at FROM range({BIG}) t(i))
            TO '{landing}/{BIG_DAY}.csv' (HEADER)"""
    )
    with (tmp_path / "shop.log").open("w") as log:
        load = subprocess.Popen(
            [str(Path(sys.executable).parent / "shop"), "load", "2026-09-02"],
            cwd=tmp_path,
            env=clean_environment(**on(cluster)),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    victim = cluster.workers[-1]
    assert victim.process is not None
    worker = psutil.Process(victim.process.pid)
    try:
        executor, half_written = wait_until("the executor writes", lambda: writing(worker, lake), pause=0.1)[0]
        for each in (worker, executor):
            each.send_signal(signal.SIGKILL)
        # The load was not over, nor committed.
        assert load.poll() is None
        assert not list((lake / "orders_daily" / "_delta_log").glob("*.json"))
        cluster.wait_for_workers(1)
        assert load.wait(120) == 0
    finally:
        load.kill()
        said = (tmp_path / "shop.log").read_text()
    assert said.splitlines()[-1] == f"run 2026-09-02 loaded 2026-09-01: {BIG} rows, orders_daily has {BIG}"
    assert "tried again" not in said, "Spark itself was to do the lost tasks again"
    assert differing_rows(tmp_path) == (BIG, 0, 0)
    files = {Path(uri) for uri in DeltaTable(str(lake / "orders_daily")).file_uris()}
    assert half_written.exists(), "what the dead executor left behind"
    assert half_written not in files
    cluster.add_worker()
    cluster.wait_for_workers(2)


def test_a_master_that_is_not_there(tmp_path: Path) -> None:
    write_september(tmp_path / "landing", force=False)
    port = free_port()
    ran = run_shop("load", "2026-09-02", folder=tmp_path, timeout=30, SHOP_SPARK_MASTER=f"spark://127.0.0.1:{port}")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        f"shop: SHOP_SPARK_MASTER is spark://127.0.0.1:{port}, and no master listens there: 127.0.0.1:{port} (Connection "
        "refused). Start it, or unset SHOP_SPARK_MASTER to run Spark on this machine.\n"
    )
    assert not (tmp_path / "lake").exists()


IMPATIENT = """
import sys
from shop_pipeline.core import cluster
cluster.ANSWER_SECONDS, cluster.EXECUTOR_SECONDS = int(sys.argv.pop(1)), int(sys.argv.pop(1))
from shop_pipeline.cli import main
main()
"""


def impatient(answer: int, executor: int, folder: Path, **environment: str) -> Ran:
    """A load that waits so many seconds for an answer, and so many for an executor."""
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, str(answer), str(executor), "load", "2026-09-02"],
        cwd=folder,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_what_listens_and_is_no_master(tmp_path: Path) -> None:
    """It takes the connection and never says a word."""
    write_september(tmp_path / "landing", force=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        ran = impatient(6, 6, tmp_path, SHOP_SPARK_MASTER=url)
    assert (ran.status, ran.out) == (2, ""), ran.err
    assert ran.err.splitlines()[-1].startswith(f"shop: SHOP_SPARK_MASTER is {url}, which did not take an application in within 6 ")
    assert "Traceback" not in ran.err
    assert not (tmp_path / "lake").exists()


def test_a_cluster_with_nothing_to_spare(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """No worker has the memory that is asked for: a sentence in place of a wait without end."""
    write_september(tmp_path / "landing", force=False)
    ran = impatient(60, 3, tmp_path, **on(cluster) | {"SHOP_SPARK_MEMORY": "3g"})
    assert (ran.status, ran.out) == (1, ""), ran.err
    said = ran.err.splitlines()[-1]
    assert said.startswith(f"shop: The Spark cluster {cluster.url} has given this run no executor within 3 seconds")
    assert "none with 3g (SHOP_SPARK_MEMORY) and a core to spare" in said
    assert not (tmp_path / "lake").exists()
