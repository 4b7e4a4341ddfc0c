"""orders_daily through `materialize`, as Dagster's users run it, and the parts under it on real Spark and Delta."""

import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shop_pipeline.core import ledger
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.core.delta_writes import replace_days
from shop_pipeline.core.lake import Lake, data_files, open_by_delta_rs, table_id
from shop_pipeline.core.load import DailyLoad
from shop_pipeline.core.outcome import Status
from shop_pipeline.core.sources import Split
from shop_pipeline.core.sources.till_files import OpenTillFiles, TillFiles
from shop_pipeline.resources import ClockResource, TillFilesResource
from shop_pipeline_tests.builders import HEADER, rows_of, text_of
from shop_pipeline_tests.conftest import DAILY_SALES, ORDERS_DAILY, SILVER_ORDERS, World, evaluations, failure_text, run_date

FIRST, SECOND, THIRD = date(2026, 9, 1), date(2026, 9, 2), date(2026, 9, 3)
KEYS = [run_date(day) for day in (FIRST, SECOND, THIRD)]


def put_three(world: World) -> None:
    for n, day in enumerate((FIRST, SECOND, THIRD)):
        world.put(day, rows_of(day, 100 * (n + 1), n + 2))


def test_one_day_through_materialize(world: World) -> None:
    """A4, A5: the day before the key, the columns and their types, partitioned by the file's day."""
    put_three(world)
    result = world.run(["2026-09-02"], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES)
    assert result.success
    table = world.lake.open("orders_daily")
    assert table is not None
    kinds = [(field.name, str(field.type.type)) for field in table.schema().fields]
    assert kinds == [
        ("order_id", "integer"),
        ("customer_id", "string"),
        ("amount", "decimal(10,2)"),
        ("ordered_at", "timestamp"),
        ("order_date", "date"),
        ("_source_version", "timestamp"),
        ("_source_seq", "string"),
        ("_loaded_at", "timestamp"),
    ]
    assert table.metadata().partition_columns == ["order_date"]
    rows = world.query("SELECT order_id, customer_id, amount, ordered_at, order_date, _source_version FROM orders_daily ORDER BY 1")
    assert [tuple(map(str, row)) for row in rows] == [
        ("100", "C01", "10.50", "2026-09-01 09:15:00", "2026-09-01", "2026-09-01 00:00:00"),
        ("101", "C02", "11.50", "2026-09-01 10:15:00", "2026-09-01", "2026-09-01 00:00:00"),
    ]
    sales = "SELECT order_date, orders, revenue FROM daily_sales"
    assert world.query(sales, "daily_sales") == [(FIRST, 2, rows[0][2] + rows[1][2])]
    assert world.materialized(ORDERS_DAILY) == world.materialized(DAILY_SALES) == {"2026-09-02"}


def test_a_day_says_everything_about_itself(world: World) -> None:
    """Rows, file, fingerprint, commit version and verdict on the materialization, and the same on the check."""
    put_three(world)
    result = world.run(["2026-09-02"])
    (materialization,) = result.asset_materializations_for_node("orders_daily")
    evaluation = evaluations(world.instance, result)["2026-09-02"]
    for metadata in (materialization.metadata, evaluation.metadata):
        values = {name: value.value for name, value in metadata.items()}
        assert values["dagster/partition_row_count"] == 2
        assert values["rows_in_source"] == 2
        assert values["source"].endswith("landing/orders/2026-09-01.csv")
        assert values["fingerprint"].startswith("2:")
        assert values["delta_version"] == world.version()
        assert values["verdict"] == "verified"
        assert (values["day"], values["run_date"]) == ("2026-09-01", "2026-09-02")
        assert (values["changes"], values["rows_added"]) == ("first load", 2)
        assert (values["run"], values["quarantine"]) == (result.run_id, dg.AssetKey("orders_quarantine"))
    assert evaluation.description is not None
    assert evaluation.description.startswith("ok 2026-09-01: 2 rows")
    assert evaluation.passed
    assert evaluation.blocking


def test_a_corrected_day_says_what_changed(world: World) -> None:
    """Against the load before it, with the rows; a day of the same run that did not change says that."""
    put_three(world)
    assert world.run(KEYS).success
    kept, dropped = rows_of(FIRST, 100, 2)
    world.put(FIRST, [(kept[0], kept[1], "99.99", kept[3]), (150, *dropped[1:])])
    result = world.run(KEYS)
    said = {
        each.partition: {name: value.value for name, value in each.metadata.items()}
        for each in result.asset_materializations_for_node("orders_daily")
    }
    assert said[KEYS[0]]["changes"] == "+1 -1 ~1 since version 0"
    assert [said[KEYS[0]][f"rows_{what}"] for what in ("added", "removed", "changed")] == [1, 1, 1]
    rows = [record.data for record in said[KEYS[0]]["changed_rows"].records]
    assert [(row[""], row["key"]) for row in rows] == [("+", "150"), ("-", "101"), ("~", "100")]
    assert rows[2]["values"] == "amount 10.50 → 99.99"
    assert said[KEYS[1]]["changes"] == "none since version 0"
    assert "changed_rows" not in said[KEYS[1]]


def test_a_range_is_one_commit_and_the_same_rows(world: World, tmp_path: Path) -> None:
    """E1: three days, one version; and the same table as by three single runs."""
    put_three(world)
    assert world.run(KEYS).success
    assert world.version() == 0
    seqs = world.query("SELECT order_id, _source_seq FROM orders_daily ORDER BY 1")
    assert seqs[2:5] == [
        (200, "2026-09-02.csv#0000000001"),
        (201, "2026-09-02.csv#0000000002"),
        (202, "2026-09-02.csv#0000000003"),
    ]
    whole = world.query("SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL")
    for key in reversed(KEYS):
        assert world.run([key]).success
    assert world.query("SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL") == whole
    assert world.version() == 3
    table = world.lake.open("orders_daily")
    assert table is not None
    assert data_files(table).num_rows == 3


def test_record_numbers_hold_across_splits_and_reruns(world: World) -> None:
    """D9: a file that Spark cuts into several splits is numbered as one that it does not."""
    rows = [(n, "C01", "1.00", "2026-09-01T09:00:00") for n in range(1, 2001)]
    world.put(FIRST, text_of(rows))
    session = world.spark.session()
    session.conf.set("spark.sql.files.maxPartitionBytes", "9000")
    session.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        assert world.run(["2026-09-02"]).success
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")
        session.conf.unset("spark.sql.files.openCostInBytes")
    wrong = world.query("SELECT count(*) FROM orders_daily WHERE _source_seq <> printf('2026-09-01.csv#%010d', order_id)")
    assert wrong == [(0,)]
    assert world.query("SELECT count(DISTINCT _source_seq) FROM orders_daily") == [(2000,)]


def test_a_bad_day_in_a_range_spoils_no_other(world: World) -> None:
    """E1, E6, C104: the bad day is failed and named, the others are done, and a later range of the good ones runs."""
    put_three(world)
    world.put(SECOND, text_of([*rows_of(SECOND, 200, 1), (201, "C01", "abc", "2026-09-02T09:00:00")]))
    result = world.run(KEYS)
    assert not result.success
    text = failure_text(result)
    assert text.splitlines()[0] == "1 of 3 run dates failed: 2026-09-03."
    assert "2026-09-02.csv, line 3, column amount, value 'abc': not a number. Mend the file and rerun run date 2026-09-03." in text
    assert world.materialized(ORDERS_DAILY) == {KEYS[0], KEYS[2]}
    verdicts = evaluations(world.instance, result)
    assert {key: each.passed for key, each in verdicts.items()} == {KEYS[0]: True, KEYS[1]: False, KEYS[2]: True}
    assert verdicts[KEYS[0]].target_materialization_data is not None
    assert world.orders(SECOND) == []
    assert [world.verdict(day).verified for day in (FIRST, SECOND, THIRD)] == [True, False, True]

    world.put(SECOND, rows_of(SECOND, 200, 3))
    assert world.run([KEYS[1]], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    assert world.materialized(ORDERS_DAILY) == set(KEYS)


def test_a_refused_correction_leaves_the_rows_and_the_verdict(world: World) -> None:
    """A refusal before the commit changes nothing: rows, version, and what may read them."""
    put_three(world)
    world.run([KEYS[0]])
    before, version = world.orders(FIRST), world.version()
    world.put(FIRST, f"{HEADER}\n100,C01,1.00,never\n")
    assert not world.run([KEYS[0]]).success
    assert (world.orders(FIRST), world.version()) == (before, version)
    assert world.verdict(FIRST).verified
    assert world.run([KEYS[0]], SILVER_ORDERS, DAILY_SALES).success


def test_downstream_never_reads_a_day_that_has_not_passed(world: World) -> None:
    """E6, C86: alone, in a range, in one run with its upstream, in a separate run."""
    put_three(world)
    world.put(SECOND, b"")
    world.run(KEYS)
    alone = world.run([KEYS[1]], SILVER_ORDERS, DAILY_SALES)
    assert not alone.success
    assert (
        "2026-09-02 was not merged into silver_orders (run date 2026-09-03): orders_daily is not verified for it"
        in failure_text(alone)
    )
    in_range = world.run(KEYS, SILVER_ORDERS, DAILY_SALES)
    assert not in_range.success
    assert failure_text(in_range).splitlines()[0] == "1 of 3 run dates failed: 2026-09-03."
    assert world.materialized(SILVER_ORDERS) == {KEYS[0], KEYS[2]}
    sales = world.run(KEYS, DAILY_SALES)
    assert "2026-09-02 was not made (run date 2026-09-03): orders_daily cannot be read on for it" in failure_text(sales)
    assert world.materialized(DAILY_SALES) == {KEYS[0], KEYS[2]}
    together = world.run([KEYS[1]], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES)
    assert not together.success
    assert world.query("SELECT order_date FROM daily_sales ORDER BY 1", "daily_sales") == [(FIRST,), (THIRD,)]


def test_append_shows_its_damage_and_closes_the_day(world: World) -> None:
    """A10, C116: rows doubled, nothing materialized by it, logged as failed, unread downstream until a proper load."""
    put_three(world)
    world.run([KEYS[0]], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES)
    done = world.instance.fetch_materializations(ORDERS_DAILY.key, limit=10).records
    result = world.run([KEYS[0]], config={"write_mode": "append"})
    assert result.success
    assert len(world.orders(FIRST)) == 4
    assert len(world.instance.fetch_materializations(ORDERS_DAILY.key, limit=10).records) == len(done)
    assert world.log(FIRST)[-1].problem == "appended, not verified"
    assert world.log(FIRST)[-1].status == ledger.FAILED
    assert not world.run([KEYS[0]], SILVER_ORDERS, DAILY_SALES).success
    assert not world.recheck(KEYS[0]).success
    assert world.run([KEYS[0]], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    assert len(world.orders(FIRST)) == 2


def tamper(world: World, sql: str) -> None:
    """Change the table behind the product's back."""
    table = world.lake.open("orders_daily")
    assert table is not None
    if sql.startswith("DELETE"):
        table.delete(sql.removeprefix("DELETE "))
    else:
        column, value, condition = sql.split("|")
        table.update(updates={column: value}, predicate=condition)


@pytest.mark.parametrize(
    ("change", "line", "detail"),
    [
        ("DELETE order_id = 100", "1 rows for the file's 2 orders, 1 missing", "1 missing in the table: order_id 100 (0 for 1)"),
        (
            "amount|99.99|order_id = 101",
            "2 rows for the file's 2 orders, 0 missing",
            "order_id 101: amount 11.50 in the source, 99.99",
        ),
        (
            "customer_id|'C09'|order_id = 100",
            "2 rows for the file's 2 orders, 0 missing",
            "customer_id C01 in the source, C09 in the table",
        ),
        (
            "ordered_at|'2026-09-01T09:15:01Z'|order_id = 100",
            "2 rows for the file's 2 orders, 0 missing",
            "ordered_at 2026-09-01 09:15:00 in the source, 2026-09-01 09:15:01 in the table",
        ),
        (
            "order_id|999|order_id = 101",
            "2 rows for the file's 2 orders, 1 missing",
            "1 in the table and not in the source: order_id 999",
        ),
        (
            "order_id|100|order_id = 101",
            "2 rows for the file's 2 orders, 1 missing",
            "more often in the table than in the source",
        ),
    ],
)
def test_the_check_compares_contents_both_ways(world: World, change: str, line: str, detail: str) -> None:
    """A12, C86: missing, surplus, doubled and changed, with right counts too; a failed recheck closes the day, a load mends it."""
    put_three(world)
    world.run(KEYS[:2])
    assert world.recheck(KEYS[0]).success
    tamper(world, change)
    result = world.recheck(KEYS[0])
    assert not result.success
    evaluation = evaluations(world.instance, result)[KEYS[0]]
    assert not evaluation.passed
    assert evaluation.description is not None
    assert evaluation.description.splitlines()[0] == f"PROBLEM 2026-09-01: {line}"
    assert detail in evaluation.description
    assert not world.verdict(FIRST).verified
    assert world.verdict(SECOND).verified
    assert not world.run([KEYS[0]], SILVER_ORDERS, DAILY_SALES).success
    world.run([KEYS[0]])
    assert world.recheck(KEYS[0]).success
    assert world.verdict(FIRST).verified


def test_a_check_names_five_examples_and_counts_the_rest(world: World) -> None:
    """A12"""
    world.put(FIRST, [(n, "C01", "1.00", "2026-09-01T09:00:00") for n in range(1, 21)])
    world.run([KEYS[0]])
    tamper(world, "DELETE order_id > 8")
    description = evaluations(world.instance, world.recheck(KEYS[0]))[KEYS[0]].description or ""
    assert "12 missing in the table: order_id 9 (0 for 1), order_id 10" in description
    assert description.count("(0 for 1)") == 5
    assert description.endswith("and 7 more")


def test_repeated_rows_are_compared_as_multisets(world: World) -> None:
    """A15: a row that the file has twice belongs in the table twice."""
    row = (1, "C01", "1.00", "2026-09-01T09:00:00")
    world.put(FIRST, [row, row, (1, "C01", "2.00", "2026-09-01T09:00:00")])
    assert world.run([KEYS[0]]).success
    assert world.recheck(KEYS[0]).success
    assert len(world.orders(FIRST)) == 3


def test_a_check_that_cannot_be_made_is_neither_passed_nor_a_problem(world: World) -> None:
    """A15, C74: no table; no source; a table feature that the independent reader does not know."""
    put_three(world)
    said = {}
    said["no table"] = evaluations(world.instance, world.recheck(KEYS[0]))[KEYS[0]]
    world.run([KEYS[0]])
    (world.landing / "orders" / f"{FIRST}.csv").rename(world.folder / "kept.csv")
    said["no source"] = evaluations(world.instance, world.recheck(KEYS[0]))[KEYS[0]]
    (world.folder / "kept.csv").rename(world.landing / "orders" / f"{FIRST}.csv")
    world.spark.session().sql(
        f"ALTER TABLE delta.`{world.lake.table_uri('orders_daily')}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    said["feature"] = evaluations(world.instance, world.recheck(KEYS[0]))[KEYS[0]]
    for evaluation in said.values():
        assert not evaluation.passed
        assert (evaluation.description or "").startswith("NOT CHECKED 2026-09-01: ")
    assert "there is no table orders_daily" in (said["no table"].description or "")
    assert "is not there" in (said["no source"].description or "")
    assert "Delta feature columnMapping" in (said["feature"].description or "")


def test_folders_are_taken_by_their_names(tmp_path: Path, world: World) -> None:
    """C42: no sign in the landing folder's path is a pattern or an escape, to either engine; the lake's may have most signs."""
    odd = World(tmp_path / "eu it's ü&+,=@ (1)~$!;:", world.spark, world.instance)
    put_three(odd)
    shutil.move(odd.landing, tmp_path / "100%41 [eu]*")
    odd.files = TillFilesResource(landing=str(tmp_path / "100%41 [eu]*"))
    put_three(world)
    world.put(FIRST, rows_of(FIRST, 900, 9))
    assert odd.run(KEYS, ORDERS_DAILY).success
    assert odd.run(KEYS, SILVER_ORDERS, DAILY_SALES).success
    assert odd.recheck(KEYS[0]).success
    assert odd.query("SELECT count(*) FROM orders_daily") == [(9,)]
    assert odd.query("SELECT count(*) FROM daily_sales", "daily_sales") == [(3,)]


def test_every_attempt_is_in_the_run_log(world: World) -> None:
    """D7: a start and an end for each day and attempt, failed ones included."""
    put_three(world)
    world.put(SECOND, b"")
    world.run(KEYS[:2])
    world.run([KEYS[0]])
    world.recheck(KEYS[0])
    rows = [(each.kind, each.status, each.row_count, each.delta_version) for each in world.log(FIRST)]
    assert rows == [
        ("load", "started", None, None),
        ("load", "succeeded", 2, 0),
        ("load", "started", None, None),
        ("load", "succeeded", 2, 1),
        ("check", "succeeded", 2, 1),
    ]
    good = world.log(FIRST)[1]
    assert good.max_event_time == datetime(2026, 9, 1, 10, 15)  # noqa: DTZ001
    assert (good.fingerprint or "").startswith("2:")
    assert (good.quarantined, good.problem, str(good.run_date)) == (0, None, "2026-09-02")
    assert good.duration is not None
    assert good.duration > 0
    (seen,) = world.instance.fetch_observations(dg.AssetKey("run_log"), limit=1).records
    assert seen.event_log_entry.asset_observation is not None
    assert seen.event_log_entry.asset_observation.metadata["dagster/row_count"].value == 7
    failed = world.log(SECOND)[1]
    assert (failed.status, failed.row_count, failed.delta_version) == ("failed", None, None)
    assert "has no header" in (failed.problem or "")


def test_an_error_of_the_engine_is_logged_and_raised(world: World) -> None:
    """D7, D14: a load that raises is in the log as failed; the day keeps its rows and its verdict."""
    put_three(world)
    world.run([KEYS[0]])
    log = world.folder / "lake" / "orders_daily" / "_delta_log"
    table = world.lake.open("orders_daily")
    assert table is not None
    (world.folder / "lake" / "orders_daily" / "_delta_log" / f"{1:020d}.json").mkdir()
    result = world.run([KEYS[0]])
    assert not result.success
    assert world.log(FIRST)[-1].status == ledger.FAILED
    (log / f"{1:020d}.json").rmdir()
    assert world.run([KEYS[0]]).success


class FilesThatChangeOnce(TillFilesResource):
    """The till's files, the first of which is written to while it is being loaded for the first time."""

    def source(self, contract: Any) -> TillFiles:  # noqa: ANN401
        landing = Path(self.landing)

        class Opened(OpenTillFiles):
            def rows_in_spark(self, spark: Any, days: Sequence[date]) -> DataFrame:  # noqa: ANN401
                path = self.files[days[0]].path
                marker = path.with_suffix(".changed")
                if not marker.exists():
                    marker.touch()
                    path.write_bytes(path.read_bytes() + b"109,C05,1.00,2026-09-01T21:00:00\r\n")
                return super().rows_in_spark(spark, days)

        class Files(TillFiles):
            def open(self, days: Sequence[date]) -> OpenTillFiles:
                return Opened(**vars(super().open(days)))

        return Files(landing, contract)


def test_a_file_that_changes_under_the_load_is_read_again(world: World) -> None:
    """A14: nothing of the mixed reading is written; the step's own retry loads the file as it then is."""
    put_three(world)
    world.files = FilesThatChangeOnce(landing=str(world.landing))
    result = world.run([KEYS[0]])
    assert result.success
    statuses = [each.status for each in world.log(FIRST)]
    assert statuses == ["started", "failed", "started", "succeeded"]
    assert "changed while it was loaded" in (world.log(FIRST)[1].problem or "")
    assert world.version() == 0
    assert len(world.orders(FIRST)) == 3


class FilesThatAreMiswrittenOnce(TillFilesResource):
    """The till's files, the first writing of which falsifies an amount on its way into the table."""

    def source(self, contract: Any) -> TillFiles:  # noqa: ANN401
        marker = Path(self.landing) / "miswritten"

        class Opened(OpenTillFiles):
            def with_seq(self, rows: DataFrame, splits: Sequence[Split]) -> DataFrame:
                numbered = super().with_seq(rows, splits)
                if marker.exists():
                    return numbered
                marker.touch()
                return numbered.withColumn("_typed_amount", F.lit("0.01").cast("decimal(10,2)"))

        class Files(TillFiles):
            def open(self, days: Sequence[date]) -> OpenTillFiles:
                return Opened(**vars(super().open(days)))

        return Files(Path(self.landing), contract)


def test_a_mismatch_after_the_commit_is_loaded_again(world: World) -> None:
    """A14: the retry repeats load and check, and the day ends verified; in between it was closed."""
    put_three(world)
    world.files = FilesThatAreMiswrittenOnce(landing=str(world.landing))
    result = world.run([KEYS[0]])
    assert result.success
    log = world.log(FIRST)
    assert [(each.status, each.delta_version) for each in log] == [
        ("started", None),
        ("failed", 0),
        ("started", None),
        ("succeeded", 1),
    ]
    table = world.lake.open("orders_daily")
    assert table is not None
    assert not ledger.verdict(log[:2], table_id(table)).verified
    assert "PROBLEM 2026-09-01: 2 rows for the file's 2 orders, 0 missing" in (log[1].problem or "")
    assert world.orders(FIRST)[0][2] == world.query("SELECT CAST(10.50 AS DECIMAL(10,2))")[0][0]


def test_a_day_that_broke_its_contract_or_has_no_source_is_not_retried(world: World) -> None:
    """A14; and the two are told apart."""
    world.put(FIRST, b"")
    result = world.run(KEYS[:2])
    for day in (FIRST, SECOND):
        assert [each.status for each in world.log(day)] == ["started", "failed"]
    verdicts = {key: each.metadata["verdict"].value for key, each in evaluations(world.instance, result).items()}
    assert verdicts == {KEYS[0]: "refused", KEYS[1]: "missing"}


def test_a_load_that_died_after_its_commit_changes_nothing_on_rerun(world: World) -> None:
    """A14, D7: a start with no end closes the day; loading again leaves the same rows and opens it."""
    put_three(world)
    world.run([KEYS[0]])
    before = world.query("SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL")
    started = world.log(FIRST)[0]
    killed = ledger.Entry(**{**vars(started), "attempt": "killed", "run_at": datetime.now(UTC) + timedelta(seconds=1)})
    world.ledger.append([killed])
    assert not world.verdict(FIRST).verified
    assert not world.run([KEYS[0]], SILVER_ORDERS, DAILY_SALES).success

    class Later(ClockResource):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=2)

    world.clock = Later()
    assert world.run([KEYS[0]], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
    assert world.query("SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL") == before


def test_a_row_outside_the_days_is_refused_by_the_writer(world: World) -> None:
    """A7, C44: DELTA_REPLACE_WHERE_MISMATCH, and nothing changes."""
    put_three(world)
    world.run(KEYS[:2])
    before, version = world.query("SELECT * FROM orders_daily ORDER BY ALL"), world.version()
    rows = world.spark.session().read.format("delta").load(world.lake.table_uri("orders_daily"))
    with pytest.raises(AnalysisException) as raised:
        replace_days(world.lake, "orders_daily", rows, [FIRST], "outside")
    assert raised.value.getCondition() == "DELTA_REPLACE_WHERE_MISMATCH"
    assert (world.query("SELECT * FROM orders_daily ORDER BY ALL"), world.version()) == (before, version)


def test_hostile_session_defaults_change_nothing(world: World) -> None:
    """C17, C19, C48, C73: time parser, zone, overwrite mode and ANSI of the session are not the load's."""
    put_three(world)
    session = world.spark.session()
    hostile = {
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.session.timeZone": "Australia/Melbourne",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.ansi.enabled": "false",
        "spark.databricks.delta.schema.autoMerge.enabled": "true",
    }
    for name, value in hostile.items():
        session.conf.set(name, value)
    world.run(KEYS)
    for name, value in hostile.items():
        session.conf.set(name, value)
    world.put(FIRST, rows_of(FIRST, 100, 1))
    world.run([KEYS[0]])
    assert [str(row[3]) for row in world.orders(FIRST)] == ["2026-09-01 09:15:00"]
    assert len(world.orders(SECOND)) == 3


def test_a_load_that_cannot_be_verified_closes_its_day(world: World) -> None:
    """A15: its data files are lost right after the commit; the earlier verdict must not stand for what is there now."""
    put_three(world)
    world.run([KEYS[0]])
    assert world.verdict(FIRST).verified

    def losing(url: str, version: int | None) -> DeltaTable:
        table = open_by_delta_rs(url, version)
        if url.endswith("orders_daily") and version == 1:
            for file in data_files(table)["file"].to_pylist():
                Path(file).unlink(missing_ok=True)
        return table

    contract = load_contract("orders_daily")
    daily = DailyLoad(Lake(world.lake.uri, losing), world.files.source(contract), contract, RUN_DATE)
    (result,) = daily.load(world.spark.session, [KEYS[0]], run_id="lost", clock=world.clock.now)
    assert result.status is Status.NOT_CHECKED
    assert "the table orders_daily in" in result.sentence
    assert not world.verdict(FIRST).verified
    assert not world.run([KEYS[0]], SILVER_ORDERS, DAILY_SALES).success
    assert world.run([KEYS[0]], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success


def test_a_run_without_a_run_date_says_so(world: World) -> None:
    """C7, C115: nothing guesses today or yesterday."""
    result = dg.materialize([ORDERS_DAILY], instance=world.instance, resources=world.resources, raise_on_error=False)
    assert not result.success
    assert failure_text(result) == "No run date was given: choose which day to load; none is guessed."


def test_days_before_the_first_partition_are_not_there(world: World) -> None:
    with pytest.raises(dg.DagsterUnknownPartitionError):
        world.run(["2026-09-01"])
