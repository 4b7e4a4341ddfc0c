"""What Dagster is told: policies over every definition, the names people type, and no warning of ours."""

import subprocess
import sys
from datetime import date
from pathlib import Path

import dagster as dg
import pytest
import time_machine
import yaml

from shop_pipeline.automation.run_launcher import START_SECONDS
from shop_pipeline.partitions import run_dates
from shop_pipeline_tests.conftest import REPOSITORY, clean_environment


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    from shop_pipeline.definitions import defs

    return defs


def test_the_names_people_type(definitions: dg.Definitions) -> None:
    keys = {key.to_user_string() for key in definitions.resolve_all_asset_keys()}
    assert keys == {
        *("orders_daily", "orders_quarantine", "silver_orders", "daily_sales", "late_arrivals", "restatements"),
        *("shopflow/orders_daily", "shopflow/orders_quarantine", "shopflow/orders_per_day"),
        "run_log",
    }
    assert {job.name for job in definitions.jobs or []} == {
        *("till_pipeline", "shopflow_pipeline"),
        *("recheck_days", "recheck_shopflow_days", "check_feeds", "maintain_tables"),
    }
    schedules = list(definitions.schedules or [])
    assert {schedule.name for schedule in schedules} == {
        *("till_daily", "shopflow_daily", "check_feeds_every_3_hours", "maintain_tables_weekly"),
    }
    assert all(schedule.default_status is dg.DefaultScheduleStatus.STOPPED for schedule in schedules)
    sensors = list(definitions.sensors or [])
    assert {sensor.name for sensor in sensors} == {
        "till_file_sensor",
        "till_correction_radar",
        "shopflow_correction_radar",
        "alerts",
    }
    assert all(sensor.default_status is dg.DefaultSensorStatus.STOPPED for sensor in sensors)
    checks = {key.to_user_string() for key in definitions.resolve_asset_graph().asset_check_keys}
    names = ("check_day", "volume", "null_rate", "key_uniqueness", "value_distribution", "freshness", "no_day_missing")
    assert checks == {
        *(f"{table}orders_daily:{name}" for table in ("", "shopflow/") for name in names),
        "silver_orders:order_id_is_unique",
        "silver_orders:reconciles_with_bronze",
        "daily_sales:equals_silver",
    }


def test_every_asset_says_what_it_is_and_whose(definitions: dg.Definitions) -> None:
    for spec in definitions.resolve_all_asset_specs():
        assert spec.description, spec.key
        assert spec.group_name in ("till", "shopflow"), spec.key
        assert spec.owners, spec.key
        assert spec.kinds, spec.key
        assert spec.metadata.get("dagster/table_name"), spec.key
        assert spec.metadata.get("dagster/column_schema"), spec.key
    for job in definitions.jobs or []:
        assert job.description


def test_checks_block_where_the_contract_says_fail(definitions: dg.Definitions) -> None:
    """D5: each has a result a day, but those about a whole table or feed: a backfill of old days says nothing of freshness."""
    graph = definitions.resolve_asset_graph()
    specs = {key.name: graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key.path[0] != "shopflow"}
    assert {name for name, spec in specs.items() if spec.blocking} == {
        "check_day",
        "null_rate",
        "order_id_is_unique",
        "reconciles_with_bronze",
        "equals_silver",
    }
    of_tables = {name for name, spec in specs.items() if spec.partitions_def is None}
    assert of_tables == {"freshness", "no_day_missing", "order_id_is_unique", "equals_silver"}
    assert all(spec.description for spec in specs.values())
    web = {key.name: graph.get_check_spec(key) for key in graph.asset_check_keys if key.asset_key.path[0] == "shopflow"}
    assert {name for name, spec in web.items() if spec.blocking} == {"check_day", "null_rate", "volume", "key_uniqueness"}


def test_the_ui_shows_the_contracts_columns(definitions: dg.Definitions) -> None:
    """Types, descriptions and constraints come from the contract file."""
    (spec,) = [each for each in definitions.resolve_all_asset_specs() if each.key == dg.AssetKey("orders_daily")]
    schema = spec.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema)
    key, customer, amount, *_ = schema.columns
    assert (key.name, key.type, key.constraints.unique, key.constraints.nullable) == ("order_id", "INT", True, False)
    assert "empty: quarantine" in customer.constraints.other
    assert "overflow: too large for DECIMAL(10,2): fail" in amount.constraints.other
    assert all(column.description for column in schema.columns)


def test_columns_are_traced_from_gold_to_the_loaded_table(definitions: dg.Definitions) -> None:
    """Each column that is made of others names them, they are there, and every column of every table is described."""
    specs = {each.key: each for each in definitions.resolve_all_asset_specs()}
    columns = {key: spec.metadata["dagster/column_schema"].columns for key, spec in specs.items()}
    traced = {
        key: spec.metadata["dagster/column_lineage"] for key, spec in specs.items() if "dagster/column_lineage" in spec.metadata
    }
    assert {key.to_user_string() for key in traced} == {"silver_orders", "daily_sales", "shopflow/orders_per_day"}
    for key, lineage in traced.items():
        assert set(lineage.deps_by_column) <= {column.name for column in columns[key]}, key
        assert all(column.description for column in columns[key]), key
        for dep in [each for deps in lineage.deps_by_column.values() for each in deps]:
            assert dep.column_name in {column.name for column in columns[dep.asset_key]}, (key, dep)
    revenue = traced[dg.AssetKey("daily_sales")].deps_by_column["revenue"]
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in revenue] == [("silver_orders", "amount")]
    day = traced[dg.AssetKey("silver_orders")].deps_by_column["order_date"]
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in day] == [("orders_daily", "ordered_at")]


def test_the_ui_leads_to_the_code_and_the_contract(definitions: dg.Definitions) -> None:
    for spec in definitions.resolve_all_asset_specs():
        if "spark" not in spec.kinds:
            continue
        places = spec.metadata["dagster/code_references"].code_references
        assert [each.label for each in places][-1] == "contract", spec.key
        for place in places:
            line = Path(place.file_path).read_text().splitlines()[place.line_number - 1]
            assert place.label == "contract" or "def " in line, (spec.key, line)


@pytest.mark.parametrize(
    ("today", "last"),
    [
        (date(2026, 1, 1), "2026-10-01"),
        (date(2026, 9, 30), "2026-10-01"),
        (date(2026, 10, 1), "2026-10-01"),
        (date(2026, 10, 2), "2026-10-02"),
        (date(2027, 3, 28), "2027-03-28"),
    ],
)
def test_run_dates_start_at_a_constant_and_reach_the_sample(today: date, last: str) -> None:
    """B1, C81, C106: whatever the clock says, September can be loaded; later, today is the newest run date."""
    with time_machine.travel(f"{today}T23:30:00+00:00", tick=False):
        partitions = run_dates(date(2026, 9, 2), today)
        assert partitions.get_first_partition_key() == "2026-09-02"
        assert partitions.get_last_partition_key() == last
        assert partitions.has_partition_key("2026-09-15")


def test_definitions_load_without_a_warning_of_ours(tmp_path: Path) -> None:
    """As `dagster dev` loads them; and dg's own check of the project passes."""
    code = "import warnings; warnings.simplefilter('default'); import shop_pipeline.definitions"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert "shop_pipeline" not in done.stderr
    assert "Preview" not in done.stderr


def test_dg_check_defs_passes() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "dg"), "check", "defs"],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "All definitions loaded successfully" in done.stdout + done.stderr


def test_the_shipped_instance_has_no_telemetry_and_no_welcome() -> None:
    shipped = (REPOSITORY / "shop_pipeline" / "dagster.yaml").read_text()
    assert shipped == (REPOSITORY / "dagster_home" / "dagster.yaml").read_text()
    settings = yaml.safe_load(shipped)
    assert settings["telemetry"] == {"enabled": False}
    assert settings["nux"] == {"enabled": False}
    assert settings["run_retries"]["retry_on_asset_or_op_failure"] is False
    runs = settings["concurrency"]["runs"]
    assert runs["tag_concurrency_limits"] == [
        {"key": "dagster/backfill", "limit": 1},
        {"key": "shop/source", "value": {"applyLimitPerUniqueValue": True}, "limit": 1},
    ]
    assert runs["max_concurrent_runs"] > 1
    assert settings["run_monitoring"]["enabled"]
    assert settings["run_monitoring"]["start_timeout_seconds"] == START_SECONDS
