"""The site: built without a warning from the pages of the repository, whole by itself, its links lead somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.pages import PAGES

ROOT = Path(__file__).parents[1]
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


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx", reason="pip install 'llm-dse[docs]'")
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
