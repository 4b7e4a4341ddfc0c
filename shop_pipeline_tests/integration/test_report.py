"""A month's report on days that were really loaded: what it says is what the tables say."""

import json
from pathlib import Path

from shop_pipeline_tests.conftest import Shop


def test_a_report_says_what_the_tables_say(shop: Shop, tmp_path: Path) -> None:
    """A refused day and a missing one are left out, a late order and a mended file are told, a bad row is set aside."""
    shop("sample")
    orders = tmp_path / "landing" / "orders"
    good = (orders / "2026-09-10.csv").read_bytes()
    (orders / "2026-09-10.csv").write_bytes(good + b"2131,C02,abc,2026-09-10T20:30:00\n")
    (orders / "2026-09-11.csv").unlink()
    with (orders / "2026-09-12.csv").open("ab") as file:
        file.write(b"2132,C02,5.00,2026-09-10T20:30:00\n2133,,5.00,2026-09-12T20:30:00\n")
    assert shop("backfill", "2026-09-10", "2026-09-14").status == 1
    with (orders / "2026-09-13.csv").open("ab") as file:
        file.write(b"2134,C02,19.99,2026-09-13T20:30:00\n")
    assert shop("backfill", "2026-09-14", "2026-09-14").status == 0

    ran = shop("report", "2026-09", "--json")
    rows = {row["day"]: row for row in json.loads(ran.out)}
    assert [rows[f"2026-09-{n:02d}"]["status"] for n in range(9, 15)] == [
        *("verified", "refused", "missing", "verified", "verified", "missing")
    ]
    sales = json.loads(shop("sql", "SELECT order_date, orders, revenue FROM daily_sales ORDER BY 1", "--json").out)
    assert [(row["order_date"], row["orders"], row["revenue"]) for row in sales] == [
        (day, row["orders"], row["revenue"]) for day, row in rows.items() if row["orders"] is not None
    ]
    # All that is known of the 10th is the late order that the file of the 12th brought.
    refused = rows["2026-09-10"]
    assert (refused["orders"], refused["revenue"], refused["counted"]) == (1, 5.0, False)
    assert "column amount, value 'abc': not a number" in refused["reason"]
    assert refused["next"] == "shop backfill 2026-09-11 2026-09-11"
    assert "landing/orders/2026-09-11.csv is not there" in rows["2026-09-11"]["reason"]
    assert (rows["2026-09-12"]["set_aside"], rows["2026-09-13"]["orders"]) == (1, 7)

    ran = shop("report", "2026-09")
    assert (ran.status, ran.out) == (0, "report-2026-09.html\n")
    page = (tmp_path / "report-2026-09.html").read_text()
    counted = [row for row in rows.values() if row["counted"]]
    revenue = round(sum(row["revenue"] for row in counted), 2)
    assert f"{sum(row['orders'] for row in counted)} orders, revenue {revenue:,.2f}, on 3 days." in page
    for said in ("correction (1 order)", "record 6 of 12 Sep", "1 order in the files of this month"):
        assert said in page
    # What the page tells to run puts it right.
    (orders / "2026-09-10.csv").write_bytes(good)
    assert shop("backfill", "2026-09-11", "2026-09-11").status == 0
    rows = {row["day"]: row for row in json.loads(shop("report", "2026-09", "--json").out)}
    assert (rows["2026-09-10"]["status"], rows["2026-09-10"]["counted"]) == ("verified", True)
