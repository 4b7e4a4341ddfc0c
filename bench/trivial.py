"""A Dagster run that does nothing, for comparison: `dagster job execute -m bench.trivial -j trivial`."""

import dagster as dg


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job(executor_def=dg.in_process_executor)
def trivial() -> None:
    """One step that does nothing."""
    nothing()
