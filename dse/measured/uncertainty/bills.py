r"""Intervals of money, carbon and whole runs: of time and energy by their elasticity, of prices by their confidence.

To first order in the logarithms,

.. math:: d \log M = e_T \, d \log T + e_W \, d \log W + \sum_i e_i \, d \log p_i

with time ``T`` (of a step, or of a served token), energy ``W`` of what the metric pays or emits by energy, and prices,
emission factors and times between failures ``p``. Spreads of these stand in ``prices.toml`` of the catalogue, by the
confidence of a value; one that the user has stated has none.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.designs import all_leaves, catalog, leaf, replace
from dse.designs.catalog.load import parse
from dse.designs.records import MANUFACTURE
from dse.doors import Study
from dse.measured.prediction import evaluate_many
from dse.measured.uncertainty import parts as uncertainty
from dse.measured.uncertainty.distance import Levels
from dse.types import Design, Emissions, Load, Manufacture, Prices, Reliability

#: Metric → the part of the design that its prices stand in; those of a run, of a token and per dollar take time.
_TIME_DEPENDENT = {
    **dict.fromkeys(("cost_per_run", "cost_per_token", "tokens_per_cost"), "prices"),
    **dict.fromkeys(("carbon_per_run", "carbon_per_token"), "emissions"),
    **dict.fromkeys(("run_time", "run_time_with_failures"), "failures"),
}
_TIME_INDEPENDENT = {
    **dict.fromkeys(("capital_cost", "device_price", "tco_per_year", "cost_per_device_hour"), "prices"),
    "device_carbon": "emissions",
}
METRICS = _TIME_DEPENDENT | _TIME_INDEPENDENT

#: Price of an accelerator as sold; of a generated one the seller's margin.
DEVICE, MARGIN = f"{MANUFACTURE}.price", f"{MANUFACTURE}.margin"

#: Kind of prices → how their leaves begin, and the one that is paid for energy.
_LEAVES = {
    "prices": ("system.prices.", DEVICE), "failures": ("system.reliability.",),
    "emissions": ("system.emissions.", "system.prices.lifetime", "system.prices.in_use"),
}  # fmt: skip
_ENERGY = {"prices": "system.prices.electricity", "emissions": "system.emissions.grid"}

#: Counts and choices: nothing that is uncertain.
_EXACT = ("radix", "node_devices", "spares", "checkpoint", "checkpoint_every")


class PriceSensitivity(NamedTuple):
    """Sensitivity of a metric of money, carbon or a run to prices and energy, besides its time."""

    prices: dict[str, float]  #: leaf path → change of the log metric for a spread more
    energy: float  #: elasticity to energy


def add_money_records(design: Design, study: Study, device_price: float | None = None) -> Design:
    """Return the design with default records of money, emissions and, in training, failures where it has none.

    ``device_price``: price of its accelerator in USD, set in it where that is not a generated one.
    """
    system = design.system
    accelerator = dataclasses.replace(system.accelerator, made=system.accelerator.made or Manufacture())
    is_training = study.name == "training"
    full_system = dataclasses.replace(
        system,
        prices=system.prices or Prices(),
        emissions=system.emissions or Emissions(),
        accelerator=accelerator,
        reliability=system.reliability or (Reliability() if is_training else None),
    )
    full_design = dataclasses.replace(design, system=full_system)
    has_price = device_price is not None and accelerator.chip is None
    return replace(full_design, {DEVICE: np.float32(device_price)}) if has_price else full_design


def price_spreads(design: Design, kind: str, accelerator: str, fixed_paths: Collection[str] = ()) -> dict[str, float]:
    """Return leaf path → standard deviation of the logarithm of a price, emission factor or time between failures.

    Args:
        design: with all records of money (:func:`add_money_records`).
        kind: ``prices``, ``emissions`` or ``failures``.
        accelerator: its name in the catalogue; "" where unknown.
        fixed_paths: paths of values that the user has stated.
    """
    table = parse(catalog.catalog_root() / "prices.toml")
    spread_by_path = {}
    for path, leaf_info in all_leaves().items():
        is_exact = "enum" in leaf_info or path.rpartition(".")[2] in _EXACT or path in fixed_paths
        if (
            is_exact
            or not path.startswith(_LEAVES[kind])
            or path.startswith("system.reliability.") != (kind == "failures")
            or not float(leaf(design, path) if _has_record(design, path) else 0.0)
        ):
            continue
        confidence = float(table["confidence"][_confidence(leaf_info)])
        spread_by_path[path] = _device_price_spread(table, accelerator) if path == DEVICE else confidence
    if kind == "prices" and design.system.accelerator.chip is not None and MARGIN not in fixed_paths:
        margin = float(leaf(design, MARGIN))  # of 1 - margin, as far as the rule is off accelerators that are sold
        spread_by_path[MARGIN] = float(table["device"]["dies"]) * (1.0 - margin) / margin
    return spread_by_path


def _has_record(design: Design, path: str) -> bool:
    """Return True where a design has the record of a leaf."""
    return leaf(design, path.rpartition(".")[0]) is not None


def _confidence(leaf_info: Mapping[str, Any]) -> str:
    """Return the confidence of a default by the words of its source: ``estimate`` or ``paper``."""
    source = leaf_info.get("source", "")
    return "estimate" if not source or "estimate" in f"{source} {leaf_info['long_name']}" else "paper"


def _device_price_spread(table: Mapping[str, Any], accelerator: str) -> float:
    """Return the log standard deviation of an accelerator's price, by its file's confidence or the rule for it."""
    if not accelerator:
        return float(table["device"]["watts"])
    price_record = catalog.manufacture(accelerator)
    if not price_record["price"]:
        return float(table["device"]["dies" if price_record["logic_area"] else "watts"])
    values = catalog.entry("accelerator", accelerator).values
    return float(table["confidence"][values["made.price" if "made.price" in values else "price"].confidence])


def price_sensitivities(
    designs: Sequence[Design],
    accelerators: Sequence[str],
    metrics: Sequence[str],
    study: Study,
    fixed_paths: Sequence[Collection[str]] = (),
) -> list[dict[str, PriceSensitivity]]:
    """Return of each design metric → what it depends on, for metrics of money, carbon and runs.

    One call of the model evaluates all prices.

    Args:
        designs: of one study.
        accelerators: of each its name in the catalogue; "" where unknown.
        metrics: names; others than :data:`METRICS` are left out.
        study: the study.
        fixed_paths: of each the paths of values that the user has stated, which have no spread.
    """
    metric_names = [name for name in metrics if name in METRICS and name in study.units]
    if not metric_names:
        return [{} for _ in designs]
    device_prices = evaluate_many(designs, study)["device_price"]
    full_designs = [
        add_money_records(design, study, float(price)) for design, price in zip(designs, device_prices, strict=True)
    ]
    kinds = dict.fromkeys(METRICS[name] for name in metric_names)
    spreads_by_design = [
        {kind: price_spreads(design, kind, chip, fixed) for kind in kinds}
        for design, chip, fixed in zip(full_designs, accelerators, fixed_paths or [()] * len(full_designs), strict=True)
    ]
    all_spreads = [dict(ChainMap(*kind_spreads.values())) for kind_spreads in spreads_by_design]
    perturbations = uncertainty.perturb(full_designs, all_spreads, study)
    slopes = {name: perturbations.slopes(name) for name in metric_names}

    def sensitivity(name: str, index: int) -> PriceSensitivity:
        """Return the sensitivity of a metric of a design."""
        spreads, energy_path = spreads_by_design[index][METRICS[name]], _ENERGY.get(METRICS[name], "")
        prices = {path: float(slopes[name][path][index]) for path in spreads if slopes[name][path][index]}
        return PriceSensitivity(
            prices, abs(prices[energy_path] / spreads[energy_path]) if energy_path in prices else 0.0
        )

    return [{name: sensitivity(name, index) for name in metric_names} for index in range(len(designs))]


def part_name(path: str, metric: str) -> str:
    """Return the name of the part of a metric's log error that a leaf's price, factor or time belongs to."""
    return "device price" if path in (DEVICE, MARGIN) else METRICS[metric]


def time_and_energy_parts(
    sensitivity: PriceSensitivity, metric: str, design: Design, stack: str, levels: Levels, study: Study
) -> dict[str, float]:
    """Return part → standard deviation of a metric's log error by time and energy.

    Of a rate of requests that is given, what is served does not vary with time.
    """

    def parts(name: str) -> dict[str, float]:
        """Return the parts of another metric's error."""
        return uncertainty.parts_of(name, design, stack, levels, study)

    if not study.residuals:
        board = sensitivity.energy * parts("energy_per_step")["board"]
        return (parts("step_time") if metric in _TIME_DEPENDENT else {}) | ({"board": board} if board else {})
    requests = design.workload.requests
    is_open = requests is not None and float(requests.load) == float(Load.rate)
    time_elasticity = 0.0 if metric not in _TIME_DEPENDENT or is_open else 1.0 - sensitivity.energy
    rate_parts, energy_parts = parts(study.rate), parts(study.energy)
    return {
        name: time_elasticity * rate_parts.get(name, 0.0) + sensitivity.energy * energy_parts.get(name, 0.0)
        for name in {**rate_parts, **energy_parts}
    }
