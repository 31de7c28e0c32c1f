"""What runs on it: the training stack, and the mapping of a workload onto the devices."""

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
from dse.types.serving import Engine, NanoBatches, Serving, Spill

#: As much of an option as any mapping asks for.
_ANY = 2.0**20


@record
class Capabilities:
    """What a training stack can do: the most that it offers of an option of the mapping, by default whatever there is.

    A field has the name of the option that it limits, where there is one.
    """

    zero_stage: Scalar = metadata(
        "", "1", "highest ZeRO stage that the stack has", default=3.0, bounds=Bounds(high=3.0, whole=True)
    )
    sequence_parallel: Scalar = metadata(
        "", "1", "last variant of sequence parallelism that the stack has, 0 for none", default=3.0,
        bounds=Bounds(high=3.0, whole=True, switch=True),
    )  # fmt: skip
    overlap_dp: Scalar = metadata(
        "", "1", "1 when the stack can overlap data-parallel communication", default=1.0, bounds=YES_OR_NO
    )
    overlap_tp: Scalar = metadata(
        "", "1", "1 when the stack can overlap tensor-parallel communication", default=1.0, bounds=YES_OR_NO
    )
    cp: Scalar = metadata(
        "", "1", "largest context parallel size of the stack, 1 where it has none", default=_ANY, bounds=COUNT
    )
    virtual_stages: Scalar = metadata(
        "", "1", "most model chunks of a device, 1 where the stack's pipeline does not interleave", default=_ANY,
        bounds=COUNT,
    )  # fmt: skip
    dp_replicate: Scalar = metadata(
        "", "1", "most data parallel ranks with the same shard, 1 where the stack has no hybrid sharding", default=_ANY,
        bounds=COUNT,
    )  # fmt: skip
    selective_recompute: Scalar = metadata(
        "", "1", "1 when the stack can recompute the attention core alone, 2 operator by operator too", default=2.0,
        bounds=Bounds(high=2.0, whole=True),
    )  # fmt: skip
    offload: Scalar = metadata(
        "", "1", "1 when the stack can keep weights, activations or optimiser state on the host", default=1.0,
        bounds=YES_OR_NO,
    )  # fmt: skip
    schedule: Scalar = metadata(
        "", "1", "last of the pipeline schedules that the stack has: 1 up to GPipe, 3 up to ZB-V, 5 all", default=5.0,
        bounds=Bounds(high=5.0, whole=True),
    )  # fmt: skip


@record
class ExpertKernels:
    """What a stack's mixtures of experts cost beyond the products; an optional part, as :class:`ExpertMapping`."""

    grouped_efficiency: Scalar = metadata(
        "", "1", "rate of a grouped product over that of a dense one of the same tiles", default=0.65,
        bounds=POSITIVE_SHARE,
    )  # fmt: skip
    expert_kernel_time: Scalar = metadata(
        "", "s", "device time of a layer's forward in small kernels of routing: top-k, losses, indices, padding",
        default=2e-4,
    )  # fmt: skip
    expert_time: Scalar = metadata(
        "", "s", "device time of a layer's forward for each expert of a device, between kernels that work on it alone",
        default=0.0,
    )  # fmt: skip
    fused: Scalar | None = metadata(
        "", "1", "1 where one kernel multiplies all experts' rows in MX formats, permutes, activates and casts them; "
        "stacks without such kernels have none", default=None, bounds=SHARE,
    )  # fmt: skip
    expert_host_time: Scalar = metadata(
        "", "s", "host time to launch the forward of a layer with experts, where that is more than any layer's",
        default=0.0,
    )  # fmt: skip
    exchange_cores: Scalar = metadata(
        "", "1", "share of the device's compute that messages between experts take beside it, if more than the links'",
        default=0.15, bounds=SHARE,
    )  # fmt: skip


@record
class Software:
    """A training stack (software, era, cluster): what the code does, in few parameters."""

    attention: Scalar = metadata("", "1", "attention kernel", enum=Attention)
    fused_elementwise: Scalar = metadata("", "1", "1 when element-wise chains run as one kernel", bounds=SHARE)
    softmax_batch: Scalar = metadata(
        "", "1", "what batch x heads must be a multiple of for unfused attention to have a fused softmax", default=1.0
    )
    activation_output_kept: Scalar = metadata(
        "", "1", "1 when the output of the feed-forward's activation is kept, 0 when computed again", default=1.0,
        bounds=SHARE,
    )  # fmt: skip
    matrix_slowdown: Scalar = metadata("", "1", "matrix time in a real step over the isolated kernel", bounds=POSITIVE)
    elementwise_slowdown: Scalar = metadata(
        "", "1", "element-wise time in a real step over the isolated kernel", bounds=POSITIVE
    )
    flash_slowdown: Scalar = metadata(
        "", "1", "attention time of the stack's flash kernel over the family's best one", default=1.0
    )
    cp_flash_slowdown: Scalar = metadata(
        "", "1", "attention time of the flash kernel that runs under context parallelism over that of the usual one",
        default=1.0, bounds=POSITIVE,
    )  # fmt: skip
    communication_slowdown: Scalar = metadata(
        "", "1", "time of collectives in a real step over the isolated ones", default=1.0
    )
    small_kernel_time: Scalar = metadata(
        "", "s", "device time of a layer's forward in kernels that the operators leave out", default=0.0
    )
    host_time: Scalar = metadata("", "s", "host time to launch one layer's forward for one micro-batch")
    update_overlap: Scalar = metadata(
        "", "1", "share of the traffic of offloaded optimiser state that hides behind the last backward: 0 where the "
        "update waits for the norm of all gradients (clipping)", default=0.0, bounds=SHARE,
    )  # fmt: skip
    step_overhead: Scalar = metadata("", "s", "host time a step that nothing hides (data, logging, clipping)")
    tp_overlap: Scalar = metadata("", "1", "share of tp messages inside a domain that overlap can hide", bounds=SHARE)
    tp_overlap_across: Scalar = metadata(
        "", "1", "share of tp messages between domains that overlap can hide", default=0.0, bounds=SHARE
    )
    backward_tp_overlap: Scalar = metadata(
        "", "1", "share of asynchronous backward tp messages hidden by default", bounds=SHARE
    )
    cp_overlap: Scalar = metadata(
        "", "1", "share of a ring's context-parallel messages that can run beside attention", bounds=SHARE
    )
    dp_overlap: Scalar = metadata("", "1", "share of data-parallel communication that overlap can hide", bounds=SHARE)
    dp_by_chunk: Scalar | None = metadata(
        "", "1", "1 when replicas exchange each model chunk of an interleaved pipeline by itself, behind the "
        "micro-batches of the stage's other chunks; absent or 0: the whole stage, behind one micro-batch", default=None,
        bounds=YES_OR_NO, absent=0.0,
    )  # fmt: skip
    pp_overlap: Scalar = metadata(
        "", "1", "share of steady-state point-to-point communication that is hidden", bounds=SHARE
    )
    scatter_gather: Scalar = metadata(
        "", "1", "1 when tp ranks send their shares of a stage's output, gathered again behind the border", default=1.0,
        bounds=SHARE,
    )  # fmt: skip
    collective: Scalar = metadata("", "1", "collective algorithm", enum=Collective)
    gradient_bytes: Scalar = metadata("", "B", "bytes of one stored (accumulated) gradient")
    gradient_message_bytes: Scalar = metadata("", "B", "bytes of one gradient on the wire")
    weight_message_bytes: Scalar | None = metadata(
        "", "B", "bytes of one weight that replicas gather (fp8-param-gather: 1); absent: as activations", default=None,
        bounds=Bounds(low=0.5, high=4.0),
    )  # fmt: skip
    moment_bytes: Scalar | None = metadata(
        "", "B", "bytes of each of Adam's two moments (exp-avg-dtype bf16: 2); absent: 4", default=None,
        bounds=Bounds(low=0.5, high=4.0),
    )  # fmt: skip
    parameter_bytes: Scalar | None = metadata(
        "", "B", "bytes of a weight that the optimiser updates in place, cast as it is gathered (MaxText's "
        "weight_dtype); absent or 0: a weight in 16 bits beside a master copy in fp32", default=None,
        bounds=Bounds(high=4.0), absent=0.0,
    )  # fmt: skip
    logit_bytes: Scalar = metadata("", "B", "bytes kept for one logit")
    cross_entropy_traffic: Scalar = metadata("", "B", "bytes the loss moves for one logit, forward and backward")
    gradient_cache: Scalar = metadata(
        "", "1", "1 when a 16-bit weight-gradient buffer is kept for each weight shape", bounds=SHARE
    )
    pipeline_resharding: Scalar = metadata(
        "", "1", "1 when ZeRO 3 under a pipeline gathers and scatters every micro-batch; 0 when as ZeRO 1", default=1.0,
        bounds=SHARE,
    )  # fmt: skip
    gathers_matrices: Scalar = metadata(
        "", "1", "1 when ZeRO 3 gathers weights, and scatters gradients, matrix by matrix; 0: layer by layer",
        default=0.0, bounds=YES_OR_NO,
    )  # fmt: skip
    keeps_products: Scalar | None = metadata(
        "", "1", "1 when recompute operator by operator keeps the outputs of all products of weights and no flash "
        "kernel's (remat_policy minimal of MaxText); absent or 0: every other product's and the flash kernel's",
        default=None, bounds=YES_OR_NO, absent=0.0,
    )  # fmt: skip
    splits_hidden: Scalar | None = metadata(
        "", "1", "1 when sequence parallelism may split residuals along the hidden size, where tp does not divide the "
        "sequence (activation_embed over the tensor axis of MaxText); absent or 0: along the sequence alone",
        default=None, bounds=YES_OR_NO, absent=0.0,
    )  # fmt: skip
    reserve: Scalar = metadata("", "B", "device memory that allocations cannot use: driver, communicators, fragments")
    memory_spread: Scalar = metadata(
        "", "1", "standard deviation of the logarithm of measured over predicted peak memory", default=0.1, bounds=SHARE
    )
    can: Capabilities = Capabilities()
    experts: ExpertKernels | None = None  # where the workload has experts
    engine: Engine | None = None  # of a stack that serves


@record
class ExpertMapping:
    """How the experts of a layer are spread over the ``tp cp dp`` devices of its stage.

    An optional part of a mapping, present where the workload has experts. What ``ep etp`` leaves of those devices
    holds copies: experts have a data parallel size of their own, ``tp cp dp / (ep etp)``.
    """

    ep: Scalar = metadata("e", "1", "expert parallel size: ranks that share the experts", default=1.0, bounds=COUNT)
    etp: Scalar = metadata("", "1", "tensor parallel size of a single expert", default=1.0, bounds=COUNT)
    all_to_all: Scalar = metadata(
        "", "1", "copies of a token that are sent: one an expert, a device or a scale-up domain",
        default=float(AllToAll.pairwise), enum=AllToAll,
    )  # fmt: skip
    dispatch_precision: Scalar = metadata(
        "", "1", "precision in which tokens, and gradients of outputs, are sent to experts; what returns is in 16 bits",
        default=float(Precision.bf16), enum=Precision,
    )  # fmt: skip
    overlap_ep: Scalar = metadata(
        "", "1", "share of the messages between experts that the schedule hides behind compute", default=0.0,
        bounds=SHARE,
    )  # fmt: skip


@record
class ContextParallel:
    """How context parallelism exchanges; an optional part of a mapping, which has a ring without it."""

    cp_comm_type: Scalar = metadata(
        "", "1", "what context parallelism sends", default=float(ContextExchange.p2p), enum=ContextExchange
    )
    a2a_size: Scalar = metadata(
        "", "1", "ranks that exchange heads for sequence under a2a-p2p, rings between them", default=8.0, bounds=COUNT
    )


@record
class Sharding:
    """Parts of the data parallel replicas over which ZeRO 3 splits weights and gradients; an optional part.

    The optimiser state is split over all replicas, tp cp neighbours first. A part of one device keeps them whole. With
    ``secondary`` the weights are split over all, and a second copy over the part for the backward (ZeRO++).
    """

    weights_over: Scalar = metadata(
        "", "1", "replicas that the weights are split over, all where there are fewer", default=_ANY, bounds=COUNT
    )
    gradients_over: Scalar = metadata(
        "", "1", "replicas that the gradients are split over between micro-batches", default=_ANY, bounds=COUNT
    )
    secondary: Scalar = metadata(
        "", "1", "1 when the forward gathers weights split over all replicas, the backward a secondary copy",
        default=0.0, bounds=YES_OR_NO,
    )  # fmt: skip
    gathered_bytes: Scalar = metadata(
        "", "B", "bytes of one weight when it is gathered: 2 in 16 bits, 1 in blocks of 8", default=2.0, bounds=POSITIVE
    )
    scattered_bytes: Scalar = metadata(
        "", "B", "bytes of one gradient when it is scattered, 0 as the stack does, 0.5 in blocks of 4", default=0.0
    )


@record
class Tiers:
    """Where what is offloaded lies beyond the host's memory, and who updates it; an optional part of a mapping."""

    storage_weights: Scalar = metadata(
        "", "1", "share of the offloaded weights that lies on the storage", default=0.0, bounds=SHARE
    )
    storage_activations: Scalar = metadata(
        "", "1", "share of the offloaded activations that lies on the storage", default=0.0, bounds=SHARE
    )
    storage_optimizer: Scalar = metadata(
        "", "1", "share of the offloaded optimiser state that lies on the storage", default=0.0, bounds=SHARE
    )
    offload_gradients: Scalar = metadata(
        "", "1", "share of the layers' gradients that leaves for the host as they are made, in 16 bits", default=0.0,
        bounds=SHARE,
    )  # fmt: skip
    host_update: Scalar = metadata(
        "", "1", "share of the offloaded optimiser state that the host's processors update, beside the device's share",
        default=0.0, bounds=SHARE,
    )  # fmt: skip


@record
class Mapping:
    """How the workload is spread over the devices; ``n_devices = tp cp pp dp``."""

    tp: Scalar = metadata("t", "1", "tensor parallel size", bounds=COUNT)
    pp: Scalar = metadata("p", "1", "pipeline parallel size", bounds=COUNT)
    dp: Scalar = metadata("D", "1", "data parallel size", bounds=COUNT)
    cp: Scalar = metadata("c", "1", "context parallel size", bounds=COUNT)
    micro_batch: Scalar = metadata("b", "1", "sequences of one micro-batch", bounds=COUNT)
    virtual_stages: Scalar = metadata("v", "1", "model chunks a device holds (interleaved 1F1B when > 1)", bounds=COUNT)
    recompute: Scalar = metadata("", "1", "activation recompute", enum=Recompute)
    zero_stage: Scalar = metadata(
        "", "1", "ZeRO stage: 0 none, 1 optimiser, 2 + gradients (under a pipeline as 1), 3 + weights (FSDP)",
        bounds=Bounds(high=3.0, whole=True),
    )  # fmt: skip
    sequence_parallel: Scalar = metadata(
        "", "1", "1, 2 when norms and dropout are split along the sequence over tp; 3 at the borders of stages only",
        bounds=Bounds(high=3.0, whole=True, switch=True),
    )  # fmt: skip
    overlap_dp: Scalar = metadata("", "1", "1 when data-parallel communication overlaps compute", bounds=SHARE)
    overlap_tp: Scalar = metadata("", "1", "1 when tensor-parallel communication overlaps compute", bounds=SHARE)
    dp_replicate: Scalar = metadata(
        "", "1", "data parallel ranks that hold the same shard: ZeRO splits states over dp / dp_replicate (HSDP)",
        default=1.0, bounds=COUNT,
    )  # fmt: skip
    recompute_share: Scalar = metadata(
        "", "1", "share of the layers that full recompute covers: recompute_num_layers, every n-th layer", default=1.0,
        bounds=SHARE,
    )  # fmt: skip
    offload_weights: Scalar = metadata(
        "", "1", "share of the layers' weights that lives on the host", default=0.0, bounds=SHARE
    )
    offload_activations: Scalar = metadata(
        "", "1", "share of the kept activations that lives on the host", default=0.0, bounds=SHARE
    )
    offload_optimizer: Scalar = metadata(
        "", "1", "share of the optimiser state that lives on the host", default=0.0, bounds=SHARE
    )
    precision: Scalar = metadata("", "1", "precision of the matrix operands", enum=Precision)
    placement: Scalar = metadata("", "1", "placement order of the parallel dimensions", enum=Placement)
    experts: ExpertMapping | None = None  # where the workload has experts
    sharding: Sharding | None = None  # where ZeRO 3 splits over all replicas it has none
    serving: Serving | None = None  # of an engine that serves
    spill: Spill | None = None  # of one that keeps weights and cache on its devices alone it has none
    nano: NanoBatches | None = None  # of one whose operators run beside each other
    context: ContextParallel | None = None  # where keys and values go round a ring it may have none
    tiers: Tiers | None = None  # where offloading ends in the host's memory, and the device updates
    schedule: Scalar | None = metadata(
        "", "1", "order in which the stages of a pipeline work; absent: 1F1B, interleaved with virtual stages",
        default=None, enum=Schedule,
    )  # fmt: skip
