"""Temporary folders, which a process that was killed does not leave behind for good.

The holder of a folder holds a kernel lock in it, free the moment it dies; whoever makes the next folder clears away those
that nobody holds.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "shop-scratch-"
_HELD = ".held"


class Scratch:
    """A folder of one's own, gone at the end of the `with` statement or after close()."""

    def __init__(self) -> None:
        clear_away()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _hold(self.path)

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def clear_away() -> None:
    """Delete the folders whose processes have died. Another user's, and those of the present moment, are left alone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            # One without a lock file is being made at this moment.
            if folder.stat().st_uid != os.geteuid() or not (folder / _HELD).exists():
                continue
            lock = _hold(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _hold(folder: Path) -> int | None:
    """The lock of a folder as an open file; None when another process has it."""
    opened = os.open(folder / _HELD, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    return opened
