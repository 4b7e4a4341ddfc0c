"""A disk without space, said in one sentence whichever engine found it."""

import shutil
from pathlib import Path

from shop_pipeline.core.errors import DiskFull

# The kernel's own words, which Java, Rust and DuckDB all pass on.
_NO_SPACE = "No space left on device"


def is_full(error: BaseException) -> bool:
    """Whether an error, or what it came from, is that a disk is full."""
    seen: BaseException | None = error
    while seen is not None:
        if _NO_SPACE in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def full(lake: str, scratch: str, again: str) -> DiskFull:
    """The sentence about it, with what is left where this project writes."""
    left = ", ".join(f"{each}: {shutil.disk_usage(_there(Path(each))).free // 1_000_000} MB left" for each in (lake, scratch))
    return DiskFull(f"A disk is full ({left}). Nothing was half written; free some space and load {again} again.")


def _there(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
