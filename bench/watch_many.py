"""`python -m bench.watch_many FOLDER listing|tick|plan`: seconds, over a landing folder of 50,000 files, 3,650 of them days.

The days are in run_log as loaded. `listing` lists the folder with each file's times, `tick` is a sensor's second look, `plan`
plans all days.
"""

import os
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from shop_pipeline.assets.till import FIGURES
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import LOAD, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.plan import State, plan
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.watch import Memory, known_days, look_at_files

DAYS, FILES = 3650, 50_000
FIRST = date(2016, 1, 1)


def main() -> None:
    """Build the folder and time one thing."""
    folder, what = Path(sys.argv[1]), sys.argv[2]
    contract, lake = load_contract("orders_daily"), Lake(str(folder / "lake"))
    files = TillFiles(folder / "landing", contract)
    days = [FIRST + timedelta(days=n) for n in range(DAYS)]
    _build(folder / "landing" / "orders", days)
    if what != "listing":
        _load(lake, files, days)
    if what == "tick":
        memory_file = folder / "memory.json"
        _tick(lake, files, memory_file)
    begin = time.monotonic()
    if what == "listing":
        with os.scandir(folder / "landing" / "orders") as entries:
            for entry in entries:
                entry.stat()
    elif what == "tick":
        _tick(lake, files, memory_file)
    else:
        planned = plan(lake, files, contract, RUN_DATE, FIGURES, [RUN_DATE.key(day) for day in days])
        _expect({day.state for day in planned.days} == {State.UNCHANGED})
    print(time.monotonic() - begin)


def _build(orders: Path, days: list[date]) -> None:
    orders.mkdir(parents=True)
    order_id = 1
    for day in days:
        rows = [f"{order_id + n},C0{n},{10 + n}.50,{day}T1{n}:00:00" for n in range(4)]
        order_id += 4
        path = orders / f"{day}.csv"
        path.write_text("order_id,customer_id,amount,ordered_at\n" + "\n".join(rows) + "\n")
        os.utime(path, (1_600_000_000, 1_600_000_000))
    for n in range(FILES - len(days)):
        (orders / f"export-{n}.txt").touch()


def _load(lake: Lake, files: TillFiles, days: list[date]) -> None:
    """Note the days as loaded, with the contents that their files have."""
    lake.create("orders_daily", files.contract.table_columns, "the bench's")
    contents, table = files.fingerprints(days), lake.open("orders_daily")
    if table is None:
        sys.exit("the table was not made")
    now = datetime.now(UTC)
    Ledger(lake).append(
        [
            Entry(
                *("bench", now, "orders_daily", 4, now, SUCCEEDED, day, day + timedelta(days=1), contents[day]),
                *(0, None, 0, 1.0, LOAD, f"a{n}", table_id(table)),
                source_fingerprint=contents[day],
            )
            for n, day in enumerate(days)
        ]
    )


def _tick(lake: Lake, files: TillFiles, memory_file: Path) -> None:
    memory, end = Memory.read(memory_file), time.monotonic() + 60
    found = look_at_files(
        files,
        known_days(lake, files.contract),
        memory,
        newest=FIRST + timedelta(days=DAYS - 1),
        now=time.time(),
        time_left=lambda: time.monotonic() < end,
    )
    _expect(not (found.came or found.corrected or found.left))
    memory.write(memory_file)


def _expect(holds: bool) -> None:
    if not holds:
        sys.exit("it found what it should not have")


if __name__ == "__main__":
    main()
