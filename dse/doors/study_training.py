"""Training as a kind of study: the metrics of ``dse.evaluate`` and what is known of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from dse.designs import leaf, replace
from dse.designs.records import LEAVES_UNREAD_BY_TRAINING
from dse.doors.scalars import ScalarFunction
from dse.doors.study import (
    OPTIONAL,
    Breakdown,
    Degrees,
    Evaluated,
    MetricColumn,
    SameOption,
    Study,
    chip_share_excess,
    clock_note,
    money_note,
    network_description,
    price_note,
    routing_excess,
)
from dse.io import counted, digits, duration, percent, quantity, seconds
from dse.io.quantities import gib, prefixed
from dse.types import (
    INFEASIBLE_MEANING,
    Checkpoint,
    Design,
    Infeasible,
    Metrics,
    Precision,
    Recompute,
    Reliability,
    Scalar,
    Schedule,
    SequenceParallel,
    choice_name,
)

_GIB = 2.0**30


def _train(design: Design) -> Metrics:
    """Return the metrics of ``dse.evaluate``, imported when first traced: programs read from disk never need it."""
    from dse.doors.evaluation import evaluate

    return evaluate(design)


def _train_bounds(design: Design) -> Any:
    """Return ``dse.doors.evaluation.bounds`` of a design, imported when it is first traced."""
    from dse.doors.evaluation import bounds

    return bounds(design)


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


def _usable_memory(design: Design) -> Scalar:
    """Return ``usable_memory`` of a design, B, imported when it is first needed."""
    from dse.model.accounts.feasibility import usable_memory

    return usable_memory(design)


def _training_breakdown(design: Design) -> Breakdown:
    """Return the breakdown of a design: one layer's time by part, s, and operators of embedding, layer and head."""
    from dse.model import lay_out, operate, training_work
    from dse.model.steps.layer import layer_time

    layout = lay_out(design)
    work = training_work(design, layout)
    running = operate(design, layout, work).design
    sections = {"embedding": work.embedding, "layer": work.layer, "head": work.head}
    return Breakdown(running, layer_time(running, layout, work)._asdict(), sections, messages=work.messages)


def _training_numbers(design: Design, metrics: Mapping[str, float]) -> dict[str, str]:
    """Return name of a reason → text with the numbers behind it, whether it holds or not."""
    w, m, system = design.workload, design.mapping, design.system
    usable = float(_remark_numbers(design)[0]["usable_memory"])
    return {
        "memory": f"needs {metrics['peak_memory'] / _GIB:.1f} GiB of {usable / _GIB:.1f} GiB usable",
        "heads_not_divisible": f"tp={m.tp:g}, heads={w.n_heads:g}, key/value heads={w.n_kv_heads:g}",
        "width_not_divisible": f"tp={m.tp:g}, feed-forward width={w.ffn_hidden:g}",
        "shards_not_divisible": f"dp_replicate={m.dp_replicate:g}, dp={m.dp:g}",
        "layers_not_divisible": f"pp={m.pp:g}, virtual_stages={m.virtual_stages:g}, layers={w.n_layers:g}",
        "batch_not_divisible": f"dp={m.dp:g}, micro_batch={m.micro_batch:g}, global batch={w.global_batch:g}",
        "sequence_not_divisible": f"cp={m.cp:g}, tp={m.tp:g}, sequence={w.seq_len:g}",
        "device_count_mismatch": (f"tp x cp x pp x dp = {m.tp * m.cp * m.pp * m.dp:g}, n_devices={system.n_devices:g}"),
        "interleave_not_divisible": (
            f"virtual_stages={m.virtual_stages:g}, pp={m.pp:g}, "
            f"micro-batches={w.global_batch / (m.dp * m.micro_batch):g}"
            + ("" if m.schedule is None else f", schedule={choice_name(Schedule(int(m.schedule)))}")
        ),
        "network_too_small": network_description(system),
        "host_memory": f"needs {metrics['host_memory'] / _GIB:.1f} GiB of {system.host.capacity / _GIB:.1f} GiB",
        "latency": "limits of requests, which training has not",
        "step_tokens": "steps of an engine, which training has not",
        "storage": "host_tiers.storage_capacity, what the shares of mapping.tiers put there",
        "stack_lacks": _missing_capabilities(design),
        **_experts_numbers(design),
        "layers_unsupported": (
            "sparse attention" if w.recurrent is None else counted(w.recurrent.recurrent_layers, "layer")
        ),
        "offload_too_few_layers": f"layers={w.n_layers:g}, pp={m.pp:g}",
        "chip_shares": chip_share_excess(design),
        "power": f"limit {system.accelerator.power.limit or system.accelerator.power.tdp:g} W",
        "precision_unsupported": f"precision={Precision(int(m.precision)).name.replace('_', '-')}",
    }


def _experts_numbers(design: Design) -> dict[str, str]:
    """Return name of a reason of mixtures of experts → text with the numbers behind it, ``no experts`` without any."""
    w, m = design.workload, design.mapping
    if w.experts is None or m.experts is None:
        return dict.fromkeys(("experts_not_divisible", "experts_unsupported"), "no experts")
    return {
        "experts_not_divisible": (
            f"ep={m.experts.ep:g}, etp={m.experts.etp:g}, tp x cp x dp={m.tp * m.cp * m.dp:g}, "
            f"experts={w.experts.n_experts:g}, width={w.experts.expert_ffn:g}, shared={w.experts.shared_ffn:g}"
            f"{routing_excess(w.experts)}"
        ),
        "experts_unsupported": (
            f"tp={m.tp:g}, sequence_parallel={m.sequence_parallel:g}, recompute={Recompute(int(m.recompute)).name}"
        ),
    }


def _missing_capabilities(design: Design) -> str:
    """Return text on demands of a mapping beyond the capabilities of its stack, on all demands where none is."""
    from dse.model import missing_capabilities
    from dse.model.capabilities import required_capabilities

    limits, mapping = vars(design.software.can), vars(design.mapping)
    demands = required_capabilities(mapping)
    missing = [name for name, is_missing in missing_capabilities(mapping, limits).items() if is_missing] or demands
    return ", ".join(f"{name} {float(demands[name]):g} of at most {limits[name]:g}" for name in missing)


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


#: Headline metrics of a training step, and the share of the model's work that a causal mask may skip before
#: utilisation is printed without it first.
_HEADLINE = (
    "step_time",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "mfu",
    "mfu_causal",
    "hfu",
    "parameters",
    "peak_memory",
)
_MAX_MASKED_SHARE = 0.1


def _training_headline(metrics: Mapping[str, float]) -> list[str]:
    """Return the headline metrics, ``mfu_causal`` first where it is more than a tenth below ``mfu``."""
    names = list(_HEADLINE)
    if metrics["mfu_causal"] < (1.0 - _MAX_MASKED_SHARE) * metrics["mfu"]:
        index = names.index("mfu")
        names[index : index + 2] = ["mfu_causal", "mfu"]
    return names


def _training_settings(design: Design) -> str:
    """Return one line of text on the batch and the options of the mapping."""
    m, w = design.mapping, design.workload
    flags = [name for name in ("sequence_parallel", "overlap_dp", "overlap_tp") if getattr(m, name)]
    recompute = choice_name(Recompute(int(m.recompute)))
    if m.recompute == Recompute.full and m.recompute_share < 1.0:
        recompute += f" of {percent(float(m.recompute_share))} of the layers"
    flags += [] if m.schedule is None else [f"schedule {choice_name(Schedule(int(m.schedule)))}"]
    choices = ", ".join([f"v {m.virtual_stages:g}", f"recompute {recompute}", f"ZeRO {m.zero_stage:g}", *flags])
    return f"{counted(w.global_batch, 'sequence')} of {w.seq_len:g}, micro-batch {m.micro_batch:g}; {choices}"


#: Leaves of the work of a step.
_BATCH, _SEQUENCE = "workload.global_batch", "workload.seq_len"


def _training_work(labels: Mapping[str, Any]) -> str:
    """Return text on batch and sequence length, from leaf path → number, empty where both are missing."""
    batch, tokens = labels.get(_BATCH), labels.get(_SEQUENCE)
    sequences = "sequences" if batch is None else f"{batch:,.0f} sequence{'s' * (batch != 1)}"
    length_text = "" if tokens is None else f" of {tokens:,.0f} token{'s' * (tokens != 1)}"
    return "" if batch is None and tokens is None else f"each step: {sequences}{length_text}"


def _training_remark(total: str, metrics: Mapping[str, float], design: Design) -> str:
    """Return a remark on a total, as text: chance to fit, power, failures of a run, cost, or price; else empty."""
    if total == "peak_memory":
        fits_text, likely_text = percent(metrics["fits_probability"]), gib(_memory_with_chance(design))
        return f"Fits with a probability of {fits_text}; predictions up to {likely_text} with 90 %."
    if total == "energy_per_step":
        return _training_power(metrics, design)
    if total == "run_time_with_failures":
        return _training_failures(metrics, design)
    if total in ("cost_per_run", "carbon_per_run"):
        return money_note(total, metrics, design) + _failures_note(total, metrics, design)
    return price_note(total, metrics, design)


#: Totals of a run without failures → what a run does, and their units.
_RUN_TOTALS = {"cost_per_run": ("costs", "USD"), "carbon_per_run": ("emits", "kg")}


def _failures_note(total: str, metrics: Mapping[str, float], design: Design) -> str:
    """Return text on the cost (USD) or emissions (kg) of a run with its failures, and on its tokens."""
    amount = metrics[total] / metrics["goodput_fraction"]
    verb, units = _RUN_TOTALS[total]
    tokens_text = prefixed(float(design.workload.run_tokens), "tokens")
    return f" Run of {tokens_text} (run_tokens); with failures it {verb} {quantity(amount, units)}."


def _remark_scalars(design: Design) -> tuple[dict[str, Scalar], None]:
    """Return bytes of usable memory and bytes/s of checkpoint storage, and None, as of a function of scalars."""
    from dse.model import generated
    from dse.model.accounts.failures import storage_bandwidth

    bandwidth = storage_bandwidth(design.system)
    return {"usable_memory": _usable_memory(generated(design)), "storage_bandwidth": bandwidth}, None


_remark_numbers = ScalarFunction(_remark_scalars, "numbers of remarks")


def _memory_with_chance(design: Design, chance: float = 0.9) -> float:
    """Return the predicted peak memory at which a design fits with probability ``chance``, B (log-normal spread)."""
    log_margin = NormalDist().inv_cdf(chance) * float(design.software.memory_spread)
    return float(_remark_numbers(design)[0]["usable_memory"]) * math.exp(-log_margin)


def _training_power(metrics: Mapping[str, float], design: Design) -> str:
    """Return text on power of a device and of the system, devices per megawatt, and time and energy of a run."""

    def watts(name: str) -> str:
        return quantity(metrics[name], "W")

    devices_per_megawatt = [
        1e6 * design.system.n_devices / metrics[f"{name}_power"] for name in ("provisioned", "peak", "average")
    ]
    return (
        f"{quantity(metrics['energy_per_token'], 'J')} per token. Power per device: {watts('device_power')} on "
        f"average. Power of the system: {watts('average_power')} on average, {watts('peak_power')} at peak, "
        f"{watts('provisioned_power')} provisioned. Devices per megawatt: "
        f"{devices_per_megawatt[0]:,.0f} by provisioned power, "
        f"{devices_per_megawatt[1]:,.0f} by peak power, {devices_per_megawatt[2]:,.0f} by average power. "
        f"Run of {prefixed(float(design.workload.run_tokens), 'tokens')}: "
        f"{_run_text(metrics['run_time'], metrics['run_energy'])}, without failures."
        f"{clock_note({'': metrics['clock_reached']}, design)}"
    )


def _count_text(times: float) -> str:
    """Return text on a count, as an integer from 1 on and with digits below."""
    return f"{times:,.0f}" if times >= 1.0 else digits(times)


def _run_text(seconds: float, joules: float) -> str:
    """Return text on time and energy of a run, in days or less and MWh or kWh."""
    time_text = f"{seconds / 86400:.1f} days" if seconds >= 86400.0 else duration(seconds)
    return f"{time_text} and " + (f"{joules / 3.6e9:,.0f} MWh" if joules >= 3.6e10 else f"{digits(joules / 3.6e6)} kWh")


def _training_failures(metrics: Mapping[str, float], design: Design) -> str:
    """Return text on failures, checkpoints, and the share of time in training."""
    kind_text = choice_name(Checkpoint(int((design.system.reliability or Reliability()).checkpoint)))
    between_failures, total_time = metrics["time_between_failures"], metrics["run_time_with_failures"]
    straggler_time = metrics["run_time_with_failures_stragglers"]
    training_time = metrics["run_time"] + straggler_time
    straggler_share = percent(straggler_time / metrics["run_time"])
    straggler_text = (
        f", in which slow nodes and congestion lengthen steps by {straggler_share}" if straggler_time else ""
    )
    return (
        f"Effective training time: {percent(training_time / total_time)}{straggler_text}. Mean time between failures: "
        f"{duration(between_failures)}, {_count_text(total_time / between_failures)} failures per run. "
        f"Checkpoint ({kind_text}): "
        f"{gib(metrics['checkpoint_bytes'])} every {quantity(metrics['checkpoint_interval'], 's')}"
        f"{_steps_text(metrics)},"
        f" stall {quantity(metrics['checkpoint_stall'], 's')}, durable after "
        f"{quantity(metrics['checkpoint_time'], 's')}{_storage_text(design)}. Run: "
        f"{prefixed(metrics['tokens_needed'], 'tokens')}, {metrics['run_flops']:.3g} model FLOPs."
    )


def _storage_text(design: Design) -> str:
    """Return text on the bandwidth of checkpoint storage, B/s, empty for checkpoints in memory."""
    reliability = design.system.reliability or Reliability()
    if float(reliability.checkpoint) == Checkpoint.in_memory:
        return ""
    has_bandwidth, devices = float(reliability.storage_bandwidth) > 0.0, float(design.system.n_devices)
    default_text = "" if has_bandwidth else f", the default for {counted(devices, 'device')}"
    bandwidth = float(_remark_numbers(design)[0]["storage_bandwidth"])
    return f" (storage of {quantity(bandwidth, 'B/s')}{default_text})"


def _steps_text(metrics: Mapping[str, float]) -> str:
    """Return text on the checkpoint interval in steps, below 100 also rounded, as a checkpoint follows a whole step."""
    steps = metrics["checkpoint_interval"] / metrics["step_time"]
    if steps >= 100.0:
        return f" ({steps:,.0f} steps)"
    nearest = max(round(steps), 1)
    every_text = "every step" if nearest == 1 else f"every {nearest} steps"
    is_near_integer = abs(steps / nearest - 1.0) < 0.005
    return (
        f" ({every_text})"
        if is_near_integer
        else f" ({steps:.3g} steps; {every_text}, because a checkpoint follows a whole one)"
    )


#: Training steps: :class:`~dse.types.Metrics` of ``dse.evaluate``.
TRAINING = Study(
    name="training",
    evaluate=_train,
    metrics=Metrics,
    reasons=Infeasible,
    meanings=INFEASIBLE_MEANING,
    objective="step_time",
    rate="tokens_per_second",
    memory="peak_memory",
    memory_reasons=Infeasible.memory | Infeasible.host_memory,
    hypothetical=Infeasible.storage | Infeasible.power | Infeasible.stack_lacks | Infeasible.chip_shares,
    shortfalls=_training_shortfalls,
    divided_from={"step_time_expert_parallel": "step_time_tensor_parallel"},
    energy="energy_per_step",
    secondary_metric=MetricColumn("MFU", "mfu", "percent"),
    capacity=_usable_memory,
    headline=_training_headline,
    summary={
        "step_time": "step time",
        "tokens_per_second": "tokens/s",
        "mfu": "MFU",
        "peak_memory": "peak memory",
        "energy_per_step": "energy per step",
        "run_time_with_failures": "run, with failures",
        "cost_per_run": "cost of the run",
        "carbon_per_run": "carbon of the run",
    },
    settings=_training_settings,
    work_leaves=lambda design: (_BATCH, _SEQUENCE),
    work=_training_work,
    remark=_training_remark,
    operators_of="one micro-batch on one device",
    ignored_leaves=LEAVES_UNREAD_BY_TRAINING,
    reason_numbers=_training_numbers,
    caution=_training_caution,
    breakdown=_training_breakdown,
    bounds=_train_bounds,
    table_columns=(
        MetricColumn("step", "step_time", "time"),
        MetricColumn("MFU %", "mfu", "percent"),
        MetricColumn("tok/s/dev", "tokens_per_second_per_device", "number"),
        MetricColumn("GiB", "peak_memory", "bytes"),
        MetricColumn("fits %", "fits_probability", "percent"),
    ),
    time_columns={
        "comp": ("step_time_forward", "step_time_backward"),
        "recomp": ("step_time_recompute",),
        "tp+cp": ("step_time_tensor_parallel", "step_time_context_parallel"),
        "ep": ("step_time_expert_parallel",),
        "pp": ("step_time_bubble", "step_time_pipeline_parallel"),
        "dp": ("step_time_data_parallel",),
        "emb+head": ("step_time_embedding_and_head",),
        "optim": ("step_time_optimizer",),
        "host": ("step_time_host",),
        "offload": ("step_time_offload",),
    },
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
