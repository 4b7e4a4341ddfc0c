"""Which rows of silver change: the law, over many random histories, in DuckDB alone. (test_silver.py holds it on real tables.)"""

from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shop_pipeline.core import duck
from shop_pipeline.core.silver_changes import MOST_RANGES, Comparison, Ranges, columns, within
from shop_pipeline.core.silver_check import accounts, twice_in_silver
from shop_pipeline_tests.builders import contract_with
from shop_pipeline_tests.conftest import CONTRACT

FIRST = date(2026, 9, 1)
DAYS = [FIRST + timedelta(days=n) for n in range(4)]
BRONZE = [name for name, _ in CONTRACT.table_columns]
LOADED = datetime(2026, 11, 30, tzinfo=UTC)
SILVER = [name for name, _ in columns(CONTRACT)]
# An order in a day's file: its number, the day of its event, its amount, how new the source says it is (None: as its day).
Row = tuple[int, int, int, int | None]


connection = cache(duck.connect)


class Lake:
    """Bronze and silver as DuckDB tables, and what the law says of them."""

    def __init__(self) -> None:
        # One connection for all: to open one takes longer than what is done with it here.
        self.con = connection()
        kinds = dict(columns(CONTRACT))
        for table, names in (("all_bronze", BRONZE), ("silver", SILVER)):
            listed = ", ".join(f"{name} {kinds[name].replace('STRING', 'VARCHAR')}" for name in names)
            self.con.execute(f"CREATE OR REPLACE TABLE {table} ({listed})")

    def load(self, day: date, rows: list[Row]) -> None:
        """Replace a day of bronze."""
        self.con.execute("DELETE FROM all_bronze WHERE order_date = ?", [day])
        for number, (key, event, amount, version) in enumerate(rows, start=1):
            at = datetime.combine(DAYS[event], datetime.min.time()) + timedelta(hours=9)
            newness = datetime.combine(day if version is None else DAYS[version], datetime.min.time())
            values = [key, "C01", amount, at, day, newness, f"{day}.csv#{number:010d}", LOADED]
            self.con.execute(f"INSERT INTO all_bronze VALUES ({', '.join('?' * len(values))})", values)

    def merge(self, days: list[date], readable: list[date] = DAYS) -> int:
        """Merge days into silver as the project does, but for Spark; says how many rows changed, or minus how many keys it
        could not decide about."""
        con = self.con
        listed = ", ".join(f"DATE '{day}'" for day in days)
        con.execute(f"CREATE OR REPLACE TEMP VIEW bronze AS FROM all_bronze WHERE order_date IN ({listed})")
        others = ", ".join(f"DATE '{day}'" for day in readable if day not in days) or "NULL"
        closed = ", ".join(f"DATE '{day}'" for day in DAYS if day not in readable) or "NULL"

        def other(ranges: Ranges) -> bool:
            condition = within(CONTRACT, ranges).replace("t.", "").replace("`", '"')
            for name, which in (("other", others), ("closed", closed)):
                con.execute(
                    f"CREATE OR REPLACE TEMP VIEW {name} AS FROM all_bronze WHERE order_date IN ({which}) AND ({condition})"
                )
            return True

        compared = Comparison(con, CONTRACT, days)
        compared.take_present("silver")
        found = compared.changes(other)
        if found.undecided:
            return -len(found.undecided)
        con.execute("DELETE FROM silver WHERE order_id IN (SELECT order_id FROM changes)")
        con.execute(f"INSERT INTO silver SELECT {', '.join(SILVER)} FROM changes WHERE NOT _gone")
        compared.take_present("silver")
        assert twice_in_silver(compared) == {}
        assert all(each.reconciles for each in accounts(compared, days).values())
        return found.counts.total()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.con.execute("SELECT * EXCLUDE (_loaded_at) FROM silver ORDER BY order_id").fetchall()

    def folded(self) -> list[tuple[Any, ...]]:
        """What silver must be, in Python: of each order the newest of all days' rows."""
        newest: dict[int, tuple[Any, ...]] = {}
        for row in self.con.execute("SELECT * EXCLUDE (_loaded_at) FROM all_bronze").fetchall():
            key, customer, amount, at, day, version, seq = row
            made = (key, customer, amount, at, at.date(), day, version, seq)
            if key not in newest or (version, day, seq) > (newest[key][6], newest[key][5], newest[key][7]):
                newest[key] = made
        return [newest[key] for key in sorted(newest)]


rows_of_a_day = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(1, 3), st.one_of(st.none(), st.integers(0, 3))), max_size=5
)
steps = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 3), rows_of_a_day, min_size=1, max_size=3), st.sets(st.integers(0, 3), min_size=1)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=50, deadline=None)
@given(history=steps, at_last=st.permutations([0, 1, 2, 3]))
def test_silver_is_the_fold_of_all_days_in_whatever_order_they_run(
    history: list[tuple[dict[int, list[Row]], set[int]]], at_last: list[int]
) -> None:
    """D8, D10, C61, C114, C116: corrections, moved and deleted orders, versions taken back, reruns, ranges with gaps."""
    lake = Lake()
    stale: set[int] = set()
    for changed, run in history:
        for n, rows in changed.items():
            lake.load(DAYS[n], rows)
        stale |= set(changed)
        lake.merge([DAYS[n] for n in sorted(run)])
        stale -= run
        if not stale:
            assert lake.rows() == lake.folded()
    for n in at_last:
        lake.merge([DAYS[n]])
    assert lake.rows() == lake.folded()
    assert [lake.merge([DAYS[n]]) for n in at_last] == [0, 0, 0, 0]
    assert lake.merge(DAYS) == 0


def test_what_a_day_that_may_not_be_read_would_say_is_waited_for() -> None:
    """An older row of it does not matter; its newest row does: to go without it would be to lose it when the day is reopened."""
    lake = Lake()
    lake.load(DAYS[0], [(1, 0, 1, None), (2, 0, 1, None)])
    lake.load(DAYS[1], [(2, 0, 2, None)])
    lake.load(DAYS[2], [(1, 0, 3, None), (2, 0, 3, None)])
    lake.merge(DAYS[:3])
    before = lake.rows()
    lake.load(DAYS[2], [])
    # Order 1 would fall back to the day that is closed; order 2 to the one that is not, which is newer.
    assert lake.merge([DAYS[2]], readable=[DAYS[1], DAYS[2]]) == -1
    assert lake.rows() == before
    lake.merge([DAYS[2]])
    assert lake.rows() == lake.folded() != []


@pytest.mark.parametrize(
    ("keys", "ranges"),
    [
        ([], []),
        ([5], [(5, 5)]),
        ([5, 6, 7], [(5, 7)]),
        ([1, 2, 10, 11, 12, 900], [(1, 2), (10, 12), (900, 900)]),
    ],
)
def test_ranges_hold_the_keys_and_few_others(keys: list[int], ranges: list[tuple[int, int]]) -> None:
    """So that a merge reads the files that may hold them, and no others."""
    lake = Lake()
    lake.load(DAYS[0], [(key, 0, 1, None) for key in keys])
    lake.con.execute("CREATE OR REPLACE TEMP VIEW bronze AS FROM all_bronze")
    assert Comparison(lake.con, CONTRACT, DAYS[:1]).ranges() == ranges


def test_ranges_are_few_and_leave_out_the_widest_gaps() -> None:
    lake = Lake()
    keys = [n * 10 + (5000 if n >= 50 else 0) for n in range(100)]
    lake.load(DAYS[0], [(key, 0, 1, None) for key in keys])
    lake.con.execute("CREATE OR REPLACE TEMP VIEW bronze AS FROM all_bronze")
    ranges = Comparison(lake.con, CONTRACT, DAYS[:1]).ranges()
    assert ranges is not None
    assert len(ranges) == MOST_RANGES
    assert all(any(low <= key <= high for low, high in ranges) for key in keys)
    assert not any(low <= 1000 <= high for low, high in ranges)


def test_keys_that_are_texts_are_told_as_one_range() -> None:
    """Quoted as Spark reads them."""
    text = contract_with(("physicalType: INT", "physicalType: STRING"))
    assert within(text, [("a'b", "c\\d")]) == "t.`order_id` BETWEEN 'a\\'b' AND 'c\\\\d'"
    assert within(text, None) == "true"
