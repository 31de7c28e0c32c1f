"""What a lower clock or a power limit saves of a training step, over the accelerators of today."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from docs.make.markdown import filed, percent
from dse.designs import design, leaf, replace
from dse.measured.energy import CLOCK
from dse.measured.prediction import evaluate_many
from dse.types import Design

_POWER = "system.accelerator.power."
CHIPS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x")
#: Clocks over the nominal one, and limits over the one as sold.
CLOCKS, LIMITS = np.linspace(0.3, 1.0, 36), (0.8, 0.7)


class Point(NamedTuple):
    """A clock or a limit over the highest, with what it saves of energy and adds to time, as fractions."""

    at: float
    saved: float
    lost: float


class Savings(NamedTuple):
    """The frugal points of one accelerator in training."""

    boards: Point  # least energy of the devices
    all: Point  # of the system: hosts and facility draw on while a step takes longer
    limits: tuple[Point, ...]  # energy of the devices at each of LIMITS


def training(chip: str) -> Design:
    """A step of Llama 3 70B on 64 devices, under the limit as sold."""
    found = design(
        "llama-3-70b",
        chip,
        None,
        64,
        tp=8,
        zero_stage=1,
        recompute="full",
        micro_batch=1,
        global_batch=128,
        seq_len=8192,
    )
    return replace(found, {_POWER + "limit": float(leaf(found, _POWER + "tdp"))})


def savings(chip: str) -> Savings:
    """What lower clocks and limits save of that step."""
    base = training(chip)
    nominal, tdp = (float(leaf(base, _POWER + name)) for name in ("nominal_clock", "tdp"))
    clocks = [replace(base, {CLOCK: nominal * float(ratio)}) for ratio in CLOCKS]
    limits = [replace(base, {_POWER + "limit": tdp * ratio}) for ratio in LIMITS]
    found = evaluate_many([*clocks, *limits, base])
    time, boards, everything = found["step_time"], found["step_time"] * found["device_power"], found["energy_per_step"]

    def point(at: float, index: int, energy: np.ndarray) -> Point:
        return Point(at, 1.0 - float(energy[index] / energy[-1]), float(time[index] / time[-1]) - 1.0)

    least = [int(np.argmin(energy[: len(CLOCKS)])) for energy in (boards, everything)]
    return Savings(
        *(point(float(CLOCKS[index]), index, e) for index, e in zip(least, (boards, everything), strict=True)),
        tuple(point(ratio, len(CLOCKS) + i, boards) for i, ratio in enumerate(LIMITS)),
    )


def section() -> tuple[str, str]:
    """Title and text of a part of a page: the frugal clock of each accelerator, and what two limits do."""
    rows = []
    for chip in CHIPS:
        found = savings(chip)
        cells = [text for one in (found.boards, found.all) for text in (f"{one.at:.2f}", *_cells(one))]
        rows.append([chip, *cells, *(text for one in found.limits for text in _cells(one))])
    columns = ["chip", "clock, boards", "saved", "time", "clock, all", "saved", "time"]
    columns += [text for ratio in LIMITS for text in (f"limit {ratio:.0%}: saved", "time")]
    text = (
        "A step of Llama 3 70B on 64 devices (tp 8, full recompute): the clock over the nominal one at which "
        "the boards, or boards, hosts and facility together, need the least energy, and what a lower limit "
        "saves of the boards' energy, each with the time it costs. Published studies find the boards' least "
        "energy at 50 to 80 % of the highest clock.\n\n"
        "The threshold voltage of a chip decides this, and kernels at one power limit do not show it "
        "(docs/kernels.md). It is held near what power limits show of the V100, and below 0.39 of the "
        "nominal voltage.\n\n"
        f"{filed('energy_savings', columns, rows)}\n"
    )
    return "What a lower clock saves", text


def _cells(point: Point) -> list[str]:
    return [percent(point.saved), percent(point.lost, "+")]
