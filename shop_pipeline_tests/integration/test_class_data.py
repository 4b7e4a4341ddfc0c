"""The archive of Spark's classes: used where it fits, no reason to stumble where it does not (month_cold)."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shop_pipeline.core import class_data
from shop_pipeline.core.class_data import archive_folder, archive_of, identity, with_archive
from shop_pipeline.core.spark import java_command, spark_config
from shop_pipeline_tests.conftest import clean_environment, run_shop, wait_until

START = """
import sys
from shop_pipeline.core.class_data import with_archive
from shop_pipeline.core.spark import for_bytes, session_of, spark_config
config = for_bytes(spark_config(master="local[1]", remote=None, memory="1g"), int(sys.argv[1]))
if sys.argv[2] != "-":
    config["spark.driver.extraJavaOptions"] += " " + sys.argv[2]
else:
    config = with_archive(config)
    # After the one that switches the JVM's log off.
    config["spark.driver.extraJavaOptions"] += f" -Xlog:class+load:file={sys.argv[3]}"
print(session_of(config).range(3).count())
"""


def start_spark(size: int, option: str, log: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, str(size), option, str(log)],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(**environment),
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 10**9], ids=["a small load", "a big load"])
def test_sparks_classes_come_from_the_archive_that_set_up_made(tmp_path: Path, size: int) -> None:
    assert archive_of(identity(Path(java_command()))), "make setup has made none"
    ran = start_spark(size, "-", tmp_path / "classes")
    assert ran.stdout == "3\n", ran.stderr
    loaded = (tmp_path / "classes").read_text().splitlines()
    shared = [line for line in loaded if "shared objects file (top)" in line]
    assert len(shared) > 0.8 * len([line for line in loaded if "org.apache.spark" in line]) > 1000


@pytest.mark.slow
def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(tmp_path: Path) -> None:
    archive = archive_of(identity(Path(java_command())))
    options = f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"
    # Another class path than the one that it was made with.
    ran = start_spark(100, options, tmp_path / "classes", SPARK_CONF_DIR=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr


def test_an_archive_that_was_cut_short_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM dies of it, without a word of ours."""
    monkeypatch.setattr(class_data, "archive_folder", lambda: tmp_path)
    which = identity(Path(java_command()))
    archive = tmp_path / class_data.name_of(which, 3)
    archive.write_bytes(b"abc")
    assert archive_of(which) == archive
    archive.write_bytes(b"ab")
    assert archive_of(which) is None


@pytest.fixture
def other_class_path(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A setting for which no archive was made; what is made for it is removed."""
    before = set(archive_folder().glob("*"))
    conf = tmp_path / "conf"
    conf.mkdir()
    yield {"SPARK_CONF_DIR": str(conf)}
    for made in set(archive_folder().glob("*")) - before:
        made.unlink()


@pytest.mark.slow
def test_the_first_load_without_one_has_it_made_when_it_has_ended(tmp_path: Path, other_class_path: dict[str, str]) -> None:
    before = set(archive_folder().glob("*.jsa"))
    assert run_shop("sample", folder=tmp_path, **other_class_path).status == 0
    ran = run_shop("load", "2026-09-02", folder=tmp_path, **other_class_path)
    assert ran.out == "run 2026-09-02 loaded 2026-09-01: 3 rows, orders_daily has 3\n", ran.err
    assert "archive" not in ran.err
    (maker,) = wait_until("the maker is at work", _makers, 30)
    wait_until("the archive is there", lambda: set(archive_folder().glob("*.jsa")) - before, 300)
    psutil.wait_procs([maker], timeout=60)
    assert not list(archive_folder().glob(".making-*"))


def _makers() -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if "shop_pipeline.core.cold_start" in (each.info["cmdline"] or [])]


def test_another_java_another_jar_or_another_class_path_is_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = Path(java_command())
    jars = tmp_path / "jars"
    jars.mkdir()
    jar = jars / "delta-spark_4.2_2.13-4.4.0.jar"
    jar.write_bytes(b"one")
    monkeypatch.setattr(class_data, "jars_folder", lambda: jars)
    names = {identity(java)}
    jar.write_bytes(b"other")
    names.add(identity(java))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    names.add(identity(java))
    other = tmp_path / "jdk" / "bin" / "java"
    other.parent.mkdir(parents=True)
    shutil.copy(sys.executable, other)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21"\n')
    names.add(identity(other))
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21.0.1"\n')
    names.add(identity(other))
    assert len(names) == 5
    assert identity(other) in names


@pytest.mark.parametrize("why", ["it cannot be made", "the folder cannot be written to"])
def test_none_is_planned_where_none_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    planned: list[str] = []
    monkeypatch.setattr(class_data, "_planned", planned)
    monkeypatch.setattr(class_data, "archive_folder", lambda: tmp_path / "class-data")
    monkeypatch.setattr(class_data.atexit, "register", lambda _: None)
    config = spark_config(master="local[1]", remote=None, memory="1g")
    if why == "it cannot be made":
        note = class_data.note_of_failure(identity(Path(java_command())))
        note.parent.mkdir()
        note.touch()
    else:
        monkeypatch.setattr(os, "access", lambda *_: False)
        monkeypatch.setattr(class_data, "java_command", lambda: sys.executable)
    assert with_archive(config) == config
    assert planned == []


def test_a_server_elsewhere_brings_its_own() -> None:
    config = spark_config(master="local[*]", remote="sc://127.0.0.1:15002", memory="2g")
    assert with_archive(config) == config
