"""How a step tells Dagster what became of each of its days, so that it is true in every way a run can start.

A blocking check gates only inside one run. What gates everywhere is that a bad day has no materialization; so a step whose
days are all good yields its materialization, and one with a bad day logs the good ones itself and then fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

# The one import from Dagster's inside: without it the passed days of a range run show no check in the UI.
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)

Metadata = Mapping[str, dg.MetadataValue | str | int | float | None]


@dataclass(frozen=True)
class DayOutcome:
    """What a step says of one partition. `sentence` is shown as the check's description or the failure's."""

    key: str
    ok: bool
    sentence: str
    metadata: Metadata
    retriable: bool = False


def report(
    context: dg.AssetExecutionContext,
    asset: dg.AssetKey,
    check: str | None,
    outcomes: Sequence[DayOutcome],
    *,
    materialize: bool,
    subject: str,
    fail: bool = True,
) -> Iterator[dg.MaterializeResult | dg.Output]:  # type: ignore[type-arg]
    """Log and yield the events of a step's days; fails the step when a day is bad (unless `fail` is False).

    Args:
        check: the name of the asset's check; None when it has none.
        materialize: False when only the check runs.
        subject: what the keys are, for the failure's text ("run dates").
        fail: False to log what is bad and let the step end well all the same.

    Raises:
        dagster.Failure: naming every bad day.
    """
    bad = [outcome for outcome in outcomes if not outcome.ok]
    if materialize and not bad:
        for outcome in outcomes:
            context.add_asset_metadata(dict(outcome.metadata), asset_key=asset, partition_key=outcome.key)
        yield dg.MaterializeResult(asset_key=asset)
    elif materialize:
        for outcome in outcomes:
            if outcome.ok:
                context.log_event(dg.AssetMaterialization(asset, partition=outcome.key, metadata=dict(outcome.metadata)))
    if check is not None:
        for outcome in outcomes:
            log_check(context, asset, check, outcome)
    if bad and fail:
        # A check that is run alone changes nothing, so that running it again would say the same.
        raise _failure(bad, len(outcomes), subject, may_retry=materialize)
    if check is not None and context.selected_asset_check_keys:
        yield dg.Output(None, output_name=f"{asset.to_python_identifier()}_{check}")


def log_check(
    context: Any,  # noqa: ANN401
    asset: dg.AssetKey,
    check: str,
    outcome: DayOutcome,
) -> None:
    """Log a check's result for one partition, tied to the partition's newest materialization.

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
    context.log_event(
        dg.AssetCheckEvaluation(
            asset_key=asset,
            check_name=check,
            passed=outcome.ok,
            partition=outcome.key,
            blocking=True,
            metadata=dict(outcome.metadata),
            description=outcome.sentence,
            target_materialization_data=target,
        )
    )


def _failure(bad: Sequence[DayOutcome], total: int, subject: str, *, may_retry: bool) -> dg.Failure:
    names = ", ".join(outcome.key for outcome in bad)
    sentences = "\n".join(outcome.sentence for outcome in bad)
    first = f"{len(bad)} of {total} {subject} failed: {names}." if total > 1 else ""
    return dg.Failure(
        f"{first}\n{sentences}".strip(),
        metadata={"failed": names},
        allow_retries=may_retry and any(outcome.retriable for outcome in bad),
    )
