"""The daily schedules, by Dagster's own evaluation of a tick: rows B9, C6, D12."""

from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
import time_machine
from dagster._utils.schedules import schedule_execution_time_iterator

from shop_pipeline.assets.shopflow import shopflow_feed
from shop_pipeline.assets.till import till_feed
from shop_pipeline.automation.schedules import SOURCE, daily_job, daily_keys, daily_schedule
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import ONE_DAY
from shop_pipeline.partitions import business_dates, run_dates
from shop_pipeline.resources import ShopflowResource, TillFilesResource
from shop_pipeline_tests.builders import write_day
from shop_pipeline_tests.conftest import RANGE

TILL, SHOPFLOW = load_contract("orders_daily"), load_contract("shopflow_orders")


def tick(name: str, at: datetime, landing: Path) -> dg.RunRequest | str:
    """What a shipped schedule asks for at a time, or why it asks for nothing."""
    from shop_pipeline.definitions import defs

    schedule = defs.resolve_schedule_def(name)
    with time_machine.travel(at, tick=False), dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=at,
            repository_def=defs.get_repository_def(),
            resources={
                "till_files": TillFilesResource(landing=str(landing)),
                "shopflow": dg.ResourceDefinition.hardcoded_resource(ShopflowResource.at("postgresql://app@127.0.0.1:1/shopflow")),
            },
        )
        data = schedule.evaluate_tick(context)
    requests = list(data.run_requests or [])
    assert len(requests) <= 1
    return requests[0] if requests else str(data.skip_message)


def test_the_web_shop_runs_the_day_that_is_over_and_its_lookback_as_one_run(tmp_path: Path) -> None:
    """C6, D12: at 06:00 on D the finished day D-1 and, as the contract says, the three days before it."""
    request = tick("shopflow_daily", datetime(2024, 3, 15, 6, tzinfo=UTC), tmp_path)
    assert isinstance(request, dg.RunRequest)
    assert [request.tags[name] for name in RANGE] == ["2024-03-11", "2024-03-14"]
    assert request.partition_key is None
    assert SHOPFLOW.lookback == 3


@pytest.mark.parametrize("source", ["till", "shopflow"])
def test_the_daily_runs_of_one_source_are_marked_as_such(source: str) -> None:
    """C6: by the tag of which dagster.yaml lets one run at a time."""
    from shop_pipeline.definitions import defs

    assert defs.resolve_job_def(f"{source}_pipeline").tags[SOURCE] == source


def test_the_till_runs_its_run_date(tmp_path: Path) -> None:
    """At 02:00 on D the run date D, which loads D-1; nothing is loaded twice, for the till's files are complete."""
    write_day(tmp_path, date(2026, 9, 15), "order_id")
    request = tick("till_daily", datetime(2026, 9, 16, 2, tzinfo=UTC), tmp_path)
    assert isinstance(request, dg.RunRequest)
    assert request.partition_key == "2026-09-16"


def test_a_day_without_a_file_fails_no_run(tmp_path: Path) -> None:
    """A clone with the sample alone would have a failed run every night."""
    said = tick("till_daily", datetime(2026, 9, 16, 2, tzinfo=UTC), tmp_path)
    assert "2026-09-15 (run date 2026-09-16) has no source yet" in str(said)


@pytest.mark.parametrize(
    ("newest", "keys"),
    [
        (date(2023, 12, 31), []),
        (date(2024, 1, 1), ["2024-01-01"]),
        (date(2024, 1, 3), ["2024-01-01", "2024-01-02", "2024-01-03"]),
        (date(2024, 3, 1), ["2024-02-27", "2024-02-28", "2024-02-29", "2024-03-01"]),
    ],
)
def test_the_lookback_does_not_reach_behind_the_first_day(newest: date, keys: list[str]) -> None:
    feed = shopflow_feed(SHOPFLOW, business_dates(date(2024, 1, 1), newest))
    assert daily_keys(feed, newest) == keys


@pytest.mark.parametrize(
    ("zone", "at", "key"),
    [
        ("Europe/Berlin", "2026-03-29T03:00:00+02:00", "2026-03-29"),  # 02:00 does not exist on that day
        ("Europe/Berlin", "2026-10-25T02:00:00+01:00", "2026-10-25"),  # and comes twice on this one
        ("Europe/Berlin", "2026-10-26T02:00:00+01:00", "2026-10-26"),
        ("America/Los_Angeles", "2026-11-01T02:00:00-08:00", "2026-11-01"),
        ("America/Los_Angeles", "2026-03-08T03:00:00-07:00", "2026-03-08"),
        ("Pacific/Auckland", "2026-09-16T02:00:00+12:00", "2026-09-16"),
        ("Pacific/Kiritimati", "2026-09-16T02:00:00+14:00", "2026-09-16"),
    ],
)
def test_each_local_day_has_one_tick_which_asks_for_it(zone: str, at: str, key: str) -> None:
    """Both changes of the clocks, and zones that are a day ahead of UTC: Dagster's own times, and a key that exists then."""
    moment = datetime.fromisoformat(at)
    feed = till_feed(TILL, run_dates(date(2026, 2, 1), date(2027, 1, 1), zone))
    schedule = daily_schedule("daily", daily_job("till", feed, []), feed, hour=2, timezone=zone)
    start = datetime.combine(moment.date(), datetime.min.time(), ZoneInfo(zone))
    times = schedule_execution_time_iterator(start.timestamp(), schedule.cron_schedule, schedule.execution_timezone)
    first, second = next(times), next(times)
    assert (first.timestamp(), second.date()) == (moment.timestamp(), first.date() + ONE_DAY)
    with time_machine.travel(moment, tick=False):
        assert daily_keys(feed, moment.astimezone(ZoneInfo(zone)).date() - ONE_DAY) == [key]
        assert feed.partitions.has_partition_key(key)
