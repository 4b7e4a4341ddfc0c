"""The partition sets. The first date is a constant (a setting), never computed."""

from datetime import date

import dagster as dg

# The run date of the sample's last day. The till's partitions reach at least so far, whatever the machine's clock says.
SAMPLE_LAST_RUN_DATE = date(2026, 10, 1)
# The last day of the web shop's sample.
SAMPLE_LAST_DAY = date(2025, 5, 31)


def run_dates(first: date, today: date, timezone: str = "UTC") -> dg.DailyPartitionsDefinition:
    """The till's run dates: from `first` to today in its time zone (its run loads yesterday, which is over).

    On a machine whose clock lies before the sample's month, on to the end of that month.
    """
    beyond_today = max(0, (SAMPLE_LAST_RUN_DATE - today).days)
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), timezone=timezone, end_offset=1 + beyond_today)


def business_dates(first: date, today: date) -> dg.DailyPartitionsDefinition:
    """The web shop's business dates: from `first` to yesterday, which is over (or to the sample's end, as above)."""
    beyond_yesterday = max(0, (SAMPLE_LAST_DAY - today).days + 1)
    return dg.DailyPartitionsDefinition(start_date=first.isoformat(), end_offset=beyond_yesterday)
