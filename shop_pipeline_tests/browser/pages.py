"""Dagster's web UI as a person uses it: addresses, roles and visible names."""

import re
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Error, FloatRect, Locator, Page, ViewportSize, expect
from playwright.sync_api import TimeoutError as NotShownError

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
VIEWPORT = ViewportSize(width=1280, height=800)
# How high a line of a run's events is.
LINE = 16
COLOURS = 256
# A page loads in 2 to 5 s on a quiet machine; a run takes some seconds on a warm Spark; a backfill goes on at the daemon's
# ticks, which come every 30 s.
SHOWN_MS, RUN_MS, BACKFILL_MS = 30_000, 120_000, 240_000
TRIES = 5


@dataclass
class Pages:
    """One tab of the browser on one server. `pictures`: where pictures for the documents are saved, if anywhere."""

    page: Page
    url: str
    pictures: Path | None = None

    @property
    def path(self) -> str:
        """The address that is shown, without the server."""
        return self.page.url.removeprefix(self.url)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")

    def open_partitions(self, asset: str) -> None:
        self.open(f"/assets/{asset}?view=partitions")

    def open_partition(self, asset: str, key: str) -> None:
        self.open(f"/assets/{asset}?view=partitions&partition={key}")
        self.see_exactly("fingerprint" if asset == "orders_daily" else "verdict")

    def button(self, name: str) -> Locator:
        # Not exactly: the name of its icon comes before.
        return self.page.get_by_role("button", name=name)

    def see(self, text: str | re.Pattern[str], within_ms: float = SHOWN_MS, *, exact: bool = False) -> Locator:
        """The first place where the page shows the text, waited for."""
        found = self.page.get_by_text(text, exact=exact).filter(visible=True).first
        expect(found).to_be_visible(timeout=within_ms)
        return found

    def see_exactly(self, text: str, within_ms: float = SHOWN_MS) -> Locator:
        """The same where nothing else stands beside the text."""
        return self.see(text, within_ms, exact=True)

    def see_count(self, text: str | re.Pattern[str], count: int) -> None:
        """The page shows the text so many times."""
        expect(self.page.get_by_text(text).filter(visible=True)).to_have_count(count, timeout=SHOWN_MS)

    def see_row(self, first: str, *others: str, within_ms: float = SHOWN_MS) -> None:
        """A line of a table comes to have these others after its first, or a label this value."""
        line = re.compile(r"\s+".join(map(re.escape, (first, *others))))
        expect(self.page.locator("body")).to_contain_text(line, use_inner_text=True, timeout=within_ms)

    def materialize(self, button: str, partitions: str | None, *, says: str, launch: str) -> None:
        """Choose partitions in the dialog of a button (None: those it proposes), launch, and follow to the run's page."""
        self.button(button).click()
        dialog = self.page.get_by_role("dialog")
        chosen = dialog.get_by_role("textbox")
        expect(chosen).to_be_visible(timeout=SHOWN_MS)
        if partitions is not None:
            everything = dialog.get_by_text("Show all partitions")
            # Only the last 90 days are offered, where there are more.
            if everything.is_visible():
                everything.click()
            chosen.fill(partitions)
            chosen.press("Enter")
        expect(dialog.get_by_text(says, exact=True)).to_be_visible(timeout=SHOWN_MS)
        dialog.get_by_role("button", name=launch).click()
        # A message that is gone after some seconds.
        self.page.get_by_text("View", exact=True).click()
        self.page.wait_for_url("**/runs/**")

    def launch_job(self, job: str, partition: str) -> None:
        """Choose a partition on a job's launchpad and launch it; its run is shown then."""
        self.open(f"/locations/shop_pipeline/jobs/{job}/playground")
        # Until it has looked at the configuration the page is made anew, and forgets what was typed.
        self.see_exactly("No errors")
        chosen = self.page.get_by_placeholder("Partition")
        offered = self.page.get_by_text(partition, exact=True)
        for _ in range(TRIES):
            chosen.click()
            chosen.fill(partition)
            # On a busy machine it is made anew once more after that, and its list is closed then.
            with suppress(NotShownError):
                offered.click(timeout=SHOWN_MS / TRIES)
                break
        # Launched before that is there, it would be a run without a partition.
        self.see_exactly(f"partition: {partition}")
        self.button("Launch Run").click()
        self.page.wait_for_url("**/runs/**")

    def metadata(self) -> dict[str, str]:
        """The table of metadata on a partition's page."""
        rows = self.page.get_by_role("row").filter(visible=True).all()
        cells = [row.get_by_role("cell").all_inner_texts() for row in rows]
        return {each[0].strip(): each[1].strip() for each in cells if len(each) > 1}

    def put_on_top(self, place: Locator) -> None:
        """Scroll so that this is the first thing that is seen of what scrolls."""
        place.evaluate("element => element.scrollIntoView({block: 'start'})")

    def picture(self, name: str, down_to: FloatRect | None = None, lines: int = 0) -> None:
        """Save what is seen for the documents, when that was asked for; only down to so many lines into a place."""
        if self.pictures is None:
            return
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.page.mouse.move(0, 0)
        height = VIEWPORT["height"] if down_to is None else down_to["y"] + lines * LINE
        clip = FloatRect(x=0, y=0, width=VIEWPORT["width"], height=height)
        taken = Image.open(BytesIO(self.page.screenshot(clip=clip)))
        # A page has few colours: a third of the size.
        taken.quantize(COLOURS).save(self.pictures / f"{name}.png", optimize=True)

    def seen(self, picture: Path) -> str:
        """The page's address and text, and where its picture was saved."""
        try:
            self.page.screenshot(path=picture)
            text = self.page.locator("body").inner_text()
        except Error as error:
            text = f"(nothing to be read: {error})"
        return f"{self.page.url}\npicture: {picture}\n{text}"
