"""Sessions of a Spark Connect server: where the one of `shop up` is, whether a server answers, what its end in mid-work is.

Where that server listens, with the token that lets a client in, is in a file that its owner alone may read, so that whatever
else runs over the same folder finds it too.
"""

import atexit
import contextlib
import json
import logging
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pyspark.sql import SparkSession

from shop_pipeline.core.errors import EngineLost, SettingError
from shop_pipeline.core.spark import check_server

# How long a run waits for a server that is starting: a Spark of its own would take as long.
STARTING_SECONDS = 20
# A client's own retries: enough for a hiccup. PySpark's defaults wait ten minutes for a server that has gone.
_RETRIES, _LONGEST_WAIT_MS = 4, 2_000


@dataclass(frozen=True)
class ServerNote:
    """What is noted of the server in `folder`: a lock that its keeper holds, and its address once it listens."""

    folder: Path

    def keep(self) -> FileLock:
        """Hold the lock: say that this process keeps a server here.

        Raises:
            SettingError: another process does.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # Someone who asks whether there is a keeper has it for an instant.
        lock = FileLock(str(self._lock), timeout=5)
        try:
            lock.acquire()
        except Timeout:
            raise SettingError(
                f"Another `shop up` runs over {self.folder.parent}: stop it, or name another folder in DAGSTER_HOME."
            ) from None
        self.clear()
        return lock

    def is_kept(self) -> bool:
        """Whether a process keeps a server here."""
        if not self._lock.exists():
            return False
        try:
            with FileLock(str(self._lock), timeout=0):
                return False
        except Timeout:
            return True

    @property
    def url(self) -> str | None:
        """The server's address with its token; None while it does not listen."""
        with contextlib.suppress(FileNotFoundError):
            return str(json.loads(self._file.read_text())["url"])
        return None

    def write(self, url: str) -> None:
        """Note the address, for its owner's eyes alone."""
        draft = self._file.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
            json.dump({"url": url}, handle)
        draft.replace(self._file)

    def clear(self) -> None:
        """No server listens any more."""
        self._file.unlink(missing_ok=True)

    @property
    def log(self) -> Path:
        """What the server has said."""
        return self.folder / "server.log"

    @property
    def _lock(self) -> Path:
        return self.folder / "keeper.lock"

    @property
    def _file(self) -> Path:
        return self.folder / "address.json"

    def wait_for_url(self) -> str | None:
        """The address, awaited for a while where a keeper has just begun; None where there is none."""
        for _ in range(STARTING_SECONDS * 2):
            url = self.url
            if url is not None or not self.is_kept():
                return url
            time.sleep(0.5)
        return None


def answers(url: str) -> bool:
    """Whether a Spark Connect server answers at an address."""
    try:
        check_server(url)
    except SettingError:
        return False
    return True


@contextlib.contextmanager
def patient_briefly() -> Iterator[None]:
    """Within: a client that is made gives up within seconds when its server has gone, now and at the end of this process.

    PySpark's own has ten minutes' patience, and can be told otherwise only when it has asked its server for the first time.
    """
    from pyspark.sql.connect.client import core
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # What it says there is an error that is raised as well, and told in a sentence.
    logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    inside: Any = core
    inside.DefaultPolicy = partial(DefaultPolicy, max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MS)
    try:
        yield
    finally:
        inside.DefaultPolicy = DefaultPolicy


def let_go_at_exit(session: SparkSession) -> None:
    """Let go of a session of a server when this process ends."""
    atexit.register(let_go, session)


def let_go(session: SparkSession, *, tell_server: bool = True) -> None:
    """End a session of a server, whatever state the server is in."""
    atexit.unregister(let_go)
    session.release_session_on_close = tell_server  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):
        session.stop()


def is_alive(session: SparkSession) -> bool:
    """Whether a session of a server still has its server and its state there."""
    try:
        session.conf.get("spark.sql.session.timeZone")
    except Exception:
        # Whatever it says: a new session will meet the cause again.
        return False
    return True


def lost(error: BaseException) -> EngineLost | None:
    """The sentence about an error that is a server's end in mid-work; None for any other error."""
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        gone = "StatusCode.UNAVAILABLE" in text or "RETRIES_EXCEEDED" in text or "INVALID_HANDLE.SESSION" in text
        if isinstance(seen, SparkConnectGrpcException) and gone:
            return EngineLost(
                "The Spark server went away while it was at work: what was not committed is not in the tables. "
                "Run the same days again; `shop up` starts its server anew by itself."
            )
        seen = seen.__cause__ or seen.__context__
    return None
