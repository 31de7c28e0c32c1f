"""Values that an explanation of a design consists of."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from dse.doors import TRAINING, Study
from dse.types import Design


class Share(NamedTuple):
    """One part of a total, in the total's units."""

    name: str
    value: float
    share: float


class OperatorRow(NamedTuple):
    """One operator per micro-batch and device."""

    section: str  #: ``layer``, ``embedding`` or ``head``
    name: str
    kind: str
    forward_time: float
    backward_time: float
    flops: float  #: forward and backward
    bytes: float  #: device memory, forward and backward
    intensity: float  #: FLOP/byte
    forward_bound: str  #: ``compute``, ``memory``, ``die links`` or ``kernel floor``
    backward_bound: str


class Elasticity(NamedTuple):
    """``d ln(metric) / d ln(parameter)``: change in per cent per per cent of the parameter."""

    parameter: str
    value: float
    units: str
    elasticity: float


class Reason(NamedTuple):
    """One reason of infeasibility."""

    name: str
    meaning: str
    numbers: str


@dataclasses.dataclass(frozen=True)
class ExplanationValues:
    """Values of an explanation of one design, in plain Python numbers and SI units."""

    metrics: dict[str, float]
    waterfalls: dict[str, list[Share]]  #: total of the study → its parts
    memory_capacity: float
    layer: list[Share]  #: parts of the time of one layer and micro-batch
    operators: list[OperatorRow]
    phases: dict[str, list[Share]]  #: kind of step → seconds by bound; empty with one kind
    elasticity_of: str  #: the metric
    elasticities: list[Elasticity]  #: largest first
    reasons: list[Reason]  #: empty for a feasible design
    caution: str  #: limits of validity of the metrics; "" for none
    design: Design
    study: Study = TRAINING

    @property
    def feasible(self) -> bool:
        """True if the design can run."""
        return not self.reasons

    @property
    def has_step(self) -> bool:
        """True if the metrics of a step are meaningful, whether or not memory, power and stack allow it."""
        return not int(self.metrics["infeasible_reason"]) & self.study.no_step_bits

    @property
    def claims(self) -> dict[str, float | None]:
        """Metrics by name, None for those of a step that is not meaningful."""
        is_valid = self.study.is_valid_without_step
        return {name: value if self.has_step or is_valid(name) else None for name, value in self.metrics.items()}

    @property
    def host_bound(self) -> bool:
        """True if the host launches a layer's kernels slower than the device executes them."""
        return self.metrics.get("step_time_host", 0.0) > 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready dictionaries and lists, without values of a meaningless step."""
        explanation = (
            self if self.has_step else dataclasses.replace(self, layer=[], operators=[], phases={}, elasticities=[])
        )
        valid_metrics = {name for name, value in self.claims.items() if value is not None}
        waterfalls = {name: parts for name, parts in self.waterfalls.items() if name in valid_metrics}
        return {
            "feasible": self.feasible,
            "reasons": [r._asdict() for r in self.reasons],
            "has_step": self.has_step,
            "caution": self.caution if self.has_step else "",
            "metrics": self.claims,
            "memory_capacity": self.memory_capacity,
            "waterfall": {
                name: [part._asdict() for part in parts]
                for name, parts in (waterfalls | {"layer_time": explanation.layer}).items()
            },
            "host_bound": self.host_bound and self.has_step,
            "operators": [o._asdict() for o in explanation.operators],
            "phases": {name: [part._asdict() for part in parts] for name, parts in explanation.phases.items()},
            "elasticity_of": self.elasticity_of,
            "elasticities": [e._asdict() for e in explanation.elasticities],
        }
