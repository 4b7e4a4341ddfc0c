"""Which Spark a run gets: the server of `shop up`, one that is named, or its own."""

import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from shop_pipeline.core import spark
from shop_pipeline.core.errors import EngineLost, SettingError
from shop_pipeline.core.spark_remote import ServerNote, lost
from shop_pipeline.resources import SparkResource, spark_resource
from shop_pipeline_tests.servers import free_port


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers here, so nothing is waited for; and Java is not found, which is how a Spark of its own shows."""
    monkeypatch.setattr(spark, "CONNECT_SECONDS", 0.3)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


def resource(folder: Path, remote: str | None = None, *, fallback: str | None = None) -> SparkResource:
    return spark_resource("local[*]", remote, "1g", server_folder=folder, fallback=fallback)


def test_the_address_is_its_owners_alone(tmp_path: Path) -> None:
    note = ServerNote(tmp_path / "spark_server")
    with note.keep():
        note.write("sc://localhost:1/;token=secret")
        assert note.url == "sc://localhost:1/;token=secret"
        (file,) = note.folder.glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        note.clear()
        assert note.url is None


def test_one_keeper_at_a_time(tmp_path: Path) -> None:
    note = ServerNote(tmp_path / "spark_server")
    assert not note.is_kept()
    with note.keep():
        assert note.is_kept()
        with pytest.raises(SettingError, match="Another `shop up` runs over"):
            ServerNote(note.folder).keep()
    assert not note.is_kept()


def test_the_note_of_a_keeper_that_was_killed_is_passed_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    note = ServerNote(tmp_path / "spark_server")
    with note.keep():
        note.write(f"sc://localhost:{free_port()}/;token=t")
    with pytest.raises(SettingError, match="JAVA_HOME is /nowhere"):
        resource(note.folder).check_machine()
    assert capfd.readouterr().err == ""


def test_a_server_that_hangs_is_told_of_and_not_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    note = ServerNote(tmp_path / "spark_server")
    with note.keep(), socket.create_server(("127.0.0.1", 0)) as hangs:
        note.write(f"sc://localhost:{hangs.getsockname()[1]}/;token=secret")
        with pytest.raises(SettingError, match="JAVA_HOME is /nowhere"):
            resource(note.folder).check_machine()
        assert "The Spark server of `shop up` does not answer" in capfd.readouterr().err
        with pytest.raises(SettingError, match=r"does not answer .* unset SHOP_SPARK_FALLBACK") as caught:
            resource(note.folder, fallback="fail").check_machine()
    assert "secret" not in str(caught.value)


def test_a_server_that_answers_is_taken_whatever_it_answers(tmp_path: Path) -> None:
    serving = grpc.server(ThreadPoolExecutor(1))
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    resource(tmp_path, f"sc://127.0.0.1:{port}").check_machine()
    serving.stop(None).wait()


BEGUN = """
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from pyspark.errors import PySparkException

from shop_pipeline.resources import spark_resource

serving = grpc.server(ThreadPoolExecutor(1))
url = f"sc://127.0.0.1:{serving.add_insecure_port('127.0.0.1:0')}"
serving.start()
spark, first = spark_resource("local[*]", url, "1g"), []
spark.prepare(None, first.append)
try:
    spark.session()
except PySparkException as error:
    print("met", "UNIMPLEMENTED" in str(error), first)
serving.stop(None).wait()
"""


def test_what_a_session_of_a_server_meets_reaches_whoever_asks_for_it(tmp_path: Path) -> None:
    """It is begun beside other work, where nobody would hear of an error; and no process waits ten minutes for a server."""
    ended = subprocess.run([sys.executable, "-c", BEGUN], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert ended.stdout == "met True []\n"
    assert ended.returncode == 0


def test_a_named_server_that_is_gone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"sc://127.0.0.1:{free_port()}/;token=secret"
    with pytest.raises(SettingError, match="No Spark Connect server answers"):
        resource(tmp_path, url).check_machine()
    with pytest.raises(SettingError, match="JAVA_HOME is /nowhere"):
        resource(tmp_path, url, fallback="local").check_machine()
    said = capfd.readouterr().err
    assert "SHOP_SPARK_FALLBACK is local: this run starts Spark itself" in said
    assert "secret" not in said


def test_a_server_that_was_there_is_awaited_by_the_next_try(tmp_path: Path) -> None:
    """Not replaced: PySpark cannot be a server's client first and have a JVM of its own then."""
    url = f"sc://127.0.0.1:{free_port()}"
    for spark_of_a_run in (resource(tmp_path, url), resource(tmp_path, url, fallback="local"), resource(tmp_path)):
        spark_of_a_run._had_remote = True
        with pytest.raises(EngineLost) as caught:
            spark_of_a_run.session()
        assert caught.value.retriable


def test_a_lost_server_is_told_from_other_errors() -> None:
    outer = RuntimeError("while it wrote")
    outer.__cause__ = SparkConnectGrpcException("<_MultiThreadedRendezvous: status = StatusCode.UNAVAILABLE>")
    problem = lost(outer)
    assert problem is not None
    assert problem.retriable
    assert lost(SparkConnectGrpcException("[TABLE_OR_VIEW_NOT_FOUND] no such table")) is None
    assert lost(ValueError("StatusCode.UNAVAILABLE")) is None
