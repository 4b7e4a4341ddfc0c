"""Ctrl-C and Dagster's "terminate", which are exceptions that a signal's handler raises, kept from getting lost on their way."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def kept() -> Iterator[None]:
    """Around work: whoever stops it is told so, whatever a library within makes of that.

    DuckDB's client ends a query that a signal interrupts with `RuntimeError: Query interrupted` and drops what the handler
    raised: of a person's "stop" becomes an error of the work, which may be tried again. Others swallow it. Here what a handler
    raised is remembered, and raised at the end where nothing of its kind came through. Outside the main thread, where Python
    runs no handler, this does nothing.

    Raises:
        BaseException: what the handlers that were set before have raised (KeyboardInterrupt, DagsterExecutionInterruptedError).
    """
    if current_thread() is not main_thread():
        yield
        return
    raised: list[BaseException] = []
    before = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    for number, handler in before.items():
        signal.signal(number, _remembering(handler, raised))
    try:
        yield
    except Exception as error:
        if raised:
            raise raised[-1] from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if raised:
        raise raised[-1]


def _remembering(
    handler: Callable[[int, FrameType | None], object], raised: list[BaseException]
) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as interrupt:
            raised.append(interrupt)
            raise

    return handle
