"""Run dates, days and the predicates made of them."""

from datetime import date

import pytest

from shop_pipeline.core.days import BUSINESS_DATE, RUN_DATE, contiguous_ranges, dates_between, day_predicate, parse_date
from shop_pipeline.core.errors import WrongDate


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
