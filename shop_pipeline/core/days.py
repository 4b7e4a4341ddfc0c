"""Run dates and days: the one place that says which day a partition key stands for.

A *run date* is the date a run is for, the partition key of the till's assets. A *day* is the business day it loads:
the run date minus one for the till, whose file is complete only after midnight, and the key itself for ShopFlow.
"""

from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from shop_pipeline.core.errors import WrongDate

ONE_DAY = timedelta(days=1)
# How many days one run takes where nobody says: a year, or as many as are not too much to do again when the run is killed.
DAYS_PER_RUN, BYTES_PER_RUN = 366, 2 * 1024**3
# The same where it is not known beforehand how big they are.
DAYS_OF_UNKNOWN_SIZE = 31


@dataclass(frozen=True)
class KeyRule:
    """How a partition key (an ISO date) and a day belong together: `day = key - lag_days`."""

    lag_days: int
    key_name: str

    @property
    def key_column(self) -> str:
        """What metadata and --json call the key."""
        return self.key_name.replace(" ", "_")

    def day(self, key: str) -> date:
        """The day that the run for `key` loads."""
        return date.fromisoformat(key) - timedelta(days=self.lag_days)

    def key(self, day: date) -> str:
        """The partition key whose run loads `day`."""
        return (day + timedelta(days=self.lag_days)).isoformat()


RUN_DATE = KeyRule(lag_days=1, key_name="run date")
BUSINESS_DATE = KeyRule(lag_days=0, key_name="business date")


def parse_date(text: str) -> date:
    """`text` as a date, which must be written YYYY-MM-DD (a shorter or longer form of ISO 8601 is not one).

    Raises:
        WrongDate: it is not a date.
    """
    try:
        parsed = date.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.isoformat() != text:
        raise WrongDate(f"{text!r} is not a date: write it as YYYY-MM-DD, for instance 2026-09-02.")
    return parsed


def days_of_month(text: str) -> list[date]:
    """The days of a month, which must be written YYYY-MM.

    Raises:
        WrongDate: it is not a month.
    """
    try:
        first = date.fromisoformat(f"{text}-01")
    except ValueError:
        first = None
    if first is None or first.isoformat()[:7] != text:
        raise WrongDate(f"{text!r} is not a month: write it as YYYY-MM, for instance 2026-09.")
    return [first + timedelta(days=n) for n in range(monthrange(first.year, first.month)[1])]


def dates_between(first: date, last: date) -> list[date]:
    """Every date from `first` to `last`, both included.

    Raises:
        WrongDate: `last` lies before `first`.
    """
    if last < first:
        raise WrongDate(f"The last date {last} lies before the first, {first}: give the earlier date first.")
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def day_predicate(days: Iterable[date]) -> str:
    """The SQL condition that holds for the rows of exactly these days, as it appears in the table's history."""
    ordered = sorted(set(days))
    if not ordered:
        raise ValueError("a predicate needs at least one day")
    if len(ordered) == 1:
        return f"order_date = '{ordered[0]}'"
    return "order_date IN (" + ", ".join(f"'{day}'" for day in ordered) + ")"


def in_runs(days: Iterable[date], size: Callable[[date], int | None], days_per_run: int | None = None) -> Iterator[list[date]]:
    """Days in a row, cut into what one run takes each.

    Args:
        size: how many bytes a day is to load, as far as that is known.
        days_per_run: cut by this number alone.
    """
    part: list[date] = []
    total = 0
    for day in days:
        known = size(day) if days_per_run is None else 0
        most = days_per_run or (DAYS_OF_UNKNOWN_SIZE if known is None else DAYS_PER_RUN)
        if part and (len(part) >= most or total + (known or 0) > BYTES_PER_RUN):
            yield part
            part, total = [], 0
        part.append(day)
        total += known or 0
    if part:
        yield part


def contiguous_ranges(dates: Sequence[date]) -> list[tuple[date, date]]:
    """`dates` as the fewest ranges (first, last) without a gap, in order."""
    ranges: list[tuple[date, date]] = []
    for day in sorted(set(dates)):
        if ranges and day - ranges[-1][1] == ONE_DAY:
            ranges[-1] = (ranges[-1][0], day)
        else:
            ranges.append((day, day))
    return ranges
