"""docs/bench.md and docs/bench.png from bench/results.json: `python -m bench.page`, and the end of every `make bench`."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from shop_pipeline.core.spark import java_command

RESULTS = Path(__file__).parent / "results.json"
DOCS = Path(__file__).parent.parent / "docs"
HEAD = """\
# Measured side by side

Made by `make bench` from `bench/results.json`; `make bench NAME=month_cold` measures one of them anew. The project and what it
is compared with run in turn on one machine, each from nothing unless the text says "warm". A ratio is of the medians, project :
other; it holds when it is not above its bar. Seconds on a shared machine mean little, the ratio of two things measured in turn on
it does.

![Each ratio against its bar](bench.png)

| name | project : other | ratio | bar | | runs |
| --- | --- | ---: | ---: | --- | --- |
"""

Result = dict[str, Any]


def read_results() -> list[Result]:
    """What was measured last of each comparison."""
    found: list[Result] = json.loads(RESULTS.read_text())
    return found


def held(result: Result) -> bool:
    """Whether a ratio is within its bar."""
    return bool(result["ratio"] <= result["bar"])


def machine() -> str:
    """This machine and what runs on it, in a line."""
    said = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=True).stderr
    java = re.search(r'version "([^"]+)"', said)
    memory = round(psutil.virtual_memory().total / 2**30)
    return (
        f"{os.cpu_count()} cores, {memory} GiB; Python {platform.python_version()}, Java {java[1] if java else '?'}, "
        f"Spark {version('pyspark')}, Delta {version('delta-spark')}, Dagster {version('dagster')}"
    )


def page(results: Sequence[Result]) -> str:
    """The page, as Markdown."""
    rows = [
        f"| `{each['name']}` | {each['what']} | {_number(each['ratio'])} | {_number(each['bar'])} "
        f"| {'held' if held(each) else '**not held**'} | {_runs(each)} |"
        for each in results
    ]
    machines = [f"Measured on {each}." for each in dict.fromkeys(result["machine"] for result in results if "machine" in result)]
    return HEAD + "\n".join([*rows, "", *machines]) + "\n"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1 else f"{value:.2f}"


def _runs(result: Result) -> str:
    """The pairs that a ratio is of."""
    unit = result.get("unit", "s")
    return ", ".join(f"{one:g} : {other:g}" for one, other in result["runs"]) + f" {unit}"


def plot(results: Sequence[Result], file: Path) -> None:
    """A bar per comparison: how far its ratio is from its bar."""
    # Half a second to import, and the text needs none of it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shares = [each["ratio"] / each["bar"] for each in results]
    figure, axes = pyplot.subplots(figsize=(9, 0.8 + 0.34 * len(results)), layout="constrained")
    colours = ["#3a7d44" if held(each) else "#b3362b" for each in results]
    axes.barh([each["name"] for each in results], shares, color=colours, height=0.62)
    axes.axvline(1, color="black", linewidth=1.6)
    for row, each in enumerate(results):
        said = f"{_number(each['ratio'])} of {_number(each['bar'])}{'' if held(each) else ', not held'}"
        axes.text(1.01, row, said, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min([0.05, *(share / 2 for share in shares)]), max([2, *(share * 1.3 for share in shares)]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.invert_yaxis()
    axes.set_xlabel("ratio / bar (log scale): up to the black line it holds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def write(results: Sequence[Result]) -> None:
    """Write the page and its picture."""
    (DOCS / "bench.md").write_text(page(results))
    plot(results, DOCS / "bench.png")


def main() -> None:
    """Make both from what was measured last."""
    write(read_results())


if __name__ == "__main__":
    main()
