"""Temporary folders go, whatever becomes of their process."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shop_pipeline.core.scratch import PREFIX, Scratch


def test_a_killed_process_leaves_its_folder_for_the_next_to_clear_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import time; from shop_pipeline.core.scratch import Scratch; print(Scratch().path, flush=True); time.sleep(600)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        (theirs / "rows.csv").write_text("orders")
        with Scratch() as mine:
            assert theirs.exists()
            assert mine.parent == tmp_path
        assert not mine.exists()
        process.kill()
        process.wait()
    with Scratch() as mine:
        assert list(tmp_path.glob(f"{PREFIX}*")) == [mine]
