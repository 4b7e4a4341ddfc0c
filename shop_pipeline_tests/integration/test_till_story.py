"""The till's story as its users type it: rows A8 to A15 and B1 to B4 and B8, through the command `shop`."""

import json
from datetime import date
from pathlib import Path

import pytest

from shop_pipeline.core.lake import Lake, data_files
from shop_pipeline_tests.conftest import Shop
from shop_pipeline_tests.test_sample import COUNTS

SEPTEMBER = ("2026-09-02", "2026-10-01")
CLOSING = "ran 30 runs, 0 failed; orders_daily has 30 days, 130 orders"


def files_by_day(folder: Path) -> dict[date, set[str]]:
    table = Lake(str(folder / "lake")).open("orders_daily")
    assert table is not None
    listing = data_files(table)
    found: dict[date, set[str]] = {}
    for file, day in zip(listing["file"].to_pylist(), listing["order_date"].to_pylist(), strict=True):
        found.setdefault(day, set()).add(file)
    return found


def fingerprints(shop: Shop, table: str = "orders_daily", without: str = "_loaded_at") -> str:
    """The content of a table, apart from when it was loaded."""
    return shop("sql", f"SELECT * EXCLUDE ({without}) FROM {table} ORDER BY ALL", "--json").out


def test_load_check_break_and_mend_a_day(shop: Shop, tmp_path: Path) -> None:
    """A8, A9, A10, A11: exact outputs, in the order that people try them."""
    shop("sample")
    loads = [
        ("2026-09-02", "run 2026-09-02 loaded 2026-09-01: 3 rows, orders_daily has 3\n"),
        ("2026-09-03", "run 2026-09-03 loaded 2026-09-02: 5 rows, orders_daily has 8\n"),
        ("2026-09-02", "run 2026-09-02 loaded 2026-09-01: 3 rows, orders_daily has 8\n"),
    ]
    for key, line in loads:
        ran = shop("load", key)
        assert (ran.status, ran.out) == (0, line)
    ran = shop("check", "2026-09-02")
    assert (ran.status, ran.out) == (0, "ok 2026-09-01: 3 rows for the file's 3 orders, 0 missing\n")

    ran = shop("load", "2026-09-02", "--append")
    assert (ran.status, ran.out) == (0, "run 2026-09-02 loaded 2026-09-01: 6 rows, orders_daily has 11\n")
    assert "warning: 2026-09-01: appended, not verified" in ran.err
    ran = shop("check", "2026-09-02")
    assert ran.status == 1
    assert ran.out.splitlines()[0] == "PROBLEM 2026-09-01: 6 rows for the file's 3 orders, 0 missing"
    assert "order_id 2001 (2 for 1)" in ran.out
    assert shop("load", "2026-09-02").out == loads[2][1]
    assert shop("check", "2026-09-02").out == "ok 2026-09-01: 3 rows for the file's 3 orders, 0 missing\n"

    newest = json.loads(shop("history", "--json").out)
    one = {"operation": "WRITE", "predicate": "order_date = '2026-09-01'", "rows_written": 3}
    assert newest == [one, {**one, "predicate": None}, one]
    assert [line.split()[0] for line in shop("history", "--limit", "2").out.splitlines()] == ["operation", "WRITE", "WRITE"]

    problems = json.loads(shop("sql", "SELECT status, problem FROM run_log WHERE kind = 'append' ORDER BY run_at", "--json").out)
    assert problems == [{"status": "started", "problem": None}, {"status": "failed", "problem": "appended, not verified"}]


def test_the_month_and_a_correction(shop: Shop, tmp_path: Path) -> None:
    """B1, B2, B3, E1: the month in one commit, again the same, then one corrected day that leaves the others alone."""
    shop("sample")
    ran = shop("backfill", *SEPTEMBER)
    assert (ran.status, ran.out) == (0, CLOSING + "\n")
    assert "shop: 30 of 30 days done, 0 failed" in ran.err
    writes = json.loads(shop("history", "--limit", "50", "--json").out)
    assert [change["operation"] for change in writes] == ["WRITE"]
    assert writes[0]["rows_written"] == 130
    per_day = json.loads(shop("sql", "SELECT order_date, count(*) n FROM orders_daily GROUP BY 1 ORDER BY 1", "--json").out)
    assert [row["n"] for row in per_day] == COUNTS
    sales = json.loads(shop("sql", "SELECT sum(orders) n, sum(revenue) total FROM daily_sales", "--json").out)
    assert sales == [{"n": 130, "total": 4255.28}]
    assert all(len(files) == 1 for files in files_by_day(tmp_path).values())

    before = fingerprints(shop)
    assert shop("backfill", *SEPTEMBER).out == CLOSING + "\n"
    assert fingerprints(shop) == before

    file = tmp_path / "landing" / "orders" / "2026-09-15.csv"
    file.write_bytes(file.read_bytes() + b"2131,C02,19.99,2026-09-15T20:30:00\n")
    others = {day: files for day, files in files_by_day(tmp_path).items() if day != date(2026, 9, 15)}
    ran = shop("check", "2026-09-16")
    assert ran.status == 1
    assert ran.out.splitlines()[0] == "PROBLEM 2026-09-15: 3 rows for the file's 4 orders, 1 missing"
    assert shop("load", "2026-09-16").out == "run 2026-09-16 loaded 2026-09-15: 4 rows, orders_daily has 131\n"
    assert shop("check", "2026-09-16").out == "ok 2026-09-15: 4 rows for the file's 4 orders, 0 missing\n"
    newest = json.loads(shop("history", "--limit", "1", "--json").out)
    assert newest == [{"operation": "WRITE", "predicate": "order_date = '2026-09-15'", "rows_written": 4}]
    after = files_by_day(tmp_path)
    assert len(others) == 29
    assert all(after[day] == files for day, files in others.items())


def test_day_by_day_commits_once_a_day(shop: Shop) -> None:
    """B4"""
    shop("sample")
    ran = shop("backfill", "2026-09-29", "2026-10-01", "--days-per-run", "1")
    assert ran.out == "ran 3 runs, 0 failed; orders_daily has 3 days, 14 orders\n"
    newest = json.loads(shop("history", "--limit", "2", "--json").out)
    assert [(each["predicate"], each["rows_written"]) for each in newest] == [
        ("order_date = '2026-09-30'", 6),
        ("order_date = '2026-09-29'", 5),
    ]


def test_a_bad_day_stops_neither_the_others_nor_what_they_feed(shop: Shop, tmp_path: Path) -> None:
    """B1, E1, C120, C121: 29 days in every table, one named; mended, one run completes it."""
    shop("sample")
    file = tmp_path / "landing" / "orders" / "2026-09-15.csv"
    good = file.read_bytes()
    file.write_bytes(good + b"2131,C02,abc,2026-09-15T20:30:00\n")
    ran = shop("backfill", *SEPTEMBER)
    assert ran.status == 1
    failed, last = ran.out.splitlines()
    assert failed.startswith("run 2026-09-16 failed: 2026-09-15 was not loaded: landing/orders/2026-09-15.csv, line 5, ")
    assert failed.endswith("value 'abc': not a number. Mend the file and rerun run date 2026-09-16.")
    assert last == "ran 30 runs, 1 failed; orders_daily has 29 days, 127 orders"
    assert json.loads(shop("sql", "SELECT count(*) n FROM daily_sales", "--json").out) == [{"n": 29}]
    file.write_bytes(good)
    assert shop("backfill", "2026-09-16", "2026-09-16").out == "ran 1 runs, 0 failed; orders_daily has 30 days, 130 orders\n"
    assert json.loads(shop("sql", "SELECT count(*) n, sum(orders) o FROM daily_sales", "--json").out) == [{"n": 30, "o": 130}]


def test_what_became_of_each_day_as_json(shop: Shop, tmp_path: Path) -> None:
    """The same statuses and nothing else on standard output; a day's problem is the sentence that people get."""
    shop("sample")
    day = {"run_date": "2026-09-02", "day": "2026-09-01", "ok": True, "problem": None}
    ran = shop("load", "2026-09-02", "--json")
    assert (ran.status, json.loads(ran.out)) == (0, [day])
    file = tmp_path / "landing" / "orders" / "2026-09-02.csv"
    file.write_text(file.read_text().replace("2004,", ",", 1))
    bad, also = shop("load", "2026-09-03", "--json"), shop("backfill", "2026-09-02", "2026-09-03", "--json")
    assert (bad.status, also.status) == (1, 1)
    (refused,) = json.loads(bad.out)
    assert json.loads(also.out) == [day, refused]
    assert (refused["day"], refused["ok"]) == ("2026-09-02", False)
    assert "2026-09-02 was not loaded" in refused["problem"]
    checked = shop("check", "2026-09-02", "--json")
    assert (checked.status, json.loads(checked.out)) == (0, [day])
    dry = shop("backfill", "2026-09-02", "2026-09-02", "--dry-run", "--json")
    assert json.loads(dry.out) == [{"run_date": "2026-09-02", "day": "2026-09-01"}]


def test_dry_run_prints_and_creates_nothing(shop_without_spark: Shop, tmp_path: Path) -> None:
    """B8"""
    ran = shop_without_spark("backfill", "2026-09-02", "2026-09-04", "--dry-run")
    assert ran.status == 0
    assert ran.out == "run 2026-09-02 loads 2026-09-01\nrun 2026-09-03 loads 2026-09-02\nrun 2026-09-04 loads 2026-09-03\n"
    assert list(tmp_path.iterdir()) == []


def test_ten_years_are_planned_without_a_cap(shop_without_spark: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """B9: no cap of 100."""
    monkeypatch.setenv("SHOP_FIRST_RUN_DATE", "2016-11-01")
    ran = shop_without_spark("backfill", "2016-11-01", "2026-10-29", "--dry-run")
    lines = ran.out.splitlines()
    assert len(lines) == 3650
    assert lines[-1] == "run 2026-10-29 loads 2026-10-28"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("load",), "Missing argument 'RUN_DATE'"),
        (("load", "yesterday"), "'yesterday' is not a date: write it as YYYY-MM-DD"),
        (("load", "2026-9-2"), "'2026-9-2' is not a date"),
        (("load", "2026-09-01"), "2026-09-01 is not a run date of orders_daily: they go from 2026-09-02"),
        (("check", "2199-01-01"), "2199-01-01 is not a run date of orders_daily"),
        (("backfill", "2026-09-05", "2026-09-02"), "The last date 2026-09-02 lies before the first, 2026-09-05"),
        (("backfill", "2026-09-02"), "Missing argument 'LAST'"),
        (("backfill", "2026-09-02", "2026-09-03", "--days-per-run", "0"), "--days-per-run"),
        (("backfill", "2026-08-30", "2026-09-03"), "2026-08-30 is not a run date"),
        (("history", "no_such_table"), "There is no table no_such_table"),
        (("history", "../landing"), "There is no table ../landing"),
        (("sql", "SELECT * FROM nowhere"), "The statement cannot be run: Catalog Error"),
        (("frobnicate",), "No such command 'frobnicate'"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(
    shop_without_spark: Shop, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    """C7, C115 and their kind: nothing on standard output, no traceback, nothing written."""
    ran = shop_without_spark(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "lake").exists()


def test_help_is_worth_reading(shop_without_spark: Shop) -> None:
    ran = shop_without_spark("--help")
    assert ran.status == 0
    for word in ("sample", "load", "check", "backfill", "history", "sql", "run date 2026-09-02 loads 1 September"):
        assert word in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("content", "line", "rows"),
    [
        (None, "2026-09-01 was not loaded: landing/orders/2026-09-01.csv is not there.", 3),
        (b"", "2026-09-01 was not loaded: landing/orders/2026-09-01.csv has no header: it is empty.", 3),
        (b"order_id,customer_id,amount\r\n", "the header lacks column ordered_at", 3),
    ],
    ids=["missing", "zero bytes", "short header"],
)
def test_a_day_without_a_readable_file_keeps_its_rows(
    shop: Shop, tmp_path: Path, content: bytes | None, line: str, rows: int
) -> None:
    """A13, A15: a sentence with the path, nothing written, the old rows stay; a check of it is neither ok nor a problem."""
    shop("sample")
    shop("load", "2026-09-02")
    version = Lake(str(tmp_path / "lake")).open("orders_daily").version()  # type: ignore[union-attr]
    file = tmp_path / "landing" / "orders" / "2026-09-01.csv"
    file.unlink() if content is None else file.write_bytes(content)
    ran = shop("load", "2026-09-02")
    assert (ran.status, ran.out) == (1, "")
    assert line in ran.err
    assert "rerun run date 2026-09-02." in ran.err
    assert Lake(str(tmp_path / "lake")).open("orders_daily").version() == version  # type: ignore[union-attr]
    assert json.loads(shop("sql", "SELECT count(*) n FROM orders_daily", "--json").out) == [{"n": rows}]
    ran = shop("check", "2026-09-02")
    assert ran.status == 1
    assert ran.out.startswith("NOT CHECKED 2026-09-01: landing/orders/2026-09-01.csv")


def test_a_header_and_no_orders_is_a_shut_day(shop: Shop, tmp_path: Path) -> None:
    """A13, C158: the day's rows become none, also where there were none; 0 for 0 is ok, with a warning."""
    shop("sample")
    shut = tmp_path / "landing" / "orders" / "2026-09-02.csv"
    shut.write_bytes(b"order_id,customer_id,amount,ordered_at")
    for _ in range(2):
        ran = shop("load", "2026-09-03")
        assert (ran.status, ran.out) == (0, "run 2026-09-03 loaded 2026-09-02: 0 rows, orders_daily has 0\n"), ran.err
    shop("load", "2026-09-02")
    assert shop("load", "2026-09-03").out == "run 2026-09-03 loaded 2026-09-02: 0 rows, orders_daily has 3\n"
    assert shop("check", "2026-09-03").status == 0
    (tmp_path / "landing" / "orders" / "2026-09-01.csv").write_bytes(b"order_id,customer_id,amount,ordered_at\r\n")
    ran = shop("load", "2026-09-02")
    assert (ran.status, ran.out) == (0, "run 2026-09-02 loaded 2026-09-01: 0 rows, orders_daily has 0\n")
    assert "warning: 2026-09-01 has no orders" in ran.err
    ran = shop("check", "2026-09-02")
    assert (ran.status, ran.out) == (0, "ok 2026-09-01: 0 rows for the file's 0 orders, 0 missing\n")
    assert "warning: 2026-09-01 has no orders" in ran.err


def test_check_before_anything_was_loaded(shop_without_spark: Shop) -> None:
    """A15"""
    shop_without_spark("sample")
    ran = shop_without_spark("check", "2026-09-02")
    assert ran.status == 1
    assert ran.out.startswith("NOT CHECKED 2026-09-01: there is no table orders_daily in ")


def test_sql_reads_tables_and_nothing_else(shop: Shop, tmp_path: Path) -> None:
    shop("sample")
    shop("load", "2026-09-02")
    assert json.loads(shop("sql", "SELECT order_id, amount FROM orders_daily ORDER BY 1 LIMIT 1", "--json").out) == [
        {"order_id": 2001, "amount": 30.73}
    ]
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for statement in (
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{secret}'",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        "CREATE TABLE x AS SELECT 1",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        f"ATTACH '{tmp_path}/x.db'",
        "",
    ):
        ran = shop("sql", statement)
        assert (ran.status, ran.out) == (2, ""), statement
        assert "Traceback" not in ran.err
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "x.db").exists()


def test_a_damaged_table_is_a_sentence_everywhere(shop: Shop, tmp_path: Path) -> None:
    """A15, C71: a data file or a log entry is gone, or is not what it was: no traceback, nothing recreated over it."""
    shop("sample")
    shop("backfill", "2026-09-02", "2026-09-03", "--days-per-run", "1")
    table = tmp_path / "lake" / "orders_daily"
    (file,) = (table / "order_date=2026-09-01").glob("*.parquet")
    content = file.read_bytes()
    for damage in ("removed", "garbage"):
        file.unlink() if damage == "removed" else file.write_bytes(b"not parquet")
        ran = shop("check", "2026-09-02")
        assert ran.status == 1
        assert ran.out.startswith("NOT CHECKED 2026-09-01: the table orders_daily in ")
        ran = shop("sql", "SELECT sum(amount) FROM orders_daily")
        assert (ran.status, ran.out) == (1, "")
        assert "the table orders_daily in" in ran.err
        assert "Traceback" not in ran.err
        file.write_bytes(content)
    assert shop("check", "2026-09-02").status == 0
    entry = table / "_delta_log" / f"{0:020d}.json"
    log = entry.read_bytes()
    for damage in (b"{bad", None):
        entry.unlink() if damage is None else entry.write_bytes(damage)
        for command in (("check", "2026-09-02"), ("history",), ("load", "2026-09-02")):
            ran = shop(*command)
            assert ran.status == 1, command
            assert "the table orders_daily in" in ran.out + ran.err
            assert "Traceback" not in ran.err
        entry.write_bytes(log)
    assert shop("load", "2026-09-02").out == "run 2026-09-02 loaded 2026-09-01: 3 rows, orders_daily has 8\n"
    assert shop("check", "2026-09-02").status == 0


def test_json_is_json_to_the_last_digit(shop_without_spark: Shop) -> None:
    (Path("lake")).mkdir()
    ran = shop_without_spark(
        "sql", "SELECT 4255.28 a, 9007199254740993.25 b, 'NaN'::DOUBLE c, NULL d, DATE '2026-09-01' e", "--json"
    )
    assert json.loads(ran.out) == [{"a": 4255.28, "b": "9007199254740993.25", "c": "nan", "d": None, "e": "2026-09-01"}]
    ran = shop_without_spark("sql", "SELECT 1 AS a, 2 AS a", "--json")
    assert (ran.status, ran.out) == (2, "")
    assert "Two columns of the answer are called a" in ran.err


def test_a_spoilt_dagster_home_is_a_sentence(shop_without_spark: Shop, tmp_path: Path) -> None:
    home = tmp_path / "dagster_home"
    for spoil in ("bogus: {x: 1}\n", "telemetry: {enabled: false}\n"):
        home.mkdir(exist_ok=True)
        (home / "dagster.yaml").write_text(spoil)
        (home / "history").mkdir(exist_ok=True)
        (home / "history" / "runs.db").write_text("not a database")
        ran = shop_without_spark("check", "2026-09-02")
        assert (ran.status, ran.out) == (2, "")
        assert f"DAGSTER_HOME {home} cannot be opened (" in ran.err
        assert "Traceback" not in ran.err
