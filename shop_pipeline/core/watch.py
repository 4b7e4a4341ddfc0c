"""Which days' sources are new or not what was loaded: the till's files by a listing of the folder, and by reading what changed.

What is remembered between two looks saves work and nothing else. Whether a day was dealt with is read from run_log, so that a
request which came to nothing is made again.
"""

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from shop_pipeline.core.contract import Contract
from shop_pipeline.core.lake import Lake, table_id
from shop_pipeline.core.ledger import APPEND, LOAD, STARTED, Entry, Ledger, loaded
from shop_pipeline.core.reprocess import comparable, content
from shop_pipeline.core.sources import Source
from shop_pipeline.core.sources.till_files import Mark, TillFiles

# So many seconds without a change, and a file is taken for complete; so many, and even one whose last line has no end.
QUIET, LONG_QUIET = 60, 600
# A bigger file is not read in order to see whether it changed: the load will.
BIG_FILE = 512 * 1024 * 1024
CHUNK_DAYS = 200


@dataclass(frozen=True)
class Known:
    """What run_log has of a day: the newest attempt to load it, whether it has rows that are verified, and the contents that
    these were loaded from and that the newest attempt has looked at."""

    newest: Entry
    loaded: bool
    contents: frozenset[str]

    def has(self, found: str | None) -> bool | None:
        """Whether a content is one of these; None when they were hashed otherwise, so that nothing can be said."""
        if found is None or found in self.contents:
            return found is not None
        return None if self.contents and not any(comparable(each, found) for each in self.contents) else False


def known_days(lake: Lake, contract: Contract) -> dict[date, Known]:
    """Every day that was ever tried: what its rows were loaded from, and what its newest attempt looked at."""
    table, log = lake.open(contract.table), Ledger(lake).entries(contract.sql_name)
    rows_from = loaded(log, None if table is None else table_id(table))
    newest = {entry.day: entry for entry in log if entry.kind in (LOAD, APPEND)}
    return {
        day: Known(entry, day in rows_from, frozenset(each for each in (content(rows_from.get(day)), content(entry)) if each))
        for day, entry in newest.items()
    }


@dataclass(frozen=True)
class Wanted:
    """A day that is to be loaded, and what tells this request from others for the same day."""

    day: date
    token: str


@dataclass
class Findings:
    """What a look found: days that `came` (they have no rows yet) and that were `corrected`; what else is to be told.

    `waiting`: days whose files are not complete. `odd`: names that are no day's. `unlike`: days that were loaded under another
    kind of hash. `left`: how many are looked at next time.
    """

    came: list[Wanted] = field(default_factory=list)
    corrected: list[Wanted] = field(default_factory=list)
    waiting: list[date] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    unlike: list[date] = field(default_factory=list)
    left: int = 0


@dataclass
class Memory:
    """Of each day's file: the mark that was last seen, whether it is dealt with, and the content that was read under it."""

    marks: dict[date, Mark] = field(default_factory=dict)
    settled: set[date] = field(default_factory=set)
    contents: dict[date, str] = field(default_factory=dict)
    begun: bool = False

    @classmethod
    def read(cls, path: Path) -> "Memory":
        """What an earlier look left, nothing where there was none or it cannot be read: then all is looked at again."""
        try:
            saved = json.loads(path.read_text())
            marks = {date.fromisoformat(day): (each[0], each[1], each[2]) for day, each in saved["marks"].items()}
            settled = {date.fromisoformat(day) for day in saved["settled"]}
            contents = {date.fromisoformat(day): str(each) for day, each in saved["contents"].items()}
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return cls()
        return cls(marks, settled, contents, begun=True)

    def write(self, path: Path) -> None:
        """Leave it for the next look."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        saved = {
            "marks": {day.isoformat(): list(mark) for day, mark in self.marks.items()},
            "settled": [day.isoformat() for day in sorted(self.settled)],
            "contents": {day.isoformat(): each for day, each in self.contents.items()},
        }
        draft.write_text(json.dumps(saved))
        os.replace(draft, path)


def look_at_files(
    files: TillFiles,
    known: Mapping[date, Known],
    memory: Memory,
    *,
    newest: date,
    now: float,
    time_left: Callable[[], bool],
) -> Findings:
    """Look at the landing folder; `memory` is brought up to date.

    Args:
        newest: the newest day that can have a file. A first look asks for this one of the days that nobody ever loaded: what
            lay there before is for a backfill.
        now: seconds since 1970, as files' times are.
        time_left: False when the rest is to wait for the next look.
    """
    marks, odd = files.listing()
    found, first_look = Findings(odd=odd), not memory.begun
    open_days = []
    for day, mark in sorted(marks.items(), reverse=True):
        seen = memory.marks.get(day)
        if seen != mark:
            memory.settled.discard(day)
            memory.contents.pop(day, None)
        if day in memory.settled:
            continue
        if first_look and day not in known and day != newest:
            memory.settled.add(day)
            continue
        if day > newest:
            found.waiting.append(day)
        elif seen == mark or now - mark[2] / 1e9 > QUIET:
            open_days.append(day)
        else:
            found.waiting.append(day)
    memory.marks, memory.begun = dict(marks), True
    memory.settled &= set(marks)
    for start in range(0, len(open_days), CHUNK_DAYS):
        if not time_left():
            found.left = len(open_days) - start
            break
        _settle(files, open_days[start : start + CHUNK_DAYS], known, memory, found, now)
    return found


def _settle(
    files: TillFiles, days: Sequence[date], known: Mapping[date, Known], memory: Memory, found: Findings, now: float
) -> None:
    """Decide about days whose files are at rest."""
    whole = []
    for day in days:
        if files.ends_with_a_line(day) or now - memory.marks[day][2] / 1e9 > LONG_QUIET:
            whole.append(day)
        else:
            found.waiting.append(day)
    for day in whole:
        if day not in known:
            found.came.append(Wanted(day, "-".join(map(str, memory.marks[day]))))
    unread = [day for day in whole if day in known and day not in memory.contents and memory.marks[day][1] <= BIG_FILE]
    contents = files.fingerprints(unread) if unread else {}
    memory.contents |= contents
    for day in whole:
        if day in known:
            _judge(day, known[day], memory, found)


def _judge(day: date, known: Known, memory: Memory, found: Findings) -> None:
    now = memory.contents.get(day)
    same = known.has(now)
    if now is None:
        # It cannot be read, or is too big to be read for this: an attempt that came after its last change has looked at it.
        same = known.newest.status != STARTED and known.newest.run_at.timestamp() > memory.marks[day][2] / 1e9
    if same is None:
        found.unlike.append(day)
    elif same:
        memory.settled.add(day)
        memory.contents.pop(day, None)
    else:
        token = now or "-".join(map(str, memory.marks[day]))
        wanted = Wanted(day, f"{known.newest.attempt}-{token}")
        (found.corrected if known.loaded else found.came).append(wanted)


def look_at_contents(source: Source, known: Mapping[date, Known], days: Collection[date]) -> Findings:
    """Ask a source for the contents of days that were loaded, and compare them with what was loaded.

    Raises:
        SourceUnavailable, SourceRefused, SettingError: it could not be asked.
    """
    found = Findings()
    asked = sorted(set(days) & set(known))
    for day, now in sorted((source.fingerprints(asked) if asked else {}).items()):
        same = known[day].has(now)
        if same is None:
            found.unlike.append(day)
        elif not same:
            found.corrected.append(Wanted(day, f"{known[day].newest.attempt}-{now}"))
    return found
