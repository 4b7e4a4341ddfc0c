"""The till's assets: orders_daily, and what is made of it."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from shop_pipeline.assets.daily_load import Feed, column_schema, daily_load
from shop_pipeline.assets.day_events import PROGRESS, CheckOutcome, DayOutcome
from shop_pipeline.assets.made import Made, Result, about, table_metadata
from shop_pipeline.core import gold, lateness, restatements, silver, silver_changes
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.plan import Figures
from shop_pipeline.resources import ClockResource, SparkResource

GROUP = "till"
FIGURES = Figures("daily_sales", {"orders": "count(*)", "revenue": "sum(amount)"}, through="silver_orders")
OWNERS = ["team:shop"]
_OWN_COLUMNS = {
    "order_date": "The day of the order itself, whichever file brought it.",
    "_source_day": "The day whose file the row came from.",
}
_SALES_COLUMNS = {
    "order_date": "The day on which the orders were taken.",
    "orders": "How many orders were taken on it.",
    "revenue": "What they come to.",
    "average_order": "Revenue by order.",
    "first_order_at": "When the first of them was taken, by the till's clock.",
    "last_order_at": "When the last of them was taken, by the till's clock.",
    "data_as_of": "When the figures were made.",
}


def till_feed(contract: Contract, partitions: dg.DailyPartitionsDefinition) -> Feed:
    """The till's files of a run date, loaded into orders_daily."""
    return Feed(contract, RUN_DATE, partitions, source="till_files")


def orders_daily(feed: Feed) -> dg.AssetsDefinition:
    """The till's orders as their files have them."""
    return daily_load(feed, group=GROUP, owners=OWNERS)


def silver_orders(feed: Feed) -> dg.AssetsDefinition:
    """One row per order, of the feed's verified days."""
    known = {column.name: column for column in column_schema(feed.contract).columns}

    def make(spark: SparkResource, lake: Lake, clock: ClockResource, keys: Sequence[str], run_id: str) -> Result:
        merged = silver.Silver(lake, feed.contract, feed.rule).merge(spark.session, keys, run_id=run_id, clock=clock.now)
        late = lateness.overall(lake)
        repeated = sorted({key for day in merged for key in day.repeated_keys})
        said = f"more than once: {', '.join(repeated[: silver.EXAMPLES])}" if repeated else "no order is there twice"
        unique = CheckOutcome(silver.UNIQUE, not repeated, True, said, {"repeated_keys": len(repeated)})
        return [_of_merge(lake, day, late) for day in merged], [unique] if any(day.account for day in merged) else []

    return Made(
        feed,
        silver.TABLE,
        feed.asset,
        f"{silver.DESCRIPTION} A run merges the day of its run date; rows of other days that are newer stay.",
        [
            dg.TableColumn(name, kind, _OWN_COLUMNS.get(name) or known[name].description)
            for name, kind in silver_changes.columns(feed.contract)
        ],
        lineage={
            **{name: [name] for name, _ in silver_changes.columns(feed.contract)},
            "order_date": [event.name if (event := feed.contract.event_time) else "order_date"],
            "_source_day": ["order_date"],
        },
        checks={
            silver.UNIQUE: "No order that a run looked at is in silver more than once.",
            silver.RECONCILES: "Every row of the day is accounted for: in silver, repeated, or older than another day's.",
        },
        of_table=[silver.UNIQUE],
        days_per_run=366,
        group=GROUP,
        owners=OWNERS,
    ).by(make)


def daily_sales(feed: Feed) -> dg.AssetsDefinition:
    """A day's sales, from silver."""

    def make(spark: SparkResource, lake: Lake, clock: ClockResource, keys: Sequence[str], run_id: str) -> Result:
        made = gold.Gold(lake, feed.contract, feed.rule).recompute(spark.session, keys, run_id=run_id, clock=clock.now)
        said = [each for each in made if each.checked]
        for day in said[0].partial if said else ():
            key, name = feed.rule.key(day), feed.contract.sql_name
            known = f"{name} is not verified for it (run date {key})"
            why = known if feed.partitions.has_partition_key(key) else "it lies outside the run dates"
            PROGRESS.warning("warning: %s of %s may be incomplete: %s", gold.TABLE, day, why)
        if said and said[0].lacking:
            PROGRESS.warning(
                "warning: %s lacks %d verified days, the first of run date %s: run `shop backfill` for all run dates",
                silver.TABLE,
                len(said[0].lacking),
                feed.rule.key(said[0].lacking[0]),
            )
        equal = [
            CheckOutcome(gold.EQUALS_SILVER, each.ok, True, each.figures_line, {"days_looked_at": len(each.touched)})
            for each in said[:1]
        ]
        return [_of_figures(lake, day) for day in made], equal

    return Made(
        feed,
        gold.TABLE,
        dg.AssetKey(silver.TABLE),
        f"{gold.DESCRIPTION} A run brings up to date every day that silver's changes have touched.",
        [dg.TableColumn(name, kind, _SALES_COLUMNS[name]) for name, kind in gold.COLUMNS],
        lineage=_lineage_of_sales(feed.contract),
        checks={gold.EQUALS_SILVER: "The figures that a run looked at are what a second engine makes of silver."},
        of_table=[gold.EQUALS_SILVER],
        days_per_run=732,
        group=GROUP,
        owners=OWNERS,
    ).by(make)


def _lineage_of_sales(contract: Contract) -> dict[str, list[str]]:
    amount, time = gold.amount_column(contract), contract.event_time
    return {
        "order_date": ["order_date"],
        "orders": [contract.key],
        **({name: [amount] for name in ("revenue", "average_order")} if amount else {}),
        **({name: [time.name] for name in ("first_order_at", "last_order_at")} if time else {}),
    }


def tables_beside(feed: Feed) -> list[dg.AssetSpec]:
    """The tables that silver's and gold's runs write besides their own, as Dagster shows them."""
    beside = (
        (lateness.TABLE, feed.asset, lateness.DESCRIPTION, lateness.COLUMNS),
        (restatements.TABLE, dg.AssetKey(gold.TABLE), restatements.DESCRIPTION, restatements.COLUMNS),
    )
    return [
        dg.AssetSpec(
            dg.AssetKey(name),
            deps=[upstream],
            description=description,
            group_name=GROUP,
            owners=OWNERS,
            kinds={"deltalake"},
            metadata=table_metadata(name, [dg.TableColumn(*column) for column in columns]),
        )
        for name, upstream, description, columns in beside
    ]


def _of_merge(lake: Lake, merged: silver.MergedDay, late: dict[int, int]) -> DayOutcome:
    verdict = "merged" if merged.ok else "not merged"
    metadata: dict[str, Any] = about(lake, silver.TABLE, RUN_DATE, merged.key, merged.day, verdict)
    account = merged.account
    checks = []
    if account is not None:
        metadata |= {
            "rows_in_bronze": account.rows,
            "rows_in_silver": account.kept,
            "rows_repeated": account.repeated,
            "rows_refused_as_older": account.older,
            **{f"rows_{kind.replace(' ', '_')}": rows for kind, rows in merged.changed.items()},
            "rows_late": merged.late_rows,
            "days_late_at_most": max([0, *merged.spread]),
            "how_late": _how_late(late),
            "delta_version": merged.version,
            "commit_retries": merged.retries,
        }
        if account.amount is not None:
            metadata |= {"amount_in_bronze": float(account.amount), "amount_in_silver": float(account.amount_kept or 0)}
        if account.older_examples:
            metadata["refused_as_older"] = "\n".join(account.older_examples)
        proposal = lateness.propose(late)
        if proposal is not None:
            metadata |= {"proposed_lookback": proposal.lookback, "proposal": f"lookback: {proposal}"}
        checks.append(
            CheckOutcome(
                silver.RECONCILES, account.reconciles, True, f"{merged.day}: {account.line}", {"not_accounted_for": account.wrong}
            )
        )
    if merged.log_line is not None:
        metadata["keys"] = merged.log_line
    return DayOutcome(merged.key, merged.ok, merged.sentence, metadata, merged.retriable, tuple(checks))


def _of_figures(lake: Lake, made: gold.FiguresOfDay) -> DayOutcome:
    metadata: dict[str, Any] = about(
        lake, gold.TABLE, RUN_DATE, made.key, made.day, "made of a verified day" if made.ok else "not made"
    )
    if made.checked:
        metadata |= {
            "orders": 0 if made.figures is None else made.figures.orders,
            "days_looked_at": len(made.touched),
            "days_changed": len(made.changed),
            "days_restated": len(made.restated),
            "delta_version": made.version,
            "commit_retries": made.retries,
            "dagster/row_count": made.rows,
        }
        if made.figures is not None and made.figures.revenue is not None:
            metadata["revenue"] = float(made.figures.revenue)
        if made.partial:
            metadata["warning"] = f"may be incomplete, for their own files are not verified: {', '.join(map(str, made.partial))}"
        if made.restated:
            metadata["restated"] = ", ".join(map(str, made.restated))
    return DayOutcome(made.key, made.ok, made.sentence, metadata, made.retriable)


def _how_late(spread: dict[int, int]) -> dg.TableMetadataValue:
    """How late all rows came, as a small table."""
    total = sum(spread.values())
    return dg.MetadataValue.table(
        [
            dg.TableRecord({"days_late": late, "rows": rows, "percent": round(100 * rows / total, 2)})
            for late, rows in spread.items()
        ]
    )
