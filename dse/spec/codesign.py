"""What a descent is told, and ``[codesign]``, which says in one section what a search by descent says in its own.

::

    [axes]                                               # or, in one section:
    "chip.die_area" = { from = "200 mm2",                # [codesign]
        to = "800 mm2", continuous = true }              # shares = [["chip.core_power", "chip.memory_power"]]
    [constraints]                                        # whole_stacks = true
    all = ["device_cost <= '6000 USD'"]                  # [codesign.between]
    [search]                                             # "chip.die_area" = { from = "200 mm2", to = "800 mm2" }
    method = "descent"                                   # [codesign.budget]
    [search.descent]                                     # cost = "6000 USD"
    shares = [["chip.core_power", "chip.memory_power"]]  # each list keeps its sum
    whole_stacks = true  # of the chip that is reported: rounded both ways, the better of them
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from dse.designs import catalog, leaf_value
from dse.designs.leaves import reading_note
from dse.designs.records import CHIP
from dse.errors import InputError
from dse.spec.continuous import DEVICE_COST, Interval, Limit, descent_interval
from dse.spec.document import NaturalCount, Positive, Section, Truth, bounded_integer, checked
from dse.spec.space import flat

SECTION = "codesign"

#: The method that moves continuous hardware by its gradient.
DESCENT = "descent"

#: Key of ``[codesign.budget]`` → what it limits.
_BUDGETS = {"area": f"{CHIP}.die_area", "power": f"{CHIP}.power_budget", "cost": DEVICE_COST}


class DescentSchedule(Section):
    """Starts, steps, and the first and last rate, temperature and stiffness of a descent."""

    starts: bounded_integer(1, 10_000) = 12  # type: ignore[valid-type]
    steps: bounded_integer(1, 100_000) = 100  # type: ignore[valid-type]
    seed: NaturalCount = 0
    k: bounded_integer(1, 10_000) = 8  # type: ignore[valid-type]  #: mappings of the soft-min
    rate: Positive = 0.2  #: first step of a coordinate, in its logarithm
    last_rate: Positive = 0.002
    temperature: Positive = 0.03  #: first one, in logarithms of the objective
    last_temperature: Positive = 3e-4
    stiffness: Positive = 0.5  #: first one
    last_stiffness: Positive = 10.0

    def step_parameters(self, step: int) -> tuple[float, float, float]:
        """Return rate, temperature and stiffness of step ``step`` (from 0), geometric from first to last."""
        share = step / max(self.steps - 1, 1)

        def geometric(first: float, last: float) -> float:
            return first * (last / first) ** share

        return (
            geometric(self.rate, self.last_rate),
            geometric(self.temperature, self.last_temperature),
            geometric(self.stiffness, self.last_stiffness),
        )


class DescentSection(DescentSchedule):
    """``[search.descent]``: what keeps its sum, what workloads weigh, how it is searched."""

    shares: tuple[Annotated[tuple[str, ...], Field(min_length=2)], ...] = Field(
        (), description="lists of two or more shares", title='write [["chip.memory_edge", "chip.link_edge"]]'
    )
    weights: tuple[Positive, ...] | None = Field(None, title="one for each workload")
    whole_stacks: Truth = False

    @property
    def options(self) -> dict[str, Any]:
        """Name → value of the options that are written, of shares and of whole stacks."""
        names = "shares", "weights", "whole_stacks", *DescentSchedule.model_fields
        written = {"shares", "whole_stacks", *self.model_fields_set}
        return {name: getattr(self, name) for name in names if name in written}


class Budget(Section):
    """What a chip may take; quantities as texts with units or as SI numbers."""

    area: Any = None
    power: Any = None
    cost: Any = None


class CodesignSection(DescentSection):
    """``[codesign]``: a descent with its continuous axes and limits."""

    between: Mapping[str, Any] = Field(default_factory=dict)
    budget: Budget = Budget()


class Descent(NamedTuple):
    """Options, continuous axes and limits of a search by descent, as a section ``[codesign]`` has them."""

    options: dict[str, Any]
    intervals: tuple[Interval, ...]
    limits: tuple[Limit, ...]


def read(table: Any, file: str) -> Descent:
    """Return the table of a section ``[codesign]`` as options, continuous axes and limits, in SI units.

    InputError for any fault; ``file`` is its name there.
    """
    section = checked(CodesignSection, table, f"{file}: {SECTION}")
    intervals = tuple(_interval(*entry, f"{file}: {SECTION}.between") for entry in flat(section.between))
    budget = section.budget.model_dump(exclude_none=True).items()
    limits = tuple(_limit(key, value, f"{file}: {SECTION}.budget") for key, value in budget)
    return Descent(section.options, intervals, limits)


def _interval(name: str, value: Any, where: str) -> Interval:
    """Return a continuous axis of ``[codesign.between]`` from its table ``{ from, to }``, else InputError."""
    if not isinstance(value, dict) or set(value) != {"from", "to"}:
        fix = 'write { from = "200 mm2", to = "800 mm2" }'
        raise InputError(f"{where}.{name}", repr(value), "{ from, to }", fix)
    return descent_interval(name, value["from"], value["to"], f"{where}.{name}")


def _limit(key: str, value: Any, where: str) -> Limit:
    """Return the upper limit that a key of ``[codesign.budget]`` sets: die area, m2, power, W, or device cost, USD."""
    name = _BUDGETS[key]
    if name == DEVICE_COST:
        return Limit(name, catalog.quantity(str(value), "USD", where), True, f"{where}.{key}")
    upper_limit, note = leaf_value(name, value, f"{where}.{key}"), reading_note(f"budget.{key}", name, value)
    return Limit(name, upper_limit, True, f"{where}.{key}", note)
