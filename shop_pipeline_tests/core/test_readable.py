"""Which days may be read on, without Spark."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import LOAD, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.readable import readable_days

CONTRACT, DAY = load_contract("orders_daily"), date(2026, 9, 1)


@pytest.mark.parametrize("version", [0, 7])
def test_a_table_that_was_put_back_does_not_have_what_was_verified(tmp_path: Path, version: int) -> None:
    """From a backup of its folder: run_log speaks of a version that it no longer has."""
    lake = Lake(str(tmp_path / "lake"))
    lake.create("orders_daily", CONTRACT.table_columns, "put back")
    table = lake.open("orders_daily")
    assert table is not None
    now = datetime(2026, 9, 2, tzinfo=UTC)
    entry = Entry(
        *("run", now, "orders_daily", 3, now, SUCCEEDED, DAY, date(2026, 9, 2), "3:a:b", 0, None, version, 1.0, LOAD, "a"),
        table_id=table_id(table),
    )
    Ledger(lake).append([entry])
    readable = readable_days(lake, CONTRACT, [DAY])[DAY]
    assert readable.ok == (version == 0)
    if version:
        assert readable.verdict.problem == (
            "it was verified at version 7 and the table ends with 0: it was put back; load the day again"
        )
