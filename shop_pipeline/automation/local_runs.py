"""Runs of the definitions in this process, recorded in the Dagster instance, so that the UI shows what `shop` did."""

import signal
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
from filelock import FileLock

from shop_pipeline.assets.daily_load import CHECK
from shop_pipeline.assets.day_events import BY_PARTITION
from shop_pipeline.assets.kept_connections import connections_kept
from shop_pipeline.automation.run_launcher import has_died
from shop_pipeline.core.days import contiguous_ranges, dates_between, parse_date
from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.run_locks import Life, RunLocks

# Dagster's own lines about each step go to the event log; the terminal gets ours.
QUIET: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
INTERRUPTED = "UNEXPECTED_TERMINATION"
PARTITION = "dagster/partition"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def open_instance(home: Path) -> dg.DagsterInstance:
    """The instance of a DAGSTER_HOME. Its databases are made by one process at a time: two at once spoil them for good."""
    with FileLock(str(home / ".opening.lock")):
        return dg.DagsterInstance.get()


def close_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Close as failed the records of runs whose process has died on this machine, and clear away what is noted of ended ones.

    A killed `shop` could not close its own. The daemon does the same from time to time; where none runs, nobody else would.
    """
    locks, closed = RunLocks.of(instance.root_directory), []
    for run_id in locks.runs():
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            if locks.life(run_id) is not Life.DEAD:
                continue
            instance.report_run_failed(run, "Its process has died.")
            closed.append(run_id)
        if locks.life(run_id) is not Life.ALIVE:
            locks.forget(run_id)
    return closed


ACTIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def busy_keys(instance: dg.DagsterInstance, asset: dg.AssetKey, jobs: Collection[str]) -> dict[str, str]:
    """The partitions of an asset that a run is about to load, or loading, each with that run's id. A dead one loads nothing.

    Args:
        jobs: those that load the asset, whichever assets their runs select.
    """
    locks = RunLocks.of(instance.root_directory)
    busy: dict[str, str] = {}
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=ACTIVE)):
        loads = asset in run.asset_selection if run.asset_selection else run.job_name in jobs
        if not loads or has_died(locks, run.run_id):
            continue
        busy |= dict.fromkeys(keys_of(run), run.run_id)
    return busy


def keys_of(run: dg.DagsterRun) -> list[str]:
    """The partitions of a run, of one or of a range; none where it has none."""
    first = run.tags.get(PARTITION) or run.tags.get(RANGE_START)
    last = run.tags.get(PARTITION) or run.tags.get(RANGE_END)
    if not (first and last):
        return []
    return [day.isoformat() for day in dates_between(parse_date(first), parse_date(last))]


def stopped(defs: dg.Definitions, instance: dg.DagsterInstance) -> list[str]:
    """The schedules and sensors that nobody has switched on, by name."""
    running = {state.instigator_name for state in instance.all_instigator_state() if state.is_running}
    there = [*(each.name for each in defs.schedules or []), *(each.name for each in defs.sensors or [])]
    return [name for name in there if name not in running]


def _spare_mirrors(instance: dg.DagsterInstance) -> None:
    """Keep Ctrl-C from the processes that show on the terminal what a run's log file is told.

    A terminal sends it to every process of the command: these would print a traceback each, and show nothing of the run's end.
    Dagster ends them with the run, and they end by themselves when this process is killed.
    """
    manager: Any = instance.compute_log_manager
    if "capture_logs" in vars(manager):
        return
    capture = manager.capture_logs

    @contextmanager
    def capture_logs(log_key: Sequence[str]) -> Iterator[Any]:
        # Children inherit what is blocked. What arrives meanwhile is for this process, and comes when it no longer is.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        with ExitStack() as stack:
            try:
                context = stack.enter_context(capture(log_key))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            yield context

    manager.capture_logs = capture_logs


@dataclass(frozen=True)
class DayReport:
    """What a run said of one partition."""

    key: str
    ok: bool
    sentence: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalRuns:
    """Starts runs of an asset's partitions in this process, with the one Spark session that the process has."""

    defs: dg.Definitions
    instance: dg.DagsterInstance

    def __post_init__(self) -> None:
        _spare_mirrors(self.instance)

    def load(self, asset: dg.AssetsDefinition, keys: Sequence[str], *, append: bool = False) -> list[DayReport]:
        """Load and verify a contiguous range of partitions in one run."""
        mode = "append" if append else "replace"
        config = {**QUIET, "ops": {asset.op.name: {"config": {"write_mode": mode}}}}
        return _reports(self.instance, self._run(asset, keys, config), keys)

    def make(self, asset: dg.AssetsDefinition, keys: Sequence[str]) -> list[DayReport]:
        """Materialize partitions of a downstream asset: one run per contiguous range of them."""
        reports = []
        for first, last in contiguous_ranges([date.fromisoformat(key) for key in keys]):
            part = [key for key in keys if first.isoformat() <= key <= last.isoformat()]
            reports += _reports(self.instance, self._run(asset, part, QUIET), part)
        return reports

    def check(self, job: dg.JobDefinition, key: str) -> DayReport:
        """Run the job that compares a partition with its source, without loading."""
        resolved = self.defs.resolve_job_def(job.name)
        result = resolved.execute_in_process(
            instance=self.instance, partition_key=key, run_config=QUIET, raise_on_error=False, run_id=self._new_run()
        )
        return _reports(self.instance, result.run_id, [key])[0]

    def run(self, job: dg.JobDefinition, op: str, config: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Run a job of one op and give what the op returns.

        Raises:
            ShopError: the op failed; its sentence.
        """
        result = self.defs.resolve_job_def(job.name).execute_in_process(
            instance=self.instance,
            run_config={**QUIET, "ops": {op: {"config": config}}},
            raise_on_error=False,
            run_id=self._new_run(),
        )
        if not result.success:
            raise ShopError(_reports(self.instance, result.run_id, [""])[0].sentence)
        return result.output_for_node(op)

    def _new_run(self) -> str:
        """The id of a run that is to be, alive from here on."""
        run_id = str(uuid.uuid4())
        RunLocks.of(self.instance.root_directory).hold(run_id)
        return run_id

    def _run(self, asset: dg.AssetsDefinition, keys: Sequence[str], config: Mapping[str, Any]) -> str:
        job = self.defs.resolve_implicit_global_asset_job_def()
        if len(keys) == 1:
            where: dict[str, Any] = {"partition_key": keys[0]}
        else:
            where = {"tags": {RANGE_START: keys[0], RANGE_END: keys[-1]}}
        with connections_kept(self.instance):
            return job.execute_in_process(
                instance=self.instance,
                asset_selection=[asset.key],
                run_config=config,
                raise_on_error=False,
                run_id=self._new_run(),
                **where,
            ).run_id


def _reports(instance: dg.DagsterInstance, run_id: str, keys: Sequence[str]) -> list[DayReport]:
    """One report per key, from the run's last word on it: its check, else its materialization, else the failure.

    Read from the instance: what a step logged before it failed is not among the events of the result.
    """
    said: dict[str, DayReport] = {}
    failed: dict[str, DayReport] = {}
    failure = "the run ended without saying why"
    for entry in instance.all_logs(run_id):
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type == dg.DagsterEventType.RUN_FAILURE and event.job_failure_data.failure_reason is not None:
            if event.job_failure_data.failure_reason.value == INTERRUPTED:
                # Dagster has kept Ctrl-C to itself, in order to close the run's record; the command is to stop all the same.
                raise KeyboardInterrupt
        elif event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and BY_PARTITION in data.user_failure_data.metadata:
                sentences: Any = data.user_failure_data.metadata[BY_PARTITION].value
                failed |= {key: DayReport(key, False, sentence) for key, sentence in sentences.items()}
            failure = (data.user_failure_data.description if data.user_failure_data else None) or _message(data.error)
        elif event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            seen = event.asset_check_evaluation_data
            if seen.partition is not None and seen.check_name == CHECK:
                metadata = {name: value.value for name, value in seen.metadata.items()}
                said[seen.partition] = DayReport(seen.partition, seen.passed, seen.description or "", metadata)
        elif event.is_step_materialization:
            done = event.step_materialization_data.materialization
            if done.partition is not None and done.partition not in said:
                said[done.partition] = DayReport(done.partition, True, "")
    return [said.get(key) or failed.get(key) or DayReport(key, False, failure) for key in keys]


def failure_of(instance: dg.DagsterInstance, run_id: str) -> str:
    """Why a run failed, in the words of the step that did."""
    said = _reports(instance, run_id, [""])[0].sentence
    return " ".join(line.strip() for line in said.splitlines())


def _message(error: Any) -> str:  # noqa: ANN401 - Dagster's SerializableErrorInfo
    """The first line of the innermost error."""
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else error.message.strip().splitlines()[0]
