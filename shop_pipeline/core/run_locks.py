"""Which runs are alive: a run's process holds a kernel lock as long as it lives, so that no record of a dead one is believed."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout

# The locks that this process holds until it ends, whatever becomes of their runs.
_held: dict[Path, FileLock] = {}
_PATIENCE = 10


class Life(StrEnum):
    """What is known of a run's process."""

    ALIVE = "alive"
    DEAD = "dead"
    # Launched from here, and not yet so far that it would hold its lock.
    EXPECTED = "expected"
    # Not launched on this machine.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class RunLocks:
    """The locks of a Dagster instance's runs on this machine, in a folder of its own."""

    folder: Path

    @classmethod
    def of(cls, root: str) -> "RunLocks":
        """The locks beside the other records of an instance, in its root directory."""
        return cls(Path(root) / "run_locks")

    def expect(self, run_id: str) -> None:
        """Note that a run was launched on this machine."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._note(run_id).touch()

    def hold(self, run_id: str) -> None:
        """Hold a run's lock until this process ends."""
        path = self._lock(run_id)
        if path in _held:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # Someone who asks whether the run is alive has it for an instant.
        lock = FileLock(str(path), timeout=_PATIENCE)
        lock.acquire()
        _held[path] = lock
        self._note(run_id).write_text("held")

    def life(self, run_id: str) -> Life:
        """Whether a run's process is alive."""
        note, path = self._note(run_id), self._lock(run_id)
        if not note.exists():
            return Life.UNKNOWN
        if path in _held:
            return Life.ALIVE
        try:
            with FileLock(str(path), timeout=0):
                return Life.DEAD if note.read_text() == "held" else Life.EXPECTED
        except Timeout:
            return Life.ALIVE

    def launched_at(self, run_id: str) -> float:
        """When `expect` or `hold` was last said of a run, as seconds since 1970."""
        return self._note(run_id).stat().st_mtime

    def runs(self) -> list[str]:
        """The runs that there are notes of."""
        return sorted(path.stem for path in self.folder.glob("*.run"))

    def forget(self, run_id: str) -> None:
        """Remove what is noted of a run that has ended."""
        self._note(run_id).unlink(missing_ok=True)
        self._lock(run_id).unlink(missing_ok=True)

    def _note(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.run"

    def _lock(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.lock"
