"""The only writers of Spark's tables."""

from collections.abc import Sequence
from datetime import date

from deltalake import DeltaTable
from pyspark.sql import DataFrame, DataFrameWriter

from shop_pipeline.core.days import day_predicate
from shop_pipeline.core.lake import Lake

# How many commits to look back for one's own: other processes may have committed since.
_LOOK_BACK = 200


def replace_days(
    lake: Lake, table: str, rows: DataFrame, days: Sequence[date], mark: str, *, statistics: Sequence[str] = ()
) -> int:
    """Replace the rows of exactly these days by `rows`, in one commit; every other day stays as it is.

    A table that is not there yet is made by that commit; a column that it lacks is added, and reads NULL in older rows.

    Args:
        rows: the table's columns, by name; every row's order_date must be one of `days`.
        statistics: of which columns a new table keeps the range per file; by default of all.
        mark: written into the commit as its userMetadata, unique to this call, and found again by it.

    Returns:
        The version of the commit, or the present version where there was nothing to change.

    Raises:
        pyspark AnalysisException, condition DELTA_REPLACE_WHERE_MISMATCH: a row lies outside `days`; nothing changed.
    """
    with lake.commit_lock(table):
        writer = (
            rows.write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", day_predicate(days))
            .option("partitionOverwriteMode", "static")
        )
        return _save(lake, table, writer, mark, statistics)


def append(lake: Lake, table: str, rows: DataFrame, mark: str, *, statistics: Sequence[str] = ()) -> int:
    """Add `rows` whatever is there: a rerun doubles them. Only for showing that damage. Returns the commit's version."""
    with lake.commit_lock(table):
        return _save(lake, table, rows.write.format("delta").mode("append"), mark, statistics)


def _save(lake: Lake, table: str, writer: DataFrameWriter, mark: str, statistics: Sequence[str]) -> int:
    """Commit, under the table's lock. A table that is not there is made by the same commit, partitioned by order_date."""
    if lake.open(table) is None:
        writer = writer.partitionBy("order_date")
        if statistics:
            writer = writer.option("delta.dataSkippingStatsColumns", ",".join(statistics))
    writer.option("mergeSchema", "true").option("userMetadata", mark).save(lake.table_uri(table))
    version = version_of(lake, table, mark)
    if version is not None:
        return version
    # Delta commits nothing where nothing changes: no rows for days that have none. The table is as it should be.
    unchanged = lake.open(table)
    if unchanged is None:
        raise RuntimeError(f"{table} is not there after the write marked {mark}")
    return int(unchanged.version())


def version_of(lake: Lake, table: str, mark: str) -> int | None:
    """The version of the commit with this mark; None when there is none among the newest."""
    written = lake.open(table)
    for commit in [] if written is None else written.history(_LOOK_BACK):
        if commit.get("userMetadata") == mark:
            return int(commit["version"])
    return None


def history(table: DeltaTable, limit: int) -> list[dict[str, object]]:
    """The last changes of a table, newest first: version, operation, predicate (None for all), rows_written (None if unknown)."""
    rows = []
    for commit in table.history(limit):
        written = commit.get("operationMetrics", {}).get("numOutputRows")
        rows.append(
            {
                "version": int(commit["version"]),
                "operation": str(commit.get("operation")),
                "predicate": commit.get("operationParameters", {}).get("predicate"),
                "rows_written": None if written is None else int(written),
            }
        )
    return rows
