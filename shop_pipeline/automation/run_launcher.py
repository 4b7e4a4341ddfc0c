"""Dagster's own launcher of runs on this machine, which also knows whether a run is still alive.

Named in dagster.yaml. Dagster's run monitoring asks it, closes the records of runs that died, whoever had started them, and
starts those of the daemon again.
"""

import time

import dagster as dg

# Dagster's launchers for containers are made of these too; it gives them no public name.
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus

from shop_pipeline.core.run_locks import Life, RunLocks

# As long as dagster.yaml lets a run take to start.
START_SECONDS = 180


def has_died(locks: RunLocks, run_id: str) -> bool:
    """Whether the process of a run that this machine launched is gone, or never came to its first step."""
    life = locks.life(run_id)
    return life is Life.DEAD or (life is Life.EXPECTED and time.time() - locks.launched_at(run_id) > START_SECONDS)


class LocalRunLauncher(dg.DefaultRunLauncher):
    """Launches runs through the code server, and can tell a dead one by its kernel lock."""

    def launch_run(self, context: LaunchRunContext) -> None:
        """Launch a run, noting that it is this machine's."""
        self._locks.expect(context.dagster_run.run_id)
        super().launch_run(context)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """It does; the launcher it is made of does not."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether a started run's process lives. One of another machine is never called dead."""
        if has_died(self._locks, run.run_id):
            return CheckRunHealthResult(WorkerStatus.FAILED, "its process has died")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    @property
    def _locks(self) -> RunLocks:
        return RunLocks.of(self._instance.root_directory)
