"""Which runs are alive, by kernel locks; and what is done about the records of dead ones."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.launcher import WorkerStatus

from shop_pipeline.automation.local_runs import close_dead_runs
from shop_pipeline.automation.run_launcher import LocalRunLauncher
from shop_pipeline.core.run_locks import Life, RunLocks
from shop_pipeline_tests.conftest import REPOSITORY

HOLD = """
import sys
from shop_pipeline.core.run_locks import RunLocks
RunLocks.of({root!r}).hold({run!r})
print("held", flush=True)
sys.stdin.read()
"""


def process_of(root: Path, run_id: str) -> subprocess.Popen[str]:
    """A process that holds a run's lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(root=str(root), run=run_id)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAGSTER_HOME with the shipped configuration."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "dagster.yaml").write_text((REPOSITORY / "shop_pipeline" / "dagster.yaml").read_text())
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


@pytest.fixture
def shipped(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.get() as instance:
        yield instance


@dg.job
def nothing() -> None:
    """A job for records of runs."""


def record(instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    return instance.create_run_for_job(nothing, status=status)


def test_a_runs_life_is_its_processs(tmp_path: Path) -> None:
    locks = RunLocks.of(str(tmp_path))
    assert locks.life("r") is Life.UNKNOWN
    locks.expect("r")
    assert locks.life("r") is Life.EXPECTED
    process = process_of(tmp_path, "r")
    assert locks.life("r") is Life.ALIVE
    process.kill()
    process.wait()
    assert locks.life("r") is Life.DEAD
    assert locks.runs() == ["r"]
    locks.hold("own")
    assert locks.life("own") is Life.ALIVE
    locks.forget("r")
    assert locks.life("r") is Life.UNKNOWN


def test_records_of_dead_runs_are_closed_and_only_those(shipped: dg.DagsterInstance, home: Path) -> None:
    """B8, C101: a killed `shop` leaves STARTED behind; the next one closes it."""
    locks = RunLocks.of(str(home))
    dead, alive, elsewhere, ended = (record(shipped, dg.DagsterRunStatus.STARTED).run_id for _ in range(4))
    processes = {run: process_of(home, run) for run in (dead, alive, ended)}
    shipped.report_run_failed(dg.DagsterRun("nothing", run_id=ended))
    for run in (dead, ended):
        processes[run].kill()
        processes[run].wait()
    try:
        assert close_dead_runs(shipped) == [dead]
        statuses = [shipped.get_run_by_id(run).status.value for run in (dead, alive, elsewhere, ended)]  # type: ignore[union-attr]
        assert statuses == ["FAILURE", "STARTED", "STARTED", "FAILURE"]
        assert locks.runs() == [alive]
        assert close_dead_runs(shipped) == []
    finally:
        processes[alive].kill()


def test_the_shipped_launcher_tells_dagsters_monitoring(shipped: dg.DagsterInstance, home: Path) -> None:
    """C97, C101: a started run whose process died is failed; one of another machine, or just launched, is left alone."""
    launcher = shipped.run_launcher
    assert isinstance(launcher, LocalRunLauncher)
    assert launcher.supports_check_run_worker_health
    run = record(shipped, dg.DagsterRunStatus.STARTED)
    locks = RunLocks.of(str(home))

    def status() -> WorkerStatus:
        return launcher.check_run_worker_health(run).status

    assert status() is WorkerStatus.RUNNING
    locks.expect(run.run_id)
    assert status() is WorkerStatus.RUNNING
    long_ago = time.time() - 1000
    os.utime(locks.folder / f"{run.run_id}.run", (long_ago, long_ago))
    assert status() is WorkerStatus.FAILED
    process = process_of(home, run.run_id)
    assert status() is WorkerStatus.RUNNING
    process.kill()
    process.wait()
    assert status() is WorkerStatus.FAILED
