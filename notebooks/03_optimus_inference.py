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
# # Optimus: inference across technology
#
# What do logic, device memory and links do for the latency of answers, and what bounds the products of a layer? The
# questions and figures are those of Optimus (arXiv 2407.14645): one request to Llama 2, 200 tokens in and 200 out, on
# eight GPUs of one die size and one power budget (`gpu`), over nodes from 12 nm to below 1 nm, memories from GDDR6 to
# HBM6 and three generations of links; products by bound on A100, H100 and B200; a table of latencies. From the command
# line:
#
# ```console
# $ dse run sweeps/technology_nodes_inference.toml -o results/nodes.nc
# $ dse plot results/nodes.nc --kind nodes
# $ dse run sweeps/dram_scaling_inference.toml
# $ dse run sweeps/llama2_latency.toml
# ```

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse import types
from dse.designs import catalog
from dse.views import plot
from dse.views.plot.style import COLUMN, PAGE, new_figure, part, series, style
from dse.views.plot.ticks import plain_ticks

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
nodes = dse.run(root / "sweeps" / "technology_nodes_inference.toml", output=False)

# %% [markdown]
# ## Nodes
#
# In the study inference gains from memory, not from logic, beyond the first nodes. Here too: lines are flat, and the
# memories lie apart.

# %%
plot.nodes(nodes)

# %%
latency = nodes.request_latency.where(nodes.feasible)
gains = pd.DataFrame(
    {
        "12 nm over 0.5 nm, most of all": (latency.isel(node=0) / latency.isel(node=-1)).max(("memory", "scale_up")),
        "HBM2 over HBM6": (latency.sel(memory="hbm2-2-4") / latency.sel(memory="hbm6")).max(("node", "scale_up")),
        "NVLink 3 over 5": (latency.isel(scale_up=0) / latency.isel(scale_up=-1)).max(("node", "memory")),
    },
    index=nodes.workload.values,
)
assert (gains.iloc[:, 1] > gains.iloc[:, 0]).all() and (gains.iloc[:, 2] < 1.05).all()
gains.round(2)

# %% [markdown]
# The energy of a token falls with the node a little longer than its time, then rests on memory, host and idle parts:

# %%
plot.nodes(nodes, "energy_per_output_token")

# %% [markdown]
# ## DRAM and links
#
# The study's figure has the latency of Llama-2-13B on a chip of A100's class with GDDR6, HBM2 … HBMX, once with NVLink
# 3 and once with NVLink 4, split into computing and communication: it falls steeply with the first memories and
# levels off with the last, and the faster links take off a part that memory cannot. Ours falls and levels off
# likewise; the links differ by less than a per cent, because what a token's small messages take is the time of a
# kernel that sends, not bandwidth.

# %%
dram = dse.run(root / "sweeps" / "dram_scaling_inference.toml", output=False)
LINKS = {"nvlink-3": "NVLink 3", "nvlink-4": "NVLink 4"}
TOKEN = ("matrix", "attention", "communication", "host")
memories = list(dram.memory.values)
with style():
    figure = new_figure(PAGE, 2.8)
    for axes, (link, title) in zip(figure.subplots(1, 2, sharey=True), LINKS.items(), strict=True):
        below = np.zeros(len(memories))
        for name in TOKEN:
            point = dram.sel(workload="llama-2-13b", scale_up=link)
            milliseconds = 1e3 * point[f"time_per_output_token_{name}"].values
            axes.bar(memories, milliseconds, 0.7, below, label=part(name).label, **part(name).fill)
            below += milliseconds
        axes.set(title=f"Llama-2-13B, tp 8, {title}", xlabel="device memory, 6 stacks or devices")
        axes.tick_params(axis="x", rotation=40)
    figure.axes[0].set_ylabel("time of an output token (ms)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(TOKEN))
figure

# %%
request = (1e3 * dram.request_latency.where(dram.feasible)).sel(scale_up="nvlink-4")
parts = pd.DataFrame(
    {
        name: dram[f"time_per_output_token_{name}"].sel(workload="llama-2-13b", scale_up="nvlink-4").to_series()
        for name in TOKEN
    }
)
share = parts.div(parts.sum(axis=1), axis=0)
links = dram.request_latency.where(dram.feasible)
assert share.matrix["gddr6-16"] > 0.75 and (share.host + share.communication)["hbm6"] > 0.6
assert float((links.max("scale_up") / links.min("scale_up")).max()) < 1.02
table = request.to_pandas().T
small, big = table["llama-2-13b"], table["llama-2-70b"]
assert 3.5 < small["gddr6-16"] / small["hbm3e-8-0"] < 4.5 and 1.05 < small["hbm3e-8-0"] / small["hbm6"] < 1.25
assert big.isna().sum() == 2 and big["hbm2-2-4"] / big["hbm3e-8-0"] > 1.9
table.round(0)  # ms a request; nothing where the weights do not fit

# %% [markdown]
# The same over the bandwidth of a stack, for three models. From HBM4 on the power that the budget leaves memory limits
# what of its bandwidth can be used, which the study has no limit for.

# %%
with style():
    figure = new_figure(COLUMN, 2.8)
    axes = figure.subplots()
    rates = 1e-9 * dram.memory_bandwidth.values
    for model, looks in series(list(dram.workload.values)).items():
        axes.plot(rates, request.sel(workload=model), markersize=4, linewidth=1.2, label=model, **looks)
    axes.set(
        xscale="log", yscale="log", xlabel="bandwidth of a device or stack (GB/s)", ylabel="time of a request (ms)"
    )
    plain_ticks(axes.xaxis, axes.yaxis)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=2.6)
figure

# %% [markdown]
# ## Products by bound
#
# The study's table names each product of a layer compute- or memory-bound in prefill and in decode on A100, H100 and
# B200, and its figure splits their time by bound for one prompt and for sixteen. In the study decode is memory-bound
# throughout, a short prompt moves to memory from one generation to the next, as compute grows faster, and a batch moves
# it back. So it is here (Llama-2-13B, prompts of 200 tokens, one device; sixteen are taken as one of 3,200 tokens).

# %%
DEVICES = {"a100-sxm-80gb": "A100", "h100-sxm-80gb": "H100", "b200-sxm-180gb": "B200"}
PRODUCTS = ("qkv", "prefill_attention", "decode_attention", "projection", "ffn_up", "ffn_down")
BATCHES = {1: "one prompt", 16: "16 prompts"}
rows = []
for device, label in DEVICES.items():
    for batch in BATCHES:
        request_16 = {"load": "static", "concurrency": batch, "prompt_tokens": 200 * batch, "output_tokens": 200}
        design = dse.design("llama-2-13b", device, precision="fp16", **request_16)
        rows += [
            {"device": label, "batch": batch, **row._asdict()}
            for row in dse.explain(design, study="serving").operators
            if row.name in PRODUCTS
        ]
products = pd.DataFrame(rows)
products["microseconds"] = 1e6 * products.forward_time
named = products[(products.batch == 1)].pivot(index=["section", "name"], columns="device", values="forward_bound")
named[list(DEVICES.values())]

# %%
PANELS = {
    "prefill, one prompt of 200": ("prefill", 1),
    "prefill, 16 prompts": ("prefill", 16),
    "decode, one row": ("decode", 1),
}
times = products.pivot_table(
    index=["section", "batch", "device"], columns="forward_bound", values="microseconds", aggfunc="sum", fill_value=0.0
)
with style():
    figure = new_figure(PAGE, 2.5)
    for axes, (title, key) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
        layer, below = times.loc[key].loc[list(DEVICES.values())], np.zeros(len(DEVICES))
        for bound in ("compute", "memory"):
            look = part(f"bound_by_{bound}")
            axes.bar(layer.index, layer[bound], 0.6, below, label=look.label, **look.fill)
            below += layer[bound].to_numpy()
        axes.set(title=title, ylim=(0, None))
    figure.axes[0].set_ylabel("products of a layer (µs)")
    figure.axes[1].set_xlabel("device")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
figure

# %%
by_bound = times.div(times.sum(axis=1), axis=0)
assert (by_bound.loc[("decode", 1)].memory == 1.0).all()
prompt = by_bound.loc[("prefill", 1)].memory
assert prompt["A100"] < 0.2 and prompt[["H100", "B200"]].min() > 0.8
assert (by_bound.loc[("prefill", 16)].compute > 0.8).all()
(100 * by_bound).round(0)  # per cent of the time of the products

# %% [markdown]
# # One request to Llama 2 on A100 and H100
#
# How long does an answer of 200 tokens to a prompt of 200 take, with nothing else on the machine, and what do more
# devices do for it? The study compares its model with such a table; `sweeps/llama2_latency.toml` has the same points
# and those between them, in fp16 with FasterTransformer.

# %%
results = dse.run(root / "sweeps" / "llama2_latency.toml", output=False)
results = results.set_index(mapping="tp").rename(mapping="tp")
latency = results.request_latency.where(results.feasible)
DEVICES = {"a100-sxm-80gb": "A100", "h100-sxm-80gb": "H100"}
MODELS = list(results.workload.values)

# From memory: shown, and compared with by nothing. The stack, and what its times include, are not known here.
PUBLISHED = {
    ("llama-2-7b", 1): (2190, 1440),
    ("llama-2-7b", 8): (1187, 828),
    ("llama-2-13b", 1): (3884, 2396),
    ("llama-2-70b", 8): (4735, 3202),
}
ours = (1e3 * latency).to_series().unstack("accelerator").rename(columns=DEVICES)
published = pd.DataFrame(PUBLISHED, index=list(DEVICES.values())).T
table = pd.concat({"ours, ms": ours, "published, ms (from memory)": published}, axis=1).loc[MODELS]
table.round(0).astype("Int64")

# %% [markdown]
# Nothing stands where the weights do not fit: 70B takes 138 GB, more than a device has.

# %%
assert table["ours, ms"].isna().sum().tolist() == [1, 1] and ours.loc["llama-2-70b", 1].isna().all()
faster = ours["A100"] / ours["H100"]
bandwidth = np.divide(
    *(float(catalog.record(types.Accelerator, name).memory.bandwidth) for name in ("h100-sxm-80gb", "a100-sxm-80gb"))
)
fewest = [("llama-2-7b", 1), ("llama-2-13b", 1), ("llama-2-70b", 2)]
assert 1.6 < bandwidth < 1.7 and faster[fewest].between(1.6, 1.8).all()
assert faster.drop(fewest).dropna().between(1.1, bandwidth).all()
gained = ours.unstack("tp").loc[MODELS].stack("tp", future_stack=True).groupby(level=0).diff().dropna()
assert gained.drop([("llama-2-7b", 8), ("llama-2-13b", 8)]).lt(0.0).all().all()
assert gained.loc[("llama-2-7b", 8)].gt(0.0).all() and -25.0 < gained.H100["llama-2-13b", 8] < 0.0
pd.DataFrame({"A100 / H100": faster.unstack("tp").loc[MODELS].stack()}).unstack().round(2)

# %% [markdown]
# H100 answers faster, on the fewest devices by about as much as its memory is faster (1.64 times) or a little more, as
# its matrices come nearer to the full bandwidth, and the less so the more devices share the model. More devices answer
# sooner, but from four to eight with the smaller models: layers are so short that messages and the host decide, 7B
# answers later, 13B on H100 hardly sooner.
#
# ## How near to the memory
#
# Each of the 200 tokens but the first reads all weights once. Dotted: the time of that at full bandwidth, which no
# engine can go below.

# %%
parameters = {model: float(results.parameters.sel(workload=model).max()) for model in MODELS}


def floor(model, device, devices):
    """Seconds in which 16-bit weights are read 199 times, split over these devices."""
    rate = float(catalog.record(types.Accelerator, device).memory.bandwidth)
    return 199 * 2.0 * parameters[model] / (devices * rate)


degrees = latency.tp.values
looks = series(list(DEVICES))
with style():
    figure = new_figure(PAGE, 3.0)
    panels = figure.subplots(1, len(MODELS), sharex=True, sharey=True)
    for axes, model in zip(panels, MODELS, strict=True):
        for place, (device, name) in enumerate(DEVICES.items()):
            axes.plot(degrees, latency.sel(workload=model, accelerator=device), **looks[device], label=f"{name}, ours")
            axes.plot(
                degrees,
                [floor(model, device, n) for n in degrees],
                color=looks[device]["color"],
                linestyle=":",
                linewidth=1.0,
                label=f"{name}, weights at full bandwidth",
            )
            shown = {n: 1e-3 * PUBLISHED[model, n][place] for n in degrees.tolist() if (model, n) in PUBLISHED}
            axes.plot(
                list(shown),
                list(shown.values()),
                "o",
                markersize=8,
                markerfacecolor="none",
                color=looks[device]["color"],
                label=f"{name}, published",
            )
        axes.set(xscale="log", yscale="log", xlabel="devices (tp)", title=f"{model}, 200 + 200 tokens")
        axes.set_xticks(degrees, [str(n) for n in degrees])
        axes.set_yticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
        axes.minorticks_off()
    panels[0].set_ylabel("time of a request (s)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
figure

# %%
floors = pd.DataFrame(
    {
        name: {(model, n): floor(model, device, n) for model in MODELS for n in degrees.tolist()}
        for device, name in DEVICES.items()
    }
)
share = (1e3 * floors / ours).unstack().loc[MODELS]
assert share.max().max() < 1.0 and share.xs(1, axis=1, level=1).stack().dropna().between(0.6, 0.72).all()
assert share.xs(8, axis=1, level=1).loc["llama-2-7b"].max() < 0.2
share.round(2)

# %% [markdown]
# One device needs six to seven tenths of its time for the weights at full bandwidth, eight with 7B less than a fifth:
# reading an eighth each saves less than half of the time.
#
# ## What a token waits for

# %%
PARTS = ("matrix", "attention", "communication", "host")
MODEL = "llama-2-13b"
with style():
    figure = new_figure(PAGE, 2.6)
    panels = figure.subplots(1, len(DEVICES), sharey=True)
    for axes, (device, name) in zip(panels, DEVICES.items(), strict=True):
        below = np.zeros(len(degrees))
        for piece in PARTS:
            times = 1e3 * results[f"time_per_output_token_{piece}"].sel(workload=MODEL, accelerator=device).values
            axes.bar(
                [str(n) for n in degrees], times, bottom=below, width=0.6, label=part(piece).label, **part(piece).fill
            )
            below += times
        axes.set(xlabel="devices (tp)", title=f"{MODEL} on {name}")
    panels[0].set_ylabel("ms an output token")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(PARTS))
figure

# %%
parts = pd.DataFrame({name: results[f"time_per_output_token_{name}"].sel(workload=MODEL).to_series() for name in PARTS})
shares = parts.div(parts.sum(axis=1), axis=0)
rest = (shares.communication + shares.host).unstack("tp").rename(index=DEVICES)
assert rest.diff(axis=1).iloc[:, 1:].gt(0.0).all().all()
assert rest[1].max() < 0.25 and rest[8].min() > 0.7 and rest.loc["H100", 8] > rest.loc["A100", 8]
gain = ours["A100"].unstack("tp")[8].loc["llama-2-7b"] / ours["A100"].unstack("tp")[1].loc["llama-2-7b"]
assert 0.5 < gain < 0.7
rest.round(2)  # share of messages and of the host

# %% [markdown]
# From one device to eight the matrices take less and less; what stays is the engine's host and two messages a layer,
# more than seven tenths of a token of 13B on eight devices. These two were fitted to FasterTransformer on A100 alone,
# and the H100 is given the same: where the published times fall further on eight devices, this is what differs
# ([docs/studies.md](../docs/studies.md) has the verdicts).
