"""A month's report: what it counts, what it leaves out by name, and the page that it is. No Spark: the tables are written here."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine
from deltalake import write_deltalake

from shop_pipeline.assets import shopflow, till
from shop_pipeline.core import gold, lateness, per_day, quarantine, report_page, restatements, silver
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import BUSINESS_DATE, RUN_DATE, days_of_month
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import CHECK, FAILED, LOAD, MERGE, RECOMPUTE, STARTED, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.report import NothingToReport, Report, Subject, collect
from shop_pipeline_tests.conftest import CONTRACT, Shop

FIRST = date(2026, 9, 1)
SEPTEMBER = days_of_month("2026-09")
NOW = datetime(2026, 12, 3, 8, tzinfo=UTC)
MADE = datetime(2026, 10, 2, 2, 30, tzinfo=UTC)
TILL = Subject("till", CONTRACT, RUN_DATE, till.FIGURES, FIRST, UTC)
WEB = Subject("shopflow", load_contract("shopflow_orders"), BUSINESS_DATE, shopflow.FIGURES, date(2024, 1, 1), UTC)
_ARROW = {
    "DATE": pa.date32(),
    "BIGINT": pa.int64(),
    "DECIMAL(20,2)": pa.decimal128(20, 2),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "STRING": pa.string(),
}


def day_of(number: int) -> date:
    return date(2026, 9, number)


@dataclass
class Books:
    """A lake that is written without Spark: what loads, merges and recomputations note and leave."""

    lake: Lake
    subject: Subject = TILL
    gold_columns: Sequence[tuple[str, str]] = gold.COLUMNS
    minutes: int = 0
    attempts: int = 0
    noted: list[Entry] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)

    def make_tables(self) -> None:
        self.lake.create(self.subject.contract.table, self.subject.contract.table_columns, "orders")
        for name in self.subject.figures.made:
            self.lake.create(name, self.gold_columns, "made", partitioned=False)

    def note(self, table: str, day: date, status: str, kind: str = LOAD, version: int | None = 0, **more: Any) -> None:  # noqa: ANN401
        """A row of run_log, a minute after the one before it; written when it is looked at."""
        self.minutes += 1
        self.attempts += 1
        opened = self.lake.open(table)
        values: dict[str, Any] = {
            "run_id": "the test",
            "run_at": MADE + timedelta(minutes=self.minutes),
            "table_name": table.replace("/", "."),
            "row_count": None,
            "max_event_time": None,
            "status": status,
            "day": day,
            "run_date": date.fromisoformat(self.subject.rule.key(day)),
            "fingerprint": "f",
            "quarantined": 0,
            "problem": None,
            "delta_version": version,
            "duration": 1.0,
            "kind": kind,
            "attempt": f"a{self.attempts}",
            "table_id": None if opened is None else table_id(opened),
        }
        self.noted.append(Entry(**{**values, **more}))

    def load(self, day: date, rows: int = 1) -> None:
        """A load that was verified."""
        self.note(self.subject.contract.table, day, SUCCEEDED, row_count=rows, source_fingerprint="f")

    def make(self, day: date, **figures: Any) -> None:  # noqa: ANN401
        """What is made of a loaded day; a row in gold where there are figures."""
        *between, last = self.subject.figures.made
        for name in between:
            self.note(name, day, SUCCEEDED, MERGE)
        self.note(last, day, SUCCEEDED, RECOMPUTE, row_count=figures.get("orders"))
        if figures:
            self.figures.append({"order_date": day, "data_as_of": MADE, **figures})

    def sold(self, day: date, orders: int, revenue: str) -> None:
        """A day with all that belongs to it."""
        self.load(day, orders)
        self.make(day, orders=orders, revenue=Decimal(revenue), average_order=Decimal("1.50"))

    def add(self, table: str, columns: Sequence[tuple[str, str]], *rows: Mapping[str, Any]) -> None:
        schema = pa.schema([(name, _ARROW[kind]) for name, kind in columns])
        made = pa.Table.from_pylist([{name: row.get(name) for name, _ in columns} for row in rows], schema=schema)
        self.lake.create(table, columns, table, partitioned=table == quarantine.table_of(self.subject.contract))
        write_deltalake(self.lake.table_uri(table), made, mode="append")

    def set_aside(self, day: date, record: int, column: str | None, reason: str) -> None:
        row = {"order_date": day, "record_number": record, "column": column, "reason": reason, "raw_text": "x"}
        self.add(quarantine.table_of(self.subject.contract), quarantine.COLUMNS, row)

    def write(self) -> None:
        """Write what was noted, in one commit each."""
        if self.figures:
            self.add(self.subject.figures.table, self.gold_columns, *self.figures)
        Ledger(self.lake).append(self.noted)
        self.figures, self.noted = [], []

    def report(self, days: Sequence[date] = SEPTEMBER, now: datetime = NOW) -> Report:
        self.write()
        return collect(self.lake, self.subject, days, now)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    made = Books(Lake(str(tmp_path / "lake")))
    made.make_tables()
    return made


class Parsed(HTMLParser):
    """A page taken apart: its elements, its tables' cells, its text; a tag that is not closed in order is a fault."""

    _EMPTY = ("meta", "img", "br", "link")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text: list[str] = []
        self.declaration = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_decl(self, decl: str) -> None:
        self.declaration = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self._EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] = f"{self.rows[-1][-1]}{data}"

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def row(self, first: str) -> list[str]:
        (found,) = [row for row in self.rows if row[0] == first and len(row) == 6]
        return found


def parsed(report: Report) -> Parsed:
    return Parsed(report_page.page(report).html)


def test_a_whole_month(books: Books) -> None:
    for n, day in enumerate(SEPTEMBER, start=1):
        books.sold(day, n, f"{n}.50")
    report = books.report()
    assert report.totals == {"orders": 465, "revenue": Decimal("480.00")}
    assert (len(report.counted), report.left_out, report.troubles) == (30, [], [])
    assert report.as_of == MADE
    page = parsed(report)
    assert "465 orders, revenue 480.00, on 30 days. The figures are complete: all 30 days are verified." in page.words
    assert "Data as of 2026-10-02 02:30 UTC. Report made 2026-12-03 08:00 UTC." in page.words
    assert page.row("Tue 1 Sep") == ["Tue 1 Sep", "1", "1.50", "1.50", "", "✓ verified"]
    assert page.row("Wed 30 Sep") == ["Wed 30 Sep", "30", "30.50", "1.50", "", "✓ verified"]
    assert page.row("Total of 30 days") == ["Total of 30 days", "465", "480.00", "", "0", ""]
    assert "Days to see to" not in page.words
    for nothing in (
        "No published figure of this month has changed.",
        "No row of this month is set aside.",
        "No order of this month's files is known to have come late.",
    ):
        assert nothing in page.words


def test_every_day_that_is_not_well_is_named_and_left_out(books: Books) -> None:
    """What gold holds of such a day is shown in brackets; what it lacks is a dash, and never a zero."""
    orders = CONTRACT.table
    for n in (1, 2, 3, 4, 5):
        books.sold(day_of(n), 10, "100.00")
    # 2: a check found it to differ. 3: loaded again, and not made again. 4: brought a column that the contract does not know.
    books.note(orders, day_of(2), FAILED, CHECK, problem="PROBLEM: 1 missing")
    books.load(day_of(3), 11)
    books.note(orders, day_of(4), SUCCEEDED, row_count=10, drift=json.dumps({"added": ["coupon"]}))
    books.note(orders, day_of(5), STARTED, version=None)
    books.note(orders, day_of(6), FAILED, version=None, problem="6 was refused", source_fingerprint="x")
    books.note(orders, day_of(7), FAILED, version=None, problem="7 is not there", quarantined=None)
    books.note(orders, day_of(8), FAILED, version=None, problem="the disk is full", quarantined=None, duration=None)
    books.load(day_of(9))
    # 10: a late order of it came with another day's file.
    books.add(gold.TABLE, gold.COLUMNS, {"order_date": day_of(10), "orders": 1, "revenue": Decimal("7.00"), "data_as_of": MADE})
    report = books.report()
    found = {day.day.day: (day.status.value, day.counted, day.figures and day.figures["orders"]) for day in report.days[:11]}
    assert found == {
        1: ("verified", True, 10),
        2: ("not verified", False, 10),
        3: ("figures not up to date", False, 10),
        4: ("held back", False, 10),
        5: ("not verified", False, 10),
        6: ("refused", False, None),
        7: ("missing", False, None),
        8: ("not loaded", False, None),
        9: ("figures not up to date", False, None),
        10: ("missing", False, 1),
        11: ("missing", False, None),
    }
    assert report.totals == {"orders": 10, "revenue": Decimal("100.00")}
    troubles = {(each.first.day, each.last.day): each for each in report.troubles}
    assert list(troubles) == [(2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (9, 9), (10, 30)]
    assert troubles[2, 2].reason == "PROBLEM: 1 missing"
    assert troubles[3, 3].reason == "its figures are those of an earlier load"
    assert "coupon" in troubles[4, 4].reason
    assert "has not ended" in troubles[5, 5].reason
    assert troubles[6, 6].command == "shop backfill 2026-09-07 2026-09-07"
    assert troubles[9, 9].reason == "its figures are not made yet"
    assert troubles[10, 30].reason == "nobody has tried to load it"
    assert troubles[10, 30].command == "shop backfill 2026-09-11 2026-10-01"
    page = parsed(report)
    assert "10 orders, revenue 100.00, on 1 day." in page.words
    assert "not complete: 1 of 30 days that should be there by now are counted." in page.words
    assert "Left out: 2 Sep (not verified), 3 Sep (figures not up to date), " in page.words
    assert "10 Sep to 30 Sep (missing)." in page.words
    assert page.row("Wed 2 Sep") == ["Wed 2 Sep", "(10)", "(100.00)", "(1.50)", "", "! not verified"]
    assert page.row("Sun 6 Sep") == ["Sun 6 Sep", "–", "–", "–", "", "! refused"]  # noqa: RUF001 - the page's own dash
    assert page.row("Total of 1 day") == ["Total of 1 day", "10", "100.00", "", "0", "29 days left out"]
    for image in page.all("img"):
        assert "6 Sep (refused)" in (image["alt"] or "")


def test_a_refused_correction_leaves_the_figures_and_is_told(books: Books) -> None:
    """The figures of before are verified, and count; that a newer file was refused is said."""
    refusal = {"version": None, "problem": "5 was refused", "source_fingerprint": "x"}
    for n in (5, 6):
        books.sold(day_of(n), 3, "30.00")
        books.note(CONTRACT.table, day_of(n), FAILED, **refusal)
    # A check after it found the 6th equal to its source: the bad file is gone again.
    books.note(CONTRACT.table, day_of(6), SUCCEEDED, CHECK)
    report = books.report()
    kept, well = report.days[4:6]
    assert (kept.status.value, kept.counted, kept.reason) == ("earlier load kept", True, "5 was refused")
    assert (well.status.value, well.reason) == ("verified", None)
    assert report.totals == {"orders": 6, "revenue": Decimal("60.00")}
    assert [each.first.day for each in report.troubles][:2] == [1, 5]
    assert "Counted as it was before a load that came to nothing: 5 Sep." in parsed(report).words


def test_a_shut_day_is_a_zero_that_is_known(books: Books) -> None:
    books.load(day_of(1), 0)
    books.make(day_of(1))
    # Its figures were made, and someone has taken them out of the table since.
    books.load(day_of(2), 4)
    for name in (silver.TABLE, gold.TABLE):
        books.note(name, day_of(2), SUCCEEDED, RECOMPUTE, row_count=4)
    shut, lacking = books.report().days[:2]
    assert (shut.status.value, shut.note) == ("verified", "no orders on this day")
    assert shut.figures == {"orders": 0, "revenue": 0, "average_order": None}
    assert (lacking.status.value, lacking.figures) == ("figures not up to date", None)
    assert lacking.reason == "its figures were made (4 orders) and are no longer there"


def test_a_failure_of_what_is_made_says_why(books: Books) -> None:
    books.load(day_of(1))
    books.note(silver.TABLE, day_of(1), FAILED, MERGE, version=None, problem="Quality gate: 2 rows have a null order_id")
    (day,) = books.report([day_of(1)]).days
    assert day.reason == "its figures are not made yet; Quality gate: 2 rows have a null order_id"


def test_days_that_are_not_due_are_not_missing(books: Books) -> None:
    """The 3rd is due 26 hours after its end. What comes before the first day is nobody's to load."""
    books.sold(day_of(1), 2, "3.00")
    books.sold(day_of(2), 2, "3.00")
    report = books.report(now=datetime(2026, 9, 5, 1, 59, tzinfo=UTC))
    assert {day.status.value for day in report.days[2:]} == {"not due yet"}
    page = parsed(report)
    assert "The figures so far are complete: all 2 days are verified. 28 days are not due yet." in page.words
    assert page.row("Thu 3 Sep")[-1] == "… not due yet"
    report = books.report(now=datetime(2026, 9, 5, 2, 0, tzinfo=UTC))
    assert [each.first.day for each in report.troubles] == [3]
    august = books.report([date(2026, 8, 31), day_of(1)])
    assert [day.status.value for day in august.days] == ["before the first day", "verified"]
    assert "1 day of the month lies before the first day that is loaded." in parsed(august).words


def test_a_month_without_figures_is_not_a_month_of_nothing(books: Books) -> None:
    books.sold(day_of(1), 2, "3.00")
    report = books.report(days_of_month("2026-10"))
    assert (report.totals, report.as_of) == (None, None)
    page = parsed(report)
    assert "There are no figures yet that can be relied on." in page.words
    assert "There are no figures yet. Report made" in page.words
    assert page.row("Total of 0 days")[1:3] == ["–", "–"]  # noqa: RUF001 - the page's own dash
    later = parsed(books.report(days_of_month("2026-12"), NOW - timedelta(days=30)))
    assert "No day of this month is due yet." in later.words


def test_nothing_was_ever_loaded(tmp_path: Path) -> None:
    with pytest.raises(NothingToReport, match=r"There is no table orders_daily in .* yet"):
        Books(Lake(str(tmp_path / "lake"))).report()


def test_a_first_load_that_was_refused_is_reported(tmp_path: Path) -> None:
    """There is a run_log then, and no other table."""
    books = Books(Lake(str(tmp_path / "lake")))
    books.note(CONTRACT.table, FIRST, FAILED, version=None, problem="1 was refused", source_fingerprint="x")
    first = books.report().days[0]
    assert (first.status.value, first.reason, first.figures) == ("refused", "1 was refused", None)


def test_a_damaged_table_is_a_sentence(books: Books, shop_without_spark: Shop, tmp_path: Path) -> None:
    books.sold(FIRST, 3, "99.99")
    books.write()
    for file in (tmp_path / "lake" / gold.TABLE).glob("*.parquet"):
        file.unlink()
    ran = shop_without_spark("report", "2026-09")
    assert (ran.status, ran.out) == (1, "")
    assert "cannot be read (" in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "report-2026-09.html").exists()


def restatement(day: date, hour: int, before: str, after: str, cause: str) -> dict[str, Any]:
    return {
        **{"order_date": day, "orders_before": 3, "orders_after": 4, "cause": cause},
        **{"revenue_before": Decimal(before), "revenue_after": Decimal(after)},
        **{"restated_at": datetime(2026, 9, 20, hour, tzinfo=UTC), "gold_version": hour, "gold_id": "g"},
    }


def test_what_changed_what_was_set_aside_and_what_came_late(books: Books) -> None:
    books.sold(FIRST, 4, "30.00")
    books.add(
        restatements.TABLE,
        restatements.COLUMNS,
        restatement(FIRST, 9, "20.00", "30.00", "correction (1 order)"),
        restatement(FIRST, 8, "10.00", "20.00", "late rows (1 order)"),
        restatement(date(2026, 8, 31), 7, "1.00", "2.00", "another month's"),
    )
    for day, record in ((2, 7), (1, 5), (1, 4), (1, 9)):
        books.set_aside(day_of(day), record, "customer_id", "empty")
    books.set_aside(day_of(2), 8, None, "too few fields")
    books.set_aside(date(2026, 8, 31), 1, "customer_id", "empty")
    spreads = {FIRST: {0: 10, 1: 2}, day_of(2): {1: 1, 3: 1}, date(2026, 10, 1): {1: 50}}
    lateness.replace(books.lake, list(spreads), spreads)
    report = books.report()
    assert [(each.day, each.revenue_before, each.revenue_after, each.cause, each.at.hour) for each in report.restated] == [
        (FIRST, Decimal("10.00"), Decimal("20.00"), "late rows (1 order)", 8),
        (FIRST, Decimal("20.00"), Decimal("30.00"), "correction (1 order)", 9),
    ]
    assert report.set_aside == (
        quarantine.Broken("customer_id", "empty", 4, ((FIRST, 4), (FIRST, 5), (FIRST, 9))),
        quarantine.Broken(None, "too few fields", 1, ((day_of(2), 8),)),
    )
    assert report.late == {1: 3, 3: 1}
    assert [day.set_aside for day in report.days[:3]] == [3, 2, 0]
    page = parsed(report)
    assert ["1 Sep", "3", "4", "20.00", "30.00", "correction (1 order)", "2026-09-20 09:00 UTC"] in page.rows
    assert ["customer_id", "empty", "4", "record 4 of 1 Sep, record 5 of 1 Sep, record 9 of 1 Sep"] in page.rows
    assert "To see them: shop quarantine list 2026-09-02 2026-10-01" in page.words
    assert "4 orders in the files of this month's days were taken on an earlier day, and counted there." in page.words
    assert page.row("Tue 1 Sep")[4] == "3"


def test_what_customers_write_is_text(books: Books) -> None:
    evil = "<script>alert('x')</script><img src=http://elsewhere/> & \"quoted\""
    books.sold(FIRST, 1, "1.00")
    books.note(CONTRACT.table, day_of(2), FAILED, version=None, problem=f"value {evil}", source_fingerprint="x")
    books.set_aside(FIRST, 1, "customer_id", evil)
    books.add(restatements.TABLE, restatements.COLUMNS, restatement(FIRST, 1, "1.00", "2.00", evil))
    page = parsed(books.report())
    assert page.all("script") == []
    assert all((image["src"] or "").startswith("data:image/png;base64,") for image in page.all("img"))
    assert sum(evil in cell for row in page.rows for cell in row) == 3


def test_the_page_is_whole_and_can_be_read_by_all(books: Books) -> None:
    """Nothing is fetched; tables and pictures say what they are, and a status is a word before it is a colour."""
    books.sold(FIRST, 1, "1.00")
    books.set_aside(FIRST, 1, "customer_id", "empty")
    lateness.replace(books.lake, [FIRST], {FIRST: {1: 1}})
    books.add(restatements.TABLE, restatements.COLUMNS, restatement(FIRST, 1, "1.00", "2.00", "correction (1 order)"))
    made = report_page.page(books.report())
    page = Parsed(made.html)
    assert page.declaration == "DOCTYPE html"
    assert page.all("html") == [{"lang": "en"}]
    assert page.text[: page.text.index("Sales of September 2026, the till") + 1][-1] == "Sales of September 2026, the till"
    assert {"charset": "utf-8"} in page.all("meta")
    assert any(each.get("name") == "viewport" for each in page.all("meta"))
    assert len(page.all("title")) == len(page.all("h1")) == len(page.all("main")) == 1
    assert all(each.get("scope") in ("row", "col") for each in page.all("th"))
    assert all(len(each["alt"] or "") > 40 for each in page.all("img"))
    assert len(page.all("img")) == len(made.plots) == 2
    assert all(plot.png.startswith(b"\x89PNG") for plot in made.plots)
    ids = [each["id"] for _, each in page.elements if "id" in each]
    assert len(ids) == len(set(ids)) == 5
    assert not page.all("link")
    assert not any("href" in each for _, each in page.elements)
    assert "http" not in made.html.replace("http-equiv", "")


def test_the_web_shop(tmp_path: Path) -> None:
    """Its key is the day itself; there is no revenue, and nothing is kept of what its figures were."""
    books = Books(Lake(str(tmp_path / "lake")), WEB, per_day.COLUMNS)
    books.make_tables()
    days = days_of_month("2024-02")
    for day in days[:28]:
        books.load(day, 5)
        books.make(day, orders=5, delivered=3)
    books.note(WEB.contract.table, days[28], FAILED, version=None, problem="it is empty", source_fingerprint="0:0:x")
    report = books.report(days)
    assert report.totals == {"orders": 140, "delivered": 84}
    assert [(each.first, each.status.value, each.command) for each in report.troubles] == [
        (date(2024, 2, 29), "refused", "shop backfill 2024-02-29 2024-02-29 --source shopflow")
    ]
    made = report_page.page(report)
    page = Parsed(made.html)
    assert [plot.name for plot in made.plots] == ["sales"]
    assert "Sales of February 2024, the web shop" in page.words
    assert "140 orders, delivered 84, on 28 days." in page.words
    assert ["Thu 1 Feb", "5", "3", "", "✓ verified"] in page.rows
    assert "after they were published" not in page.words
    assert "late" not in page.words


def test_files_take_their_places_together_or_not_at_all(books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    books.sold(FIRST, 1, "1.00")
    folder = tmp_path / "out"
    folder.mkdir()
    out, link = folder / "september.html", folder / "link.html"
    contents = report_page.files(report_page.page(books.report()), out)
    report_page.write(contents)
    names = ["september-orders.png", "september-sales.png", "september.html"]
    assert sorted(each.name for each in folder.iterdir()) == names
    link.symlink_to(out)
    report_page.write({link: b"through the link"})
    assert (link.is_symlink(), out.read_bytes()) == (True, b"through the link")
    link.unlink()

    real = Path.open

    def full(path: Path, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        if len(list(folder.iterdir())) > len(names):
            raise OSError(28, "No space left on device")
        return real(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left"):
        report_page.write(contents)
    assert sorted(each.name for each in folder.iterdir()) == names
    assert out.read_bytes() == b"through the link"


def test_the_command_writes_a_page_and_says_where(books: Books, shop_without_spark: Shop, tmp_path: Path) -> None:
    books.sold(FIRST, 3, "99.99")
    books.write()
    ran = shop_without_spark("report", "2026-09")
    assert (ran.status, ran.out) == (0, "report-2026-09.html\n")
    assert {each.name for each in tmp_path.glob("report*")} == {
        *("report-2026-09.html", "report-2026-09-sales.png", "report-2026-09-orders.png")
    }
    assert "3 orders, revenue 99.99, on 1 day." in Parsed((tmp_path / "report-2026-09.html").read_text()).words
    (tmp_path / "out").mkdir()
    ran = shop_without_spark("report", "2026-09", "--out", "out/page.html")
    assert (ran.status, ran.out) == (0, "out/page.html\n")
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"page.html", "page-sales.png", "page-orders.png"}


def test_figures_as_json(books: Books, shop_without_spark: Shop, tmp_path: Path) -> None:
    books.sold(FIRST, 3, "99.99")
    books.write()
    with time_machine.travel(datetime(2026, 9, 4, 12, tzinfo=UTC), tick=False):
        ran = shop_without_spark("report", "2026-09", "--json")
    rows = json.loads(ran.out)
    assert (ran.status, len(rows)) == (0, 30)
    assert rows[0] == {
        **{"run_date": "2026-09-02", "day": "2026-09-01", "status": "verified"},
        **{"orders": 3, "revenue": 99.99, "average_order": 1.5, "counted": True, "set_aside": 0},
        **{"data_as_of": "2026-10-02T02:30:00+00:00", "reason": None, "note": None, "next": None},
    }
    assert {name: rows[1][name] for name in ("status", "orders", "counted", "next")} == {
        **{"status": "missing", "orders": None, "counted": False, "next": "shop backfill 2026-09-03 2026-09-03"}
    }
    assert {row["status"] for row in rows[2:]} == {"not due yet"}
    assert list(tmp_path.glob("report*")) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("2026-13",), "'2026-13' is not a month: write it as YYYY-MM, for instance 2026-09."),
        (("september",), "'september' is not a month"),
        (("2026-9",), "'2026-9' is not a month"),
        (("2026-09-01",), "'2026-09-01' is not a month"),
        (("2025-01",), "2025-01 has none of the days of orders_daily: they go from 2026-09-01 (SHOP_FIRST_RUN_DATE) to "),
        (("2026-09", "--source", "web"), "--source 'web' is none of: till, shopflow."),
        (("2024-01", "--source", "shopflow"), "no table shopflow.orders_daily in "),
        (("2026-09", "--out", "nowhere/page.html"), "there is no folder nowhere; make it, or name another file."),
        (("2026-09", "--out", "a_file/page.html"), "there is no folder a_file"),
        (("2026-09", "--out", "lake"), "--out lake: it is there and no file; name a file."),
        (("2026-09", "--out", "/proc/page.html"), "/proc/page.html cannot be written ("),
        (("2026-09", "--out", f"{'x' * 300}.html"), "cannot be written (File name too long)"),
    ],
)
def test_a_mistake_is_one_sentence(
    books: Books, shop_without_spark: Shop, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    books.sold(FIRST, 3, "99.99")
    books.write()
    (tmp_path / "a_file").write_text("")
    ran = shop_without_spark("report", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert sentence in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert sorted(os.listdir(tmp_path)) == ["a_file", "lake"]


def test_an_empty_lake_says_what_to_do(shop_without_spark: Shop, tmp_path: Path) -> None:
    ran = shop_without_spark("report", "2026-09")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.endswith("yet: load a day first, for instance `shop backfill 2026-09-02 2026-10-01`.\n")
    assert list(tmp_path.iterdir()) == []
