"""The factory of assets that a run makes of what its upstream has for the run's days."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import Feed, failing_in_a_sentence
from shop_pipeline.assets.day_events import CheckOutcome, DayOutcome, report, tried_again
from shop_pipeline.assets.references import code_references
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.lake import Lake
from shop_pipeline.resources import ClockResource, LakeResource, SparkResource

# What a step says of its days and of its table, given the resources of its run.
Result = tuple[Sequence[DayOutcome], Sequence[CheckOutcome]]
Making = Callable[[SparkResource, Lake, ClockResource, Sequence[str], str], Result]


@dataclass(frozen=True)
class Made:
    """What makes such an asset.

    `lineage`: of each column the upstream's columns that it is made of. `checks`: (name, description), all blocking; those of
    `of_table` have one result a run, the others one a day. `days_per_run`: another number than upstream's, or the daemon does
    not launch the asset for the good days by itself.
    """

    feed: Feed
    table: str
    upstream: dg.AssetKey
    description: str
    columns: Sequence[dg.TableColumn]
    lineage: Mapping[str, Sequence[str]]
    checks: Mapping[str, str]
    of_table: Sequence[str]
    days_per_run: int
    group: str
    owners: Sequence[str]

    @property
    def asset(self) -> dg.AssetKey:
        """The asset's key."""
        return dg.AssetKey(self.table.split("/"))

    def _lineage(self) -> dg.TableColumnLineage:
        return dg.TableColumnLineage(
            {
                column: [dg.TableColumnDep(asset_key=self.upstream, column_name=name) for name in names]
                for column, names in self.lineage.items()
            }
        )

    def by(self, make: Making) -> dg.AssetsDefinition:
        """The asset, made by this function."""
        asset, feed = self.asset, self.feed

        @dg.multi_asset(
            name=asset.to_python_identifier(),
            specs=[
                dg.AssetSpec(
                    asset,
                    deps=[self.upstream],
                    description=self.description,
                    group_name=self.group,
                    owners=list(self.owners),
                    kinds={"spark", "deltalake"},
                    metadata={
                        **table_metadata(self.table, self.columns),
                        **code_references(feed.contract, makes=make),
                        "dagster/column_lineage": self._lineage(),
                    },
                )
            ],
            check_specs=feed.check_specs(asset, self.checks, of_table=self.of_table),
            partitions_def=feed.partitions,
            backfill_policy=dg.BackfillPolicy.multi_run(self.days_per_run),
        )
        def made(
            context: dg.AssetExecutionContext, spark: SparkResource, lake: LakeResource, clock: ClockResource
        ) -> Iterator[Any]:
            if not (context.has_partition_key or context.has_partition_key_range):
                raise dg.Failure(f"No {feed.rule.key_name} was given: choose one; none is guessed.", allow_retries=False)
            with tried_again(context):
                with failing_in_a_sentence():
                    outcomes, of_the_table = make(spark, lake.lake(), clock, list(context.partition_keys), context.run.run_id)
                yield from report(
                    context, asset, outcomes, materialize=True, subject=f"{feed.rule.key_name}s", of_table=of_the_table
                )

        return made


def table_metadata(table: str, columns: Sequence[dg.TableColumn]) -> dict[str, Any]:
    """What Dagster shows of a table."""
    return {"dagster/column_schema": dg.TableSchema(columns=list(columns)), "dagster/table_name": table.replace("/", ".")}


def about(lake: Lake, table: str, rule: KeyRule, key: str, day: object, verdict: str) -> dict[str, Any]:
    """The metadata that every day of such an asset has."""
    return {"verdict": verdict, "day": str(day), rule.key_column: key, "dagster/uri": lake.table_uri(table)}
