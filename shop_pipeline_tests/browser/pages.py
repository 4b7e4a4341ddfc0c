"""Dagster's web UI as a person uses it: addresses, roles and visible names."""

import re
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Error, Locator, Page, ViewportSize, expect

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
# A page loads in 2 to 5 s on a quiet machine; a run takes some seconds on a warm Spark, and the daemon looks every few.
SHOWN_MS, RUN_MS = 30_000, 120_000


@dataclass
class Pages:
    """One tab of the browser on one server. `pictures`: where pictures for the documents are saved, if anywhere."""

    page: Page
    url: str
    pictures: Path | None = None

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    def see(self, text: str | re.Pattern[str], within_ms: float = SHOWN_MS) -> Locator:
        """The first place where the page shows the text, waited for."""
        found = self.page.get_by_text(text).filter(visible=True).first
        expect(found).to_be_visible(timeout=within_ms)
        return found

    def picture(self, name: str) -> None:
        """Save what is seen for the documents, when that was asked for."""
        if self.pictures is not None:
            self.pictures.mkdir(parents=True, exist_ok=True)
            self.page.mouse.move(0, 0)
            self.page.screenshot(path=self.pictures / f"{name}.png")

    def seen(self, picture: Path) -> str:
        """The page's address and text, and where its picture was saved."""
        try:
            self.page.screenshot(path=picture)
            text = self.page.locator("body").inner_text()
        except Error as error:
            text = f"(nothing to be read: {error})"
        return f"{self.page.url}\npicture: {picture}\n{text}"
