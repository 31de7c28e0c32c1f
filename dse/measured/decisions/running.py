"""Sweeps as users run them, by the command or from Python: with how sure the designs of ``top:K`` are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dse.spec import SweepSpec
from dse.sweep import Grid, Progress, execute

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr


def judge(grid: Grid, index: np.ndarray) -> Mapping[str, tuple[np.ndarray, dict[str, str]]]:
    """Return further variables of designs of a sweep (:func:`dse.measured.decisions.choice.judge`).

    What computes them is imported when it is first asked for: sweeps without ``top:K`` do without.
    """
    from dse.measured.decisions import choice

    return choice.judge(grid, index)


def run(
    spec: str | Path | SweepSpec | Grid,
    output: str | Path | bool | None = None,
    keep: str | None = None,
    chunk: int | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    any_option: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
) -> xr.Dataset:
    """Run a sweep and write its results.

    :func:`dse.sweep.execute` does so without intervals, and returns the summary too.

    Args:
        spec: path of a specification or ``example:NAME``, a specification, or a grid.
        output: results file, by default the specification's; False: none.
        keep: ``all feasible best pareto top:K`` in place of the specification's.
        chunk: designs per evaluation.
        fresh: ignore the results and the parts of earlier runs.
        progress: called after every block.
        any_option: allow options that the software stack lacks; by default they are left out.
        workers: number of local processes; scripts need ``if __name__ == "__main__":``.
        scheduler: address of a Dask scheduler whose workers evaluate; they must share the folder of the output.

    Returns:
        One variable per metric, with ``units`` and ``long_name``. Dimensions are the orthogonal axes and
        ``mapping``; ``design`` for single designs (``feasible``, ``top:K``, ``pareto``); the orthogonal axes for
        ``best``. Of ``top:K`` also the ends of 80 % intervals and ``probability_best`` (:func:`judge`).

    Raises:
        InputError: for bad input, before any evaluation.
        Interrupted: when stopped; finished blocks are stored.
        IncompleteError: if a part could not be computed; finished blocks are stored.

    >>> results = run("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3")
    >>> results.sizes["design"], results.step_time.attrs["units"]
    (3, 's')
    """
    options = {"keep": keep, "chunk": chunk, "fresh": fresh, "progress": progress, "any_option": any_option}
    return execute(spec, output, **options, workers=workers, scheduler=scheduler, judge=judge)[0]
