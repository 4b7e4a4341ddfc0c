"""The web shop's database for trying things out: two years of orders, always the same; at their end, or as they stood on a day."""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

import psycopg

from shop_pipeline.core.errors import SettingError
from shop_pipeline.core.local_postgres import DATABASE
from shop_pipeline.core.postgres import Address

FIRST, LAST = date(2023, 6, 1), date(2025, 5, 31)
TABLE = "orders"
COLUMNS = ("order_id", "customer_id", "channel", "order_ts", "status", "currency", "promo_id")
CREATE = f"""
CREATE TABLE {TABLE} (
    order_id integer PRIMARY KEY,
    customer_id integer NOT NULL,
    channel text NOT NULL,
    order_ts timestamp NOT NULL,
    status text NOT NULL,
    currency text NOT NULL,
    promo_id integer
);
CREATE INDEX {TABLE}_order_ts ON {TABLE} (order_ts);
"""
# Some days' numbers are given; the others follow weekday, season and chance.
_GIVEN = {date(2024, 1, 1): 50, date(2024, 1, 2): 55, date(2024, 1, 3): 53}
_BY_WEEKDAY = (1.0, 0.96, 0.97, 1.0, 1.08, 1.16, 1.04)
_DELIVERED = 0.72
_HOURS = (1, 1, 1, 1, 1, 2, 4, 7, 10, 12, 12, 13, 14, 12, 11, 11, 12, 14, 17, 19, 18, 12, 7, 3)

Order = tuple[int, int, str, datetime, str, str, int | None]


_THE_END = datetime.combine(LAST, time.min) + timedelta(days=365)


@dataclass(frozen=True)
class _Life:
    """How an order goes: (status, when it came to be)."""

    stages: tuple[tuple[str, datetime], ...]

    def at(self, moment: datetime) -> str:
        """Its status just before a moment."""
        return [status for status, since in self.stages if since < moment][-1]


def orders(as_of: date | None = None) -> Iterator[Order]:
    """The rows of the table, in the order of their keys.

    Args:
        as_of: the database as it stood when this day began; None: when every order had come to its end.
    """
    moment = _THE_END if as_of is None else datetime.combine(as_of, time.min)
    number, day = 0, FIRST
    while day <= LAST:
        for stages, *rest in _day(day):
            number += 1
            customer, channel, at, currency, promo = rest
            if at < moment:
                yield number, customer, channel, at, _Life(stages).at(moment), currency, promo
        day += timedelta(days=1)


def _count(day: date, dice: random.Random) -> int:
    if day in _GIVEN:
        return _GIVEN[day]
    growth = 48 + 10 * (day - FIRST).days / (LAST - FIRST).days
    december = 1.15 if day.month == 12 and day.day <= 23 else 1.0
    return round(growth * _BY_WEEKDAY[day.weekday()] * december * dice.uniform(0.92, 1.08))


def _day(day: date) -> list[tuple]:  # type: ignore[type-arg]
    """A day's orders in the order of time, each day by dice of its own."""
    dice = random.Random(f"shopflow {day}")  # noqa: S311 - nothing secret
    count = _count(day, dice)
    hours = dice.choices(range(24), _HOURS, k=count)
    times = sorted(datetime.combine(day, time(hour, dice.randrange(60), dice.randrange(60))) for hour in hours)
    delivered = round(count * _DELIVERED)
    ends = ["delivered"] * delivered + dice.choices(["cancelled", "returned", "refunded"], (5, 3, 2), k=count - delivered)
    dice.shuffle(ends)
    made = []
    for at, end in zip(times, ends, strict=True):
        made.append(
            (
                _stages(at, end, dice),
                dice.randint(1, 4000),
                dice.choices(["web", "app", "phone", "marketplace"], (52, 33, 5, 10))[0],
                at,
                dice.choices(["EUR", "GBP", "CHF"], (82, 11, 7))[0],
                dice.randint(1, 20) if dice.random() < 0.3 else None,
            )
        )
    return made


def _stages(at: datetime, end: str, dice: random.Random) -> tuple[tuple[str, datetime], ...]:
    paid = at + timedelta(minutes=dice.randint(1, 90))
    stages = [("placed", at), ("paid", paid)]
    if end == "cancelled":
        return (*stages, ("cancelled", paid + timedelta(hours=dice.randint(1, 30))))
    shipped = paid + timedelta(hours=dice.randint(6, 40))
    arrived = shipped + timedelta(hours=dice.randint(18, 60))
    stages += [("shipped", shipped), ("delivered", arrived)]
    if end != "delivered":
        stages.append((end, arrived + timedelta(hours=dice.randint(24, 120))))
    return tuple(stages)


def fill(address: Address, as_of: date | None = None, *, force: bool = False) -> str:
    """Fill the database, in one transaction; what was done, in a line.

    Raises:
        SettingError: there is a table with other orders in it, and `force` was not given; nothing was written.
        SourceUnavailable, SourceRefused: the server cannot be reached, or refused.
    """
    if as_of is not None and as_of <= FIRST:
        raise SettingError(f"--as-of {as_of}: the shop's first day is {FIRST}; name a later one.")
    wanted = list(orders(as_of))
    with address.connect() as connection:
        ((there,),) = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [TABLE]).fetchall()
        if there and not force:
            found = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {TABLE} ORDER BY order_id").fetchall()
            if found != wanted:
                raise SettingError(
                    f"{address} has a table {TABLE} with other rows: nothing was written. Give --force to replace it, or name "
                    "another database in SHOP_POSTGRES_URL."
                )
        else:
            connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
            connection.execute(CREATE)
            with connection.cursor().copy(f"COPY {TABLE} ({', '.join(COLUMNS)}) FROM STDIN") as copy:
                for order in wanted:
                    copy.write_row(order)
            connection.execute(f"ANALYZE {TABLE}")
        connection.commit()
    days = len({order[3].date() for order in wanted})
    last = wanted[-1][0] if wanted else 0
    return f"wrote {days} days, orders 1 to {last}" + (f", as of {as_of}" if as_of else "")


def make_database(url: str) -> Address:
    """The address of a local server's database, which is made if it is not there."""
    address = Address.of(url)
    with Address.of(url.removesuffix(f"/{DATABASE}") + "/postgres").connect(autocommit=True) as connection:
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchall()
        if not there:
            # Another process may be making it at this moment.
            with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                connection.execute(f"CREATE DATABASE {DATABASE}")
    return address
