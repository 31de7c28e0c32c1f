"""Kernels from rows of tables; a row without one raises :class:`dse.measured.table.Skip` with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dse.measured.kernels.devices import INTER_NODE_SUFFIX, KERNEL_ROWS, PLATFORMS
from dse.measured.kernels.kernel import Kernel
from dse.measured.names import resolve_accelerator
from dse.measured.table import Row, Skip, kind_rows, nonnegative_number
from dse.types import Precision

#: Number format as the tables name it → its code.
PRECISIONS = {name: Precision[code] for code, names in kind_rows("kernels")["formats"].items() for name in names}

#: Operations of a collective, in the order of their codes.
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv")

#: Attention in Triton, used without a hand-written kernel: compute and reading time over those of the best kernel (a
#: property of that stack; rows of vLLM 0.22 on B200, head size 192).
TRITON_COMPUTE, TRITON_READING = 8.5, 3.2


def kind_of(columns: Iterable[str]) -> str:
    """Return the kind of a table of kernels with these columns, a key of :data:`READERS`, "" where it has no kernels.

    Args:
        columns: of its header.
    """
    names, rows = set(columns), kind_rows("kernels")
    is_of_kernels = names & set(rows["keys"][0]) and not names & set(rows["without"])
    readers = (reader for column, reader in rows["readers"].items() if column in names)
    return next(readers, "") if is_of_kernels else ""


def read(row: Row, kind: str) -> list[Kernel]:
    """Read the measured kernels of a row.

    Args:
        row: of a table of kernels.
        kind: of :func:`kind_of`.

    Returns:
        Its kernels.

    Raises:
        Skip: for a row that cannot be predicted.
    """
    return READERS[kind](row)


def _seconds(row: Row, column: str) -> float:
    """Return a cell in ms as seconds above 0, or raise Skip."""
    value = 1e-3 * nonnegative_number(row, column)
    if value <= 0.0:
        raise Skip("no usable measured value", column)
    return value


def _precision(row: Row, column: str = "dtype") -> float:
    """Return the code of the number format in a cell, or raise Skip."""
    text = row.get(column)
    if text not in PRECISIONS:
        raise Skip("unknown number format", text)
    return float(PRECISIONS[text])


def _numbers(row: Row, *columns: str) -> tuple[float, ...]:
    """Return the cells of some columns as nonnegative numbers, or raise Skip."""
    return tuple(nonnegative_number(row, column) for column in columns)


def _timed_and_powered(kernel: Kernel, row: Row) -> list[Kernel]:
    """Return a timed kernel, and the same kernel with its power where measured."""
    watts = nonnegative_number(row, "power_w", 0.0)
    return [kernel, kernel.with_power(watts)] if watts > 0.0 else [kernel]


def read_gemm(row: Row) -> list[Kernel]:
    """Read ``system, dtype, m, n, k, latency_ms`` as a kernel, and one of its power where measured.

    It runs at the clock that a power limit sets where one is stated.
    """
    sustained = 1.0 if row.get("power_limit_w") else 0.0
    values = (*_numbers(row, "m", "n", "k"), _precision(row), sustained, 1.0)
    kernel = Kernel(
        "gemm", resolve_accelerator(row.get("system")), values, _seconds(row, "latency_ms"), row.get("dtype")
    )
    return _timed_and_powered(kernel, row)


def read_regimes(row: Row) -> list[Kernel]:
    """Read one GEMM as two kernels: at the clock of the power limit, and in short runs."""
    device, sizes, precision = resolve_accelerator(row.get("system")), _numbers(row, "m", "n", "k"), _precision(row)
    columns = {"latency_sustained_ms": 1.0, "latency_burst_ms": 0.0}
    return [
        Kernel("gemm", device, (*sizes, precision, sustained, 1.0), _seconds(row, column), column.split("_")[1])
        for column, sustained in columns.items()
    ]


def read_attention(row: Row) -> list[Kernel]:
    """Read attention of full sequences (``step`` 0), or of one token over ``step`` cached tokens, as a kernel.

    A second kernel has its power where measured.
    """
    if row.get("attn_dtype") not in ("bfloat16", "float16", "bf16", "fp16", ""):
        raise Skip("unknown number format", row.get("attn_dtype"))
    if nonnegative_number(row, "beam_width", 1.0) != 1.0:
        raise Skip("beam search is not modelled")
    cache = row.get("kv_cache_dtype") or "bfloat16"
    if cache not in PRECISIONS:
        raise Skip("unknown number format", cache)
    step, query_tokens = nonnegative_number(row, "step", 0.0), nonnegative_number(row, "isl", 1.0)
    if step > 0.0 and query_tokens > 1.0:
        raise Skip("a cached prefix is not modelled")
    is_prefill = step == 0.0
    is_triton = "triton" in row.get("kernel_source")
    values = (
        nonnegative_number(row, "batch_size"),
        query_tokens if is_prefill else step,
        *_numbers(row, "num_heads", "num_key_value_heads"),
        nonnegative_number(row, "head_dim", 128.0),
        nonnegative_number(row, "window_size", 0.0),
        1.0 if "8" in cache and "fp8" in cache else 2.0,
        float(is_prefill),
        TRITON_COMPUTE if is_triton else 1.0,
        TRITON_READING if is_triton else 1.0,
    )
    kernel = Kernel("attention", resolve_accelerator(row.get("system")), values, _seconds(row, "latency_ms"), cache)
    return _timed_and_powered(kernel, row)


def read_collective(row: Row) -> list[Kernel]:
    """Read a library collective as one kernel.

    It is of ``num_gpus``, in one node unless stated, or of ``num_workers`` on a platform.
    """
    name = row.get("collective").replace("all_to_all", "alltoall")
    if name not in OPERATIONS:
        raise Skip("unknown collective", name)
    operation = float(OPERATIONS.index(name))
    if row.get("num_workers"):
        return [_platform_kernel(row, operation, name)]
    members, device = nonnegative_number(row, "num_gpus"), resolve_accelerator(row.get("system"))
    local = min(nonnegative_number(row, "devices_per_node", members), members)
    values = (operation, nonnegative_number(row, "bytes"), members, local, 0.0)
    return [Kernel("collective", device, values, _seconds(row, "latency_ms"), name)]


def _platform_kernel(row: Row, operation: float, name: str) -> Kernel:
    """Return the kernel of a collective of ``num_workers`` devices, ``devices_per_node`` of them in a node."""
    members, local = _numbers(row, "num_workers", "devices_per_node")
    one_per_node = f"{row.get('platform')}{INTER_NODE_SUFFIX}"
    device = one_per_node if local == 1.0 and one_per_node in PLATFORMS else row.get("platform")
    if device not in PLATFORMS:
        raise Skip("unknown platform", device)
    values = (operation, nonnegative_number(row, "bytes"), members, min(local, members, PLATFORMS[device].local), 0.0)
    return Kernel("collective", device, values, _seconds(row, "median_ms"), name)


def read_direct(row: Row) -> list[Kernel]:
    """Read a framework's all-reduce as one kernel, in a graph or in single launches (``…_eager``)."""
    eager = 1.0 if "eager" in row.get("kernel_source") else 0.0
    lean = 1.0 if "trtllm" in row.get("kernel_source").lower() else 0.0
    values = (*_numbers(row, "bytes", "num_gpus"), eager, lean)
    label = "eager" if eager else "graph"
    return [Kernel("direct", resolve_accelerator(row.get("system")), values, _seconds(row, "latency_ms"), label)]


#: B/s per core of a kernel that only moves bytes.
COPY_RATE = 1e12

#: Minimum time of an element-wise kernel in s.
ELEMENTWISE_FLOOR = 2.2e-6

#: GEMM time of that stack on H100 over that of later libraries, with the first kernels for Hopper. Without it the
#: median error of these rows doubles.
EARLY_HOPPER = 1.2


def read_operator(row: Row) -> list[Kernel]:
    """Read an operator as one kernel.

    It is of a layer (``num_tokens``, ``tp``, model sizes), or isolated (``m``, ``n_or_k1``, ``n2``).
    """
    return _layer_operator(row) if row.get("num_tokens") else _single_operator(row)


def _layer_operator(row: Row) -> list[Kernel]:
    """Return the GEMM or element-wise kernel of an operator of a layer, or raise Skip."""
    device, op, seconds = resolve_accelerator(row.get("gpu")), row.get("op"), _seconds(row, "median_ms")
    tokens, tp, hidden, heads, kv_heads, ffn = _numbers(
        row, "num_tokens", "tp", "n_embd", "n_head", "n_kv_head", "n_expanded_embd"
    )
    ffn_columns, gated = ffn / tp, nonnegative_number(row, "gated", 0.0)
    query_columns, kv_columns = hidden / tp, (hidden / heads) * kv_heads / tp
    products = {
        "attn_pre_proj": (query_columns + 2.0 * kv_columns, hidden), "attn_post_proj": (hidden, query_columns),
        "mlp_up_proj": (ffn_columns * (1.0 + gated), hidden), "mlp_down_proj": (hidden, ffn_columns),
    }  # fmt: skip
    if op in products:
        columns, depth = products[op]
        stretch = EARLY_HOPPER if "h100" in device else 1.0
        return [Kernel("gemm", device, (tokens, columns, depth, float(Precision.fp16), 0.0, stretch), seconds, op)]
    elements = {  # elements read and written
        "input_layernorm": 2.0 * hidden,
        "post_attention_layernorm": 2.0 * hidden,
        "add": 3.0 * hidden,
        "attn_rope": 2.0 * (query_columns + kv_columns),
        "mlp_act": (2.0 + gated) * ffn_columns,
        "emb": 2.0 * hidden,
    }
    if op not in elements:
        raise Skip("unknown operator", op)
    return [
        Kernel(
            "vector",
            device,
            (2.0 * tokens * elements[op], KERNEL_ROWS["elementwise"][op], ELEMENTWISE_FLOOR),
            seconds,
            op,
        )
    ]


def _single_operator(row: Row) -> list[Kernel]:
    """Return the collective, GEMM or element-wise kernel of an isolated operator, or raise Skip."""
    op, name = row.get("op"), row.get("device")
    if op.startswith("allreduce") and "x" in name:
        device, members = name.split("x")
        values = (0.0, nonnegative_number(row, "m"), float(members), float(members), 0.0)
        return [Kernel("collective", resolve_accelerator(device), values, _seconds(row, "latency_ms"), "all_reduce")]
    if ":" in op or not row.get("m"):
        raise Skip("parts of a layer without their shape")
    device, seconds = resolve_accelerator(name), _seconds(row, "latency_ms")
    if op.startswith("matmul"):
        sizes = _numbers(row, "m", "n2", "n_or_k1")
        return [Kernel("gemm", device, (*sizes, float(Precision.fp16), 0.0, 1.0), seconds, op)]
    if op not in KERNEL_ROWS["launch"]:
        raise Skip("unknown operator", op)
    elements = nonnegative_number(row, "m") * nonnegative_number(row, "n_or_k1", 1.0)
    return [Kernel("vector", device, (4.0 * elements, COPY_RATE, KERNEL_ROWS["launch"][op]), seconds, op)]


#: Bytes per element sent by DeepEP: to experts in fp8 with a 4-byte scale per 128, back in bf16.
DISPATCH_BYTES, COMBINE_BYTES = 1.0 + 4.0 / 128.0, 2.0


def read_exchange(row: Row) -> list[Kernel]:
    """Read dispatch and combine of tokens as two kernels, those for many (``normal``) or few tokens (``ll``)."""
    nodes, is_low_latency = nonnegative_number(row, "node_num"), row.get("mode") == "ll"
    device = resolve_accelerator(row.get("system")) + (INTER_NODE_SUFFIX if nodes > 1.0 else "")
    tokens, top_k, hidden = _numbers(row, "num_token", "num_topk", "hidden_size")
    kernels = []
    for phase, bytes_per_element in {"dispatch": DISPATCH_BYTES, "combine": COMBINE_BYTES}.items():
        column = f"{phase}_avg_t_us" if is_low_latency else f"{phase}_transmit_us"
        cores = 1.0 if is_low_latency else nonnegative_number(row, f"{phase}_sms")
        sizes = (tokens, bytes_per_element * hidden, top_k, nodes, cores)
        values = (float(phase == "combine"), float(is_low_latency), *sizes)
        label = f"{phase}{' of few tokens' if is_low_latency else ''}{' between nodes' if nodes > 1.0 else ''}"
        kernels.append(Kernel("exchange", device, values, 1e-3 * _seconds(row, column), label))
    return kernels


def read_experts(row: Row) -> list[Kernel]:
    """Raise Skip: fused expert layers are not modelled."""
    raise Skip("kernels of mixtures of experts are not modelled yet")


READERS: dict[str, Callable[[Row], list[Kernel]]] = {
    "gemm": read_gemm,
    "regimes": read_regimes,
    "attention": read_attention,
    "collective": read_collective,
    "direct": read_direct,
    "operator": read_operator,
    "experts": read_experts,
    "exchange": read_exchange,
}
