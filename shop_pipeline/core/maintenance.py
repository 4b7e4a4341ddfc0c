"""Keeping tables quick to read and small on disk: fewer files, no files that nobody needs, short logs. No JVM.

Through delta-rs, under the lock that loads commit under, so that neither is ever in the other's way.
"""

import re
from dataclasses import dataclass

from deltalake import DeltaTable

from shop_pipeline.core.errors import ShopError
from shop_pipeline.core.lake import Lake, data_files, row_count

# Below this a reader that is at work, or a version that someone goes back to, may lose its files. Delta's own default.
FLOOR_HOURS = 168
# Commits after which a log is summed up, so that opening a table reads few of them.
COMMITS_PER_CHECKPOINT = 10
_HOURS = {"hour": 1, "day": 24, "week": 168}


class RetentionTooShort(ShopError):
    """Files would be removed that a reader or an older version still needs; nothing was removed."""


@dataclass(frozen=True)
class Tidied:
    """What was done to a table: its data files before and after, and how many old ones were removed from disk."""

    table: str
    files_before: int
    files_after: int
    removed: int


def tidy(lake: Lake, name: str, retention_hours: int) -> Tidied | None:
    """Make few files of many, remove files that no version of the last `retention_hours` needs, and sum up the log.

    Returns:
        What was done; None when there is no such table.

    Raises:
        RetentionTooShort: fewer hours than FLOOR_HOURS, or than the table itself promises.
        TableUnreadable: its log or files are damaged; nothing was changed.
    """
    with lake.commit_lock(name):
        table = lake.open(name)
        if table is None:
            return None
        floor = max(FLOOR_HOURS, _promised_hours(table))
        if retention_hours < floor:
            raise RetentionTooShort(
                f"{retention_hours} hours are too few for {name.replace('/', '.')}: readers and time travel need the files of "
                f"the last {floor} hours. Nothing was removed; give at least --retention-hours {floor}."
            )
        files_before, rows = data_files(table).num_rows, row_count(table)
        if _has_small_files(table):
            table.optimize.compact()
        removed = table.vacuum(retention_hours, dry_run=True, full=True)
        if removed:
            table.vacuum(retention_hours, dry_run=False, full=True)
        if table.version() >= COMMITS_PER_CHECKPOINT:
            table.create_checkpoint()
            table.cleanup_metadata()
        after = lake.open(name)
        # More it may have: run_log is appended to without the lock, which delta-rs makes safe.
        if after is None or row_count(after) < rows:
            raise RuntimeError(f"{name} had {rows} rows before it was compacted, and now has fewer")
        return Tidied(name.replace("/", "."), files_before, data_files(after).num_rows, len(removed))


def _has_small_files(table: DeltaTable) -> bool:
    """Whether a day, or a table without days, lies in more than one file."""
    days = data_files(table)["order_date"].to_pylist()
    return len(days) > len(set(days))


def _promised_hours(table: DeltaTable) -> int:
    text = (table.metadata().configuration or {}).get("delta.deletedFileRetentionDuration", "")
    found = re.fullmatch(r"(?:interval )?(\d+) (hour|day|week)s?", text.strip())
    return int(found[1]) * _HOURS[found[2]] if found else 0
