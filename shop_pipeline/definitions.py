"""Everything that Dagster knows of this project. Explicit lists, no logic."""

import warnings
from datetime import datetime

import dagster as dg

from shop_pipeline.assets.ledger import run_log
from shop_pipeline.assets.till import GROUP, OWNERS, till_assets
from shop_pipeline.automation.jobs import recheck_days
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import ClockResource, LakeResource, TillFilesResource, spark_resource
from shop_pipeline.settings import load_settings

# Meant so: with a policy of its own the daemon launches a downstream asset for the good days alone.
warnings.filterwarnings("ignore", message=".*varying BackfillPolicies.*")

settings = load_settings()

till_run_dates = run_dates(settings.first_run_date, datetime.now(settings.zone).date())
orders_daily, daily_sales = till_assets(till_run_dates)

spark = spark_resource(settings.spark_master, settings.spark_remote, settings.spark_memory)
lake = LakeResource(uri=settings.lake)
resources = {
    "spark": spark,
    "lake": lake,
    "till_files": TillFilesResource(landing=str(settings.landing)),
    "clock": ClockResource(),
}

defs = dg.Definitions(
    assets=[orders_daily, daily_sales, run_log(orders_daily.key, GROUP, OWNERS)],
    jobs=[recheck_days(orders_daily.key, till_run_dates)],
    resources=resources,
    # A run's steps share one Spark session.
    executor=dg.in_process_executor,
)
