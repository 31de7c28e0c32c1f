"""Parameters of stacks and chips fitted to steps, and their priors by code base, stack, release, family and chip."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dse.designs import catalog
from dse.io import toml
from dse.lab.fits.fit import parameters_of

#: ``parameters.toml``: fit → its parameters, and the stacks that take part.
DOCUMENT = toml.table(FILE := Path(__file__).with_name("parameters.toml"))

#: Table of parameters → where its leaves are in a design.
PREFIXES = {"steps": "software.", "experts": "software.experts.", "chips": "system.accelerator.kernels."}

#: Parameters with priors and bounds, and their names: of stacks, of experts, of chips.
PARAMETERS = tuple(p for table, prefix in PREFIXES.items() for p in parameters_of(DOCUMENT[table], prefix))
NAMES, EXPERT_NAMES, CHIP_NAMES = (tuple(DOCUMENT[table]) for table in PREFIXES)
ALL_NAMES = (*NAMES, *EXPERT_NAMES, *CHIP_NAMES)

#: Kind of group → name of a parameter → standard deviation from the value of the wider group, in prior spreads.
SPREADS: dict[str, dict[str, float]] = {
    kind: {name: row[kind] for table in PREFIXES for name, row in DOCUMENT[table].items() if kind in row}
    for kind in ("family", "chip", "lineage", "stack", "release")
}

#: Physical range of a value; outside of it, it absorbs what is not modelled.
PHYSICAL = {name: tuple(row["physical"]) for name, row in DOCUMENT["steps"].items() if "physical" in row}

#: Stacks not fitted to steps.
NOT_FITTED = tuple(DOCUMENT["stacks"]["not_fitted"])


@functools.cache
def lineage_of(stack: str) -> str:
    """Return the lineage of a stack, "" for none, for one outside the catalogue and for the shared values."""
    if stack not in catalog.names("software"):
        return ""
    return str(catalog.entry("software", stack).value("lineage", ""))


def is_levelled(stack: str) -> bool:
    """Return whether a stack takes part in the calibration of TPU levels only."""
    return lineage_of(stack) in DOCUMENT["stacks"]["levelled"]


@functools.cache
def published(stack: str) -> float:
    """Return the time of a stack's attention over that of the best kernel of its chip by publications, 1 without one.

    From ``flash_published`` of its file: kernels of one generation relative to the next.
    """
    known = stack in catalog.names("software")
    return float(catalog.entry("software", stack).value("flash_published", 1.0)) if known else 1.0


@functools.cache
def releases_of(stack: str) -> tuple[str, ...]:
    """Return the releases that lead to a stack of a code base, each a step from the one before; none for others."""
    orders = DOCUMENT["stacks"]["releases"].values()
    return next((tuple(order[1 : order.index(stack) + 1]) for order in orders if stack in order), ())


def fitted_as(stack: str) -> str:
    """Return the stack whose own values this one shares, itself for most."""
    base = next((base for base, order in DOCUMENT["stacks"]["releases"].items() if stack in order), stack)
    return str(DOCUMENT["stacks"]["shared_fits"].get(base, base))


def groups_of(stack: str) -> list[tuple[str, str]]:
    """Return the groups (kind, label) whose values add up to those of a stack, the narrowest last."""
    base = fitted_as(stack)
    groups = [("", ""), ("lineage", lineage_of(base)), ("stack", base)]
    return groups + [("release", release) for release in releases_of(stack)]


def chip_groups(family: str, chip: str) -> list[tuple[str, str]]:
    """Return the groups (kind, label) whose values add up to those of a chip, the narrowest last."""
    return [("", ""), ("family", family), ("chip", chip)]


def is_physical(name: str, values: Mapping[str, float]) -> bool:
    """Return whether the value of a parameter, by name in ``values``, is in its physical range; always without one."""
    low, high = PHYSICAL.get(name, (0.0, np.inf))
    return low <= values[name] <= high
