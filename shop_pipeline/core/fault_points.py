"""Named places in a load at which a test may stop it: kill the process, raise, wait. Nothing watches them elsewhere."""

from collections.abc import Callable
from enum import StrEnum


class Point(StrEnum):
    """A place in a load, in the order in which a load comes by; then those of what is made of it."""

    AFTER_STARTED = "after started"
    BEFORE_READ = "before read"
    AFTER_JUDGING = "after judging"
    BEFORE_COMMIT = "before the commit"
    AFTER_COMMIT = "after the commit"
    BEFORE_CHECK = "before the check"
    BEFORE_CLOSING = "before the closing run_log row"
    BEFORE_DAGSTER_HEARS = "before Dagster hears"
    # Of a merge into silver and a recomputation of figures, in their order.
    BEFORE_MERGE = "before the merge"
    AFTER_MERGE = "after the merge"
    BEFORE_CLOSING_MERGE = "before the merge's closing run_log row"
    BEFORE_FIGURES = "before the figures"
    AFTER_FIGURES = "after the figures"
    BEFORE_CLOSING_FIGURES = "before the figures' closing run_log row"


OF_A_LOAD = tuple(Point)[:8]
Watcher = Callable[[Point], None]
_watchers: list[Watcher] = []


def watch(watcher: Watcher) -> Callable[[], None]:
    """Have `watcher` called at each point that this process reaches. Returns what ends the watch."""
    _watchers.append(watcher)
    return lambda: _watchers.remove(watcher)


def reached(point: Point) -> None:
    """Say that a load has come to a point."""
    for watcher in tuple(_watchers):
        watcher(point)
