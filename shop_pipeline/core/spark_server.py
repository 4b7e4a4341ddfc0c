"""A Spark that stays: a Spark Connect server of this folder's own, in whose JVM runs get sessions instead of starting one.

`shop up` starts it (`python -m shop_pipeline.core.spark_server`), watches it and ends it.
"""

import contextlib
import os
import secrets
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from shop_pipeline.core.class_data import with_archive
from shop_pipeline.core.cluster import with_jars
from shop_pipeline.core.cold_start import load_for_practice
from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.ports import free_port
from shop_pipeline.core.scratch import Scratch
from shop_pipeline.core.spark import check_machine, jars_folder, session_of, spark_config
from shop_pipeline.core.spark_remote import ServerNote

_ENDING_SECONDS = 15


def serve(note: ServerNote, master: str, memory: str) -> None:
    """Run the server until standard input ends, which it does when its keeper does, however that ends.

    Raises:
        SettingError: Spark cannot start here.
    """
    check_machine(remote=None, master=master)
    port, token = free_port(), secrets.token_urlsafe(32)
    # Not as a setting of Spark: those are on the JVM's command line, which everyone on the machine can read.
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
    config = with_jars(with_archive(spark_config(master=master, remote=None, memory=memory)), jars_folder()) | {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    session = session_of(config)
    java: Any = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    ended = threading.Event()
    threading.Thread(target=_set_at_the_end_of_input, args=[ended], daemon=True).start()
    # By this name PySpark's client lets a token travel without TLS, for it stays on this machine.
    note.write(f"sc://localhost:{port}/;token={token}")
    threading.Thread(target=_practise, args=[session], daemon=True).start()
    while not ended.wait(1) and java.poll() is None:
        pass
    note.clear()
    if java.poll() is not None:
        sys.exit(f"the JVM ended with {java.returncode}")
    # The JVM ends when its own standard input does; one that hangs is not waited for.
    java.stdin.close()
    with contextlib.suppress(Exception):
        java.wait(_ENDING_SECONDS)
    java.kill()
    os._exit(0)


def _practise(session: SparkSession) -> None:
    """Load a few days that nobody asked for, so that the first run of the night does not find a cold JVM."""
    with Scratch() as folder, contextlib.suppress(Exception):
        # Where it cannot be done nothing is lost but speed.
        load_for_practice(session, folder)


def _set_at_the_end_of_input(ended: threading.Event) -> None:
    # Not by sys.stdin, whose lock an interpreter that ends would wait for.
    while os.read(0, 4096):
        pass
    ended.set()


def main() -> None:
    """`python -m shop_pipeline.core.spark_server FOLDER MASTER MEMORY`, started by `shop up`."""
    folder, master, memory = sys.argv[1:]
    try:
        serve(ServerNote(Path(folder)), master, memory)
    except SettingError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
