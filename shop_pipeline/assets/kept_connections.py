"""Many events in a row into Dagster's SQLite files, without opening and closing a file for each.

Dagster's storage makes a new engine and connection for every statement, and SQLite copies its write-ahead log into the file
whenever the last connection closes: of a month's events that is three quarters of the time. Here the connections stay open for
as long as a run lasts, or a step reports its days. The web UI follows a run by the changes of its file, to which the log is
copied once a second meanwhile; no commit waits for the disk before that, so that a power failure takes with it a second of what
Dagster was told (and a killed process nothing).
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any

import dagster as dg

# From Dagster's inside; other storages, such as Postgres, pool their connections themselves and are left alone.
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

PUBLISHING_SECONDS = 1


@contextmanager
def connections_kept(instance: dg.DagsterInstance) -> Iterator[None]:
    """Keep the connections of an instance's SQLite event log open within; any other storage is left as it is."""
    storage: Any = instance.event_log_storage
    if type(storage) is not SqliteEventLogStorage or "_connect" in vars(storage):
        yield
        return
    engines: dict[str, Engine] = {}
    written, over = set[str](), threading.Event()

    def publish() -> None:
        while not over.wait(PUBLISHING_SECONDS):
            with storage._db_lock:
                while written:
                    # Whatever it says: closing the connections does the same and more.
                    with suppress(SQLAlchemyError), engines[written.pop()].connect() as connection:
                        connection.execute(text("PRAGMA wal_checkpoint(PASSIVE)"))

    publishing = threading.Thread(target=publish, daemon=True)
    with ExitStack() as kept:

        @contextmanager
        def connect(shard: str) -> Iterator[Connection]:
            if shard not in storage._initialized_dbs:
                # A new file is made by Dagster's own hands.
                with SqliteEventLogStorage._connect(storage, shard):
                    pass
            with storage._db_lock:
                if shard not in engines:
                    engines[shard] = create_engine(
                        storage.conn_string_for_shard(shard),
                        poolclass=StaticPool,
                        connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
                    )
                    kept.callback(engines[shard].dispose)
                    with engines[shard].connect() as connection:
                        connection.execute(text("PRAGMA synchronous = NORMAL"))
                with engines[shard].begin() as connection:
                    yield connection
                written.add(shard)

        # Asked before every result of a check. A table that is there stays there.
        replaced = {"_connect": connect, "has_table": cache(storage.has_table)}
        vars(storage).update(replaced)
        publishing.start()
        try:
            yield
        finally:
            for name in replaced:
                del vars(storage)[name]
            over.set()
            publishing.join()
