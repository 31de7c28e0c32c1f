"""Sweeps: a specification in TOML, every design of it evaluated, labelled results.

``run(path)`` gives the dataset, ``execute(path)`` the summary too, ``plan(path)`` only the size;
``open_results(path)`` reads a results file back.
"""

from __future__ import annotations

from typing import Any

from dse.sweep.grid import Grid
from dse.sweep.keep import Part
from dse.sweep.progress import Progress, progress_bar
from dse.sweep.run import BestDesign, Interrupted, Summary, execute, plan, run
from dse.sweep.spec import Keep, SweepSpec, from_text, read

__all__ = [
    "BestDesign", "Grid", "Interrupted", "Keep", "Part", "Progress", "Summary", "SweepSpec", "execute", "from_text",
    "open_results", "plan", "progress_bar", "read", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "open_results":  # needs xarray, which takes half a second to import
        from dse.sweep.dataset import open_results

        return open_results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
