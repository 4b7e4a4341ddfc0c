"""What keeps a day out, and what the checks say of one that is in: the contract's rules about whole days."""

from collections.abc import Mapping
from datetime import date

import duckdb

from shop_pipeline.core.batch import EXAMPLES, Reading, bad_rows, repeated_keys, sentences
from shop_pipeline.core.contract import Action, Contract, Volume
from shop_pipeline.core.outcome import CheckResult
from shop_pipeline.core.sources import Drift, OpenSource
from shop_pipeline.core.verify import Comparison
from shop_pipeline.core.volume import Judgement, gate_sentence, judge, median

# What a source of files calls itself.
FILE = "file"
VOLUME, NULL_RATE, KEY_UNIQUENESS, VALUE_DISTRIBUTION = "volume", "null_rate", "key_uniqueness", "value_distribution"


def check_names(contract: Contract) -> dict[str, bool]:
    """The checks that a contract asks of each day, and whether one that fails keeps the day from being read."""
    names = {}
    if contract.volume is not None:
        names[VOLUME] = contract.volume.action is Action.FAIL
    names[NULL_RATE] = contract.null_rate is Action.FAIL
    names[KEY_UNIQUENESS] = contract.duplicates is Action.FAIL
    if contract.lopsided is not None:
        names[VALUE_DISTRIBUTION] = contract.lopsided.action is Action.FAIL
    return names


def null_keys(contract: Contract, reading: Reading) -> int:
    """The rows of a day without a key."""
    return sum(
        rows for rule, rows in zip(contract.rules, reading.broken, strict=True) if rule.missing and rule.column == contract.key
    )


def log_line(contract: Contract, reading: Reading) -> str:
    """The line about a day's keys."""
    repeated = reading.repeated_keys
    return f"Rows: {reading.records}, null keys: {null_keys(contract, reading)}, keys with duplicates: {repeated}"


def refuses(band: Volume, judgement: Judgement) -> bool:
    """Whether a volume keeps the day out. A day without rows is for the contract's rule about empty days."""
    return band.action is Action.FAIL and judgement.rows > 0 and not judgement.inside


def judge_volumes(band: Volume | None, known: Mapping[date, int], rows: Mapping[date, int]) -> dict[date, Judgement | None]:
    """The volume of each of some days (by their rows) against `known` days before it, and those among them that are accepted."""
    if band is None:
        return dict.fromkeys(rows)
    accepted = dict(known)
    found: dict[date, Judgement | None] = {}
    for day in sorted(rows):
        judgement = found[day] = judge(rows[day], accepted, day, band)
        # A day that is refused for it keeps its earlier rows, and its place in the baseline with them.
        if not refuses(band, judgement):
            accepted[day] = rows[day]
    return found


def refusal(
    con: duckdb.DuckDBPyConnection,
    contract: Contract,
    source: OpenSource,
    day: date,
    reading: Reading,
    judgement: Judgement | None,
    again: str,
) -> str | None:
    """Why a day must not be written, or None: the gates that it did not pass, up to five of its rows, and what to do.

    Args:
        judgement: of the day's volume.
        again: what to run after mending, as in "rerun run date 2026-09-02".
    """
    gates, reasons, advice = [], [], f"Mend the {source.noun}"
    name = source.name(day)
    if empty := empty_gate(contract, reading):
        gates += empty
        reasons.append(f"{name} has no orders")
        advice = "Send the day's orders"
    keyless = null_keys(contract, reading)
    if keyless and any(rule.missing and rule.column == contract.key and rule.action is Action.FAIL for rule in contract.rules):
        gates.append(f"Quality gate: {keyless} rows have a null {contract.key}")
    if reading.failing:
        reasons.append(f"{name}, {_rows(con, contract, source, day, contract.bits(Action.FAIL), reading.failing)}")
    elif reading.records and not reading.good:
        shown = _rows(con, contract, source, day, contract.bad_bits, reading.records)
        reasons.append(f"{name} has {reading.records} rows and none of them is good: {shown}")
    if reading.repeated_keys and contract.duplicates is Action.FAIL:
        reasons.append(f"{name}, {repeated(con, contract, source, day)}")
    if judgement and contract.volume and refuses(contract.volume, judgement) and not reasons:
        gates.append(gate_sentence(judgement))
        reasons.append(f"{name} has {judgement.rows} good rows")
        advice = f"See that the day is whole; where the number is right, set the volume's onViolation to flag in {contract.origin}"
    if not reasons:
        return None
    reasons += drift_remarks(source.drift(day), source)
    return "\n".join([*gates, f"{day} was not loaded: {'; '.join(reasons)}. {advice} and {again}."])


def _rows(
    con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, day: date, bits: int, total: int, without: int = 0
) -> str:
    shown = sentences(bad_rows(con, contract, source, day, bits, EXAMPLES, without=without))
    return "; ".join(shown) + (f"; and {total - len(shown)} more rows" if total > len(shown) else "")


def repeated(con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, day: date) -> str:
    """The keys that come more than once, up to five of them by name."""
    ((_, count, examples),) = repeated_keys(con, contract, source, [day])
    shown = ", ".join(f"{contract.key} {key} ({times} times)" for key, times in examples)
    more = f" and {count - len(examples)} more" if count > len(examples) else ""
    return f"{count} {'key comes' if count == 1 else 'keys come'} more than once: {shown}{more}"


def _nothing(source: OpenSource) -> str:
    return "has a header and nothing else" if source.noun == FILE else "has no rows"


def drift_remarks(drift: Drift, source: OpenSource) -> list[str]:
    """What is odd about the source's columns."""
    remarks, where = [], "the header" if source.noun == FILE else "the table"
    if drift.added:
        remarks.append(f"{where} has the new {_columns(drift.added)}")
    if drift.ignored:
        remarks.append(f"{where} has the unknown {_columns(drift.ignored)}, which is left out")
    if drift.reordered:
        remarks.append("the columns stand in another order than the contract's and were taken by their names")
    return remarks


def _columns(names: tuple[str, ...]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(names)}"


def empty_gate(contract: Contract, reading: Reading) -> list[str]:
    """What a day without orders is told by a contract that has none such."""
    return [f"Quality gate: {contract.sql_name} is empty"] if reading.records == 0 and contract.empty is Action.FAIL else []


def warnings(
    con: duckdb.DuckDBPyConnection, contract: Contract, source: OpenSource, day: date, key_text: str, reading: Reading
) -> list[str]:
    """What is odd about a day that may be loaded all the same, a sentence each."""
    where = f"{day} ({key_text})"
    found = []
    if reading.records == 0:
        found.append(f"{day} has no orders: {source.name(day)} {_nothing(source)} ({key_text})")
    kinds = (("quarantined", reading.quarantined, contract.bad_bits, 0), ("flagged", reading.flagged, -1, contract.bad_bits))
    for what, rows, bits, without in kinds:
        if rows:
            shown = _rows(con, contract, source, day, bits, rows, without)
            found.append(f"{where}: {rows} {'row' if rows == 1 else 'rows'} {what}: {shown}")
    if reading.repeated_keys and contract.duplicates is Action.FLAG:
        found.append(f"{where}: {repeated(con, contract, source, day)}")
    found += [f"{where}: {remark}" for remark in drift_remarks(source.drift(day), source)]
    return found


def judge_day(
    contract: Contract,
    day: date,
    reading: Reading,
    seen: Comparison,
    judgement: Judgement | None,
    profiles: Mapping[date, Mapping[str, float]],
) -> tuple[CheckResult, ...]:
    """The checks of a day that is in the table, from what its source and its table say.

    Args:
        profiles: the share of the commonest value per column, of earlier days.
    """
    nothing = f"{day}: nothing to check, the day has no rows"
    results = []
    if contract.volume is not None and judgement is not None:
        fatal = refuses(contract.volume, judgement)
        numbers = {"rows": judgement.rows, "median": judgement.median, "days_compared_with": judgement.history}
        results.append(CheckResult(VOLUME, judgement.inside, fatal, f"{day}: {judgement.sentence}", numbers))
    nulls = {name: count for name, count in seen.nulls.items() if count}
    text = ", ".join(f"{count} of {seen.table_rows} rows have a null {name}" for name, count in nulls.items())
    sentence = f"{day}: {text or 'no required column is null'}" if seen.table_rows else nothing
    fatal = contract.null_rate is Action.FAIL
    aside = {"rows": seen.table_rows, "quarantined": seen.quarantined}
    results.append(CheckResult(NULL_RATE, not nulls, fatal, sentence, {**aside, **{f"null_{n}": c for n, c in seen.nulls.items()}}))
    keys = reading.repeated_keys
    said = f"{day}: {keys} of the day's keys come more than once" if keys else f"{day}: every {contract.key} comes once"
    unique = CheckResult(
        KEY_UNIQUENESS, not keys, contract.duplicates is Action.FAIL, said if seen.table_rows else nothing, {"repeated_keys": keys}
    )
    results.append(unique)
    if contract.lopsided is not None:
        results.append(_distribution(contract, day, seen, profiles, nothing))
    return tuple(results)


def _distribution(
    contract: Contract, day: date, seen: Comparison, profiles: Mapping[date, Mapping[str, float]], nothing: str
) -> CheckResult:
    rule = contract.lopsided
    if rule is None:
        raise ValueError("the contract asks for no such check")
    fatal = rule.action is Action.FAIL
    shares = {name: share for name, (_, share) in seen.top.items()}
    numbers = {f"top_share_{name}": round(share, 2) for name, share in shares.items()}
    if not seen.table_rows:
        return CheckResult(VALUE_DISTRIBUTION, True, fatal, nothing, numbers)
    if seen.table_rows < rule.min_rows:
        few = f"{day}: too few rows to judge: {seen.table_rows} of {rule.min_rows}"
        return CheckResult(VALUE_DISTRIBUTION, True, fatal, few, numbers)
    earlier = [profiles[each] for each in sorted(profiles) if each < day][-7:]
    sudden, unknown = [], []
    for name, (value, share) in seen.top.items():
        before = [int(profile[name]) for profile in earlier if name in profile]
        if share < rule.percent:
            continue
        if len(before) < 3:
            unknown.append(f"{name} is {value} in {share:.0f} % of the rows (too little history to call it sudden)")
        elif median(before) < rule.percent:
            sudden.append(f"{name} is {value} in {share:.0f} % of the rows, usually {median(before)} %")
    said = "; ".join(sudden + unknown) or f"no column has one value in {rule.percent:g} % of its rows"
    return CheckResult(VALUE_DISTRIBUTION, not sudden, fatal, f"{day}: {said}", numbers)


def not_judged(contract: Contract, day: date, why: str, judgement: Judgement | None = None) -> tuple[CheckResult, ...]:
    """The checks of a day that is not in the table, or not as it should be: they found nothing, which is no pass."""
    results = []
    for name in check_names(contract):
        if name == VOLUME and judgement is not None and not judgement.inside and contract.volume:
            fatal = refuses(contract.volume, judgement)
            results.append(CheckResult(name, False, fatal, f"{day}: {judgement.sentence}"))
        else:
            results.append(CheckResult(name, False, False, f"{day}: not judged, {why}"))
    return tuple(results)
