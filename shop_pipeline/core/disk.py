"""A disk without space, said in one sentence whichever engine found it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shop_pipeline.core.errors import DiskFull, ShopError

# The kernel's own words, which Java, Rust and DuckDB all pass on.
_NO_SPACE = "No space left on device"
# Less than one entry of a table's log takes, in bytes.
NEARLY_NOTHING = 16 * 1024


def is_full(error: BaseException, lake: str) -> bool:
    """Whether an error, or what it came from, is that a disk is full; where an engine does not say so, whether the lake's is."""
    seen: BaseException | None = error
    while seen is not None:
        if _NO_SPACE in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return shutil.disk_usage(_there(Path(lake))).free < NEARLY_NOTHING


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """delta-rs panics where it cannot write on, with an exception that `except Exception` passes over; here it is one.

    Raises:
        OSError: in place of the panic.
    """
    try:
        yield
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":
            raise
        raise OSError(f"delta-rs could not write: {panic}") from panic


@contextmanager
def full_in_a_sentence(lake: str, scratch: str, again: str) -> Iterator[None]:
    """Around what writes to a lake: a full disk is one sentence, whatever an engine made of it.

    Args:
        scratch: where it writes besides.
        again: what is to be run again then.

    Raises:
        DiskFull: no space is left.
    """
    try:
        yield
    except ShopError:
        raise
    except Exception as error:
        if is_full(error, lake):
            raise full(lake, scratch, again) from error
        raise


def full(lake: str, scratch: str, again: str) -> DiskFull:
    """The sentence about it, with what is left where this project writes."""
    left = ", ".join(f"{each}: {shutil.disk_usage(_there(Path(each))).free // 1_000_000} MB left" for each in (lake, scratch))
    return DiskFull(f"A disk is full ({left}). Nothing was half written; free some space and load {again} again.")


def _there(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
