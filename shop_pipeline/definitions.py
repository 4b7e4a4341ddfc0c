"""Everything that Dagster knows of this project. Explicit lists, no logic."""

from datetime import datetime

import dagster as dg

from shop_pipeline.assets.ledger import run_log
from shop_pipeline.assets.till import GROUP, OWNERS, till_assets
from shop_pipeline.automation.jobs import recheck_days
from shop_pipeline.resources import ClockResource, LakeResource, TillFilesResource, spark_resource
from shop_pipeline.settings import load_settings

settings = load_settings()

orders_daily, daily_sales = till_assets(settings.first_run_date, datetime.now(settings.zone).date())

resources = {
    "spark": spark_resource(settings.spark_master, settings.spark_remote, settings.spark_memory),
    "lake": LakeResource(uri=settings.lake),
    "till_files": TillFilesResource(landing=str(settings.landing)),
    "clock": ClockResource(),
}

defs = dg.Definitions(
    assets=[orders_daily, daily_sales, run_log(orders_daily.key, GROUP, OWNERS)],
    jobs=[recheck_days(orders_daily.key, orders_daily.partitions_def)],
    resources=resources,
    # A run's steps share one Spark session.
    executor=dg.in_process_executor,
)
