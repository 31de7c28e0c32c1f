"""Logs of the start of vLLM, SGLang and TensorRT-LLM: arguments, memory of weights and graphs, size of the KV cache.

The cache counts in tokens of one data-parallel rank, that of its smallest device; GB in these lines are GiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dse.measured.profiles.run import Figure, MeasuredRun, design_cells, number_text
from dse.tools import values_of

#: Lines that only a starting engine writes.
SIGNATURE = re.compile(
    r"Initializing an? (?:V\d )?LLM engine|vLLM API server version|non-default args: \{|server_args=ServerArgs\(|"
    r"Load weight begin\. avail mem|\[TensorRT-LLM\]|TensorRT-LLM version: "
)

_VLLM, _SGLANG, _TRTLLM = "vllm", "sglang", "trtllm"
_TOOLS = {
    _VLLM: re.compile(r"LLM engine|vLLM API|non-default args|GPU KV cache size|# GPU blocks"),
    _SGLANG: re.compile(r"server_args=|Load weight (?:begin|end)"), _TRTLLM: re.compile(r"TensorRT-LLM"),
}  # fmt: skip

#: Figure → patterns of its lines, and the size of their unit in GiB; the largest counts, of tokens the smallest.
_GIB = {
    "weight_memory": (
        (re.compile(r"(?:Model loading|Loading model weights) took ([\d.]+) Gi?B"), 1.0),
        (re.compile(r"Load weight end\..*\bmem usage=([\d.]+) GB"), 1.0),
        (re.compile(r"Loaded engine size: (\d+) MiB"), 2.0**-10),
        (re.compile(r"after loading model weights \(inside torch\).*?: ([\d.]+) GiB"), 1.0),
    ),
    "cache_memory": (
        (re.compile(r"Available KV cache memory: ([\d.]+) GiB"), 1.0),
        (re.compile(r"KV Cache is allocated\..*\bKV size: ([\d.]+) GB"), 1.0),
        (re.compile(r"Allocated ([\d.]+) GiB for max tokens in paged KV cache"), 1.0),
        (re.compile(r"Allocate (\d+) bytes for k/v cache"), 2.0**-30),
    ),
    "graph_memory": (
        (re.compile(r"Graph capturing finished in .*\btook (-?[\d.]+) GiB"), 1.0),
        (re.compile(r"Capture cuda graph end\..*\bmem usage=([\d.]+) GB"), 1.0),
    ),
}  # fmt: skip
_HALVES = re.compile(r"KV Cache is allocated\..*\bK size: ([\d.]+) GB, V size: ([\d.]+) GB")
_TOKENS = (
    re.compile(r"GPU KV cache size: ([\d,]+) tokens"), re.compile(r"KV Cache is allocated\..*#tokens: (\d+)"),
    re.compile(r"max_total_num_tokens=(\d+)"), re.compile(r"for max tokens in paged KV cache \((\d+)\)"),
    re.compile(r"Using (\d+) tokens in paged KV cache"),
)  # fmt: skip
_BLOCKS, _BLOCK = re.compile(r"# (?:GPU|CUDA) blocks: (\d+)"), re.compile(r"block_size['\"]?[=:] ?(\d+)")

#: vLLM's tokens of a block by default.
_USUAL_BLOCK = 16

#: An argument as the tools print it.
_ARGUMENT = re.compile(r"['\"]?\b([a-z][a-z_]+)['\"]?[=:] ?('[^']{0,1000}'|\"[^\"]{0,1000}\"|[\w.\-/+]{1,100})")
_OPTIONS = {
    "tensor_parallel_size": "--tensor-parallel-size",
    "pipeline_parallel_size": "--pipeline-parallel-size",
    "data_parallel_size": "--data-parallel-size",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "kv_cache_dtype": "--kv-cache-dtype",
    "quantization": "--quantization",
    "tp_size": "--tp-size",
    "pp_size": "--pp-size",
    "dp_size": "--dp-size",
}
#: Formats of checkpoints that may be of several recipes.
_AMBIGUOUS_FORMATS = ("compressed-tensors", "modelopt", "gptq", "awq", "gptq_marlin", "awq_marlin")

_MODEL = ("model", "model_path", "model_tag")
_LENGTH = ("max_seq_len", "max_model_len", "context_length", "context_len")

#: Arguments that are read, and what any line with a figure has: long logs have many others.
_ARGUMENT_NAMES = frozenset((*_OPTIONS, *_MODEL, *_LENGTH, "enable_dp_attention", "mem_fraction_static", "dtype"))
_FIGURE_LINE = re.compile(
    r"took|[Aa]lloca|KV cache (?:size|memory)|blocks|block_size|end\.|engine size|loading model|paged KV|config: |"
    r"_args|args: |_tokens="
)

#: Lines with arguments, the rest of which are not read.
_SETTINGS = re.compile(r"LLM engine .*config: |non-default args: |server_args=|max_total_num_tokens=")


def read(lines: Iterable[str]) -> list[MeasuredRun]:
    """Read the engine of a log as one run of kind ``engine``, [] for a log without figures of memory.

    It is for :mod:`dse.measured.profiles.attached`.
    """
    run, arguments = MeasuredRun("", "engine", {}, warm_up=0), dict[str, str]()
    fewest_tokens, block_tokens = float("inf"), _USUAL_BLOCK
    for line in lines:
        run.tool = run.tool or next(
            (tool for tool, pattern_of_tool in _TOOLS.items() if pattern_of_tool.search(line)), ""
        )
        if not _FIGURE_LINE.search(line):
            continue
        if _SETTINGS.search(line):
            for name, value in _ARGUMENT.findall(line):
                arguments |= {name: value.strip("'\"")} if name in _ARGUMENT_NAMES and name not in arguments else {}
        if block_match := _BLOCK.search(line):
            block_tokens = int(block_match[1][:6]) or block_tokens
        for figure in _figures(line):
            run.peak(figure)
        tokens = [float(match[1].replace(",", "")) for pattern in _TOKENS if (match := pattern.search(line))]
        if blocks := _BLOCKS.search(line):
            tokens.append(float(blocks[1]) * block_tokens)
        fewest_tokens = min((count for count in (fewest_tokens, *tokens) if count > 0.0), default=fewest_tokens)
    if fewest_tokens < 1e15:
        run.peaks["cache_tokens"] = Figure("cache_tokens", fewest_tokens, "token")
    run.cells = _cells(run.tool, arguments)
    return [run] if run.peaks else []


def _figures(line: str) -> list[Figure]:
    """Return the figures of memory in a line, GiB."""
    figures = []
    for name, patterns in _GIB.items():
        for pattern, scale in patterns:
            if match := pattern.search(line):
                figures.append(_figure(name, match[1], scale))
    if halves := _HALVES.search(line):
        parts = [_figure("cache_memory", half, 1.0).value for half in halves.groups()]
        figures.append(Figure("cache_memory", sum(parts), "GiB"))
    return [figure for figure in figures if 0.0 < figure.value < 1e9]


def _figure(name: str, number: str, scale: float) -> Figure:
    """Return a figure in GiB of a printed number times ``scale``, 0 where it is no number."""
    try:
        return Figure(name, float(number) * scale, "GiB")
    except ValueError:
        return Figure(name, 0.0, "GiB")


def _cells(tool: str, arguments: dict[str, str]) -> dict[str, str]:
    """Return column → text of the arguments that were printed."""
    options = {option: arguments[name] for name, option in _OPTIONS.items() if arguments.get(name, "None") != "None"}
    if arguments.get("enable_dp_attention") == "True":
        options["--enable-dp-attention"] = ""
    if options.get("--quantization") in _AMBIGUOUS_FORMATS:
        options.pop("--quantization")
    values = values_of(tool, options) if tool in (_VLLM, _SGLANG) else {}
    cells = {name: value for name, value in design_cells(values).items() if name in ("tp", "pp", "precision")}
    if arguments.get("quantization") == "None" and arguments.get("dtype", "").endswith("bfloat16"):
        cells["precision"] = "bf16"
    if "mapping.tp" in values:
        sizes = [values.get(f"mapping.{name}", 1.0) for name in ("tp", "pp", "dp")]
        cells |= {"dp": number_text(sizes[2]), "n_gpus": number_text(sizes[0] * sizes[1] * sizes[2])}
    for name in ("memory_share", "cache_bytes"):
        if (value := values.get(f"mapping.serving.{name}", 0.0)) > 0.0:
            cells[name] = number_text(value)
    if re.fullmatch(r"0?\.\d{1,9}", arguments.get("mem_fraction_static", "")):
        cells["static_share"] = arguments["mem_fraction_static"]
    if model := next((arguments[name] for name in _MODEL if arguments.get(name)), ""):
        cells["model"] = model
    if max_tokens := next(
        (arguments[name] for name in _LENGTH if re.fullmatch(r"[1-9]\d{0,11}", arguments.get(name, ""))), ""
    ):
        cells["longest"] = max_tokens
    return {"framework": tool} | cells
