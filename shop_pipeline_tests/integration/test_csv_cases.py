"""The reported failures of the CSV family, each as a day's file, loaded by the real asset.

All the days of a contract are loaded as one range: first good files, then the cases, then the cases again. A case thereby
also shows that it disturbs no other day, that a refused day keeps its rows, and that the same input gives the same tables.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest

from shop_pipeline.assets import till
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.core.ledger import Entry
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.builders import HEADER, contract_that_quarantines, contract_with, write_day
from shop_pipeline_tests.conftest import CONTRACT, World, evaluations, failure_text

# A day on which clocks go forward in the United States.
FIRST = date(2024, 3, 10)
PARTITIONS = run_dates(date(2024, 1, 2), date(2024, 12, 31))
R1, R2 = "1,c1,10.00,{D}T09:00:00", "2,c2,20.00,{D}T10:00:00"
GOOD = [(1, "c1", "10.00", "09:00:00"), (2, "c2", "20.00", "10:00:00")]
BEFORE = [(900, "before", "9.00", "09:00:00")]
Row = tuple[int, str, str, str]


@dataclass(frozen=True)
class Case:
    """A file (`{D}` stands for its day) and what becomes of it.

    `rows`: the day's rows in the table, as (id, customer, amount, time). `aside`: of each row set aside, its record number and
    what its column, value and reason say. `refused`: what the failure says; the rows are then those of before. `said`: what
    the day's warnings say.
    """

    name: str
    content: str | bytes
    rows: list[Row] = field(default_factory=lambda: list(GOOD))
    aside: list[tuple[int, str]] = field(default_factory=list)
    refused: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    def on(self, day: date) -> bytes:
        """The file's bytes on a day."""
        content = self.content if isinstance(self.content, bytes) else self.content.encode()
        return content.replace(b"{D}", str(day).encode())


def file(*lines: str, header: str = HEADER, end: str = "\n") -> str:
    return "".join(line + end for line in (header, *lines))


def aside(name: str, line: str, what: str, number: int = 2) -> Case:
    """A bad line between two good ones, set aside."""
    return Case(name, file(R1, line, R2), aside=[(number, what)])


def refused(name: str, line: str, *said: str) -> Case:
    """A bad line between two good ones, for which the day is refused."""
    return Case(name, file(R1, line, R2), rows=BEFORE, refused=said)


TIME = "not a time written like 2026-09-01T11:45:00"
EVERY_CONTRACT = [
    Case(
        "C01 another order of columns",
        file("1,10.00,c1,{D}T09:00:00", "2,20.00,c2,{D}T10:00:00", header="order_id,amount,customer_id,ordered_at"),
        said=("another order than the contract's and were taken by their names",),
    ),
    Case("C05 three good rows and xxx", file(R1, "xxx", R2), aside=[(2, "None None 1 fields, expected 4")]),
    Case(
        "C07 a column called _corrupt_record",
        file("1,c1,10.00,{D}T09:00:00,x", "2,c2,20.00,{D}T10:00:00,", header=f"{HEADER},_corrupt_record"),
        said=("the new column _corrupt_record",),
    ),
    Case("C08 an ordinary file", file(R1, R2)),
    Case("C11 spaces around numbers", file(" 1,c1, 10.00 ,{D}T09:00:00", "2 ,c2,20.00,{D}T10:00:00")),
    aside("C13 a year", "3,c3,1.00,2024", f"ordered_at 2024 {TIME}"),
    aside("C13 a month", "3,c3,1.00,2024-03", f"ordered_at 2024-03 {TIME}"),
    aside("C13 a date", "3,c3,1.00,{D}", f"ordered_at {{D}} {TIME}"),
    aside("C13 one-digit parts", "3,c3,1.00,2024-3-10T9:5:3", f"ordered_at 2024-3-10T9:5:3 {TIME}"),
    aside("C13 a space for the T", "3,c3,1.00,{D} 09:00:00", f"ordered_at {{D}} 09:00:00 {TIME}"),
    aside("C13 an offset", "3,c3,1.00,{D}T09:00:00+01:00", f"ordered_at {{D}}T09:00:00+01:00 {TIME}"),
    aside("C13 the other way round (D2)", "3,c3,1.00,02/05/26", f"ordered_at 02/05/26 {TIME}"),
    aside("C15 now", "9,c9,10.00,now", f"ordered_at now {TIME}"),
    aside("C15 epoch", "9,c9,10.00,epoch", f"ordered_at epoch {TIME}"),
    aside("C19 a time that is none", "13,c13,10.00,2024-02-30T25:61:00", f"ordered_at 2024-02-30T25:61:00 {TIME}"),
    aside("C19 a day that is none", "13,c13,10.00,2023-02-29T10:00:00", f"ordered_at 2023-02-29T10:00:00 {TIME}"),
    aside("D10 after the file's day", "3,c3,1.00,2025-01-01T00:00:00", "ordered_at 2025-01-01T00:00:00 after the file's own day"),
    Case("D10 late, which is allowed", file("1,c1,10.00,2024-03-01T09:00:00"), rows=[(1, "c1", "10.00", "2024-03-01 09:00:00")]),
    Case("C17 times in a gap of some clocks", file("1,c1,10.00,{D}T02:30:00"), rows=[(1, "c1", "10.00", "02:30:00")]),
    Case("C20 a byte-order mark", codecs.BOM_UTF8 + file(R1, R2).encode()),
    Case("C20 a byte-order mark, many lines a record", codecs.BOM_UTF8 + file('1,"c\n1",10.00,{D}T09:00:00').encode(),
         rows=[(1, "c\n1", "10.00", "09:00:00")]),
    Case("C21 CRLF", file(R1, R2, end="\r\n")),
    Case("C21 a lone CR in quotes", file('1,"c\r1",10.00,{D}T09:00:00', end="\r\n"), rows=[(1, "c\r1", "10.00", "09:00:00")]),
    aside("C25 an unquoted comma in a name", "22,Acme, Inc,10.00,{D}T09:00:00", "None None 5 fields, expected 4"),
    aside("C26 a field too many", "21,c21,10.00,{D}T09:00:00,junk", "None None 5 fields, expected 4"),
    Case("C27 too few fields, and a blank line", file(R1, "23,c23", "", R2), aside=[(2, "None None 2 fields, expected 4")]),
    aside("C28 nothing", "17,,10.00,{D}T09:00:00", "customer_id  empty"),
    aside("C28 nothing, quoted", '18,"",10.00,{D}T09:00:00', "customer_id  empty"),
    aside("C28 nothing but spaces", "18,  ,10.00,{D}T09:00:00", "customer_id    empty"),
    aside("C47 no time", "18,c18,10.00,", "ordered_at  empty"),
    aside("C65 no amount", "18,c18,,{D}T09:00:00", "amount  empty"),
    Case(
        "C29 words for nothing",
        file(R1, "19,NULL,10.00,{D}T11:00:00", "20,\\N,10.00,{D}T11:00:00"),
        rows=[GOOD[0], (19, "NULL", "10.00", "11:00:00"), (20, "\\N", "10.00", "11:00:00")],
        said=("2 rows flagged: line 3, column customer_id, value 'NULL': a word for nothing; line 4,",),
    ),
    Case("C30 a name twice", file("1,2,3,4", header="order_id,Order_ID,amount,ordered_at"), BEFORE,
         refused=("line 1: the header repeats column order_id",)),
    Case("C31 the header again", file(R1, HEADER, R2), aside=[(2, "None None the header line again")]),
    Case(
        "C32 a new column",
        file("1,c1,10.00,{D}T09:00:00,X", header=f"{HEADER},coupon"), rows=GOOD[:1], said=("the header has the new column coupon",),
    ),
    Case("C32 a new column named by a word of SQL", file("1,c1,10.00,{D}T09:00:00,X", header=f"{HEADER},select"), rows=GOOD[:1]),
    Case("C32 a column is gone", file("1,10.00,{D}T09:00:00", header="order_id,amount,ordered_at"), BEFORE,
         refused=("line 1: the header lacks column customer_id",)),
    Case("C36 zero bytes", b"", BEFORE, refused=("has no header: it is empty",)),
    Case("C40 Latin-1", file(R1).encode() + "27,José,10.00,{D}T09:00:00\n".encode("latin-1"), BEFORE,
         refused=("is not UTF-8 at byte ",)),
    Case("C40 UTF-16", file(R1, R2).encode("utf-16"), BEFORE, refused=("is not UTF-8: a UTF-16 mark at byte 0",)),
    Case("C158 a header and nothing else", file(), rows=[], said=("has no orders",)),
    Case("repeated keys stay and are counted (D3)", file(R1, R1, "1,c9,5.00,{D}T12:00:00"),
         rows=[GOOD[0], GOOD[0], (1, "c9", "5.00", "12:00:00")], said=("1 key comes more than once: order_id 1 (3 times)",)),
    Case("a refund", file("1,c1,-10.00,{D}T09:00:00"), rows=[(1, "c1", "-10.00", "09:00:00")],
         said=("amount, value '-10.00': below 0",)),
    Case("no row is good (D3)", file("1,,10.00,{D}T09:00:00", "2,c2"), BEFORE, refused=("has 2 rows and none of them is good",)),
    aside("C19 24:00:00, which one engine takes for midnight", "3,c3,1.00,{D}T24:00:00", f"ordered_at {{D}}T24:00:00 {TIME}"),
    aside("C19 a year of five digits", "3,c3,1.00,10000-01-01T00:00:00", f"ordered_at 10000-01-01T00:00:00 {TIME}"),
    aside("C19 the year 0", "3,c3,1.00,0000-01-01T00:00:00", f"ordered_at 0000-01-01T00:00:00 {TIME}"),
    Case("C41 the end of a DOS file", file(R1, R2) + "\x1a"),
    Case("C41 a line of control signs", file(R1, "\x00 \x01", R2)),
    Case("C27 a line of quoted nothing", file(R1, '""', '" "', R2)),
    Case("C28 a blank of another kind", file("1,\u00a0,10.00,{D}T09:00:00"), rows=[(1, "\u00a0", "10.00", "09:00:00")]),
    Case("an inch mark", file('1,5" pipe,1.00,{D}T09:00:00', R2), BEFORE, refused=("line 2: a quote that does not enclose",)),
    Case("C30 a header on two lines", file("1,c1,1.00,{D}T09:00:00,x", header=f'{HEADER},"a\nb"'), BEFORE,
         refused=("line 1: a name in the header goes on in the next line",)),
    Case("a quote in the middle", file('1,c"1,10.00,{D}T09:00:00'), BEFORE, refused=("line 2: a quote that does not enclose",)),
]  # fmt: skip

# Keys and amounts: the till's contract refuses the day, the same rule set to quarantine sets the row aside.
BAD_VALUES = {
    "C04 a word for an amount": ("2,c2,abc,{D}T10:00:00", "amount abc not a number"),
    "C09 an amount too large": ("3,c3,123456789.00,{D}T09:00:00", "amount 123456789.00 overflow: too large for DECIMAL(10,2)"),
    "C09 an id too large": ("2147483648,c4,10.00,{D}T09:00:00", "order_id 2147483648 overflow: too large for INT"),
    "C09 an id far too large": ("99999999999999999999,c4,1.00,{D}T09:00:00", "order_id 99999999999999999999 overflow"),
    "C29 NaN": ("20,c20,NaN,{D}T10:00:00", "amount NaN not a number"),
    "C29 Infinity": ("20,c20,Infinity,{D}T10:00:00", "amount Infinity not a number"),
    "C64 a third decimal": ("20,c20,1.005,{D}T10:00:00", "amount 1.005 more than 2 decimals"),
    "C41 a comment": ("#28,c28,10.00,{D}T09:00:00", "order_id #28 not a whole number"),
    "C41 a NUL": ("\x0028,c28,10.00,{D}T09:00:00", "order_id \x0028 not a whole number"),
    "C43 no key": (",c29,10.00,{D}T09:00:00", "order_id  empty"),
    "an exponent": ("3,c3,1e3,{D}T09:00:00", "amount 1e3 not a number"),
    "a decimal comma": ('3,c3,"1,50",{D}T09:00:00', "amount 1,50 not a number"),
    "a currency": ("3,c3,€5,{D}T09:00:00", "amount €5 not a number"),
    "a fraction of an id": ("4.0,c3,5.00,{D}T09:00:00", "order_id 4.0 not a whole number"),
    "a tab": ("\t4,c3,5.00,{D}T09:00:00", "order_id \t4 not a whole number"),
    "other digits": ("٤,c3,5.00,{D}T09:00:00", "order_id ٤ not a whole number"),
}


def sentence_of(what: str) -> tuple[str, ...]:
    column, value, reason = what.split(" ", 2)
    return (f"line 3, column {column}, value {value!r}: {reason}",)


DEFAULT = [
    *EVERY_CONTRACT,
    *(refused(name, line, *sentence_of(what)) for name, (line, what) in BAD_VALUES.items()),
    refused("C43 no key, by the gate's words (D4)", ",c29,10.00,{D}T09:00:00", "Quality gate: 1 rows have a null order_id\n"),
    Case(
        "D2 everything that is wrong with a record",
        file("1,c1,10.00,{D}T09:00:00,", ",,10.00,02/05/26,surprise", header=f"{HEADER},extra_field"),
        BEFORE,
        refused=(
            "Quality gate: 1 rows have a null order_id\n",
            "line 3, column order_id, value '': empty; line 3, column customer_id, value '': empty; "
            f"line 3, column ordered_at, value '02/05/26': {TIME}; the header has the new column extra_field. Mend the file",
        ),
    ),
    Case(
        "five rows are named and the rest are counted",
        file(*(f"{n},c1,x,{{D}}T09:00:00" for n in range(8))),
        BEFORE,
        refused=("line 2, column amount, value 'x': not a number; line 3,", "line 6, column amount", "; and 3 more rows. Mend"),
    ),
]  # fmt: skip
LENIENT = [
    *EVERY_CONTRACT,
    *(aside(name, line, what) for name, (line, what) in BAD_VALUES.items()),
    Case(
        "C06 what is set aside is counted and kept",
        file(R1, "2,c2,abc,{D}T10:00:00"),
        rows=GOOD[:1],
        aside=[(2, "amount abc not a number")],
    ),
    aside("D2 more than one fault", ",,x,now", "order_id  empty; customer_id: empty; amount: not a number; ordered_at: not a time"),
]


@dataclass
class Loaded:
    """A world in which every case has its day, and what each day came to."""

    world: World
    cases: dict[date, Case]
    failure: str
    warnings: dict[str, str]
    tables: list[Any]
    rows: dict[date, list[Any]]
    aside: dict[date, list[Any]]
    entries: dict[date, Entry]


def load_all(world: World, contract: Contract, cases: list[Case]) -> Loaded:
    feed = till.till_feed(contract, PARTITIONS)
    asset = till.orders_daily(feed)
    days = {FIRST + timedelta(days=n): case for n, case in enumerate(cases)}
    keys = [RUN_DATE.key(day) for day in days]
    for day in days:
        write_day(world.landing, day, file("900,before,9.00,{D}T09:00:00").replace("{D}", str(day)))
    assert world.run(keys, asset).success
    tables = []
    for _ in range(2):
        for day, case in days.items():
            write_day(world.landing, day, case.on(day))
        result = world.run(keys, asset)
        tables.append(
            [
                world.query("SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL"),
                world.query("SELECT * EXCLUDE (run_id) FROM orders_quarantine ORDER BY ALL", "orders_quarantine"),
            ]
        )
    rows = world.query("SELECT order_date, order_id, customer_id, amount, ordered_at FROM orders_daily ORDER BY ALL")
    aside = world.query(
        "SELECT order_date, record_number, concat_ws(' ', coalesce(\"column\", 'None'), coalesce(value, 'None'), reason), "
        "raw_text, action, run_date, source_file FROM orders_quarantine ORDER BY ALL",
        "orders_quarantine",
    )
    found = evaluations(world.instance, result)
    said = {key: str(each.metadata["warning"].value) if "warning" in each.metadata else "" for key, each in found.items()}
    return Loaded(
        world,
        days,
        failure_text(result),
        said,
        tables,
        {day: [row[1:] for row in rows if row[0] == day] for day in days},
        {day: [row[1:] for row in aside if row[0] == day] for day in days},
        {entry.day: entry for entry in world.ledger.entries("orders_daily")},
    )


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, spark: SparkResource) -> Iterator[dict[str, Loaded]]:
    with dg.DagsterInstance.ephemeral() as one, dg.DagsterInstance.ephemeral() as other:
        yield {
            "default": load_all(World(tmp_path_factory.mktemp("default"), spark, one), CONTRACT, DEFAULT),
            "lenient": load_all(World(tmp_path_factory.mktemp("lenient"), spark, other), contract_that_quarantines(), LENIENT),
        }


@pytest.mark.parametrize(
    ("contract", "name"),
    [("default", case.name) for case in DEFAULT] + [("lenient", case.name) for case in LENIENT],
    ids=lambda value: value,
)
def test_a_reported_file(worlds: dict[str, Loaded], contract: str, name: str) -> None:
    """The CSV family: what is loaded, what is set aside and why, what is refused with which words."""
    loaded = worlds[contract]
    ((day, case),) = [(day, case) for day, case in loaded.cases.items() if case.name == name]
    rows = [
        (order_id, customer, str(amount), str(at).removeprefix(f"{day} ")) for order_id, customer, amount, at in loaded.rows[day]
    ]
    assert rows == sorted(case.rows)
    held = loaded.aside[day]
    assert [number for number, *_ in held] == [number for number, _ in case.aside]
    records = [line for line in case.on(day).split(b"\n")[1:] if line.strip()]
    for (number, what, text, action, run_date, source), (_, wanted) in zip(held, case.aside, strict=True):
        assert what.startswith(wanted.replace("{D}", str(day)))
        assert text.encode() == records[number - 1]
        assert (action, str(run_date)) == ("quarantine", RUN_DATE.key(day))
        assert source.endswith(f"orders/{day}.csv")
    for words in case.refused:
        assert words.replace("{D}", str(day)) in sentence_for(loaded.failure, day)
    for words in case.said:
        assert words in loaded.warnings[RUN_DATE.key(day)]
    entry = loaded.entries[day]
    assert entry.status == ("failed" if case.refused else "succeeded")
    if not case.refused:
        read = int((entry.fingerprint or "").split(":")[0])
        assert (entry.row_count, entry.quarantined, read) == (len(rows), len(held), len(rows) + len(held))


def sentence_for(failure: str, day: date) -> str:
    """The part of a range's failure that is about a day."""
    lines = failure.splitlines()
    (n,) = [n for n, line in enumerate(lines) if line.startswith(f"{day} was not loaded: ")]
    start = n
    while lines[start - 1].startswith("Quality gate: "):
        start -= 1
    return "\n".join(lines[start : n + 1])


@pytest.mark.parametrize("contract", ["default", "lenient"])
def test_the_same_files_again_give_the_same_tables(worlds: dict[str, Loaded], contract: str) -> None:
    """C116: nothing doubled, nothing of the quarantine stacked; and a new column reads NULL where a day has none."""
    first, second = worlds[contract].tables
    assert first == second
    world = worlds[contract].world
    assert world.query("SELECT count(*) FROM orders_daily WHERE order_id IS NULL OR amount IS NULL OR ordered_at IS NULL") == [(0,)]
    assert world.query("SELECT count(*), count(coupon) FROM orders_daily WHERE coupon IS NOT NULL") == [(1, 1)]


def test_an_exact_header_is_asked_for(world: World) -> None:
    """C01: the policy `exact` refuses another order, and says which header it expected and found."""
    asset = till.orders_daily(till.till_feed(contract_with(("value: any", "value: exact")), PARTITIONS))
    write_day(world.landing, FIRST, file("1,10.00,c1,2024-03-10T09:00:00", header="order_id,amount,customer_id,ordered_at"))
    text = failure_text(world.run([RUN_DATE.key(FIRST)], asset))
    assert "expected order_id,customer_id,amount,ordered_at, found 'order_id,amount,customer_id,ordered_at'" in text
    assert world.version() is None
