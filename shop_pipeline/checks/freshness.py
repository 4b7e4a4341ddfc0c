"""The check that a feed is on time."""

from datetime import tzinfo
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import Feed
from shop_pipeline.core import freshness
from shop_pipeline.core.lake import table_id
from shop_pipeline.core.ledger import Ledger
from shop_pipeline.resources import ClockResource, LakeResource

FRESHNESS = "freshness"


def freshness_check(feed: Feed, zone: tzinfo) -> dg.AssetChecksDefinition:
    """The check that the newest due day of a feed is loaded.

    It belongs to the feed and not to a partition: what is run, an old day or a new one, does not change its answer.
    """
    hours = feed.contract.fresh_within_hours
    if hours is None:
        raise ValueError(f"{feed.contract.origin} promises no latency")
    limit = hours

    @dg.asset_check(
        asset=feed.asset,
        name=FRESHNESS,
        description=f"The newest due day is loaded: within {hours:g} hours of its end. Loading an older day changes nothing.",
        blocking=False,
    )
    def fresh(context: dg.AssetCheckExecutionContext, lake: LakeResource, clock: ClockResource) -> dg.AssetCheckResult:
        now = clock.now()
        first = feed.rule.day(feed.partitions.start.date().isoformat())
        day = freshness.newest_due(first, now, limit, zone)
        verdict, due, key_text = None, None, ""
        if day is not None:
            table = lake.lake().open(feed.contract.table)
            identity = None if table is None else table_id(table)
            verdict = Ledger(lake.lake()).verdicts(feed.contract.sql_name, [day], identity)[day]
            due, key_text = freshness.deadline(day, limit, zone), f"{feed.rule.key_name} {feed.rule.key(day)}"
        found = freshness.judge(day, key_text, verdict, now, due)
        metadata: dict[str, Any] = {"status": found.status}
        if day is not None and due is not None:
            metadata |= {"newest_due_day": day.isoformat(), "due": due.isoformat()}
        return dg.AssetCheckResult(
            passed=found.fresh, severity=dg.AssetCheckSeverity.WARN, description=found.sentence, metadata=metadata
        )

    return fresh
