"""What tests read of a page of the explorer, and how they wait for it."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable


def shown(page) -> int:
    """How many designs it says are shown."""
    return int(page.inner_text("#count").split()[0].replace(",", ""))


def until(page, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition. The policy of the page allows no code made from texts, which the driver would wait with."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        page.wait_for_timeout(30)


def drawn(page, name: str) -> list[float]:
    """Seconds of each change of this name, up to the frame that showed it."""
    return page.evaluate(f"performance.getEntriesByName('{name}').map(one => one.duration / 1000)")


def settled(page, name: str, before: int) -> None:
    """Wait until one more change of this name has been drawn."""
    until(page, lambda: len(drawn(page, name)) > before)


def copied(page, button: str) -> str:
    """What a button copies."""
    page.evaluate("document.getElementById('copied').value = ''")
    page.click(button)
    until(page, lambda: page.input_value("#copied") != "")
    return page.input_value("#copied")


def downloaded(page) -> list[dict[str, str]]:
    """The table that the page hands out: what is selected."""
    with page.expect_download() as waiting:
        page.click("#download")
    return list(csv.DictReader(io.StringIO(waiting.value.path().read_text())))
