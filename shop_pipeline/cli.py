"""`shop`: the same definitions that Dagster runs, from a terminal.

Results go to standard output and nothing else does. Exit status: 0 all good, 1 a day failed or a check found a problem,
2 wrong usage or a wrong setting; the reason is one sentence on standard error.
"""

import gc
import json
import logging
import math
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shop_pipeline.core import interrupts
from shop_pipeline.core.days import (
    BYTES_PER_RUN,
    DAYS_OF_UNKNOWN_SIZE,
    DAYS_PER_RUN,
    contiguous_ranges,
    dates_between,
    in_runs,
    parse_date,
)
from shop_pipeline.core.errors import ContractError, SettingError, ShopError, WrongDate
from shop_pipeline.terminal import print_table, say, tell, tell_error

if TYPE_CHECKING:
    from pathlib import Path

    from shop_pipeline.automation.local_runs import DayReport, LocalRuns
    from shop_pipeline.core.lake import Lake
    from shop_pipeline.core.local_postgres import LocalPostgres
    from shop_pipeline.core.plan import PlannedDay
    from shop_pipeline.core.reprocess import Reprocess
    from shop_pipeline.settings import Settings

FAILED, WRONG, STOPPED = 1, 2, 130
# How much of a long text is shown in a table; --json has all of it.
SHOWN = 100

app = typer.Typer(
    help=(
        "Loads a shop's orders, a day at a time; any day can be run again at any time.\n\n"
        "A RUN_DATE (YYYY-MM-DD) is the date a run is for; it loads the day before it: "
        "run date 2026-09-02 loads 1 September. Every command works in the present folder: "
        "files in landing/, tables in lake/, Dagster's records in dagster_home/."
    ),
    epilog=(
        "Start: shop sample; shop backfill 2026-09-02 2026-10-01; shop sql 'SELECT * FROM daily_sales'. "
        "Exit status: 0 good, 1 a day failed, 2 wrong usage or setting."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

quarantine_app = typer.Typer(
    help="The rows that were set aside: see them, and take back those that are mended.", no_args_is_help=True
)
app.add_typer(quarantine_app, name="quarantine")
postgres_app = typer.Typer(help="A Postgres server of one's own, for the web shop's sample, on loopback.", no_args_is_help=True)
app.add_typer(postgres_app, name="postgres")

KEY = "RUN_DATE"
_KEY_HELP = "The run date, YYYY-MM-DD; its run loads the day before. With --source shopflow the business date itself."
RunDate = Annotated[str, typer.Argument(metavar=KEY, help=_KEY_HELP)]
Source = Annotated[str, typer.Option("--source", metavar="till|shopflow", help="Whose days: the till's files, or the web shop.")]
TILL, SHOPFLOW = "till", "shopflow"
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON array of row objects.")]


@app.command()
def sample(
    source: Annotated[str, typer.Argument(metavar="[till|shopflow]", help="Whose sample.")] = TILL,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what differs.")] = False,
    as_of: Annotated[str | None, typer.Option("--as-of", help="The web shop's database as it stood when this day began.")] = None,
) -> None:
    """Write the till's 30 files of September 2026 into the landing folder, or fill a database with two years of the web shop."""
    from shop_pipeline.core.sample import write_september

    if _choice("The sample", source, [TILL, SHOPFLOW], TILL) == TILL:
        if as_of is not None:
            raise WrongUsage("--as-of is for the web shop's database: shop sample shopflow --as-of DATE.")
        print(write_september(_settings().landing, force=force))
        return
    from shop_pipeline.core import shopflow_sample
    from shop_pipeline.core.postgres import Address

    settings = _settings()
    day = None if as_of is None else parse_date(as_of)
    if settings.postgres_url is not None:
        address = Address.of(settings.postgres_url.get_secret_value())
    else:
        address = shopflow_sample.make_database(_local_postgres().start())
    print(shopflow_sample.fill(address, day, force=force))


@postgres_app.command("start")
def start_postgres() -> None:
    """Start the local server, which is made if it is not there; print its address but for the password."""
    from shop_pipeline.core import shopflow_sample

    print(shopflow_sample.make_database(_local_postgres().start()))


@postgres_app.command("stop")
def stop_postgres() -> None:
    """Stop the local server; its data stay."""
    _local_postgres().stop()


@app.command()
def load(
    run_date: RunDate,
    append: Annotated[
        bool, typer.Option("--append", help="Append instead of replacing: shows the damage, doubles the day's rows.")
    ] = False,
    as_json: AsJson = False,
    source: Source = TILL,
) -> None:
    """Load one day into orders_daily and compare it with its source. Loading again is safe: the day is replaced."""
    shop = _Shop(source)
    shop.check_keys([run_date])
    shop.prepare_spark([run_date])
    report = shop.runs.load(shop.pipeline.load, [run_date], append=append)[0]
    appended = append and report.metadata.get("verdict") == "appended"
    if as_json:
        shop.print_days({run_date: None if report.ok else report.sentence})
        raise typer.Exit(0 if report.ok or appended else FAILED)
    if not report.ok and not appended:
        raise ShopError(report.sentence)
    if appended:
        tell(f"warning: {report.sentence}; a second copy of a day is not safe to read, load it again without --append")
    rows, total = report.metadata["dagster/partition_row_count"], report.metadata["rows_in_all_days"]
    print(f"run {run_date} loaded {shop.rule.day(run_date)}: {rows} rows, {shop.table} has {total}")


@app.command()
def check(run_date: RunDate, as_json: AsJson = False, source: Source = TILL) -> None:
    """Compare a loaded day with its source again, both ways, without loading. Needs no Java."""
    shop = _Shop(source)
    shop.check_keys([run_date])
    shop.check_source()
    report = shop.runs.check(shop.pipeline.recheck, run_date)
    if as_json:
        shop.print_days({run_date: None if report.ok else report.sentence})
    else:
        say(report.sentence)
    if not report.ok:
        raise typer.Exit(FAILED)


@app.command()
def backfill(
    first: Annotated[str, typer.Argument(metavar="FIRST", help="The first run date (of the web shop: business date).")],
    last: Annotated[str, typer.Argument(metavar="LAST", help="The last one, included.")],
    days_per_run: Annotated[
        int | None,
        typer.Option(
            "--days-per-run",
            min=1,
            help="How many days one Spark job and one commit load.",
            show_default=f"{DAYS_PER_RUN}, or as many as are {BYTES_PER_RUN // 1024**3} GB; of a database {DAYS_OF_UNKNOWN_SIZE}",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the run dates and days, and do nothing.")] = False,
    reprocess: Annotated[
        str,
        typer.Option(
            "--reprocess",
            metavar="none|failed|completed|changed",
            help="Which of them: those never tried; these and the failed; all; those whose source is not what was loaded.",
        ),
    ] = "completed",
    max_active_runs: Annotated[
        int, typer.Option("--max-active-runs", min=1, help="Never more runs of this backfill at once (it starts one at a time).")
    ] = 1,
    as_json: AsJson = False,
    source: Source = TILL,
) -> None:
    """Run a source's whole pipeline for a range of run dates; a bad day stops neither the others nor what they feed."""
    from shop_pipeline.core.reprocess import Reprocess

    keys = _keys(first, last)
    mode = Reprocess(_choice("--reprocess", reprocess, [each.value for each in Reprocess], reprocess))
    shop = _Shop(source, create=not dry_run)
    shop.check_keys(keys)
    keys = shop.not_busy(shop.chosen(mode, keys))
    if dry_run:
        if as_json:
            _print_rows([shop.rule.key_column, "day"], [(key, shop.rule.day(key)) for key in keys], as_json)
            return
        for key in keys:
            print(f"run {key} loads {shop.rule.day(key)}")
        return
    if keys:
        shop.prepare_spark(keys)
    failed = shop.run_pipeline(keys, days_per_run) if keys else {}
    if as_json:
        shop.print_days({key: failed.get(key) for key in keys})
    else:
        _print_failed(failed)
        days, rows = _days_and_rows(shop.lake, shop.pipeline.feed.contract.table)
        print(f"ran {len(keys)} runs, {len(failed)} failed; {shop.table} has {days} days, {rows} orders")
    if failed:
        raise typer.Exit(FAILED)


@app.command()
def plan(
    first: Annotated[str, typer.Argument(metavar="FIRST", help="The first run date (of the web shop: business date).")],
    last: Annotated[str, typer.Argument(metavar="LAST", help="The last one, included.")],
    figures: Annotated[bool, typer.Option("--figures", help="Print the daily figures that would change, alone.")] = False,
    as_json: AsJson = False,
    source: Source = TILL,
) -> None:
    """Tell what a backfill would do, day by day, and which daily figures it would change. Writes nothing and needs no Java."""
    from shop_pipeline.core.plan import plan as look

    keys = _keys(first, last)
    shop = _Shop(source, create=False)
    shop.check_keys(keys)
    pipeline = shop.pipeline
    planned = look(shop.lake, pipeline.source, pipeline.feed.contract, shop.rule, pipeline.figures, keys)
    if not figures:
        columns = ["run_date", "day", "state", "added", "removed", "changed", "reasons"]
        rows = [
            [
                day.key,
                day.day,
                day.state.value,
                *(day.added, day.removed, day.changed),
                list(day.reasons) if as_json else " ".join(day.reasons),
            ]
            for day in planned.days
        ]
        _print_rows(columns, rows, as_json)
    if figures or not as_json:
        names = list(pipeline.figures.measures)
        columns = ["order_date", *(f"{name}_{when}" for name in names for when in ("before", "after"))]
        changes = [[each.day, *(side[name] for name in names for side in (each.before, each.after))] for each in planned.effects]
        if not figures:
            table = pipeline.figures.table.replace("/", ".")
            print(f"{len(planned.days)} days, {_states(planned.days)}; {len(changes)} days of {table} would change")
        if changes or figures:
            _print_rows(columns, changes, as_json)


@app.command()
def history(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table's name in SQL.")] = "orders_daily",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many changes.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Show the last changes of a table, newest first."""
    from shop_pipeline.core import delta_writes

    lake = _lake(_settings())
    name = table.replace(".", "/")
    opened = lake.open(name) if name in lake.names() else None
    if opened is None:
        there = ", ".join(each.replace("/", ".") for each in lake.names()) or "none yet; load a day first"
        raise WrongUsage(f"There is no table {table} in {lake.uri} (tables: {there}).")
    columns = ["operation", "predicate", "rows_written"]
    rows = [[_cut(change[column], as_json) for column in columns] for change in delta_writes.history(opened, limit)]
    _print_rows(columns, rows, as_json)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One SELECT over the lake's tables.")],
    as_json: AsJson = False,
) -> None:
    """Query the lake's tables by SQL (DuckDB's), read-only: orders_daily, daily_sales, run_log."""
    from shop_pipeline.core.query import BadStatement, select

    try:
        columns, rows = select(_lake(_settings()), statement)
    except BadStatement as error:
        raise WrongUsage(str(error)) from None
    _print_rows(columns, rows, as_json)


@app.command()
def backtest(
    low: Annotated[int | None, typer.Option("--low", min=0, help="The band's lower limit, in percent of the median.")] = None,
    high: Annotated[int | None, typer.Option("--high", min=1, help="Its upper limit.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Of how many earlier days the median is.")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="previous days, same weekday, same period last year")] = None,
    on_violation: Annotated[
        str | None, typer.Option("--on-violation", help="flag, or fail: such a day leaves the baseline")
    ] = None,
    as_json: AsJson = False,
    source: Source = TILL,
) -> None:
    """Replay a volume band over the loaded days: which would it have flagged? What is not given is the contract's."""
    from shop_pipeline.core import volume
    from shop_pipeline.core.contract import Action, Baseline, Volume
    from shop_pipeline.core.reprocess import loaded_contents

    shop = _Shop(source, create=False)
    contract = shop.pipeline.feed.contract
    usual = contract.volume or Volume(50, 150, Action.FLAG)
    action = _choice("--on-violation", on_violation, [Action.FLAG.value, Action.FAIL.value], usual.action.value)
    base = _choice("--baseline", baseline, [each.value for each in Baseline], usual.baseline.value)
    chosen = Volume(
        usual.low if low is None else low,
        usual.high if high is None else high,
        Action(action),
        last or usual.last,
        min(usual.enough, last or usual.last),
        Baseline(base),
    )
    if chosen.low >= chosen.high:
        raise WrongUsage(f"The band {chosen.low}-{chosen.high} % has nothing in it: give --low a smaller number than --high.")
    entries = loaded_contents(shop.lake, contract)
    replayed = volume.backtest({day: entry.row_count or 0 for day, entry in entries.items()}, chosen)
    outside = [each for each in replayed if not each.judgement.inside]
    word = "refused" if chosen.action is Action.FAIL else "flagged"
    rows = [[shop.rule.key(each.day), each.day, each.judgement.rows, each.judgement.median, word] for each in outside]
    _print_rows(["run_date", "day", "rows", "median", "verdict"], rows, as_json)
    if not as_json:
        print(f"{len(replayed)} days, {len(outside)} {word} by {chosen.low}-{chosen.high}% of the {chosen.last}-run median")


@app.command()
def report(
    month: Annotated[str, typer.Argument(metavar="MONTH", help="The month of the days, YYYY-MM.")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Where the page goes; by default report-MONTH.html.")
    ] = None,
    as_json: AsJson = False,
    source: Source = TILL,
) -> None:
    """Write a month's sales, and how far they can be relied on, as a page to read or print. Needs no Java."""
    from shop_pipeline.checks.freshness import first_day
    from shop_pipeline.core.days import days_of_month
    from shop_pipeline.core.report import NothingToReport, Subject, collect
    from shop_pipeline.resources import ClockResource

    days = days_of_month(month)
    shop = _Shop(source, create=False)
    shop.check_month(month, days)
    target = None if as_json else _page_file(out or f"report-{'' if source == TILL else f'{source}-'}{month}.html")
    feed = shop.pipeline.feed
    subject = Subject(source, feed.contract, shop.rule, shop.pipeline.figures, first_day(feed), shop.settings.zone)
    try:
        made = collect(shop.lake, subject, days, ClockResource().now())
    except NothingToReport as error:
        raise WrongUsage(f"{error}, for instance `{shop.command_for(days)}`.") from None
    if target is None:
        columns = [
            shop.rule.key_column,
            "day",
            "status",
            *made.columns,
            "counted",
            "set_aside",
            "data_as_of",
            "reason",
            "note",
            "next",
        ]
        rows = [
            [
                *(day.key, day.day, day.status.value),
                *(None if day.figures is None else day.figures[name] for name in made.columns),
                *(day.counted, day.set_aside, day.as_of, day.reason, day.note, made.next_command(day)),
            ]
            for day in made.days
        ]
        _print_rows(columns, rows, as_json)
        return
    from shop_pipeline.core import report_page

    contents = report_page.files(report_page.page(made), target)
    try:
        report_page.write(contents)
    except OSError as error:
        raise _not_written(target, error) from None
    print(target)


def _page_file(name: str) -> "Path":
    """Where a page is to go, looked at before any work is done."""
    from pathlib import Path

    target = Path(name)
    try:
        if target.exists() and not target.is_file():
            raise WrongUsage(f"--out {name}: it is there and no file; name a file.")
        if not target.parent.is_dir():
            raise WrongUsage(f"--out {name}: there is no folder {target.parent}; make it, or name another file.")
    except OSError as error:
        raise _not_written(target, error) from None
    return target


def _not_written(target: "Path", error: OSError) -> "WrongUsage":
    return WrongUsage(f"{target} cannot be written ({error.strerror}): make room for it there, or name another file with --out.")


@quarantine_app.command("list")
def list_quarantine(
    first: Annotated[str | None, typer.Argument(metavar="[FIRST", help="The first run (or business) date; by default all.")] = None,
    last: Annotated[str | None, typer.Argument(metavar="LAST]", help="The last one, included.")] = None,
    as_json: AsJson = False,
    source: Source = TILL,
) -> None:
    """Show the rows that are set aside: where they stood, their text, and what is wrong with them."""
    from shop_pipeline.core import quarantine

    shop = _Shop(source, create=False)
    days = None if first is None else [shop.rule.day(key) for key in _keys(first, last or first)]
    held = quarantine.held(shop.lake, shop.pipeline.feed.contract, days)
    columns = ["run_date", "day", "source_file", "record_number", "column", "value", "reason", "raw_text"]

    rows = [
        [
            each.run_date,
            each.day,
            each.source_file,
            each.record,
            each.column,
            *(_cut(text, as_json) for text in (each.value, each.reason, each.text)),
        ]
        for day in held
        for each in held[day]
    ]
    _print_rows(columns, rows, as_json)


@quarantine_app.command()
def release(
    first: Annotated[str, typer.Argument(metavar="FIRST", help="The first run date (of the web shop: business date).")],
    last: Annotated[str, typer.Argument(metavar="LAST", help="The last one, included.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which rows would pass now, and load nothing.")] = False,
    source: Source = TILL,
) -> None:
    """Load the days again whose rows set aside would pass now, because the file or the contract was mended."""
    from shop_pipeline.core import quarantine

    keys = _keys(first, last)
    shop = _Shop(source, create=not dry_run)
    shop.check_keys(keys)
    contract, days = shop.pipeline.feed.contract, [shop.rule.day(key) for key in keys]
    there = sorted(quarantine.held(shop.lake, contract, days))
    with closing(shop.pipeline.source.open(there)) as opened:
        judged = quarantine.states(shop.lake, contract, opened, there)
    for row, state, why in judged:
        print(f"run {row.run_date}, {row.source_file}, record {row.record}: {state.value}{f' ({why})' if why else ''}")
    again = sorted({row.day for row, state, _ in judged if state in (quarantine.State.PASSES, quarantine.State.CHANGED)})
    if dry_run or not again:
        print(f"{len(judged)} rows of {len(there)} days are set aside; {len(again)} of these days would change")
        return
    shop.prepare_spark([shop.rule.key(day) for day in again])
    failed = shop.run_pipeline([shop.rule.key(day) for day in again])
    _print_failed(failed)
    left = sum(len(rows) for rows in quarantine.held(shop.lake, contract, there).values())
    print(f"loaded {len(again)} days again, {len(failed)} failed; {left} of {len(judged)} rows are still set aside")
    if failed:
        raise typer.Exit(FAILED)


@app.command()
def maintain(
    retention_hours: Annotated[
        int | None, typer.Option("--retention-hours", help="Keep the files of the versions of so many hours; by default 30 days.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make few data files of many, remove those that no version of the last days needs; changes no row."""
    from shop_pipeline.automation.maintenance import OP, RETENTION_HOURS, maintain_tables
    from shop_pipeline.core.maintenance import FLOOR_HOURS

    hours = RETENTION_HOURS if retention_hours is None else retention_hours
    if hours < FLOOR_HOURS:
        raise WrongUsage(
            f"--retention-hours {hours} is too short: readers and time travel need the files of the last {FLOOR_HOURS} hours."
        )
    shop = _Shop()
    done = shop.runs.run(maintain_tables, OP, {"retention_hours": hours})
    columns = ["table", "files_before", "files_after", "removed"]
    _print_rows(columns, [[each[column] for column in columns] for each in done], as_json)


@app.command()
def up(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the web UI listens, on 127.0.0.1.")] = 3000,
) -> None:
    """Start Spark, the web UI and Dagster's daemon over this folder, together; Ctrl-C stops them. Runs then start no Spark."""
    from shop_pipeline.automation import up as serving
    from shop_pipeline.core.spark_remote import ServerNote

    _check_free(port)
    shop = _Shop()
    _say_what_is_in_force(shop)
    settings, note, server = shop.settings, ServerNote(shop.settings.spark_server), None
    if settings.spark_remote is None:
        shop.check_machine()
        server = serving.SparkServer(note, settings.spark_master, settings.spark_memory, tell)
    raise typer.Exit(serving.run(note, server, port))


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise SettingError(f"Port {port} is taken: something listens there already. Stop it, or choose another with --port.")


@app.command(hidden=True)
def prepare() -> None:
    """Make DAGSTER_HOME ready and say what is in force; `make dev` does it before the web UI starts."""
    _say_what_is_in_force(_Shop())


def _say_what_is_in_force(shop: "_Shop") -> None:
    from shop_pipeline.automation.local_runs import stopped

    runs, settings = shop.runs, shop.settings
    tell(f"landing {settings.landing}, lake {settings.lake}, DAGSTER_HOME {settings.dagster_home}")
    off = stopped(runs.defs, runs.instance)
    if off:
        tell(f"switched off: {', '.join(off)}; switch them on under Automation in the UI (docs/operations.md: It runs by itself)")


class WrongUsage(ShopError):
    """What was typed cannot be meant."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import without looking for garbage again and again: what is imported stays, and looking is a quarter of the time it takes."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Shop:
    """The definitions and the instance, loaded on first need: `shop --help` must not wait for Dagster."""

    def __init__(self, source: str = TILL, *, create: bool = True) -> None:
        from shop_pipeline.settings import prepare_dagster_home

        chosen = _choice("--source", source, [TILL, SHOPFLOW], TILL)
        self.settings = _settings()
        self._create, self.source = create, chosen
        if create:
            prepare_dagster_home(self.settings)
        with _uncollected():
            from shop_pipeline import definitions

        self._definitions = definitions
        self.pipeline = definitions.pipelines[chosen]
        self.rule = self.pipeline.feed.rule
        self.table = self.pipeline.feed.contract.sql_name
        self.lake = definitions.lake.lake()

    def print_days(self, problems: Mapping[str, str | None]) -> None:
        """What became of these keys, as JSON."""
        rows = [(key, self.rule.day(key), problem is None, problem) for key, problem in problems.items()]
        _print_rows([self.rule.key_column, "day", "ok", "problem"], rows, as_json=True)

    @property
    def runs(self) -> "LocalRuns":
        """Runs in this process."""

        from shop_pipeline.automation.local_runs import LocalRuns, close_dead_runs, open_instance

        _show_progress()
        try:
            instance = open_instance(self.settings.dagster_home)
        except Exception as error:
            # Its configuration or its databases: whatever it is, Dagster's records of past runs are all that lies there.
            home = self.settings.dagster_home
            raise SettingError(
                f"DAGSTER_HOME {home} cannot be opened ({_in_short(error)}). Mend its dagster.yaml, or move the folder away "
                "for a new one: the tables and their run_log are not in it."
            ) from error
        for run_id in close_dead_runs(instance):
            tell(f"run {run_id} is closed as failed: its process has died")
        return LocalRuns(self._definitions.defs, instance)

    def check_keys(self, keys: Sequence[str]) -> None:
        """Raises WrongDate when one of these is not a date, or not one of the source's."""
        partitions, setting, name = self.pipeline.feed.partitions, self.pipeline.first_setting, self.rule.key_name
        for key in keys:
            parse_date(key)
            if not partitions.has_partition_key(key):
                if partitions.get_first_partition_key() is None:
                    start = partitions.start.date()
                    raise WrongDate(f"There are no {name}s yet: {setting} is {start}, which lies in the future.")
                first, last = partitions.get_first_partition_key(), partitions.get_last_partition_key()
                lag = " A run date is the day after the day it loads." if self.rule.lag_days else ""
                raise WrongDate(f"{key} is not a {name} of {self.table}: they go from {first} ({setting}) to {last}.{lag}")

    def check_month(self, month: str, days: Sequence[date]) -> None:
        """Raises WrongDate when no day of a month is one of the source's."""
        partitions = self.pipeline.feed.partitions
        if not any(partitions.has_partition_key(self.rule.key(day)) for day in days):
            start, last = self.rule.day(partitions.start.date().isoformat()), partitions.get_last_partition_key()
            there = f"from {start} ({self.pipeline.first_setting})" + (f" to {self.rule.day(last)}" if last else " on")
            raise WrongDate(f"{month} has none of the days of {self.table}: they go {there}.")

    def command_for(self, days: Sequence[date]) -> str:
        """The command that loads those of these days that are the source's."""
        from shop_pipeline.core.reprocess import backfill_command

        keys = [key for key in map(self.rule.key, days) if self.pipeline.feed.partitions.has_partition_key(key)]
        return backfill_command(self.source, keys[0], keys[-1])

    def chosen(self, mode: "Reprocess", keys: Sequence[str]) -> list[str]:
        """Those of these keys that a backfill of this mode runs."""
        from shop_pipeline.core.reprocess import Reprocess, choose

        if mode is Reprocess.CHANGED:
            self.check_source()
        contract = self.pipeline.feed.contract
        made = [key.to_user_string() for asset in self.pipeline.made for key in asset.keys]
        days = [self.rule.day(key) for key in keys]
        source = self.pipeline.source if mode is Reprocess.CHANGED else None
        return [self.rule.key(day) for day in choose(mode, self.lake, source, contract, made, days)]

    def not_busy(self, keys: Sequence[str]) -> list[str]:
        """Those of these keys that no run is about to load or loading."""
        from shop_pipeline.automation.local_runs import busy_keys, open_instance
        from shop_pipeline.settings import prepare_dagster_home

        if not (self.settings.dagster_home / "dagster.yaml").is_file():
            # No run ever was.
            return list(keys)
        prepare_dagster_home(self.settings)
        busy = busy_keys(open_instance(self.settings.dagster_home), self.pipeline.feed.asset, [self.pipeline.job])
        for key in keys:
            if key in busy:
                tell(f"{self.rule.key_name} {key} (day {self.rule.day(key)}) is left alone: run {busy[key]} has it")
        return [key for key in keys if key not in busy]

    def run_pipeline(self, keys: Sequence[str], days_per_run: int | None = None) -> dict[str, str]:
        """Run the pipeline for these keys; gives the failed ones, each with its sentence."""
        failed: dict[str, str] = {}
        runs, source, rule = self.runs, self.pipeline.source, self.rule
        done, begun = 0, time.monotonic()
        for first, last in contiguous_ranges([date.fromisoformat(key) for key in keys]):
            for days in in_runs(dates_between(first, last), lambda key: source.size([rule.day(key.isoformat())]), days_per_run):
                part = [day.isoformat() for day in days]
                reports = runs.load(self.pipeline.load, part)
                for asset in self.pipeline.made:
                    good = [key for key in part if key not in failed | _failed(reports)]
                    reports += runs.make(asset, good) if good else []
                failed |= _failed(reports)
                done += len(part)
                left = (time.monotonic() - begun) / done * (len(keys) - done)
                tell(f"{done} of {len(keys)} days done, {len(failed)} failed{_about(left)}")
        return failed

    def check_source(self) -> None:
        """Raises SettingError when it is not set where the source is."""
        _ = self.pipeline.source

    def check_machine(self) -> None:
        """Raises SettingError when Spark cannot start here, or it is not set where the source is."""
        self.check_source()
        self._definitions.spark.check_machine()

    def prepare_spark(self, keys: Sequence[str]) -> None:
        """The same, for a load of these keys; raises NoExecutors when a cluster has nothing to spare for it."""
        from shop_pipeline.core.delta_writes import read_ahead

        self.check_source()
        days, table = [self.rule.day(key) for key in keys], self.pipeline.feed.contract.table
        self._definitions.spark.prepare(self.pipeline.source.size(days), read_ahead(self.lake, table, days))


def _states(days: "Sequence[PlannedDay]") -> str:
    """How many days there are of each state that there is."""
    counts = Counter(day.state.value for day in days)
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _failed(reports: "Sequence[DayReport]") -> dict[str, str]:
    return {report.key: report.sentence for report in reports if not report.ok}


def _about(seconds: float) -> str:
    """How long it will take, as far as one can tell."""
    if not seconds:
        return ""
    minutes = round(seconds / 60)
    return f", about {minutes // 60} h {minutes % 60} min left" if minutes >= 60 else f", about {max(minutes, 1)} min left"


def _keys(first: str, last: str) -> list[str]:
    return [day.isoformat() for day in dates_between(parse_date(first), parse_date(last))]


def _choice(option: str, given: str | None, known: Sequence[str], default: str) -> str:
    if given is not None and given not in known:
        raise WrongUsage(f"{option} {given!r} is none of: {', '.join(known)}.")
    return given or default


def _cut(value: object, as_json: bool) -> object:
    """A long text as a table shows it; --json has all of it."""
    return f"{value[:SHOWN]}…" if isinstance(value, str) and not as_json and len(value) > SHOWN else value


def _print_failed(failed: dict[str, str]) -> None:
    for key in sorted(failed):
        say(f"run {key} failed: {'; '.join(line.strip() for line in failed[key].splitlines())}", failed=True)


def _settings() -> "Settings":
    from shop_pipeline.settings import load_settings

    return load_settings()


def _in_short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:300] or type(error).__name__


def _local_postgres() -> "LocalPostgres":
    from shop_pipeline.core.local_postgres import LocalPostgres, packaged_binaries

    return LocalPostgres(_settings().postgres, packaged_binaries())


def _lake(settings: "Settings") -> "Lake":
    from shop_pipeline.core.lake import Lake

    return Lake(settings.lake)


def _days_and_rows(lake: "Lake", name: str) -> tuple[int, int]:
    from shop_pipeline.core.lake import data_files, rows_by_day

    table = lake.open(name)
    rows = {} if table is None else rows_by_day(data_files(table))
    return sum(1 for count in rows.values() if count), sum(rows.values())


def _show_progress() -> None:
    logger = logging.getLogger("shop_pipeline.progress")
    if not logger.handlers:
        logger.addHandler(_ToTerminal())
        logger.setLevel(logging.INFO)
        logger.propagate = False


class _ToTerminal(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(record.getMessage())


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps([dict(zip(columns, map(_json_value, row), strict=True)) for row in rows]))
        return
    print_table(columns, [["NULL" if value is None else str(value) for value in row] for row in rows])


def _json_value(value: object) -> object:
    if isinstance(value, Decimal):
        # As a number where that is exact to the last digit.
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [_json_value(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _wrong_usage(error: Exception) -> int:
    """Say what was wrong with a command line. `shop` alone is a question, answered by the help text."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return 0
    tell_error(f"{message} See `{context.command_path if context else 'shop'} --help`.")
    return WRONG


def main() -> None:
    """Run `shop`; a mistake ends in one sentence, never in a traceback."""
    try:
        with interrupts.kept():
            # A Ctrl-C is typer's to catch, which makes a status of it.
            status = app(standalone_mode=False, prog_name="shop")
    except (typer.Abort, KeyboardInterrupt):
        status = STOPPED
    except typer.TyperException as error:
        status = _wrong_usage(error)
    except (WrongUsage, WrongDate, SettingError, ContractError) as error:
        tell_error(str(error))
        status = WRONG
    except ShopError as error:
        tell_error(str(error))
        status = FAILED
    if status == STOPPED:
        tell("stopped; run the same command again to finish")
    sys.exit(status if isinstance(status, int) else 0)
