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
# # Effective training time on 1,024 to 131,072 devices
#
# Devices fail, and batches beyond the critical one need more tokens: neither is in the time of a step.
# `sweeps/failures_1k_100k.toml` trains Llama 3.1 405B on more and more H100s, with three kinds of checkpoint, two
# storages and four batches. Failures are as often as its authors report: one in three hours on 16,384 devices.

# %%
# %matplotlib inline
from pathlib import Path

import matplotlib.pyplot as plt

import dse
from dse.views.plot.style import series, shades
from dse.views.plot.ticks import plain_ticks

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
results = dse.run(root / "sweeps" / "failures_1k_100k.toml", output=False)
table = results.to_dataframe().query("feasible").reset_index()
table["days"] = table.run_time_with_failures / 86400.0
table["storage"] = table.storage_bandwidth / 1e12


def best(by):
    """The soonest run of each group."""
    return table.loc[table.groupby(by).days.idxmin()]


# %% [markdown]
# ## What the kind of checkpoint is worth
#
# In memory checkpoints take less than 0.3 % of the time. Behind training they stop it for a second each, and take up to
# 1.2 %. Those that training waits for take more the more devices there are, and the slower the storage is: up to 6 %.

# %%
spent = best(["storage", "checkpoint", "n_devices"])
spent["checkpointing"] = spent.run_time_with_failures_checkpointing / spent.run_time_with_failures
waited = spent[spent.checkpoint == "synchronous"].pivot(index="n_devices", columns="storage", values="checkpointing")
behind = spent.groupby("checkpoint").checkpointing.max()
assert behind["in-memory"] < 0.003 and 0.01 < behind["asynchronous"] < 0.0125
assert (waited.loc[131072] > 6 * waited.loc[1024]).all() and (waited[0.2] > 1.4 * waited[2.0]).all()
assert (waited.diff().dropna() > -1e-4).all().all() and 0.055 < waited.max().max() < 0.058
failures = table[table.n_devices == 16384].time_between_failures
assert failures.min() / 3600 > 2.9 and failures.max() / 3600 < 3.2

fig, axes = plt.subplots(1, 2, figsize=(7, 2.8), sharey=True)
for ax, (storage, part) in zip(axes, best(["storage", "checkpoint", "n_devices"]).groupby("storage"), strict=True):
    for kind, looks in series(sorted(set(part.checkpoint))).items():
        points = part[part.checkpoint == kind]
        ax.plot(points.n_devices, 100 * points.goodput_fraction, **looks, markersize=4, label=kind)
    ax.set(xscale="log", xlabel="devices", title=f"storage of {storage:g} TB/s")
    plain_ticks(ax.xaxis)
axes[0].set_ylabel("effective training time (%)")
axes[0].legend()
fig.tight_layout()

# %% [markdown]
# ## What is lost to what
#
# With asynchronous checkpoints the time until a failure is found, and until the job runs again, is half of it on 1,024
# devices, and nine tenths on 131,072; the rest are checkpoints, and work done again.

# %%
parts = ["checkpointing", "lost_work", "detection", "restart"]
points = best(["storage", "checkpoint", "n_devices"]).query("storage == 2.0 and checkpoint == 'asynchronous'")
shares = [100 * points[f"run_time_with_failures_{part}"] / points.run_time_with_failures for part in parts]
lost = points[[f"run_time_with_failures_{part}" for part in parts]]
idle = lost[["run_time_with_failures_detection", "run_time_with_failures_restart"]]
found_late = (idle.sum(axis=1) / lost.sum(axis=1)).to_numpy()
assert (found_late[1:] > found_late[:-1]).all() and found_late[0] < 0.52 and found_late[-1] > 0.9
fig, ax = plt.subplots(figsize=(3.4, 2.8))
ax.stackplot(points.n_devices, shares, labels=[part.replace("_", " ") for part in parts], colors=shades(len(parts)))
ax.set(xscale="log", xlabel="devices", ylabel="lost time (%)")
plain_ticks(ax.xaxis)
ax.legend(loc="upper left")
fig.tight_layout()

# %% [markdown]
# ## Twice the devices, twice the batch?
#
# The critical batch is 12 million tokens here, some 1,500 sequences. A larger batch feeds more devices, and needs more
# tokens: from 32,768 devices on the run hardly gets shorter, and on 131,072 it takes longer again.

# %%
points = best(["n_devices", "global_batch"])
points.pivot(index="n_devices", columns="global_batch", values="days").round(1)

# %%
soonest = best(["n_devices"]).set_index("n_devices")
assert soonest.days[65536] < soonest.days[32768] < 1.05 * soonest.days[65536]
assert soonest.days[131072] > 1.25 * soonest.days[32768]
tokens = table.groupby("global_batch").tokens_needed.min()
small, large = 1024, 8192
ratio = tokens[large] / tokens[small]
critical = 8192 * (large - ratio * small) / (ratio - 1)  # tokens grow with 1 + batch / critical batch
assert 11.5e6 < critical < 12.5e6 and 1400 < critical / 8192 < 1550
soonest["million device-days"] = soonest.days * soonest.index / 1e6
soonest["tokens (T)"] = soonest.tokens_needed / 1e12
columns = ["global_batch", "checkpoint", "days", "goodput_fraction", "tokens (T)", "million device-days"]
soonest[columns].round(3)
