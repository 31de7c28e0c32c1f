"""Sweeps: a specification in TOML, every design of it evaluated, labelled results.

``execute(path)`` returns the dataset and its summary (:func:`dse.run` with intervals), ``plan(path)`` only the grid;
``open_results(path)`` reads a results file. ``perform_shard`` evaluates a shard, ``merge`` joins the shards.

Names are imported when they are first used: who only reads results needs no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.spec import SweepSpec
    from dse.spec.output import Keep
    from dse.spec.sweep import from_text, read
    from dse.sweep.evaluation import Interrupted
    from dse.sweep.grid.grid import Grid
    from dse.sweep.job import RunOptions as RunOptions, plan
    from dse.sweep.merging import merge
    from dse.sweep.progress import Progress, progress_bar
    from dse.sweep.reduce.keep import BlockResult as BlockResult
    from dse.sweep.results.files import open_results
    from dse.sweep.results.summary import BestDesign, Summary
    from dse.sweep.run import execute, labelled_designs, perform, perform_shard as perform_shard
    from dse.sweep.store.manifest import Shard as Shard
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "BestDesign",
    "Grid",
    "Interrupted",
    "Keep",
    "Progress",
    "Summary",
    "SweepSpec",
    "execute",
    "from_text",
    "labelled_designs",
    "merge",
    "open_results",
    "perform",
    "plan",
    "progress_bar",
    "read",
]
