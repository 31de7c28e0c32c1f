"""``explain(design)``: why one design takes the time and memory it takes, and what would change it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dse.design import known_leaves, leaf, leaf_path, leaves_of, replace
from dse.errors import InputError, unknown_name
from dse.evaluate import evaluate
from dse.model.accounts.feasibility import usable_memory
from dse.model.layout import lay_out
from dse.model.machine.rates import Rates, step_rates
from dse.model.machine.roofline import operator_times, roofline_terms
from dse.model.machine.technology import generated
from dse.model.steps.layer import layer_time
from dse.model.steps.operating import operate
from dse.model.work.training import training_work
from dse.types import INFEASIBLE_MEANING, Design, Infeasible, Metrics, Operator, OperatorKind, Precision, Scalar, Work

GIB = 2.0**30

#: Numbers of a system or a stack that only come whole, or as yes and no: no slope is asked of them.
_WHOLE = frozenset({
    "n_devices", "domain", "cores", "tile_rows", "tile_columns", "in_network_reduction", "fused_elementwise",
    "gradient_cache", "scatter_gather", "activation_output_kept",
    "nominal_clock",  # the clock of reference: another one is another chip
})  # fmt: skip


class Part(NamedTuple):
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
    step_time: list[Part]
    peak_memory: list[Part]
    energy_per_step: list[Part]
    memory_capacity: float
    layer: list[Part]  #: parts of the time of one layer and micro-batch
    operators: list[OperatorRow]
    elasticity_of: str  #: the metric
    elasticities: list[Elasticity]  #: largest first
    reasons: list[Reason]  #: empty when the design can run

    @property
    def feasible(self) -> bool:
        """Whether the design can run."""
        return not self.reasons

    @property
    def host_bound(self) -> bool:
        """Whether launching a layer's kernels takes longer than running them."""
        return self.metrics["step_time_host"] > 0.0

    def as_dict(self) -> dict[str, Any]:
        """Nested dictionaries and lists, ready for JSON."""
        return {
            "feasible": self.feasible,
            "reasons": [r._asdict() for r in self.reasons],
            "metrics": self.metrics,
            "memory_capacity": self.memory_capacity,
            "waterfall": {
                "step_time": [p._asdict() for p in self.step_time],
                "peak_memory": [p._asdict() for p in self.peak_memory],
                "energy_per_step": [p._asdict() for p in self.energy_per_step],
                "layer_time": [p._asdict() for p in self.layer],
            },
            "host_bound": self.host_bound,
            "operators": [o._asdict() for o in self.operators],
            "elasticity_of": self.elasticity_of,
            "elasticities": [e._asdict() for e in self.elasticities],
        }


def explain(design: Design, metric: str = "step_time") -> Explanation:
    """Metrics, waterfalls, what bounds each operator, and the elasticities of ``metric``.

    Args:
        design: one design with plain numbers as leaves.
        metric: what the elasticities are of: any positive metric that varies smoothly.
    """
    if metric not in _smooth_metrics():
        raise unknown_name("explain.metric", metric, _smooth_metrics(), "metrics")
    stated = jax.tree.map(float, design)
    design = jax.tree.map(float, generated(stated))
    with _one_by_one():
        metrics = {name: float(value) for name, value in dataclasses.asdict(evaluate(design)).items()}
        layout = lay_out(design)
        work = training_work(design, layout)
        running = operate(design, layout, work).design
        layer = layer_time(running, layout, work)
        rates = step_rates(running)
        sections = {"embedding": work.embedding, "layer": work.layer, "head": work.head}
        return Explanation(
            metrics=metrics,
            step_time=_parts(metrics, "step_time"),
            peak_memory=_parts(metrics, "peak_memory"),
            energy_per_step=_parts(metrics, "energy_per_step"),
            memory_capacity=usable_memory(design),
            layer=_shares({name: float(value) for name, value in layer._asdict().items()}),
            operators=[_row(name, o, rates) for name, listed in sections.items() for o in listed if o.present],
            elasticity_of=metric,
            elasticities=elasticities(stated, metric),
            reasons=reasons(design, metrics),
        )


def _one_by_one() -> contextlib.AbstractContextManager[None]:
    """Where one design is evaluated: operation by operation on the host.

    Compiling the model and its gradient takes 15 s for a single call that runs in 2 s uncompiled.
    """
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def _smooth_metrics() -> list[str]:
    exact = ("feasible", "infeasible_reason", "parameters", "model_flops")
    return [f.name for f in dataclasses.fields(Metrics) if f.name not in exact]


def _parts(metrics: dict[str, float], metric: str) -> list[Part]:
    return _shares({n.removeprefix(f"{metric}_"): v for n, v in metrics.items() if n.startswith(f"{metric}_")})


def _shares(parts: dict[str, float]) -> list[Part]:
    total = sum(parts.values())
    return [Part(name, value, value / total) for name, value in parts.items()]


# Operators


def _row(section: str, operator: Operator, rates: Rates) -> OperatorRow:
    forward, *gradients = map(float, operator_times(operator, rates))
    backward_works = [w for w in (operator.input_gradient, operator.weight_gradient) if w is not None]
    works = [operator.forward, *backward_works]
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
        backward_bound=_bound(operator.kind, backward_works, sum(gradients), rates),
    )


def _bound(kind: OperatorKind, works: list[Work], time: float, rates: Rates) -> str:
    """What most of a pass's ``time`` is spent on."""
    if len(works) * rates.kernels.kernel_floor > 0.5 * time:
        return "kernel floor"
    terms = [roofline_terms(kind, work, rates) for work in works]
    return "compute" if sum(c for c, _ in terms) >= sum(m for _, m in terms) else "memory"


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


def elasticities(design: Design, metric: str = "step_time") -> list[Elasticity]:
    """Elasticities of ``metric`` to the continuous parameters of system and software, largest first; zeros left out."""
    present = {path: leaf(design, path) for path in continuous_leaves(design)}
    values = {path: float(value) for path, value in present.items() if value is not None}

    def log_metric(values: dict[str, Scalar]) -> Scalar:
        return jnp.log(getattr(evaluate(replace(design, values)), metric))

    slopes = jax.grad(log_metric)(values)  # one reverse pass over a tree of scalars
    found = [
        Elasticity(short_name(path), value, known_leaves()[path]["units"], value * float(slopes[path]))
        for path, value in values.items()
        if value
    ]
    return sorted((e for e in found if abs(e.elasticity) > 1e-6), key=lambda e: -abs(e.elasticity))


@functools.cache
def short_name(path: str) -> str:
    """The shortest ending of a leaf's path that means it alone."""
    parts = path.split(".")
    for start in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[start:])
        with contextlib.suppress(InputError):
            if leaf_path(name) == path:
                return name
    return path


# Reasons


def reasons(design: Design, metrics: dict[str, float]) -> list[Reason]:
    """Why ``design`` cannot run, in words and with its numbers; empty when it can."""
    found = Infeasible(int(metrics["infeasible_reason"]))
    numbers = _numbers(design, metrics)
    return [Reason(bit.name, INFEASIBLE_MEANING[bit], numbers.get(bit.name, "")) for bit in Infeasible if bit in found]


def _numbers(design: Design, metrics: dict[str, float]) -> dict[str, str]:
    """The numbers behind each reason."""
    w, m, system = design.workload, design.mapping, design.system
    return {
        "memory": f"needs {metrics['peak_memory'] / GIB:.1f} GiB of {usable_memory(design) / GIB:.1f} GiB usable",
        "heads_not_divisible": f"tp={m.tp:g}, heads={w.n_heads:g}, key/value heads={w.n_kv_heads:g}",
        "width_not_divisible": f"tp={m.tp:g}, feed-forward width={w.ffn_hidden:g}",
        "layers_not_divisible": f"pp={m.pp:g}, virtual_stages={m.virtual_stages:g}, layers={w.n_layers:g}",
        "batch_not_divisible": f"dp={m.dp:g}, micro_batch={m.micro_batch:g}, global batch={w.global_batch:g}",
        "sequence_not_divisible": f"cp={m.cp:g}, tp={m.tp:g}, sequence={w.seq_len:g}",
        "device_count_mismatch": (
            f"tp x cp x pp x dp = {m.tp * m.cp * m.pp * m.dp:g}, n_devices={system.n_devices:g}"
        ),
        "interleave_not_divisible": (
            f"virtual_stages={m.virtual_stages:g}, pp={m.pp:g}, "
            f"micro-batches={w.global_batch / (m.dp * m.micro_batch):g}"
        ),
        "network_too_small": f"n_devices={system.n_devices:g}, the network joins {_reach(design):g}",
        "host_memory": f"needs {metrics['host_memory'] / GIB:.1f} GiB of {system.host.capacity / GIB:.1f} GiB",
        "offload_too_few_layers": f"layers={w.n_layers:g}, pp={m.pp:g}",
        "power": f"limit {system.accelerator.power.limit or system.accelerator.power.tdp:g} W",
        "precision_unsupported": f"precision={Precision(int(m.precision)).name.replace('_', '-')}",
    }


def _reach(design: Design) -> float:
    return max(design.system.scale_up.domain, design.system.scale_out.domain)
