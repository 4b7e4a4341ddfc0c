"""A table in Postgres, by day of the time that its contract has first: the web shop's orders, by `order_ts`.

Everything that a load reads is one snapshot of the database: the connection that opens the days exports it, and Spark's JDBC
connections read in it. So the rows that are judged are the rows that are written, whatever the shop does meanwhile. Both engines
get the database's own text of each value; no driver's idea of time zones, numbers or infinity comes in between.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta

import duckdb
import psycopg
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shop_pipeline.core import duck
from shop_pipeline.core.contract import Contract, NewColumns
from shop_pipeline.core.days import contiguous_ranges
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.errors import SettingError, ShopError, SourceRefused
from shop_pipeline.core.postgres import Address
from shop_pipeline.core.scratch import Scratch
from shop_pipeline.core.sources import Drift, Record, Split

FETCH_SIZE = 10_000
# From so many bytes of text on, Spark reads in several queries at once, each a part of the time.
BIG = 32 * 1024 * 1024
MOST_PARTS = 16
# What stands for NULL in the copy that DuckDB reads; a value that is the same is written in quotes.
_NULL = "\x02"
_TIMES = ("timestamp without time zone", "timestamp with time zone", "date")
_LITERAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class ShopflowPostgres:
    """A database's table as a source under a contract (its `physical_name`); holds no connection."""

    address: Address
    contract: Contract

    def size(self, days: Sequence[date]) -> int | None:
        """Not known before the days are read."""
        return None

    def missing(self, days: Sequence[date]) -> frozenset[date]:
        """None: a day without orders is an empty one."""
        return frozenset()

    def fingerprints(self, days: Sequence[date]) -> Mapping[date, str]:
        """By one grouped query that the database answers.

        Raises:
            SourceUnavailable, SourceRefused, SettingError: as open does.
        """
        self._check_contract()
        opened = OpenShopflow(self.address, self.contract, tuple(sorted(days)))
        with closing(opened):
            opened.look()
            return opened.fingerprints(days)

    def _check_contract(self) -> None:
        if self.contract.event_time is None:
            raise SettingError(f"{self.contract.origin} has no TIMESTAMP column: by the first of them a row belongs to a day.")

    def open(self, days: Sequence[date]) -> "OpenShopflow":
        """Take a snapshot of the database and copy these days' rows out of it.

        Raises:
            SourceUnavailable, SourceRefused: the database could not be read.
            SettingError: the contract has no time.
        """
        self._check_contract()
        opened = OpenShopflow(self.address, self.contract, tuple(sorted(days)))
        try:
            opened.look()
            opened.take()
        except BaseException:
            opened.close()
            raise
        return opened


@dataclass
class OpenShopflow:
    """Some days of the table, as they stood at one moment; see OpenSource."""

    address: Address
    contract: Contract
    days: tuple[date, ...]
    refused: Mapping[date, str] = field(default_factory=dict)
    missing: frozenset[date] = frozenset()
    noun: str = "source"

    def __post_init__(self) -> None:
        self._table = self.contract.physical_name
        self._quoted = ".".join(identifier(part) for part in self._table.split("."))
        self._time = self.contract.event_time.name if self.contract.event_time else ""
        self._scratch = Scratch()
        self._copy = self._scratch.path / "rows.csv"
        self._connection: psycopg.Connection | None = None
        self._dateless = 0

    def look(self) -> None:
        """Open the snapshot and look at the columns."""
        connection = self._connection = self.address.open()
        with self.address.sentences():
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            ((self._snapshot,),) = connection.execute("SELECT pg_export_snapshot()").fetchall()
            self._columns: dict[str, str] = dict(
                connection.execute(
                    "SELECT attname, atttypid::regtype::text FROM pg_attribute "
                    "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                    [self._quoted],
                ).fetchall()
            )
        self._look_at_columns()
        if not self.refused:
            with self.address.sentences():
                without = f"{self._time} IS NULL OR {self._time} IN ('infinity', '-infinity')"
                asked = f"SELECT count(*) FROM {self._quoted} WHERE {without}".encode()
                ((self._dateless,),) = connection.execute(asked).fetchall()

    def remarks(self) -> list[str]:
        """Rows that belong to no day, so that no load ever has them."""
        if not self._dateless:
            return []
        rows = "row has" if self._dateless == 1 else "rows have"
        return [
            f"{self._dateless} {rows} no day in the table {self._table} of {self.address}: {self._time} is NULL or infinite. "
            "No load takes them; mend them there"
        ]

    def take(self) -> None:
        """Copy the rows to a file."""
        connection = self._open
        if self.refused:
            return
        with self.address.sentences():
            # Composed of names that the database has, and of dates.
            copying = f"COPY ({self._select()}) TO STDOUT (FORMAT csv, NULL {duck.quoted(_NULL)})".encode()
            with self._copy.open("wb") as file, connection.cursor() as cursor, cursor.copy(copying) as copy:
                for block in copy:
                    file.write(block)

    def _look_at_columns(self) -> None:
        if not self._columns:
            raise SourceRefused(
                f"{self.address} has no table {self._table}: look at SHOP_POSTGRES_URL, or run `shop sample shopflow`."
            )
        names = self.contract.names
        lacking = [name for name in names if name not in self._columns]
        surplus = [name for name in self._columns if name not in names]
        # Names with an underscore in front are those of our own on the rows' way through the engines.
        own = {name for name, _ in self.contract.table_columns}
        taken = [name for name in surplus if name in own or name.startswith("_")]
        odd = [name for name in surplus if not _LITERAL.fullmatch(name) or name != name.lower()]
        why = None
        if lacking:
            why = f"the table {self._table} of {self.address} lacks {', '.join(lacking)}. Bring the column back"
        elif surplus and self.contract.new_columns is NewColumns.FAIL:
            why = (
                f"the table {self._table} of {self.address} has the unknown {', '.join(surplus)}. Add it to {self.contract.origin}"
            )
        elif odd and self.contract.new_columns is NewColumns.ADD:
            why = f"the new column {odd[0]!r} of {self.address} cannot be named so here. Rename it"
        elif taken and self.contract.new_columns is NewColumns.ADD:
            why = (
                f"the table {self._table} of {self.address} uses, for a column of its own, the pipeline's {', '.join(taken)}. "
                "Rename it"
            )
        elif self._columns[self._time] not in _TIMES:
            why = (
                f"the column {self._time} of the table {self._table} of {self.address} is of type {self._columns[self._time]}, "
                f"where a day needs {_TIMES[0]}. Change it back"
            )
        if why is not None:
            self.refused = dict.fromkeys(self.days, why)
        add = self.contract.new_columns is NewColumns.ADD
        self._added = tuple(sorted(surplus)) if add else ()
        self._drift = Drift(self._added, () if add else tuple(sorted(surplus)), False)

    def _texts(self) -> list[tuple[str, str]]:
        """(name, SQL of its text in UTC) of the columns that are read."""
        found = []
        for name in (*self.contract.names, *self._added):
            instant = self._columns[name] == "timestamp with time zone"
            value = f"(\"{name}\" AT TIME ZONE 'UTC')" if instant else f'"{name}"'
            found.append((name, f"{value}::text"))
        return found

    def _where(self) -> str:
        """The days, as half-open ranges of time: an index can be used."""
        return " OR ".join(
            f"({self._time} >= TIMESTAMP '{first} 00:00:00' AND {self._time} < TIMESTAMP '{last + timedelta(days=1)} 00:00:00')"
            for first, last in contiguous_ranges(self.days)
        )

    def _select(self) -> str:
        texts = ", ".join(text for _, text in self._texts())
        return f"SELECT {texts}, {self._day()}::text FROM {self._quoted} WHERE {self._where()}"

    def _day(self) -> str:
        instant = self._columns[self._time] == "timestamp with time zone"
        return f"({self._time} AT TIME ZONE 'UTC')::date" if instant else f"{self._time}::date"

    def close(self) -> None:
        """End the snapshot and delete the copy."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._scratch.close()

    def size(self, days: Sequence[date]) -> int | None:
        """How many bytes of text the rows are."""
        return self._copy.stat().st_size if self._copy.is_file() else None

    def explain(self, error: Exception) -> ShopError | None:
        """What Spark's driver said of the database, in a sentence; None when it is about something else."""
        text = str(error)
        found = re.search(r"org\.postgresql\.util\.PSQLException: ([^\n]*)", text)
        if found is None and "[FAILED_JDBC" in text:
            return self.address.from_state(None, "Spark's driver could not connect")
        return None if found is None else self.address.from_state(None, found[1])

    def name(self, day: date) -> str:
        """The table and the day."""
        return f"{self._table} of {day} in {self.address.database} at {self.address.host}:{self.address.port}"

    def drift(self, day: date) -> Drift:
        """How the table's columns differ from the contract's: the same for all days."""
        return self._drift

    def fields(self, day: date) -> int:
        """How many columns are read."""
        return len(self._texts())

    def new_columns(self, days: Sequence[date]) -> tuple[str, ...]:
        """The table's columns beyond the contract's."""
        return self._added

    def rows_in_spark(self, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The rows by JDBC, in the snapshot: in one query, or in several at once where there are many."""
        wanted = ", ".join(f'{text} AS "{name}"' for name, text in self._texts())
        wanted += f", {self._day()} AS order_date, {self._time} AS _time"
        table = f"(SELECT {wanted} FROM {self._quoted} WHERE {self._where()}) AS rows"
        properties = {
            **self.address.credentials,
            "driver": "org.postgresql.Driver",
            "fetchsize": str(FETCH_SIZE),
            # Spark switches autocommit off before it, so that these are the transaction's first statements.
            "sessionInitStatement": (
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; "
                f"SET TRANSACTION SNAPSHOT '{self._snapshot}'; SET LOCAL TIME ZONE 'UTC'; SET LOCAL DateStyle TO 'ISO, YMD'"
            ),
        }
        parts = self._parts()
        read = spark.read
        rows = (
            read.jdbc(self.address.for_jdbc, table, properties=properties)
            if len(parts) == 1
            else read.jdbc(self.address.for_jdbc, table, predicates=parts, properties=properties)
        )
        texts: list[Column] = [F.col(name) for name in self.contract.names]
        # A column of no known type: nothing in it is NULL, as it is for the days that do not have it.
        texts += [F.nullif(F.col(name), F.lit("")).alias(name) for name in self._added]
        return rows.where(F.col("order_date").isin(list(days))).select(
            *texts,
            "order_date",
            F.lit(False).alias("_malformed"),
            F.spark_partition_id().cast("bigint").alias("_split"),
            F.monotonically_increasing_id().alias("_position"),
        )

    def _parts(self) -> list[str]:
        """Conditions that cut the days' time into parts, each row in exactly one."""
        count = min(MOST_PARTS, 1 + (self.size(self.days) or 0) // BIG)
        first, end = self.days[0], self.days[-1] + timedelta(days=1)
        minutes = (end - first).days * 24 * 60
        cuts = [f"TIMESTAMP '{first} 00:00:00' + INTERVAL '{minutes * n // count} minutes'" for n in range(1, count)]
        lower = ["", *(f"_time >= {cut}" for cut in cuts)]
        upper = [*(f"_time < {cut}" for cut in cuts), ""]
        return [" AND ".join(each for each in pair if each) or "true" for pair in zip(lower, upper, strict=True)]

    def known_splits(self, records: Mapping[date, int]) -> list[Split] | None:
        """None: rows are numbered by their keys."""
        return None

    def rows_of_known_splits(self, spark: SparkSession, day: date) -> DataFrame:
        """The rows of the day; none is of known splits."""
        return self.rows_in_spark(spark, [day])

    def with_seq(self, rows: DataFrame, splits: Sequence[Split]) -> DataFrame:
        """`rows` with `_source_seq`: the key, by which the table has each row once."""
        key = F.lpad(F.col(self.contract.key), 10, "0")
        return rows.withColumn("_source_seq", F.concat(F.lit(f"{self._table}#"), F.coalesce(key, F.lit(""))))

    def rows_in_duckdb(self, con: duckdb.DuckDBPyConnection, days: Sequence[date]) -> str:
        """The same rows, from the copy."""
        texts = [identifier(name) for name in self.contract.names]
        texts += [f"nullif({identifier(name)}, '') AS {identifier(name)}" for name in self._added]
        listed = ", ".join(f"'{day}'" for day in days)
        return (
            f"SELECT {', '.join(texts)}, CAST(_day AS DATE) AS order_date, false AS _malformed, _record "
            f"FROM ({self._numbered()}) WHERE _day IN ({listed})"
        )

    def _numbered(self) -> str:
        """DuckDB SQL: the copy's rows with `_record`, their place in it."""
        columns = ", ".join(f"{duck.quoted(name)}: 'VARCHAR'" for name in [*(name for name, _ in self._texts()), "_day"])
        return (
            f"SELECT *, row_number() OVER () AS _record FROM read_csv({duck.quoted(str(self._copy))}, auto_detect = false, "
            f"header = false, delim = ',', quote = '\"', escape = '\"', nullstr = {duck.quoted(_NULL)}, "
            f"allow_quoted_nulls = false, parallel = false, max_line_size = 100000000, columns = {{{columns}}})"
        )

    def records(self, day: date, numbers: Sequence[int]) -> Mapping[int, Record]:
        """Some rows as the database wrote them, by their place in the copy."""
        names = [name for name, _ in self._texts()]
        if not numbers:
            return {}
        rows = duck.connect().execute(
            f"SELECT _record, {', '.join(map(identifier, names))} FROM ({self._numbered()}) "
            f"WHERE _record IN ({', '.join(map(str, numbers))})"
        )
        found = {}
        at = names.index(self.contract.key)
        for number, *values in rows.fetchall():
            text = io.StringIO()
            csv.writer(text, lineterminator="").writerow(values)
            found[number] = Record(number, f"{self.contract.key} {values[at]}", text.getvalue(), len(values))
        return found

    def fingerprints(self, days: Sequence[date]) -> Mapping[date, str]:
        """Count and sum of row hashes of each day, in the snapshot. A column beyond the contract's counts where it is filled."""
        if self.refused:
            return {}
        known, added = self._texts()[: len(self.contract.names)], self._texts()[len(self.contract.names) :]
        parts = [f"coalesce({text}, chr(2))" for _, text in known]
        # concat_ws passes over NULL: a column that came later changes nothing for the rows that lack it.
        parts += [f"chr(30) || {duck.quoted(name)} || '=' || nullif({text}, '')" for name, text in added]
        row = f"hashtextextended(concat_ws(chr(31), {', '.join(parts)}), 0)::numeric"
        with self.address.sentences():
            ((kind,),) = self._open.execute("SELECT hashtextextended('shop', 0)").fetchall()
            # Composed of names that the database has, and of dates.
            asked = f"SELECT {self._day()}, count(*), sum({row}) FROM {self._quoted} WHERE {self._where()} GROUP BY 1".encode()
            found = {day: (rows, int(total)) for day, rows, total in self._open.execute(asked).fetchall()}
        counts = {day: found.get(day, (0, 0)) for day in days}
        return {day: f"{rows}:{total % 2**64:016x}:{kind % 2**16:04x}" for day, (rows, total) in counts.items()}

    @property
    def _open(self) -> psycopg.Connection:
        if self._connection is None:
            raise RuntimeError("the snapshot is not open")
        return self._connection

    def changed(self, days: Sequence[date]) -> Mapping[date, str]:
        """None: a snapshot does not change."""
        return {}
