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
from dse.measured import predict_cases, read_cases
from dse.model.accounts.feasibility import usable_memory
from dse.views import plot
from dse.views.plot.style import FRONT, PAGE, PARTS, new_figure, style
from dse.views.trace.orders import PassKind
from dse.views.trace.step import schedule_step

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
# two layers as two chunks.
#
# ## Three schedules on this mapping
#
# With GPipe, 1F1B and interleaved 1F1B of $v$ chunks a stage, each of $p$ stages waits for $(p - 1)/(v m)$ of the time
# that $m$ micro-batches take. They differ in what the first stage holds meanwhile.

# %%
SCHEDULES = {
    "GPipe": {"schedule": "gpipe", "virtual_stages": 1},
    "1F1B": {"virtual_stages": 1},
    "interleaved": {},
}
PASSES = ("forward", "backward", "recompute", "tensor_parallel")
stages, micro_batches = MAPPING["pp"], 4096 // (MAPPING["dp"] * MAPPING["micro_batch"])
rows, steps = {}, {}
for name, changes in SCHEDULES.items():
    metrics, steps[name] = dse.evaluate(winner(**changes)), schedule_step(winner(**changes))
    chunks = changes.get("virtual_stages", MAPPING["virtual_stages"])
    passes = sum(float(getattr(metrics, f"step_time_{part}")) for part in PASSES)
    rows[name] = {
        "bubble (s)": float(metrics.step_time_bubble),
        "of the passes": float(metrics.step_time_bubble) / passes,
        "(p - 1)/(v m)": (stages - 1) / (chunks * micro_batches),
        "micro-batches held": steps[name].timeline.in_flight(0) / chunks,
        "memory (GiB)": float(metrics.peak_memory) / 2**30,
        "step (s)": float(metrics.step_time),
        "event by event (s)": steps[name].total,
    }
schedules = pd.DataFrame(rows).T
schedules.round(3)

# %%
bubbles, held = schedules["bubble (s)"], schedules["micro-batches held"]
assert np.allclose(schedules["of the passes"], schedules["(p - 1)/(v m)"], rtol=2e-3)
assert np.allclose(schedules["event by event (s)"], schedules["step (s)"], rtol=3e-3)
assert bubbles["GPipe"] == bubbles["1F1B"] and np.isclose(bubbles["interleaved"], bubbles["1F1B"] / 2, rtol=1e-3)
assert list(held) == [micro_batches, stages, stages + (stages - 1) / 2]
memory, usable = schedules["memory (GiB)"], float(usable_memory(design)) / 2**30
assert memory["GPipe"] > 3 * usable and 77 < memory["interleaved"] < usable < 79
assert 0.04 < 1 - schedules["step (s)"]["interleaved"] / schedules["step (s)"]["1F1B"] < 0.05

# %% [markdown]
# The waits are those of the formula, to 0.2 %. GPipe waits as long as 1F1B but holds all 512 micro-batches, for which
# it would need more than three times the memory. Two chunks halve the bubble, which is 4.7 % of the step, and hold half
# as many micro-batches more: the 77.5 GiB that they need just fit.

# %% [markdown]
# ## One step as a timeline
#
# `dse trace` writes every pass of every stage for [Perfetto](https://ui.perfetto.dev); here are the same passes of the
# interleaved schedule, a row a stage. The line is the critical path: each of its passes starts when the one before it
# ends.

# %%
interleaved = steps["interleaved"]
path = interleaved.timeline.critical_path(interleaved.plan.chunks)
COLOURS = {PassKind.forward: PARTS["forward"].colour, PassKind.backward: PARTS["backward"].colour}


def draw(axes, start, end):
    """The passes of every stage between two moments, and the critical path through them."""
    shown = [e for e in interleaved.timeline.events if e.end > start and e.start < end]
    for kind, colour in COLOURS.items():
        some = [e for e in shown if e.slot[0].kind is kind]
        axes.barh(
            [e.device for e in some],
            [e.end - e.start for e in some],
            1.0,
            [e.start for e in some],
            color=colour,
            linewidth=0.0,
            antialiased=False,
            label=str(kind),
        )
    line = [(time, e.device) for e in path for time in (e.start, e.end)]
    axes.plot(*zip(*line, strict=True), color=FRONT, linewidth=1.5, label="critical path")
    axes.set(xlim=(start, end), ylim=(stages + 0.5, -1.5), xlabel="time (s)")


with style():
    figure = new_figure(PAGE, 3.2)
    panels = figure.subplots(1, 2, sharey=True)
    makespan = interleaved.timeline.makespan
    draw(panels[0], 0.0, 5.0)
    draw(panels[1], makespan - 5.0, makespan)
    panels[0].set(ylabel="stage", title="the first five seconds")
    panels[1].set(title="the last five, before the optimiser")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
figure

# %%
on_path = np.bincount([e.device for e in path], [e.end - e.start for e in path])
idle = np.array([1 - interleaved.timeline.busy(stage) / makespan for stage in range(stages)])
assert np.isclose(on_path.sum(), makespan) and 0.88 < on_path[-1] / makespan < 0.90
assert 0.05 < idle[-1] < 0.06 and (idle[1:-1] > 0.13).all() and idle[0] > 0.12

# %% [markdown]
# After the fill the path stays on the last stage, for 89 % of the time before the optimiser: it has the head beside its
# layers, is idle for 5 % and makes all others wait, which are idle for 12 to 13 %.
#
# ## Beside Calculon
#
# Calculon (Isaev et al. 2023) is another analytic model. Its own rows of this model on 4,096 A100s, with its inputs in
# the catalogue: all rows that can be compared where the reference is beside the checkout, else those of them that come
# with the package.

# %%
sample = root.parent / "shared" / "reference" / "calculon_sample.csv.gz"
cases = read_cases(sample if sample.exists() else root / "tests" / "published" / "calculon.csv")
kept = [row for row in predict_cases(cases) if row.skip is None and row.case.row.get("model") == "megatron-1T"]
beside = pd.DataFrame(
    {
        "Calculon (s)": [float(row.case.row.get("total_time")) for row in kept],
        "here (s)": [row.metrics["step_time"] for row in kept],
    }
)
apart = (beside["here (s)"] / beside["Calculon (s)"] - 1.0).abs()
rank = beside.corr("spearman").iloc[0, 1]
assert rank > 0.99 and apart.median() < 0.025
pd.Series({"rows": len(beside), "rank correlation": rank, "median difference": apart.median()}).round(4)

# %% [markdown]
# Both rank these mappings alike, with a rank correlation above 0.99, and half of the step times are within 2.5 % of
# each other. [docs/accuracy.md](../docs/accuracy.md) sets them side by side term by term.
