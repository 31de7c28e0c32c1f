"""Energy of superconducting logic over that of CMOS, by factors: switches of a FLOP, energy of a switch, coolers."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import dse
from dse.designs import catalog
from dse.model.machine.technology import cooling, generate
from dse.types import Accelerator, Chip, Power

#: Accelerators that are compared, of sweeps/scd_vs_cmos.toml: place and name.
_CMOS, _BOARD = (1, "generated-b200"), (4, "scd-board")

#: Boards of the announced stack, its FLOP/s in 16 bits and W, and the gain claimed (IEEE Spectrum 2024).
BOARDS, ANNOUNCED_RATE, ANNOUNCED_POWER, CLAIMED = 100.0, 20e18, 500e3, 100.0

#: Refrigeration in W of a large helium plant: the LHC has eight of 18 kW at 4.5 K (Lebrun & Tavian 2013).
LARGE_PLANT = 18e3

#: One-bit adders of a multiply-add in bf16: 8 x 8 bits of significands in an array, exponents of 8 bits and their
#: difference of 9, a sum of 32 bits. Selects that align and normalise come on top, shared by the terms of a sum.
ADDERS = {"significands": 8.0 * 7.0, "exponents": 17.0, "sum": 32.0}

#: Junctions of a full adder in pulse-conserving logic (arXiv 2303.16801).
ADDER_JUNCTIONS = 70.0

_LOGIC = ("matrix", "vector", "control", "leakage")


def plant_efficiency(load: float) -> float:
    """Share of Carnot of a helium plant that takes ``load`` W at 4.5 K: ``0.155 (load / kW)^0.23``.

    Green 2015 (Eq. 2; plants of 10 W to 35 kW, to 2007); Strobridge 1974 reads 0.19 at 1 kW and 0.24 at 10 kW.
    """
    return 0.155 * (load / 1e3) ** 0.23


@functools.cache
def _chip(name: str) -> tuple[Chip, Power, float]:
    """Chip, power and 16-bit FLOP/s of a generated accelerator."""
    made = generate(catalog.record(Accelerator, name))
    assert made.chip is not None
    return made.chip, made.power, float(made.matrix_rate.bf16)


def stack_load() -> float:
    """Heat in W at 4 K of the announced stack at its peak: its products, clock and control."""
    _, power, rate = _chip(_BOARD[1])
    return BOARDS * (rate * float(power.matrix_energy) + float(power.control))


def fewest_junctions() -> float:
    """Junctions a FLOP of the adders of a multiply-add alone."""
    return 0.5 * ADDER_JUNCTIONS * sum(ADDERS.values())


class _Energy(NamedTuple):
    """Joules a token of the logic, without coolers: products, all of it, and its FLOPs."""

    products: float
    logic: float
    flops: float


@functools.cache
def _energies() -> tuple[_Energy, _Energy]:
    """Energies of logic in training steps: generated B200, board with the junctions as catalogued."""
    found = dse.run("sweeps/scd_vs_cmos.toml", output=False).sel(chip_cooler=0.2, chip_memory_cooler=0.3)
    tokens = found.energy_per_step / found.energy_per_token
    parts = {part: found[f"energy_per_step_{part}"] / tokens for part in _LOGIC}
    energies = []
    for place, name in (_CMOS, _BOARD):
        joules = {part: float(energy.isel(accelerator=place)) for part, energy in parts.items()}
        products = joules["matrix"]
        energies.append(_Energy(products, sum(joules.values()), products / float(_chip(name)[1].matrix_energy)))
    return energies[0], energies[1]


def logic_gain(cooler: float) -> float:
    """Energy of logic a token, B200 over board, coolers of ``cooler`` of Carnot included."""
    cmos, board = _energies()
    return cmos.logic / (board.logic * (1.0 + float(cooling(4.0, cooler))))


def logic_factors(cooler: float) -> dict[str, float]:
    """Factors whose product is :func:`logic_gain`, each B200 over board."""
    (cmos_chip, cmos_power, _), (board_chip, _, _) = (_chip(name) for _, name in (_CMOS, _BOARD))
    switches = [float(chip.activity * chip.matrix_devices) for chip in (cmos_chip, board_chip)]
    cmos, board = _energies()
    return {
        "switch": float(cmos_power.matrix_energy)
        / switches[0]
        / float(board_chip.switching_energy * board_chip.node.energy),
        "devices": float(cmos_chip.matrix_devices / board_chip.matrix_devices),
        "activity": float(cmos_chip.activity / board_chip.activity),
        "FLOPs": cmos.flops / board.flops,
        "other logic": (cmos.logic / cmos.products) / (board.logic / board.products),
        "cooler": 1.0 / (1.0 + float(cooling(4.0, cooler))),
    }


def claimed_factors(cooler: float) -> dict[str, float]:
    """Factors whose product is the gain claimed over ours: what the claim counts of CMOS, and of a board.

    The announced stack takes ``500 kW / 20 EFLOP/s`` a FLOP, all of it; 100 times that is its CMOS.
    """
    announced = ANNOUNCED_POWER / ANNOUNCED_RATE
    cmos, board = _energies()
    cooled = board.logic * (1.0 + float(cooling(4.0, cooler)))
    return {"CMOS": CLAIMED * announced / (cmos.logic / cmos.flops), "board": cooled / board.flops / announced}


def gains() -> tuple[float, float]:
    """Gains with a plant of the stack's own, and with a large one."""
    return logic_gain(plant_efficiency(stack_load())), logic_gain(plant_efficiency(LARGE_PLANT))


def reason() -> str:
    """Why ours is not the gain claimed, by factors."""
    small, large = (plant_efficiency(load) for load in (stack_load(), LARGE_PLANT))
    factors, claimed = logic_factors(small), claimed_factors(small)
    assert math.isclose(math.prod(factors.values()), logic_gain(small), rel_tol=1e-3)
    junctions = float(_chip(_BOARD[1])[0].matrix_devices)
    return (
        f"By factors: a switch {factors['switch']:,.0f}, devices {factors['devices']:.1f}, activity "
        f"{factors['activity']:.2f}, other logic {factors['other logic']:.2f}, coolers 1/{1.0 / factors['cooler']:.0f} "
        f"(a plant for the stack's {1e-3 * stack_load():.1f} kW at 4 K, {small:.2f} of Carnot; of 18 kW {large:.2f}). "
        f"The fewest junctions, of adders alone, give {junctions / fewest_junctions():.1f} times more. What the claim "
        f"counts is another {claimed['CMOS']:.1f} times: its CMOS takes 100 times the announced 25 fJ a FLOP; a board "
        f"takes {claimed['board']:.1f} times these 25 fJ here"
    )
