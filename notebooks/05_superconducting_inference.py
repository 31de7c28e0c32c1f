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
# # Superconducting logic against CMOS at answering
#
# A superconducting board has 200 PFLOP/s in 16 bits, and memory at 77 K (arXiv 2411.08645). In training it wins by what
# it computes. What does it do for answers of Llama 3 70B, 1,024 tokens in and out, from one request in flight to 1,024?
# `sweeps/scd_inference.toml` sets boards beside three GPUs of the same model of a chip, over what is not known of their
# cold memory: the energy of a bit (0.1 to 4 pJ before the cooler) and the time of an access (30 to 300 ns). What hosts
# and launches take on a board is a guess (a tenth of a GPU's), and so is a short message (1 µs).

# %%
# %matplotlib inline
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import dse
from dse.designs import catalog, replace
from dse.model.machine.technology import memory_tier
from dse.types import Accelerator
from dse.views.plot.style import part, series
from dse.views.plot.ticks import plain_ticks

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
results = dse.run(root / "sweeps" / "scd_inference.toml", output=False)
told = ("accelerator", "chip_matrix_devices", "chip_memory_unit_energy", "chip_memory_unit_latency")
names = [
    f"board, {joules / 8e-12:g} pJ/bit" + (", 300 ns" if latency > 1e-7 else "") + (", 15k" if devices > 1e4 else "")
    if machine.startswith("scd")
    else machine
    for machine, devices, joules, latency in zip(*(results[name].values for name in told), strict=True)
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
figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
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
    axes.spines[["top", "right"]].set_visible(False)
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)

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
figure, both = plt.subplots(1, 2, figsize=(7.0, 2.8), layout="constrained", sharey=True)
for axes, flight in zip(both, (1, 1024), strict=True):
    parts = pd.DataFrame(
        {part(name).label: 1e3 * table(f"time_per_output_token_{name}")[flight] for name in PARTS}
    ).loc[shown]
    parts.plot.barh(stacked=True, ax=axes, legend=False)
    for bars, name in zip(axes.containers, PARTS, strict=True):
        for bar in bars:
            bar.set(**part(name).fill)  # colours and hatches of dse plot
    axes.set(xlabel="ms an output token", ylabel="", title=f"{flight:,} in flight")
    axes.spines[["top", "right"]].set_visible(False)
both[0].invert_yaxis()
figure.legend(*both[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)

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
