"""What is different between two states of a day: rows that are only in one, and rows of one key with other values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from shop_pipeline.core import duck
from shop_pipeline.core.batch import extras, row_hash
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.lake import Lake, files_of_days, rows_by_day, view

# How many rows of each kind are shown.
EXAMPLES = 5
# Up to so many rows, before and after, a day is compared row by row: a second or so. Of more it is said how many there are.
MOST_ROWS = 1_000_000
ADDED, REMOVED, CHANGED = "+", "-", "~"


@dataclass(frozen=True)
class Example:
    """A row that differs: `what` is ADDED, REMOVED or CHANGED, `values` how (`amount 10.81 → 12.00`)."""

    what: str
    key: str
    values: str


@dataclass(frozen=True)
class Changes:
    """How a day differs from what it was: numbers of rows by their key, and some of each kind. None where it was not counted."""

    added: int | None
    removed: int | None
    changed: int | None
    text: str
    examples: tuple[Example, ...] = ()


def of_load(lake: Lake, contract: Contract, version: int, days: Sequence[date], scratch: Path | None = None) -> dict[date, Changes]:
    """What the commit `version` changed in these days of a contract's table.

    Raises:
        TableUnreadable, duckdb.Error: what was there before cannot be read any more.
    """
    after = lake.open(contract.table, version)
    before = lake.open(contract.table, version - 1) if version > 0 else None
    if after is None:
        return {}
    con = duck.connect(scratch)
    own = {name for name, _ in contract.table_columns}
    new = sorted({each.name for table in (before, after) if table is not None for each in table.schema().fields} - own)
    facts = _facts(con, contract, before, days, new, "before")
    # A first load has nothing to be compared with, and may be big: how many rows it has is in the table's log.
    again = [day for day in days if day in facts]
    facts_now = _facts(con, contract, after, again, new, "after") if again else {}
    first = rows_by_day(files_of_days(after, set(days) - set(again)))
    found, differing = {}, []
    for day in days:
        then, now = facts.get(day, (0, 0)), facts_now.get(day, (0, 0))
        if day not in facts:
            found[day] = Changes(first.get(day, 0), 0, 0, "first load")
        elif then == now:
            found[day] = Changes(0, 0, 0, f"none since version {version - 1}")
        elif then[0] + now[0] > MOST_ROWS:
            found[day] = Changes(None, None, None, f"{then[0]} rows before, {now[0]} now: not compared row by row")
        else:
            differing.append(day)
    if differing:
        found |= _compared(con, contract, new, differing, version - 1)
    return found


def _facts(
    con: duckdb.DuckDBPyConnection,
    contract: Contract,
    table: DeltaTable | None,
    days: Sequence[date],
    new: Sequence[str],
    alias: str,
) -> dict[date, tuple[int, int]]:
    """How many rows a table's version has of days, and the hash of their content; makes a view of it."""
    if table is None:
        return {}
    view(con, f"_{alias}", table, days)
    there = {each.name for each in table.schema().fields}
    columns = ", ".join(
        f"{identifier(name) if name in there else 'NULL'} AS {identifier(name)}" for name in (*contract.names, *new)
    )
    con.execute(f"CREATE OR REPLACE TEMP VIEW {alias} AS SELECT order_date, {columns} FROM _{alias}")
    rows = con.execute(f"SELECT order_date, count(*), {row_hash(contract.names, new)} FROM {alias} GROUP BY order_date").fetchall()
    return {day: (count, content) for day, count, content in rows}


def _compared(
    con: duckdb.DuckDBPyConnection, contract: Contract, new: Sequence[str], days: Sequence[date], version: int
) -> dict[date, Changes]:
    listed = ", ".join(f"DATE '{day}'" for day in days)
    con.execute(
        "CREATE OR REPLACE TEMP TABLE sides AS "
        f"SELECT 's' AS _side, * FROM after WHERE order_date IN ({listed}) UNION ALL BY NAME "
        f"SELECT 't' AS _side, * FROM before WHERE order_date IN ({listed})"
    )
    examples = _examples(con, contract, new)
    found = {}
    for day, (added, removed, changed, _) in counts(con, contract, new).items():
        text = f"{ADDED}{added} {REMOVED}{removed} {CHANGED}{changed} since version {version}"
        found[day] = Changes(added, removed, changed, text, tuple(examples.get(day, ())))
    return found


def counts(con: duckdb.DuckDBPyConnection, contract: Contract, new: Sequence[str]) -> dict[date, tuple[int, int, int, int]]:
    """By day of the table `sides`: rows of keys that the side 's' has more often than 't', less often, and with other values.

    `sides` has the contract's columns, `new` ones, `order_date` and `_side`. The fourth number is how many rows 't' has.
    """
    rows = con.execute(
        f"""
        WITH contents AS (
            SELECT order_date AS d, {identifier(contract.key)} AS k, {_content(contract, new)} AS c,
                   count(*) FILTER (WHERE _side = 's') AS ns, count(*) FILTER (WHERE _side = 't') AS nt
            FROM sides GROUP BY ALL),
        by_key AS (
            SELECT d, k, sum(ns) AS ns, sum(nt) AS nt, sum(least(ns, nt)) AS same FROM contents GROUP BY ALL)
        SELECT d, sum(ns - least(ns, nt)), sum(nt - least(ns, nt)), sum(least(ns, nt) - same), sum(nt) FROM by_key GROUP BY d
        """
    ).fetchall()
    return {day: (int(added), int(removed), int(changed), int(there)) for day, added, removed, changed, there in rows}


def _content(contract: Contract, new: Sequence[str]) -> str:
    """DuckDB SQL: a row's values as one text."""
    parts = ", ".join(f"coalesce(CAST({identifier(name)} AS VARCHAR), '')" for name in contract.names)
    return f"concat_ws(chr(31), {parts}) || {extras(new)}"


def _examples(con: duckdb.DuckDBPyConnection, contract: Contract, new: Sequence[str]) -> dict[date, list[Example]]:
    """Some rows of each kind, by day, in the order of their keys."""
    names = [name for name in (*contract.names, *new) if name != contract.key]
    pack = "struct_pack(" + ", ".join(f"{identifier(name)} := {identifier(name)}" for name in names) + ")"
    rows = con.execute(
        f"""
        WITH by_key AS (
            SELECT order_date AS d, {identifier(contract.key)} AS k,
                   count(*) FILTER (WHERE _side = 's') AS ns, count(*) FILTER (WHERE _side = 't') AS nt,
                   list_sort(list({_content(contract, new)}) FILTER (WHERE _side = 's')) AS cs,
                   list_sort(list({_content(contract, new)}) FILTER (WHERE _side = 't')) AS ct,
                   min({pack}) FILTER (WHERE _side = 's') AS vs, min({pack}) FILTER (WHERE _side = 't') AS vt
            FROM sides GROUP BY ALL),
        kinds AS (
            SELECT *, CASE WHEN ns > nt THEN '{ADDED}' WHEN nt > ns THEN '{REMOVED}' ELSE '{CHANGED}' END AS what
            FROM by_key WHERE ns <> nt OR cs <> ct)
        SELECT d, what, k, vs, vt FROM kinds
        QUALIFY row_number() OVER (PARTITION BY d, what ORDER BY k) <= {EXAMPLES} ORDER BY d, what, k
        """
    ).fetchall()
    found: dict[date, list[Example]] = {}
    for day, what, key, now, then in rows:
        if what == CHANGED:
            differing = [name for name in now if now[name] != then[name]]
            # Of a key that comes more than once, each side's first row is shown, and those may be equal.
            values = ", ".join(f"{name} {then[name]} → {now[name]}" for name in differing) or "another row of it"
        else:
            values = ", ".join(f"{name} {value}" for name, value in (now if what == ADDED else then).items())
        found.setdefault(day, []).append(Example(what, str(key), values))
    return found
