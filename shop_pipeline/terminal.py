"""How `shop` says things: in colour and in tables that fit where a person reads them, in plain text where a program does.

Results go to standard output and nothing else does. What is not a terminal gets whole texts and no colour; rich looks whether
a terminal's owner wants none (NO_COLOR, TERM=dumb).
"""

import sys
from collections.abc import Sequence
from typing import TextIO

# The first word of a line that has a colour.
_STYLES = {"ok": "green", "PROBLEM": "red", "NOT": "red", "warning:": "yellow", "error:": "red"}
# Columns up to this wide stay in one line.
SHORT = 24


def tell(text: str) -> None:
    """A line to the person at the terminal: progress, a warning."""
    _print(f"shop: {text}", sys.stderr, _style(text))


def tell_error(text: str) -> None:
    """Why a command ends here."""
    _print(f"shop: {text}", sys.stderr, "red")


def say(text: str, *, failed: bool = False) -> None:
    """A line of a command's result."""
    _print(text, sys.stdout, "red" if failed else _style(text))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with a heading: as wide as it is, or on a terminal with its long texts in several lines."""
    if not sys.stdout.isatty():
        widths = [max(len(row[n]) for row in [list(columns), *rows]) for n in range(len(columns))]
        for row in [list(columns), *rows]:
            print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
        return
    # A tenth of a second to import, and only a person at a terminal has use of it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for n, column in enumerate(columns):
        short = max(len(row[n]) for row in [list(columns), *rows]) <= SHORT
        table.add_column(Text(column), no_wrap=short, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False).print(table)


def _style(text: str) -> str | None:
    return _STYLES.get(text.split(" ", 1)[0])


def _print(text: str, stream: TextIO, style: str | None) -> None:
    if style is None or not stream.isatty():
        print(text, file=stream, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    Console(file=stream, highlight=False, soft_wrap=True).print(Text(text, style=style))
