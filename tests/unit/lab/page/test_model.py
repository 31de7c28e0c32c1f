"""The page that computes in a real Chromium: its figures, its speed, and what a person does with it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import dse
from dse.designs import replace
from dse.doors import STUDIES
from dse.lab import page as pages_of
from dse.measured.uncertainty.intervals import intervals
from tests.unit.lab.page.designs import CLOSE, NAMES, assert_same, figures, near, plain, start
from tests.unit.lab.page.pages import until

pytestmark = pytest.mark.browser

#: Milliseconds of a frame and of 100,000 designs, and how many times as many they may take on a machine that is busy.
FRAME, MAP, BUSY = 16.0, 1000.0, 4.0

ASK = """([designs, metrics]) => {
  const detail = { designs, metrics };
  document.dispatchEvent(new CustomEvent("dse-ask", { detail }));
  return JSON.stringify(detail.answer, (_, one) => (Number.isFinite(one) || Array.isArray(one) ? one : String(one)));
}"""


def contents(page) -> dict:
    return json.loads(
        page.inner_text("#live-document") or page.evaluate("document.getElementById('live-document').textContent")
    )


def set_leaf(page, name: str, text: str) -> None:
    """Type a value into the field of a leaf, and wait for what follows."""
    before = page.get_attribute("body", "data-live")
    field = page.locator(
        f".leaf:has(label:text-is('{name}')) .field input, .leaf:has(label:text-is('{name}')) .field select"
    ).first
    if field.evaluate("one => one.tagName") == "SELECT":
        field.select_option(label=text)
    else:
        field.fill(text)
        field.press("Tab")
    until(page, lambda: page.get_attribute("body", "data-live") != before)


def card(page, name: str) -> str:
    return page.inner_text(f".card:has(.name:text-is('{name}')) .value")


@pytest.mark.parametrize("kind", ["training", "serving"])
def test_three_hundred_designs_are_those_of_python(visit, pages, kind):
    page = visit(pages[kind])
    paths = [leaf["path"] for leaf in contents(page)["leaves"]]
    rows = near(start(kind), paths, 300, seed=7)
    theirs = figures(kind, start(kind), paths, rows)
    names = [*theirs]
    found = json.loads(page.evaluate(ASK, [rows.astype(float).tolist(), names]))
    ours = {name: np.array([plain(one[i]) for one in found]) for i, name in enumerate(names)}
    assert_same(kind, ours, theirs)
    assert 30 < theirs["feasible"].sum() < 300


@pytest.mark.parametrize("kind", ["training", "serving"])
def test_elasticities_and_intervals_are_those_of_python(visit, pages, kind):
    page, study, design = visit(pages[kind]), STUDIES[kind], start(kind)
    wanted = {one.parameter: one.elasticity for one in dse.explain(design, study=study).elasticities}
    lines = page.locator("#live-elasticities tr:visible")
    told = dict(lines.nth(i).inner_text().replace("−", "-").split("\t")[::2] for i in range(lines.count()))
    assert len(told) == 12
    for name, text in told.items():
        assert float(text) == pytest.approx(wanted[name], abs=0.004), name
    names = NAMES[kind]
    values = [leaf["value"] for leaf in contents(page)["leaves"]]
    ours = dict(json.loads(page.evaluate(ASK.replace("detail.answer", "detail.between"), [[values], []])))
    metrics = dataclasses.asdict((dse.evaluate if kind == "training" else dse.serve)(design))
    where = names.software, study, names.accelerator, names.workload, names.system
    theirs = intervals(design, {name: float(metrics[name]) for name in ours}, *where).bounds
    assert len(theirs) >= 15
    assert set(ours) == set(theirs)
    for name, ends in ours.items():
        assert ends == pytest.approx([theirs[name].low, theirs[name].high], rel=CLOSE), name


def test_a_design_is_changed_by_hand_undone_linked_and_taken_back_to_python(visit, pages):
    page = visit(pages["training"])
    first = card(page, "step time")
    set_leaf(page, "memory.bandwidth", "1.5")
    set_leaf(page, "tp", "4")
    assert page.input_value("[id^=live-leaf]:near(label:text-is('dp'))") and card(page, "step time") != first
    values = {"mapping.tp": 4.0, "mapping.dp": 4.0, "system.accelerator.memory.bandwidth": 1.5e12}
    changed = dse.evaluate(replace(start("training"), values))
    assert float(card(page, "step time").split()[0]) == pytest.approx(float(changed.step_time), rel=5e-3)
    until(page, lambda: "tp=4" in page.url)
    assert "memory.bandwidth=1500000000000" in page.url and "dp=4" in page.url
    # what was written is read again, by another visitor
    other = visit(pages["training"])
    other.evaluate(f"location.hash = {json.dumps(page.url.partition('#')[2])}")
    until(other, lambda: card(other, "step time") == card(page, "step time"))
    # undo by key, redo by button
    page.click("h1")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    until(page, lambda: card(page, "step time") == first)
    page.click("#live-redo")
    until(page, lambda: card(page, "step time") != first)
    # the command is Python's
    words = page.evaluate("""() => new Promise((done) => {
      navigator.clipboard.writeText = async (text) => done(text);
      document.getElementById("live-command").click();
    })""")
    assert words.startswith("dse evaluate -w llama-3-70b -s h100 --set")


def test_what_cannot_run_says_why_and_what_is_no_value_is_refused(visit, pages):
    page = visit(pages["training"])
    assert page.is_hidden("#live-why")
    set_leaf(page, "memory.capacity", "16")
    assert "peak memory exceeds the device's capacity" in page.inner_text("#live-why")
    set_leaf(page, "tp", "3")
    told = page.inner_text("#live-why")
    assert "tp does not divide the attention heads" in told and card(page, "step time") == "–"
    field = page.locator(".leaf:has(label:text-is('tp')) .field input")
    field.fill("2.5")
    field.press("Enter")
    assert "a whole number" in page.inner_text(".leaf:has(label:text-is('tp')) .wrong")
    assert field.get_attribute("aria-invalid") == "true" and "tp does not divide" in page.inner_text("#live-why")
    page.evaluate("location.hash = 'tp=-1&nonsense=1&memory.bandwidth=1e12&%E0%A4%A=<img src=x>'")
    until(page, lambda: "tp, nonsense" in page.inner_text("#live-said"))
    assert page.is_hidden("#live-why")


def test_frames_and_maps_are_drawn_in_time(visit, pages):
    for path in pages.values():
        page = visit(path)
        slider = page.locator("#live-first input[type=range]").first
        slider.focus()
        for i in range(60):
            page.keyboard.press("ArrowRight" if i % 6 < 3 else "ArrowLeft")
            page.wait_for_timeout(20)
        took = page.evaluate("performance.getEntriesByName('live-draw').map((one) => one.duration)")
        assert np.quantile(took[-40:], 0.9) < FRAME * BUSY
        page.evaluate("location.hash = '~x=hidden&~y=memory.bandwidth'")
        until(
            page, lambda page=page: page.evaluate("performance.getEntriesByName('live-map').at(-1)?.detail === 100000")
        )
        took = page.evaluate("performance.getEntriesByName('live-map').at(-1).duration")
        assert took < MAP * BUSY


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways_and_every_control_has_a_name(visit, pages, scheme):
    page = visit(pages["serving"], color_scheme=scheme)
    page.set_viewport_size({"width": 375, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.locator("#live-filter").fill("electricity")
    assert page.locator(".leaf:visible").count() >= 1
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, input, select, canvas, summary")]
      .filter((one) =>
      !(one.ariaLabel || one.textContent.trim() || one.labels?.length || one.title)).map((one) => one.outerHTML)""")
    assert not nameless
    page.emulate_media(media="print")
    assert page.is_hidden("#live-undo") and page.is_visible("#live-cards")
    assert page.inner_text("#live-line").startswith("dse evaluate --serving")


def test_the_map_is_walked_by_keyboard(visit, pages):
    page = visit(pages["training"])
    page.evaluate("location.hash = '~x=tp&~y=pp'")
    until(page, lambda: "cannot run" in page.inner_text("#live-ramp") and page.input_value("#live-x-leaf") == "tp")
    until(page, lambda: "tp" in page.inner_text("#live-map-told"))
    page.focus("#live-map")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#live-map-cell").startswith("tp 4, pp 4:")
    page.keyboard.press("Enter")
    until(page, lambda: page.input_value("[id^=live-leaf]:near(label:text-is('tp'))") != "" and "tp=4" in page.url)


def test_the_explorer_hands_its_designs_to_the_model(visit, small_results, tmp_path):
    dataset, _ = small_results
    pages_of.write(tmp_path / "both.html", dataset, live=True)
    page = visit(tmp_path / "both.html")
    page.wait_for_selector("body[data-mapped]")
    for at in (0, 3, 6):
        line = page.locator("#table tbody tr").nth(at)
        line.click()
        time = line.locator("td").nth(1).inner_text()
        until(page, lambda time=time: card(page, "step time").split()[0] == time)
        assert page.inner_text("#live-said") == ""
