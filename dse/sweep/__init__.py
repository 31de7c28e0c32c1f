"""Sweeps: a specification in TOML, every design of it evaluated, labelled results.

``run(path)`` gives the dataset, ``execute(path)`` the summary too, ``plan(path)`` only the size;
``open_results(path)`` reads a results file back. ``perform_shard`` evaluates a share, ``merge`` joins the shares.
"""

from __future__ import annotations

from dse.results import open_results
from dse.sweep.evaluation import Interrupted
from dse.sweep.grid import Grid
from dse.sweep.job import Options, plan
from dse.sweep.keep import Part
from dse.sweep.manifest import Shard
from dse.sweep.merge import merge
from dse.sweep.progress import Progress, progress_bar
from dse.sweep.run import execute, perform, perform_shard, run
from dse.sweep.spec import Keep, SweepSpec, from_text, read
from dse.sweep.summary import BestDesign, Summary

__all__ = [
    "BestDesign", "Grid", "Interrupted", "Keep", "Options", "Part", "Progress", "Shard", "Summary", "SweepSpec",
    "execute", "from_text", "merge", "open_results", "perform", "perform_shard", "plan", "progress_bar", "read", "run",
]  # fmt: skip

