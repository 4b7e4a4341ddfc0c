"""Small inputs: files as the till writes them, and others."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

HEADER = "order_id,customer_id,amount,ordered_at"

Row = tuple[int, str, str, str]


def rows_of(day: date, first_id: int, count: int) -> list[Row]:
    """`count` good orders of a day."""
    return [(first_id + n, f"C0{n % 5 + 1}", f"{10 + n}.50", f"{day}T{9 + n:02d}:15:00") for n in range(count)]


def text_of(rows: Sequence[Row], *, newline: str = "\r\n", header: str = HEADER) -> str:
    """A file's text."""
    return newline.join([header, *(",".join(map(str, row)) for row in rows)]) + newline


def write_day(landing: Path, day: date, content: str | bytes | Sequence[Row]) -> Path:
    """Put a day's file into a landing folder."""
    path = landing / "orders" / f"{day}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, (str, bytes)):
        content = text_of(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
