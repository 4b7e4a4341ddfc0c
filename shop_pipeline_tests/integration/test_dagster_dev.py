"""The real web server, daemon and code location, asked as the UI's own pages ask: rows B9, E1 and E6."""

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from shop_pipeline.assets.follow_up import FOLLOWS
from shop_pipeline.core.sample import write_september
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.conftest import RANGE, World, environment_in, wait_until
from shop_pipeline_tests.servers import ConnectServer, DagsterDev, Receiver

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.daemon]

KEYS = [f"2026-09-{day:02d}" for day in range(2, 31)] + ["2026-10-01"]
BAD, BAD_FILE = "2026-09-16", "2026-09-15.csv"

LAUNCH_BACKFILL = """
mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }
"""
BACKFILL = """
query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status
  cancelableRuns { id } } } }
"""
ASSET = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  groupName kinds description owners { ... on TeamAssetOwner { team } }
  partitionStats { numMaterialized numFailed numPartitions }
  latestMaterializationByPartition(partitions: ["2026-09-13"]) { metadataEntries { label
    ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } } } } } }
"""
RUNS = """
{ runsOrError(limit: 50) { ... on Runs { results { runId status tags { key value } assetSelection { path } } } } }
"""
LAUNCH_RUN = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } } }
"""
BACKFILLS = """
{ partitionBackfillsOrError(limit: 10) { ... on PartitionBackfills { results { id status tags { key value } } } } }
"""
START_SENSOR = """
mutation($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) { __typename ... on PythonError { message } } }
"""
REEXECUTE = """
mutation($parent: String!) { launchRunReexecution(reexecutionParams: {parentRunId: $parent, strategy: FROM_FAILURE}) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
RUN = """
query($id: ID!) { runOrError(runId: $id) { ... on Run { status eventConnection(limit: 1000) { events {
  __typename ... on MessageEvent { message } ... on ExecutionStepFailureEvent { error { message } } } } } } }
"""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """Where the alerts go."""
    with Receiver.listening() as made:
        yield made


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory, connect_server: ConnectServer, receiver: Receiver) -> Iterator[DagsterDev]:
    """`make dev` over a fresh folder with the sample month, 15 September's file broken; runs share a warm Spark server."""
    folder = tmp_path_factory.mktemp("dev")
    write_september(folder / "landing", force=False)
    file = folder / "landing" / "orders" / BAD_FILE
    file.write_bytes(file.read_bytes().replace(b"\r\n2", b"\r\nx2", 1))
    server = DagsterDev(folder)
    server.start(
        environment_in(
            folder,
            SHOP_SPARK_REMOTE=connect_server.url,
            SHOP_ALERT_URLS=receiver.url,
        )
    )
    yield server
    server.stop()


PIPELINE = ("orders_daily", "silver_orders", "daily_sales")


def asset(dev: DagsterDev, name: str) -> dict[str, Any]:
    found: dict[str, Any] = dev.graphql(ASSET, key={"path": [name]})["assetNodeOrError"]
    return found


def launch_backfill(dev: DagsterDev, keys: list[str], names: Sequence[str] = PIPELINE) -> str:
    """As "Materialize all" on the group page does."""
    params = {
        "assetSelection": [{"path": [name]} for name in names],
        "partitionNames": keys,
        "fromFailure": False,
        "tags": [],
    }
    answer = dev.graphql(LAUNCH_BACKFILL, params=params)["launchPartitionBackfill"]
    assert answer["__typename"] == "LaunchBackfillSuccess", answer
    return str(answer["backfillId"])


def finish(dev: DagsterDev, backfill: str) -> str:
    def ended() -> str | None:
        status = dev.graphql(BACKFILL, id=backfill)["partitionBackfillOrError"]["status"]
        return status if status.startswith(("COMPLETED", "FAILED", "CANCELED")) else None

    return str(wait_until("the backfill has ended", ended, timeout=420))


def finish_run(dev: DagsterDev, run_id: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        run: dict[str, Any] = dev.graphql(RUN, id=run_id)["runOrError"]
        return run if run["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

    found: dict[str, Any] = wait_until("the run has ended", ended, timeout=300)
    return found


def test_the_ui_shows_the_project_and_starts_without_a_warning_of_ours(dev: DagsterDev) -> None:
    for name in (*PIPELINE, "run_log", "late_arrivals", "restatements"):
        shown = asset(dev, name)
        assert shown["groupName"] == "till"
        assert shown["owners"] == [{"team": "shop"}]
        assert shown["description"]
        assert "deltalake" in shown["kinds"]
    lines = [line for line in dev.log.splitlines() if "Warning" in line or "shop_pipeline/" in line]
    lines = [line for line in lines if "/site-packages/" not in line]
    assert lines == []
    # C93: what is off is said where it is started.
    assert "switched off: till_daily, shopflow_daily, check_feeds_every_3_hours, " in dev.log


def test_a_backfill_with_a_bad_day_started_in_the_ui(dev: DagsterDev, instance: dg.DagsterInstance) -> None:
    """E1, E6: 29 days in every asset without a further step, one failed and named, nothing of it downstream in any way that a
    run can start; then mended by one run."""
    backfill = launch_backfill(dev, KEYS)
    assert finish(dev, backfill) == "COMPLETED_FAILED"
    world = World(dev.folder, SparkResource(spark_config={}), instance)
    stats = {name: asset(dev, name)["partitionStats"] for name in PIPELINE}
    assert stats["orders_daily"]["numMaterialized"] == 29
    assert stats["orders_daily"]["numFailed"] == 1
    assert stats["silver_orders"]["numMaterialized"] == stats["daily_sales"]["numMaterialized"] == 29
    assert world.query("SELECT count(*), count(DISTINCT order_date) FROM orders_daily") == [(127, 29)]
    assert world.query("SELECT count(*) FROM daily_sales WHERE order_date = DATE '2026-09-15'", "daily_sales") == [(0,)]
    runs = dev.graphql(RUNS)["runsOrError"]["results"]
    assert all({"key": "dagster/backfill", "value": backfill} in run["tags"] for run in runs)
    failed = [run for run in runs if run["status"] == "FAILURE"]
    assert len(failed) == 1
    events = dev.graphql(RUN, id=failed[0]["runId"])["runOrError"]["eventConnection"]["events"]
    errors = [event["error"]["message"] for event in events if event["__typename"] == "ExecutionStepFailureEvent"]
    assert f"1 of 30 run dates failed: {BAD}." in errors[0]
    assert f"{BAD_FILE}, line 2, column order_id" in errors[0]

    metadata = asset(dev, "orders_daily")["latestMaterializationByPartition"][0]["metadataEntries"]
    values = {entry["label"]: entry.get("intValue", entry.get("text")) for entry in metadata}
    assert values["dagster/partition_row_count"] == 4
    assert values["verdict"] == "verified"
    assert {"source", "fingerprint", "delta_version"} <= set(values)

    # Re-executed from failure while the file is still bad: the good days load again, the bad one feeds nothing.
    again = dev.graphql(REEXECUTE, parent=failed[0]["runId"])["launchRunReexecution"]
    assert again["__typename"] == "LaunchRunSuccess", again
    assert finish_run(dev, again["run"]["runId"])["status"] == "FAILURE"
    assert asset(dev, "orders_daily")["partitionStats"]["numMaterialized"] == 29
    assert asset(dev, "daily_sales")["partitionStats"]["numMaterialized"] == 29
    # And downstream alone, by hand, on the bad day.
    assert finish(dev, launch_backfill(dev, [BAD], ["daily_sales"])) == "COMPLETED_FAILED"
    assert world.query("SELECT count(*) FROM daily_sales WHERE order_date = DATE '2026-09-15'", "daily_sales") == [(0,)]

    write_september(dev.folder / "landing", force=True)
    assert finish(dev, launch_backfill(dev, [BAD])) == "COMPLETED_SUCCESS"
    assert [asset(dev, name)["partitionStats"]["numMaterialized"] for name in PIPELINE] == [30, 30, 30]
    assert world.query("SELECT count(*), sum(orders), sum(revenue)::VARCHAR FROM daily_sales", "daily_sales") == [
        (30, 130, "4255.28")
    ]


def launch_job(dev: DagsterDev, job: str, tags: dict[str, str]) -> str:
    """As the launchpad of a job does; gives the run's id."""
    params = {
        "selector": {"repositoryLocationName": "shop_pipeline", "repositoryName": "__repository__", "jobName": job},
        "runConfigData": {},
        "mode": "default",
        "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
    }
    answer = dev.graphql(LAUNCH_RUN, params=params)["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def test_the_good_days_of_a_run_over_several_go_on_after_a_bad_one(dev: DagsterDev, instance: dg.DagsterInstance) -> None:
    """C4, D12, E1: a daily run has its lookback in it; a bad day there does not keep the others from silver and gold."""
    world = World(dev.folder, SparkResource(spark_config={}), instance)

    def sold(day: str) -> int:
        return int(world.query(f"SELECT orders FROM daily_sales WHERE order_date = '{day}'", "daily_sales")[0][0])

    before = [sold(day) for day in ("2026-09-20", "2026-09-21")]
    bad, late = (dev.folder / "landing" / "orders" / f"2026-09-{day}.csv" for day in (20, 21))
    whole = bad.read_bytes()
    bad.write_bytes(whole.replace(b"\r\n2", b"\r\nx2", 1))
    late.write_bytes(late.read_bytes() + b"2999,C02,19.99,2026-09-21T20:30:00\r\n")
    run_id = launch_job(dev, "till_pipeline", dict(zip(RANGE, ("2026-09-21", "2026-09-23"), strict=True)))
    assert finish_run(dev, run_id)["status"] == "FAILURE"

    def follow_up() -> str | None:
        found = dev.graphql(BACKFILLS)["partitionBackfillsOrError"]["results"]
        ids = [each["id"] for each in found if {"key": FOLLOWS, "value": run_id} in each["tags"]]
        return ids[0] if ids else None

    assert finish(dev, wait_until("the good days were handed on", follow_up, timeout=10)) == "COMPLETED_SUCCESS"
    assert [sold(day) for day in ("2026-09-20", "2026-09-21")] == [before[0], before[1] + 1]
    bad.write_bytes(whole)


def test_recheck_days_is_started_with_a_run_date(dev: DagsterDev, instance: dg.DagsterInstance) -> None:
    """A9: the job with a run-date picker repeats the check from the UI and loads nothing."""
    world = World(dev.folder, SparkResource(spark_config={}), instance)
    version = world.version()
    run = finish_run(dev, launch_job(dev, "recheck_days", {"dagster/partition": "2026-09-02"}))
    assert run["status"] == "SUCCESS"
    assert any("ok 2026-09-01: 3 rows" in (event.get("message") or "") for event in run["eventConnection"]["events"])
    assert world.version() == version
    assert world.log(date(2026, 9, 1))[-1].kind == "check"


def test_it_runs_itself(dev: DagsterDev, instance: dg.DagsterInstance, receiver: Receiver) -> None:
    """E2, C93: switched on, a file that comes is in gold by itself; an old file that is edited runs its day alone, one that is
    touched runs nothing, and one that is broken is told of once and keeps its rows."""
    world = World(dev.folder, SparkResource(spark_config={}), instance)
    orders = dev.folder / "landing" / "orders"

    def put(day: date, content: bytes) -> None:
        file = orders / f"{day}.csv"
        file.write_bytes(content)
        # As if it had been there for a while: nobody writes to it any more.
        moment = time.time() - 90
        os.utime(file, (moment, moment))

    def runs() -> list[str]:
        found = dev.graphql(RUNS)["runsOrError"]["results"]
        return [tag["value"] for run in found for tag in run["tags"] if tag["key"] == "dagster/partition"]

    def sold(day: date) -> int:
        rows = world.query(f"SELECT orders FROM daily_sales WHERE order_date = '{day}'", "daily_sales")
        return int(rows[0][0]) if rows else 0

    before, yesterday = len(runs()), datetime.now(UTC).date() - timedelta(days=1)
    for name in ("till_file_sensor", "till_correction_radar", "alerts"):
        selector = {"repositoryLocationName": "shop_pipeline", "repositoryName": "__repository__", "sensorName": name}
        assert dev.graphql(START_SENSOR, sensor=selector)["startSensor"]["__typename"] == "Sensor"
    put(yesterday, b"order_id,customer_id,amount,ordered_at\n3001,C01,5.00," + f"{yesterday}T10:00:00\n".encode())
    edited, touched, broken = date(2026, 9, 10), date(2026, 9, 11), date(2026, 9, 12)
    stood = sold(edited)
    put(edited, (orders / f"{edited}.csv").read_bytes() + b"3000,C02,19.99,2026-09-10T20:30:00\n")
    put(touched, (orders / f"{touched}.csv").read_bytes().replace(b"\r\n", b"\n"))
    wait_until("the file that came is in gold", lambda: sold(yesterday) == 1, timeout=240)
    wait_until("the correction is in gold", lambda: sold(edited) == stood + 1, timeout=240)
    kept = sold(broken)
    put(broken, (orders / f"{broken}.csv").read_bytes().replace(b"\r\n2", b"\r\nx2"))

    def told() -> list[str]:
        return [each["message"] for each in receiver.got if each["title"] == "failed: orders_daily, check_day"]

    wait_until("the broken day is told of", told, timeout=240)
    # Two more ticks of each.
    time.sleep(75)
    assert len(told()) == 1
    assert "2026-09-12.csv, line 2, column order_id" in told()[0]
    assert sold(broken) == kept
    assert sorted(runs()[: len(runs()) - before]) == ["2026-09-11", "2026-09-13", (yesterday + timedelta(days=1)).isoformat()]


def test_the_pages_of_the_job_offer_its_run_dates(dev: DagsterDev) -> None:
    """A9: recheck_days has the till's run dates as its partitions."""
    query = """
    { partitionSetsOrError(repositorySelector: {repositoryLocationName: "shop_pipeline",
      repositoryName: "__repository__"}, pipelineName: "recheck_days") { ... on PartitionSets { results { name
      partitionsOrError { ... on Partitions { results { name } } } } } } }
    """
    (found,) = dev.graphql(query)["partitionSetsOrError"]["results"]
    names = [each["name"] for each in found["partitionsOrError"]["results"]]
    assert names[0] == "2026-09-02"
    assert len(names) >= 30
