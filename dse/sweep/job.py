"""A prepared sweep: its specification and the options of the run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.doors import Study
from dse.errors import InputError
from dse.io import fuse_outputs, outputs, workers
from dse.io.environment import reuse_memory
from dse.spec import SweepSpec
from dse.spec.output import Keep, parse_keep
from dse.spec.sweep import read
from dse.sweep.engine.nesting import LONGEST_CHUNK
from dse.sweep.grid import compose, vendors
from dse.sweep.grid.grid import Grid
from dse.sweep.progress import Progress
from dse.sweep.results import summary as summaries, writing
from dse.sweep.results.dataset import Judge
from dse.sweep.results.files import COMPRESSION
from dse.sweep.results.summary import Summary
from dse.sweep.store import manifest

if TYPE_CHECKING:
    from distributed import LocalCluster

#: Path of a specification, its sections as a dictionary, a specification, or a grid.
Source = str | Path | Mapping[str, Any] | SweepSpec | Grid

#: Evaluation rate with ``keep = best`` on two cores, designs/s (docs/benchmarks.md: 57 to 134 million).
ENUMERATION_RATE = 5e7

#: Maximum number of designs of a sweep: two days on sixty such machines.
MOST_DESIGNS = 10**13


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of a run that are not part of the specification."""

    output: str | Path | bool | None = None  #: results file, by default the specification's; False: none
    keep: str | None = None  #: ``all feasible best pareto top:K`` in place of the specification's
    chunk: int | None = None  #: designs per evaluation
    fresh: bool = False  #: ignore the results and the parts of earlier runs
    progress: Callable[[Progress], None] | None = None  #: called after every block
    study: Study | None = None  #: the model to evaluate, in place of the one that the specification implies
    any_option: bool = False  #: allow options that the software stack lacks
    force: bool = False  #: replace an output that is not a file of dse
    workers: int | LocalCluster | None = None  #: number of processes of this machine, or a cluster of them
    scheduler: str | None = None  #: evaluate on the workers of a Dask scheduler at this address
    judge: Judge | None = None  #: further variables of the designs that ``top:K`` keeps

    @property
    def on_workers(self) -> bool:
        """True if other processes evaluate the sweep."""
        return self.workers is not None or self.scheduler is not None


@dataclasses.dataclass(frozen=True)
class Job:
    """A prepared sweep: grid, kept designs, engine and output."""

    grid: Grid
    keep: Keep
    options: RunOptions
    identity: dict[str, str]
    target: Path | None

    @functools.cached_property
    def is_target_intact(self) -> bool | None:
        """True if the existing results are intact, False if damaged; None if there are none of dse."""
        return writing.is_intact(self.target) if self.target else None

    @functools.cached_property
    def finished(self) -> Summary | None:
        """The summary of an intact file of the same sweep; None without one, and where ``fresh`` is set."""
        if self.options.fresh or self.target is None or not self.is_target_intact:
            return None
        attributes = writing.attributes(self.target)
        compression = writing.usable(self.grid.spec.compression)
        same = self.identity | {"title": self.grid.spec.title, COMPRESSION: compression}
        if any(attributes.get(name) != value for name, value in same.items()):
            return None
        try:
            return summaries.of_file(self.grid, self.target, attributes)
        except InputError:  # a valid checksum, but not the content of a run: computed again
            return None


def plan(
    spec: Source, keep: str | None = None, study: Study | None = None, any_option: bool = False
) -> tuple[Grid, Keep]:
    """Return the grid of a sweep and the designs it keeps, checked against the limits; allocates nothing large.

    Args:
        spec: path of a specification, its sections as a dictionary, a specification, or a grid, which is returned
            unchanged.
        keep: ``all feasible best pareto top:K`` in place of the specification's.
        study: the model to evaluate, in place of the one that the specification implies; its metrics must have the
            names that the specification uses.
        any_option: allow options that the software stack lacks, and stacks of other vendors.

    Returns:
        The grid, with its size (``n_designs``, ``describe()``), and which designs are kept.

    Raises:
        InputError: for bad input and for sweeps that would keep more than ``output.limit`` designs.

    >>> grid, keep = plan("sweeps/megatron_1t_4096_a100.toml", keep="top:10")
    >>> grid.n_designs, str(keep)
    (34716, 'top:10')
    """
    if isinstance(spec, Grid):
        grid = spec
    else:
        grid = compose.build(_specification(spec, study, any_option))
        vendors.check(grid)
    spec = grid.spec
    keep_modes = spec.keep if keep is None else parse_keep(keep, "keep")
    if keep_modes.mode == "pareto" and len(spec.objectives) < 2:
        raise InputError(
            f"{spec.file}: objective",
            "one objective",
            'two or more with keep = "pareto"',
            f'write minimize = ["{spec.study.objective}", "{spec.study.memory}"]',
        )
    if grid.n_designs > MOST_DESIGNS:
        hours = grid.n_designs / ENUMERATION_RATE / 3600.0
        raise InputError(
            f"{spec.file}: axes",
            f"{grid.describe()}, about {hours:,.0f} hours on two cores",
            f"at most {MOST_DESIGNS:,} designs",
            "shorten the axes, or use dse search",
        )
    largest = {
        "all": grid.n_indices,
        "feasible": grid.n_designs,
        "best": grid.n_points,
        "top": keep_modes.count,
        "pareto": 0,
    }
    if largest[keep_modes.mode] > spec.limit:
        raise InputError(
            f"{spec.file}: axes",
            f"{grid.describe()} with keep = {keep_modes}",
            f"at most {spec.limit:,} kept",
            "shorten the axes, add constraints, use --keep best or --keep top:1000, or raise output.limit",
        )
    return grid, keep_modes


def _specification(
    spec: str | Path | Mapping[str, Any] | SweepSpec, study: Study | None, any_option: bool
) -> SweepSpec:
    """Return a specification, read if necessary, with ``study`` and ``any_option`` where they are set."""
    if not isinstance(spec, SweepSpec):
        spec = read(spec, study)
    elif study:
        spec = dataclasses.replace(spec, study=study)
    return dataclasses.replace(spec, any_option=True) if any_option else spec


def prepare_job(spec: Source, options: RunOptions) -> Job:
    """Return the job of a specification; InputError for bad input, before any evaluation."""
    if options.chunk is not None and not 1 <= options.chunk <= LONGEST_CHUNK:
        raise InputError("chunk", str(options.chunk), f"1 to {LONGEST_CHUNK:,} designs", "leave it out")
    _check_workers(options)
    fuse_outputs()
    reuse_memory()
    grid, keep = plan(spec, options.keep, options.study, options.any_option)
    target = outputs.target_of(options.output, grid.spec.output)
    job = Job(grid, keep, options, manifest.identity(grid, keep), target)
    if target:
        writing.usable(grid.spec.compression)
        try:
            outputs.check_output(target, options.force, [grid.spec.file])
        except outputs.UnwritableFolderError:
            if job.finished is None:  # otherwise nothing is written
                raise
    return job


def _check_workers(options: RunOptions) -> None:
    """Raise InputError for both kinds of workers, a wrong number, or workers without an output to share."""
    if options.workers is not None and options.scheduler is not None:
        raise InputError("workers", "both workers and a scheduler", "one of them", "a scheduler has workers of its own")
    if isinstance(options.workers, int):
        workers.check(options.workers)
    if options.on_workers and options.output is False:
        raise InputError("output", "none", "a file: workers write their parts next to it", "give an output")
