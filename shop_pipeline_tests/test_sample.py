"""The sample month: rows A1 to A3."""

import hashlib
from pathlib import Path

from shop_pipeline.core.sample import september_files
from shop_pipeline_tests.conftest import Shop

COUNTS = [3, 5, 4, 3, 3, 4, 5, 6, 5, 4, 3, 4, 6, 6, 3, 4, 3, 5, 6, 3, 6, 3, 6, 4, 3, 6, 3, 3, 5, 6]


def test_sample_writes_september(shop_without_spark: Shop, tmp_path: Path) -> None:
    """A1, A2: 30 files, byte for byte."""
    ran = shop_without_spark("sample")
    assert (ran.status, ran.out) == (0, "wrote 30 days, orders 2001 to 2130\n")
    files = sorted((tmp_path / "landing" / "orders").iterdir())
    assert [file.name for file in files] == [f"2026-09-{day:02d}.csv" for day in range(1, 31)]
    whole = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    assert whole == "160c619b72e3e43c45b7f003b8f9ef0d5ced0cc28ce80b38ad272a74b42fd933"
    first = hashlib.sha256(files[0].read_bytes()).hexdigest()
    assert first == "a60b55325e7a5891c46c63776db3b7d2388b71652a6c069cfe64e9677d1de527"


def test_sample_has_the_known_numbers() -> None:
    """A3: the first file, the counts a day, the month's total in cents."""
    files = [content.decode().splitlines()[1:] for content in september_files().values()]
    assert files[0] == [
        "2001,C04,30.73,2026-09-01T11:45:00",
        "2002,C02,10.81,2026-09-01T14:45:00",
        "2003,C05,48.14,2026-09-01T17:00:00",
    ]
    assert [len(lines) for lines in files] == COUNTS
    assert sum(round(float(line.split(",")[2]) * 100) for lines in files for line in lines) == 425528


def test_sample_refuses_to_overwrite_what_differs(shop_without_spark: Shop, tmp_path: Path) -> None:
    """A1: nothing is written when one file differs; --force overwrites; equal files are no reason to refuse."""
    shop_without_spark("sample")
    orders = tmp_path / "landing" / "orders"
    changed = orders / "2026-09-15.csv"
    original = changed.read_bytes()
    changed.write_bytes(original + b"2131,C02,19.99,2026-09-15T20:30:00\n")
    (orders / "2026-09-01.csv").unlink()
    ran = shop_without_spark("sample")
    assert (ran.status, ran.out) == (1, "")
    assert "2026-09-15.csv is there and differs from the sample (1 such files)" in ran.err
    assert not (orders / "2026-09-01.csv").exists()
    assert shop_without_spark("sample", "--force").status == 0
    assert changed.read_bytes() == original
    assert shop_without_spark("sample").status == 0


def test_sample_says_when_the_folder_cannot_be_written(shop_without_spark: Shop, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "orders").write_text("a file where the folder should be")
    ran = shop_without_spark("sample")
    assert ran.status == 1
    assert "cannot be written to" in ran.err
    assert "Traceback" not in ran.err
