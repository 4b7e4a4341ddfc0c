"""A source's contract: its columns, the rules that each of its rows is judged by, and what a whole day must be like.

A rule is one SQL expression, true for a row that breaks it. Spark runs it as it is written; DuckDB runs what sqlglot makes
of it, so that two engines judge by one text. The expressions are over the source's text (`column`) and the same as its
type (`_typed_column`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property

import sqlglot
from sqlglot import exp

# The columns that every table of a source carries after its own.
ORDER_DATE = ("order_date", "DATE")
AUDIT_COLUMNS = (("_source_version", "TIMESTAMP"), ("_source_seq", "STRING"), ("_loaded_at", "TIMESTAMP"))

TYPES = re.compile(r"^(INT|STRING|TIMESTAMP|DECIMAL\(\d+,\d+\))$")
ISO_TIME = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"


class Action(StrEnum):
    """What a broken rule leads to."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    FLAG = "flag"


class NewColumns(StrEnum):
    """What becomes of a column that the contract does not know."""

    ADD = "add"
    IGNORE = "ignore"
    FAIL = "fail"


class Baseline(StrEnum):
    """Which earlier days a day's volume is compared with."""

    PREVIOUS = "previous days"
    SAME_WEEKDAY = "same weekday"
    LAST_YEAR = "same period last year"


@dataclass(frozen=True)
class TimeFormat:
    """How a time is written: yyyy, MM, dd, HH, mm and ss, each once, with 'quoted' or plain signs between them.

    `[.SSSSSS]` at the end allows a fraction of up to six digits.
    """

    pattern: str

    @cached_property
    def _tokens(self) -> list[str]:
        return [found.group() for found in re.finditer(r"'[^']*'|\[\.S{1,6}\]|([a-zA-Z])\1*|.", self.pattern)]

    @property
    def problem(self) -> str | None:
        """What is wrong with the pattern, or None."""
        letters = [token for token in self._tokens if token.isalpha()]
        if sorted(letters) != sorted(_TIME_PARTS):
            return f"a time format has {', '.join(_TIME_PARTS)}, each once"
        if any(token.startswith("[") for token in self._tokens[:-1]):
            return "the fraction [.SSSSSS] stands at the end of a time format"
        return None

    @property
    def example(self) -> str:
        """One time, written so."""
        values = {"yyyy": "2026", "MM": "09", "dd": "01", "HH": "11", "mm": "45", "ss": "00"}
        return "".join(values.get(token, "" if token.startswith("[") else token.strip("'")) for token in self._tokens)

    @property
    def regex(self) -> str:
        """A regular expression (for Java and RE2 alike, to stand in a Spark SQL literal) that whole texts must match."""
        parts = {"yyyy": "[0-9]{4}", "MM": "[0-9]{2}", "dd": "[0-9]{2}"}
        parts |= {"HH": "([01][0-9]|2[0-3])", "mm": "[0-5][0-9]", "ss": "[0-5][0-9]"}
        made = ""
        for token in self._tokens:
            if token.startswith("["):
                made += "([.][0-9]{1," + str(token.count("S")) + "})?"
            else:
                made += parts.get(token) or "".join(f"[{sign}]" for sign in token.strip("'"))
        return f"^{made}\\\\z"

    def iso(self, text: str) -> str:
        """Spark SQL: a time written so, as ISO 8601 has it."""
        if self.pattern.startswith(("yyyy-MM-dd'T'HH:mm:ss", "yyyy-MM-dd HH:mm:ss")):
            return text
        at, places = 1, {}
        for token in self._tokens:
            places[token] = at
            at += len(token.strip("'"))
        fraction = [f"substring({text}, {places[self._tokens[-1]]})"] if self._tokens[-1].startswith("[") else []
        pieces = []
        for part, sign in zip(_TIME_PARTS, ("-", "-", "T", ":", ":", ""), strict=True):
            pieces += [f"substring({text}, {places[part]}, {len(part)})", f"'{sign}'"]
        return "concat(" + ", ".join([*pieces[:-1], *fraction]) + ")"


_TIME_PARTS = ("yyyy", "MM", "dd", "HH", "mm", "ss")


def trimmed(text: str) -> str:
    """Spark SQL: a text without the spaces around it; other blanks are not taken off, by either engine."""
    return f"trim(BOTH ' ' FROM {text})"


@dataclass(frozen=True)
class Column:
    """A column that the source sends."""

    name: str
    type: str
    description: str
    required: bool
    unique: bool = False
    format: TimeFormat = TimeFormat(ISO_TIME)

    @property
    def text(self) -> str:
        """Spark SQL: the column as the source sent it."""
        return f"`{self.name}`"

    @property
    def form(self) -> str:
        """Spark SQL: the text is written as the column's type is; whether the type can hold it is another question."""
        if self.type == "STRING":
            return "true"
        if self.type == "TIMESTAMP":
            return f"({self.text} RLIKE '{self.format.regex}' AND NOT {self.format.iso(self.text)} LIKE '0000%')"
        digits = "[0-9]+" if self.type == "INT" else f"[0-9]+([.][0-9]{{1,{self.scale}}}0*)?"
        return f"({self.text} RLIKE '^ *[+-]?{digits} *\\\\z')"

    @property
    def typed(self) -> str:
        """Spark SQL: the column as its type; NULL where its text has not the type's form. Called `typed_name` beside the text.

        The form is asked first: what lies outside it (24:00:00, 1e3, 0x10) is taken by one engine's cast and not the other's.
        """
        if self.type == "STRING":
            return f"nullif({self.text}, '')"
        plain = self.format.iso(self.text) if self.type == "TIMESTAMP" else trimmed(self.text)
        return f"CASE WHEN {self.form} THEN try_cast({plain} AS {self.type}) END"

    @property
    def typed_name(self) -> str:
        """Where a judged row has the typed value."""
        return f"_typed_{self.name}"

    @property
    def empty(self) -> str:
        """Spark SQL: nothing was sent."""
        return f"(coalesce({trimmed(self.text)}, '') = '')"

    @property
    def fits(self) -> str:
        """Spark SQL: the text is one of the type."""
        return f"(NOT {self.empty})" if self.type == "STRING" else f"(`{self.typed_name}` IS NOT NULL)"

    @property
    def precision(self) -> int:
        """How many digits a DECIMAL has in all."""
        return int(self.type.removeprefix("DECIMAL(").split(",")[0])

    @property
    def scale(self) -> int:
        """The decimal places of a DECIMAL."""
        return int(self.type.rstrip(")").split(",")[1])


@dataclass(frozen=True)
class Rule:
    """One promise about a row. `broken` is Spark SQL: true for a row that breaks it, NULL counts as kept.

    `missing` says that it is about a value that is not there; `plain` that a row whose columns all fit cannot break it.
    """

    column: str
    reason: str
    action: Action
    broken: str
    missing: bool = False
    plain: bool = True

    @property
    def name(self) -> str:
        """The rule in words."""
        return f"{self.column}: {self.reason}" if self.column else self.reason


@dataclass(frozen=True)
class Volume:
    """The share (percent) of the median of earlier days' rows within which a day's rows must lie; the limits pass."""

    low: int
    high: int
    action: Action
    last: int = 7
    enough: int = 3
    baseline: Baseline = Baseline.PREVIOUS


@dataclass(frozen=True)
class Lopsided:
    """From which share (percent) of one value on a column counts as lopsided, in days of at least `min_rows` rows."""

    percent: float
    action: Action
    min_rows: int = 10


# What a condition on one row cannot have: other rows, chance, the time of day.
_NO_CONDITION = (
    exp.Query,
    exp.AggFunc,
    exp.Window,
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentDatetime,
)

# The first two rules of every contract; what they say is all that is said of a row that breaks them.
FIELD_COUNT, HEADER_AGAIN = 1, 2


@dataclass(frozen=True)
class Contract:
    """What a source promises. `table` is the asset's name, `key` the column that identifies a row.

    `rules` are judged row by row, a bit each in the order of the tuple; the rest is judged day by day. `source_version` names
    the column by which the source says how new a row is; without one it is as new as its day. `lookback`: how many days before
    the newest one still change at the source, so that the daily run loads them again. `physical_name`: what the source calls
    its table, where it is one.
    """

    table: str
    description: str
    columns: tuple[Column, ...]
    key: str
    rules: tuple[Rule, ...]
    duplicates: Action
    null_rate: Action
    empty: Action
    new_columns: NewColumns
    exact_header: bool
    volume: Volume | None
    lopsided: Lopsided | None
    fresh_within_hours: float | None
    origin: str
    source_version: str | None = None
    lookback: int = 0
    physical_name: str = ""

    @property
    def sql_name(self) -> str:
        """The table's name in SQL, in run_log and in messages."""
        return self.table.replace("/", ".")

    @property
    def names(self) -> tuple[str, ...]:
        """The source's columns, in the table's order."""
        return tuple(column.name for column in self.columns)

    @property
    def key_column(self) -> Column:
        """The column that identifies a row."""
        return next(column for column in self.columns if column.name == self.key)

    @property
    def event_time(self) -> Column | None:
        """The column that says when a row's event was: the first that is a time."""
        return next((column for column in self.columns if column.type == "TIMESTAMP"), None)

    @property
    def searched(self) -> tuple[str, ...]:
        """The columns by whose range files are skipped; statistics of others cost more than they bring."""
        return (self.key, *([self.event_time.name] if self.event_time else []))

    @property
    def table_columns(self) -> tuple[tuple[str, str], ...]:
        """(name, SQL type) of every column of the table; columns the contract does not know come after them."""
        own = tuple((column.name, column.type) for column in self.columns)
        return (*own, ORDER_DATE, *AUDIT_COLUMNS)

    def bits(self, *actions: Action) -> int:
        """The bits of the rules with one of these actions."""
        return sum(1 << n for n, rule in enumerate(self.rules) if rule.action in actions)

    def rules_of(self, broken: int) -> list[Rule]:
        """The rules that a row with these bits breaks."""
        return [rule for n, rule in enumerate(self.rules) if broken >> n & 1]

    @cached_property
    def bad_bits(self) -> int:
        """The bits of the rules that keep a row out of the table."""
        return self.bits(Action.FAIL, Action.QUARANTINE)

    @cached_property
    def broken(self) -> str:
        """Spark SQL: the bits of the rules that a row breaks, 0 for nearly all rows."""
        columns = [column.fits if column.required else f"({column.empty} OR {column.fits})" for column in self.columns]
        others = [f"NOT coalesce({rule.broken}, false)" for rule in self.rules if not rule.plain]
        if all(column.type == "STRING" for column in self.columns):
            others.append(f"NOT {self.rules[1].broken}")
        clean = " AND ".join(["NOT _malformed", *columns, *others])
        bits = " + ".join(f"(CASE WHEN {rule.broken} THEN {1 << n} ELSE 0 END)" for n, rule in enumerate(self.rules) if n > 1)
        return (
            f"CASE WHEN {clean} THEN 0 WHEN _malformed THEN {FIELD_COUNT} "
            f"WHEN {self.rules[1].broken} THEN {HEADER_AGAIN} ELSE {bits or '0'} END"
        )


def column_rules(column: Column, missing: Action, invalid: Action) -> list[Rule]:
    """The rules that a column's type brings with it."""
    name = column.name
    there = f"NOT {column.empty}"
    rules = [Rule(name, "empty", missing, column.empty, missing=True)] if column.required else []
    if column.type == "INT":
        rules.append(Rule(name, "not a whole number", invalid, f"{there} AND NOT {column.form}"))
        rules.append(Rule(name, "overflow: too large for INT", invalid, f"{column.form} AND NOT {column.fits}"))
    elif column.type.startswith("DECIMAL"):
        number = f"({column.text} RLIKE '^ *[+-]?[0-9]+([.][0-9]+)? *\\\\z')"
        rules.append(Rule(name, "not a number", invalid, f"{there} AND NOT {number}"))
        rules.append(Rule(name, f"more than {column.scale} decimals", invalid, f"{number} AND NOT {column.form}"))
        rules.append(Rule(name, f"overflow: too large for {column.type}", invalid, f"{column.form} AND NOT {column.fits}"))
    elif column.type == "TIMESTAMP":
        rules.append(Rule(name, f"not a time written like {column.format.example}", invalid, f"{there} AND NOT {column.fits}"))
    return rules


def first_rules(columns: Sequence[Column], field_count: Action, header_again: Action) -> list[Rule]:
    """The rules about a record as a whole."""
    header = " AND ".join(f"coalesce(lower({trimmed(column.text)}), '') = '{column.name.lower()}'" for column in columns)
    return [
        Rule("", "wrong number of fields", field_count, "_malformed"),
        Rule("", "the header line again", header_again, f"({header})"),
    ]


def refer_to_typed(expression: str, columns: Sequence[Column]) -> str:
    """A condition over a contract's columns (and order_date) as one over a judged row, in Spark SQL.

    Raises:
        ValueError: it is not one SQL condition, or names a column that there is not.
    """
    try:
        parsed = sqlglot.parse_one(expression, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"{expression!r} is not an SQL condition ({str(error).splitlines()[0]})") from None
    for node in parsed.walk():
        if isinstance(node, _NO_CONDITION) or (isinstance(node, exp.Anonymous) and node.name):
            raise ValueError(
                f"{expression!r} has {node.sql()}: a rule is a condition on one row, the same whenever it is asked, "
                "by functions that Spark and DuckDB both have"
            )
    by_name = {column.name: column.typed_name for column in columns}

    def typed(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.name == ORDER_DATE[0]:
            return node
        if node.table or node.name not in by_name:
            raise ValueError(f"{expression!r} names {node.sql()}, which is no column; there are {', '.join(by_name)}, order_date")
        return exp.column(by_name[node.name], quoted=True)

    return str(parsed.transform(typed).sql(dialect="spark"))


@cache
def to_duckdb(expression: str) -> str:
    """A Spark SQL expression in DuckDB's dialect. Times stay wall-clock times, as they are under Spark's UTC session."""

    def wall_clock(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.TIMESTAMPTZ:
            return exp.DataType.build("TIMESTAMP", dialect="duckdb")
        if isinstance(node, exp.Trim) and node.expression is None:
            # Left to itself, DuckDB takes off every blank of Unicode, and Spark the space alone.
            node.set("expression", exp.Literal.string(" "))
        return node

    return sqlglot.parse_one(expression, read="spark").transform(wall_clock).sql(dialect="duckdb")
