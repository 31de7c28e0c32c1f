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
# # What a user gets against what a device gives
#
# Tokens a second of one user against tokens a second of one accelerator: the more requests are in flight, the more a
# device answers and the longer each waits. Which machine, tensor parallelism and format are on the front, and what do
# limits of latency leave of it? A smaller `sweeps/llama3_70b_serving.toml`: Llama 3 70B on eight devices, prompts and
# answers of 1,024 tokens.

# %%
# %matplotlib inline
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import dse
from dse.sweep import from_text
from dse.views import plot
from dse.views.plot.style import series
from dse.views.plot.ticks import plain_ticks

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
SWEEP = """
title = "Llama 3 70B on eight devices of three accelerators"

[workload]
name = "llama-3-70b"

[system]
name = "h100-sxm-80gb"
n_devices = 8

[software]
any_option = true

[mapping]
cache_bytes = "1 B"

[axes]
accelerator = ["h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb"]
precision = ["bf16", "fp8"]
concurrency = { from = 1, to = 1024, factor = 2 }
tp = [1, 2, 4, 8]

[serving]
prompt_tokens = 1024
output_tokens = 1024
first_token_limit = "30 s"

[objective]
maximize = ["output_tokens_per_second_per_device", "output_tokens_per_second_per_user"]

[output]
keep = "feasible"
"""
results = dse.run(from_text(SWEEP), output=False)
results.sizes

# %%
plot.pareto(results)

# %% [markdown]
# The front of each machine, over formats and tp:

# %%
columns = ["accelerator", "precision", "concurrency", "tp"]
found = (
    results[
        [
            "output_tokens_per_second_per_device",
            "output_tokens_per_second_per_user",
            "time_to_first_token",
            "share_in_time",
        ]
    ]
    .to_dataframe()
    .reset_index()
)
found = found.rename(columns=lambda name: name.replace("output_tokens_per_second_per_", ""))


def front(designs):
    """Those that no other one beats in both, by what a user gets."""
    ordered = designs.sort_values(["user", "device"], ascending=False)
    return ordered[ordered.device > ordered.device.cummax().shift(fill_value=0.0)]


fronts = {machine: front(designs) for machine, designs in found.groupby("accelerator")}
LOOKS = series(list(dict.fromkeys(results.accelerator.values.tolist())))  # of a machine, as in the figure above
figure, axes = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
for machine, looks in LOOKS.items():
    axes.plot(fronts[machine].user, fronts[machine].device, **looks, markersize=4, label=machine)
axes.set(xscale="log", yscale="log", xlabel="tokens/s per user", ylabel="tokens/s per device", title="Llama 3 70B")
plain_ticks(axes.xaxis, axes.yaxis)
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
h100, b200 = fronts["h100-sxm-80gb"], fronts["b200-sxm-180gb"]
pd.concat(
    {
        machine: designs[[*columns[1:], "user", "device"]].iloc[[0, len(designs) // 2, -1]]
        for machine, designs in fronts.items()
    }
).round(1)

# %%
for designs in fronts.values():
    fast, full = designs.iloc[0], designs.iloc[-1]
    assert fast.tp == 8 and full.tp < fast.tp and fast.concurrency < full.concurrency
    assert full.device > 30.0 * fast.device and fast.user > 3.0 * full.user
    assert (designs.precision == "fp8").all()
ahead = b200.device.max() / h100.device.max()
assert 1.5 < ahead < 4.0

# %% [markdown]
# A lone user is served best by all eight devices, a full machine by fewer a copy of the model: splitting costs
# messages, which the weights that are read together no longer pay for. 8 bits are everywhere on the front.
#
# ## In time
#
# `goodput` counts requests within limits of latency, of which a share keeps them. Under 2 s to the first token and
# 40 ms an output token, lengths spread by a half, each point with its best format and tp:

# %%
LIMITS = '\nlength_spread = 0.5\ntoken_limit = "40 ms"\n'
limited = SWEEP.replace('first_token_limit = "30 s"', 'first_token_limit = "2 s"' + LIMITS)
limited = limited.replace('keep = "feasible"', 'keep = "best"').replace(
    'maximize = ["output_tokens_per_second_per_device", "output_tokens_per_second_per_user"]', 'maximize = "goodput"'
)
within = dse.run(from_text(limited), output=False)
good = within.goodput.where(within.feasible).to_pandas().T
figure, axes = plt.subplots(figsize=(5.0, 2.8), layout="constrained")
for machine, looks in LOOKS.items():
    axes.plot(good.index, good[machine], **looks, label=machine)
axes.set(xscale="log", xlabel="requests in flight", ylabel="requests/s in time", title="2 s and 40 ms")
plain_ticks(axes.xaxis)
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
best = good.idxmax()
assert good.max()["b200-sxm-180gb"] > good.max()["h200-sxm-141gb"] > good.max()["h100-sxm-80gb"]
assert best["b200-sxm-180gb"] >= best["h100-sxm-80gb"] and good.isna().any().any()

# %% [markdown]
# Each machine has a number of requests in flight beyond which its mean latency breaks a limit: the best is just below
# it. B200, the fastest, keeps both limits with 1,024 in flight, H200 with half of that, H100 with a quarter.
