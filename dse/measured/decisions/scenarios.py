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

from dse.designs import catalog
from dse.designs.leaves import known_leaves, leaf, leaf_path, replace
from dse.doors.study import Study
from dse.errors import InputError
from dse.io import inputs, toml
from dse.measured.prediction import evaluate_many
from dse.measured.uncertainty import bills
from dse.types import Design

#: Name of the scenario in which nothing is changed.
AS_STATED = "as stated"

_NUMBER = r"\d+\.?\d*|\.\d+"
_RELATIVE = re.compile(rf"(?:(?P<sign>[+-])\s*(?P<share>{_NUMBER})\s*%|x\s*(?P<factor>{_NUMBER}))")


class Scenario(NamedTuple):
    """A future that may come."""

    name: str
    values: Mapping[str, Any]  #: name of a leaf → value, or by how much it changes
    weight: float = 1.0


def read(path: Path) -> list[Scenario]:
    """Scenarios of a TOML file: a table each, of leaf values, and ``weight``; InputError for what is none."""
    found = []
    for name, values in toml.parsed(inputs.text(path, "a TOML file"), str(path)).items():
        if not isinstance(values, dict):
            raise InputError(f"{path}: {name}", repr(values), "tables of values", f'write ["name"] over {name} = …')
        weight = values.pop("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.0 <= weight < math.inf:
            raise InputError(f"{path}: {name}: weight", repr(weight), "0 or more", "write weight = 1")
        found.append(Scenario(name, values, float(weight)))
    return found


def parsed(text: str) -> list[Scenario]:
    """Scenarios of an option: a TOML file, or ``NAME: LEAF=VALUE, …``.

    >>> parsed("dear: made.price=+30 %")
    [Scenario(name='dear', values={'made.price': '+30 %'}, weight=1.0)]
    """
    if text.endswith(".toml"):
        return read(Path(text))
    name, colon, listed = text.partition(":")
    pairs = [one.partition("=") for one in listed.split(",")]
    if not colon or not name.strip() or not all(key.strip() and value.strip() for key, _, value in pairs):
        raise InputError(
            "--scenario", repr(text), "NAME: LEAF=VALUE, … or FILE.toml", 'write --scenario "dear: made.price=+30 %"'
        )
    return [Scenario(name.strip(), {key.strip(): value.strip() for key, _, value in pairs})]


def with_base(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Scenarios with the designs as they are, first; InputError for names twice and for no weight."""
    names = [one.name for one in scenarios]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError("--scenario", f"{', '.join(sorted(twice))} twice", "each name once", "rename one of them")
    base = next((one for one in scenarios if one.name == AS_STATED), Scenario(AS_STATED, {}))
    found = [base, *(one for one in scenarios if one is not base)]
    if not sum(one.weight for one in found):
        raise InputError("--scenario", "no weight above 0", "one weight above 0", "write weight = 1")
    return found


def applied(scenario: Scenario, designs: Sequence[Design], study: Study) -> list[Design]:
    """The designs in a scenario; what a design has no leaf for leaves it as it is.

    Raises:
        InputError: for a name that is no leaf, a value out of bounds, and a leaf that no design has.
    """
    if not scenario.values:
        return list(designs)
    where = f"--scenario {scenario.name}"
    paths = {leaf_path(name, where, study.name == "serving"): text for name, text in scenario.values.items()}
    bought = evaluate_many(designs, study)["device_price"]
    found = [bills.completed(one, study, float(price)) for one, price in zip(designs, bought, strict=True)]
    for path, text in paths.items():
        moved = [_moved(one, path, text, where) for one in found]
        if all(after is before for after, before in zip(moved, found, strict=True)):
            raise InputError(where, path, "a leaf that a design has", "leave it out")
        found = moved
    return found


def _moved(design: Design, path: str, text: Any, where: str) -> Design:
    owner = path.split(".")
    for end in range(1, len(owner)):
        if leaf(design, ".".join(owner[:end])) is None:
            return design
    about = known_leaves()[path]
    if isinstance(text, str) and (found := _RELATIVE.fullmatch(text.strip())):
        factor = float(found["factor"]) if found["factor"] else 1.0 + float(f"{found['sign']}{found['share']}") / 100.0
        value = float(leaf(design, path)) * factor
    else:
        value = _number(text, about["units"], f"{where}: {path}")
    if value not in about["bounds"]:
        raise InputError(f"{where}: {path}", f"{value:g}", str(about["bounds"]), "choose a value within")
    return replace(design, {path: np.float32(value)})


def _number(text: Any, units: str, where: str) -> float:
    """An absolute value, in SI units where it has none; InputError for what looks like a change."""
    if isinstance(text, str) and re.match(r"[+x]|.*%$", text.strip()):
        plain = text.strip().strip("+x% ")
        raise InputError(where, repr(text), "VALUE, +SHARE % or x FACTOR", f"write '+{plain} %' or '{plain}'")
    try:
        return float(text)
    except ValueError:
        return catalog.quantity(text, units, where)
