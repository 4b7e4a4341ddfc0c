"""A contract as a page for people: `python -m shop_pipeline.core.contract_page` prints the till's (`make docs`)."""

from collections.abc import Iterable, Sequence

from shop_pipeline.core.contract import Action, Contract, NewColumns
from shop_pipeline.core.contract_file import load_contract

_NEW = {
    NewColumns.ADD: "added to the table as text (older days read NULL), noted in `run_log`; days that bring it are not read on",
    NewColumns.IGNORE: "left out of the table, noted in `run_log`",
    NewColumns.FAIL: "refused with the day",
}
_HEAD = """# The contract of {table}

Made from `{origin}` by `make docs`; change the file, not this page. To use a contract of your own, put a file of the same name
into a folder and set `SHOP_CONTRACTS` to it.

{description}

What a broken promise leads to:

- **fail**: the day is refused. Nothing of it is written, its earlier rows stay, and the failure names up to five rows.
- **quarantine**: the row is set aside in `{quarantine}`, with its text and the reason; the rest of the day is loaded.
  `shop quarantine release FIRST LAST` takes rows back when the file or the contract was mended.
- **flag**: the row is loaded; it is counted in `run_log` and on the day's page, and `shop` warns of it.
"""


def page(contract: Contract, quarantine: str) -> str:
    """The contract in Markdown."""
    parts = [
        _HEAD.format(table=contract.sql_name, origin=contract.origin, description=contract.description, quarantine=quarantine),
        "## Columns\n",
        _table(
            ("column", "type", "what", "required"),
            ((f"`{c.name}`", c.type, c.description, "yes" if c.required else "no") for c in contract.columns),
        ),
        "Columns are found by their names in the header, never by position. Numbers may have spaces around them; a value that is\n"
        "not of its column's type is never made NULL.\n",
        f"{_version(contract)}\n",
        "## Rules for each row\n",
        "A record with the wrong number of fields, or one that repeats the header, breaks that one rule; its values are not\n"
        "judged.\n",
        _table(
            ("column", "a row breaks it when it is", "then"),
            ((f"`{r.column}`" if r.column else "", r.reason, f"**{r.action}**") for r in contract.rules),
        ),
        "## Rules for each day\n",
        _table(("check", "rule", "then"), _day_rules(contract)),
    ]
    return "\n".join(parts)


def pages() -> str:
    """The contracts that come with the package, one after the other."""
    both = (("orders_daily", "orders_quarantine"), ("shopflow_orders", "shopflow.orders_quarantine"))
    return "\n".join(page(load_contract(name), quarantine) for name, quarantine in both)


def _version(contract: Contract) -> str:
    first = f"newest {contract.source_version}, then of the " if contract.source_version else ""
    return f"Of several rows of one {contract.key} the one of the {first}newest day counts; in a day, the one that comes last."


def _day_rules(contract: Contract) -> Iterable[Sequence[str]]:
    yield "", "a day without orders", "**fail**" if contract.empty is Action.FAIL else "loaded as a shut day, with a warning"
    yield "", "a file with orders of which none is good", "**fail**"
    yield "", "a column that is not in the contract", _NEW[contract.new_columns]
    order = "**fail**" if contract.exact_header else "loaded by name, with a warning"
    yield "", "the columns in another order", order
    if contract.volume is not None:
        band = contract.volume
        rule = f"rows outside {band.low}-{band.high} % of the median of the last {band.last} verified days ({band.baseline})"
        yield "`volume`", f"{rule}; too little history under {band.enough} days", f"**{band.action}**"
    yield "`null_rate`", "a NULL in a required column of the table", f"**{contract.null_rate}**"
    yield "`key_uniqueness`", f"the same {contract.key} more than once", f"**{contract.duplicates}**"
    if contract.lopsided is not None:
        share = contract.lopsided
        rule = f"a column that suddenly has one value in {share.percent:g} % of the rows (days of {share.min_rows} rows or more)"
        yield "`value_distribution`", rule, f"**{share.action}**"
    if contract.fresh_within_hours is not None:
        rule = f"the newest day is not loaded within {contract.fresh_within_hours:g} hours of its end"
        yield "`freshness`", rule, "warn"
    yield "`check_day`", "the day's rows in the table are not the good rows of its source", "**fail**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def main() -> None:
    """Print all pages."""
    print(pages(), end="")


if __name__ == "__main__":
    main()
