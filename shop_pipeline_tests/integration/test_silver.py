"""Silver, gold, late data, restatement: D8 to D13, C51, C55, C57, C58, C61, C63, C66, C114, C116.

The truth is worked out here, in Python, from the files alone.
"""

import csv
import json
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from shop_pipeline.assets import till
from shop_pipeline.core import fault_points, silver, silver_changes
from shop_pipeline.core.fault_points import Point
from shop_pipeline.core.gold import FiguresOfDay, Gold
from shop_pipeline.core.ledger import SUCCEEDED
from shop_pipeline.core.maintenance import tidy
from shop_pipeline.core.silver import MergedDay, Silver
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.builders import HEADER, contract_with, rows_of, text_of
from shop_pipeline_tests.conftest import (
    CONTRACT,
    DAILY_SALES,
    FEED,
    ORDERS_DAILY,
    SILVER_ORDERS,
    World,
    evaluations,
    failure_text,
    run_date,
)

FIRST = date(2026, 9, 1)
DAYS = [FIRST + timedelta(days=n) for n in range(6)]
KEYS = [run_date(day) for day in DAYS]
OWN = "order_id, customer_id, CAST(amount AS VARCHAR), strftime(ordered_at, '%Y-%m-%dT%H:%M:%S')"

Order = tuple[int, str, str, str]


def merge(world: World, keys: Sequence[str]) -> list[MergedDay]:
    """Merge days into silver, without Dagster."""
    made = Silver(world.lake, CONTRACT, FEED.rule)
    return made.merge(world.spark.session, keys, run_id="by the test", clock=world.clock.now)


def recompute(world: World, keys: Sequence[str], lookback: int = 0) -> list[FiguresOfDay]:
    """Bring the figures up to date, without Dagster."""
    made = Gold(world.lake, CONTRACT, FEED.rule, lookback)
    return made.recompute(world.spark.session, keys, run_id="by the test", clock=world.clock.now)


def through(world: World, days: Iterable[date]) -> None:
    """Load days, merge them, make their figures; all must be well."""
    keys = [run_date(day) for day in days]
    for results in (world.load(keys), merge(world, keys), recompute(world, keys)):
        assert all(each.ok for each in results), [each.sentence for each in results]  # type: ignore[attr-defined]


def put(world: World, day: date, *orders: Order) -> None:
    world.put(day, text_of(orders))


def order(number: int, day: date, amount: str = "10.00", customer: str = "C01", hour: int = 9) -> Order:
    return (number, customer, amount, f"{day}T{hour:02d}:00:00")


def silver_rows(world: World) -> list[tuple[Any, ...]]:
    """Silver, but for the time of loading."""
    return world.query(f"SELECT {OWN}, order_date, _source_day, _source_seq FROM silver_orders ORDER BY ALL", silver.TABLE)


def sales(world: World) -> list[tuple[Any, ...]]:
    """The figures, but for when they were made."""
    return world.query("SELECT * EXCLUDE (data_as_of) FROM daily_sales ORDER BY 1", "daily_sales")


def restated(world: World) -> list[tuple[Any, ...]]:
    columns = "order_date, orders_before, orders_after, CAST(revenue_before AS VARCHAR), CAST(revenue_after AS VARCHAR), cause"
    return world.query(f"SELECT {columns} FROM restatements ORDER BY gold_version, order_date", "restatements")


def folded(world: World) -> list[tuple[Any, ...]]:
    """What silver must be: of each order the row of the newest day, and in a day the last record. Python's csv alone."""
    newest: dict[int, tuple[Any, ...]] = {}
    for path in sorted((world.landing / "orders").glob("*.csv")):
        day = date.fromisoformat(path.stem)
        with path.open(newline="") as file:
            for number, row in enumerate(csv.DictReader(file), start=1):
                event = date.fromisoformat(row["ordered_at"][:10])
                seq = f"{path.name}#{number:010d}"
                key = int(row["order_id"])
                newest[key] = (key, row["customer_id"], row["amount"], row["ordered_at"], event, day, seq)
    return sorted(newest.values())


def summed(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What gold must be, of silver's rows."""
    by_day: dict[date, list[tuple[Any, ...]]] = {}
    for row in rows:
        by_day.setdefault(row[4], []).append(row)
    made = []
    for day, orders in sorted(by_day.items()):
        revenue = sum((Decimal(each[2]) for each in orders), Decimal(0))
        times = [datetime.fromisoformat(each[3]) for each in orders]
        average = (revenue / len(orders)).quantize(Decimal("0.01"), ROUND_HALF_UP)
        made.append((day, len(orders), revenue, average, min(times), max(times)))
    return made


def assert_the_law(world: World) -> None:
    """Silver is the fold of all days by version, gold is made of silver; each order once."""
    assert silver_rows(world) == folded(world)
    assert sales(world) == summed(folded(world))


# --- D8: which row of an order counts


def test_the_newest_row_of_an_order_counts(world: World) -> None:
    """D8, D9, D10, C61: Monday replayed after Tuesday is older and rolls nothing back; bronze has both rows."""
    put(world, DAYS[0], order(7, DAYS[0], "10.00"), order(8, DAYS[0]))
    put(world, DAYS[1], order(7, DAYS[0], "20.00"))
    through(world, [DAYS[1]])
    through(world, [DAYS[0]])
    assert_the_law(world)
    assert [row[:3] for row in silver_rows(world)] == [(7, "C01", "20.00"), (8, "C01", "10.00")]
    assert world.query("SELECT count(*) FROM orders_daily") == [(3,)]
    version = world.version(silver.TABLE)
    (again,) = merge(world, [KEYS[0]])
    assert again.ok
    assert again.account is not None
    assert (again.account.kept, again.account.older) == (1, 1)
    assert again.account.older_examples == (
        "order_id 7 at 2026-09-01.csv#0000000001 (silver has 2026-09-02.csv#0000000001 of 2026-09-02)",
    )
    # Nothing changed, so nothing was committed.
    assert world.version(silver.TABLE) == version


def test_the_same_source_day_replaces_its_own_rows(world: World) -> None:
    """D8: whenever they differ, and nothing else does."""
    put(world, DAYS[0], order(1, DAYS[0]), order(2, DAYS[0]))
    put(world, DAYS[1], order(3, DAYS[1]))
    through(world, DAYS[:2])
    put(world, DAYS[0], order(1, DAYS[0], "99.00"), order(2, DAYS[0]))
    through(world, DAYS[:1])
    assert_the_law(world)
    table = world.lake.open(silver.TABLE)
    assert table is not None
    changes = pa.table(table.load_cdf(starting_version=table.version())).to_pylist()
    assert sorted((row["order_id"], row["_change_type"], str(row["amount"])) for row in changes) == [
        (1, "update_postimage", "99.00"),
        (1, "update_preimage", "10.00"),
    ]


def test_repeated_rows_of_a_day_leave_one_winner(world: World) -> None:
    """C55, D3: the record that comes last; the others are counted; the same on every rerun."""
    put(world, DAYS[0], order(7, DAYS[0], "1.00"), order(8, DAYS[0]), order(7, DAYS[0], "2.00"))
    through(world, DAYS[:1])
    assert_the_law(world)
    (again,) = merge(world, KEYS[:1])
    assert again.account is not None
    assert (again.account.rows, again.account.kept, again.account.repeated) == (3, 2, 1)
    assert again.log_line == "Rows: 3, null keys: 0, keys with duplicates: 1"


MODIFIED = contract_with(
    ("      - property: newColumns\n", "      - {property: sourceVersion, value: modified_at}\n      - property: newColumns\n"),
    (
        "slaProperties:",
        "      - {name: modified_at, logicalType: timestamp, physicalType: TIMESTAMP,\n"
        "         logicalTypeOptions: {format: \"yyyy-MM-dd'T'HH:mm:ss\"}}\nslaProperties:",
    ),
)


def test_a_source_that_says_how_new_a_row_is(world: World) -> None:
    """C55, C61, D8: the newest modified_at wins over the day's date and the record number; without one, the day counts."""
    feed = till.till_feed(MODIFIED, run_dates(date(2026, 9, 2), date(2026, 11, 30)))
    assets = (till.orders_daily(feed), till.silver_orders(feed), till.daily_sales(feed))
    head = f"{HEADER},modified_at\n"
    monday = f"7,C01,1.00,{DAYS[0]}T09:00:00,2026-09-09T10:00:00\n7,C01,2.00,{DAYS[0]}T09:00:00,2026-09-08T10:00:00\n"
    world.put(DAYS[0], f"{head}{monday}8,C01,3.00,{DAYS[0]}T09:00:00,\n")
    world.put(DAYS[1], f"{head}7,C01,4.00,{DAYS[0]}T09:00:00,2026-09-02T10:00:00\n8,C01,5.00,{DAYS[0]}T09:00:00,\n")
    for keys in ([KEYS[1]], [KEYS[0]], KEYS[:2]):
        assert world.run(keys, *assets).success
    found = "SELECT order_id, CAST(amount AS VARCHAR), CAST(_source_version AS VARCHAR) FROM silver_orders ORDER BY 1"
    assert world.query(found, silver.TABLE) == [(7, "1.00", "2026-09-09 10:00:00"), (8, "5.00", "2026-09-02 00:00:00")]
    # The day takes its word back: the next newest counts, wherever it is.
    world.put(DAYS[0], f"{head}7,C01,2.00,{DAYS[0]}T09:00:00,2026-09-01T10:00:00\n8,C01,3.00,{DAYS[0]}T09:00:00,\n")
    assert world.run([KEYS[0]], *assets).success
    assert world.query(found, silver.TABLE)[0] == (7, "4.00", "2026-09-02 10:00:00")


# --- D10: orders that leave, rows that come late


def test_an_order_that_left_its_day_falls_back_or_goes(world: World) -> None:
    """D10: to its next newest row among the verified days; the change feed shows both."""
    put(world, DAYS[0], order(1, DAYS[0], "1.00"), order(2, DAYS[0]))
    put(world, DAYS[1], order(1, DAYS[0], "2.00"), order(3, DAYS[1]))
    put(world, DAYS[2], order(4, DAYS[2]))
    through(world, DAYS[:3])
    put(world, DAYS[1], order(5, DAYS[1], "4.00"))
    keys = [KEYS[1]]
    assert all(each.ok for each in world.load(keys))
    (merged,) = merge(world, keys)
    assert merged.changed == {"insert": 1, "update": 0, "fell back": 1, "delete": 1}
    table = world.lake.open(silver.TABLE)
    assert table is not None
    changes = pa.table(table.load_cdf(starting_version=table.version())).to_pylist()
    assert sorted((row["order_id"], row["_change_type"], str(row["amount"])) for row in changes) == [
        (1, "update_postimage", "1.00"),
        (1, "update_preimage", "2.00"),
        (3, "delete", "10.00"),
        (5, "insert", "4.00"),
    ]
    assert recompute(world, keys)[0].ok
    assert_the_law(world)
    assert [(row[0], row[5]) for row in restated(world)] == [
        (DAYS[0], "correction (1 order)"),
        (DAYS[1], "correction (1 order), deletion (1 order)"),
    ]


def test_an_order_waits_for_the_day_it_would_fall_back_to(world: World) -> None:
    """D10, E6: a day that may not be read is no place to fall back to, and to go without it would be to lose its row when a
    check opens it again. So the day that lost the order waits, alone; nothing of it is called done."""
    put(world, DAYS[0], order(1, DAYS[0], "1.00"))
    put(world, DAYS[1], order(1, DAYS[0], "2.00"), order(9, DAYS[1]))
    put(world, DAYS[2], order(5, DAYS[2]))
    through(world, DAYS[:3])
    put(world, DAYS[0], order(1, DAYS[0], "1.00"), order(8, DAYS[0]))
    assert not world.recheck(KEYS[0]).success
    put(world, DAYS[1], order(9, DAYS[1]))
    put(world, DAYS[2], order(5, DAYS[2], "6.00"))
    assert all(each.ok for each in world.load(KEYS[1:3]))
    result = world.run(KEYS[1:3], SILVER_ORDERS)
    assert not result.success
    sentence = failure_text(result).splitlines()[1]
    assert "it lost orders whose newest row is now one of a day that is not verified: order_id 1 (2026-09-01)." in sentence
    assert "Load run date 2026-09-02 of orders_daily (or check it), then run silver_orders for both." in sentence
    assert [(row[0], row[2]) for row in silver_rows(world)] == [(1, "2.00"), (5, "6.00"), (9, "10.00")]
    assert [each.ok for each in recompute(world, KEYS[1:3])] == [False, True]
    put(world, DAYS[0], order(1, DAYS[0], "1.00"))
    assert world.recheck(KEYS[0]).success
    through(world, DAYS[1:2])
    assert_the_law(world)


def test_days_that_calendars_do_not_agree_on(world: World) -> None:
    """Orders of years that are surely wrong, which the contract lets pass, are their days' figures and no other day's trouble;
    so are keys as far apart as an INT can be."""
    odd = ["0026-09-03", "0001-01-01", "1582-10-10", "1582-10-04", "1900-02-28"]
    put(world, DAYS[0], *[order(n, date.fromisoformat(day)) for n, day in enumerate(odd, start=1)])
    put(world, DAYS[1], order(-2147483648, DAYS[1]), order(0, DAYS[1]), order(2147483647, DAYS[1]))
    through(world, DAYS[:2])
    assert_the_law(world)
    through(world, DAYS[:2])


def test_figures_stay_while_silver_is_made_anew(world: World) -> None:
    """A silver that was moved away and given one day again is no reason to take the other days' figures back."""
    for day in DAYS[:4]:
        put(world, day, order(day.day, day, "1.00"))
    through(world, DAYS[:4])
    before = sales(world)
    (world.folder / "lake" / silver.TABLE).rename(world.folder / "away")
    assert merge(world, [KEYS[1]])[0].ok
    (made,) = recompute(world, [KEYS[1]])
    assert (made.ok, made.lacking) == (True, (DAYS[0], DAYS[2], DAYS[3]))
    assert (sales(world), restated(world)) == (before, [])
    through(world, DAYS[:4])
    assert (sales(world), restated(world)) == (before, [])
    assert_the_law(world)


def test_late_rows_land_in_the_day_of_their_event(world: World) -> None:
    """D10, D11: however late; how late is in a table, in metadata that is plotted, and in a proposal for the lookback."""
    for day in DAYS[:5]:
        world.put(day, rows_of(day, 100 * day.day, 4))
    assert world.run(KEYS[:5], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    late = [order(901, DAYS[0], "5.00"), order(902, DAYS[3], "6.00")]
    put(world, DAYS[5], order(900, DAYS[5]), *late)
    result = world.run([KEYS[5]], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES)
    assert result.success
    assert_the_law(world)
    assert world.query(
        "SELECT days_late, rows FROM late_arrivals WHERE order_date = DATE '2026-09-06' ORDER BY 1", "late_arrivals"
    ) == [
        (0, 1),
        (2, 1),
        (5, 1),
    ]
    (merged,) = result.asset_materializations_for_node(silver.TABLE)
    metadata = {name: value.value for name, value in merged.metadata.items()}
    assert (metadata["rows_late"], metadata["days_late_at_most"]) == (2, 5)
    # 20 rows on the day itself, one after two days, one after five: 22 of 23 after two, all after five.
    assert metadata["proposed_lookback"] == 5
    assert metadata["proposal"] == "lookback: 5 days (100.00 % of all rows had come by then)"
    assert [dict(record.data) for record in merged.metadata["how_late"].records] == [
        {"days_late": 0, "rows": 21, "percent": 91.3},
        {"days_late": 2, "rows": 1, "percent": 4.35},
        {"days_late": 5, "rows": 1, "percent": 4.35},
    ]
    assert restated(world) == [
        (DAYS[0], 4, 5, "48.00", "53.00", "late rows (1 order)"),
        (DAYS[3], 4, 5, "48.00", "54.00", "late rows (1 order)"),
    ]
    # Only the days that were touched were replaced.
    table = world.lake.open("daily_sales")
    assert table is not None
    assert table.history(1)[0]["operationParameters"]["predicate"] == ("order_date IN ('2026-09-01', '2026-09-04', '2026-09-06')")


def test_a_day_that_has_late_rows_only_is_said_to(world: World) -> None:
    """Its figures are what silver has; that its own file is not there is told with them."""
    put(world, DAYS[1], order(1, DAYS[0]), order(2, DAYS[1]))
    keys = [KEYS[1]]
    assert all(each.ok for each in [*world.load(keys), *merge(world, keys)])
    (made,) = recompute(world, keys)
    assert (made.ok, made.partial) == (True, (DAYS[0],))
    put(world, DAYS[0], order(3, DAYS[0]))
    through(world, DAYS[:1])
    assert_the_law(world)


# --- D11: restatement


def test_a_published_figure_that_changes_leaves_a_row(world: World) -> None:
    """D11: before, after, cause, run and when; data_as_of is when a figure came to be what it is."""
    put(world, DAYS[0], order(1, DAYS[0], "1.00"), order(2, DAYS[0], "2.00"))
    put(world, DAYS[1], order(3, DAYS[1], "3.00"))
    through(world, DAYS[:2])
    as_of = "SELECT order_date, data_as_of FROM daily_sales ORDER BY 1"
    made = world.query(as_of, "daily_sales")
    assert restated(world) == []
    # Nothing changed: the figures stay what and as of when they were.
    through(world, DAYS[:2])
    assert (world.query(as_of, "daily_sales"), restated(world)) == (made, [])
    # An order moves to the next day: both days are restated.
    put(world, DAYS[0], order(1, DAYS[0], "1.00"))
    put(world, DAYS[1], order(3, DAYS[1], "3.00"), order(2, DAYS[1], "2.00"))
    through(world, DAYS[:2])
    assert restated(world) == [
        (DAYS[0], 2, 1, "3.00", "1.00", "correction (1 order)"),
        (DAYS[1], 1, 2, "3.00", "5.00", "correction (1 order)"),
    ]
    # A day loses its last order: no row, and the restatement says 0.
    put(world, DAYS[0])
    through(world, DAYS[:1])
    assert [row[0] for row in sales(world)] == [DAYS[1]]
    assert restated(world)[-1] == (DAYS[0], 1, 0, "1.00", "0.00", "deletion (1 order)")
    # And it was published as none: an order that comes back restates it.
    put(world, DAYS[0], order(1, DAYS[0], "1.00"))
    through(world, DAYS[:1])
    assert restated(world)[-1] == (DAYS[0], 0, 1, "0.00", "1.00", "correction (1 order)")
    ((runs, times),) = world.query("SELECT count(DISTINCT run_id), count(restated_at) FROM restatements", "restatements")
    assert (runs, times) == (1, 4)
    assert_the_law(world)


def test_days_within_the_lookback_are_expected_to_change(world: World) -> None:
    """D11: where a feed has a lookback, only figures of days older than it are restated."""
    for day in DAYS[:4]:
        put(world, day, order(day.day, day, "1.00"))
    through(world, DAYS[:4])
    for day in DAYS[:4]:
        put(world, day, order(day.day, day, "2.00"))
    keys = KEYS[:4]
    assert all(each.ok for each in [*world.load(keys), *merge(world, keys)])
    assert all(each.ok for each in recompute(world, keys, lookback=2))
    assert [row[0] for row in restated(world)] == DAYS[:2]


@pytest.mark.parametrize("point", [Point.BEFORE_MERGE, Point.AFTER_MERGE, Point.BEFORE_CLOSING_MERGE])
def test_a_merge_that_dies_is_completed_by_the_next(world: World, point: Point) -> None:
    """E5 for silver: what it left is closed to gold until a rerun has settled it; no order is lost or doubled."""
    put(world, DAYS[0], order(1, DAYS[0]), order(2, DAYS[0]))
    through(world, DAYS[:1])
    put(world, DAYS[0], order(1, DAYS[0], "5.00"), order(3, DAYS[0]))
    assert world.load(KEYS[:1])[0].ok
    with pytest.raises(KeyboardInterrupt):
        stop_at(world, point, merge)
    (held,) = recompute(world, KEYS[:1])
    assert not held.ok
    assert f"Run silver_orders for run date {KEYS[0]}, then daily_sales." in held.sentence
    through(world, DAYS[:1])
    assert_the_law(world)
    assert restated(world) == [(DAYS[0], 2, 2, "20.00", "15.00", "correction (2 orders), deletion (1 order)")]


@pytest.mark.parametrize("point", [Point.BEFORE_FIGURES, Point.AFTER_FIGURES, Point.BEFORE_CLOSING_FIGURES])
def test_figures_that_died_halfway_are_restated_once(world: World, point: Point) -> None:
    """D11, E5: the commit carries what it restates, so that neither is there without the other, nor twice."""
    put(world, DAYS[0], order(1, DAYS[0], "1.00"))
    through(world, DAYS[:1])
    put(world, DAYS[0], order(1, DAYS[0], "2.00"))
    assert all(each.ok for each in [*world.load(KEYS[:1]), *merge(world, KEYS[:1])])
    with pytest.raises(KeyboardInterrupt):
        stop_at(world, point, recompute)
    for _ in range(2):
        assert recompute(world, KEYS[:1])[0].ok
        assert restated(world) == [(DAYS[0], 1, 1, "1.00", "2.00", "correction (1 order)")]
    assert_the_law(world)


def stop_at(world: World, point: Point, work: Any) -> None:  # noqa: ANN401
    def stop(reached: Point) -> None:
        if reached is point:
            raise KeyboardInterrupt

    end = fault_points.watch(stop)
    try:
        work(world, KEYS[:1])
    finally:
        end()


# --- What keeps a day out


def tampered(world: World, sql: str) -> None:
    """Change bronze behind everybody's back; its verdict stays."""
    world.spark.session().sql(sql.format(table=f"delta.`{world.lake.table_uri('orders_daily')}`"))


def test_a_row_without_a_key_is_stopped_before_the_merge(world: World) -> None:
    """C58, C66, D4: the exact words, and which rows; silver has no NULL key and does not grow; other days go on."""
    put(world, DAYS[0], order(1, DAYS[0]), order(2, DAYS[0]))
    put(world, DAYS[1], order(3, DAYS[1]))
    through(world, DAYS[:2])
    before = silver_rows(world)
    tampered(world, "UPDATE {table} SET order_id = NULL WHERE order_id = 2")
    for _ in range(2):
        result = world.run(KEYS[:2], SILVER_ORDERS)
        assert not result.success
        lines = failure_text(result).splitlines()
        assert lines[0] == "1 of 2 run dates failed: 2026-09-02."
        assert lines[1] == "Quality gate: 1 rows have a null order_id"
        assert lines[2] == "  order_id is NULL at 2026-09-01.csv#0000000002"
        assert "run date 2026-09-02" in lines[3]
        assert silver_rows(world) == before
    assert world.materialized(SILVER_ORDERS) == {KEYS[1]}


def test_rows_of_which_none_is_the_newest_are_stopped(world: World) -> None:
    """C55: if they cannot be ordered, the error lists the keys and nothing is written."""
    put(world, DAYS[0], order(1, DAYS[0]), order(2, DAYS[0]))
    through(world, DAYS[:1])
    before = silver_rows(world)
    tampered(world, "INSERT INTO {table} SELECT * FROM {table} WHERE order_id = 2")
    result = world.run(KEYS[:1], SILVER_ORDERS)
    assert failure_text(result).splitlines()[0] == "Quality gate: 1 keys have rows of which none is the newest: order_id 2"
    assert silver_rows(world) == before


def test_what_merge_does_where_nothing_gates_it(world: World) -> None:
    """D8, C55, C63: the bare MERGE fails on two rows of one key, and drops a column that its table lacks without a word."""
    session = world.spark.session()
    put(world, DAYS[0], order(7, DAYS[0], "1.00"))
    through(world, DAYS[:1])
    target = f"delta.`{world.lake.table_uri(silver.TABLE)}`"
    row = f"SELECT 7 AS order_id, DATE '{DAYS[0]}' AS order_date"
    merging = "MERGE INTO {t} t USING ({s}) s ON t.order_id = s.order_id WHEN MATCHED THEN UPDATE SET *"
    with pytest.raises(PySparkException, match="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"):
        session.sql(merging.format(t=target, s=f"{row} UNION ALL {row}").replace("SET *", "SET order_date = s.order_date"))
    columns = ", ".join(name for name, _ in silver_changes.columns(CONTRACT))
    session.sql(merging.format(t=target, s=f"SELECT {columns}, 'X' AS coupon FROM {target}"))
    table = world.lake.open(silver.TABLE)
    assert table is not None
    assert "coupon" not in {field.name for field in table.schema().fields}


def test_a_change_of_type_stops_silver_with_both_types(world: World) -> None:
    """C64, D13."""
    put(world, DAYS[0], order(1, DAYS[0]))
    through(world, DAYS[:1])
    wider = contract_with(("physicalType: DECIMAL(10,2)", "physicalType: DECIMAL(12,4)"))
    asset = till.silver_orders(till.till_feed(wider, FEED.partitions))
    result = world.run(KEYS[:1], asset)
    assert "amount is DECIMAL(10,2) in the table and DECIMAL(12,4) in the contract" in failure_text(result)


def test_a_loss_in_silver_is_found_and_mended_by_a_rerun(world: World) -> None:
    """Every row is accounted for: what someone took out of silver, doubled or changed comes to light, and is put right."""
    put(world, DAYS[0], order(1, DAYS[0]), order(2, DAYS[0]), order(3, DAYS[0]))
    through(world, DAYS[:1])
    table = world.lake.open(silver.TABLE)
    assert table is not None
    table.delete("order_id = 1")
    world.lake.open(silver.TABLE).update(updates={"amount": "CAST(7 AS DECIMAL(10,2))"}, predicate="order_id = 2")  # type: ignore[union-attr]
    through(world, DAYS[:1])
    assert_the_law(world)
    session = world.spark.session()
    target = f"delta.`{world.lake.table_uri(silver.TABLE)}`"
    session.sql(f"INSERT INTO {target} SELECT * FROM {target} WHERE order_id = 3")
    result = world.run(KEYS[:1], SILVER_ORDERS)
    assert not result.success
    assert "silver_orders has 1 keys more than once: order_id 3 (2 times)" in failure_text(result)
    assert {key: each.passed for key, each in evaluations(world.instance, result, silver.UNIQUE).items()} == {"": False}
    assert not recompute(world, KEYS[:1])[0].ok


def test_the_checks_of_silver_and_gold(world: World) -> None:
    """Each run has a result of the tables' claims, each day one of its totals."""
    for day in DAYS[:3]:
        put(world, day, order(day.day, day, "2.50"))
    result = world.run(KEYS[:3], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES)
    assert result.success
    unique, totals, equal = (
        evaluations(world.instance, result, name) for name in (silver.UNIQUE, silver.RECONCILES, "equals_silver")
    )
    assert {key: each.passed for key, each in totals.items()} == dict.fromkeys(KEYS[:3], True)
    assert totals[KEYS[0]].description == "2026-09-01: 1 rows = 1 in silver + 0 repeated + 0 older than another day's"
    assert {key: each.passed for key, each in (unique | equal).items()} == {"": True}
    assert equal[""].description == "the figures of 2026-09-01, 2026-09-02, 2026-09-03 are what silver_orders says"


def test_gold_finds_its_way_without_the_change_feed(world: World) -> None:
    """The feed's files are vacuumed away, or silver was made anew: every day is looked at, and only what differs is replaced."""
    for day in DAYS[:3]:
        put(world, day, order(day.day, day, "1.00"))
    through(world, DAYS[:3])
    put(world, DAYS[1], order(2, DAYS[1], "5.00"))
    assert all(each.ok for each in [*world.load([KEYS[1]]), *merge(world, [KEYS[1]])])
    for file in (world.folder / "lake" / silver.TABLE / "_change_data").rglob("*.parquet"):
        file.unlink()
    (made,) = recompute(world, [KEYS[1]])
    assert (made.ok, made.touched, made.changed) == (True, tuple(DAYS[:3]), (DAYS[1],))
    assert restated(world) == [(DAYS[1], 1, 1, "1.00", "5.00", "not known from the change feed")]
    # A figure changed by hand is put right by a run of its day.
    table = world.lake.open("daily_sales")
    assert table is not None
    table.update(updates={"orders": "7"}, predicate="order_date = DATE '2026-09-01'")
    assert recompute(world, [KEYS[0]])[0].ok
    assert_the_law(world)


def test_a_merge_reads_only_the_files_that_may_hold_its_orders(world: World) -> None:
    """Cost follows the change: with the files of all other days taken away, a day is merged and its figures are made."""
    for day in DAYS[:4]:
        world.put(day, rows_of(day, 100 * day.day, 3))
    through(world, DAYS[:4])
    world.put(DAYS[1], rows_of(DAYS[1], 200, 4))
    assert world.load([KEYS[1]])[0].ok
    hidden = [
        file
        for name in (silver.TABLE, "daily_sales")
        for day in (DAYS[0], *DAYS[2:4])
        for file in (world.folder / "lake" / name / f"order_date={day}").glob("*.parquet")
    ]
    assert len(hidden) == 6
    for file in hidden:
        file.rename(file.with_suffix(".away"))
    assert merge(world, [KEYS[1]])[0].ok
    assert recompute(world, [KEYS[1]])[0].ok
    for file in hidden:
        file.with_suffix(".away").rename(file)
    assert_the_law(world)


def test_maintenance_between_runs_changes_no_row(world: World) -> None:
    """B7: compaction and vacuum of all tables, those with a change feed too; the next runs find their way."""
    put(world, DAYS[0], order(1, DAYS[0]), order(2, DAYS[0]))
    through(world, DAYS[:1])
    put(world, DAYS[1], order(3, DAYS[0]), order(4, DAYS[1]))
    through(world, DAYS[1:2])
    before = (silver_rows(world), sales(world), restated(world))
    assert {name for name in world.lake.names() if tidy(world.lake, name, 720)} >= {silver.TABLE, "restatements", "late_arrivals"}
    assert (silver_rows(world), sales(world), restated(world)) == before
    put(world, DAYS[0], order(1, DAYS[0], "7.00"))
    through(world, DAYS[:1])
    assert_the_law(world)
    assert len(restated(world)) == len(before[2]) + 1


# --- At the same time


@pytest.mark.slow
def test_eight_days_at_once(world: World) -> None:
    """C51, C114: whatever comes first, every day's orders are there once, and the figures are theirs."""
    days = [FIRST + timedelta(days=n) for n in range(8)]
    for day in days:
        late = [order(9000 + day.day, FIRST)] if day > FIRST else []
        put(world, day, *rows_of(day, 100 * day.day, 3), *late, order(7, FIRST, f"{day.day}.00"))
    shuffled = random.Random(3).sample(days, 8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda day: world.load([run_date(day)]), shuffled))
        merged = list(pool.map(lambda day: merge(world, [run_date(day)]), shuffled))
        made = list(pool.map(lambda day: recompute(world, [run_date(day)]), reversed(shuffled)))
    assert all(each[0].ok for each in [*merged, *made])
    assert_the_law(world)


def test_a_writer_that_takes_no_lock_is_merged_around(world: World) -> None:
    """C51, C57: someone commits to silver between the reading and the merge; what is to be merged is decided anew."""
    put(world, DAYS[0], order(1, DAYS[0]), order(2, DAYS[0]))
    through(world, DAYS[:1])
    put(world, DAYS[0], order(1, DAYS[0], "5.00"), order(2, DAYS[0]), order(3, DAYS[0]))
    assert world.load(KEYS[:1])[0].ok

    def intrude(reached: Point) -> None:
        if reached is Point.BEFORE_MERGE:
            end()
            target = f"delta.`{world.lake.table_uri(silver.TABLE)}`"
            world.spark.session().sql(f"DELETE FROM {target} WHERE order_id IN (1, 2)")

    end = fault_points.watch(intrude)
    (merged,) = merge(world, KEYS[:1])
    assert merged.ok
    assert merged.retries == 1
    assert recompute(world, KEYS[:1])[0].ok
    assert_the_law(world)
    assert world.ledger.entries(silver.TABLE, DAYS[:1])[-1].status == SUCCEEDED


# --- The law


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[dict[int, list[Order]], tuple[int, ...]]]:
    """Steps, each: which days' files change to what, and which days are then run."""
    steps = []
    numbers = st.integers(1, 9)
    for _ in range(draw(st.integers(3, 5))):
        files = {}
        for n in draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)):
            rows = draw(st.lists(st.tuples(numbers, st.integers(0, n), st.integers(1, 3)), max_size=5))
            files[n] = [order(number, DAYS[event], f"{cents}.00") for number, event, cents in rows]
        first = draw(st.integers(0, 3))
        last = draw(st.integers(first, 3))
        steps.append((files, tuple(range(first, last + 1))))
    return steps


@pytest.mark.slow
@settings(max_examples=2, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(history=histories(), order_of_days=st.permutations([0, 1, 2, 3]))
def test_silver_is_the_fold_of_all_days_and_gold_is_made_of_it(
    spark: SparkResource,
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[dict[int, list[Order]], tuple[int, ...]]],
    order_of_days: list[int],
) -> None:
    """D8, D10, C114, C116: random loads, corrections, late rows, moved and deleted orders, reruns, wrong order and ranges."""
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(tmp_path_factory.mktemp("law"), spark, instance)
        for files, run in history:
            for n, rows in files.items():
                put(world, DAYS[n], *rows)
            there = [n for n in run if (world.landing / "orders" / f"{DAYS[n]}.csv").is_file()]
            if there and there == list(range(there[0], there[-1] + 1)):
                through(world, [DAYS[n] for n in there])
        # What was changed and not run since is run now, in any order, some of it twice.
        for n in [*order_of_days, order_of_days[0]]:
            if (world.landing / "orders" / f"{DAYS[n]}.csv").is_file():
                through(world, [DAYS[n]])
        assert_the_law(world)
        # Again, and as a range: the same tables, and no commit.
        before = (silver_rows(world), sales(world), restated(world))
        versions = [world.version(name) for name in (silver.TABLE, "daily_sales")]
        there = [n for n in range(4) if (world.landing / "orders" / f"{DAYS[n]}.csv").is_file()]
        through(world, [DAYS[n] for n in there])
        assert (silver_rows(world), sales(world), restated(world)) == before
        assert [world.version(name) for name in (silver.TABLE, "daily_sales")] == versions


def test_restatements_name_their_run(world: World) -> None:
    """D11: the run of Dagster that restated."""
    put(world, DAYS[0], order(1, DAYS[0], "1.00"))
    assert world.run(KEYS[:1], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    put(world, DAYS[0], order(1, DAYS[0], "2.00"))
    result = world.run(KEYS[:1], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES)
    assert world.query("SELECT run_id FROM restatements", "restatements") == [(result.run_id,)]
    (made,) = result.asset_materializations_for_node("daily_sales")
    assert made.metadata["restated"].value == "2026-09-01"
    table = world.lake.open("daily_sales")
    assert table is not None
    assert json.loads(table.history(1)[0]["userMetadata"])["run_id"] == result.run_id
