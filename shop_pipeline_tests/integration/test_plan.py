"""Look before you leap: `shop plan`, and which days a backfill takes. Rows B8, B9, E3; no JVM."""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from shop_pipeline_tests.conftest import Shop, clean_environment, run_shop

pytestmark = [pytest.mark.spark]
MONTH = ("2026-09-02", "2026-10-01")
LATE = b"2131,C02,19.99,2026-09-15T20:30:00\n"


@pytest.fixture
def loaded(shop: Shop, tmp_path: Path) -> Path:
    """A week of the sample, loaded and made into figures; the orders of the files."""
    assert shop("sample").status == 0
    assert shop("backfill", "2026-09-12", "2026-09-18").status == 0
    return tmp_path / "landing" / "orders"


def planned(shop: Shop, *arguments: str) -> list[dict[str, Any]]:
    ran = shop("plan", *arguments, "--json")
    assert ran.status == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def edit(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new))


def test_a_plan_says_what_a_backfill_would_do(shop: Shop, loaded: Path, tmp_path: Path) -> None:
    """E3: every state, counted; the figures that would change are those that a backfill then changes; nothing is written."""
    late = loaded / "2026-09-15.csv"
    late.write_bytes(late.read_bytes() + LATE)
    edit(loaded / "2026-09-14.csv", b"\r\n", b"\n")  # saved with other line ends: the same orders
    lines = (loaded / "2026-09-13.csv").read_bytes().splitlines(keepends=True)
    changed = lines[1].split(b",")
    changed[2] = b"1.00"
    (loaded / "2026-09-13.csv").write_bytes(b"".join([lines[0], b",".join(changed), *lines[3:]]))
    edit(loaded / "2026-09-12.csv", b"\r\n2", b"\r\nx2")
    (loaded / "2026-09-11.csv").unlink()
    # An order of the 16th that the file of the 17th, not yet loaded, has in a newer version.
    first = (loaded / "2026-09-16.csv").read_bytes().splitlines()[1].split(b",")
    (loaded / "2026-09-18.csv").write_bytes(
        (loaded / "2026-09-18.csv").read_bytes() + b",".join([first[0], first[1], b"99.99", first[3]]) + b"\r\n"
    )
    before = {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*") if path.is_file() and ".locks" not in path.parts}
    rows = planned(shop, "2026-09-12", "2026-09-20")
    assert list(rows[0]) == ["run_date", "day", "state", "added", "removed", "changed", "reasons"]
    states = {row["run_date"]: (row["state"], row["added"], row["removed"], row["changed"]) for row in rows}
    assert states == {
        "2026-09-12": ("missing", 0, 0, 0),
        "2026-09-13": ("refused", 0, 0, 0),
        "2026-09-14": ("changed", 0, 1, 1),
        "2026-09-15": ("unchanged", 0, 0, 0),
        "2026-09-16": ("changed", 1, 0, 0),
        "2026-09-17": ("unchanged", 0, 0, 0),
        "2026-09-18": ("unchanged", 0, 0, 0),
        "2026-09-19": ("new", 6, 0, 0),
        "2026-09-20": ("new", 6, 0, 0),
    }
    reasons = {row["run_date"]: " ".join(row["reasons"]) for row in rows}
    assert "landing/orders/2026-09-11.csv is not there" in reasons["2026-09-12"]
    assert "landing/orders/2026-09-12.csv, line 2, column order_id, value 'x2" in reasons["2026-09-13"]
    effects = json.loads(shop("plan", "2026-09-12", "2026-09-20", "--figures", "--json").out)
    text = shop("plan", "2026-09-12", "2026-09-20").out
    assert "9 days, 1 missing, 1 refused, 2 changed, 3 unchanged, 2 new; 5 days of daily_sales would change" in text
    now = {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*") if path.is_file() and ".locks" not in path.parts}
    assert now == before

    figures = "SELECT order_date, orders, revenue FROM daily_sales ORDER BY 1"
    stood = {row["order_date"]: row for row in json.loads(shop("sql", figures, "--json").out)}
    assert shop("backfill", "2026-09-12", "2026-09-20").status == 1
    stands = {row["order_date"]: row for row in json.loads(shop("sql", figures, "--json").out)}
    wanted = [
        {
            "order_date": day,
            "orders_before": stood.get(day, {"orders": 0})["orders"],
            "orders_after": row["orders"],
            "revenue_before": stood.get(day, {"revenue": 0})["revenue"],
            "revenue_after": row["revenue"],
        }
        for day, row in stands.items()
        if row != stood.get(day)
    ]
    assert effects == wanted
    assert "2026-09-16" in {each["order_date"] for each in effects}


def test_a_day_that_is_not_verified_is_planned_as_changed(shop: Shop, loaded: Path) -> None:
    assert shop("load", "2026-09-12", "--append").status == 0
    (row,) = planned(shop, "2026-09-12", "2026-09-12")
    assert (row["state"], row["added"], row["removed"]) == ("changed", 0, 3)
    assert "appended, not verified" in row["reasons"][0]


def test_which_days_a_backfill_takes(shop: Shop, loaded: Path) -> None:
    """B8: none, failed, completed, changed; what is left over is not run, and a plan creates nothing."""

    def dry(*arguments: str) -> list[str]:
        ran = shop("backfill", *MONTH, "--dry-run", *arguments)
        assert ran.status == 0
        return [line.split()[1] for line in ran.out.splitlines()]

    whole = dry()
    assert len(whole) == 30
    done = [f"2026-09-{day}" for day in range(12, 19)]
    assert dry("--reprocess", "none") == [key for key in whole if key not in done]
    assert shop("backfill", *done[:1], done[-1], "--reprocess", "none").last.startswith("ran 0 runs, 0 failed; ")
    # A day that failed, one whose figures were never made, one that changed and one that was only touched.
    edit(loaded / "2026-09-20.csv", b"\r\n2", b"\r\nx2")
    assert shop("load", "2026-09-21").status == 1
    assert shop("load", "2026-09-25").status == 0
    late = loaded / "2026-09-15.csv"
    late.write_bytes(late.read_bytes() + LATE)
    edit(loaded / "2026-09-14.csv", b"\r\n", b"\n")
    left = [key for key in whole if key not in done]
    assert dry("--reprocess", "none") == [key for key in left if key not in ("2026-09-21", "2026-09-25")]
    assert dry("--reprocess", "failed") == left
    assert dry("--reprocess", "changed") == [key for key in whole if key == "2026-09-16" or (key in left and key != "2026-09-25")]
    (loaded / "2026-09-29.csv").unlink()
    assert "2026-09-30" not in dry("--reprocess", "changed")
    ran = shop("backfill", "2026-09-12", "2026-09-19", "--reprocess", "changed", "--max-active-runs", "2")
    assert ran.last == "ran 2 runs, 0 failed; orders_daily has 9 days, 39 orders", ran.out + ran.err
    assert shop("backfill", *MONTH, "--reprocess", "some").status == 2


def test_a_date_that_a_run_has_is_left_alone_and_a_dead_one_is_not(shop: Shop, tmp_path: Path) -> None:
    """B8: kernel locks decide, not what a killed run left in Dagster's records."""
    assert shop("sample").status == 0
    environment = clean_environment()
    command = [str(Path(sys.executable).parent / "shop"), "backfill", "2026-09-05", "2026-09-06"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "read 2 of 2 days" in line:
                break
        ran = run_shop("backfill", "2026-09-04", "2026-09-07", "--dry-run", folder=tmp_path)
        assert [line.split()[1] for line in ran.out.splitlines()] == ["2026-09-04", "2026-09-07"]
        assert "run date 2026-09-05 (day 2026-09-04) is left alone: run " in ran.err
        running.kill()
    assert len(run_shop("backfill", "2026-09-04", "2026-09-07", "--dry-run", folder=tmp_path).out.splitlines()) == 4
    ran = shop("backfill", "2026-09-04", "2026-09-07")
    assert ran.status == 0
    assert "is closed as failed: its process has died" in ran.err


@pytest.mark.parametrize("day", [date(2026, 9, 1)])
def test_a_plan_needs_no_java_and_nothing_that_is_not_there(shop_without_spark: Shop, tmp_path: Path, day: date) -> None:
    """A fresh folder: every day is missing, and still nothing is created."""
    rows = planned(shop_without_spark, "2026-09-02", "2026-09-02")
    assert [(row["day"], row["state"]) for row in rows] == [(day.isoformat(), "missing")]
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_second_retry_touches_the_failed_day_alone(shop: Shop, tmp_path: Path) -> None:
    """C120, C121, C110: fails, is tried again and fails, is mended and runs; then nothing is left to do."""
    assert shop("sample").status == 0
    file = tmp_path / "landing" / "orders" / "2026-09-02.csv"
    whole = file.read_bytes()
    edit(file, b"\r\n2", b"\r\nx2")
    ran = shop("backfill", "2026-09-02", "2026-09-04")
    assert (ran.status, ran.last) == (1, "ran 3 runs, 1 failed; orders_daily has 2 days, 7 orders")
    again = ("backfill", "2026-09-02", "2026-09-04", "--reprocess", "failed")
    ran = shop(*again)
    assert (ran.status, ran.last) == (1, "ran 1 runs, 1 failed; orders_daily has 2 days, 7 orders")
    file.write_bytes(whole)
    for runs in (1, 0):
        ran = shop(*again)
        assert (ran.status, ran.last) == (0, f"ran {runs} runs, 0 failed; orders_daily has 3 days, 12 orders")


def test_a_plan_knows_what_silver_and_gold_lack(shop: Shop, loaded: Path) -> None:
    """What it says must be what the backfill then does, where tables further on have other rows than the loaded one: a day that
    was appended, one that was loaded and not made, one that was corrected and only loaded; and `failed` takes them."""
    figures = "SELECT order_date, orders, revenue FROM daily_sales ORDER BY 1"

    def effects(last: str = "2026-09-19") -> dict[str, int]:
        rows = json.loads(shop("plan", "2026-09-12", last, "--figures", "--json").out)
        return {row["order_date"]: row["orders_after"] for row in rows}

    assert shop("load", "2026-09-13", "--append").status == 0
    assert effects("2026-09-18") == {}
    assert shop("load", "2026-09-19").status == 0
    late = loaded / "2026-09-15.csv"
    late.write_bytes(late.read_bytes() + LATE)
    assert shop("load", "2026-09-16").status == 0
    late.write_bytes(late.read_bytes() + LATE.replace(b"2131", b"2132"))
    told = effects()
    assert told["2026-09-15"] == 5
    assert told["2026-09-18"] == 5
    ran = shop("backfill", "2026-09-12", "2026-09-19", "--reprocess", "failed", "--dry-run")
    assert [line.split()[1] for line in ran.out.splitlines()] == ["2026-09-13", "2026-09-16", "2026-09-19"]
    assert shop("backfill", "2026-09-12", "2026-09-19").status == 0
    stands = {row["order_date"]: row["orders"] for row in json.loads(shop("sql", figures, "--json").out)}
    assert {day: stands[day] for day in told} == told
    assert effects() == {}


def test_failed_means_that_the_newest_attempt_failed(shop: Shop, loaded: Path) -> None:
    """A correction that was refused leaves the earlier rows in force; mended, `failed` takes the day, as its alert says."""
    file = loaded / "2026-09-13.csv"
    whole = file.read_bytes()
    edit(file, b"\r\n2", b"\r\nx2")
    assert shop("load", "2026-09-14").status == 1
    (row,) = planned(shop, "2026-09-14", "2026-09-14")
    assert (row["state"], row["reasons"][-1]) == ("refused", "The rows that were loaded stay.")
    file.write_bytes(whole)
    ran = shop("backfill", "2026-09-12", "2026-09-18", "--reprocess", "failed")
    assert ran.last.startswith("ran 1 runs, 0 failed; ")
