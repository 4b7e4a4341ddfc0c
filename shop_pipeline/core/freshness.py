"""Is the feed on time? Measured for the newest day that is due, against its own interval: older days neither help nor harm."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from shop_pipeline.core.days import ONE_DAY, dates_between
from shop_pipeline.core.ledger import Verdict


@dataclass(frozen=True)
class Freshness:
    """Whether the newest due day is there. `status`: fresh, late, no data (nothing that has a time), or nothing due.

    `loaded`: whether it is verified, be it without orders.
    """

    status: str
    sentence: str
    loaded: bool = False

    @property
    def fresh(self) -> bool:
        """Whether nothing is late."""
        return self.status in ("fresh", "nothing due")


def deadline(day: date, hours: float, zone: tzinfo) -> datetime:
    """When a day must be loaded: so many hours (of 60 minutes, whatever the clocks do) after it ended in `zone`."""
    after = day + ONE_DAY
    end = datetime(after.year, after.month, after.day, tzinfo=zone)
    return end.astimezone(UTC) + timedelta(hours=hours)


def newest_due(first: date, now: datetime, hours: float, zone: tzinfo) -> date | None:
    """The newest day from `first` on whose deadline has passed."""
    day = now.astimezone(zone).date()
    while day >= first and deadline(day, hours, zone) > now:
        day -= ONE_DAY
    return day if day >= first else None


def due_days(first: date, now: datetime, hours: float, zone: tzinfo) -> list[date]:
    """The days from `first` on whose deadline has passed."""
    newest = newest_due(first, now, hours, zone)
    return [] if newest is None else dates_between(first, newest)


def judge(day: date | None, key_text: str, verdict: Verdict | None, now: datetime, due: datetime | None) -> Freshness:
    """What the run log's verdict on the newest due day says of the feed."""
    if day is None or verdict is None or due is None:
        return Freshness("nothing due", "no day is due yet")
    where = f"{day} ({key_text}), the newest day that is due"
    if not verdict.verified:
        late = (now - due).total_seconds() / 3600
        status = "no data" if verdict.entry is None else "late"
        return Freshness(status, f"{status}: {where}, is {late:.1f} hours late: {verdict.problem}. Load {key_text}")
    if verdict.entry is None or verdict.entry.max_event_time is None:
        return Freshness("no data", f"no data: {where}, was loaded and has no orders", loaded=True)
    return Freshness("fresh", f"fresh: {where}, was loaded; its newest order is of {verdict.entry.max_event_time}", loaded=True)
