"""Compaction, vacuum, checkpoints: fewer files, no lost reader, never in a load's way (B7, C68, C70)."""

import shutil
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from shop_pipeline.automation.maintenance import maintain_tables
from shop_pipeline.core import maintenance
from shop_pipeline.core.lake import Lake, data_files, row_count
from shop_pipeline.core.maintenance import RetentionTooShort, tidy
from shop_pipeline.core.verify import compare
from shop_pipeline_tests.builders import rows_of
from shop_pipeline_tests.conftest import CONTRACT, DAILY_SALES, SILVER_ORDERS, Shop, World, run_date
from shop_pipeline_tests.fire import assert_nothing_lost, count_commits, month, put

DAY, NEXT = date(2026, 9, 1), date(2026, 9, 2)
KEYS = [run_date(DAY), run_date(NEXT)]


def split(world: World, table: str, files: int) -> None:
    """Write a table's rows again in many files a day, as another tool might."""
    uri = world.lake.table_uri(table)
    rows = world.spark.session().read.format("delta").load(uri)
    rows.repartition(files).write.format("delta").mode("overwrite").save(uri)


def age(table: DeltaTable, days: int) -> None:
    """Make a table's removed files as old as that: in its log, and on disk."""
    import json
    import os

    root = Path(table.table_uri.removeprefix("file://"))
    ago = int((datetime.now(UTC) - timedelta(days=days)).timestamp())
    for log in (root / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = ago * 1000
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    for file in root.rglob("*.parquet"):
        os.utime(file, (ago, ago))


def test_many_files_become_few_and_no_row_changes(world: World) -> None:
    """B7: and both engines read what it leaves."""
    for day in (DAY, NEXT):
        world.put(day, rows_of(day, 100 * day.day, 8))
    world.run(KEYS)
    split(world, "orders_daily", 4)
    rows = world.query("SELECT * FROM orders_daily ORDER BY ALL")
    tidied = tidy(world.lake, "orders_daily", 720)
    assert tidied is not None
    assert tidied.files_before > 2
    assert tidied.files_after == 2
    assert world.query("SELECT * FROM orders_daily ORDER BY ALL") == rows
    assert world.spark.session().read.format("delta").load(world.lake.table_uri("orders_daily")).count() == 16
    assert world.verdict(DAY).verified
    assert world.recheck(KEYS[0]).success
    assert world.run(KEYS, SILVER_ORDERS, DAILY_SALES).success
    assert world.run(KEYS[:1]).success
    assert tidy(world.lake, "nothing", 720) is None


def test_a_small_day_is_one_file(world: World) -> None:
    """B7: without any maintenance, for a day, a range and what is made of them."""
    put(world.landing, month(0))
    keys = [run_date(day) for day in month(0)]
    assert all(result.ok for result in world.load(keys))
    world.run(keys[:3], SILVER_ORDERS, DAILY_SALES)
    world.run(keys[1:2])
    for table, days in (("orders_daily", 30), ("daily_sales", 3)):
        opened = world.lake.open(table)
        assert opened is not None
        found = data_files(opened)["order_date"].to_pylist()
        assert len(found) == len(set(found)) == days


def test_vacuum_keeps_what_readers_and_time_travel_need(world: World) -> None:
    """C68: refused below the floor, or below what the table promises; old files go, newer ones stay."""
    world.put(DAY, rows_of(DAY, 1, 3))
    world.run(KEYS[:1])
    world.put(DAY, rows_of(DAY, 1, 2))
    world.run(KEYS[:1])
    with pytest.raises(RetentionTooShort, match=r"0 hours are too few for orders_daily: .* 168 hours. Nothing was removed"):
        tidy(world.lake, "orders_daily", 0)
    root = Path(world.lake.table_uri("orders_daily"))
    assert len(list(root.rglob("*.parquet"))) == 2
    young = tidy(world.lake, "orders_daily", maintenance.FLOOR_HOURS)
    assert young is not None
    assert young.removed == 0
    table = world.lake.open("orders_daily")
    assert table is not None
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    with pytest.raises(RetentionTooShort, match="the last 720 hours"):
        tidy(world.lake, "orders_daily", 200)


def test_a_version_that_was_vacuumed_is_not_checked_and_not_wrong(world: World) -> None:
    """C68: the comparison says that the version is gone; the newest is there, and downstream reads that."""
    world.put(DAY, rows_of(DAY, 1, 3))
    world.run(KEYS[:1])
    world.put(DAY, rows_of(DAY, 1, 2))
    world.run(KEYS[:1])
    table = world.lake.open("orders_daily")
    assert table is not None
    age(table, 40)
    tidied = tidy(world.lake, "orders_daily", 720)
    assert tidied is not None
    assert tidied.removed == 1
    source = world.files.source(CONTRACT).open([DAY])
    checked = compare(world.lake, "orders_daily", CONTRACT, source, [DAY], version=0)
    assert not checked.comparisons
    assert "version 0 of the table orders_daily is no longer available" in checked.not_checked[DAY]
    assert world.recheck(KEYS[0]).success
    assert world.run(KEYS[:1], SILVER_ORDERS, DAILY_SALES).success


def test_a_copied_table_goes_back_by_the_version_in_run_log(world: World, tmp_path: Path) -> None:
    """C70: versions are numbers in run_log, not times, which a copy changes."""
    world.put(DAY, rows_of(DAY, 1, 3))
    world.run(KEYS[:1])
    world.put(DAY, rows_of(DAY, 1, 2))
    world.run(KEYS[:1])
    shutil.copytree(world.folder / "lake", tmp_path / "copy")
    versions = [each.delta_version for each in world.log(DAY) if each.status == "succeeded"]
    copy = Lake(str(tmp_path / "copy"))
    counts = []
    for version in (*versions, None):
        table = copy.open("orders_daily", version)
        assert table is not None
        counts.append(row_count(table))
    assert counts == [3, 2, 2]


def test_the_run_log_is_summed_up(world: World) -> None:
    """Two commits a load make many small files; maintenance makes one, and every verdict stands."""
    world.put(DAY, rows_of(DAY, 1, 3))
    world.run(KEYS[:1])
    entry = world.log(DAY)[0]
    for _ in range(12):
        world.ledger.append([entry])
    before = world.log(DAY)
    tidied = tidy(world.lake, "run_log", 720)
    assert tidied is not None
    assert (tidied.files_before, tidied.files_after) == (14, 1)
    assert list((Path(world.lake.table_uri("run_log")) / "_delta_log").glob("*.checkpoint.parquet"))
    assert world.log(DAY) == before


def test_maintenance_and_loads_are_never_in_each_others_way(world: World) -> None:
    """B7: at the same time, again and again: no conflict, no retry, nothing lost."""
    put(world.landing, {day: rows for day, rows in month(0).items() if day <= date(2026, 9, 4)})
    keys = [run_date(day) for day in month(0) if day <= date(2026, 9, 4)]
    assert all(result.ok for result in world.load(keys))
    errors: list[Exception] = []
    rounds = [0]
    done = threading.Event()

    def maintain() -> None:
        try:
            while not done.is_set():
                for name in world.lake.names():
                    tidy(world.lake, name, 720)
                rounds[0] += 1
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        for n in range(6):
            (result,) = world.load([keys[n % 4]])
            assert result.ok
            assert result.retries == 0
    finally:
        done.set()
        thread.join()
    assert not errors
    assert rounds[0] >= 2
    assert_nothing_lost(world.landing, world.lake)
    count_commits(world.lake)


def test_shop_maintain(shop: Shop, shop_without_spark: Shop, tmp_path: Path) -> None:
    ran = shop_without_spark("maintain", "--retention-hours", "24")
    assert ran.status == 2
    assert "readers and time travel need the files of the last 168 hours" in ran.err
    shop("sample")
    shop("load", "2026-09-02")
    shop("load", "2026-09-02")
    ran = shop("maintain")
    assert (ran.status, ran.out.splitlines()[0].split()) == (0, ["table", "files_before", "files_after", "removed"])
    assert ["run_log", "4", "1", "0"] in [line.split() for line in ran.out.splitlines()]
    assert shop("check", "2026-09-02").out == "ok 2026-09-01: 3 rows for the file's 3 orders, 0 missing\n"


def test_the_job_refuses_a_short_retention_too(world: World) -> None:
    world.put(DAY, rows_of(DAY, 1, 3))
    world.run(KEYS[:1])
    result = maintain_tables.execute_in_process(
        instance=world.instance,
        resources={"lake": world.resources["lake"]},
        run_config={"ops": {"tidy_tables": {"config": {"retention_hours": 1}}}},
        raise_on_error=False,
    )
    assert not result.success
