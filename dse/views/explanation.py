"""``explain(design)``: time and memory of one design by part, bounds, and sensitivities."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dse.designs import all_leaves, leaf, leaves_of, replace, short_name
from dse.doors import STUDIES, TRAINING, Study
from dse.doors.studies import metric_of_other_study
from dse.equations import ScalarFunction
from dse.errors import InputError, unknown_name
from dse.types import Design, Operator, OperatorKind, Scalar
from dse.types.trees import tree_map
from dse.views.studies import presentation_of
from dse.views.values import Elasticity, ExplanationValues, OperatorRow, Reason, Share

if TYPE_CHECKING:
    from dse.model.machine.rates import Rates
    from dse.reports import Report

#: Whole numbers and flags of a system or a stack, which have no elasticity.
_DISCRETE_LEAVES = frozenset({
    "n_devices", "domain", "cores", "tile_rows", "tile_columns", "in_network_reduction", "fused_elementwise",
    "softmax_batch", "gradient_cache", "scatter_gather", "activation_output_kept", "node_devices",
    "nominal_clock",  # a reference: another value is another chip
})  # fmt: skip


class Explanation(ExplanationValues):
    """Explanation of one design."""

    def report(self) -> Report:
        """Return the explanation as a report: a short answer, and details."""
        from dse.reports import Report
        from dse.views.sections import explanation_sections

        return Report(self.to_dict(), explanation_sections(self, self.design, {}))

    def _repr_html_(self) -> str:
        return self.report().to_html()


def explain(design: Design, metric: str | None = None, study: Study | str = TRAINING) -> Explanation:
    """Explain a design by its metrics, waterfalls, bounds of operators, and elasticities of ``metric``.

    Args:
        design: one design with plain numbers as leaves.
        metric: metric of the elasticities, positive and smooth; by default the study's objective.
        study: study of the design, or its name: ``"training"`` or ``"serving"``.

    Returns:
        Plain Python numbers in SI units; ``operators`` and ``layer`` are empty where a study has none. Elasticities
        have no unit. At a limit they are one-sided, towards possible values: a lower clock at the nominal one, a lower
        power limit at the TDP, a cooler for more power at room temperature. For a link with the bandwidth of its
        network, that of the network is for less, that of the chip for more.

    Raises:
        InputError: for a metric that the study does not have or that is not smooth.

    References:
        Elasticity of metric ``y`` by parameter ``x``: ``d ln(y) / d ln(x)``. What bounds an operator, by the larger of
        ``FLOPs / rate`` and ``bytes / bandwidth``: Williams et al. (roofline), CACM 2009.

    >>> import dse
    >>> explanation = dse.explain(dse.design("gpt-3-175b", "selene", tp=8, pp=8, dp=16, recompute="full"))
    >>> elasticities = {e.parameter: e.elasticity for e in explanation.elasticities}
    >>> explanation.elasticity_of, elasticities["matrix_slowdown"] > 0.0
    ('step_time', True)
    """
    if isinstance(study, str):
        if study not in STUDIES:
            raise unknown_name("explain.study", study, STUDIES, "kinds of studies")
        study = STUDIES[study]
    metric = study.objective if metric is None else metric
    if foreign := metric_of_other_study(metric, study):
        foreign_metric, foreign_study = foreign
        option = f"{'add' if foreign_study.name == 'serving' else 'leave out'} --serving"
        raise InputError(
            "explain.metric",
            f"{foreign_metric}, a metric of {foreign_study.name}",
            f"metrics of {study.name}",
            f'{option}; in Python study="{foreign_study.name}"',
        )
    if metric not in study.smooth:
        raise unknown_name("explain.metric", metric, study.smooth, "metrics")
    design = study.complete(design)
    (_, numbers), operator_names, slopes = _number_function(study, metric).slopes(0, _continuous_values(design), design)
    metrics = _as_floats(numbers.metrics)
    _check_finite(metrics)
    return Explanation(
        metrics=metrics,
        waterfalls={
            total: _shares({part: metrics[name] for name, part in study.parts(total).items()}) for total in study.totals
        },
        memory_capacity=float(numbers.capacity),
        layer=_shares(_as_floats(numbers.layer)),
        operators=[
            _operator_row(section, name, kind, kernels)
            for (section, name, kind), kernels in zip(operator_names, numbers.kernels, strict=True)
            if kernels.present
        ],
        phases={name: _shares(_as_floats(parts)) for name, parts in numbers.phases.items()},
        elasticity_of=metric,
        elasticities=_elasticities(design, slopes),
        reasons=reasons(tree_map(float, numbers.design), metrics, study),
        caution=study.caution_on(metrics, design),
        design=design,
        study=study,
    )


def infeasibility_reasons(design: Design, study: Study = TRAINING) -> list[Reason]:
    """Return the reasons why ``design`` cannot run, empty when it is feasible.

    Args:
        design: one design with plain numbers as leaves.
        study: study of the design.
    """
    design = study.complete(design)
    (_, numbers), _ = _number_function(study, study.objective)(_continuous_values(design), design)
    return reasons(tree_map(float, numbers.design), _as_floats(numbers.metrics), study)


def _as_floats(numbers: Mapping[str, Scalar]) -> dict[str, float]:
    """Return name → Python float of numbers by name."""
    return {name: float(value) for name, value in numbers.items()}


class _OperatorNumbers(NamedTuple):
    """Seconds and work of an operator by pass, and flags of its bound."""

    present: Scalar
    forward_time: Scalar
    backward_time: Scalar
    flops: Scalar
    bytes: Scalar
    forward_bound: tuple[Scalar, ...]  #: compute, memory, network, rest (kernel floor), links between dies
    backward_bound: tuple[Scalar, ...]


class DesignNumbers(NamedTuple):
    """All traced numbers of one design."""

    design: Any  #: with its generated accelerator
    metrics: dict[str, Scalar]
    capacity: Scalar
    layer: dict[str, Scalar]
    kernels: list[_OperatorNumbers]
    phases: dict[str, dict[str, Scalar]]


#: Section, name and kind of an operator.
_OperatorName = tuple[str, str, OperatorKind]


@functools.cache
def _number_function(study: Study, metric: str) -> ScalarFunction:
    """Return the compiled program of :func:`design_numbers`, by path → value and base design, and its gradient."""
    program_key = f"explanation {study.name} {metric}" if study.is_builtin else None
    return ScalarFunction(functools.partial(design_numbers, study, metric), program_key)


def design_numbers(
    study: Study, metric: str, values: dict[str, Scalar], base_design: Design
) -> tuple[tuple[Scalar, DesignNumbers], list[_OperatorName]]:
    """Return the natural logarithm of a metric and all numbers of a design, as a pure function to be traced.

    The model is imported here, which a cached explanation does not need.

    Args:
        study: study of the design.
        metric: metric whose logarithm is differentiated.
        values: path → value of leaves that replace those of ``base_design``.
        base_design: design with all other leaves.

    Returns:
        ``((log of the metric, numbers), operators)`` with section, name and kind of each operator.
    """
    import jax.numpy as jnp

    from dse.model import generated
    from dse.model.machine.rates import step_rates

    base_design = replace(base_design, values)
    metrics, design = study.evaluate(base_design), generated(base_design)
    breakdown = study.breakdown(design)
    rates = breakdown.rates or step_rates(breakdown.design)
    sections = breakdown.sections.items()
    operators = [(section, operator) for section, in_section in sections for operator in in_section]
    numbers = DesignNumbers(
        design=design,
        metrics={name: getattr(metrics, name) for name in study.units},
        capacity=study.capacity(design),
        layer=dict(breakdown.layer),
        kernels=[_operator_numbers(operator, rates) for _, operator in operators],
        phases={name: dict(parts._asdict()) for name, parts in breakdown.phases.items()},
    )
    operator_names = [(section, operator.name, operator.kind) for section, operator in operators]
    return (jnp.log(getattr(metrics, metric)), numbers), operator_names


def _shares(parts: dict[str, float]) -> list[Share]:
    """Return parts with their shares (0 to 1) of the sum, shares of 0 where the sum is 0."""
    total = sum(parts.values())
    return [Share(name, value, value / total if total else 0.0) for name, value in parts.items()]


# Operators


def _operator_numbers(operator: Operator, rates: Rates) -> _OperatorNumbers:
    """Evaluate seconds, FLOPs, bytes and bounds of the forward and the backward of an operator."""
    from dse.model.accounts.bounds import kernel_bound
    from dse.model.machine.roofline import operator_times

    forward, *gradients = operator_times(operator, rates)
    works = [operator.forward, *operator.gradients]
    return _OperatorNumbers(
        present=operator.present,
        forward_time=forward,
        backward_time=sum(gradients),
        flops=sum(w.flops for w in works),
        bytes=sum(w.bytes for w in works),
        forward_bound=tuple(kernel_bound(operator.kind, [operator.forward], forward, rates)),
        backward_bound=tuple(kernel_bound(operator.kind, operator.gradients, sum(gradients), rates)),
    )


def _operator_row(section: str, name: str, kind: OperatorKind, kernels: _OperatorNumbers) -> OperatorRow:
    """Convert the numbers of an operator to a row of plain Python numbers."""
    flops, traffic = float(kernels.flops), float(kernels.bytes)
    times = float(kernels.forward_time), float(kernels.backward_time)
    bounds = _bound_name(kernels.forward_bound), _bound_name(kernels.backward_bound)
    return OperatorRow(section, name, kind, *times, flops, traffic, flops / traffic if traffic else 0.0, *bounds)


def _bound_name(bound: tuple[Scalar, ...]) -> str:
    """Return what bounds most of a pass's time: "kernel floor", "compute", "memory" or "die links"."""
    compute, memory, _, floor, _ = bound
    return "kernel floor" if floor else "compute" if compute else "memory" if memory else "die links"


# Elasticities


def continuous_leaves(design: Design) -> tuple[str, ...]:
    """Return the full paths of the real-valued leaves of a design's system and software.

    Args:
        design: any design; its values do not matter.
    """
    return tuple(
        path
        for path, meta in leaves_of(design).items()
        if path.startswith(("system.", "software."))
        and "enum" not in meta
        and path.rpartition(".")[2] not in _DISCRETE_LEAVES
    )


def _check_finite(metrics: dict[str, float]) -> None:
    """Raise an InputError where a metric is not finite, as it overflows single precision."""
    overflowing = [name for name, value in metrics.items() if not math.isfinite(value)]
    if overflowing:
        raise InputError(
            "design",
            f"sizes or rates whose {overflowing[0]} overflows",
            "numbers of machines and models that may exist",
            "check values and units of what was set",
        )


def _continuous_values(design: Design) -> dict[str, Scalar]:
    """Return full path → value of the continuous leaves that a design has."""
    present = {path: leaf(design, path) for path in continuous_leaves(design)}
    return {path: value for path, value in present.items() if value is not None}


def _elasticities(design: Design, slopes: dict[str, Scalar]) -> list[Elasticity]:
    """Convert full path → slope of the log of a metric to elasticities, largest first, those below 1e-6 left out."""
    values = {path: float(leaf(design, path)) for path in slopes}
    nonzero = [
        Elasticity(short_name(path), value, all_leaves()[path]["units"], value * float(slopes[path]))
        for path, value in values.items()
        if value
    ]
    return sorted((e for e in nonzero if abs(e.elasticity) > 1e-6), key=lambda e: -abs(e.elasticity))


# Reasons


def reasons(design: Design, metrics: dict[str, float], study: Study = TRAINING) -> list[Reason]:
    """Return the reasons of infeasibility in the metrics of a design, with numbers, empty when it is feasible.

    Args:
        design: the design, with its generated accelerator.
        metrics: its metrics by name.
        study: its study.
    """
    names = list(study.reasons_in(int(metrics["infeasible_reason"])))
    numbers = presentation_of(study).reason_numbers(design, metrics) if names else {}
    return [Reason(name, study.reason_meanings[name], numbers.get(name, "")) for name in names]
