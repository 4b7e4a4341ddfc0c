"""The law of a load, over files that nobody would write by hand: records = rows + rows set aside, or nothing has changed."""

import codecs
import csv
import io
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shop_pipeline.assets import till
from shop_pipeline.core import duck
from shop_pipeline.core.batch import judged, read_by_duckdb
from shop_pipeline.core.contract import Contract, to_duckdb
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.builders import HEADER, contract_that_quarantines, write_day
from shop_pipeline_tests.conftest import CONTRACT, World, evaluations, failure_text, run_date

FIRST = date(2026, 9, 1)
DAYS = 25
PARTITIONS = run_dates(date(2026, 9, 2), date(2026, 11, 30))

ids = st.sampled_from(
    ["1", "2", "3", "007", "+5", "-4", " 6", "6 ", "", " ", "2147483647", "2147483648", "1.0", "1e3", "٤", "#8", "NULL"]
)
customers = st.sampled_from(
    [
        "c1",
        "C01 ",
        "",
        "  ",
        "NULL",
        "\\N",
        "José",
        "a,b",
        'a"b',
        "a\nb",
        "a\rb",
        "日本",
        "\u00a0",
        "\t",
        "\u200b",
        "c1\u00a0",
        "\x00x",
        "x" * 300,
    ]
)
amounts = st.sampled_from(
    ["10.00", "10", "-3.5", "0", "1.005", "1.500", "NaN", "Infinity", "1e3", "99999999.99", "100000000.00", "", "+1", ".5", "5."]
)
times = st.sampled_from(
    ["{D}T09:00:00", "{D}T23:59:59.999999", "{D}T24:00:00", "{D}", "now", "", "2026-02-30T09:00:00", "2026-08-01T00:00:00",
     "2027-01-01T00:00:00", "10000-01-01T00:00:00", "0000-01-01T00:00:00", "0001-01-01T00:00:00", "{D} 09:00:00",
     "{D}T09:00:00Z", "{D}T9:00:00"]
)  # fmt: skip
good = st.sampled_from(["11,c1,1.00,{D}T08:00:00", "12,c2,2.00,{D}T08:30:00", "13,c3,3.00,{D}T09:30:00"])


def quoted(fields: list[str], quoting: int = csv.QUOTE_MINIMAL) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="", quoting=quoting).writerow(fields)  # type: ignore[arg-type]
    return text.getvalue()


rows = st.one_of(
    good,
    good,
    st.tuples(ids, customers, amounts, times).map(lambda each: quoted(list(each))),
    st.tuples(ids, customers, amounts, times).map(
        lambda each: ",".join(f'"{field.replace(chr(34), 2 * chr(34))}"' for field in each)
    ),
    st.lists(st.sampled_from(["1", "c", "", "2.00", "x"]), min_size=1, max_size=7).map(",".join),
    st.sampled_from(["", "   ", HEADER, HEADER.upper(), ",,,", '""', "#", "\x1a", "\x00\x01", '5" pipe', "a;b;c;d"]),
    st.text(st.characters(codec="utf-8", exclude_characters='"\r\n'), max_size=20),
)
broken = st.sampled_from(["", "", "", "", '1,"c,1.00,{D}T09:00:00', '1,c"1,1.00,{D}T09:00:00', "1,\udce9,1.00,{D}T09:00:00"])
ends = st.sampled_from(["\n", "\r\n"])
headers = st.sampled_from(
    [HEADER] * 5 + ["amount,order_id,ordered_at,customer_id", f"{HEADER},coupon", "Order_ID,customer_id,AMOUNT,ordered_at"]
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    header = draw(headers)
    lines = [header, *draw(st.lists(rows, max_size=8)), *([bad] if (bad := draw(broken)) else [])]
    text = "".join(line + draw(ends) for line in lines)
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    mark = codecs.BOM_UTF8 if draw(st.integers(0, 9)) == 0 else b""
    return mark + text.encode(errors="surrogateescape")


def records_in(content: bytes) -> int:
    """How many records a file has, counted by Python's csv reader; lines of blanks and control signs are none."""
    blanks = "".join(map(chr, range(33)))
    text = content.removeprefix(codecs.BOM_UTF8).decode()
    found = list(csv.reader(io.StringIO(text, newline="")))
    return sum(1 for each in found[1:] if each and not (len(each) == 1 and not each[0].strip(blanks)))


@pytest.mark.slow
@pytest.mark.parametrize("contract", [CONTRACT, contract_that_quarantines()], ids=["default", "lenient"])
@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(contents=st.lists(files(), min_size=DAYS, max_size=DAYS))
def test_records_are_rows_and_rows_set_aside(
    spark: SparkResource, tmp_path_factory: pytest.TempPathFactory, contract: Contract, contents: list[bytes]
) -> None:
    """Through the real asset, a range of generated days at a time; check_day agrees with it afterwards."""
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(tmp_path_factory.mktemp("law"), spark, instance)
        asset = till.orders_daily(till.till_feed(contract, PARTITIONS))
        numbered = {FIRST + timedelta(days=n): content for n, content in enumerate(contents)}
        days = {day: content.replace(b"{D}", str(day).encode()) for day, content in numbered.items()}
        for day, content in days.items():
            write_day(world.landing, day, content)
        result = world.run([run_date(day) for day in days], asset)
        passed = {key: each.passed for key, each in evaluations(world.instance, result).items()}
        in_table: dict[date, int] = {}
        aside: dict[date, int] = {}
        if world.version() is not None:
            in_table = dict(world.query("SELECT order_date, count(*) FROM orders_daily GROUP BY 1"))
            aside = dict(world.query("SELECT order_date, count(*) FROM orders_quarantine GROUP BY 1", "orders_quarantine"))
        for day, content in days.items():
            if passed[run_date(day)]:
                assert in_table.get(day, 0) + aside.get(day, 0) == records_in(content), content
            else:
                assert (in_table.get(day, 0), aside.get(day, 0)) == (0, 0), content
        assert any(passed.values())
        # Nothing here is read by one engine in another way than by the other.
        assert result.success or "differently" not in failure_text(result)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=files())
def test_a_row_that_is_called_clean_breaks_no_rule(tmp_path: Path, content: bytes) -> None:
    """The quick way round the rules says of every row what the rules say, one by one, in DuckDB."""
    write_day(tmp_path, FIRST, content.replace(b"{D}", str(FIRST).encode()))
    opened = TillFiles(tmp_path, CONTRACT).open([FIRST])
    if opened.refused:
        return
    con = duck.connect()
    each = " + ".join(f"(CASE WHEN {to_duckdb(rule.broken)} THEN {1 << n} ELSE 0 END)" for n, rule in enumerate(CONTRACT.rules))
    found = con.execute(
        f"SELECT _broken, {each}, {', '.join(map(identifier, CONTRACT.names))} FROM ({judged(con, CONTRACT, opened, [FIRST])})"
    ).fetchall()
    for quick, slow, *values in found:
        assert quick == (slow if quick not in (1, 2) else slow & -slow), values
    assert read_by_duckdb(con, CONTRACT, opened, [FIRST])[FIRST].records == len(found)
