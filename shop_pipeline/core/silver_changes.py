"""Which rows of silver change when days of the table before it have: worked out by DuckDB on both tables' files.

Silver's row of a key is the newest of all the days' rows. A run knows its own days; of the others it needs to look only at the
keys whose row has left its days or grown older there, and only in files that may hold them. So the cost follows the change.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb

from shop_pipeline.core.contract import AUDIT_COLUMNS, ORDER_DATE, Contract
from shop_pipeline.core.duck import identifier, quoted

SOURCE_DAY = ("_source_day", "DATE")
# Into how many ranges keys are told, for files to be passed over by.
MOST_RANGES = 32
_MANY_KEYS = 1_000_000
# (lowest, highest); None where keys have no order that files are searched by.
Ranges = list[tuple[Any, Any]] | None
# Makes the views `other` and `closed` of other days' rows that may have keys within these ranges: of days that may be read, and
# of days that may not. False when there are none.
OtherDays = Callable[[Ranges], bool]

INSERT, UPDATE, FELL_BACK, DELETE = "insert", "update", "fell back", "delete"


def columns(contract: Contract) -> tuple[tuple[str, str], ...]:
    """(name, SQL type) of silver's columns: order_date is the day of the event, _source_day that of the source."""
    own = tuple((column.name, column.type) for column in contract.columns)
    return (*own, ORDER_DATE, SOURCE_DAY, *AUDIT_COLUMNS)


def newest(alias: str = "") -> str:
    """SQL: what says which of two rows of a key is newer."""
    of = f"{alias}." if alias else ""
    return f"{of}_source_version, {of}_source_day, {of}_source_seq"


@dataclass(frozen=True)
class Changes:
    """The rows to insert, update and delete (`_gone`): how many by (kind of change, source day), the ranges of their keys.

    `undecided`: days that lost a key of which a day that may not be read has the newest row, with that key and that day. What
    becomes of it cannot be told before that day is verified or loaded again.
    """

    counts: Counter[tuple[str, date]]
    ranges: Ranges
    undecided: tuple[tuple[date, Any, date], ...] = ()

    @property
    def clauses(self) -> frozenset[str]:
        """Which of insert, update and delete a merge of them needs."""
        return frozenset(UPDATE if kind == FELL_BACK else kind for kind, _ in self.counts)


class Comparison:
    """Bronze's days against silver, in one DuckDB connection.

    Views that must be there: `bronze`, the good days' rows. Tables made here, which `silver_check` reads too: `repeated` (keys
    with several rows), `candidate` (the newest row of each key), `present` (silver's rows of these keys and days).
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, contract: Contract, days: Sequence[date]) -> None:
        self.con, self.contract = con, contract
        self.key = identifier(contract.key)
        self.days = ", ".join(f"DATE '{day}'" for day in days)
        self.names = [name for name, _ in columns(contract)]
        con.execute(f"CREATE OR REPLACE TEMP VIEW arrived AS {self._as_silver('bronze')}")
        con.execute(f"CREATE OR REPLACE TEMP TABLE repeated AS SELECT {self.key} FROM arrived GROUP BY ALL HAVING count(*) > 1")
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE candidate AS SELECT * FROM arrived ANTI JOIN repeated USING ({self.key}) UNION ALL "
            + self._newest_of(f"SELECT * FROM arrived SEMI JOIN repeated USING ({self.key})")
        )

    def ranges(self, table: str = "candidate") -> Ranges:
        """Ranges that hold all keys of a table and few others; none of them where it has no rows."""
        kind = self.contract.key_column.type
        if kind not in ("INT", "STRING"):
            return None
        ((count, low, high),) = self.con.execute(f"SELECT count(*), min({self.key}), max({self.key}) FROM {table}").fetchall()
        if not count:
            return []
        if kind == "STRING" or count > _MANY_KEYS:
            return [(low, high)]
        return self.con.execute(
            f"""
            WITH k AS (SELECT DISTINCT CAST({self.key} AS HUGEINT) AS k FROM {table}),
                 gaps AS (SELECT k, k - lag(k) OVER (ORDER BY k) AS gap FROM k),
                 cuts AS (SELECT k FROM gaps WHERE gap > 1 ORDER BY gap DESC, k LIMIT {MOST_RANGES - 1}),
                 runs AS (SELECT k.k, count(c.k) OVER (ORDER BY k.k) AS run FROM k LEFT JOIN cuts c ON c.k = k.k)
            SELECT min(k), max(k) FROM runs GROUP BY run ORDER BY 1
            """
        ).fetchall()

    def take_present(self, alias: str) -> None:
        """Make `present` of silver's rows (a view) that have these keys or come from these days."""
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE present AS {self._concerned(alias)}")

    def changes(self, others: OtherDays) -> Changes:
        """Make the table `changes`: what turns silver's rows into the newest of all days' rows."""
        con, key = self.con, self.key
        con.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE unsettled AS SELECT p.{key} FROM present p LEFT JOIN candidate c USING ({key})
            WHERE p._source_day IN ({self.days})
              AND (c.{key} IS NULL OR (c._source_version, c._source_day) < (p._source_version, p._source_day))
            """
        )
        con.execute("CREATE OR REPLACE TEMP VIEW winner AS FROM candidate")
        undecided: list[tuple[date, Any, date]] = []
        ((unsettled,),) = con.execute("SELECT count(*) FROM unsettled").fetchall()
        if unsettled and others(self.ranges("unsettled")):
            both = (
                f"SELECT * FROM candidate SEMI JOIN unsettled USING ({key}) UNION ALL "
                f"SELECT * FROM ({self._as_silver('other')}) SEMI JOIN unsettled USING ({key})"
            )
            con.execute(
                f"CREATE OR REPLACE TEMP TABLE settled AS SELECT * FROM candidate ANTI JOIN unsettled USING ({key}) "
                f"UNION ALL {self._newest_of(both)}"
            )
            con.execute("CREATE OR REPLACE TEMP VIEW winner AS FROM settled")
            undecided = con.execute(
                f"""
                SELECT p._source_day, c.{key}, max(c._source_day) FROM ({self._as_silver("closed")}) c
                SEMI JOIN unsettled USING ({key}) JOIN present p ON p.{key} = c.{key} LEFT JOIN winner w ON w.{key} = c.{key}
                WHERE w.{key} IS NULL OR ({newest("c")}) > ({newest("w")}) GROUP BY ALL ORDER BY ALL
                """
            ).fetchall()
        differs = " OR ".join(f"w.{n} IS DISTINCT FROM p.{n}" for n in map(identifier, self.names) if n != '"_loaded_at"')
        con.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE changes AS
            SELECT *, false AS _gone, '{INSERT}' AS _change, _source_day AS _of FROM winner ANTI JOIN present USING ({key})
            UNION ALL
            SELECT w.*, false, CASE WHEN w._source_day IN ({self.days}) THEN '{UPDATE}' ELSE '{FELL_BACK}' END,
                   CASE WHEN w._source_day IN ({self.days}) THEN w._source_day ELSE p._source_day END
            FROM winner w JOIN present p USING ({key})
            WHERE ({differs}) AND (p._source_day IN ({self.days}) OR ({newest("w")}) > ({newest("p")}))
            UNION ALL
            SELECT *, true, '{DELETE}', _source_day FROM present ANTI JOIN winner USING ({key}) WHERE _source_day IN ({self.days})
            """
        )
        counts = con.execute("SELECT _change, _of, count(*) FROM changes GROUP BY ALL").fetchall()
        by_kind = Counter({(kind, day): rows for kind, day, rows in counts})
        return Changes(by_kind, self.ranges("changes"), tuple(undecided))

    def write(self, file: Path) -> None:
        """Write `changes` to a Parquet file, which stays as it is however often it is read."""
        listed = ", ".join(
            # Instants in UTC, which Spark reads as its TIMESTAMP.
            f"CAST({identifier(name)} AS TIMESTAMPTZ) AS {identifier(name)}" if kind == "TIMESTAMP" else identifier(name)
            for name, kind in columns(self.contract)
        )
        self.con.execute(f"COPY (SELECT {listed}, _gone FROM changes) TO {quoted(str(file))} (FORMAT parquet)")

    def _concerned(self, alias: str) -> str:
        listed = ", ".join(map(identifier, self.names))
        return (
            f"SELECT {listed} FROM {alias} WHERE _source_day IN ({self.days}) OR {self.key} IN (SELECT {self.key} FROM candidate)"
        )

    def _as_silver(self, alias: str) -> str:
        """SQL: rows of the table before silver, as silver has them. Rows without a key are for the gate."""
        time = self.contract.event_time
        event_day = "order_date" if time is None else f"coalesce(CAST({identifier(time.name)} AS DATE), order_date)"
        own = ", ".join(map(identifier, self.contract.names))
        audit = ", ".join(name for name, _ in AUDIT_COLUMNS)
        return (
            f"SELECT {own}, {event_day} AS order_date, order_date AS _source_day, {audit} FROM {alias} WHERE {self.key} IS NOT NULL"
        )

    def _newest_of(self, rows: str) -> str:
        order = ", ".join(f"{name} DESC" for name in newest().split(", "))
        return f"SELECT * FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY {self.key} ORDER BY {order}) = 1"


def within(contract: Contract, ranges: Ranges) -> str:
    """Spark SQL over the table's row `t`: its key lies in one of these ranges."""
    if ranges is None:
        return "true"
    key = f"t.`{contract.key}`"

    def literal(value: object) -> str:
        return str(value) if isinstance(value, int) else "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"

    return " OR ".join(f"{key} BETWEEN {literal(low)} AND {literal(high)}" for low, high in ranges)
