"""What a run would have made next of its good days, had no other day of it been bad.

A step that fails keeps everything downstream of it in its run from running, for the good days too. In a backfill the daemon
launches those by itself; for a range in one run (a daily run with its lookback, a range chosen in the UI) the step asks for it.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

import dagster as dg

# Dagster gives a backfill's record no public name; the daemon takes it up as if the UI had asked for it.
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.utils import make_new_backfill_id

FOLLOWS = "shop/follows"
_BACKFILL = "dagster/backfill"


def hand_on(context: dg.AssetExecutionContext, asset: dg.AssetKey, keys: Sequence[str], clock: Callable[[], datetime]) -> None:
    """Have the daemon make what this run was to make of `asset` after this step, of these of its partitions."""
    layer = context.job_def.asset_layer
    downstream = dg.AssetSelection.assets(asset).downstream(include_self=False).resolve(layer.asset_graph)
    waiting = sorted(downstream & layer.selected_asset_keys)
    if not waiting or not keys or _BACKFILL in context.run.tags:
        return
    backfill = PartitionBackfill.from_asset_partitions(
        backfill_id=make_new_backfill_id(),
        asset_graph=layer.asset_graph,
        partition_names=list(keys),
        asset_selection=waiting,
        backfill_timestamp=clock().timestamp(),
        tags={FOLLOWS: context.run.run_id},
        dynamic_partitions_store=context.instance,
        all_partitions=False,
        title=f"good days of run {context.run.run_id[:8]}",
        description=f"What that run was to make of {', '.join(keys)}, which are good, after other days of it had failed.",
        run_config=None,
    )
    context.instance.add_backfill(backfill)
    names = ", ".join(key.to_user_string() for key in waiting)
    context.log.info(f"{names} of the good {', '.join(keys)}: asked for as backfill {backfill.backfill_id}")
