"""What a batch of days says before anything is written: a reading of each day, by two engines that must agree.

DuckDB reads and judges first, and decides which days are refused and why. Spark, which writes, judges the same rows by
the same rules; a day on which the two differ is not written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shop_pipeline.core.contract import Action, Column, Contract, to_duckdb
from shop_pipeline.core.sources import OpenSource, Split

EXAMPLES = 5
SHOWN = 60


@dataclass(frozen=True)
class Reading:
    """One engine's reading of a day: its records, those that break a rule whose action is fail, and the good ones.

    What is neither is quarantined. `sums` are over the good rows, one per column; `broken` counts rows per rule.
    """

    records: int
    failing: int
    good: int
    broken: tuple[int, ...]
    sums: tuple[Decimal, ...]
    max_event_time: datetime | None

    @property
    def quarantined(self) -> int:
        """The rows that are set aside."""
        return self.records - self.failing - self.good


@dataclass(frozen=True)
class Fingerprints:
    """Order-free content hashes of a day: of every record, and of the good rows alone. `<rows>:<hex>`."""

    source: str
    good: str


@dataclass(frozen=True)
class Violation:
    """A broken rule of one row."""

    line: int
    column: str
    value: str | None
    reason: str
    action: Action

    def __str__(self) -> str:
        where = f"line {self.line}, column {self.column}, value {_shortened(self.value)}" if self.column else f"line {self.line}"
        return f"{where}: {self.reason}"


def _shortened(value: str | None) -> str:
    return repr(value) if value is None or len(value) <= SHOWN else f"{value[:SHOWN]!r}…"


def canonical(columns: Sequence[Column], *, source: bool) -> str:
    """DuckDB SQL: a row as one text, equal for equal typed values. A value that has no type's form stands as it was sent."""
    parts = []
    for column in columns:
        if source:
            typed = to_duckdb(column.typed)
            parts.append(f"coalesce(CAST({typed} AS VARCHAR), '?' || nullif({column.name}, ''), '')")
        else:
            parts.append(f"coalesce(CAST({column.name} AS VARCHAR), '')")
    return "concat_ws(chr(31), " + ", ".join(parts) + ")"


def row_hash(text: str) -> str:
    """DuckDB SQL: the 64-bit hash of a text, the same in every version of DuckDB."""
    return f"md5_number_lower({text})"


def fingerprint(rows: int, total: int | None) -> str:
    """A count and a sum of row hashes as text."""
    return f"{rows}:{(total or 0) % 2**64:016x}"


def read_by_duckdb(
    con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, days: Sequence[date]
) -> Mapping[date, tuple[Reading, Fingerprints]]:
    """Every day's reading and fingerprints, in one pass over the source."""
    failing = to_duckdb(contract.broken(Action.FAIL))
    good = to_duckdb(f"NOT {contract.broken(Action.FAIL, Action.QUARANTINE)}")
    broken = [f"count(*) FILTER (WHERE {rule.broken_in_duckdb})" for rule in contract.rules]
    sums = [_sum(column, "duckdb") for column in contract.columns]
    events = [to_duckdb(c.typed) for c in contract.columns if c.type == "TIMESTAMP"]
    rows = con.execute(
        f"""
        WITH judged AS (
            SELECT *, {failing} AS _failing, {good} AS _good, {row_hash(canonical(contract.columns, source=True))} AS _hash
            FROM ({source.rows_in_duckdb(con, days)})
        )
        SELECT order_date, count(*), count(*) FILTER (WHERE _failing), count(*) FILTER (WHERE _good),
               sum(_hash), sum(_hash) FILTER (WHERE _good),
               {f"max({events[0]}) FILTER (WHERE _good)" if events else "NULL"},
               {", ".join(broken)}, {", ".join(f"{each} FILTER (WHERE _good)" for each in sums)}
        FROM judged GROUP BY order_date
        """
    ).fetchall()
    found = {}
    for day, records, n_failing, n_good, full_hash, good_hash, last, *rest in rows:
        reading = Reading(records, n_failing, n_good, tuple(rest[: len(broken)]), _exact(rest[len(broken) :]), last)
        found[day] = (reading, Fingerprints(fingerprint(records, full_hash), fingerprint(n_good, good_hash)))
    nothing = Reading(0, 0, 0, (0,) * len(broken), (Decimal(0),) * len(sums), None)
    return {day: found.get(day, (nothing, Fingerprints(fingerprint(0, 0), fingerprint(0, 0)))) for day in days}


def read_by_spark(rows: DataFrame, contract: Contract, days: Sequence[date]) -> tuple[Mapping[date, Reading], list[Split]]:
    """The same reading by Spark, in one pass, and where each split's records begin (for numbering them)."""
    judged = rows.withColumn("_failing", F.expr(contract.broken(Action.FAIL))).withColumn(
        "_good", F.expr(f"NOT {contract.broken(Action.FAIL, Action.QUARANTINE)}")
    )
    counted = [F.expr(f"count_if({rule.broken})").alias(f"_broken{n}") for n, rule in enumerate(contract.rules)]
    sums = [F.expr(f"{_sum(column, 'spark')} FILTER (WHERE _good)").alias(f"_sum{n}") for n, column in enumerate(contract.columns)]
    events = [column.typed for column in contract.columns if column.type == "TIMESTAMP"]
    answer = (
        judged.groupBy("order_date", "_split")
        .agg(
            F.count(F.lit(1)).alias("_records"),
            F.expr("count_if(_failing)").alias("_failing_rows"),
            F.expr("count_if(_good)").alias("_good_rows"),
            F.min("_position").alias("_first"),
            F.expr(f"max(unix_micros({events[0]})) FILTER (WHERE _good)" if events else "NULL").alias("_last"),
            *counted,
            *sums,
        )
        .collect()
    )
    splits = [Split(row["order_date"], row["_split"], row["_first"], row["_records"]) for row in answer]
    readings = {}
    for day in days:
        mine = [row for row in answer if row["order_date"] == day]
        last = max((row["_last"] for row in mine if row["_last"] is not None), default=None)
        readings[day] = Reading(
            sum(row["_records"] for row in mine),
            sum(row["_failing_rows"] for row in mine),
            sum(row["_good_rows"] for row in mine),
            tuple(sum(row[f"_broken{n}"] for row in mine) for n in range(len(counted))),
            _exact([sum((row[f"_sum{n}"] or Decimal(0) for row in mine), Decimal(0)) for n in range(len(sums))]),
            None if last is None else _from_micros(last),
        )
    return readings, splits


def difference(by_duckdb: Reading, by_spark: Reading, contract: Contract) -> str | None:
    """How two readings of a day differ, or None."""
    pairs: list[tuple[str, Any, Any]] = [
        ("records", by_duckdb.records, by_spark.records),
        ("rows that fail", by_duckdb.failing, by_spark.failing),
        ("good rows", by_duckdb.good, by_spark.good),
        ("the newest time", by_duckdb.max_event_time, by_spark.max_event_time),
    ]
    for rule, one_count, other_count in zip(contract.rules, by_duckdb.broken, by_spark.broken, strict=True):
        pairs.append((f"rows with {rule.column} {rule.reason}".replace("  ", " "), one_count, other_count))
    for column, one_sum, other_sum in zip(contract.columns, by_duckdb.sums, by_spark.sums, strict=True):
        pairs.append((f"the sum over {column.name}", one_sum, other_sum))
    found = [f"{what}: {one} by DuckDB, {other} by Spark" for what, one, other in pairs if one != other]
    return "; ".join(found) or None


def violations(
    con: duckdb.DuckDBPyConnection,
    contract: Contract,
    source: OpenSource,
    day: date,
    actions: Sequence[Action],
    limit: int | None = None,
) -> list[Violation]:
    """The broken rules of a day's rows, in the order of the source; one row may break several."""
    listed = [rule for rule in contract.rules if rule.action in actions]
    cases = " UNION ALL ".join(
        f"SELECT _record, {n} AS rule, {rule.column or 'NULL'} AS value FROM rows WHERE {rule.broken_in_duckdb}"
        for n, rule in enumerate(listed)
    )
    cut = "" if limit is None else f" LIMIT {limit}"
    found = con.execute(f"WITH rows AS MATERIALIZED ({source.rows_in_duckdb(con, [day])}) {cases} ORDER BY 1, 2{cut}").fetchall()
    records = source.records(day, [number for number, _, _ in found])
    return [
        Violation(records[number].line, listed[n].column, value, listed[n].reason, listed[n].action) for number, n, value in found
    ]


def _sum(column: Column, engine: str) -> str:
    """SQL: a sum that two engines can compare: of the values, of text lengths, of microseconds."""
    if column.type == "STRING":
        return f"sum(length({column.name}))"
    typed = column.typed if engine == "spark" else to_duckdb(column.typed)
    if column.type == "TIMESTAMP":
        typed = f"{'unix_micros' if engine == 'spark' else 'epoch_us'}({typed})"
    return f"sum(CAST({typed} AS DECIMAL(38,2)))"


def _exact(values: Sequence[Any]) -> tuple[Decimal, ...]:
    return tuple(Decimal(value or 0) for value in values)


def _from_micros(micros: int) -> datetime:
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.utcfromtimestamp(seconds).replace(microsecond=rest)  # noqa: DTZ004 - wall clock, as if UTC
