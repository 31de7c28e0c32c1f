"""``explain(design)``: why one design takes the time and memory it takes, and what would change it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dse.designs import known_leaves, leaf, leaves_of, replace, short_name
from dse.errors import InputError, unknown_name
from dse.model.accounts.bounds import kernel_bound
from dse.model.accounts.feasibility import usable_memory
from dse.model.machine.rates import Rates, step_rates
from dse.model.machine.roofline import operator_times
from dse.model.machine.technology import generated
from dse.study import TRAINING, Study
from dse.types import Design, Operator, OperatorKind, Scalar, Work

#: Numbers of a system or a stack that only come whole, or as yes and no: no slope is asked of them.
_WHOLE = frozenset({
    "n_devices", "domain", "cores", "tile_rows", "tile_columns", "in_network_reduction", "fused_elementwise",
    "softmax_batch", "gradient_cache", "scatter_gather", "activation_output_kept",
    "nominal_clock",  # the clock of reference: another one is another chip
})  # fmt: skip


class Share(NamedTuple):
    """One part of a total, in the total's units."""

    name: str
    value: float
    share: float


class OperatorRow(NamedTuple):
    """One operator for one micro-batch on one device."""

    section: str  #: ``layer``, ``embedding`` or ``head``
    name: str
    kind: str
    forward_time: float
    backward_time: float
    flops: float  #: forward and backward
    bytes: float  #: through device memory, forward and backward
    intensity: float  #: FLOP a byte
    forward_bound: str  #: ``compute``, ``memory`` or ``kernel floor``
    backward_bound: str


class Elasticity(NamedTuple):
    """``d ln(metric) / d ln(parameter)``: per cent of change for one per cent more of the parameter."""

    parameter: str
    value: float
    units: str
    elasticity: float


class Reason(NamedTuple):
    """One reason why a design cannot run."""

    name: str
    meaning: str
    numbers: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """One design explained; plain Python numbers in SI units."""

    metrics: dict[str, float]
    waterfalls: dict[str, list[Share]]  #: the study's totals, by metric
    memory_capacity: float
    layer: list[Share]  #: parts of the time of one layer and micro-batch
    operators: list[OperatorRow]
    elasticity_of: str  #: the metric
    elasticities: list[Elasticity]  #: largest first
    reasons: list[Reason]  #: empty when the design can run
    caution: str  #: what a reader must know of the metrics; empty where there is nothing

    @property
    def feasible(self) -> bool:
        """Whether the design can run."""
        return not self.reasons

    @property
    def host_bound(self) -> bool:
        """Whether launching a layer's kernels takes longer than running them."""
        return self.metrics.get("step_time_host", 0.0) > 0.0

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries and lists, ready for JSON."""
        return {
            "feasible": self.feasible,
            "reasons": [r._asdict() for r in self.reasons],
            "caution": self.caution,
            "metrics": self.metrics,
            "memory_capacity": self.memory_capacity,
            "waterfall": {
                name: [part._asdict() for part in parts]
                for name, parts in (self.waterfalls | {"layer_time": self.layer}).items()
            },
            "host_bound": self.host_bound,
            "operators": [o._asdict() for o in self.operators],
            "elasticity_of": self.elasticity_of,
            "elasticities": [e._asdict() for e in self.elasticities],
        }


def explain(design: Design, metric: str = "", study: Study = TRAINING) -> Explanation:
    """Metrics, waterfalls, what bounds each operator, and the elasticities of ``metric``.

    Args:
        design: one design with plain numbers as leaves.
        metric: what the elasticities are of: any positive metric that varies smoothly; by default the study's
            objective.
        study: which model is asked.

    Returns:
        Plain Python numbers in SI units; ``operators`` and ``layer`` are empty where a study has none.

    Raises InputError for a metric that the study does not have or that varies in steps.
    """
    metric = metric or study.objective
    if metric not in study.smooth:
        raise unknown_name("explain.metric", metric, study.smooth, "metrics")
    stated = jax.tree.map(float, design)
    design = jax.tree.map(float, generated(stated))
    with _one_by_one():
        metrics = {name: float(value) for name, value in dataclasses.asdict(study.evaluate(design)).items()}
        _check_finite(metrics)
        inside = study.inside(design)
        rates = step_rates(inside.design)
        return Explanation(
            metrics=metrics,
            waterfalls={total: _parts(metrics, total, study) for total in study.totals},
            memory_capacity=float(usable_memory(design)),
            layer=_shares({name: float(value) for name, value in inside.layer.items()}),
            operators=[
                _row(section, operator, rates)
                for section, operators in inside.sections.items()
                for operator in operators
                if operator.present
            ],
            elasticity_of=metric,
            elasticities=elasticities(stated, metric, study),
            reasons=reasons(design, metrics, study),
            caution=study.caution(metrics),
        )


def _one_by_one() -> contextlib.AbstractContextManager[None]:
    """Where one design is evaluated: operation by operation on the host.

    Compiling the model and its gradient takes 15 s for a single call that runs in 2 s uncompiled.
    """
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def _parts(metrics: dict[str, float], total: str, study: Study) -> list[Share]:
    return _shares({name.removeprefix(f"{total}_"): metrics[name] for name in study.parts(total)})


def _shares(parts: dict[str, float]) -> list[Share]:
    total = sum(parts.values())
    return [Share(name, value, value / total if total else 0.0) for name, value in parts.items()]


# Operators


def _row(section: str, operator: Operator, rates: Rates) -> OperatorRow:
    forward, *gradients = map(float, operator_times(operator, rates))
    works = [operator.forward, *operator.gradients]
    flops, moved = float(sum(w.flops for w in works)), float(sum(w.bytes for w in works))
    return OperatorRow(
        section=section,
        name=operator.name,
        kind=operator.kind,
        forward_time=forward,
        backward_time=sum(gradients),
        flops=flops,
        bytes=moved,
        intensity=flops / moved,
        forward_bound=_bound(operator.kind, [operator.forward], forward, rates),
        backward_bound=_bound(operator.kind, operator.gradients, sum(gradients), rates),
    )


def _bound(kind: OperatorKind, works: list[Work], time: float, rates: Rates) -> str:
    """What most of a pass's ``time`` is spent on."""
    bound = kernel_bound(kind, works, time, rates)
    return "kernel floor" if bound.floor else "compute" if bound.compute else "memory"


# Elasticities


def continuous_leaves(design: Design) -> tuple[str, ...]:
    """Paths of the numbers of a design's system and software that may take any value."""
    return tuple(
        path
        for path, meta in leaves_of(design).items()
        if path.startswith(("system.", "software."))
        and "enum" not in meta
        and path.rpartition(".")[2] not in _WHOLE
    )


def _check_finite(metrics: dict[str, float]) -> None:
    """That single precision held all that came between leaves and metrics."""
    lost = [name for name, value in metrics.items() if not math.isfinite(value)]
    if lost:
        raise InputError(
            "design", f"sizes or rates whose {lost[0]} overflows", "numbers of machines and models that may exist",
            "check values and units of what was set",
        )  # fmt: skip


def elasticities(design: Design, metric: str = "", study: Study = TRAINING) -> list[Elasticity]:
    """Elasticities of ``metric`` to the continuous parameters of system and software, largest first; zeros left out.

    Where a parameter stands at a limit, its elasticity is that of the side to which it can move: of a clock at the
    nominal one and a power limit as sold, of less; of a chip at room temperature, of more (no cooler). Of a link as
    fast as its network, the network's is that of less, the chip's that of more.

    ``metric``: the study's objective unless it is named.
    """
    metric = metric or study.objective
    present = {path: leaf(design, path) for path in continuous_leaves(design)}
    values = {path: float(value) for path, value in present.items() if value is not None}

    def log_metric(values: dict[str, Scalar]) -> Scalar:
        return jnp.log(getattr(study.evaluate(replace(design, values)), metric))

    slopes = jax.grad(log_metric)(values)  # one reverse pass over a tree of scalars
    found = [
        Elasticity(short_name(path), value, known_leaves()[path]["units"], value * float(slopes[path]))
        for path, value in values.items()
        if value
    ]
    return sorted((e for e in found if abs(e.elasticity) > 1e-6), key=lambda e: -abs(e.elasticity))


@functools.cache
# Reasons


def reasons(design: Design, metrics: dict[str, float], study: Study = TRAINING) -> list[Reason]:
    """Why ``design`` cannot run, in words and with its numbers; empty when it can."""
    numbers = study.reason_numbers(design, metrics)
    found = study.reasons_in(int(metrics["infeasible_reason"]))
    return [Reason(name, study.reason_meanings[name], numbers.get(name, "")) for name in found]
