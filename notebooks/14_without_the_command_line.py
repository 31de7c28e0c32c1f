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
# # Without the command line
#
# Every command is a function of `dse` with the same options. It returns a report: a table in a notebook, a mapping in
# code (`report["metrics"]`), a data frame (`to_dataframe()`), what `--json` prints (`to_dict()`). Here are the commands
# of the README.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import dse

# %% [markdown]
# ## Where does the time of one design go?
#
# `dse evaluate -w megatron-1t -s selene -n 3072 --set tp=8 --set pp=64 --set recompute=full`. Any value of the design
# is a keyword; what the command shows on request is folded below the answer.

# %%
report = dse.evaluate("megatron-1t", "selene", n_devices=3072, tp=8, pp=64, recompute="full")
report

# %%
report.to_dataframe("step_time")

# %% [markdown]
# `dse.design` and `dse.evaluate(design)` are the pure function behind it: a design is a pytree of scalars, and so are
# its metrics. `jit`, `vmap` and `grad` work.

# %%
design = dse.design("megatron-1t", "selene", n_devices=3072, tp=8, pp=64, recompute="full")
metrics = dse.evaluate(design)
[float(metrics.step_time), report["metrics"]["step_time"]]

# %% [markdown]
# ## Which mapping is best?
#
# `dse run example:megatron_1t_4096_a100 --keep top:100 -o best.nc`. A specification is a file, the name of an example,
# a dictionary of its sections, or keywords. What comes back is an `xarray.Dataset`,
# with what xarray lacks under `.dse`.

# %%
folder = Path(tempfile.mkdtemp())
best = dse.run("example:megatron_1t_4096_a100", keep="top:100", output=folder / "best.nc")
best.dse.table(5)

# %%
dse.plot.breakdown(best)

# %%
small = dse.run(
    workload={"name": "llama-3-8b", "global_batch": 256},
    system={"name": "eos", "n_devices": 64},
    axes={"tp": "divisors", "pp": "divisors", "micro_batch": [1, 2, 4], "recompute": ["none", "selective", "full"]},
    output=False,
)
small.dse.best("tp").step_time.to_series()

# %%
small.dse.front("step_time", "peak_memory")[["step_time", "peak_memory"]].to_dataframe().head()

# %%
dse.plot.pareto(small)

# %% [markdown]
# ## What serves that, cheapest?
#
# `dse plan --serving -w deepseek-v3 --rate 20 --ttft p95=1s --tpot 30ms --on b200`

# %%
dse.plan("deepseek-v3", serving=True, rate=20, ttft="p95=1s", tpot="30ms", on=["b200"])

# %% [markdown]
# ## Which is better, and how surely?
#
# `dse decide h100 dgx-b200 -w llama-3-8b --set tp=8 --set n_devices=8`

# %%
dse.decide(["h100", "dgx-b200"], workload="llama-3-8b", tp=8, n_devices=8)

# %% [markdown]
# ## How far off is what I measured?
#
# `dse validate my_rows.csv`. Rows may come from a file, a data frame or a list.

# %%
rows = [
    {"model": "llama-3-70b", "gpu": "H100", "n_gpus": 64, "tp": 4, "pp": 4, "micro_batch": 1, "global_batch": 128,
     "seq_len": 8192, "iteration_s_measured": 22.4},
]  # fmt: skip
dse.validate(rows)

# %% [markdown]
# ## A page to explore
#
# `dse report best.nc --live -o best.html`

# %%
page = dse.page(folder / "best.nc", live=True, output=folder / "best.html")
[path.name for path in page.files]
