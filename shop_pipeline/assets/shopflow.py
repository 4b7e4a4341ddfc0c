"""The web shop's assets: its orders, and how many there are a day. The partition key is the business date itself."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import Feed, daily_load
from shop_pipeline.assets.day_events import DayOutcome
from shop_pipeline.assets.made import Made, Result, about
from shop_pipeline.core import per_day
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import BUSINESS_DATE
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.plan import Figures
from shop_pipeline.resources import ClockResource, SparkResource

GROUP = "shopflow"
FIGURES = Figures(
    per_day.TABLE,
    {"orders": "count(*)", "delivered": f"count(*) FILTER (WHERE status = '{per_day.DELIVERED}')"},
)
OWNERS = ["team:shop"]
_COLUMNS = {
    "order_date": "The business day.",
    "orders": "How many orders were placed on it.",
    "delivered": "How many of them are delivered, as far as the database knew when the day was loaded.",
    "data_as_of": "When the figures were made.",
}


def shopflow_feed(contract: Contract, partitions: dg.DailyPartitionsDefinition, retry_seconds: float | None = None) -> Feed:
    """The database's orders of a business date, loaded into shopflow/orders_daily."""
    return Feed(contract, BUSINESS_DATE, partitions, source="shopflow", retry_seconds=retry_seconds)


def orders_daily(feed: Feed) -> dg.AssetsDefinition:
    """The web shop's orders as its database has them."""
    return daily_load(feed, group=GROUP, owners=OWNERS)


def orders_per_day(feed: Feed) -> dg.AssetsDefinition:
    """How many orders a day, of the feed's verified days."""

    def make(spark: SparkResource, lake: Lake, clock: ClockResource, keys: Sequence[str], run_id: str) -> Result:
        made = per_day.PerDay(lake, feed.contract, feed.rule).recompute(spark.session, keys, run_id=run_id, clock=clock.now)
        return [_outcome(lake, feed, day) for day in made], []

    return Made(
        feed,
        per_day.TABLE,
        feed.asset,
        f"{per_day.DESCRIPTION} Made of verified days only; a partition is the business date.",
        [dg.TableColumn(name, kind, _COLUMNS[name]) for name, kind in per_day.COLUMNS],
        lineage={"order_date": ["order_date"], "orders": [feed.contract.key], "delivered": ["status"]},
        checks={},
        of_table=[],
        days_per_run=366,
        group=GROUP,
        owners=OWNERS,
    ).by(make)


def _outcome(lake: Lake, feed: Feed, day: per_day.CountedDay) -> DayOutcome:
    verdict = "made of a verified day" if day.ok else "not made"
    metadata: dict[str, Any] = about(lake, per_day.TABLE, feed.rule, day.key, day.day, verdict)
    if day.version is not None:
        orders, delivered = day.counts or (0, 0)
        metadata |= {
            "orders": orders,
            "delivered": delivered,
            "delta_version": day.version,
            "commit_retries": day.retries,
            "dagster/row_count": day.rows,
        }
    return DayOutcome(day.key, day.ok, day.sentence, metadata, day.retriable)
