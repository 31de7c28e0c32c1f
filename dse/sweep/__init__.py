"""Sweeps: a specification in TOML, every design of it evaluated, labelled results.

``execute(path)`` returns the dataset and its summary (:func:`dse.run` with intervals), ``plan(path)`` only the grid;
``open_results(path)`` reads a results file. ``perform_shard`` evaluates a shard, ``merge`` joins the shards.

Names are imported when they are first used: who only reads results needs no engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dse.sweep.public import (
        BestDesign,
        BlockResult,
        Grid,
        Interrupted,
        Keep,
        Progress,
        RunOptions,
        Shard,
        Summary,
        SweepSpec,
        execute,
        from_text,
        merge,
        open_results,
        perform,
        perform_shard,
        plan,
        progress_bar,
        read,
    )

__all__ = [
    "BestDesign",
    "BlockResult",
    "Grid",
    "Interrupted",
    "Keep",
    "Progress",
    "RunOptions",
    "Shard",
    "Summary",
    "SweepSpec",
    "execute",
    "from_text",
    "merge",
    "open_results",
    "perform",
    "perform_shard",
    "plan",
    "progress_bar",
    "read",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name in __all__:
        return getattr(importlib.import_module("dse.sweep.public"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
