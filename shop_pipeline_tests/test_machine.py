"""Java, jars and versions: a sentence before anything runs."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from shop_pipeline.core import spark
from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.spark import check_delta_fits, check_java, check_machine, fetch_jars
from shop_pipeline_tests.conftest import Shop
from shop_pipeline_tests.servers import free_port


def a_java(folder: Path, version: str) -> Path:
    """A program that answers `java -version` as that version does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("version", "number"), [("11.0.2", "11"), ("1.8.0_392", "8")])
def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: str) -> None:
    program = a_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingError, match=f"Spark needs Java 17 or newer; {program} is version {number}. Install a JDK"):
        check_java()


@pytest.mark.parametrize("version", ["17.0.15", "25-ea", "21"])
def test_a_new_java_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    a_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


def test_no_java_stops_a_load_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop_without_spark: Shop
) -> None:
    shop_without_spark("sample")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for command in (("load", "2026-09-02"), ("backfill", "2026-09-02", "2026-09-03")):
        ran = shop_without_spark(*command)
        assert (ran.status, ran.out) == (2, "")
        assert "Spark needs Java 17 or newer and finds none" in ran.err
        assert "Traceback" not in ran.err
    assert not (tmp_path / "lake").exists()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SettingError, match="JAVA_HOME is /nowhere"):
        check_java()


def test_a_connect_server_needs_no_java_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        check_machine(remote=f"sc://127.0.0.1:{port}/;user_id=shop")
    finally:
        server.stop(None)


def test_a_connect_server_that_hangs_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port is open, and it never answers."""
    monkeypatch.setattr(spark, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(SettingError, match=f"No Spark Connect server answers at 127.0.0.1:{port}"):
            check_machine(remote=f"sc://127.0.0.1:{port}/;token=secret")


def test_an_address_of_a_connect_server_is_not_repeated_when_it_is_none() -> None:
    with pytest.raises(SettingError, match="SHOP_SPARK_REMOTE is no address of a Spark Connect server") as caught:
        check_machine(remote="sc://127.0.0.1:1/path/;token=secret")
    assert "secret" not in str(caught.value)


def test_a_connect_server_that_is_not_there_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, shop_without_spark: Shop, tmp_path: Path
) -> None:
    port = free_port()
    monkeypatch.setenv("SHOP_SPARK_REMOTE", f"sc://127.0.0.1:{port}")
    shop_without_spark("sample")
    ran = shop_without_spark("load", "2026-09-02")
    assert (ran.status, ran.out) == (2, "")
    assert f"No Spark Connect server answers at 127.0.0.1:{port}" in ran.err
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("jar", "made_for"),
    [("io.delta_delta-spark_4.1_2.13-4.1.0.jar", "Spark 4.1"), ("delta-spark_2.13-4.0.0.jar", "an older Spark")],
)
def test_a_delta_jar_for_another_spark_is_named(tmp_path: Path, jar: str, made_for: str) -> None:
    """C75: both versions, before a run begins."""
    (tmp_path / jar).touch()
    with pytest.raises(SettingError, match=rf"Delta 4\.\d\.0 in .*{jar} is made for {made_for}, and this is Spark 4\.2\.0"):
        check_delta_fits(tmp_path)


@pytest.mark.slow
def test_jars_that_cannot_be_fetched_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No registry in reach: a sentence, and no half-filled folder that would be taken for complete."""
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9 -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=9"
    )
    with pytest.raises(SettingError, match=r"could not be fetched .*must reach a Maven repository once"):
        fetch_jars(tmp_path / "jars")
    assert [name for name in os.listdir(tmp_path) if name != "jars.lock"] == []
