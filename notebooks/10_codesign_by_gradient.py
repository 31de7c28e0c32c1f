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
# # Co-design by gradient
#
# Which chip trains most tokens a dollar, with at most 1 kW a device? Twelve numbers describe it: the shares of its
# power and area that go to cores, cache, memory and links, the size of its die, its chiplets, stacks and clock. A grid
# of ten values each would be 10¹² chips, each with a best mapping of its own. A search can take the slope along each of
# them from a perturbed run of the model; here the model gives the gradient itself, through the price of making the
# chip, of what surrounds it and of what it draws.
#
# A chip $h$ is worth what its best mapping $m$ makes of it, $F(h) = \min_m f(h, m)$ dollars a token. Where the best
# mapping $m^*$ stays the best, the gradient of this minimum is that of the one mapping,
# $\nabla F(h) = \nabla_h f(h, m^*)$ (envelope theorem): all mappings are evaluated, one is differentiated.
#
# `dse search sweeps/codesign_cost.toml` searches. With what its starts met on the way, which the figures draw, it is
# `python -m benchmarks.search.trajectory docs/codesign_cost.json`, a minute or two. That file is read here, and
# checked against the model as it is now.

# %%
# %matplotlib inline
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse.designs import leaf, leaf_path, replace, short_name
from dse.optimizers import plan
from dse.sweep import from_text
from dse.views.plot.style import COLUMN, FRONT, INK, PAGE, PALE, new_figure, style

root = Path.cwd() if Path("sweeps").is_dir() else Path.cwd().parent
record = json.loads((root / "docs" / "codesign_cost.json").read_text())
file = root / "sweeps" / "codesign_cost.toml"
base = plan(file).grid.base
found = replace(base, record["design"])


def tokens(design):
    """Tokens a dollar of one design."""
    return float(dse.evaluate(design).tokens_per_cost)


assert math.isclose(tokens(found), record["report"]["value"], rel_tol=1e-4), "of another model: make the record anew"
chip = {row["name"]: row["value"] for row in record["report"]["hardware"]}
pd.Series(chip, name=f"{tokens(found) / 1e6:.2f} million tokens a dollar").round(4)

# %% [markdown]
# ## Twelve starts
#
# Each line is the best that a start has met up to a step; the dotted one is the best of as many random chips as the
# same evaluations of the model pay for.

# %%
reached = np.maximum.accumulate(np.array(record["reached"]), axis=1) / 1e6
ends, luck, chips = reached[:, -1], record["random"]["best"] / 1e6, record["random"]["chips"]
with style():
    figure = new_figure(COLUMN, 2.8)
    axes = figure.subplots()
    for line in reached:
        axes.plot(line, color=PALE, linewidth=0.8)
    axes.plot(reached[record["best_start"]], color=FRONT, linewidth=1.6, label="best of twelve starts")
    axes.axhline(luck, color=INK, linestyle=":", label=f"best of {chips:,} random chips")
    axes.set(
        xlabel="step of the search",
        ylabel="million tokens a dollar",
        xlim=(0, None),
        ylim=(0, 6.5),
        title="Llama-3-70B on 64 devices of up to 1 kW",
    )
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.06))
figure

# %%
stuck = ends < 0.5 * ends.max()
at_end = {name: np.array(values) for name, values in record["ends"].items()}
assert ends.size == 12 and stuck.sum() == 3 and (ends > 0.97 * ends.max()).sum() == 8
assert 0.88 * ends.max() < ends[~stuck].min() < 0.9 * ends.max()
assert 1.55 < ends.max() / luck < 1.65
assert (at_end["chip.core_power"][stuck] < 0.15).all() and (at_end["chip.core_power"][~stuck] > 0.7).all()
assert np.isclose(at_end["chip.die_area"][stuck], 2400e-6, rtol=1e-3).all()
assert (at_end["chip.power_budget"][stuck] < 440).all()

# %% [markdown]
# The best chip trains 1.6 times as many tokens a dollar as the best random one. Eight of the starts end within 3 % of
# it, one at 89 %; three are stuck at less than half. Those give their cores less than 15 %
# of the power, on the largest die allowed and with some 380 W. A little more power for the cores changes nothing
# there, so that the gradient is silent: several starts are what a search by gradient has against such plateaus.
#
# ## Is the gradient right?
#
# Per cent of tokens a dollar for one per cent more of a leaf: the gradient at the chip that was found, and what 0.2 %
# less and 0.2 % more of it change when the model is evaluated anew.

# %%
STEP = 2e-3
slopes = {row["leaf"]: row["elasticity"] for row in record["report"]["elasticities"]}
middle = math.log(tokens(found))
rows = {}
for path in (path for path in record["design"] if short_name(path) in slopes):
    near = [math.log(tokens(replace(found, {path: record["design"][path] * (1 + way * STEP)}))) for way in (-1, 1)]
    rows[short_name(path)] = {
        "less": (near[0] - middle) / math.log(1 - STEP),
        "gradient": slopes[short_name(path)],
        "more": (near[1] - middle) / math.log(1 + STEP),
    }
checked = pd.DataFrame(rows).T.sort_values("gradient", ascending=False)
checked.round(4)

# %%
apart = checked.less - checked.more
smooth = checked[apart.abs() < 0.01]
assert {"chiplets", "chip.cache_area", "chip.link_power"} <= set(smooth.index)
for side in ("less", "more"):
    assert np.allclose(smooth[side], smooth.gradient, rtol=0.05, atol=1e-4)
kinks = checked[apart.abs() > 0.05]
assert set(kinks.index) == {
    f"chip.{name}" for name in ("power_budget", "core_power", "core_area", "memory_area", "stacks")
}
of_a_side = kinks.drop("chip.core_area")
nearest = (of_a_side.sub(of_a_side.gradient, axis=0)[["less", "more"]]).abs().min(axis=1)
assert (nearest < 2e-3).all()
assert (kinks.less > kinks.more)[["chip.power_budget", "chip.core_power"]].all()
assert 0.12 < -kinks.less["chip.stacks"] < 0.15 and abs(kinks.more["chip.stacks"]) < 1e-3
at_most = ("power_budget", "core_area", "clock_ratio")
assert record["report"]["active"] == [f"chip.{name} at its most" for name in at_most]

# %% [markdown]
# Where the model is smooth the three agree to 5 %. At the others the chip sits on a kink, where two limits meet, and
# the gradient is the slope to one side. More stacks than these, say, have no room, and fewer gain a little by what they
# leave for the cores' price. Power, of the chip or of its cores, gains less than as much less of it loses. More area
# for the cores moves two limits at once, theirs and that of the stacks, and the gradient sees one of them. The split is
# flat: a per cent more than four dies changes nothing that can be seen.
#
# ## Beside a grid
#
# The same question by `dse.run`, which knows nothing of the search: the chip that was found with other shares of area
# and power for its cores, memory taking what power they leave, and for each of these chips all mappings.

# %%
CORES, POWER = "chip.core_area", "chip.core_power"
UNITS = {"chip.die_area": "m^2", "chip.power_budget": "W"}
text = file.read_text()
text = text[: text.index("[codesign]")] + '[output]\nkeep = "best"\n'


def swept(chip, areas, powers):
    """Tokens a dollar of a chip with these shares for its cores, each with its best mapping."""
    both = chip[POWER] + chip["chip.memory_power"]
    rest = {name: value for name, value in chip.items() if name not in (CORES, POWER, "chip.memory_power")}
    told = "\n".join(
        f'{name.replace("chiplets", "made.chiplets")} = "{value!r} {UNITS[name]}"'
        if name in UNITS
        else f"{name.replace('chiplets', 'made.chiplets')} = {value!r}"
        for name, value in rest.items()
    )
    axes = {CORES: areas, POWER: powers, "chip.memory_power": both - np.asarray(powers)}
    listed = "\n".join(f'"{name}" = {np.asarray(values).tolist()}' for name, values in axes.items())
    asked = text.replace("[software]", f"{told}\n\n[software]").replace("[axes]", f"[axes]\n{listed}")
    asked = asked.replace("groups = [", f'groups = [["{POWER}", "chip.memory_power"], ')
    results = dse.run(from_text(asked), output=False).squeeze("workload")
    return results.tokens_per_cost.where(results.feasible) / 1e6


less = chip[POWER] * (1 - STEP)
areas = np.append(np.linspace(0.30, 0.82, 14), chip[CORES])
powers = np.sort(np.append(np.linspace(0.25, 0.90, 25), [less, chip[POWER]]))
grid = swept(chip, areas, powers)
way = {name: np.array(values) for name, values in record["way"].items()}
with style():
    figure = new_figure(COLUMN, 3.0)
    axes = figure.subplots()
    levels = np.arange(2.0, 6.1, 0.5)
    filled = axes.contourf(grid.chip_core_power, grid.chip_core_area, grid, levels=levels, cmap="Blues", extend="min")
    figure.colorbar(filled, label="million tokens a dollar", ticks=levels[::2])
    axes.plot(way[POWER], way[CORES], color=FRONT, linewidth=1.2, marker=".", markersize=3, label="best start")
    axes.plot(
        chip[POWER], chip[CORES], "*", color=FRONT, markersize=11, markeredgecolor="white", label="chip that was found"
    )
    axes.set(xlabel="cores' share of the power", ylabel="cores' share of the area", xlim=(0.25, 0.9), ylim=(0.3, 0.87))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
figure

# %%
held = checked.less[POWER] * math.log(less / chip[POWER])
assert "chip.memory_power" not in slopes, "its stacks, not its power, bound the bandwidth"
anew = math.log(float(grid.sel(chip_core_area=chip[CORES], chip_core_power=less)) / tokens(found) * 1e6)
best = grid.argmax(...)
for start in np.flatnonzero(stuck):
    one = {name: float(values[start]) for name, values in at_end.items()}
    flat = swept(one, [one[CORES]], [one[POWER], 1.05 * one[POWER]]).values.ravel()
    assert math.isclose(*flat, rel_tol=1e-3), "a plateau"
assert grid.size == 405 and areas[int(best["chip_core_area"])] == chip[CORES]
assert powers[int(best["chip_core_power"])] == chip[POWER]
assert math.isclose(grid.max(), tokens(found) / 1e6, rel_tol=1e-5)
assert held < 0.0 and math.isclose(held, anew, rel_tol=0.1)

# %% [markdown]
# The chip that was found is the best of all 405 of the grid, which is a slice through it: along the path of the best
# start the other numbers change too. The grid chooses mappings anew. Where 0.2 % of the cores' power goes to memory, it
# loses what the slope of the one mapping to that side says, next to nothing.
#
# ## What the chip spends its power and area on
#
# Beside it the shares of the catalogue's GPU, with which the generator comes near A100, H100, B200 and MI300X
# ([docs/technology.md](../docs/technology.md)), on a chip that is otherwise the same.

# %%
usual = chip | {
    name: float(leaf(base, leaf_path(name)))
    for name in chip
    if name.endswith(("_area", "_power")) and name != "chip.die_area"
}
PARTS = {
    "cores": ("#0e306e", ""),
    "memory": ("#076344", "....."),
    "links": ("#c94804", "/////"),
    "cache": ("#1476de", ""),
    "other": ("#a6905e", ""),
}


def split(chip):
    """Shares of the area, and of the power."""
    beside = 1 - chip[CORES]
    area = {
        "cores": chip[CORES],
        "memory": beside * chip["chip.memory_area"],
        "links": beside * chip["chip.link_area"],
        "cache": beside * chip["chip.cache_area"],
    }
    power = {"cores": chip[POWER], "memory": chip["chip.memory_power"], "links": chip["chip.link_power"]}
    return {"area": area | {"other": 1 - sum(area.values())}, "power": power | {"other": 1 - sum(power.values())}}


shares = {name: split(one) for name, one in (("found", chip), ("catalogue", usual))}
with style():
    figure = new_figure(PAGE, 1.9)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, what in zip(panels, ("area", "power"), strict=True):
        for row, parts in enumerate(shares.values()):
            left = 0.0
            for name, share in parts[what].items():
                colour, hatch = PARTS[name]
                axes.barh(
                    row, 100 * share, 0.6, left, color=colour, hatch=hatch, edgecolor="white", linewidth=0.0, label=name
                )
                left += 100 * share
        axes.set(xlabel=f"{what} (%)", xlim=(0, 100))
    panels[0].set_yticks(range(2), shares)
    panels[0].invert_yaxis()
    known = dict(zip(*panels[0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(known.values(), known, loc="outside lower center", ncols=5)
figure

# %%
rounded = {row["stacks"]: row["loss"] for row in record["whole_stacks"]}
compared = pd.Series(
    {
        name: swept(one, [one[CORES]], [one[POWER]]).item()
        for name, one in (
            ("found", chip),
            ("with 2 stacks", chip | {"chip.stacks": 2.0}),
            ("with the catalogue's shares", usual),
        )
    },
    name="million tokens a dollar",
)
first = reached[record["best_start"]]
assert 0.38 < first[0] / compared["found"] < 0.41 and 0.5 < first[1] / compared["found"] < 0.53
assert math.isclose(compared["found"] / compared["with 2 stacks"] - 1, rounded[2], rel_tol=0.01)
assert 0.029 < 1 - 1 / (1 + rounded[3]) < 0.032 and 0.08 < 1 - 1 / (1 + rounded[2]) < 0.084
assert 1.2 < compared["found"] / compared["with the catalogue's shares"] < 1.25
assert 0.64 < shares["found"]["area"]["cores"] <= 0.65 and 0.025 < shares["found"]["power"]["links"] < 0.035
assert 0.785 < shares["found"]["power"]["cores"] < 0.805 and shares["found"]["power"]["memory"] < 0.13
assert usual["chip.link_power"] > 0.09 and chip["chip.clock_ratio"] > 0.999
compared.round(2)

# %% [markdown]
# The search gives the cores 65 % of the area, nearly as much as it may, and 80 % of the power. They take it from memory
# and links: this model on 64 devices needs 3 % of the power in links, where the catalogue's shares have 10 %.
# That is worth 22 % more tokens a dollar than the catalogue's shares. The best start began with a chip that trains
# 39 % as many, and its first step led to one that trains 51 %.
#
# A chip has whole stacks. Three find room where memory takes area from the rest, for 3 % fewer tokens a dollar; with
# two this one trains 8.2 % fewer. `dse search --whole-stacks` reports the better of those that can be built. The
# catalogue calls 50 to 65 % of the area plausible for cores, which is the bound: the rest holds the network on chip,
# the front end and PHYs.
