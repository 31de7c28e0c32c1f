"""The points of the explorer, which the page paints itself: where, in which colours, which are selected, how fast.

Where a design belongs is read from the ticks of the axes, as readers do; what is there is seen on
pictures of the page.
"""

from __future__ import annotations

import io

import numpy as np
import pytest

from dse.lab import page as pages_of
from tests.unit.lab.page.pages import downloaded, drawn, settled, shown, until
from tests.unit.lab.page.results import many

Image = pytest.importorskip("PIL.Image", reason="pillow, which reads pictures, is not installed")
Path = pytest.importorskip("matplotlib.path", reason="matplotlib is not installed").Path

GIB = 2**30

#: What is drawn over the page, by how much, and what stays of the page where others are selected.
PAINTED, FADED = 0.95, 0.35

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
    pages_of.write(path, results)
    return results, path


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "crowd.html"
    pages_of.write(path, many(3000))
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


def along(page, way: str, values: np.ndarray) -> np.ndarray:
    """Where the ticks of an axis put values, in pixels of the drawing."""
    ticks = page.evaluate(
        "(way) => [...document.querySelectorAll(`#plot .${way}.tick`)].map((tick) => "
        "[tick.textContent, tick.getAttribute(way)])",
        way,
    )
    log = np.log if page.is_checked(f"#{way}-log") else np.asarray
    numbers, pixels = (np.array([float(tick[i].replace(",", "")) for tick in ticks]) for i in (0, 1))
    (first, last), (begin, end) = log(numbers[[0, -1]]), pixels[[0, -1]]
    return begin + (log(values.astype(float)) - first) / (last - first) * (end - begin)


def places(page, results) -> np.ndarray:
    """Where the axes put the designs, in pixels of the drawing."""
    numbers = {"x": results.step_time.values, "y": results.peak_memory.values / GIB}
    return np.stack([along(page, way, values) for way, values in numbers.items()], axis=-1)


def corner(page) -> np.ndarray:
    """Where the drawing begins on the screen."""
    box = page.locator("#plot svg").first.bounding_box()
    return np.array([box["x"], box["y"]])


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
    with page.expect_download() as waiting:
        page.click("#save")
    image = np.asarray(Image.open(waiting.value.path()))
    found = np.array([image[int(y), int(x)] for x, y in places(page, few[0])])
    (a, b, cannot), _ = colours(page)
    np.testing.assert_allclose(found[:, :3], [a, b, a, b, cannot], atol=3)
    np.testing.assert_allclose(found[:, 3], 255 * PAINTED, atol=3)


def drag(page, middle: np.ndarray, steps: list[list[int]], *keys: str) -> np.ndarray:
    """Drag along steps from a place of the screen, with keys held down; returns the way in pixels of the drawing."""
    places = middle + np.array(steps)
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
    return places - corner(page)


def within(page, results, way: np.ndarray) -> set[int]:
    """Designs in the box between the ends of a way."""
    points, ends = places(page, results), np.sort(way[[0, -1]], axis=0)
    inside = ((ends[0] <= points) & (points <= ends[1])).all(axis=-1)
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
    first = within(page, results, drag(page, middle, [[0, 0], [120, -90]]))
    assert 0 < len(first) < results.feasible.sum() and selected(page, results) == first
    more = within(page, results, drag(page, middle, [[60, 60], [-60, -60]], "Shift"))
    assert not more <= first and selected(page, results) == first | more
    both = within(page, results, drag(page, middle, [[30, -200], [-30, 200]], "Control"))
    assert selected(page, results) == (first | more) & both
    less = within(page, results, drag(page, middle, [[200, 20], [-10, -20]], "Control", "Shift"))
    assert less & (first | more) & both and selected(page, results) == ((first | more) & both) - less
    page.click("#reset")
    until(page, lambda: "nothing is selected" in page.inner_text("#selection-about"))


@pytest.mark.browser
@pytest.mark.parametrize("log", [True, False])
def test_a_lasso_selects_exactly_what_is_inside(visit, crowd, log):
    results, page = crowded(visit, crowd, log)
    page.click("#tools input[value=lasso]")
    middle = np.median(places(page, results), axis=0) + corner(page)
    lasso = drag(page, middle, [[0, 0], [80, 0], [120, 60], [20, 140], [40, 50], [-80, 80]])
    inside = Path(lasso).contains_points(places(page, results))
    assert inside.any() and selected(page, results) == set(np.flatnonzero(inside & results.feasible.values).tolist())


@pytest.mark.browser
def test_fifty_thousand_designs_follow_at_once(visit, tmp_path):
    """From a change to its frame; the fastest of some, for machines that have much else to do."""
    pages_of.write(tmp_path / "many.html", many(50_000))
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
