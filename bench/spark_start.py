"""What a cold month is compared with: Spark's start with its defaults, and one trivial Delta table."""

import sys
from pathlib import Path

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession


def main(table: Path) -> None:
    """Start a session as Delta's own guide does, its jars resolved at the start, and write five rows."""
    builder = (
        SparkSession.builder.appName("start")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    spark.range(5).write.format("delta").save(str(table))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
