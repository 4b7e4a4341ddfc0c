"""Contract files: what the till's says, and what is wrong with others, by file and line. No Spark."""

import re
from datetime import date
from pathlib import Path

import pytest
import yaml

from shop_pipeline.core import duck
from shop_pipeline.core.batch import bad_rows
from shop_pipeline.core.contract import Action, Baseline, NewColumns, TimeFormat, Volume, to_duckdb
from shop_pipeline.core.contract_file import load_contract, parse_contract
from shop_pipeline.core.contract_page import pages
from shop_pipeline.core.errors import ContractError
from shop_pipeline.core.sources.till_files import TillFiles
from shop_pipeline_tests.builders import CONTRACT_TEXT, contract_with, write_day
from shop_pipeline_tests.conftest import REPOSITORY

DAY = date(2026, 9, 1)


def test_the_tills_contract_says_what_was_agreed() -> None:
    """D3: keys and amounts fail the day, an incomplete row is set aside, repeated keys are reported."""
    contract = load_contract("orders_daily")
    by_action = {action: [rule.name for rule in contract.rules if rule.action is action] for action in Action}
    assert by_action[Action.FAIL] == [
        "order_id: empty",
        "order_id: not a whole number",
        "order_id: overflow: too large for INT",
        "amount: not a number",
        "amount: more than 2 decimals",
        "amount: overflow: too large for DECIMAL(10,2)",
    ]
    assert by_action[Action.QUARANTINE] == [
        "wrong number of fields",
        "the header line again",
        "customer_id: empty",
        "amount: empty",
        "ordered_at: empty",
        "ordered_at: not a time written like 2026-09-01T11:45:00",
        "ordered_at: after the file's own day",
    ]
    assert contract.duplicates is Action.FLAG
    assert (contract.empty, contract.new_columns, contract.exact_header) == (Action.FLAG, NewColumns.ADD, False)
    assert contract.volume == Volume(50, 150, Action.FLAG, 7, 3, Baseline.PREVIOUS)
    assert contract.fresh_within_hours == 26


def test_the_page_is_made_from_the_contracts() -> None:
    """`make docs` was run after the last change."""
    assert (REPOSITORY / "docs" / "contract.md").read_text() == pages()


def line_of(text: str, words: str) -> int:
    return text[: text.index(words)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # What stands in the file, what stands there instead, what is said of it.
        (
            "- property: newColumns",
            "- {property: sourceVersion, value: order_id}\n      - property: newColumns",
            "sourceVersion is 'order_id', which is none of ordered_at",
        ),
        (
            "- property: newColumns",
            "- {property: lookback, value: 99}\n      - property: newColumns",
            "lookback is 99, which is none of 0, 1, 2",
        ),
        ("metric: invalidValues", "metric: invlidValues", "'invlidValues' is not one of"),
        ("{rule: nullRate}", "{rule: nulRate}", "the rule 'nulRate' is not known for a table"),
        ("onViolation, value: quarantine", "onViolation, value: quarantin", "onViolation is 'quarantin', which is none of"),
        ("property: onViolation", "property: onviolation", "the custom property 'onviolation' is none of"),
        ("physicalType: DECIMAL(10,2)", "physicalType: MONEY", "column amount has the type 'MONEY'"),
        ("logicalType: integer", "logicalType: intger", "'intger' is not one of"),
        ("    quality:\n      - name: field_count", "    qualty:\n      - name: field_count", "('qualty' was unexpected)"),
        ("value: allow", "value: maybe", "empty is 'maybe', which is none of allow, fail"),
        ("value: add", "value: keep", "newColumns is 'keep', which is none of add, ignore, fail"),
        ("mustBeBetween: [50, 150]", "mustBeBetween: [150, 50]", "`mustBeBetween: [low, high]` in whole percents"),
        ("baseline: previous days", "baseline: yesterday", "the baseline 'yesterday' is none of"),
        ("percent: 90", "share: 90", "topValueShare has `percent`"),
        ("holds: customer_id = trim(customer_id)", "holds: customer_id = trimm(customer_id)", "that Spark and DuckDB both have"),
        ("holds: customer_id = trim(customer_id)", "holds: customer_id = trim(customer)", "names customer, which is no column"),
        ("holds: customer_id = trim(customer_id)", "holds: customer_id = (", "is not an SQL condition"),
        ("holds: customer_id = trim(customer_id)", "holds: customer_id = uuid()", "a rule is a condition on one row"),
        ("holds: customer_id = trim(customer_id)", "holds: order_date < current_date()", "the same whenever it is asked"),
        ("holds: customer_id = trim(customer_id)", "holds: amount > (SELECT 1)", "a rule is a condition on one row"),
        ("holds: customer_id = trim(customer_id)", "holds: amount * 2", "the rule is no condition: it gives a DECIMAL"),
        ("holds: customer_id = trim(customer_id)", "holds: \"customer_id RLIKE '^(?=x)'\"", "the rule cannot be run"),
        ("minimum: 0", "minimum: none", "'none' is not a number, as amount is"),
        ("minimum: 0", "smallest: 0", "knows no argument smallest: 0"),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]", "yyyy-MM-dd", "a time format has yyyy, MM, dd, HH, mm, ss, each once"),
        ("- name: customer_id", "- name: Customer Id", "'Customer Id' cannot be a column"),
        ("unit: h", "unit: days", "latency is a number of hours"),
        ("status: active", "status: [active", "this is not YAML"),
        ("kind: DataContract", "kind: Contract", "not an Open Data Contract: 'Contract' is not one of"),
    ],
)  # fmt: skip
def test_a_wrong_contract_is_named_by_file_and_line(old: str, new: str, reason: str) -> None:
    assert old in CONTRACT_TEXT
    text = CONTRACT_TEXT.replace(old, new, 1)
    with pytest.raises(ContractError) as raised:
        parse_contract(text, "contracts/mine.yaml")
    said = str(raised.value)
    found = re.match(r"contracts/mine\.yaml, line (\d+): ", said)
    assert found, said
    assert reason in said
    at = line_of(text, new)
    # A bracket that is not closed is missed on the line after it.
    assert at <= int(found[1]) <= at + new.count("\n") + ("not YAML" in said), (at, said)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("primaryKey: true", "primaryKey: false", "    properties:", "exactly one column says `primaryKey: true`, not none"),
        ("name: customer_id", "name: order_id", "        description: Who bought.", "the column order_id is there twice"),
    ],
)
def test_a_contract_that_contradicts_itself(old: str, new: str, line: str, reason: str) -> None:
    text = CONTRACT_TEXT.replace(old, new, 1)
    with pytest.raises(ContractError) as raised:
        parse_contract(text, "x.yaml")
    assert reason in str(raised.value)
    assert abs(line_of(text, line) - int(re.findall(r"line (\d+)", str(raised.value))[0])) <= 1


def with_rule(column: str, metric: str, action: str, arguments: str = "") -> str:
    """The contract's text with one more rule, the first of its column."""
    lines = [f"- metric: {metric}", *([f"  arguments: {arguments}"] if arguments else []), "  mustBe: 0"]
    lines.append(f"  customProperties: [{{property: onViolation, value: {action}}}]")
    head, tail = CONTRACT_TEXT.split(f"- name: {column}\n")
    added = "".join(f"          {line}\n" for line in lines)
    return f"{head}- name: {column}\n" + tail.replace("        quality:\n", f"        quality:\n{added}", 1)


@pytest.mark.parametrize(
    ("metric", "action", "reason"),
    [
        ("missingValues", "flag", "a NULL that is let through"),
        ("invalidValues", "flag", "cannot be loaded"),
        ("duplicateValues", "quarantine", "no one of the rows is the bad one"),
    ],
)
def test_what_cannot_be_let_through_is_no_contract(metric: str, action: str, reason: str) -> None:
    """D1: nothing becomes NULL because a contract only flags it."""
    with pytest.raises(ContractError, match=reason):
        parse_contract(with_rule("order_id", metric, action), "x.yaml")


def test_the_shipped_contract_is_a_plain_one_of_the_standard() -> None:
    assert yaml.safe_load(CONTRACT_TEXT)["kind"] == "DataContract"


def test_a_contract_of_ones_own_comes_first(tmp_path: Path) -> None:
    """SHOP_CONTRACTS: a file of the same name in that folder; what is not there is the package's."""
    (tmp_path / "orders_daily.yaml").write_text(CONTRACT_TEXT.replace("value: add", "value: fail"))
    assert load_contract("orders_daily", tmp_path).new_columns is NewColumns.FAIL
    assert load_contract("orders_daily", tmp_path / "empty").new_columns is NewColumns.ADD


@pytest.mark.parametrize(
    ("pattern", "text", "example"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]", "2026-09-01T09:08:07.5", "2026-09-01T11:45:00"),
        ("yyyy-MM-dd HH:mm:ss", "2026-09-01 09:08:07", "2026-09-01 11:45:00"),
        ("dd.MM.yyyy HH:mm:ss", "01.09.2026 09:08:07", "01.09.2026 11:45:00"),
        ("yyyyMMddHHmmss[.SSS]", "20260901090807.123", "20260901114500"),
    ],
)
def test_times_are_read_by_the_contracts_format(tmp_path: Path, pattern: str, text: str, example: str) -> None:
    """The format is the contract's; another way of writing a time is not guessed."""
    assert TimeFormat(pattern).problem is None
    assert TimeFormat(pattern).example == example
    contract = contract_with(("yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]", pattern))
    write_day(tmp_path, DAY, f"order_id,customer_id,amount,ordered_at\n1,c1,1.00,{text}\n2,c2,1.00,{text[:-1]}x\n")
    opened = TillFiles(tmp_path, contract).open([DAY])
    con = duck.connect()
    (row,) = bad_rows(con, contract, opened, DAY, -1)
    assert (row.record, row.violations[0].column) == (2, "ordered_at")
    typed = to_duckdb(contract.columns[3].typed)
    ((at,),) = con.execute(f"SELECT {typed} FROM ({opened.rows_in_duckdb(con, [DAY])}) WHERE order_id = '1'").fetchall()
    assert str(at)[:19] == "2026-09-01 09:08:07"


RULES = [
    ("order_id", "invalidValues", "{validValues: [1, 2]}", ["1", "2", " 2"], ["3"]),
    ("order_id", "invalidValues", "{exclusiveMaximum: 5}", ["4"], ["5"]),
    ("amount", "invalidValues", "{minimum: 0.01, maximum: 99.99}", ["0.01", "99.99"], ["0.00", "100.00"]),
    ("customer_id", "invalidValues", '{pattern: "^c[0-9]+$"}', ["c1", "c22"], ["d1", "c"]),
    ("customer_id", "invalidValues", "{validValues: [c1, c2]}", ["c1"], ["c3"]),
    ("customer_id", "invalidValues", "{minLength: 2, maxLength: 3}", ["ab", "éüö"], ["a", "abcd"]),
    ("ordered_at", "invalidValues", "{minimum: '2026-09-01 08:00:00'}", ["2026-09-01T08:00:00"], ["2026-09-01T07:59:59"]),
]


@pytest.mark.parametrize(("column", "metric", "arguments", "good", "bad"), RULES)
def test_the_rules_that_a_contract_can_add(
    tmp_path: Path, column: str, metric: str, arguments: str, good: list[str], bad: list[str]
) -> None:
    """Allowed values, ranges, lengths, patterns; C154: an empty value is for the rule about empty ones."""
    contract = parse_contract(with_rule(column, metric, "quarantine", arguments), "x.yaml")
    usual = {"order_id": "7", "customer_id": "c7", "amount": "7.00", "ordered_at": "2026-09-01T09:00:00"}
    lines = [",".join((usual | {column: value}).values()) for value in [*good, *bad, ""]]
    write_day(tmp_path, DAY, "\n".join([",".join(usual), *lines]) + "\n")
    opened = TillFiles(tmp_path, contract).open([DAY])
    found = list(bad_rows(duck.connect(), contract, opened, DAY, -1))
    assert [row.record for row in found] == list(range(len(good) + 1, len(good) + len(bad) + 2))
    assert [each.reason for each in found[-1].violations] == ["empty"]
