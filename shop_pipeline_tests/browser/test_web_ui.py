"""The till's September in the web UI, by clicks: loaded, looked at, corrected, refused, compared again, mended (rows B9, E1, E6).

The tests are one story: each goes on where the one before it ended.
"""

import re
from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.browser.pages import BACKFILL_MS, RUN_MS, Pages
from shop_pipeline_tests.conftest import World, run_date
from shop_pipeline_tests.servers import DagsterDev

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.spark]

GROUP = "/locations/shop_pipeline/asset-groups/till/lineage"
PIPELINE = ("orders_daily", "silver_orders", "daily_sales")
CORRECTED, BAD = date(2026, 9, 12), date(2026, 9, 18)
LAST_ORDER, REFUSED = 2049, "x2072"


def file_of(dev: DagsterDev, day: date) -> Path:
    return dev.folder / "landing" / "orders" / f"{day}.csv"


@pytest.fixture
def world(dev: DagsterDev, instance: dg.DagsterInstance) -> World:
    """The tables of the story."""
    return World(dev.folder, SparkResource(spark_config={}), instance)


@pytest.fixture(scope="module")
def kept() -> dict[str, str]:
    """What one test saw and a later one needs."""
    return {}


def test_a_month_is_backfilled_from_the_groups_page(pages: Pages, kept: dict[str, str]) -> None:
    pages.open(GROUP)
    pages.materialize("Materialize all (3)…", "[2026-09-02...2026-10-01]", says="30 partitions", launch="Launch backfill")
    kept["backfill"] = pages.path
    assert kept["backfill"].startswith("/runs/b/")
    pages.see("2026-09-02...2026-10-01")
    # One run loads the month; the daemon hands it on to silver and gold at its next ticks.
    pages.see_row("orders_daily", "100% completed", "30", "0", "30", "0", within_ms=BACKFILL_MS)
    pages.open_partitions("orders_daily")
    pages.see("Materialized (30)")
    pages.see("Failed (0)")


def test_the_overview_says_what_the_table_is(pages: Pages) -> None:
    pages.open("/assets/orders_daily?view=overview")
    pages.see("A row is one order as the till's file of its day has it. A partition is a run date;")
    for text in ("Owners", "shop", "Kinds", "Delta Lake", "Spark"):
        pages.see_exactly(text)
    columns = {
        "order_id": "The till's number of the order.",
        "customer_id": "Who bought.",
        "amount": "What the order came to, in the shop's currency.",
        "order_date": "The day whose source the row came from.",
    }
    for column, description in columns.items():
        pages.see_exactly(column)
        pages.see_exactly(description)
    for constraint in ("DECIMAL(10,2)", "non-nullable", "unique", "not a whole number: fail", "empty: quarantine"):
        pages.see_exactly(constraint)


def test_the_months_numbers_are_plotted(pages: Pages) -> None:
    pages.open("/assets/orders_daily?view=overview")
    pages.button("Plots").click()
    for name in ("dagster/partition_row_count", "quarantined", "duration_s", "rows_added"):
        pages.see_exactly(name)
    assert pages.page.locator("canvas").filter(visible=True).count() >= 4
    pages.put_on_top(pages.button("Plots"))
    pages.picture("plots")


def test_a_day_is_compared_again_from_the_jobs_page(pages: Pages, world: World) -> None:
    version = world.version()
    pages.launch_job("recheck_days", "2026-09-02")
    pages.see_exactly("Success", RUN_MS)
    pages.open("/assets/orders_daily?view=checks&checkDetail=check_day")
    pages.see("ok 2026-09-01: 3 rows for the file's 3 orders, 0 missing")
    pages.see_row("Evaluation result", "Passed")
    assert world.version() == version


def test_the_month_reaches_gold(pages: Pages, kept: dict[str, str]) -> None:
    pages.open(kept["backfill"])
    for asset in PIPELINE:
        pages.see_row(asset, "100% completed", "30", "0", "30", "0", within_ms=BACKFILL_MS)
    pages.see_row("Status", "Succeeded", within_ms=BACKFILL_MS)
    pages.picture("backfill")
    pages.open_partitions("daily_sales")
    pages.see("Materialized (30)")
    pages.open(GROUP)
    for asset in (*PIPELINE, "orders_quarantine", "run_log", "late_arrivals", "restatements"):
        pages.see_exactly(asset)
    pages.see(re.compile(r"\d+% filled"))
    # Of each asset of the pipeline its state is there, and none of them failed.
    pages.see_count(re.compile(r"^\d+% filled$"), 3)
    pages.picture("lineage")


def test_a_correction_is_seen_on_its_partition(pages: Pages, dev: DagsterDev) -> None:
    """A9: one day is loaded again, and its page says what that changed."""
    key, file = run_date(CORRECTED), file_of(dev, CORRECTED)
    pages.open_partition("orders_daily", key)
    before = pages.metadata()
    assert (before["verdict"], before["dagster/partition_row_count"], before["changes"]) == ("verified", "4", "first load")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    # The dialog offers the partition whose page it is.
    pages.materialize("Materialize…", None, says="1 partition", launch="Launch 1 run")
    pages.see_exactly("Success", RUN_MS)
    pages.open_partition("orders_daily", key)
    after = pages.metadata()
    assert (after["verdict"], after["dagster/partition_row_count"], after["rows_in_all_days"]) == ("verified", "3", "129")
    assert after["changes"] == "+0 -1 ~0 since version 0"
    assert f"{LAST_ORDER}\tcustomer_id C04, amount 57.95" in after["changed_rows"]
    assert after["fingerprint"] != before["fingerprint"]
    pages.see("View all historical events (2)")
    pages.picture("partition")


def test_a_bad_day_is_refused_and_feeds_nothing(pages: Pages, dev: DagsterDev, world: World) -> None:
    """E6: the run says why in its first line; silver and gold of that run date do not run; the day's rows stay."""
    key, file = run_date(BAD), file_of(dev, BAD)
    rows, sold = world.orders(BAD), world.query(f"SELECT * FROM daily_sales WHERE order_date = '{BAD}'", "daily_sales")
    assert len(rows) == 5
    file.write_bytes(file.read_bytes().replace(b"\r\n2", b"\r\nx2", 1))
    pages.open(GROUP)
    pages.materialize("Materialize all (3)…", key, says="1 partition", launch="Launch 1 run")
    run, number = pages.path, pages.path.removeprefix("/runs/")[:8]
    pages.see_exactly("Failure", RUN_MS)
    pages.see("Errored (1)")
    # Silver, gold, and the two checks of the feed.
    pages.see("Not executed (4)")
    why = f"{file}, line 2, column order_id, value '{REFUSED}': not a whole number. Mend the file and rerun run date {key}."
    pages.see(f"Failure: {BAD} was not loaded: {why}")
    # Without the stack below the sentence. The page has scrolled to the end, where the run says it once more.
    again = pages.page.get_by_text(f"Failure: {BAD} was not loaded: {why}").last
    pages.picture("bad_day_run", down_to=again.bounding_box(), lines=3)
    for asset in PIPELINE:
        pages.open_partition(asset, key)
        pages.see("Failed (1)")
        pages.see("Materialized (29)")
        pages.see(f"Run {number} failed, and did not materialize this asset")
        # What is below is of the load before.
        pages.see("View all historical events (1)")
        if asset == "orders_daily":
            pages.picture("bad_day")
            pages.page.get_by_role("link", name=number, exact=True).click()
            pages.page.wait_for_url(f"**{run}*")
    assert world.orders(BAD) == rows
    assert world.query(f"SELECT * FROM daily_sales WHERE order_date = '{BAD}'", "daily_sales") == sold


def test_the_bad_day_is_compared_again(pages: Pages) -> None:
    """The comparison alone fails as well, and says with what."""
    pages.launch_job("recheck_days", run_date(BAD))
    pages.see_exactly("Failure", RUN_MS)
    pages.see(f"PROBLEM {BAD}: 5 rows for the file's 5 orders, 1 missing")
    pages.open("/assets/orders_daily?view=checks&checkDetail=check_day")
    pages.see(f"PROBLEM {BAD}: 5 rows for the file's 5 orders, 1 missing")
    pages.see(f"1 break the contract: line 2, column order_id, value '{REFUSED}': not a whole number")
    pages.see_row("Evaluation result", "Failed")
    pages.picture("recheck")


def test_a_mended_day_is_green_again(pages: Pages, dev: DagsterDev) -> None:
    file = file_of(dev, BAD)
    file.write_bytes(file.read_bytes().replace(REFUSED.encode(), REFUSED[1:].encode()))
    pages.open(GROUP)
    pages.materialize("Materialize all (3)…", run_date(BAD), says="1 partition", launch="Launch 1 run")
    pages.see_exactly("Success", RUN_MS)
    for asset in PIPELINE:
        pages.open_partition(asset, run_date(BAD))
        pages.see("Failed (0)")
        pages.see("Materialized (30)")
