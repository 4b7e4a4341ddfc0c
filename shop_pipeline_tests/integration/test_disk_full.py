"""C71: a disk that fills up in mid-write, and a log that lost an entry."""

import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from shop_pipeline.core.lake import Lake
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.conftest import ORDERS_DAILY, World, failure_text, run_date
from shop_pipeline_tests.fire import fingerprint, in_files, in_table, put

DAY = date(2026, 9, 1)
ROWS = [(n, f"C{n:08d}{n * 7919 % 99991}", f"{n % 9000}.{n % 100:02d}", f"{DAY}T09:00:00") for n in range(1, 4001)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB. Mounting one takes root, in this namespace or in one of one's own."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class OnSmallDisk(World):
    @property
    def lake(self) -> Lake:
        return Lake(str(self.folder / "small" / "lake"))


@pytest.mark.slow
def test_a_disk_that_fills_up_in_mid_write(spark: SparkResource, small_disk: Path, tmp_path: Path, instance) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """A sentence; the table is readable and as it was; after space returns a rerun completes."""
    world = OnSmallDisk(tmp_path, spark, instance)
    put(world.landing, {DAY: ROWS[:20]}, incomplete=False)
    assert world.run([run_date(DAY)]).success
    before, version = fingerprint(in_table(world.lake)), world.version()
    ballast = small_disk / "ballast"
    put(world.landing, {DAY: ROWS}, incomplete=False)
    seen = set()
    for left in (60_000, 0):
        free = _free(small_disk)
        with ballast.open("ab") as file:
            file.write(b"x" * max(0, free - left))
        result = world.run([run_date(DAY)])
        assert not result.success, left
        text = failure_text(result)
        assert text.startswith("A disk is full ("), text
        assert "load run date 2026-09-02 again" in text
        assert (fingerprint(in_table(world.lake)), world.version()) == (before, version), left
        seen.add(world.log(DAY)[-1].status)
    ballast.unlink()
    for orphan in (small_disk / "lake" / "orders_daily").rglob("*.tmp"):
        orphan.unlink()
    assert world.run([run_date(DAY)], ORDERS_DAILY).success
    assert fingerprint(in_table(world.lake)) == fingerprint(in_files(world.landing))
    assert world.verdict(DAY).verified
    assert seen <= {"failed", "started", "succeeded"}


def _free(folder: Path) -> int:
    import shutil

    return shutil.disk_usage(folder).free


def test_a_log_that_lost_an_entry_is_never_written_over(world: World) -> None:
    """C71: said clearly; the loader makes no new table in its place; with the entry back, all goes on."""
    put(world.landing, {DAY: ROWS[:5]}, incomplete=False)
    for _ in range(3):
        assert world.run([run_date(DAY)]).success
    log = Path(world.lake.table_uri("orders_daily")) / "_delta_log"
    entry = log / f"{1:020d}.json"
    kept = entry.read_bytes()
    entry.unlink()
    names = sorted(path.name for path in log.iterdir())
    result = world.run([run_date(DAY)])
    assert not result.success
    assert "the log's entry 1 is missing" in failure_text(result)
    assert sorted(path.name for path in log.iterdir()) == names
    entry.write_bytes(kept)
    assert world.run([run_date(DAY)]).success
