"""A small results file of every kind: what a sweep keeps, grids of machines, serving, searches, a co-design."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.conftest import SMALL_SWEEP

_TWO = SMALL_SWEEP.replace('minimize = "step_time"', 'minimize = ["step_time", "peak_memory"]')

_GRID = """
title = "a small grid"

[workload]
name = "gpt-3-13b"

[system]
name = "selene"
n_devices = 16

[mapping]
precision = "bf16"

[axes]
accelerator = ["a100-sxm-80gb", "h100-sxm-80gb"]
"power.clock" = ["1.0 GHz", "1.2 GHz", "1.4 GHz"]
global_batch = [32, 64]
tp = [2, 8]
micro_batch = [1, 2]
recompute = ["none", "full"]

[output]
energy = true
"""

_SERVING = """
title = "small serving"

[workload]
name = "llama-3-8b"

[serving]
prompt_tokens = 1024
output_tokens = 256

[system]
name = "eos"
n_devices = 2

[axes]
accelerator = ["a100-sxm-80gb", "h100-sxm-80gb"]
tp = [1, 2]
concurrency = [4, 16]
"""

_SEARCH = """
[search]
method = ["random", "annealing"]
evaluations = 200
seeds = 2
"""

_CODESIGN = """
title = "a small co-design"

[system]
name = "eos"
n_devices = 64
accelerator = "gpu"
node = "n3e"
memory = "hbm4-8-0"

[software]
name = "megatron-core-te"
any_option = true

[axes]
workload = ["gpt-3-13b", "llama-3-8b"]
global_batch = [128, 128]
tp = [1, 4]
micro_batch = [1, 2]

[zip]
groups = [["workload", "global_batch"]]

[codesign]
starts = 2
steps = 3
k = 2

[codesign.between]
"chip.die_area" = { from = "200 mm2", to = "800 mm2" }
"""

#: Name → (specification, what is kept of a sweep; "" for a search).
SWEEPS = {
    "all": (SMALL_SWEEP, "all"),
    "feasible": (SMALL_SWEEP, "feasible"),
    "best": (SMALL_SWEEP, "best"),
    "top": (SMALL_SWEEP, "top:5"),
    "pareto": (_TWO, "pareto"),
    "grid": (_GRID, "best"),
    "grid_all": (_GRID, "all"),
    "serving": (_SERVING, "all"),
    "serving_best": (_SERVING, "best"),
    "serving_feasible": (_SERVING, "feasible"),
    "histogram": (f"{SMALL_SWEEP}\n[output]\nhistogram = 8\nmoney = true\n", "top:5"),
}
_SEARCHES = {"search": SMALL_SWEEP + _SEARCH, "search_front": _TWO + _SEARCH}


#: Those that take seconds less than the others and are unlike one another.
QUICK = ("all", "grid", "serving_best", "search_front")


def make(folder: Path, names: Iterable[str] = ()) -> dict[str, Path]:
    """Name → file of these kinds, or of all, made in a folder beside its specification."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = tuple(names) or (*SWEEPS, *_SEARCHES, "codesign")
    return {name: _made(name, folder) for name in wanted}


def _made(name: str, folder: Path) -> Path:
    from dse.optimizers.run import SearchOptions, perform, plan
    from dse.sweep import perform as perform_sweep

    specification, path = folder / f"{name}.toml", folder / f"{name}.nc"
    if name in SWEEPS:
        specification.write_text(SWEEPS[name][0])
        perform_sweep(specification, path, keep=SWEEPS[name][1])
    elif name in _SEARCHES:
        specification.write_text(_SEARCHES[name])
        perform(plan(specification), SearchOptions(path))
    else:
        specification.write_text(_CODESIGN)
        perform(plan(specification), SearchOptions(path, evaluations=500))
    return path
