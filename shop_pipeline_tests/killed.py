"""Loads in processes that kill themselves at a named point, or can be killed. Used by the tests, and by the soak.

`python -m shop_pipeline_tests.killed` reads lines of JSON: {"at": a point or null, "folder": a world's, "arguments": of `shop`,
or none, "keys": run dates for a load without Dagster, "apart": a commit for each of them}. It answers each with the number of a
process and, when that has ended, with its status. The processes are forked from one that has imported everything and started
nothing, for importing is most of what a command costs.
"""

import json
import os
import signal
import sys
import traceback
from typing import Any

from shop_pipeline.core import fault_points
from shop_pipeline.core.fault_points import Point


def die_at(point: str) -> None:
    """Have this process kill itself with SIGKILL when it comes to a point."""

    def watcher(reached: Point) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    fault_points.watch(watcher)


def run(order: dict[str, Any]) -> None:
    """Be the process of one order. Does not return."""
    os.setsid()
    os.chdir(order["folder"])
    log = os.open("shop.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if order["at"]:
        die_at(order["at"])
    status = 1
    try:
        status = shop(order["arguments"]) if order["arguments"] else load(order["keys"], apart=order["apart"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def shop(arguments: list[str]) -> int:
    """`shop …`, as its users run it."""
    from shop_pipeline import cli

    sys.argv = ["shop", *arguments]
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def load(keys: list[str], *, apart: bool) -> int:
    """The load under orders_daily, on the Spark that the settings name; `apart`: a commit for each day."""
    from shop_pipeline.core.contract_file import load_contract
    from shop_pipeline.core.days import RUN_DATE
    from shop_pipeline.core.lake import Lake
    from shop_pipeline.core.load import DailyLoad
    from shop_pipeline.core.sources.till_files import TillFiles
    from shop_pipeline.resources import ClockResource, spark_resource
    from shop_pipeline.settings import load_settings

    settings = load_settings()
    contract = load_contract("orders_daily")
    daily = DailyLoad(Lake(settings.lake), TillFiles(settings.landing, contract), contract, RUN_DATE)
    spark = spark_resource(settings.spark_master, settings.spark_remote, settings.spark_memory)
    parts = [[key] for key in keys] if apart else [keys]
    results = [
        result for part in parts for result in daily.load(spark.session, part, run_id="under fire", clock=ClockResource().now)
    ]
    return 0 if all(result.ok for result in results) else 1


def main() -> None:
    """Serve orders until standard input ends."""
    # Imported for the children; nothing of it is started here.
    import shop_pipeline.assets.till
    import shop_pipeline.automation.local_runs
    import shop_pipeline.cli
    import shop_pipeline.core.contract_file
    import shop_pipeline.resources
    import shop_pipeline.settings  # noqa: F401

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            run(order)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
