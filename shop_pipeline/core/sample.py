"""The till's September 2026, made anew the same each time. How it is drawn decides every number in the documents."""

import csv
import io
import random
from datetime import date, datetime
from pathlib import Path

from shop_pipeline.core.errors import ShopError

HEADER = ("order_id", "customer_id", "amount", "ordered_at")
FIRST_ORDER = 2001
SEED = 10


def september_files() -> dict[str, bytes]:
    """File name → content of the 30 days."""
    draw = random.Random(SEED)  # noqa: S311 - a sample, not a secret
    files = {}
    order_id = FIRST_ORDER
    for day in range(1, 31):
        times = sorted((draw.randint(8, 21), draw.choice([0, 15, 30, 45])) for _ in range(draw.randint(3, 6)))
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(HEADER)
        for hour, minute in times:
            customer = f"C0{draw.randint(1, 5)}"
            amount = f"{draw.randint(800, 6000) / 100:.2f}"
            writer.writerow([order_id, customer, amount, datetime(2026, 9, day, hour, minute).isoformat()])  # noqa: DTZ001
            order_id += 1
        files[f"{date(2026, 9, day).isoformat()}.csv"] = text.getvalue().encode()
    return files


def write_september(landing: Path, *, force: bool) -> str:
    """Write the month's files below `landing/orders` and say so.

    Raises:
        ShopError: a file is there and differs, and `force` is off; nothing was written.
    """
    folder = landing / "orders"
    files = september_files()
    if not force:
        differing = [name for name, content in files.items() if _differs(folder / name, content)]
        if differing:
            raise ShopError(
                f"{folder / differing[0]} is there and differs from the sample ({len(differing)} such files): "
                "nothing was written. Use --force to overwrite."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            part = folder / f".{name}.part"
            part.write_bytes(content)
            part.replace(folder / name)
    except OSError as error:
        raise ShopError(f"{folder} cannot be written to ({error.strerror}). Make it writable, or set SHOP_LANDING.") from None
    last = sum(content.count(b"\n") - 1 for content in files.values()) + FIRST_ORDER - 1
    return f"wrote {len(files)} days, orders {FIRST_ORDER} to {last}"


def _differs(path: Path, content: bytes) -> bool:
    return path.exists() and (path.is_dir() or path.read_bytes() != content)
