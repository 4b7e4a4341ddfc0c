"""Source against table, both ways, by engines that share no code with the writer: DuckDB and Delta's Rust reader. No JVM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

import duckdb

from shop_pipeline.core import duck
from shop_pipeline.core.batch import (
    EXAMPLES,
    Fingerprints,
    Reading,
    canonical,
    fingerprint,
    read_by_duckdb,
    row_hash,
    violations,
)
from shop_pipeline.core.contract import Action, Contract, to_duckdb
from shop_pipeline.core.errors import NotChecked, TableUnreadable
from shop_pipeline.core.lake import Lake, check_readable, row_count, table_id, unreadable, view
from shop_pipeline.core.sources import OpenSource


@dataclass(frozen=True)
class Comparison:
    """A day's rows in the table against its source. Counts are of rows; `missing` are source rows without a table row."""

    day: date
    source_name: str
    source_rows: int
    table_rows: int
    quarantined: int
    missing: int = 0
    details: tuple[str, ...] = ()
    fingerprint: str = ""
    max_event_time: datetime | None = None

    @property
    def equal(self) -> bool:
        """Whether the table has exactly the source's good rows."""
        return not self.details

    @property
    def line(self) -> str:
        """The verdict, as it is printed and shown."""
        counts = f"{self.day}: {self.table_rows} rows for the file's {self.source_rows} orders, {self.missing} missing"
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
    readings: Mapping[date, tuple[Reading, Fingerprints]] = field(default_factory=dict)


def compare(
    lake: Lake,
    table: str,
    contract: Contract,
    source: OpenSource,
    days: Sequence[date],
    *,
    version: int | None = None,
    readings: Mapping[date, tuple[Reading, Fingerprints]] | None = None,
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
    try:
        view(con, "loaded", opened, to_check)
        found = _fingerprints_of_table(con, contract)
    except duckdb.Error as error:
        return none_of_them(str(unreadable(table, lake.table_uri(table), error)))
    comparisons = {}
    for day in to_check:
        reading, prints = known[day]
        rows, in_table = found.get(day, (0, fingerprint(0, None)))
        missing = 0
        details: list[str] = []
        if in_table != prints.good:
            missing, details = _differences(con, contract, source, day)
        if reading.failing:
            missing += reading.failing
            found_bad = violations(con, contract, source, day, [Action.FAIL], EXAMPLES)
            details.insert(0, f"{reading.failing} break the contract: " + "; ".join(str(each) for each in found_bad))
        comparisons[day] = Comparison(
            day,
            source.name(day),
            reading.records,
            rows,
            reading.quarantined,
            missing,
            tuple(details),
            prints.source,
            reading.max_event_time,
        )
    return Checked(comparisons, not_checked, opened.version(), row_count(opened), table_id(opened), known)


def _fingerprints_of_table(con: duckdb.DuckDBPyConnection, contract: Contract) -> Mapping[date, tuple[int, str]]:
    text = canonical(contract.columns, source=False)
    rows = con.execute(f"SELECT order_date, count(*), sum({row_hash(text)}) FROM loaded GROUP BY order_date").fetchall()
    return {day: (count, fingerprint(count, total)) for day, count, total in rows}


def _differences(con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, day: date) -> tuple[int, list[str]]:
    """How many source rows are missing in the table, and what differs, with up to five examples of each kind."""
    unfit = to_duckdb(contract.broken(Action.FAIL, Action.QUARANTINE))
    key = contract.key
    values = [column.name for column in contract.columns if column.name != key]
    typed = ", ".join(f"{to_duckdb(column.typed)} AS {column.name}" for column in contract.columns)
    text = canonical(contract.columns, source=False)
    pack = "struct_pack(" + ", ".join(f"{name} := {name}" for name in values) + ")"
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE sides AS
        SELECT {key} AS k, side, {text} AS content, {pack} AS vals FROM (
            SELECT 's' AS side, {typed} FROM ({source.rows_in_duckdb(con, [day])}) WHERE NOT {unfit}
            UNION ALL BY NAME
            SELECT 't' AS side, {", ".join(contract.names)} FROM loaded WHERE order_date = DATE '{day}')
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
