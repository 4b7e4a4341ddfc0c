"""`make bench [NAME=…]`: the project and what it is compared with, alternating in one run, as medians and ratios.

Seconds on a shared machine mean little; the ratio of two things measured in turn on it does. Writes bench/results.json: an
array of `name`, `what`, `ratio` (project : other), `bar`, `runs` (pairs of seconds), and prints it as a table.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shop_pipeline.core.sample import write_september

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
REPEATS = int(os.environ.get("BENCH_REPEATS", "1"))
MONTH = ("2026-09-02", "2026-10-01")


@dataclass(frozen=True)
class Comparison:
    """Two things to time in turn, and the ratio that must not be exceeded."""

    name: str
    what: str
    bar: float
    project: Callable[[Path], None]
    other: Callable[[Path], None]


def shop(folder: Path, *arguments: str) -> None:
    """A `shop` command in a process of its own, cold."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DAGSTER_"))}
    run([str(BIN / "shop"), *arguments], folder, environment)


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    """Run a command in a folder; its output is shown when it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr[-3000:]}")


def month(folder: Path) -> None:
    """The month as one range, through Dagster, with checks and daily_sales."""
    shop(folder, "backfill", *MONTH)


def one_day(folder: Path) -> None:
    """One day, through Dagster, with its check and daily_sales."""
    shop(folder, "backfill", MONTH[0], MONTH[0])


def plain_month(folder: Path) -> None:
    """The plain script over the same month."""
    landing, lake = folder / "landing", folder / "plain_lake"
    run([sys.executable, str(HERE / "plain_month.py"), str(landing), str(lake), "2026-09-01", "30"], folder)


COMPARISONS = [
    Comparison("month_vs_plain", "the month, cold, checked : the plain script, day by day", 1 / 8, month, plain_month),
    Comparison("month_vs_day", "the month : one single day, both cold", 2.0, month, one_day),
]


def timed(action: Callable[[Path], None]) -> float:
    """Seconds that an action takes in a fresh folder with the sample month."""
    folder = Path(tempfile.mkdtemp(prefix="shop-bench-"))
    try:
        write_september(folder / "landing", force=False)
        begin = time.monotonic()
        action(folder)
        return time.monotonic() - begin
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(comparison: Comparison) -> dict[str, object]:
    """One comparison: the two in turn, REPEATS times."""
    runs = []
    for _ in range(REPEATS):
        runs.append([round(timed(comparison.project), 2), round(timed(comparison.other), 2)])
        print(f"  {comparison.name}: {runs[-1][0]} s : {runs[-1][1]} s", file=sys.stderr, flush=True)
    ratio = statistics.median(one for one, _ in runs) / statistics.median(other for _, other in runs)
    return {
        "name": comparison.name,
        "what": comparison.what,
        "ratio": round(ratio, 4),
        "bar": round(comparison.bar, 4),
        "runs": runs,
    }


def main() -> None:
    """Measure what was named (by default all) and write the results."""
    wanted = sys.argv[1:]
    unknown = set(wanted) - {each.name for each in COMPARISONS}
    if unknown:
        names = ", ".join(each.name for each in COMPARISONS)
        sys.exit(f"bench: there is no {', '.join(sorted(unknown))}; there are {names}")
    results = [measure(each) for each in COMPARISONS if not wanted or each.name in wanted]
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    for each in results:
        held = "held" if each["ratio"] <= each["bar"] else "NOT HELD"  # type: ignore[operator]
        print(f"{each['name']:<16} {each['ratio']:>8} (bar {each['bar']}) {held}   {each['what']}")


if __name__ == "__main__":
    main()
