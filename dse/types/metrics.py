"""What the model says of a design."""

from __future__ import annotations

from dse.types.fields import SHARE, Bounds, Scalar, metadata, record

#: Groups of the metrics that sweeps leave out unless they are asked for.
ENERGY, MONEY, CARBON, RUN = "energy", "money", "carbon", "run"
GROUPS = (ENERGY, MONEY, CARBON, RUN)

#: Utilisations that count the full square of attention, half of which causal kernels leave out: below two.
_TWICE = Bounds(high=2.0)


@record
class Metrics:
    """What the model says of one design; parts ``<metric>_<part>`` add up to ``<metric>``."""

    step_time: Scalar = metadata("T", "s", "time of one training step")
    step_time_forward: Scalar = metadata("", "s", "layer forward compute on the slowest stage")
    step_time_backward: Scalar = metadata("", "s", "layer backward compute on the slowest stage")
    step_time_recompute: Scalar = metadata("", "s", "forward compute repeated in the backward pass")
    step_time_embedding_and_head: Scalar = metadata("", "s", "embedding, output head and cross-entropy")
    step_time_host: Scalar = metadata("", "s", "time the device waits for kernel launches")
    step_time_tensor_parallel: Scalar = metadata("", "s", "exposed tensor- and expert-parallel communication")
    step_time_context_parallel: Scalar = metadata("", "s", "exposed context-parallel communication")
    step_time_bubble: Scalar = metadata("", "s", "pipeline fill and drain, and waiting for the slowest stage")
    step_time_pipeline_parallel: Scalar = metadata("", "s", "exposed point-to-point communication between stages")
    step_time_data_parallel: Scalar = metadata("", "s", "exposed data-parallel communication, and what it slows down")
    step_time_optimizer: Scalar = metadata("", "s", "optimiser step")
    step_time_offload: Scalar = metadata("", "s", "exposed transfers between host and device")
    tokens_per_second: Scalar = metadata("", "s-1", "tokens trained per second, whole system", counts="tokens")
    tokens_per_second_per_device: Scalar = metadata("", "s-1", "tokens trained per second per device", counts="tokens")
    mfu: Scalar = metadata(
        "", "1", "model FLOP utilisation (full attention square, head counted, no recompute)", bounds=_TWICE
    )
    mfu_causal: Scalar = metadata("", "1", "model FLOP utilisation counting causal attention work only", bounds=SHARE)
    hfu: Scalar = metadata("", "1", "hardware FLOP utilisation: model FLOPs plus recomputed ones", bounds=_TWICE)
    model_flops: Scalar = metadata("", "FLOP", "model FLOPs of one step")
    parameters: Scalar = metadata("", "1", "parameters of the model")
    peak_memory: Scalar = metadata("", "B", "peak memory of the fullest device")
    peak_memory_weights: Scalar = metadata("", "B", "weights of the transformer layers")
    peak_memory_gradients: Scalar = metadata("", "B", "gradients of the transformer layers")
    peak_memory_optimizer: Scalar = metadata("", "B", "optimiser state of the transformer layers")
    peak_memory_embedding_and_head: Scalar = metadata("", "B", "model state of embedding, final norm and head")
    peak_memory_activations: Scalar = metadata("", "B", "activations that the layers keep for the backward pass")
    peak_memory_logits: Scalar = metadata("", "B", "activations of embedding and head: logits and cross-entropy")
    peak_memory_buffers: Scalar = metadata("", "B", "temporaries: gathered weights and activations, gradients")
    fits_probability: Scalar = metadata("", "1", "probability that the (uncertain) peak memory fits", bounds=SHARE)
    host_memory: Scalar = metadata("", "B", "host memory that a device of the first stage uses")
    energy_per_step: Scalar = metadata("E", "J", "energy of one step, whole system with its facility", group=ENERGY)
    energy_per_step_matrix: Scalar = metadata("", "J", "matrix units", group=ENERGY)
    energy_per_step_vector: Scalar = metadata("", "J", "vector units", group=ENERGY)
    energy_per_step_memory: Scalar = metadata("", "J", "device memory and the last cache", group=ENERGY)
    energy_per_step_network: Scalar = metadata("", "J", "links and switches", group=ENERGY)
    energy_per_step_control: Scalar = metadata("", "J", "clock trees and control of busy cores", group=ENERGY)
    energy_per_step_leakage: Scalar = metadata("", "J", "static power of the cores", group=ENERGY)
    energy_per_step_uncore: Scalar = metadata("", "J", "devices at rest: what depends on no core", group=ENERGY)
    energy_per_step_host: Scalar = metadata("", "J", "hosts: processors, fans, NICs, conversion", group=ENERGY)
    energy_per_step_cryogenics: Scalar = metadata("", "J", "coolers of devices below room temperature", group=ENERGY)
    energy_per_step_facility: Scalar = metadata("", "J", "what the facility adds (PUE)", group=ENERGY)
    energy_per_token: Scalar = metadata("", "J", "energy per trained token, whole system", group=ENERGY)
    average_power: Scalar = metadata("", "W", "average power of a step, whole system with its facility", group=ENERGY)
    peak_power: Scalar = metadata(
        "", "W", "power while every device runs layers, the average at least, whole system and facility", group=ENERGY
    )
    provisioned_power: Scalar = metadata(
        "", "W", "power provisioned for every device at its limit, hosts and facility included", group=ENERGY
    )
    device_power: Scalar = metadata("", "W", "average board power of a device", group=ENERGY)
    run_time: Scalar = metadata("", "s", "time of a whole training run without failures")
    run_energy: Scalar = metadata("", "J", "energy of a whole training run without failures", group=ENERGY)
    tokens_needed: Scalar = metadata("", "1", "tokens of the run, those that its batch needs more included", group=RUN)
    run_flops: Scalar = metadata("", "FLOP", "model FLOPs of the run", group=RUN)
    time_between_failures: Scalar = metadata("", "s", "mean time between failures of the whole job", group=RUN)
    checkpoint_bytes: Scalar = metadata("", "B", "bytes of a checkpoint: weights and optimiser state", group=RUN)
    checkpoint_time: Scalar = metadata("", "s", "time until a checkpoint can be gone back to", group=RUN)
    checkpoint_stall: Scalar = metadata("", "s", "time that training loses for a checkpoint", group=RUN)
    checkpoint_interval: Scalar = metadata("", "s", "training time between two checkpoints", group=RUN)
    goodput_fraction: Scalar = metadata(
        "", "1", "time of the run without failures over that with them", group=RUN, bounds=SHARE
    )
    run_time_with_failures: Scalar = metadata("", "s", "expected time of a whole training run with failures", group=RUN)
    run_time_with_failures_training: Scalar = metadata("", "s", "training whose result is kept", group=RUN)
    run_time_with_failures_stragglers: Scalar = metadata("", "s", "slow devices and congestion", group=RUN)
    run_time_with_failures_checkpointing: Scalar = metadata("", "s", "training that waits for checkpoints", group=RUN)
    run_time_with_failures_lost_work: Scalar = metadata("", "s", "training done again after failures", group=RUN)
    run_time_with_failures_detection: Scalar = metadata("", "s", "failures that are not yet found", group=RUN)
    run_time_with_failures_restart: Scalar = metadata("", "s", "starting again, and loading a checkpoint", group=RUN)
    run_time_with_failures_repair: Scalar = metadata("", "s", "waiting for a node where no spare is left", group=RUN)
    device_price: Scalar = metadata("", "USD", "price of an accelerator", group=MONEY)
    device_cost: Scalar = metadata("", "USD", "what making an accelerator costs; 0: not known", group=MONEY)
    device_cost_dies: Scalar = metadata("", "USD", "tested dies", group=MONEY)
    device_cost_memory: Scalar = metadata("", "USD", "memory", group=MONEY)
    device_cost_package: Scalar = metadata("", "USD", "carrier, substrate and bonds, with those that fail", group=MONEY)
    device_cost_lost: Scalar = metadata("", "USD", "dies and memory lost with packages that fail", group=MONEY)
    device_cost_test: Scalar = metadata("", "USD", "test and final assembly", group=MONEY)
    device_cost_design: Scalar = metadata("", "USD", "a unit's share of the design", group=MONEY)
    capital_cost: Scalar = metadata("", "USD", "price of the whole system with its facility", group=MONEY)
    capital_cost_devices: Scalar = metadata("", "USD", "accelerators", group=MONEY)
    capital_cost_servers: Scalar = metadata("", "USD", "servers around them", group=MONEY)
    capital_cost_scale_up: Scalar = metadata("", "USD", "links and switches within domains", group=MONEY)
    capital_cost_scale_out: Scalar = metadata(
        "", "USD", "network between domains: cards, switches, cables, transceivers", group=MONEY
    )
    capital_cost_facility: Scalar = metadata("", "USD", "building, racks, power delivery, cooling", group=MONEY)
    tco_per_year: Scalar = metadata("TCO", "USD", "cost of owning the whole system for a year", group=MONEY)
    cost_per_device_hour: Scalar = metadata("", "USD", "cost of an hour in which one device works", group=MONEY)
    tokens_per_cost: Scalar = metadata("", "1/USD", "tokens trained for a dollar of all costs", group=MONEY)
    tokens_per_second_per_dollar: Scalar = metadata(
        "", "1/s/USD", "tokens trained a second for a dollar of the system's price", group=MONEY
    )
    cost_per_run: Scalar = metadata("", "USD", "cost of a whole training run without failures", group=MONEY)
    cost_per_run_devices: Scalar = metadata("", "USD", "accelerators, written off", group=MONEY)
    cost_per_run_servers: Scalar = metadata("", "USD", "servers, written off", group=MONEY)
    cost_per_run_scale_up: Scalar = metadata("", "USD", "links within domains, written off", group=MONEY)
    cost_per_run_scale_out: Scalar = metadata("", "USD", "network between domains, written off", group=MONEY)
    cost_per_run_facility: Scalar = metadata("", "USD", "facility, written off", group=MONEY)
    cost_per_run_maintenance: Scalar = metadata("", "USD", "repairs and staff", group=MONEY)
    cost_per_run_electricity: Scalar = metadata("", "USD", "electricity", group=MONEY)
    cost_per_token: Scalar = metadata("", "USD", "cost of training on a token", group=MONEY)
    device_carbon: Scalar = metadata("", "kg", "emissions of making an accelerator, as CO2", group=CARBON)
    device_carbon_dies: Scalar = metadata("", "kg", "dies", group=CARBON)
    device_carbon_memory: Scalar = metadata("", "kg", "memory", group=CARBON)
    device_carbon_package: Scalar = metadata("", "kg", "package", group=CARBON)
    carbon_per_run: Scalar = metadata("", "kg", "emissions of a training run without failures, as CO2", group=CARBON)
    carbon_per_run_operation: Scalar = metadata("", "kg", "electricity", group=CARBON)
    carbon_per_run_devices: Scalar = metadata("", "kg", "share of making the accelerators", group=CARBON)
    carbon_per_run_servers: Scalar = metadata("", "kg", "share of making servers and networks", group=CARBON)
    carbon_per_token: Scalar = metadata("", "kg", "emissions of training on a token", group=CARBON)
    feasible: Scalar = metadata("", "1", "whether the design can run")
    infeasible_reason: Scalar = metadata("", "1", "why it cannot: bits of Infeasible")
