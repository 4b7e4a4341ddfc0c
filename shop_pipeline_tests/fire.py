"""What the tests under fire share: processes to kill, a reader that polls, and the truth to compare a table with."""

import csv
import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from shop_pipeline.core import duck
from shop_pipeline.core.fault_points import Point
from shop_pipeline.core.lake import Lake, view
from shop_pipeline_tests.builders import Row, text_of, write_day
from shop_pipeline_tests.conftest import REPOSITORY, TALLY, clean_environment

Rows = Counter[tuple[date, int, str, Decimal, str]]
COLUMNS = "order_date, order_id, customer_id, amount, strftime(ordered_at, '%Y-%m-%dT%H:%M:%S')"


class Commands:
    """`shop` in processes of its own, which can be told to kill themselves at a point, or be killed."""

    def __init__(self, **environment: str) -> None:
        self.environment = environment
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shop_pipeline_tests.killed"],
            cwd=REPOSITORY,
            env=clean_environment(**environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *arguments: str, folder: Path, keys: Sequence[str] = (), at: Point | None = None, apart: bool = False) -> int:
        """Start a command, or without arguments a load of `keys` without Dagster; gives its process, the leader of a group.

        Args:
            at: where it is to kill itself.
            apart: a commit for each of `keys`.
        """
        order = {"at": at, "folder": str(folder), "arguments": arguments, "keys": list(keys), "apart": apart}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        TALLY.add(processes=1)
        return int(self._answer())

    def wait(self) -> int:
        """How it ended: its status, or minus the signal that killed it."""
        status = int(self._answer())
        TALLY.add(kills=status == -signal.SIGKILL)
        return status

    def run(self, *arguments: str, **how: Any) -> int:  # noqa: ANN401
        """Start and wait."""
        self.start(*arguments, **how)
        return self.wait()

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process that starts commands has ended"
        return line


def month(version: int) -> dict[date, list[Row]]:
    """September: 3 to 6 orders a day, other amounts and one order more or less with each version."""
    days = {}
    for n in range(1, 31):
        day = date(2026, 9, n)
        count = 3 + (n + version) % 4
        days[day] = [
            (n * 100 + k, f"C0{k % 5 + 1}", f"{n + k}.{version % 100:02d}", f"{day}T{9 + k:02d}:15:00") for k in range(count)
        ]
    return days


def put(landing: Path, days: dict[date, list[Row]], incomplete: bool = True) -> None:
    """Put these days' files there; each with a row without customer, which is to be set aside."""
    for day, rows in days.items():
        more: list[Row] = [(day.day * 100 + 99, "", "1.00", f"{day}T20:00:00")] if incomplete else []
        write_day(landing, day, text_of([*rows, *more]))


def in_files(landing: Path) -> Rows:
    """What the files say should be in the table: read by Python's csv alone."""
    found: Rows = Counter()
    for path in sorted((landing / "orders").glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["customer_id"]:
                    key = (date.fromisoformat(path.stem), int(row["order_id"]), row["customer_id"])
                    found[(*key, Decimal(row["amount"]), row["ordered_at"])] += 1
    return found


def in_table(lake: Lake) -> Rows:
    """What is in the table, at one version."""
    table = lake.open("orders_daily")
    if table is None:
        return Counter()
    con = duck.connect()
    view(con, "orders_daily", table)
    return Counter(con.execute(f"SELECT {COLUMNS} FROM orders_daily").fetchall())


def fingerprint(rows: Rows) -> str:
    """The content of a table as a hash, whatever the order of its rows."""
    return hashlib.sha256("\n".join(sorted(f"{row} x {count}" for row, count in rows.items())).encode()).hexdigest()


def assert_nothing_lost(landing: Path, lake: Lake) -> None:
    """The table has what the files have: no row fewer, none twice. Tells the tally."""
    wanted, there = in_files(landing), in_table(lake)
    lost, doubled = (wanted - there).total(), (there - wanted).total()
    TALLY.add(lost=lost, doubled=doubled)
    assert (lost, doubled) == (0, 0)


def count_commits(lake: Lake, table: str = "orders_daily") -> None:
    """Tell the tally how many commits a table has seen, and how often one had to start over."""
    opened, log = lake.open(table), lake.open("run_log")
    assert opened is not None
    retries = 0
    if log is not None:
        con = duck.connect()
        view(con, "run_log", log)
        ((found,),) = con.execute(
            "SELECT coalesce(sum(r), 0) FROM (SELECT max(retries) r FROM run_log GROUP BY attempt)"
        ).fetchall()
        retries = int(found)
    TALLY.add(commits=len(opened.history()), retries=retries)


@dataclass
class Reader:
    """Polls the table by count and sum per day, as a report would; each look must be one of the `allowed` states."""

    lake: Lake
    allowed: set[str] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    pause: float = 0.5

    def __post_init__(self) -> None:
        self._con, self._using = duck.connect(), threading.Lock()

    def __enter__(self) -> "Reader":
        self._stop = threading.Event()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert not self._errors, self._errors
        strange = set(self.seen) - self.allowed
        assert not strange, f"{len(strange)} states that are neither before nor after: {strange}"

    def allow(self, rows: Rows) -> str:
        """Say which state may be seen from now on."""
        state = self.state(rows)
        self.allowed.add(state)
        return state

    def state(self, rows: Rows) -> str:
        """Count and sum of each day."""
        days: dict[date, list[Decimal]] = {}
        for (day, _, _, amount, _), count in rows.items():
            days.setdefault(day, []).extend([amount] * count)
        return str(sorted((str(day), len(amounts), str(sum(amounts))) for day, amounts in days.items()))

    def now(self) -> str:
        """The state of the table."""
        table = self.lake.open("orders_daily")
        if table is None:
            return "[]"
        with self._using:
            view(self._con, "orders_daily", table)
            sums = "SELECT CAST(order_date AS VARCHAR), count(*), CAST(sum(amount) AS VARCHAR) FROM orders_daily GROUP BY 1"
            return str(sorted(self._con.execute(sums).fetchall()))

    def _poll(self) -> None:
        try:
            while not self._stop.is_set():
                self.seen[self.now()] += 1
                time.sleep(self.pause)
        except Exception as error:
            self._errors.append(error)
