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
# # Optimus: training across technology
#
# What bounds the training of GPT-3-175B as logic, memory and network move on from 12 nm to 1 nm and below, and what of
# the gain from A100 to B200 is the chip, the network, the precision? The questions and figures are those of Optimus
# (arXiv 2407.14645). A GPU of one die size, power budget and number of memory stacks is generated in every node, with
# every memory and behind every network, and each of these machines trains with its own best mapping. From the command
# line, with all machines and clocks:
#
# ```console
# $ dse run sweeps/technology_nodes_training.toml -o results/nodes.nc
# $ dse plot results/nodes.nc --kind nodes
# $ dse plot results/nodes.nc --kind bounds
# $ dse run sweeps/a100_to_b200.toml
# ```
#
# `sweeps/technology_nodes_memories_networks.toml` keeps 2.2 million designs of node, memory, network and mapping in one
# file, which plain xarray draws over `node_nm`. Here the axes of machines are thinned to 120 of 1,400; the mappings
# stay as they are, all 43,488 of each. Inference is in [03_optimus_inference](03_optimus_inference.ipynb), memory by
# recompute in [08_memory_by_recompute](08_memory_by_recompute.ipynb).

# %%
# %matplotlib inline
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse import types
from dse.designs import catalog
from dse.sweep import from_text
from dse.views import plot
from dse.views.plot.style import PAGE, new_figure, part, style

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
text = (root / "sweeps" / "technology_nodes_training.toml").read_text()
THINNER = {
    "memory": ["hbm2e-3-2", "hbm3-5-2", "hbm3e-8-0", "hbm6"],
    "scale_out": ["infiniband-hdr", "infiniband-ndr", "infiniband-gdr"],
    '"chip.clock_ratio"': [1.0],
}
for axis, values in THINNER.items():
    text, count = re.subn(rf"^{re.escape(axis)} = .*$", f"{axis} = {values}", text, flags=re.MULTILINE)
    assert count == 1
results = dse.run(from_text(text), output=False).squeeze("chip_clock_ratio")
results.sizes

# %% [markdown]
# ## Step time over nodes
#
# The study's figure has the training time over logic nodes from N12 to N1 for generations of HBM and of networks: it
# falls with every node, ever more slowly, until memory and then network hold it. Ours has the same shape; nodes from
# 1 nm on continue the foundries' trend and are hollow.

# %%
plot.nodes(results)

# %%
time = results.step_time
assert (time.diff("node") < 0.0).all() and (time.diff("memory") < 0.0).all() and (time.diff("scale_out") <= 0.0).all()
spread = {axis: time.max(axis) / time.min(axis) for axis in ("memory", "scale_out")}
pd.DataFrame(
    {
        f"{axis}: slowest over fastest": ratio.mean(set(ratio.dims) - {"node"}).to_series()
        for axis, ratio in spread.items()
    }
).round(2)

# %% [markdown]
# What a memory or a network is worth grows with every node: a few per cent behind 12 nm, tens of per cent behind
# extrapolated ones.
#
# ## What bounds the step
#
# The study's figure of bottlenecks shows the share of compute falling from node to node, first to memory, then to the
# network. Kernels count to their side of the roofline, exposed messages to the network, each machine with its best
# mapping. The older memory and network are, the earlier the bound moves; behind the newest of both compute still bounds
# most. Here the network comes first: its share is above memory's in all nodes but the last ones behind HBM2E, since the
# large products of training reuse what they read.

# %%
CORNERS = {
    "HBM2E, 200 Gbit/s": ("hbm2e-3-2", "infiniband-hdr"),
    "HBM3, 400 Gbit/s": ("hbm3-5-2", "infiniband-ndr"),
    "HBM6, 1.6 Tbit/s": ("hbm6", "infiniband-gdr"),
}
bounds = {
    name: plot.bound_times(results.sel(memory=memory, scale_out=network)) for name, (memory, network) in CORNERS.items()
}
BOUNDS = list(next(iter(bounds.values())).data_vars)
names = [
    f"{nm:g}{'*' if more else ''}"
    for nm, more in zip(results.node_nm.values, results.node_extrapolated.values, strict=True)
]
with style():
    figure = new_figure(PAGE, 2.6)
    for axes, (title, seconds) in zip(figure.subplots(1, len(CORNERS), sharey=True), bounds.items(), strict=True):
        total, below = sum(seconds[bound] for bound in BOUNDS), np.zeros(len(names))
        for bound in BOUNDS:
            share = 100 * (seconds[bound] / total).values
            axes.bar(names, share, 0.8, below, label=part(bound).label, **part(bound).fill)
            below += share
        axes.set(title=title, xlabel="logic node (nm), *: extrapolated", ylim=(0, 100))
        axes.tick_params(axis="x", rotation=60)
    figure.axes[0].set_ylabel("share of the step (%)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(BOUNDS))
figure

# %%
shares = {name: one / sum(one[bound] for bound in BOUNDS) for name, one in bounds.items()}
table = pd.DataFrame(
    {
        (name, bound.removeprefix("bound_by_")): one[bound].isel(node=[0, -1]).to_series()
        for name, one in shares.items()
        for bound in BOUNDS
    }
)
for one in shares.values():
    assert one.bound_by_compute[0] > one.bound_by_compute[-1]
    assert (one.bound_by_memory + one.bound_by_network)[-1] > (one.bound_by_memory + one.bound_by_network)[0]
a14 = shares["HBM2E, 200 Gbit/s"].sel(node="a14")
assert a14.bound_by_network > a14.bound_by_memory
assert all((shares[name].bound_by_network > shares[name].bound_by_memory).all() for name in list(CORNERS)[1:])
(100 * table).round(0)

# %% [markdown]
# ## What a generation buys
#
# The speed-up of each step along one axis, the others held: at an old machine and at a new one.

# %%
old = {"node": "n7", "memory": "hbm3-5-2", "scale_out": "infiniband-ndr"}
new = {"node": "extrapolated-a5", "memory": "hbm6", "scale_out": "infiniband-gdr"}


def speed_ups(axis, others):
    """How many times faster each position of an axis is than the one before."""
    times = time.sel({name: value for name, value in others.items() if name != axis})
    return (times.shift({axis: 1}) / times).isel({axis: slice(1, None)}).to_series()


pd.concat(
    {
        axis: pd.DataFrame({"others old": speed_ups(axis, old), "others new": speed_ups(axis, new)})
        for axis in ("node", "memory", "scale_out")
    }
).round(2)

# %% [markdown]
# ## Energy of a token
#
# Not in the study's figure, whose sequel asks for it: hosts, links and facility included. All machines have one power
# budget, so that the faster one mostly needs less energy too.

# %%
plot.nodes(results, "energy_per_token")

# %% [markdown]
# # From A100 to B200
#
# How much faster does a GPU train GPT-3-175B two generations later, and what of that is the chip (compute, memory),
# the network, FP8, FP4, less recompute, a larger batch or software? `sweeps/a100_to_b200.toml` has each as an axis of
# its own and keeps the best mapping of every point, so that chips nobody sells lie between those that are.

# %%
text = (root / "sweeps" / "a100_to_b200.toml").read_text()
PRECISIONS = {"bf16": '["bf16"]', "fp8": '["bf16", "fp8"]', "fp4": '["bf16", "fp8", "nvfp4"]'}
LEVELS = {"full": '["full"]', "any": '["none", "selective", "full"]'}


def swept(precision, level):
    """The sweep with these to choose from; the best mapping takes the fastest precision that the chip has."""
    changed = text.replace(PRECISIONS["fp8"], PRECISIONS[precision]).replace(LEVELS["any"], LEVELS[level])
    return dse.run(from_text(changed), output=False)


generations = {choice: swept(*choice) for choice in itertools.product(PRECISIONS, LEVELS)}

# %% [markdown]
# ## The machines as they are sold

# %%
CHIPS = ["a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb"]
MODERN = ["megatron-core-te", "megatron-bridge", "megatron-bridge"]


def rate(chip=0, memory=0, network=0, precision="bf16", batch=0, software=False, recompute="any"):
    """Tokens a second and GPU of a machine put together from generations 0, 1, 2."""
    stack = MODERN[chip] if software else "megatron-2021"
    found = generations[precision, recompute].tokens_per_second_per_device
    point = found.sel(accelerator=CHIPS[chip], software=stack)
    return float(point.isel(memory_bandwidth=memory, scale_up=network, global_batch=batch))


published = {"A100, all recomputed": 107, "H100, FP8": 866, "B200, FP8": 1600}
rows = {
    "A100, all recomputed": [
        rate(batch=batch, software=software, recompute="full")
        for batch, software in [(0, False), (1, False), (1, True)]
    ],
    "A100": [rate(), rate(batch=1), rate(batch=1, software=True)],
    "H100, FP8": [rate(1, 1, 1, "fp8", batch, software) for batch, software in [(0, False), (1, False), (1, True)]],
    "B200, FP8": [rate(2, 2, 2, "fp8", batch, software) for batch, software in [(0, False), (1, False), (1, True)]],
}
columns = ["2021 stack, batch 256", "2021 stack, batch 2048", "modern stack, batch 2048"]
table = pd.DataFrame(rows, index=columns).T
table["published"] = pd.Series(published)
sold = generations["bf16", "any"].sel(accelerator=CHIPS[0], software="megatron-2021")
assert (sold.isel(memory_bandwidth=0, scale_up=0, global_batch=0).recompute != "full").all()
ours = table[columns[2]]
assert 0.95 < rows["A100, all recomputed"][0] / published["A100, all recomputed"] < 1.05
assert all(1.0 < published[name] / ours[name] < 1.25 for name in ("H100, FP8", "B200, FP8"))
table.round(0)

# %% [markdown]
# The published A100 figure recomputes all activations, as the first row does; the best mapping does not. Those of H100
# and B200 are above what the modern stacks give here, which were fitted to measured steps of Megatron-Bridge and to
# NVIDIA's MLPerf submissions, GPT-3-175B on H100 among them.

# %% [markdown]
# ## What buys the gain
#
# Eight changes lead from the A100 of 2021, which recomputed all, to the B200 in FP4. What one of them buys depends on
# which came before, so each is credited with its mean over all orders in which the chip comes before FP8, and FP8
# before FP4 (a Shapley value, in logarithms, so that the factors multiply to the whole).

# %%
CHANGES = {
    "recompute": {"recompute": "any"},
    "compute": {"chip": 2},
    "memory": {"memory": 2},
    "network": {"network": 2},
    "FP8": {"precision": "fp8"},
    "FP4": {"precision": "fp4"},
    "batch": {"batch": 1},
    "software": {"software": True},
}


def gain(changes):
    """Logarithm of the rate with these changes."""
    made = {"recompute": "full"}
    for name in CHANGES:
        made |= CHANGES[name] if name in changes else {}
    return math.log(rate(**made))


subsets = (frozenset(c) for n in range(len(CHANGES) + 1) for c in itertools.combinations(CHANGES, n))
known = {subset: gain(subset) for subset in subsets}
NEEDS = ("compute", "FP8", "FP4")
orders = [o for o in itertools.permutations(CHANGES) if [name for name in o if name in NEEDS] == list(NEEDS)]
credit = dict.fromkeys(CHANGES, 0.0)
for order in orders:
    done = frozenset()
    for name in order:
        credit[name] += known[done | {name}] - known[done]
        done |= {name}
factors = {name: math.exp(total / len(orders)) for name, total in credit.items()}
whole = math.exp(known[frozenset(CHANGES)] - known[frozenset()])
pd.Series(factors | {"all": whole}, name="factor").round(2)

# %%
assert math.isclose(math.prod(factors.values()), whole, rel_tol=1e-6)
assert 13.0 < whole < 20.0 and max(factors, key=factors.get) == "compute" and 2.5 < factors["compute"] < 3.5
assert all(1.05 < factors[name] < 1.8 for name in factors if name != "compute")
assert 3.0 < factors["compute"] * factors["memory"] < 4.7 and factors["FP8"] * factors["FP4"] < 2.0
peaks = [catalog.record(types.Accelerator, slug).matrix_rate for slug in (CHIPS[0], CHIPS[2])]
assert 28.0 < peaks[1].fp4 / peaks[0].bf16 < 30.0 and peaks[1].fp8 / peaks[0].bf16 < 15.0
least = math.exp(known[frozenset(CHANGES) - {"FP4"}] - known[frozenset()])
assert 10.0 < least < 14.9 < whole

# %% [markdown]
# The chip buys most: its compute in bf16 a factor of about 3, with its memory nearly 4. Each of the others buys less
# than 1.8. FP8 and FP4 each double the peak, and together do not double the rate: they speed up products alone.
#
# The abstract of the study speaks of about 35; its published rates give 14.9, in FP8, and all changes here together
# some 16. The peaks alone, dense FP4 over bf16, are 29 apart, so that 35 asks of the B200 a larger share of its peak
# than the A100 gives of its own, or counts what the A100 recomputed as well; which of these it was is not known.

# %%
with style():
    figure = new_figure(PAGE, 2.4)
    axes = figure.subplots()
    ordered = sorted(factors.items(), key=lambda item: -item[1])
    start = 1.0
    for place, (_, factor) in enumerate(ordered):
        axes.barh(place, start * factor - start, 0.7, start, color="#0e306e")
        axes.annotate(f"×{factor:.2f}", (start * factor, place), xytext=(4, 0), textcoords="offset points", va="center")
        start *= factor
    axes.barh(len(ordered), whole - 1.0, 0.7, 1.0, color="#6d7270")
    axes.annotate(f"×{whole:.1f}", (whole, len(ordered)), xytext=(4, 0), textcoords="offset points", va="center")
    for value, words in ((14.9, "published rates"), (35.0, "abstract: about 35")):
        axes.axvline(value, color="#c8440a", linewidth=0.9, linestyle=(0, (4, 2)))
        axes.annotate(words, (value, -0.4), xytext=(-3, 0), textcoords="offset points", ha="right", va="center")
    axes.set_yticks(range(len(ordered) + 1), [*dict(ordered), "all"])
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=(1.0, 40.0), xlabel="tokens a second and GPU over the A100 of 2021, all recomputed")
    axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    axes.minorticks_off()
figure

# %% [markdown]
# In one order only, as papers tell it:

# %%
steps, done = {}, ()
for name in CHANGES:
    done = (*done, name)
    steps[name] = math.exp(known[frozenset(done)])
pd.Series({"A100 of 2021": math.exp(known[frozenset()])} | steps, name="tokens/s a GPU").round(0)

# %% [markdown]
# ## Energy
#
# Joules of a token, whole system with hosts and facility, of the best mappings by time:

# %%
energy = {
    chip: float(
        generations["fp8", "any"]
        .energy_per_token.sel(accelerator=CHIPS[i], software=MODERN[i])
        .isel(memory_bandwidth=i, scale_up=i, global_batch=1)
    )
    for i, chip in enumerate(("A100", "H100", "B200"))
}
pd.Series(energy, name="J a token").round(2)

# %%
assert 2.2 < energy["A100"] / energy["H100"] < 3.2 and 1.05 < energy["H100"] / energy["B200"] < 1.5

# %% [markdown]
# A token takes more than twice the energy on A100 that it takes on H100, and on B200 somewhat less again.
