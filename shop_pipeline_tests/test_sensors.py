"""The sensors, by Dagster's own evaluation of a tick: row E2; cases C89, C91, C93, C113, C125. No JVM, no worker."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData

from shop_pipeline.assets.till import orders_daily, till_feed
from shop_pipeline.automation import sensors
from shop_pipeline.automation.schedules import daily_job
from shop_pipeline.automation.sensors import till_file_sensor
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import FAILED, LOAD, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.watch import LONG_QUIET
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import ClockResource, LakeResource, SparkResource, TillFilesResource, of_a_run
from shop_pipeline_tests.builders import rows_of, write_day
from shop_pipeline_tests.conftest import RANGE

CONTRACT = load_contract("orders_daily")
FEED = till_feed(CONTRACT, run_dates(date(2026, 9, 2), date(2026, 11, 30)))
ORDERS = orders_daily(FEED)
JOB = daily_job("till", FEED, [ORDERS])
DAYS = [date(2026, 9, 1) + timedelta(days=n) for n in range(30)]
NEWEST = date(2026, 9, 20)


@dataclass
class Watched:
    """A landing folder under a sensor, at a time that a test moves on."""

    folder: Path
    instance: dg.DagsterInstance
    now: datetime = datetime(2026, 9, 21, 2, 0, tzinfo=UTC)
    attempts: int = 0
    sensors: dict[bool, dg.SensorDefinition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for corrections in (False, True):
            name = "radar" if corrections else "arrivals"
            self.sensors[corrections] = till_file_sensor(JOB, FEED, UTC, name=name, corrections=corrections)
        self.lake.create("orders_daily", CONTRACT.table_columns, "as a load makes it")

    @property
    def lake(self) -> Lake:
        return Lake(str(self.folder / "lake"))

    def put(self, day: date, content: object, *, at_rest: bool = True) -> Path:
        """A day's file, written long ago or just now."""
        path = write_day(self.folder / "landing", day, content)  # type: ignore[arg-type]
        self.age(path, LONG_QUIET - 60 if at_rest else 1)
        return path

    def age(self, path: Path, seconds: float) -> None:
        moment = self.now.timestamp() - seconds
        os.utime(path, (moment, moment))

    def loaded(self, day: date, *, ok: bool = True) -> None:
        """As if the day's file had been loaded as it is now, or refused."""
        found = TillFiles(self.folder / "landing", CONTRACT).fingerprints([day]).get(day)
        table = self.lake.open("orders_daily")
        assert table is not None
        self.attempts += 1
        nothing = dict.fromkeys(("row_count", "max_event_time", "quarantined", "duration"))
        entry = Entry(
            run_id="by the test",
            run_at=self.now,
            table_name="orders_daily",
            status=SUCCEEDED if ok else FAILED,
            day=day,
            run_date=day + timedelta(days=1),
            fingerprint=found if ok else None,
            problem=None if ok else "refused",
            delta_version=self.attempts if ok else None,
            kind=LOAD,
            attempt=f"a{self.attempts}",
            table_id=table_id(table),
            source_fingerprint=found,
            **(nothing | ({"row_count": 3} if ok else {})),  # type: ignore[arg-type]
        )
        Ledger(self.lake).append([entry])

    def tick(self, *, corrections: bool = False, minutes: float = 1) -> SensorExecutionData:
        """A tick of a sensor, some time after the last."""
        self.now += timedelta(minutes=minutes)
        files = TillFilesResource(landing=str(self.folder / "landing"))
        resources = of_a_run(SparkResource(spark_config={}), LakeResource(uri=self.lake.uri), files, ClockResource())
        sensor = self.sensors[corrections]
        defs = dg.Definitions(assets=[ORDERS], jobs=[JOB], sensors=[sensor], resources=resources)
        return sensor.evaluate_tick(dg.build_sensor_context(instance=self.instance, definitions=defs, resources=resources))

    def asked(self, **how: object) -> list[str]:
        """The run dates (first..last) that a tick asks for."""
        requests = self.tick(**how).run_requests or []  # type: ignore[arg-type]
        return [each.partition_key or f"{each.tags[RANGE[0]]}..{each.tags[RANGE[1]]}" for each in requests]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with dg.DagsterInstance.ephemeral() as instance:
        made = Watched(tmp_path, instance)
        monkeypatch.setattr(sensors, "_now", lambda _: made.now)
        assert made.asked() == []
        yield made


def test_a_file_that_comes_is_loaded_once(watched: Watched) -> None:
    """B9, C89: while it is written it waits; then its run date is asked for, under one key until run_log knows of it."""
    path = watched.put(NEWEST, rows_of(NEWEST, 1, 3), at_rest=False)
    result = watched.tick(minutes=0)
    assert not result.run_requests
    assert "waiting until complete" in str(result.skip_message)
    keys = [watched.tick().run_requests for _ in range(2)]
    assert [[each.partition_key for each in requests or []] for requests in keys] == [["2026-09-21"]] * 2
    assert len({each.run_key for requests in keys for each in requests or []}) == 1
    watched.loaded(NEWEST)
    assert watched.asked() == []
    watched.age(path, 0)
    assert watched.asked() == watched.asked() == []


@pytest.mark.parametrize("cut", [b"", b"\r\n1,C01,1"])
def test_a_file_that_is_half_written_waits(watched: Watched, cut: bytes) -> None:
    """It still grows, or its last line has no end; one that stays so is loaded all the same, and judged."""
    path = watched.put(NEWEST, rows_of(NEWEST, 1, 3), at_rest=False)
    whole = path.read_bytes()
    for size in (20, 60, 90):
        path.write_bytes(whole[:size])
        watched.age(path, 1)
        assert watched.asked(minutes=0.5) == []
    path.write_bytes(whole.removesuffix(b"\r\n") + cut)
    watched.age(path, 1)
    assert watched.asked() == watched.asked(minutes=2) == []
    assert watched.asked(minutes=LONG_QUIET / 60) == ["2026-09-21"]


def test_odd_names_are_told_and_never_loaded(watched: Watched) -> None:
    """C125: nor is a day that is not over, nor one before the first."""
    orders = watched.folder / "landing" / "orders"
    names = ("2026-09-20 (1).csv", "2026-9-20.csv", "2026-02-30.csv", "2026-09-20.csv.part", "2026-09-20.CSV")
    for name in (*names, ".2026-09-20.csv.part"):
        watched.put(NEWEST, "order_id\n").rename(orders / name)
    watched.put(NEWEST + timedelta(days=1), rows_of(NEWEST, 1, 3))
    watched.put(date(2026, 8, 1), rows_of(NEWEST, 1, 3))
    result = watched.tick()
    assert not result.run_requests
    for name in names:
        assert repr(name) in str(result.skip_message)
    assert "'.2026" not in str(result.skip_message)
    assert "until their day is over: 2026-09-21" in str(result.skip_message)


def test_what_is_no_file_holds_nothing_up(watched: Watched) -> None:
    """A pipe has no end, a link may lead nowhere, a folder is none; a day before the first is told."""
    orders = watched.folder / "landing" / "orders"
    orders.mkdir(parents=True, exist_ok=True)
    os.mkfifo(orders / "2026-09-10.csv")
    (orders / "2026-09-11.csv").symlink_to("nowhere")
    (orders / "2026-09-12.csv").mkdir()
    watched.put(date(2026, 8, 1), rows_of(NEWEST, 1, 3))
    watched.put(NEWEST, rows_of(NEWEST, 1, 3))
    assert watched.asked() == ["2026-09-21"]
    watched.loaded(NEWEST)
    said = str(watched.tick().skip_message)
    assert all(repr(f"2026-09-{day}.csv") in said for day in (10, 11, 12))
    assert "there is no such run date (the first one is a setting): 2026-08-01" in said


def test_switched_on_it_catches_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C113: what lay there before is for a backfill, but for the newest day; what changes afterwards has come."""
    with dg.DagsterInstance.ephemeral() as instance:
        watched = Watched(tmp_path, instance)
        monkeypatch.setattr(sensors, "_now", lambda _: watched.now)
        for n, day in enumerate(DAYS):
            watched.put(day, rows_of(day, 10 * n + 1, 3))
        assert watched.asked() == ["2026-09-21"]
        watched.loaded(NEWEST)
        assert watched.asked() == []
        watched.put(DAYS[4], rows_of(DAYS[4], 1, 2))
        assert watched.asked() == ["2026-09-06"]
        for day in DAYS[6:9]:
            watched.put(day, rows_of(day, 1, 2))
        watched.loaded(DAYS[4])
        assert watched.asked() == ["2026-09-08..2026-09-10"]


Edit = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("edit", "asks"),
    [
        (lambda old: old, False),
        (lambda old: old.replace(b"\r\n", b"\n"), False),
        (lambda old: b"\xef\xbb\xbf" + old, False),
        (lambda old: old.replace(b"10.50", b"10.5"), False),
        (lambda old: old.replace(b"10.50", b"10.51"), True),
        (lambda old: old + b"99,C01,1.00,2026-09-05T10:00:00\r\n", True),
        (lambda old: old.replace(b"\r\n1,", b"\r\nx1,"), True),
        (lambda old: old + b"\xff\xfe\n", True),
    ],
    ids=["touched", "line ends", "mark", "zeros", "amount", "late", "bad key", "not UTF-8"],
)
def test_a_correction_and_nothing_else_is_asked_for(watched: Watched, edit: Edit, asks: bool) -> None:
    """E2: only the day that has other orders, and once: when it was refused, its good rows stay and nobody asks again."""
    for n, day in enumerate(DAYS[:10]):
        watched.put(day, rows_of(day, 10 * n + 1, 3))
        watched.loaded(day)
    assert watched.asked(corrections=True) == []
    path = watched.folder / "landing" / "orders" / "2026-09-01.csv"
    path.write_bytes(edit(path.read_bytes()))
    watched.age(path, 90)
    assert watched.asked(corrections=True) == (["2026-09-02"] if asks else [])
    assert watched.asked() == []
    watched.loaded(DAYS[0], ok=False)
    assert watched.asked(corrections=True) == watched.asked(corrections=True) == []
    # And taken back: what was loaded first is the content again.
    path.write_bytes(b"")
    watched.put(DAYS[0], rows_of(DAYS[0], 1, 3))
    assert watched.asked(corrections=True) == []


def test_a_file_that_came_after_its_run_had_failed_has_come(watched: Watched) -> None:
    """The schedule was too early, or the file was bad: mended, it is loaded without a person."""
    watched.loaded(NEWEST, ok=False)
    watched.put(NEWEST, rows_of(NEWEST, 1, 3), at_rest=False)
    watched.now += timedelta(minutes=2)
    assert watched.asked(corrections=True) == []
    assert watched.asked() == ["2026-09-21"]


def test_a_day_that_a_run_has_is_left_alone(watched: Watched) -> None:
    watched.put(NEWEST, rows_of(NEWEST, 1, 3))
    watched.instance.create_run_for_job(
        dg.Definitions(jobs=[_any_job()]).resolve_job_def("till_pipeline"),
        tags={"dagster/partition": "2026-09-21"},
        status=dg.DagsterRunStatus.STARTED,
    )
    result = watched.tick()
    assert not result.run_requests
    assert "left alone, for a run has them: 2026-09-20" in str(result.skip_message)


def _any_job() -> dg.JobDefinition:
    @dg.job(name="till_pipeline")
    def any_job() -> None:
        pass

    return any_job


def test_what_a_tick_has_no_time_for_the_next_one_does(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """C91: the work is split over ticks, and every day is found."""
    monkeypatch.setattr("shop_pipeline.core.watch.CHUNK_DAYS", 4)
    for n, day in enumerate(DAYS[:10]):
        watched.put(day, rows_of(day, 10 * n + 1, 3))
        watched.loaded(day)
        watched.put(day, rows_of(day, 10 * n + 1, 2))
    monkeypatch.setattr(sensors, "BUDGET", 0.0)
    result = watched.tick(corrections=True)
    assert not result.run_requests
    assert "10 days are looked at by the next tick" in str(result.skip_message)
    monkeypatch.setattr(sensors, "BUDGET", 20.0)
    assert watched.asked(corrections=True) == ["2026-09-02..2026-09-11"]


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path, watched: Watched) -> None:
    assert watched.tick().skip_message is not None
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "orders").write_text("a file")
    assert "cannot be listed" in str(watched.tick().skip_message)
