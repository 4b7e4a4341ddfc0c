"""What a batch of days says before anything is written: a reading of each day, by two engines that must agree.

DuckDB reads and judges first, and decides which days are refused and why. Spark, which writes, judges the same rows by
the same rules; a day on which the two differ is not written.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shop_pipeline.core.contract import FIELD_COUNT, Action, Column, Contract, Rule, to_duckdb
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.sources import OpenSource, Split

EXAMPLES = 5
SHOWN = 60
# Rows fetched at a time where there may be many.
CHUNK = 10_000
# Of Spark's monotonically increasing numbers, what counts within a partition.
_WITHIN_PARTITION = 2**33 - 1
CUT_OTHERWISE = "a file was cut otherwise than it was to be"


@dataclass(frozen=True)
class Reading:
    """One engine's reading of a day.

    `broken` counts rows per rule, in the contract's order; a row may break several. `sums` are over the good rows, one per
    column. Only DuckDB's reading has the last three: how many keys come more than once, the order-free content hash of all
    records (`<rows>:<hash>:<kind of hash>`), and that of the good rows alone.
    """

    records: int
    failing: int
    good: int
    flagged: int
    broken: tuple[int, ...]
    sums: tuple[Decimal, ...]
    max_event_time: datetime | None
    repeated_keys: int = 0
    fingerprint: str = ""
    content: int = 0

    @property
    def quarantined(self) -> int:
        """The rows that are set aside."""
        return self.records - self.failing - self.good


@dataclass(frozen=True)
class Violation:
    """A broken rule of one row."""

    record: int
    place: str
    column: str
    value: str | None
    reason: str
    action: Action

    def __str__(self) -> str:
        where = f"{self.place}, column {self.column}, value {shortened(self.value)}" if self.column else self.place
        return f"{where}: {self.reason}"


@dataclass(frozen=True)
class BadRow:
    """A row with everything that is wrong with it, and its text as it was sent."""

    record: int
    text: str
    violations: tuple[Violation, ...]


def shortened(value: str | None) -> str:
    """A value as messages show it."""
    return repr(value) if value is None or len(value) <= SHOWN else f"{value[:SHOWN]!r}…"


def extras(names: Sequence[str]) -> str:
    """DuckDB SQL: the columns that a contract does not know, as one text; those that are NULL leave no trace in it."""
    parts = [f"coalesce(chr(30) || '{name}=' || CAST({identifier(name)} AS VARCHAR), '')" for name in sorted(names)]
    return " || ".join(parts) or "''"


def row_hash(names: Sequence[str], new: Sequence[str], unread: str = "''") -> str:
    """DuckDB SQL: the sum of 64-bit hashes of typed rows; equal rows in any order have equal sums.

    Args:
        unread: what stands for a row that has no typed values, as text.
    """
    return f"sum(CAST(hash({', '.join(map(identifier, names))}, {extras(new)}, {unread}) AS HUGEINT))"


def judged(con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, days: Sequence[date]) -> str:
    """DuckDB SQL: the records of days with their typed values and, in `_broken`, the bits of the rules that they break."""
    typed = ", ".join(f"{to_duckdb(column.typed)} AS {identifier(column.typed_name)}" for column in contract.columns)
    rows = source.rows_in_duckdb(con, days)
    return f"SELECT *, {to_duckdb(contract.broken)} AS _broken FROM (SELECT *, {typed} FROM ({rows}))"


def read_by_duckdb(
    con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, days: Sequence[date]
) -> dict[date, Reading]:
    """Every day's reading, in one pass over the source."""
    new = source.new_columns(days)
    typed_names = [column.typed_name for column in contract.columns]
    # A row that is not loaded counts by its text.
    texts = ", ".join(identifier(name) for name in contract.names)
    unread = f"CASE WHEN _broken & {contract.bad_bits} = 0 THEN '' ELSE concat_ws(chr(31), {texts}) END"
    event = contract.event_time
    rows = con.execute(
        f"""
        SELECT order_date, _broken, count(*), {row_hash(typed_names, new, unread)},
               count({identifier(contract.key_column.typed_name)}), count(DISTINCT {identifier(contract.key_column.typed_name)}),
               {f"max({identifier(event.typed_name)}) FILTER (WHERE _broken & {contract.bad_bits} = 0)" if event else "NULL"},
               {", ".join(_sum(column, "duckdb") for column in contract.columns)}
        FROM ({judged(con, contract, source, days)}) GROUP BY order_date, _broken
        """
    ).fetchall()
    found: dict[date, list[Any]] = defaultdict(list)
    hashes: dict[date, int] = defaultdict(int)
    contents: dict[date, int] = defaultdict(int)
    suspicious = set()
    for day, broken, records, total, keys, different_keys, last, *sums in rows:
        found[day].append((broken, records, last, sums))
        hashes[day] += total
        contents[day] += 0 if broken & contract.bad_bits else total
        if different_keys < keys or len(found[day]) > 1:
            suspicious.add(day)
    repeated = {day: keys for day, keys, _ in repeated_keys(con, contract, source, sorted(suspicious))}
    return {
        day: _reading(
            contract,
            found[day],
            repeated_keys=repeated.get(day, 0),
            fingerprint=fingerprint(sum(each[1] for each in found[day]), hashes[day]),
            content=contents[day],
        )
        for day in days
    }


def repeated_keys(
    con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, days: Sequence[date]
) -> list[tuple[date, int, list[tuple[Any, int]]]]:
    """(day, how many keys come more than once, up to five of them and how often) of the days that have any. NULL is no key."""
    if not days:
        return []
    key = identifier(contract.key_column.typed_name)
    return con.execute(
        f"""
        SELECT order_date, count(*), list((k, n) ORDER BY k)[1:{EXAMPLES}] FROM (
            SELECT order_date, {key} AS k, count(*) AS n FROM ({judged(con, contract, source, days)})
            WHERE {key} IS NOT NULL GROUP BY ALL HAVING count(*) > 1)
        GROUP BY order_date ORDER BY order_date
        """
    ).fetchall()


def judged_in_spark(rows: DataFrame, contract: Contract) -> DataFrame:
    """`rows` with their typed values and, in `_broken`, the bits of the rules that they break."""
    typed = {column.typed_name: F.expr(column.typed) for column in contract.columns}
    return rows.withColumns(typed).withColumn("_broken", F.expr(contract.broken))


def read_by_spark(rows: DataFrame, contract: Contract, days: Sequence[date]) -> tuple[dict[date, Reading], list[Split]]:
    """The reading of judged rows by Spark, in one pass, and where each split's records begin (for numbering them)."""
    sums = [F.expr(_sum(column, "spark")).alias(f"_sum{n}") for n, column in enumerate(contract.columns)]
    event = contract.event_time
    answer = (
        rows.groupBy("order_date", "_split", "_broken")
        .agg(
            F.count(F.lit(1)).alias("_records"),
            F.min("_position").alias("_first"),
            F.expr(
                f"max(unix_micros(`{event.typed_name}`)) FILTER (WHERE _broken & {contract.bad_bits} = 0)" if event else "NULL"
            ).alias("_last"),
            *sums,
        )
        .collect()
    )
    found: dict[date, list[Any]] = defaultdict(list)
    splits: dict[tuple[date, int], Split] = {}
    for row in answer:
        last = None if row["_last"] is None else _from_micros(row["_last"])
        each = [row[f"_sum{n}"] for n in range(len(sums))]
        found[row["order_date"]].append((row["_broken"], row["_records"], last, each))
        place = (row["order_date"], row["_split"])
        known = splits.get(place)
        first, records = (row["_first"], row["_records"])
        if known is not None:
            first, records = min(first, known.first_position), records + known.records
        splits[place] = Split(*place, first, records)
    return {day: _reading(contract, found[day]) for day in days}, list(splits.values())


def counted_within(rows: DataFrame, splits: Sequence[Split]) -> DataFrame:
    """`rows` of splits that are known beforehand: `_position` is the place within the row's split.

    The job fails with CUT_OTHERWISE where a split is not among them or has more records than it should: so every number is
    right, or nothing is written.
    """
    known = [F.lit(value).cast("bigint") for split in splits for value in (split.start, split.records)]
    place = F.col("_position").bitwiseAND(F.lit(_WITHIN_PARTITION).cast("bigint"))
    fits = place < F.try_element_at(F.create_map(*known), F.col("_split").cast("bigint"))
    return rows.withColumn("_position", F.when(fits, place).otherwise(F.raise_error(F.lit(CUT_OTHERWISE)).cast("bigint")))


def _reading(contract: Contract, groups: Sequence[tuple[int, int, datetime | None, Sequence[Any]]], **of_duckdb: Any) -> Reading:  # noqa: ANN401
    """A day's reading from its groups of rows that break the same rules: (bits, rows, newest time, sums)."""
    failing_bits = contract.bits(Action.FAIL)
    good = [(rows, last, sums) for broken, rows, last, sums in groups if not broken & contract.bad_bits]
    return Reading(
        records=sum(rows for _, rows, _, _ in groups),
        failing=sum(rows for broken, rows, _, _ in groups if broken & failing_bits),
        good=sum(rows for rows, _, _ in good),
        flagged=sum(rows for broken, rows, _, _ in groups if broken and not broken & contract.bad_bits),
        broken=tuple(sum(rows for broken, rows, _, _ in groups if broken >> n & 1) for n in range(len(contract.rules))),
        sums=tuple(sum((_value(column, sums[n]) for _, _, sums in good), Decimal(0)) for n, column in enumerate(contract.columns)),
        max_event_time=max((last for _, last, _ in good if last is not None), default=None),
        **of_duckdb,
    )


def difference(by_duckdb: Reading, by_spark: Reading, contract: Contract) -> str | None:
    """How two readings of a day differ, or None."""
    pairs: list[tuple[str, Any, Any]] = [
        ("records", by_duckdb.records, by_spark.records),
        ("rows that fail", by_duckdb.failing, by_spark.failing),
        ("good rows", by_duckdb.good, by_spark.good),
        ("the newest time", by_duckdb.max_event_time, by_spark.max_event_time),
    ]
    for rule, one_count, other_count in zip(contract.rules, by_duckdb.broken, by_spark.broken, strict=True):
        pairs.append((f"rows with {rule.name}", one_count, other_count))
    for column, one_sum, other_sum in zip(contract.columns, by_duckdb.sums, by_spark.sums, strict=True):
        pairs.append((f"the sum over {column.name}", one_sum, other_sum))
    found = [f"{what}: {one} by DuckDB, {other} by Spark" for what, one, other in pairs if one != other]
    return "; ".join(found) or None


def bad_rows(
    con: duckdb.DuckDBPyConnection,
    contract: Contract,
    source: OpenSource,
    day: date,
    bits: int,
    limit: int | None = None,
    *,
    without: int = 0,
) -> Iterator[BadRow]:
    """The rows of a day that break a rule among `bits` and none among `without`, in the order of the source.

    Each comes with all that is wrong with it.
    """
    texts = ", ".join(identifier(name) for name in contract.names)
    cut = "" if limit is None else f" LIMIT {limit}"
    found = con.cursor().execute(
        f"SELECT _record, _broken, {texts} FROM ({judged(con, contract, source, [day])}) "
        f"WHERE _broken & {bits} <> 0 AND _broken & {without} = 0 ORDER BY _record{cut}"
    )
    while chunk := found.fetchmany(CHUNK):
        records = source.records(day, [row[0] for row in chunk])
        for number, broken, *values in chunk:
            record = records[number]
            sent = dict(zip(contract.names, values, strict=True))
            yield BadRow(
                number,
                record.text,
                tuple(
                    Violation(
                        number,
                        record.place,
                        rule.column,
                        sent.get(rule.column),
                        _reason(rule, broken, record.fields, source, day),
                        rule.action,
                    )
                    for rule in contract.rules_of(broken)
                ),
            )


def _reason(rule: Rule, broken: int, fields: int, source: OpenSource, day: date) -> str:
    return f"{fields} fields, expected {source.fields(day)}" if broken == FIELD_COUNT else rule.reason


def fingerprint(rows: int, total: int) -> str:
    """A count, a sum of row hashes, and which hash it is, as text: `<rows>:<hash>:<kind>`."""
    return f"{rows}:{total % 2**64:016x}:{hash_kind()}"


@cache
def hash_kind() -> str:
    """Which hash function this DuckDB has: its answer to a fixed question. Fingerprints of different kinds say nothing of each
    other, so that after an upgrade a day is compared by its rows instead."""
    question = "hash(1, 'shop', CAST(1.25 AS DECIMAL(10,2)), TIMESTAMP '2026-09-01 11:45:00', NULL)"
    ((answer,),) = duckdb.connect().execute(f"SELECT {question}").fetchall()
    return f"{answer % 2**16:04x}"


def sentences(rows: Iterable[BadRow]) -> list[str]:
    """What is wrong with rows, a sentence for each."""
    return ["; ".join(map(str, row.violations)) for row in rows]


def _sum(column: Column, engine: str) -> str:
    """SQL: a sum that two engines can compare: of the values, of text lengths, of microseconds modulo a prime.

    Whole numbers of 64 bits wherever they suffice: Spark adds long decimals slowly. See _value for the way back.
    """
    name = identifier(column.typed_name) if engine == "duckdb" else f"`{column.typed_name}`"
    if column.type == "STRING":
        return f"sum(length({name}))"
    if column.type == "TIMESTAMP":
        return f"sum({'unix_micros' if engine == 'spark' else 'epoch_us'}({name}) % 1000000007)"
    if column.type.startswith("DECIMAL"):
        small, wide = f"{name} * {10**column.scale} AS BIGINT", f"{name} AS DECIMAL(38,{column.scale})"
        return f"sum(CAST({small if _is_short(column) else wide}))"
    return f"sum(CAST({name} AS BIGINT))"


def _is_short(column: Column) -> bool:
    """Whether a DECIMAL in its smallest unit, and the product on the way there, fit into 64 bits."""
    return column.precision + column.scale <= 14


def _value(column: Column, total: Any) -> Decimal:  # noqa: ANN401
    """A sum as a number of the column's own unit."""
    found = Decimal(total or 0)
    return found.scaleb(-column.scale) if column.type.startswith("DECIMAL") and _is_short(column) else found


def _from_micros(micros: int) -> datetime:
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.utcfromtimestamp(seconds).replace(microsecond=rest)  # noqa: DTZ004 - wall clock, as if UTC
