"""DuckDB connections, pinned alike everywhere."""

from pathlib import Path

import duckdb

Connection = duckdb.DuckDBPyConnection


def connect(temporary: Path | None = None) -> Connection:
    """An in-memory connection: UTC, insertion order kept, no extension ever fetched or loaded by itself."""
    con = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "4"})
    con.execute("SET TimeZone = 'UTC'")
    # It would be drawn on standard output, among the results.
    con.execute("SET enable_progress_bar = false")
    if temporary is not None:
        con.execute(f"SET temp_directory = {quoted(str(temporary))}")
    return con


def quoted(text: str) -> str:
    """`text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """`name` as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
