"""`make bench [NAME=…]`: the project and what it is compared with, alternating in one run, as medians and ratios.

Seconds on a shared machine mean little; the ratio of two things measured in turn on it does. Writes bench/results.json: an
array of `name`, `what`, `ratio` (project : other), `bar`, `runs` (pairs, in `unit`), `machine`; and of it docs/bench.md and its
picture. Prints a table of what was measured.
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import duckdb
import psutil

from bench import page
from bench.warm_days import days_from, write_days
from shop_pipeline.core.local_postgres import LocalPostgres, packaged_binaries
from shop_pipeline.core.ports import free_port
from shop_pipeline.core.sample import write_september
from shop_pipeline.core.shopflow_sample import CREATE, make_database

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
REPEATS = int(os.environ.get("BENCH_REPEATS", "1"))
MONTH = ("2026-09-02", "2026-10-01")
SERVER_TURNS = 5
BIG_ROWS = int(os.environ.get("BENCH_ROWS", "10000000"))


@dataclass(frozen=True)
class Comparison:
    """Two things to time in turn, and the ratio that must not be exceeded. What gives a number has measured itself."""

    name: str
    what: str
    bar: float
    project: Callable[[Path], float | None]
    other: Callable[[Path], float | None]
    prepare: Callable[[Path], None]
    unit: str = "s"

    def pair(self, turn: int) -> tuple[float, float]:
        """The project's number and the other's."""
        project = timed(self.project, self.prepare)
        if self.other is not plain_month:
            return project, timed(self.other, self.prepare)
        # Minutes, and several are compared with it: once in each turn.
        if turn not in _plain_months:
            _plain_months[turn] = timed(self.other, self.prepare)
        return project, _plain_months[turn]


_plain_months: dict[int, float] = {}


@dataclass(frozen=True)
class Warm:
    """Two things that one warm process times in turn; see bench/warm_days.py."""

    name: str
    what: str
    bar: float
    pair_of: str
    unit: str = "s"

    def pair(self, _: int) -> tuple[float, float]:
        """The median seconds of both."""
        with tempfile.TemporaryDirectory(prefix="shop-bench-") as folder:
            project, other = run([sys.executable, "-m", "bench.warm_days", folder, self.pair_of], HERE.parent).split()[-2:]
        return float(project), float(other)


@dataclass(frozen=True)
class OnTheServer:
    """Two things done in turn over one folder that `shop up` serves and the month is loaded in. Both measure themselves."""

    name: str
    what: str
    bar: float
    project: Callable[[Path, int], float]
    other: Callable[[Path, int], float]
    unit: str = "s"

    def pair(self, _: int) -> tuple[float, float]:
        """The median seconds of both."""
        with tempfile.TemporaryDirectory(prefix="shop-bench-") as name:
            folder = Path(name)
            sample(folder)
            with warm_server(folder):
                pipeline(folder)
                taken = [(self.project(folder, n), self.other(folder, n)) for n in range(SERVER_TURNS)]
        project, other = (statistics.median(column) for column in zip(*taken, strict=True))
        return project, other


def shop(folder: Path, *arguments: str) -> None:
    """A `shop` command in a process of its own, cold."""
    run([str(BIN / "shop"), *arguments], folder, _clean())


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a command in a folder and give its output, which is shown when it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr[-3000:]}")
    return done.stdout


def month(folder: Path) -> None:
    """The month into orders_daily as one run of Dagster's, with its checks: what the plain script does, and the checks."""
    run([sys.executable, "-m", "bench.load_range", *MONTH], folder, _clean() | {"PYTHONPATH": str(HERE.parent)})


def pipeline(folder: Path) -> None:
    """The same and all that follows: silver, daily_sales and their checks."""
    shop(folder, "backfill", *MONTH)


def one_day(folder: Path) -> None:
    """One day, through Dagster, with its check and daily_sales."""
    shop(folder, "backfill", MONTH[0], MONTH[0])


def plain_month(folder: Path) -> None:
    """The plain script over the same month."""
    landing, lake = folder / "landing", folder / "plain_lake"
    run([sys.executable, str(HERE / "plain_month.py"), str(landing), str(lake), "2026-09-01", "30"], folder)


def spark_start(folder: Path) -> None:
    """Spark's start and one trivial table."""
    run([sys.executable, str(HERE / "spark_start.py"), str(folder / "table")], folder)


@contextlib.contextmanager
def warm_server(folder: Path) -> Iterator[None]:
    """`shop up` over a folder, with a Spark that has loaded the month twice before; the lake is empty."""
    with (folder / "up.log").open("w+") as said:
        command = [str(BIN / "shop"), "up", "--port", str(free_port())]
        serving = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, env=_clean(), start_new_session=True)
        try:
            while "Spark's server is ready" not in (folder / "up.log").read_text():
                if serving.poll() is not None:
                    sys.exit(f"shop up ended:\n{(folder / 'up.log').read_text()}")
                time.sleep(0.5)
            for _ in range(2):
                shop(folder, "backfill", *MONTH)
            shutil.rmtree(folder / "lake")
            yield
        finally:
            serving.send_signal(signal.SIGINT)
            serving.wait(60)


def warm(action: Callable[[Path], None]) -> Callable[[Path], float]:
    """The same on the server of `shop up`."""

    def on_the_server(folder: Path) -> float:
        with warm_server(folder):
            return _seconds(lambda: action(folder))

    return on_the_server


def correction(folder: Path, n: int) -> float:
    """A day whose file was corrected: from launching to verified."""
    day = date(2026, 9, 1 + n)
    file = folder / "landing" / "orders" / f"{day}.csv"
    header, _, *rest = file.read_text().splitlines()
    file.write_text("\n".join([header, *rest, ""]))
    return _seconds(lambda: shop(folder, "load", str(day + timedelta(days=1))))


def trivial_run(folder: Path, _: int) -> float:
    """A Dagster run of one step that does nothing, launched from a command line too, in the same DAGSTER_HOME."""
    environment = _clean() | {"DAGSTER_HOME": str(folder / "dagster_home"), "PYTHONPATH": str(HERE.parent)}
    command = [str(BIN / "dagster"), "job", "execute", "-m", "bench.trivial", "-j", "trivial"]
    return _seconds(lambda: run(command, folder, environment))


def _seconds(action: Callable[[], object]) -> float:
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def _clean() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DAGSTER_"))}


def big_day(folder: Path) -> None:
    """The big day: judged by every rule, repeated keys too, fingerprinted, written and verified, through Dagster."""
    shop(folder, "load", MONTH[0])


def bare_day(folder: Path) -> None:
    """The same file by bare Spark."""
    run(_bare(folder), folder)


def big_day_memory(folder: Path) -> float:
    """The most memory that all processes of the big day took, in MB."""
    return peak([str(BIN / "shop"), "load", MONTH[0]], folder)


def bare_day_memory(folder: Path) -> float:
    """The same of bare Spark."""
    return peak(_bare(folder), folder)


def _bare(folder: Path) -> list[str]:
    file = folder / "landing" / "orders" / "2026-09-01.csv"
    return [sys.executable, str(HERE / "bare_day.py"), str(file), str(folder / "bare")]


def merge_into(orders: int) -> Callable[[Path], float]:
    """A small day merged into a silver table of so many orders, warm: seconds."""
    return lambda folder: float(run([sys.executable, str(HERE / "merge_day.py"), str(folder), str(orders)], folder).split()[-1])


def watch_many(what: str) -> Callable[[Path], float]:
    """A landing folder of 50,000 files, 3,650 of them days: seconds to list it, for a sensor's tick, for a plan of all days."""
    return lambda folder: float(run([sys.executable, "-m", "bench.watch_many", str(folder), what], HERE.parent).split()[-1])


def database_day(rows: int) -> Callable[[Path], float]:
    """A day of so many rows in Postgres, loaded with 1 GB for Spark: the most memory that all its processes took, in MB."""

    def load(folder: Path) -> float:
        own = LocalPostgres(folder / "postgres", packaged_binaries())
        try:
            address = make_database(own.start())
            with address.connect() as connection:
                connection.execute(CREATE)
                connection.execute(
                    "INSERT INTO orders SELECT n, n % 4000, 'web', TIMESTAMP '2024-01-01' + n * INTERVAL '10 ms', 'delivered', "
                    f"'EUR', NULL FROM generate_series(1, {rows}) n"
                )
                connection.commit()
            return peak([str(BIN / "shop"), "load", "2024-01-01", "--source", "shopflow"], folder, SHOP_SPARK_MEMORY="1g")
        finally:
            own.remove()

    return load


def years(days: int) -> Callable[[Path], float]:
    """A backfill of so many days, all three tables, in one process: the most memory that it took with its JVM, in MB."""

    def backfill(folder: Path) -> float:
        known = days_from(0, days)
        write_days(folder / "landing", known)
        first, last = (str(known[n] + timedelta(days=1)) for n in (0, -1))
        return peak([str(BIN / "shop"), "backfill", first, last], folder, SHOP_FIRST_RUN_DATE=first)

    return backfill


def peak(command: list[str], folder: Path, **settings: str) -> float:
    """The most memory (MB) that a command and all that it started took at a time; pages that two of them share count once."""
    environment = _clean() | settings
    most = 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        whole = psutil.Process(process.pid)
        while process.poll() is None:
            most = max(most, sum(map(_memory, [whole, *_started(whole)])))
            time.sleep(0.2)
        if process.returncode != 0:
            said.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{said.read()[-3000:]}")
    return most / 1e6


def _started(process: psutil.Process) -> list[psutil.Process]:
    """What a process has started: not its copy for the moment until that is another program."""
    with contextlib.suppress(psutil.Error):
        own = process.cmdline()
        return [each for each in process.children(recursive=True) if _command(each) != own]
    return []


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def _memory(process: psutil.Process) -> int:
    """The memory of a process, of what it shares its part; none when it has just ended."""
    with contextlib.suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


def nothing(_: Path) -> None:
    """Nothing to prepare."""


def sample(folder: Path) -> None:
    """The sample month's files."""
    write_september(folder / "landing", force=False)


@cache
def big_file() -> Path:
    """A day of ten million orders (BENCH_ROWS), written once."""
    folder = Path(tempfile.mkdtemp(prefix="shop-bench-big-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "big.csv"
    duckdb.sql(
        f"""
        COPY (SELECT i AS order_id, printf('C%05d', (i * 7919) % 100000) AS customer_id,
                     printf('%d.%02d', 8 + (i * 31) % 52, i % 100) AS amount,
                     strftime(TIMESTAMP '2026-09-01 08:00:00' + INTERVAL (i % 46800) SECOND, '%Y-%m-%dT%H:%M:%S') AS ordered_at
              FROM range(1, {BIG_ROWS} + 1) t(i)) TO '{file}' (HEADER, DELIMITER ',')
        """
    )
    return file


def one_big_file(folder: Path) -> None:
    """The big day's file, as a link."""
    day = folder / "landing" / "orders" / "2026-09-01.csv"
    day.parent.mkdir(parents=True)
    os.link(big_file(), day)


COMPARISONS: list[Comparison | OnTheServer | Warm] = [
    Comparison(
        "month_cold",
        "the month into orders_daily, cold, as one run of Dagster's with its checks : the plain script, day by day",
        1 / 15,
        month,
        plain_month,
        sample,
    ),
    Comparison(
        "month_warm",
        "the same on the Spark that `shop up` keeps : the plain script",
        1 / 45,
        warm(month),
        plain_month,
        sample,
    ),
    Comparison(
        "pipeline_cold",
        "`shop backfill` of the month, cold, with silver, daily_sales and all checks as well : the plain script",
        1 / 8,
        pipeline,
        plain_month,
        sample,
    ),
    Comparison(
        "pipeline_warm",
        "the same on the Spark that `shop up` keeps : the plain script",
        1 / 15,
        warm(pipeline),
        plain_month,
        sample,
    ),
    Comparison(
        "month_cold_vs_spark_start",
        "the month into orders_daily, cold, as above : starting Spark with its defaults and writing one trivial Delta table",
        1.0,
        month,
        spark_start,
        sample,
    ),
    OnTheServer(
        "correction_vs_trivial_run",
        "`shop load` of a corrected day : `dagster job execute` of a step that does nothing, where `shop up` serves the folder",
        2.0,
        correction,
        trivial_run,
    ),
    Comparison("month_vs_day", "`shop backfill` of the month : of one day, both cold", 1.3, pipeline, one_day, sample),
    Comparison("big_day", f"a day of {BIG_ROWS:,} rows, cold : bare Spark, CSV to Delta", 1.5, big_day, bare_day, one_big_file),
    Comparison(
        "big_day_memory",
        f"peak memory (MB) of a day of {BIG_ROWS:,} rows : of bare Spark, CSV to Delta",
        1.2,
        big_day_memory,
        bare_day_memory,
        one_big_file,
        "MB",
    ),
    Comparison(
        "merge_large",
        "a small day into a silver table of 10 million orders : of 100 thousand, warm",
        3.0,
        merge_into(10_000_000),
        merge_into(100_000),
        nothing,
    ),
    Warm(
        "day_into_1000",
        "a day into a table of 1,000 days, each loaded by a run of its own : into an empty one, warm",
        1.3,
        "into_1000",
    ),
    Warm("check_vs_load", "`check_day` of a day : loading it, warm", 0.15, "check"),
    Comparison(
        "backfill_memory",
        "peak memory (MB) of a backfill of 3,650 days, a year a run : of 366 days",
        1.3,
        years(3_650),
        years(366),
        nothing,
        "MB",
    ),
    Warm("day_from_50000", "a day from a landing folder of 50,000 files : from one of 1 file, warm", 1.3, "from_50000"),
    Comparison(
        "sensor_tick",
        "a sensor's tick over 3,650 days in a folder of 50,000 files, after the first : listing the folder",
        15.0,
        watch_many("tick"),
        watch_many("listing"),
        nothing,
    ),
    Comparison(
        "plan_3650",
        "shop plan of 3,650 days in that folder : listing it",
        100.0,
        watch_many("plan"),
        watch_many("listing"),
        nothing,
    ),
    Comparison(
        "database_memory",
        "peak memory (MB) of a day of 5 million rows from Postgres, 1 GB for Spark : of 500 thousand",
        1.5,
        database_day(5_000_000),
        database_day(500_000),
        nothing,
        "MB",
    ),
]


def timed(action: Callable[[Path], float | None], prepare: Callable[[Path], None]) -> float:
    """Seconds that an action takes in a fresh, prepared folder."""
    folder = Path(tempfile.mkdtemp(prefix="shop-bench-"))
    try:
        prepare(folder)
        begin = time.monotonic()
        own = action(folder)
        return time.monotonic() - begin if own is None else own
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(comparison: Comparison | OnTheServer | Warm) -> dict[str, object]:
    """One comparison: the two in turn, REPEATS times."""
    runs = []
    for turn in range(REPEATS):
        runs.append([round(each, 2 if each > 1 else 3) for each in comparison.pair(turn)])
        print(f"  {comparison.name}: {runs[-1][0]} : {runs[-1][1]} {comparison.unit}", file=sys.stderr, flush=True)
    ratio = statistics.median(one for one, _ in runs) / statistics.median(other for _, other in runs)
    return {
        "name": comparison.name,
        "what": comparison.what,
        "ratio": round(ratio, 4),
        "bar": round(comparison.bar, 4),
        "runs": runs,
        "unit": comparison.unit,
        "machine": page.machine(),
    }


def main() -> None:
    """Measure what was named (by default all) and write the results."""
    wanted = sys.argv[1:]
    unknown = set(wanted) - {each.name for each in COMPARISONS}
    if unknown:
        names = ", ".join(each.name for each in COMPARISONS)
        sys.exit(f"bench: there is no {', '.join(sorted(unknown))}; there are {names}")
    measured = {str(each["name"]): each for each in page.read_results()}
    for comparison in COMPARISONS:
        if wanted and comparison.name not in wanted:
            continue
        each = measured[comparison.name] = measure(comparison)
        # After each, for all of them take the better part of an hour.
        results = [measured[one.name] for one in COMPARISONS if one.name in measured]
        page.RESULTS.write_text(json.dumps(results, indent=2) + "\n")
        page.write(results)
        held = "held" if page.held(each) else "NOT HELD"
        print(f"{each['name']:<26} {each['ratio']:>8} (bar {each['bar']}) {held}   {each['what']}")


if __name__ == "__main__":
    main()
