"""`shop sql`: the lake's tables, and nothing else, as DuckDB views."""

from typing import Any

import duckdb

from shop_pipeline.core import duck
from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.lake import Lake, check_readable, unreadable, view


class BadStatement(ShopError):
    """The statement is not one SELECT, or DuckDB cannot run it."""


def select(lake: Lake, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one SELECT over the newest version of the lake's tables: (column names, rows).

    The connection reads the data files of the tables that the statement names and no other file, writes nothing, loads no
    extension and reaches no network.

    Raises:
        BadStatement: it is not one SELECT, or it cannot be run.
    """
    con = duck.connect()
    names = lake.names()
    allowed: list[str] = []
    for name in names:
        if name.rsplit("/", 1)[-1].lower() in statement.lower():
            try:
                allowed += _add_view(con, lake, name)
            except duckdb.Error as error:
                raise unreadable(name, lake.table_uri(name), error) from None
    paths = "[" + ", ".join(duck.quoted(path) for path in allowed) + "]"
    con.execute(f"SET allowed_paths = {paths}")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    try:
        statements = con.extract_statements(statement)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise BadStatement("`shop sql` runs one SELECT statement.")
        answer = con.execute(statements[0])
        columns = [column[0] for column in answer.description or []]
        repeated = sorted({name for name in columns if columns.count(name) > 1})
        if repeated:
            raise BadStatement(f"Two columns of the answer are called {repeated[0]}: give one of them another name with AS.")
        return columns, answer.fetchall()
    except duckdb.Error as error:
        tables = ", ".join(name.replace("/", ".") for name in names) or "none yet; load a day first"
        raise BadStatement(f"The statement cannot be run: {str(error).splitlines()[0]} (tables: {tables})") from None


def _add_view(con: duck.Connection, lake: Lake, name: str) -> list[str]:
    table = lake.open(name)
    if table is None:
        return []
    check_readable(table, name)
    files = view(con, name.replace("/", "."), table)
    if "/" in name:
        schema, short = name.split("/")
        con.execute(f"CREATE SCHEMA IF NOT EXISTS {duck.identifier(schema)}")
        con.execute(
            f"CREATE VIEW {duck.identifier(schema)}.{duck.identifier(short)} AS "
            f"SELECT * FROM {duck.identifier(name.replace('/', '.'))}"
        )
    paths: list[str] = files["file"].to_pylist()
    return paths
