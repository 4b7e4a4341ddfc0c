"""Everything that Dagster knows of this project. Explicit lists, no logic."""

import warnings
from datetime import datetime

import dagster as dg

from shop_pipeline.assets import till
from shop_pipeline.assets.daily_load import quarantine_asset, recheck_job
from shop_pipeline.assets.ledger import run_log
from shop_pipeline.automation.maintenance import maintain_tables, maintenance_schedule
from shop_pipeline.checks.freshness import freshness_check
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import ClockResource, LakeResource, TillFilesResource, of_a_run, spark_resource
from shop_pipeline.settings import load_settings

# Meant so: with a policy of its own the daemon launches a downstream asset for the good days alone.
warnings.filterwarnings("ignore", message=".*varying BackfillPolicies.*")

settings = load_settings()

till_contract = load_contract("orders_daily", settings.contracts)
till_feed = till.till_feed(till_contract, run_dates(settings.first_run_date, datetime.now(settings.zone).date()))
orders_daily = till.orders_daily(till_feed)
silver_orders = till.silver_orders(till_feed)
daily_sales = till.daily_sales(till_feed)
recheck_days = recheck_job("recheck_days", till_feed)

spark = spark_resource(settings.spark_master, settings.spark_remote, settings.spark_memory)
lake = LakeResource(uri=settings.lake)
till_files = TillFilesResource(landing=str(settings.landing))
resources = of_a_run(spark, lake, till_files, ClockResource())

defs = dg.Definitions(
    assets=[
        orders_daily,
        quarantine_asset(till_feed, till.GROUP, till.OWNERS),
        silver_orders,
        daily_sales,
        *till.tables_beside(till_feed),
        run_log(till_feed.asset, till.GROUP, till.OWNERS),
    ],
    asset_checks=[freshness_check(till_feed, settings.zone)],
    jobs=[recheck_days, maintain_tables],
    schedules=[maintenance_schedule(settings.timezone)],
    resources=resources,
    # A run's steps share one Spark session.
    executor=dg.in_process_executor,
)
