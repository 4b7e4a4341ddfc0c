"""What a load of some days would do, told beforehand: nothing is written and no JVM starts."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from shop_pipeline.core import duck, gates
from shop_pipeline.core.batch import Reading, extras, judged, read_by_duckdb
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.lake import Lake, data_files, table_id, view
from shop_pipeline.core.ledger import Ledger
from shop_pipeline.core.readable import readable_days
from shop_pipeline.core.scratch import Scratch
from shop_pipeline.core.sources import OpenSource, Source


class State(Enum):
    """What a load would find: a day that was never loaded, one that is as it was loaded, one that is not, no source, a fault."""

    NEW = "new"
    UNCHANGED = "unchanged"
    CHANGED = "changed"
    MISSING = "missing"
    REFUSED = "refused"


@dataclass(frozen=True)
class PlannedDay:
    """What a load would do to a day: rows it would add, remove and change, and why it would not load it at all."""

    key: str
    day: date
    state: State
    added: int = 0
    removed: int = 0
    changed: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effect:
    """What the figures of a day of orders are, and what they would be."""

    day: date
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True)
class Figures:
    """How a feed's figures come from its rows: the table they are in, and each of them as SQL over the rows of a day.

    `each_order_once`: the rows are first reduced to the newest one of each key, and count for the day of their event; else every
    row counts, for the day of its source.
    """

    table: str
    measures: Mapping[str, str]
    each_order_once: bool


@dataclass(frozen=True)
class Plan:
    """Every day, and every figure that would change."""

    days: Sequence[PlannedDay]
    effects: Sequence[Effect]


def plan(lake: Lake, source: Source, contract: Contract, rule: KeyRule, figures: Figures, keys: Sequence[str]) -> Plan:
    """Look at the days of these keys as a load would.

    Raises:
        SourceUnavailable, SourceRefused: the source cannot be looked at.
        TableUnreadable: the table cannot.
    """
    days = {rule.day(key): key for key in keys}
    with Scratch() as scratch, closing(source.open(sorted(days))) as opened:
        return _Planning(lake, contract, rule, figures, days, opened, scratch).run()


@dataclass
class _Planning:
    """One look at some days."""

    lake: Lake
    contract: Contract
    rule: KeyRule
    figures: Figures
    keys: dict[date, str]
    source: OpenSource
    scratch: Path
    planned: dict[date, PlannedDay] = field(default_factory=dict)
    readings: Mapping[date, Reading] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.con = duck.connect(self.scratch)
        self.table = self.lake.open(self.contract.table)
        self.identity = None if self.table is None else table_id(self.table)
        self.readable = readable_days(self.lake, self.contract, self._loaded_days())
        self.verdicts = {day: each.verdict for day, each in self.readable.items()}

    def run(self) -> Plan:
        """Settle what can be told from the source alone, then what takes the table."""
        for day, why in self.source.refused.items():
            state = State.MISSING if day in self.source.missing else State.REFUSED
            self.planned[day] = PlannedDay(self.keys[day], day, state, reasons=(why,))
        there = self._unsettled()
        self.readings = read_by_duckdb(self.con, self.contract, self.source, there) if there else {}
        self._refuse()
        for day in self._unsettled():
            verdict = self.verdicts.get(day)
            if verdict and verdict.verified and verdict.entry and verdict.entry.fingerprint == self.readings[day].fingerprint:
                self.planned[day] = PlannedDay(self.keys[day], day, State.UNCHANGED)
        if self._unsettled():
            self._compare(self._unsettled())
        return Plan([self.planned[day] for day in sorted(self.keys)], self._effects())

    def _unsettled(self) -> list[date]:
        return [day for day in sorted(self.keys) if day not in self.planned]

    def _loaded_days(self) -> list[date]:
        there = set() if self.table is None else {day for day in data_files(self.table)["order_date"].to_pylist() if day}
        return sorted(there | set(self.keys))

    def _refuse(self) -> None:
        there = self._unsettled()
        known = {day: each.row_count or 0 for day, each in Ledger(self.lake).history(self.contract.sql_name, self.identity).items()}
        judgements = gates.judge_volumes(self.contract.volume, known, {day: self.readings[day].good for day in there})
        for day in there:
            again = f"rerun {self.rule.key_name} {self.keys[day]}"
            sentence = gates.refusal(self.con, self.contract, self.source, day, self.readings[day], judgements[day], again)
            if sentence is not None:
                self.planned[day] = PlannedDay(self.keys[day], day, State.REFUSED, reasons=tuple(sentence.splitlines()))

    def _compare(self, days: Sequence[date]) -> None:
        """Count, day by day, the keys that the source has more often than the table, less often, and with other values."""
        new = self.source.new_columns(days)
        names = [column.name for column in self.contract.columns]
        self._sides(days, new)
        parts = ", ".join(f"coalesce(CAST({identifier(name)} AS VARCHAR), '')" for name in names)
        counted = self.con.execute(
            f"""
            WITH contents AS (
                SELECT order_date AS d, {identifier(self.contract.key)} AS k, concat_ws(chr(31), {parts}) || {extras(new)} AS c,
                       count(*) FILTER (WHERE _side = 's') AS ns, count(*) FILTER (WHERE _side = 't') AS nt
                FROM sides GROUP BY ALL),
            by_key AS (
                SELECT d, k, sum(ns) AS ns, sum(nt) AS nt, sum(least(ns, nt)) AS same FROM contents GROUP BY ALL)
            SELECT d, sum(ns - least(ns, nt)), sum(nt - least(ns, nt)), sum(least(ns, nt) - same), sum(nt) FROM by_key GROUP BY d
            """
        ).fetchall()
        counts = {day: tuple(map(int, each)) for day, *each in counted}
        for day in days:
            added, removed, changed, rows = counts.get(day, (0, 0, 0, 0))
            verdict = self.verdicts[day]
            reasons = [] if verdict.verified or not rows else [f"what stands there is not verified: {verdict.problem}"]
            if drift := self.source.drift(day).added:
                reasons.append(f"what is made of it holds it back: the contract does not know {', '.join(drift)}")
            if not rows and not verdict.verified:
                state = State.NEW
            elif verdict.verified and not (added or removed or changed):
                # Another kind of hash, or a row set aside that is another one now.
                state = State.UNCHANGED
            else:
                state = State.CHANGED
            self.planned[day] = PlannedDay(self.keys[day], day, state, added, removed, changed, tuple(reasons))

    def _sides(self, days: Sequence[date], new: Sequence[str]) -> None:
        """The view `sides`: the good rows of days as the source ('s') and the table ('t') have them, by the table's columns."""
        listed = ", ".join(f"DATE '{day}'" for day in days)
        names = [column.name for column in self.contract.columns]
        brought = "".join(f", {identifier(name)}" for name in new)
        self.con.execute(
            f"CREATE OR REPLACE TEMP TABLE sides AS SELECT 's' AS _side, {self._typed()}, order_date{brought} "
            f"FROM ({judged(self.con, self.contract, self.source, days)}) WHERE _broken & {self.contract.bad_bits} = 0"
        )
        if self.table is not None:
            view(self.con, "in_table", self.table, days)
            there = {each.name for each in self.table.schema().fields}
            kept = ", ".join(f"{identifier(name) if name in there else 'NULL'} AS {identifier(name)}" for name in [*names, *new])
            self.con.execute(
                f"INSERT INTO sides BY NAME SELECT 't' AS _side, {kept}, order_date FROM in_table WHERE order_date IN ({listed})"
            )

    def _typed(self) -> str:
        return ", ".join(f"{identifier(column.typed_name)} AS {identifier(column.name)}" for column in self.contract.columns)

    def _effects(self) -> list[Effect]:
        """The figures before and after: those of the days' own keys, taken off and added to what stands there."""
        loaded = [day for day, each in self.planned.items() if each.state in (State.NEW, State.CHANGED)]
        days = [day for day in loaded if not self.source.drift(day).added]
        if not days:
            return []
        self._rows(days)
        measures = {name: f"coalesce({sql}, 0)" for name, sql in self.figures.measures.items()}
        of_side = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in measures.items())
        found: dict[str, dict[date, tuple[Any, ...]]] = {}
        for side in ("before", "after"):
            rows = f"SELECT * FROM rows_{side} WHERE k IN (SELECT k FROM touched)"
            event = self.contract.event_time
            counts_for = "order_date"
            if self.figures.each_order_once:
                newest = "_source_version DESC, order_date DESC, _source_seq DESC"
                rows += f" QUALIFY row_number() OVER (PARTITION BY k ORDER BY {newest}) = 1"
                counts_for = f"CAST({identifier(event.name)} AS DATE)" if event else counts_for
            answer = self.con.execute(f"SELECT {counts_for} AS d, {of_side} FROM ({rows}) GROUP BY d").fetchall()
            found[side] = {day: tuple(values) for day, *values in answer}
        there = self._figures_there(sorted({*found["before"], *found["after"]}))
        nothing: tuple[Any, ...] = (0,) * len(measures)
        effects = []
        for day in sorted({*found["before"], *found["after"]}):
            stands = there.get(day, nothing)
            lost, won = found["before"].get(day, nothing), found["after"].get(day, nothing)
            then = tuple(now - less + more for now, less, more in zip(stands, lost, won, strict=True))
            if then != stands:
                names = list(measures)
                effects.append(Effect(day, dict(zip(names, stands, strict=True)), dict(zip(names, then, strict=True))))
        return effects

    def _rows(self, days: Sequence[date]) -> None:
        """The tables `rows_before` and `rows_after` of verified rows, and `touched`, the keys of the days in either."""
        needed = ", ".join(identifier(column.name) for column in self.contract.columns)
        key = identifier(self.contract.key)
        version = self.contract.source_version
        as_new = "CAST(order_date AS TIMESTAMP)"
        if version is not None:
            as_new = f"coalesce({identifier(version)}, {as_new})"
        of_source = (
            f"SELECT {needed}, {key} AS k, order_date, {as_new} AS _source_version, printf('%012d', _record) AS _source_seq FROM ("
            f"SELECT {self._typed()}, order_date, _record FROM ({judged(self.con, self.contract, self.source, days)}) "
            f"WHERE _broken & {self.contract.bad_bits} = 0)"
        )
        self.con.execute(f"CREATE OR REPLACE TEMP TABLE rows_after AS {of_source}")
        self.con.execute("CREATE OR REPLACE TEMP TABLE rows_before AS SELECT * FROM rows_after WHERE false")
        listed = ", ".join(f"DATE '{day}'" for day in days)
        if self.table is not None:
            readable = [day for day, each in self.readable.items() if each.ok]
            whole = readable if self.figures.each_order_once else [day for day in readable if day in set(days)]
            view(self.con, "readable", self.table, whole)
            own = ", ".join(f"DATE '{day}'" for day in whole) or "NULL"
            columns = f"{needed}, {key} AS k, order_date, _source_version, _source_seq"
            self.con.execute(
                f"CREATE OR REPLACE TEMP TABLE touched AS SELECT k FROM rows_after UNION SELECT {key} FROM readable "
                f"WHERE order_date IN ({listed}) AND order_date IN ({own})"
            )
            self.con.execute(
                f"INSERT INTO rows_before BY NAME SELECT {columns} FROM readable "
                f"WHERE order_date IN ({own}) AND {key} IN (SELECT k FROM touched)"
            )
            self.con.execute(f"INSERT INTO rows_after BY NAME SELECT * FROM rows_before WHERE order_date NOT IN ({listed})")
        else:
            self.con.execute("CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT k FROM rows_after")

    def _figures_there(self, days: Sequence[date]) -> dict[date, tuple[Any, ...]]:
        """What the figures are now."""
        table = self.lake.open(self.figures.table)
        if table is None or not days:
            return {}
        view(self.con, "figures_now", table)
        names = ", ".join(identifier(name) for name in self.figures.measures)
        listed = ", ".join(f"DATE '{day}'" for day in days)
        rows = self.con.execute(f"SELECT order_date, {names} FROM figures_now WHERE order_date IN ({listed})").fetchall()
        return {day: tuple(Decimal(0) if value is None else value for value in values) for day, *values in rows}
