"""A report as a page for people: one HTML file with its plots in it, and the plots beside it as PNG files."""

import base64
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

from shop_pipeline.core.days import ONE_DAY
from shop_pipeline.core.gold import TABLE as DAILY_SALES
from shop_pipeline.core.report import AVERAGE, DayStatus, Report, ReportedDay

_SHOPS = {"till": "the till", "shopflow": "the web shop"}
_LABELS = {"orders": "Orders", "revenue": "Revenue", AVERAGE: "Average order", "delivered": "Delivered"}
# Of a status: its colours, and a sign for those who do not see them.
_LOOKS = {
    DayStatus.VERIFIED: ("good", "✓"),
    DayStatus.NOT_DUE: ("waiting", "…"),
    DayStatus.BEFORE: ("waiting", "…"),
}
_DASH = "\N{EN DASH}"
# What stands where a day's bar would be, and is none because nothing was sold.
_SHUT = "no orders"
# Of a plot, in inches, and how many dots an inch has.
_SIZE, _DOTS = (9.0, 3.8), 110
# Told apart by brightness as well: a wide light bar, and a narrow dark one in it.
_COLOURS, _WIDTHS = ("#7fb0d6", "#1f5a8a"), (0.8, 0.45)
_GAP, _HATCH = "#eeeeee", "#8a8a8a"


@dataclass(frozen=True)
class Plot:
    """A bar a day. `name` is what its file is called after; `alt` says in words what it shows."""

    name: str
    png: bytes
    alt: str
    caption: str


@dataclass(frozen=True)
class Page:
    """What is written."""

    html: str
    plots: tuple[Plot, ...]


def page(report: Report) -> Page:
    """The page of a report, and its plots."""
    plots = tuple(_plot(report, name, measures) for name, measures in _plots(report).items())
    return Page(_html(report, plots), plots)


def files(made: Page, out: Path) -> dict[Path, bytes]:
    """What is to be written where: the page to `out`, and the plots beside it."""
    beside = {out.with_name(f"{out.stem}-{plot.name}.png"): plot.png for plot in made.plots}
    return {**beside, out: made.html.encode()}


def write(contents: Mapping[Path, bytes]) -> None:
    """Write files, none of them half: each takes its place when all are written.

    Raises:
        OSError: one of them could not be written.
    """
    drafts: list[tuple[Path, Path]] = []
    try:
        for target, content in contents.items():
            # A link stays one.
            real = Path(os.path.realpath(target))
            draft = real.with_name(f".{uuid.uuid4().hex}.draft")
            drafts.append((draft, real))
            with draft.open("xb") as file:
                file.write(content)
        for draft, real in drafts:
            os.replace(draft, real)
    finally:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)


def _html(report: Report, plots: Sequence[Plot]) -> str:
    # A tenth of a second, which `--json` does not need.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Customers' texts are in it: nothing is taken for HTML.
    environment = Environment(
        loader=PackageLoader("shop_pipeline"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(_words(report, plots))


def _words(report: Report, plots: Sequence[Plot]) -> dict[str, Any]:
    """Everything that the template puts in its places, as text."""
    subject, totals = report.subject, report.totals
    rows = sum(day.set_aside for day in report.days)
    late = sum(report.late.values())
    keys = report.days[0].key, report.days[-1].key
    whose = "" if subject.source == "till" else f" --source {subject.source}"
    return {
        "title": f"Sales of {_month(report)}, {_SHOPS.get(subject.source, subject.source)}",
        "as_of": None if report.as_of is None else _time(report, report.as_of),
        "made_at": _time(report, report.made_at),
        "complete": not report.troubles and totals is not None,
        "summary": _summary(report),
        "troubles": [
            {
                "days": _span(each.first, each.last),
                "status": each.status.value,
                "reason": each.reason,
                "advice": each.advice,
                "command": each.command,
            }
            for each in report.troubles
        ],
        "plots": [
            {
                "uri": f"data:image/png;base64,{base64.b64encode(plot.png).decode()}",
                "alt": plot.alt,
                "caption": plot.caption,
                "width": round(_SIZE[0] * _DOTS),
                "height": round(_SIZE[1] * _DOTS),
            }
            for plot in plots
        ],
        "columns": [_label(name) for name in report.columns],
        "days": [_row(report, day) for day in report.days],
        "counted": _count(len(report.counted), "day"),
        # An average of a month is not the sum of its days' averages.
        "totals": ["" if name == AVERAGE else _number(totals[name] if totals else None) for name in report.columns],
        "left_out": f"{_count(len(report.left_out), 'day')} left out" if report.left_out else "",
        "keeps_history": subject.figures.table == DAILY_SALES,
        "restated": [
            {
                "day": _span(each.day, each.day),
                "cells": [
                    _number(value) for value in (each.orders_before, each.orders_after, each.revenue_before, each.revenue_after)
                ],
                "cause": each.cause,
                "at": _time(report, each.at),
            }
            for each in report.restated
        ],
        "set_aside": [
            {
                "column": each.column or "the whole row",
                "reason": each.reason,
                "rows": _number(each.rows),
                "examples": ", ".join(f"record {record} of {_span(day, day)}" for day, record in each.examples),
            }
            for each in report.set_aside
        ],
        "set_aside_total": _number(rows),
        "set_aside_sentence": f"{_count(rows, 'row')} could not be taken as sent.",
        "set_aside_command": f"shop quarantine list {keys[0]} {keys[1]}{whose}",
        "late": [{"days": days, "orders": _number(orders)} for days, orders in report.late.items()],
        "late_sentence": f"{_count(late, 'order')} in the files of this month's days {'was' if late == 1 else 'were'} taken on an "
        "earlier day, and counted there.",
    }


def _summary(report: Report) -> list[str]:
    """The month in two or three sentences."""
    totals, expected, counted = report.totals, report.expected, report.counted
    if totals is None:
        said = ["There are no figures yet that can be relied on."]
    else:
        amounts = [f"{_number(totals['orders'])} order{'' if totals['orders'] == 1 else 's'}"] if "orders" in totals else []
        amounts += [f"{_label(name).lower()} {_number(value)}" for name, value in totals.items() if name != "orders"]
        said = [f"{', '.join(amounts)}, on {_count(len(counted), 'day')}."]
    waiting = sum(day.status is DayStatus.NOT_DUE for day in report.days)
    if not expected:
        said.append("No day of this month is due yet.")
    elif report.troubles:
        due = _count(len(expected), "day")
        said.append(f"These figures are not complete: {len(counted)} of {due} that should be there by now are counted.")
        out = [each for each in report.troubles if each.status is not DayStatus.KEPT]
        kept = [_span(each.first, each.last) for each in report.troubles if each.status is DayStatus.KEPT]
        said += [f"Left out: {', '.join(f'{_span(each.first, each.last)} ({each.status.value})' for each in out)}."] if out else []
        said += [f"Counted as it was before a load that came to nothing: {', '.join(kept)}."] if kept else []
    else:
        so_far = "The figures so far are complete" if waiting else "The figures are complete"
        said.append(f"{so_far}: {_all(len(expected))} verified.")
    if waiting and expected:
        said.append(f"{_count(waiting, 'day')} {'is' if waiting == 1 else 'are'} not due yet.")
    before = sum(day.status is DayStatus.BEFORE for day in report.days)
    if before:
        said.append(f"{_count(before, 'day')} of the month {'lies' if before == 1 else 'lie'} before the first day that is loaded.")
    return said


def _row(report: Report, day: ReportedDay) -> dict[str, Any]:
    look, sign = _LOOKS.get(day.status, ("bad", "!"))
    shown = [_number(None if day.figures is None else day.figures[name]) for name in report.columns]
    if not day.counted:
        shown = [value if value == _DASH else f"({value})" for value in shown]
    return {
        "iso": day.day.isoformat(),
        "day": f"{day.day:%a} {_span(day.day, day.day)}",
        "cells": shown,
        "set_aside": _number(day.set_aside) if day.set_aside else "",
        "look": look,
        "sign": sign,
        "status": day.status.value,
        "note": day.note,
    }


def _plots(report: Report) -> dict[str, tuple[str, ...]]:
    """The plots by their names, each with the measures that it shows."""
    measures = report.subject.measures
    return {"sales": ("revenue",), "orders": ("orders",)} if "revenue" in measures else {"sales": measures[:2]}


def _plot(report: Report, name: str, measures: Sequence[str]) -> Plot:
    what = " and ".join(_label(each).lower() for each in measures)
    gaps = ", ".join(f"{_span(first, last)} ({status})" for first, last, status in _gaps(report))
    known = [(day.figures[measures[0]] or 0, day.day) for day in report.counted if day.figures is not None]
    extremes = "No day has a figure that counts."
    if known:
        (most, best), (least, worst) = max(known, key=lambda each: each[0]), min(known, key=lambda each: each[0])
        extremes = f"Highest {_number(most)} on {_span(best, best)}, lowest {_number(least)} on {_span(worst, worst)}."
    alt = f"Bar chart of {what} on each day of {_month(report)}. {extremes}" + (f" No bar for {gaps}." if gaps else "")
    marked = any(not day.counted for day in report.days)
    hatched = " A hatched day has no figure that counts; its status stands in it." if marked else ""
    caption = f"{what.capitalize()} of each day.{hatched}"
    return Plot(name, _draw(report, measures), alt, caption)


def _gaps(report: Report) -> list[tuple[date, date, str]]:
    """The days without a figure, those in a row that are alike together."""
    found: list[tuple[date, date, str]] = []
    for day in report.days:
        if day.figures is not None:
            continue
        if found and found[-1][1:] == (day.day - ONE_DAY, day.status.value):
            found[-1] = (found[-1][0], day.day, day.status.value)
        else:
            found.append((day.day, day.day, day.status.value))
    return found


def _draw(report: Report, measures: Sequence[str]) -> bytes:
    """A bar a day; what has no figure is a hatched gap with its status in it, and not a bar of height nothing."""
    # Half a second to import.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    offset = len(_COLOURS) - len(measures)
    for n, name in enumerate(measures):
        colour, width = _COLOURS[n + offset], _WIDTHS[n if len(measures) > 1 else 0]
        for counted in (True, False):
            days = [day for day in report.days if day.figures is not None and day.counted is counted]
            heights = [float((day.figures or {})[name] or 0) for day in days]
            style: dict[str, Any] = {"color": colour} if counted else {"facecolor": "white", "edgecolor": _HATCH, "hatch": "////"}
            label = _label(name) if counted and len(measures) > 1 else None
            axes.bar([day.day.day for day in days], heights, width=width, label=label, zorder=2, **style)
    for day in report.days:
        said = _SHUT if day.counted and day.note else None if day.counted else day.status.value
        if said is None:
            continue
        if day.figures is None:
            axes.axvspan(
                day.day.day - 0.45, day.day.day + 0.45, facecolor=_GAP, edgecolor=_HATCH, hatch="////", linewidth=0, zorder=1
            )
        axes.text(
            *(day.day.day, 0.97, said),
            transform=axes.get_xaxis_transform(),
            rotation=90,
            ha="center",
            va="top",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            zorder=3,
        )
    values = [value for day in report.days for name, value in (day.figures or {}).items() if name in measures]
    if not values:
        axes.set_ylim(0, 1)
        axes.set_yticks([])
    elif all(isinstance(value, int) for value in values):
        # There are no halves of orders.
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if values and len(measures) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.12), ncols=2, frameon=False)
    axes.axhline(0, color="black", linewidth=0.8, zorder=2)
    axes.set_xlim(0.3, len(report.days) + 0.7)
    axes.set_xticks([day.day.day for day in report.days])
    axes.tick_params(axis="x", labelsize=8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xlabel(_month(report))
    axes.set_ylabel(_label(measures[0]))
    axes.spines[["top", "right"]].set_visible(False)
    made = BytesIO()
    figure.savefig(made, format="png", dpi=_DOTS, metadata={"Software": None})
    return made.getvalue()


def _month(report: Report) -> str:
    return f"{report.month:%B} {report.month.year}"


def _label(name: str) -> str:
    return _LABELS.get(name) or name.replace("_", " ").capitalize()


def _span(first: date, last: date) -> str:
    """A day, or days from one to another, as people write them."""
    return f"{first.day} {first:%b}" if first == last else f"{first.day} {first:%b} to {last.day} {last:%b}"


def _time(report: Report, at: datetime) -> str:
    return f"{at.astimezone(report.subject.zone):%Y-%m-%d %H:%M %Z}"


def _number(value: Any) -> str:  # noqa: ANN401 - one of a table's values
    if value is None:
        return _DASH
    return f"{value:,.2f}" if isinstance(value, (Decimal, float)) else f"{value:,}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _all(days: int) -> str:
    return "its one day is" if days == 1 else f"all {days} days are"
