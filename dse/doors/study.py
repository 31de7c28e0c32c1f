"""What a kind of study is: the model's door, the metrics behind it, and what is known of both.

Sweeps, searches, explanations and predictions ask a :class:`Study` and import no model: what trains and what serves
are two of these records over the same designs.
"""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntFlag
from typing import Any, NamedTuple

import numpy as np

from dse.designs import leaf
from dse.designs.records import PLAIN_EXPERTS
from dse.equations import ScalarFunction
from dse.types import Design, Message, Operator, Scalar
from dse.types.metrics import CARBON, ENERGY, MONEY, RUN, TAILS, parts_of

#: Reads a metric, or a leaf by its full path.
Lookup = Callable[[str], Scalar]

#: Degrees of parallelism by leaf path, one value a row of mappings.
Degrees = Mapping[str, np.ndarray]

#: Metrics by name of a design with plain numbers as leaves.
Evaluated = Callable[[Design], Mapping[str, float]]

#: Where an option changes nothing, a truth value a row of degrees.
IdleRule = Callable[[Degrees], np.ndarray]


class SameOption(NamedTuple):
    """A value of an option that means the same as another one at some degrees."""

    path: str
    value: float
    same_as: float
    where: IdleRule

    def counts(self, column: np.ndarray) -> np.ndarray:
        """Return the option's values [row] with ``value`` replaced by ``same_as``, whatever ``where`` says."""
        return np.where(column == self.value, self.same_as, column)


#: Metrics that say whether and why a design cannot run.
_FEASIBILITY = ("feasible", "infeasible_reason")

#: Name of the reason that a constraint of the specification is, after the model's own.
CONSTRAINT = "constraint"


#: Metrics to maximise, by prefix, suffix or substring of their names.
_MORE_IS_BETTER = (
    "tokens_per_",
    "per_second",
    "mfu",
    "hfu",
    "goodput",
    "share_in_time",
    "availability",
    "probability",
    "concurrency_limit",
    "time_between_failures",
    "hit_rate",
)


def more_is_better(metric: str) -> bool:
    """Return True for a metric that is maximised, by its name; False for one that is minimised.

    >>> more_is_better("tokens_per_second"), more_is_better("step_time")
    (True, False)
    """
    return any(word in metric for word in _MORE_IS_BETTER)


class Breakdown(NamedTuple):
    """Parts of a model's work and time at one design, empty where the study has none."""

    design: Design  #: as it runs: at the clock that its power allows
    layer: Mapping[str, Scalar] = types.MappingProxyType({})  #: parts of the time of one layer and micro-batch
    sections: Mapping[str, Sequence[Operator]] = types.MappingProxyType({})  #: section → its operators
    phases: Mapping[str, Any] = types.MappingProxyType({})  #: kind of step → its seconds by what bounds them
    rates: Any = None  #: those of the operators, where they are not those of a training step
    messages: Sequence[Message] = ()  #: what a device sends


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A kind of study. Equal to itself alone, so that it may be a static argument of compiled programs.

    A stand-in for a model is ``dataclasses.replace(TRAINING, name=…, evaluate=…)``.
    """

    name: str
    evaluate: Callable[[Design], Any]  #: the metrics of one design, a record of ``metrics``; pure, scalar by scalar
    metrics: type  #: record whose fields carry units, long names and groups; has ``feasible`` and ``infeasible_reason``
    reasons: type[IntFlag]  #: why a design cannot run
    meanings: Mapping[Any, str]  #: one sentence a reason
    objective: str  #: the metric made small where nothing else is asked
    memory: str  #: the metric held against the capacity of a device
    memory_reasons: IntFlag  #: the reasons that only say that something does not fit
    shortfalls: Callable[[Design, Any], dict[Any, Scalar]]
    #: (design, metrics) → reason → logarithm of what is needed over what there is, for the reasons that have a degree
    hypothetical: int = 0
    #: bits of further reasons under which a design would run the same step: with more power, on another stack
    rate: str = ""  #: the metric made large where workloads are compared, which the objective does not tell apart
    energy: str = ""  #: the metric of energy that figures draw
    front_axes: tuple[str, str] | None = None  #: two metrics, the more the better, whose front is drawn of any results
    main_metrics: tuple[str, ...] = ()  #: in tables of the best designs, in this order
    capacity: Callable[[Design], Scalar] = lambda design: design.system.accelerator.memory.capacity
    #: bytes of a device that may be taken of what it has
    optional: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    #: group of metrics left out unless asked for → how the leaves begin that nothing but these depends on
    neutral_values: Mapping[str, float] = dataclasses.field(default_factory=dict)
    #: leaves that its model does not read → a value to which no rule of divisibility objects
    idle_options: Mapping[str, IdleRule] = dataclasses.field(default_factory=dict)
    #: option of the mapping → where it changes nothing; its plain value 0 then stands for all of them
    same_options: tuple[SameOption, ...] = ()  #: of options that are not idle there

    caution: Callable[[Mapping[str, float], Design, Evaluated], str] = lambda metrics, design, evaluated: ""
    #: (metrics by name, design, metrics of any design) → what a reader of them must know, in one line, or nothing
    complete: Callable[[Design], Design] = lambda design: design
    #: the same design with the records of this kind that it left to their defaults
    work_leaves: Callable[[Design], tuple[str, ...]] = lambda design: ()
    #: leaves that say what a step or a request of a design works on
    work: Callable[[Mapping[str, Any]], str] = lambda labels: ""
    #: labels of some of these leaves → what each step or request works on, in one line
    breakdown: Callable[[Design], Breakdown] = lambda design: Breakdown(design)
    residuals: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: metric → kind of the residual of a stack that its interval has alone; none for intervals of the step time
    ignored_leaves: tuple[
        str, ...
    ] = ()  #: leaves, or how they begin, that its model does not read though a mapping has them
    bounds: Callable[[Design], Any] | None = None
    #: seconds of the first total by what bounds them, a named tuple of scalars that add up to it; pure

    def __repr__(self) -> str:
        """Return a short text, which stands in the signatures that ``help`` shows."""
        return f"Study({self.name!r})"

    @property
    def is_builtin(self) -> bool:
        """True for a model of this package, whose code digest covers every change of it."""
        return getattr(self.evaluate, "__module__", "").startswith("dse.")

    # --- metrics ------------------------------------------------------------------------------------------

    @functools.cached_property
    def _metadata(self) -> dict[str, Mapping[str, Any]]:
        """Metric name → metadata of its field, in the model's order."""
        return {field.name: field.metadata for field in dataclasses.fields(self.metrics)}

    @functools.cached_property
    def units(self) -> dict[str, str]:
        """Metric name → its SI units as text, in the model's order."""
        return {name: about["units"] for name, about in self._metadata.items()}

    @functools.cached_property
    def display_units(self) -> dict[str, str]:
        """Metric name → its units as text for display, with what a rate counts (``tokens/s``)."""
        counts = {name: about["counts"] for name, about in self._metadata.items() if "counts" in about}
        return self.units | {name: f"{things}/s" for name, things in counts.items()}

    @functools.cached_property
    def upper_bounds(self) -> dict[str, float]:
        """Metric name → its upper bound in SI units, infinite where there is none."""
        return {name: about["bounds"].high for name, about in self._metadata.items()}

    @functools.cached_property
    def long_names(self) -> dict[str, str]:
        """Metric name → its description."""
        return {name: about["long_name"] for name, about in self._metadata.items()}

    def group(self, name: str) -> frozenset[str]:
        """Return the names of the metrics of a group, empty for an unknown group."""
        return frozenset(metric for metric, about in self._metadata.items() if about.get("group") == name)

    @functools.cached_property
    def totals(self) -> tuple[str, ...]:
        """Names of the metrics that are the sum of declared parts, in the model's order."""
        return tuple(dict.fromkeys(about["total"] for about in self._metadata.values() if "total" in about))

    def parts(self, total: str) -> dict[str, str]:
        """Return metric → name of the part for the declared parts that add up to a total, empty for other metrics."""
        return parts_of(self.metrics, total)

    @property
    def smooth(self) -> tuple[str, ...]:
        """Names of the metrics that may be differentiated, in the model's order."""
        return tuple(
            name for name, about in self._metadata.items() if name not in _FEASIBILITY and about.get("smooth", True)
        )

    def capacity_of(self, design: Design) -> float:
        """Return the bytes that the ``memory`` of a design with plain numbers as leaves may take on a device."""
        return float(self._capacity(design)[0])

    @functools.cached_property
    def _capacity(self) -> ScalarFunction:
        """Scalar function from a design to its capacity."""
        cache_key = f"capacity of {self.name}" if self.is_builtin else None
        return ScalarFunction(lambda design: (self.capacity(design), None), cache_key)

    @functools.cached_property
    def _numbers(self) -> ScalarFunction:
        """Scalar function from a design to its metrics by name."""

        def numbers(design: Design) -> tuple[dict[str, Scalar], None]:
            metrics = self.evaluate(design)
            return {name: getattr(metrics, name) for name in self.units}, None

        return ScalarFunction(numbers, f"metrics of {self.name}" if self.is_builtin else None)

    def evaluated(self, design: Design) -> dict[str, float]:
        """Return metric name → float for a design with plain numbers as leaves."""
        return {name: float(value) for name, value in self._numbers(design)[0].items()}

    def caution_on(self, metrics: Mapping[str, float], design: Design) -> str:
        """Return a caution about a design's metrics as one line of text, empty where there is none."""
        return self.caution(metrics, design, self.evaluated)

    def lookup(self, design: Design, metrics: Any) -> Lookup:
        """Return the function from a metric's name or a leaf's path to its value, 1 for degrees of absent experts."""

        def value(name: str) -> Any:
            if name in self.units:
                return getattr(metrics, name)
            return PLAIN_EXPERTS[name] if name in PLAIN_EXPERTS and not has_experts else leaf(design, name)

        has_experts = design.mapping.experts is not None
        return value

    # --- reasons ------------------------------------------------------------------------------------------

    @functools.cached_property
    def constraint_bit(self) -> int:
        """Bit of ``infeasible_reason`` for a constraint of the specification, the first after the model's."""
        return 1 << max(self.reasons).bit_length()

    @property
    def feasible_bit(self) -> int:
        """Bit that marks feasible designs where these are counted with the reasons, the first after all reasons."""
        return self.constraint_bit << 1

    @functools.cached_property
    def reason_bits(self) -> dict[str, int]:
        """Name of a reason → its bit of ``infeasible_reason``."""
        bits = {name: int(reason) for name, reason in self.reasons.__members__.items()}
        return bits | {CONSTRAINT: self.constraint_bit}

    @functools.cached_property
    def reason_meanings(self) -> dict[str, str]:
        """Name of a reason → its meaning in one sentence."""
        meanings = {name: self.meanings[reason] for name, reason in self.reasons.__members__.items()}
        return meanings | {CONSTRAINT: "a constraint of the sweep is not met"}

    @functools.cached_property
    def no_step_bits(self) -> int:
        """Sum of the bits of reasons without a step to time: sizes that do not divide, precisions without arithmetic.

        What only exceeds a memory or a limit, or a constraint of the specification, would run at its times with more.
        """
        all_bits = sum(int(reason) for reason in self.reasons)
        return all_bits & ~(int(self.memory_reasons) | int(self.hypothetical))

    def is_valid_without_step(self, metric: str) -> bool:
        """True for a metric that holds for a design without a step: of model, memory, machine or feasibility."""
        return metric in _FEASIBILITY or bool(self._metadata[metric].get("without_step"))

    def reasons_in(self, bits: int) -> Iterator[str]:
        """Yield the names of the reasons, the constraint among them, whose bits are set in ``bits``."""
        return (name for name, bit in self.reason_bits.items() if bits & bit)


def imported(path: str) -> Callable[..., Any]:
    """Return a function that is imported when it is first called: programs read from disk never need the model.

    Args:
        path: module and name, ``dse.doors.serving:serve``.
    """
    return lambda *arguments: pkgutil.resolve_name(path)(*arguments)


#: Group of metrics → how the leaves begin that nothing but these depends on, in training and serving alike.
OPTIONAL = {
    ENERGY: ("system.accelerator.power.", "system.accelerator.chip.", "system.host_power", "system.pue"),
    MONEY: ("system.prices.", "system.accelerator.made.", "system.accelerator.fab."),
    CARBON: ("system.emissions.",),
    RUN: ("system.reliability.",),
    TAILS: (),
}
