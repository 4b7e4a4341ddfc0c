"""Seconds that a small day takes to be merged into a silver table of so many orders, in a warm process.

    python bench/merge_day.py FOLDER ORDERS

The table has 10,000 orders a day. The day that is merged has 490 new orders and 10 newer rows of older ones, of ten days; a day
like it is merged before, so that the process is warm.
"""

import sys
import time
from datetime import date, timedelta
from pathlib import Path

from shop_pipeline.core import silver
from shop_pipeline.core.contract_file import load_contract
from shop_pipeline.core.days import RUN_DATE
from shop_pipeline.core.lake import Lake
from shop_pipeline.core.load import DailyLoad
from shop_pipeline.core.silver_changes import columns
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline.core.spark import spark_config
from shop_pipeline.resources import ClockResource, SparkResource

A_DAY = 10_000
FIRST = date(2020, 1, 1)


def main(folder: Path, orders: int) -> None:
    """Make the table, merge two days, and print what the second took."""
    contract = load_contract("orders_daily")
    lake = Lake(str(folder / "lake"))
    spark = SparkResource(spark_config=spark_config(master="local[*]", remote=None, memory="2g"))
    session = spark.session()
    made = silver.Silver(lake, contract, RUN_DATE)
    lake.create(silver.TABLE, columns(contract), silver.DESCRIPTION, properties=silver.properties(contract))
    day = f"date_add(DATE '{FIRST}', CAST(id DIV {A_DAY} AS INT))"
    session.range(orders).selectExpr(
        "CAST(id AS INT) AS order_id",
        "concat('C', id % 1000) AS customer_id",
        "CAST(id % 5000 / 100 AS DECIMAL(10, 2)) AS amount",
        f"CAST({day} AS TIMESTAMP) + make_dt_interval(0, 9) AS ordered_at",
        f"{day} AS order_date",
        f"{day} AS _source_day",
        f"CAST({day} AS TIMESTAMP) AS _source_version",
        f"concat({day}, '.csv#', lpad(id % {A_DAY}, 10, '0')) AS _source_seq",
        "current_timestamp() AS _loaded_at",
    ).repartition(8, "order_date").sortWithinPartitions("order_date").write.format("delta").mode("append").save(
        lake.table_uri(silver.TABLE)
    )
    last = FIRST + timedelta(days=orders // A_DAY - 1)
    load = DailyLoad(lake, TillFiles(folder / "landing", contract), contract, RUN_DATE)
    for n in (1, 2):
        new = last + timedelta(days=n)
        rows = [(orders + n * A_DAY + k, new) for k in range(490)]
        rows += [(orders - 1 - k * A_DAY - n, last - timedelta(days=k)) for k in range(10)]
        lines = [f"{number},C01,{n}.00,{of}T10:00:00" for number, of in rows]
        file = folder / "landing" / "orders" / f"{new}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["order_id,customer_id,amount,ordered_at", *lines]) + "\n")
        key = RUN_DATE.key(new)
        load.load(spark.session, [key], run_id="bench", clock=ClockResource().now)
        begin = time.monotonic()
        (merged,) = made.merge(spark.session, [key], run_id="bench", clock=ClockResource().now)
        took = time.monotonic() - begin
        if not merged.ok or merged.changed != {"insert": 490, "update": 10, "fell back": 0, "delete": 0}:
            sys.exit(f"the merge did something else: {merged}")
    print(took)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
