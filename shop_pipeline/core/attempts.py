"""One try at making some days of a table from the table before it, and its rows in the run log."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from deltalake import DeltaTable

from shop_pipeline.core import disk, interrupts
from shop_pipeline.core.errors import in_a_line
from shop_pipeline.core.lake import table_id
from shop_pipeline.core.ledger import FAILED, STARTED, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.spark_remote import lost


@dataclass
class Attempt:
    """What is noted of a try: `start` before anything is written, `close` for each day, `fail` for those still open.

    Args:
        kind: of the ledger's kinds.
        keys: the partition key of each day.
        clock: the time of day, for `run_at` and `duration`.
    """

    ledger: Ledger
    table: str
    kind: str
    run_id: str
    clock: Callable[[], datetime]
    keys: Mapping[date, str]
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    open_days: set[date] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.started_at = self.clock()

    def start(self, days: Sequence[date], table: DeltaTable, upstream: DeltaTable) -> None:
        """Note that these days are being made: until they are closed, nobody reads on from them."""
        self.open_days = set(days)
        self._ids = (table_id(table), table_id(upstream), int(upstream.version()))
        self.ledger.append([self._entry(day, STARTED) for day in days])

    def close(self, ends: Mapping[date, tuple[bool, Mapping[str, Any]]]) -> None:
        """Note how days ended: well or not, and the columns of run_log that say more."""
        seconds = (self.clock() - self.started_at).total_seconds()
        entries = [
            replace(self._entry(day, SUCCEEDED if ok else FAILED), duration=seconds, **more) for day, (ok, more) in ends.items()
        ]
        self.ledger.append(entries)
        self.open_days -= set(ends)

    @contextmanager
    def failing(self, again: str) -> Iterator[None]:
        """Around work that whoever comes next does anew, whatever was committed: an error closes its days as failed.

        Raises:
            DiskFull: no space is left; `again` is what is to be run again then.
        """
        lake = self.ledger.lake.uri
        with disk.full_in_a_sentence(lake, lake, again):
            try:
                with interrupts.kept():
                    yield
            except BaseException as error:
                self.fail(error, None)
                raise

    def fail(self, error: BaseException, version: int | None) -> None:
        """Note an error for the days that are still open. `version`: what was committed all the same."""
        more = {"problem": in_a_line(lost(error) or error), "delta_version": version}
        try:
            self.close({day: (False, more) for day in sorted(self.open_days)})
        except Exception as second:
            # The first error is the one to be told of; the days stay closed, as after a kill.
            error.add_note(f"run_log could not be written to either: {second}")

    def _entry(self, day: date, status: str) -> Entry:
        identity, upstream_id, upstream_version = self._ids
        return Entry(
            run_id=self.run_id,
            run_at=self.started_at if status == STARTED else self.clock(),
            table_name=self.table,
            row_count=None,
            max_event_time=None,
            status=status,
            day=day,
            run_date=date.fromisoformat(self.keys[day]),
            fingerprint=None,
            quarantined=None,
            problem=None,
            delta_version=None,
            duration=None,
            kind=self.kind,
            attempt=self.name,
            table_id=identity,
            upstream_id=upstream_id,
            upstream_version=upstream_version,
        )
