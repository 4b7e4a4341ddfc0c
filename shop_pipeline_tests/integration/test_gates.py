"""What keeps whole days out, what the checks say, where columns change, and what is set aside: through the real asset."""

import os
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shop_pipeline.assets import till
from shop_pipeline.assets.daily_load import CHECK
from shop_pipeline.checks.freshness import freshness_check
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.sources.till_files import OpenTillFiles, TillFiles
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import ClockResource, TillFilesResource
from shop_pipeline_tests.builders import HEADER, contract_that_quarantines, contract_with, rows_of, text_of
from shop_pipeline_tests.conftest import CONTRACT, FEED, World, evaluations, failure_text, run_date
from shop_pipeline_tests.test_sample import COUNTS

FIRST = date(2026, 9, 1)
PARTITIONS = run_dates(date(2026, 9, 2), date(2026, 11, 30))
FLAG, FAIL = (f"customProperties: [{{property: onViolation, value: {action}}}]" for action in ("flag", "fail"))
CHECKS = (CHECK, "volume", "null_rate", "key_uniqueness", "value_distribution")


def day(n: int) -> date:
    """The nth day from FIRST on."""
    return FIRST + timedelta(days=n)


def assets(contract: Contract) -> tuple[dg.AssetsDefinition, dg.AssetsDefinition, dg.AssetsDefinition]:
    feed = till.till_feed(contract, PARTITIONS)
    return till.orders_daily(feed), till.silver_orders(feed), till.daily_sales(feed)


def put_counts(world: World, counts: Sequence[int], first: int = 0) -> list[str]:
    """Files with so many good orders; gives their run dates."""
    for n, count in enumerate(counts, start=first):
        rows = [(1000 * n + i, f"c{i % 7}", f"{i}.00", f"{day(n)}T09:00:{i % 60:02d}") for i in range(count)]
        world.put(day(n), text_of(rows))
    return [run_date(day(first + n)) for n in range(len(counts))]


def verdicts(world: World, result: dg.ExecuteInProcessResult, check: str) -> dict[str, tuple[bool, str, str]]:
    """(passed, severity, sentence) of a check for each partition of a run."""
    found = evaluations(world.instance, result, check)
    return {key: (each.passed, each.severity.value, each.description or "") for key, each in found.items()}


def messages(world: World, result: dg.ExecuteInProcessResult) -> list[str]:
    """What a run logged."""
    return [entry.user_message for entry in world.instance.all_logs(result.run_id)]


def test_september_is_flagged_where_its_band_is_left(world: World) -> None:
    """D4 to D6: five checks a day, the 7th and the 29th warn, nothing fails; the keys' line is in the log of each day."""
    keys = put_counts(world, COUNTS)
    result = world.run(keys)
    assert result.success
    warned = {key: text for key, (passed, severity, text) in verdicts(world, result, "volume").items() if not passed}
    assert warned == {
        "2026-09-08": "2026-09-07: 5 rows is outside 50-150% of the 7-run median (3)",
        "2026-09-30": "2026-09-29: 5 rows is outside 50-150% of the 7-run median (3)",
    }
    assert {severity for _, severity, _ in verdicts(world, result, "volume").values()} == {"WARN"}
    for check in CHECKS:
        assert set(verdicts(world, result, check)) == set(keys)
    assert "2026-09-01 (run date 2026-09-02)\nRows: 3, null keys: 0, keys with duplicates: 0" in messages(world, result)
    # Judged by the run log's history, one day alone is judged alike.
    again = world.run(["2026-09-08"])
    assert again.success
    assert verdicts(world, again, "volume")["2026-09-08"][2] == warned["2026-09-08"]


def test_a_band_that_fails_refuses_days_and_leaves_them_out_of_the_baseline(world: World) -> None:
    """D4, D6: the exact words; nothing of these days is written, and the other 25 feed gold."""
    strict, *_ = assets(contract_with((f"previous days}}\n        {FLAG}", f"previous days}}\n        {FAIL}")))
    result = world.run(put_counts(world, COUNTS), strict)
    lines = failure_text(result).splitlines()
    assert lines[0] == "5 of 30 run dates failed: 2026-09-08, 2026-09-09, 2026-09-10, 2026-09-30, 2026-10-01."
    assert [line for line in lines if line.startswith("Quality gate:")] == [
        "Quality gate: 5 rows is outside 50-150% of the 7-run median (3)",
        "Quality gate: 6 rows is outside 50-150% of the 7-run median (3)",
        "Quality gate: 5 rows is outside 50-150% of the 7-run median (3)",
        "Quality gate: 5 rows is outside 50-150% of the 7-run median (3)",
        "Quality gate: 6 rows is outside 50-150% of the 7-run median (3)",
    ]
    assert "set the volume's onViolation to flag in changed.yaml and rerun run date 2026-09-08." in failure_text(result)
    assert world.query("SELECT count(DISTINCT order_date) FROM orders_daily") == [(25,)]
    assert verdicts(world, result, "volume")["2026-09-08"][:2] == (False, "ERROR")
    # The limits themselves pass: 3 days of 4, then 2 and 6.
    keys = put_counts(world, [4, 4, 4, 2, 6], first=40)
    assert world.run(keys, strict).success
    # A day whose rows are far too few is refused alone, too, by what the run log knows of the others.
    (key,) = put_counts(world, [1], first=45)
    alone = world.run([key], strict)
    assert failure_text(alone).splitlines()[0] == "Quality gate: 1 rows is outside 50-150% of the 7-run median (4)"


def test_the_first_days_peaks_and_flat_histories(world: World) -> None:
    """C148, C149, C151, C153: in one history, each day by those before it; warnings fail nothing."""
    counts = [10, 10, 10, *[10] * 27, 11, 4, 10, 30, 10, 200, 10, 2, 10]
    keys = put_counts(world, counts)
    result = world.run(keys)
    assert result.success
    said = verdicts(world, result, "volume")
    assert [said[key][2].split(": ", 1)[1] for key in keys[:3]] == [f"10 rows; too little history: {n} of 3 days" for n in range(3)]
    flagged = [counts[n] for n, key in enumerate(keys) if not said[key][0]]
    assert flagged == [4, 30, 200, 2]


def test_a_jump_is_seen_on_the_day_and_on_its_rerun(world: World) -> None:
    """C150: six days of 100, then 130, by 25 %; the tested value is not in its own baseline, loaded once or twice."""
    asset, *_ = assets(contract_with(("mustBeBetween: [50, 150]", "mustBeBetween: [75, 125]")))
    keys = put_counts(world, [100] * 6 + [130])
    for run in (keys, keys[-1:]):
        result = world.run(run, asset)
        assert result.success
        sentence = verdicts(world, result, "volume")[keys[-1]][2]
        assert sentence == "2026-09-07: 130 rows is outside 75-125% of the 7-run median (100)"


def test_a_shut_day_has_nothing_to_check(world: World) -> None:
    """A13, C146, C158: the rules that look for bad rows say so, and the volume warns."""
    world.put(FIRST, f"{HEADER}\n")
    result = world.run([run_date(FIRST)])
    assert result.success
    key = run_date(FIRST)
    for check in ("null_rate", "key_uniqueness", "value_distribution"):
        assert verdicts(world, result, check)[key] == (
            True,
            "ERROR" if check == "null_rate" else "WARN",
            "2026-09-01: nothing to check, the day has no rows",
        )
    assert verdicts(world, result, "volume")[key] == (
        False, "WARN", "2026-09-01: 0 rows, which is never usual (too little history: 0 of 3 days)")  # fmt: skip
    assert verdicts(world, result, CHECK)[key][2] == "ok 2026-09-01: 0 rows for the file's 0 orders, 0 missing"


def test_an_empty_day_can_be_a_failure(world: World) -> None:
    """D4, A13: `empty: fail` keeps the rows, by the exact words."""
    asset, *_ = assets(contract_with(("value: allow", "value: fail")))
    (key,) = put_counts(world, [3])
    world.run([key], asset)
    world.put(FIRST, f"{HEADER}\n")
    result = world.run([key], asset)
    assert failure_text(result) == (
        "Quality gate: orders_daily is empty\n2026-09-01 was not loaded: landing/orders/2026-09-01.csv has no orders. "
        "Send the day's orders and rerun run date 2026-09-02."
    )
    assert len(world.orders(FIRST)) == 3
    # D14: every check has a result, and none of them is a pass.
    for check in CHECKS[2:]:
        assert verdicts(world, result, check)[key] == (False, "WARN", "2026-09-01: not judged, the day was refused")
    assert verdicts(world, result, "volume")[key][2].startswith("2026-09-01: 0 rows, which is never usual")


def test_repeated_keys_can_be_a_failure(world: World) -> None:
    """D3: where the source cannot say which row is the newer, the day is refused and the keys are named."""
    rule = "- metric: duplicateValues\n            mustBe: 0\n            "
    asset, *_ = assets(contract_with((rule + FLAG, rule + FAIL)))
    world.put(FIRST, f"{HEADER}\n7,c1,1.00,2026-09-01T09:00:00\n7,c1,2.00,2026-09-01T09:00:00\n8,c1,1.00,2026-09-01T09:00:00\n")
    result = world.run([run_date(FIRST)], asset)
    assert "2026-09-01.csv, 1 key comes more than once: order_id 7 (2 times). Mend the file" in failure_text(result)
    assert "Rows: 3, null keys: 0, keys with duplicates: 1" in "\n".join(messages(world, result))
    assert world.version() is None


def test_a_column_that_suddenly_has_one_value(world: World) -> None:
    """D5: warned of where it was not so before; where it always was, or history is short, it is only said."""
    keys = put_counts(world, [20] * 5)
    lopsided = [(n, "c1" if n else "c2", f"{n}.00", f"{day(5)}T09:00:{n:02d}") for n in range(20)]
    world.put(day(5), text_of(lopsided))
    keys.append(run_date(day(5)))
    result = world.run(keys)
    assert result.success
    said = verdicts(world, result, "value_distribution")
    assert [said[key][0] for key in keys] == [True] * 5 + [False]
    assert said[keys[5]][1:] == ("WARN", "2026-09-06: customer_id is c1 in 95 % of the rows, usually 15 %")
    (first,) = put_counts(world, [0], first=30)
    world.put(day(30), text_of([(n, "c1", f"{n}.00", f"{day(30)}T09:00:{n:02d}") for n in range(20)]))
    fresh = World(world.folder / "fresh", world.spark, world.instance)
    fresh.files = TillFilesResource(landing=str(world.landing))
    early = fresh.run([first])
    assert "too little history to call it sudden" in verdicts(fresh, early, "value_distribution")[first][2]


def test_a_null_that_got_into_the_table_fails_the_day(world: World) -> None:
    """D5: the null rate is of the rows that landed, whatever put them there."""
    keys = put_counts(world, [3, 3])
    world.run(keys)
    table = world.lake.open("orders_daily")
    assert table is not None
    table.update(updates={"customer_id": "NULL"}, predicate="order_id = 1")
    result = world.recheck_all(keys[0])
    assert verdicts(world, result, "null_rate")[keys[0]] == (False, "ERROR", "2026-09-01: 1 of 3 rows have a null customer_id")
    assert not world.verdict(FIRST).verified
    assert world.verdict(day(1)).verified


COUPON = f"{HEADER},coupon\n1,c1,1.00,2026-09-02T09:00:00,X\n2,c2,2.00,2026-09-02T09:00:00,\n"


def test_a_new_column_is_taken_in_and_held_back(world: World) -> None:
    """D13, C32, C63: bronze has it, older days read NULL; gold fails by the exact words for the day that brought it alone."""
    keys = put_counts(world, [3, 0, 3])
    world.put(day(1), COUPON)
    orders, silver, sales = assets(CONTRACT)
    assert world.run(keys, orders).success
    seen = world.query("SELECT order_date, count(*), count(coupon) FROM orders_daily GROUP BY 1 ORDER BY 1")
    assert seen == [(FIRST, 3, 0), (day(1), 2, 1), (day(2), 3, 0)]
    assert '"added": ["coupon"]' in (world.log(day(1))[-1].drift or "")
    assert world.log(FIRST)[-1].drift is None
    for asset in (silver, sales):
        lines = failure_text(world.run(keys, asset)).splitlines()
        assert lines[0] == "1 of 3 run dates failed: 2026-09-03."
        assert any("Schema drift: new ['coupon'], missing []" in line for line in lines)
        assert world.materialized(asset) == {keys[0], keys[2]}
    assert failure_text(world.run(keys, silver)).splitlines()[1] == "Schema drift: new ['coupon'], missing []"
    assert world.query("SELECT order_date FROM daily_sales ORDER BY 1", "daily_sales") == [(FIRST,), (day(2),)]
    # A recheck changes nothing about it; a contract that knows the column does.
    assert world.recheck(keys[1]).success
    assert not world.run([keys[1]], silver).success
    known = contract_with(
        ("    properties:\n", "    properties:\n      - {name: coupon, logicalType: string, physicalType: STRING}\n"),
        ("value: add", "value: fail"),
    )
    orders, silver, sales = assets(known)
    assert world.run([keys[1]], orders, silver, sales).success
    # Silver has taken the column on; it did not drop it without a word.
    assert world.query("SELECT order_id, coupon FROM silver_orders WHERE coupon IS NOT NULL", "silver_orders") == [(1, "X")]
    # A check also sees a wrong value in such a column.
    table = world.lake.open("orders_daily")
    assert table is not None
    table.update(updates={"coupon": "'Y'"}, predicate="coupon = 'X'")
    orders, *_ = assets(CONTRACT)
    text = verdicts(world, world.recheck_all(keys[1], orders), CHECK)[keys[1]][2]
    assert "order_id 1: coupon X in the source, Y in the table" in text


def test_a_new_column_can_be_left_out_or_refused(world: World) -> None:
    """C32: exactly what the policy says."""
    (key,) = put_counts(world, [0], first=1)
    world.put(day(1), COUPON)
    refusing, *_ = assets(contract_with(("value: add", "value: fail")))
    assert "the header has the unknown column coupon" in failure_text(world.run([key], refusing))
    ignoring, silver, sales = assets(contract_with(("value: add", "value: ignore")))
    assert world.run([key], ignoring, silver, sales).success
    assert "coupon" not in {field.name for field in world.lake.open("orders_daily").schema().fields}  # type: ignore[union-attr]
    assert '"ignored": ["coupon"]' in (world.log(day(1))[-1].drift or "")


def test_a_change_of_type_is_refused(world: World) -> None:
    """D13, C64: both types are named, and nothing is written."""
    keys = put_counts(world, [3, 3])
    world.run(keys)
    asset, *_ = assets(contract_with(("physicalType: DECIMAL(10,2)", "physicalType: DECIMAL(12,4)")))
    before = world.version()
    result = world.run(keys, asset)
    assert "amount is DECIMAL(10,2) in the table and DECIMAL(12,4) in the contract" in failure_text(result)
    assert world.version() == before


def test_a_column_that_the_table_lost_holds_everything_back(world: World) -> None:
    """D13: the exact words, with what is missing."""
    keys = put_counts(world, [3])
    world.run(keys)
    more = contract_with(
        ("    properties:\n", "    properties:\n      - {name: channel, logicalType: string, physicalType: STRING}\n")
    )
    _, silver, _ = assets(more)
    assert failure_text(world.run(keys, silver)).splitlines()[0] == "Schema drift: new [], missing ['channel']"


def test_the_quarantine_is_of_the_day_as_it_is_now(world: World) -> None:
    """D1, C116: a rerun stacks no copies, a mended day leaves none, and check_day knows what must be there."""
    key = run_date(FIRST)
    bad = ("9,,1.00,2026-09-01T09:00:00", "10,c1,1.00,never", "11")
    world.put(FIRST, text_of(rows_of(FIRST, 1, 2), newline="\n") + "\n".join(bad) + "\n")
    for _ in range(2):
        result = world.run([key])
        assert result.success
        held = world.query("SELECT record_number, run_id FROM orders_quarantine ORDER BY 1", "orders_quarantine")
        assert held == [(n, result.run_id) for n in (3, 4, 5)]
    evaluation = evaluations(world.instance, result)[key]
    assert evaluation.description == "ok 2026-09-01: 2 rows for the file's 5 orders, 0 missing, 3 quarantined"
    table = evaluation.metadata["violations"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data for record in table.records] == [
        {"rule": "wrong number of fields", "action": "quarantine", "rows": 1},
        {"rule": "customer_id: empty", "action": "quarantine", "rows": 1},
        {"rule": "ordered_at: not a time written like 2026-09-01T11:45:00", "action": "quarantine", "rows": 1},
    ]
    assert (world.log(FIRST)[-1].quarantined, world.log(FIRST)[-1].row_count) == (3, 2)
    quarantine = world.lake.open("orders_quarantine")
    assert quarantine is not None
    quarantine.delete("record_number = 4")
    text = verdicts(world, world.recheck_all(key), CHECK)[key][2]
    assert text.splitlines()[1] == "  orders_quarantine has 2 of 3 rows that are to be set aside"
    world.put(FIRST, rows_of(FIRST, 1, 2))
    assert world.run([key]).success
    assert world.query("SELECT count(*) FROM orders_quarantine", "orders_quarantine") == [(0,)]


def test_a_refused_day_shows_its_violations_as_a_table(world: World) -> None:
    """The run's page has them by rule, quarantine and flags included."""
    world.put(FIRST, f"{HEADER}\n1,c1,x,2026-09-01T09:00:00\n2,,1.00,2026-09-01T09:00:00\n")
    result = world.run([run_date(FIRST)])
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_failure_data.user_failure_data is not None
    table = failed.step_failure_data.user_failure_data.metadata["violations"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data for record in table.records] == [
        {"partition": "2026-09-02", "rule": "customer_id: empty", "action": "quarantine", "rows": 1},
        {"partition": "2026-09-02", "rule": "amount: not a number", "action": "fail", "rows": 1},
    ]


class FilesThatSparkMisreads(TillFilesResource):
    """The till's files, of which Spark is shown another amount than DuckDB."""

    def source(self, contract: Any) -> TillFiles:  # noqa: ANN401
        class Opened(OpenTillFiles):
            def rows_in_spark(self, spark: Any, days: Sequence[date]) -> DataFrame:  # noqa: ANN401
                rows = super().rows_in_spark(spark, days)
                return rows.withColumn("amount", F.when(F.col("order_id") == "1", F.lit("0.99")).otherwise(F.col("amount")))

        class Files(TillFiles):
            def open(self, days: Sequence[date]) -> OpenTillFiles:
                return Opened(**vars(super().open(days)))

        return Files(Path(self.landing), contract)


def test_a_day_that_two_engines_read_differently_is_refused(world: World) -> None:
    """The counts agree and a sum does not: nothing of that day is written, the other day is."""
    keys = put_counts(world, [2, 2])
    world.files = FilesThatSparkMisreads(landing=str(world.landing))
    text = failure_text(world.run(keys))
    assert "two engines read landing/orders/2026-09-01.csv differently (the sum over amount: 1.00 by DuckDB, 0.99 by Spark)" in text
    assert world.query("SELECT DISTINCT order_date FROM orders_daily") == [(day(1),)]


class At(ClockResource):
    """A clock that stands."""

    time: str

    def now(self) -> datetime:
        return datetime.fromisoformat(self.time).replace(tzinfo=UTC)


def test_freshness_is_of_the_newest_due_day(world: World) -> None:
    """D5, C83, C144: an old day's load neither trips it nor turns it green; no data is a status of its own."""
    check = freshness_check(FEED, UTC)
    orders = till.orders_daily(FEED)
    keys = put_counts(world, [3, 3, 0])
    world.put(day(2), f"{HEADER}\n")

    def status(key: str, at: str) -> tuple[str, bool]:
        world.clock = At(time=at)
        result = world.run([key], orders, more=[check])
        assert result.success
        (found,) = [each for each in result.get_asset_check_evaluations() if each.check_name == "freshness"]
        assert found.severity is dg.AssetCheckSeverity.WARN
        return str(found.metadata["status"].value), found.passed

    assert status(keys[0], "2026-09-02T03:00:00") == ("nothing due", True)
    assert status(keys[0], "2026-09-04T03:00:00") == ("no data", False)
    assert status(keys[1], "2026-09-04T03:00:00") == ("fresh", True)
    assert status(keys[0], "2026-09-04T04:00:00") == ("fresh", True)
    assert status(keys[2], "2026-09-05T03:00:00") == ("no data", False)
    assert status(keys[1], "2026-09-06T03:00:00") == ("no data", False)


def test_the_machines_time_zone_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """C17: the same file under Melbourne's clocks and under UTC's, beside a session that is in Los Angeles."""
    world.put(FIRST, f"{HEADER}\n1,c1,1.00,2026-09-01T00:30:00\n2,c2,1.00,2026-09-01T23:59:59.999999\n")
    tables = []
    for zone in ("UTC", "Australia/Melbourne"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        try:
            world.spark.session().conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
            assert world.run([run_date(FIRST)]).success
            tables.append(world.query("SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL"))
        finally:
            os.environ.pop("TZ")
            time.tzset()
    assert tables[0] == tables[1]
    assert [str(row[3]) for row in tables[0]] == ["2026-09-01 00:30:00", "2026-09-01 23:59:59.999999"]


def test_a_contract_that_sets_keys_aside_keeps_null_keys_out(world: World) -> None:
    """C43, C58, C65: no NULL key in the table, and no crash in mid-write; the day's other rows are loaded."""
    asset, *_ = assets(contract_that_quarantines())
    world.put(FIRST, f"{HEADER}\n,c1,1.00,2026-09-01T09:00:00\n2,c2,,2026-09-01T09:00:00\n3,c3,1.00,2026-09-01T09:00:00\n")
    for _ in range(2):
        assert world.run([run_date(FIRST)], asset).success
    assert [row[0] for row in world.orders(FIRST)] == [3]
