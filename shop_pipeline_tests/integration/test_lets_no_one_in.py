"""Nobody gets in, and nothing gets out: listening sockets, `shop sql`, secrets, run configuration, file names."""

import json
from datetime import date
from pathlib import Path

import dagster as dg
import psutil
import pytest

from shop_pipeline_tests.builders import rows_of
from shop_pipeline_tests.conftest import Shop, World, failure_text, run_shop
from shop_pipeline_tests.servers import ConnectServer

DAY = date(2026, 9, 1)
SECRET = "hunter2hunter2"


def listening(process: psutil.Process) -> set[str]:
    """The addresses at which a process and what it started listen."""
    found = set()
    for each in [process, *process.children(recursive=True)]:
        try:
            found |= {link.laddr.ip for link in each.net_connections("inet") if link.status == psutil.CONN_LISTEN}
        except psutil.NoSuchProcess:
            continue
    return found


LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.slow
def test_spark_listens_on_loopback_alone(world: World, connect_server: ConnectServer) -> None:
    """The suite's own Spark, which is the product's, and the Connect server with the product's settings."""
    world.put(DAY, rows_of(DAY, 1, 3))
    assert world.load(["2026-09-02"])[0].ok
    own = listening(psutil.Process())
    assert own
    assert own <= LOOPBACK
    assert connect_server.process is not None
    server = listening(psutil.Process(connect_server.process.pid))
    assert server
    assert server <= LOOPBACK


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_blob('{landing}/orders/2026-09-01.csv')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('{lake}/*/*.parquet')",
        "SELECT * FROM read_text('http://127.0.0.1:9/')",
        "SELECT * FROM parquet_scan('s3://bucket/x.parquet')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "COPY orders_daily TO '{folder}/out.parquet'",
        "EXPORT DATABASE '{folder}/out'",
        "ATTACH '{folder}/out.db' AS o",
        "CREATE TABLE t AS SELECT 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_external_access",
        "RESET allowed_paths",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_secrets()",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'",
        "PREPARE x AS SELECT 1",
    ],
)
def test_shop_sql_reads_the_lake_and_nothing_else(shop_without_spark: Shop, tmp_path: Path, statement: str) -> None:
    """No files, no writes, no network, no extensions, no settings. What it may say of secrets is that there are none."""
    shop_without_spark("sample")
    ran = shop_without_spark(
        "sql", statement.format(folder=tmp_path, lake=tmp_path / "lake", landing=tmp_path / "landing"), "--json"
    )
    if "duckdb_secrets" in statement and ran.status == 0:
        assert json.loads(ran.out) == []
        return
    assert ran.status == 2
    assert ran.out == ""
    assert "root:" not in ran.err
    assert "Traceback" not in ran.err
    assert not list(tmp_path.glob("out*"))


@pytest.mark.slow
def test_secrets_appear_nowhere(tmp_path: Path, connect_server: ConnectServer) -> None:
    """In no output, record, event or table of commands that pass and that fail."""
    secrets = {
        "SHOP_POSTGRES_URL": f"postgresql://app:{SECRET}@127.0.0.1:5432/shopflow",
        "SHOP_ALERT_URLS": f"mailto://user:{SECRET}@127.0.0.1",
        "SHOP_SPARK_REMOTE": connect_server.url,
    }
    said = []
    for arguments in (
        ("sample",),
        ("load", "2026-09-02"),
        ("load", "2027-09-02"),
        ("check", "2026-09-02"),
        ("sql", "SELECT * FROM nowhere"),
    ):
        ran = run_shop(*arguments, folder=tmp_path, **secrets)
        said.append(ran.out + ran.err)
    wrong = run_shop("load", "2026-09-02", folder=tmp_path, **{**secrets, "SHOP_SPARK_REMOTE": f"http://user:{SECRET}@x"})
    assert wrong.status == 2
    said.append(wrong.out + wrong.err)
    assert not [text for text in said if SECRET in text]
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holding == []


def test_settings_do_not_print_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    from shop_pipeline.settings import load_settings

    monkeypatch.setenv("SHOP_POSTGRES_URL", f"postgresql://app:{SECRET}@127.0.0.1/x")
    alerts = [f"mailto://u:{SECRET}@example.org", "json://127.0.0.1"]
    monkeypatch.setenv("SHOP_ALERT_URLS", " ".join(alerts))
    settings = load_settings()
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json()
    assert settings.postgres_url is not None
    assert settings.postgres_url.get_secret_value().endswith("@127.0.0.1/x")
    assert [url.get_secret_value() for url in settings.alert_urls] == alerts


@pytest.mark.parametrize(
    "config",
    [
        {"lake": {"config": {"uri": "/tmp/elsewhere"}}},  # noqa: S108
        {"till_files": {"config": {"landing": "/etc"}}},
        {"spark": {"config": {"spark_config": {"spark.driver.extraJavaOptions": "-XX:OnError=x"}}}},
    ],
)
def test_run_configuration_reaches_no_other_folder(world: World, config: dict[str, dict[str, object]]) -> None:
    """Whoever starts a run chooses a day and a write mode, and nothing else."""
    from shop_pipeline.definitions import defs

    job = defs.resolve_implicit_global_asset_job_def()
    with pytest.raises(dg.DagsterInvalidConfigError):
        job.execute_in_process(
            instance=world.instance,
            asset_selection=[dg.AssetKey("orders_daily")],
            partition_key="2026-09-02",
            run_config={"resources": config},
        )


def test_a_file_name_leads_nowhere_else(world: World, tmp_path: Path) -> None:
    """A day's file that is a link out of the landing folder is refused; one within it, or a linked folder, is not."""
    outside = tmp_path / "outside.csv"
    orders = world.landing / "orders"
    orders.mkdir(parents=True)
    outside.write_bytes(b"order_id,customer_id,amount,ordered_at\n1,C01,1.00,2026-09-01T09:00:00\n")
    (orders / "2026-09-01.csv").symlink_to(outside)
    result = world.run(["2026-09-02"])
    assert not result.success
    assert "2026-09-01.csv is a link to a file outside" in failure_text(result)
    assert world.version() is None
    inside = world.landing / "kept.csv"
    inside.write_bytes(outside.read_bytes())
    (orders / "2026-09-01.csv").unlink()
    (orders / "2026-09-01.csv").symlink_to(inside)
    assert world.run(["2026-09-02"]).success


def test_no_partition_reaches_another_file(world: World) -> None:
    """A key that is no date of the till is unknown to Dagster, and to `shop`."""
    for key in ("../../etc/passwd", "2026-09-02/../x", "latest"):
        with pytest.raises(dg.DagsterError):
            world.run([key])
