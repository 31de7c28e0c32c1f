"""The figures that commands draw next to their results."""

from __future__ import annotations

from pathlib import Path

from dse.cli import show
from dse.views.drawing import FigureProcess, lacking


def drawn_files(figure_process: FigureProcess, results: Path, force: bool) -> list[Path]:
    """The figures of results; none, and a line that says so, where nothing can draw."""
    if missing := lacking():
        show.note(f"no {missing.where}: {missing.got}; {missing.fix}")
        return []
    return figure_process.draw(results, force)
