"""The job that keeps the lake's tables in order, and its schedule."""

from dataclasses import asdict
from typing import Any

import dagster as dg
from pydantic import Field

from shop_pipeline.assets.daily_load import failing_in_a_sentence
from shop_pipeline.automation.local_runs import close_dead_runs
from shop_pipeline.core import maintenance
from shop_pipeline.core.lake import Lake

RETENTION_HOURS = 30 * 24
OP = "tidy_tables"


class MaintenanceConfig(dg.Config):
    """Run configuration of the job."""

    retention_hours: int = Field(
        default=RETENTION_HOURS,
        description=f"Data files that no version of the last so many hours needs are removed. At least {maintenance.FLOOR_HOURS}.",
    )


@dg.op(name=OP, required_resource_keys={"lake"})
def tidy_tables(context: dg.OpExecutionContext, config: MaintenanceConfig) -> list[dict[str, Any]]:
    """Tidy every table of the lake. Returns what was done to each."""
    lake: Lake = context.resources.lake.lake()
    done = []
    with failing_in_a_sentence():
        for name in lake.names():
            tidied = maintenance.tidy(lake, name, config.retention_hours)
            if tidied is not None:
                done.append(asdict(tidied))
    close_dead_runs(context.instance)
    records = [dg.TableRecord(each) for each in done]
    context.add_output_metadata({"tables": dg.MetadataValue.table(records)} if records else {"tables": 0})
    return done


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Makes few data files of many, removes those that no version of the last days needs, and sums up the tables' logs. "
        "Waits for loads and makes them wait, a table at a time; changes no row."
    ),
)
def maintain_tables() -> None:
    """Tidy every table of the lake."""
    tidy_tables()


def maintenance_schedule(timezone: str) -> dg.ScheduleDefinition:
    """Sunday before dawn, after the till's load of the night. Ships stopped."""
    return dg.ScheduleDefinition(
        name="maintain_tables_weekly",
        job=maintain_tables,
        cron_schedule="0 4 * * 0",
        execution_timezone=timezone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Sundays at 04:00: maintain_tables.",
    )
