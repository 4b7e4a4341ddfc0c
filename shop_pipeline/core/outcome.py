"""What became of a day: how an attempt at it ended, what is said of it, and what its checks found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum

from shop_pipeline.core.changes import Changes
from shop_pipeline.core.contract import Rule
from shop_pipeline.core.sources import Drift
from shop_pipeline.core.verify import Comparison

Scalar = str | int | float | None


class Status(StrEnum):
    """How an attempt at a day ended."""

    VERIFIED = "verified"
    REFUSED = "refused"
    MISSING = "missing"
    MISMATCH = "mismatch"
    APPENDED = "appended"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class CheckResult:
    """What one check found on a day. One that is not `passed` and not `fatal` is a warning."""

    name: str
    passed: bool
    fatal: bool
    sentence: str
    metadata: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class DayResult:
    """What became of a day. `sentence` says it to a person; `retriable` is false where only a person can help.

    `warnings` are what is odd about it all the same, a sentence each; `broken` the rules that its rows broke and how many
    did; `rows` what the table has of it, `table_rows` what it has of all days; `retries` how often a commit had to start over.
    """

    key: str
    day: date
    status: Status
    sentence: str
    source_name: str
    retriable: bool = False
    comparison: Comparison | None = None
    records: int = 0
    rows: int = 0
    failing: int = 0
    quarantined: int = 0
    flagged: int = 0
    table_rows: int = 0
    version: int | None = None
    retries: int = 0
    duration: float = 0.0
    drift: Drift = field(default_factory=Drift)
    warnings: tuple[str, ...] = ()
    broken: tuple[tuple[Rule, int], ...] = ()
    checks: tuple[CheckResult, ...] = ()
    profile: Mapping[str, float] = field(default_factory=dict)
    log_line: str | None = None
    source_fingerprint: str | None = None
    changes: Changes | None = None

    @property
    def ok(self) -> bool:
        """Whether the day was loaded (or checked) and found equal to its source."""
        return self.status is Status.VERIFIED
