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
# # Superconducting logic against CMOS in training
#
# A stack of 100 superconducting boards is projected to have 20 EFLOP/s in 16 bits at 500 kW, coolers included, with
# logic at 4 K and memory at 77 K (arXiv 2411.08645; no such hardware exists). What would eight boards do for a step of
# Llama 3 70B beside 64 GPUs, and which of the guesses behind them decide? `sweeps/scd_vs_cmos.toml` varies what is not
# known: the junctions that a FLOP switches, the energy of a bit of cold memory, and how near coolers come to Carnot.
# The notebook on superconducting inference asks the same of answers.

# %%
# %matplotlib inline
from pathlib import Path

import pandas as pd

import dse
from dse.model.machine.technology import cooling
from dse.views.plot.style import COLUMN, PAGE, dash, marker, new_figure, shades, style

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
results = dse.run(root / "sweeps" / "scd_vs_cmos.toml", output=False)
told = (results.accelerator, results.chip_matrix_devices, results.chip_memory_unit_energy)
names = [
    f"board, {junctions / 1e3:g}k, {joules / 8e-12:g} pJ/bit" if machine.startswith("scd") else machine
    for machine, junctions, joules in zip(*(column.values for column in told), strict=True)
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
b200, gpu = "generated-b200", "gpu"
assert 4.5 < time[b200] / time[board] < 5.0 and 2.9 < time[gpu] / time[board] < 3.2
assert 15.0 < total[b200] / total[board] < 16.0 and 11.5 < total[gpu] / total[board] < 12.5
assert 0.97 < time[hungry] / time[b200] < 1.0 and 1.95 < time[worst] / time[b200] < 2.05
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
# node) on a fifteenth of the energy. A board computes at less than a fifth of its peak: power for memory bounds it.
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
assert 3.0 < memory < 3.5 and (junctions < 1.2).all()
pd.DataFrame({"least": least, "most": most}).round(1)

# %% [markdown]
# Between the best and the worst guesses lie 24 times the tokens a joule of a B200, and 1.6 times. Coolers alone
# move the result by two, the energy of a bit of cold memory by three: it is the number to measure first. The
# junctions of a FLOP, which set the energy of the logic, hardly matter.
