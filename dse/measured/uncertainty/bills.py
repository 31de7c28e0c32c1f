r"""Intervals of money, carbon and whole runs: of time and energy by their elasticity, of prices by their confidence.

To first order in the logarithms,

.. math:: d \log M = e_T \, d \log T + e_W \, d \log W + \sum_i e_i \, d \log p_i

with time ``T`` (of a step, or of a served token), energy ``W`` of what the metric pays or emits by energy, and prices,
emission factors and times between failures ``p``. Spreads of these stand in ``prices.toml`` of the catalogue, by the
confidence of a value; one that the user has stated has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.designs import catalog
from dse.designs.catalog.load import parse
from dse.designs.leaves import known_leaves, leaf, replace
from dse.designs.records import MADE
from dse.doors.study import Study
from dse.measured.prediction import by_structure, evaluate_many, evaluate_stack
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.distance import Levels
from dse.types import Design, Emissions, Load, Made, Prices, Reliability

#: Metric → the part of the design that its prices stand in; those of a run, of a token and per dollar take time.
_TIMED = {
    **dict.fromkeys(("cost_per_run", "cost_per_token", "tokens_per_cost"), "prices"),
    **dict.fromkeys(("carbon_per_run", "carbon_per_token"), "emissions"),
    **dict.fromkeys(("run_time", "run_time_with_failures"), "failures"),
}
_STANDING = {
    **dict.fromkeys(("capital_cost", "device_price", "tco_per_year", "cost_per_device_hour"), "prices"),
    "device_carbon": "emissions",
}
METRICS = _TIMED | _STANDING

#: Price of an accelerator as sold; of a generated one the seller's margin.
DEVICE, MARGIN = f"{MADE}.price", f"{MADE}.margin"

#: Kind of prices → how their leaves begin, and the one that is paid for energy.
_LEAVES = {
    "prices": ("system.prices.", DEVICE), "failures": ("system.reliability.",),
    "emissions": ("system.emissions.", "system.prices.lifetime", "system.prices.in_use"),
}  # fmt: skip
_ENERGY = {"prices": "system.prices.electricity", "emissions": "system.emissions.grid"}

#: Counts and choices: nothing that is uncertain.
_EXACT = ("radix", "node_devices", "spares", "checkpoint", "checkpoint_every")


class Bill(NamedTuple):
    """What the interval of a metric of money, carbon or a run is made of, besides its time."""

    prices: dict[str, float]  #: leaf path → change of the log metric for a spread more
    energy: float  #: elasticity to energy


def completed(design: Design, study: Study, prices: float | None = None) -> Design:
    """The design with the records of money, carbon and failures that it leaves to defaults, and its device's price."""
    system = design.system
    device = dataclasses.replace(system.accelerator, made=system.accelerator.made or Made())
    runs = study.name == "training"
    whole = dataclasses.replace(
        system,
        prices=system.prices or Prices(),
        emissions=system.emissions or Emissions(),
        accelerator=device,
        reliability=system.reliability or (Reliability() if runs else None),
    )
    done = dataclasses.replace(design, system=whole)
    return done if prices is None or device.chip is not None else replace(done, {DEVICE: np.float32(prices)})


def spreads(design: Design, kind: str, accelerator: str, stated: Collection[str] = ()) -> dict[str, float]:
    """Leaf path → standard deviation of its logarithm, of a completed design.

    Args:
        design: with all records of money (:func:`completed`).
        kind: ``prices``, ``emissions`` or ``failures``.
        accelerator: its name in the catalogue; "" where unknown.
        stated: paths of values that the user has stated.
    """
    table = parse(catalog.catalog_root() / "prices.toml")
    found = {}
    for path, about in known_leaves().items():
        exact = "enum" in about or path.rpartition(".")[2] in _EXACT or path in stated
        if (
            exact
            or not path.startswith(_LEAVES[kind])
            or path.startswith("system.reliability.") != (kind == "failures")
            or not float(leaf(design, path) if _has(design, path) else 0.0)
        ):
            continue
        found[path] = _device(table, accelerator) if path == DEVICE else float(table["confidence"][_confidence(about)])
    if kind == "prices" and design.system.accelerator.chip is not None and MARGIN not in stated:
        margin = float(leaf(design, MARGIN))  # of 1 - margin, as far as the rule is off accelerators that are sold
        found[MARGIN] = float(table["device"]["dies"]) * (1.0 - margin) / margin
    return found


def _has(design: Design, path: str) -> bool:
    return leaf(design, path.rpartition(".")[0]) is not None


def _confidence(about: Mapping[str, Any]) -> str:
    """Confidence of a default by the words of its source."""
    source = about.get("source", "")
    return "estimate" if not source or "estimate" in f"{source} {about['long_name']}" else "paper"


def _device(table: Mapping[str, Any], accelerator: str) -> float:
    """Spread of the price of an accelerator: as its file is sure of it, else of the rule that stands in."""
    if not accelerator:
        return float(table["device"]["watts"])
    made = catalog.made(accelerator)
    if not made["price"]:
        return float(table["device"]["dies" if made["logic_area"] else "watts"])
    values = catalog.entry("accelerator", accelerator).values
    return float(table["confidence"][values["made.price" if "made.price" in values else "price"].confidence])


def bills(
    designs: Sequence[Design],
    accelerators: Sequence[str],
    metrics: Sequence[str],
    study: Study,
    stated: Sequence[Collection[str]] = (),
) -> list[dict[str, Bill]]:
    """What each metric of money, carbon and runs depends on, by design: one call of the model for all prices.

    Args:
        designs: of one study.
        accelerators: of each its name in the catalogue; "" where unknown.
        metrics: names; others than :data:`METRICS` are left out.
        study: the study.
        stated: of each the paths of values that the user has stated, which have no spread.
    """
    asked = [name for name in metrics if name in METRICS and name in study.units]
    if not asked:
        return [{} for _ in designs]
    bought = evaluate_many(designs, study)["device_price"]
    whole = [completed(one, study, float(price)) for one, price in zip(designs, bought, strict=True)]
    kinds = dict.fromkeys(METRICS[name] for name in asked)
    own = [
        {kind: spreads(one, kind, chip, exact) for kind in kinds}
        for one, chip, exact in zip(whole, accelerators, stated or [()] * len(whole), strict=True)
    ]
    merged = [uncertainty.Uncertainty({k: v for part in one.values() for k, v in part.items()}, 0.0) for one in own]
    paths = list(dict.fromkeys(path for one in merged for path in one.spreads))
    found: list[dict[str, Bill]] = [{} for _ in designs]
    for members, stack in by_structure(whole):
        values = evaluate_stack(uncertainty.moved_parameters(stack, [merged[i] for i in members], paths), study)
        for name in asked:
            logs = np.log(np.asarray(getattr(values, name), float)).reshape(len(members), 1 + 2 * len(paths))
            moved = (logs[:, 1::2] - logs[:, 2::2]) / 2.0
            for place, i in enumerate(members):
                of_kind = own[i][METRICS[name]]
                prices = {p: float(moved[place, at]) for at, p in enumerate(paths) if p in of_kind and moved[place, at]}
                paid = _ENERGY.get(METRICS[name], "")
                energy = prices[paid] / of_kind[paid] if paid in prices else 0.0
                found[i][name] = Bill(prices, abs(energy))
    return found


def part_of(path: str, metric: str) -> str:
    """The part of the log error of a metric that a price, an emission factor or a time between failures is."""
    return "device price" if path in (DEVICE, MARGIN) else METRICS[metric]


def of_time(bill: Bill, metric: str, design: Design, stack: str, at: Levels, study: Study) -> dict[str, float]:
    """Parts by time and energy; of a rate of requests that is given, what is served does not vary with time."""
    if not study.residuals:
        taken = uncertainty.parts_of("step_time", design, stack, at, study) if metric in _TIMED else {}
        used = uncertainty.parts_of("energy_per_step", design, stack, at, study)
        return taken | ({"board": bill.energy * used["board"]} if bill.energy else {})
    requests = design.workload.requests
    is_open = requests is not None and float(requests.load) == float(Load.rate)
    time = 0.0 if metric not in _TIMED or is_open else 1.0 - bill.energy
    rate = uncertainty.parts_of(study.rate, design, stack, at, study)
    energy = uncertainty.parts_of(study.energy, design, stack, at, study)
    return {name: time * rate.get(name, 0.0) + bill.energy * energy.get(name, 0.0) for name in {**rate, **energy}}
