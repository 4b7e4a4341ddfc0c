"""The lock around commits: between processes, freed by death, and not before what a dead holder left behind is gone."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from shop_pipeline.core.commit_lock import commit_lock, commit_lock_if_free
from shop_pipeline.core.errors import TableBusy
from shop_pipeline_tests.conftest import wait_until

pytestmark = pytest.mark.slow

HOLD = """
import subprocess, sys, time
from pathlib import Path
from shop_pipeline.core.commit_lock import commit_lock
if {java!r}:
    subprocess.Popen([{java!r}, "100"])
with commit_lock(Path({folder!r}), "orders_daily"):
    print("held", flush=True)
    time.sleep(100)
"""


def holder(folder: Path, java: str = "") -> subprocess.Popen[str]:
    """A process that holds the lock, with a child that looks like Spark's JVM or none."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(folder=str(folder), java=java)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_holder_frees_the_lock_at_once(tmp_path: Path) -> None:
    process = holder(tmp_path)
    kill(process)
    started = time.monotonic()
    with commit_lock(tmp_path, "orders_daily"):
        assert time.monotonic() - started < 5


def test_the_jvm_of_a_killed_holder_is_outlived(tmp_path: Path) -> None:
    """It may commit for some moments after its Python was killed; the next commit waits for its end, or says who is in the way."""
    java = tmp_path / "java"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", java)
    process = holder(tmp_path, str(java))
    (pid, _created) = json.loads((tmp_path / "orders_daily.holder").read_text())[0]
    kill(process)
    assert psutil.pid_exists(pid)
    with pytest.raises(TableBusy, match=rf"by Java process {pid}, which a killed run left behind: end it \(kill {pid}\)"):
        commit_lock(tmp_path, "orders_daily", patience=0.5).__enter__()
    with commit_lock(tmp_path, "daily_sales"):
        pass
    with commit_lock_if_free(tmp_path, "orders_daily") as free:
        assert not free
    psutil.Process(pid).kill()
    with commit_lock(tmp_path, "orders_daily"):
        pass
    assert not (tmp_path / "orders_daily.holder").exists()


def test_a_holder_that_ends_well_leaves_no_note(tmp_path: Path) -> None:
    with commit_lock(tmp_path, "orders_daily"):
        assert (tmp_path / "orders_daily.holder").exists()
    with pytest.raises(ZeroDivisionError), commit_lock(tmp_path, "orders_daily"):
        raise ZeroDivisionError
    assert not (tmp_path / "orders_daily.holder").exists()


def test_another_process_waits_its_turn(tmp_path: Path) -> None:
    first = holder(tmp_path)
    code = HOLD.format(folder=str(tmp_path), java="")
    second = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        wait_until("the second process runs", lambda: psutil.Process(second.pid).cpu_times().user > 0.1)
        time.sleep(1)
        assert first.poll() is None
        assert second.stdout is not None
        kill(first)
        assert second.stdout.readline() == "held\n"
    finally:
        kill(second)


def test_what_can_wait_waits_for_nobody(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with commit_lock_if_free(tmp_path, "orders_daily") as free:
            assert not free
        with commit_lock_if_free(tmp_path, "daily_sales") as free:
            assert free
    finally:
        kill(process)
    with pytest.raises(ZeroDivisionError), commit_lock_if_free(tmp_path, "orders_daily"):
        raise ZeroDivisionError
    with commit_lock(tmp_path, "orders_daily"):
        pass
