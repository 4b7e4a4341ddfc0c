"""What a load changed in a day, from the two versions of the table around its commit (issue 10: a partition's page)."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from shop_pipeline.core import changes
from shop_pipeline.core.changes import Changes, Example
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.lake import Lake

CONTRACT = load_contract("orders_daily")
DAY, OTHER = date(2026, 9, 1), date(2026, 9, 2)
FIRST = [(1, "C01", "10.00"), (2, "C02", "20.00"), (2, "C02", "20.00")]

Row = tuple[int, str | None, str]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lake"))
    made.create(CONTRACT.table, CONTRACT.table_columns, "orders")
    return made


def replace_day(lake: Lake, day: date, rows: list[Row], **more: list[str]) -> int:
    """Put rows in place of a day's; gives the version."""
    at = datetime.fromisoformat("2026-09-01T12:00:00")
    columns = {
        "order_id": pa.array([key for key, _, _ in rows], pa.int32()),
        "customer_id": pa.array([customer for _, customer, _ in rows], pa.string()),
        "amount": pa.array([Decimal(amount) for _, _, amount in rows], pa.decimal128(10, 2)),
        "ordered_at": pa.array([at] * len(rows), pa.timestamp("us")),
        "order_date": pa.array([day] * len(rows), pa.date32()),
        **{name: pa.array(values, pa.string()) for name, values in more.items()},
    }
    write_deltalake(
        lake.table_uri(CONTRACT.table), pa.table(columns), mode="overwrite", predicate=f"order_date = '{day}'", schema_mode="merge"
    )
    written = lake.open(CONTRACT.table)
    assert written is not None
    return written.version()


def after(lake: Lake, rows: list[Row], **more: list[str]) -> Changes:
    """What replacing the first rows of the day by these changed."""
    replace_day(lake, DAY, FIRST)
    replace_day(lake, OTHER, [(9, "C09", "90.00")])
    version = replace_day(lake, DAY, rows, **more)
    return changes.of_load(lake, CONTRACT, version, [DAY])[DAY]


def test_a_first_load(lake: Lake) -> None:
    version = replace_day(lake, DAY, FIRST)
    assert changes.of_load(lake, CONTRACT, version, [DAY]) == {DAY: Changes(3, 0, 0, "first load")}


def test_the_same_rows_in_another_order_are_no_change(lake: Lake) -> None:
    assert after(lake, FIRST[::-1]) == Changes(0, 0, 0, "none since version 2")


def test_rows_that_came_went_and_changed(lake: Lake) -> None:
    assert after(lake, [(1, "C01", "10.50"), (2, "C02", "20.00"), (3, None, "30.00")]) == Changes(
        1,
        1,
        1,
        "+1 -1 ~1 since version 2",
        (
            Example("+", "3", "customer_id None, amount 30.00, ordered_at 2026-09-01 12:00:00"),
            Example("-", "2", "customer_id C02, amount 20.00, ordered_at 2026-09-01 12:00:00"),
            Example("~", "1", "amount 10.00 → 10.50"),
        ),
    )


def test_a_day_that_is_emptied(lake: Lake) -> None:
    seen = after(lake, [])
    assert (seen.added, seen.removed, seen.changed, len(seen.examples)) == (0, 3, 0, 2)


def test_a_column_that_was_not_there_before(lake: Lake) -> None:
    """D13: what is new in the source is a change of the rows that carry it."""
    seen = after(lake, FIRST, coupon=["A", "", "B"])
    assert (seen.added, seen.removed, seen.changed) == (0, 0, 3)
    assert seen.examples[0] == Example("~", "1", "coupon None → A")


def test_examples_are_few_and_numbers_are_whole(lake: Lake) -> None:
    replace_day(lake, DAY, [(n, "C01", "1.00") for n in range(100)])
    version = replace_day(lake, DAY, [(n, "C01", "2.00") for n in range(90)])
    seen = changes.of_load(lake, CONTRACT, version, [DAY])[DAY]
    assert (seen.added, seen.removed, seen.changed) == (0, 10, 90)
    assert [each.key for each in seen.examples] == ["90", "91", "92", "93", "94", "0", "1", "2", "3", "4"]


def test_big_days_are_not_compared_row_by_row(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_ROWS", 5)
    assert after(lake, [*FIRST, (4, "C04", "40.00")]) == Changes(None, None, None, "3 rows before, 4 now: not compared row by row")
