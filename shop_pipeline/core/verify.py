"""Source against table, both ways, by engines that share no code with the writer: DuckDB and Delta's Rust reader. No JVM."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from shop_pipeline.core import duck, quarantine
from shop_pipeline.core.batch import EXAMPLES, Reading, bad_rows, extras, judged, read_by_duckdb, row_hash, sentences
from shop_pipeline.core.contract import Action, Contract
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.errors import NotChecked, TableUnreadable
from shop_pipeline.core.lake import Lake, check_readable, row_count, table_id, unreadable, view
from shop_pipeline.core.sources import OpenSource

# Of how many rows of a day the commonest values are sought.
SAMPLE = 500_000


@dataclass(frozen=True)
class Comparison:
    """A day's rows in the table against its source. Counts are of rows; `missing` are source rows without a table row.

    `nulls` counts the NULLs of each required column in the table; `top` is each column's commonest value there and its share
    in percent.
    """

    day: date
    source_name: str
    source_rows: int
    table_rows: int
    quarantined: int
    missing: int = 0
    details: tuple[str, ...] = ()
    fingerprint: str = ""
    max_event_time: datetime | None = None
    nulls: Mapping[str, int] = field(default_factory=dict)
    top: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    noun: str = "file"

    @property
    def equal(self) -> bool:
        """Whether the table has exactly the source's good rows."""
        return not self.details

    @property
    def line(self) -> str:
        """The verdict, as it is printed and shown."""
        counts = f"{self.day}: {self.table_rows} rows for the {self.noun}'s {self.source_rows} orders, {self.missing} missing"
        if not self.equal:
            return f"PROBLEM {counts}"
        return f"ok {counts}" + (f", {self.quarantined} quarantined" if self.quarantined else "")


@dataclass(frozen=True)
class Checked:
    """The outcome of comparing days: a comparison, or why there is none, for each; and the table's state when it was read."""

    comparisons: Mapping[date, Comparison]
    not_checked: Mapping[date, str]
    version: int | None = None
    total_rows: int = 0
    table_id: str | None = None
    readings: Mapping[date, Reading] = field(default_factory=dict)


def compare(
    lake: Lake,
    table: str,
    contract: Contract,
    source: OpenSource,
    days: Sequence[date],
    *,
    version: int | None = None,
    readings: Mapping[date, Reading] | None = None,
    scratch: Path | None = None,
) -> Checked:
    """Compare days of a table (at `version`, by default the newest) with their source, as multisets of rows.

    Args:
        readings: what DuckDB read of these days a moment ago, if it did; else the source is read here.
        scratch: where DuckDB may spill.
    """
    not_checked = {day: source.refused[day] for day in days if day in source.refused}
    to_check = [day for day in days if day not in not_checked]

    def none_of_them(reason: str) -> Checked:
        return Checked({}, {day: not_checked.get(day, reason) for day in days})

    try:
        opened = lake.open(table, version)
        if opened is None:
            return none_of_them(f"there is no table {table} in {lake.uri}. Load a day first")
        check_readable(opened, table)
    except (NotChecked, TableUnreadable) as problem:
        return none_of_them(str(problem))
    con = duck.connect(scratch)
    known = dict(readings or {})
    unread = [day for day in to_check if day not in known]
    if unread:
        known.update(read_by_duckdb(con, contract, source, unread))
    fields = {each.name for each in opened.schema().fields}
    absent = [name for name, _ in contract.table_columns if name not in fields]
    if absent:
        return none_of_them(f"the table {table} has no column {', '.join(absent)}. Load the days again")
    try:
        new = _view_loaded(con, opened, contract, source, to_check)
        found = _facts(con, contract, new)
        aside = quarantine.counts(lake, contract, to_check)
    except TableUnreadable as problem:
        return none_of_them(str(problem))
    except duckdb.IOException as error:
        newest = lake.open(table)
        if newest is not None and newest.version() > opened.version():
            return none_of_them(
                f"version {opened.version()} of the table {table} is no longer available: its files were vacuumed. "
                "Look at the newest version"
            )
        return none_of_them(str(unreadable(table, lake.table_uri(table), error)))
    except duckdb.Error as error:
        return none_of_them(str(unreadable(table, lake.table_uri(table), error)))
    comparisons = {}
    for day in to_check:
        reading = known[day]
        facts = found.get(day, _Facts(0, 0, {}, {}))
        missing = 0
        details: list[str] = []
        if (facts.rows, facts.content) != (reading.good, reading.content):
            missing, details = _differences(con, contract, source, day, new)
        if reading.failing:
            missing += reading.failing
            shown = sentences(bad_rows(con, contract, source, day, contract.bits(Action.FAIL), EXAMPLES))
            details.insert(0, f"{reading.failing} break the contract: " + "; ".join(shown))
        set_aside = aside.get(day, 0)
        if set_aside != reading.quarantined:
            details.append(
                f"{quarantine.table_of(contract)} has {set_aside} of {reading.quarantined} rows that are to be set aside"
            )
        comparisons[day] = Comparison(
            day,
            source.name(day),
            reading.records,
            facts.rows,
            reading.quarantined,
            missing,
            tuple(details),
            reading.fingerprint,
            reading.max_event_time,
            facts.nulls,
            facts.top,
            source.noun,
        )
    return Checked(comparisons, not_checked, opened.version(), row_count(opened), table_id(opened), known)


def unequal(
    lake: Lake,
    table: str,
    contract: Contract,
    source: OpenSource,
    day: date,
    reading: Reading,
    *,
    version: int,
    scratch: Path | None = None,
) -> str | None:
    """What a day has in a version of the table instead of the rows that were read of its source; None where it has those.

    In short, for a writer that can still take it back; `compare` says it in full, and says so where the table cannot be read.
    """
    with suppress(duckdb.Error, TableUnreadable):
        opened, con = lake.open(table, version), duck.connect(scratch)
        if opened is None:
            return None
        new = _view_loaded(con, opened, contract, source, [day])
        ((rows, content),) = con.execute(f"SELECT count(*), {row_hash(contract.names, new)} FROM loaded").fetchall()
        if (rows, content or 0) != (reading.good, reading.content):
            return f"good rows: {reading.good} by DuckDB, {rows} by Spark" if rows != reading.good else "values differ"
    return None


def _view_loaded(
    con: duckdb.DuckDBPyConnection, opened: DeltaTable, contract: Contract, source: OpenSource, days: Sequence[date]
) -> list[str]:
    """Make the view `loaded` of these days of a table; the columns that it or the source has beyond the contract's."""
    fields = [each.name for each in opened.schema().fields]
    own = {name for name, _ in contract.table_columns}
    new = sorted({*(name for name in fields if name not in own), *source.new_columns(days)})
    view(con, "in_table", opened, days)
    nulls = "".join(f", CAST(NULL AS VARCHAR) AS {identifier(name)}" for name in new if name not in fields)
    con.execute(f"CREATE OR REPLACE TEMP VIEW loaded AS SELECT *{nulls} FROM in_table")
    return new


@dataclass(frozen=True)
class _Facts:
    """What the table says of a day: its rows, their content hash, NULLs of required columns, commonest values."""

    rows: int
    content: int
    nulls: Mapping[str, int]
    top: Mapping[str, tuple[str, float]]


def _facts(con: duckdb.DuckDBPyConnection, contract: Contract, new: Sequence[str]) -> Mapping[date, _Facts]:
    required = [column.name for column in contract.columns if column.required]
    counted = "".join(f", count(*) - count({identifier(name)})" for name in required)
    rows = con.execute(
        f"SELECT order_date, count(*), {row_hash(contract.names, new)}{counted} FROM loaded GROUP BY order_date"
    ).fetchall()
    counts = {day: count for day, count, *_ in rows}
    tops = _commonest(con, contract, counts) if contract.lopsided is not None else {}
    return {
        day: _Facts(count, content, dict(zip(required, nulls, strict=True)), tops.get(day, {}))
        for day, count, content, *nulls in rows
    }


def _commonest(
    con: duckdb.DuckDBPyConnection, contract: Contract, rows: Mapping[date, int]
) -> Mapping[date, Mapping[str, tuple[str, float]]]:
    """Each column's commonest value per day and its share; of a day with more than SAMPLE rows, of about so many of them.

    The value is found approximately: one in most of the rows is found for sure, and no other share matters.
    """
    names = [column.name for column in contract.columns if column.name != contract.key]
    listed = ", ".join(["order_date", *map(identifier, names)])
    big = [day for day, count in rows.items() if count > SAMPLE]
    others = "".join(f" AND order_date <> DATE '{day}'" for day in big)
    parts = [f"SELECT {listed} FROM loaded WHERE true{others}"]
    parts += [
        f"SELECT * FROM (SELECT {listed} FROM loaded WHERE order_date = DATE '{day}') "
        f"USING SAMPLE {100 * SAMPLE / rows[day]:.6f} PERCENT (bernoulli)"
        for day in big
    ]
    con.execute(f"CREATE OR REPLACE TEMP TABLE looked_at AS {' UNION ALL '.join(parts)}")
    found = ", ".join(f"approx_top_k({identifier(name)}, 1)[1] AS t{n}" for n, name in enumerate(names))
    counted = ", ".join(
        f"any_value(CAST(t{n} AS VARCHAR)), 100.0 * count(*) FILTER (WHERE {identifier(name)} = t{n}) / count(*), "
        f"100.0 * count(*) FILTER (WHERE {identifier(name)} IS NULL) / count(*)"
        for n, name in enumerate(names)
    )
    answer = con.execute(
        f"WITH tops AS (SELECT order_date AS d, {found} FROM looked_at GROUP BY 1) "
        f"SELECT order_date, {counted} FROM looked_at JOIN tops ON d = order_date GROUP BY order_date"
    ).fetchall()
    commonest = {}
    for day, *values in answer:
        each = {}
        for n, name in enumerate(names):
            value, share, null_share = values[3 * n : 3 * n + 3]
            each[name] = ("NULL", float(null_share)) if null_share > share else (str(value), float(share))
        commonest[day] = each
    return commonest


def _differences(
    con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, day: date, new: Sequence[str]
) -> tuple[int, list[str]]:
    """How many source rows are missing in the table, and what differs, with up to five examples of each kind."""
    key = contract.key
    brought = source.new_columns([day])
    values = [name for name in (*contract.names, *new) if name != key]
    typed = [f"{identifier(column.typed_name)} AS {identifier(column.name)}" for column in contract.columns]
    typed += [f"{identifier(name) if name in brought else 'NULL'} AS {identifier(name)}" for name in new]
    columns = ", ".join(identifier(name) for name in (*contract.names, *new))
    parts = ", ".join(f"coalesce(CAST({identifier(name)} AS VARCHAR), '')" for name in contract.names)
    pack = "struct_pack(" + ", ".join(f"{identifier(name)} := {identifier(name)}" for name in values) + ")"
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE sides AS
        SELECT {identifier(key)} AS k, side, concat_ws(chr(31), {parts}) || {extras(new)} AS content, {pack} AS vals FROM (
            SELECT 's' AS side, {", ".join(typed)} FROM ({judged(con, contract, source, [day])})
            WHERE _broken & {contract.bad_bits} = 0
            UNION ALL BY NAME
            SELECT 't' AS side, {columns} FROM loaded WHERE order_date = DATE '{day}')
        """
    )
    con.execute(
        """
        CREATE OR REPLACE TEMP TABLE keys AS
        SELECT k, count(*) FILTER (WHERE side = 's') AS ns, count(*) FILTER (WHERE side = 't') AS nt,
               list(content ORDER BY content) FILTER (WHERE side = 's') AS cs,
               list(content ORDER BY content) FILTER (WHERE side = 't') AS ct,
               min(vals) FILTER (WHERE side = 's') AS vs, min(vals) FILTER (WHERE side = 't') AS vt
        FROM sides GROUP BY k
        """
    )
    missing = con.execute("SELECT coalesce(sum(greatest(ns - nt, 0)), 0) FROM keys").fetchall()[0][0]
    details = []
    kinds = (
        ("missing in the table", "nt < ns"),
        ("in the table and not in the source", "ns = 0 AND nt > 0"),
        ("more often in the table than in the source", "ns > 0 AND nt > ns"),
    )
    for what, condition in kinds:
        n, rows = _examples(con, condition, "k, ns, nt")
        if n:
            shown = ", ".join(f"{key} {k} ({nt} for {ns})" for k, ns, nt in rows)
            details.append(f"{n} {what}: {shown}{_more(n, rows)}")
    n, rows = _examples(con, "ns > 0 AND ns = nt AND cs <> ct", "k, vs, vt")
    if n:
        shown = "; ".join(f"{key} {k}: {_changed(old, new)}" for k, old, new in rows)
        details.append(f"{n} with other values: {shown}{_more(n, rows)}")
    return int(missing), details or ["the rows differ"]


def _examples(con: duckdb.DuckDBPyConnection, condition: str, columns: str) -> tuple[int, list[tuple]]:  # type: ignore[type-arg]
    total = con.execute(f"SELECT count(*) FROM keys WHERE {condition}").fetchall()[0][0]
    rows = con.execute(f"SELECT {columns} FROM keys WHERE {condition} ORDER BY k LIMIT {EXAMPLES}").fetchall()
    return total, rows


def _changed(in_source: Mapping[str, object], in_table: Mapping[str, object]) -> str:
    differing = [name for name in in_source if in_source[name] != in_table[name]]
    return ", ".join(f"{name} {in_source[name]} in the source, {in_table[name]} in the table" for name in differing)


def _more(total: int, shown: Sequence[object]) -> str:
    return f" and {total - len(shown)} more" if total > len(shown) else ""
