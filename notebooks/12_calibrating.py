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
# # Calibrating on one's own measurements
#
# A stack that nobody has measured gets what stacks on its chips share. With a table of measured steps it gets values of
# its own. How much better are predictions then, and do the intervals keep what they promise?
#
# No measurement is used here: the "measured" steps are those of a stack with other slow-downs than the catalogue's,
# with 2 % of noise, so that the true values are known. Real steps differ from any model by more than noise: the
# errors after calibration are a lower bound of what to expect ([docs/calibration.md](../docs/calibration.md)).

# %%
# %matplotlib inline
import itertools
import os
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd

import dse
from dse.designs import catalog
from dse.lab.fits import jobs
from dse.views.plot.style import COLUMN, FRONT, INK, PALE, new_figure, style
from dse.views.plot.ticks import plain_ticks

folder = Path(tempfile.mkdtemp())
stacks = folder / "my_catalog" / "software"  # a catalogue of one's own: a copy of the nearest stack
stacks.mkdir(parents=True)
nearest = catalog.catalog_root() / "software" / "megatron-core-te.toml"
(stacks / "our-stack.toml").write_text(nearest.read_text().replace(nearest.stem, "our-stack"))
os.environ["DSE_CATALOG"] = str(folder / "my_catalog")

TRUTH = {"matrix_slowdown": 1.18, "communication_slowdown": 1.7, "elementwise_slowdown": 1.9}
FIXED = {"global_batch": 512, "zero_stage": 1, "overlap_dp": 1, "overlap_tp": 0, "precision": "bf16"}
MAPPINGS = {"llama-3-8b": ((1, 2, 4), (1,)), "llama-3-70b": ((4, 8), (2, 4, 8)), "gpt-3-175b": ((8,), (4, 8, 16))}
random = np.random.default_rng(1)


def step_time(row):
    """Seconds of a step of the true stack; nothing where it cannot run."""
    named = {"n_gpus": "n_devices", "vp": "virtual_stages", "seq_parallel": "sequence_parallel"}
    told = {named.get(name, name): value for name, value in row.items()}
    metrics = dse.evaluate(dse.design(told.pop("model"), told.pop("system"), told.pop("software"), **told, **TRUTH))
    return float(metrics.step_time) if metrics.feasible else None


cases = [
    {
        "model": model,
        "system": "eos",
        "software": "our-stack",
        "n_gpus": devices,
        "seq_len": tokens,
        "tp": tp,
        "pp": pp,
        "vp": 1,
        "micro_batch": micro_batch,
        "recompute": recompute,
        "seq_parallel": int(tp > 1),
        **FIXED,
    }
    for model, (tps, pps) in MAPPINGS.items()
    for tp, pp, micro_batch, devices, tokens, recompute in itertools.product(
        tps, pps, (1, 2), (128, 512), (2048, 8192), ("full", "selective")
    )
]
cases = [cases[place] for place in random.permutation(len(cases))[:54]]
timed = [row | {"iteration_s_measured": time} for row in cases if (time := step_time(row))][:48]
table = pd.DataFrame(timed)
table["iteration_s_measured"] *= np.exp(0.02 * random.standard_normal(len(table)))
table["source"] = ["spring", "autumn"] * (len(table) // 2)
table[:24].to_csv(folder / "measured.csv", index=False)  # what is fitted to
table[24:].to_csv(folder / "unseen.csv", index=False)  # what is not
table[["model", "n_gpus", "seq_len", "tp", "pp", "micro_batch", "recompute", "iteration_s_measured"]].head(4)

# %% [markdown]
# `dse predict unseen.csv -o predicted.csv --uncertainty` before, `dse calibrate measured.csv -o fitted.toml --catalog
# my_catalog`, and `dse predict` again:


# %%
def predicted():
    """Predictions of the unseen rows, with the ends of their 80 % intervals."""
    return dse.predict(folder / "unseen.csv").to_dataframe()


before = predicted()
jobs.run([folder / "measured.csv"], 0, folder / "fitted.toml", folder / "my_catalog")
after = predicted()


def judged(found):
    """Errors and intervals of predictions."""
    measured = found.iteration_s_measured
    inside = measured.between(found.pred_step_time_low, found.pred_step_time_high)
    return {
        "mean error (%)": 100 * (found.pred_step_time / measured - 1).abs().mean(),
        "largest error (%)": 100 * (found.pred_step_time / measured - 1).abs().max(),
        "half an interval (%)": 100 * (found.pred_step_time_high / found.pred_step_time - 1).mean(),
        "rows inside": inside.sum(),
    }


told = pd.DataFrame({"before": judged(before), "after": judged(after)}).T
told.round(1)

# %%
with style():
    figure = new_figure(COLUMN, 3.0)
    axes = figure.subplots()
    for name, found, mark, colour in (("before", before, "s", PALE), ("after", after, "o", FRONT)):
        measured = found.iteration_s_measured
        middle, low, high = (found[f"pred_step_time{end}"] / measured for end in ("", "_low", "_high"))
        axes.errorbar(
            measured * (0.98 if name == "before" else 1.02),
            middle,
            [middle - low, high - middle],
            fmt=mark,
            color=colour,
            markersize=3,
            linewidth=0.8,
            label=name,
        )
    axes.axhline(1.0, color=INK, linewidth=0.8)
    axes.set(
        xscale="log",
        ylim=(0.6, 1.4),
        xlabel="measured step (s)",
        ylabel="predicted over measured",
        title="24 unseen rows, 80 % intervals",
    )
    plain_ticks(axes.xaxis)
    axes.legend(ncols=2, loc="upper left")
figure

# %%
stack = tomllib.loads((stacks / "our-stack.toml").read_text())
old = tomllib.loads(nearest.read_text())
values = pd.DataFrame(
    {
        name: {
            "catalogue": old[name]["value"],
            "fitted": stack[name]["value"],
            "spread": stack[name]["spread"],
            "true": true,
        }
        for name, true in TRUTH.items()
    }
).T
with style():
    figure = new_figure(COLUMN, 2.2)
    axes = figure.subplots()
    at = np.arange(len(values))
    spread = values.fitted * values.spread
    axes.errorbar(values.fitted, at, xerr=spread, fmt="o", color=FRONT, markersize=5, label="fitted, ± its spread")
    axes.plot(values.catalogue, at, "s", color=PALE, markersize=5, label="catalogue, before")
    axes.plot(values.true, at, "x", color=INK, markersize=8, label="true")
    axes.set_yticks(at, [name.replace("_", " ") for name in values.index])
    axes.set(ylim=(2.4, -0.4), xlim=(1.0, 2.0), xlabel="slow-down")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
figure

# %%
assert 15 < told.loc["before", "mean error (%)"] < 18 and 1.2 < told.loc["after", "mean error (%)"] < 1.6
assert told["largest error (%)"].before > 12 and told["largest error (%)"].after < 4
assert len(before) == 24 and before.skipped.isna().all() and after.skipped.isna().all()
assert told["rows inside"].before == 8 and 18 <= told["rows inside"].after <= 23
assert 17 < told["half an interval (%)"].before < 20 and told["half an interval (%)"].after < 4.5
# The mean of the absolute value of a normal distribution.
assert 0.0159 < 0.02 * np.sqrt(2 / np.pi) < 0.016
error = (values.fitted / values.true - 1).abs()
assert error[["matrix_slowdown", "communication_slowdown"]].max() < 0.03 and 0.3 < error["elementwise_slowdown"] < 0.4
assert values.spread["elementwise_slowdown"] > 1.2 * values.spread["communication_slowdown"]
values.round(3)

# %% [markdown]
# Unseen steps are predicted within 1.5 % in the mean, in place of 16 %; the noise alone makes 1.6 %. Intervals of
# a stack without measurements reach 18 % to either side and hold 8 of 24 rows, since this stack is slower than most;
# those after calibration reach 3.4 % and hold 23, where 80 % are promised: 24 rows tell little of what is left.
#
# The chip keeps what the catalogue says that it sustains: rows of one stack cannot tell it from the stack's slow-down,
# as the two multiply. Two of the three slow-downs are found within 3 %. The third, that of element-wise kernels, is a
# third off: it takes too little of these steps to be told, and stays near what all stacks share. Where predictions hang
# on it, with small models say, so do their intervals: measure such steps too.
