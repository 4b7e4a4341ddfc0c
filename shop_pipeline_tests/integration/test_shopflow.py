"""The web shop's orders from a real Postgres server, over JDBC, into bronze and counts: C1 to C5, C7, D12, the family JDBC."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from shop_pipeline.assets import shopflow
from shop_pipeline.assets.day_events import PROGRESS, RETRIES
from shop_pipeline.assets.follow_up import FOLLOWS
from shop_pipeline.core import fault_points, per_day
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import BUSINESS_DATE
from shop_pipeline.core.errors import SettingError, SourceRefused, SourceUnavailable
from shop_pipeline.core.fault_points import Point
from shop_pipeline.core.load import DailyLoad
from shop_pipeline.core.local_postgres import LocalPostgres, packaged_binaries
from shop_pipeline.core.outcome import DayResult, Status
from shop_pipeline.core.per_day import PerDay
from shop_pipeline.core.postgres import Address
from shop_pipeline.core.shopflow_sample import FIRST, LAST, fill, make_database, orders
from shop_pipeline.core.sources import shopflow_postgres
from shop_pipeline.core.sources.shopflow_postgres import ShopflowPostgres
from shop_pipeline.resources import LakeResource, ShopflowResource, of_a_run
from shop_pipeline_tests.conftest import RANGE, Shop, World, clean_environment, failure_text, run_shop
from shop_pipeline_tests.integration.conftest import Run

CONTRACT = load_contract("shopflow_orders")
DAY = date(2024, 1, 1)
THREE = ["2024-01-01", "2024-01-02", "2024-01-03"]


def daily(world: World, url: str) -> DailyLoad:
    return DailyLoad(world.lake, ShopflowPostgres(Address.of(url), CONTRACT), CONTRACT, BUSINESS_DATE)


def load(world: World, url: str, *keys: str) -> list[DayResult]:
    return daily(world, url).load(world.spark.session, list(keys), run_id="by the test", clock=world.clock.now)


def count(world: World, *keys: str) -> list[per_day.CountedDay]:
    made = PerDay(world.lake, CONTRACT, BUSINESS_DATE)
    return made.recompute(world.spark.session, list(keys), run_id="by the test", clock=world.clock.now)


def bronze(world: World, sql: str) -> list[tuple[Any, ...]]:
    return world.query(f"SELECT {sql}", "shopflow/orders_daily")


def counts(world: World) -> list[tuple[Any, ...]]:
    return world.query(f'SELECT order_date, orders, delivered FROM "{per_day.TABLE}" ORDER BY 1', per_day.TABLE)


TABLE = '"shopflow/orders_daily"'


# --- The sample


def test_the_sample_is_always_the_same_and_has_the_given_days() -> None:
    """C1: two years, 50, 55 and 53 orders on the first days of 2024, 36 of the 50 delivered."""
    made = list(orders())
    by_day: dict[date, list[tuple[Any, ...]]] = {}
    for each in made:
        by_day.setdefault(each[3].date(), []).append(each)
    assert (min(by_day), max(by_day), len(by_day)) == (FIRST, LAST, (LAST - FIRST).days + 1)
    assert [len(by_day[date(2024, 1, day)]) for day in (1, 2, 3)] == [50, 55, 53]
    assert sum(1 for each in by_day[DAY] if each[4] == "delivered") == 36
    assert [each[0] for each in made] == list(range(1, len(made) + 1))
    assert made == list(orders())
    assert {each[5] for each in made} == {"EUR", "GBP", "CHF"}
    assert {each[6] is None for each in made} == {True, False}


def test_the_sample_as_it_stood_on_a_day() -> None:
    """Orders that were not placed yet are not there; the last days' statuses still move, and end as they end."""
    then, later, end = list(orders(date(2024, 1, 3))), list(orders(date(2024, 1, 6))), list(orders())
    assert max(each[3] for each in then).date() == date(2024, 1, 2)
    new = {each[0]: each[4] for each in then if each[3].date() >= DAY}
    assert {"paid", "shipped"} <= set(new.values())
    moved = sum(1 for each in later if each[0] in new and each[4] != new[each[0]])
    assert moved > len(new) / 2
    settled = {each[0]: each[4] for each in end}
    old = [each for each in then if each[3].date() < date(2023, 12, 15)]
    assert all(settled[each[0]] == each[4] for each in old)


# --- A day, a range


def test_days_are_loaded_counted_and_checked(world: World, url: str) -> None:
    """C2 to C5: bronze by business date, one row a day in gold, the same on every rerun."""
    for _ in range(2):
        results = load(world, url, *THREE)
        assert [each.sentence for each in results] == [
            "ok 2024-01-01: 50 rows for the source's 50 orders, 0 missing",
            "ok 2024-01-02: 55 rows for the source's 55 orders, 0 missing",
            "ok 2024-01-03: 53 rows for the source's 53 orders, 0 missing",
        ]
        assert all(each.ok for each in count(world, *THREE))
        assert counts(world) == [(DAY, 50, 36), (date(2024, 1, 2), 55, 40), (date(2024, 1, 3), 53, 38)]
    table = world.lake.open("shopflow/orders_daily")
    assert table is not None
    assert [field.name for field in table.schema().fields][:8] == [*CONTRACT.names, "order_date"]
    assert table.metadata().partition_columns == ["order_date"]
    # The second time nothing had changed: no commit.
    assert world.version(per_day.TABLE) == 1
    (checked,) = daily(world, url).check(["2024-01-02"], run_id="by the test", clock=world.clock.now)
    assert checked.ok


def test_the_server_is_asked_for_a_half_open_range_in_one_query(world: World, url: str, run: Run, server: LocalPostgres) -> None:
    """C2, C133: seen in the server's log; the index on order_ts can be used."""
    run(f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET log_statement = 'all'")
    before = (server.data / "log").stat().st_size
    assert all(each.ok for each in load(world, url, *THREE))
    with (server.data / "log").open() as log:
        log.seek(before)
        lines = [line for line in log if 'FROM "orders"' in line and "SELECT count(*) FROM" not in line]
    where = "order_ts >= TIMESTAMP '2024-01-01 00:00:00' AND order_ts < TIMESTAMP '2024-01-04 00:00:00'"
    assert lines
    assert all(where in line for line in lines)
    # Copied for one engine, and hashed by the server; probed for its columns, judged and read for the other.
    assert [sum(word in line for line in lines) for word in ("COPY", "hashtextextended")] == [1, 1]
    others = [line for line in lines if "COPY" not in line and "hashtextextended" not in line]
    assert sum("1=0" not in line.replace(" ", "") for line in others) == 2
    ((plan,),) = run(f"EXPLAIN (FORMAT JSON) SELECT * FROM orders WHERE {where}")
    assert "orders_order_ts" in json.dumps(plan)


def test_a_day_that_became_empty_is_refused_and_kept(world: World, url: str, run: Run) -> None:
    """C2, D4: the exact words; rows and counts stay. Too few rows are refused as well."""
    assert all(each.ok for each in load(world, url, *THREE))
    assert all(each.ok for each in count(world, *THREE))
    run("DELETE FROM orders WHERE order_ts >= '2024-01-02' AND order_ts < '2024-01-03'")
    (refused,) = load(world, url, THREE[1])
    assert refused.status is Status.REFUSED
    assert "Quality gate: shopflow.orders_daily is empty" in refused.sentence
    assert counts(world)[1] == (date(2024, 1, 2), 55, 40)
    keys = [(DAY + timedelta(days=n)).isoformat() for n in range(3, 8)]
    assert all(each.ok for each in load(world, url, *keys))
    run("DELETE FROM orders WHERE order_ts >= '2024-01-09' AND order_ts < '2024-01-09 18:00:00'")
    (few,) = load(world, url, "2024-01-09")
    assert "is outside 50-150% of the 7-run median" in few.sentence


def test_statuses_that_moved_are_taken_by_loading_the_day_again(world: World, url: str, run: Run) -> None:
    """D12, C138, C139: changes without any modified_at, and deleted rows, are found by the check and mended by a load."""
    assert all(each.ok for each in load(world, url, THREE[0]))
    assert all(each.ok for each in count(world, THREE[0]))
    run(
        "UPDATE orders SET status = 'delivered' WHERE order_id IN (SELECT order_id FROM orders WHERE order_ts::date = '2024-01-01' "
        "AND status <> 'delivered' ORDER BY 1 LIMIT 2)"
    )
    ((gone,),) = run(
        "DELETE FROM orders WHERE order_id = (SELECT min(order_id) FROM orders WHERE order_ts::date = '2024-01-01' "
        "AND status = 'delivered') RETURNING order_id"
    )
    (checked,) = daily(world, url).check(THREE[:1], run_id="by the test", clock=world.clock.now)
    assert not checked.ok
    assert f"1 in the table and not in the source: order_id {gone} (1 for 0)" in checked.sentence
    assert "2 with other values: order_id" in checked.sentence
    (held,) = count(world, THREE[0])
    assert not held.ok
    assert all(each.ok for each in load(world, url, THREE[0]))
    (made,) = count(world, THREE[0])
    assert (made.ok, made.counts, made.changed) == (True, (49, 37), True)


# --- One moment


def test_what_is_judged_is_what_is_written(world: World, url: str, run: Run) -> None:
    """C57, C137: the shop goes on between judging and writing; the load has one moment of it, and run_log says the same."""

    def meanwhile(reached: Point) -> None:
        if reached is Point.AFTER_JUDGING:
            run(
                "INSERT INTO orders SELECT 900000 + n, 1, 'web', '2024-01-01 12:00:00', 'placed', 'EUR', NULL "
                "FROM generate_series(1, 20) n"
            )
            run("UPDATE orders SET status = 'lost' WHERE order_ts::date = '2024-01-01'")

    end = fault_points.watch(meanwhile)
    try:
        (result,) = load(world, url, THREE[0])
    finally:
        end()
    assert result.ok
    assert bronze(world, f"count(*), count(*) FILTER (status = 'lost') FROM {TABLE}") == [(50, 0)]
    assert world.ledger.entries("shopflow.orders_daily", [DAY])[-1].row_count == 50
    (checked,) = daily(world, url).check(THREE[:1], run_id="by the test", clock=world.clock.now)
    assert "20 missing in the table" in checked.sentence


def test_many_rows_are_read_in_parts_each_once(world: World, url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """C132, C133: parts of the time, none lost or doubled, at the very edges too."""
    monkeypatch.setattr(shopflow_postgres, "BIG", 1000)
    run(
        "UPDATE orders SET order_ts = '2024-01-01 00:00:00' WHERE order_id = "
        "(SELECT min(order_id) FROM orders WHERE order_ts::date = '2024-01-01')"
    )
    run(
        "UPDATE orders SET order_ts = '2024-01-03 23:59:59.999999' WHERE order_id = "
        "(SELECT max(order_id) FROM orders WHERE order_ts::date = '2024-01-03')"
    )
    with closing(ShopflowPostgres(Address.of(url), CONTRACT).open([DAY + timedelta(days=n) for n in range(3)])) as opened:
        assert len(opened._parts()) > 4
    assert all(each.ok for each in load(world, url, *THREE))
    assert bronze(world, f"count(*), count(DISTINCT order_id) FROM {TABLE}") == [(158, 158)]


# --- Types and times


def test_times_and_numbers_come_as_the_database_means_them(world: World, url: str, run: Run) -> None:
    """C126, C127, C129: wall-clock times are never shifted, instants are kept in UTC, odd numbers are named, none becomes NULL."""
    name = url.rsplit("/", 1)[1]
    run(f"ALTER DATABASE {name} SET TimeZone = 'America/Los_Angeles'")
    run(f"ALTER DATABASE {name} SET DateStyle = 'SQL, DMY'")
    run(
        "UPDATE orders SET order_ts = '2024-03-10 02:30:00' WHERE order_id = (SELECT min(order_id) FROM orders "
        "WHERE order_ts::date = '2024-03-10')"
    )
    run("ALTER TABLE orders ADD COLUMN paid_at timestamptz")
    run("UPDATE orders SET paid_at = '2024-03-10 08:00:00+02' WHERE order_ts::date = '2024-03-10'")
    (result,) = load(world, url, "2024-03-10")
    assert result.ok, result.sentence
    assert result.drift.added == ("paid_at",)
    # A quarter to three does not exist that day in Los Angeles; the shop's clock showed it all the same.
    times = bronze(world, f"min(strftime(order_ts, '%H:%M:%S')), min(paid_at) FROM {TABLE} WHERE hour(order_ts) = 2")
    assert times == [("02:30:00", "2024-03-10 06:00:00")]


@pytest.mark.slow
def test_times_stay_whatever_zones_the_machine_the_jvm_and_the_session_have(
    url: str, run: Run, tmp_path: Path, world: World
) -> None:
    """C126, C141, C143: a JVM told to be elsewhere, in a zone that the server has never heard of; a session that prefers NTZ."""
    run(
        "UPDATE orders SET order_ts = '2024-03-10 02:30:00' WHERE order_id = (SELECT min(order_id) FROM orders "
        "WHERE order_ts::date = '2024-03-10')"
    )
    with pytest.raises(psycopg.Error, match="TimeZone"):
        run("SET TimeZone = 'AET'")
    elsewhere = {"TZ": "America/Los_Angeles", "JAVA_TOOL_OPTIONS": "-Duser.timezone=AET", "SHOP_POSTGRES_URL": url}
    (tmp_path / "elsewhere").mkdir()
    ran = run_shop("load", "2024-03-10", "--source", "shopflow", folder=tmp_path / "elsewhere", **elsewhere)
    assert ran.status == 0, ran.err
    early = "SELECT order_ts::VARCHAR AS at FROM shopflow.orders_daily WHERE hour(order_ts) = 2"
    answer = run_shop("sql", early, "--json", folder=tmp_path / "elsewhere", **elsewhere)
    assert json.loads(answer.out) == [{"at": "2024-03-10 02:30:00"}], answer.err

    session = world.spark.session(None)
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    (result,) = load(world, url, "2024-03-10")
    assert result.ok, result.sentence
    assert bronze(world, f"strftime(order_ts, '%d %H:%M') FROM {TABLE} WHERE hour(order_ts) = 2") == [("10 02:30",)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE orders SET order_ts = 'infinity' WHERE order_id = 1", None),
        ("ALTER TABLE orders ALTER customer_id TYPE numeric; UPDATE orders SET customer_id = 123456789012345678901 "
         "WHERE order_id = (SELECT min(order_id) FROM orders WHERE order_ts::date = '2024-01-01')",
         "column customer_id, value '123456789012345678901': overflow: too large for INT"),
        ("ALTER TABLE orders ALTER customer_id TYPE numeric; UPDATE orders SET customer_id = 'NaN' "
         "WHERE order_id = (SELECT min(order_id) FROM orders WHERE order_ts::date = '2024-01-01')",
         "column customer_id, value 'NaN': not a whole number"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_named(world: World, url: str, run: Run, change: str, problem: str | None) -> None:
    """C129: by key, column and value; infinity belongs to no day."""
    for statement in change.split("; "):
        run(statement)
    (result,) = load(world, url, THREE[0])
    assert result.ok == (problem is None)
    if problem is not None:
        assert problem in result.sentence
        assert "order_id 1108" in result.sentence


def test_a_row_that_is_incomplete_is_set_aside(world: World, url: str, run: Run) -> None:
    run("ALTER TABLE orders ALTER channel DROP NOT NULL")
    run("UPDATE orders SET channel = NULL WHERE order_id = (SELECT min(order_id) FROM orders WHERE order_ts::date = '2024-01-01')")
    (result,) = load(world, url, THREE[0])
    assert result.sentence == "ok 2024-01-01: 49 rows for the source's 50 orders, 0 missing, 1 quarantined"
    rows = world.query('SELECT "column", reason, raw_text FROM "shopflow/orders_quarantine"', "shopflow/orders_quarantine")
    assert [row[:2] for row in rows] == [("channel", "empty")]
    assert rows[0][2].startswith("11080,161,,2024-01-01 ")


def test_a_value_that_stands_for_null_elsewhere_is_a_value(world: World, url: str, run: Run) -> None:
    run(
        "UPDATE orders SET channel = chr(2) WHERE order_id = (SELECT min(order_id) FROM orders WHERE order_ts::date = '2024-01-01')"
    )
    (result,) = load(world, url, THREE[0])
    assert result.sentence == "ok 2024-01-01: 50 rows for the source's 50 orders, 0 missing"
    assert bronze(world, f"count(*) FILTER (WHERE channel = chr(2)) FROM {TABLE}") == [(1,)]


def test_rows_that_belong_to_no_day_are_told(world: World, url: str, run: Run) -> None:
    """NULL and infinity are in no range of days, so that no load would ever speak of them."""
    run("ALTER TABLE orders ALTER order_ts DROP NOT NULL")
    for value in ("NULL", "'infinity'", "'-infinity'"):
        run(
            f"UPDATE orders SET order_ts = {value} WHERE order_id = (SELECT min(order_id) FROM orders "
            "WHERE order_ts::date = '2024-01-02')"
        )
    results = load(world, url, *THREE[:2])
    assert [each.ok for each in results] == [True, True]
    told = [each for result in results for each in result.warnings if "no day" in each]
    assert len(told) == 1
    assert told[0].startswith("3 rows have no day in the table orders of Postgres at 127.0.0.1:")


def test_an_empty_day_is_not_ok_to_the_check_either(world: World, url: str, run: Run) -> None:
    """C2: by the contract; whatever the table has of it."""
    assert load(world, url, THREE[0])[0].ok
    run("DELETE FROM orders WHERE order_ts::date = '2024-01-02'")
    (checked,) = daily(world, url).check(THREE[1:2], run_id="by the test", clock=world.clock.now)
    assert checked.sentence.startswith("PROBLEM 2024-01-02: 0 rows for the source's 0 orders, 0 missing")
    assert "Quality gate: shopflow.orders_daily is empty" in checked.sentence


# --- What goes wrong


@pytest.mark.parametrize(
    ("break_it", "kind", "words"),
    [
        ("ALTER TABLE orders RENAME TO orders_old", SourceRefused, "has no table orders"),
        ("ALTER TABLE orders DROP COLUMN status", None, "lacks status"),
        ("REVOKE", SourceRefused, "permission denied"),
        ("ALTER TABLE orders ALTER order_ts TYPE text", None, "is of type text, where a day needs timestamp"),
        ("ALTER TABLE orders ADD order_date date", None, "uses, for a column of its own, the pipeline's order_date. Rename it"),
        ("ALTER TABLE orders ADD _day text", None, "the pipeline's _day. Rename it"),
    ],
)
def test_what_is_not_there_is_a_sentence(
    world: World, url: str, run: Run, break_it: str, kind: type[Exception] | None, words: str
) -> None:
    """Nothing is written, and the rows stay."""
    assert all(each.ok for each in load(world, url, THREE[0]))
    version = world.version("shopflow/orders_daily")
    if break_it == "REVOKE":
        run("DROP ROLE IF EXISTS reader")
        run("CREATE ROLE reader LOGIN PASSWORD 'only reads'")
        url = url.replace(url.split("//")[1].split("@")[0], "reader:only%20reads")
    else:
        run(break_it)
    if kind is None:
        (result,) = load(world, url, THREE[0])
        assert not result.ok
        assert words in result.sentence
    else:
        with pytest.raises(kind, match=words):
            load(world, url, THREE[0])
    assert world.version("shopflow/orders_daily") == version
    assert world.ledger.verdicts("shopflow.orders_daily", [DAY], _identity(world))[DAY].verified


def _identity(world: World) -> str:
    table = world.lake.open("shopflow/orders_daily")
    assert table is not None
    return str(table.metadata().id)


def test_a_wrong_password_is_told_without_it(world: World, url: str) -> None:
    wrong = url.replace(url.split(":")[2].split("@")[0], "s3cret-wrong")
    with pytest.raises(SourceRefused, match="does not let user app in") as caught:
        load(world, wrong, THREE[0])
    assert "s3cret-wrong" not in str(caught.value)
    assert not caught.value.retriable
    assert "s3cret-wrong" not in repr(Address.of(wrong))


# A password whose signs are not written in percent would be taken for a database, a port or a fragment.
ODD_URLS = [
    "postgresql://app:12/Topsecret9@localhost",
    "postgresql://app:Topsecret#9@localhost/db",
    "postgresql://app:pw@localhost/db#Topsecret",
    "postgresql://app:pw@localhost/db?password=Topsecret",
    "postgresql://app:pw@localhost/db?sslmode=perhaps",
    "postgresql://app:pw@one,two:5432/db",
    "postgresql://app:pw@%2Ftmp/db",
    "postgresql://localhost/db",
]


def test_an_address_may_have_blanks_around_it_and_ask_for_tls() -> None:
    address = Address.of(" postgresql://app:p%40ss%2F@[::1]:5433/shop%20flow?sslmode=require \n")
    assert (address.host, address.port, address.database, address.tls) == ("::1", 5433, "shop flow", "require")
    assert address.credentials == {"user": "app", "password": "p@ss/"}
    assert address.for_jdbc.endswith("&sslmode=require")


@pytest.mark.parametrize(
    "bad", ["mysql://a@b/c", "postgresql://host", "postgresql://h:x/db", "nonsense", "postgresql:///db", *ODD_URLS]
)
def test_a_wrong_address_is_a_wrong_setting(bad: str) -> None:
    with pytest.raises(SettingError, match="SHOP_POSTGRES_URL is not the address of a Postgres database") as caught:
        Address.of(bad)
    assert "Topsecret" not in str(caught.value)


@pytest.mark.slow
def test_a_server_that_breaks_off_in_mid_read(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    """C142: restarted between judging and writing: nothing is written, the sentence says that it may pass, a rerun heals."""
    own = LocalPostgres(tmp_path_factory.mktemp("breaks"), packaged_binaries())
    url = own.start()
    fill(make_database(url), date(2024, 1, 5))
    assert all(each.ok for each in load(world, url, THREE[0]))
    version = world.version("shopflow/orders_daily")

    def restart(reached: Point) -> None:
        if reached is Point.AFTER_JUDGING:
            own.stop()
            own.start()

    end = fault_points.watch(restart)
    try:
        with pytest.raises(SourceUnavailable, match="nothing was written") as caught:
            load(world, url, *THREE)
    finally:
        end()
    assert caught.value.retriable
    assert world.version("shopflow/orders_daily") == version
    own.stop()
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        load(world, url, *THREE)
    (checked,) = daily(world, url).check(THREE[:1], run_id="by the test", clock=world.clock.now)
    assert checked.sentence.startswith("NOT CHECKED 2024-01-01: Postgres at 127.0.0.1:")
    own.start()
    assert all(each.ok for each in load(world, url, *THREE))
    own.remove()


# --- As people use it


def test_a_backfill_of_the_web_shop(shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """C4, C5: the whole pipeline for a range, twice; the exact last line; one row a day; the days by name in SQL."""
    monkeypatch.setenv("SHOP_POSTGRES_URL", url)
    for _ in range(2):
        ran = shop("backfill", "2024-01-01", "2024-01-31", "--source", "shopflow")
        assert ran.status == 0, ran.err
        assert ran.last.startswith("ran 31 runs, 0 failed; shopflow.orders_daily has 31 days, ")
    first = "SELECT orders, delivered FROM shopflow.orders_per_day ORDER BY order_date LIMIT 3"
    assert json.loads(shop("sql", first, "--json").out) == [
        {"orders": 50, "delivered": 36},
        {"orders": 55, "delivered": 40},
        {"orders": 53, "delivered": 38},
    ]
    assert json.loads(shop("sql", "SELECT count(*) n FROM shopflow.orders_per_day", "--json").out) == [{"n": 31}]
    busiest = "SELECT order_date, orders FROM shopflow.orders_per_day ORDER BY orders DESC, order_date LIMIT 3"
    assert len(json.loads(shop("sql", busiest, "--json").out)) == 3
    assert shop("check", "2024-01-15", "--source", "shopflow").status == 0
    ran = shop("load", "2024-01-15", "--source", "shopflow")
    assert ran.out.startswith("run 2024-01-15 loaded 2024-01-15: ")
    assert shop("backtest", "--source", "shopflow").status == 0
    assert shop("quarantine", "list", "--source", "shopflow").status == 0
    days = json.loads(shop("report", "2024-01", "--source", "shopflow", "--json").out)
    assert [(day["status"], day["orders"], day["delivered"]) for day in days[:2]] == [("verified", 50, 36), ("verified", 55, 40)]
    # The 15th was loaded again and its counts were not made again.
    assert [day["business_date"] for day in days if not day["counted"]] == ["2024-01-15"]
    assert shop("report", "2024-01", "--source", "shopflow").out == "report-shopflow-2024-01.html\n"
    # The password is nowhere: not in what was printed, not in Dagster's records.
    password = url.split(":")[2].split("@")[0]
    assert password not in ran.out + ran.err
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert password.encode() not in path.read_bytes(), path


def test_what_is_typed_wrong(shop_without_spark: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = shop_without_spark("load", "2024-01-01", "--source", "shopflow")
    assert ran.status == 2
    assert "There is no database of the web shop: run `shop sample shopflow`" in ran.err
    ran = shop_without_spark("load", "2023-12-31", "--source", "shopflow")
    assert ran.status == 2
    assert "2023-12-31 is not a business date of shopflow.orders_daily: they go from 2024-01-01 (SHOPFLOW_FIRST_DAY)" in ran.err
    assert shop_without_spark("load", "2024-01-01", "--source", "shpflow").status == 2
    assert shop_without_spark("sample", "--as-of", "2024-01-01").status == 2
    monkeypatch.setenv("SHOP_POSTGRES_URL", "postgresql://app:pw@127.0.0.1:1/shopflow")
    ran = shop_without_spark("sample", "shopflow")
    assert ran.status == 1
    assert "Postgres at 127.0.0.1:1, database shopflow cannot be read" in ran.err
    assert "pw" not in ran.err


class TriedAgain(logging.Handler):
    """Does something when a step says that it is to be tried again."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.then, self.times = then, 0

    def emit(self, record: logging.LogRecord) -> None:
        if "tried again" in record.getMessage():
            self.times += 1
            self.then()


def as_dagster_runs_it(world: World, url: str, *keys: str, seconds: float = 0.1) -> dg.ExecuteInProcessResult:
    """The daily run: orders and their counts for a range of business dates."""
    feed = shopflow.shopflow_feed(CONTRACT, dg.DailyPartitionsDefinition("2024-01-01"), seconds)
    return dg.materialize(
        [shopflow.orders_daily(feed), shopflow.orders_per_day(feed)],
        instance=world.instance,
        resources=of_a_run(world.spark, LakeResource(uri=world.lake.uri), world.files, world.clock, ShopflowResource.at(url)),
        tags=dict(zip(RANGE, (keys[0], keys[-1]), strict=True)),
        raise_on_error=False,
    )


@pytest.mark.slow
def test_a_failure_that_passes_heals_before_anyone_is_called(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    """C6: the server is away at first and back at the second retry; where it stays away, two retries and then a sentence."""
    own = LocalPostgres(tmp_path_factory.mktemp("heals"), packaged_binaries())
    url = own.start()
    fill(make_database(url), date(2024, 1, 5))
    own.stop()
    handler = TriedAgain(lambda: own.start() if handler.times == RETRIES else None)
    PROGRESS.addHandler(handler)
    try:
        assert as_dagster_runs_it(world, url, *THREE).success
        assert handler.times == RETRIES == 2
        assert counts(world)[0][:2] == (DAY, 50)
        own.stop()
        handler.then = lambda: None
        result = as_dagster_runs_it(world, url, *THREE)
        assert handler.times == 2 * RETRIES
        assert "cannot be read" in failure_text(result)
        assert "nothing was written" in failure_text(result)
        assert counts(world)[0][:2] == (DAY, 50)
    finally:
        PROGRESS.removeHandler(handler)
        own.remove()


def test_a_daily_run_takes_what_has_changed_in_its_lookback_and_nothing_else(world: World, url: str, run: Run) -> None:
    """D12, C4: the range of a daily run. Where a day of it is refused, the good ones are handed on and it is not."""
    assert as_dagster_runs_it(world, url, *THREE).success
    as_of = f'SELECT order_date, data_as_of FROM "{per_day.TABLE}" ORDER BY 1'
    stood = world.query(as_of, per_day.TABLE)
    run(
        "UPDATE orders SET status = 'delivered' WHERE order_id = (SELECT min(order_id) FROM orders "
        "WHERE order_ts::date = '2024-01-02' AND status <> 'delivered')"
    )
    assert as_dagster_runs_it(world, url, *THREE).success
    assert counts(world) == [(DAY, 50, 36), (date(2024, 1, 2), 55, 41), (date(2024, 1, 3), 53, 38)]
    assert [now == then for now, then in zip(world.query(as_of, per_day.TABLE), stood, strict=True)] == [True, False, True]

    run("DELETE FROM orders WHERE order_ts::date = '2024-01-02'")
    result = as_dagster_runs_it(world, url, *THREE)
    assert not result.success
    (handed_on,) = world.instance.get_backfills()
    assert handed_on.tags[FOLLOWS] == result.run_id
    assert handed_on.asset_backfill_data is not None
    (asset,) = handed_on.asset_selection or []
    assert asset == dg.AssetKey(["shopflow", "orders_per_day"])
    subset = handed_on.asset_backfill_data.target_subset.partitions_subsets_by_asset_key[asset]
    assert sorted(subset.get_partition_keys()) == [THREE[0], THREE[2]]


def test_a_run_without_a_date_fails_at_once(world: World) -> None:
    """C7."""
    feed = shopflow.shopflow_feed(CONTRACT, dg.DailyPartitionsDefinition("2024-01-01"))
    result = dg.materialize([shopflow.orders_daily(feed)], instance=world.instance, resources=world.resources, raise_on_error=False)
    assert not result.success


@pytest.mark.slow
def test_the_local_server_runs_as_an_ordinary_user_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As whoever runs the tests above, and as nobody in particular."""
    folder = tmp_path_factory.mktemp("user")
    code = (
        "import sys; from pathlib import Path; from shop_pipeline.core.local_postgres import *; "
        "own = LocalPostgres(Path(sys.argv[1]), packaged_binaries()); "
        "print(own.start().split(':')[0], own.runs); own.remove(); print(own.runs)"
    )
    command = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        for each in (folder, *list(folder.parents)[:2]):
            each.chmod(0o755)
        os.chown(folder, 65534, 65534)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    done = subprocess.run([*command, str(folder / "own")], capture_output=True, text=True, check=False, env=clean_environment())
    assert done.stdout.split() == ["postgresql", "True", "False"], done.stderr


@pytest.mark.slow
def test_two_that_start_the_local_server_at_once_start_one(tmp_path: Path) -> None:
    """In a folder with blanks in its name, too long for a socket's path."""
    folder = tmp_path / "my world" / ("x" * 100)
    folder.mkdir(parents=True)
    command = [str(Path(sys.executable).parent / "shop"), "postgres", "start"]
    both = [subprocess.Popen(command, cwd=folder, env=clean_environment(), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [each.communicate()[0] for each in both]
    LocalPostgres(folder / "postgres", packaged_binaries()).remove()
    assert [each.returncode for each in both] == [0, 0]
    assert len(set(said)) == 1
    assert said[0].startswith("Postgres at 127.0.0.1:")


def test_loads_of_one_day_at_once_hold_each_its_own_moment(world: World, url: str) -> None:
    """Two loads of one day at the same time: the table has one of them, whole."""
    results: list[DayResult] = []
    threads = [threading.Thread(target=lambda: results.extend(load(world, url, THREE[0]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert bronze(world, f"count(*), count(DISTINCT order_id) FROM {TABLE}") == [(50, 50)]
