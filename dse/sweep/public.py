"""The public names of :mod:`dse.sweep`, which imports them from here when they are first used."""

from __future__ import annotations

from dse.spec.output import Keep
from dse.spec.sweep import SweepSpec, from_text, read
from dse.sweep.evaluation import Interrupted
from dse.sweep.grid.grid import Grid
from dse.sweep.job import RunOptions, plan
from dse.sweep.merging import merge
from dse.sweep.progress import Progress, progress_bar
from dse.sweep.reduce.keep import BlockResult
from dse.sweep.results.files import open_results
from dse.sweep.results.summary import BestDesign, Summary
from dse.sweep.run import execute, perform, perform_shard
from dse.sweep.store.manifest import Shard

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
