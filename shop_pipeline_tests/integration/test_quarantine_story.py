"""The quarantine and the volume band as their users type them."""

import json
from datetime import date
from pathlib import Path

import pytest

from shop_pipeline_tests.builders import CONTRACT_TEXT, HEADER, rows_of, text_of, write_day
from shop_pipeline_tests.conftest import Shop

FIRST, SECOND, THIRD = date(2026, 9, 1), date(2026, 9, 2), date(2026, 9, 3)


def held(shop: Shop, *days: str) -> list[tuple[str, int, str, str]]:
    rows = json.loads(shop("quarantine", "list", *days, "--json").out)
    return [(row["run_date"], row["record_number"], row["column"], row["raw_text"]) for row in rows]


def test_what_was_set_aside_comes_back(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: the file of one day and the contract of another are mended; those days are found, loaded again, and empty."""
    landing = tmp_path / "landing"
    good = text_of(rows_of(FIRST, 1, 2), newline="\n")
    write_day(landing, FIRST, good + "9,,1.00,2026-09-01T09:00:00\n")
    write_day(landing, SECOND, f"{HEADER}\n11,c1,1.00,2026-09-02T09:00:00\n12,c2,1.00,2026-09-03T00:00:01\n")
    write_day(landing, THIRD, f"{HEADER}\n21,c1,1.00,2026-09-03T09:00:00\n23,,1.00,2026-09-03T09:00:00\n")
    ran = shop("backfill", "2026-09-02", "2026-09-04")
    assert (ran.status, ran.out) == (0, "ran 3 runs, 0 failed; orders_daily has 3 days, 4 orders\n")
    assert "warning: 2026-09-02 (run date 2026-09-03): 1 row quarantined: line 3, column ordered_at" in ran.err
    assert shop("check", "2026-09-02").out == "ok 2026-09-01: 2 rows for the file's 3 orders, 0 missing, 1 quarantined\n"
    aside = [
        ("2026-09-02", 3, "customer_id", "9,,1.00,2026-09-01T09:00:00"),
        ("2026-09-03", 2, "ordered_at", "12,c2,1.00,2026-09-03T00:00:01"),
        ("2026-09-04", 2, "customer_id", "23,,1.00,2026-09-03T09:00:00"),
    ]
    assert held(shop) == aside
    assert held(shop, "2026-09-03") == aside[1:2]

    ran = shop("quarantine", "release", "2026-09-02", "2026-09-04")
    assert ran.status == 0
    assert ran.out.splitlines()[-1] == "3 rows of 3 days are set aside; 0 of these days would change"

    write_day(landing, FIRST, good + "9,c9,1.00,2026-09-01T09:00:00\n")
    (tmp_path / "contracts").mkdir()
    mended = CONTRACT_TEXT.replace("ordered_at < date_add(order_date, 1)", "ordered_at < date_add(order_date, 2)")
    (tmp_path / "contracts" / "orders_daily.yaml").write_text(mended)
    monkeypatch.setenv("SHOP_CONTRACTS", str(tmp_path / "contracts"))
    dry = shop("quarantine", "release", "2026-09-02", "2026-09-04", "--dry-run")
    assert dry.out.splitlines() == [
        "run 2026-09-02, landing/orders/2026-09-01.csv, record 3: passes now (now '9,c9,1.00,2026-09-01T09:00:00')",
        "run 2026-09-03, landing/orders/2026-09-02.csv, record 2: passes now",
        "run 2026-09-04, landing/orders/2026-09-03.csv, record 2: still bad (empty)",
        "3 rows of 3 days are set aside; 2 of these days would change",
    ]
    assert held(shop) == aside
    ran = shop("quarantine", "release", "2026-09-02", "2026-09-04")
    assert (ran.status, ran.out.splitlines()[-1]) == (0, "loaded 2 days again, 0 failed; 1 of 3 rows are still set aside")
    assert held(shop) == aside[2:]
    sales = json.loads(shop("sql", "SELECT order_date, orders FROM daily_sales ORDER BY 1", "--json").out)
    # The order of just after midnight counts for its own day, whichever file brought it.
    assert [row["orders"] for row in sales] == [3, 1, 2]
    assert shop("check", "2026-09-03").out == "ok 2026-09-02: 2 rows for the file's 2 orders, 0 missing\n"


def test_a_band_is_tried_on_the_history(shop: Shop) -> None:
    """D6: `shop backtest` on September, as a warning, as a failure, and by another band."""
    shop("sample")
    ran = shop("backfill", "2026-09-02", "2026-10-01")
    assert ran.status == 0
    assert "warning: 2026-09-07: 5 rows is outside 50-150% of the 7-run median (3) (run date 2026-09-08)" in ran.err
    ran = shop("backtest")
    assert ran.out.splitlines() == [
        "run_date    day         rows  median  verdict",
        "2026-09-08  2026-09-07  5     3       flagged",
        "2026-09-30  2026-09-29  5     3       flagged",
        "30 days, 2 flagged by 50-150% of the 7-run median",
    ]
    strict = json.loads(shop("backtest", "--on-violation", "fail", "--json").out)
    assert [row["day"] for row in strict] == [f"2026-09-{n:02d}" for n in (7, 8, 9, 29, 30)]
    assert shop("backtest", "--low", "0", "--high", "300").out.splitlines()[-1].startswith("30 days, 0 flagged")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("backtest", "--low", "90", "--high", "80"), "The band 90-80 % has nothing in it"),
        (("backtest", "--baseline", "yesterday"), "--baseline 'yesterday' is none of: previous days,"),
        (("quarantine", "release", "2026-09-02"), "Missing argument 'LAST'"),
        (("quarantine", "list", "soon"), "'soon' is not a date"),
        (("quarantine", "release", "2026-08-01", "2026-09-02"), "2026-08-01 is not a run date"),
    ],
)
def test_a_mistake_is_one_sentence(shop_without_spark: Shop, arguments: tuple[str, ...], sentence: str) -> None:
    ran = shop_without_spark(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_nothing_is_set_aside_in_a_new_world(shop_without_spark: Shop, tmp_path: Path) -> None:
    for command in (("quarantine", "list", "--json"), ("backtest", "--json")):
        ran = shop_without_spark(*command)
        assert (ran.status, ran.out) == (0, "[]\n")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_contract_stops_the_start(shop_without_spark: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File and line, status 2, nothing written; a folder that is not there is a wrong setting."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "orders_daily.yaml").write_text(CONTRACT_TEXT.replace("value: quarantine", "value: quarantin", 1))
    monkeypatch.setenv("SHOP_CONTRACTS", "mine")
    ran = shop_without_spark("load", "2026-09-02")
    assert (ran.status, ran.out) == (2, "")
    assert "mine/orders_daily.yaml, line 36: onViolation is 'quarantin', which is none of fail, quarantine, flag." in ran.err
    assert "Traceback" not in ran.err
    monkeypatch.setenv("SHOP_CONTRACTS", "nowhere")
    ran = shop_without_spark("load", "2026-09-02")
    assert (ran.status, ran.out) == (2, "")
    assert "SHOP_CONTRACTS: " in ran.err
    assert not (tmp_path / "lake").exists()
