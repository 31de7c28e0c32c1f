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
# # Superconducting logic against CMOS
#
# A stack of 100 superconducting boards is projected to have 20 EFLOP/s in 16 bits at 500 kW, coolers included, with
# logic at 4 K and memory at 77 K (arXiv 2411.08645; no such hardware exists). Which memory does a board need, in
# bandwidth and in latency; what do boards do for training and for answers of Llama 3 70B beside GPUs; and which guesses
# decide? From the command line:
#
# ```console
# $ dse run sweeps/scd_bandwidth_latency_training.toml
# $ dse run sweeps/scd_bandwidth_latency_inference.toml
# $ dse run sweeps/scd_vs_cmos.toml
# $ dse run sweeps/scd_inference.toml
# ```

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse.designs import catalog, replace
from dse.model.machine.technology import cooling, memory_tier
from dse.types import Accelerator
from dse.views.plot.style import COLUMN, INK, PAGE, dash, marker, new_figure, part, series, shades, style
from dse.views.plot.ticks import plain_ticks

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent


def swept(name):
    """The results of a sweep of the repository."""
    return dse.run(root / "sweeps" / f"{name}.toml", output=False)


training = swept("scd_bandwidth_latency_training")
serving = swept("scd_bandwidth_latency_inference")
cmos_training = swept("scd_vs_cmos").sel(chip_cooler=0.2, chip_memory_cooler=0.3)
cmos_serving = swept("scd_inference")
B200 = "generated-b200"

# %% [markdown]
# ## Bandwidth and latency of a board's memory
#
# The study draws training and inference over the bandwidth and the latency of the DRAM per unit; its text reports a
# substantial gain in both, from memory and links that conventional systems lack; its curves are not at hand here. Ours:
# eight boards over 64 generated B200s in training, over eight in answering (the dashed line, 1, is the B200s). The grey
# line is the 30 TB/s of the projection, at 30 ns. A bit of cold memory takes 0.1 pJ, so that power does not bound it.

# %%
b200_step = float(cmos_training.step_time.isel(accelerator=list(cmos_training.accelerator.values).index(B200)))
b200_token = cmos_serving.time_per_output_token.isel(accelerator=list(cmos_serving.accelerator.values).index(B200))
PANELS = {
    "training a step": b200_step / training.step_time,
    "answering, one request": (b200_token / serving.time_per_output_token).sel(concurrency=1),
    "answering, 1,024 in flight": (b200_token / serving.time_per_output_token).sel(concurrency=1024),
}
nanoseconds = [f"{1e9 * latency:,.0f} ns" for latency in training.chip_memory_unit_latency.values]
with style():
    figure = new_figure(PAGE, 2.8)
    for axes, (title, gain) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        for place, (name, looks) in enumerate(series(nanoseconds).items()):
            line = gain.isel(chip_memory_unit_latency=place)
            axes.plot(1e-12 * line.chip_memory_unit_bandwidth, line, linewidth=1.2, markersize=3.5, label=name, **looks)
        axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
        axes.axvline(30.0, color="#747474", linewidth=0.8)
        axes.set(xscale="log", yscale="log", title=title, xlabel="bandwidth of a board (TB/s)")
        plain_ticks(axes.xaxis, axes.yaxis)
    figure.axes[0].set_ylabel("times as fast as B200s")
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=6,
        title="latency of an access",
        handlelength=2.4,
        columnspacing=1.2,
    )
figure

# %%
summary = {}
for title, gain in PANELS.items():
    assert (gain.diff("chip_memory_unit_bandwidth") > -1e-4 * gain).all()
    assert (gain.diff("chip_memory_unit_latency") < 1e-4 * gain).all()
    at = gain.sel(chip_memory_unit_bandwidth=3e13, method="nearest")
    fast = at.sel(chip_memory_unit_latency=3e-8, method="nearest")
    summary[title] = {
        "at 30 TB/s, 30 ns": float(fast),
        "of that at 300 ns": float(at.sel(chip_memory_unit_latency=3e-7, method="nearest") / fast),
        "of that at 10 TB/s": float(
            gain.sel(chip_memory_unit_bandwidth=1e13, method="nearest").sel(
                chip_memory_unit_latency=3e-8, method="nearest"
            )
            / fast
        ),
    }
summary = pd.DataFrame(summary).T
assert (summary.iloc[:, 0] > 2.0).all() and (summary.iloc[:, 2] < 0.6).all()
assert summary.iloc[1, 1] < 0.9 < summary.iloc[[0, 2], 1].min()
summary.round(2)

# %% [markdown]
# Training and full batches follow the bandwidth all the way; latency shows where many accesses have to be in flight at
# once, at microseconds. A lone request feels it sooner: each of a layer's short kernels waits for an access.
#
# ## Training beside GPUs
#
# What would eight boards do for a step of Llama 3 70B beside 64 GPUs? `sweeps/scd_vs_cmos.toml` varies what is not
# known: the junctions that a FLOP switches, the energy of a bit of cold memory, and how near coolers come to Carnot.

# %%
results = swept("scd_vs_cmos")
varied = (results.accelerator, results.chip_matrix_devices, results.chip_memory_unit_energy)
names = [
    f"board, {junctions / 1e3:g}k, {joules / 8e-12:g} pJ/bit" if machine.startswith("scd") else machine
    for machine, junctions, joules in zip(*(column.values for column in varied), strict=True)
]
results = results.assign_coords(machine=("accelerator", names)).swap_dims(accelerator="machine")
middle = results.sel(chip_cooler=0.2, chip_memory_cooler=0.3)  # shares of Carnot, of logic and of memory
GROUPS = {  # what takes energy → parts of the model, colour, hatch
    "logic": (["matrix", "vector", "control", "leakage"], "#0e306e", ""),
    "memory and network": (["memory", "network"], "#c94804", "/////"),
    "uncore": (["uncore"], "#589abc", "xxxxx"),
    "hosts": (["host"], "#a6905e", ""),
    "coolers": (["cryogenics"], "#1476de", "....."),
    "facility": (["facility"], "#594c70", ""),
}
tokens = middle.energy_per_step / middle.energy_per_token
energy = 1e3 * pd.DataFrame(
    {
        group: (sum(middle[f"energy_per_step_{part}"] for part in parts) / tokens).to_series()
        for group, (parts, *_) in GROUPS.items()
    }
)
energy.round(1)  # mJ a token

# %%
with style():
    figure = new_figure(PAGE, 2.8)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2, 3])
    left.barh(names, middle.step_time, 0.7, color="#6d7270")
    for place, time in enumerate(middle.step_time.values):
        left.annotate(f"{time:.0f} s", (time, place), xytext=(3, 0), textcoords="offset points", va="center")
    left.set(xlabel="step time (s)", xlim=(0, 155))
    start = 0.0
    for group, (_, colour, hatch) in GROUPS.items():
        right.barh(
            names,
            energy[group],
            0.7,
            left=start,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.0,
            label=group,
        )
        start = start + energy[group]
    right.set(xlabel="energy of a token, whole system (mJ)")
    left.invert_yaxis()
    figure.legend(
        *right.get_legend_handles_labels(), loc="outside lower center", ncols=6, columnspacing=1.2, handlelength=1.2
    )
    figure.suptitle("Llama 3 70B: 64 GPUs or 8 boards (junctions a FLOP, energy of a bit of memory)")
figure

# %%
time, power = middle.step_time.to_series(), middle.average_power.to_series()
total = energy.sum(axis=1)
boards = names[3:]
board, hungry, worst = boards[1:]
b200, gpu = B200, "gpu"
assert 4.5 < time[b200] / time[board] < 5.0 and 2.9 < time[gpu] / time[board] < 3.2
assert 15.5 < total[b200] / total[board] < 16.5 and 11.5 < total[gpu] / total[board] < 12.5
assert 0.97 < time[hungry] / time[b200] < 1.03 and 1.95 < time[worst] / time[b200] < 2.05
assert (middle.mfu.sel(machine=boards) < 0.2).all()
cooled = energy.loc[board, "logic"] * (1.0 + float(cooling(4.0, 0.2)))  # what its coolers take with it
by_logic = energy.loc[b200, "logic"] / cooled
assert energy.loc[boards, "logic"].max() < 0.01 * total[board] and 30 < by_logic < 33
assert 0.62 < energy.loc[board, "coolers"] / total[board] < 0.72
inside = energy.drop(columns=["hosts", "facility"]).sum(axis=1)
assert 12.25 < inside[b200] / inside[board] < 12.75 and energy.loc[b200, "hosts"] > 0.28 * total[b200]
pd.DataFrame({"step (s)": time, "mJ a token": total, "kW": power / 1e3}).round(1)

# %% [markdown]
# If cold memory takes 0.1 pJ a bit, eight boards are 4.8 times as fast as 64 B200s (3 times as fast as GPUs of the next
# node) on a sixteenth of the energy. A board computes at less than a fifth of its peak: power for memory bounds it.
# Its logic takes next to nothing itself; with its share of the coolers 32 times less than a B200's, where 100 times are
# claimed for logic alone. Two thirds of the energy are coolers. Hosts matter: they are more than a quarter of the
# energy of the B200s, and boards need fewer; without hosts and facility the advantage is 12 times.
#
# If a bit of cold memory takes 2 pJ, the boards are no faster than the B200s; at 4 pJ, with more junctions a FLOP, they
# take twice as long.
#
# ## What decides

# %%
with style():
    figure = new_figure(COLUMN, 3.0)
    axes = figure.subplots()
    advantage = results.energy_per_token.sel(machine=b200) / results.energy_per_token
    for i, (name, colour) in enumerate(zip(boards, shades(len(boards)), strict=True)):
        lines = advantage.sel(machine=name)
        axes.fill_between(
            lines.chip_cooler,
            lines.min("chip_memory_cooler"),
            lines.max("chip_memory_cooler"),
            color=colour,
            alpha=0.25,
            linewidth=0,
        )
        axes.plot(
            lines.chip_cooler,
            lines.sel(chip_memory_cooler=0.3),
            color=colour,
            linestyle=dash(i),
            marker=marker(i),
            markersize=4,
            label=name,
        )
    axes.axhline(1.0, color="#1a1a1a", linewidth=0.8)
    axes.set(
        xlabel="efficiency of the coolers of logic, of Carnot's", yscale="log", ylabel="tokens a joule, over a B200"
    )
    axes.set_xticks([0.1, 0.2, 0.3])
    axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        title="bands: coolers of memory, 0.2 to 0.4 of Carnot's",
    )
figure

# %%
spans = advantage.sel(machine=boards).stack(coolers=["chip_cooler", "chip_memory_cooler"])
least, most = spans.min("coolers").to_series(), spans.max("coolers").to_series()
assert 23.5 < most.iloc[0] < 24 and 1.5 < least[worst] < 1.7 and (most / least).between(1.9, 2.3).all()
memory = (advantage.sel(machine=board) / advantage.sel(machine=hungry)).sel(chip_cooler=0.2, chip_memory_cooler=0.3)
junctions = advantage.sel(machine=boards[0]) / advantage.sel(machine=board)
assert 3.0 < memory < 3.5 and (junctions < 1.22).all()
pd.DataFrame({"least": least, "most": most}).round(1)

# %% [markdown]
# Between the best and the worst guesses lie 24 times the tokens a joule of a B200, and 1.6 times. Coolers alone
# move the result by two, the energy of a bit of cold memory by three: it is the number to measure first. The
# junctions of a FLOP, which set the energy of the logic, hardly matter.

# %% [markdown]
# ## Answers beside GPUs
#
# What do boards do for answers of Llama 3 70B, 1,024 tokens in and out, from one request in flight to 1,024?
# `sweeps/scd_inference.toml` sets them beside three GPUs of the same model of a chip, over the energy of a bit of cold
# memory (0.1 to 4 pJ before the cooler) and the time of an access (30 to 300 ns). What hosts and launches take on a
# board is a guess (a tenth of a GPU's), and so is a short message (1 µs).

# %%
results = cmos_serving
varied = ("accelerator", "chip_matrix_devices", "chip_memory_unit_energy", "chip_memory_unit_latency")
names = [
    f"board, {joules / 8e-12:g} pJ/bit" + (", 300 ns" if latency > 1e-7 else "") + (", 15k" if devices > 1e4 else "")
    if machine.startswith("scd")
    else machine
    for machine, devices, joules, latency in zip(*(results[name].values for name in varied), strict=True)
]


def table(metric):
    """A metric by machine and requests in flight, each with the best tp."""
    return results[metric].to_pandas().set_axis(names)


(1e3 * table("time_per_output_token")).round(2)  # milliseconds

# %% [markdown]
# ## What power leaves of the memory
#
# Of a board's 5 kW a fifth is for memory, coolers included: at 77 K each watt takes ten more.

# %%
chip = catalog.record(Accelerator, "scd-board").chip


def bandwidth(picojoules):
    """TB/s that the board's memory moves."""
    return float(memory_tier(replace(chip, {"memory.unit_energy": 8e-12 * picojoules})).bandwidth) / 1e12


moved = pd.Series({picojoules: bandwidth(picojoules) for picojoules in (0.1, 0.3, 0.5, 1.0, 2.0, 4.0)}, name="TB/s")
assert min(moved[0.1], moved[0.3]) > 29.99 and 22.0 < moved[0.5] < 22.5 and 5.5 < moved[2.0] < 5.6
moved.round(2)

# %% [markdown]
# Up to 0.37 pJ/bit all of the 30 TB/s are there, at 2 pJ/bit less than a fifth. The bit of cold memory is one guess;
# the answers follow it.
#
# ## Speed, and tokens a joule

# %%
b200, cold, cool, warm, hot = "generated-b200", *(f"board, {energy} pJ/bit" for energy in ("0.1", "0.5", "2", "4"))
shown = ["generated-h100", b200, "gpu", cold, warm, hot]
LOOKS = series(shown)
energy = table("energy_per_output_token")
with style():
    figure = new_figure(PAGE, 3.0)
    left, right = figure.subplots(1, 2)
    for name, looks in LOOKS.items():
        user, device = (table(f"output_tokens_per_second_per_{of}").loc[name] for of in ("user", "device"))
        left.plot(user, device, **looks, label=name)
        right.plot(user, 1.0 / energy.loc[name], **looks)
    left.set(xscale="log", yscale="log", xlabel="tokens/s per user", ylabel="tokens/s per device", title="Llama 3 70B")
    right.set(
        xscale="log",
        yscale="log",
        xlabel="tokens/s per user",
        ylabel="tokens/s per watt",
        title="whole system: coolers, hosts, facility",
    )
    for axes in (left, right):
        plain_ticks(axes.xaxis, axes.yaxis)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
figure

# %%
token, rate = table("time_per_output_token"), table("output_tokens_per_second_per_device")
faster, frugal = token.loc[b200] / token, energy.loc[b200] / energy
assert 6.0 < faster.loc[cold, 1] < 6.4 and 4.9 < rate.loc[cold, 1024] / rate.loc[b200, 1024] < 5.4
assert 1.0 < frugal.loc[cold].min() < 1.1 and 1.6 < frugal.loc[cold].max() < 1.7
assert 1.5 < faster.loc[warm, 1] < 1.7 and frugal.loc[warm].min() > 0.4 and frugal.loc[warm].max() < 0.54
assert faster.loc[hot, 1] < 0.9 and frugal.loc[hot].max() < 0.32
assert (frugal.loc[cold] / frugal.loc["gpu"] > 1.0).sum() >= 4
more = token.loc[f"{cold}, 300 ns"] / token.loc[cold]
assert 1.2 < more[1] < 1.3 and more[1024] < 1.03
boards = token.loc[[warm, f"{warm}, 15k"]]
assert (boards.max() / boards.min() < 1.01).all()
pd.DataFrame(
    {
        "times as fast, alone": faster[1],
        "tokens a joule, alone": frugal[1],
        "tokens a joule, 64": frugal[64],
        "tokens a joule, 1,024": frugal[1024],
    }
).round(2)

# %% [markdown]
# At 0.1 pJ/bit, the value with which boards win at training, a board gives a lone request a token 6 times as fast as a
# B200, and five times as many where 1,024 are in flight, on 1.1 to 1.7 times the tokens a joule. At 2 pJ/bit it is 1.7
# times as fast for a lone request, on about half the tokens a joule; at 4 pJ/bit it is slower, on a quarter to a third.
# The energy of one bit decides between a machine to build and one to leave.
#
# An access of 300 ns in place of 30 costs a lone request a quarter: each of a layer's kernels waits for it. Where many
# are in flight it does not show. Junctions, which decide how many FLOPs a board has, move less than one per cent.
#
# ## Where the time of a token goes

# %%
PARTS = ("matrix", "attention", "communication", "host", "prefill")
with style():
    figure = new_figure(PAGE, 2.8)
    both = figure.subplots(1, 2, sharey=True)
    for axes, flight in zip(both, (1, 1024), strict=True):
        left = np.zeros(len(shown))
        for name in PARTS:
            milliseconds = 1e3 * table(f"time_per_output_token_{name}")[flight].loc[shown].to_numpy()
            axes.barh(shown, milliseconds, 0.6, left, label=part(name).label, **part(name).fill)
            left += milliseconds
        axes.set(xlabel="time of an output token (ms)", title=f"{flight:,} in flight")
    both[0].invert_yaxis()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5)
figure

# %%
matrix = table("time_per_output_token_matrix")[1]
added = sum(table(f"time_per_output_token_{part}")[1] for part in ("communication", "host"))
coolers = table("energy_per_output_token_cryogenics") / energy
assert matrix[warm] > matrix[b200] > 3.5 * matrix[cold] and added[b200] > 8.0 * added[cold]
assert coolers.loc[[cold, warm]].max().max() < 0.4

# %% [markdown]
# Alone, a board's matrices wait for weights as a B200's do: at 2 pJ/bit longer, at 0.1 a quarter as long. The rest of
# the advantage is the latency of links and hosts, and so rests on the guesses above. What a board draws while it waits
# (memory, links, rest, and the coolers behind them) is what an answer pays for.
