"""Small inputs: files as the till writes them, and others; contracts that differ from the till's in a word or two."""

from collections.abc import Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.contract_file import parse_contract

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


CONTRACT_TEXT = files("shop_pipeline").joinpath("contracts/orders_daily.yaml").read_text()


def contract_with(*changes: tuple[str, str]) -> Contract:
    """The till's contract with some words changed, each at its first place."""
    text = CONTRACT_TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return parse_contract(text, "changed.yaml")


def contract_that_quarantines() -> Contract:
    """The till's contract with every rule about a value set to quarantine that would fail the day."""
    head, columns = CONTRACT_TEXT.split("    properties:\n")
    return parse_contract(
        head + "    properties:\n" + columns.replace("onViolation, value: fail", "onViolation, value: quarantine"), "lenient.yaml"
    )
