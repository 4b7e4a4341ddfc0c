"""A month for a shopkeeper: what gold says of each day, whether that is all of it, and what is to be seen to. Starts no JVM.

A figure is never made up. What gold holds of a day counts when the day is verified and gold was made of that load; whatever else
is known of a day is shown beside it, and left out of the totals by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from enum import StrEnum
from itertools import groupby
from typing import Any

import duckdb

from shop_pipeline.core import duck, freshness, lateness, quarantine
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import ONE_DAY, KeyRule
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.errors import ShopError, TableUnreadable
from shop_pipeline.core.gold import TABLE as RESTATED_TABLE
from shop_pipeline.core.lake import Lake, check_readable, view
from shop_pipeline.core.ledger import APPEND, FAILED, LOAD, RECOMPUTE, STARTED, SUCCEEDED, Entry, Ledger
from shop_pipeline.core.plan import Figures
from shop_pipeline.core.readable import Readable, readable_days
from shop_pipeline.core.reprocess import backfill_command, behind
from shop_pipeline.core.restatements import TABLE as RESTATEMENTS

# What a gold table has beside the measures, where it has it.
AVERAGE, AS_OF = "average_order", "data_as_of"


class NothingToReport(ShopError):
    """No load of the source was ever tried."""


class DayStatus(StrEnum):
    """What is known of a day, in the words of the page."""

    VERIFIED = "verified"
    KEPT = "earlier load kept"
    BEHIND = "figures not up to date"
    HELD = "held back"
    CLOSED = "not verified"
    REFUSED = "refused"
    MISSING = "missing"
    FAILED = "not loaded"
    NOT_DUE = "not due yet"
    BEFORE = "before the first day"


# Nothing is wrong with these days, and nobody has to do anything about them.
NO_TROUBLE = (DayStatus.VERIFIED, DayStatus.NOT_DUE, DayStatus.BEFORE)
COUNTED = (DayStatus.VERIFIED, DayStatus.KEPT)
_ADVICE = {
    DayStatus.KEPT: "Mend what is named, then load it again",
    DayStatus.BEHIND: "Make the figures again",
    DayStatus.HELD: "Make the contract or the source fit the other, then load it again",
    DayStatus.CLOSED: "Load it again",
    DayStatus.REFUSED: "Mend what is named, then load it again",
    DayStatus.MISSING: "See where its orders are, then load it",
    DayStatus.FAILED: "See to what is named, then load it",
}
_NEVER_TRIED = "nobody has tried to load it"


@dataclass(frozen=True)
class Subject:
    """Whose month it is: a source's name, its feed, its figures, its first day, and the time zone that says what today is."""

    source: str
    contract: Contract
    rule: KeyRule
    figures: Figures
    first: date
    zone: tzinfo

    @property
    def measures(self) -> tuple[str, ...]:
        """The figures of a day that can be added up."""
        return tuple(self.figures.measures)


@dataclass(frozen=True)
class ReportedDay:
    """A day: what gold holds of it (None: nothing) and what that is worth.

    `reason`: what is wrong, in run_log's words. `note`: what is odd though nothing is wrong with the figures. `set_aside`: how many
    rows of its source are in the quarantine.
    """

    day: date
    key: str
    status: DayStatus
    figures: Mapping[str, Any] | None = None
    as_of: datetime | None = None
    set_aside: int = 0
    reason: str | None = None
    note: str | None = None

    @property
    def counted(self) -> bool:
        """Whether its figures are in the totals."""
        return self.status in COUNTED


@dataclass(frozen=True)
class Trouble:
    """Days in a row that are alike: what is wrong with them, what to do, and the command that does it."""

    first: date
    last: date
    status: DayStatus
    reason: str
    advice: str
    command: str


@dataclass(frozen=True)
class RestatedDay:
    """One time that a published figure changed: what it was, what it is, why, and when."""

    day: date
    orders_before: int
    orders_after: int
    revenue_before: Any
    revenue_after: Any
    cause: str
    at: datetime


@dataclass(frozen=True)
class Report:
    """A month, as it stands at `made_at`. `late`: orders by how many days after their own day they came (till alone)."""

    subject: Subject
    made_at: datetime
    columns: tuple[str, ...]
    days: tuple[ReportedDay, ...]
    set_aside: tuple[quarantine.Broken, ...]
    restated: tuple[RestatedDay, ...]
    late: Mapping[int, int]

    @property
    def month(self) -> date:
        """Its first day."""
        return self.days[0].day

    @property
    def counted(self) -> list[ReportedDay]:
        """The days that the totals are of."""
        return [day for day in self.days if day.counted]

    @property
    def left_out(self) -> list[ReportedDay]:
        """The days that are over and not in the totals."""
        return [day for day in self.days if day.status not in (*COUNTED, *NO_TROUBLE)]

    @property
    def expected(self) -> list[ReportedDay]:
        """The days that should be there by now."""
        return [day for day in self.days if day.status not in (DayStatus.NOT_DUE, DayStatus.BEFORE)]

    @property
    def totals(self) -> Mapping[str, Any] | None:
        """The sum of each measure over the days that count; None where none does, which is not the same as zero."""
        counted = [day.figures for day in self.days if day.counted and day.figures is not None]
        if not counted:
            return None
        return {name: sum(each[name] for each in counted if each[name] is not None) for name in self.subject.measures}

    @property
    def as_of(self) -> datetime | None:
        """When the newest of the figures that are shown was made."""
        return max((day.as_of for day in self.days if day.as_of is not None), default=None)

    @property
    def troubles(self) -> list[Trouble]:
        """What is to be seen to, days in a row that share a cause together."""
        found: list[Trouble] = []
        troubled = [day for day in self.days if day.status not in NO_TROUBLE]
        alike = groupby(enumerate(troubled), lambda each: (each[1].status, each[1].reason, each[1].day - each[0] * ONE_DAY))
        for (status, reason, _), group in alike:
            days = [day for _, day in group]
            command = backfill_command(self.subject.source, days[0].key, days[-1].key)
            found.append(Trouble(days[0].day, days[-1].day, status, reason or "", _ADVICE[status], command))
        return found

    def next_command(self, day: ReportedDay) -> str | None:
        """The command that sees to a day; None where nothing is to be done."""
        return None if day.status in NO_TROUBLE else backfill_command(self.subject.source, day.key, day.key)


def collect(lake: Lake, subject: Subject, days: Sequence[date], now: datetime) -> Report:
    """Look at the days of a month.

    Raises:
        NothingToReport: no load of the source was ever tried.
        TableUnreadable, NotChecked: a table cannot be read.
    """
    try:
        return _Collecting(lake, subject, days, now).run()
    except duckdb.Error as error:
        raise TableUnreadable(
            f"a table in {lake.uri} cannot be read ({' '.join(str(error).split())[:200]}). Bring back the missing or damaged file, "
            "or move the table's folder away and make all its days again (`shop backfill`)"
        ) from None


@dataclass
class _Collecting:
    """One look at a month."""

    lake: Lake
    subject: Subject
    days: Sequence[date]
    now: datetime

    def __post_init__(self) -> None:
        self.contract, self.ledger = self.subject.contract, Ledger(self.lake)
        self.con = duck.connect()

    def run(self) -> Report:
        """The verdicts first, then the figures: what is loaded in between makes figures newer than their verdict, never older."""
        log = self.ledger.entries(self.contract.sql_name)
        if not log and self.lake.open(self.contract.table) is None:
            raise NothingToReport(f"There is no table {self.contract.sql_name} in {self.lake.uri} yet: load a day first")
        self.readable = readable_days(self.lake, self.contract, self.days)
        self.newest = {entry.day: entry for entry in log if entry.kind in (LOAD, APPEND) and entry.status != STARTED}
        self.behind = behind(self.lake, self.contract, self.subject.figures.made, self.days)
        self._read_made()
        columns, figures = self._figures()
        aside = quarantine.counts(self.lake, self.contract, self.days)
        self.due = set(freshness.due_days(self.subject.first, self.now, self.contract.fresh_within_hours or 0, self.subject.zone))
        return Report(
            self.subject,
            self.now,
            columns,
            tuple(self._day(day, columns, figures.get(day), aside.get(day, 0)) for day in self.days),
            tuple(quarantine.by_rule(self.lake, self.contract, self.days)),
            tuple(self._restated()),
            self._late(),
        )

    def _read_made(self) -> None:
        """What run_log says of the tables that are made of the loaded one: the newest end of each day."""
        self.made = {
            name: {entry.day: entry for entry in self.ledger.entries(name.replace("/", "."), self.days) if entry.status != STARTED}
            for name in self.subject.figures.made
        }

    def _figures(self) -> tuple[tuple[str, ...], dict[date, dict[str, Any]]]:
        """The columns that are shown, and what gold holds of each day that it has a row of."""
        measures = self.subject.measures
        table = self.lake.open(self.subject.figures.table)
        if table is None:
            return measures, {}
        check_readable(table, self.subject.figures.table)
        there = {field.name for field in table.schema().fields}
        columns = (*measures, *([AVERAGE] if AVERAGE in there else []))
        view(self.con, "gold", table)
        names = ", ".join(identifier(name) for name in columns)
        rows = self.con.execute(
            f"SELECT order_date, {AS_OF if AS_OF in there else 'NULL'}, {names} FROM gold WHERE order_date BETWEEN ? AND ?",
            [self.days[0], self.days[-1]],
        ).fetchall()
        return columns, {day: {AS_OF: as_of, **dict(zip(columns, rest, strict=True))} for day, as_of, *rest in rows}

    def _day(self, day: date, columns: Sequence[str], figures: dict[str, Any] | None, aside: int) -> ReportedDay:
        status, reason = self._status(day, figures)
        shown = None if figures is None else {name: figures[name] for name in columns}
        as_of = None if figures is None or figures[AS_OF] is None else figures[AS_OF].replace(tzinfo=UTC)
        note = None
        if status in COUNTED and shown is None:
            # A day that is loaded and whose figures are made has no row in gold when nothing was sold.
            shown, note = {name: None if name == AVERAGE else 0 for name in columns}, "no orders on this day"
        return ReportedDay(day, self.subject.rule.key(day), status, shown, as_of, aside, reason, note)

    def _status(self, day: date, figures: Mapping[str, Any] | None) -> tuple[DayStatus, str | None]:
        """What is known of a day, and why it is not well."""
        readable = self.readable[day]
        if readable.ok:
            return self._status_of_figures(day, figures)
        if readable.verdict.verified:
            return DayStatus.HELD, readable.drift
        return self._status_of_load(day, readable)

    def _status_of_figures(self, day: date, figures: Mapping[str, Any] | None) -> tuple[DayStatus, str | None]:
        """Of a day that may be read: whether gold was made of it."""
        if day in self.behind:
            said = [entries[day].problem for entries in self.made.values() if day in entries and entries[day].status == FAILED]
            what = "its figures are not made yet" if figures is None else "its figures are those of an earlier load"
            return DayStatus.BEHIND, "; ".join([what, *(each for each in said if each)])
        made = self.made[self.subject.figures.table].get(day)
        if figures is None and made is not None and made.row_count and made.status == SUCCEEDED and made.kind == RECOMPUTE:
            return DayStatus.BEHIND, f"its figures were made ({made.row_count} orders) and are no longer there"
        kept = self._came_to_nothing(day)
        return (DayStatus.VERIFIED, None) if kept is None else (DayStatus.KEPT, kept)

    def _status_of_load(self, day: date, readable: Readable) -> tuple[DayStatus, str | None]:
        """Of a day that may not be read: whether it has rows, was refused, or never came."""
        verdict, newest = readable.verdict, self.newest.get(day)
        entry = verdict.entry
        if entry is not None and (entry.status == STARTED or entry.delta_version is not None):
            return DayStatus.CLOSED, verdict.problem
        if newest is None or newest.status != FAILED:
            # Nobody tried, or the table that it was loaded into is gone.
            reason = _NEVER_TRIED if newest is None else verdict.problem
            status = DayStatus.MISSING
        else:
            status, reason = _kind_of_failure(newest), newest.problem
        if status is DayStatus.MISSING and day < self.subject.first:
            return DayStatus.BEFORE, None
        if status is DayStatus.MISSING and day not in self.due:
            return DayStatus.NOT_DUE, None
        return status, reason

    def _came_to_nothing(self, day: date) -> str | None:
        """Why the newest load of a verified day wrote nothing, if so: the earlier rows are in force, which is to be told."""
        newest, verified = self.newest.get(day), self.readable[day].verdict.entry
        if newest is None or newest.status != FAILED or newest.delta_version is not None:
            return None
        # A check that found the day equal to its source came later.
        return None if verified is not None and verified.run_at > newest.run_at else newest.problem

    def _restated(self) -> list[RestatedDay]:
        """The changes of published figures of these days, in their order."""
        table = self.lake.open(RESTATEMENTS) if self.subject.figures.table == RESTATED_TABLE else None
        if table is None:
            return []
        view(self.con, "restated", table)
        rows = self.con.execute(
            "SELECT order_date, orders_before, orders_after, revenue_before, revenue_after, cause, "
            # Its zone, which the tables' times do not say, is UTC.
            "restated_at AT TIME ZONE 'UTC' FROM restated "
            "WHERE order_date BETWEEN ? AND ? ORDER BY order_date, restated_at, gold_version",
            [self.days[0], self.days[-1]],
        ).fetchall()
        return [RestatedDay(*row) for row in rows]

    def _late(self) -> dict[int, int]:
        """The orders that this month's sources brought for earlier days, by how many days late they were."""
        found: dict[int, int] = {}
        if self.subject.figures.table == RESTATED_TABLE:
            for _, late, rows in lateness.read(self.lake, self.days):
                if late > 0:
                    found[late] = found.get(late, 0) + rows
        return dict(sorted(found.items()))


def _kind_of_failure(entry: Entry) -> DayStatus:
    """What a failed attempt that wrote nothing found.

    One that broke off has no duration. One that found no source has looked at no content: neither a fingerprint nor a count of
    rows that would have been set aside.
    """
    if entry.duration is None:
        return DayStatus.FAILED
    if entry.source_fingerprint is None and entry.quarantined is None:
        return DayStatus.MISSING
    return DayStatus.REFUSED
