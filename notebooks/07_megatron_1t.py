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
# # Megatron-1T on 4,096 A100s: schedules as timelines
#
# Which of the mappings of a trillion-parameter model trains fastest on 4,096 A100s, what is its iteration spent on, and
# what do GPipe, 1F1B and interleaved 1F1B make of it, pass by pass? The study behind these questions (GraphCulon, a
# talk) goes through more than 25,000 configurations and builds each as a graph of tasks. Here
# `sweeps/megatron_1t_4096_a100.toml` evaluates every mapping by closed forms, and `dse.views.trace` schedules a step of
# one event by event. The same from the command line:
#
# ```console
# $ dse run sweeps/megatron_1t_4096_a100.toml -o results/megatron.nc
# $ dse plot results/megatron.nc
# $ dse trace -w megatron-1t -s selene -n 4096 --set tp=8 --set pp=64 --set virtual_stages=2 --set recompute=selective \
#     --set sequence_parallel=true --set global_batch=4096 -o results/step.svg
# ```

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse.measured import predict_cases, read_cases
from dse.model.accounts.feasibility import usable_memory
from dse.views import plot
from dse.views.plot.style import COLUMN, INK, PAGE, PARTS, new_figure, series, style
from dse.views.plot.ticks import plain_ticks
from dse.views.trace import memory, schedule_step

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
results = dse.run(root / "sweeps" / "megatron_1t_4096_a100.toml", output=False).sel(n_devices=4096)
fits = results.where(results.feasible)
chosen = results.isel(mapping=fits.step_time.argmin("mapping").item())
KEPT = ("tp", "pp", "dp", "micro_batch", "virtual_stages", "recompute", "recompute_share", "zero_stage")
FLAGS = ("sequence_parallel", "overlap_dp", "overlap_tp")
MAPPING = {name: chosen[name].item() for name in KEPT} | {name: float(chosen[name]) for name in FLAGS}


def winner(**changes):
    """The design of the best mapping, with parts of it changed."""
    model = {"workload": "megatron-1t", "system": "selene", "n_devices": 4096, "precision": "fp16"}
    return dse.design(**model | {"global_batch": 4096} | MAPPING | changes)


design = winner()
print(f"{results.sizes['mapping']:,} mappings, of which {int(results.feasible.sum()):,} fit")
pd.Series(MAPPING)

# %% [markdown]
# ## The iteration of the best
#
# The best mapping of each (tp, pp). The talk shows the iteration time of its best configurations stacked by part, and
# what memory they need; its numbers are not at hand, so that the shape of the bars is what can be compared.

# %%
plot.breakdown(results)

# %%
parts = {one.label: float(chosen[f"step_time_{name}"]) for name, one in PARTS.items()}
step = pd.DataFrame({"s": parts, "%": {name: 100 * time / float(chosen.step_time) for name, time in parts.items()}})
assert np.isclose(step.s.sum(), chosen.step_time, rtol=1e-4)
assert step.s.nlargest(2).index.tolist() == [PARTS["backward"].label, PARTS["forward"].label]
step[step.s > 0.0].round(2)

# %% [markdown]
# ## Three schedules, small enough to count
#
# Four stages of the same model and eight micro-batches, as papers draw them. GPipe runs all forward passes first and
# so holds all micro-batches; 1F1B holds as many as there are stages, and waits as long; interleaved, each stage has two
# chunks of the model, and the waits at both ends are half as long. The talk has the same three as pictures of its
# graphs of tasks, with the same order of passes.

# %%
SCHEDULES = {
    "GPipe": {"schedule": "gpipe", "virtual_stages": 1},
    "1F1B": {"virtual_stages": 1},
    "interleaved 1F1B, 2 chunks a stage": {"virtual_stages": 2},
}
SMALL = {"n_devices": 32, "pp": 4, "dp": 1, "global_batch": 8, "micro_batch": 1}
small = {name: schedule_step(winner(**SMALL | changes)) for name, changes in SCHEDULES.items()}
plot.timeline(small)

# %% [markdown]
# ## The same three on the best mapping
#
# All stages, all micro-batches, on one axis of time. With GPipe, 1F1B and interleaved 1F1B of $v$ chunks a stage, each
# of $p$ stages waits for $(p - 1)/(v m)$ of the time that $m$ micro-batches take. The line is the critical path.

# %%
steps = {name: schedule_step(winner(**changes)) for name, changes in SCHEDULES.items()}
plot.timeline(steps)

# %%
PASSES = ("forward", "backward", "recompute", "tensor_parallel")
stages, micro_batches = MAPPING["pp"], 4096 // (MAPPING["dp"] * MAPPING["micro_batch"])
rows = {}
for name, changes in SCHEDULES.items():
    metrics, chunks = dse.evaluate(winner(**changes)), changes["virtual_stages"]
    passes = sum(float(getattr(metrics, f"step_time_{part}")) for part in PASSES)
    rows[name] = {
        "bubble (s)": float(metrics.step_time_bubble),
        "of the passes": float(metrics.step_time_bubble) / passes,
        "(p - 1)/(v m)": (stages - 1) / (chunks * micro_batches),
        "micro-batches in flight": steps[name].timeline.in_flight(0) / chunks,
        "memory (GiB)": float(metrics.peak_memory) / 2**30,
        "step (s)": float(metrics.step_time),
        "event by event (s)": steps[name].total,
    }
schedules = pd.DataFrame(rows).T
schedules.round(3)

# %%
bubbles, in_flight = schedules["bubble (s)"], schedules["micro-batches in flight"]
gpipe, plain, interleaved = SCHEDULES
assert np.allclose(schedules["of the passes"], schedules["(p - 1)/(v m)"], rtol=2e-3)
assert np.allclose(schedules["event by event (s)"], schedules["step (s)"], rtol=3e-3)
assert bubbles[gpipe] == bubbles[plain] and np.isclose(bubbles[interleaved], bubbles[plain] / 2, rtol=1e-3)
assert list(in_flight) == [micro_batches, stages, stages + (stages - 1) / 2]

# %% [markdown]
# The waits are those of the formula, to 0.2 %, and the closed forms are within 0.3 % of the steps that are scheduled
# event by event. The talk reports the same agreement of its graphs with a closed form.
#
# ## Memory of the first stage over the step
#
# What the first stage holds as micro-batches come and go, and what an A100 has. The talk shows memory of its schedules
# in the same order as here: GPipe holds the activations of all micro-batches at once, 1F1B of as many as there are
# stages, interleaving of somewhat more.

# %%
usable = float(usable_memory(design)) / 2**30
with style():
    figure = new_figure(PAGE, 2.6)
    axes = figure.subplots()
    for (name, looks), scheduled in zip(series(list(SCHEDULES)).items(), steps.values(), strict=True):
        uses = [use for use in memory.memory_uses(scheduled, winner(**SCHEDULES[name])) if use.device == 0]
        axes.step(
            [use.time for use in uses],
            [use.total / 2**30 for use in uses],
            where="post",
            color=looks["color"],
            linestyle=looks["linestyle"],
            linewidth=1.3,
            label=name,
        )
    axes.axhline(usable, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.annotate(f"usable: {usable:.1f} GiB", (75.0, usable), xytext=(0, 3), textcoords="offset points", ha="right")
    axes.set(
        xlabel="time from the start of the step (s)", ylabel="memory of stage 0 (GiB)", xlim=(0, 75), ylim=(0, None)
    )
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=2.6)
figure

# %%
peak = schedules["memory (GiB)"]
assert peak[gpipe] > usable > peak[interleaved] > peak[plain]

# %% [markdown]
# ## The critical path
#
# Left: what of the step the critical path spends in the fill (until it reaches the last stage), on the last stage, in
# the drain, and after the passes. Right: how long each stage is idle until the last pass ends.

# %%
SPANS = {"fill": "#5b8fd4", "on the last stage": "#0e306e", "drain": "#d8791f", "gradients and optimizer": "#7d35a2"}
spans, idle = {}, {}
for name, scheduled in steps.items():
    line = scheduled.timeline
    on_last = [event for event in line.critical_path(scheduled.plan.chunks) if event.device == stages - 1]
    edges = [0.0, on_last[0].start, on_last[-1].end, line.makespan, scheduled.total]
    spans[name] = dict(zip(SPANS, np.diff(edges), strict=True))
    idle[name] = 100 * np.array([1 - line.busy(stage) / line.makespan for stage in range(stages)])
path = pd.DataFrame(spans).T
with style():
    figure = new_figure(PAGE, 2.2)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    start = np.zeros(len(path))
    for span, colour in SPANS.items():
        left.barh(path.index, path[span], 0.6, start, color=colour, label=span)
        start += path[span]
    left.invert_yaxis()
    left.set(xlabel="critical path (s)")
    left.set_yticks(range(3), ["GPipe", "1F1B", "interleaved"])
    for name, looks in series(list(SCHEDULES)).items():
        right.plot(
            range(stages), idle[name], color=looks["color"], linestyle=looks["linestyle"], label=name.split(" ")[0]
        )
    right.set(xlabel="stage", ylabel="idle (%)", ylim=(0, None))
    right.legend(loc="lower center", title="GPipe and 1F1B coincide")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
figure

# %%
assert np.allclose(path.sum(axis=1), schedules["event by event (s)"])
assert (path["on the last stage"] > 0.8 * path.sum(axis=1)).all() and np.allclose(path.loc[gpipe], path.loc[plain])
assert all(one[-1] < one[:-1].min() for one in idle.values())
path.round(2)

# %% [markdown]
# After the fill the path stays on the last stage until the drain: it has the head beside its layers, is idle the least
# and makes all others wait. GPipe and 1F1B have the same path.
#
# ## Beside Calculon
#
# The study compares with Calculon (Isaev et al. 2023), another analytic model. Its own rows of this model on 4,096
# A100s, with its inputs in the catalogue: all rows that can be compared where the reference is beside the checkout,
# else those of them that come with the package.

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
with style():
    figure = new_figure(COLUMN, 2.8)
    axes = figure.subplots()
    axes.plot(beside["Calculon (s)"], beside["here (s)"], ".", color="#0e306e", markersize=3)
    ends = [beside.min().min(), beside.max().max()]
    axes.plot(ends, ends, color=INK, linewidth=0.8)
    axes.set(
        xscale="log", yscale="log", xlabel="step time of Calculon (s)", ylabel="step time here (s)", aspect="equal"
    )
    axes.set_title("Megatron-1T on 4,096 A100")
    plain_ticks(axes.xaxis, axes.yaxis)
figure

# %%
pd.Series({"rows": len(beside), "rank correlation": rank, "median difference": apart.median()}).round(4)

# %% [markdown]
# Both rank these mappings alike, with a rank correlation above 0.99, and half of the step times are within 2.5 % of
# each other. [docs/accuracy.md](../docs/accuracy.md) sets them side by side term by term.
