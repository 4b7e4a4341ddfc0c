"""Who stops a process is told so, whatever a library makes of it: C96."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from dagster import DagsterExecutionInterruptedError
from dagster._utils.interrupts import raise_interrupts_as

from shop_pipeline.core import duck, interrupts
from shop_pipeline_tests.stopped import LONG, query, stopped_within


def query_quietly() -> None:
    with suppress(Exception):
        duck.connect().execute(LONG).fetchall()


@pytest.mark.parametrize("work", [query, query_quietly])
def test_ctrl_c_in_a_query_is_a_ctrl_c(work: Callable[[], None]) -> None:
    """C96: DuckDB makes an error of it, which looks as if it were worth another try."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stopped_within(work), interrupts.kept():
        work()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_dagsters_terminate_in_a_query_is_its_own(number: int) -> None:
    """C96: within as well, where the work notes what has become of it."""
    noted: list[type[BaseException]] = []

    def noting() -> None:
        try:
            with interrupts.kept():
                query()
        except BaseException as error:
            noted.append(type(error))
            raise

    stopped = DagsterExecutionInterruptedError
    with raise_interrupts_as(stopped), pytest.raises(stopped), stopped_within(query, number), interrupts.kept():
        noting()
    assert noted == [stopped]


def test_an_error_without_a_signal_is_itself() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), interrupts.kept():
        _ = 1 / 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_thread_leaves_signals_alone() -> None:
    """Python sets handlers in the main thread only."""

    def handler() -> object:
        with interrupts.kept():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handler).result() is signal.getsignal(signal.SIGINT)
