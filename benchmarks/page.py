"""Milliseconds of pages that compute, in a Chromium without a screen: ``python -m benchmarks.page PAGE.html …``.

Of each page its size, what a move of a slider takes until all but intervals and the map is written, and 100,000 designs
of a map of model and machine sizes: nearly all of the model depends on both.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.chromium import CHROMIUM, FLAGS

#: Moves of a slider, and those before them that warm the machine up.
MOVES, WARM = 120, 40

#: Maps of a page: leaves across and up.
MAPS = (("memory.bandwidth", "scale_up.bandwidth"), ("hidden", "memory.bandwidth"), ("hidden", "ffn_hidden"))


def _entries(page: Page, name: str) -> list[float]:
    return page.evaluate(f"performance.getEntriesByName('{name}').map((one) => one.duration)")


def _moved(page: Page) -> list[float]:
    page.focus("#live-first input[type=range]")
    for i in range(WARM + MOVES):
        page.keyboard.press("ArrowRight" if i % 6 < 3 else "ArrowLeft")
        page.wait_for_timeout(20)
    return _entries(page, "live-draw")[-MOVES:]


def _mapped(page: Page, x: str, y: str) -> list[float]:
    """Three times the same map."""
    for _ in range(3):
        before = len(_entries(page, "live-map"))
        page.evaluate(f"location.hash = '~x={x}&~y={y}&bf16={9e14 + before}'")
        while len(_entries(page, "live-map")) == before:
            page.wait_for_timeout(50)
    return _entries(page, "live-map")[-3:]


def main(paths: list[str]) -> None:
    """Print the times of pages."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for path in map(Path, paths):
            page = browser.new_page(viewport={"width": 1500, "height": 950})
            page.goto(path.resolve().as_uri())
            page.wait_for_selector("body[data-mapped]")
            took = _moved(page)
            print(
                f"{path.name}: {path.stat().st_size / 1e6:.2f} MB; a move of a slider {np.median(took):.1f} ms"
                f" (nine of ten {np.quantile(took, 0.9):.1f} ms)"
            )
            for x, y in MAPS:
                print(f"  100,000 designs over {x} and {y}: {min(_mapped(page, x, y)):.0f} ms")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
