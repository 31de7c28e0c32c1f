"""Sweeps: a specification in TOML, every design of it evaluated, labelled results.

``execute(path)`` returns the dataset and its summary (:func:`dse.run` with intervals), ``plan(path)`` only the grid;
``open_results(path)`` reads a results file. ``perform_shard`` evaluates a shard, ``merge`` joins the shards.

The way of a chunk, from indices to a file, and where to read it:

1. ``job.plan``: specification → grid, whose designs are numbers (``grid/``); nothing large is allocated.
2. ``evaluation.divide_into_blocks``: the same blocks in every run; ``Division.evaluate`` takes those that are not
   stored yet, in this process (``run``), on workers of Dask (``cluster``) or as one share of a job array.
3. ``reduce.keep.block_results``: blocks in chunks of outer indices; the device is a chunk ahead (``engine/chunks``).
4. ``reduce.keep``: metrics or scores → what is kept, with counts, minima and histograms; ``_MERGES`` has, a row a
   field, how results of chunks become those of blocks and of the sweep (``reduce.collection``).
5. ``store``: each finished block in a file of its own; the next run, or ``merging``, goes on from there.
6. ``results``: labels, units, summary, one netCDF file.

It knows a study by its metadata and no model. Names are imported when they are first used: who only reads results
needs no engine.
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
