"""Every command of the README is run, and prints what the README says."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from shop_pipeline_tests.conftest import REPOSITORY, clean_environment
from shop_pipeline_tests.servers import ConnectServer

README = (REPOSITORY / "README.md").read_text()
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.apart]


def sessions() -> list[list[tuple[str, str]]]:
    """The console blocks, each as (command, expected output) pairs."""
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    found = []
    for block in blocks:
        steps = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        found.append([(step.split("\n", 1)[0], step.split("\n", 1)[1]) for step in steps])
    return found


def test_make_month(tmp_path: Path) -> None:
    """The main job, cold, as a newcomer starts it (set-up has been done by `make test`); folders elsewhere than theirs."""
    ((command, expected),) = sessions()[0]
    assert command == "make month"
    environment = clean_environment(
        SHOP_LANDING=str(tmp_path / "landing"), SHOP_LAKE=str(tmp_path / "lake"), DAGSTER_HOME=str(tmp_path / "home")
    )
    done = subprocess.run(
        ["make", "--silent", "month"], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_story_of_a_day(tmp_path: Path, connect_server: ConnectServer) -> None:
    """On a warm Spark server, for its commands are many; what they print is the same."""
    environment = clean_environment(SHOP_SPARK_REMOTE=connect_server.url)
    folder = tmp_path
    for command, expected in [step for block in sessions()[1:] for step in block]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.stdout == expected, f"{command}\n{done.stderr}"
        assert done.returncode == (1 if expected.startswith("PROBLEM") else 0), command
        if command.startswith("mkdir"):
            folder = tmp_path / "shop-demo"


def test_every_command_in_the_text_exists() -> None:
    """What is named in the running text: make targets and shop commands."""
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)`", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (REPOSITORY / link).exists(), link
    assert os.access(REPOSITORY / ".ci" / "run", os.X_OK)
