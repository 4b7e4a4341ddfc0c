"""A big day is written in one pass of Spark's over its file: what comes out is what two passes make, or nothing at all.

Big is a matter of how Spark cuts files: here it cuts them each 4 KB.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from pyspark.sql import DataFrame

from shop_pipeline.core import load, spark
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.sources import Split, till_files
from shop_pipeline_tests.builders import HEADER
from shop_pipeline_tests.conftest import World

DAY, KEY = date(2026, 9, 1), "2026-09-02"
CUT = 4096
ROWS = "SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL"


@pytest.fixture(autouse=True)
def _small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(till_files, "SPLIT_BYTES", CUT)
    monkeypatch.setitem(spark.SESSION_SETTINGS, "spark.sql.files.maxPartitionBytes", str(CUT))


@pytest.fixture
def _one_pass_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "read_by_spark", _forbidden)


def _forbidden(*_: object) -> None:
    raise AssertionError("Spark read the file beforehand")


def order(number: int, width: int, amount: str = "5.25") -> str:
    """An order as a line of so many bytes, its line feed counted."""
    before, after = f"{number},C", f",{amount},2026-09-01T{8 + number % 12:02d}:{number % 60:02d}:00"
    return before + "0" * (width - 1 - len(before) - len(after)) + after


def text(width: int, *, first: int | None = None, end: str = "\n", count: int = 400) -> str:
    return end.join([HEADER, order(1, first or width), *(order(n, width) for n in range(2, count + 1))]) + end


# Header and first order are 128 bytes together, the others 64 each: a cut is always where a line ends.
TEXTS = {
    "cuts between lines": text(64, first=128 - len(HEADER) - 1),
    "cuts a byte after a line": text(64, first=129 - len(HEADER) - 1),
    "cuts a byte before the end of a line": text(64, first=127 - len(HEADER) - 1),
    "CRLF": text(71, end="\r\n"),
    "no last line end": text(67).removesuffix("\n"),
    "a last line end at a cut": text(64, first=128 - len(HEADER) - 1, count=5 * 64 - 1),
    "quoted fields": text(70).replace(",C", ',"C').replace(",5.25", '",5.25'),
    "a quote in one field": text(62).replace(",C", ',"C', 1).replace(",5.25", '",5.25', 1),
    "fields that are not there, are too many, are empty": text(62)
    + "401\n402,C1,1.00\n403,C1,1.00,2026-09-01T10:00:00,\n404,,5.00,2026-09-01T10:00:00\n405,C1,,2026-09-01T10:00:00\nx\n",
    "blanks around values": text(62) + " 401 , C1 , 1.50 ,2026-09-01T10:00:00\n402,\tC1\t,1.5,2026-09-01T10:00:00\n",
    "not only ASCII": text(62) + "401,Zo\u00eb \u2028\u00a0\U0001f600,1.50,2026-09-01T10:00:00\n",
    "a NUL": text(62) + "401,C\x001,1.50,2026-09-01T10:00:00\n",
    "rows set aside and flagged": text(66)
    + "".join(f"{order(n, 66, amount)}\n" for n, amount in ((401, ""), (402, "-5.00"), (403, "1.00"))),
}


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS)
def test_one_pass_makes_what_two_make(world: World, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put(DAY, content)
    with monkeypatch.context() as once:
        once.setattr(load, "read_by_spark", _forbidden)
        assert world.run([KEY]).success
    of_one_pass = world.query(ROWS)
    with monkeypatch.context() as twice:
        twice.setattr(till_files.OpenTillFiles, "known_splits", lambda *_: None)
        assert world.run([KEY]).success
    assert world.query(ROWS) == of_one_pass
    assert len(of_one_pass) >= 300


@pytest.mark.parametrize(
    "content",
    [text(61).replace("\n200,", "\n\n200,"), text(61).replace(",C0", ',"C\n0', 1).replace("0,5.25", '0",5.25', 1)],
    ids=["a blank line", "a line end in quotes"],
)
def test_what_cannot_be_foreseen_is_read_twice(world: World, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(load, "read_by_spark", lambda *args: read.append(1) or by_spark(*args))
    world.put(DAY, content)
    assert world.run([KEY]).success
    assert read
    assert world.query("SELECT count(*), max(_source_seq) FROM orders_daily") == [(400, "2026-09-01.csv#0000000400")]


by_spark = load.read_by_spark


def _moved(splits: list[Split]) -> list[Split]:
    first, second, *rest = splits
    return [replace(first, records=first.records - 1), replace(second, records=second.records + 1), *rest]


def _a_part_less(splits: list[Split]) -> list[Split]:
    *most, before, last = splits
    return [*most, replace(before, records=before.records + last.records)]


@pytest.mark.parametrize("foreseen", [_moved, _a_part_less])
@pytest.mark.parametrize("content", [text(61), TEXTS["quoted fields"]], ids=["plain", "quoted"])
def test_a_file_cut_otherwise_than_foreseen_is_read_twice(
    world: World, content: str, foreseen: Callable[[list[Split]], list[Split]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is ever numbered wrongly: the job fails before it commits."""
    known = till_files.OpenTillFiles.known_splits
    monkeypatch.setattr(till_files.OpenTillFiles, "known_splits", lambda *args: foreseen(known(*args) or []))
    world.put(DAY, content)
    assert world.run([KEY]).success
    assert world.query("SELECT count(DISTINCT _source_seq), max(_source_seq) FROM orders_daily") == [
        (400, "2026-09-01.csv#0000000400")
    ]
    written = [commit["version"] for commit in world.lake.open("orders_daily").history() if commit.get("userMetadata")]  # type: ignore[union-attr]
    assert len(written) == 1


def _read_otherwise(rows: DataFrame, contract: Contract) -> DataFrame:
    return load_judged(rows, contract).where("order_id <> '7'")


load_judged = load.judged_in_spark


@pytest.mark.usefixtures("_one_pass_only")
@pytest.mark.parametrize("loaded_before", [True, False])
def test_a_day_that_spark_reads_otherwise_is_taken_back(world: World, loaded_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark loses a row: the day is refused, and the table has what it had."""
    if loaded_before:
        world.put(DAY, text(61))
        assert world.run([KEY]).success
    before = world.query(ROWS) if loaded_before else []
    world.put(DAY, text(63))
    with monkeypatch.context() as wrong:
        wrong.setattr(load, "judged_in_spark", _read_otherwise)
        ran = world.run([KEY])
    assert not ran.success
    assert "two engines read" in str(ran.all_events)
    assert "good rows: 400 by DuckDB, 399 by Spark" in str(ran.all_events)
    assert world.query(ROWS) == before
    assert world.run([KEY]).success
    assert len(world.query(ROWS)) == 400


@pytest.mark.usefixtures("_one_pass_only")
def test_a_file_that_changes_while_it_is_written_is_taken_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put(DAY, text(61))
    assert world.run([KEY]).success
    before = world.query(ROWS)
    known = till_files.OpenTillFiles.known_splits

    def known_then_changed(self: till_files.OpenTillFiles, records: dict[date, int]) -> list[Split] | None:
        splits = known(self, records)
        world.put(DAY, text(61).replace("5.25", "6.25"))
        return splits

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(till_files.OpenTillFiles, "known_splits", known_then_changed)
        ran = world.run([KEY])
    assert not ran.success
    assert "changed while it was loaded" in str(ran.all_events)
    assert world.query(ROWS) == before


@pytest.mark.usefixtures("_one_pass_only")
def test_a_commit_of_others_is_not_taken_back_with_ours(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another wrote after us without the lock, ours stays, and the day is closed as not equal to its source."""
    world.put(DAY, text(61))
    unequal = load.unequal

    def after_anothers_commit(*args: object, **named: object) -> str | None:
        found = unequal(*args, **named)  # type: ignore[arg-type]
        table = world.lake.open("orders_daily")
        assert table is not None
        table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 30 days"})
        return found

    with monkeypatch.context() as wrong:
        wrong.setattr(load, "unequal", after_anothers_commit)
        wrong.setattr(load, "judged_in_spark", _read_otherwise)
        ran = world.run([KEY])
    assert not ran.success
    assert "PROBLEM 2026-09-01: 399 rows for the file's 400 orders, 1 missing" in str(ran.all_events)
    assert len(world.query(ROWS)) == 399
