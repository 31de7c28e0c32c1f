"""Metrics of training."""

from __future__ import annotations

from dse.types.display import record_html, record_text
from dse.types.fields import SHARE, Bounds, Scalar, metadata, record

#: Groups of metrics that results may lack: sweeps write energy by default, of the others what they ask for.
ENERGY, MONEY, CARBON, RUN, TAILS = "energy", "money", "carbon", "run", "tails"
GROUPS = (ENERGY, MONEY, CARBON, RUN, TAILS)

#: Upper limit of utilisations, which count the full square of attention where causal kernels do half.
_TWICE = Bounds(high=2.0)


@record
class Metrics:
    """Metrics of one design; parts ``<metric>_<part>`` add up to ``<metric>``."""

    _repr_html_, __repr__ = record_html, record_text

    step_time: Scalar = metadata("T", "s", "training step time")
    step_time_forward: Scalar = metadata("", "s", "layer forward compute on the slowest stage")
    step_time_backward: Scalar = metadata("", "s", "layer backward compute on the slowest stage")
    step_time_recompute: Scalar = metadata("", "s", "recompute in the backward pass")
    step_time_embedding_and_head: Scalar = metadata("", "s", "embedding, output head and cross-entropy")
    step_time_host: Scalar = metadata("", "s", "exposed host time (kernel launches)")
    step_time_tensor_parallel: Scalar = metadata("", "s", "exposed tensor-parallel communication")
    step_time_expert_parallel: Scalar = metadata("", "s", "exposed expert-parallel communication")
    step_time_context_parallel: Scalar = metadata("", "s", "exposed context-parallel communication")
    step_time_bubble: Scalar = metadata("", "s", "pipeline bubble and stage imbalance")
    step_time_pipeline_parallel: Scalar = metadata("", "s", "exposed point-to-point communication between stages")
    step_time_data_parallel: Scalar = metadata("", "s", "exposed data-parallel communication and its interference")
    step_time_optimizer: Scalar = metadata("", "s", "optimiser step")
    step_time_offload: Scalar = metadata("", "s", "exposed transfers between host and device")
    tokens_per_second: Scalar = metadata("", "s-1", "training tokens/s, all devices", counts="tokens")
    tokens_per_second_per_device: Scalar = metadata("", "s-1", "training tokens/s per device", counts="tokens")
    mfu: Scalar = metadata("", "1", "model FLOP utilisation (MFU)", bounds=_TWICE)
    mfu_causal: Scalar = metadata("", "1", "model FLOP utilisation (MFU), causal attention", bounds=SHARE)
    hfu: Scalar = metadata("", "1", "hardware FLOP utilisation (HFU)", bounds=_TWICE)
    model_flops: Scalar = metadata("", "FLOP", "model FLOPs per step")
    parameters: Scalar = metadata("", "1", "parameters of the model")
    peak_memory: Scalar = metadata("", "B", "peak memory, most loaded device")
    peak_memory_weights: Scalar = metadata("", "B", "weights of the transformer layers")
    peak_memory_gradients: Scalar = metadata("", "B", "gradients of the transformer layers")
    peak_memory_optimizer: Scalar = metadata("", "B", "optimiser state of the transformer layers")
    peak_memory_embedding_and_head: Scalar = metadata("", "B", "model state of embedding, final norm and head")
    peak_memory_activations: Scalar = metadata("", "B", "layer activations kept for the backward pass")
    peak_memory_logits: Scalar = metadata("", "B", "embedding and head activations: logits, cross-entropy")
    peak_memory_buffers: Scalar = metadata("", "B", "temporaries: gathered weights and activations, gradients")
    fits_probability: Scalar = metadata("", "1", "probability that peak memory fits", bounds=SHARE)
    host_memory: Scalar = metadata("", "B", "host memory per device, first stage")
    energy_per_step: Scalar = metadata("E", "J", "energy per step, system and facility", group=ENERGY)
    energy_per_step_matrix: Scalar = metadata("", "J", "matrix units", group=ENERGY)
    energy_per_step_vector: Scalar = metadata("", "J", "vector units", group=ENERGY)
    energy_per_step_memory: Scalar = metadata("", "J", "device memory and last-level cache", group=ENERGY)
    energy_per_step_network: Scalar = metadata("", "J", "links and switches", group=ENERGY)
    energy_per_step_control: Scalar = metadata("", "J", "clock trees and control of busy cores", group=ENERGY)
    energy_per_step_leakage: Scalar = metadata("", "J", "leakage of the cores", group=ENERGY)
    energy_per_step_uncore: Scalar = metadata("", "J", "uncore", group=ENERGY)
    energy_per_step_host: Scalar = metadata("", "J", "hosts: processors, fans, NICs, conversion", group=ENERGY)
    energy_per_step_cryogenics: Scalar = metadata("", "J", "cryogenic coolers", group=ENERGY)
    energy_per_step_facility: Scalar = metadata("", "J", "facility overhead (PUE)", group=ENERGY)
    energy_per_token: Scalar = metadata("", "J", "energy per training token, system and facility", group=ENERGY)
    average_power: Scalar = metadata("", "W", "average power, system and facility", group=ENERGY)
    peak_power: Scalar = metadata("", "W", "peak power, system and facility", group=ENERGY)
    provisioned_power: Scalar = metadata(
        "", "W", "provisioned power at device limits, system and facility", group=ENERGY
    )
    device_power: Scalar = metadata("", "W", "average board power per device", group=ENERGY)
    clock_reached: Scalar = metadata(
        "", "Hz", "core clock of the step: as set, or lower under a stated power limit", group=ENERGY
    )
    run_time: Scalar = metadata("", "s", "run time without failures")
    run_energy: Scalar = metadata("", "J", "run energy without failures", group=ENERGY)
    tokens_needed: Scalar = metadata("", "1", "tokens of the run, including batch inefficiency", group=RUN)
    run_flops: Scalar = metadata("", "FLOP", "model FLOPs of the run", group=RUN)
    time_between_failures: Scalar = metadata("", "s", "mean time between failures, job", group=RUN)
    checkpoint_bytes: Scalar = metadata("", "B", "checkpoint size: weights and optimiser state", group=RUN)
    checkpoint_time: Scalar = metadata("", "s", "time until a checkpoint is durable", group=RUN)
    checkpoint_stall: Scalar = metadata("", "s", "training stall per checkpoint", group=RUN)
    checkpoint_interval: Scalar = metadata("", "s", "checkpoint interval", group=RUN)
    goodput_fraction: Scalar = metadata(
        "", "1", "goodput fraction: run time without over with failures", group=RUN, bounds=SHARE
    )
    run_time_with_failures: Scalar = metadata("", "s", "expected run time with failures", group=RUN)
    run_time_with_failures_training: Scalar = metadata("", "s", "useful training", group=RUN)
    run_time_with_failures_stragglers: Scalar = metadata("", "s", "slow devices and congestion", group=RUN)
    run_time_with_failures_checkpointing: Scalar = metadata("", "s", "checkpoint stalls", group=RUN)
    run_time_with_failures_lost_work: Scalar = metadata("", "s", "lost work", group=RUN)
    run_time_with_failures_detection: Scalar = metadata("", "s", "failure detection", group=RUN)
    run_time_with_failures_restart: Scalar = metadata("", "s", "restart and checkpoint load", group=RUN)
    run_time_with_failures_repair: Scalar = metadata("", "s", "wait for repair", group=RUN)
    device_price: Scalar = metadata("", "USD", "accelerator price", group=MONEY)
    device_cost: Scalar = metadata("", "USD", "accelerator manufacturing cost; 0: unknown", group=MONEY)
    device_cost_dies: Scalar = metadata("", "USD", "tested dies", group=MONEY)
    device_cost_memory: Scalar = metadata("", "USD", "memory", group=MONEY)
    device_cost_package: Scalar = metadata(
        "", "USD", "package: carrier, substrate, bonds, with yield loss", group=MONEY
    )
    device_cost_lost: Scalar = metadata("", "USD", "dies and memory lost in packaging", group=MONEY)
    device_cost_test: Scalar = metadata("", "USD", "test and final assembly", group=MONEY)
    device_cost_design: Scalar = metadata("", "USD", "design cost per unit", group=MONEY)
    capital_cost: Scalar = metadata("", "USD", "capital cost, system and facility", group=MONEY)
    capital_cost_devices: Scalar = metadata("", "USD", "accelerators", group=MONEY)
    capital_cost_servers: Scalar = metadata("", "USD", "servers", group=MONEY)
    capital_cost_scale_up: Scalar = metadata("", "USD", "links and switches within domains", group=MONEY)
    capital_cost_scale_out: Scalar = metadata(
        "", "USD", "scale-out network: NICs, switches, cables, transceivers", group=MONEY
    )
    capital_cost_facility: Scalar = metadata("", "USD", "building, racks, power delivery, cooling", group=MONEY)
    tco_per_year: Scalar = metadata("TCO", "USD", "total cost of ownership (TCO) per year", group=MONEY)
    cost_per_device_hour: Scalar = metadata("", "USD", "cost per device-hour", group=MONEY)
    tokens_per_cost: Scalar = metadata("", "1/USD", "training tokens per dollar", group=MONEY)
    tokens_per_second_per_dollar: Scalar = metadata(
        "", "1/s/USD", "training tokens/s per dollar of capital", group=MONEY
    )
    cost_per_run: Scalar = metadata("", "USD", "cost per run without failures", group=MONEY)
    cost_per_run_devices: Scalar = metadata("", "USD", "accelerator depreciation", group=MONEY)
    cost_per_run_servers: Scalar = metadata("", "USD", "server depreciation", group=MONEY)
    cost_per_run_scale_up: Scalar = metadata("", "USD", "scale-up network depreciation", group=MONEY)
    cost_per_run_scale_out: Scalar = metadata("", "USD", "scale-out network depreciation", group=MONEY)
    cost_per_run_facility: Scalar = metadata("", "USD", "facility depreciation", group=MONEY)
    cost_per_run_maintenance: Scalar = metadata("", "USD", "maintenance", group=MONEY)
    cost_per_run_electricity: Scalar = metadata("", "USD", "electricity", group=MONEY)
    cost_per_token: Scalar = metadata("", "USD", "cost per training token", group=MONEY)
    device_carbon: Scalar = metadata("", "kg", "embodied emissions per accelerator, CO2 equivalent", group=CARBON)
    device_carbon_dies: Scalar = metadata("", "kg", "dies", group=CARBON)
    device_carbon_memory: Scalar = metadata("", "kg", "memory", group=CARBON)
    device_carbon_package: Scalar = metadata("", "kg", "package", group=CARBON)
    carbon_per_run: Scalar = metadata("", "kg", "emissions per run without failures, CO2 equivalent", group=CARBON)
    carbon_per_run_operation: Scalar = metadata("", "kg", "electricity", group=CARBON)
    carbon_per_run_devices: Scalar = metadata("", "kg", "embodied share, accelerators", group=CARBON)
    carbon_per_run_servers: Scalar = metadata("", "kg", "embodied share, servers and networks", group=CARBON)
    carbon_per_token: Scalar = metadata("", "kg", "emissions per training token, CO2 equivalent", group=CARBON)
    feasible: Scalar = metadata("", "1", "feasible design")
    infeasible_reason: Scalar = metadata("", "1", "infeasibility reasons, bits of Infeasible")
