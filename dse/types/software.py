"""Software: the training stack, and the mapping of a workload onto the devices."""

from __future__ import annotations

from dse.types.choices import (
    AllToAll,
    Attention,
    Collective,
    ContextExchange,
    Placement,
    Precision,
    Recompute,
    Schedule,
)
from dse.types.fields import COUNT, POSITIVE, POSITIVE_SHARE, SHARE, YES_OR_NO, Bounds, Scalar, metadata, record
from dse.types.serving import CacheTiers, Engine, NanoBatches, Serving, Spill

#: Upper limit of every option.
_ANY = 2.0**20


@record
class Capabilities:
    """Capabilities of a training stack: the highest value of each option of a mapping, by default unlimited.

    A field has the name of its option, where there is one.
    """

    zero_stage: Scalar = metadata("", "1", "highest ZeRO stage", default=3.0, bounds=Bounds(high=3.0, is_integer=True))
    sequence_parallel: Scalar = metadata(
        "",
        "1",
        "last variant of sequence parallelism, 0 none",
        default=3.0,
        bounds=Bounds(high=3.0, is_integer=True, switch=True),
    )
    overlap_dp: Scalar = metadata("", "1", "overlap of dp messages: 1 yes", default=1.0, bounds=YES_OR_NO)
    overlap_tp: Scalar = metadata("", "1", "overlap of tp messages: 1 yes", default=1.0, bounds=YES_OR_NO)
    cp: Scalar = metadata("", "1", "maximum context parallel size", default=_ANY, bounds=COUNT)
    virtual_stages: Scalar = metadata(
        "",
        "1",
        "maximum model chunks per device",
        default=_ANY,
        bounds=COUNT,
    )
    dp_replicate: Scalar = metadata(
        "",
        "1",
        "maximum dp_replicate (hybrid sharding)",
        default=_ANY,
        bounds=COUNT,
    )
    selective_recompute: Scalar = metadata(
        "",
        "1",
        "selective recompute: 1 attention core, 2 also by operator",
        default=2.0,
        bounds=Bounds(high=2.0, is_integer=True),
    )
    offload: Scalar = metadata(
        "",
        "1",
        "offload to the host: 1 yes",
        default=1.0,
        bounds=YES_OR_NO,
    )
    schedule: Scalar = metadata(
        "",
        "1",
        "last pipeline schedule: 1 GPipe, 3 ZB-V, 5 all",
        default=5.0,
        bounds=Bounds(high=5.0, is_integer=True),
    )


@record
class ExpertKernels:
    """Cost of mixtures of experts on a stack beyond their products; an optional part, as :class:`ExpertMapping`."""

    grouped_efficiency: Scalar = metadata(
        "",
        "1",
        "grouped over dense GEMM rate",
        default=0.65,
        bounds=POSITIVE_SHARE,
    )
    expert_kernel_time: Scalar = metadata(
        "",
        "s",
        "device time of routing kernels per layer, forward",
        default=2e-4,
    )
    expert_time: Scalar = metadata(
        "",
        "s",
        "device time per expert and layer, forward",
        default=0.0,
    )
    fused: Scalar | None = metadata(
        "",
        "1",
        "fused expert kernel in MX formats: 1 yes",
        default=None,
        bounds=SHARE,
    )
    exchange_efficiency: Scalar | None = metadata(
        "",
        "1",
        "share of inter-domain bandwidth reached by kernels that send a token once; absent: as collectives",
        default=None,
        bounds=SHARE,
    )
    exchange_overlap: Scalar = metadata(
        "",
        "1",
        "share of an exchange hidden by a paired pass",
        default=0.7,
        bounds=SHARE,
    )
    overlap_across: Scalar = metadata(
        "",
        "1",
        "exchanges that leave the scale-up domain overlap by default, in pipelines: 1 yes",
        default=0.0,
        bounds=YES_OR_NO,
    )
    expert_host_time: Scalar = metadata(
        "",
        "s",
        "host launch time per expert layer, forward",
        default=0.0,
    )
    exchange_cores: Scalar = metadata(
        "",
        "1",
        "share of compute taken by expert messages",
        default=0.15,
        bounds=SHARE,
    )


@record
class Software:
    """A training stack (software, era, cluster) in few parameters."""

    attention: Scalar = metadata("", "1", "attention kernel", enum=Attention)
    fused_elementwise: Scalar = metadata("", "1", "fused element-wise chains: 1 yes", bounds=SHARE)
    softmax_batch: Scalar = metadata(
        "", "1", "fused softmax of unfused attention: divisor of batch x heads", default=1.0
    )
    activation_output_kept: Scalar = metadata(
        "",
        "1",
        "activation output of the feed-forward: 1 kept, 0 recomputed",
        default=1.0,
        bounds=SHARE,
    )
    matrix_slowdown: Scalar = metadata("", "1", "matrix slowdown in a step over isolated kernels", bounds=POSITIVE)
    elementwise_slowdown: Scalar = metadata(
        "", "1", "element-wise slowdown in a step over isolated kernels", bounds=POSITIVE
    )
    flash_slowdown: Scalar = metadata("", "1", "flash-attention slowdown over the family's best kernel", default=1.0)
    cp_flash_slowdown: Scalar = metadata(
        "",
        "1",
        "flash-attention slowdown under context parallelism",
        default=1.0,
        bounds=POSITIVE,
    )
    flash_most_head: Scalar | None = metadata(
        "",
        "1",
        "widest head of the flash kernel, others have unfused attention; absent: any",
        default=None,
        bounds=COUNT,
    )
    communication_slowdown: Scalar = metadata(
        "", "1", "collective slowdown in a step over isolated collectives", default=1.0
    )
    small_kernel_time: Scalar = metadata("", "s", "device time of small kernels per layer, forward", default=0.0)
    host_time: Scalar = metadata("", "s", "host launch time per layer and micro-batch, forward")
    update_overlap: Scalar = metadata(
        "",
        "1",
        "share of offloaded optimiser traffic hidden by the last backward; 0 with gradient clipping",
        default=0.0,
        bounds=SHARE,
    )
    step_overhead: Scalar = metadata("", "s", "exposed host time per step (data, logging, clipping)")
    tp_overlap: Scalar = metadata("", "1", "share of tp messages that overlap hides, inside a domain", bounds=SHARE)
    tp_overlap_across: Scalar = metadata(
        "", "1", "share of tp messages that overlap hides, between domains", default=0.0, bounds=SHARE
    )
    backward_tp_overlap: Scalar = metadata(
        "", "1", "share of asynchronous backward tp messages hidden without overlap_tp", bounds=SHARE
    )
    cp_overlap: Scalar = metadata("", "1", "share of cp ring messages hidden by attention", bounds=SHARE)
    dp_overlap: Scalar = metadata("", "1", "share of dp messages that overlap hides", bounds=SHARE)
    dp_by_chunk: Scalar | None = metadata(
        "",
        "1",
        "dp exchange: 1 per model chunk, 0 per stage",
        default=None,
        bounds=YES_OR_NO,
        absent=0.0,
    )
    pp_overlap: Scalar = metadata("", "1", "share of steady-state pp messages hidden", bounds=SHARE)
    scatter_gather: Scalar = metadata(
        "",
        "1",
        "stage outputs scattered over tp ranks: 1 yes",
        default=1.0,
        bounds=SHARE,
    )
    collective: Scalar = metadata("", "1", "collective algorithm", enum=Collective)
    gradient_bytes: Scalar = metadata("", "B", "bytes per stored (accumulated) gradient")
    gradient_message_bytes: Scalar = metadata("", "B", "bytes per gradient in messages")
    weight_message_bytes: Scalar | None = metadata(
        "",
        "B",
        "bytes per gathered weight (fp8-param-gather: 1); absent: as activations",
        default=None,
        bounds=Bounds(low=0.5, high=4.0),
    )
    moment_bytes: Scalar | None = metadata(
        "",
        "B",
        "bytes per Adam moment (exp-avg-dtype bf16: 2); absent: 4",
        default=None,
        bounds=Bounds(low=0.5, high=4.0),
    )
    parameter_bytes: Scalar | None = metadata(
        "",
        "B",
        "bytes per weight updated in place (MaxText weight_dtype); 0: 16-bit weight and fp32 master copy",
        default=None,
        bounds=Bounds(high=4.0),
        absent=0.0,
    )
    logit_bytes: Scalar = metadata("", "B", "bytes kept per logit")
    cross_entropy_traffic: Scalar = metadata("", "B", "loss traffic per logit, forward and backward")
    gradient_cache: Scalar = metadata("", "1", "16-bit gradient buffer per weight shape: 1 yes", bounds=SHARE)
    pipeline_resharding: Scalar = metadata(
        "",
        "1",
        "ZeRO 3 under a pipeline: 1 gathers every micro-batch, 0 as ZeRO 1",
        default=1.0,
        bounds=SHARE,
    )
    gathers_matrices: Scalar = metadata(
        "",
        "1",
        "ZeRO 3 gathers: 1 by matrix, 0 by layer",
        default=0.0,
        bounds=YES_OR_NO,
    )
    keeps_products: Scalar | None = metadata(
        "",
        "1",
        "selective_op keeps: 1 all weight products (MaxText minimal), 0 every other and flash attention",
        default=None,
        bounds=YES_OR_NO,
        absent=0.0,
    )
    splits_hidden: Scalar | None = metadata(
        "",
        "1",
        "sequence parallelism may split the hidden size (MaxText activation_embed): 1 yes",
        default=None,
        bounds=YES_OR_NO,
        absent=0.0,
    )
    prefetches: Scalar = metadata(
        "",
        "1",
        "ZeRO 3 messages overlap layer by layer, all but the first (FSDP's prefetch): 1 yes",
        default=1.0,
        bounds=YES_OR_NO,
    )
    uneven_layers: Scalar | None = metadata(
        "",
        "1",
        "any layout of layers over pipeline stages (pipeline_model_parallel_layout): 1 yes",
        default=None,
        bounds=YES_OR_NO,
        absent=0.0,
    )
    reserve: Scalar = metadata("", "B", "reserved device memory: context, communicators, fragments")
    memory_spread: Scalar = metadata(  # by default that of a framework left out: docs/intervals.md
        "", "1", "log standard deviation of measured over predicted peak memory", default=0.133, bounds=SHARE
    )
    can: Capabilities = Capabilities()
    experts: ExpertKernels | None = None  # for a workload with experts
    engine: Engine | None = None  # of a serving stack


@record
class ExpertMapping:
    """Spread of the experts of a layer over the ``tp cp dp`` devices of its stage.

    An optional part of a mapping, for a workload with experts, which have a data-parallel size of their own:
    ``tp cp dp / (ep etp)`` copies.
    """

    ep: Scalar = metadata("e", "1", "expert parallel size", default=1.0, bounds=COUNT)
    etp: Scalar = metadata("", "1", "tensor parallel size of an expert", default=1.0, bounds=COUNT)
    all_to_all: Scalar = metadata(
        "",
        "1",
        "token copies: one per expert, device or scale-up domain",
        default=float(AllToAll.pairwise),
        enum=AllToAll,
    )
    dispatch_precision: Scalar = metadata(
        "",
        "1",
        "dispatch precision; combine is 16 bits",
        default=float(Precision.bf16),
        enum=Precision,
    )
    overlap_ep: Scalar = metadata(
        "",
        "1",
        "share of paired passes that hide the exchange of experts; -1: as the stack",
        default=-1.0,
        bounds=Bounds(low=-1.0, high=1.0),
    )


@record
class ContextParallel:
    """Exchange of context parallelism; an optional part of a mapping, by default a ring."""

    cp_comm_type: Scalar = metadata(
        "", "1", "messages of context parallelism", default=float(ContextExchange.p2p), enum=ContextExchange
    )
    a2a_size: Scalar = metadata("", "1", "ranks of the all-to-all under a2a-p2p", default=8.0, bounds=COUNT)


@record
class Sharding:
    """Partitions of the data-parallel replicas for weights and gradients of ZeRO 3; an optional part.

    The optimiser state is split over all replicas, tp cp neighbours first. A partition of one device keeps weights and
    gradients whole. With ``secondary`` the weights are split over all, with a second copy over the partition for the
    backward (ZeRO++).
    """

    weights_over: Scalar = metadata("", "1", "replicas that the weights are split over", default=_ANY, bounds=COUNT)
    gradients_over: Scalar = metadata("", "1", "replicas that the gradients are split over", default=_ANY, bounds=COUNT)
    secondary: Scalar = metadata(
        "",
        "1",
        "secondary weight copy for the backward (ZeRO++): 1 yes",
        default=0.0,
        bounds=YES_OR_NO,
    )
    gathered_bytes: Scalar = metadata(
        "", "B", "bytes per gathered weight: 2 in 16 bits, 1 in blocks of 8", default=2.0, bounds=POSITIVE
    )
    scattered_bytes: Scalar = metadata(
        "", "B", "bytes per scattered gradient: 0 as the stack, 0.5 in blocks of 4", default=0.0
    )


@record
class Tiers:
    """Offloading beyond the host's memory, updates by the host, and the schedule of swaps; optional in a mapping.

    Default: one layer ahead in page-locked memory (FSDP's prefetch, Transformer Engine's double buffers), and
    DeepSpeed's update: sub-groups of 1e9 parameters, read, updated and written in turn (``sub_group_size``,
    ``pipeline_read``, ``pipeline_write`` of its configuration). Its ``pin_memory`` is off by default, its
    ``cpu_checkpointing`` copies at depth 0 to pageable memory, and ``stage3.py`` copies gradients at depth 0 in fp32.
    """

    storage_weights: Scalar = metadata("", "1", "share of offloaded weights on storage", default=0.0, bounds=SHARE)
    storage_activations: Scalar = metadata(
        "", "1", "share of offloaded activations on storage", default=0.0, bounds=SHARE
    )
    storage_optimizer: Scalar = metadata(
        "", "1", "share of offloaded optimiser state on storage", default=0.0, bounds=SHARE
    )
    offload_gradients: Scalar = metadata(
        "",
        "1",
        "share of gradients offloaded",
        default=0.0,
        bounds=SHARE,
    )
    gradient_copy_bytes: Scalar = metadata(
        "",
        "B",
        "bytes per offloaded gradient: 2 in 16 bits, 4 cast on the device",
        default=2.0,
        bounds=POSITIVE,
    )
    host_update: Scalar = metadata(
        "",
        "1",
        "share of offloaded optimiser state updated on the host",
        default=0.0,
        bounds=SHARE,
    )
    storage_gradients: Scalar = metadata("", "1", "share of offloaded gradients on storage", default=0.0, bounds=SHARE)
    prefetch_depth: Scalar = metadata(
        "",
        "1",
        "layers whose weights or state are in transfer ahead of their use; 0 synchronous",
        default=1.0,
        bounds=Bounds(is_integer=True),
    )
    gradient_depth: Scalar = metadata(
        "",
        "1",
        "layers whose gradients are in transfer behind their backward; 0 synchronous",
        default=1.0,
        bounds=Bounds(is_integer=True),
    )
    activation_depth: Scalar = metadata(
        "",
        "1",
        "layers whose activations are in transfer ahead of their use; 0 synchronous",
        default=1.0,
        bounds=Bounds(is_integer=True),
    )
    pinned: Scalar = metadata(
        "",
        "1",
        "host memory of weights, gradients and state: 1 page-locked, 0 pageable, whose copies are synchronous",
        default=1.0,
        bounds=YES_OR_NO,
    )
    pinned_activations: Scalar = metadata(
        "",
        "1",
        "host memory of activations: 1 page-locked, 0 pageable, whose copies are synchronous",
        default=1.0,
        bounds=YES_OR_NO,
    )
    sub_group_size: Scalar = metadata(
        "", "1", "parameters per sub-group of the update of stored state", default=1e9, bounds=POSITIVE
    )
    pipeline_read: Scalar = metadata(
        "", "1", "read of the next sub-group during the update: 1 yes", default=0.0, bounds=YES_OR_NO
    )
    pipeline_write: Scalar = metadata(
        "", "1", "write of the last sub-group during the update: 1 yes", default=0.0, bounds=YES_OR_NO
    )


@record
class Mapping:
    """Mapping of the workload onto the devices; ``n_devices = tp cp pp dp``."""

    tp: Scalar = metadata("t", "1", "tensor parallel size", bounds=COUNT)
    pp: Scalar = metadata("p", "1", "pipeline parallel size", bounds=COUNT)
    dp: Scalar = metadata("D", "1", "data parallel size", bounds=COUNT)
    cp: Scalar = metadata("c", "1", "context parallel size", bounds=COUNT)
    micro_batch: Scalar = metadata("b", "1", "sequences per micro-batch", bounds=COUNT)
    virtual_stages: Scalar = metadata("v", "1", "model chunks per device (interleaved 1F1B above 1)", bounds=COUNT)
    recompute: Scalar = metadata("", "1", "activation recompute", enum=Recompute)
    zero_stage: Scalar = metadata(
        "",
        "1",
        "ZeRO stage: 0 none, 1 optimiser, 2 + gradients, 3 + weights (FSDP)",
        bounds=Bounds(high=3.0, is_integer=True),
    )
    sequence_parallel: Scalar = metadata(
        "",
        "1",
        "sequence parallelism: 1, 2 norms and dropout; 3 stage borders only",
        bounds=Bounds(high=3.0, is_integer=True, switch=True),
    )
    overlap_dp: Scalar = metadata("", "1", "overlap of dp messages with compute: 1 yes", bounds=SHARE)
    overlap_tp: Scalar = metadata("", "1", "overlap of tp messages with compute: 1 yes", bounds=SHARE)
    dp_replicate: Scalar = metadata(
        "",
        "1",
        "replicas of a ZeRO shard (HSDP): states split over dp / dp_replicate",
        default=1.0,
        bounds=COUNT,
    )
    recompute_share: Scalar = metadata(
        "",
        "1",
        "share of layers under full recompute",
        default=1.0,
        bounds=SHARE,
    )
    offload_weights: Scalar = metadata("", "1", "share of layer weights on the host", default=0.0, bounds=SHARE)
    offload_activations: Scalar = metadata("", "1", "share of kept activations on the host", default=0.0, bounds=SHARE)
    offload_optimizer: Scalar = metadata("", "1", "share of optimiser state on the host", default=0.0, bounds=SHARE)
    precision: Scalar = metadata("", "1", "precision of the matrix operands", enum=Precision)
    placement: Scalar = metadata("", "1", "placement order of parallel dimensions", enum=Placement)
    experts: ExpertMapping | None = None  # for a workload with experts
    sharding: Sharding | None = None  # None: ZeRO 3 over all replicas
    serving: Serving | None = None  # of a serving engine
    spill: Spill | None = None  # None: weights and cache on the devices
    cache_tiers: CacheTiers | None = None  # None: prefix caches in device memory alone
    nano: NanoBatches | None = None  # None: operators one after the other
    context: ContextParallel | None = None  # None: a ring
    tiers: Tiers | None = None  # None: offloading to the host's memory, updates on the device
    schedule: Scalar | None = metadata(
        "",
        "1",
        "pipeline schedule; absent: 1F1B, interleaved with virtual stages",
        default=None,
        enum=Schedule,
    )
