"""The points of the explorer, which the page paints itself: where, in which colours, which are selected, how fast.

Where a design belongs is asked of Bokeh's own axes, and what is there of a picture of the page.
"""

from __future__ import annotations

import io

import numpy as np
import pytest

from dse.views import report
from tests.report.pages import downloaded, drawn, settled, shown, until
from tests.report.results import many

pytest.importorskip("bokeh", reason="the extra report is not installed")
Image = pytest.importorskip("PIL.Image", reason="pillow, which reads pictures, is not installed")
Path = pytest.importorskip("matplotlib.path", reason="matplotlib is not installed").Path

GIB = 2**30

#: What is drawn over the page, by how much, and what stays of the page where others are selected.
PAINTED, FADED = 0.95, 0.35

#: Bokeh's figure in the page, and the place of its drawing on the screen.
FIGURE = "Object.values(Bokeh.index).find((one) => one.model.type === 'Figure')"

#: Seconds from a change to its frame at 50,000 designs, for the fastest of a few: twice what they take at leisure.
FRAME, AXES = 0.2, 0.5


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Five designs far from each other and from the lines of the grid; the last one cannot run."""
    results = many(5).copy(deep=True)
    results.step_time.values[:] = [1.07, 4.2, 8.7, 31.3, 21.3]
    results.peak_memory.values[:] = np.array([29.1, 3.6, 12.4, 1.3, 24.1]) * GIB
    results.feasible.values[:] = [True, True, True, True, False]
    results = results.assign_coords(accelerator=("design", ["a", "b", "a", "b", "a"], {"path": "accelerator"}))
    path = tmp_path_factory.mktemp("report") / "few.html"
    report.write(results, path)
    return results, path


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "crowd.html"
    report.write(many(3000), path)
    return many(3000), path


@pytest.fixture
def bare(visit, few):
    """Opens the page of the few designs with nothing over them."""

    def opened(**options):
        page = visit(few[1], **options)
        page.uncheck("#feasible")
        page.uncheck("#show-front")
        page.select_option("#colour", label="accelerator")
        page.mouse.move(5, 5)
        return page

    return opened


def scale(page, way: str, log: bool) -> None:
    """Have an axis be logarithmic or not."""
    if page.is_checked(f"#{way}-log") != log:
        before = len(drawn(page, "redraw"))
        page.click(f"#{way}-log")
        settled(page, "redraw", before)


def places(page, results) -> np.ndarray:
    """Where Bokeh's axes put the designs, in pixels of its drawing."""
    numbers = [results.step_time.values.tolist(), (results.peak_memory.values / GIB).tolist()]
    return np.array(
        page.evaluate(
            f"([x, y]) => {{ const {{ x_scale, y_scale }} = {FIGURE}.frame;"
            "return x.map((one, i) => [x_scale.compute(one) + 0.5, y_scale.compute(y[i]) + 0.5]); }",
            numbers,
        )
    )


def corner(page) -> np.ndarray:
    """Where Bokeh's drawing begins on the screen."""
    return np.array(
        page.evaluate(
            f"(() => {{ const box = {FIGURE}.canvas_view.el.getBoundingClientRect(); return [box.left, box.top]; }})()"
        )
    )


def picture(page, results, density: int = 1) -> np.ndarray:
    """The colours of the screen where the designs belong."""
    image = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(float)
    return np.array([image[int(y), int(x)] for x, y in (places(page, results) + corner(page)) * density])


def colours(page) -> tuple[np.ndarray, np.ndarray]:
    """(the colours of the legend, of the page)."""
    parsed = """(colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number)"""
    legend = page.evaluate(
        f"[...document.querySelectorAll('#legend i')].map((one) => ({parsed})(getComputedStyle(one).backgroundColor))"
    )
    return np.array(legend), np.array(page.evaluate(f"({parsed})(getComputedStyle(document.body).backgroundColor)"))


def expected(page, alpha: np.ndarray | float) -> np.ndarray:
    """The colours of the five designs: those of a, b, and what cannot run."""
    (a, b, cannot), ground = colours(page)
    share = np.broadcast_to(alpha, 5)[:, None]
    return share * np.array([a, b, a, b, cannot]) + (1 - share) * ground


@pytest.mark.parametrize("log", [(True, True), (False, False), (True, False)])
def test_designs_are_painted_where_they_belong_in_their_colours(bare, few, log):
    page = bare()
    scale(page, "x", log[0])
    scale(page, "y", log[1])
    np.testing.assert_allclose(picture(page, few[0]), expected(page, PAINTED), atol=3)
    middle = places(page, few[0])[[0, 1]].mean(axis=0) + corner(page)
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    before = len(drawn(page, "zoom"))
    page.mouse.wheel(0, -30)
    settled(page, "zoom", before)
    page.keyboard.up("Control")
    page.mouse.move(5, 5)
    seen = [0, 1, 2]
    np.testing.assert_allclose(picture(page, few[0])[seen], expected(page, PAINTED)[seen], atol=3)


@pytest.mark.browser
@pytest.mark.parametrize("options", [{"color_scheme": "dark"}, {"device_scale_factor": 2}])
def test_designs_are_painted_on_any_screen(bare, few, options):
    page = bare(**options)
    density = options.get("device_scale_factor", 1)
    np.testing.assert_allclose(picture(page, few[0], density), expected(page, PAINTED), atol=3)
    page.set_viewport_size({"width": 1100, "height": 700})
    until(page, lambda: np.allclose(picture(page, few[0], density), expected(page, PAINTED), atol=3))


def test_others_than_the_selected_fade(bare, few):
    page = bare()
    page.mouse.click(*(places(page, few[0])[2] + corner(page)))
    page.mouse.move(5, 5)
    alpha = np.full(5, FADED)
    alpha[2] = PAINTED
    until(page, lambda: np.allclose(picture(page, few[0]), expected(page, alpha), atol=3))
    page.focus("#plot")
    page.keyboard.press("Escape")
    until(page, lambda: np.allclose(picture(page, few[0]), expected(page, PAINTED), atol=3))


@pytest.mark.browser
def test_the_picture_that_is_saved_holds_the_designs(bare, few):
    page = bare()
    page.on("dialog", lambda dialog: dialog.accept("plot"))
    with page.expect_download() as waiting:
        page.click(".bk-tool-icon-save")
    image = np.asarray(Image.open(waiting.value.path()))
    found = np.array([image[int(y), int(x)] for x, y in places(page, few[0])])
    (a, b, cannot), _ = colours(page)
    np.testing.assert_allclose(found[:, :3], [a, b, a, b, cannot], atol=3)
    np.testing.assert_allclose(found[:, 3], 255 * PAINTED, atol=3)


def drag(page, middle: np.ndarray, steps: list[list[int]], *keys: str) -> dict:
    """Drag along steps from a place of the screen, with keys held down; returns what Bokeh says was enclosed."""
    places = middle + np.array(steps)
    page.evaluate(
        f"{FIGURE}.model.on_event('selectiongeometry', ({{ geometry }}) => {{ document.enclosed = geometry; }})"
    )
    for key in keys:
        page.keyboard.down(key)
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    before = len(drawn(page, "select"))
    page.mouse.up()
    settled(page, "select", before)
    for key in keys:
        page.keyboard.up(key)
    return page.evaluate(
        "(({ x0, x1, y0, y1, x = [], y = [] }) => ({ x0, x1, y0, y1, x: [...x], y: [...y] }))(document.enclosed)"
    )


def within(results, box: dict) -> set[int]:
    """Designs in a box."""
    time, memory = results.step_time.values, results.peak_memory.values / GIB
    inside = (box["x0"] <= time) & (time <= box["x1"]) & (box["y0"] <= memory) & (memory <= box["y1"])
    return set(np.flatnonzero(inside & results.feasible.values).tolist())


def selected(page, results) -> set[int]:
    """Designs in the table of the selection, by their numbers in the seven digits that it gives."""
    columns = [results[name].values.astype(float).tolist() for name in ("step_time", "peak_memory")]
    known = {tuple(float(f"{number:.7g}") for number in pair): i for i, pair in enumerate(zip(*columns, strict=True))}
    rows = [known[float(row["step_time [s]"]), float(row["peak_memory [B]"])] for row in downloaded(page)]
    assert len(known) == len(columns[0]) and len(set(rows)) == len(rows)
    return set(rows)


def crowded(visit, crowd, log: bool):
    """(the results of the crowd, its page with both axes logarithmic or not)."""
    results, path = crowd
    page = visit(path)
    scale(page, "x", log)
    scale(page, "y", log)
    return results, page


@pytest.mark.browser
@pytest.mark.parametrize("log", [True, False])
def test_a_box_selects_exactly_what_is_inside(visit, crowd, log):
    results, page = crowded(visit, crowd, log)
    middle = np.median(places(page, results), axis=0) + corner(page)
    first = within(results, drag(page, middle, [[0, 0], [120, -90]]))
    assert 0 < len(first) < results.feasible.sum() and selected(page, results) == first
    more = within(results, drag(page, middle, [[60, 60], [-60, -60]], "Shift"))
    assert not more <= first and selected(page, results) == first | more
    both = within(results, drag(page, middle, [[30, -200], [-30, 200]], "Control"))
    assert selected(page, results) == (first | more) & both
    less = within(results, drag(page, middle, [[200, 20], [-10, -20]], "Control", "Shift"))
    assert less & (first | more) & both and selected(page, results) == ((first | more) & both) - less
    page.click(".bk-tool-icon-reset")
    until(page, lambda: "nothing is selected" in page.inner_text("#selection-about"))


@pytest.mark.browser
@pytest.mark.parametrize("log", [True, False])
def test_a_lasso_selects_exactly_what_is_inside(visit, crowd, log):
    results, page = crowded(visit, crowd, log)
    page.click(".bk-tool-icon-lasso-select")
    middle = np.median(places(page, results), axis=0) + corner(page)
    lasso = drag(page, middle, [[0, 0], [80, 0], [120, 60], [20, 140], [40, 50], [-80, 80]])
    along = np.log if log else np.asarray
    points = along(np.stack([results.step_time.values, results.peak_memory.values / GIB], axis=-1).astype(float))
    inside = Path(along(np.stack([lasso["x"], lasso["y"]], axis=-1))).contains_points(points)
    assert inside.any() and selected(page, results) == set(np.flatnonzero(inside & results.feasible.values).tolist())


@pytest.mark.browser
def test_fifty_thousand_designs_follow_at_once(visit, tmp_path):
    """From a change to its frame; the fastest of some, for machines that have much else to do."""
    report.write(many(50_000), tmp_path / "many.html")
    page = visit(tmp_path / "many.html")
    page.uncheck("#feasible")
    until(page, lambda: shown(page) == 50_000)
    page.select_option("#add-filter", label="peak memory [GiB]")
    box = page.locator("#plot").bounding_box()
    middle = np.array([box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"]])

    def zoom(i):
        page.mouse.move(*middle)
        page.keyboard.down("Control")
        page.mouse.wheel(0, 30 * (-1) ** i)
        page.keyboard.up("Control")

    changes = {
        "filter": lambda i: page.fill("input[aria-label='peak memory [GiB] at most']", str(1000 + i)),
        "colour": lambda i: page.select_option("#colour", label=("tp", "mfu [%]")[i % 2]),
        "zoom": zoom,
        "select": lambda i: drag(page, middle, [[0, 0], [60 + 10 * i, 60]]),
        "redraw": lambda i: page.select_option("#y", label=("tp", "mfu [%]")[i % 2]),
    }
    fastest = {}
    for name, change in changes.items():
        taken = []
        for i in range(5):
            before = len(drawn(page, name))
            change(i)
            settled(page, name, before)
            taken.append(drawn(page, name)[before])
        fastest[name] = min(taken)
    assert fastest.pop("redraw") < AXES
    assert max(fastest.values()) < FRAME, fastest
