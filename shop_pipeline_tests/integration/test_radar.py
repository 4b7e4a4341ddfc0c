"""The radar over the web shop's database, by Dagster's own evaluation of a tick: row E2, cases C138, C139. No JVM."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest

from shop_pipeline.assets.shopflow import orders_daily, shopflow_feed
from shop_pipeline.automation.schedules import daily_job
from shop_pipeline.automation.sensors import database_radar
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import FAILED, LOAD, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.postgres import Address
from shop_pipeline.core.sources.shopflow_postgres import ShopflowPostgres
from shop_pipeline.partitions import business_dates
from shop_pipeline.resources import ClockResource, LakeResource, ShopflowResource, SparkResource, TillFilesResource, of_a_run
from shop_pipeline_tests.integration.conftest import Run

CONTRACT = load_contract("shopflow_orders")
FEED = shopflow_feed(CONTRACT, business_dates(date(2024, 1, 1), date(2024, 6, 1)))
ORDERS = orders_daily(FEED)
JOB = daily_job("shopflow", FEED, [ORDERS])
RADAR = database_radar(JOB, FEED, name="shopflow_correction_radar")
OLD, RECENT = date(2024, 1, 2), date(2024, 2, 9)


class Standing(ClockResource):
    """A clock that a test moves."""

    at: str

    def now(self) -> datetime:
        return datetime.fromisoformat(self.at)


@dataclass
class Radar:
    """The radar over a database, whose days are noted as loaded."""

    lake: Lake
    url: str
    instance: dg.DagsterInstance
    now: datetime = datetime(2024, 2, 11, 10, tzinfo=UTC)
    cursor: str | None = None
    attempts: int = 0
    said: str = field(default="")

    def loaded(self, *days: date, ok: bool = True) -> None:
        """As if these days had been loaded as they are now, or refused."""
        contents = ShopflowPostgres(Address.of(self.url), CONTRACT).fingerprints(days)
        table = self.lake.open(CONTRACT.table)
        assert table is not None
        self.attempts += 1
        entries = []
        for day in days:
            values = (50, self.now, SUCCEEDED if ok else FAILED, day, day, "rows" if ok else None, 0, None if ok else "refused")
            end = (self.attempts if ok else None, 1.0, LOAD, f"a{self.attempts}", table_id(table))
            entry = Entry("run", self.now, CONTRACT.sql_name, *values, *end, source_fingerprint=contents[day])
            entries.append(entry)
        Ledger(self.lake).append(entries)

    def asked(self, minutes: float = 1) -> list[str]:
        """The business dates that a tick asks for."""
        self.now += timedelta(minutes=minutes)
        resources = of_a_run(
            SparkResource(spark_config={}),
            LakeResource(uri=self.lake.uri),
            TillFilesResource(landing="landing"),
            Standing(at=self.now.isoformat()),
            ShopflowResource.at(self.url),
        )
        defs = dg.Definitions(assets=[ORDERS], jobs=[JOB], sensors=[RADAR], resources=resources)
        context = dg.build_sensor_context(instance=self.instance, definitions=defs, resources=resources, cursor=self.cursor)
        result = RADAR.evaluate_tick(context)
        self.cursor, self.said = result.cursor, str(result.skip_message)
        return [each.partition_key or "a range" for each in result.run_requests or []]


@pytest.fixture
def radar(tmp_path: object, url: str) -> Iterator[Radar]:
    lake = Lake(f"{tmp_path}/lake")
    lake.create(CONTRACT.table, CONTRACT.table_columns, "the test's")
    with dg.DagsterInstance.ephemeral() as instance:
        made = Radar(lake, url, instance)
        made.loaded(OLD, RECENT)
        assert made.asked() == []
        yield made


def change(run: Run, day: date, what: str = "status = 'lost'") -> None:
    run(f"UPDATE orders SET {what} WHERE order_id = (SELECT min(order_id) FROM orders WHERE order_ts::date = '{day}')")


def test_a_change_in_the_lookback_is_found_at_once_and_an_older_one_within_the_hour(radar: Radar, run: Run) -> None:
    """C139: no modified_at says so; only the days that differ, and only once."""
    change(run, RECENT)
    change(run, OLD)
    assert radar.asked() == ["2024-02-09"]
    radar.loaded(RECENT)
    assert radar.asked() == []
    assert radar.asked(minutes=60) == ["2024-01-02"]
    radar.loaded(OLD)
    assert radar.asked(minutes=61) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE orders SET status = status WHERE order_ts::date = '2024-02-09'",
        "ALTER TABLE orders ADD note text",
        "ALTER TABLE orders ALTER order_ts TYPE timestamptz USING order_ts AT TIME ZONE 'UTC'",
        "CLUSTER orders USING orders_pkey",
        "DELETE FROM orders WHERE order_ts::date = '2024-02-03'",
    ],
)
def test_what_changes_no_order_of_a_loaded_day_causes_nothing(radar: Radar, run: Run, statement: str) -> None:
    """Rows written again as they were, a column that is empty, another type of the same times, another order; another day."""
    run(statement)
    assert radar.asked() == []
    assert radar.asked(minutes=61) == []


@pytest.mark.parametrize("statement", ["DELETE FROM orders WHERE order_ts::date = '2024-02-09'", "UPDATE orders SET note = 'gift'"])
def test_deleted_rows_and_filled_columns_are_changes(radar: Radar, run: Run, statement: str) -> None:
    """C138: and a change that is refused is not asked for again."""
    run("ALTER TABLE orders ADD note text")
    run(statement)
    assert radar.asked() == ["2024-02-09"]
    radar.loaded(RECENT, ok=False)
    assert radar.asked() == []


def test_a_database_that_is_away_is_a_sentence(radar: Radar) -> None:
    cursor = radar.cursor
    radar.url = "postgresql://app:s3cret@127.0.0.1:1/shopflow"
    assert radar.asked() == []
    assert "Postgres at 127.0.0.1:1, database shopflow cannot be read" in radar.said
    assert "s3cret" not in radar.said
    assert radar.cursor == cursor
