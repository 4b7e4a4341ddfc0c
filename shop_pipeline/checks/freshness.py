"""The check that a feed is on time."""

from datetime import date, datetime, tzinfo
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import Feed
from shop_pipeline.core import freshness
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.ledger import present_verdicts
from shop_pipeline.resources import ClockResource, LakeResource

FRESHNESS = "freshness"


def freshness_check(feed: Feed, zone: tzinfo) -> dg.AssetChecksDefinition:
    """The check that the newest due day of a feed is loaded.

    It belongs to the feed and not to a partition: what is run, an old day or a new one, does not change its answer.
    """
    hours = hours_of(feed)

    @dg.asset_check(
        asset=feed.asset,
        name=FRESHNESS,
        description=f"The newest due day is loaded: within {hours:g} hours of its end. Loading an older day changes nothing.",
        blocking=False,
    )
    def fresh(context: dg.AssetCheckExecutionContext, lake: LakeResource, clock: ClockResource) -> dg.AssetCheckResult:
        found, day = look(lake.lake(), feed, clock.now(), zone)
        due = None if day is None else freshness.deadline(day, hours, zone)
        metadata: dict[str, Any] = {"status": found.status}
        if day is not None and due is not None:
            metadata |= {"newest_due_day": day.isoformat(), "due": due.isoformat()}
        return dg.AssetCheckResult(
            passed=found.fresh, severity=dg.AssetCheckSeverity.WARN, description=found.sentence, metadata=metadata
        )

    return fresh


def look(lake: Lake, feed: Feed, now: datetime, zone: tzinfo) -> tuple[freshness.Freshness, date | None]:
    """Whether a feed is on time, and the newest day that is due (None: no day is)."""
    hours, first = hours_of(feed), first_day(feed)
    day = freshness.newest_due(first, now, hours, zone)
    verdict, due, key_text = None, None, ""
    if day is not None:
        verdict = present_verdicts(lake, feed.contract.table, [day])[day]
        due, key_text = freshness.deadline(day, hours, zone), f"{feed.rule.key_name} {feed.rule.key(day)}"
    return freshness.judge(day, key_text, verdict, now, due), day


def hours_of(feed: Feed) -> float:
    """Within how many hours of its end a day is to be loaded.

    Raises:
        ValueError: the contract promises nothing.
    """
    hours = feed.contract.fresh_within_hours
    if hours is None:
        raise ValueError(f"{feed.contract.origin} promises no latency")
    return hours


def first_day(feed: Feed) -> date:
    """The day of a feed's first partition."""
    return feed.rule.day(feed.partitions.start.date().isoformat())
