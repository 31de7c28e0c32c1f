"""A real Chromium without a screen, and pages of a model.

``DSE_CHROMIUM`` names the browser where it is not found by itself.
"""

from __future__ import annotations

import pytest

from benchmarks.chromium import CHROMIUM, FLAGS
from dse.doors import STUDIES
from dse.lab import page as pages_of
from tests.unit.lab.page.designs import NAMES, start


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright, which drives a browser, is not installed")
    if not CHROMIUM:
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Opens a page; whatever it says on the console as an error, or asks of a network, fails the test."""
    wrong = []
    pages = []

    def opened(path, **options):
        page = browser.new_page(viewport={"width": 1500, "height": 950}, accept_downloads=True, **options)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: wrong.append(asked.url) if asked.url.startswith("http") else None)
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]", timeout=60_000)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not wrong


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Kind of study → the page of its model."""
    folder = tmp_path_factory.mktemp("models")
    for kind, names in NAMES.items():
        pages_of.write(folder / f"{kind}.html", start=pages_of.Start(STUDIES[kind], start(kind), names))
    return {kind: folder / f"{kind}.html" for kind in NAMES}
