"""The check that no due day of a feed is missing: one line for all that are, whether the scheduler was down or they never came."""

from datetime import tzinfo
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import Feed
from shop_pipeline.checks.freshness import first_day, hours_of
from shop_pipeline.core import freshness
from shop_pipeline.core.days import contiguous_ranges
from shop_pipeline.core.ledger import present_verdicts
from shop_pipeline.core.reprocess import backfill_command
from shop_pipeline.resources import ClockResource, LakeResource

MISSING = "no_day_missing"
SHOWN = 5


def missing_check(feed: Feed, source: str, zone: tzinfo) -> dg.AssetChecksDefinition:
    """The check that every due day of a feed is loaded. It belongs to the feed, as freshness does."""

    @dg.asset_check(
        asset=feed.asset,
        name=MISSING,
        description="Every day that is due is loaded and verified; those that are not are listed, with the command that runs them.",
        blocking=False,
    )
    def complete(lake: LakeResource, clock: ClockResource) -> dg.AssetCheckResult:
        days = freshness.due_days(first_day(feed), clock.now(), hours_of(feed), zone)
        missing = [day for day, each in present_verdicts(lake.lake(), feed.contract.table, days).items() if not each.verified]
        sentence = f"all {len(days)} days that are due are loaded"
        metadata: dict[str, Any] = {"due": len(days), "missing": len(missing)}
        if missing:
            ranges = contiguous_ranges(missing)
            shown = ", ".join(f"{first} to {last}" if first != last else str(first) for first, last in ranges[:SHOWN])
            more = f" and {len(ranges) - SHOWN} more ranges" if len(ranges) > SHOWN else ""
            first, last = feed.rule.key(ranges[0][0]), feed.rule.key(ranges[-1][1])
            command = backfill_command(source, first, last, "--reprocess failed")
            sentence = (
                f"{len(missing)} of {len(days)} days that are due are not loaded: {shown}{more}. Run them in order: {command}"
            )
            metadata["next"] = command
        return dg.AssetCheckResult(passed=not missing, severity=dg.AssetCheckSeverity.WARN, description=sentence, metadata=metadata)

    return complete
