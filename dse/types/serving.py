"""Serving: requests, the mapping of an engine, its cost beyond kernels, and metrics."""

from __future__ import annotations

from dse.types.choices import Load
from dse.types.display import record_html, record_text
from dse.types.fields import COUNT, POSITIVE, POSITIVE_SHARE, SHARE, YES_OR_NO, Bounds, Scalar, metadata, record
from dse.types.metrics import CARBON, ENERGY, MONEY, RUN, TAILS


@record
class Requests:
    """Requests of a serving workload; an optional part of a workload."""

    prompt_tokens: Scalar = metadata("ISL", "1", "prompt tokens, mean", default=1024.0, bounds=POSITIVE)
    output_tokens: Scalar = metadata("OSL", "1", "output tokens, mean", default=1024.0, bounds=Bounds(low=1.0))
    concurrency: Scalar = metadata("C", "1", "concurrent requests, all devices", default=32.0, bounds=POSITIVE)
    load: Scalar = metadata("", "1", "arrival of requests", default=float(Load.concurrency), enum=Load)
    request_rate: Scalar | None = metadata(
        "lambda", "s-1", "requests/s of load=rate, all devices", default=None, bounds=POSITIVE
    )
    arrival_variation: Scalar = metadata(
        "",
        "1",
        "squared coefficient of variation of the time between arrivals (Poisson: 1)",
        default=1.0,
    )
    queue: Scalar = metadata("", "1", "requests of an offline load, 0 unlimited", default=0.0)
    longest_answer: Scalar = metadata("", "1", "output tokens, longest request of the queue; 0: the mean", default=0.0)
    prefix_share: Scalar = metadata(
        "",
        "1",
        "share of a prompt in the prefix cache, which holds it once",
        default=0.0,
        bounds=SHARE,
    )
    burst: Scalar = metadata("", "1", "weight of the initial burst in the mean", default=0.0, bounds=SHARE)
    length_spread: Scalar = metadata(
        "", "1", "relative standard deviation of prompt lengths", default=0.0, bounds=SHARE
    )
    answer_spread: Scalar | None = metadata(
        "", "1", "relative standard deviation of answer lengths", default=None, absent=0.0
    )
    expert_skew: Scalar = metadata("", "1", "relative standard deviation of the tokens of an expert", default=1.0)
    sampled: Scalar | None = metadata(
        "",
        "1",
        "share of requests whose tokens are drawn from the likeliest (top-p), which sorts the logits",
        default=None,
        bounds=SHARE,
        absent=0.0,
    )
    first_token_limit: Scalar = metadata("", "s", "limit of the time to first token, 0 none", default=0.0)
    token_limit: Scalar = metadata("", "s", "limit of the time per output token, 0 none", default=0.0)

    @property
    def running_answer(self) -> Scalar:
        """Return the mean answer of the sequences that run at a time, ``E[O^2] / E[O]`` tokens.

        Long answers run longer, so that they are more of these.
        """
        spread = self.answer_spread
        return self.output_tokens if spread is None else self.output_tokens * (1.0 + spread * spread)


@record
class Reuse:
    """Prefixes that requests share and sessions of several turns; an optional part of a workload.

    With it ``prefix_share`` is the share of a mean prompt that others have too, of ``prefix_groups`` prefixes by a Zipf
    law, and caches hold what their size allows (least recently used first); without it the cache always holds it. A
    turn's prompt is the prompt and answer of the turn before, and new tokens.
    """

    prefix_groups: Scalar = metadata(
        "", "1", "distinct shared prefixes: system prompts, documents", default=1.0, bounds=Bounds(low=1.0)
    )
    prefix_skew: Scalar = metadata("", "1", "exponent of the prefixes' popularity (Zipf), 0 uniform", default=1.0)
    turns: Scalar = metadata(
        "", "1", "requests per session, each with the context of the last", default=1.0, bounds=Bounds(low=1.0)
    )
    think_time: Scalar = metadata(
        "", "s", "time between an answer and the session's next request, mean", default=10.0, bounds=POSITIVE
    )


@record
class CacheTiers:
    """Prefix caches beyond device memory, for ``reuse``; an optional part of a mapping.

    What device memory evicts goes to the host, then to disk, and is loaded over the host's link or the storage's reads.
    """

    host_cache: Scalar = metadata("", "B", "prefix cache in host memory, per device", default=0.0)
    disk_cache: Scalar = metadata("", "B", "prefix cache on storage, per device", default=0.0)


@record
class Serving:
    """Serving options of an engine; an optional part of a mapping.

    ``tp`` and ``pp`` are as in training; ``dp`` ranks have attention of their own. Experts are spread over ``ep`` ranks
    of ``tp dp``.
    """

    chunk: Scalar = metadata(
        "", "1", "maximum tokens per engine step, decode and prefill", default=8192.0, bounds=COUNT
    )
    mixed: Scalar = metadata(
        "", "1", "mixed prefill and decode (chunked prefill): 1 yes", default=1.0, bounds=YES_OR_NO
    )
    whole_prompts: Scalar | None = metadata(
        "",
        "1",
        "a prompt within the limit of a step is not cut: 1 yes",
        default=None,
        bounds=YES_OR_NO,
        absent=0.0,
    )
    graph_step: Scalar | None = metadata(
        "",
        "1",
        "decode steps run in graphs of powers of two, and of multiples of this up to four of it",
        default=None,
        bounds=COUNT,
        absent=0.0,
    )
    prompt_balance: Scalar | None = metadata(
        "",
        "1",
        "ranks with common experts take prompts in the same steps: 1 yes, 0 those of one delay all",
        default=None,
        bounds=YES_OR_NO,
        absent=1.0,
    )
    admission_steps: Scalar = metadata("", "1", "engine steps between admissions", default=1.0, bounds=COUNT)
    cache_bytes: Scalar = metadata("", "B", "bytes per cached key or value", default=2.0, bounds=POSITIVE)
    weight_bytes: Scalar = metadata(
        "",
        "B",
        "bytes per stored weight (W4A16: 0.53 B); 0: as the precision",
        default=0.0,
    )
    expert_bytes: Scalar = metadata("", "B", "bytes per stored expert weight; 0: as other weights", default=0.0)
    redundant_experts: Scalar = metadata(
        "",
        "1",
        "redundant experts per layer (EPLB)",
        default=0.0,
        bounds=Bounds(is_integer=True),
    )
    paged: Scalar = metadata("", "1", "paged cache: 1 yes, 0 allocated whole", default=1.0, bounds=YES_OR_NO)
    reserved_answer: Scalar = metadata(
        "",
        "1",
        "share of the remaining output reserved at admission",
        default=0.0,
        bounds=SHARE,
    )
    memory_share: Scalar = metadata(
        "", "1", "share of device memory for the engine", default=0.9, bounds=POSITIVE_SHARE
    )
    drafts: Scalar = metadata("", "1", "draft tokens per step", default=0.0)
    acceptance: Scalar = metadata(
        "alpha",
        "1",
        "acceptance probability per draft token",
        default=0.7,
        bounds=Bounds(high=0.99),
    )


@record
class NanoBatches:
    """A step in parts that run in parallel on different resources; an optional part of a mapping.

    While one part computes, another one reads its cache and a third one is sent (NanoFlow: Zhu et al. 2024, with two to
    four parts). What overlaps follows from the cores, the memory bandwidth and the links that kernels take from each
    other (:func:`dse.model.serving.nano_batches.side_by_side`). Without it operators run one after the other.
    """

    nano_batches: Scalar = metadata(
        "",
        "1",
        "nano-batches per step",
        default=2.0,
        bounds=COUNT,
    )


@record
class Spill:
    """Shares of weights and cache in far memory; an optional part of a mapping.

    The host's memory, or the ``far`` memory of the system: of idle peers (EnergonAI: Du et al. 2022), DDR under HBM
    (SN40L: Prabhakar et al. 2024), drives.
    """

    far_weights: Scalar = metadata("", "1", "share of weights in far memory", default=0.0, bounds=SHARE)
    far_cache: Scalar = metadata("", "1", "share of cache in far memory", default=0.0, bounds=SHARE)


@record
class Engine:
    """Cost of a serving engine (framework and release) beyond its kernels; an optional part of a stack."""

    kernel_slowdown: Scalar = metadata("s", "1", "kernel slowdown in the engine", default=1.0, bounds=POSITIVE)
    layer_time: Scalar = metadata("", "s", "overhead time per layer: launches, small kernels", default=15e-6)
    expert_layer_time: Scalar = metadata("", "s", "additional overhead per expert layer", default=25e-6)
    cast_layer_time: Scalar = metadata(
        "", "s", "additional overhead per expert layer with casts to 8 or 4 bits", default=10e-6
    )
    latent_layer_time: Scalar = metadata("", "s", "additional overhead per latent-attention layer", default=15e-6)
    host_step_time: Scalar = metadata("", "s", "host time per engine step", default=1e-3)
    sequence_time: Scalar = metadata("", "s", "host time per sequence and step", default=10e-6)
    host_overlap: Scalar = metadata(
        "",
        "1",
        "share of host time per step behind the kernels of the step before",
        default=0.0,
        bounds=SHARE,
    )
    rank_time: Scalar = metadata("", "s", "host time per step and further tensor-parallel rank", default=0.0)
    launch_ratio: Scalar = metadata(
        "", "1", "host time of the launches of a layer without a graph over its overhead in one", default=0.0
    )
    graph_tokens: Scalar = metadata("", "1", "most tokens of a step with prompts that has a graph", default=0.0)
    request_time: Scalar = metadata("", "s", "time per request outside the engine", default=0.1)
    small_message_time: Scalar = metadata("", "s", "fixed time per collective", default=11e-6)
    own_message_bytes: Scalar = metadata(
        "",
        "B",
        "largest message of custom all-reduce kernels, 0 none",
        default=8e6,
    )
    one_shot_bytes: Scalar | None = metadata(
        "",
        "B",
        "bytes over members up to which more than two sum by those kernels, each reading all of the others",
        default=None,
        bounds=POSITIVE,
        absent=0.0,
    )
    narrow_rate: Scalar = metadata(
        "",
        "1",
        "relative efficiency of 8-bit formats; squared for 4-bit",
        default=0.88,
        bounds=POSITIVE_SHARE,
    )
    narrow_expert: Scalar = metadata("", "B", "bytes of a row of an expert shard at half rate", default=65.0)
    cache_rereads: Scalar = metadata(
        "",
        "1",
        "exponent of repeated KV reads in decode",
        default=0.0,
        bounds=SHARE,
    )
    sampler_bytes: Scalar = metadata("", "B", "bytes moved per logit to draw a token from the likeliest", default=200.0)
    most_sequences: Scalar = metadata("", "1", "maximum sequences per step", default=2048.0, bounds=COUNT)
    device_share: Scalar = metadata(
        "",
        "1",
        "share of engine overhead in which the device works",
        default=1.0,
        bounds=SHARE,
    )
    kernel_energy: Scalar = metadata(
        "", "1", "kernel energy in the engine over isolated kernels", default=1.0, bounds=POSITIVE
    )
    runtime_memory: Scalar = metadata("", "B", "memory per device besides weights and cache", default=2.5e9)
    runtime_tokens: Scalar = metadata(
        "",
        "1",
        "tokens per step whose activations that memory includes",
        default=8192.0,
        bounds=COUNT,
    )
    own_buffers: Scalar | None = metadata(
        "",
        "1",
        "all prompts in one step with own buffers: 1 yes",
        default=None,
        bounds=YES_OR_NO,
        absent=0.0,
    )


@record
class ServingMetrics:
    """Metrics of serving; every total is the sum of its parts ``<total>_<part>``."""

    _repr_html_, __repr__ = record_html, record_text

    time_per_output_token: Scalar = metadata("TPOT", "s", "time per output token (TPOT), mean")
    time_per_output_token_matrix: Scalar = metadata("", "s", "matrix and small kernels, decode")
    time_per_output_token_attention: Scalar = metadata("", "s", "attention over the cache, decode")
    time_per_output_token_communication: Scalar = metadata("", "s", "communication, decode")
    time_per_output_token_host: Scalar = metadata("", "s", "host and launches, decode")
    time_per_output_token_prefill: Scalar = metadata("", "s", "prefill of other requests")
    time_per_output_token_preempted: Scalar = metadata("", "s", "preemption")
    time_to_first_token: Scalar = metadata("TTFT", "s", "time to first token (TTFT), mean")
    time_to_first_token_request: Scalar = metadata(
        "", "s", "request handling outside the engine, loads of cached prefixes"
    )
    time_to_first_token_waiting: Scalar = metadata("", "s", "waiting: memory, current step, other requests")
    time_to_first_token_prefill: Scalar = metadata("", "s", "prefill")
    inter_token_latency: Scalar = metadata("ITL", "s", "inter-token latency (ITL), median")
    request_latency: Scalar = metadata("", "s", "request latency, mean")
    output_tokens_per_second: Scalar = metadata("", "s-1", "output tokens/s, all devices", counts="tokens")
    output_tokens_per_second_per_device: Scalar = metadata("", "s-1", "output tokens/s per device", counts="tokens")
    output_tokens_per_second_per_user: Scalar = metadata("", "s-1", "output tokens/s per user", counts="tokens")
    requests_per_second: Scalar = metadata("", "s-1", "requests/s", counts="requests")
    share_in_time: Scalar = metadata("", "1", "share of requests meeting both latency limits", bounds=SHARE)
    goodput: Scalar = metadata("", "s-1", "goodput: requests/s meeting both latency limits", counts="requests")
    p50_time_to_first_token: Scalar = metadata("", "s", "time to first token, 50th percentile", group=TAILS)
    p90_time_to_first_token: Scalar = metadata("", "s", "time to first token, 90th percentile", group=TAILS)
    p95_time_to_first_token: Scalar = metadata("", "s", "time to first token, 95th percentile", group=TAILS)
    p99_time_to_first_token: Scalar = metadata("", "s", "time to first token, 99th percentile", group=TAILS)
    p50_time_per_output_token: Scalar = metadata("", "s", "time per output token, 50th percentile", group=TAILS)
    p90_time_per_output_token: Scalar = metadata("", "s", "time per output token, 90th percentile", group=TAILS)
    p95_time_per_output_token: Scalar = metadata("", "s", "time per output token, 95th percentile", group=TAILS)
    p99_time_per_output_token: Scalar = metadata("", "s", "time per output token, 99th percentile", group=TAILS)
    p50_request_latency: Scalar = metadata("", "s", "request latency, 50th percentile", group=TAILS)
    p90_request_latency: Scalar = metadata("", "s", "request latency, 90th percentile", group=TAILS)
    p95_request_latency: Scalar = metadata("", "s", "request latency, 95th percentile", group=TAILS)
    p99_request_latency: Scalar = metadata("", "s", "request latency, 99th percentile", group=TAILS)
    utilisation: Scalar = metadata("rho", "1", "request rate over what can be served; 1 in closed loops", group=TAILS)
    requests_in_flight: Scalar = metadata("", "1", "requests between arrival and last token, all devices", group=TAILS)
    replicas_needed: Scalar = metadata("", "1", "data-parallel ranks that the request rate needs", group=TAILS)
    concurrency_limit: Scalar = metadata("", "1", "maximum concurrent requests, all devices")
    context_switch_time: Scalar = metadata("", "s", "cache transfer time per request, device to host")
    prefill_share: Scalar = metadata("", "1", "share of engine steps with prefill", bounds=SHARE)
    cache_hit_rate: Scalar = metadata("", "1", "share of prompt tokens found in prefix caches", bounds=SHARE)
    device_cache_hit_rate: Scalar = metadata("", "1", "the same in device memory alone", bounds=SHARE)
    peak_memory: Scalar = metadata("", "B", "peak memory, most loaded device")
    peak_memory_weights: Scalar = metadata("", "B", "weights")
    peak_memory_cache: Scalar = metadata("", "B", "KV cache of running sequences")
    peak_memory_runtime: Scalar = metadata("", "B", "engine runtime")
    parameters: Scalar = metadata("", "1", "parameters of the model")
    energy_per_output_token: Scalar = metadata("", "J", "energy per output token, system and facility", group=ENERGY)
    energy_per_output_token_decode: Scalar = metadata("", "J", "decode", group=ENERGY)
    energy_per_output_token_prefill: Scalar = metadata("", "J", "prefill, per output token", group=ENERGY)
    energy_per_output_token_rest: Scalar = metadata("", "J", "clocks, leakage, uncore", group=ENERGY)
    energy_per_output_token_host: Scalar = metadata("", "J", "hosts: processors, fans, NICs, conversion", group=ENERGY)
    energy_per_output_token_cryogenics: Scalar = metadata("", "J", "cryogenic coolers", group=ENERGY)
    energy_per_output_token_facility: Scalar = metadata("", "J", "facility overhead (PUE)", group=ENERGY)
    average_power: Scalar = metadata("", "W", "average power, system and facility", group=ENERGY)
    peak_power: Scalar = metadata("", "W", "peak power during prefill, system and facility", group=ENERGY)
    provisioned_power: Scalar = metadata(
        "", "W", "provisioned power at device limits, system and facility", group=ENERGY
    )
    device_power: Scalar = metadata("", "W", "average board power per device", group=ENERGY)
    decode_power: Scalar = metadata("", "W", "board power per device, decode", group=ENERGY)
    prefill_power: Scalar = metadata("", "W", "board power per device, steps with prefill", group=ENERGY)
    decode_clock_reached: Scalar = metadata(
        "", "Hz", "core clock of decode steps: as set, or lower under a stated power limit", group=ENERGY
    )
    prefill_clock_reached: Scalar = metadata("", "Hz", "the same of steps with prefill", group=ENERGY)
    time_between_failures: Scalar = metadata("", "s", "mean time between failures, model replica", group=RUN)
    availability: Scalar = metadata("", "1", "availability of a replica", group=RUN, bounds=SHARE)
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
    tokens_per_cost: Scalar = metadata("", "1/USD", "output tokens per dollar", group=MONEY)
    tokens_per_second_per_dollar: Scalar = metadata("", "1/s/USD", "output tokens/s per dollar of capital", group=MONEY)
    cost_per_token: Scalar = metadata("", "USD", "cost per output token", group=MONEY)
    cost_per_token_devices: Scalar = metadata("", "USD", "accelerator depreciation", group=MONEY)
    cost_per_token_servers: Scalar = metadata("", "USD", "server depreciation", group=MONEY)
    cost_per_token_scale_up: Scalar = metadata("", "USD", "scale-up network depreciation", group=MONEY)
    cost_per_token_scale_out: Scalar = metadata("", "USD", "scale-out network depreciation", group=MONEY)
    cost_per_token_facility: Scalar = metadata("", "USD", "facility depreciation", group=MONEY)
    cost_per_token_maintenance: Scalar = metadata("", "USD", "maintenance", group=MONEY)
    cost_per_token_electricity: Scalar = metadata("", "USD", "electricity", group=MONEY)
    device_carbon: Scalar = metadata("", "kg", "embodied emissions per accelerator, CO2 equivalent", group=CARBON)
    device_carbon_dies: Scalar = metadata("", "kg", "dies", group=CARBON)
    device_carbon_memory: Scalar = metadata("", "kg", "memory", group=CARBON)
    device_carbon_package: Scalar = metadata("", "kg", "package", group=CARBON)
    carbon_per_token: Scalar = metadata("", "kg", "emissions per output token, CO2 equivalent", group=CARBON)
    carbon_per_token_operation: Scalar = metadata("", "kg", "electricity", group=CARBON)
    carbon_per_token_devices: Scalar = metadata("", "kg", "embodied share, accelerators", group=CARBON)
    carbon_per_token_servers: Scalar = metadata("", "kg", "embodied share, servers and networks", group=CARBON)
    feasible: Scalar = metadata("", "1", "feasible design")
    infeasible_reason: Scalar = metadata("", "1", "infeasibility reasons, bits of Infeasible")
