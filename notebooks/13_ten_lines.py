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
# # An accelerator, a workload and a system in ten lines
#
# Nothing here is in the catalogue that comes with dse: a chip from a data sheet, a model from its sizes, a cluster from
# its links. Each is one short file in a folder of one's own. What a file leaves out (the efficiency of kernels, caches,
# energies) comes from the family of chips that it names.

# %%
# %matplotlib inline
import os
import tempfile
from pathlib import Path

import pandas as pd

import dse
from dse import types
from dse.designs import catalog
from dse.sweep import from_text
from dse.views import plot
from dse.views.plot.style import COLUMN, dash, marker, new_figure, shades, style

FILES = {
    "accelerators/aurora-1": """
name = "Aurora 1"
source = "its data sheet"
confidence = "datasheet"
kernels = "hopper"  # the family whose kernel efficiencies it takes over
[matrix_rate]
bf16 = "1500 TFLOP/s"
[memory]
capacity = "192 GiB"
bandwidth = "6 TB/s"
""",
    "workloads/our-40b": """
source = "a plan"
confidence = "estimate"
n_layers = 60
hidden = 7168
n_heads = 56
n_kv_heads = 8
ffn_hidden = 20480
gated = true
vocab = 128256
seq_len = 4096
""",
    "systems/our-cluster": """
name = "Our cluster"
source = "an offer"
confidence = "estimate"
accelerator = "aurora-1"
devices_per_node = 8
scale_up = "nvlink-4"
scale_out = "infiniband-ndr"
software = "megatron-core-te"
""",
}
folder = Path(tempfile.mkdtemp())
for name, text in FILES.items():
    path = folder / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.lstrip())
os.environ["DSE_CATALOG"] = str(folder)  # as `export DSE_CATALOG=my_catalog` in a shell
lines = {name: len(text.strip().splitlines()) for name, text in FILES.items()}
assert max(lines.values()) <= 10
lines

# %%
design = dse.design("our-40b", "our-cluster", n_devices=512, tp=4, pp=2, global_batch=512, seq_len=4096)
metrics = dse.evaluate(design)
print(
    f"{metrics.parameters / 1e9:.1f} billion parameters, {metrics.step_time:.2f} s a step, MFU {metrics.mfu:.0%}, "
    f"{metrics.peak_memory / 2**30:.0f} of {design.system.accelerator.memory.capacity / 2**30:.0f} GiB"
)

# %% [markdown]
# The chip beside two that are sold, as an axis of a sweep: which of them trains the model fastest, on 512
# devices with batches of 256 to 4,096 sequences, each with its best mapping? A chip of the axis stands in the node of
# its own file, or of its family; the network between nodes is that of the cluster.

# %%
results = dse.run(
    from_text("""
title = "Our 40B on a chip of its data sheet and two that are sold"
[workload]
name = "our-40b"
[system]
name = "our-cluster"
n_devices = 512
[software]
name = "megatron-core-te"
[mapping]
precision = "bf16"
zero_stage = 1
overlap_dp = true
[axes]
accelerator = ["h100-sxm-80gb", "aurora-1", "b200-sxm-180gb"]
global_batch = [256, 512, 1024, 2048, 4096]
tp = [1, 2, 4, 8]
pp = [1, 2, 4]
micro_batch = [1, 2, 4]
recompute = ["none", "selective", "full"]
sequence_parallel = [true]
[objective]
minimize = "step_time"
[output]
keep = "best"
"""),
    output=False,
)
rate = results.tokens_per_second_per_device.to_pandas()
rate.round(0)

# %%
with style():
    figure = new_figure(COLUMN, 2.6)
    axes = figure.subplots()
    for i, (device, colour) in enumerate(zip(rate.index, shades(len(rate)), strict=True)):
        axes.plot(
            rate.columns,
            rate.loc[device],
            color=colour,
            linestyle=dash(i),
            marker=marker(i),
            markersize=4,
            label=device,
        )
    axes.set(
        xscale="log",
        ylim=(0, None),
        xlabel="sequences a step",
        ylabel="tokens/s a device",
        title="Our 40B on 512 devices",
    )
    axes.set_xticks(rate.columns, [f"{n:,}" for n in rate.columns])
    axes.minorticks_off()
    axes.legend()
figure

# %%
plot.breakdown(results.sel(global_batch=[1024]))

# %%
ahead = rate.loc["aurora-1"] / rate.loc["h100-sxm-80gb"]
rates = [float(catalog.record(types.Accelerator, name).matrix_rate.bf16) for name in ("aurora-1", "h100-sxm-80gb")]
assert 1.5 < rates[0] / rates[1] < 1.53 and ahead.between(1.4, 1.63).all()
assert (rate.loc["b200-sxm-180gb"] > rate.loc["aurora-1"]).all()
assert (rate[4096] / rate[256]).idxmax() == "b200-sxm-180gb"
assert (results.tp.sel(accelerator="aurora-1") <= results.tp.sel(accelerator="h100-sxm-80gb")).all()
assert metrics.feasible and 30e9 < metrics.parameters < 40e9
causes = dse.explain(design).elasticities
assert causes[0].parameter == "clock" and 0.45 < -causes[0].elasticity < 0.6
pd.DataFrame([(cause.parameter, cause.elasticity) for cause in causes[:5]], columns=["1 % more", "% of step time"])

# %% [markdown]
# The chip of the data sheet has 1.5 times the matrix rate of an H100 and trains 1.4 to 1.6 times as fast: its memory
# holds more of the model, so that it splits tensors over fewer devices. It is behind a B200. Small batches cost the
# faster chips most, as gradients take as long to send as before.
#
# What no file said is still there, and stated: `dse catalog show aurora-1` prints every value with its source, and half
# of the first design's step follows the rate of its products: that of the data sheet, and the share of it that Hopper
# chips sustain in training, until steps of the new chip are measured (see the notebook on calibrating).
