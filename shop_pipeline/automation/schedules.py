"""The schedules: once a day, a feed's newest day that is over, and before it those that its source may still change."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import dagster as dg

from shop_pipeline.assets.daily_load import Feed
from shop_pipeline.automation.local_runs import RANGE_END, RANGE_START
from shop_pipeline.checks.freshness import FRESHNESS
from shop_pipeline.checks.missing import MISSING
from shop_pipeline.core.days import ONE_DAY
from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.sources import Source

if TYPE_CHECKING:
    # What define_asset_job returns; it has no public name.
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

# Runs of one source wait for each other: dagster.yaml lets one with each value of this tag run at a time.
SOURCE = "shop/source"


def daily_job(source: str, feed: Feed, assets: Sequence[dg.AssetsDefinition]) -> "UnresolvedAssetJobDefinition":
    """The job `<source>_pipeline`: loads a feed's days and makes everything that is made of them."""
    return dg.define_asset_job(
        f"{source}_pipeline",
        selection=dg.AssetSelection.assets(*(key for asset in assets for key in asset.keys)),
        tags={SOURCE: source},
        description=(
            f"Loads the day of a {feed.rule.key_name} into {feed.contract.table} and makes what is made of it: "
            f"{', '.join(key.to_user_string() for asset in assets[1:] for key in asset.keys)}."
        ),
    )


def feed_checks_job(feeds: Sequence[Feed]) -> "UnresolvedAssetJobDefinition":
    """The job `check_feeds`: is each feed on time, and which of its days are missing. Loads nothing and needs no Java."""
    checks = [dg.AssetCheckKey(feed.asset, name) for feed in feeds for name in (FRESHNESS, MISSING)]
    return dg.define_asset_job(
        "check_feeds",
        selection=dg.AssetSelection.checks(*checks),
        description="Whether each feed is on time, and which of its days are missing. Loads nothing.",
    )


def feed_checks_schedule(job: "UnresolvedAssetJobDefinition") -> dg.ScheduleDefinition:
    """Every three hours, so that what a scheduler missed that was down is listed within hours of its coming back. Ships stopped."""
    return dg.ScheduleDefinition(
        name="check_feeds_every_3_hours",
        job=job,
        cron_schedule="15 */3 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Every three hours: check_feeds.",
    )


def daily_schedule(
    name: str, job: "UnresolvedAssetJobDefinition", feed: Feed, *, hour: int, timezone: str
) -> dg.ScheduleDefinition:
    """Every day at `hour` in `timezone`: the day before, and the contract's `lookback` days before that, as one run.

    Ships stopped. Switched on, it asks for the days of its own ticks; nothing is caught up. Where the newest day has no source
    yet there is nothing to run: that is told by the freshness of the feed, and not by a run that fails every night.
    """
    lookback, rule = feed.contract.lookback, feed.rule
    again = f", and again the {lookback} days before it, which its source may still change" if lookback else ""

    @dg.schedule(
        name=name,
        job=job,
        cron_schedule=f"0 {hour} * * *",
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        required_resource_keys={feed.source},
        description=f"Daily at {hour:02d}:00 ({timezone}): the day that is over{again}. A key is a {rule.key_name}.",
    )
    def at_the_hour(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        newest = context.scheduled_execution_time.astimezone(ZoneInfo(timezone)).date() - ONE_DAY
        keys = daily_keys(feed, newest)
        if not keys:
            return dg.SkipReason(f"{newest} ({rule.key_name} {rule.key(newest)}) lies before the first {rule.key_name}.")
        try:
            source: Source = getattr(context.resources, feed.source).source(feed.contract)
        except ShopError as problem:
            # It is not set where the source is.
            return dg.SkipReason(str(problem))
        if newest in source.missing([newest]):
            return dg.SkipReason(
                f"{newest} ({rule.key_name} {rule.key(newest)}) has no source yet: a sensor loads it when it comes, or "
                f"`shop backfill {rule.key(newest)} {rule.key(newest)}`"
            )
        if len(keys) == 1:
            return dg.RunRequest(partition_key=keys[0])
        return dg.RunRequest(tags={RANGE_START: keys[0], RANGE_END: keys[-1]})

    return at_the_hour


def daily_keys(feed: Feed, newest: date) -> list[str]:
    """The keys of a day and of the lookback before it, oldest first, as far as the feed goes back."""
    first = feed.partitions.start.date().isoformat()
    keys = [feed.rule.key(newest - n * ONE_DAY) for n in range(feed.contract.lookback, -1, -1)]
    return [key for key in keys if key >= first]
