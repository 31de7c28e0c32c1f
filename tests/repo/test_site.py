"""The site: built without a warning from the pages of the repository, whole by itself, its links lead somewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import dse
from dse.io import install_extra
from tests.pages import PAGES
from tests.unit.lab.page.conftest import browser  # noqa: F401  fixture

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

#: Attributes by which a page of HTML asks for a file when it is shown.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class Page(HTMLParser):
    """What one page has and asks for."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.n_formulas = 0
        self.texts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if value and (tag, name) in LOADED:
                self.loaded.append(value)
            if value and (tag, name) == ("a", "href"):
                self.links.append(value)
        self.n_formulas += tag == "math"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx", reason=install_extra("docs"))
    folder = tmp_path_factory.mktemp("site")
    strict = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto"]
    command = [sys.executable, "-m", "sphinx", *strict, "-c", "docs/site", ".", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_of_the_repository_is_there(site):
    missing = [path for path in PAGES if not (site / path.relative_to(ROOT)).with_suffix(".html").exists()]
    assert not missing and (site / "index.html").exists()


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        for url in page.loaded:
            assert not urlsplit(url).netloc, f"{path}: {url}"
            assert (path.parent / unquote(urlsplit(url).path)).exists(), f"{path}: {url}"
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8")


def test_links_lead_somewhere(pages):
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path.resolve()
            assert target.exists(), f"{path}: {link}"
            if url.fragment and target.suffix == ".html":
                assert unquote(url.fragment) in pages[target].ids, f"{path}: {link}"


def test_every_page_tells_the_version(pages):
    shown = [page for path, page in pages.items() if path.name != "index.html" or path.parent.name == "docs"]
    assert len(shown) > 60 and all(f"dse {dse.__version__}" in page.texts for page in shown)


def test_notebooks_are_pages_with_all_their_figures(site, pages):
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        page = pages[site / "notebooks" / f"{path.stem}.html"]
        figures = [url for url in page.loaded if "_images/notebooks" in url]
        assert len(figures) == sum("image/png" in output.get("data", {}) for output in outputs) >= 2
        assert f"notebooks/{path.stem}.html" in " ".join(pages[site / "docs" / "index.html"].links)


def test_verdicts_on_published_studies_are_on_the_site(site, pages):
    said = pages[site / "docs" / "studies.html"].texts
    assert {"agrees", "differs", "not checked"} <= set(said) and "megascale" in " ".join(said)


def test_the_search_finds_a_pipeline_bubble(site, browser):  # noqa: F811  the fixture
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + "?q=pipeline+bubble")
    page.wait_for_selector("#search-results ul.search li")
    found = page.locator("#search-results ul.search li a").evaluate_all("them => them.map((one) => one.href)")
    page.close()
    assert any("model/parallel.html" in url for url in found)
