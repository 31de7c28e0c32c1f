"""Claims of the study of performance and cost (arXiv 2507.02456), as far as its text goes: its tables are not public."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import xarray as xr

import dse
from docs.make.cost import ROWS
from docs.make.studies.claim import ANY, IDENTITY, LAW, NO_FIGURE, Claim, least
from dse.designs import catalog
from dse.measured.comparison import compare
from dse.types import Accelerator, MessageKind
from dse.views.plot.collectives import bus_bandwidth, topologies

_STUDY = "Performance and cost"
_TREES, _TORUS, _SPLIT = (f"sweeps/{name}.toml" for name in ("topology_cost", "topology_cost_torus", "chiplet_split"))


# --- topology ---------------------------------------------------------------------------------------------------


def _operations_a_dollar(found: xr.Dataset) -> xr.DataArray:
    """Model FLOP per USD of the runs of a sweep."""
    return found.model_flops / (found.global_batch * found.seq_len) / found.cost_per_token


@functools.cache
def networks() -> dict[str, tuple[float, float, float]]:
    """Network → step time in s, money of the run in million USD, EFLOP per USD, by its cheapest mapping."""
    trees, torus = (dse.run(sweep, output=False) for sweep in (_TREES, _TORUS))
    places = {
        "tree 1:1": trees.sel(pods_detour=1, pods_oversubscription=1),
        "tree 4:1": trees.sel(pods_detour=1, pods_oversubscription=4),
        "dragonfly 1/4": trees.sel(pods_detour=2, pods_oversubscription=4),
        "torus 150 GB/s": torus.isel(scale_up_bandwidth=0),
        "torus 450 GB/s": torus.isel(scale_up_bandwidth=-1),
    }
    return {
        name: (float(one.step_time), float(one.cost_per_run) / 1e6, float(_operations_a_dollar(one)) / 1e18)
        for name, one in places.items()
    }


def _of_networks(column: int) -> tuple[float, ...]:
    """One figure of the networks, each over that of the full tree."""
    figures = [one[column] for one in networks().values()]
    return tuple(one / figures[0] for one in figures[1:])


def mappings() -> tuple[float, float]:
    """FLOP per USD of the best mapping on the full tree over that of the median and of the worst."""
    found = dse.run(_TREES, output=False, keep="all").sel(pods_detour=1, pods_oversubscription=1)
    rates = _operations_a_dollar(found).values[found.feasible.values]
    return float(rates.max() / np.median(rates)), float(rates.max() / rates.min())


def all_to_all() -> tuple[float, float]:
    """Share of a link's bandwidth that all-reduce and all-to-all of 1 GB reach, torus over switch, 64 devices."""
    shares = []
    for kind in (MessageKind.all_reduce, MessageKind.all_to_all):
        reached = []
        for label in ("torus (TPU v4)", "rack switch (GB200)"):
            system = topologies()[label]
            rate = float(bus_bandwidth(system, kind, 64, np.array([1e9]))[0])
            reached.append(rate / float(system.scale_up.bandwidth))
        shares.append(reached[0] / reached[1])
    return shares[0], shares[1]


#: Mapping of 512 devices, of which each degree is doubled in turn, with the devices except of experts.
_FIVE = dict(
    n_devices=512,
    tp=2,
    pp=2,
    cp=2,
    ep=2,
    micro_batch=1,
    global_batch=2048,
    zero_stage=1,
    recompute="none",
    seq_len=16384,
)


def five_dimensions() -> tuple[float, ...]:
    """Memory of a device after a degree is doubled over before: tensor, pipeline, context, expert and data parallel."""
    more = {"n_devices": 1024}
    changes = [{}, {"tp": 4} | more, {"pp": 4} | more, {"cp": 4} | more, {"ep": 4}, more]
    sizes = [
        float(dse.evaluate(dse.design("mixtral-8x22b", "eos", any_option=True, **(_FIVE | change))).peak_memory)
        for change in changes
    ]
    return tuple(one / sizes[0] for one in sizes[1:])


# --- chiplets ---------------------------------------------------------------------------------------------------


def splits() -> tuple[float, ...]:
    """Best number of dies of 400 mm2 of N7 and of 800 mm2 of N2 by cost times step time, and what one die loses."""
    found = dse.run(_SPLIT, output=False)
    scores = (found.device_cost * found.step_time).where(found.feasible).min("packaging")
    best, lost = [], []
    for node, area in (("n7", 400e-6), ("n2", 800e-6)):
        one = scores.sel(node=node).sel(chip_die_area=area, method="nearest")
        best.append(float(one.idxmin("made_chiplets")))
        lost.append(100.0 * (float(one.sel(made_chiplets=1) / one.min()) - 1.0))
    return *best, *lost


def packages() -> tuple[float]:
    """Largest difference from the figures of Chiplet Actuary, in per cent."""
    return (100.0 * max(abs(one.error) for one in compare([str(ROWS)]) if one.skip is None),)


# --- attention --------------------------------------------------------------------------------------------------

#: Operations of softmax for a score: maximum, difference, exponential, sum, rescaling.
_POINTWISE = 5.0


def attention() -> tuple[float, ...]:
    """Forward time of the kernel over load + GEMM + point-wise + store at full rates: 2,048 and 16,384 tokens."""
    chip = catalog.record(Accelerator, "a100-sxm-80gb")
    ratios = []
    for tokens in (2048, 16384):
        made = dse.design("llama-3-8b", "a100", precision="bf16", seq_len=tokens, micro_batch=1, flash_slowdown=1.0)
        (ours,) = (one for one in dse.explain(made).operators if one.name == "flash_attention")
        model = made.workload
        heads, width = float(model.n_heads), float(model.hidden) / float(model.n_heads)
        pairs = heads * tokens * (tokens + 1) / 2.0
        queries, pair = 2.0 * tokens * heads * width, 2.0 * 2.0 * tokens * float(model.n_kv_heads) * width
        moved = (queries + pair + queries) / float(chip.memory.bandwidth)
        products = 4.0 * width * pairs / float(chip.matrix_rate.bf16)
        ratios.append(ours.forward_time / (moved + products + _POINTWISE * pairs / float(chip.vector_rate)))
    return tuple(ratios)


def claims() -> Iterator[Claim]:
    """All of this file, in the order of the page."""
    yield Claim(
        "attention",
        _STUDY,
        "flash attention over load + GEMM + point-wise + store at full rates: 2,048, 16,384 tokens (1 to 2)",
        NO_FIGURE,
        attention,
        ((1.0, 2.0),) * 2,
        "{:.2f}, {:.2f}",
        LAW,
        "Ours overlaps these parts, at the rates that kernels of an A100 reach; theirs adds them",
    )
    yield Claim(
        "five-dimensions",
        _STUDY,
        "memory of Mixtral-8x22B by twice tp, pp, cp, ep, dp (< 1)",
        NO_FIGURE,
        five_dimensions,
        ((0.0, 0.995),) * 5,
        "{:.2f}, {:.2f}, {:.2f}, {:.2f}, {:.2f}",
        LAW,
    )
    yield Claim(
        "all-to-all",
        _STUDY,
        "torus over switch, share of the link: all-reduce, all-to-all (the less)",
        NO_FIGURE,
        all_to_all,
        ((0.5, 1.5), (0.0, 0.5)),
        "{:.2f}, {:.2f}",
        LAW,
    )
    for name, what, column, bounds in (
        ("topology-time", "step time", 0, (least(0.999), least(0.999), least(0.999), least(0.999))),
        ("topology-cost", "money of the run", 1, ((0.0, 1.0), (0.0, 1.0), least(1.0), ANY)),
        ("topology-operations", "FLOP per USD", 2, (least(1.0), least(1.0), (0.0, 1.0), ANY)),
    ):
        yield Claim(
            name,
            _STUDY,
            f"{what} over a full tree: tree 4:1, dragonfly 1/4, torus of 150, 450 GB/s",
            NO_FIGURE,
            functools.partial(_of_networks, column),
            bounds,
            "{:.3f}, {:.3f}, {:.3f}, {:.3f}",
            LAW,
            "Thinned networks must cost time and save money, a slow torus lose both; prices are public estimates",
            f"dse run {_TREES}",
        )
    yield Claim(
        "parallelism",
        _STUDY,
        "FLOP per USD, best mapping over median, worst (> 1)",
        NO_FIGURE,
        mappings,
        (least(1.001),) * 2,
        "{:.2f}, {:.1f}",
        LAW,
        command=f"dse run {_TREES} --keep all",
    )
    yield Claim(
        "chiplets",
        _STUDY,
        "cost × time: best dies, 400 mm² N7 (few), 800 mm² N2 (more); % that one die loses",
        NO_FIGURE,
        splits,
        ((1.0, 2.0), (2.0, 6.0), (0.0, 3.0), least(3.0)),
        "{:.0f}, {:.0f}; {:.1f}, {:.1f}",
        LAW,
        command=f"dse run {_SPLIT}",
    )
    yield Claim(
        "chiplet-cost",
        _STUDY,
        "ten packages of Chiplet Actuary: largest difference (≤ 0.1 %)",
        NO_FIGURE,
        packages,
        ((0.0, 0.1),),
        "{:.3f} %",
        IDENTITY,
        "Its formulas, written again",
        f"dse validate {ROWS}",
    )
