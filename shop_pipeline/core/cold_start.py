"""`python -m shop_pipeline.core.cold_start`: make the archive of Spark's classes that `class_data` uses.

A JVM loads some days for practice, so that it has loaded what a run loads, and writes the archive at its own exit.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pyspark.sql import SparkSession

from shop_pipeline.core.class_data import archive_folder, archive_of, identity, name_of, note_of_failure
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import RUN_DATE, dates_between, parse_date
from shop_pipeline.core.errors import SettingError, in_a_line
from shop_pipeline.core.gold import Gold
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.load import DailyLoad
from shop_pipeline.core.sample import write_september
from shop_pipeline.core.silver import Silver
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.spark import check_machine, for_bytes, java_command, session_of, spark_config

# How many archives are kept: of two Javas in turn, and the one before. One has about 200 MB.
KEPT = 3
# A JVM that is told to end writes the archive first.
ENDING_SECONDS = 300
PRACTICE = ("2026-09-02", "2026-09-08")


def make() -> None:
    """Make the archive that fits this machine, if it is not there and no other process makes it.

    Raises:
        SettingError: Spark cannot start here at all.
    """
    check_machine(remote=None)
    which, folder = identity(Path(java_command())), archive_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(Timeout), FileLock(str(folder / ".making.lock"), timeout=0):
        if archive_of(which) is not None:
            return
        # What a maker that was killed left behind.
        for left in folder.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
            draft = Path(scratch) / "draft.jsa"
            try:
                _practise(Path(scratch), draft)
                os.replace(draft, folder / name_of(which, draft.stat().st_size))
            except Exception as error:
                # Whatever it is: without an archive everything works, and a run that starts Spark will meet it again.
                note_of_failure(which).write_text(f"{error}\n")
                print(f"shop: no archive of Spark's classes could be made ({in_a_line(error)}): it starts slower", file=sys.stderr)
                return
        for old in sorted(folder.glob("*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)[KEPT:]:
            old.unlink(missing_ok=True)


def _practise(folder: Path, archive: Path) -> None:
    """Load a few days, merge and sum them up, so that the JVM has loaded what a run loads; at its end it writes the archive."""
    config = for_bytes(spark_config(master="local[*]", remote=None, memory="1g"), 0)
    options = config["spark.driver.extraJavaOptions"]
    config["spark.driver.extraJavaOptions"] = f"{options} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    session = session_of(config)
    try:
        load_for_practice(session, folder)
    finally:
        _end(session)


def load_for_practice(session: SparkSession, folder: Path) -> None:
    """A source's whole way, once and once more with a correction, in a folder of its own."""
    landing, lake, contract = folder / "landing", Lake(str(folder / "lake")), load_contract("orders_daily")
    write_september(landing, force=False)
    keys = [day.isoformat() for day in dates_between(*map(parse_date, PRACTICE))]
    _load(session, TillFiles(landing, contract), lake, keys)
    file = landing / "orders" / f"{RUN_DATE.day(keys[0])}.csv"
    header, _, *rest = file.read_text().splitlines()
    file.write_text("\n".join([header, *rest, ""]))
    _load(session, TillFiles(landing, contract), lake, keys[:1])


def _load(session: SparkSession, files: TillFiles, lake: Lake, keys: Sequence[str]) -> None:
    def spark(_: int | None) -> SparkSession:
        return session

    def clock() -> datetime:
        return datetime(2026, 9, 9, tzinfo=UTC)

    DailyLoad(lake, files, files.contract, RUN_DATE).load(spark, keys, run_id="practice", clock=clock)
    Silver(lake, files.contract, RUN_DATE).merge(spark, keys, run_id="practice", clock=clock)
    Gold(lake, files.contract, RUN_DATE).recompute(spark, keys, run_id="practice", clock=clock)


def _end(session: SparkSession) -> None:
    """End the session's JVM by its own exit, at which it writes the archive, and wait for it."""
    gateway: Any = session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):
        # The connection breaks, for nobody is left to answer.
        gateway.jvm.java.lang.System.exit(0)
    if process is not None and process.wait(ENDING_SECONDS) != 0:
        raise OSError(f"the JVM ended with {process.returncode}")


def main() -> None:
    """`python -m shop_pipeline.core.cold_start`: make the archive (`make setup`, or the first run)."""
    try:
        make()
    except SettingError as problem:
        sys.exit(f"setup: {problem}")


if __name__ == "__main__":
    main()
