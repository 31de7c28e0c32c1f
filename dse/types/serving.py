"""Serving: requests, the mapping of an engine, its cost beyond kernels."""

from __future__ import annotations

from dse.types.choices import Load, PromptOrder, WideOption
from dse.types.fields import (
    Bounds,
    Scalar,
    choice,
    count,
    integer,
    number,
    positive,
    positive_share,
    record,
    share,
    yes_or_no,
)


@record
class Requests:
    """Requests of a serving workload; an optional part of a workload."""

    prompt_tokens: Scalar = positive("prompt tokens, mean", default=1024.0, symbol="ISL")
    output_tokens: Scalar = number("output tokens, mean", default=1024.0, bounds=Bounds(low=1.0), symbol="OSL")
    concurrency: Scalar = positive("concurrent requests, all devices", default=32.0, symbol="C")
    load: Scalar = choice("arrival of requests", Load, default=float(Load.concurrency))
    request_rate: Scalar | None = positive("requests/s of load=rate, all devices", "s-1", default=None, symbol="lambda")
    arrival_variation: Scalar = number(
        "squared coefficient of variation of the time between arrivals (Poisson: 1)", default=1.0
    )
    queue: Scalar = number("requests of an offline load, 0 unlimited", default=0.0)
    longest_answer: Scalar = number("output tokens, longest request of the queue; 0: the mean", default=0.0)
    prefix_share: Scalar = share("share of a prompt in the prefix cache, which holds it once", default=0.0)
    burst: Scalar = share("weight of the initial burst in the mean", default=0.0)
    length_spread: Scalar = share("relative standard deviation of prompt lengths", default=0.0)
    answer_spread: Scalar | None = number("relative standard deviation of answer lengths", default=None, absent=0.0)
    expert_skew: Scalar = number("relative standard deviation of the tokens of an expert", default=1.0)
    sampled: Scalar | None = share(
        "share of requests whose tokens are drawn from the likeliest (top-p), which sorts the logits",
        default=None,
        absent=0.0,
    )
    first_token_limit: Scalar = number("limit of the time to first token, 0 none", "s", default=0.0)
    token_limit: Scalar = number("limit of the time per output token, 0 none", "s", default=0.0)

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

    prefix_groups: Scalar = number(
        "distinct shared prefixes: system prompts, documents", default=1.0, bounds=Bounds(low=1.0)
    )
    prefix_skew: Scalar = number("exponent of the prefixes' popularity (Zipf), 0 uniform", default=1.0)
    turns: Scalar = number(
        "requests per session, each with the context of the last", default=1.0, bounds=Bounds(low=1.0)
    )
    think_time: Scalar = positive("time between an answer and the session's next request, mean", "s", default=10.0)


@record
class CacheTiers:
    """Prefix caches beyond device memory, for ``reuse``; an optional part of a mapping.

    What device memory evicts goes to the host, then to disk, and is loaded over the host's link or the storage's reads.
    """

    host_cache: Scalar = number("prefix cache in host memory, per device", "B", default=0.0)
    disk_cache: Scalar = number("prefix cache on storage, per device", "B", default=0.0)


@record
class Serving:
    """Serving options of an engine; an optional part of a mapping.

    ``tp`` and ``pp`` are as in training; ``dp`` ranks have attention of their own. Experts are spread over ``ep`` ranks
    of ``tp dp``.
    """

    chunk: Scalar = count("maximum tokens per engine step, decode and prefill", default=8192.0)
    mixed: Scalar = yes_or_no("mixed prefill and decode (chunked prefill): 1 yes", default=1.0)
    whole_prompts: Scalar | None = yes_or_no(
        "a prompt within the limit of a step is not cut: 1 yes", default=None, absent=0.0
    )
    graphs: Scalar | None = yes_or_no(
        "steps in captured graphs, as far as there are any; 0: the host launches every kernel", default=None, absent=1.0
    )
    graph_step: Scalar | None = count(
        "decode steps run in graphs of powers of two, and of multiples of this up to four of it",
        default=None,
        absent=0.0,
    )
    prompt_balance: Scalar | None = choice(
        "steps in which ranks with common experts take prompts", PromptOrder, default=None, absent=1.0
    )
    prompt_timeout: Scalar | None = integer(
        "decode steps for which prompts wait for those of all ranks that take them together, 0: no wait is counted",
        default=None,
        absent=0.0,
    )
    prompt_batching: Scalar | None = integer(
        "further decode steps for which prompts of all ranks wait for more of them", default=None, absent=0.0
    )
    admission_steps: Scalar = count("engine steps between admissions", default=1.0)
    cache_bytes: Scalar = positive("bytes per cached key or value", "B", default=2.0)
    weight_bytes: Scalar = number("bytes per stored weight (W4A16: 0.53 B); 0: as the precision", "B", default=0.0)
    expert_bytes: Scalar = number("bytes per stored expert weight; 0: as other weights", "B", default=0.0)
    redundant_experts: Scalar = number(
        "redundant experts per layer; -1: as many as the ranks of experts need, and an eighth on many ranks",
        default=-1.0,
        bounds=Bounds(low=-1.0, is_integer=True),
    )
    expert_balance: Scalar = choice(
        "experts placed by their load (EPLB)",
        WideOption,
        default=float(WideOption.wide),
    )
    step_overlap: Scalar = choice(
        "steps in two halves, the exchange of experts of one behind the kernels of the other (two-batch overlap)",
        WideOption,
        default=float(WideOption.off),
    )
    paged: Scalar = yes_or_no("paged cache: 1 yes, 0 allocated whole", default=1.0)
    reserved_answer: Scalar = share("share of the remaining output reserved at admission", default=0.0)
    memory_share: Scalar = positive_share("share of device memory for the engine", default=0.9)
    drafts: Scalar = number("draft tokens per step", default=0.0)
    acceptance: Scalar = number(
        "acceptance probability per draft token", default=0.7, bounds=Bounds(high=0.99), symbol="alpha"
    )


@record
class Slices:
    """Tensor-parallel sizes of parts that data-parallel ranks of attention hold once; an optional part of a mapping.

    Where attention is apart (``dp`` above 1), engines may split dense feed-forwards, shared experts and the output head
    over ranks with tokens of their own (SGLang's ``--enable-dp-attention``): these gather each other's tokens, and
    scatter the sums. Each size is at least ``tp``, which 1 stands for, and a part of ``tp dp``. Routed experts have
    ``ep`` and ``etp``.
    """

    dense_tp: Scalar = count("tensor parallel size of dense feed-forwards, at least tp", default=1.0)
    shared_tp: Scalar = count("tensor parallel size of shared experts, at least tp", default=1.0)
    head_tp: Scalar = count("tensor parallel size of the output head, at least tp", default=1.0)


@record
class NanoBatches:
    """A step in parts that run in parallel on different resources; an optional part of a mapping.

    While one part computes, another one reads its cache and a third one is sent (NanoFlow: Zhu et al. 2024, with two to
    four parts). What overlaps follows from the cores, the memory bandwidth and the links that kernels take from each
    other (:func:`dse.model.serving.nano_batches.side_by_side`). Without it operators run one after the other.
    """

    nano_batches: Scalar = count("nano-batches per step", default=2.0)


@record
class Spill:
    """Shares of weights and cache in far memory; an optional part of a mapping.

    The host's memory, or the ``far`` memory of the system: of idle peers (EnergonAI: Du et al. 2022), DDR under HBM
    (SN40L: Prabhakar et al. 2024), drives.
    """

    far_weights: Scalar = share("share of weights in far memory", default=0.0)
    far_cache: Scalar = share("share of cache in far memory", default=0.0)


@record
class Engine:
    """Cost of a serving engine (framework and release) beyond its kernels; an optional part of a stack."""

    kernel_slowdown: Scalar = positive("kernel slowdown in the engine", default=1.0, symbol="s")
    layer_time: Scalar = number("overhead time per layer: launches, small kernels", "s", default=15e-6)
    expert_layer_time: Scalar = number("additional overhead per expert layer", "s", default=25e-6)
    cast_layer_time: Scalar = number(
        "additional overhead per expert layer with casts to 8 or 4 bits", "s", default=10e-6
    )
    latent_layer_time: Scalar = number("additional overhead per latent-attention layer", "s", default=15e-6)
    host_step_time: Scalar = number("host time per engine step", "s", default=1e-3)
    sequence_time: Scalar = number("host time per sequence and step", "s", default=10e-6)
    host_overlap: Scalar = share("share of host time per step behind the kernels of the step before", default=0.0)
    rank_time: Scalar = number("host time per step and further tensor-parallel rank", "s", default=0.0)
    launch_ratio: Scalar = number(
        "host time of the launches of a layer without a graph over its overhead in one", default=0.0
    )
    graph_tokens: Scalar = number("most tokens of a step with prompts that has a graph", default=0.0)
    request_time: Scalar = number("time per request outside the engine", "s", default=0.1)
    small_message_time: Scalar = number("fixed time per collective", "s", default=11e-6)
    crossing_time: Scalar = number(
        "additional fixed time per sum over several nodes: posts of the host's network threads", "s", default=25e-6
    )
    own_message_bytes: Scalar = number("largest message of custom all-reduce kernels, 0 none", "B", default=8e6)
    one_shot_bytes: Scalar | None = positive(
        "bytes over members up to which more than two sum by those kernels, each reading all of the others",
        "B",
        default=None,
        absent=0.0,
    )
    narrow_rate: Scalar = positive_share("relative efficiency of 8-bit formats; squared for 4-bit", default=0.88)
    narrow_expert: Scalar = number("bytes of a row of an expert shard at half rate", "B", default=65.0)
    cache_rereads: Scalar = share("exponent of repeated KV reads in decode", default=0.0)
    sampler_bytes: Scalar = number("bytes moved per logit to draw a token from the likeliest", "B", default=200.0)
    most_sequences: Scalar = count("maximum sequences per step", default=2048.0)
    device_share: Scalar = share("share of engine overhead in which the device works", default=1.0)
    kernel_energy: Scalar = positive("kernel energy in the engine over isolated kernels", default=1.0)
    runtime_memory: Scalar = number("memory per device with peers besides weights and cache", "B", default=2.5e9)
    runtime_tokens: Scalar = count("tokens per step whose activations that memory includes", default=8192.0)
    own_buffers: Scalar | None = yes_or_no("all prompts in one step with own buffers: 1 yes", default=None, absent=0.0)
