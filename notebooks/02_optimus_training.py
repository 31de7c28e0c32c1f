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
# # Technology nodes
#
# What bounds the training of GPT-3-175B as logic, memory and network move on? A GPU of one die size, power budget and
# number of memory stacks is generated in every node, with every memory and behind every network, and each of these
# machines trains with its own best mapping.
#
# `sweeps/technology_nodes_training.toml` asks this of 1,400 machines and 60,883,200 designs. Here its axes of
# machines are thinned to 240 of them; the mappings stay as they are, all 43,488 of each machine.

# %%
# %matplotlib inline
import re
from pathlib import Path

import pandas as pd

import dse
from dse import sweep, types
from dse.designs import catalog, replace
from dse.model.machine.technology import generate
from dse.sweep import from_text
from dse.views import plot
from dse.views.explanation import elasticities
from dse.views.plot.style import shades

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
text = (root / "sweeps" / "technology_nodes_training.toml").read_text()
whole, _ = sweep.plan(from_text(text), "best")
assert (whole.n_points, whole.n_designs) == (1_400, 60_883_200) and whole.n_designs == 1_400 * 43_488
thinner = {
    "node": ["n7", "n5", "n3e", "n2", "a14", "extrapolated-a5"],
    "memory": ["hbm2e-3-2", "hbm3-5-2", "hbm3e-8-0", "hbm4-8-0", "hbm6"],
    "scale_out": ["infiniband-hdr", "infiniband-ndr", "infiniband-xdr", "infiniband-gdr"],
    '"chip.clock_ratio"': [0.75, 1.0],
}
for axis, kept in thinner.items():
    text, found = re.subn(rf"^{re.escape(axis)} = .*$", f"{axis} = {kept}", text, flags=re.MULTILINE)
    assert found == 1
results = dse.run(from_text(text), output=False)
assert results.step_time.size == 240
slow, fast = results.pp.isel(scale_out=0), results.pp.isel(scale_out=-1)
assert (slow >= fast).all() and (slow > fast).mean() > 0.6
results.sizes

# %% [markdown]
# ## Where the time goes
#
# One panel an axis, the others as at the fastest machine. Every bar is the best mapping of its machine, so that
# mappings change along an axis too: to pipelines, for instance, where the network is slow.

# %%
plot.shares(results)

# %% [markdown]
# ## What bounds the step as the node moves on
#
# The time of the layers above is computing and moving data through memory at once; the parts of a step do not tell
# which. Elasticities do: if one per cent more memory bandwidth makes the step 0.2 % shorter, memory bounds a fifth of
# it. Along the nodes, with HBM3 of 5.2 Gbit/s a pin and a network of 400 Gbit/s held and each machine at its best
# mapping (the cores' rate is the clock, with which matrix units, vector units and caches run):

# %%
CHIP = "system.accelerator.chip"
MAPPING = ("tp", "pp", "dp", "micro_batch", "virtual_stages", "recompute", "zero_stage")
FLAGS = ("sequence_parallel", "overlap_dp", "overlap_tp")


def machine(point):
    """The design at one point of the results: the generated accelerator and its best mapping."""
    made = dse.design(
        workload="gpt-3-175b",
        system="eos",
        software="megatron-core-te-hopper",
        n_devices=1024,
        precision="bf16",
        global_batch=2048,
        **{name: point[name].item() for name in MAPPING},
        **{name: float(point[name]) for name in FLAGS},
    )
    made = replace(
        made,
        {
            "system.accelerator": catalog.record(types.Accelerator, "gpu"),
            "system.scale_out": catalog.record(types.Network, point.scale_out.item()),
        },
    )
    told = [c for c in point.coords.values() if c.ndim == 0 and c.attrs.get("path", "").startswith(CHIP)]
    stated = {c.attrs["path"]: c.item() for c in told}
    technology = {
        f"{CHIP}.node": catalog.record(types.LogicNode, point.node.item()),
        f"{CHIP}.memory": catalog.record(types.MemoryTechnology, point.memory.item()),
    }
    return replace(made, technology | stated)


BOUNDS = {
    "cores": ["chip.clock_ratio"],
    "memory": ["chip.memory.unit_bandwidth"],
    "network in the node": ["scale_up.bandwidth"],
    "network between nodes": ["scale_out.bandwidth"],
}


def bounds(point):
    """Share of the step that each of the rates bounds: minus its elasticity."""
    slopes = {e.parameter: -e.elasticity for e in elasticities(machine(point))}
    shares = {name: sum(slopes.get(leaf, 0.0) for leaf in leaves) for name, leaves in BOUNDS.items()}
    return shares | {"latencies and launches": 1.0 - sum(shares.values())}


held = results.sel(memory="hbm3-5-2", scale_out="infiniband-ndr", chip_clock_ratio=1.0)
agree = float(dse.evaluate(machine(held.sel(node="n5"))).step_time / held.step_time.sel(node="n5"))
assert abs(agree - 1.0) < 1e-3, "the same design as in the sweep"
bound = pd.DataFrame({str(node): bounds(held.sel(node=node)) for node in held.node.values}).T
bound.round(2)

# %%
axes = bound.plot.barh(stacked=True, color=shades(len(bound.columns)), figsize=(6.5, 2.8))
axes.invert_yaxis()
axes.set(xlim=(0, 1), xlabel="share of the step that it bounds", title="GPT-3-175B, HBM3 and 400 Gbit/s held")
axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %%
network = bound["network in the node"] + bound["network between nodes"]
peaks = [float(generate(machine(held.sel(node=node)).system.accelerator).matrix_rate.bf16) for node in bound.index]
assert 0.85 < bound.cores.iloc[0] < 0.95 and bound.cores.iloc[-1] < 0.45
assert bound.memory.iloc[-1] + network.iloc[-1] > 0.5 and 6.5 < peaks[-1] / peaks[0] < 7.5

# %% [markdown]
# Nine tenths of the step follow the cores in 7 nm. With that memory and that network they are two fifths in the last
# node: the cores are seven times as fast, and memory and network bound more than half.
#
# ## What a generation buys
#
# The speed-up of each step along one axis, the others held: at an old machine and at a new one. Behind an old node a
# new memory or network buys little; behind a new one up to a fifth a generation.

# %%
old = {"node": "n7", "memory": "hbm3-5-2", "scale_out": "infiniband-ndr"}
new = {"node": "extrapolated-a5", "memory": "hbm6", "scale_out": "infiniband-gdr"}
at_full_clock = results.step_time.sel(chip_clock_ratio=1.0)


def speed_ups(axis, others):
    """How many times faster each position of an axis is than the one before."""
    times = at_full_clock.sel({name: at for name, at in others.items() if name != axis})
    return (times.shift({axis: 1}) / times).isel({axis: slice(1, None)}).to_series()


pd.concat(
    {
        axis: pd.DataFrame({"others old": speed_ups(axis, old), "others new": speed_ups(axis, new)})
        for axis in ("node", "memory", "scale_out")
    }
).round(2)

# %%
for axis in ("memory", "scale_out"):
    gains = [speed_ups(axis, others) for others in (old, new)]
    assert gains[0].max() < 1.06 and 1.15 < gains[1].max() < 1.25
on_offer = {}
for name in ("hbm3e-8-0", "hbm4-8-0"):
    point = results.sel(node="n5", memory=name, scale_out="infiniband-ndr", chip_clock_ratio=1.0)
    on_offer[name] = float(generate(machine(point).system.accelerator).memory.bandwidth)
assert 6.1e12 < on_offer["hbm3e-8-0"] < 6.2e12 and 7.6e12 < on_offer["hbm4-8-0"] < 7.8e12

# %% [markdown]
# From HBM4 on power limits memory, not stacks: the budget leaves it 160 W, which at 2.6 pJ a bit move 7.7 of the
# 12.3 TB/s that six stacks of HBM4 have, where HBM3E has all of its 6.1. A chip for HBM4 would share its power out
# anew: `chip.memory_power` is an axis, too.
#
# ## Energy
#
# Every machine draws at most the same power, so that the faster one mostly needs less energy too.

# %%
steps = results[["step_time", "energy_per_step"]].to_dataframe()[["step_time", "energy_per_step"]]
assert steps.corr("spearman").step_time.energy_per_step > 0.9
budget = float(machine(held.sel(node="n5")).system.accelerator.chip.power_budget)
assert results.device_power.max() <= 1.001 * budget

# %%
plot.energy(results)
