"""Incidents: what is wrong, told once when it begins and once when it is over, however often it is seen in between."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Days that a message names one by one, and how much of a sentence it has.
SHOWN = 10
LONGEST = 600


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong: the cause that it shares with others, what of it (a partition key), and what happened to that.

    `warning`: nothing is held back for it. `todo`: the one command to run next, with `{first}` and `{last}` for the keys.
    """

    cause: str
    key: str
    title: str
    text: str
    todo: str
    owner: str
    warning: bool = False


@dataclass(frozen=True)
class Message:
    """What is sent."""

    title: str
    body: str


@dataclass
class Incidents:
    """What is open: for each cause the keys that it was told of."""

    open: dict[str, list[str]] = field(default_factory=dict)
    _begun: dict[str, dict[str, Trouble]] = field(default_factory=dict)
    _over: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def seen(self, trouble: Trouble) -> None:
        """Something is wrong. Where that was told before, nothing is told again."""
        if trouble.key not in self.open.get(trouble.cause, []):
            self.open.setdefault(trouble.cause, []).append(trouble.key)
            self._begun.setdefault(trouble.cause, {})[trouble.key] = trouble

    def well(self, cause: str, key: str, title: str) -> None:
        """It is not, or no longer."""
        if key not in self.open.get(cause, []):
            return
        self.open[cause].remove(key)
        if not self.open[cause]:
            del self.open[cause]
        if self._begun.get(cause, {}).pop(key, None) is None:
            self._over.setdefault(cause, (title, []))[1].append(key)

    def messages(self) -> list[Message]:
        """What is to be told of what was seen since the last time: one message for each cause."""
        found = [_begun(list(troubles.values())) for troubles in self._begun.values() if troubles]
        found += [Message(f"over: {title}", _well(keys)) for title, keys in self._over.values()]
        self._begun, self._over = {}, {}
        return found


def _begun(troubles: Sequence[Trouble]) -> Message:
    first = troubles[0]
    keys = sorted(each.key for each in troubles if each.key)
    # What one run says of all its days is said once.
    texts = list(dict.fromkeys(cut(each.text) for each in sorted(troubles, key=lambda each: each.key)))
    lines = texts[:SHOWN]
    if len(texts) > SHOWN:
        lines.append(f"and {len(texts) - SHOWN} more: {_listed(keys[SHOWN:])}")
    todo = first.todo.format(first=keys[0], last=keys[-1]) if keys else first.todo
    count = f" ({len(keys)})" if len(keys) > 1 else ""
    word = "warning" if first.warning else "failed"
    lines += ["", f"Owner: {first.owner}", f"Next: {todo}"]
    return Message(f"{word}: {first.title}{count}", "\n".join(lines))


def cut(text: str) -> str:
    """A sentence as messages have it."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _well(keys: Sequence[str]) -> str:
    named = _listed(keys)
    return f"{named}: well again." if named else "Well again."


def _listed(keys: Iterable[str]) -> str:
    named = [key for key in keys if key]
    shown = ", ".join(named[:SHOWN])
    return f"{shown} and {len(named) - SHOWN} more" if len(named) > SHOWN else shown


def restated(rows: Sequence[Mapping[str, Any]], table: str, owner: str) -> Message | None:
    """What is told of published figures that changed: once, for nothing of it ends."""
    if not rows:
        return None
    lines = [
        f"{row['order_date']}: orders {row['orders_before']} -> {row['orders_after']}, "
        f"revenue {row['revenue_before']} -> {row['revenue_after']}: {row['cause']}"
        for row in rows[:SHOWN]
    ]
    if len(rows) > SHOWN:
        lines.append(f"and {len(rows) - SHOWN} more")
    lines += ["", f"Owner: {owner}", 'Next: shop sql "SELECT * FROM restatements ORDER BY restated_at DESC"']
    return Message(f"restated: {table} ({len(rows)})", "\n".join(lines))
