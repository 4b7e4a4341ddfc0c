"""A source's contract: its columns, and the rules that each of its rows is judged by.

A rule is one SQL expression over the source's text, true for a row that breaks it and never NULL. Spark runs it as it is
written; DuckDB runs what sqlglot makes of it, so that two engines judge by one text.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files

import sqlglot
from open_data_contract_standard.model import OpenDataContractStandard, SchemaProperty
from sqlglot import exp

from shop_pipeline.core.errors import ContractError

# The columns that every table of a source carries after its own.
ORDER_DATE = ("order_date", "DATE")
AUDIT_COLUMNS = (("_source_version", "TIMESTAMP"), ("_source_seq", "STRING"), ("_loaded_at", "TIMESTAMP"))

TIME_FORMAT = "2026-09-01T11:45:00"
_TIME = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?$"
_TYPES = re.compile(r"^(INT|STRING|TIMESTAMP|DECIMAL\(\d+,\d+\))$")


class Action(StrEnum):
    """What a broken rule leads to."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    FLAG = "flag"


@dataclass(frozen=True)
class Column:
    """A column that the source sends."""

    name: str
    type: str
    description: str
    required: bool

    @property
    def typed(self) -> str:
        """Spark SQL: the text of this column as its type; NULL where it has none."""
        if self.type == "STRING":
            return f"nullif({self.name}, '')"
        if self.type == "TIMESTAMP":
            return f"try_cast({self.name} AS TIMESTAMP)"
        return f"try_cast(trim({self.name}) AS {self.type})"


@dataclass(frozen=True)
class Rule:
    """One promise about a row. `broken` is Spark SQL over the text columns and `_malformed`: true when it is broken."""

    column: str
    reason: str
    action: Action
    broken: str

    @cached_property
    def broken_in_duckdb(self) -> str:
        """The same expression for DuckDB."""
        return to_duckdb(self.broken)


@dataclass(frozen=True)
class Contract:
    """What a source promises. `table` is the asset's name, `key` the column that identifies a row."""

    table: str
    description: str
    columns: tuple[Column, ...]
    key: str
    origin: str

    @property
    def names(self) -> tuple[str, ...]:
        """The source's columns, in the table's order."""
        return tuple(column.name for column in self.columns)

    @property
    def table_columns(self) -> tuple[tuple[str, str], ...]:
        """(name, SQL type) of every column of the table."""
        own = tuple((column.name, column.type) for column in self.columns)
        return (*own, ORDER_DATE, *AUDIT_COLUMNS)

    def broken(self, *actions: Action) -> str:
        """Spark SQL: true for a row that breaks a rule with one of these actions."""
        return "(" + " OR ".join(["false", *(rule.broken for rule in self.rules if rule.action in actions)]) + ")"

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The row rules. A record with the wrong number of fields breaks that one rule; its values are not judged."""
        found = [Rule("", "wrong number of fields", Action.FAIL, "_malformed")]
        for column in self.columns:
            found += _column_rules(column)
        return tuple(found)


def _column_rules(column: Column) -> list[Rule]:
    name = column.name
    empty = f"(coalesce(trim({name}), '') = '')"
    # Digits and signs of other scripts, tabs and line ends are let pass by one engine's cast or the other's.
    odd = f"({name} RLIKE '[^ -~]')"
    rules = []

    def rule(reason: str, condition: str) -> None:
        rules.append(Rule(name, reason, Action.FAIL, f"(NOT _malformed AND {condition})"))

    if column.required:
        rule("empty", empty)
    fits = f"({column.typed} IS NOT NULL)"
    if column.type == "INT":
        whole = f"(trim({name}) RLIKE '^[+-]?[0-9]+$' AND NOT {odd})"
        rule("not a whole number", f"NOT {empty} AND NOT {whole}")
        rule("overflow: too large for INT", f"{whole} AND NOT {fits}")
    elif column.type.startswith("DECIMAL"):
        places = column.type.rstrip(")").split(",")[1]
        number = f"(trim({name}) RLIKE '^[+-]?[0-9]+([.][0-9]+)?$' AND NOT {odd})"
        exact = f"(trim({name}) RLIKE '^[+-]?[0-9]+([.][0-9]{{1,{places}}}0*)?$')"
        rule("not a number", f"NOT {empty} AND NOT {number}")
        rule(f"more than {places} decimals", f"{number} AND NOT {exact}")
        rule(f"overflow: too large for {column.type}", f"{number} AND {exact} AND NOT {fits}")
    elif column.type == "TIMESTAMP":
        shaped = f"({name} RLIKE '{_TIME}' AND NOT {odd} AND NOT {name} LIKE '0000%' AND {fits})"
        rule(f"not a time written like {TIME_FORMAT}", f"NOT {empty} AND NOT {shaped}")
    return rules


@cache
def to_duckdb(expression: str) -> str:
    """A Spark SQL expression in DuckDB's dialect. Times stay wall-clock times, as they are under Spark's UTC session."""

    def wall_clock(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.TIMESTAMPTZ:
            return exp.DataType.build("TIMESTAMP", dialect="duckdb")
        return node

    return sqlglot.parse_one(expression, read="spark").transform(wall_clock).sql(dialect="duckdb")


def load_contract(name: str) -> Contract:
    """The contract in `contracts/<name>.yaml`.

    Raises:
        ContractError: it is not a contract, or says something that is not known here.
    """
    origin = f"shop_pipeline/contracts/{name}.yaml"
    text = files("shop_pipeline").joinpath("contracts", f"{name}.yaml").read_text()
    standard = OpenDataContractStandard.from_string(text)
    if not standard.schema_ or len(standard.schema_) != 1:
        raise ContractError(f"{origin}: a contract here describes exactly one table under `schema`.")
    table = standard.schema_[0]
    properties = table.properties or []
    keys = [str(each.name) for each in properties if each.primaryKey]
    if len(keys) != 1:
        raise ContractError(f"{origin}: exactly one column must say `primaryKey: true`, found {keys or 'none'}.")
    columns = tuple(_column(each, origin) for each in properties)
    return Contract(str(table.name), (table.description or "").strip(), columns, keys[0], origin)


def _column(each: SchemaProperty, origin: str) -> Column:
    kind = (each.physicalType or "").replace(" ", "").upper()
    if not _TYPES.match(kind):
        raise ContractError(
            f"{origin}: column {each.name} has the type {each.physicalType!r}; known are INT, STRING, TIMESTAMP, DECIMAL(p,s)."
        )
    return Column(str(each.name), kind, (each.description or "").strip(), bool(each.required))
