"""Software: the training stack, and the mapping of a workload onto the devices."""

from __future__ import annotations

from dse.types.choices import (
    AllToAll,
    Attention,
    Collective,
    ContextExchange,
    Graph,
    Placement,
    Precision,
    Recompute,
    Schedule,
)
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
from dse.types.serving import CacheTiers, Engine, NanoBatches, Serving, Slices, Spill

#: Upper limit of every option.
_ANY = 2.0**20


@record
class Capabilities:
    """Capabilities of a training stack: the highest value of each option of a mapping, by default unlimited.

    A field has the name of its option, where there is one.
    """

    zero_stage: Scalar = number("highest ZeRO stage", default=3.0, bounds=Bounds(high=3.0, is_integer=True))
    sequence_parallel: Scalar = number(
        "last variant of sequence parallelism, 0 none",
        default=3.0,
        bounds=Bounds(high=3.0, is_integer=True, switch=True),
    )
    overlap_dp: Scalar = yes_or_no("overlap of dp messages: 1 yes", default=1.0)
    overlap_tp: Scalar = yes_or_no("overlap of tp messages: 1 yes", default=1.0)
    cp: Scalar = count("maximum context parallel size", default=_ANY)
    virtual_stages: Scalar = count("maximum model chunks per device", default=_ANY)
    dp_replicate: Scalar = count("maximum dp_replicate (hybrid sharding)", default=_ANY)
    selective_recompute: Scalar = number(
        "selective recompute: 1 attention core, 2 also by operator",
        default=2.0,
        bounds=Bounds(high=2.0, is_integer=True),
    )
    offload: Scalar = yes_or_no("offload to the host: 1 yes", default=1.0)
    schedule: Scalar = number(
        "last pipeline schedule: 1 GPipe, 3 ZB-V, 5 all", default=5.0, bounds=Bounds(high=5.0, is_integer=True)
    )
    graph: Scalar = number(
        "last kind of CUDA graphs: 0 none, 1 layers, 2 iterations",
        default=2.0,
        bounds=Bounds(high=2.0, is_integer=True),
    )


@record
class ExpertKernels:
    """Cost of mixtures of experts on a stack beyond their products; an optional part, as :class:`ExpertMapping`."""

    grouped_efficiency: Scalar = positive_share("grouped over dense GEMM rate", default=0.65)
    expert_kernel_time: Scalar = number("device time of routing kernels per layer, forward", "s", default=2e-4)
    expert_time: Scalar = number("device time per expert and layer, forward", "s", default=0.0)
    fused: Scalar | None = share("fused expert kernel in MX formats: 1 yes", default=None)
    exchange_efficiency: Scalar | None = share(
        "share of inter-domain bandwidth reached by kernels that send a token once; absent: as collectives",
        default=None,
    )
    overlap_across: Scalar = yes_or_no(
        "exchanges that leave the scale-up domain overlap by default, in pipelines: 1 yes", default=0.0
    )
    expert_host_time: Scalar = number("host launch time per expert layer, forward", "s", default=0.0)
    exchange_cores: Scalar = share("share of compute taken by expert messages", default=0.15)


@record
class Software:
    """A training stack (software, era, cluster) in few parameters."""

    attention: Scalar = choice("attention kernel", Attention)
    fused_elementwise: Scalar = share("fused element-wise chains: 1 yes")
    softmax_batch: Scalar = number("fused softmax of unfused attention: divisor of batch x heads", default=1.0)
    activation_output_kept: Scalar = share("activation output of the feed-forward: 1 kept, 0 recomputed", default=1.0)
    matrix_slowdown: Scalar = positive("matrix slowdown in a step over isolated kernels")
    elementwise_slowdown: Scalar = positive("element-wise slowdown in a step over isolated kernels")
    flash_slowdown: Scalar = number("flash-attention slowdown over the family's best kernel", default=1.0)
    cp_flash_slowdown: Scalar = positive("flash-attention slowdown under context parallelism", default=1.0)
    flash_most_head: Scalar | None = count(
        "widest head of the flash kernel, others have unfused attention; absent: any", default=None
    )
    communication_slowdown: Scalar = number("collective slowdown in a step over isolated collectives", default=1.0)
    small_kernel_time: Scalar = number("device time of small kernels per layer, forward", "s", default=0.0)
    host_time: Scalar = number("host launch time per layer and micro-batch, forward", "s")
    update_overlap: Scalar = share(
        "share of offloaded optimiser traffic hidden by the last backward; 0 with gradient clipping", default=0.0
    )
    step_overhead: Scalar = number("exposed host time per step (data, logging, clipping)", "s")
    jitter: Scalar | None = number(
        "relative standard deviation of a replica's time per micro-batch", symbol="sigma", default=None, absent=0.0
    )
    tp_overlap: Scalar = share("share of tp messages that overlap hides, inside a domain")
    tp_overlap_across: Scalar = share("share of tp messages that overlap hides, between domains", default=0.0)
    backward_tp_overlap: Scalar = share("share of asynchronous backward tp messages hidden without overlap_tp")
    cp_overlap: Scalar = share("share of cp ring messages hidden by attention")
    dp_overlap: Scalar = share("share of dp messages that overlap hides")
    dp_by_chunk: Scalar | None = yes_or_no("dp exchange: 1 per model chunk, 0 per stage", default=None, absent=0.0)
    pp_overlap: Scalar = share("share of steady-state pp messages hidden")
    scatter_gather: Scalar = share("stage outputs scattered over tp ranks: 1 yes", default=1.0)
    collective: Scalar = choice("collective algorithm", Collective)
    gradient_bytes: Scalar = number("bytes per stored (accumulated) gradient", "B")
    gradient_message_bytes: Scalar = number("bytes per gradient in messages", "B")
    weight_message_bytes: Scalar | None = number(
        "bytes per gathered weight (fp8-param-gather: 1); absent: as activations",
        "B",
        default=None,
        bounds=Bounds(low=0.5, high=4.0),
    )
    moment_bytes: Scalar | None = number(
        "bytes per Adam moment (exp-avg-dtype bf16: 2); absent: 4", "B", default=None, bounds=Bounds(low=0.5, high=4.0)
    )
    parameter_bytes: Scalar | None = number(
        "bytes per weight updated in place (MaxText weight_dtype); 0: 16-bit weight and fp32 master copy",
        "B",
        default=None,
        bounds=Bounds(high=4.0),
        absent=0.0,
    )
    logit_bytes: Scalar = number("bytes kept per logit", "B")
    cross_entropy_traffic: Scalar = number("loss traffic per logit, forward and backward", "B")
    gradient_cache: Scalar = share("16-bit gradient buffer per weight shape: 1 yes")
    pipeline_resharding: Scalar = share(
        "ZeRO 3 under a pipeline: 1 gathers every micro-batch, 0 as ZeRO 1", default=1.0
    )
    gathers_matrices: Scalar = yes_or_no("ZeRO 3 gathers: 1 by matrix, 0 by layer", default=0.0)
    keeps_products: Scalar | None = yes_or_no(
        "selective_op keeps: 1 all weight products (MaxText minimal), 0 every other and flash attention",
        default=None,
        absent=0.0,
    )
    splits_hidden: Scalar | None = yes_or_no(
        "sequence parallelism may split the hidden size (MaxText activation_embed): 1 yes", default=None, absent=0.0
    )
    prefetches: Scalar = yes_or_no(
        "ZeRO 3 messages overlap layer by layer, all but the first (FSDP's prefetch): 1 yes", default=1.0
    )
    uneven_layers: Scalar | None = yes_or_no(
        "any layout of layers over pipeline stages (pipeline_model_parallel_layout): 1 yes", default=None, absent=0.0
    )
    reserve: Scalar = number("reserved device memory: context, communicators, fragments", "B")
    # By default that of a framework left out: docs/intervals.md.
    memory_spread: Scalar = share("log standard deviation of measured over predicted peak memory", default=0.133)
    can: Capabilities = Capabilities()
    experts: ExpertKernels | None = None  # for a workload with experts
    engine: Engine | None = None  # of a serving stack


@record
class ExpertMapping:
    """Spread of the experts of a layer over the ``tp cp dp`` devices of its stage.

    An optional part of a mapping, for a workload with experts, which have a data-parallel size of their own:
    ``tp cp dp / (ep etp)`` copies.
    """

    ep: Scalar = count("expert parallel size", default=1.0, symbol="e")
    etp: Scalar = count("tensor parallel size of an expert", default=1.0)
    all_to_all: Scalar = choice(
        "token copies: one per expert, device or scale-up domain", AllToAll, default=float(AllToAll.pairwise)
    )
    dispatch_precision: Scalar = choice(
        "dispatch precision; combine is 16 bits", Precision, default=float(Precision.bf16)
    )
    overlap_ep: Scalar = number(
        "share of paired passes that hide the exchange of experts; -1: as the stack",
        default=-1.0,
        bounds=Bounds(low=-1.0, high=1.0),
    )


@record
class ContextParallel:
    """Exchange of context parallelism; an optional part of a mapping, by default a ring."""

    cp_comm_type: Scalar = choice(
        "messages of context parallelism", ContextExchange, default=float(ContextExchange.p2p)
    )
    a2a_size: Scalar = count("ranks of the all-to-all under a2a-p2p", default=8.0)


@record
class Sharding:
    """Partitions of the data-parallel replicas for weights and gradients of ZeRO 3; an optional part.

    The optimiser state is split over all replicas, tp cp neighbours first. A partition of one device keeps weights and
    gradients whole. With ``secondary`` the weights are split over all, with a second copy over the partition for the
    backward (ZeRO++).
    """

    weights_over: Scalar = count("replicas that the weights are split over", default=_ANY)
    gradients_over: Scalar = count("replicas that the gradients are split over", default=_ANY)
    secondary: Scalar = yes_or_no("secondary weight copy for the backward (ZeRO++): 1 yes", default=0.0)
    gathered_bytes: Scalar = positive("bytes per gathered weight: 2 in 16 bits, 1 in blocks of 8", "B", default=2.0)
    scattered_bytes: Scalar = number(
        "bytes per scattered gradient: 0 as the stack, 0.5 in blocks of 4", "B", default=0.0
    )


@record
class Tiers:
    """Offloading beyond the host's memory, updates by the host, and the schedule of swaps; optional in a mapping.

    Default: one layer ahead in page-locked memory (FSDP's prefetch, Transformer Engine's double buffers), and
    DeepSpeed's update: sub-groups of 1e9 parameters, read, updated and written in turn (``sub_group_size``,
    ``pipeline_read``, ``pipeline_write`` of its configuration). Its ``pin_memory`` is off by default, its
    ``cpu_checkpointing`` copies at depth 0 to pageable memory, and ``stage3.py`` copies gradients at depth 0 in fp32.
    """

    storage_weights: Scalar = share("share of offloaded weights on storage", default=0.0)
    storage_activations: Scalar = share("share of offloaded activations on storage", default=0.0)
    storage_optimizer: Scalar = share("share of offloaded optimiser state on storage", default=0.0)
    offload_gradients: Scalar = share("share of gradients offloaded", default=0.0)
    gradient_copy_bytes: Scalar = positive(
        "bytes per offloaded gradient: 2 in 16 bits, 4 cast on the device", "B", default=2.0
    )
    host_update: Scalar = share("share of offloaded optimiser state updated on the host", default=0.0)
    storage_gradients: Scalar = share("share of offloaded gradients on storage", default=0.0)
    prefetch_depth: Scalar = integer(
        "layers whose weights or state are in transfer ahead of their use; 0 synchronous", default=1.0
    )
    gradient_depth: Scalar = integer(
        "layers whose gradients are in transfer behind their backward; 0 synchronous", default=1.0
    )
    activation_depth: Scalar = integer(
        "layers whose activations are in transfer ahead of their use; 0 synchronous", default=1.0
    )
    pinned: Scalar = yes_or_no(
        "host memory of weights, gradients and state: 1 page-locked, 0 pageable, whose copies are synchronous",
        default=1.0,
    )
    pinned_activations: Scalar = yes_or_no(
        "host memory of activations: 1 page-locked, 0 pageable, whose copies are synchronous", default=1.0
    )
    sub_group_size: Scalar = positive("parameters per sub-group of the update of stored state", default=1e9)
    pipeline_read: Scalar = yes_or_no("read of the next sub-group during the update: 1 yes", default=0.0)
    pipeline_write: Scalar = yes_or_no("write of the last sub-group during the update: 1 yes", default=0.0)


@record
class Mapping:
    """Mapping of the workload onto the devices; ``n_devices = tp cp pp dp``."""

    tp: Scalar = count("tensor parallel size", symbol="t")
    pp: Scalar = count("pipeline parallel size", symbol="p")
    dp: Scalar = count("data parallel size", symbol="D")
    cp: Scalar = count("context parallel size", symbol="c")
    micro_batch: Scalar = count("sequences per micro-batch", symbol="b")
    virtual_stages: Scalar = count("model chunks per device (interleaved 1F1B above 1)", symbol="v")
    recompute: Scalar = choice("activation recompute", Recompute)
    zero_stage: Scalar = number(
        "ZeRO stage: 0 none, 1 optimiser, 2 + gradients, 3 + weights (FSDP)", bounds=Bounds(high=3.0, is_integer=True)
    )
    sequence_parallel: Scalar = number(
        "sequence parallelism: 1, 2 norms and dropout; 3 stage borders only",
        bounds=Bounds(high=3.0, is_integer=True, switch=True),
    )
    overlap_dp: Scalar = share("overlap of dp messages with compute: 1 yes")
    overlap_tp: Scalar = share("overlap of tp messages with compute: 1 yes")
    dp_replicate: Scalar = count("replicas of a ZeRO shard (HSDP): states split over dp / dp_replicate", default=1.0)
    recompute_share: Scalar = share("share of layers under full recompute", default=1.0)
    offload_weights: Scalar = share("share of layer weights on the host", default=0.0)
    offload_activations: Scalar = share("share of kept activations on the host", default=0.0)
    offload_optimizer: Scalar = share("share of optimiser state on the host", default=0.0)
    precision: Scalar = choice("precision of the matrix operands", Precision)
    placement: Scalar = choice("placement order of parallel dimensions", Placement)
    experts: ExpertMapping | None = None  # for a workload with experts
    sharding: Sharding | None = None  # None: ZeRO 3 over all replicas
    serving: Serving | None = None  # of a serving engine
    slices: Slices | None = None  # None: a tp group holds all but the routed experts
    spill: Spill | None = None  # None: weights and cache on the devices
    cache_tiers: CacheTiers | None = None  # None: prefix caches in device memory alone
    nano: NanoBatches | None = None  # None: operators one after the other
    context: ContextParallel | None = None  # None: a ring
    tiers: Tiers | None = None  # None: offloading to the host's memory, updates on the device
    schedule: Scalar | None = choice(
        "pipeline schedule; absent: 1F1B, interleaved with virtual stages", Schedule, default=None
    )
    graph: Scalar | None = choice("CUDA graphs in training; absent: none", Graph, default=None, absent=0.0)
