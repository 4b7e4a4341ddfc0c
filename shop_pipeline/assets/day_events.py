"""How a step tells Dagster what became of each of its days, so that it is true in every way a run can start.

A blocking check gates only inside one run. What gates everywhere is that a bad day has no materialization; so a step whose
days are all good yields its materialization, and one with a bad day logs the good ones itself and then fails.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg

# From Dagster's inside: without it the passed days of a range run show no check in the UI.
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)

from shop_pipeline.assets.follow_up import hand_on
from shop_pipeline.assets.kept_connections import connections_kept

Metadata = Mapping[str, dg.MetadataValue | str | int | float | None]


# Where a failure has the sentence of each bad partition.
BY_PARTITION = "by_partition"


@dataclass(frozen=True)
class CheckOutcome:
    """What a check says of one partition. One that is not passed and not `fatal` is a warning."""

    name: str
    passed: bool
    fatal: bool
    sentence: str
    metadata: Metadata


@dataclass(frozen=True)
class DayOutcome:
    """What a step says of one partition. `sentence` is shown as the failure's description; `checks` are its checks' results."""

    key: str
    ok: bool
    sentence: str
    metadata: Metadata
    retriable: bool = False
    checks: tuple[CheckOutcome, ...] = ()


RETRIES, FIRST_WAIT = 2, 5
# Followed by `shop` in a terminal; Dagster shows the same lines in the run's log.
PROGRESS = logging.getLogger("shop_pipeline.progress")


@contextmanager
def tried_again(context: dg.AssetExecutionContext, seconds: float | None = None) -> Iterator[None]:
    """Around a step: an error that may pass by itself has the step tried again, twice.

    Not by Dagster's RetryPolicy, which also tries a step again that a person has stopped.

    Args:
        seconds: how long to wait each time; by default 5, then 10.
    """
    wait = FIRST_WAIT * 2**context.retry_number if seconds is None else seconds

    def again(text: str) -> dg.RetryRequested:
        if context.retry_number < RETRIES:
            PROGRESS.warning("warning: %s; it is tried again in %g seconds", (text.splitlines() or [""])[0].rstrip("."), wait)
        return dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=wait)

    try:
        yield
    except dg.Failure as failure:
        if not failure.allow_retries:
            raise
        raise again(failure.description or "") from failure
    except dg.DagsterError:
        raise
    except Exception as error:
        raise again(str(error)) from error


def report(
    context: dg.AssetExecutionContext,
    asset: dg.AssetKey,
    outcomes: Sequence[DayOutcome],
    *,
    materialize: bool,
    subject: str,
    fail: bool = True,
    of_table: Sequence[CheckOutcome] = (),
) -> Iterator[dg.MaterializeResult | dg.Output]:  # type: ignore[type-arg]
    """Log and yield the events of a step's days; fails the step when a day is bad (unless `fail` is False).

    Args:
        materialize: False when only checks run.
        subject: what the keys are, for the failure's text ("run dates").
        fail: False to log what is bad and let the step end well all the same.
        of_table: results of checks that are about the table and not about a partition.

    Raises:
        dagster.Failure: naming every bad day.
    """
    with connections_kept(context.instance):
        bad = [outcome for outcome in outcomes if not outcome.ok]
        if materialize and not bad:
            for outcome in outcomes:
                context.add_asset_metadata(dict(outcome.metadata), asset_key=asset, partition_key=outcome.key)
            yield dg.MaterializeResult(asset_key=asset)
        elif materialize:
            for outcome in outcomes:
                if outcome.ok:
                    context.log_event(dg.AssetMaterialization(asset, partition=outcome.key, metadata=dict(outcome.metadata)))
        selected = {key.name for key in context.selected_asset_check_keys if key.asset_key == asset}
        for outcome in outcomes:
            log_checks(context, asset, outcome, selected)
        for check in of_table:
            context.log_event(_evaluation(asset, check))
        if bad and fail:
            # A check that is run alone changes nothing, so that running it again would say the same.
            failure = _failure(bad, len(outcomes), subject, may_retry=materialize)
            if materialize and not (failure.allow_retries and context.retry_number < RETRIES):
                hand_on(context, asset, [outcome.key for outcome in outcomes if outcome.ok], context.resources.clock.now)
            raise failure
        for name in sorted(selected):
            yield dg.Output(None, output_name=f"{asset.to_python_identifier()}_{name}")


def log_checks(
    context: Any,  # noqa: ANN401
    asset: dg.AssetKey,
    outcome: DayOutcome,
    selected: Collection[str] | None = None,
) -> None:
    """Log the results of a partition's checks (all, or the selected), tied to the partition's newest materialization.

    Args:
        context: of an asset or of an op; Dagster takes the event from both, though it is annotated for one only.
    """
    newest = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[outcome.key]), limit=1
    ).records
    target = (
        AssetCheckEvaluationTargetMaterializationData(
            storage_id=newest[0].storage_id, run_id=newest[0].run_id, timestamp=newest[0].timestamp
        )
        if newest
        else None
    )
    for check in outcome.checks:
        if selected is not None and check.name not in selected:
            continue
        context.log_event(_evaluation(asset, check, outcome.key, target))


def _evaluation(
    asset: dg.AssetKey,
    check: CheckOutcome,
    key: str | None = None,
    target: AssetCheckEvaluationTargetMaterializationData | None = None,
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=check.name,
        passed=check.passed,
        partition=key,
        severity=dg.AssetCheckSeverity.ERROR if check.fatal else dg.AssetCheckSeverity.WARN,
        blocking=check.fatal,
        metadata=dict(check.metadata),
        description=check.sentence,
        target_materialization_data=target,
    )


def _failure(bad: Sequence[DayOutcome], total: int, subject: str, *, may_retry: bool) -> dg.Failure:
    names = ", ".join(outcome.key for outcome in bad)
    sentences = "\n".join(outcome.sentence for outcome in bad)
    first = f"{len(bad)} of {total} {subject} failed: {names}." if total > 1 else ""
    return dg.Failure(
        f"{first}\n{sentences}".strip(),
        metadata={
            "failed": names,
            BY_PARTITION: dg.MetadataValue.json({outcome.key: outcome.sentence for outcome in bad}),
            **_violations(bad),
        },
        allow_retries=may_retry and any(outcome.retriable for outcome in bad),
    )


def _violations(bad: Sequence[DayOutcome]) -> dict[str, dg.MetadataValue]:
    """The broken rules of bad days as one table, for the run's page."""
    records = [
        dg.TableRecord({"partition": outcome.key, **record.data})
        for outcome in bad
        for value in [outcome.metadata.get("violations")]
        if isinstance(value, dg.TableMetadataValue)
        for record in value.records
    ]
    return {"violations": dg.MetadataValue.table(records)} if records else {}
