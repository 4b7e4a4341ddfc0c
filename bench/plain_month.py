"""The plain script that the project is measured against: what one writes first.

One Spark session with Spark's defaults and Delta's jars resolved at its start; then, day by day, a typed read of the CSV, a
replaceWhere, and a check of the day by three Spark jobs. No Dagster, no contract, no log.
"""

import sys
from datetime import date, timedelta
from pathlib import Path

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = "order_id INT, customer_id STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP"
KEYS = ["order_id", "customer_id", "amount", "ordered_at"]


def main(landing: Path, lake: Path, first: date, days: int) -> None:
    """Load and check `days` days from `first` on."""
    builder = (
        SparkSession.builder.appName("plain")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    table = str(lake / "orders_daily")
    for day in [first + timedelta(days=n) for n in range(days)]:
        source = spark.read.csv(str(landing / "orders" / f"{day}.csv"), header=True, schema=SCHEMA)
        rows = source.withColumn("order_date", F.lit(day))
        where = f"order_date = '{day}'"
        rows.write.format("delta").mode("overwrite").partitionBy("order_date").option("replaceWhere", where).save(table)
        loaded = spark.read.format("delta").load(table).where(where).select(*KEYS)
        if loaded.count() != source.count() or source.exceptAll(loaded).count():
            sys.exit(f"{day}: the table differs from the file")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), date.fromisoformat(sys.argv[3]), int(sys.argv[4]))
