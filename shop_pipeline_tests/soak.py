"""`make soak`: loads killed at random, again and again, for so many minutes; ends by itself, with status 1 if anything was lost.

On a table of 30 days: random days and ranges are changed and loaded in two processes at once, each killed at a random point or let
be. Every so often everything is loaded once more and compared with the files.
"""

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg

from shop_pipeline.core.fault_points import OF_A_LOAD
from shop_pipeline.core.spark import check_machine
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.conftest import TALLY, World, run_date
from shop_pipeline_tests.fire import Commands, assert_nothing_lost, count_commits, month, put
from shop_pipeline_tests.servers import ConnectServer

DAYS = list(month(0))
LONGEST_MINUTES = 120


def fire(commands: Commands, folder: Path, dice: random.Random) -> None:
    """Load a random range, killed somewhere three times of four."""
    first = dice.randrange(len(DAYS))
    days: Sequence = DAYS[first : first + dice.choice([1, 1, 3, 30])]  # type: ignore[type-arg]
    commands.run(folder=folder, keys=[run_date(day) for day in days], at=dice.choice([*OF_A_LOAD[:-1], None, None]))


def main(minutes: float, seed: int) -> None:
    """Fire for so many minutes."""
    check_machine(remote=None)
    dice = random.Random(seed)
    end = time.monotonic() + min(minutes, LONGEST_MINUTES) * 60
    with tempfile.TemporaryDirectory() as scratch, dg.DagsterInstance.ephemeral() as instance, ThreadPoolExecutor(2) as pool:
        folder = Path(scratch)
        server = ConnectServer(folder)
        server.start()
        world = World(folder, SparkResource(spark_config={}), instance)
        put(world.landing, month(0))
        rounds = 0
        try:
            with Commands(SHOP_SPARK_REMOTE=server.url) as one, Commands(SHOP_SPARK_REMOTE=server.url) as two:
                while rounds == 0 or time.monotonic() < end:
                    rounds += 1
                    for _ in range(5):
                        version = dice.randrange(1, 90)
                        put(world.landing, dict(dice.sample(list(month(version).items()), 5)))
                        dices = [random.Random(dice.random()) for _ in range(2)]
                        for done in [pool.submit(fire, each, folder, own) for each, own in zip((one, two), dices, strict=True)]:
                            done.result()
                    assert one.run(folder=folder, keys=[run_date(day) for day in DAYS]) == 0
                    assert_nothing_lost(world.landing, world.lake)
                    assert all(verdict.verified for verdict in world.verdicts(DAYS).values())
                    print(f"round {rounds}: {TALLY}", flush=True)
            count_commits(world.lake)
        finally:
            server.stop()
    print(f"seed {seed}, {rounds} rounds: {TALLY}")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
