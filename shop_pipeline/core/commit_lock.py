"""One process at a time commits to a local table.

Delta's store for local disks guards only the threads of one JVM. The lock here is the kernel's: it is free the moment its
holder dies. But Spark's JVM outlives its Python by some moments, and may finish a commit in them; so the holder notes its
JVMs, and whoever comes after a holder that died waits until they are gone too.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from shop_pipeline.core.errors import TableBusy

# How long the JVM of a killed process may take to notice. It ends by itself in a second or two.
PATIENCE = 120.0
POLL = 0.2


@contextmanager
def commit_lock(folder: Path, name: str, patience: float = PATIENCE) -> Iterator[None]:
    """Held by one process, and in it by one thread, around a commit to the table `name`.

    Raises:
        TableBusy: the JVM of a killed run still lives after `patience` seconds; nothing was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    holder = folder / f"{name}.holder"
    with FileLock(str(folder / f"{name}.lock")):
        _outlive(holder, name, patience)
        _note(holder, [(child.pid, child.create_time()) for child in _java_children()])
        try:
            yield
        finally:
            holder.unlink(missing_ok=True)


@contextmanager
def commit_lock_if_free(folder: Path, name: str) -> Iterator[bool]:
    """The same for a commit that can as well be made another time, and not by a JVM: whether the lock is held now."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(FileLock(str(folder / f"{name}.lock"), timeout=0))
            _outlive(folder / f"{name}.holder", name, 0)
        except (Timeout, TableBusy):
            free = False
        else:
            free = True
        yield free


def _java_children() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.name().startswith("java"):
                found.append(child)
    return found


def _note(holder: Path, processes: list[tuple[int, float]]) -> None:
    # Renamed into place: a note that was cut off would be taken for none.
    draft = holder.with_suffix(".draft")
    draft.write_text(json.dumps(processes))
    os.replace(draft, holder)


def _outlive(holder: Path, name: str, patience: float) -> None:
    """Wait for the JVMs of a holder that died; a holder that ended well left no note."""
    try:
        noted = json.loads(holder.read_text())
    except FileNotFoundError:
        return
    alive = []
    for pid, created in noted:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # The number may belong to another process by now.
            if abs(process.create_time() - created) < 1:
                alive.append(process)
    for _ in range(max(1, round(patience / POLL))):
        alive = [process for process in alive if _lives(process)]
        if not alive:
            return
        time.sleep(POLL)
    pids = " ".join(str(process.pid) for process in alive)
    raise TableBusy(
        f"The table {name} may still be written to by Java process {pids}, which a killed run left behind: "
        f"end it (kill {pids}) and run the same days again."
    )


def _lives(process: psutil.Process) -> bool:
    """Whether it can still write. A zombie cannot, and stays one for ever where nobody collects it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
