"""Is a day as big as days are? Its rows against the median of earlier days, of which it is never one itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from shop_pipeline.core.contract import Action, Baseline, Volume

ONE_DAY = timedelta(days=1)
# A year back on the same weekday, and three days to either side.
_YEAR = timedelta(days=364)
_AROUND = 3


@dataclass(frozen=True)
class Judgement:
    """A day's rows against its baseline: `median` is None where there is too little history; `inside` the band or not."""

    rows: int
    median: int | None
    history: int
    inside: bool
    sentence: str


def baseline(history: Mapping[date, int], day: date, volume: Volume) -> list[int]:
    """The rows of the days that a day is compared with, out of `history`: the rows of each successful day."""
    if volume.baseline is Baseline.LAST_YEAR:
        around = [day - _YEAR + n * ONE_DAY for n in range(-_AROUND, _AROUND + 1)]
        return [history[each] for each in around if each in history]
    earlier = [each for each in sorted(history) if each < day]
    if volume.baseline is Baseline.SAME_WEEKDAY:
        earlier = [each for each in earlier if each.weekday() == day.weekday()]
    return [history[each] for each in earlier[-volume.last :]]


def median(values: Sequence[int]) -> int:
    """The middle value, the lower one of two: one of the values, as Spark's percentile_approx(rows, 0.5) has it."""
    return sorted(values)[(len(values) - 1) // 2]


def judge(rows: int, history: Mapping[date, int], day: date, volume: Volume) -> Judgement:
    """Whether a day's rows lie within the band around its baseline's median; the limits themselves do.

    With too little history nothing is said of any number but 0, which is never inside.
    """
    known = baseline(history, day, volume)
    if len(known) < volume.enough:
        few = f"too little history: {len(known)} of {volume.enough} days"
        return Judgement(
            rows, None, len(known), rows > 0, f"{rows} rows; {few}" if rows else f"0 rows, which is never usual ({few})"
        )
    middle = median(known)
    inside = volume.low * middle <= 100 * rows <= volume.high * middle and rows > 0
    band = f"{volume.low}-{volume.high}% of the {volume.last}-run median ({middle})"
    return Judgement(rows, middle, len(known), inside, f"{rows} rows is {'within' if inside else 'outside'} {band}")


def gate_sentence(judgement: Judgement) -> str:
    """What a day is refused with whose volume is outside a band that fails it."""
    return f"Quality gate: {judgement.sentence}"


@dataclass(frozen=True)
class Replayed:
    """A day of the history, judged as if the band had been in force."""

    day: date
    judgement: Judgement


def backtest(history: Mapping[date, int], volume: Volume) -> list[Replayed]:
    """Every day of the history against the days before it. Where the band fails a day, it leaves the baseline of later ones."""
    accepted: dict[date, int] = {}
    replayed = []
    for day in sorted(history):
        judgement = judge(history[day], accepted, day, volume)
        replayed.append(Replayed(day, judgement))
        if judgement.inside or volume.action is not Action.FAIL:
            accepted[day] = history[day]
    return replayed
