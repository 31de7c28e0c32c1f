"""``explain(design)``: time and memory of one design by part, bounds, and sensitivities."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from dse.designs.leaves import known_leaves, leaf, leaves_of, replace, short_name
from dse.doors.scalars import ScalarFunction
from dse.doors.studies import STUDIES, of_another
from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.errors import InputError, unknown_name
from dse.types import Design, Operator, OperatorKind, Scalar

if TYPE_CHECKING:
    from dse.model.machine.rates import Rates

#: Whole numbers and flags of a system or a stack, which have no elasticity.
_WHOLE = frozenset({
    "n_devices", "domain", "cores", "tile_rows", "tile_columns", "in_network_reduction", "fused_elementwise",
    "softmax_batch", "gradient_cache", "scatter_gather", "activation_output_kept", "node_devices",
    "nominal_clock",  # a reference: another value is another chip
})  # fmt: skip


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
class Explanation:
    """Explanation of one design; plain Python numbers in SI units."""

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
    study: Study = TRAINING

    @property
    def feasible(self) -> bool:
        """Whether the design is feasible."""
        return not self.reasons

    @property
    def has_step(self) -> bool:
        """Whether the metrics of a step are meaningful, whatever memory, power or stack allow."""
        return not int(self.metrics["infeasible_reason"]) & self.study.no_step_bits

    @property
    def claims(self) -> dict[str, float | None]:
        """The metrics, without values of a step where it is not meaningful."""
        holds = self.study.holds_without_step
        return {name: value if self.has_step or holds(name) else None for name, value in self.metrics.items()}

    @property
    def host_bound(self) -> bool:
        """Whether launching a layer's kernels takes longer than their execution."""
        return self.metrics.get("step_time_host", 0.0) > 0.0

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready dictionaries and lists, without values of a meaningless step."""
        shown = self if self.has_step else dataclasses.replace(self, layer=[], operators=[], phases={}, elasticities=[])
        known = {name for name, value in self.claims.items() if value is not None}
        waterfalls = {name: parts for name, parts in self.waterfalls.items() if name in known}
        return {
            "feasible": self.feasible,
            "reasons": [r._asdict() for r in self.reasons],
            "has_step": self.has_step,
            "caution": self.caution if self.has_step else "",
            "metrics": self.claims,
            "memory_capacity": self.memory_capacity,
            "waterfall": {
                name: [part._asdict() for part in parts]
                for name, parts in (waterfalls | {"layer_time": shown.layer}).items()
            },
            "host_bound": self.host_bound and self.has_step,
            "operators": [o._asdict() for o in shown.operators],
            "phases": {name: [part._asdict() for part in parts] for name, parts in shown.phases.items()},
            "elasticity_of": self.elasticity_of,
            "elasticities": [e._asdict() for e in shown.elasticities],
        }


def explain(design: Design, metric: str | None = None, study: Study | str = TRAINING) -> Explanation:
    """Explain a design by its metrics, waterfalls, bounds of operators, and elasticities of ``metric``.

    Args:
        design: one design with plain numbers as leaves.
        metric: metric of the elasticities, positive and smooth; by default the study's objective.
        study: study of the design, or its name: ``"training"`` or ``"serving"``.

    Returns:
        Plain Python numbers in SI units; ``operators`` and ``layer`` are empty where a study has none. Elasticities
        have no unit.

    Raises:
        InputError: for a metric that the study does not have or that is not smooth.

    References:
        Elasticity of metric ``y`` by parameter ``x``: ``d ln(y) / d ln(x)``. What bounds an operator, by the larger of
        ``FLOPs / rate`` and ``bytes / bandwidth``: Williams et al. (roofline), CACM 2009.

    >>> import dse
    >>> found = dse.explain(dse.design("gpt-3-175b", "selene", tp=8, pp=8, dp=16, recompute="full"))
    >>> found.elasticity_of, next(e.elasticity for e in found.elasticities if e.parameter == "matrix_slowdown") > 0.0
    ('step_time', True)
    """
    if isinstance(study, str):
        if study not in STUDIES:
            raise unknown_name("explain.study", study, STUDIES, "kinds of studies")
        study = STUDIES[study]
    metric = study.objective if metric is None else metric
    if found := of_another(metric, study):
        option = f"{'add' if found[1].name == 'serving' else 'leave out'} --serving"
        raise InputError(
            "explain.metric",
            f"{found[0]}, a metric of {found[1].name}",
            f"metrics of {study.name}",
            f'{option}; in Python study="{found[1].name}"',
        )
    if metric not in study.smooth:
        raise unknown_name("explain.metric", metric, study.smooth, "metrics")
    design = study.complete(design)
    (_, numbers), inside, slopes = _numbers_of(study, metric).slopes(0, _continuous(design), design)
    metrics = _plain(numbers.metrics)
    _check_finite(metrics)
    return Explanation(
        metrics=metrics,
        waterfalls={total: _parts(metrics, total, study) for total in study.totals},
        memory_capacity=float(numbers.capacity),
        layer=_shares(_plain(numbers.layer)),
        operators=[
            _row(section, name, kind, kernels)
            for (section, name, kind), kernels in zip(inside, numbers.kernels, strict=True)
            if kernels.present
        ],
        phases={name: _shares(_plain(parts)) for name, parts in numbers.phases.items()},
        elasticity_of=metric,
        elasticities=_elasticities(design, slopes),
        reasons=reasons(jax.tree.map(float, numbers.design), metrics, study),
        caution=study.caution_on(metrics, design),
        study=study,
    )


def obstacles(design: Design, study: Study = TRAINING) -> list[Reason]:
    """Reasons of infeasibility of ``design``, as of :func:`explain`; empty when it is feasible."""
    design = study.complete(design)
    (_, numbers), _ = _numbers_of(study, study.objective)(_continuous(design), design)
    return reasons(jax.tree.map(float, numbers.design), _plain(numbers.metrics), study)


def _plain(numbers: Mapping[str, Scalar]) -> dict[str, float]:
    """NumPy numbers as Python numbers."""
    return {name: float(value) for name, value in numbers.items()}


class _Kernels(NamedTuple):
    """Numbers of an operator: seconds and work of each pass, and its bound (1 for one of four)."""

    present: Scalar
    forward_time: Scalar
    backward_time: Scalar
    flops: Scalar
    bytes: Scalar
    forward_bound: tuple[Scalar, ...]  #: compute, memory, kernel floor, links between dies
    backward_bound: tuple[Scalar, ...]


class Figures(NamedTuple):
    """All numbers of one design."""

    design: Any  #: with its generated accelerator
    metrics: dict[str, Scalar]
    capacity: Scalar
    layer: dict[str, Scalar]
    kernels: list[_Kernels]
    phases: dict[str, dict[str, Scalar]]


#: Section, name and kind of an operator.
_Operator = tuple[str, str, OperatorKind]


@functools.cache
def _numbers_of(study: Study, metric: str) -> ScalarFunction:
    """Function from continuous leaves and design to the log of the metric and :class:`Figures`; names of operators."""
    made_from = f"explanation {study.name} {metric}" if study.is_own else None
    return ScalarFunction(functools.partial(numbers_of, study, metric), made_from)


def numbers_of(
    study: Study, metric: str, values: dict[str, Scalar], stated: Design
) -> tuple[tuple[Scalar, Figures], list[_Operator]]:
    """Log of the metric and :class:`Figures` of a design with other values of some leaves, to be traced.

    It imports the model, which a cached explanation does not need.
    """
    from dse.model.machine.rates import step_rates
    from dse.model.machine.technology import generated

    stated = replace(stated, values)
    metrics, design = study.evaluate(stated), generated(stated)
    inside = study.inside(design)
    rates = inside.rates or step_rates(inside.design)
    operators = [(section, operator) for section, listed in inside.sections.items() for operator in listed]
    numbers = Figures(
        design=design,
        metrics={name: getattr(metrics, name) for name in study.units},
        capacity=study.capacity(design),
        layer=dict(inside.layer),
        kernels=[_kernels(operator, rates) for _, operator in operators],
        phases={name: dict(parts._asdict()) for name, parts in inside.phases.items()},
    )
    named = [(section, operator.name, operator.kind) for section, operator in operators]
    return (jnp.log(getattr(metrics, metric)), numbers), named


def _parts(metrics: dict[str, float], total: str, study: Study) -> list[Share]:
    return _shares({name.removeprefix(f"{total}_"): metrics[name] for name in study.parts(total)})


def _shares(parts: dict[str, float]) -> list[Share]:
    total = sum(parts.values())
    return [Share(name, value, value / total if total else 0.0) for name, value in parts.items()]


# Operators


def _kernels(operator: Operator, rates: Rates) -> _Kernels:
    from dse.model.accounts.bounds import kernel_bound
    from dse.model.machine.roofline import operator_times

    forward, *gradients = operator_times(operator, rates)
    works = [operator.forward, *operator.gradients]
    return _Kernels(
        present=operator.present,
        forward_time=forward,
        backward_time=sum(gradients),
        flops=sum(w.flops for w in works),
        bytes=sum(w.bytes for w in works),
        forward_bound=tuple(kernel_bound(operator.kind, [operator.forward], forward, rates)),
        backward_bound=tuple(kernel_bound(operator.kind, operator.gradients, sum(gradients), rates)),
    )


def _row(section: str, name: str, kind: OperatorKind, kernels: _Kernels) -> OperatorRow:
    flops, moved = float(kernels.flops), float(kernels.bytes)
    return OperatorRow(
        section=section,
        name=name,
        kind=kind,
        forward_time=float(kernels.forward_time),
        backward_time=float(kernels.backward_time),
        flops=flops,
        bytes=moved,
        intensity=flops / moved if moved else 0.0,
        forward_bound=_bound(kernels.forward_bound),
        backward_bound=_bound(kernels.backward_bound),
    )


def _bound(bound: tuple[Scalar, ...]) -> str:
    """Bound of most of a pass's time."""
    compute, memory, floor, _ = bound
    return "kernel floor" if floor else "compute" if compute else "memory" if memory else "die links"


# Elasticities


def continuous_leaves(design: Design) -> tuple[str, ...]:
    """Paths of the real-valued leaves of a design's system and software."""
    return tuple(
        path
        for path, meta in leaves_of(design).items()
        if path.startswith(("system.", "software.")) and "enum" not in meta and path.rpartition(".")[2] not in _WHOLE
    )


def _check_finite(metrics: dict[str, float]) -> None:
    """InputError where an intermediate value overflows single precision."""
    lost = [name for name, value in metrics.items() if not math.isfinite(value)]
    if lost:
        raise InputError(
            "design",
            f"sizes or rates whose {lost[0]} overflows",
            "numbers of machines and models that may exist",
            "check values and units of what was set",
        )


def elasticities(design: Design, metric: str | None = None, study: Study = TRAINING) -> list[Elasticity]:
    """Elasticities of ``metric`` to the continuous parameters of system and software, largest first, without zeros.

    At a limit the elasticity is one-sided, towards possible values: a lower clock at the nominal one, a lower power
    limit at the TDP, a cooler for more power at room temperature. For a link with the bandwidth of its network, that of
    the network is for less, that of the chip for more.

    ``metric``: by default the study's objective.
    """
    metric = study.objective if metric is None else metric
    made_from = f"slopes {study.name} {metric}" if study.is_own else None

    def log_metric(values: dict[str, Scalar], stated: Design) -> tuple[tuple[Scalar], None]:
        return (jnp.log(getattr(study.evaluate(replace(stated, values)), metric)),), None

    slopes = ScalarFunction(log_metric, made_from).slopes(0, _continuous(design), design)[2]
    return _elasticities(design, slopes)


def _continuous(design: Design) -> dict[str, Scalar]:
    """Path → value of the continuous leaves of a design."""
    present = {path: leaf(design, path) for path in continuous_leaves(design)}
    return {path: value for path, value in present.items() if value is not None}


def _elasticities(design: Design, slopes: dict[str, Scalar]) -> list[Elasticity]:
    values = {path: float(leaf(design, path)) for path in slopes}
    found = [
        Elasticity(short_name(path), value, known_leaves()[path]["units"], value * float(slopes[path]))
        for path, value in values.items()
        if value
    ]
    return sorted((e for e in found if abs(e.elasticity) > 1e-6), key=lambda e: -abs(e.elasticity))


# Reasons


def reasons(design: Design, metrics: dict[str, float], study: Study = TRAINING) -> list[Reason]:
    """Reasons of infeasibility of ``design`` with its numbers; empty when it is feasible."""
    found = list(study.reasons_in(int(metrics["infeasible_reason"])))
    numbers = study.reason_numbers(design, metrics) if found else {}
    return [Reason(name, study.reason_meanings[name], numbers.get(name, "")) for name in found]
