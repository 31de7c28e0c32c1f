"""Categorical choices as integer codes, kinds of operators and messages, reasons of infeasibility.

Codes are stored in results files: choices are appended, and never renumbered or renamed.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, StrEnum


def choice_name(choice: IntEnum) -> str:
    """Return the name of a choice in files and specifications: dashes for underscores, none before a leading digit.

    >>> choice_name(Precision.fp8_block), choice_name(Schedule._1f1b)
    ('fp8-block', '1f1b')
    """
    return choice.name.removeprefix("_").replace("_", "-")


class Precision(IntEnum):
    """Recipe of the matrix products, defined in :data:`dse.model.recipes.RECIPES`."""

    fp32 = 0
    tf32 = 1
    bf16 = 2
    fp16 = 3
    fp8 = 4
    fp8_block = 5
    fp4 = 6
    int8 = 7
    int4 = 8
    fp8_row = 9  # one scale per row
    mxfp8 = 10
    nvfp4 = 11
    mxfp4 = 12


#: Recipes of 8-bit floating-point products, one scale per tensor, row or block.
EIGHT_BITS = (Precision.fp8, Precision.fp8_row, Precision.fp8_block)

#: Weight-only formats, which are not recipes since products widen them → bytes per weight with scales.
WEIGHTS_ALONE = {"w4a16": 0.53125, "w8a16": 1.0}

#: Bytes per weight of INT4 checkpoints: groups of 32 with a 16-bit scale (pack-quantized of compressed-tensors).
INT4_BYTES = 0.5 + 2.0 / 32.0

#: Bytes per weight of NVFP4: groups of 16 with an 8-bit scale.
NVFP4_BYTES = 0.5 + 1.0 / 16.0


def weight_only_format(name: str) -> str:
    """Return a sentence with the settings of a weight-only format, "" for any other name.

    >>> weight_only_format("W4A16")
    'weight-only formats are precision=bf16 with weight_bytes=0.53 B, in serving designs'
    """
    bytes_per_weight = WEIGHTS_ALONE.get(name.lower())
    if bytes_per_weight is None:
        return ""
    return f"weight-only formats are precision=bf16 with weight_bytes={bytes_per_weight:.2g} B, in serving designs"


class Recompute(IntEnum):
    """Recompute in the backward pass (Korthikanti et al. 2022, section 5; torchtitan)."""

    none = 0
    selective = 1  # the attention core: scores, softmax, dropout, context
    full = 2  # whole layers, from their input
    selective_op = 3  # all but every other product and the flash kernel ("selective" of torchtitan, option "op")
    # Mixtures of experts only, each with all of the ones before (recompute_modules of Megatron-Core):
    norms = 4  # norms, activations and up-projections of latent attention (DeepSeek-AI 2024, section 3.2.3)
    expert_inner = 5  # inputs of the activations: first products of experts
    expert_block = 6  # the feed-forward, with its messages


class SequenceParallel(IntEnum):
    """Split of norms, dropout and residuals along the sequence over tp (Korthikanti et al. 2022)."""

    none = 0  # whole on every rank, all-reduces inside
    gather_again = 1  # split; the backward gathers the inputs of both blocks
    keep_gathered = 2  # split; gathered inputs are kept whole (except one that selective recompute drops)
    at_stage_boundaries = 3  # as none, but scattered before a stage boundary and gathered after it


class ContextExchange(IntEnum):
    """Messages of context parallelism, by Megatron-Core's names (option ``cp-comm-type``)."""

    p2p = 0  # keys and values in a ring, overlapped with attention (Liu et al. 2023)
    all_gather = 1  # keys and values to all ranks before the attention (Llama team 2024, section 3.3.2)
    a2a = 2  # heads for sequence: every rank has all tokens of its heads (DeepSpeed-Ulysses: Jacobs et al. 2023)
    a2a_p2p = 3  # a2a within groups, a ring between them (Fang & Zhao 2024)


class Checkpoint(IntEnum):
    """Checkpoints of the state of a run."""

    synchronous = 0  # training waits until storage has all of it
    asynchronous = 1  # copied to hosts during the next step, then to storage (DataStates: Maurya et al. 2024)
    in_memory = 2  # kept by the hosts, with parities of each other's state (REFT: Wang et al. 2023)


class Attention(IntEnum):
    """Attention kernel of a software stack."""

    unfused = 0  # scores and softmax go through memory, full square (Megatron 2021/22)
    flash = 1  # online softmax, causal half only (Dao 2023)


class Collective(IntEnum):
    """Collective algorithm; ``auto`` is the fastest one that the network allows."""

    auto = 0
    ring = 1
    tree = 2
    hierarchical = 3
    in_switch = 4
    doubling = 5  # logarithmic steps between domains (recursive doubling; PAT of NCCL), not part of auto
    single_ring = 6  # a ring that enters and leaves a domain over one member's link, not part of auto


class AllToAll(IntEnum):
    """Copies of a token with experts on several devices (Lepikhin et al. 2021; DeepEP, HybridEP)."""

    pairwise = 0  # one per expert (NCCL)
    by_rank = 1  # one per device with any of them
    by_node = 2  # one per scale-up domain, forwarded within it to the devices
    gather = 3  # one per device, used or not (all-gather, and reduce-scatter)


class WideOption(IntEnum):
    """Option of an engine for experts on several ranks."""

    off = 0
    on = 1
    wide = 2  # on where experts are on 16 ranks or more, as the makers of engines run these


class PromptOrder(IntEnum):
    """Steps in which ranks with common experts take prompts."""

    independent = 0  # each as they come, so that prompts of one rank delay all
    together = 1  # in the same steps (TensorRT-LLM: enable_balance; SGLang: prefill delayer)


class Load(IntEnum):
    """Arrival of requests."""

    concurrency = 0  # a constant number in flight: each finished request is replaced
    static = 1  # all together, in one batch
    waves = 2  # all together, in as few batches as memory allows
    offline = 3  # as many as the engine can hold
    rate = 4  # at a rate, whatever is in flight


class Graph(IntEnum):
    """CUDA graphs of a training step: what the host launches at once (Megatron-Core, ``--cuda-graph-impl``)."""

    none = 0  # every kernel for itself
    layer = 1  # a pass of a layer; in mixtures of experts without the experts, unless one kernel runs all of them
    iteration = 2  # all forwards and backwards of a step, without the optimiser


class Packaging(IntEnum):
    """Packaging of the dies of an accelerator (parameters: :class:`dse.types.Assembly`)."""

    organic = 0  # on an organic substrate
    fan_out = 1  # on redistribution layers
    silicon = 2  # on a silicon interposer
    bridge = 3  # on redistribution layers with bridges of silicon between neighbours
    hybrid = 4  # compute dies bonded face to face on base dies, these on a silicon interposer


class Placement(IntEnum):
    """Order of the parallel dimensions, from innermost (neighbouring devices) to outermost."""

    tp_cp_dp_pp = 0
    tp_cp_pp_dp = 1


class Topology(IntEnum):
    """Layout of the links between devices without a switch."""

    torus = 0  # two or three axes, which wrap around or not (a mesh)
    hypercube = 1  # a link to each device whose number differs in one bit
    cube_mesh = 2  # eight devices in two quads of all pairs, one pair a device with two links (DGX-1)


class Schedule(IntEnum):
    """Order of passes on the stages of a pipeline; by default 1F1B."""

    _1f1b = 0  # interleaved where a stage has several chunks (Narayanan et al. 2021, section 2.2)
    gpipe = 1  # all forwards, then all backwards (Huang et al. 2019)
    zb_h1 = 2  # 1F1B with weight gradients deferred into the bubble, at its memory (Qi et al. 2024, section 2.2)
    zb_v = 3  # the same with two chunks per device, first and last stage on one (Qi et al. 2024, section 6)
    dualpipe = 4  # from both ends, with two copies of the weights (DeepSeek-V3 report 2024, section 3.2.1)
    dualpipev = 5  # half of that, folded as ZB-V: one copy of the weights (deepseek-ai/DualPipe)


class OperatorKind(StrEnum):
    """Hardware unit of an operator; known in Python, never traced."""

    matrix = "matrix"  # matrix units, at the mapping's precision
    matrix_16 = "matrix_16"  # matrix units, in 16 bits under every recipe
    grouped = "grouped"  # matrix units, at the mapping's precision, one product per expert
    flash = "flash"  # a flash-attention kernel, in 16 bits
    context = "context"  # attention of the prompts of an engine's step, in 16 bits
    vector = "vector"  # vector units


class MessageKind(StrEnum):
    """Collective, or send, of a group of devices; known in Python, never traced."""

    all_reduce = "all_reduce"
    all_gather = "all_gather"
    reduce_scatter = "reduce_scatter"
    all_to_all = "all_to_all"
    send = "send"  # to the next member of the group


class Infeasible(IntFlag):
    """Reasons of infeasibility as bits, each with its meaning; a design is feasible when no bit is set."""

    meaning: str  #: one sentence, for tables and dataset attributes

    def __new__(cls, bit: int, meaning: str = "") -> Infeasible:
        """Return the reason of a bit."""
        reason = int.__new__(cls, bit)
        reason._value_, reason.meaning = bit, meaning
        return reason

    memory = 1, "peak memory exceeds the device's capacity"
    heads_not_divisible = 2, "tp does not divide the attention heads (or the key/value heads it splits)"
    width_not_divisible = 4, "tp does not divide the feed-forward width"
    layers_not_divisible = (
        8,
        "pp x virtual_stages does not divide the layers, nor the layers plus loss, or plus loss and embedding",
    )
    batch_not_divisible = 16, "dp x micro_batch does not divide the global batch"
    sequence_not_divisible = 32, "cp (or tp with sequence parallelism) does not divide the sequence"
    device_count_mismatch = 64, "tp x cp x pp x dp is not the number of devices"
    interleave_not_divisible = (
        128,
        "virtual stages need pp > 1 and micro-batches that pp divides; of named schedules, zb-v and dualpipev need "
        "virtual_stages = 2, the others but 1f1b 1; dualpipe, dualpipev and zb-v 2 pp micro-batches, dualpipe an even "
        "pp and number of them",
    )
    network_too_small = (
        256,
        "the system has no network that connects that many devices: it is too small, axes of a torus do not divide "
        "them or need more links than a device has, a hypercube is of no power of two or of more dimensions than links",
    )
    precision_unsupported = 512, "the accelerator has no matrix units for this precision, or none that scale its blocks"
    host_memory = 1024, "what is offloaded exceeds the host memory of a device"
    offload_too_few_layers = 2048, "offloading needs at least three layers per device"
    power = 4096, "no clock meets the power limit, or the clock that is set exceeds the nominal one"
    shards_not_divisible = (
        8192,
        "dp_replicate does not divide dp, or what weights or gradients are split over not the replicas",
    )
    stack_lacks = 16384, "the software stack, or a model without experts, lacks an option of the mapping"
    experts_not_divisible = (
        32768,
        "ep does not divide the experts, etp their width, tp the shared expert's, or ep x etp x dp_replicate not "
        "tp x cp x dp; or a token is routed to more experts or groups, or an expert gets more rows, than there are",
    )
    experts_unsupported = (
        65536,
        "experts are not modelled under tp without sequence parallelism, nor with selective-op recompute",
    )
    storage = 131072, "what is offloaded to storage exceeds a device's share of it"
    latency = (
        262144,
        "the time to the first token, or that of an output token, exceeds its limit, or requests arrive faster than "
        "they are served",
    )
    layers_unsupported = 524288, "layers with a state and sparse attention are modelled in serving alone"
    chip_shares = 1048576, "the chip's shares of its power, edge, cores or other area add up to more than the whole"
    step_tokens = 2097152, "an engine step has fewer tokens (chunk) than one sequence with its drafts"


#: Reason → its meaning.
INFEASIBLE_MEANING = {reason: reason.meaning for reason in Infeasible}
