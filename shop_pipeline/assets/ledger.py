"""The run log as an asset: every load and check appends to it."""

import dagster as dg

from shop_pipeline.core import ledger


def run_log(upstream: list[dg.AssetKey], group: str, owners: list[str]) -> dg.AssetSpec:
    """`run_log` as Dagster shows it. Its rows are written by the loads themselves."""
    columns = [dg.TableColumn(name, kind) for name, kind in ledger.COLUMNS]
    return dg.AssetSpec(
        ledger.TABLE,
        deps=upstream,
        description=(
            "A row for the start and one for the end of every attempt at a day, failed ones included. It says which days "
            'may be read. Look at it with `shop sql "SELECT * FROM run_log"`.'
        ),
        group_name=group,
        owners=owners,
        kinds={"deltalake"},
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=columns),
            "dagster/table_name": ledger.TABLE,
        },
    )
