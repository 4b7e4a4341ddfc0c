"""The till's files as both engines see them; no Spark here."""

import codecs
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from shop_pipeline.core import duck
from shop_pipeline.core.batch import bad_rows, read_by_duckdb
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.sources import till_files
from shop_pipeline.core.sources.till_files import LONG_LINE, TillFiles
from shop_pipeline_tests.builders import HEADER, rows_of, text_of, write_day

DAY = date(2026, 9, 1)
CONTRACT = load_contract("orders_daily")
GOOD = rows_of(DAY, 1, 3)
LINES = text_of(GOOD).encode()
UNIX = text_of(GOOD).replace("\r\n", "\n")


def refusal(tmp_path: Path, content: bytes) -> str:
    write_day(tmp_path, DAY, content)
    opened = TillFiles(tmp_path, CONTRACT).open([DAY])
    assert set(opened.refused) == {DAY}
    return opened.refused[DAY]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has no header: it is empty"),
        (codecs.BOM_UTF8, "has no header: it is empty"),
        (b"\r\n" + LINES, "has no header: its first line is empty"),
        (LINES.replace(b"amount", b"amt"), "line 1: the header lacks column amount; expected order_id,"),
        (LINES.replace(b"ordered_at", b"Order_ID"), "line 1: the header repeats column order_id;"),
        (HEADER.encode() + b",\n", "cannot name, but by small letters, digits and _, the new column (no name);"),
        (HEADER.encode() + b",unit price\n", "cannot name, but by small letters, digits and _, the new column unit price;"),
        (HEADER.encode() + b",_source_seq\n", "uses, for a column of its own, the pipeline's column _source_seq;"),
        (b'"order_id;customer_id;amount;ordered_at"\n', "line 1: the header lacks columns order_id, customer_id, amount"),
        (LINES + "4,José,1.00,2026-09-01T09:00:00\n".encode("latin-1"), f"is not UTF-8 at byte {len(LINES) + 5}"),
        (text_of(GOOD).encode("utf-16"), "is not UTF-8: a UTF-16 mark at byte 0"),
        (LINES + b'4,"C01,1.00,2026-09-01T09:00:00\n', "line 5: a quote that does not enclose a whole field"),
        (LINES + b'4,C"0"1,1.00,2026-09-01T09:00:00\n', "line 5: a quote that does not enclose a whole field"),
        (LINES.replace(b"\r\n", b"\r"), "has a carriage return without a line feed"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    """C20, C30, C36, C40 and their kind: the file, the place and what to do."""
    said = refusal(tmp_path, content)
    assert "orders/2026-09-01.csv" in said
    assert sentence in said


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """C33"""
    (tmp_path / "orders" / "2026-09-01.csv").mkdir(parents=True)
    assert "is a folder, not a file" in TillFiles(tmp_path, CONTRACT).open([DAY]).refused[DAY]
    other = date(2026, 9, 2)
    os.mkfifo(tmp_path / "orders" / f"{other}.csv")
    assert "is a pipe or device, not a file" in TillFiles(tmp_path, CONTRACT).open([other]).refused[other]


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    opened = TillFiles(tmp_path, CONTRACT).open([DAY])
    assert opened.missing == {DAY}
    assert "orders/2026-09-01.csv is not there" in opened.refused[DAY]


Variant = Callable[[bytes], bytes]

SAME_CONTENT: dict[str, Variant] = {
    "LF": lambda text: text.replace(b"\r\n", b"\n"),
    "LF after CRLF": lambda text: text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n", 2),
    "no last line end": lambda text: text.removesuffix(b"\r\n"),
    "byte-order mark": lambda text: codecs.BOM_UTF8 + text,
    "blank lines": lambda text: text.replace(b"\r\n", b"\r\n\r\n"),
    "a line of spaces": lambda text: text + b"   \r\n",
    "all quoted": lambda text: (
        b"\r\n".join(b",".join(b'"' + each + b'"' for each in line.split(b",")) for line in text.split(b"\r\n")[:-1]) + b"\r\n"
    ),
    "header in capitals": lambda text: text.replace(b"order_id", b"Order_ID"),
    "columns in another order": lambda text: b"\n".join(
        b",".join(line.split(b",")[n] for n in (2, 0, 3, 1)) for line in text.split(b"\r\n")[:-1]
    ),
    "spaces around numbers": lambda text: text.replace(b",10.50,", b", 10.50 ,"),
    "a third decimal that is 0": lambda text: text.replace(b",10.50,", b",10.500,"),
}


@pytest.mark.parametrize("variant", SAME_CONTENT.values(), ids=SAME_CONTENT.keys())
def test_the_same_orders_written_otherwise_are_the_same(tmp_path: Path, variant: Variant) -> None:
    """E2: the fingerprint is over values, never over bytes. C11, C20, C21."""
    readings = []
    for name, content in (("plain", LINES), ("variant", variant(LINES))):
        write_day(tmp_path / name, DAY, content)
        opened = TillFiles(tmp_path / name, CONTRACT).open([DAY])
        assert not opened.refused
        readings.append(read_by_duckdb(duck.connect(), CONTRACT, opened, [DAY])[DAY])
    assert readings[0] == readings[1]
    assert readings[0].good == len(GOOD)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"10.50", b"10.51"),
        lambda text: text.replace(b"C01", b"C09"),
        lambda text: text.replace(b"T09:15", b"T09:16"),
        lambda text: text + LINES.split(b"\r\n")[1] + b"\r\n",
        lambda text: text.replace(b"10.50", b"abc"),
    ],
)
def test_another_value_is_another_fingerprint(tmp_path: Path, change: Variant) -> None:
    prints = []
    for name, content in (("plain", LINES), ("changed", change(LINES))):
        write_day(tmp_path / name, DAY, content)
        opened = TillFiles(tmp_path / name, CONTRACT).open([DAY])
        prints.append(read_by_duckdb(duck.connect(), CONTRACT, opened, [DAY])[DAY].fingerprint)
    assert prints[0] != prints[1]


@pytest.mark.parametrize(
    ("line", "violation"),
    [
        ("4,C01,abc,2026-09-01T09:00:00", "line 5, column amount, value 'abc': not a number"),
        ("4,C01,NaN,2026-09-01T09:00:00", "line 5, column amount, value 'NaN': not a number"),
        ("4,C01,1e3,2026-09-01T09:00:00", "line 5, column amount, value '1e3': not a number"),
        ("4,C01,10.005,2026-09-01T09:00:00", "line 5, column amount, value '10.005': more than 2 decimals"),
        ("4,C01,123456789.00,2026-09-01T09:00:00", "line 5, column amount, value '123456789.00': overflow: too large"),
        ("4,C01,,2026-09-01T09:00:00", "line 5, column amount, value '': empty"),
        ("4,,1.00,2026-09-01T09:00:00", "line 5, column customer_id, value '': empty"),
        ('4,"",1.00,2026-09-01T09:00:00', "line 5, column customer_id, value '': empty"),
        ("2147483648,C01,1.00,2026-09-01T09:00:00", "line 5, column order_id, value '2147483648': overflow: too large for INT"),
        (",C01,1.00,2026-09-01T09:00:00", "line 5, column order_id, value '': empty"),
        ("4.0,C01,1.00,2026-09-01T09:00:00", "line 5, column order_id, value '4.0': not a whole number"),
        ("٤,C01,1.00,2026-09-01T09:00:00", "line 5, column order_id, value '٤': not a whole number"),
        ("#4,C01,1.00,2026-09-01T09:00:00", "line 5, column order_id, value '#4': not a whole number"),
        ("4,C01,1.00,now", "line 5, column ordered_at, value 'now': not a time written like 2026-09-01T11:45:00"),
        ("4,C01,1.00,2026-09-01", "line 5, column ordered_at, value '2026-09-01': not a time"),
        ("4,C01,1.00,2026-02-30T10:00:00", "line 5, column ordered_at, value '2026-02-30T10:00:00': not a time"),
        ("4,C01,1.00,2026-09-01T25:61:00", "line 5, column ordered_at, value '2026-09-01T25:61:00': not a time"),
        ("4,C01,1.00,2026-09-01T09:00:00Z", "line 5, column ordered_at, value '2026-09-01T09:00:00Z': not a time"),
        ("4,Acme, Inc,1.00,2026-09-01T09:00:00", "line 5: 5 fields, expected 4"),
        ("4,C01", "line 5: 2 fields, expected 4"),
        ("4,C01,1.00,2026-09-01T09:00:00,", "line 5: 5 fields, expected 4"),
    ],
)
def test_a_value_that_does_not_fit_is_named(tmp_path: Path, line: str, violation: str) -> None:
    """C04, C09, C13, C15, C19, C25 to C29, C41, C43: line, column, value and reason; one row, one violation here."""
    write_day(tmp_path, DAY, LINES + line.encode() + b"\r\n")
    opened = TillFiles(tmp_path, CONTRACT).open([DAY])
    con = duck.connect()
    reading = read_by_duckdb(con, CONTRACT, opened, [DAY])[DAY]
    assert (reading.records, reading.failing + reading.quarantined, reading.good) == (4, 1, 3)
    found = [str(each) for row in bad_rows(con, CONTRACT, opened, DAY, -1) for each in row.violations]
    assert len(found) == 1
    assert found[0].startswith(violation)


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    """Blank lines and line ends inside quotes move the line number, not the record number."""
    write_day(tmp_path, DAY, f'{HEADER}\n\n1,"C\n0\r\n1",1.00,2026-09-01T09:00:00\n2,C02,x,2026-09-01T09:00:00\n')
    opened = TillFiles(tmp_path, CONTRACT).open([DAY])
    con = duck.connect()
    assert read_by_duckdb(con, CONTRACT, opened, [DAY])[DAY].records == 2
    (row,) = bad_rows(con, CONTRACT, opened, DAY, -1)
    assert [str(each) for each in row.violations] == ["line 6, column amount, value 'x': not a number"]
    assert opened.records(DAY, [1])[1].text == '1,"C\n0\r\n1",1.00,2026-09-01T09:00:00'


@pytest.mark.parametrize("size", [40, 64, 333])
def test_a_quote_across_chunks_is_seen_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Files are looked through in pieces; where a piece ends must not matter."""
    lines = "".join(f'{n},"C,""{n}""\né",1.00,2026-09-01T09:00:00\r\n' for n in range(20))
    write_day(tmp_path, DAY, f"{HEADER}\n{lines}")
    monkeypatch.setattr("shop_pipeline.core.sources.till_files.CHUNK", size)
    opened = TillFiles(tmp_path, CONTRACT).open([DAY])
    assert not opened.refused
    assert opened.files[DAY].text.multiline


@pytest.mark.parametrize("width", [10, LONG_LINE - 200, LONG_LINE + 200, 40 * 1024 * 1024])
def test_a_line_may_be_long(tmp_path: Path, width: int) -> None:
    """DuckDB refuses a line that is longer than it was told of."""
    write_day(tmp_path, DAY, f"{UNIX}9,{'C' * width},1.00,2026-09-01T09:00:00\n10,C,1.00,2026-09-01T09:00:00\n")
    opened = TillFiles(tmp_path, CONTRACT).open([DAY])
    assert opened.files[DAY].text.long == (width > LONG_LINE)
    assert read_by_duckdb(duck.connect(), CONTRACT, opened, [DAY])[DAY].good == 5


@pytest.mark.parametrize("chunk", [64, 99, 1 << 20])
@pytest.mark.parametrize("part", [50, 64, 4096])
@pytest.mark.parametrize("content", [UNIX, UNIX.rstrip(), LINES.decode()])
def test_lines_are_counted_by_the_part_that_they_begin_in(
    tmp_path: Path, content: str, part: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(till_files, "CHUNK", chunk)
    monkeypatch.setattr(till_files, "SPLIT_BYTES", part)
    write_day(tmp_path, DAY, content)
    counted = [0] * -(-len(content) // part)
    for at in range(1, len(content)):
        counted[(at - 1) // part] += content[at - 1] == "\n"
    assert list(TillFiles(tmp_path, CONTRACT).open([DAY]).files[DAY].text.lines) == counted


@pytest.mark.parametrize("folder", ["landing[eu]", "landing*", "a?b", "it's", "ünï cödé", "{a,b}"])
def test_a_landing_folder_is_taken_by_its_name(tmp_path: Path, folder: str) -> None:
    """C42: nothing in a path is a pattern."""
    write_day(tmp_path / folder, DAY, GOOD)
    write_day(tmp_path / "landinge", DAY, rows_of(DAY, 50, 4))
    opened = TillFiles(tmp_path / folder, CONTRACT).open([DAY])
    assert read_by_duckdb(duck.connect(), CONTRACT, opened, [DAY])[DAY].good == 3
