"""The factory of daily loads: a feed (source, contract, which day a key stands for) goes in, an asset with its check comes out."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import dagster as dg
from dagster_shared.utils.warnings import PreviewWarning
from pydantic import Field

from shop_pipeline.assets.day_events import DayOutcome, log_check, report
from shop_pipeline.core import ledger
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.load import DailyLoad, DayResult, Status
from shop_pipeline.resources import ClockResource, SparkResource

CHECK = "check_day"
# Followed by `shop` in a terminal; Dagster shows the same lines in the run's log.
PROGRESS = logging.getLogger("shop_pipeline.progress")
DAYS_PER_RUN = 31


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

    The resource's `source(contract)` gives the Source.
    """

    contract: Contract
    rule: KeyRule
    partitions: dg.DailyPartitionsDefinition
    source: str

    @property
    def asset(self) -> dg.AssetKey:
        """The asset that the feed loads."""
        return dg.AssetKey(self.contract.table.split("/"))

    @property
    def resource_keys(self) -> set[str]:
        """The resources that loading and checking need."""
        return {"spark", "lake", "clock", self.source}

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
    columns = [dg.TableColumn(column.name, column.type, column.description) for column in contract.columns]
    columns += [dg.TableColumn(name, kind) for name, kind in contract.table_columns[len(columns) :]]

    with warnings.catch_warnings():
        # Partitions of a check are new in Dagster and marked so; the tests hold what is relied on here.
        warnings.simplefilter("ignore", PreviewWarning)
        check = dg.AssetCheckSpec(
            CHECK,
            asset=asset,
            blocking=True,
            partitions_def=partitions,
            description="The day's rows in the table are the rows of its source, compared both ways without Spark.",
        )

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
                    "dagster/column_schema": dg.TableSchema(columns=columns),
                    "dagster/table_name": contract.table.replace("/", "."),
                },
            )
        ],
        check_specs=[check],
        partitions_def=partitions,
        # So that the check can be run without loading.
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.multi_run(days_per_run),
        retry_policy=dg.RetryPolicy(max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL),
        required_resource_keys=feed.resource_keys,
    )
    def load_and_verify(context: dg.AssetExecutionContext, config: LoadConfig) -> Iterator[Any]:
        spark: SparkResource = context.resources.spark
        clock: ClockResource = context.resources.clock
        if not (context.has_partition_key or context.has_partition_key_range):
            raise dg.Failure(f"No {rule.key_name} was given: choose which day to load; none is guessed.", allow_retries=False)
        daily = feed.load(context.resources)
        keys = list(context.partition_keys)
        run_id = context.run.run_id
        loading = asset in context.selected_asset_keys
        append = loading and config.write_mode is WriteMode.append

        def tell(text: str) -> None:
            context.log.info(text)
            PROGRESS.info(text)

        try:
            if loading:
                spark.check_machine()
                results = daily.load(spark.session, keys, run_id=run_id, clock=clock.now, append=append, progress=tell)
            else:
                results = daily.check(keys, run_id=run_id, clock=clock.now)
        except ShopError as problem:
            raise dg.Failure(str(problem), allow_retries=False) from None
        _warn(context.log, results)
        context.log_event(
            dg.AssetObservation(ledger.TABLE, metadata={"dagster/row_count": daily.ledger.row_count(), "days": len(keys)})
        )
        outcomes = [_outcome(daily, result) for result in results]
        if append and all(result.status is Status.APPENDED for result in results):
            # Nothing is materialized and nothing failed: the run shows a warning, the check says what is the matter.
            context.log.warning(f"{', '.join(keys)}: appended, not verified; load the day again without append to mend it")
            yield from report(context, asset, CHECK, outcomes, materialize=False, subject="", fail=False)
        else:
            yield from report(context, asset, CHECK, outcomes, materialize=loading, subject=f"{rule.key_name}s")

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
        daily = feed.load(context.resources)
        try:
            results = daily.check([context.partition_key], run_id=context.run_id, clock=clock.now)
        except ShopError as problem:
            raise dg.Failure(str(problem), allow_retries=False) from None
        _warn(context.log, results)
        for result in results:
            log_check(context, feed.asset, CHECK, _outcome(daily, result))
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


def _warn(log: dg.DagsterLogManager, results: Sequence[DayResult]) -> None:
    for result in results:
        if result.warning:
            log.warning(result.warning)
            PROGRESS.warning("warning: %s", result.warning)


def _outcome(daily: DailyLoad, result: DayResult) -> DayOutcome:
    seen = result.comparison
    metadata: dict[str, Any] = {
        "verdict": result.status.value,
        "day": result.day.isoformat(),
        daily.rule.key_name.replace(" ", "_"): result.key,
        "source": result.source_name,
        "duration_s": round(result.duration, 3),
        "dagster/uri": daily.lake.table_uri(daily.table),
    }
    if seen is not None:
        metadata |= {
            "dagster/partition_row_count": seen.table_rows,
            "rows_in_source": seen.source_rows,
            "missing": seen.missing,
            "quarantined": seen.quarantined,
            "rows_in_all_days": result.table_rows,
            "fingerprint": seen.fingerprint,
        }
    if result.version is not None:
        metadata["delta_version"] = result.version
    if result.warning is not None:
        metadata["warning"] = result.warning
    if not result.ok:
        metadata["problem"] = result.sentence
    return DayOutcome(result.key, result.ok, _check_text(result), metadata, result.retriable)


def _check_text(result: DayResult) -> str:
    return f"{result.day}: {result.sentence}" if result.status is Status.APPENDED else result.sentence
