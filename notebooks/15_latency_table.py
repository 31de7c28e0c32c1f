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
# # One request to Llama 2 on A100 and H100
#
# How long does an answer of 200 tokens to a prompt of 200 take, with nothing else on the machine, and what do more
# devices do for it? The study behind this question is Optimus (arXiv 2407.14645), which compares its model with such a
# table; `sweeps/llama2_latency.toml` has the same points and those between them, in fp16 with FasterTransformer.

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse import types
from dse.designs import catalog
from dse.views.plot.style import PAGE, new_figure, part, series, style

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
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
assert gained.loc[("llama-2-7b", 8)].gt(0.0).all() and -5.0 < gained.H100["llama-2-13b", 8] < 5.0
pd.DataFrame({"A100 / H100": faster.unstack("tp").loc[MODELS].stack()}).unstack().round(2)

# %% [markdown]
# H100 answers faster, on the fewest devices by about as much as its memory is faster (1.64 times) or a little more, as
# its matrices come nearer to the full bandwidth, and the less so the more devices share the model. More devices answer
# sooner, but from four to eight with the smaller models: layers are so short that messages and the host decide, 7B
# answers later, 13B on H100 no sooner.
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
assert share.max().max() < 1.0 and share.xs(1, axis=1, level=1).stack().dropna().between(0.6, 0.71).all()
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
