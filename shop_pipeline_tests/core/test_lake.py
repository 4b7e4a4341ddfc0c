"""The lake's tables, made and opened without Spark."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from shop_pipeline.core.lake import Lake

COLUMNS = (("order_date", "DATE"), ("orders", "BIGINT"))


def test_a_table_is_made_once_however_many_make_it(tmp_path: Path) -> None:
    """B6, C50: they all look, see nothing, and commit; one is first, and for the others it is there."""
    lake, together = Lake(str(tmp_path / "lake")), Barrier(8)

    def make(name: str) -> None:
        together.wait()
        lake.create(name, COLUMNS, "made at once")

    with ThreadPoolExecutor(8) as pool:
        for n in range(8):
            list(pool.map(make, [f"t{n}"] * 8))
            table = lake.open(f"t{n}")
            assert table is not None
            assert table.version() == 0
