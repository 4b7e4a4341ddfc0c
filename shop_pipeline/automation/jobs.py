"""The jobs that people start by name."""

import warnings
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import CHECK


def recheck_days(asset: dg.AssetKey, partitions: dg.DailyPartitionsDefinition) -> Any:  # noqa: ANN401 - Dagster keeps its type to itself
    """The job that compares chosen days with their source again, without loading them."""
    with warnings.catch_warnings():
        # Dagster infers a job's partitions from its assets; this one has none, only a check.
        warnings.filterwarnings("ignore", message=".*partitions_def.*", category=DeprecationWarning)
        return dg.define_asset_job(
            "recheck_days",
            selection=dg.AssetSelection.checks(dg.AssetCheckKey(asset, CHECK)),
            partitions_def=partitions,
            description=(
                "Compares the day of a run date in orders_daily with its file again and loads nothing. "
                "A mismatch closes the day for everything downstream, a match opens it."
            ),
        )
