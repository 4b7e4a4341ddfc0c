"""What a load of some days would do, told beforehand: nothing is written and no JVM starts."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

from shop_pipeline.core import duck, gates
from shop_pipeline.core.batch import Reading, judged, read_by_duckdb
from shop_pipeline.core.changes import counts
from shop_pipeline.core.contract import Contract
from shop_pipeline.core.days import KeyRule
from shop_pipeline.core.duck import identifier
from shop_pipeline.core.lake import Lake, data_files, view
from shop_pipeline.core.readable import readable_days
from shop_pipeline.core.reprocess import behind, loaded_contents
from shop_pipeline.core.scratch import Scratch
from shop_pipeline.core.sources import OpenSource, Source


class State(Enum):
    """What a load would find: a day that was never loaded, one that is as it was loaded, one that is not, no source, a fault."""

    NEW = "new"
    UNCHANGED = "unchanged"
    CHANGED = "changed"
    MISSING = "missing"
    REFUSED = "refused"


_LOADED = (State.NEW, State.CHANGED)


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

    `through`: the table in between, which has of each key the newest row, for the day of its event. Without one every row counts,
    for the day of its source.
    """

    table: str
    measures: Mapping[str, str]
    through: str | None = None

    @property
    def made(self) -> list[str]:
        """The tables that are made of the loaded one, in this order."""
        return [*([self.through] if self.through else []), self.table]


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
        known = {day: each.row_count or 0 for day, each in loaded_contents(self.lake, self.contract).items()}
        judgements = gates.judge_volumes(self.contract.volume, known, {day: self.readings[day].good for day in there})
        for day in there:
            again = f"rerun {self.rule.key_name} {self.keys[day]}"
            sentence = gates.refusal(self.con, self.contract, self.source, day, self.readings[day], judgements[day], again)
            if sentence is not None:
                stays = ["The rows that were loaded stay."] if self.verdicts[day].verified else []
                reasons = (*sentence.splitlines(), *stays)
                self.planned[day] = PlannedDay(self.keys[day], day, State.REFUSED, reasons=reasons)

    def _compare(self, days: Sequence[date]) -> None:
        """Count, day by day, the keys that the source has more often than the table, less often, and with other values."""
        new = self.source.new_columns(days)
        self._sides(days, new)
        counted = counts(self.con, self.contract, new)
        for day in days:
            added, removed, changed, rows = counted.get(day, (0, 0, 0, 0))
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
        """The figures as they are and as they would be, after the days' own rows have taken their place."""
        late = behind(self.lake, self.contract, self.figures.made, sorted(self.keys))
        run = [
            day for day, each in self.planned.items() if each.state in _LOADED or (each.state is State.UNCHANGED and day in late)
        ]
        days = sorted(day for day in run if not self.source.drift(day).added)
        if not days:
            return []
        self._new_rows(days)
        after = self._folded(days) if self.figures.through else "SELECT * FROM new_rows"
        names = ", ".join(f"coalesce({sql}, 0) AS {identifier(name)}" for name, sql in self.figures.measures.items())
        then = {
            day: tuple(each) for day, *each in self.con.execute(f"SELECT event_day, {names} FROM ({after}) GROUP BY ALL").fetchall()
        }
        there = self._figures_there()
        nothing: tuple[Any, ...] = (0,) * len(self.figures.measures)
        effects = []
        for day in sorted({*then, *there} if self.figures.through else days):
            old, new = there.get(day, nothing), then.get(day, nothing)
            if old != new:
                both = (dict(zip(self.figures.measures, values, strict=True)) for values in (old, new))
                effects.append(Effect(day, *both))
        return effects

    def _new_rows(self, days: Sequence[date]) -> None:
        """The table `new_rows`: the good rows that these days' sources have, by the table's columns."""
        version = self.contract.source_version
        as_new = "CAST(order_date AS TIMESTAMP)"
        if version is not None:
            as_new = f"coalesce({identifier(version)}, {as_new})"
        self.con.execute(
            f"CREATE OR REPLACE TEMP TABLE new_rows AS SELECT {self._needed()}, order_date AS event_day, "
            f"order_date AS _source_day, {as_new} AS _source_version, printf('%012d', _record) AS _source_seq FROM ("
            f"SELECT {self._typed()}, order_date, _record FROM ({judged(self.con, self.contract, self.source, days)}) "
            f"WHERE _broken & {self.contract.bad_bits} = 0)"
        )

    def _needed(self) -> str:
        return ", ".join(identifier(column.name) for column in self.contract.columns)

    def _folded(self, days: Sequence[date]) -> str:
        """SQL: the rows of the table in between, after these days were merged into it: of each key the newest of all days."""
        key, event = identifier(self.contract.key), self.contract.event_time
        day_of_event = f"CAST({identifier(event.name)} AS DATE)" if event else "_source_day"
        columns = f"{self._needed()}, event_day, _source_day, _source_version, _source_seq"
        between = self.lake.open(self.figures.through or "")
        self.con.execute("CREATE OR REPLACE TEMP TABLE between_now AS SELECT * FROM new_rows WHERE false")
        if between is not None:
            view(self.con, "between", between)
            self.con.execute(
                f"INSERT INTO between_now BY NAME SELECT {self._needed()}, order_date AS event_day, _source_day, _source_version, "
                "_source_seq FROM between"
            )
        listed = ", ".join(f"DATE '{day}'" for day in days)
        self.con.execute(
            f"CREATE OR REPLACE TEMP TABLE touched AS SELECT {key} AS k FROM new_rows "
            f"UNION SELECT {key} FROM between_now WHERE _source_day IN ({listed})"
        )
        others = [day for day, each in self.readable.items() if each.ok and day not in set(days)]
        if self.table is not None and others:
            view(self.con, "others", self.table, others)
            own = ", ".join(f"DATE '{day}'" for day in others)
            self.con.execute(
                f"INSERT INTO new_rows BY NAME SELECT {self._needed()}, order_date AS event_day, order_date AS _source_day, "
                f"_source_version, _source_seq FROM others WHERE order_date IN ({own}) AND {key} IN (SELECT k FROM touched)"
            )
        newest = "_source_version DESC, _source_day DESC, _source_seq DESC"
        return (
            f"SELECT {columns} FROM between_now WHERE {key} NOT IN (SELECT k FROM touched) UNION ALL "
            f"SELECT * REPLACE ({day_of_event} AS event_day) FROM new_rows "
            f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {newest}) = 1"
        )

    def _figures_there(self) -> dict[date, tuple[Any, ...]]:
        """What the figures are now, by day."""
        table = self.lake.open(self.figures.table)
        if table is None:
            return {}
        view(self.con, "figures_now", table)
        names = ", ".join(f"coalesce({identifier(name)}, 0)" for name in self.figures.measures)
        return {day: tuple(each) for day, *each in self.con.execute(f"SELECT order_date, {names} FROM figures_now").fetchall()}
