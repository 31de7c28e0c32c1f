"""Specifications of co-design: a sweep specification of mappings and workloads with a section ``[codesign]``.

::

    [codesign]
    shares = [["chip.core_power", "chip.memory_power", "chip.link_power"]]  # each list keeps its sum
    weights = [1, 1]  # of the workloads, in their order
    whole_stacks = true  # of the chip that is reported: rounded both ways, the better one

    [codesign.between]
    "chip.die_area" = { from = "200 mm2", to = "800 mm2" }

    [codesign.budget]
    cost = "6000 USD"
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from dse.io import toml
from dse.spec import sweep as sweep_spec
from dse.spec.document import Natural, Positive, Section, Truth, checked, counted
from dse.spec.sweep import SweepSpec

SECTION = "codesign"


class Budget(Section):
    """What a chip may take; quantities as texts with units or as SI numbers."""

    area: Any = None
    power: Any = None
    cost: Any = None


class Codesign(Section):
    """``[codesign]``: what may change, within what, and how it is searched (defaults: ``Schedule``)."""

    shares: tuple[Annotated[tuple[str, ...], Field(min_length=2)], ...] = Field(
        (), description="lists of two or more shares", title='write [["chip.memory_edge", "chip.link_edge"]]'
    )
    weights: tuple[Positive, ...] | None = Field(None, title="one for each workload")
    between: Mapping[str, Any] = Field(default_factory=dict)
    budget: Budget = Budget()
    whole_stacks: Truth = False
    starts: counted(1, 10_000) | None = None  # type: ignore[valid-type]
    steps: counted(1, 100_000) | None = None  # type: ignore[valid-type]
    seed: Natural | None = None
    k: counted(1, 10_000) | None = None  # type: ignore[valid-type]
    rate: Positive | None = None
    last_rate: Positive | None = None
    temperature: Positive | None = None
    last_temperature: Positive | None = None
    stiffness: Positive | None = None
    last_stiffness: Positive | None = None


class CodesignSpec(NamedTuple):
    """A checked specification: the sweep of mappings and workloads, and its section."""

    sweep: SweepSpec
    section: Codesign


def is_codesign(path: str | Path) -> bool:
    """Whether a file is a specification of co-design."""
    return SECTION in toml.parsed(sweep_spec.text_of(path), str(path))


def read(path: str | Path) -> CodesignSpec:
    """The specification in a TOML file; whatever is wrong with it is an InputError."""
    return from_text(sweep_spec.text_of(path), str(path))


def from_text(text: str, file: str = "codesign.toml") -> CodesignSpec:
    """The specification in a TOML text; ``file`` is what errors call it."""
    document = copy.deepcopy(toml.parsed(text, file))
    section = checked(Codesign, document.pop(SECTION, None), f"{file}: {SECTION}")
    return CodesignSpec(sweep_spec.from_document(document, text, file), section)
