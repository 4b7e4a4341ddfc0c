"""The jobs that people start by name."""

from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import CHECK


def recheck_days(asset: dg.AssetKey, partitions: "dg.PartitionsDefinition[Any] | None") -> Any:  # noqa: ANN401
    """The job that compares chosen days with their source again, without loading them."""
    return dg.define_asset_job(
        "recheck_days",
        selection=dg.AssetSelection.checks(dg.AssetCheckKey(asset, CHECK)),
        partitions_def=partitions,
        description=(
            "Compares the day of a run date in orders_daily with its file again and loads nothing. "
            "A mismatch closes the day for everything downstream, a match opens it."
        ),
    )
