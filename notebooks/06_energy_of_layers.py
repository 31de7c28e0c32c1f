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
# # Energy of decoder layers over the clock
#
# At which clock does a decoder layer need the least energy, and what does that cost in time? The study behind this (a
# talk) looped one layer of GPT models, forward and backward, on an A30 at every clock of its cores, memory at one clock
# and the board limited to 165 W. `sweeps/dvfs_decoder_layers.toml` asks it of the model, for eight layers from 125M to
# 175B. From the command line:
#
# ```console
# $ dse run sweeps/dvfs_decoder_layers.toml -o results/clocks.nc
# $ dse plot results/clocks.nc --kind clock
# $ dse run sweeps/dvfs_formats.toml
# ```
#
# Numbers of the talk are read from slides, and stand beside ours below. The model's power of the A30 is fitted to its
# figures of the layers of 125M and 13B; those of 1.3B and 175B are not fitted to.

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse.measured.energy import LOOPS
from dse.views.plot.style import COLUMN, FRONT, INK, PAGE, dash, new_figure, series, shades, style
from dse.views.plot.ticks import plain_ticks

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
results = dse.run(root / "sweeps" / "dvfs_decoder_layers.toml", output=False).squeeze("mapping")
names = [name.removeprefix("gpt-3-").replace("-", ".").upper() for name in results.workload.values]
results = results.assign_coords(workload=names, megahertz=results.clock / 1e6).swap_dims(clock="megahertz")
energy, time = results.energy_per_step, results.step_time
relative, slower = energy / energy.isel(megahertz=-1), time / time.isel(megahertz=-1)
least = energy.idxmin("megahertz")
product = (energy * time).idxmin("megahertz")
LIMIT = 165.0  # W
SHOWN = ["125M", "1.3B", "13B", "175B"]

# %% [markdown]
# ## Energy by clock
#
# The talk's curves of energy over the clock are U-shaped, with the least energy well below the highest clock and at
# another clock from layer to layer. ●: least energy, ◇: least product of energy and time.

# %%
with style():
    figure = new_figure(PAGE, 2.7)
    panels = figure.subplots(1, results.sizes["seq_len"], sharey=True)
    for axes, tokens in zip(panels, results.seq_len.values, strict=True):
        for i, (model, colour) in enumerate(zip(SHOWN, shades(len(SHOWN)), strict=True)):
            one = {"workload": model, "seq_len": tokens}
            line = relative.sel(one)
            axes.plot(line.megahertz, line, color=colour, linestyle=dash(i), linewidth=1.3, label=f"GPT {model}")
            for best, looks in ((least, {"marker": "o", "markersize": 5}), (product, {"marker": "D", "markersize": 6})):
                clock = float(best.sel(one))
                fill = colour if best is least else "none"
                axes.plot(clock, line.sel(megahertz=clock), color=colour, markerfacecolor=fill, **looks)
        axes.set(xlabel="clock of the cores (MHz)", title=f"{tokens} tokens", ylim=(0.55, 1.6))
    panels[0].set_ylabel("energy over that at 1,440 MHz")
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        title="●: least energy;  ◇: least energy × time",
        handlelength=2.6,
    )
figure

# %%
valley = energy.min("megahertz")
assert (energy.isel(megahertz=0) > valley).all() and (energy.isel(megahertz=-1) > valley).all()
assert (results.device_power <= LIMIT * (1 + 1e-6)).all()
print(f"clocks of least energy: {float(least.min()):.0f} to {float(least.max()):.0f} MHz over {least.size} layers")
clocks = pd.DataFrame({"least energy": least.to_series(), "least energy x time": product.to_series()})
clocks.unstack("seq_len")  # MHz

# %% [markdown]
# ## Saved and lost, cell by cell
#
# Energy saved at the clock of least energy, and time lost there, both over 1,440 MHz: the legible cells of the talk's
# table and ours. Its cell of 175B at 1,024 tokens reads "199 307"; a decimal point is lost there as in that of 512
# tokens ("9 155"), and both are read with it. Hollow: the talk; filled: ours; a line joins the two.

# %%
SLIDES = {  # (model, tokens) → % of energy saved, % of time lost
    ("125M", 512): (30.8, 23.9),
    ("125M", 1024): (28.1, 18.3),
    ("1.3B", 128): (24.5, 27.4),
    ("1.3B", 512): (20.5, 14.8),
    ("13B", 512): (10.8, 12.7),
    ("13B", 1024): (11.8, 11.3),
    ("175B", 128): (13.5, 11.3),
    ("175B", 512): (9.0, 15.5),
    ("175B", 1024): (19.9, 30.7),
}
FITTED = ("125M", "13B")
saved = 100 * (1 - relative.min("megahertz"))
lost = 100 * (slower.sel(megahertz=least) - 1)
cells = [dict(zip(("workload", "seq_len"), cell, strict=True)) for cell in SLIDES]
table = pd.DataFrame(SLIDES, ["saved, talk (%)", "lost, talk (%)"]).T
table.insert(1, "saved, here (%)", [float(saved.sel(cell)) for cell in cells])
table["lost, here (%)"] = [float(lost.sel(cell)) for cell in cells]
table["fitted"] = [model in FITTED for model, _ in SLIDES]
table.round(1)

# %%
LOOKS = series(SHOWN)
with style():
    figure = new_figure(COLUMN, 3.8)
    axes = figure.subplots()
    for (model, tokens), row in table.iterrows():
        saving, loss = row[["saved, talk (%)", "saved, here (%)"]], row[["lost, talk (%)", "lost, here (%)"]]
        colour, shape = LOOKS[model]["color"], LOOKS[model]["marker"]
        axes.plot(loss, saving, color=colour, linewidth=0.8)
        axes.plot(loss.iloc[0], saving.iloc[0], shape, color=colour, markerfacecolor="white", markersize=6)
        axes.plot(loss.iloc[1], saving.iloc[1], shape, color=colour, markersize=6)
        axes.annotate(
            str(tokens), (loss.iloc[0], saving.iloc[0]), xytext=(5, 3), textcoords="offset points", fontsize=6
        )
    for model in SHOWN:
        fitted = ", fitted" if model in FITTED else ""
        axes.plot([], [], LOOKS[model]["marker"], color=LOOKS[model]["color"], label=f"GPT {model}{fitted}")
    axes.set(xlabel="time lost (%)", ylabel="energy saved (%)", xlim=(0, None), ylim=(0, None))
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        title="hollow: talk (tokens beside it); filled: here",
    )
figure

# %%
difference = pd.DataFrame(
    {
        "saved": (table["saved, here (%)"] - table["saved, talk (%)"]).abs(),
        "lost": (table["lost, here (%)"] - table["lost, talk (%)"]).abs(),
        "fitted": table.fitted.map({True: "fitted", False: "not fitted"}),
    }
)
errors = difference.groupby("fitted").agg(["mean", "max"])
assert (table["saved, here (%)"] > 0.0).all() and (table["lost, here (%)"] > 0.0).all()
small, large = (saved.sel(workload=model) for model in ("125M", "175B"))
print(
    f"energy saved: {float(small.min()):.0f} to {float(small.max()):.0f} % at 125M, "
    f"{float(large.min()):.0f} to {float(large.max()):.0f} % at 175B"
)
errors.astype(float).round(1)  # points of a per cent, ours from the talk's

# %% [markdown]
# ## Fronts from V to U
#
# Energy against time, a point a clock, those that no other clock beats in both in orange. In the talk the curves of
# small layers have the shape of a V, those of large ones of a U. Here the limit of 165 W holds the clock of large
# layers, so that their highest clocks lie together.

# %%
with style():
    figure = new_figure(PAGE, 2.6)
    spans = {}
    for axes, model in zip(figure.subplots(1, len(SHOWN)), SHOWN, strict=True):
        one = {"workload": model, "seq_len": 512}
        milliseconds = 1e3 * time.sel(one).values / LOOPS
        joules = energy.sel(one).values / LOOPS
        order = np.lexsort((joules, milliseconds))
        front = [n for place, n in enumerate(order) if joules[n] < min(joules[order[:place]], default=np.inf)]
        axes.plot(milliseconds, joules, "-", color="#0e306e", linewidth=0.9, marker=".", markersize=3, label="clocks")
        axes.plot(milliseconds[front], joules[front], "o", color=FRONT, markersize=3, label="Pareto front")
        spans[model] = {
            "clocks on the front": len(front),
            "from (MHz)": results.megahertz.values[front].min(),
            "to (MHz)": results.megahertz.values[front].max(),
            "time, slowest over fastest": milliseconds[front].max() / milliseconds[front].min(),
            "energy, most over least": joules[front].max() / joules[front].min(),
        }
        axes.set(
            title=f"GPT {model}",
            xlabel="time of a layer (ms)",
            xlim=(None, 2.2 * milliseconds.min()),
            ylim=(0.93 * joules.min(), 1.9 * joules.min()),
        )
    figure.axes[0].set_ylabel("energy of a layer (J)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
figure

# %%
fronts = pd.DataFrame(spans).T
assert (fronts["clocks on the front"] > 1).all() and (fronts["time, slowest over fastest"] > 1.0).all()
fronts.round(2)

# %% [markdown]
# ## Energy of an operation, and power
#
# The talk's second observation: at 1,440 MHz and 1,024 tokens an operation takes 6.1 to 7.2 and 3.9 pJ in small layers
# and 1.5 to 2.4 in large ones (grey band: its whole range). Its third: on tensor cores power is near the limit. Left,
# energy of an operation over the size of the model; right, power of the board over the clock.

# %%
picojoules = 1e12 * (energy / results.model_flops).isel(megahertz=-1)
with style():
    figure = new_figure(PAGE, 2.8)
    left, right = figure.subplots(1, 2)
    tokens = [int(one) for one in results.seq_len.values]
    for length, (label, looks) in zip(tokens, series([f"{one} tokens" for one in tokens]).items(), strict=True):
        left.plot(results.workload_parameters, picojoules.sel(seq_len=length), label=label, linewidth=1.2, **looks)
    left.axhspan(1.5, 7.2, color="#f0f0f0", zorder=0, linewidth=0.0)
    left.set(xscale="log", yscale="log", xlabel="parameters of the model", ylabel="energy of an operation (pJ/FLOP)")
    left.set_xticks([1e8, 1e9, 1e10, 1e11], ["100M", "1B", "10B", "100B"])
    plain_ticks(left.yaxis)
    left.legend()
    for i, (model, colour) in enumerate(zip(SHOWN, shades(len(SHOWN)), strict=True)):
        power = results.device_power.sel(workload=model, seq_len=1024)
        right.plot(power.megahertz, power, color=colour, linestyle=dash(i), linewidth=1.3, label=f"GPT {model}")
    right.axhline(LIMIT, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    right.annotate("limit", (210.0, LIMIT), xytext=(0, -9), textcoords="offset points")
    right.set(xlabel="clock of the cores (MHz)", ylabel="power of the board (W)", ylim=(0, 175))
    right.legend(loc="lower right")
figure

# %%
long = picojoules.sel(seq_len=1024)
assert long[0] > long[-1]
print(f"1,440 MHz, 1,024 tokens: {float(long[0]):.1f} pJ/FLOP at {names[0]}, {float(long[-1]):.1f} at {names[-1]}")
(100 * results.device_power.isel(megahertz=-1) / LIMIT).to_pandas().round(0)  # per cent of the limit at 1,440 MHz

# %% [markdown]
# ## Formats
#
# The talk measures FP16 and TF32, which run on tensor cores, and FP32, which does not, and finds power near the limit
# with the former. `sweeps/dvfs_formats.toml`; one layer of 13B, 1,024 tokens:

# %%
formats = dse.run(root / "sweeps" / "dvfs_formats.toml", output=False)
formats = formats.set_index(mapping="precision").rename(mapping="precision").sel(workload="gpt-3-13b")
formats = formats.assign_coords(megahertz=formats.clock / 1e6).swap_dims(clock="megahertz")
FORMATS = ["fp16", "tf32", "fp32"]
with style():
    figure = new_figure(PAGE, 2.5)
    left, right = figure.subplots(1, 2)
    for i, (name, colour) in enumerate(zip(FORMATS, shades(len(FORMATS)), strict=True)):
        one = formats.sel(precision=name)
        looks = {"color": colour, "linestyle": dash(i), "linewidth": 1.3, "label": name.upper()}
        left.plot(one.megahertz, 1e12 * one.energy_per_step / one.model_flops, **looks)
        right.plot(one.megahertz, one.device_power, **looks)
    left.set(xlabel="clock of the cores (MHz)", ylabel="energy of an operation (pJ/FLOP)", yscale="log")
    plain_ticks(left.yaxis)
    right.axhline(LIMIT, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    right.set(xlabel="clock of the cores (MHz)", ylabel="power of the board (W)", ylim=(0, 175))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=2.6)
figure

# %%
highest = formats.isel(megahertz=-1)
per_operation = (1e12 * highest.energy_per_step / highest.model_flops).sel(precision=FORMATS)
assert (per_operation.diff("precision") > 0.0).all()
pd.DataFrame(
    {
        "pJ/FLOP at 1,440 MHz": per_operation.to_series(),
        "power over the limit (%)": (100 * highest.device_power / LIMIT).sel(precision=FORMATS).to_series(),
        "clock of least energy (MHz)": formats.energy_per_step.idxmin("megahertz").sel(precision=FORMATS).to_series(),
    }
).round(1)
