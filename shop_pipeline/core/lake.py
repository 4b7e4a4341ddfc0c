"""The lake: where a table lies, and how it is read without a JVM (delta-rs lists the files, DuckDB reads them)."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from shop_pipeline.core.commit_lock import commit_lock, commit_lock_if_free
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.errors import NotChecked, TableUnreadable

# Reader features of Delta under which a table's data files, read as they are, are its content.
READABLE_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_DELTA_TYPES = {"INT": "integer", "BIGINT": "long", "DOUBLE": "double"}
_DUCKDB_TYPES = {
    "integer": "INTEGER",
    "long": "BIGINT",
    "short": "SMALLINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "string": "VARCHAR",
}


def open_by_delta_rs(url: str, version: int | None) -> DeltaTable:
    """Opens a Delta table at a version (None: the newest)."""
    return DeltaTable(url, version=version)


@dataclass(frozen=True)
class Lake:
    """A folder of Delta tables. A table's folder is its name: `orders_daily`, `shopflow/orders_daily`."""

    uri: str
    opener: Callable[[str, int | None], DeltaTable] = open_by_delta_rs

    def table_uri(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.uri}/{name}"

    def open(self, name: str, version: int | None = None) -> DeltaTable | None:
        """A table at a version (the newest by default); None when there is no such table.

        Raises:
            TableUnreadable: its log is damaged, or that version is no longer there.
        """
        log = Path(self.table_uri(name)) / "_delta_log"
        if not log.is_dir():
            return None
        try:
            _check_complete(log)
            return self.opener(self.table_uri(name), version)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as error:
            raise unreadable(name, self.table_uri(name), error) from None

    def create(
        self,
        name: str,
        columns: Sequence[tuple[str, str]],
        description: str,
        *,
        partitioned: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Make sure that a table is there: `columns` are (name, SQL type), order_date among them partitions it.

        Safe when several processes do it at once. A table that is there stays as it is.

        Args:
            partitioned: False for a table that is small as a whole.
            properties: Delta's table properties.
        """
        if self.open(name) is not None:
            return
        fields = [Field(column, delta_type(kind)) for column, kind in columns]
        partition_by = [column for column, _ in columns if column == "order_date" and partitioned]
        # delta-rs looks and then commits: of two at once the second fails, or makes the table anew under another identity.
        # A lock of its own, for whoever is about to commit holds the table's.
        with commit_lock(self._locks, f"{_dotted(name)}.creation"):
            if self.open(name) is not None:
                return
            Path(self.table_uri(name)).mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                self.table_uri(name),
                Schema(fields),
                mode="ignore",
                partition_by=partition_by,
                name=_dotted(name),
                description=description,
                configuration=dict(properties or {}),
            )

    def widen(self, name: str, columns: Sequence[tuple[str, str]]) -> DeltaTable:
        """Give a table that is there the columns that it lacks; they read NULL in its rows. The caller holds its lock."""
        table = self.open(name)
        if table is None:
            raise RuntimeError(f"{name} is not there")
        there = {field.name for field in table.schema().fields}
        lacking = [Field(column, delta_type(kind)) for column, kind in columns if column not in there]
        if lacking:
            table.alter.add_columns(lacking)
        return table

    def names(self) -> list[str]:
        """The tables there are, in order."""
        root = Path(self.uri)
        logs = [*root.glob("*/_delta_log"), *root.glob("*/*/_delta_log")]
        return sorted(str(log.parent.relative_to(root)) for log in logs)

    def commit_lock(self, name: str) -> AbstractContextManager[None]:
        """Held by one process at a time around a commit to a table.

        Raises:
            TableBusy: what a killed run left behind may still write.
        """
        return commit_lock(self._locks, _dotted(name))

    def commit_lock_if_free(self, name: str) -> AbstractContextManager[bool]:
        """The same for a commit that can as well be made another time: whether it is held now. Waits for nobody."""
        return commit_lock_if_free(self._locks, _dotted(name))

    @property
    def _locks(self) -> Path:
        return Path(self.uri) / ".locks"


def _dotted(name: str) -> str:
    """A table's name as SQL has it."""
    return name.replace("/", ".")


def _check_complete(log: Path) -> None:
    """Raises ValueError when an entry of a table's log is missing: its readers would pass over what it says."""
    names = [each.name for each in log.iterdir()]
    commits = sorted(int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name))
    checkpoints = [int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.checkpoint\..*", name)]
    if not commits:
        return
    first = max(checkpoints) + 1 if checkpoints else 0
    missing = sorted(set(range(first, commits[-1])) - set(commits))
    if missing:
        raise ValueError(f"the log's entry {missing[0]} is missing")


def unreadable(name: str, where: str, error: Exception) -> TableUnreadable:
    """The sentence about a table that cannot be read."""
    reason = " ".join(str(error).split())[:200]
    return TableUnreadable(
        f"the table {name} in {where} cannot be read ({reason}). Bring back the missing or damaged files, "
        "or move the folder away and make all its days again (`shop backfill`)"
    )


def table_id(table: DeltaTable) -> str:
    """The identity of a table: another one when its folder was deleted and made again."""
    return str(table.metadata().id)


def data_files(table: DeltaTable) -> pa.Table:
    """The data files of a table's version: `file` (path), `order_date` (or NULL), `rows` (or NULL), `bytes`."""
    actions = pa.table(table.get_add_actions(flatten=True))
    root = table.table_uri.removeprefix("file://").rstrip("/")
    if "://" not in root:
        root = unquote(root)
    nothing = pa.nulls(actions.num_rows)

    def column(name: str, kind: pa.DataType) -> pa.Array:
        return (actions[name] if name in actions.column_names else nothing).cast(kind)

    return pa.table(
        {
            "file": pa.array([f"{root}/{unquote(path)}" for path in actions["path"].to_pylist()], pa.string()),
            "order_date": column("partition.order_date", pa.date32()),
            "rows": column("num_records", pa.int64()),
            "bytes": column("size_bytes", pa.int64()),
        }
    )


def files_of_days(table: DeltaTable, days: Collection[date]) -> pa.Table:
    """The data files of some days of a table that is partitioned by order_date, as data_files has them."""
    files = data_files(table)
    return files.filter(pa.array([day in days for day in files["order_date"].to_pylist()], pa.bool_()))


def files_that_may_hold(table: DeltaTable, *within: tuple[str, Sequence[tuple[Any, Any]]]) -> pa.Table:
    """The data files that may have a row for which one of `within` holds, as data_files has them.

    Args:
        within: a column, and ranges (lowest, highest) of which one has its value. Files whose range of the column is not
            known are among the answer.
    """
    files, actions = data_files(table), pa.table(table.get_add_actions(flatten=True))
    keep = [False] * files.num_rows
    for column, ranges in within:
        lows, highs = (
            actions[f"{end}.{column}"].to_pylist() if f"{end}.{column}" in actions.column_names else [None] * files.num_rows
            for end in ("min", "max")
        )
        for n, (low, high) in enumerate(zip(lows, highs, strict=True)):
            keep[n] = keep[n] or low is None or high is None or any(low <= last and first <= high for first, last in ranges)
    return files.filter(pa.array(keep, pa.bool_()))


def rows_by_day(files: pa.Table) -> dict[date, int]:
    """How many rows data files have of each of their days, from the log's statistics alone."""
    found: dict[date, int] = {}
    for day, rows in zip(files["order_date"].to_pylist(), files["rows"].to_pylist(), strict=True):
        found[day] = found.get(day, 0) + (rows or 0)
    return found


def row_count(table: DeltaTable) -> int:
    """How many rows a table's version has, from the log's statistics alone."""
    return sum(rows or 0 for rows in data_files(table)["rows"].to_pylist())


def check_readable(table: DeltaTable, name: str) -> None:
    """Raises NotChecked when the data files alone do not say what is in the table."""
    features = set(table.protocol().reader_features or [])
    if table.protocol().min_reader_version == 2:
        features.add("columnMapping")
    unknown = sorted(features - READABLE_FEATURES)
    if unknown:
        raise NotChecked(
            f"{name} uses the Delta feature {', '.join(unknown)}, which the independent reader does not support; "
            "rewrite the table without it"
        )


def view(
    con: duckdb.DuckDBPyConnection,
    alias: str,
    table: DeltaTable,
    days: Collection[date] | None = None,
    files: pa.Table | None = None,
) -> pa.Table:
    """Make `alias` a view in DuckDB of a table's version: all of it, some days, or some of its `files`. Returns its data files.

    Partition values come from the log, not from paths; a column that older files lack reads NULL.
    """
    if files is None:
        files = data_files(table) if days is None else files_of_days(table, set(days))
    fields = [(field.name, _duckdb_type(field.type)) for field in table.schema().fields]
    partitions = set(table.metadata().partition_columns)
    if files.num_rows == 0:
        columns = ", ".join(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in fields)
        con.execute(f"CREATE OR REPLACE TEMP VIEW {identifier(alias)} AS SELECT {columns} WHERE false")
        return files
    listing = identifier(f"_files_{alias}")
    con.register("_listing", files)
    con.execute(f"CREATE OR REPLACE TEMP TABLE {listing} AS SELECT * FROM _listing")
    con.unregister("_listing")
    paths = "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in files["file"].to_pylist()) + "]"
    reader = f"read_parquet({paths}, union_by_name = true, filename = true, hive_partitioning = false)"
    stored = {row[0] for row in con.execute(f"DESCRIBE SELECT * FROM {reader}").fetchall()}
    columns = ", ".join(
        f"f.{identifier(name)}"
        if name in partitions
        else f"CAST({'p.' + identifier(name) if name in stored else 'NULL'} AS {kind}) AS {identifier(name)}"
        for name, kind in fields
    )
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW {identifier(alias)} AS SELECT {columns} "
        f"FROM {reader} p JOIN {listing} f ON f.file = p.filename"
    )
    return files


def delta_type(kind: str) -> PrimitiveType:
    """Delta's type for an SQL type."""
    return PrimitiveType(_DELTA_TYPES.get(kind, kind.lower()))


def _duckdb_type(kind: object) -> str:
    text = str(getattr(kind, "type", kind))
    if re.fullmatch(r"decimal\(\d+, ?\d+\)", text):
        return text.upper()
    return _DUCKDB_TYPES.get(text, "VARCHAR")
