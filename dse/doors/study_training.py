"""Training as a kind of study: the metrics of ``dse.evaluate`` and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.designs import leaf, replace
from dse.designs.records import LEAVES_UNREAD_BY_TRAINING
from dse.doors.study import OPTIONAL, Breakdown, Degrees, Evaluated, SameOption, Study, imported
from dse.io import percent, seconds
from dse.types import INFEASIBLE_MEANING, Design, Infeasible, Metrics, Scalar, SequenceParallel


def _training_shortfalls(design: Design, metrics: Metrics) -> dict[Infeasible, Scalar]:
    """Return reason → natural logarithm of demand over supply: memory, host memory, devices in the network."""
    import jax.numpy as jnp

    from dse.model import generated
    from dse.model.accounts.feasibility import usable_memory

    built_design = generated(design)
    system = built_design.system
    pairs = {
        Infeasible.memory: (metrics.peak_memory, usable_memory(built_design)),
        Infeasible.host_memory: (metrics.host_memory, system.host.capacity),
        Infeasible.network_too_small: (
            system.n_devices, jnp.maximum(system.scale_up.domain, system.scale_out.domain),
        ),
    }  # fmt: skip
    return {
        bit: jnp.log(jnp.maximum(demand, 1.0) / jnp.maximum(supply, 1.0)) for bit, (demand, supply) in pairs.items()
    }


def _training_breakdown(design: Design) -> Breakdown:
    """Return the breakdown of a design: one layer's time by part, s, and operators of embedding, layer and head."""
    from dse.model import lay_out, operate, training_work
    from dse.model.steps.layer import layer_time

    layout = lay_out(design)
    work = training_work(design, layout)
    running = operate(design, layout, work).design
    sections = {"embedding": work.embedding, "layer": work.layer, "head": work.head}
    return Breakdown(running, layer_time(running, layout, work)._asdict(), sections, messages=work.messages)


#: Leaves with launch times of the host; a design without experts has the first one alone.
_LAUNCH_TIMES = ("software.host_time", "software.experts.expert_host_time")
#: Minimum share of a step in launches of the host for a caution.
_MIN_LAUNCH_SHARE = 0.1


def launch_times(design: Design) -> list[str]:
    """Return the leaf paths of the host's launch times that are above 0, empty for none."""
    paths = _LAUNCH_TIMES if design.software.experts is not None else _LAUNCH_TIMES[:1]
    return [path for path in paths if leaf(design, path)]


def without_launches(metrics: Mapping[str, float], design: Design, evaluated: Evaluated) -> float:
    """Return the step time of a design whose host launches take no time, s.

    What hides behind a wait for the host keeps its time, so that a short wait costs little, however long the launches.
    """
    if not metrics["step_time_host"] > 0.0:
        return metrics["step_time"]
    return evaluated(replace(design, dict.fromkeys(launch_times(design), 0.0)))["step_time"]


def _training_caution(metrics: Mapping[str, float], design: Design, evaluated: Evaluated) -> str:
    """Return a caution in one line where launches of the host cost a tenth of a step or more, else an empty text."""
    step_time = without_launches(metrics, design, evaluated)
    share = 1.0 - step_time / metrics["step_time"] if metrics["step_time"] > 0.0 else 0.0
    if share < _MIN_LAUNCH_SHARE:
        return ""
    return (
        f"host launch time ({', '.join(launch_times(design))}) costs {percent(share)} of the step, which takes "
        f"{seconds(step_time)} without it: is it measured on this machine?"
    )


def _expert_copies(degrees: Degrees) -> Any:
    """Return the count of devices that hold the same experts [row], a plain 1 without experts."""
    if "mapping.experts.ep" not in degrees:
        return 1
    stage = degrees["mapping.tp"] * degrees["mapping.cp"] * degrees["mapping.dp"]
    return stage // (degrees["mapping.experts.ep"] * degrees["mapping.experts.etp"])


#: Leaves of the work of a step.
_BATCH, _SEQUENCE = "workload.global_batch", "workload.seq_len"


def _training_work(labels: Mapping[str, Any]) -> str:
    """Return text on batch and sequence length, from leaf path → number, empty where both are missing."""
    batch, tokens = labels.get(_BATCH), labels.get(_SEQUENCE)
    sequences = "sequences" if batch is None else f"{batch:,.0f} sequence{'s' * (batch != 1)}"
    length_text = "" if tokens is None else f" of {tokens:,.0f} token{'s' * (tokens != 1)}"
    return "" if batch is None and tokens is None else f"each step: {sequences}{length_text}"


#: Training steps: :class:`~dse.types.Metrics` of ``dse.evaluate``.
TRAINING = Study(
    name="training",
    evaluate=imported("dse.doors.evaluation:evaluate"),
    metrics=Metrics,
    reasons=Infeasible,
    meanings=INFEASIBLE_MEANING,
    objective="step_time",
    rate="tokens_per_second",
    memory="peak_memory",
    memory_reasons=Infeasible.memory | Infeasible.host_memory,
    hypothetical=Infeasible.storage | Infeasible.power | Infeasible.stack_lacks | Infeasible.chip_shares,
    shortfalls=_training_shortfalls,
    energy="energy_per_step",
    main_metrics=("step_time", "mfu", "tokens_per_second_per_device", "peak_memory", "fits_probability"),
    capacity=imported("dse.model.accounts.feasibility:usable_memory"),
    work_leaves=lambda design: (_BATCH, _SEQUENCE),
    work=_training_work,
    ignored_leaves=LEAVES_UNREAD_BY_TRAINING,
    caution=_training_caution,
    breakdown=_training_breakdown,
    bounds=imported("dse.doors.evaluation:bounds"),
    optional=OPTIONAL,
    idle_options={
        "mapping.sequence_parallel": lambda d: d["mapping.tp"] == 1,
        "mapping.overlap_tp": lambda d: d["mapping.tp"] == 1,
        "mapping.zero_stage": lambda d: (d["mapping.dp"] * d["mapping.cp"] == 1) & (_expert_copies(d) == 1),
        "mapping.dp_replicate": lambda d: d["mapping.dp"] == 1,
        "mapping.overlap_dp": lambda d: (d["mapping.dp"] * d["mapping.cp"] == 1) & (_expert_copies(d) == 1),
        "mapping.experts.all_to_all": lambda d: d["mapping.experts.ep"] == 1,
        "mapping.experts.dispatch_precision": lambda d: d["mapping.experts.ep"] == 1,
        "mapping.experts.overlap_ep": lambda d: d["mapping.experts.ep"] * d["mapping.experts.etp"] == 1,
        "mapping.context.cp_comm_type": lambda d: d["mapping.cp"] == 1,
        "mapping.context.a2a_size": lambda d: d["mapping.cp"] == 1,
        "mapping.placement": lambda d: (d["mapping.dp"] == 1) | (d["mapping.pp"] == 1),
        "mapping.schedule": lambda d: d["mapping.pp"] == 1,
    },
    same_options=(
        SameOption(  # one stage has no boundaries
            "mapping.sequence_parallel",
            SequenceParallel.at_stage_boundaries,
            SequenceParallel.none,
            lambda d: d["mapping.pp"] == 1,
        ),
        SameOption(  # a pipeline accumulates whole gradients
            "mapping.zero_stage", 2.0, 1.0, lambda d: d["mapping.pp"] > 1
        ),
    ),
)
