"""The explorer in a real Chromium: what a person does with mouse and keyboard."""

from __future__ import annotations

import pytest

from dse.lab import page as pages_of
from tests.unit.lab.page.pages import copied, downloaded, drawn, settled, shown, until
from tests.unit.lab.page.results import many

#: Seconds in which 50,000 designs are drawn anew: many times what it takes, for machines that have much else to do.
SLOWEST = 15.0


@pytest.fixture(scope="module")
def small_page(small_results, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "small.html"
    pages_of.write(path, small_results[0])
    return path


def test_filter_pin_compare_and_copy(visit, small_page, small_results):
    page = visit(small_page)
    able = int(small_results[0].feasible.sum())
    assert shown(page) == able and "44 designs" in page.inner_text("#summary")
    page.uncheck("#feasible")
    until(page, lambda: shown(page) == 44)
    page.select_option("#add-filter", label="tp")
    page.uncheck(".filter >> label:text-is('8') >> input")
    until(page, lambda: shown(page) == int((small_results[0].tp.values != 8).sum()))
    page.click("button[aria-label='Remove the constraint on tp']")
    page.check("#feasible")
    page.click("#select-front")
    assert page.inner_text("#selection-about").endswith("selected")
    # keyboard alone: walk, pin two, compare, clear
    page.focus("#plot")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.is_visible("#compare")
    told = page.inner_text("#compared")
    assert "Parameters that differ" in told and "×" in told and "Design A" in told and "forward" in told
    assert copied(page, "#copy-evaluate").startswith("dse evaluate -w gpt-3-13b -s selene")
    assert "[axes]" in copied(page, "#copy-toml")
    page.select_option("#tool", "megatron-lm")
    assert copied(page, "#copy-launch").startswith("dse launch --for megatron-lm -w gpt-3-13b")
    page.focus("#plot")
    page.keyboard.press("Escape")
    assert "nothing is selected" in page.inner_text("#selection-about")


def test_the_table_is_walked_by_keyboard(visit, small_page):
    page = visit(small_page)
    page.focus("#table tbody tr")
    first = page.get_attribute(":focus", "data-row")
    page.keyboard.press("ArrowDown")
    second = page.get_attribute(":focus", "data-row")
    assert second != first and page.get_attribute("#design", "data-row") == second
    page.keyboard.press("Enter")
    assert page.inner_text(f"#table tr[data-row='{second}'] td.pin") == "A"
    assert page.get_attribute(":focus", "data-row") == second
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "plot"


@pytest.mark.browser
def test_every_control_has_a_name(visit, small_page):
    page = visit(small_page, color_scheme="dark")
    nameless = page.evaluate("""
        [...document.querySelectorAll('main button, main select, main input, main textarea, #selection button')]
        .filter((one) => !(one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.length))
        .map((one) => one.outerHTML)
    """)
    assert not nameless and page.get_attribute("#plot", "aria-label")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"


@pytest.mark.browser
def test_fifty_thousand_designs_by_mouse(visit, tmp_path):
    """Hover, select a box, brush the front, download, redraw."""
    path = tmp_path / "many.html"
    pages_of.write(path, many(50_000))
    page = visit(path)
    able = int(many(50_000).feasible.sum())
    assert shown(page) == able
    box = page.locator("#plot").bounding_box()
    middle = (box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.move(*middle)
    page.mouse.move(middle[0] + 6, middle[1] + 3, steps=6)
    until(page, lambda: int(page.get_attribute("#design", "data-row")) >= 0)
    hovered = page.inner_text("#which")
    page.mouse.click(*middle)
    until(page, lambda: page.inner_text("#selection-about").startswith("1 selected"))
    assert hovered.startswith("Design ") and "forward" in page.inner_text("#design")
    assert "step time" in page.inner_text("#tip")
    page.mouse.down()
    page.mouse.move(middle[0] + 120, middle[1] + 90, steps=4)
    page.mouse.up()
    until(page, lambda: not page.inner_text("#selection-about").startswith("1 selected"))
    selected = int(page.inner_text("#selection-about").split()[0].replace(",", ""))
    assert 0 < selected < able
    rows = downloaded(page)
    assert len(rows) == selected and {"tp", "step_time [s]", "status"} <= set(rows[0])
    page.click("#select-front")
    front = int(page.inner_text("#front-count").split()[0].replace(",", ""))
    assert page.inner_text("#selection-about").startswith(f"{front} selected")
    filters, redraws = len(drawn(page, "filter")), len(drawn(page, "redraw"))
    page.select_option("#add-filter", label="peak memory [GiB]")
    page.fill("input[aria-label='peak memory [GiB] at most']", "8")
    settled(page, "filter", filters)
    assert 0 < shown(page) < able
    page.select_option("#y", label="mfu [%]")
    settled(page, "redraw", redraws)
    assert max(drawn(page, "filter") + drawn(page, "redraw")) < SLOWEST


@pytest.mark.browser
def test_texts_of_strangers_do_nothing(visit, tmp_path):
    evil = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    results = many(200, evil).assign(accelerator=("design", [evil, "=1+1"] * 100, {"path": "accelerator"}))
    pages_of.write(tmp_path / "evil.html", results)
    page = visit(tmp_path / "evil.html")
    page.focus("#plot")
    page.keyboard.press("Home")
    assert page.title() == evil and page.inner_text("h1") == evil and evil in page.inner_text("#legend")
    with page.expect_download() as waiting:
        page.click("#download")
    assert ",'=1+1," in waiting.value.path().read_text()
