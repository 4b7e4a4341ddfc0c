"""What a big day is compared with: bare Spark reading the typed CSV and writing Delta; nothing judged, nothing verified."""

import sys
from pathlib import Path

from shop_pipeline.core.spark import session_of, spark_config

SCHEMA = "order_id INT, customer_id STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP"


def main(file: Path, table: Path) -> None:
    """Read one file and write it, in the session that the project uses."""
    spark = session_of(spark_config(master="local[*]", remote=None, memory="2g"))
    spark.read.csv(str(file), header=True, schema=SCHEMA).write.format("delta").mode("overwrite").save(str(table))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
