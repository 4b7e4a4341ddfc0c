"""What is missing is one line, with the command that runs it: row C8, case C107. No Spark."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg

from shop_pipeline.assets.till import till_feed
from shop_pipeline.checks.missing import MISSING, missing_check
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import LOAD, SUCCEEDED, Entry, Ledger
from shop_pipeline.partitions import run_dates
from shop_pipeline.resources import LakeResource

CONTRACT = load_contract("orders_daily")
FEED = till_feed(CONTRACT, run_dates(date(2026, 9, 2), date(2026, 11, 30)))


@dataclass
class Clock:
    time: datetime

    def now(self) -> datetime:
        return self.time


def test_the_days_that_a_scheduler_missed_are_listed(tmp_path: Path) -> None:
    """C8, C107: it was down for three days; an older gap is in the same line; a day whose deadline is to come is not missing."""
    lake = Lake(str(tmp_path / "lake"))
    lake.create("orders_daily", CONTRACT.table_columns, "the test's")
    table = lake.open("orders_daily")
    assert table is not None
    now = datetime(2026, 9, 21, 2, 30, tzinfo=UTC)
    for n in range(16):
        day = date(2026, 9, 1) + timedelta(days=n)
        if n != 4:
            values = ("run", now, "orders_daily", 3, now, SUCCEEDED, day, day + timedelta(days=1), "3:a:b", 0, None, 0, 1.0, LOAD)
            Ledger(lake).append([Entry(*values, f"a{n}", table_id=table_id(table))])  # type: ignore[arg-type]

    def checked(at: datetime) -> dg.AssetCheckEvaluation:
        resources = {"lake": LakeResource(uri=lake.uri), "clock": dg.ResourceDefinition.hardcoded_resource(Clock(at))}
        with dg.DagsterInstance.ephemeral() as instance:
            defs = dg.Definitions(
                assets=[dg.AssetSpec(FEED.asset)],
                asset_checks=[missing_check(FEED, "till", UTC)],
                jobs=[dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())],
                resources=resources,
            )
            result = defs.resolve_job_def("checks").execute_in_process(instance=instance)
            (found,) = result.get_asset_check_evaluations()
        assert found.check_name == MISSING
        return found

    found = checked(now)
    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.WARN
    assert found.description == (
        "4 of 19 days that are due are not loaded: 2026-09-05, 2026-09-17 to 2026-09-19. "
        "Run them in order: shop backfill 2026-09-06 2026-09-20 --reprocess failed"
    )
    assert checked(datetime(2026, 9, 6, 1, tzinfo=UTC)).passed
