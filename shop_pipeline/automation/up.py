"""`shop up`: Spark's server, the web UI and Dagster's daemon over one folder, started, watched and ended together."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from shop_pipeline.core.spark_remote import ServerNote, answers

LOOK_SECONDS = 0.5
# How often a server is asked whether it lives, and how many answers it may owe before it is started anew.
ASK_SECONDS, OWED = 15.0, 3
# A server that ends at once is started anew after a second, then after two, four, …
LONGEST_PAUSE = 60.0
LIVED_SECONDS = 120.0
ENDING_SECONDS = 60
_ON_PARENTS_DEATH = 1

Tell = Callable[[str], None]


class SparkServer:
    """The server's process, started again when it ends or hangs. It ends with its standard input, and so with this process."""

    def __init__(self, note: ServerNote, master: str, memory: str, tell: Tell) -> None:
        self.note, self.tell = note, tell
        self.command = [sys.executable, "-m", "shop_pipeline.core.spark_server", str(note.folder), master, memory]
        self.process: subprocess.Popen[bytes] | None = None
        self.starts, self.owed, self.said = 0, 0, False
        self.next_start = self.started = self.asked = 0.0

    def look(self) -> None:
        """Start it where it is time to, say what has become of it, ask whether it lives."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.next_start:
                self._start(now)
        elif (status := self.process.poll()) is not None:
            self._ended(now, f"ended with {status}")
        elif (url := self.note.url) is not None:
            if not self.said:
                self.tell(f"Spark's server is ready ({now - self.started:.0f} s): runs over this folder share it")
                self.said = True
            if now - self.asked > ASK_SECONDS:
                self.owed = 0 if answers(url) else self.owed + 1
                self.asked = time.monotonic()
                if self.owed >= OWED:
                    self.stop()
                    self._ended(now, f"did not answer {OWED} times")

    def stop(self) -> None:
        """End it: by the end of its input, and when that does not help by force."""
        if self.process is None:
            return
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]  # it was given one
        try:
            self.process.wait(ENDING_SECONDS / 2)
        except subprocess.TimeoutExpired:
            # It is the leader of a session of its own, in which its JVM is too.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.note.clear()

    def _start(self, now: float) -> None:
        with self.note.log.open("ab") as log:
            # In a session of its own: a Ctrl-C in the terminal is not for it, runs may be at work in it.
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=self.note.folder
            )
        self.started = self.asked = now
        self.owed, self.said = 0, False

    def _ended(self, now: float, how: str) -> None:
        self.note.clear()
        self.process = None
        if now - self.started > LIVED_SECONDS:
            self.starts = 0
        pause = min(2.0**self.starts, LONGEST_PAUSE)
        self.starts += 1
        self.next_start = now + pause
        self.tell(f"Spark's server {how} (its log: {self.note.log}): it is started again in {pause:.0f} s; runs start their own")


def run(note: ServerNote, server: SparkServer | None, port: int) -> int:
    """Serve until Ctrl-C (or SIGTERM), or until Dagster ends by itself; its exit status.

    Args:
        server: Spark's server; None where another is named, which is nobody's to start or stop here.

    Raises:
        SettingError: another process serves this folder.
    """
    lock = note.keep()
    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)
    try:
        if server is not None:
            server.look()
        dagster = _start_dagster(port)
        try:
            while dagster.poll() is None and not stopping:
                if server is not None:
                    server.look()
                time.sleep(LOOK_SECONDS)
        finally:
            status = _end(dagster)
    finally:
        if server is not None:
            server.stop()
        lock.release()
    return 0 if stopping else status


def _start_dagster(port: int) -> subprocess.Popen[bytes]:
    dagster = Path(sys.executable).parent / "dagster"
    command = [str(dagster), "dev", "-m", "shop_pipeline.definitions", "-h", "127.0.0.1", "-p", str(port)]
    # A Ctrl-C in the terminal would reach it twice, and break off its orderly end: it is told by this process alone.
    return subprocess.Popen(command, start_new_session=True, preexec_fn=_die_with_parent)


def _die_with_parent() -> None:
    """Where the system can (Linux): be told to end when the process that started this one is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGINT)


def _end(dagster: "subprocess.Popen[bytes]") -> int:
    if dagster.poll() is None:
        dagster.send_signal(signal.SIGINT)
        try:
            return dagster.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(dagster.pid, signal.SIGKILL)
    return dagster.wait()
