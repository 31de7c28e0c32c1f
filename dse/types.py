"""The nouns: what a design is made of and what the model says of it.

Every class is a frozen dataclass registered as a JAX pytree. Every leaf is one real
number in SI units (bytes, seconds, FLOP/s, bytes/s), or the integer code of a
categorical choice, so any leaf may be traced, vmapped, differentiated or swept.
Nothing here is static: another workload, system or mapping never recompiles the model.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum, IntFlag
from typing import Any, TypeVar

import jax

T = TypeVar("T")

#: One real number: a Python float, a NumPy scalar or a (traced) JAX scalar.
Scalar = Any


class Precision(IntEnum):
    """Number format of the matrix operands; ``fp8_block`` and ``mx`` style formats share fp8 rates."""

    fp32 = 0
    tf32 = 1
    bf16 = 2
    fp16 = 3
    fp8 = 4
    fp8_block = 5
    fp4 = 6
    int8 = 7
    int4 = 8


class Recompute(IntEnum):
    """What the backward pass computes again (Korthikanti et al. 2022, section 5)."""

    none = 0
    selective = 1  # the attention core: scores, softmax, dropout, context
    full = 2  # whole layers, from their input


class SequenceParallel(IntEnum):
    """Whether norms, dropout and residuals are split along the sequence over tp (Korthikanti et al. 2022)."""

    none = 0  # whole on every rank, all-reduces inside
    gather_again = 1  # split; the backward gathers the inputs of both blocks again
    keep_gathered = 2  # split; gathered inputs are kept whole (an input that selective recompute drops is not)
    at_cuts = 3  # as none, but for the border of a stage: scattered before it, gathered behind it


class Attention(IntEnum):
    """Attention kernel of a software stack."""

    unfused = 0  # scores and softmax go through memory, full square (Megatron 2021/22)
    flash = 1  # online softmax, causal half only (Dao 2023)


class Collective(IntEnum):
    """Collective algorithm; ``auto`` takes the fastest one the network allows."""

    auto = 0
    ring = 1
    tree = 2
    hierarchical = 3
    in_switch = 4


class Placement(IntEnum):
    """Which parallel dimension is innermost (neighbouring devices) to outermost."""

    tp_cp_dp_pp = 0
    tp_cp_pp_dp = 1


class Infeasible(IntFlag):
    """Why a design cannot run; a design is feasible when no bit is set."""

    memory = 1
    heads_not_divisible = 2
    width_not_divisible = 4
    layers_not_divisible = 8
    batch_not_divisible = 16
    sequence_not_divisible = 32
    device_count_mismatch = 64
    interleave_not_divisible = 128
    network_too_small = 256
    precision_unsupported = 512
    host_memory = 1024
    offload_too_few_layers = 2048


#: One sentence a bit, for tables and dataset attributes.
INFEASIBLE_MEANING = {
    Infeasible.memory: "peak memory exceeds the device's capacity",
    Infeasible.heads_not_divisible: "tp does not divide the attention heads (or the key/value heads it splits)",
    Infeasible.width_not_divisible: "tp does not divide the feed-forward width",
    Infeasible.layers_not_divisible: "fewer layers than stages, or pp x virtual_stages > pp does not divide them",
    Infeasible.batch_not_divisible: "dp x micro_batch does not divide the global batch",
    Infeasible.sequence_not_divisible: "cp (or tp with sequence parallelism) does not divide the sequence",
    Infeasible.device_count_mismatch: "tp x cp x pp x dp is not the number of devices",
    Infeasible.interleave_not_divisible: "virtual stages need pp > 1 and micro-batches that pp divides",
    Infeasible.network_too_small: "the system has no network that joins that many devices",
    Infeasible.precision_unsupported: "the accelerator has no matrix rate at this precision",
    Infeasible.host_memory: "what is offloaded exceeds the host memory of a device",
    Infeasible.offload_too_few_layers: "offload needs at least three layers a device",
}


def record(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen keyword-only dataclass whose fields are pytree leaves or records."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    return jax.tree_util.register_dataclass(cls)


def metadata(symbol: str, units: str, text: str, default: Any = dataclasses.MISSING, **extra: Any) -> Any:
    """A dataclass field with what labelled outputs need: symbol, SI units and a long name."""
    about = {"symbol": symbol, "units": units, "long_name": text, **extra}
    return dataclasses.field(default=default, metadata=about)


def defaults(cls: type) -> dict[str, float]:
    """Leaves of a record class that have a default, which a catalogue file need not state."""
    return {f.name: f.default for f in dataclasses.fields(cls) if f.metadata and f.default is not dataclasses.MISSING}


@record
class Workload:
    """A dense decoder transformer and the batch it is trained on.

    Parameter counts follow from the shape (``dse.model.transformer.parameter_count``);
    biases are left out, as in the published shape tables.
    """

    n_layers: Scalar = metadata("L", "1", "transformer layers")
    hidden: Scalar = metadata("h", "1", "hidden size")
    n_heads: Scalar = metadata("a", "1", "query heads")
    n_kv_heads: Scalar = metadata("g", "1", "key/value heads")
    head_dim: Scalar = metadata("d", "1", "head size")
    ffn_hidden: Scalar = metadata("f", "1", "width of one feed-forward up projection")
    gated: Scalar = metadata("", "1", "1 when the feed-forward has a gate (three matrices)")
    vocab: Scalar = metadata("V", "1", "vocabulary size")
    tied_embeddings: Scalar = metadata("", "1", "1 when input and output embeddings share weights")
    learned_positions: Scalar = metadata("", "1", "1 when positions are a learned table of seq_len x hidden")
    rotary: Scalar = metadata("", "1", "1 when queries and keys are rotated (RoPE)")
    relative_positions: Scalar = metadata("", "1", "1 when every layer projects relative positions (Transformer-XL)")
    dropout: Scalar = metadata("", "1", "1 when dropout is on (GPT-3 era)")
    norm_vectors: Scalar = metadata("", "1", "weight vectors of a norm: its scale, 2 with a shift", default=1.0)
    window: Scalar = metadata("w", "1", "attention window in tokens of the local layers")
    local_layers: Scalar = metadata("", "1", "share of layers whose attention is local (windowed)")
    seq_len: Scalar = metadata("s", "1", "sequence length in tokens")
    global_batch: Scalar = metadata("B", "1", "sequences a step over all devices")


@record
class MatrixRate:
    """Dense matrix rate by precision; 0 where the accelerator does not have it."""

    fp32: Scalar = metadata("", "FLOP/s", "dense fp32 matrix rate")
    tf32: Scalar = metadata("", "FLOP/s", "dense tf32 matrix rate")
    bf16: Scalar = metadata("", "FLOP/s", "dense bf16 matrix rate")
    fp16: Scalar = metadata("", "FLOP/s", "dense fp16 matrix rate")
    fp8: Scalar = metadata("", "FLOP/s", "dense fp8 matrix rate")
    fp4: Scalar = metadata("", "FLOP/s", "dense fp4 matrix rate")
    int8: Scalar = metadata("", "FLOP/s", "dense int8 matrix rate")
    int4: Scalar = metadata("", "FLOP/s", "dense int4 matrix rate")


@record
class MemoryTier:
    """One memory of a device, or the share of the host's that it may use."""

    capacity: Scalar = metadata("", "B", "usable capacity of device memory")
    bandwidth: Scalar = metadata("", "B/s", "peak bandwidth of device memory")


#: Host memory of a device where nothing is known of it: a 2 TiB node of eight, PCIe 4.
HOST = MemoryTier(capacity=256 * 2.0**30, bandwidth=32e9)


#: (least size, share of the peak) of each step, in ascending order of size; at most eight.
Steps = tuple[tuple[Scalar, Scalar], ...]


@record
class EfficiencySteps:
    """Measured efficiencies in steps of the size of one operator, as tables of the field give them.

    An optional part of :class:`Kernels`: a design without it has none of these leaves, and its program
    none of these equations. Each share multiplies the efficiency beside it in :class:`Kernels`.
    """

    matrix: Steps  # by FLOPs of a matrix operator
    vector: Steps  # by FLOPs of an element-wise operator
    memory: Steps  # by bytes that an operator moves


@record
class FineKernels:
    """What a GEMM measured alone shows beyond :class:`Kernels`: split-k, small tiles, output, clocks, quantisation.

    An optional part of :class:`Kernels`, as the steps are: a design without it has none of these leaves.
    """

    split_time: Scalar = metadata("", "s", "what one more split of the inner dimension costs")
    feed: Scalar = metadata("", "B/s", "rate at which quarter tiles get their operands on a core")
    output_overhead: Scalar = metadata("", "1", "share of the time to write a product that nothing hides")
    sustained: Scalar = metadata("", "1", "matrix rate at the power limit over that of short runs")
    narrow_efficiency: Scalar = metadata("", "1", "share of the 8- and 4-bit rates over that of the 16-bit rate")
    quantize_floor: Scalar = metadata("", "s", "shortest time of the kernels that quantise an activation")
    quantize_row: Scalar = metadata("", "s", "time that one row of an activation adds to them")
    block_floor: Scalar = metadata("", "s", "launch of a block-scaled GEMM, host included")
    block_floor_few: Scalar = metadata("", "s", "the same of at most 32 rows")
    block_floor_odd: Scalar = metadata("", "s", "the same where a weight is no whole number of blocks")


@record
class AttentionKernels:
    """What attention measured alone shows beyond :class:`Kernels`, for new sequences and for one new token.

    An optional part of :class:`Kernels`. ``context_…`` is a whole causal sequence, ``decode_…`` one token
    against a cache of keys and values.
    """

    context_efficiency: Scalar = metadata("", "1", "share of the matrix rate of wide heads on long sequences")
    context_pair: Scalar = metadata("", "s", "time that the exponential of one pair takes on a core")
    context_tile: Scalar = metadata("", "s", "start and end of a query tile")
    context_memory: Scalar = metadata("", "1", "share of memory bandwidth that context attention reaches")
    context_floor: Scalar = metadata("", "s", "shortest time, launches included")
    context_fp8: Scalar = metadata("", "1", "time of a pair with an fp8 cache over that with a 16-bit one")
    decode_efficiency: Scalar = metadata("", "1", "share of a core's matrix rate of 16 query rows against a cache")
    decode_tile: Scalar = metadata("", "s", "start and end of one sequence")
    decode_split: Scalar = metadata("", "s", "what one more split of a sequence costs")
    decode_memory: Scalar = metadata("", "1", "share of memory bandwidth that decode attention reaches")
    decode_floor: Scalar = metadata("", "s", "shortest time, launches included")
    grouped_floor: Scalar = metadata("", "s", "what rearranging grouped queries adds to it")
    blend: Scalar = metadata("", "1", "how far compute and memory of attention fail to overlap at the ridge")


@record
class Kernels:
    """How near a chip family's kernels come to its peaks: few parameters, each physical, fitted to kernel rows."""

    matrix_efficiency: Scalar = metadata("", "1", "share of the matrix rate that a large, deep GEMM reaches")
    matrix_depth: Scalar = metadata("k0", "1", "inner dimension at which a GEMM reaches half of that share")
    tile_rows: Scalar = metadata("", "1", "rows of a GEMM output tile")
    tile_columns: Scalar = metadata("", "1", "columns of a GEMM output tile")
    wave_quantization: Scalar = metadata("", "1", "share of the last partial wave's idle cores that is lost")
    vector_efficiency: Scalar = metadata("", "1", "share of the vector rate that element-wise kernels reach")
    memory_efficiency: Scalar = metadata("", "1", "share of memory bandwidth that large transfers reach")
    roofline_blend: Scalar = metadata("kappa", "1", "0: perfect overlap of compute and memory; 1: none")
    kernel_floor: Scalar = metadata("", "s", "shortest time of one kernel on the device")
    flash_efficiency: Scalar = metadata("", "1", "share of the matrix rate of flash attention on long sequences")
    flash_sequence: Scalar = metadata("s0", "1", "sequence at which flash attention reaches half of that share")
    flash_backward: Scalar = metadata("", "1", "time of a flash-attention backward FLOP relative to a forward one")
    steps: EfficiencySteps | None = None
    fine: FineKernels | None = None
    attention: AttentionKernels | None = None


@record
class Accelerator:
    """One device: a GPU, or the share of one that software sees as a device."""

    matrix_rate: MatrixRate
    vector_rate: Scalar = metadata("", "FLOP/s", "fp32 rate of the vector units")
    cores: Scalar = metadata("", "1", "cores (SM, CU) that share one kernel's tiles")
    cache: Scalar = metadata("", "B", "capacity of the last on-chip shared cache")
    memory: MemoryTier
    kernels: Kernels


@record
class Volumes:
    """Bytes that a collective of ``N`` members takes over a member's link, ``(a + b / N)`` times its message.

    An optional part of :class:`Network` for levels whose collectives are stated or measured that way: they
    take the level's latency once, and no algorithm is chosen. A ring is ``a = 1, b = -1`` for an all-gather
    and ``2, -2`` for an all-reduce; a switch that reduces, ``1, 1`` for an all-reduce.
    """

    gather: Scalar = metadata("a", "1", "link bytes of an all-gather or reduce-scatter over the gathered bytes")
    gather_share: Scalar = metadata("b", "1", "what is added to that, times the members")
    reduce: Scalar = metadata("a", "1", "link bytes of an all-reduce over its message")
    reduce_share: Scalar = metadata("b", "1", "what is added to that, times the members")
    reduction_traffic: Scalar = metadata("", "1", "device-memory bytes of a reduction over its message")


@record
class CollectiveKernels:
    """What collectives measured alone show beyond :class:`Network`: launches, and all-reduces in one kernel.

    An optional part of :class:`Network`; a design without it has none of these leaves. ``direct_…`` is an
    all-reduce that reads the peers' memory, as inference engines bring along.
    """

    launch: Scalar = metadata("", "s", "launch and completion of a collective of the library")
    pair_loss: Scalar = metadata("", "1", "share of the bandwidth that two members leave unused, less so more of them")
    crowding: Scalar = metadata("", "1", "what members beyond two take of each other's bandwidth, by their square")
    exchange_efficiency: Scalar = metadata("", "1", "share of the bandwidth of an all-to-all over that of a ring")
    direct_launch: Scalar = metadata("", "1", "launch and completion of a direct all-reduce over the library's")
    lean_launch: Scalar = metadata("", "1", "the same of TensorRT-LLM's over that of the other engines'")
    direct_latency: Scalar = metadata("", "1", "latency of one shot of a direct all-reduce over that of a step")
    direct_rate: Scalar = metadata("", "B/s", "rate at which the blocks of a direct all-reduce load")
    graph_efficiency: Scalar = metadata("", "1", "share of the bandwidth of large messages in a graph over without")
    eager_launch: Scalar = metadata("", "s", "time the host needs to launch a collective outside of a graph")


@record
class Network:
    """One level of the interconnect, as one device sees it."""

    bandwidth: Scalar = metadata("", "B/s", "bandwidth a device and direction")
    latency: Scalar = metadata("alpha", "s", "latency of one step of a collective, software included")
    domain: Scalar = metadata("", "1", "devices that this level joins")
    efficiency: Scalar = metadata("", "1", "share of the bandwidth that large messages reach")
    ramp: Scalar = metadata("S0", "B", "message size that doubles the time on the wire")
    in_network_reduction: Scalar = metadata("", "1", "share of the bandwidth of reduction in the switch; 0: none")
    processor_usage: Scalar = metadata("", "1", "share of the device's compute that communication takes")
    volumes: Volumes | None = None
    alone: CollectiveKernels | None = None


@record
class System:
    """A cluster: ``n_devices`` accelerators, switched scale-up domains joined by a scale-out network."""

    accelerator: Accelerator
    scale_up: Network
    scale_out: Network
    host: MemoryTier = HOST
    n_devices: Scalar = metadata("N", "1", "devices used")


@record
class Software:
    """A training stack (software, era, cluster): what the code does, in few parameters."""

    attention: Scalar = metadata("", "1", "attention kernel", enum=Attention)
    fused_elementwise: Scalar = metadata("", "1", "1 when element-wise chains run as one kernel")
    softmax_batch: Scalar = metadata(
        "", "1", "what batch x heads must be a multiple of for unfused attention to have a fused softmax", default=1.0
    )
    activation_output_kept: Scalar = metadata(
        "", "1", "1 when the output of the feed-forward's activation is kept, 0 when computed again", default=1.0
    )
    matrix_slowdown: Scalar = metadata("", "1", "matrix time in a real step over the isolated kernel")
    elementwise_slowdown: Scalar = metadata("", "1", "element-wise time in a real step over the isolated kernel")
    flash_slowdown: Scalar = metadata(
        "", "1", "attention time of the stack's flash kernel over the family's best one", default=1.0
    )
    communication_slowdown: Scalar = metadata(
        "", "1", "time of collectives in a real step over the isolated ones", default=1.0
    )
    small_kernel_time: Scalar = metadata(
        "", "s", "device time of a layer's forward in kernels that the operators leave out", default=0.0
    )
    host_time: Scalar = metadata("", "s", "host time to launch one layer's forward for one micro-batch")
    step_overhead: Scalar = metadata("", "s", "host time a step that nothing hides (data, logging, clipping)")
    tp_overlap: Scalar = metadata("", "1", "share of tp messages inside a domain that overlap can hide")
    tp_overlap_across: Scalar = metadata(
        "", "1", "share of tp messages between domains that overlap can hide", default=0.0
    )
    backward_tp_overlap: Scalar = metadata("", "1", "share of asynchronous backward tp messages hidden by default")
    cp_overlap: Scalar = metadata("", "1", "share of context-parallel communication that overlap can hide")
    dp_overlap: Scalar = metadata("", "1", "share of data-parallel communication that overlap can hide")
    pp_overlap: Scalar = metadata("", "1", "share of steady-state point-to-point communication that is hidden")
    scatter_gather: Scalar = metadata(
        "", "1", "1 when tp ranks send their shares of a stage's output, gathered again behind the border", default=1.0
    )
    collective: Scalar = metadata("", "1", "collective algorithm", enum=Collective)
    gradient_bytes: Scalar = metadata("", "B", "bytes of one stored (accumulated) gradient")
    gradient_message_bytes: Scalar = metadata("", "B", "bytes of one gradient on the wire")
    logit_bytes: Scalar = metadata("", "B", "bytes kept for one logit")
    cross_entropy_traffic: Scalar = metadata("", "B", "bytes the loss moves for one logit, forward and backward")
    gradient_cache: Scalar = metadata("", "1", "1 when a 16-bit weight-gradient buffer is kept for each weight shape")
    reserve: Scalar = metadata("", "B", "device memory that allocations cannot use: driver, communicators, fragments")


@record
class Mapping:
    """How the workload is spread over the devices; ``n_devices = tp cp pp dp``."""

    tp: Scalar = metadata("t", "1", "tensor parallel size")
    pp: Scalar = metadata("p", "1", "pipeline parallel size")
    dp: Scalar = metadata("D", "1", "data parallel size")
    cp: Scalar = metadata("c", "1", "context parallel size")
    micro_batch: Scalar = metadata("b", "1", "sequences of one micro-batch")
    virtual_stages: Scalar = metadata("v", "1", "model chunks a device holds (interleaved 1F1B when > 1)")
    recompute: Scalar = metadata("", "1", "activation recompute", enum=Recompute)
    zero_stage: Scalar = metadata("", "1", "ZeRO stage: 0 none, 1 optimiser, 2 + gradients, 3 + weights (FSDP)")
    sequence_parallel: Scalar = metadata(
        "", "1", "1, 2 when norms and dropout are split along the sequence over tp; 3 at the borders of stages only"
    )
    overlap_dp: Scalar = metadata("", "1", "1 when data-parallel communication overlaps compute")
    overlap_tp: Scalar = metadata("", "1", "1 when tensor-parallel communication overlaps compute")
    offload_weights: Scalar = metadata("", "1", "1 when the layers' weights live on the host", default=0.0)
    offload_activations: Scalar = metadata("", "1", "1 when kept activations live on the host", default=0.0)
    offload_optimizer: Scalar = metadata("", "1", "1 when the optimiser state lives on the host", default=0.0)
    precision: Scalar = metadata("", "1", "precision of the matrix operands", enum=Precision)
    placement: Scalar = metadata("", "1", "placement order of the parallel dimensions", enum=Placement)


@record
class Design:
    """One point of the design space: workload x system x software x mapping."""

    workload: Workload
    system: System
    software: Software
    mapping: Mapping


@record
class Metrics:
    """What the model says of one design; parts ``<metric>_<part>`` add up to ``<metric>``."""

    step_time: Scalar = metadata("T", "s", "time of one training step")
    step_time_forward: Scalar = metadata("", "s", "layer forward compute on the slowest stage")
    step_time_backward: Scalar = metadata("", "s", "layer backward compute on the slowest stage")
    step_time_recompute: Scalar = metadata("", "s", "forward compute repeated in the backward pass")
    step_time_edge: Scalar = metadata("", "s", "embedding, output head and cross-entropy")
    step_time_host: Scalar = metadata("", "s", "time the device waits for kernel launches")
    step_time_tensor_parallel: Scalar = metadata("", "s", "exposed tensor-parallel communication")
    step_time_context_parallel: Scalar = metadata("", "s", "exposed context-parallel communication")
    step_time_bubble: Scalar = metadata("", "s", "pipeline fill and drain, and waiting for the slowest stage")
    step_time_pipeline_parallel: Scalar = metadata("", "s", "exposed point-to-point communication between stages")
    step_time_data_parallel: Scalar = metadata("", "s", "exposed data-parallel communication and what it slows")
    step_time_optimizer: Scalar = metadata("", "s", "optimiser step")
    step_time_offload: Scalar = metadata("", "s", "exposed transfers between host and device")
    tokens_per_second: Scalar = metadata("", "s-1", "tokens trained a second, whole system")
    tokens_per_second_per_device: Scalar = metadata("", "s-1", "tokens trained a second and device")
    mfu: Scalar = metadata("", "1", "model FLOP utilisation (full attention square, head counted, no recompute)")
    mfu_causal: Scalar = metadata("", "1", "model FLOP utilisation counting causal attention work only")
    hfu: Scalar = metadata("", "1", "hardware FLOP utilisation: model FLOPs plus recomputed ones")
    model_flops: Scalar = metadata("", "FLOP", "model FLOPs of one step")
    parameters: Scalar = metadata("", "1", "parameters of the model")
    peak_memory: Scalar = metadata("", "B", "peak memory of the fullest device")
    peak_memory_weights: Scalar = metadata("", "B", "weights of the transformer layers")
    peak_memory_gradients: Scalar = metadata("", "B", "gradients of the transformer layers")
    peak_memory_optimizer: Scalar = metadata("", "B", "optimiser state of the transformer layers")
    peak_memory_edge: Scalar = metadata("", "B", "model state of embedding, final norm and head")
    peak_memory_activations: Scalar = metadata("", "B", "activations that the layers keep for the backward pass")
    peak_memory_logits: Scalar = metadata("", "B", "activations of embedding and head: logits and cross-entropy")
    peak_memory_buffers: Scalar = metadata("", "B", "temporaries: gathered weights and activations, gradients")
    host_memory: Scalar = metadata("", "B", "host memory that a device of the first stage uses")
    feasible: Scalar = metadata("", "1", "whether the design can run")
    infeasible_reason: Scalar = metadata("", "1", "why it cannot: bits of Infeasible")


def field_metadata(cls: type, name: str) -> dict[str, Any]:
    """Symbol, units and long name of field ``name`` of a record class."""
    return dict(next(f.metadata for f in dataclasses.fields(cls) if f.name == name))
