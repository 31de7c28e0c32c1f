"""What is shown of training: headline, notes on its totals, and the numbers behind its reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from dse.io import counted, digits, duration, percent, quantity
from dse.io.quantities import gib, prefixed
from dse.types import Checkpoint, Design, Precision, Recompute, Reliability, Schedule, choice_name
from dse.views.studies.notes import (
    chip_share_excess,
    clock_note,
    money_note,
    network_description,
    plain_numbers,
    price_note,
    routing_excess,
)
from dse.views.studies.presentation import Presentation, words_of
from dse.views.words import WORDS

_GIB = 2.0**30


def _reason_numbers(design: Design, metrics: Mapping[str, float]) -> dict[str, str]:
    """Return name of a reason → text with the numbers behind it, whether it holds or not."""
    w, m, system = design.workload, design.mapping, design.system
    usable = float(_remark_numbers(design)["usable_memory"])
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
        "stack_lacks": f"{_missing_capabilities(design)} (--any-option allows it)",
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


#: Share of the model's work that a causal mask may skip before utilisation is printed without it first.
_MAX_MASKED_SHARE = 0.1


def _headline(metrics: Mapping[str, float]) -> list[str]:
    """Return the headline metrics, ``mfu_causal`` first where it is more than a tenth below ``mfu``."""
    names = list(WORDS["headline"]["training"])
    if metrics["mfu_causal"] < (1.0 - _MAX_MASKED_SHARE) * metrics["mfu"]:
        index = names.index("mfu")
        names[index : index + 2] = ["mfu_causal", "mfu"]
    return names


def _settings(design: Design) -> str:
    """Return one line of text on the batch and the options of the mapping."""
    m, w = design.mapping, design.workload
    flags = [name for name in ("sequence_parallel", "overlap_dp", "overlap_tp") if getattr(m, name)]
    recompute = choice_name(Recompute(int(m.recompute)))
    if m.recompute == Recompute.full and m.recompute_share < 1.0:
        recompute += f" of {percent(float(m.recompute_share))} of the layers"
    flags += [] if m.schedule is None else [f"schedule {choice_name(Schedule(int(m.schedule)))}"]
    choices = ", ".join([f"v {m.virtual_stages:g}", f"recompute {recompute}", f"ZeRO {m.zero_stage:g}", *flags])
    return f"{counted(w.global_batch, 'sequence')} of {w.seq_len:g}, micro-batch {m.micro_batch:g}; {choices}"


def _remark(total: str, metrics: Mapping[str, float], design: Design) -> str:
    """Return a remark on a total, as text: chance to fit, power, failures of a run, cost, or price; else empty."""
    if total == "peak_memory":
        fits_text, likely_text = percent(metrics["fits_probability"]), gib(_memory_with_chance(design))
        return f"Fits with a probability of {fits_text}; predictions up to {likely_text} with 90 %."
    if total == "energy_per_step":
        return _power_text(metrics, design)
    if total == "run_time_with_failures":
        return _failures_text(metrics, design)
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


@plain_numbers("numbers of remarks")
def _remark_numbers(design: Design) -> Any:
    """Return bytes of usable memory and bytes/s of checkpoint storage of a design, by name."""
    from dse.model import generated
    from dse.model.accounts.failures import storage_bandwidth
    from dse.model.accounts.feasibility import usable_memory

    usable = usable_memory(generated(design))
    return {"usable_memory": usable, "storage_bandwidth": storage_bandwidth(design.system)}


def _memory_with_chance(design: Design, chance: float = 0.9) -> float:
    """Return the predicted peak memory at which a design fits with probability ``chance``, B (log-normal spread)."""
    log_margin = NormalDist().inv_cdf(chance) * float(design.software.memory_spread)
    return float(_remark_numbers(design)["usable_memory"]) * math.exp(-log_margin)


def _power_text(metrics: Mapping[str, float], design: Design) -> str:
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


def _failures_text(metrics: Mapping[str, float], design: Design) -> str:
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
    bandwidth = float(_remark_numbers(design)["storage_bandwidth"])
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


#: What is shown of the study.
PRESENTATION = Presentation(
    headline=_headline, settings=_settings, remark=_remark, reason_numbers=_reason_numbers, **words_of("training")
)
