"""Contract files: Open Data Contract Standard YAML in, a Contract out, and a sentence with file and line for what is wrong.

What the standard has no word for is said in it all the same: our action for a broken rule is the custom property
`onViolation`, and rules of our own are of `type: custom` with `engine: shop`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import yaml
from open_data_contract_standard.model import (
    CustomProperty,
    DataQuality,
    OpenDataContractStandard,
    SchemaObject,
    SchemaProperty,
)

from shop_pipeline.core import duck
from shop_pipeline.core.contract import (
    ISO_TIME,
    ORDER_DATE,
    TYPES,
    Action,
    Baseline,
    Column,
    Contract,
    Lopsided,
    NewColumns,
    Rule,
    TimeFormat,
    Volume,
    column_rules,
    first_rules,
    refer_to_typed,
    to_duckdb,
)
from shop_pipeline.core.errors import ContractError

Place = tuple[str | int, ...]
# What a rule about the table says, its own words, its action, and where it stands.
_TableRules = dict[str, tuple[DataQuality, dict[str, Any], Action, Place]]
ENGINE = "shop"
COLUMN_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
MOST_RULES = 60
MOST_LOOKBACK = 31
_TABLE_RULES = ("fieldCount", "headerOnce", "nullRate", "topValueShare")
_LIMITS = {"minimum": "<", "maximum": ">", "exclusiveMinimum": "<=", "exclusiveMaximum": ">="}
_LIMIT_WORDS = {"minimum": "below", "maximum": "above", "exclusiveMinimum": "not above", "exclusiveMaximum": "not below"}
_LENGTHS = {"minLength": ("<", "shorter than"), "maxLength": (">", "longer than")}


def load_contract(name: str, folder: Path | None = None) -> Contract:
    """The contract in `<name>.yaml`: the one in `folder` where there is one, else the one that comes with the package.

    Raises:
        ContractError: it is not a contract, or says something that is not known here; with file and line.
    """
    own = None if folder is None else folder / f"{name}.yaml"
    if own is not None and own.is_file():
        try:
            return parse_contract(own.read_text(), str(own))
        except (OSError, UnicodeDecodeError) as error:
            raise ContractError(f"{own}: the contract cannot be read ({error}).") from None
    text = files("shop_pipeline").joinpath("contracts", f"{name}.yaml").read_text()
    return parse_contract(text, f"shop_pipeline/contracts/{name}.yaml")


def parse_contract(text: str, origin: str) -> Contract:
    """The contract that a text in YAML is. `origin` names it in errors.

    Raises:
        ContractError: see load_contract.
    """
    try:
        # LibYAML's, ten times as fast. One reading for both: the nodes know their lines, the content is what they say.
        loader = yaml.CSafeLoader(text)
        nodes = loader.get_single_node()
        content: Any = None if nodes is None else loader.construct_document(nodes)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ContractError(f"{origin}{line}: this is not YAML ({getattr(error, 'problem', None) or error}).") from None
    document = _Document(origin, nodes)
    for problem in _standard().iter_errors(content):
        place = tuple(problem.absolute_path)
        raise document.error(place, f"not an Open Data Contract: {problem.message[:300]}", inside=_named(problem.message))
    standard = OpenDataContractStandard(**content)
    if len(standard.schema_ or []) != 1:
        raise document.error(("schema",), "a contract here describes exactly one table")
    return _Reader(document, standard, standard.schema_[0]).contract()  # type: ignore[index]


@cache
def _standard() -> Any:  # noqa: ANN401 - jsonschema's validators have no common type
    schema = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text())
    return jsonschema.validators.validator_for(schema)(schema)


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    return duck.small()


def _named(message: str) -> str | None:
    """The key that a message of the standard's schema calls unexpected, to point at its line."""
    found = re.search(r"\('([^']*)'", message)
    return found[1] if found else None


@dataclass(frozen=True)
class _Document:
    """A contract's text as YAML nodes, which know their lines."""

    origin: str
    root: yaml.Node | None

    def line(self, place: Place, inside: str | None = None) -> int:
        node, line = self.root, 1
        for step in (*place, *([inside] if inside else [])):
            if isinstance(node, yaml.MappingNode):
                found = [(key, value) for key, value in node.value if key.value == step]
                if not found:
                    break
                line, node = found[0][0].start_mark.line + 1, found[0][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = node.start_mark.line + 1
            else:
                break
        return line

    def error(self, place: Place, reason: str, inside: str | None = None) -> ContractError:
        return ContractError(f"{self.origin}, line {self.line(place, inside)}: {reason}.")


@dataclass(frozen=True)
class _Reader:
    """Turns the one table of a contract into our Contract."""

    document: _Document
    standard: OpenDataContractStandard
    table: SchemaObject

    def contract(self) -> Contract:
        place: Place = ("schema", 0)
        properties = self.table.properties or []
        keys = [str(each.name) for each in properties if each.primaryKey]
        if len(keys) != 1:
            raise self.document.error((*place, "properties"), f"exactly one column says `primaryKey: true`, not {keys or 'none'}")
        names = [str(each.name) for each in properties]
        for n, name in enumerate(names):
            if not COLUMN_NAME.fullmatch(name) or name == ORDER_DATE[0]:
                raise self.document.error(
                    (*place, "properties", n, "name"),
                    f"{name!r} cannot be a column: write small letters, digits and _ (order_date is the pipeline's own)",
                )
            if name in names[:n]:
                raise self.document.error((*place, "properties", n, "name"), f"the column {name} is there twice")
        columns = tuple(self._column(each, (*place, "properties", n)) for n, each in enumerate(properties))
        by_rule = self._table_rules(place)
        rules = first_rules(columns, self._action(by_rule, "fieldCount"), self._action(by_rule, "headerOnce"))
        duplicates = Action.FAIL
        for n, (each, column) in enumerate(zip(properties, columns, strict=True)):
            found, repeated = self._column_rules(each, column, columns, (*place, "properties", n))
            rules += found
            if column.name == keys[0]:
                duplicates = repeated or (Action.FAIL if column.unique else Action.FLAG)
            elif repeated:
                raise self.document.error((*place, "properties", n, "quality"), "duplicateValues is known for the key alone")
        if len(rules) > MOST_RULES:
            raise self.document.error((*place, "properties"), f"{len(rules)} rules are more than {MOST_RULES}")
        empty = self._policy(self.table.customProperties, "empty", {"allow": Action.FLAG, "fail": Action.FAIL}, place, Action.FAIL)
        new = self._policy(
            self.table.customProperties, "newColumns", {each.value: each for each in NewColumns}, place, NewColumns.FAIL
        )
        exact = self._policy(self.table.customProperties, "columnOrder", {"any": False, "exact": True}, place, False)
        times = {each.name: each.name for each in columns if each.type == "TIMESTAMP"}
        version = self._policy(self.table.customProperties, "sourceVersion", times, place, None)
        lookback = self._policy(self.table.customProperties, "lookback", {str(n): n for n in range(MOST_LOOKBACK + 1)}, place, 0)
        self._only(self.table.customProperties, ("empty", "newColumns", "columnOrder", "sourceVersion", "lookback"), place)
        return Contract(
            table=str(self.table.name),
            description=(self.table.description or "").strip(),
            columns=columns,
            key=keys[0],
            rules=tuple(rules),
            duplicates=duplicates,
            null_rate=self._action(by_rule, "nullRate", Action.FAIL),
            empty=empty,
            new_columns=new,
            exact_header=exact,
            volume=self._volume(by_rule),
            lopsided=self._lopsided(by_rule),
            fresh_within_hours=self._freshness(),
            origin=self.document.origin,
            source_version=version,
            lookback=lookback,
            physical_name=str(self.table.physicalName or self.table.name).strip(),
        )

    def _column(self, each: SchemaProperty, place: Place) -> Column:
        kind = (each.physicalType or "").replace(" ", "").upper()
        if not TYPES.match(kind):
            raise self.document.error(
                (*place, "physicalType"),
                f"column {each.name} has the type {each.physicalType!r}; known are INT, STRING, TIMESTAMP, DECIMAL(p,s)",
            )
        options = dict(each.logicalTypeOptions or {})
        written = TimeFormat(str(options.pop("format"))) if kind == "TIMESTAMP" and "format" in options else None
        if written is not None and written.problem:
            raise self.document.error((*place, "logicalTypeOptions", "format"), written.problem)
        if options:
            names = ", ".join(options)
            raise self.document.error(
                (*place, "logicalTypeOptions"),
                f"{names}: only a time's format stands here; a limit is a quality rule with an action (metric invalidValues)",
            )
        description = " ".join((each.description or "").split())
        return Column(str(each.name), kind, description, bool(each.required), bool(each.unique), written or TimeFormat(ISO_TIME))

    def _column_rules(
        self, each: SchemaProperty, column: Column, columns: Sequence[Column], place: Place
    ) -> tuple[list[Rule], Action | None]:
        # What becomes of a broken promise for which the file names no action: keys and amounts fail the day, a row that is
        # only incomplete is set aside.
        strict = bool(each.primaryKey) or column.type.startswith("DECIMAL")
        missing = Action.FAIL if each.primaryKey else Action.QUARANTINE
        invalid = Action.FAIL if strict else Action.QUARANTINE
        duplicates, extra = None, []
        for n, quality in enumerate(each.quality or []):
            here = (*place, "quality", n)
            action = self._on_violation(quality, here)
            arguments = quality.arguments or {}
            if quality.metric:
                self._expect_zero(quality, here)
            if quality.metric == "missingValues" and not arguments:
                if not column.required or action is Action.FLAG:
                    raise self.document.error(
                        here,
                        f"{column.name}: a missing value is judged where the column is `required`, by "
                        "fail or quarantine (a NULL that is let through would fail the null rate)",
                    )
                missing = action
            elif quality.metric == "invalidValues" and not arguments:
                if action is Action.FLAG:
                    raise self.document.error(
                        here, f"{column.name}: a value that is not a {column.type} cannot be loaded; say fail or quarantine"
                    )
                invalid = action
            elif quality.metric == "duplicateValues" and not arguments:
                if action is Action.QUARANTINE:
                    raise self.document.error(
                        here, "repeated keys can fail the day or be flagged; no one of the rows is the bad one"
                    )
                duplicates = action
            elif quality.metric in ("missingValues", "invalidValues"):
                extra += self._with_arguments(quality, column, action, here)
            elif quality.type == "custom":
                extra.append(self._holds(quality, column, columns, action, here))
            else:
                raise self.document.error(
                    here,
                    f"the rule {quality.metric or quality.type!r} is not known for a column; known are "
                    "missingValues, invalidValues, duplicateValues, and type custom with `holds`",
                )
        return column_rules(column, missing, invalid) + extra, duplicates

    def _with_arguments(self, quality: DataQuality, column: Column, action: Action, place: Place) -> list[Rule]:
        typed, rules = f"`{column.typed_name}`", []
        for name, value in (quality.arguments or {}).items():
            here = (*place, "arguments", name)
            if name == "missingValues" and quality.metric == "missingValues" and isinstance(value, list):
                words = "|".join(re.sub(r"(\W)", r"\\\1", str(word)) for word in value)
                rules.append(("a word for nothing", f"{column.text} RLIKE {_text(f'(?i)^ *({words}) *' + chr(92) + 'z')}"))
            elif name == "validValues" and quality.metric == "invalidValues" and isinstance(value, list):
                listed = ", ".join(self._literal(each, column, here) for each in value)
                rules.append((f"none of {', '.join(map(str, value))}", f"{typed} NOT IN ({listed})"))
            elif name in _LIMITS and quality.metric == "invalidValues" and column.type != "STRING":
                rules.append((f"{_LIMIT_WORDS[name]} {value}", f"{typed} {_LIMITS[name]} {self._literal(value, column, here)}"))
            elif name in _LENGTHS and quality.metric == "invalidValues" and column.type == "STRING" and isinstance(value, int):
                sign, words = _LENGTHS[name]
                rules.append((f"{words} {value} characters", f"length({typed}) {sign} {value}"))
            elif name == "pattern" and quality.metric == "invalidValues" and column.type == "STRING":
                rules.append((f"not like {value}", f"NOT {typed} RLIKE {_text(str(value))}"))
            else:
                raise self.document.error(
                    here, f"{quality.metric} of the {column.type} {column.name} knows no argument {name}: {value!r}"
                )
        reason = (quality.description or "").strip()
        return [
            self._tried(Rule(column.name, reason or words, action, condition, plain=False), [column], place)
            for words, condition in rules
        ]

    def _holds(self, quality: DataQuality, column: Column, columns: Sequence[Column], action: Action, place: Place) -> Rule:
        said = quality.implementation if isinstance(quality.implementation, dict) else {}
        if quality.engine != ENGINE or set(said) != {"holds"}:
            raise self.document.error(
                place, "a custom rule of a column has `engine: shop` and `implementation: {holds: <condition>}`"
            )
        reason = (quality.description or quality.name or f"not {said['holds']}").strip()
        try:
            condition = refer_to_typed(str(said["holds"]), columns)
        except ValueError as problem:
            raise self.document.error((*place, "implementation", "holds"), str(problem)) from None
        rule = Rule(column.name, reason, action, f"(NOT ({condition}))", plain=False)
        return self._tried(rule, columns, (*place, "implementation", "holds"), condition)

    def _tried(self, rule: Rule, columns: Sequence[Column], place: Place, condition: str | None = None) -> Rule:
        """The rule, after it was run over one row: an unknown function or a wrong pattern shows here, not at night."""
        values = [f"DATE '2026-09-01' AS {ORDER_DATE[0]}"]
        for column in columns:
            kind, value = ("VARCHAR", "x") if column.type == "STRING" else (column.type, "1")
            value = "2026-09-01 11:45:00" if kind == "TIMESTAMP" else value
            values += [f"'{value}' AS {duck.identifier(column.name)}"]
            values += [f"CAST('{value}' AS {kind}) AS {duck.identifier(column.typed_name)}"]
        try:
            asked = (
                f"SELECT typeof({to_duckdb(condition or rule.broken)}), {to_duckdb(rule.broken)} FROM (SELECT {', '.join(values)})"
            )
            ((kind, _),) = _engine().execute(asked).fetchall()
        except duckdb.Error as error:
            raise self.document.error(place, f"the rule cannot be run ({str(error).splitlines()[0]})") from None
        if kind != "BOOLEAN":
            raise self.document.error(place, f"the rule is no condition: it gives a {kind}")
        return rule

    def _literal(self, value: object, column: Column, place: Place) -> str:
        if column.type == "STRING":
            return _text(str(value))
        if column.type == "TIMESTAMP":
            return f"CAST({_text(str(value))} AS TIMESTAMP)"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.document.error(place, f"{value!r} is not a number, as {column.name} is")
        return f"CAST('{value}' AS {column.type})"

    def _table_rules(self, place: Place) -> _TableRules:
        found: _TableRules = {}
        for n, quality in enumerate(self.table.quality or []):
            here = (*place, "quality", n)
            said = quality.implementation if isinstance(quality.implementation, dict) else {}
            name = "rowCount" if quality.metric == "rowCount" else str(said.get("rule"))
            if quality.metric != "rowCount" and (quality.engine != ENGINE or name not in _TABLE_RULES):
                known = ", ".join(_TABLE_RULES)
                raise self.document.error(
                    (*here, "implementation"),
                    f"the rule {quality.metric or said.get('rule')!r} is not known for a table; known are "
                    f"rowCount, and with `engine: {ENGINE}` {known}",
                )
            if name in found:
                raise self.document.error(here, f"the rule {name} is there twice")
            action = self._on_violation(quality, here)
            wanted = {"fieldCount": Action.FLAG, "headerOnce": Action.FLAG}
            if action is wanted.get(name) or (action is Action.QUARANTINE and name not in wanted):
                raise self.document.error(here, f"{name} cannot {action}")
            found[name] = (quality, said, action, here)
        return found

    @staticmethod
    def _action(by_rule: _TableRules, name: str, default: Action = Action.QUARANTINE) -> Action:
        return by_rule[name][2] if name in by_rule else default

    def _volume(self, by_rule: _TableRules) -> Volume | None:
        if "rowCount" not in by_rule:
            return None
        quality, _, action, here = by_rule["rowCount"]
        band = quality.mustBeBetween or []
        words = "rowCount has `unit: percent` and `mustBeBetween: [low, high]` in whole percents"
        if quality.unit != "percent" or len(band) != 2 or not 0 <= band[0] < band[1] or any(each != int(each) for each in band):
            raise self.document.error((*here, "mustBeBetween"), words)
        arguments = dict(quality.arguments or {})
        baselines = {each.value: each for each in Baseline}
        baseline = arguments.pop("baseline", Baseline.PREVIOUS.value)
        if baseline not in baselines:
            raise self.document.error(
                (*here, "arguments", "baseline"), f"the baseline {baseline!r} is none of {', '.join(baselines)}"
            )
        last, enough = arguments.pop("ofMedianOfLast", 7), arguments.pop("enoughHistory", 3)
        if arguments or not all(isinstance(each, int) and each > 0 for each in (last, enough)):
            raise self.document.error(
                (*here, "arguments"), "rowCount knows ofMedianOfLast, enoughHistory (whole numbers), baseline"
            )
        return Volume(int(band[0]), int(band[1]), action, last, enough, baselines[baseline])

    def _lopsided(self, by_rule: _TableRules) -> Lopsided | None:
        if "topValueShare" not in by_rule:
            return None
        _, said, action, here = by_rule["topValueShare"]
        percent, least = said.get("percent"), said.get("minRows", 10)
        if set(said) - {"rule", "percent", "minRows"} or not isinstance(percent, (int, float)) or not isinstance(least, int):
            raise self.document.error((*here, "implementation"), "topValueShare has `percent`, and may have `minRows`")
        return Lopsided(percent, action, least)

    def _freshness(self) -> float | None:
        for n, each in enumerate(self.standard.slaProperties or []):
            if each.property == "latency":
                if each.unit not in ("h", "hours") or not isinstance(each.value, (int, float)) or each.value <= 0:
                    raise self.document.error(("slaProperties", n, "unit"), "latency is a number of hours, with `unit: h`")
                return float(each.value)
        return None

    def _on_violation(self, quality: DataQuality, place: Place) -> Action:
        self._only(quality.customProperties, ("onViolation",), place)
        found = self._policy(quality.customProperties, "onViolation", {each.value: each for each in Action}, place, None)
        if found is None:
            raise self.document.error(place, "the rule does not say what a broken promise leads to (customProperties: onViolation)")
        return Action(found)

    def _policy(
        self,
        properties: Sequence[CustomProperty] | None,
        name: str,
        known: Mapping[str, object],
        place: Place,
        default: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        for n, each in enumerate(properties or []):
            if each.property == name:
                if str(each.value) not in known:
                    raise self.document.error(
                        (*place, "customProperties", n, "value"), f"{name} is {each.value!r}, which is none of {', '.join(known)}"
                    )
                return known[str(each.value)]
        return default

    def _only(self, properties: Sequence[CustomProperty] | None, known: Sequence[str], place: Place) -> None:
        for n, each in enumerate(properties or []):
            if each.property not in known:
                raise self.document.error(
                    (*place, "customProperties", n), f"the custom property {each.property!r} is none of {', '.join(known)}"
                )

    def _expect_zero(self, quality: DataQuality, place: Place) -> None:
        if quality.mustBe not in (None, 0):
            raise self.document.error(
                place, f"{quality.metric} says mustBe {quality.mustBe!r}; a row is judged by itself, so it is 0"
            )


def _text(value: str) -> str:
    """A text as a Spark SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
