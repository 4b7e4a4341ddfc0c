"""The same load on classic Spark and through a Spark Connect server."""

from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from shop_pipeline.core.spark import spark_config
from shop_pipeline.resources import SparkResource
from shop_pipeline_tests.builders import rows_of, text_of
from shop_pipeline_tests.conftest import DAILY_SALES, ORDERS_DAILY, SILVER_ORDERS, Ran, World, evaluations, run_shop
from shop_pipeline_tests.servers import ConnectServer

DAYS = [date(2026, 9, day) for day in (1, 2, 3)]
KEYS = ["2026-09-02", "2026-09-03", "2026-09-04"]
pytestmark = pytest.mark.slow


def test_a_remote_session_needs_no_jars_and_no_master() -> None:
    config = spark_config(master="local[*]", remote="sc://127.0.0.1:15002", memory="2g")
    assert config["spark.remote"] == "sc://127.0.0.1:15002"
    assert not {"spark.master", "spark.driver.extraClassPath"} & set(config)


def load_range(world: World) -> dict[str, bool]:
    """A range with a bad day, then the mended day, a recheck and daily_sales."""
    for n, day in enumerate(DAYS):
        world.put(day, rows_of(day, 100 * (n + 1), n + 2))
    world.put(DAYS[1], text_of([(200, "C01", "abc", "2026-09-02T09:00:00")]))
    result = world.run(KEYS)
    passed = {key: each.passed for key, each in evaluations(world.instance, result).items()}
    world.put(DAYS[1], rows_of(DAYS[1], 200, 3))
    assert world.run([KEYS[1]]).success
    assert world.recheck(KEYS[1]).success
    assert world.run(KEYS, SILVER_ORDERS, DAILY_SALES).success
    assert world.materialized(ORDERS_DAILY) == world.materialized(DAILY_SALES) == set(KEYS)
    return passed


def test_both_sessions_make_the_same_tables(world: World, connect_server: ConnectServer, tmp_path: Path) -> None:
    """In one process a classic session stands, so the remote one runs in a process of its own."""
    passed = load_range(world)
    assert passed == {KEYS[0]: True, KEYS[1]: False, KEYS[2]: True}
    other = tmp_path / "other"
    (other / "landing" / "orders").mkdir(parents=True)
    for day in DAYS:
        name = f"landing/orders/{day}.csv"
        (other / name).write_bytes((tmp_path / name).read_bytes())
    bad = other / "landing" / "orders" / "2026-09-02.csv"
    good = bad.read_bytes()
    bad.write_bytes(b"order_id,customer_id,amount,ordered_at\n200,C01,abc,2026-09-02T09:00:00\n")

    def shop(*arguments: str) -> Ran:
        return run_shop(*arguments, folder=other, SHOP_SPARK_REMOTE=connect_server.url, JAVA_HOME="/nowhere")

    ran = shop("backfill", KEYS[0], KEYS[2])
    assert ran.status == 1, ran.err
    assert ran.out.splitlines()[-1] == "ran 3 runs, 1 failed; orders_daily has 2 days, 6 orders"
    bad.write_bytes(good)
    assert shop("backfill", KEYS[1], KEYS[1]).out == "ran 1 runs, 0 failed; orders_daily has 3 days, 9 orders\n"
    with dg.DagsterInstance.ephemeral() as instance:
        theirs = World(other, SparkResource(spark_config={}), instance)
        everything = "SELECT * EXCLUDE (_loaded_at) FROM orders_daily ORDER BY ALL"
        assert theirs.query(everything) == world.query(everything)
        for table, of_its_run in (("silver_orders", "_loaded_at"), ("daily_sales", "data_as_of")):
            rows = f"SELECT * EXCLUDE ({of_its_run}) FROM {table} ORDER BY ALL"
            assert theirs.query(rows, table) == world.query(rows, table)
