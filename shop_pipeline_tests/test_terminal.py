"""What `shop` looks like on a terminal, a real one (a pty), and what it is when it is piped."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from shop_pipeline.cli import _about
from shop_pipeline_tests.conftest import clean_environment, run_shop

SHOP = str(Path(sys.executable).parent / "shop")
RED = "\x1b[31m"


def on_a_terminal(*arguments: str, folder: Path, width: int = 60, **environment: str) -> str:
    """What a command shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    known = clean_environment(**{"TERM": "xterm-256color", **environment})
    process = subprocess.Popen([SHOP, *arguments], cwd=folder, env=known, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        # How Linux says that the other end has been closed.
        pass
    finally:
        os.close(ours)
        process.wait(60)
    return shown.decode().replace("\r\n", "\n")


WIDE = "SELECT '2026-09-01' AS day, repeat('long ', 60) AS problem, 17 AS rows"


def test_a_table_fits_the_terminal(tmp_path: Path) -> None:
    shown = on_a_terminal("sql", WIDE, folder=tmp_path, NO_COLOR="1")
    lines = [re.sub(r"\x1b\[[0-9]*m", "", line).rstrip() for line in shown.splitlines()]
    assert all(len(line) <= 60 for line in lines), lines
    heading, first, *more = lines
    assert heading.split() == ["day", "problem", "rows"]
    assert first.startswith("2026-09-01  long long ")
    assert first.endswith("  17")
    assert "".join([first, *more]).count("long") == 60, "nothing is cut"


def test_a_piped_table_is_whole(tmp_path: Path) -> None:
    ran = run_shop("sql", WIDE, folder=tmp_path)
    assert "long " * 60 in ran.out
    assert "\x1b" not in ran.out + ran.err


def test_errors_are_red_on_a_terminal_alone(tmp_path: Path) -> None:
    said = "shop: '2026-13-01' is not a date"
    assert f"{RED}{said}" in on_a_terminal("load", "2026-13-01", folder=tmp_path, width=200)
    ran = run_shop("load", "2026-13-01", folder=tmp_path)
    assert ran.err.startswith(said)
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_who_wants_no_colour_gets_none(tmp_path: Path, environment: dict[str, str]) -> None:
    shown = on_a_terminal("load", "2026-13-01", folder=tmp_path, width=200, **environment)
    assert "is not a date" in shown
    assert RED not in shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, ""),
        (3, ", about 1 min left"),
        (100, ", about 2 min left"),
        (3600, ", about 1 h 0 min left"),
        (9000, ", about 2 h 30 min left"),
    ],
)
def test_what_is_left(seconds: float, said: str) -> None:
    assert _about(seconds) == said
