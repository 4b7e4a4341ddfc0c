"""DuckDB connections, pinned alike everywhere."""

from functools import cache
from pathlib import Path

import duckdb

Connection = duckdb.DuckDBPyConnection


def connect(temporary: Path | None = None) -> Connection:
    """An in-memory connection: UTC, insertion order kept, no extension ever fetched or loaded by itself."""
    con = _pinned(
        duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "4"})
    )
    if temporary is not None:
        con.execute(f"SET temp_directory = {quoted(str(temporary))}")
    return con


def small() -> Connection:
    """The same in an engine that the whole process shares, for a few rows: to start one takes longer than to read them.

    Its TEMP views and tables are its own. It holds memory for as long as the process lives.
    """
    return _pinned(_shared().cursor())


@cache
def _shared() -> Connection:
    return connect()


def _pinned(con: Connection) -> Connection:
    con.execute("SET TimeZone = 'UTC'")
    # It would be drawn on standard output, among the results.
    con.execute("SET enable_progress_bar = false")
    return con


def quoted(text: str) -> str:
    """`text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """`name` as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
