"""A person's Ctrl-C, or Dagster's "terminate", in the middle of a query of DuckDB's."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, main_thread

from shop_pipeline.core import duck

# A second or two: DuckDB asks for signals between its tasks, and at the latest when the query is done.
LONG = "SELECT sum(length(md5(md5(range::VARCHAR)))) FROM range(5000000)"


def query() -> None:
    """Ask DuckDB something long."""
    duck.connect().execute(LONG).fetchall()


@contextmanager
def stopped_within(work: Callable[..., object], number: int = signal.SIGINT) -> Iterator[None]:
    """Send this process a signal when its main thread has been in a function, and in none that it calls, for a moment."""
    main, over = main_thread().ident, Event()
    assert main is not None

    def watch() -> None:
        seen = 0
        while not over.wait(0.01):
            frame = sys._current_frames().get(main)
            seen = seen + 1 if frame is not None and frame.f_code is work.__code__ else 0
            if seen == 3:
                os.kill(os.getpid(), number)
                return

    thread = Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
