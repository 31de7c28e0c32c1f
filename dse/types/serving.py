"""What serving a model adds to a design: requests, what the mapping of an engine says, and what the engine costs."""

from __future__ import annotations

from dse.types.choices import Load
from dse.types.fields import COUNT, POSITIVE, POSITIVE_SHARE, SHARE, YES_OR_NO, Bounds, Scalar, metadata, record
from dse.types.metrics import CARBON, ENERGY, MONEY, RUN


@record
class Requests:
    """The requests that are served; an optional part of a workload."""

    prompt_tokens: Scalar = metadata("ISL", "1", "mean tokens of a prompt", default=1024.0, bounds=POSITIVE)
    output_tokens: Scalar = metadata("OSL", "1", "mean tokens of an answer", default=1024.0, bounds=Bounds(low=1.0))
    concurrency: Scalar = metadata("C", "1", "requests in flight over all devices", default=1.0, bounds=POSITIVE)
    load: Scalar = metadata("", "1", "how requests arrive", default=float(Load.concurrency), enum=Load)
    queue: Scalar = metadata("", "1", "requests of an offline load, 0 for a queue without an end", default=0.0)
    longest_answer: Scalar = metadata(
        "", "1", "tokens of the longest answer, with which such a queue ends, 0 as long as the mean", default=0.0
    )
    prefix_share: Scalar = metadata(
        "", "1", "share of a prompt whose keys and values are cached already, each request holding its own",
        default=0.0, bounds=SHARE,
    )  # fmt: skip
    burst: Scalar = metadata(
        "", "1", "weight in the mean of the first prompts, which benchmarks send all at once", default=0.0, bounds=SHARE
    )
    length_spread: Scalar = metadata(
        "", "1", "standard deviation of the lengths of prompts over their mean", default=0.0, bounds=SHARE
    )
    first_token_limit: Scalar = metadata("", "s", "longest time to the first token, 0 for any", default=0.0)
    token_limit: Scalar = metadata("", "s", "longest time per output token, 0 for any", default=0.0)


@record
class Serving:
    """How an engine maps requests onto the devices; an optional part of a mapping.

    ``tp`` and ``pp`` are as in training; ``dp`` ranks decode apart. Experts lie over ``ep`` ranks of ``tp dp``.
    """

    chunk: Scalar = metadata(
        "", "1", "tokens of one engine step at most: decoded ones and those of prompts", default=8192.0, bounds=COUNT
    )
    mixed: Scalar = metadata(
        "", "1", "1 when steps carry prompts beside decoding, 0 when a prompt stops it", default=1.0, bounds=YES_OR_NO
    )
    admission_steps: Scalar = metadata(
        "", "1", "engine steps from one look at new requests to the next", default=1.0, bounds=COUNT
    )
    cache_bytes: Scalar = metadata("", "B", "bytes of one cached key or value", default=2.0, bounds=POSITIVE)
    weight_bytes: Scalar = metadata(
        "", "B", "bytes of one weight of a layer that is kept narrower than it is multiplied (W4A16: 0.53 B with "
        "bf16), 0 as the precision has it", default=0.0,
    )  # fmt: skip
    expert_bytes: Scalar = metadata("", "B", "the same of one weight of an expert, 0 as other weights", default=0.0)
    redundant_experts: Scalar = metadata(
        "", "1", "copies of experts, of the busiest first, that a layer has beside one of each (EPLB); ep divides all",
        default=0.0, bounds=Bounds(whole=True),
    )  # fmt: skip
    paged: Scalar = metadata(
        "", "1", "1 when the cache grows with an answer, 0 when it is allocated whole", default=1.0, bounds=YES_OR_NO
    )
    reserved_answer: Scalar = metadata(
        "", "1", "share of what is left of an answer for which a request that is admitted keeps memory free: 0 none, "
        "so that others may be preempted, 1 all of it", default=0.0, bounds=SHARE,
    )  # fmt: skip
    memory_share: Scalar = metadata(
        "", "1", "share of a device's memory that the engine takes", default=0.9, bounds=POSITIVE_SHARE
    )
    drafts: Scalar = metadata("", "1", "tokens that are drafted and checked in a step", default=0.0)
    acceptance: Scalar = metadata(
        "alpha", "1", "chance that a drafted token is right, if those before it are", default=0.7,
        bounds=Bounds(high=0.99),
    )  # fmt: skip


@record
class NanoBatches:
    """A step cut into parts that run beside each other on different resources; an optional part of a mapping.

    While one part computes, another one reads its cache and a third one is sent (NanoFlow: Zhu et al. 2024). Without
    this record operators follow each other.
    """

    step_overlap: Scalar = metadata(
        "", "1", "of the time that kernels and messages take after each other, the share that is saved on the way to "
        "that of the busiest resource: 0 none, 1 all", default=0.5, bounds=SHARE,
    )  # fmt: skip
    nano_batches: Scalar = metadata(
        "", "1", "parts of a step, each of which reads the weights, where that takes less time than the step whole",
        default=2.0, bounds=COUNT,
    )  # fmt: skip


@record
class Spill:
    """What of weights and cache lies in a memory beyond the device's own; an optional part of a mapping.

    In that of the host, or in the ``far`` memory that the system has: of idle peers (EnergonAI: Du et al. 2022), DDR
    under HBM (SN40L: Prabhakar et al. 2024), drives.
    """

    far_weights: Scalar = metadata("", "1", "share of the weights that lies there", default=0.0, bounds=SHARE)
    far_cache: Scalar = metadata("", "1", "share of the cache that lies there", default=0.0, bounds=SHARE)


@record
class Engine:
    """What a serving engine (framework and release) costs beside its kernels; an optional part of a stack."""

    kernel_slowdown: Scalar = metadata(
        "s", "1", "time of kernels in an engine over theirs alone", default=1.0, bounds=POSITIVE
    )
    layer_time: Scalar = metadata("", "s", "what a layer adds: launches, small kernels", default=15e-6)
    expert_layer_time: Scalar = metadata("", "s", "what a layer with experts adds to that", default=25e-6)
    cast_layer_time: Scalar = metadata(
        "", "s", "what a layer with experts adds to that where its operands are cast to 8 or 4 bits", default=10e-6
    )
    latent_layer_time: Scalar = metadata("", "s", "what a layer with latent attention adds", default=15e-6)
    host_step_time: Scalar = metadata("", "s", "host time of an engine step", default=1e-3)
    sequence_time: Scalar = metadata("", "s", "host time of a sequence in a step", default=10e-6)
    request_time: Scalar = metadata("", "s", "time of a request outside of the engine", default=0.1)
    small_message_time: Scalar = metadata(
        "", "s", "what a collective of a layer takes beside its bytes, or what a library takes", default=11e-6
    )
    own_message_bytes: Scalar = metadata(
        "", "B", "largest message that the engine sums by kernels of its own inside a domain; 0 without any",
        default=8e6,
    )  # fmt: skip
    narrow_rate: Scalar = metadata(
        "", "1", "share of their matrix rate that formats of 8 bits reach over that of 16, of 4 bits its square",
        default=0.88, bounds=POSITIVE_SHARE,
    )  # fmt: skip
    narrow_expert: Scalar = metadata(
        "", "1", "width of an expert's shard whose kernels reach half of their rate", default=150.0
    )
    cache_rereads: Scalar = metadata(
        "", "1", "decoding reads keys and values (heads / key-value heads) to this power times", default=0.0,
        bounds=SHARE,
    )  # fmt: skip
    most_sequences: Scalar = metadata("", "1", "sequences of a step at most", default=2048.0, bounds=COUNT)
    device_share: Scalar = metadata(
        "", "1", "share of what an engine adds to its kernels in which the device works: small kernels, no waiting",
        default=1.0, bounds=SHARE,
    )  # fmt: skip
    kernel_energy: Scalar = metadata(
        "", "1", "energy of kernels in an engine over theirs alone", default=1.0, bounds=POSITIVE
    )
    runtime_memory: Scalar = metadata("", "B", "memory of a device beside weights and cache", default=2.5e9)
    runtime_tokens: Scalar = metadata(
        "", "1", "tokens of a step whose activations are in that memory; those of more come on top", default=8192.0,
        bounds=COUNT,
    )  # fmt: skip
    own_buffers: Scalar | None = metadata(
        "", "1", "1 when the prompts of all sequences are one step, and every operator has a buffer for its output; "
        "absent or 0: activations are in the engine's memory", default=None, bounds=YES_OR_NO, absent=0.0,
    )  # fmt: skip


@record
class ServingMetrics:
    """What serving takes; every total is the sum of its parts ``<total>_<part>``."""

    time_per_output_token: Scalar = metadata("TPOT", "s", "mean time between two tokens of an answer")
    time_per_output_token_matrix: Scalar = metadata("", "s", "matrices and small kernels of decode steps")
    time_per_output_token_attention: Scalar = metadata("", "s", "attention over the cache in decode steps")
    time_per_output_token_communication: Scalar = metadata("", "s", "messages of decode steps")
    time_per_output_token_host: Scalar = metadata("", "s", "host and launches of decode steps")
    time_per_output_token_prefill: Scalar = metadata("", "s", "what prompts of other requests add")
    time_per_output_token_preempted: Scalar = metadata(
        "", "s", "what waiting for memory adds that others took in the middle of an answer"
    )
    time_to_first_token: Scalar = metadata("TTFT", "s", "mean time to the first token of an answer")
    time_to_first_token_request: Scalar = metadata("", "s", "outside of the engine")
    time_to_first_token_waiting: Scalar = metadata("", "s", "for a place in memory, for a step to end, for others")
    time_to_first_token_prefill: Scalar = metadata("", "s", "computing the prompt")
    inter_token_latency: Scalar = metadata("ITL", "s", "median time between two tokens of an answer")
    request_latency: Scalar = metadata("", "s", "mean time of a request")
    output_tokens_per_second: Scalar = metadata("", "s-1", "tokens of answers a second, all devices", counts="tokens")
    output_tokens_per_second_per_device: Scalar = metadata(
        "", "s-1", "tokens of answers a second, one device", counts="tokens"
    )
    output_tokens_per_second_per_user: Scalar = metadata(
        "", "s-1", "tokens a second that one request gets", counts="tokens"
    )
    requests_per_second: Scalar = metadata("", "s-1", "requests answered a second", counts="requests")
    share_in_time: Scalar = metadata(
        "", "1", "share of the requests that keep the limits of both latencies", bounds=SHARE
    )
    goodput: Scalar = metadata(
        "", "s-1", "requests answered a second that keep the limits of both latencies", counts="requests"
    )
    concurrency_limit: Scalar = metadata("", "1", "requests that memory and engine hold at once, all devices")
    context_switch_time: Scalar = metadata(
        "", "s", "time in which the cache of a request leaves a device for its host, or comes back"
    )
    prefill_share: Scalar = metadata("", "1", "share of the engine's steps that carry prompts", bounds=SHARE)
    peak_memory: Scalar = metadata("", "B", "memory of the fullest device")
    peak_memory_weights: Scalar = metadata("", "B", "weights")
    peak_memory_cache: Scalar = metadata("", "B", "keys and values of the sequences that run")
    peak_memory_runtime: Scalar = metadata("", "B", "the engine's own")
    parameters: Scalar = metadata("", "1", "parameters of the model")
    energy_per_output_token: Scalar = metadata(
        "", "J", "energy of an output token, whole system with its facility", group=ENERGY
    )
    energy_per_output_token_decode: Scalar = metadata("", "J", "work of decode steps", group=ENERGY)
    energy_per_output_token_prefill: Scalar = metadata("", "J", "work of the prompts, over the answers", group=ENERGY)
    energy_per_output_token_rest: Scalar = metadata("", "J", "clocks, leakage, devices at rest", group=ENERGY)
    energy_per_output_token_host: Scalar = metadata("", "J", "hosts: processors, fans, NICs, conversion", group=ENERGY)
    energy_per_output_token_cryogenics: Scalar = metadata(
        "", "J", "coolers of devices below room temperature", group=ENERGY
    )
    energy_per_output_token_facility: Scalar = metadata("", "J", "what the facility adds (PUE)", group=ENERGY)
    average_power: Scalar = metadata("", "W", "average power, whole system with its facility", group=ENERGY)
    peak_power: Scalar = metadata(
        "", "W", "power while every device computes prompts, whole system with its facility", group=ENERGY
    )
    provisioned_power: Scalar = metadata(
        "", "W", "power provisioned for every device at its limit, hosts and facility included", group=ENERGY
    )
    device_power: Scalar = metadata("", "W", "average board power of a device", group=ENERGY)
    decode_power: Scalar = metadata("", "W", "board power of a device while it decodes", group=ENERGY)
    prefill_power: Scalar = metadata("", "W", "board power of a device in steps that carry prompts", group=ENERGY)
    time_between_failures: Scalar = metadata("", "s", "mean time between failures of a replica of the model", group=RUN)
    availability: Scalar = metadata("", "1", "share of the time for which a replica answers", group=RUN, bounds=SHARE)
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
    tokens_per_cost: Scalar = metadata("", "1/USD", "tokens of answers for a dollar of all costs", group=MONEY)
    tokens_per_second_per_dollar: Scalar = metadata(
        "", "1/s/USD", "tokens of answers a second for a dollar of the system's price", group=MONEY
    )
    cost_per_token: Scalar = metadata("", "USD", "cost of a token of answers", group=MONEY)
    cost_per_token_devices: Scalar = metadata("", "USD", "accelerators, written off", group=MONEY)
    cost_per_token_servers: Scalar = metadata("", "USD", "servers, written off", group=MONEY)
    cost_per_token_scale_up: Scalar = metadata("", "USD", "links within domains, written off", group=MONEY)
    cost_per_token_scale_out: Scalar = metadata("", "USD", "network between domains, written off", group=MONEY)
    cost_per_token_facility: Scalar = metadata("", "USD", "facility, written off", group=MONEY)
    cost_per_token_maintenance: Scalar = metadata("", "USD", "repairs and staff", group=MONEY)
    cost_per_token_electricity: Scalar = metadata("", "USD", "electricity", group=MONEY)
    device_carbon: Scalar = metadata("", "kg", "emissions of making an accelerator, as CO2", group=CARBON)
    device_carbon_dies: Scalar = metadata("", "kg", "dies", group=CARBON)
    device_carbon_memory: Scalar = metadata("", "kg", "memory", group=CARBON)
    device_carbon_package: Scalar = metadata("", "kg", "package", group=CARBON)
    carbon_per_token: Scalar = metadata("", "kg", "emissions of a token of answers, as CO2", group=CARBON)
    carbon_per_token_operation: Scalar = metadata("", "kg", "electricity", group=CARBON)
    carbon_per_token_devices: Scalar = metadata("", "kg", "share of making the accelerators", group=CARBON)
    carbon_per_token_servers: Scalar = metadata("", "kg", "share of making servers and networks", group=CARBON)
    feasible: Scalar = metadata("", "1", "whether the design can serve")
    infeasible_reason: Scalar = metadata("", "1", "why it cannot: bits of Infeasible")
