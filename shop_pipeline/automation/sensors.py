"""Sensors: a day's file that came is loaded, and so is a day whose source is corrected afterwards. No worker and no JVM.

They ask for runs of the days concerned and for nothing else; whether a day was dealt with, run_log says.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from shop_pipeline.assets.daily_load import DAYS_PER_RUN, Feed
from shop_pipeline.automation.local_runs import RANGE_END, RANGE_START, busy_keys
from shop_pipeline.core.days import ONE_DAY, contiguous_ranges, dates_between
from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.watch import Findings, Memory, Wanted, known_days, look_at_contents, look_at_files

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

SECONDS = 30
# A tick may take a minute; what is not done in so many seconds is done by the next.
BUDGET = 20.0
# How often all days of a database are looked at, and not only those of the lookback.
ALL_DAYS = timedelta(hours=1)
SHOWN = 5


def till_file_sensor(
    job: "UnresolvedAssetJobDefinition", feed: Feed, zone: tzinfo, *, name: str = "till_file_sensor", corrections: bool = False
) -> dg.SensorDefinition:
    """A day's file came: its run date runs, once. With `corrections`: an old day's orders changed, and that day runs."""
    what = (
        "An old day's file has other orders than those that were loaded: that day runs again, and what is made of it. A file "
        "that was only touched, or saved with other line ends, causes nothing."
        if corrections
        else "A day's file has come and is complete: its run date runs, once."
    )

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={"lake", "clock", feed.source},
        description=what,
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake = context.resources.lake.lake()
        path = Path(context.instance.root_directory) / "watch" / f"{name}.json"
        end, memory, now = time.monotonic() + BUDGET, Memory.read(path), _now(context)
        try:
            files: TillFiles = getattr(context.resources, feed.source).source(feed.contract)
            found = look_at_files(
                files,
                known_days(lake, feed.contract),
                memory,
                newest=now.astimezone(zone).date() - ONE_DAY,
                now=now.timestamp(),
                time_left=lambda: time.monotonic() < end,
            )
        except ShopError as problem:
            # It is looked at again by the next tick.
            return dg.SensorResult(skip_reason=str(problem))
        memory.write(path)
        return _result(context, feed, job.name, found.corrected if corrections else found.came, found)

    return look


def database_radar(job: "UnresolvedAssetJobDefinition", feed: Feed, *, name: str) -> dg.SensorDefinition:
    """An old day's rows changed in the database: that day runs again, and what is made of it."""

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=2 * SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={"lake", "clock", feed.source},
        description=(
            "Rows of a loaded day changed in the database: that day runs again, and what is made of it. One grouped query over "
            f"the lookback ({feed.contract.lookback} days before the newest) each minute, over all loaded days each hour."
        ),
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake, now = context.resources.lake.lake(), _now(context)
        last_full = datetime.fromisoformat(context.cursor) if context.cursor else datetime.fromtimestamp(0, UTC)
        full = now - last_full >= ALL_DAYS
        newest = now.astimezone(UTC).date() - ONE_DAY
        recent = {newest - n * ONE_DAY for n in range(feed.contract.lookback + 1)}
        try:
            source = getattr(context.resources, feed.source).source(feed.contract)
            known = known_days(lake, feed.contract)
            found = look_at_contents(source, known, [day for day in known if full or day in recent])
        except ShopError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        cursor = now.isoformat() if full else context.cursor
        return _result(context, feed, job.name, found.corrected, found, cursor)

    return look


def _now(context: dg.SensorEvaluationContext) -> datetime:
    now: datetime = context.resources.clock.now()
    return now


def _result(
    context: dg.SensorEvaluationContext,
    feed: Feed,
    job: str,
    wanted: Sequence[Wanted],
    found: Findings,
    cursor: str | None = None,
) -> dg.SensorResult:
    """Runs for the days that are wanted and can have one now; and what else is to be said."""
    busy = busy_keys(context.instance, feed.asset, [job]) if wanted else {}
    tokens = {each.day: each.token for each in wanted}
    keys = {day: feed.rule.key(day) for day in tokens}
    free = [day for day, key in keys.items() if key not in busy and feed.partitions.has_partition_key(key)]
    requests = []
    for first, last in contiguous_ranges(free):
        days = dates_between(first, last)
        for start in range(0, len(days), DAYS_PER_RUN):
            part = days[start : start + DAYS_PER_RUN]
            run_key = sha256("\n".join(f"{keys[day]} {tokens[day]}" for day in part).encode()).hexdigest()[:32]
            first_key, last_key = keys[part[0]], keys[part[-1]]
            requests.append(
                dg.RunRequest(run_key=run_key, partition_key=first_key)
                if len(part) == 1
                else dg.RunRequest(run_key=run_key, tags={RANGE_START: first_key, RANGE_END: last_key})
            )
            context.log.info(f"{feed.rule.key_name} {first_key} to {last_key} (days {part[0]} to {part[-1]}): a run is asked for")
    notes = _notes(feed, found, [day for day in tokens if keys[day] in busy])
    outside = [day for day, key in keys.items() if not feed.partitions.has_partition_key(key)]
    if outside:
        notes.append(f"not loaded, for there is no such {feed.rule.key_name} (the first one is a setting): {_listed(outside)}")
    for note in notes:
        context.log.info(note)
    reason = None if requests else "; ".join(notes) or "nothing new"
    return dg.SensorResult(run_requests=requests, skip_reason=reason, cursor=cursor)


def _notes(feed: Feed, found: Findings, busy: Sequence[object]) -> list[str]:
    """What a person may want to know of a look, a sentence each."""
    notes = []
    if found.odd:
        more = f" and {len(found.odd) - SHOWN} more" if len(found.odd) > SHOWN else ""
        notes.append(f"not loaded, for they are no day's file (YYYY-MM-DD.csv): {', '.join(map(repr, found.odd[:SHOWN]))}{more}")
    if found.waiting:
        notes.append(f"waiting until complete, or until their day is over: {_listed(found.waiting)}")
    if busy:
        notes.append(f"left alone, for a run has them: {_listed(busy)}")
    if found.unlike:
        notes.append(
            f"not compared, for they were loaded under another kind of hash: {_listed(found.unlike)}; "
            f"`shop plan` compares their rows"
        )
    if found.left:
        notes.append(f"{found.left} days are looked at by the next tick")
    return notes


def _listed(days: Sequence[object]) -> str:
    shown = ", ".join(str(day) for day in days[:SHOWN])
    return f"{shown} and {len(days) - SHOWN} more" if len(days) > SHOWN else shown
