"""The rows that were set aside: kept as they were sent, with what is wrong with them, until their day is loaded without them.

Written through delta-rs, without a JVM, right after the day's own commit. A load replaces the rows of its days, so that a
rerun stacks no copies and a mended day leaves none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import chain

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from shop_pipeline.core import disk, duck
from shop_pipeline.core.batch import CHUNK, BadRow, Violation, bad_rows
from shop_pipeline.core.contract import Action, Contract
from shop_pipeline.core.days import KeyRule, day_predicate
from shop_pipeline.core.delta_writes import over_conflicts
from shop_pipeline.core.lake import Lake, files_of_days, view
from shop_pipeline.core.sources import OpenSource

COLUMNS = (
    ("order_date", "DATE"),
    ("run_date", "DATE"),
    ("run_id", "STRING"),
    ("source_file", "STRING"),
    ("record_number", "BIGINT"),
    ("raw_text", "STRING"),
    ("column", "STRING"),
    ("value", "STRING"),
    ("reason", "STRING"),
    ("action", "STRING"),
)
DESCRIPTION = "A row is one that was set aside, with its text as it was sent and what is wrong with it."
_ARROW = {"DATE": pa.date32(), "STRING": pa.string(), "BIGINT": pa.int64()}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS])


def table_of(contract: Contract) -> str:
    """The quarantine's table beside a contract's: orders_quarantine beside orders_daily."""
    return f"{contract.table.removesuffix('_daily')}_quarantine"


def replace(
    lake: Lake,
    contract: Contract,
    rule: KeyRule,
    con: duckdb.DuckDBPyConnection,
    source: OpenSource,
    days: Sequence[date],
    with_rows: Sequence[date],
    run_id: str,
) -> int:
    """Replace what is set aside of `days` by what the source has now (`with_rows`: those of the days that have any).

    Returns:
        How often others' commits made it start over.
    """
    table = table_of(contract)
    lake.create(table, COLUMNS, DESCRIPTION)
    if not with_rows and not counts(lake, contract, days):
        return 0

    def write() -> None:
        rows = chain.from_iterable(_rows(contract, rule, con, source, day, run_id) for day in with_rows)
        write_deltalake(
            lake.table_uri(table),
            pa.RecordBatchReader.from_batches(SCHEMA, _batches(rows)),
            mode="overwrite",
            predicate=day_predicate(days),
        )

    with lake.commit_lock(table), disk.panics_are_errors():
        return over_conflicts(table, write)


def _rows(
    contract: Contract, rule: KeyRule, con: duckdb.DuckDBPyConnection, source: OpenSource, day: date, run_id: str
) -> Iterator[tuple[object, ...]]:
    run_date = date.fromisoformat(rule.key(day))
    for row in bad_rows(con, contract, source, day, contract.bad_bits):
        first = _by_weight(row)[0]
        yield (
            day,
            run_date,
            run_id,
            source.name(day),
            row.record,
            row.text,
            first.column or None,
            first.value,
            reason(row),
            first.action.value,
        )


def reason(row: BadRow) -> str:
    """What is wrong with a row: its reason, or all of them with their columns."""
    first, *others = _by_weight(row)
    more = [f"{each.column}: {each.reason}" for each in others]
    return "; ".join([first.reason, *more])


def _by_weight(row: BadRow) -> list[Violation]:
    """What set the row aside before what would only have flagged it."""
    return sorted(row.violations, key=lambda each: each.action is Action.FLAG)


def _batches(rows: Iterator[tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    chunk: list[tuple[object, ...]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield _batch(chunk)
            chunk = []
    yield _batch(chunk)


def _batch(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.record_batch([pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def counts(lake: Lake, contract: Contract, days: Sequence[date]) -> dict[date, int]:
    """How many rows are set aside of those of the days that have any."""
    opened = lake.open(table_of(contract))
    files = None if opened is None else files_of_days(opened, set(days))
    # Most days have none, and need no engine to say so.
    if opened is None or files is None or files.num_rows == 0:
        return {}
    con = duck.small()
    view(con, "quarantine", opened, files=files)
    return dict(con.execute("SELECT order_date, count(DISTINCT record_number) FROM quarantine GROUP BY order_date").fetchall())


@dataclass(frozen=True)
class Held:
    """A row of the quarantine."""

    day: date
    run_date: date
    record: int
    text: str
    column: str | None
    value: str | None
    reason: str
    source_file: str


def held(lake: Lake, contract: Contract, days: Sequence[date] | None = None) -> dict[date, list[Held]]:
    """The rows set aside of some days (all by default) that have any, in the order of their source."""
    opened = lake.open(table_of(contract))
    found: dict[date, list[Held]] = {}
    if opened is None:
        return found
    con = duck.small()
    view(con, "quarantine", opened, days)
    rows = con.execute(
        'SELECT order_date, run_date, record_number, raw_text, "column", value, reason, source_file FROM quarantine '
        "ORDER BY order_date, record_number"
    ).fetchall()
    for row in rows:
        found.setdefault(row[0], []).append(Held(*row))
    return found


@dataclass(frozen=True)
class Broken:
    """A rule that rows were set aside for: how many, and of some of them the day and the record number."""

    column: str | None
    reason: str
    rows: int
    examples: tuple[tuple[date, int], ...]


def by_rule(lake: Lake, contract: Contract, days: Sequence[date], examples: int = 3) -> list[Broken]:
    """The rows set aside of some days, by what is wrong with them, the commonest first."""
    opened = lake.open(table_of(contract))
    if opened is None:
        return []
    con = duck.small()
    view(con, "quarantine", opened, days)
    rows = con.execute(
        f"""
        WITH places AS (SELECT DISTINCT "column", reason, order_date, record_number FROM quarantine)
        SELECT "column", reason, count(*), min({{'day': order_date, 'record': record_number}}, {examples})
        FROM places GROUP BY ALL ORDER BY 3 DESC, 1, 2
        """
    ).fetchall()
    return [
        Broken(column, reason, count, tuple((place["day"], place["record"]) for place in places))
        for column, reason, count, places in rows
    ]


class State(StrEnum):
    """What would become of a row that is set aside if its day were loaded again."""

    PASSES = "passes now"
    CHANGED = "changed or gone in the source"
    STILL_BAD = "still bad"
    UNKNOWN = "cannot be judged"


def states(lake: Lake, contract: Contract, source: OpenSource, days: Sequence[date]) -> list[tuple[Held, State, str]]:
    """Every row set aside of some days, what would become of it now, and why. Reads the source by DuckDB alone."""
    con = duck.connect()
    found: list[tuple[Held, State, str]] = []
    for day, rows in held(lake, contract, days).items():
        if day in source.refused:
            found += [(row, State.UNKNOWN, source.refused[day]) for row in rows]
            continue
        bad = {row.record: row for row in bad_rows(con, contract, source, day, contract.bad_bits)}
        texts = source.records(day, [row.record for row in rows])
        for row in rows:
            now = texts.get(row.record)
            mended = now is not None and now.text != row.text
            if now is None or (mended and row.record in bad):
                found.append((row, State.CHANGED, "" if now is None else f"now {now.text!r}"))
            elif row.record in bad:
                found.append((row, State.STILL_BAD, reason(bad[row.record])))
            else:
                found.append((row, State.PASSES, f"now {now.text!r}" if mended else ""))
    return found
