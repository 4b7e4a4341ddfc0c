"""Spark on other machines: which masters there are, what a session needs there, and whether the cluster lets it in.

A session on this machine starts or fails at once. One on a cluster asks others: a master that never answers, or has no worker
to spare, would be waited for without end and without a word.
"""

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shop_pipeline.core.errors import NoExecutors, SettingError, in_a_line

if TYPE_CHECKING:
    # Settings are read before it is known that Spark is needed.
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\])?")
_HOST = r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}"
_CLUSTER = re.compile(rf"spark://{_HOST}(,{_HOST})*|yarn|k8s://\S+")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# To open a connection.
CONNECT_SECONDS = 5
# Of a standalone master to take an application in, Java's start included. It takes a second; Spark itself asks for a minute.
ANSWER_SECONDS = 45
# Until the first task has run: other applications may have every core for a while.
EXECUTOR_SECONDS = 300
_ADVICE = "Start it, or unset SHOP_SPARK_MASTER to run Spark on this machine."

T = TypeVar("T")


def fault_of(master: str) -> str | None:
    """Why a text names no Spark master; None when it does."""
    well = _LOCAL.fullmatch(master) or _CLUSTER.fullmatch(master)
    if not well or any(not 0 < port < 2**16 for _, port in addresses(master)):
        return f"{master!r} is not a Spark master; write local[*], spark://host:port, yarn or k8s://https://host:port"
    return None


def is_cluster(master: str) -> bool:
    """Whether the work is done by executors in processes of their own."""
    return _CLUSTER.fullmatch(master) is not None


def addresses(master: str) -> list[tuple[str, int]]:
    """Where the masters of a standalone cluster listen; none for any other."""
    if not master.startswith("spark://"):
        return []
    pairs = [each.rpartition(":") for each in master.removeprefix("spark://").split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def settings_for(master: str, memory: str) -> dict[str, str]:
    """What a session's settings owe to where the work is done."""
    if not is_cluster(master):
        return ON_THIS_MACHINE
    hosts = {host for host, _ in addresses(master)}
    return {
        # Executors must reach the driver. Where they are elsewhere Spark finds its address itself, or is told it (SPARK_LOCAL_IP).
        **(ON_THIS_MACHINE if hosts and hosts <= _LOOPBACK else {}),
        "spark.executor.memory": memory,
    }


def with_jars(config: dict[str, str], jars: Path) -> dict[str, str]:
    """The settings for a session, with the jars that a driver hands to its executors: their machines need nothing of this project.

    Only now, for the jars may have been fetched since the settings were made, and Spark wants names, not a pattern.
    """
    if not is_cluster(config.get("spark.master", "")):
        return config
    return {**config, "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))}


def check_master(master: str) -> None:
    """Raises SettingError when nothing listens at any address of a standalone master."""
    said = []
    for host, port in addresses(master):
        try:
            socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            said.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    if said:
        raise SettingError(f"SHOP_SPARK_MASTER is {master}, and no master listens there: {', '.join(said)}. {_ADVICE}")


def joined(master: str, start: Callable[[], "SparkSession"]) -> "SparkSession":
    """The session that `start` gives, when the cluster has let it in and has run a task of it.

    Raises:
        SettingError: what listens at the master's address takes no application in.
        NoExecutors: the cluster gives it none.
    """
    # A resource manager queues an application as a whole, a standalone master takes it in and lets it wait for executors.
    patience = ANSWER_SECONDS if addresses(master) else EXECUTOR_SECONDS
    try:
        session = _within(patience, start)
    except Exception as error:
        # Spark gives up in many ways, none of them in words.
        why = f"within {patience} seconds" if isinstance(error, TimeoutError) else f"({in_a_line(error)})"
        raise SettingError(
            f"SHOP_SPARK_MASTER is {master}, which did not take an application in {why}: is it a Spark master? {_ADVICE}"
        ) from error
    try:
        _within(EXECUTOR_SECONDS, session.range(1).count)
    except TimeoutError:
        raise NoExecutors(
            f"The Spark cluster {master} has given this run no executor within {EXECUTOR_SECONDS} seconds: it has no worker, or "
            f"none with {session.conf.get('spark.executor.memory')} (SHOP_SPARK_MEMORY) and a core to spare. See its web UI, then "
            "run the same days again."
        ) from None
    return session


def _within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises.

    Nothing can break off a call into the JVM; so it is left to itself when the time is over, and ends with this process.

    Raises:
        TimeoutError: it takes longer.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError
    return done[0]
