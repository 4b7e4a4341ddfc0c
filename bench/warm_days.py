"""Two things that the loader does in one warm process, in turn, and the median seconds of each.

    python -m bench.warm_days FOLDER into_1000|check|from_50000

Every day has ORDERS orders; the loader is called as the assets call it, with one Spark session. Prints both medians.
"""

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path

from shop_pipeline.core import quarantine
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.ledger import COLUMNS, TABLE, Entry, Ledger
from shop_pipeline.core.load import DailyLoad
from shop_pipeline.core.outcome import DayResult
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.spark import spark_config
from shop_pipeline.resources import ClockResource, SparkResource

FIRST = date(2016, 1, 1)
ORDERS = 5
REPEATS = 9
# The first ones of a process pay for classes and compiled code.
WARM_UPS = 3
TABLE_DAYS, FILES = 1_000, 50_000

CONTRACT = load_contract("orders_daily")
SPARK = SparkResource(spark_config=spark_config(master="local[*]", remote=None, memory="2g"))


def write_days(landing: Path, days: Sequence[date]) -> None:
    """A file of ORDERS orders for each of these days."""
    folder = landing / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    for day in days:
        first = (day - FIRST).days * ORDERS + 1
        rows = [f"{first + n},C0{n},{10 + n}.50,{day}T1{n}:00:00" for n in range(ORDERS)]
        (folder / f"{day}.csv").write_text("\n".join(["order_id,customer_id,amount,ordered_at", *rows]) + "\n")


def days_from(first: int, count: int) -> list[date]:
    """So many days, from the day with this number on."""
    return [FIRST + timedelta(days=first + n) for n in range(count)]


def loader(lake: Path, landing: Path) -> DailyLoad:
    """The till's loader over these folders."""
    return DailyLoad(Lake(str(lake)), TillFiles(landing, CONTRACT), CONTRACT, RUN_DATE)


def empty(lake: Path, landing: Path) -> DailyLoad:
    """The same, whose tables are there and have no row, so that what is timed makes none."""
    made = loader(lake, landing)
    made.lake.create(CONTRACT.table, CONTRACT.table_columns, "the bench's")
    made.lake.create(quarantine.table_of(CONTRACT), quarantine.COLUMNS, quarantine.DESCRIPTION)
    made.lake.create(TABLE, COLUMNS, "the bench's")
    return made


def load(daily: DailyLoad, days: Sequence[date]) -> None:
    """Load days, which must end well."""
    keys = [RUN_DATE.key(day) for day in days]
    _expect(daily.load(SPARK.session, keys, run_id="bench", clock=ClockResource().now))


def check(daily: DailyLoad, day: date) -> None:
    """Compare a day with its source."""
    _expect(daily.check([RUN_DATE.key(day)], run_id="bench", clock=ClockResource().now))


def into_1000(folder: Path, n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A day into a table of 1,000 days, and into an empty one."""
    large, landing = folder / "large", folder / "landing"
    if n == 0:
        known = days_from(0, TABLE_DAYS)
        write_days(landing, known)
        for start in range(0, TABLE_DAYS, 366):
            load(loader(large, landing), known[start : start + 366])
        _as_run_day_by_day(large)
    (day,) = days_from(TABLE_DAYS + n, 1)
    write_days(landing, [day])
    return lambda: load(loader(large, landing), [day]), _load(empty(folder / f"empty-{n}", landing), day)


def _as_run_day_by_day(folder: Path) -> None:
    """Make run_log what it is after a run for each day: the same rows, in two commits a day."""
    lake, again = Lake(str(folder)), Lake(str(folder / "again"))
    by_day: dict[date, list[Entry]] = {}
    for entry in Ledger(lake).entries(CONTRACT.sql_name):
        by_day.setdefault(entry.day, []).append(entry)
    for entries in by_day.values():
        for entry in entries:
            Ledger(again).append([entry])
    shutil.rmtree(lake.table_uri(TABLE))
    Path(again.table_uri(TABLE)).rename(lake.table_uri(TABLE))
    shutil.rmtree(again.uri)


def check_and_load(folder: Path, n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A day's check, and its load, in a table of a month."""
    landing, daily = folder / "landing", loader(folder / "lake", folder / "landing")
    month = days_from(0, 31)
    if n == 0:
        write_days(landing, month)
        load(daily, month)
    day = month[n]
    return lambda: check(daily, day), _load(daily, day)


def from_50000(folder: Path, n: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A day from a landing folder of 50,000 files, and from one that has no other."""
    full, (day,) = folder / "full", days_from(n, 1)
    if n == 0:
        write_days(full, days_from(0, 3_650))
        for other in range(FILES - 3_650):
            (full / "orders" / f"export-{other}.txt").touch()
    alone = folder / f"alone-{n}"
    write_days(alone, [day])
    return _load(empty(folder / f"full-lake-{n}", full), day), _load(empty(folder / f"alone-lake-{n}", alone), day)


def _load(daily: DailyLoad, day: date) -> Callable[[], None]:
    return lambda: load(daily, [day])


def _expect(results: Sequence[DayResult]) -> None:
    bad = [result.sentence for result in results if not result.ok]
    if bad:
        sys.exit(f"it did something else: {bad[0]}")


def _seconds(action: Callable[[], None]) -> float:
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def main(folder: Path, what: str) -> None:
    """Prepare and time a pair as often as it takes."""
    pair = {"into_1000": into_1000, "check": check_and_load, "from_50000": from_50000}[what]
    taken: list[list[float]] = []
    for n in range(WARM_UPS + REPEATS):
        taken.append([_seconds(action) for action in pair(folder, n)])
        print(*(f"{each:.3f}" for each in taken[-1]), file=sys.stderr, flush=True)
    print(*(statistics.median(column) for column in zip(*taken[WARM_UPS:], strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
