"""One Spark session for the suite; a world of its own (landing folder, lake, Dagster instance) for each test."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from shop_pipeline.assets import till
from shop_pipeline.assets.daily_load import CHECK
from shop_pipeline.core import duck
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.core.lake import Lake, table_id, view
from shop_pipeline.core.ledger import Entry, Ledger, Verdict
from shop_pipeline.core.load import DailyLoad
from shop_pipeline.core.outcome import DayResult
from shop_pipeline.core.spark import INTERPRETED, check_machine, spark_config
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import ClockResource, LakeResource, SparkResource, TillFilesResource, of_a_run
from shop_pipeline_tests.builders import write_day
from shop_pipeline_tests.servers import ConnectServer

REPOSITORY = Path(__file__).parent.parent
CONTRACT = load_contract("orders_daily")
FEED = till.till_feed(CONTRACT, run_dates(date(2026, 9, 2), date(2026, 11, 30)))
ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES = till.orders_daily(FEED), till.silver_orders(FEED), till.daily_sales(FEED)
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needs = set(getattr(item, "fixturenames", ()))
        if needs & {"spark", "world", "shop", "shop_process", "connect_server"}:
            item.add_marker(pytest.mark.spark)


@dataclass
class Tally:
    """What the tests of crashes and of runs at the same time did, told at the end of the suite."""

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("kills", "processes", "commits", "conflicts", "retries", "lost", "doubled"), 0)
    )

    def add(self, **more: int) -> None:
        for name, number in more.items():
            self.counts[name] += number

    def __str__(self) -> str:
        return ", ".join(f"{name} {number}" for name, number in self.counts.items())


TALLY = Tally()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any(TALLY.counts.values()):
        terminalreporter.write_line(f"safe under fire: {TALLY}")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the settings of whoever runs it, nor writes into their folders."""
    for name in list(os.environ):
        if name.startswith(("SHOP_", "SHOPFLOW_", "DAGSTER_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def spark() -> SparkResource:
    """Spark on this machine, started by the first test that needs it and used by all.

    With the settings of a small load, but for the JVM's optimising compiler, which that leaves out: the suite is not over in a
    minute.
    """
    check_machine(remote=None)
    made = SparkResource(spark_config=spark_config(master="local[4]", remote=None, memory="2g") | INTERPRETED)
    made.session()
    return made


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A warm Spark Connect server, which makes commands in processes of their own quick."""
    check_machine(remote=None)
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    server.start()
    yield server
    server.stop()


@dataclass
class World:
    """Everything a test needs to load days and look at what came of it."""

    folder: Path
    spark: SparkResource
    instance: dg.DagsterInstance
    files: TillFilesResource = field(init=False)
    clock: ClockResource = field(default_factory=ClockResource)

    def __post_init__(self) -> None:
        self.files = TillFilesResource(landing=str(self.landing))

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    @property
    def lake(self) -> Lake:
        return Lake(str(self.folder / "lake"))

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.lake)

    @property
    def resources(self) -> dict[str, Any]:
        return of_a_run(self.spark, LakeResource(uri=self.lake.uri), self.files, self.clock)

    def put(self, day: date, content: Any) -> Path:  # noqa: ANN401
        """Put a day's file into the landing folder."""
        return write_day(self.landing, day, content)

    def run(
        self,
        keys: Sequence[str],
        *assets: dg.AssetsDefinition,
        config: dict[str, Any] | None = None,
        only: Sequence[str] | None = None,
        more: Sequence[Any] = (),
    ) -> dg.ExecuteInProcessResult:
        """Materialize assets (by default orders_daily) for one run date or a range, as Dagster's users do."""
        chosen = list(assets) or [ORDERS_DAILY]
        where: dict[str, Any] = (
            {"partition_key": keys[0]} if len(keys) == 1 else {"tags": dict(zip(RANGE, (keys[0], keys[-1]), strict=True))}
        )
        return dg.materialize(
            [*chosen, *more],
            instance=self.instance,
            resources=self.resources,
            run_config={"ops": {"orders_daily": {"config": config}}} if config else None,
            selection=list(only) if only else None,
            raise_on_error=False,
            **where,
        )

    def daily(self) -> DailyLoad:
        """The load itself, without Dagster."""
        return DailyLoad(self.lake, self.files.source(CONTRACT), CONTRACT, RUN_DATE)

    def load(self, keys: Sequence[str]) -> list[DayResult]:
        """Load days without Dagster."""
        return self.daily().load(self.spark.session, keys, run_id="by the test", clock=self.clock.now)

    def recheck(self, key: str) -> dg.ExecuteInProcessResult:
        """Run check_day alone."""
        return self._check(key, ORDERS_DAILY, dg.AssetSelection.checks(dg.AssetCheckKey(ORDERS_DAILY.key, CHECK)))

    def recheck_all(self, key: str, asset: dg.AssetsDefinition | None = None) -> dg.ExecuteInProcessResult:
        """Run all of a day's checks, without loading."""
        chosen = asset or ORDERS_DAILY
        return self._check(key, chosen, dg.AssetSelection.checks_for_assets(chosen.key))

    def _check(self, key: str, asset: dg.AssetsDefinition, selection: dg.AssetSelection) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [asset],
            selection=selection,
            instance=self.instance,
            resources=self.resources,
            tags={"dagster/partition": key},
            raise_on_error=False,
        )

    def materialized(self, asset: dg.AssetsDefinition) -> set[str]:
        """The partitions that Dagster takes for done."""
        return set(self.instance.get_materialized_partitions(asset.key))

    def query(self, sql: str, *tables: str) -> list[tuple[Any, ...]]:
        """Rows of the lake's tables (orders_daily by default), read without Spark."""
        con = duck.connect()
        for name in tables or ("orders_daily",):
            table = self.lake.open(name)
            assert table is not None, f"no table {name}"
            view(con, name, table)
        return con.execute(sql).fetchall()

    def orders(self, day: date) -> list[tuple[Any, ...]]:
        """A day's rows, the source's columns, in the order of their keys."""
        names = ", ".join(CONTRACT.names)
        return self.query(f"SELECT {names} FROM orders_daily WHERE order_date = DATE '{day}' ORDER BY 1, 2")

    def version(self, table: str = "orders_daily") -> int | None:
        """A table's newest version; None when there is no table."""
        opened = self.lake.open(table)
        return None if opened is None else int(opened.version())

    def verdict(self, day: date) -> Verdict:
        """May the day be read?"""
        return self.verdicts([day])[day]

    def verdicts(self, days: Sequence[date]) -> Mapping[date, Verdict]:
        """May these days be read?"""
        opened = self.lake.open("orders_daily")
        return self.ledger.verdicts("orders_daily", days, table_id(opened) if opened else None)

    def log(self, day: date) -> list[Entry]:
        """The run log's rows about a day, oldest first."""
        return self.ledger.entries("orders_daily", [day])


def failure_text(result: dg.ExecuteInProcessResult) -> str:
    """The sentence that a failed run shows."""
    texts = [
        event.step_failure_data.user_failure_data.description or ""
        for event in result.all_events
        if event.is_step_failure and event.step_failure_data.user_failure_data
    ]
    assert texts, "the run did not fail with a sentence"
    return texts[-1]


def evaluations(
    instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult, check: str = CHECK
) -> dict[str, dg.AssetCheckEvaluation]:
    """The last result of a check in a run for each partition."""
    entries = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    found = [entry.dagster_event.asset_check_evaluation_data for entry in entries if entry.dagster_event]
    return {evaluation.partition or "": evaluation for evaluation in found if evaluation.check_name == check}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, spark: SparkResource, instance: dg.DagsterInstance) -> World:
    """A fresh world on the suite's Spark session."""
    return World(tmp_path, spark, instance)


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.out.rstrip("\n").splitlines()[-1] if self.out else ""


Shop = Callable[..., Ran]


@pytest.fixture
def shop(spark: SparkResource, capfd: pytest.CaptureFixture[str]) -> Shop:
    """`shop …` in this process and in the test's folder, on the suite's Spark session."""
    return lambda *arguments: _in_process(arguments, capfd)


@pytest.fixture
def shop_without_spark(capfd: pytest.CaptureFixture[str]) -> Shop:
    """`shop …` in this process, for what needs no Spark."""
    return lambda *arguments: _in_process(arguments, capfd)


def _in_process(arguments: Sequence[str], capfd: pytest.CaptureFixture[str]) -> Ran:
    import shop_pipeline
    from shop_pipeline import cli

    # The definitions read the settings when they are imported, as in a new process.
    sys.modules.pop("shop_pipeline.definitions", None)
    vars(shop_pipeline).pop("definitions", None)
    capfd.readouterr()
    old = sys.argv
    sys.argv = ["shop", *map(str, arguments)]
    try:
        cli.main()
        status: object = 0
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.argv = old
        os.environ.pop("DAGSTER_HOME", None)
    out, err = capfd.readouterr()
    return Ran(int(status or 0), out, err)  # type: ignore[call-overload]


def run_shop(*arguments: str, folder: Path, timeout: float = 300, **environment: str) -> Ran:
    """`shop …` in a process of its own."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "shop"), *arguments],
        cwd=folder,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment without anybody's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "SHOPFLOW_", "DAGSTER_"))}
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return kept | extra


def environment_in(folder: Path, **extra: str) -> dict[str, str]:
    """The same, with everything in one folder, whatever folder a command is called in."""
    places = {"SHOP_LANDING": folder / "landing", "SHOP_LAKE": folder / "lake", "DAGSTER_HOME": folder / "dagster_home"}
    return clean_environment(**{name: str(place) for name, place in places.items()}, **extra)


def wait_until(what: str, holds: Callable[[], object], timeout: float = 120, pause: float = 0.2) -> Any:  # noqa: ANN401
    """What `holds` returns, as soon as that is true."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {timeout} s: {what}")


def run_date(day: date) -> str:
    """The run date that loads a day."""
    return RUN_DATE.key(day)
