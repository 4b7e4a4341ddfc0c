"""The till's assets: orders_daily, and what is made of it."""

from collections.abc import Iterator
from datetime import date
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import Feed, daily_load, failing_in_a_sentence
from shop_pipeline.assets.day_events import DayOutcome, report, tried_again
from shop_pipeline.core import gold
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.resources import LakeResource, SparkResource

GROUP = "till"
OWNERS = ["team:shop"]


def till_feed(contract: Contract, partitions: dg.DailyPartitionsDefinition) -> Feed:
    """The till's files of a run date, loaded into orders_daily."""
    return Feed(contract, RUN_DATE, partitions, source="till_files")


def orders_daily(feed: Feed) -> dg.AssetsDefinition:
    """The till's orders as their files have them."""
    return daily_load(feed, group=GROUP, owners=OWNERS)


def daily_sales(feed: Feed) -> dg.AssetsDefinition:
    """A day's sales, of the feed's verified days."""
    upstream = feed.contract
    asset = dg.AssetKey(gold.TABLE)
    columns = [dg.TableColumn(name, kind) for name, kind in gold.COLUMNS]

    @dg.multi_asset(
        name=gold.TABLE,
        specs=[
            dg.AssetSpec(
                asset,
                deps=[feed.asset],
                description=f"{gold.DESCRIPTION} Made of verified days only; a partition is the run date of its day.",
                group_name=GROUP,
                owners=OWNERS,
                kinds={"spark", "deltalake"},
                metadata={
                    "dagster/column_schema": dg.TableSchema(columns=columns),
                    "dagster/table_name": gold.TABLE,
                },
            )
        ],
        partitions_def=feed.partitions,
        # Another policy than upstream's: the daemon then launches this asset for the good days by itself.
        backfill_policy=dg.BackfillPolicy.multi_run(366),
    )
    def make_sales(context: dg.AssetExecutionContext, spark: SparkResource, lake: LakeResource) -> Iterator[Any]:
        with tried_again(context), failing_in_a_sentence():
            yield from recompute(context, spark, lake)

    def recompute(context: dg.AssetExecutionContext, spark: SparkResource, lake: LakeResource) -> Iterator[Any]:
        keys = {RUN_DATE.day(key): key for key in context.partition_keys}
        readable = gold.readable_days(lake.lake(), upstream, list(keys))
        good = sorted(day for day in keys if readable[day].ok)
        written = None
        if good:
            written = gold.recompute_sales(lake.lake(), upstream, spark.session, good, context.run.run_id)
        outcomes = []
        for day, key in keys.items():
            each = readable[day]
            metadata = {
                "day": day.isoformat(),
                "run_date": key,
                "verdict": "made of a verified day" if each.ok else "not made",
                "dagster/uri": lake.lake().table_uri(gold.TABLE),
            }
            if written is not None and each.ok:
                metadata |= {"delta_version": written.version, "dagster/row_count": written.rows}
            outcomes.append(DayOutcome(key, each.ok, _sentence(upstream, day, key, each), metadata))
        yield from report(context, asset, outcomes, materialize=True, subject="run dates")

    return make_sales


def _sentence(upstream: Contract, day: date, key: str, readable: gold.Readable) -> str:
    table = upstream.sql_name
    if readable.ok:
        return f"{day}: made of version {readable.verdict.version} of {table}"
    then = f"then run {gold.TABLE} for run date {key}."
    if readable.drift is not None and readable.verdict.verified:
        return (
            f"{readable.drift}\n{day} was not made: the columns of {table} are not those of {upstream.origin}. Add a new column to "
            f"the contract (or set newColumns to ignore), reload run date {key} of {table}, {then}"
        )
    return (
        f"{day} was not made: {table} is not verified for it ({readable.verdict.problem}). Load run date {key} of {table}, {then}"
    )
