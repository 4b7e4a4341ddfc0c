"""Everything that Dagster knows of this project. Explicit lists, no logic."""

import warnings
from datetime import datetime

import dagster as dg

from shop_pipeline.assets import shopflow, till
from shop_pipeline.assets.daily_load import quarantine_asset, recheck_job
from shop_pipeline.assets.ledger import run_log
from shop_pipeline.automation.alerts import alerts
from shop_pipeline.automation.maintenance import maintain_tables, maintenance_schedule
from shop_pipeline.automation.pipelines import Pipeline
from shop_pipeline.automation.schedules import daily_job, daily_schedule, feed_checks_job, feed_checks_schedule
from shop_pipeline.automation.sensors import database_radar, till_file_sensor
from shop_pipeline.checks.freshness import freshness_check
from shop_pipeline.checks.missing import missing_check
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.partitions import business_dates, run_dates
from shop_pipeline.resources import ClockResource, LakeResource, ShopflowResource, TillFilesResource, of_a_run, spark_resource
from shop_pipeline.settings import load_settings

# Meant so: with a policy of its own the daemon launches a downstream asset for the good days alone.
warnings.filterwarnings("ignore", message=".*varying BackfillPolicies.*")

settings = load_settings()

today = datetime.now(settings.zone).date()
till_contract = load_contract("orders_daily", settings.contracts)
till_feed = till.till_feed(till_contract, run_dates(settings.first_run_date, today, settings.timezone))
orders_daily = till.orders_daily(till_feed)
silver_orders = till.silver_orders(till_feed)
daily_sales = till.daily_sales(till_feed)
recheck_days = recheck_job("recheck_days", till_feed)
till_pipeline = daily_job("till", till_feed, [orders_daily, silver_orders, daily_sales])

shopflow_contract = load_contract("shopflow_orders", settings.contracts)
shopflow_feed = shopflow.shopflow_feed(
    shopflow_contract, business_dates(settings.shopflow_first_day, today), settings.shopflow_retry_seconds
)
shopflow_orders = shopflow.orders_daily(shopflow_feed)
orders_per_day = shopflow.orders_per_day(shopflow_feed)
recheck_shopflow_days = recheck_job("recheck_shopflow_days", shopflow_feed)
shopflow_pipeline = daily_job("shopflow", shopflow_feed, [shopflow_orders, orders_per_day])

check_feeds = feed_checks_job([till_feed, shopflow_feed])

spark = spark_resource(
    settings.spark_master,
    settings.spark_remote,
    settings.spark_memory,
    server_folder=settings.spark_server,
    fallback=settings.spark_fallback,
)
lake = LakeResource(uri=settings.lake)
till_files = TillFilesResource(landing=str(settings.landing))
shopflow_database = ShopflowResource.at(settings.database)
resources = of_a_run(spark, lake, till_files, ClockResource(), shopflow_database)

pipelines = {
    "till": Pipeline(
        till_feed,
        orders_daily,
        (silver_orders, daily_sales),
        recheck_days,
        till_files,
        "SHOP_FIRST_RUN_DATE",
        till_pipeline.name,
        till.FIGURES,
    ),
    "shopflow": Pipeline(
        shopflow_feed,
        shopflow_orders,
        (orders_per_day,),
        recheck_shopflow_days,
        shopflow_database,
        "SHOPFLOW_FIRST_DAY",
        shopflow_pipeline.name,
        shopflow.FIGURES,
    ),
}

defs = dg.Definitions(
    assets=[
        orders_daily,
        quarantine_asset(till_feed, till.GROUP, till.OWNERS),
        silver_orders,
        daily_sales,
        *till.tables_beside(till_feed),
        shopflow_orders,
        quarantine_asset(shopflow_feed, shopflow.GROUP, shopflow.OWNERS),
        orders_per_day,
        run_log([till_feed.asset, shopflow_feed.asset], till.GROUP, till.OWNERS),
    ],
    asset_checks=[
        freshness_check(till_feed, settings.zone),
        missing_check(till_feed, "till", settings.zone),
        freshness_check(shopflow_feed, settings.zone),
        missing_check(shopflow_feed, "shopflow", settings.zone),
    ],
    jobs=[till_pipeline, shopflow_pipeline, recheck_days, recheck_shopflow_days, check_feeds, maintain_tables],
    schedules=[
        daily_schedule("till_daily", till_pipeline, till_feed, hour=2, timezone=settings.timezone),
        daily_schedule("shopflow_daily", shopflow_pipeline, shopflow_feed, hour=6, timezone="UTC"),
        feed_checks_schedule(check_feeds),
        maintenance_schedule(settings.timezone),
    ],
    sensors=[
        till_file_sensor(till_pipeline, till_feed, settings.zone),
        till_file_sensor(till_pipeline, till_feed, settings.zone, name="till_correction_radar", corrections=True),
        database_radar(shopflow_pipeline, shopflow_feed, name="shopflow_correction_radar"),
        alerts(
            pipelines,
            [url.get_secret_value() for url in settings.alert_urls],
            {"till": ", ".join(till.OWNERS), "shopflow": ", ".join(shopflow.OWNERS)},
            settings.zone,
        ),
    ],
    resources=resources,
    # A run's steps share one Spark session.
    executor=dg.in_process_executor,
)
