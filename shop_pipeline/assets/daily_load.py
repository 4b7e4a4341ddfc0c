"""The factory of daily loads: a feed (source, contract, which day a key stands for) goes in, an asset with its check comes out."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dagster as dg
from dagster_shared.utils.warnings import PreviewWarning
from pydantic import Field

from shop_pipeline.assets.day_events import PROGRESS, CheckOutcome, DayOutcome, log_checks, report, tried_again
from shop_pipeline.assets.references import code_references
from shop_pipeline.core import gates, interrupts, ledger, quarantine
from shop_pipeline.core.changes import Changes
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.delta_writes import read_ahead
from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.fault_points import Point, reached
from shop_pipeline.core.load import DailyLoad
from shop_pipeline.core.outcome import DayResult, Status
from shop_pipeline.core.spark_remote import lost
from shop_pipeline.resources import ClockResource, SparkResource

CHECK = "check_day"
DAYS_PER_RUN = 31
_CHECKS = {
    CHECK: "The day's rows in the table are the rows of its source, compared both ways without Spark.",
    gates.VOLUME: "The day has about as many rows as the days before it.",
    gates.NULL_RATE: "No required column of the day's rows in the table is NULL.",
    gates.KEY_UNIQUENESS: "No key comes more than once in the day.",
    gates.VALUE_DISTRIBUTION: "No column suddenly has one value in nearly all rows of the day.",
}
_OWN_COLUMNS = {
    "order_date": "The day whose source the row came from.",
    "_source_version": "How new the row is, where two speak of one key: what the source says of it, else its day.",
    "_source_seq": "Where the row stands in its source: file and record number, the same on every rerun.",
    "_loaded_at": "When the row was loaded.",
}


class WriteMode(Enum):
    """How a load writes its days."""

    replace = "replace"
    append = "append"


class LoadConfig(dg.Config):
    """Run configuration of a load."""

    write_mode: WriteMode = Field(
        default=WriteMode.replace,
        description="`replace` the day (safe to repeat), or `append` to it, which doubles it: only to show that damage.",
    )


@dataclass(frozen=True)
class Feed:
    """What makes a daily load: a contract, which day a key stands for, the partitions, and the key of the source's resource.

    The resource's `source(contract)` gives the Source. `retry_seconds`: how long to wait before a load is tried again, for a
    source that needs time to come back.
    """

    contract: Contract
    rule: KeyRule
    partitions: dg.DailyPartitionsDefinition
    source: str
    retry_seconds: float | None = None

    @property
    def asset(self) -> dg.AssetKey:
        """The asset that the feed loads."""
        return dg.AssetKey(self.contract.table.split("/"))

    @property
    def resource_keys(self) -> set[str]:
        """The resources that loading and checking need."""
        return {"spark", "lake", "clock", self.source}

    def check_specs(
        self,
        asset: dg.AssetKey,
        checks: Mapping[str, str],
        blocking: Mapping[str, bool] | None = None,
        of_table: Collection[str] = (),
    ) -> list[dg.AssetCheckSpec]:
        """Checks (name, description) of an asset, with a result for each partition; they block unless told otherwise.

        Args:
            of_table: those that are about the table, with a result for each run.
        """
        with warnings.catch_warnings():
            # Partitions of a check are new in Dagster and marked so; the tests hold what is relied on here.
            warnings.simplefilter("ignore", PreviewWarning)
            return [
                dg.AssetCheckSpec(
                    name,
                    asset=asset,
                    blocking=True if blocking is None else blocking[name],
                    partitions_def=None if name in of_table else self.partitions,
                    description=description,
                )
                for name, description in checks.items()
            ]

    def load(self, resources: Any) -> DailyLoad:  # noqa: ANN401 - Dagster makes the type at run time
        """The load on a run's resources."""
        return DailyLoad(resources.lake.lake(), getattr(resources, self.source).source(self.contract), self.contract, self.rule)


def daily_load(feed: Feed, *, group: str, owners: Sequence[str], days_per_run: int = DAYS_PER_RUN) -> dg.AssetsDefinition:
    """The asset that loads the days of a feed and the check that compares them with their source.

    Args:
        days_per_run: into how many days a backfill is cut per run.

    Returns:
        An asset partitioned by the feed's partitions, with the blocking check `check_day`. Either can be run alone.
    """
    asset, contract, rule, partitions = feed.asset, feed.contract, feed.rule, feed.partitions
    blocking = {CHECK: True} | gates.check_names(contract)
    checks = feed.check_specs(asset, {name: _CHECKS[name] for name in blocking}, blocking)

    @dg.multi_asset(
        name=asset.to_python_identifier(),
        specs=[
            dg.AssetSpec(
                asset,
                description=(
                    f"{contract.description} A partition is a {rule.key_name}; "
                    f"its run replaces {'the day before it' if rule.lag_days else 'that day'} in one commit."
                ),
                group_name=group,
                owners=list(owners),
                kinds={"spark", "deltalake"},
                skippable=True,
                metadata={
                    "dagster/column_schema": column_schema(contract),
                    "dagster/table_name": contract.sql_name,
                    **code_references(contract, loads=DailyLoad.load),
                },
            )
        ],
        check_specs=checks,
        partitions_def=partitions,
        # So that checks can be run without loading.
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.multi_run(days_per_run),
        required_resource_keys=feed.resource_keys,
    )
    def load_and_verify(context: dg.AssetExecutionContext, config: LoadConfig) -> Iterator[Any]:
        if not (context.has_partition_key or context.has_partition_key_range):
            raise dg.Failure(f"No {rule.key_name} was given: choose which day to load; none is guessed.", allow_retries=False)
        with tried_again(context, feed.retry_seconds):
            yield from load_or_check(context, config)

    def load_or_check(context: dg.AssetExecutionContext, config: LoadConfig) -> Iterator[Any]:
        spark: SparkResource = context.resources.spark
        clock: ClockResource = context.resources.clock
        with failing_in_a_sentence():
            daily = feed.load(context.resources)
        keys = list(context.partition_keys)
        run_id = context.run.run_id
        loading = asset in context.selected_asset_keys
        append = loading and config.write_mode is WriteMode.append

        def tell(text: str) -> None:
            context.log.info(text)
            PROGRESS.info(text)

        with failing_in_a_sentence():
            if loading:
                days = [rule.day(key) for key in keys]
                spark.prepare(daily.source.size(days), read_ahead(daily.lake, daily.table, days))
                results = daily.load(spark.session, keys, run_id=run_id, clock=clock.now, append=append, progress=tell)
            else:
                results = daily.check(keys, run_id=run_id, clock=clock.now)
        reached(Point.BEFORE_DAGSTER_HEARS)
        _say(context.log, daily, results)
        context.log_event(
            dg.AssetObservation(ledger.TABLE, metadata={"dagster/row_count": daily.ledger.row_count(), "days": len(keys)})
        )
        outcomes = [_outcome(daily, result, run_id) for result in results]
        if append and all(result.status is Status.APPENDED for result in results):
            # Nothing is materialized and nothing failed: the run shows a warning, the check says what is the matter.
            context.log.warning(f"{', '.join(keys)}: appended, not verified; load the day again without append to mend it")
            yield from report(context, asset, outcomes, materialize=False, subject="", fail=False)
        else:
            yield from report(context, asset, outcomes, materialize=loading, subject=f"{rule.key_name}s")

    return load_and_verify


def recheck_job(name: str, feed: Feed) -> dg.JobDefinition:
    """The job that compares the day of a chosen key with its source again and loads nothing.

    A job of its own, for the UI can run neither a partitioned asset's check alone nor give a job of checks a key to choose.
    """

    @dg.op(name=f"compare_{feed.asset.to_python_identifier()}_with_its_source", required_resource_keys=feed.resource_keys)
    def compare(context: dg.OpExecutionContext) -> None:
        if not context.has_partition_key:
            raise dg.Failure(f"Choose a {feed.rule.key_name}: {name} checks one day.", allow_retries=False)
        clock: ClockResource = context.resources.clock
        with failing_in_a_sentence():
            daily = feed.load(context.resources)
            results = daily.check([context.partition_key], run_id=context.run_id, clock=clock.now)
        _say(context.log, daily, results)
        for result in results:
            log_checks(context, feed.asset, _outcome(daily, result, context.run_id))
            if not result.ok:
                raise dg.Failure(_check_text(result), allow_retries=False)

    @dg.job(
        name=name,
        partitions_def=feed.partitions,
        executor_def=dg.in_process_executor,
        description=(
            f"Compares the day of a {feed.rule.key_name} in {feed.contract.table} with its source again and loads nothing. "
            "A mismatch closes the day for everything downstream, a match opens it."
        ),
    )
    def recheck() -> None:
        compare()

    return recheck


def column_schema(contract: Contract) -> dg.TableSchema:
    """The columns of a contract's table with their constraints, as Dagster shows them."""
    columns = []
    for column in contract.columns:
        constraints = dg.TableColumnConstraints(
            nullable=not column.required,
            unique=column.unique,
            other=[f"{rule.reason}: {rule.action}" for rule in contract.rules if rule.column == column.name],
        )
        columns.append(dg.TableColumn(column.name, column.type, column.description, constraints))
    columns += [dg.TableColumn(name, kind, _OWN_COLUMNS[name]) for name, kind in contract.table_columns[len(columns) :]]
    return dg.TableSchema(columns=columns)


def quarantine_asset(feed: Feed, group: str, owners: Sequence[str]) -> dg.AssetSpec:
    """The quarantine as Dagster shows it. Its rows are written by the loads themselves."""
    name = quarantine.table_of(feed.contract)
    return dg.AssetSpec(
        dg.AssetKey(name.split("/")),
        deps=[feed.asset],
        description=f"{quarantine.DESCRIPTION} A load replaces the rows of its days. See `shop quarantine list`.",
        group_name=group,
        owners=list(owners),
        kinds={"deltalake"},
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=[dg.TableColumn(*column) for column in quarantine.COLUMNS]),
            "dagster/table_name": name.replace("/", "."),
        },
    )


@contextmanager
def failing_in_a_sentence() -> Iterator[None]:
    """A mistake that its reader can mend fails the step with its sentence; what cannot pass by itself is not tried again.

    Not for what yields to Dagster, which changes the handlers of signals as this does.
    """
    try:
        with interrupts.kept():
            yield
    except ShopError as problem:
        raise dg.Failure(str(problem), allow_retries=problem.retriable) from None
    except Exception as error:
        gone = lost(error)
        if gone is None:
            raise
        raise dg.Failure(str(gone), allow_retries=gone.retriable) from error


def _say(log: dg.DagsterLogManager, daily: DailyLoad, results: Sequence[DayResult]) -> None:
    for result in results:
        if result.log_line is not None:
            log.info(f"{result.day} ({daily.key_text(result.day)})\n{result.log_line}")
        for warning in result.warnings:
            log.warning(warning)
            PROGRESS.warning("warning: %s", warning)


def _outcome(daily: DailyLoad, result: DayResult, run_id: str) -> DayOutcome:
    seen = result.comparison
    aside = dg.AssetKey(quarantine.table_of(daily.contract).split("/"))
    # In the order in which the UI shows it: first what a person looks for.
    metadata: dict[str, Any] = {
        "verdict": result.status.value,
        "day": result.day.isoformat(),
        daily.rule.key_column: result.key,
    }
    if not result.ok:
        metadata["problem"] = result.sentence
    if result.warnings:
        metadata["warning"] = "\n".join(result.warnings)
    if result.changes is not None:
        metadata |= _of_changes(result.changes)
    if result.broken:
        metadata["violations"] = dg.MetadataValue.table(
            [dg.TableRecord({"rule": rule.name, "action": rule.action.value, "rows": rows}) for rule, rows in result.broken]
        )
    if seen is not None:
        metadata |= {
            "dagster/partition_row_count": seen.table_rows,
            "fingerprint": seen.fingerprint,
            "missing": seen.missing,
            "rows_in_all_days": result.table_rows,
        }
    if result.log_line is not None:
        metadata |= {
            "rows_in_source": result.records,
            "failing": result.failing,
            "quarantined": result.quarantined,
            "flagged": result.flagged,
        }
    metadata |= {
        "source": _source(result),
        "quarantine": dg.MetadataValue.asset(aside),
        "run": dg.MetadataValue.dagster_run(run_id),
        "duration_s": round(result.duration, 3),
    }
    if result.version is not None:
        metadata |= {"delta_version": result.version, "commit_retries": result.retries}
    metadata["dagster/uri"] = daily.lake.table_uri(daily.table)
    sentence = _check_text(result)
    checks = [CheckOutcome(CHECK, result.ok, True, sentence, metadata)]
    checks += [CheckOutcome(each.name, each.passed, each.fatal, each.sentence, dict(each.metadata)) for each in result.checks]
    return DayOutcome(result.key, result.ok, sentence, metadata, result.retriable, tuple(checks))


def _source(result: DayResult) -> dg.MetadataValue[str] | str:
    """Where the day came from; of a file its path, which can be copied with a click."""
    seen = result.comparison
    return dg.MetadataValue.path(result.source_name) if seen is not None and seen.noun == "file" else result.source_name


def _of_changes(changes: Changes) -> dict[str, Any]:
    """What a load changed in a day, as metadata; the numbers only where they are known."""
    shown: dict[str, Any] = {"changes": changes.text}
    if changes.examples:
        records = [dg.TableRecord({"": each.what, "key": each.key, "values": each.values}) for each in changes.examples]
        shown["changed_rows"] = dg.MetadataValue.table(records)
    numbers = {"rows_added": changes.added, "rows_removed": changes.removed, "rows_changed": changes.changed}
    shown |= {name: number for name, number in numbers.items() if number is not None}
    return shown


def _check_text(result: DayResult) -> str:
    return f"{result.day}: {result.sentence}" if result.status is Status.APPENDED else result.sentence
