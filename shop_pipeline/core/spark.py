"""The Spark session: its settings, its jars, and whether this machine can run it at all.

Dagster's LazyPySparkResource starts the session; everything that decides how is here.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pyspark
from filelock import FileLock
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from shop_pipeline.core import cluster
from shop_pipeline.core.errors import SettingError

# What else may stand on the class path of Spark's JVM.
_CLASS_PATH = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_HOME", "CLASSPATH")
OLDEST_JAVA = 17
_JAVA_ADVICE = f"Install a JDK of version {OLDEST_JAVA} or newer, or point JAVA_HOME at one."
DELTA_VERSION = "4.4.0"
SCALA_VERSION = "2.13"
SPARK_MINOR = ".".join(pyspark.__version__.split(".")[:2])
PACKAGES = (f"io.delta:delta-spark_{SPARK_MINOR}_{SCALA_VERSION}:{DELTA_VERSION}", "org.postgresql:postgresql:42.7.14")
# What those packages need and Spark does not bring itself; the rest of their dependencies are Spark's own jars.
WANTED_JARS = re.compile(r"^(io\.delta|io\.unitycatalog|org\.postgresql)_")

# Below this the JVM's optimising compiler costs more than it brings; 14 MB take a third more without it, 54 MB twice as long.
SMALL_LOAD = 4 * 1024 * 1024

# How Spark cuts big files.
SPLIT_BYTES = 64 * 1024 * 1024

CONNECT_PORT = 15002
# A server that lives answers within milliseconds, even one at work; a pause of its memory management takes seconds.
CONNECT_SECONDS = 10
_ASKED = "/spark.connect.SparkConnectService/DoYouAnswer"

# In force for every statement that loads a day, whatever the session or the cluster says by default.
SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Spark's own default, INT96, is read by other engines as nanoseconds, which end in 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.caseSensitive": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    # How a file is cut into splits must not change between two readings of it: record numbers are counted by split.
    "spark.sql.files.minPartitionNum": "2",
    # Small enough that the last split does not leave half the cores idle.
    "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
    # A file open for each day of a batch, or every batch is sorted by day before it is written.
    "spark.sql.maxConcurrentOutputFileWriters": "100",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
}


# Rows are few: to write a program for each query, compile it and load it takes longer than to interpret the query.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The heap stays as small as it can; the default lets it grow to three times what is in use.
_THRIFTY = "-XX:+UseParallelGC -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10"


def jars_folder() -> Path:
    """Where the jars of this environment lie: beside its Python, so that a new environment brings its own."""
    return Path(sys.prefix) / "share" / "shop_pipeline" / "jars"


def spark_config(*, master: str, remote: str | None, memory: str) -> dict[str, str]:
    """The settings for a SparkSession builder; resolves no jars and starts nothing."""
    if remote is not None:
        return {"spark.remote": remote, **SESSION_SETTINGS}
    log4j = files("shop_pipeline").joinpath("log4j2.properties")
    class_path = str(jars_folder() / "*")
    return {
        "spark.master": master,
        "spark.app.name": "shop",
        "spark.driver.memory": memory,
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dlog4j2.configurationFile=file:{log4j}",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        # A path is a folder, whatever a Hadoop configuration on this machine (HADOOP_CONF_DIR) takes it for.
        "spark.hadoop.fs.defaultFS": "file:///",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # No embedded metastore: two sessions in one folder would fight over it.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "shop-spark-warehouse"),
        **cluster.settings_for(master, memory),
        **SESSION_SETTINGS,
    }


def for_bytes(config: dict[str, str], source_bytes: int | None) -> dict[str, str]:
    """The settings for a session that starts in order to load so many bytes (None: it is not known).

    A small load is over before the JVM's optimising compiler and its concurrent collector have paid for themselves, a big
    one needs the compiler: leaving it out takes a quarter off a cold month, and triples a day of ten million rows. Nothing waits
    for a big load within milliseconds either, so that its rows are collected in the way that takes least memory.
    """
    small = source_bytes is not None and source_bytes <= SMALL_LOAD
    interpreted = INTERPRETED if small else {}
    if "spark.remote" in config:
        return {**config, **interpreted}
    options = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
    return {**config, **interpreted, **{name: f"{config[name]} {_SHORT_LIVED if small else _THRIFTY}" for name in options}}


def session_of(config: Mapping[str, str]) -> SparkSession:
    """The session with these settings, started on first use."""
    builder = SparkSession.builder
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def pin_session(spark: SparkSession) -> SparkSession:
    """The session with the settings that loading relies on, set again on each use: a default elsewhere may differ."""
    for name, value in SESSION_SETTINGS.items():
        spark.conf.set(name, value)
    return spark


def check_machine(*, remote: str | None, master: str = "local[*]", jars: Path | None = None) -> None:
    """Make sure that Spark can start here: Java is there and new enough, the Delta jar fits Spark, and a cluster's master is there.

    Jars that are not there yet are fetched once. With a Spark Connect server (`remote`) this machine needs neither.

    Raises:
        SettingError: it cannot, with the reason and what to do.
    """
    if remote is not None:
        check_server(remote)
        return
    check_java()
    cluster.check_master(master)
    folder = jars or jars_folder()
    if not delta_jars(folder):
        fetch_jars(folder)
    check_delta_fits(folder)


def check_server(remote: str) -> None:
    """Raises SettingError when no Spark Connect server answers at an address (`sc://host:port`).

    A port that is open says nothing: a server that hangs has one too. So it is asked for something, which no server knows.
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    address = urlsplit(remote)
    host, port = address.hostname or "localhost", address.port or CONNECT_PORT
    try:
        with closing(DefaultChannelBuilder(remote).toChannel()) as channel:
            channel.unary_unary(_ASKED)(b"", timeout=CONNECT_SECONDS, wait_for_ready=True)
    except grpc.RpcError as answer:
        if answer.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            raise SettingError(
                f"No Spark Connect server answers at {host}:{port} (SHOP_SPARK_REMOTE) within {CONNECT_SECONDS} s: "
                "start it, or unset SHOP_SPARK_REMOTE to run Spark on this machine."
            ) from None
    except PySparkException as error:
        # Not with the address itself: it may have a token in it.
        raise SettingError(
            f"SHOP_SPARK_REMOTE is no address of a Spark Connect server ({error.getCondition()}): write sc://host:port."
        ) from None


def class_path_settings() -> list[str]:
    """What the environment adds to the class path of Spark's JVM, as `NAME=value`."""
    return [f"{name}={os.environ.get(name)}" for name in _CLASS_PATH]


def java_command() -> str:
    """The Java that Spark is started with.

    Raises:
        SettingError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME is {home}" if home else "there is no `java` on the PATH and JAVA_HOME is not set"
    if java is None or not os.access(java, os.X_OK):
        raise SettingError(f"Spark needs Java {OLDEST_JAVA} or newer and finds none: {where}. {_JAVA_ADVICE}")
    return java


def check_java() -> None:
    """Raises SettingError when there is no Java of at least OLDEST_JAVA."""
    java = java_command()
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None:
        raise SettingError(f"{java} does not say which version it is ({answer.stderr.strip()[:200]!r}). {_JAVA_ADVICE}")
    if int(found[1]) < OLDEST_JAVA:
        raise SettingError(f"Spark needs Java {OLDEST_JAVA} or newer; {java} is version {found[1]}. {_JAVA_ADVICE}")


def delta_jars(folder: Path) -> list[Path]:
    """The Delta jars for Spark in a folder."""
    return sorted(folder.glob("*delta-spark_*.jar"))


def check_delta_fits(folder: Path) -> None:
    """Raises SettingError when a Delta jar in the folder was built for another minor version of Spark."""
    for jar in delta_jars(folder):
        built = re.search(r"delta-spark_(?:(\d+\.\d+)_)?\d+\.\d+-([\d.]+)\.jar", jar.name)
        if built is None or built[1] != SPARK_MINOR:
            made_for = f"Spark {built[1]}" if built and built[1] else "an older Spark"
            version = built[2] if built else "?"
            raise SettingError(
                f"Delta {version} in {jar} is made for {made_for}, and this is Spark {pyspark.__version__}: "
                f"delete the folder {folder} and run `make setup`, which fetches Delta {DELTA_VERSION} for it."
            )


def fetch_jars(folder: Path) -> None:
    """Resolve the jars once, by Spark's own resolver, into `folder` (all of them or none).

    Raises:
        SettingError: they could not be fetched.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"), tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        if delta_jars(folder):
            return
        print("shop: fetching the jars of Delta Lake and Postgres, once", file=sys.stderr)
        nothing = Path(scratch) / "nothing.py"
        nothing.write_text("")
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-submit"), "--master", "local[1]"]
        command += ["--conf", f"spark.jars.ivy={scratch}/ivy", "--packages", ",".join(PACKAGES), str(nothing)]
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        found = [jar for jar in (Path(scratch) / "ivy" / "jars").glob("*.jar") if WANTED_JARS.match(jar.name)]
        if answer.returncode != 0 or not delta_jars(Path(scratch) / "ivy" / "jars"):
            said = [line.strip() for line in answer.stderr.splitlines() if "not found" in line or "unresolved" in line]
            raise SettingError(
                f"The jars {' and '.join(PACKAGES)} could not be fetched ({'; '.join(said[:2]) or 'no answer'}): "
                "this machine must reach a Maven repository once; then run `make setup` again."
            )
        ready = Path(scratch) / "ready"
        ready.mkdir()
        for jar in found:
            shutil.copy(jar, ready / jar.name)
        shutil.rmtree(folder, ignore_errors=True)
        ready.rename(folder)


def main() -> None:
    """`python -m shop_pipeline.core.spark`: fetch the jars, and say whether this machine can run Spark (`make setup`)."""
    try:
        check_machine(remote=None)
    except SettingError as problem:
        sys.exit(f"setup: {problem}")


if __name__ == "__main__":
    main()
