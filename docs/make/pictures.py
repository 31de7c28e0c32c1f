"""Pictures of what people see: a command in a terminal of 80 columns, and a report as a cell of a notebook.

``python -m docs.make.pictures docs/pictures`` writes them, by Chromium.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

import dse
from benchmarks.chromium import CHROMIUM, FLAGS
from docs.make.command import page_parser
from dse.reports import Report
from dse.reports.terminal import recorded

#: Columns of the terminal, and pixels of a notebook's cell.
COLUMNS, CELL = 80, 760

#: Colours of a picture.
COLOURS = 16

#: Pictures that are shown as cells, too.
CELLS = ("evaluate",)


def reports() -> dict[str, tuple[str, Report]]:
    """Name of a picture → the command, and what it answers."""
    design: dict[str, Any] = {"n_devices": 512, "tp": 8, "pp": 4, "recompute": "full"}
    return {
        "evaluate": (
            "dse evaluate -w llama-3-70b -s eos -n 512 --set tp=8 --set pp=4 --set recompute=full",
            dse.evaluate("llama-3-70b", "eos", **design),
        ),
        "decide": (
            "dse decide h100 dgx-b200 mi300x -w llama-3-8b --set tp=8 --set n_devices=8",
            dse.decide(["h100", "dgx-b200", "mi300x"], workload="llama-3-8b", tp=8, n_devices=8),
        ),
    }


def terminal(command: str, report: Report) -> str:
    """A command and its answer in a terminal, as SVG."""
    console = recorded(report, COLUMNS)
    return console.export_svg(title=command, theme=DEFAULT_TERMINAL_THEME)


def save(picture: bytes, file: Path) -> None:
    """Write a picture with few colours."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS).save(file, optimize=True)


def main() -> None:
    """Write the pictures."""
    from playwright.sync_api import sync_playwright

    folder: Path = page_parser(__doc__).parse_args().page
    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 980, "height": 400}, device_scale_factor=1.2)
        for name, (command, report) in reports().items():
            page.set_content(terminal(command, report))
            save(page.locator("svg").first.screenshot(), folder / f"{name}.png")
            cell = f'<div style="width:{CELL}px;padding:12px;font:13px/1.4 system-ui">{report.to_html()}</div>'
            page.set_content(cell)
            if name in CELLS:
                save(page.locator("div").first.screenshot(), folder / f"{name}_cell.png")
        browser.close()


if __name__ == "__main__":
    main()
