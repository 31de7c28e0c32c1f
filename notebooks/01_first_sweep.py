# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first sweep
#
# Which mapping of a trillion-parameter model trains fastest on up to 4,096 A100s? Megatron-LM's authors mapped theirs
# by hand (Narayanan et al. 2021); here every mapping that their software offers is evaluated.

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse.views import plot
from dse.views.plot.style import PARTS

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
results = dse.run(root / "sweeps" / "megatron_1t_4096_a100.toml", output=False)
results.sizes

# %% [markdown]
# The results are an `xarray.Dataset`. The mapping's parts (`tp`, `pp`, `dp`, …) are levels of the dimension `mapping`;
# every variable has units and a name in words.

# %%
results.step_time

# %% [markdown]
# ## Slicing by name
#
# The best mapping for each tensor-parallel size, among those that fit into memory:

# %%
fits = results.where(results.feasible)
fits.step_time.groupby("tp").min().to_series()

# %% [markdown]
# One mapping, as the paper chose it (tp 8, pp 64), with full recompute: how long and how much memory, for each
# micro-batch?

# %%
paper = results.sel(
    n_devices=4096,
    tp=8,
    pp=64,
    virtual_stages=1,
    recompute="full",
    recompute_share=1.0,
    zero_stage=0,
    sequence_parallel=False,
    overlap_dp=False,
    overlap_tp=False,
)
columns = ["step_time", "mfu", "peak_memory", "feasible"]
paper[columns].to_dataframe()[columns].head()

# %% [markdown]
# ## Where the time goes
#
# The best mapping of each (tp, pp): what its step is spent on, and the memory it needs beside what there is.

# %%
plot.breakdown(results)

# %% [markdown]
# ## Time against memory
#
# A mapping on the front cannot be made faster without more memory.

# %%
plot.pareto(results)

# %% [markdown]
# ## Why is the best one the best?
#
# The elasticities tell what would make it faster still: one per cent more of a parameter changes the step time by so
# many per cent.

# %%
chosen = results.isel(mapping=fits.step_time.argmin("mapping").item())
MAPPING = {name: chosen[name].item() for name in ("tp", "pp", "dp", "micro_batch", "virtual_stages", "recompute")}
MAPPING |= {name: float(chosen[name]) for name in ("zero_stage", "sequence_parallel", "overlap_dp", "overlap_tp")}


def winner(**changes):
    """The design of the best mapping, with parts of it changed."""
    return dse.design(
        workload="megatron-1t",
        system="selene",
        n_devices=4096,
        precision="fp16",
        global_batch=4096,
        **MAPPING | changes,
    )


design = winner()
[(e.parameter, round(e.elasticity, 3)) for e in dse.explain(design).elasticities[:8]]

# %% [markdown]
# What its step is spent on:

# %%
parts = {one.label: float(chosen[f"step_time_{name}"]) for name, one in PARTS.items()}
step = pd.DataFrame({"s": parts, "%": {name: 100 * time / float(chosen.step_time) for name, time in parts.items()}})
step[step.s > 0.0].round(2)

# %%
assert MAPPING["pp"] == 64 and MAPPING["virtual_stages"] == 2 and design.workload.n_layers == 128
assert 78 < step["%"][["forward", "backward"]].sum() < 80 and 5 < step["%"]["pipeline bubble"] < 6
assert np.isclose(step.s.sum(), chosen.step_time, rtol=1e-4)

# %% [markdown]
# Four fifths are the forward and backward passes of the layers. The bubble of 64 stages is 5 %, because each has its
# two layers as two chunks. What other schedules would make of this mapping, as timelines, and how the step times
# compare with those of Calculon: [07_megatron_1t](07_megatron_1t.ipynb).
