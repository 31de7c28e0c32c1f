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
# # Performance against cost: parallelism, networks, chiplets, runs
#
# Questions of money, after the study of performance and cost of arXiv 2507.02456: what do time, cost and FLOPs per
# dollar do over the split of a model, over the topology of the network and over the chiplets of an accelerator? What
# does a run cost in dollars and in carbon? The study's tables are not public, so that its questions are what can be
# laid beside. Prices and yields are those of [docs/cost.md](../docs/cost.md): public estimates, so that ratios say more
# than dollars. From the command line:
#
# ```console
# $ dse run sweeps/parallelism_cost.toml
# $ dse run sweeps/topology_cost.toml
# $ dse run sweeps/topology_cost_torus.toml
# $ dse run sweeps/chiplet_split.toml
# $ dse run sweeps/train_405b_money_carbon.toml
# ```

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse.sweep import from_text
from dse.views import plot
from dse.views.plot.collectives import KINDS, bus_bandwidth, topologies
from dse.views.plot.style import COLUMN, FRONT, PAGE, dash, marker, new_figure, series, shades, style

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent


def swept(name, *changes):
    """The results of a sweep of the repository, with some of its lines changed."""
    text = (root / "sweeps" / f"{name}.toml").read_text()
    for line, instead in changes:
        assert text.count(line) == 1, line
        text = text.replace(line, instead)
    return dse.run(from_text(text), output=False)


# %% [markdown]
# ## Time, cost and FLOPs per dollar
#
# Left: Mixtral-8x22B on 2,048 H100s by tensor and expert parallelism, the best of all else. Middle: the same devices
# behind other networks, each with its cheapest mapping. Right: Llama 3 70B on 64 generated GPUs of 800 mm² in equal
# dies. FLOPs are those of the model; dollars are devices, servers, network, facility and electricity of the time.

# %%
parallel = swept("parallelism_cost")
switched = swept("topology_cost").to_dataframe().reset_index()
torus = swept("topology_cost_torus").to_dataframe().reset_index()
chiplets = swept("chiplet_split", ('packaging = ["fan-out", "silicon", "bridge"]', 'packaging = ["silicon"]'))
chiplets = chiplets.isel(packaging=0)
KINDS_OF_TREE = {1: "fat tree", 2: "dragonfly"}
switched["network"] = (
    switched.pods_detour.map(KINDS_OF_TREE) + " " + switched.pods_oversubscription.map("{:.0f}:1".format)
)
torus["network"] = "torus " + (1e-9 * torus.scale_up_bandwidth).map("{:.0f} GB/s".format)
networks = pd.concat([switched, torus]).set_index("network")


def with_value(table):
    """A table with FLOPs of the model per dollar: of a step, over what its tokens cost."""
    dollars = table.cost_per_token * table.tokens_per_second * table.step_time
    return table.assign(exaflop_per_dollar=1e-18 * table.model_flops / dollars)


METRICS = {
    "step_time": "step time (s)",
    "cost_per_run": "run (thousand USD)",
    "exaflop_per_dollar": "EFLOP per USD",
}
mappings = with_value(parallel.where(parallel.feasible).to_dataframe().reset_index())
by_split = mappings.loc[mappings.groupby(["tp", "ep"]).cost_per_run.idxmin()].set_index(["tp", "ep"])
networks = with_value(networks)
split = with_value(
    chiplets.where(chiplets.feasible).sel(chip_die_area=0.0008).to_dataframe().dropna(subset=["step_time"])
)
with style():
    figure = new_figure(PAGE, 5.4)
    grid = figure.subplots(3, 3, sharex="col")
    for row, (metric, label) in zip(grid, METRICS.items(), strict=True):
        factor = 1e-3 if metric == "cost_per_run" else 1.0
        for ep, looks in series([f"ep {ep}" for ep in by_split.index.unique("ep")]).items():
            line = factor * by_split.xs(int(ep.split()[1]), level="ep")[metric]
            row[0].plot([str(tp) for tp in line.index], line, label=ep, linewidth=1.2, markersize=4, **looks)
        for kind, colour in zip(("fat tree", "dragonfly", "torus"), shades(3), strict=True):
            line = factor * networks[networks.index.str.startswith(kind)][metric]
            row[1].bar(
                [name.replace("dragonfly", "drag.").removeprefix("fat ") for name in line.index],
                line,
                0.7,
                color=colour,
                label=kind,
            )
        for node, looks in series([str(node).upper() for node in chiplets.node.values]).items():
            line = factor * split.xs(node.lower(), level="node")[metric]
            row[2].plot(line.index, line, label=node, linewidth=1.2, markersize=4, **looks)
        row[0].set_ylabel(label)
        row[2].set_xscale("log")
    for axes, label in zip(grid[-1], ("tensor parallelism (tp)", "network", "compute dies"), strict=True):
        axes.set_xlabel(label)
    grid[-1, 1].tick_params(axis="x", rotation=90, labelsize=6)
    grid[-1, 2].set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
    grid[-1, 2].minorticks_off()
    for axes, title in zip(
        grid[0], ("Mixtral-8x22B, 2,048 H100", "the same, networks", "Llama 3 70B, 64 GPUs"), strict=True
    ):
        axes.set_title(title)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.45 * (high - low))
        axes.legend(loc="upper center", ncols=2, columnspacing=0.8, handlelength=1.8)
figure

# %%
cheapest_split = mappings.loc[mappings.cost_per_run.idxmin()]
assert cheapest_split.cost_per_run == mappings.cost_per_run.min() and by_split.exaflop_per_dollar.idxmax()[1] == 8
assert np.allclose(
    by_split.exaflop_per_dollar * by_split.cost_per_run,
    by_split.exaflop_per_dollar.iloc[0] * by_split.cost_per_run.iloc[0],
    rtol=1e-3,
)
best = pd.DataFrame(
    {
        "best": [
            "tp {tp:.0f}, pp {pp:.0f}, ep {ep:.0f}".format(**cheapest_split),
            networks.exaflop_per_dollar.idxmax(),
            "{} of {} dies".format(*split.exaflop_per_dollar.idxmax()),
        ],
        "EFLOP per USD": [one.exaflop_per_dollar.max() for one in (by_split, networks, split)],
        "times the worst": [
            one.exaflop_per_dollar.max() / one.exaflop_per_dollar.min() for one in (by_split, networks, split)
        ],
    },
    index=["parallelism", "network", "chiplets"],
)
assert best["times the worst"].idxmax() == "parallelism"
best.round(2)

# %% [markdown]
# On one machine time and money are proportional, so that the fastest mapping is the cheapest; how a model is split
# moves both more than network or chiplets do. Networks and dies trade: the fastest is not what buys most FLOPs.
#
# ## One die, or many
#
# The compute area of a GPU of 400 to 1,600 mm², in four processes, on a silicon interposer: what dies, package and
# what is lost with bad ones cost, by the number of equal dies. More dies yield better; each has links to its neighbours
# (four dies of 200 mm² a tenth of their area), PHYs that face other dies, and another bond that may fail.

# %%
made = (chiplets.device_cost_dies + chiplets.device_cost_package + chiplets.device_cost_lost).where(chiplets.feasible)
with style():
    figure = new_figure(PAGE, 2.7)
    panels = figure.subplots(1, made.sizes["chip_die_area"])
    for axes, area in zip(panels, made.chip_die_area.values, strict=True):
        for i, (node, colour) in enumerate(zip(made.node.values, shades(made.sizes["node"]), strict=True)):
            line = made.sel(node=node, chip_die_area=area).to_series().dropna()
            axes.plot(
                line.index,
                line,
                color=colour,
                linestyle=dash(i),
                marker=marker(i),
                markersize=3,
                linewidth=1.2,
                label=str(node).upper(),
            )
            axes.plot(line.idxmin(), line.min(), "o", markersize=8, markerfacecolor="none", color=FRONT)
        axes.set(xscale="log", xlabel="compute dies", title=f"{1e6 * area:,.0f} mm²", ylim=(0, None))
        axes.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
        axes.minorticks_off()
    panels[0].set_ylabel("dies, package and losses (USD)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, title="process; ○: cheapest")
figure

# %%
cheapest = made.to_dataframe("cost").cost.unstack("made_chiplets")
counts = cheapest.idxmin(axis=1).unstack("chip_die_area").loc[made.node.values]
counts.columns = [f"{1e6 * area:,.0f} mm²" for area in counts]
assert list(counts["400 mm²"]) == [1, 1, 2, 2] and list(counts["800 mm²"]) == [2, 2, 3, 3]
assert list(counts["1,600 mm²"]) == [3, 3, 4, 4]
saved = (1 - cheapest.min(axis=1) / cheapest[1]).xs(0.0008, level="chip_die_area")
assert saved["n7"] < 0.02 and 0.12 < saved["n2"] < 0.14
flat = made.sel(node="n2", chip_die_area=0.0008)
assert float(flat.sel(made_chiplets=[2, 4]).max() / flat.min()) < 1.02 and float(flat[-1] / flat.min()) > 1.4
counts

# %% [markdown]
# The cheapest split grows with area and with how young the process is: 400 mm² of N7 stay whole, 800 mm² of N2 cost
# 13 % less as three dies. Two and four are within 2 % of three, sixteen cost 40 % more. Whole dies are not as bad as
# the yield of their area: cores that fail are switched off, as in chips that are sold. Makers choose two to four.
#
# ## Which network
#
# Mixtral-8x22B on 2,048 H100s: a fat tree whose top is thinned, dragonflies, and a 3D torus in place of nodes and
# switches, each with its cheapest mapping.

# %%
networks["price"] = networks.capital_cost / 1e6
networks["network_price"] = (networks.capital_cost_scale_up + networks.capital_cost_scale_out) / 1e6
ordered = networks.sort_values(["price", "step_time"])
front = ordered[ordered.step_time < ordered.step_time.cummin().shift(fill_value=np.inf)]

with style():
    figure = new_figure(COLUMN, 3.0)
    axes = figure.subplots()
    axes.step(front.price, front.step_time, where="post", color=FRONT, linewidth=1.0, label="Pareto front")
    for i, (kind, colour) in enumerate(zip(("fat tree", "dragonfly", "torus"), shades(3), strict=True)):
        rows = networks[networks.index.str.startswith(kind)]
        axes.plot(rows.price, rows.step_time, marker(i), color=colour, markersize=5, label=kind)
        for name, row in rows.iterrows():
            if kind != "dragonfly":
                axes.annotate(
                    name.removeprefix(kind),
                    (row.price, row.step_time),
                    textcoords="offset points",
                    xytext=(-4, -11) if kind == "torus" else (2, 4),
                    fontsize=7,
                )
    axes.set(
        xlabel="price of the system (million USD)",
        ylabel="step time (s)",
        title="Mixtral-8x22B on 2,048 H100",
    )
    axes.legend()
figure

# %%
columns = ["step_time", "price", "network_price", "cost_per_run", "tp", "pp", "ep"]
tree, thin = networks.loc["fat tree 1:1"], networks.loc["fat tree 4:1"]
assert thin.step_time / tree.step_time < 1.006 and 0.04 < 1 - thin.cost_per_run / tree.cost_per_run < 0.05
assert networks.loc["fat tree 8:1"].cost_per_run > thin.cost_per_run and networks.loc["fat tree 8:1"].ep == 4
fast, slow = networks.loc["torus 450 GB/s"], networks.loc["torus 150 GB/s"]
assert 1.02 < fast.step_time / tree.step_time < 1.06 and abs(fast.cost_per_run / thin.cost_per_run - 1) < 0.025
assert slow.price == networks.price.min() and slow.cost_per_run == networks.cost_per_run.max()
assert (networks.network_price / networks.price).max() < 0.12
networks[columns].round({"step_time": 3, "price": 1, "network_price": 1, "cost_per_run": 0})

# %% [markdown]
# Networks are at most 12 % of what is bought, so that a slow one is dear: the torus of 150 GB/s is the cheapest system
# and the dearest run. Experts stay within nodes, so that three quarters of the top of the tree can go, for 0.3 % of
# time and more than 4 % less money; clusters thin their trees likewise. A torus as fast as the NVLinks costs less to
# buy; what experts exchange crosses it many times: in a shape that suits its mapping it is 4 % slower than the tree,
# and its run costs 2 % more than that of the thinned one.
#
# ## What each does to a message
#
# The bandwidth that a collective reaches (in the convention of nccl-tests), by its size and the topology, within a
# node or slice of eight devices and among 256: `dse plot --kind collectives` draws the same.

# %%
plot.collectives()

# %%
SYSTEMS, LARGE = topologies(), np.array([1e9])
rates = pd.DataFrame(
    {
        (kind.name, devices): {
            name: 1e-9 * float(bus_bandwidth(system, kind, devices, LARGE)[0]) for name, system in SYSTEMS.items()
        }
        for kind in KINDS
        for devices in (8, 256)
    }
)
gather, exchange = rates["all_gather"], rates["all_to_all"]
assert exchange.loc["tree 4:1 (H100)", 256] < 0.5 * exchange.loc["switch (H100)", 256]
assert gather.loc["tree 4:1 (H100)", 256] == gather.loc["switch (H100)", 256]
assert (exchange[256] < 0.5 * gather[256]).all() and exchange.loc["torus (TPU v4)", 256] < 60
assert rates["all_reduce"].loc["switch (H100)", 8] > 1.2 * gather.loc["switch (H100)", 8]
rates.round(0)  # GB/s, messages of 1 GB

# %% [markdown]
# A ring that fills its leaves crosses a thinned tree once and does not notice; an all-to-all gets what the top leaves
# it. The torus keeps rings fast among 256 devices, where its bisection holds exchanges back as a switch's own links
# out of the node do. NVLink 4 sums in the switch, so that an all-reduce takes less than two passes of a ring.
#
# ## Dollars and carbon of a run
#
# Llama-3.1-405B on 15 T tokens: 8,192 devices of four kinds, two grids, failures included.

# %%
run = swept("train_405b_money_carbon").to_dataframe().reset_index()
run["device"] = run.accelerator.str.split("-").str[0].str.upper()
run["grid"] = np.where(run.emissions_grid > run.emissions_grid.mean(), "USA", "hydropower")
PARTS = {  # part → colour, hatch
    "devices": ("#0e306e", ""),
    "servers": ("#1476de", ""),
    "scale_up": ("#589abc", "xxxxx"),
    "scale_out": ("#c94804", "/////"),
    "facility": ("#594c70", ""),
    "maintenance": ("#a6905e", ""),
    "electricity": ("#076344", "....."),
}
usa = run[run.grid == "USA"].set_index("device")
million = pd.DataFrame({part: usa[f"cost_per_run_{part}"] / usa.goodput_fraction / 1e6 for part in PARTS})
tonnes = run.pivot(index="device", columns="grid", values="carbon_per_run").loc[usa.index] / 1e3
with style():
    figure = new_figure(PAGE, 2.6)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    bottom = 0.0
    for part, (colour, hatch) in PARTS.items():
        left.bar(
            million.index,
            million[part],
            0.6,
            bottom=bottom,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.0,
            label=part.replace("_", "-"),
        )
        bottom = bottom + million[part]
    for place, (device, total) in enumerate(bottom.items()):
        days = usa.run_time_with_failures[device] / 86400
        left.annotate(f"{days:.0f} days", (place, total), xytext=(0, 3), textcoords="offset points", ha="center")
    left.set(ylabel="million USD a run", ylim=(0, 1.12 * bottom.max()))
    left.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    for place, (grid, colour, hatch) in enumerate((("USA", "#1476de", ""), ("hydropower", "#076344", "....."))):
        right.bar(
            np.arange(4) + 0.4 * place - 0.2,
            tonnes[grid],
            0.38,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.0,
            label=grid,
        )
    right.set_xticks(np.arange(4), tonnes.index)
    right.set(ylabel="t CO2 a run, machines included", ylim=(0, 1.3 * tonnes.max().max()))
    right.legend(loc="upper center", ncols=2, columnspacing=1.0)
    figure.suptitle("Llama-3.1-405B on 15 T tokens, 8,192 devices")
figure

# %%
hours = 8192 * usa.run_time_with_failures["H100"] / 3600 / 1e6
assert 0.7 < hours / 30.84 < 0.95 and usa.recompute["H100"] == "full" and usa.recompute_share["H100"] <= 0.5
total = million.sum(axis=1)
assert list(total.sort_values().index[2:]) == ["H200", "H100"] and usa.step_time.idxmin() == "B200"
assert 0.9 < total["MI300X"] / total["B200"] < 1.1 and total["H200"] / total["B200"] > 1.15
assert usa.device_price["MI300X"] < 0.4 * usa.device_price["B200"]
dear = million.div(total, axis=0)
assert dear.devices[["H100", "H200", "B200"]].between(0.4, 0.55).all() and dear.electricity.max() < 0.07
hydropower = run[run.grid == "hydropower"].set_index("device")
embodied = hydropower[["carbon_per_run_devices", "carbon_per_run_servers"]].sum(axis=1)
assert (tonnes.hydropower / tonnes.USA).between(0.08, 0.1).all()
assert (embodied / 1e3 / tonnes.hydropower).between(0.2, 0.3).all()
assert 8.5 < tonnes.USA["H100"] / 1e3 < 12.0 and 0.47 < usa.mfu["H100"] < 0.53
print(f"{hours:.1f} million GPU hours, {tonnes.USA['H100'] / 1e3:.1f} thousand tonnes on H100")
pd.DataFrame({"million USD": total, "USD a device hour": usa.cost_per_device_hour, "MFU": usa.mfu}).round(2)

# %% [markdown]
# On H100 the run takes less than the published 30.84 million GPU hours, by 5 to 30 %, at half of the peak
# (published: 38 to 41 %), some of the layers recomputed because 80 GB ask for it, and emits some ten thousand tonnes
# on the grid of the USA. Devices are about half of the money, electricity less than 7 %: price and speed of the chip
# decide. MI300X costs what B200 does, within a tenth, because it is sold for less than two fifths of its price, on a
# stack that nobody has measured. The grid decides carbon, not money: hydropower emits less than a tenth, and then
# making the machines is a quarter of it.
