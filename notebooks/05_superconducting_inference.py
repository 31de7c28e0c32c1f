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
# `sweeps/scd_inference.toml` sets three boards, by the junctions that a FLOP takes, beside three GPUs of the same model
# of a chip. What hosts and launches take on a board is a guess (a tenth of a GPU's), and so is a short message (1 µs).

# %%
# %matplotlib inline
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import dse
from dse.sweep import from_text
from dse.views.plot.style import part, series
from dse.views.plot.ticks import plain_ticks

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
text = (root / "sweeps" / "scd_inference.toml").read_text()
results = dse.run(from_text(text + "energy = true\n"), output=False)  # its last section is [output]
names = [
    f"board, {junctions:,.0f} junctions" if machine.startswith("scd") else machine
    for machine, junctions in zip(results.accelerator.values, results.chip_matrix_devices.values, strict=True)
]


def table(metric):
    """A metric by machine and requests in flight, each with the best tp."""
    return results[metric].to_pandas().set_axis(names)


(1e3 * table("time_per_output_token")).round(2)  # milliseconds

# %%
figure, axes = plt.subplots(figsize=(5.0, 3.0), layout="constrained")
LOOKS = series(names[:4])
for name, looks in LOOKS.items():
    user, device = (table(f"output_tokens_per_second_per_{of}").loc[name] for of in ("user", "device"))
    axes.plot(user, device, **looks, label=name)
axes.set(xscale="log", yscale="log", xlabel="tokens/s per user", ylabel="tokens/s per device", title="Llama 3 70B")
plain_ticks(axes.xaxis, axes.yaxis)
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
token, rate = table("time_per_output_token"), table("output_tokens_per_second_per_device")
b200, board = "generated-b200", names[3]
assert 1.5 < token.loc[b200, 1] / token.loc[board, 1] < 1.8
assert 1.3 < rate.loc[board, 1024] / rate.loc[b200, 1024] < 1.5
assert 1.3 < token.loc["gpu", 1] / token.loc[board, 1] < 1.4
assert 1.1 < rate.loc["gpu", 1024] / rate.loc[board, 1024] < 1.2
boards = token.loc[[name for name in names if name.startswith("board")]]
assert (boards.max() / boards.min() < 1.01).all()

# %% [markdown]
# A board answers a lone request 1.6 times as fast as a B200, and 1.4 times as many where 1,024 are in flight. A GPU of
# the next node, with HBM4, answers more than a board there. Junctions, which decide how many FLOPs a board has, move
# less than one per cent.
#
# ## Where the time of a token goes

# %%
PARTS = ("matrix", "attention", "communication", "host", "prefill")
figure, both = plt.subplots(1, 2, figsize=(7.0, 2.8), layout="constrained", sharey=True)
shown = names[:4]
for axes, flight in zip(both, (1, 1024), strict=True):
    parts = pd.DataFrame({
        part(name).label: 1e3 * table(f"time_per_output_token_{name}")[flight] for name in PARTS
    }).loc[shown]
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
assert matrix[board] > matrix[b200] and added[b200] > 8.0 * added[board]

# %% [markdown]
# Alone, the board's matrices take longer than the B200's: both wait for weights, and the board's memory is the slower
# one. The whole advantage is the latency of links and hosts, and so rests on the guesses above.
#
# ## Energy of an answer

# %%
energy = table("energy_per_output_token")
axes = energy.loc[shown, [1, 64, 1024]].T.plot.bar(
    figsize=(5.5, 2.8), logy=True, rot=0, color=[LOOKS[name]["color"] for name in shown]
)
plain_ticks(axes.yaxis)
axes.set(xlabel="requests in flight", ylabel="J an output token", title="whole system, coolers and facility in it")
axes.legend(frameon=False, fontsize=8)
axes.spines[["top", "right"]].set_visible(False)

# %%
more = energy.loc[board] / energy.loc[b200]
coolers = table("energy_per_output_token_cryogenics").loc[board] / energy.loc[board]
assert more.min() > 1.9 and more.max() < 2.5 and coolers.max() < 0.35

# %% [markdown]
# A board takes 2 to 2.4 times the energy of a B200 a token. Logic that switches for next to nothing saves little
# where little is computed: a board waits for memory as a GPU does, and what it draws meanwhile (memory, links, rest,
# and the coolers behind them) is what an answer pays for.
