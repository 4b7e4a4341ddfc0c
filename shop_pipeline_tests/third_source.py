"""What a third source takes: a contract, and this. The returns that the web shop takes in, a table of the same database."""

from datetime import UTC, date

import dagster as dg

from shop_pipeline.assets.daily_load import Feed, daily_load, quarantine_asset, recheck_job
from shop_pipeline.automation.pipelines import Pipeline
from shop_pipeline.automation.schedules import daily_job, daily_schedule
from shop_pipeline.checks.freshness import freshness_check
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import BUSINESS_DATE
from shop_pipeline.core.plan import Figures
from shop_pipeline.partitions import business_dates
from shop_pipeline.resources import ShopflowResource

GROUP, OWNERS = "returns", ["team:shop"]


def returns_pipeline(contract: Contract, database: ShopflowResource, today: date) -> tuple[Pipeline, dg.Definitions]:
    """The pipeline of the returns, and what Dagster is told of it."""
    feed = Feed(contract, BUSINESS_DATE, business_dates(date(2024, 1, 1), today), source="shopflow")
    returns, recheck = daily_load(feed, group=GROUP, owners=OWNERS), recheck_job("recheck_returns", feed)
    job = daily_job("returns", feed, [returns])
    told = dg.Definitions(
        assets=[returns, quarantine_asset(feed, GROUP, OWNERS)],
        asset_checks=[freshness_check(feed, UTC)],
        jobs=[job, recheck],
        schedules=[daily_schedule("returns_daily", job, feed, hour=7, timezone="UTC")],
        executor=dg.in_process_executor,
    )
    figures = Figures(contract.table, {"returns": "count(*)"})
    return Pipeline(feed, returns, (), recheck, database, "SHOPFLOW_FIRST_DAY", "returns_pipeline", figures), told
