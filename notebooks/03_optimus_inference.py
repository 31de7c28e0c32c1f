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
# # What device memory does for the latency of answers
#
# One request to Llama 2, 200 tokens in and 200 out, on eight GPUs of one die and one power budget (`gpu`, generated in
# N5): what is gained from GDDR6 to HBM6, and from one generation of links to the next? The study behind this question
# is Optimus (arXiv 2407.14645); `sweeps/dram_scaling_inference.toml` asks it.

# %%
# %matplotlib inline
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import dse
from dse.views.plot.style import part, series

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
results = dse.run(root / "sweeps" / "dram_scaling_inference.toml", output=False)
latency = results.request_latency.where(results.feasible)
table = (1e3 * latency.sel(scale_up="nvlink-4")).to_pandas().T
table.round(0)  # milliseconds; nothing where the weights do not fit

# %%
figure, axes = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
for model, looks in series(list(table)).items():
    axes.plot(table.index, table[model], **looks, label=model)
axes.set(yscale="log", ylabel="ms a request", title="200 + 200 tokens, one request, tp 8")
axes.set_yticks([500, 1000, 2000, 4000], ["500", "1000", "2000", "4000"])
axes.minorticks_off()
axes.tick_params(axis="x", rotation=30)
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
assert table["llama-2-70b"].isna().sum() == 2  # neither GDDR holds it
small = table["llama-2-13b"]
assert 3.5 < small["gddr6-16"] / small["hbm3e-8-0"] < 4.5
assert 1.1 < small["hbm3e-8-0"] / small["hbm6"] < 1.2 and small["hbm4-8-0"] < small["hbm3e-8-0"]
big = table["llama-2-70b"]
assert big["hbm2-2-4"] / big["hbm3e-8-0"] > 1.9 and 1.35 < big["hbm3e-8-0"] / big["hbm6"] < 1.5

# %% [markdown]
# From GDDR6 to HBM3E the latency of 13B falls to a quarter; from there to HBM6 by an eighth, that of 70B by
# three tenths: the larger the model, the longer memory pays. From HBM4 on the power that the budget leaves memory
# limits what of its bandwidth can be used.
#
# ## What a token waits for
#
# The parts of the time of an output token. What is left with fast memory is what engines add: launches of every layer,
# the host's step, and the latency of small messages between devices.

# %%
PARTS = ("matrix", "attention", "communication", "host")
parts = pd.DataFrame(
    {
        name: results[f"time_per_output_token_{name}"].sel(workload="llama-2-13b", scale_up="nvlink-4").to_series()
        for name in PARTS
    }
)
axes = (1e3 * parts).rename(columns=lambda name: part(name).label).plot.barh(stacked=True, figsize=(6.5, 3.0))
for bars, name in zip(axes.containers, PARTS, strict=True):
    for bar in bars:
        bar.set(**part(name).fill)  # colours and hatches of dse plot
axes.invert_yaxis()
axes.set(xlabel="ms an output token of Llama-2-13B", ylabel="")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
share = parts.div(parts.sum(axis=1), axis=0)
assert share.matrix["gddr6-16"] > 0.75 and share.matrix["hbm6"] < 0.2
assert (share.host + share.communication)["hbm6"] > 0.75
links = latency.max("scale_up") / latency.min("scale_up")
assert float(links.max()) < 1.01

# %% [markdown]
# Three generations of links differ by less than a per cent: the messages of one token are small, and what they take is
# the time of a kernel that sends, not bandwidth. This is where the answer differs from training, and from models of
# inference that have no host and no floor of messages: there faster memory goes on paying.
#
# ## By phase
#
# Which operators of a layer are bound by what, in a step that decodes and in one that computes the prompt, on three
# GPUs as sold:

# %%
rows = {}
for device in ("a100", "h100", "b200"):
    design = dse.design(
        "llama-2-13b", device, precision="fp16", load="static", concurrency=1, prompt_tokens=200, output_tokens=200
    )
    for operator in dse.explain(design, study="serving").operators:
        if operator.name in ("qkv", "projection", "ffn_up", "ffn_down", "head"):
            rows[operator.section, operator.name, device] = operator.forward_bound
bounds = pd.Series(rows).unstack()
bounds

# %%
assert (bounds.loc["decode"] == "memory").all().all()
assert (bounds.loc["prefill"].loc[["qkv", "ffn_up", "ffn_down"]] == "compute").any().any()

# %% [markdown]
# Decoding reads every weight for one row, so that memory bounds each matrix on every device; 200 tokens of a prompt are
# near the point where computing takes over.
