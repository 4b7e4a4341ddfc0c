"""Alerts: what went wrong in Dagster's runs, what is late, and which published figures changed; sent through apprise.

One message for a cause, none again while it lasts, one when it is over. What cannot be delivered is kept and tried again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import CHECK
from shop_pipeline.automation.local_runs import failure_of, keys_of
from shop_pipeline.automation.pipelines import Pipeline
from shop_pipeline.checks.freshness import FRESHNESS, look
from shop_pipeline.checks.missing import MISSING
from shop_pipeline.core import duck, restatements
from shop_pipeline.core.incidents import Incidents, Message, Trouble, restated
from shop_pipeline.core.lake import Lake, view
from shop_pipeline.core.reprocess import backfill_command

SECONDS = 30
# Told from the tables themselves, at every tick.
_NOT_FROM_RUNS = {FRESHNESS, MISSING}
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
RUNS_AT_ONCE = 200
# How many messages are kept for a channel that takes none.
KEPT = 100


@dataclass
class _Memory:
    """What is remembered from tick to tick: how far runs and restatements were read, what is open, what is not delivered."""

    since: float
    seen: list[str] = field(default_factory=list)
    restated: str = ""
    open: dict[str, list[str]] = field(default_factory=dict)
    undelivered: dict[str, list[list[str]]] = field(default_factory=dict)


def alerts(pipelines: Mapping[str, Pipeline], urls: Sequence[str], owners: Mapping[str, str], zone: tzinfo) -> dg.SensorDefinition:
    """The sensor that tells what is wrong.

    Args:
        urls: apprise's, one for each channel.
        owners: of each source.
    """

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={"lake", "clock"},
        description=(
            "Tells, on the channels of SHOP_ALERT_URLS, of runs that failed, checks that fail or warn, days that are late and "
            "figures that were restated: once for each cause, and once when it is over."
        ),
    )
    def tell(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if not urls:
            return dg.SensorResult(skip_reason="no channel is set: name one in SHOP_ALERT_URLS")
        lake, now = context.resources.lake.lake(), context.resources.clock.now()
        # Switched on, it tells of what happens from then on.
        memory = _Memory(**json.loads(context.cursor)) if context.cursor else _Memory(now.timestamp(), restated=now.isoformat())
        incidents = Incidents(memory.open)
        for source, pipeline in pipelines.items():
            _lateness(lake, source, pipeline, owners[source], now, zone, incidents)
        for record in _ended(context.instance, memory):
            _run(context.instance, record.dagster_run, pipelines, owners, incidents)
        messages = incidents.messages()
        told = _restated(lake, memory, owners["till"])
        messages += [told] if told is not None else []
        problems = _deliver(urls, messages, memory)
        for problem in problems:
            context.log.warning(problem)
        reason = "; ".join(problems) or f"{len(messages)} messages sent, {sum(map(len, incidents.open.values()))} open"
        return dg.SensorResult(skip_reason=reason, cursor=json.dumps(asdict(memory)))

    return tell


def _ended(instance: dg.DagsterInstance, memory: _Memory) -> list[dg.RunRecord]:
    """The runs that have ended since the last tick, oldest first."""
    filters = dg.RunsFilter(statuses=ENDED, updated_after=datetime.fromtimestamp(memory.since, UTC))
    found = instance.get_run_records(filters, limit=RUNS_AT_ONCE, order_by="update_timestamp", ascending=True)
    # Times are not exact enough to tell two runs apart: those of the last moment come again.
    new = [record for record in found if record.dagster_run.run_id not in memory.seen]
    if found:
        memory.since = found[-1].update_timestamp.replace(tzinfo=UTC).timestamp() - 1
        memory.seen = [
            record.dagster_run.run_id for record in found if record.update_timestamp.replace(tzinfo=UTC).timestamp() >= memory.since
        ]
    return new


def _run(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    pipelines: Mapping[str, Pipeline],
    owners: Mapping[str, str],
    incidents: Incidents,
) -> None:
    """What a run that ended says: its checks' results, and where no check has failed, that it failed."""
    evaluations = [
        entry.dagster_event.asset_check_evaluation_data
        for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        if entry.dagster_event
    ]
    evaluations = [each for each in evaluations if each.check_name not in _NOT_FROM_RUNS]
    # A day that is not what its source has says so by one check; the others only say that they could not judge it.
    not_loaded = {(each.asset_key, each.partition) for each in evaluations if each.check_name == CHECK and not each.passed}
    failed = False
    for each in evaluations:
        failed |= not each.passed and each.severity is dg.AssetCheckSeverity.ERROR
        name = each.asset_key.to_user_string()
        source = _source_of(each.asset_key, pipelines)
        cause, title = f"{name}:{each.check_name}", f"{name}, {each.check_name}"
        if each.passed:
            incidents.well(cause, each.partition or "", title)
        elif each.check_name == CHECK or (each.asset_key, each.partition) not in not_loaded:
            incidents.seen(
                Trouble(
                    cause,
                    each.partition or "",
                    title,
                    _with_key(each.partition, each.description or "no reason was given"),
                    _todo(source, each.partition),
                    owners[source],
                    warning=each.severity is dg.AssetCheckSeverity.WARN,
                )
            )
    source, keys = _source_of_run(run, pipelines), keys_of(run) or [""]
    cause, title = f"run:{source}", f"runs of {source}"
    if run.status is dg.DagsterRunStatus.SUCCESS:
        for key in keys:
            incidents.well(cause, key, title)
    elif not failed:
        named = keys[0] if len(keys) == 1 else f"{keys[0]} to {keys[-1]}"
        text = _with_key(named, f"run {run.run_id[:8]} of {run.job_name} failed: {failure_of(instance, run.run_id)}")
        for key in keys:
            incidents.seen(Trouble(cause, key, title, text, _todo(source, key), owners[source]))


def _with_key(key: str | None, text: str) -> str:
    return f"[{key}] {text}" if key else text


def _todo(source: str, key: str | None) -> str:
    """The next command, with places for the first and the last key of those that share a cause."""
    if not key:
        again = backfill_command(source, "FIRST", "LAST", "--reprocess failed")
        return f"look at the run in Dagster, mend what it names, and run `{again}`"
    return f"mend what is named, then: {backfill_command(source, '{first}', '{last}', '--reprocess failed')}"


def _source_of(asset: dg.AssetKey, pipelines: Mapping[str, Pipeline]) -> str:
    for source, pipeline in pipelines.items():
        if asset == pipeline.feed.asset or any(asset in made.keys for made in pipeline.made):
            return source
    return next(iter(pipelines))


def _source_of_run(run: dg.DagsterRun, pipelines: Mapping[str, Pipeline]) -> str:
    for source, pipeline in pipelines.items():
        if run.job_name in (pipeline.job, pipeline.recheck.name):
            return source
    for asset in sorted(run.asset_selection or ()):
        return _source_of(asset, pipelines)
    return next(iter(pipelines))


def _lateness(lake: Lake, source: str, pipeline: Pipeline, owner: str, now: datetime, zone: tzinfo, incidents: Incidents) -> None:
    """A feed whose newest due day is not loaded: one incident, whichever day that is. One that was never loaded is not in use."""
    if lake.open(pipeline.feed.contract.table) is None:
        return
    found, day = look(lake, pipeline.feed, now, zone)
    table = pipeline.feed.contract.sql_name
    cause, title = f"late:{source}", f"{table} is late"
    if found.fresh or (found.status == "no data" and day is not None and found.loaded):
        incidents.well(cause, "", title)
    else:
        key = "" if day is None else pipeline.feed.rule.key(day)
        todo = f"see where the day's orders are, then: {backfill_command(source, key, key)}"
        incidents.seen(Trouble(cause, "", title, found.sentence, todo, owner))


def _restated(lake: Lake, memory: _Memory, owner: str) -> Message | None:
    """The figures that were restated since the last tick."""
    table = lake.open(restatements.TABLE)
    if table is None:
        return None
    con = duck.connect()
    view(con, "restated", table)
    names = [name for name, _ in restatements.COLUMNS]
    since = datetime.fromisoformat(memory.restated).astimezone(UTC).replace(tzinfo=None)
    found = con.execute(
        f"SELECT {', '.join(names)} FROM restated WHERE restated_at > ? ORDER BY restated_at, order_date", [since]
    ).fetchall()
    rows: list[Mapping[str, Any]] = [dict(zip(names, row, strict=True)) for row in found]
    if rows:
        memory.restated = rows[-1]["restated_at"].replace(tzinfo=UTC).isoformat()
    return restated(rows, "daily_sales", owner)


def _deliver(urls: Sequence[str], messages: Sequence[Message], memory: _Memory) -> list[str]:
    """Send what is new and what was not delivered, channel by channel; what fails is kept. Gives a sentence for each that did."""
    # Here, for every command and every run loads these definitions, and few of them send anything.
    import apprise

    problems, left = [], {}
    for number, url in enumerate(urls, start=1):
        # Neither a log nor Dagster's records get an address, for it may have a password in it.
        name = sha256(url.encode()).hexdigest()[:12]
        waiting = [*memory.undelivered.get(name, []), *([each.title, each.body] for each in messages)]
        channel = apprise.Apprise()
        channel.add(url)
        while waiting and channel.notify(title=waiting[0][0], body=waiting[0][1], body_format=apprise.NotifyFormat.TEXT):
            waiting.pop(0)
        if waiting:
            left[name] = waiting[-KEPT:]
            service = channel[0].service_name if len(channel) else "unknown"
            problems.append(f"{len(waiting)} messages could not be delivered to channel {number} ({service}); they are sent again")
    memory.undelivered = left
    return problems
