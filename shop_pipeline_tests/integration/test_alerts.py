"""Alerts to a real HTTP receiver and a real mail server: one for a cause, none while it lasts, one when it is over."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email import message_from_bytes
from typing import Any

import dagster as dg
import pytest
from aiosmtpd.controller import Controller

from shop_pipeline.automation.alerts import alerts
from shop_pipeline.core.incidents import Incidents, Trouble
from shop_pipeline_tests.builders import rows_of, text_of
from shop_pipeline_tests.conftest import DAILY_SALES, ORDERS_DAILY, SILVER_ORDERS, World
from shop_pipeline_tests.servers import Receiver, free_port

DAY = date(2026, 9, 1)
KEY = "2026-09-02"
OWNERS = {"till": "team:shop", "shopflow": "team:web"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver.listening() as made:
        yield made


@contextmanager
def mail_server() -> Iterator[tuple[int, list[bytes]]]:
    mails: list[bytes] = []

    class Inbox:
        async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: ANN401
            mails.append(envelope.content)
            return "250 OK"

    port = free_port()
    controller = Controller(Inbox(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield port, mails
    finally:
        controller.stop()


@dataclass
class Clock:
    """A teller's time, as the clock resource gives it."""

    teller: "Teller"

    def now(self) -> datetime:
        return self.teller.now


@dataclass
class Teller:
    """The sensor over a test's world, at a time that the test sets."""

    world: World
    urls: Sequence[str]
    now: datetime = datetime(2026, 9, 2, 2, 30, tzinfo=UTC)
    cursor: str | None = None
    said: str = ""

    def tick(self) -> None:
        from shop_pipeline.definitions import pipelines

        sensor = alerts(pipelines, self.urls, OWNERS, UTC)
        resources = {"lake": self.world.resources["lake"], "clock": dg.ResourceDefinition.hardcoded_resource(Clock(self))}
        context = dg.build_sensor_context(instance=self.world.instance, cursor=self.cursor, resources=resources)
        result = sensor.evaluate_tick(context)
        self.cursor, self.said = result.cursor, str(result.skip_message)


def test_one_message_when_it_begins_and_one_when_it_is_over(world: World, receiver: Receiver) -> None:
    """A refused day: what happened, the day, the owner, the command; nothing more while it lasts, whatever runs again."""
    teller = Teller(world, [receiver.url])
    teller.tick()
    assert receiver.take() == []
    good = rows_of(DAY, 1, 3)
    world.put(DAY, text_of(good).replace("\r\n2,", "\r\nx2,"))
    assert not world.run([KEY]).success
    teller.tick()
    (message,) = receiver.take()
    assert message["title"] == "failed: orders_daily, check_day"
    assert "2026-09-01.csv, line 3, column order_id, value 'x2': not a whole number" in message["message"]
    assert f"[{KEY}]" in message["message"]
    assert "Owner: team:shop" in message["message"]
    assert f"shop backfill {KEY} {KEY} --reprocess failed" in message["message"]
    teller.tick()
    assert not world.run([KEY]).success
    teller.tick()
    assert receiver.take() == []
    world.put(DAY, good)
    assert world.run([KEY]).success
    teller.tick()
    (over,) = receiver.take()
    assert (over["title"], over["message"]) == ("over: orders_daily, check_day", f"{KEY}: well again.")
    teller.tick()
    assert receiver.take() == []


def test_days_of_one_cause_are_one_message(world: World, receiver: Receiver) -> None:
    """A range with three bad days, and a day that only warns: two causes."""
    teller = Teller(world, [receiver.url])
    teller.tick()
    for n in range(5):
        day = DAY + timedelta(days=n)
        text = text_of(rows_of(day, 10 * n + 1, 3))
        world.put(day, text.replace(f"\r\n{10 * n + 2},", "\r\nx,") if n < 3 else text)
    world.run([KEY, "2026-09-06"])
    teller.tick()
    (message,) = receiver.take()
    assert message["title"] == "failed: orders_daily, check_day (3)"
    assert [f"[2026-09-0{n}]" in message["message"] for n in range(2, 7)] == [True, True, True, False, False]
    assert "shop backfill 2026-09-02 2026-09-04 --reprocess failed" in message["message"]
    for n in range(5, 9):
        day = DAY + timedelta(days=n)
        world.put(day, rows_of(day, 100 * n, 12 if n == 8 else 3))
    world.run(["2026-09-07", "2026-09-10"])
    teller.tick()
    (warning,) = receiver.take()
    assert warning["title"] == "warning: orders_daily, volume"
    assert "12 rows is outside 50-150% of the 7-run median" in warning["message"]


def test_a_run_that_breaks_off_is_told_too(world: World, receiver: Receiver) -> None:
    """No check could say anything: the run's own reason."""
    teller = Teller(world, [receiver.url])
    teller.tick()
    world.put(DAY, rows_of(DAY, 1, 3))
    (world.folder / "lake").write_text("a file where the lake is to be")
    assert not world.run([KEY]).success
    (world.folder / "lake").unlink()
    teller.tick()
    (message,) = receiver.take()
    assert message["title"] == "failed: runs of till"
    assert f"[{KEY}] run " in message["message"]
    assert world.run([KEY]).success
    teller.tick()
    assert [each["title"] for each in receiver.take()] == ["over: runs of till"]


def test_what_cannot_be_delivered_is_sent_later_and_once(world: World, receiver: Receiver) -> None:
    """One channel is down and the other is not: each gets the message once."""
    with mail_server() as (port, mails):
        mail = f"mailto://127.0.0.1:{port}?user=shop&from=shop@example.com&to=ops@example.com&mode=insecure"
        teller = Teller(world, [receiver.url, mail])
        teller.tick()
        receiver.down = True
        world.put(DAY, "order_id,customer_id,amount,ordered_at\n1,C01,much,2026-09-01T10:00:00\n")
        world.run([KEY])
        teller.tick()
        assert "1 messages could not be delivered to channel 1 (JSON)" in teller.said
        assert str(receiver.port) not in teller.said
        assert len(mails) == 1
        receiver.down = False
        teller.tick()
        teller.tick()
        assert [each["title"] for each in receiver.take()] == ["failed: orders_daily, check_day"]
        assert len(mails) == 1
    parsed = message_from_bytes(mails[0])
    assert parsed["Subject"] == "failed: orders_daily, check_day"
    assert b"not a number" in mails[0]


def test_a_feed_that_is_late_is_one_incident(world: World, receiver: Receiver) -> None:
    """Told once its deadline has passed, not again night after night, and once when it is on time again."""
    teller = Teller(world, [receiver.url])
    world.put(DAY, rows_of(DAY, 1, 3))
    # A feed that was never loaded is not in use.
    teller.now = datetime(2026, 9, 9, tzinfo=UTC)
    teller.tick()
    assert world.run([KEY]).success
    for hour in (3, 25):
        teller.now = datetime(2026, 9, 3, tzinfo=UTC) + timedelta(hours=hour, minutes=59)
        teller.tick()
    assert receiver.take() == []
    for hours in (26, 50, 74):
        teller.now = datetime(2026, 9, 3, 0, 30, tzinfo=UTC) + timedelta(hours=hours)
        teller.tick()
    (late,) = receiver.take()
    assert late["title"] == "failed: orders_daily is late"
    assert "2026-09-02 (run date 2026-09-03), the newest day that is due" in late["message"]
    assert "shop backfill 2026-09-03 2026-09-03" in late["message"]
    newest = date(2026, 9, 4)
    world.put(newest, rows_of(newest, 1, 3))
    assert world.run(["2026-09-05"]).success
    teller.tick()
    assert [each["title"] for each in receiver.take()] == ["over: orders_daily is late"]


def test_a_restated_figure_is_told_once(world: World, receiver: Receiver) -> None:
    teller = Teller(world, [receiver.url])
    rows = rows_of(DAY, 1, 3)
    for count in (2, 3):
        world.put(DAY, rows[:count])
        assert world.run([KEY], ORDERS_DAILY, SILVER_ORDERS, DAILY_SALES).success
        teller.tick()
    (message,) = receiver.take()
    assert message["title"] == "restated: daily_sales (1)"
    assert "2026-09-01: orders 2 -> 3, revenue 22.00 -> 34.50: correction (1 order)" in message["message"]
    teller.tick()
    assert receiver.take() == []


def test_without_a_channel_it_says_so(world: World) -> None:
    teller = Teller(world, [])
    teller.tick()
    assert "name one in SHOP_ALERT_URLS" in teller.said


def test_what_a_run_says_of_all_its_days_is_said_once() -> None:
    incidents = Incidents()
    for day in range(2, 22):
        incidents.seen(
            Trouble("run:till", f"2026-09-{day:02d}", "runs of till", "it broke off", "shop backfill {first} {last}", "me")
        )
    (message,) = incidents.messages()
    assert message.title == "failed: runs of till (20)"
    assert message.body == "it broke off\n\nOwner: me\nNext: shop backfill 2026-09-02 2026-09-21"
    incidents.well("run:till", "2026-09-03", "runs of till")
    assert [each.body for each in incidents.messages()] == ["2026-09-03: well again."]


def test_what_begins_and_ends_between_two_looks_is_not_told() -> None:
    incidents = Incidents()
    incidents.seen(Trouble("a:check", "k", "a, check", "wrong", "mend", "me"))
    incidents.well("a:check", "k", "a, check")
    assert incidents.messages() == []
    assert incidents.open == {}
