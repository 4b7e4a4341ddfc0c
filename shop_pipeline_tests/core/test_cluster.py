"""Which texts name a Spark master, and what a session's settings owe to it."""

from pathlib import Path

import pytest

from shop_pipeline.core import cluster
from shop_pipeline.core.cluster import addresses, check_master, fault_of, is_cluster, joined, settings_for, with_jars
from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.spark import for_bytes, spark_config
from shop_pipeline_tests.servers import free_port

ELSEWHERE = "spark://10.1.2.3:7077"


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[4]", "local[*]", "local[2,3]", "yarn", "k8s://https://10.0.0.1:6443"),
        *("spark://one:7077", "spark://one:7077,two.example:7078", "spark://[::1]:7077"),
    ],
)
def test_a_master(master: str) -> None:
    assert fault_of(master) is None
    assert is_cluster(master) != master.startswith("local")


@pytest.mark.parametrize(
    "master",
    [
        *("", "foo", "local[0]", "local[]", "local[*", "locally", "yarn-client", "k8s://", "mesos://one:5050"),
        *("spark:/x", "spark://", "spark://one", "spark://one:", "spark://one:0", "spark://one:99999", "spark://a_b:7077"),
        *("spark://one:7077,", "spark://one:7077/x", "sc://one:15002"),
    ],
)
def test_no_master(master: str) -> None:
    fault = fault_of(master)
    assert fault is not None
    assert fault.startswith(f"{master!r} is not a Spark master; write local[*], spark://host:port")


def test_the_addresses_of_masters() -> None:
    assert addresses("spark://one:7077,[::1]:7078") == [("one", 7077), ("::1", 7078)]
    assert addresses("yarn") == addresses("local[*]") == []


def test_a_master_that_stands_in_for_another_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several masters one is at work; the others may be away."""
    there = free_port()

    class Connection:
        def close(self) -> None: ...

    def connect(address: tuple[str, int], timeout: float) -> Connection:
        if address[1] != there:
            raise ConnectionRefusedError(111, "Connection refused")
        return Connection()

    monkeypatch.setattr(cluster.socket, "create_connection", connect)
    check_master(f"spark://127.0.0.1:1,127.0.0.1:{there}")
    with pytest.raises(SettingError, match=r"no master listens there: 127\.0\.0\.1:1 \(Connection refused\), 127\.0\.0\.1:2 "):
        check_master("spark://127.0.0.1:1,127.0.0.1:2")


def test_the_driver_listens_beyond_this_machine_only_for_a_cluster_elsewhere() -> None:
    for here in ("local[*]", "spark://127.0.0.1:7077", "spark://localhost:7077"):
        assert settings_for(here, "1g")["spark.driver.bindAddress"] == "127.0.0.1"
    for elsewhere in (ELSEWHERE, "spark://127.0.0.1:7077,10.1.2.3:7077", "yarn", "k8s://https://127.0.0.1:6443"):
        assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(settings_for(elsewhere, "1g"))


def test_executors_get_memory_jars_and_the_settings_of_a_small_load(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "note.txt"):
        (tmp_path / name).touch()
    config = with_jars(for_bytes(spark_config(master=ELSEWHERE, remote=None, memory="3g"), 100), tmp_path)
    assert config["spark.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar"
    assert config["spark.executor.memory"] == "3g"
    assert "TieredStopAtLevel=1" in config["spark.executor.extraJavaOptions"]
    for settings in (spark_config(master="local[*]", remote=None, memory="3g"), {"spark.remote": "sc://one:15002"}):
        assert with_jars(settings, tmp_path) == settings


def test_what_spark_says_when_a_cluster_takes_nothing_in_is_one_sentence() -> None:
    def start() -> None:
        raise RuntimeError("All masters are unresponsive!\nat org.apache.spark…")

    with pytest.raises(SettingError) as caught:
        joined(ELSEWHERE, start)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"SHOP_SPARK_MASTER is {ELSEWHERE}, which did not take an application in (RuntimeError: All masters are unresponsive!): "
        "is it a Spark master? Start it, or unset SHOP_SPARK_MASTER to run Spark on this machine."
    )
