"""One `make dev` over the sample month and one headless Chromium for all tests in this folder."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from shop_pipeline.core.sample import write_september
from shop_pipeline_tests.browser.pages import CHROMIUM, FLAGS, VIEWPORT, Pages
from shop_pipeline_tests.conftest import environment_in
from shop_pipeline_tests.servers import ConnectServer, DagsterDev


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", metavar="DIR", type=Path, help="save the documents' pictures of the web UI there")


@pytest.fixture(scope="session")
def dev(connect_server: ConnectServer) -> Iterator[DagsterDev]:
    """`make dev` over a fresh folder with the sample month in it; runs share a warm Spark server."""
    # Not below pytest's folder: its path has the name of whoever runs the tests, and pictures show paths.
    with tempfile.TemporaryDirectory(prefix="shop-") as made:
        folder = Path(made)
        write_september(folder / "landing", force=False)
        server = DagsterDev(folder)
        server.start(
            environment_in(
                folder,
                SHOP_SPARK_REMOTE=connect_server.url,
            )
        )
        yield server
        server.stop()


@pytest.fixture(scope="session")
def _session_pages(dev: DagsterDev, request: pytest.FixtureRequest) -> Iterator[Pages]:
    assert Path(CHROMIUM).exists(), f"there is no {CHROMIUM}: install Debian's chromium and fonts-dejavu-core"
    pictures = request.config.getoption("--pictures", default=None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport=VIEWPORT, timezone_id="UTC", locale="en-GB")
        # Times are shown in the browser's zone.
        yield Pages(page, f"http://127.0.0.1:{dev.port}", pictures and pictures.absolute())
        browser.close()


@pytest.fixture
def pages(_session_pages: Pages) -> Pages:
    """The web UI in the browser."""
    return _session_pages


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """What a failed test saw: the page's text with the failure, its picture in the test's folder."""
    report = yield
    pages = getattr(item, "funcargs", {}).get("pages")
    if isinstance(pages, Pages) and report.when == "call" and report.failed:
        report.sections.append(("the page", pages.seen(item.funcargs["tmp_path"] / "failed.png")))
    return report
