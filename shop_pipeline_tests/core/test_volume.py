"""A day's rows against the days before it: the DQ family's arithmetic. No Spark."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shop_pipeline.core import duck, freshness, verify
from shop_pipeline.core.contract import Action, Baseline, Volume
from shop_pipeline.core.volume import backtest, baseline, judge, median
from shop_pipeline_tests.conftest import CONTRACT
from shop_pipeline_tests.test_sample import COUNTS

FIRST = date(2026, 9, 1)
BAND = Volume(50, 150, Action.FLAG)


def days(counts: list[int], first: date = FIRST) -> dict[date, int]:
    return {first + timedelta(days=n): count for n, count in enumerate(counts)}


@pytest.mark.parametrize(
    ("action", "flagged"), [(Action.FLAG, [7, 29]), (Action.FAIL, [7, 8, 9, 29, 30])], ids=["as a warning", "as a failure"]
)
def test_september(action: Action, flagged: list[int]) -> None:
    """D6: a refused day leaves the baseline of those after it."""
    replayed = backtest(days(COUNTS), Volume(50, 150, action))
    assert [each.day.day for each in replayed if not each.judgement.inside] == flagged


@pytest.mark.parametrize(
    ("history", "today", "inside", "sentence"),
    [
        ([], 5, True, "5 rows; too little history: 0 of 3 days"),
        ([100, 100], 1, True, "1 rows; too little history: 2 of 3 days"),
        ([], 0, False, "0 rows, which is never usual (too little history: 0 of 3 days)"),
        ([100] * 6, 150, True, "150 rows is within 50-150% of the 7-run median (100)"),
        ([100] * 6, 50, True, "50 rows is within 50-150% of the 7-run median (100)"),
        ([100] * 6, 151, False, "151 rows is outside 50-150% of the 7-run median (100)"),
        ([100] * 6, 49, False, "49 rows is outside 50-150% of the 7-run median (100)"),
        ([100] * 6, 0, False, "0 rows is outside 50-150% of the 7-run median (100)"),
        ([100] * 30, 101, True, "101 rows is within 50-150% of the 7-run median (100)"),
        ([100] * 30, 40, False, "40 rows is outside 50-150% of the 7-run median (100)"),
        ([100, 100, 100, 10_000], 100, True, "100 rows is within 50-150% of the 7-run median (100)"),
        ([100, 100, 100, 10_000, 100], 20, False, "20 rows is outside 50-150% of the 7-run median (100)"),
        ([0] * 7, 5, False, "5 rows is outside 50-150% of the 7-run median (0)"),
    ],
)
def test_a_day_against_its_baseline(history: list[int], today: int, inside: bool, sentence: str) -> None:
    """D4, D5, C149, C151, C153: the limits pass, 0 never does, and too little history says so."""
    judgement = judge(today, days(history), FIRST + timedelta(days=len(history)), BAND)
    assert (judgement.inside, judgement.sentence) == (inside, sentence)


def test_a_day_is_not_part_of_its_own_baseline() -> None:
    """C150: six days of 100 and 130 today, by a band of 25 %: flagged, and so it is when the day is loaded again."""
    band = Volume(75, 125, Action.FLAG)
    today = FIRST + timedelta(days=6)
    for history in (days([100] * 6), days([100] * 6 + [130])):
        assert not judge(130, history, today, band).inside


def test_later_days_do_not_count() -> None:
    """A backfill of an old day is judged by the days before it."""
    assert baseline(days([10, 20, 30, 1000, 1000]), FIRST + timedelta(days=3), BAND) == [10, 20, 30]


def test_other_baselines() -> None:
    """D5: the same weekday; the same period last year. C148: a month's end that is always big."""
    counts = [70 if (FIRST + timedelta(days=n)).weekday() == 6 else 10 for n in range(400)]
    history = days(counts)
    sunday = next(day for day in sorted(history, reverse=True) if day.weekday() == 6)
    assert not judge(70, history, sunday, BAND).inside
    assert judge(70, history, sunday, Volume(50, 150, Action.FLAG, baseline=Baseline.SAME_WEEKDAY)).inside
    by_year = Volume(50, 150, Action.FLAG, baseline=Baseline.LAST_YEAR)
    assert len(baseline(history, FIRST + timedelta(days=370), by_year)) == 7
    assert baseline(history, FIRST + timedelta(days=10), by_year) == []


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_the_median_is_one_of_the_values(values: list[int]) -> None:
    middle = median(values)
    assert middle in values
    assert sum(1 for each in values if each < middle) <= len(values) / 2 >= sum(1 for each in values if each > middle)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2026-09-03T01:59:59", date(2026, 8, 31)),
        ("2026-09-03T02:00:00", date(2026, 9, 1)),
        ("2026-09-03T00:05:00", date(2026, 8, 31)),
        ("2026-09-04T02:00:00", date(2026, 9, 2)),
        # The clocks go forward on 28 March and back on 25 October: an hour is an hour.
        ("2027-03-29T03:00:00", date(2027, 3, 27)),
        ("2027-03-29T02:59:00", date(2027, 3, 26)),
        ("2026-10-26T01:00:00", date(2026, 10, 24)),
        ("2026-10-26T00:59:00", date(2026, 10, 23)),
    ],
)
def test_the_newest_day_that_is_due(now: str, due: date) -> None:
    """D5, C83: a day is due 26 hours after its end, and not before."""
    at = datetime.fromisoformat(now).replace(tzinfo=BERLIN)
    assert freshness.newest_due(date(2026, 8, 1), at.astimezone(UTC), 26, BERLIN) == due


def test_nothing_is_due_before_the_first_day() -> None:
    now = datetime(2026, 9, 1, tzinfo=UTC)
    assert freshness.newest_due(FIRST, now, 26, BERLIN) is None
    assert freshness.judge(None, "", None, now, None).status == "nothing due"


def test_the_commonest_value_of_a_big_day_is_sought_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: a big day beside a small one; a value in 95 % of its rows is found there too, and its share about right."""
    monkeypatch.setattr(verify, "SAMPLE", 2000)
    con = duck.connect()
    con.execute(
        """CREATE TABLE loaded AS
        SELECT i AS order_id, CASE WHEN i % 20 = 0 THEN 'c' || i ELSE 'c1' END AS customer_id, CAST(i AS DECIMAL(10,2)) AS amount,
               TIMESTAMP '2026-09-01' + INTERVAL (i) SECOND AS ordered_at,
               CASE WHEN i <= 10 THEN DATE '2026-09-01' ELSE DATE '2026-09-02' END AS order_date FROM range(1, 20011) t(i)"""
    )
    counts = {FIRST: 10, FIRST + timedelta(days=1): 20_000}
    small, big = (verify._commonest(con, CONTRACT, counts)[day] for day in counts)
    assert small["customer_id"] == ("c1", 100.0)
    assert big["customer_id"][0] == "c1"
    assert 90 < big["customer_id"][1] < 99
