"""Claims on energy: clocks, nodes, superconducting logic, whole runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from docs.make.energy.runs import MWH, RUNS, modelled
from docs.make.studies import superconducting
from docs.make.studies.claim import IDENTITY, LAW, NOT_CHECKED, SETTING, Claim, about, least
from docs.make.technology import operations, residuals
from dse.designs import catalog, replace
from dse.measured.energy import CLOCK, CLOCKS_HZ, LOOPS, decoder_layer, least_energy_figures
from dse.measured.prediction import evaluate_many
from dse.model.machine.technology import generate
from dse.types import Accelerator

# --- clocks -----------------------------------------------------------------------------------------------------

_MODELS = tuple(f"gpt-3-{size}" for size in ("125m", "350m", "760m", "1-3b", "2-7b", "6-7b", "13b", "175b"))
_LENGTHS = (128, 512, 1024)
#: (model, tokens) → per cent of energy saved and of time lost at the clock of least energy, read off slides.
SLIDES = {
    ("gpt-3-125m", 512): (30.8, 23.9), ("gpt-3-125m", 1024): (28.1, 18.3), ("gpt-3-1-3b", 128): (24.5, 27.4),
    ("gpt-3-1-3b", 512): (20.5, 14.8), ("gpt-3-13b", 512): (10.8, 12.7), ("gpt-3-13b", 1024): (11.8, 11.3),
    ("gpt-3-175b", 128): (13.5, 11.3), ("gpt-3-175b", 512): (9.0, 15.5),
}  # fmt: skip
_FITTED = ("gpt-3-125m", "gpt-3-13b")
_SWEEP = "dse run sweeps/dvfs_decoder_layers.toml"


@functools.cache
def curves() -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]:
    """(model, tokens) → times in s and powers in W of a layer at every clock of the A30."""
    layers = list(itertools.product(_MODELS, _LENGTHS))
    designs = [replace(decoder_layer(*layer), {CLOCK: float(clock)}) for layer in layers for clock in CLOCKS_HZ]
    found = evaluate_many(designs)
    shape = len(layers), len(CLOCKS_HZ)
    pairs = zip(found["step_time"].reshape(shape), found["device_power"].reshape(shape), strict=True)
    return dict(zip(layers, pairs, strict=True))


def _saved(model: str) -> tuple[float, ...]:
    """Energy saved and time lost of the lengths on the slides, in per cent."""
    found = []
    for layer in SLIDES:
        if layer[0] == model:
            end = least_energy_figures(*curves()[layer])
            found += [100.0 * (1.0 - end["relative_energy"]), 100.0 * (end["relative_time"] - 1.0)]
    return tuple(found)


def best_clocks() -> tuple[float, float]:
    """Least and most of the clocks of least energy in MHz."""
    found = [least_energy_figures(*curve)["best_clock"] / 1e6 for curve in curves().values()]
    return min(found), max(found)


def _u_shaped() -> tuple[float, ...]:
    """Least rise of the energy from the best clock to the lowest, and to the highest."""
    energies = [time * power for time, power in curves().values()]
    return tuple(min(float(one[end] / one.min()) for one in energies) for end in (0, -1))


def _axis() -> tuple[float, float]:
    """Shortest and longest time of a layer of 13B, 1,024 tokens, in ms."""
    times = 1e3 * curves()["gpt-3-13b", 1024][0] / LOOPS
    return float(times.min()), float(times.max())


def _near_limit() -> tuple[float]:
    """Power of the 13B layers at the highest clock over the limit, least."""
    return (min(float(curves()["gpt-3-13b", tokens][1][-1]) for tokens in _LENGTHS) / 165.0,)


_WHY = {
    "gpt-3-1-3b": "At 128 tokens memory bounds ours at the highest clock, so that a lower one costs little time",
    "gpt-3-175b": "Passes and batch of the study are not known",
}


def _of_clocks() -> Iterator[Claim]:
    study = "A30 clocks"
    for model in dict.fromkeys(name for name, _ in SLIDES):
        slides = [values for (name, _), values in SLIDES.items() if name == model]
        lengths = ", ".join(str(tokens) for name, tokens in SLIDES if name == model)
        published = ", ".join(f"{saved:g}/{lost:g}" for saved, lost in slides)
        fitted = "fitted" if model in _FITTED else "not fitted"
        yield Claim(
            f"clocks-{model.removeprefix('gpt-3-')}",
            study,
            f"{model}, {lengths}: % saved/lost ± 6, {fitted}",
            published,
            functools.partial(_saved, model),
            tuple((one - 6.0, one + 6.0) for pair in slides for one in pair),
            "{:.1f}/{:.1f}, {:.1f}/{:.1f}",
            why=_WHY.get(model, ""),
            command=_SWEEP,
        )
    yield Claim(
        "u-shape",
        study,
        "energy at both ends over least",
        "> 1",
        _u_shaped,
        (least(1.05),) * 2,
        "{:.2f}, {:.2f}",
        LAW,
        command=_SWEEP,
    )
    yield Claim(
        "one-clock",
        study,
        "24 best clocks, 100 MHz apart",
        "no single one",
        lambda: (*best_clocks(), best_clocks()[1] - best_clocks()[0]),
        (least(0.0), least(0.0), least(100.0)),
        "{:.0f}–{:.0f} MHz: {:.0f}",
        command=_SWEEP,
        why="All lie on one kink: the A30's voltage, fitted to these slides, is flat below 0.727 of the nominal one. "
        "Above some 820 MHz it falls with the clock, below only time grows. With a floor of 0.5 the optima are 405 to "
        "480 MHz",
    )
    yield Claim(
        "time-axis",
        study,
        "13B, 1,024: times by clock",
        "40–120 ms",
        _axis,
        (about(40.0), about(120.0)),
        "{:.0f}–{:.0f} ms",
        command=_SWEEP,
        why="Read from an axis; batch and passes are not stated: one sequence, both passes here",
    )
    yield Claim(
        "near-limit",
        study,
        "13B, 1,440 MHz: power over limit",
        "near 1",
        _near_limit,
        ((0.9, 1.0),),
        "{:.2f}",
        LAW,
        command=_SWEEP,
    )


# --- nodes ------------------------------------------------------------------------------------------------------


def _shrunk() -> tuple[float, ...]:
    """Energies in 7 nm in pJ: additions and products of 8 and 32 bits."""
    of = operations()
    return tuple(1e12 * of[name][1] for name in ("int8_add", "int32_add", "int8_multiply", "int32_multiply"))


def _drawn() -> tuple[float, ...]:
    """Energy in pJ of an operation of an A100 at its limit and peak."""
    return tuple(1e12 * residuals()[name][0] for name in ("tf32", "fp16", "int8"))


def _of_nodes() -> Iterator[Claim]:
    study = "45 → 7 nm"
    yield Claim(
        "operations",
        study,
        "pJ in 7 nm: int8, int32 add, multiply",
        "0.007, 0.03, 0.07, 1.48",
        _shrunk,
        tuple(about(one, 0.01) for one in (0.007, 0.03, 0.07, 1.48)),
        "{:g}, {:g}, {:g}, {:g}",
        IDENTITY,
    )
    yield Claim(
        "a100-energy",
        study,
        "A100, W over peak in pJ: TF32, FP16, INT8",
        "2.56, 1.28, 0.64",
        _drawn,
        (about(2.56, 0.01), about(1.28, 0.01), about(0.64, 0.01)),
        "{:.2f}, {:.2f}, {:.2f}",
        IDENTITY,
    )


# --- superconducting logic --------------------------------------------------------------------------------------


def _board() -> tuple[float, ...]:
    """EFLOP/s in 16 bits and kW of 100 boards."""
    made = generate(catalog.record(Accelerator, "scd-board"))
    return 100.0 * float(made.matrix_rate.bf16) / 1e18, 100.0 * float(made.power.tdp) / 1e3


def _junctions() -> tuple[float, ...]:
    """Clock in GHz, memory in MB/cm², energy of a switch in J, which the node states over that of a device of N7."""
    node, chip = (catalog.entry(kind, slug) for kind, slug in (("node", "scd-pcl"), ("architecture", "scd")))
    switch = node.value("energy") * chip.value("switching_energy")
    return node.value("clock") / 1e9, node.value("sram_density") / 1e10, switch


def _of_boards() -> Iterator[Claim]:
    study = "SCD"
    yield Claim(
        "boards",
        study,
        "100 boards: bf16, power",
        "20 EFLOP/s, 500 kW",
        _board,
        (about(20.0), about(500.0)),
        "{:.1f}, {:.0f}",
        SETTING,
        "The area of a board was chosen to give the announced peak",
    )
    yield Claim(
        "junctions",
        study,
        "clock, JSRAM, energy a switch",
        "30 GHz, 4 MB/cm², 2e-20 J",
        _junctions,
        (about(30.0, 0.01), about(4.0, 0.01), about(2e-20, 0.01)),
        "{:.0f}, {:.0f}, {:.0e}",
        IDENTITY,
    )
    yield Claim(
        "logic",
        study,
        "energy of logic over B200, coolers of a small, a large plant",
        "100",
        superconducting.gains,
        (about(100.0),) * 2,
        "{:.0f}, {:.0f}",
        why=superconducting.reason,
    )
    yield Claim(
        "gpt-3-energy",
        study,
        "GPT-3 on CMOS, 10,000 V100",
        "≈ 1,300 MWh",
        lambda: (float(modelled(RUNS[0]).run_energy) / MWH,),
        (about(1300.0),),
        "{:,.0f}",
        SETTING,
        "Mapping and hosts are choices; other hosts move it by 12 %",
    )


def claims() -> Iterator[Claim]:
    """All of this file, in the order of the page."""
    yield from _of_boards()
    yield from _of_clocks()
    yield from _of_nodes()
    yield Claim(
        "performance-cost",
        "Performance and cost",
        "tables of time and cost",
        "not available",
        None,
        (),
        word=NOT_CHECKED,
    )
