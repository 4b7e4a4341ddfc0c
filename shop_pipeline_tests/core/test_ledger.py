"""What run_log's rows say of a day."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from shop_pipeline.core import ledger as run_log
from shop_pipeline.core.attempts import Attempt
from shop_pipeline.core.lake import Lake, data_files
from shop_pipeline.core.ledger import APPEND, CHECK, COLUMNS, FAILED, LOAD, MERGE, STARTED, SUCCEEDED, TABLE, Entry, Ledger, verdict
from shop_pipeline_tests.stopped import query, stopped_within

DAY = date(2026, 9, 1)
TABLE_ID = "the-table"
NOON = datetime(2026, 9, 2, 12, tzinfo=UTC)


def entry(minute: int, attempt: str, status: str, version: int | None = None, kind: str = LOAD, table: str = TABLE_ID) -> Entry:
    problem = "it broke" if status == FAILED else None
    at = NOON + timedelta(minutes=minute)
    day = date(2026, 9, 2)
    return Entry("run", at, "orders_daily", 3, None, status, DAY, day, "3:f", 0, problem, version, 1.0, kind, attempt, table)


CASES = {
    "never loaded": ([], None),
    "loaded": ([entry(0, "a", STARTED), entry(1, "a", SUCCEEDED, 1)], 1),
    "started, and killed": ([entry(0, "a", STARTED)], None),
    "killed on a reload": ([entry(0, "a", STARTED), entry(1, "a", SUCCEEDED, 1), entry(2, "b", STARTED)], None),
    "killed, then loaded": ([entry(0, "a", STARTED), entry(1, "b", STARTED), entry(2, "b", SUCCEEDED, 1)], 1),
    "killed, then found good by a check": ([entry(0, "a", STARTED), entry(1, "c", SUCCEEDED, 1, CHECK)], 1),
    "killed, then refused": (
        [
            entry(0, "z", STARTED),
            entry(1, "z", SUCCEEDED, 1),
            entry(2, "a", STARTED),
            entry(3, "b", STARTED),
            entry(4, "b", FAILED),
        ],
        None,
    ),
    "a refused correction leaves the earlier verdict": (
        [entry(0, "a", STARTED), entry(1, "a", SUCCEEDED, 1), entry(2, "b", STARTED), entry(3, "b", FAILED)],
        1,
    ),
    "a mismatch after the commit closes the day": (
        [entry(0, "a", STARTED), entry(1, "a", SUCCEEDED, 1), entry(2, "b", STARTED), entry(3, "b", FAILED, 2)],
        None,
    ),
    "a failed check closes it": ([entry(0, "a", STARTED), entry(1, "a", SUCCEEDED, 1), entry(2, "c", FAILED, 4, CHECK)], None),
    "a check that could not be made changes nothing": (
        [entry(0, "a", STARTED), entry(1, "a", SUCCEEDED, 1), entry(2, "c", FAILED, None, CHECK)],
        1,
    ),
    "a passed check reopens it": (
        [entry(0, "a", SUCCEEDED, 1), entry(2, "c", FAILED, 4, CHECK), entry(3, "d", SUCCEEDED, 4, CHECK)],
        4,
    ),
    "appended": ([entry(0, "a", SUCCEEDED, 1), entry(1, "b", STARTED, kind=APPEND), entry(2, "b", FAILED, 2, APPEND)], None),
    "the later commit decides, not the later row": (
        [entry(0, "a", STARTED), entry(0, "b", STARTED), entry(1, "b", FAILED, 3), entry(2, "a", SUCCEEDED, 2)],
        None,
    ),
    "of a table that was deleted": ([entry(0, "a", SUCCEEDED, 9, table="another")], None),
    "of a table that was deleted and loaded again": (
        [entry(0, "a", SUCCEEDED, 9, table="another"), entry(1, "b", FAILED, 1)],
        None,
    ),
}


@pytest.mark.parametrize(("entries", "version"), CASES.values(), ids=CASES.keys())
def test_verdict(entries: Sequence[Entry], version: int | None) -> None:
    """E6, D7: the latest attempt that wrote, or one that never ended, says whether a day may be read."""
    found = verdict(entries, TABLE_ID)
    assert (found.verified, found.version if found.verified else None) == (version is not None, version)
    assert found.verified == (found.problem is None)


def test_no_table_no_verdict() -> None:
    assert not verdict([entry(0, "a", SUCCEEDED, 1)], None).verified


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    """D7: the columns in their order, and a start before its end even at the same instant."""
    ledger = Ledger(Lake(str(tmp_path / "lake")))
    assert ledger.entries("orders_daily") == []
    ended, started = entry(0, "a", SUCCEEDED, 1), entry(0, "a", STARTED)
    ledger.append([ended, started])
    ledger.append([])
    naive = [each for each in ledger.entries("orders_daily", [DAY])]
    assert [each.status for each in naive] == [STARTED, SUCCEEDED]
    assert naive[1].run_at == ended.run_at.replace(tzinfo=None)
    assert ledger.entries("orders_daily", [date(2026, 9, 5)]) == []
    assert ledger.entries("another") == []
    names = [name for name, _ in COLUMNS]
    assert names[:6] == ["run_id", "run_at", "table_name", "row_count", "max_event_time", "status"]
    assert names[6:13] == ["day", "run_date", "fingerprint", "quarantined", "problem", "delta_version", "duration"]


def files(ledger: Ledger) -> int:
    """How many data files the log has."""
    log = ledger.lake.open(TABLE)
    assert log is not None
    return data_files(log).num_rows


def test_the_log_of_many_runs_is_few_files_and_says_what_it_said(tmp_path: Path) -> None:
    """B7: each run adds files to it, and each load reads it. A reader of before still finds his files."""
    ledger = Ledger(Lake(str(tmp_path / "lake")))
    runs = [[entry(n, f"a{n}", STARTED), entry(n, f"a{n}", SUCCEEDED, n)] for n in range(50)]
    ledger.append(runs[0])
    early = ledger.lake.open(TABLE)
    for run in runs[1:]:
        ledger.append(run)
        assert files(ledger) <= run_log.MANY_FILES
    assert [(each.attempt, each.status) for each in ledger.entries("orders_daily")] == [
        (each.attempt, each.status) for run in runs for each in run
    ]
    assert early is not None
    assert all(Path(file).exists() for file in data_files(early)["file"].to_pylist())


def test_runs_that_write_at_once_lose_nothing_while_it_is_made_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "MANY_FILES", 3)
    ledger = Ledger(Lake(str(tmp_path / "lake")))
    names = [f"{run}-{n}" for run in range(4) for n in range(25)]

    def write(run: int) -> None:
        for name in names[run * 25 : (run + 1) * 25]:
            ledger.append([entry(0, name, STARTED)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert sorted(each.attempt for each in ledger.entries("orders_daily")) == sorted(names)
    assert files(ledger) < len(names)


def test_a_log_that_cannot_be_made_few_files_now_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance holds the log's lock: nobody waits for it, and whoever appends next does what was left."""
    monkeypatch.setattr(run_log, "MANY_FILES", 3)
    ledger = Ledger(Lake(str(tmp_path / "lake")))
    first = entry(0, "a", STARTED)
    with ledger.lake.commit_lock(TABLE):
        for n in range(6):
            ledger.append([replace(first, attempt=f"a{n}")])
        assert files(ledger) == 6
    ledger.append([replace(first, attempt="a6")])
    assert files(ledger) == 1
    assert len(ledger.entries("orders_daily")) == 7


def test_a_server_that_went_away_is_noted_in_a_sentence(tmp_path: Path) -> None:
    """Of silver and gold as of orders_daily: nobody reads gRPC's words at three in the morning."""
    ledger = Ledger(Lake(str(tmp_path / "lake")))
    ledger.append([entry(0, "a", SUCCEEDED, 1)])
    table = DeltaTable(ledger.lake.table_uri(TABLE))
    attempt = Attempt(ledger, "silver_orders", MERGE, "run", lambda: NOON, {DAY: "2026-09-02"})
    attempt.start([DAY], table, table)
    error = SparkConnectGrpcException("<_InactiveRpcError of RPC that terminated with: status = StatusCode.UNAVAILABLE")
    with pytest.raises(SparkConnectGrpcException), attempt.failing("run date 2026-09-02"):
        raise error
    assert [each.problem for each in ledger.entries("silver_orders") if each.status == FAILED] == [
        "The Spark server went away while it was at work: what was not committed is not in the tables. "
        "Run the same days again; `shop up` starts its server anew by itself."
    ]


def test_a_stop_in_a_query_is_noted_as_a_stop(tmp_path: Path) -> None:
    """C96: of what silver and gold make as well; DuckDB's own word of it would be an error."""
    ledger = Ledger(Lake(str(tmp_path / "lake")))
    ledger.append([entry(0, "a", SUCCEEDED, 1)])
    table = DeltaTable(ledger.lake.table_uri(TABLE))
    attempt = Attempt(ledger, "silver_orders", MERGE, "run", lambda: NOON, {DAY: "2026-09-02"})
    attempt.start([DAY], table, table)
    with pytest.raises(KeyboardInterrupt), stopped_within(query), attempt.failing("run date 2026-09-02"):
        query()
    assert [each.problem for each in ledger.entries("silver_orders") if each.status == FAILED] == [
        "it was cancelled (KeyboardInterrupt)"
    ]
