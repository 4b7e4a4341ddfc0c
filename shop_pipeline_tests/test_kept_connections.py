"""Events in a row over kept connections are the same events (month_cold)."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from shop_pipeline.assets.kept_connections import connections_kept
from shop_pipeline_tests.conftest import wait_until

KEYS = ["2026-09-02", "2026-09-03", "2026-09-04"]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home")) as made:
        yield made


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(KEYS), check_specs=[dg.AssetCheckSpec("seen", asset="kept")])
def kept(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult | dg.Output]:  # type: ignore[type-arg]
    with connections_kept(context.instance):
        storage = context.instance.event_log_storage
        assert "_connect" in vars(storage)
        for key in KEYS:
            context.log_event(dg.AssetMaterialization("kept", partition=key, metadata={"rows": 3}))
            context.log_event(dg.AssetCheckEvaluation(dg.AssetKey("kept"), "seen", True, partition=key))
            # Readers need not wait for the end.
            assert _materialized(Path(context.instance.root_directory)) == KEYS[: KEYS.index(key) + 1]
        with connections_kept(context.instance):
            assert "_connect" in vars(storage)
        assert "_connect" in vars(storage)
    assert "_connect" not in vars(storage)
    yield dg.MaterializeResult(asset_key="kept", check_results=[dg.AssetCheckResult(passed=True, check_name="seen")])


def _materialized(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "history" / "runs" / "index.db")) as con:
        rows = con.execute("SELECT partition FROM event_logs WHERE dagster_event_type = 'ASSET_MATERIALIZATION' ORDER BY id")
        return [key for (key,) in rows]


def test_what_is_logged_is_there_at_once_and_stays(instance: dg.DagsterInstance) -> None:
    assert type(instance.event_log_storage) is SqliteEventLogStorage
    ran = dg.materialize([kept], instance=instance, partition_key=KEYS[0])
    assert ran.success
    assert instance.get_materialized_partitions(dg.AssetKey("kept")) == set(KEYS)
    events = [each.dagster_event_type for each in instance.all_logs(ran.run_id) if each.is_dagster_event]
    assert events.count(dg.DagsterEventType.ASSET_MATERIALIZATION) == len(KEYS) + 1
    assert events.count(dg.DagsterEventType.ASSET_CHECK_EVALUATION) == len(KEYS) + 1
    # The files are closed, so that whoever follows the run by its file is told.
    assert not list(Path(instance.root_directory, "history", "runs").glob("*-wal"))


@dg.job
def empty() -> None:
    """Nothing."""


def test_whoever_follows_a_run_by_its_file_is_told_meanwhile(instance: dg.DagsterInstance) -> None:
    """A run of hours is seen in the web UI while it goes on: Dagster's watcher waits for changes of the file itself."""
    run = instance.create_run_for_job(empty)
    file = Path(instance.root_directory, "history", "runs", f"{run.run_id}.db")
    instance.report_engine_event("begun", run)
    with connections_kept(instance):
        before = file.stat().st_mtime_ns
        instance.report_engine_event("goes on", run)
        wait_until("the file has changed", lambda: file.stat().st_mtime_ns > before, timeout=20)
    assert [each.message for each in instance.all_logs(run.run_id)][-2:] == ["begun", "goes on"]


def test_an_error_within_closes_them_too(instance: dg.DagsterInstance) -> None:
    with pytest.raises(ZeroDivisionError), connections_kept(instance):
        _ = len(instance.all_logs("no such run")) / 0
    assert "_connect" not in vars(instance.event_log_storage)


def test_other_storages_are_left_alone() -> None:
    with dg.DagsterInstance.ephemeral() as instance, connections_kept(instance):
        assert "_connect" not in vars(instance.event_log_storage)
