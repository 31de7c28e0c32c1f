"""Results for tests of the explorer, made without running a sweep."""

from __future__ import annotations

import functools

import numpy as np
import xarray as xr

from dse.spec.output import Keep
from dse.sweep import BlockResult, Grid, plan
from dse.sweep.results.dataset import single_designs
from dse.sweep.results.files import to_xarray

PARTS = ("forward", "backward", "tensor_parallel", "bubble")


@functools.cache
def many(count: int, title: str = "Made up") -> xr.Dataset:
    """So many training designs of made-up numbers, without a specification."""
    rng = np.random.default_rng(1)
    time = rng.lognormal(3.0, 0.8, count)
    parts = rng.dirichlet([3.0, 5.0, 2.0, 1.0], count) * time[:, None]
    units = {"step_time": "s", "peak_memory": "B", "mfu": "1"} | {f"step_time_{part}": "s" for part in PARTS}
    data = {"step_time": time, "peak_memory": rng.lognormal(24.0, 0.5, count) / time**0.3, "mfu": 1.0 / (1.0 + time)}
    data |= {f"step_time_{part}": parts[:, i] for i, part in enumerate(PARTS)}
    variables = {
        name: ("design", values.astype(np.float32), {"units": units[name], "long_name": name})
        for name, values in data.items()
    }
    axes = {
        "tp": ("design", rng.choice([1, 2, 4, 8, 16], count), {"path": "mapping.tp", "units": "1"}),
        "accelerator": ("design", rng.choice(["a100", "h100"], count), {"path": "accelerator"}),
    }
    feasible = ("design", rng.random(count) < 0.7)
    return xr.Dataset({**variables, **axes, "feasible": feasible}, attrs={"title": title})


def planned(text_or_path, count: int) -> tuple[xr.Dataset, Grid, np.ndarray]:
    """Designs of a sweep by random with made-up metrics: (results, grid, index of each design)."""
    grid, _ = plan(text_or_path)
    rng = np.random.default_rng(0)
    index = grid.indices(np.unique(rng.integers(0, grid.n_designs, count)))
    values = np.ones((len(grid.spec.metrics), len(index)), np.float32)
    values[0] = rng.uniform(1.0, 2.0, len(index))
    values[grid.spec.metrics.index("infeasible_reason")] = 0.0
    nothing = np.zeros((1, 1))
    part = BlockResult(index, values, nothing, nothing, nothing, nothing, nothing)
    found = single_designs(grid, part)
    attributes = {"title": grid.spec.title, "specification": grid.spec.text, "keep": str(Keep("top", count))}
    return to_xarray(found).assign_attrs(attributes), grid, index
