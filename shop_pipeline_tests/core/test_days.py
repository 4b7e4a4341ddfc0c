"""Run dates, days and the predicates made of them."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import (
    BUSINESS_DATE,
    BYTES_PER_RUN,
    RUN_DATE,
    contiguous_ranges,
    dates_between,
    day_predicate,
    in_runs,
    parse_date,
)
from shop_pipeline.core.errors import WrongDate
from shop_pipeline.core.sources.till_files import TillFiles


def test_a_run_date_loads_the_day_before() -> None:
    """A4"""
    assert RUN_DATE.day("2026-09-02") == date(2026, 9, 1)
    assert RUN_DATE.day("2026-01-01") == date(2025, 12, 31)
    assert RUN_DATE.key(date(2024, 2, 29)) == "2024-03-01"
    assert BUSINESS_DATE.day("2024-01-01") == date(2024, 1, 1)


@pytest.mark.parametrize(
    "text", ["", "today", "2026-9-2", "20260902", "2026-02-30", "2026-09-02T00:00", "02/09/2026", "2026-W36-3"]
)
def test_only_a_plain_date_is_a_date(text: str) -> None:
    with pytest.raises(WrongDate, match="is not a date: write it as YYYY-MM-DD"):
        parse_date(text)


def test_a_range_has_both_ends_and_a_direction() -> None:
    assert dates_between(date(2026, 9, 30), date(2026, 10, 1)) == [date(2026, 9, 30), date(2026, 10, 1)]
    with pytest.raises(WrongDate, match="lies before the first"):
        dates_between(date(2026, 9, 2), date(2026, 9, 1))


def test_the_predicate_names_exactly_the_days() -> None:
    """A6: the form that the table's history shows."""
    first, other = date(2026, 9, 1), date(2026, 9, 3)
    assert day_predicate([first]) == "order_date = '2026-09-01'"
    assert day_predicate([other, first, other]) == "order_date IN ('2026-09-01', '2026-09-03')"
    with pytest.raises(ValueError, match="at least one day"):
        day_predicate([])


def test_contiguous_ranges() -> None:
    days = [date(2026, 9, day) for day in (5, 1, 2, 4, 9)]
    assert contiguous_ranges(days) == [
        (date(2026, 9, 1), date(2026, 9, 2)),
        (date(2026, 9, 4), date(2026, 9, 5)),
        (date(2026, 9, 9), date(2026, 9, 9)),
    ]


def sizes_of(tmp_path: Path, size: dict[date, int]) -> TillFiles:
    """The till's files of days, as big as is said and (sparse) taking no place."""
    (tmp_path / "orders").mkdir()
    for day, count in size.items():
        with (tmp_path / "orders" / f"{day}.csv").open("w") as file:
            file.truncate(count)
    return TillFiles(tmp_path, load_contract("orders_daily"))


def test_a_backfill_is_cut_into_years_or_into_what_is_not_too_big(tmp_path: Path) -> None:
    """Small days by the year; big ones so that a run has 2 GB at most, and always one day."""
    first = date(2016, 1, 1)
    days = [first + timedelta(n) for n in range(800)]
    big = {days[400]: BYTES_PER_RUN, days[401]: BYTES_PER_RUN * 3, days[500]: BYTES_PER_RUN // 2, days[501]: BYTES_PER_RUN // 2}
    source = sizes_of(tmp_path, {day: big.get(day, 100) for day in days})
    parts = list(in_runs(days, lambda day: source.size([day])))
    assert [day for part in parts for day in part] == days
    assert [len(part) for part in parts] == [366, 34, 1, 1, 99, 299]
    assert all(len(part) == 1 or source.size(part) <= BYTES_PER_RUN for part in parts)


def test_days_of_unknown_size_are_cut_into_months() -> None:
    days = [date(2024, 1, 1) + timedelta(n) for n in range(100)]
    assert [len(part) for part in in_runs(days, lambda _: None)] == [31, 31, 31, 7]


def test_who_says_how_many_gets_as_many(tmp_path: Path) -> None:
    days = [date(2024, 1, 1) + timedelta(n) for n in range(10)]
    source = sizes_of(tmp_path, dict.fromkeys(days, BYTES_PER_RUN))
    assert [len(part) for part in in_runs(days, lambda day: source.size([day]), 4)] == [4, 4, 2]
    assert list(in_runs([], lambda _: None)) == []
