"""Stated scenarios of a decision: other prices, imbalance, failures or clocks, with weights.

A scenario is a name and values of leaves, absolute (``25000``, ``"5 years"``) or relative (``"+30 %"``, ``"x 1.3"``).
Beside the stated ones there is always the designs as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.designs import all_leaves, catalog, leaf, leaf_path, replace
from dse.doors import Study
from dse.errors import InputError
from dse.io import inputs, toml
from dse.measured.prediction import evaluate_many
from dse.measured.uncertainty import bills
from dse.types import Design

#: Name of the scenario in which nothing is changed.
BASE_NAME = "as stated"

_NUMBER = r"\d+\.?\d*|\.\d+"
_RELATIVE = re.compile(rf"(?:(?P<sign>[+-])\s*(?P<share>{_NUMBER})\s*%|x\s*(?P<factor>{_NUMBER}))")


class Scenario(NamedTuple):
    """A named future: values of leaves and a weight."""

    name: str
    values: Mapping[str, Any]  #: name of a leaf → value, or by how much it changes
    weight: float = 1.0


def read_scenarios(path: Path) -> list[Scenario]:
    """Read the scenarios of a TOML file, one table of leaf values and ``weight`` each; InputError for other content."""
    return scenarios_of(toml.parse(inputs.text(path, "a TOML file"), str(path)), str(path))


def scenarios_of(document: Mapping[str, Any], where: str) -> list[Scenario]:
    """Return the scenarios of a document: by name, values of leaves and ``weight``.

    Args:
        document: name → leaf → value.
        where: its name in errors.

    Returns:
        The scenarios, in its order.

    Raises:
        InputError: for anything but tables of values, and for a weight that is no number of 0 or more.
    """
    scenarios = []
    for name, values in document.items():
        if not isinstance(values, Mapping):
            raise InputError(f"{where}: {name}", repr(values), "tables of values", f'write ["name"] over {name} = …')
        weight = values.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.0 <= weight < math.inf:
            raise InputError(f"{where}: {name}: weight", repr(weight), "0 or more", "write weight = 1")
        leaves = {leaf: value for leaf, value in values.items() if leaf != "weight"}
        scenarios.append(Scenario(name, leaves, float(weight)))
    return scenarios


def parse_scenarios(text: str) -> list[Scenario]:
    """Parse scenarios of an option: a TOML file, or ``NAME: LEAF=VALUE, …``.

    Args:
        text: of the option.

    Returns:
        The scenarios.

    Raises:
        InputError: for text that is neither.

    >>> parse_scenarios("dear: made.price=+30 %")
    [Scenario(name='dear', values={'made.price': '+30 %'}, weight=1.0)]
    """
    if text.endswith(".toml"):
        return read_scenarios(Path(text))
    name, colon, assignments = text.partition(":")
    pairs = [assignment.partition("=") for assignment in assignments.split(",")]
    if not colon or not name.strip() or not all(key.strip() and value.strip() for key, _, value in pairs):
        raise InputError(
            "--scenario", repr(text), "NAME: LEAF=VALUE, … or FILE.toml", 'write --scenario "dear: made.price=+30 %"'
        )
    return [Scenario(name.strip(), {key.strip(): value.strip() for key, _, value in pairs})]


def add_base(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Return the scenarios after the one without changes, or raise InputError for duplicates and no weight."""
    names = [scenario.name for scenario in scenarios]
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise InputError("--scenario", f"{', '.join(sorted(duplicates))} twice", "each name once", "rename one of them")
    base = next((scenario for scenario in scenarios if scenario.name == BASE_NAME), Scenario(BASE_NAME, {}))
    all_scenarios = [base, *(scenario for scenario in scenarios if scenario is not base)]
    if not sum(scenario.weight for scenario in all_scenarios):
        raise InputError("--scenario", "no weight above 0", "one weight above 0", "write weight = 1")
    return all_scenarios


def apply_scenario(scenario: Scenario, designs: Sequence[Design], study: Study) -> list[Design]:
    """Return the designs with the values of a scenario, and with default records of money, emissions and failures.

    A leaf changes in designs that have it. A scenario without values returns the designs as they are.

    Raises:
        InputError: for a name that is no leaf, a value out of bounds, and a leaf that no design has.
    """
    if not scenario.values:
        return list(designs)
    where = f"--scenario {scenario.name}"
    paths = {leaf_path(name, where, study.name == "serving"): text for name, text in scenario.values.items()}
    device_prices = evaluate_many(designs, study)["device_price"]
    scenario_designs = [
        bills.add_money_records(design, study, float(price))
        for design, price in zip(designs, device_prices, strict=True)
    ]
    for path, text in paths.items():
        changed_designs = [_with_leaf(design, path, text, where) for design in scenario_designs]
        if all(new is old for new, old in zip(changed_designs, scenario_designs, strict=True)):
            raise InputError(where, path, "a leaf that a design has", "leave it out")
        scenario_designs = changed_designs
    return scenario_designs


def _with_leaf(design: Design, path: str, text: Any, where: str) -> Design:
    """Return the design with a leaf set or changed by a scenario's text; itself where it lacks the leaf's record."""
    fields = path.split(".")
    for end in range(1, len(fields)):
        if leaf(design, ".".join(fields[:end])) is None:
            return design
    leaf_info = all_leaves()[path]
    if isinstance(text, str) and (relative_match := _RELATIVE.fullmatch(text.strip())):
        factor = (
            float(relative_match["factor"])
            if relative_match["factor"]
            else 1.0 + float(f"{relative_match['sign']}{relative_match['share']}") / 100.0
        )
        value = float(leaf(design, path)) * factor
    else:
        value = _number(text, leaf_info["units"], f"{where}: {path}")
    if value not in leaf_info["bounds"]:
        raise InputError(f"{where}: {path}", f"{value:g}", str(leaf_info["bounds"]), "choose a value within")
    return replace(design, {path: np.float32(value)})


def _number(text: Any, units: str, where: str) -> float:
    """Return an absolute value as a number in SI units, or raise InputError for what looks like a change or is none."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise InputError(where, repr(text)[:200], "a number, or a text with a unit or a change", "write '+30 %' or 0.2")
    if isinstance(text, str) and re.match(r"[+x]|.*%$", text.strip()):
        magnitude = text.strip().strip("+x% ")
        raise InputError(where, repr(text), "VALUE, +SHARE % or x FACTOR", f"write '+{magnitude} %' or '{magnitude}'")
    try:
        return float(text)
    except ValueError:
        return catalog.quantity(str(text), units, where)
