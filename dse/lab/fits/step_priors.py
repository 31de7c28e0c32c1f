"""Parameters of software stacks fitted to steps, and their priors by lineage, chips, and similar stacks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dse.designs import catalog
from dse.io import toml
from dse.lab.fits.fit import parameters_of
from dse.types import Attention, Software

#: ``parameters.toml``: fit → its parameters, and the stacks that take part.
DOCUMENT = toml.table(FILE := Path(__file__).with_name("parameters.toml"))

#: Parameters with priors and bounds, and the names of their fields of :class:`dse.types.Software`.
PARAMETERS, NAMES = parameters_of(DOCUMENT["steps"], "software."), tuple(DOCUMENT["steps"])

#: Standard deviation in prior spreads, of a lineage from the shared value and of the stacks on one family of chips.
LINEAGE_SPREADS, FAMILY_SPREADS = (
    {name: row[group] for name, row in DOCUMENT["steps"].items() if group in row} for group in ("lineage", "family")
)

#: Standard deviation of a stack from its lineage.
STACK_SPREADS = {name: 0.8 * stray for name, stray in LINEAGE_SPREADS.items()}

#: Physical range of a value; outside of it, it absorbs what is not modelled.
PHYSICAL = {name: tuple(row["physical"]) for name, row in DOCUMENT["steps"].items() if "physical" in row}

#: Stacks not fitted to steps.
NOT_FITTED = tuple(DOCUMENT["stacks"]["not_fitted"])

#: Families of chips, by the files of their kernel efficiencies.
FAMILIES = frozenset(catalog.names("kernels"))


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
def published(stack: str) -> np.ndarray:
    """Return the shift [parameter] of a stack's parameters by publications before any step, in prior spreads.

    From ``flash_published`` of its file: kernels of one generation relative to the next.
    """
    shifts = np.zeros(len(NAMES))
    if stack in catalog.names("software"):
        flash = NAMES.index("flash_slowdown")
        shifts[flash] = PARAMETERS[flash].times(catalog.entry("software", stack).value("flash_published", 1.0))
    return shifts


#: Lineages of the stacks.
LINEAGES = frozenset(map(lineage_of, catalog.readable_names("software"))) - {""}


def stack_parameters(software: Software) -> list[str]:
    """Return the names of the parameters fitted per stack, five: without ``host_time`` or ``flash_slowdown``."""
    excluded = "host_time" if software.attention == Attention.flash else "flash_slowdown"
    return [name for name in STACK_SPREADS if name != excluded]


def fitted_as(stack: str) -> str:
    """Return the stack whose fitted values this one shares, itself for most."""
    return str(DOCUMENT["stacks"]["shared_fits"].get(stack, stack))


def prior_of(group: str, name: str) -> float:
    """Return the prior standard deviation of a column's ``z``, in prior spreads.

    Args:
        group: stack, lineage, family of chips, or "" for shared values.
        name: of the parameter.
    """
    if not group:
        return 1.0
    if group in FAMILIES:
        return FAMILY_SPREADS[name]
    return (LINEAGE_SPREADS if group in LINEAGES else STACK_SPREADS)[name]


def is_physical(name: str, values: Mapping[str, float]) -> bool:
    """Return whether the value of a parameter, by name in ``values``, is in its physical range; always without a range.

    The attention of a step includes the slow-down of matrices, so both together compare with the isolated kernel.
    """
    low, high = PHYSICAL.get(name, (0.0, np.inf))
    value = values[name] * (values["matrix_slowdown"] if name == "flash_slowdown" else 1.0)
    return low <= value <= high
