"""What an engine that serves says of itself: its arguments as cells of a row, and the format of its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dse.designs import catalog
from dse.measured.profiles.run import MeasuredRun, design_cells, number_text
from dse.model import main_model, parameter_count
from dse.tools import values_of
from dse.types import Precision, Workload

#: Formats of checkpoints that may be of several recipes.
_AMBIGUOUS_FORMATS = ("compressed-tensors", "modelopt", "gptq", "awq", "gptq_marlin", "awq_marlin")

_MODEL = ("model", "model_path", "model_tag")
_COUNT = re.compile(r"[1-9]\d{0,11}", re.ASCII)
_LENGTH = ("max_seq_len", "max_model_len", "context_length", "context_len")

#: Settings of an engine that are options of its command, and those that are switches.
_SETTINGS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "gpu_memory_utilization", "kv_cache_dtype",
    "quantization", "tp_size", "pp_size", "dp_size", "ep_size", "expert_parallel_size",
)  # fmt: skip
_SWITCHES = ("enable_dp_attention", "enable_expert_parallel")

#: Setting that names the model → option.
_MODEL_OPTION = {"vllm": "--model", "sglang": "--model-path"}

#: Columns of the mapping that an engine states.
_MAPPING = ("tp", "pp", "ep", "etp")

_EXPERT_BYTES, _WEIGHT_BYTES = "mapping.serving.expert_bytes", "mapping.serving.weight_bytes"


def engine_cells(tool: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return column → text of the arguments that an engine prints, ``None`` for one that is open.

    The format of its weights is that of its quantisation, of the checkpoint's name where the checkpoint exists in one
    format alone, else 16 bits where the engine says that it quantises nothing.

    >>> engine_cells("vllm", {"model": "openai/gpt-oss-120b", "tensor_parallel_size": "2"})["precision"]
    'mxfp4'
    """
    given = {name: text for name, text in settings.items() if text not in ("None", "")}
    options = {"--" + name.replace("_", "-"): given[name] for name in _SETTINGS if name in given}
    options |= {"--" + name.replace("_", "-"): "" for name in _SWITCHES if given.get(name) == "True"}
    model = next((given[name] for name in _MODEL if name in given), "")
    if options.get("--quantization") in _AMBIGUOUS_FORMATS:
        options.pop("--quantization")
    if tool not in _MODEL_OPTION:
        return {"model": model} if model else {}
    if "--quantization" not in options and given.get("loaded_quantization"):
        options["--quantization"] = given["loaded_quantization"]
    values = values_of(tool, options | ({_MODEL_OPTION[tool]: model} if model else {}))
    cells = {name: value for name, value in design_cells(values).items() if name in _MAPPING}
    if precision := _precision_cell(values):
        cells["precision"] = precision
    elif settings.get("quantization") == "None" and given.get("dtype", "").endswith("bfloat16"):
        cells["precision"] = "bf16"
    if "mapping.tp" in values:
        tp, pp, dp = (values.get(f"mapping.{name}", 1.0) for name in ("tp", "pp", "dp"))
        cells |= {"dp": number_text(dp), "n_gpus": number_text(tp * pp * dp)}
    for name in ("memory_share", "cache_bytes"):
        if (value := values.get(f"mapping.serving.{name}", 0.0)) > 0.0:
            cells[name] = number_text(value)
    if model:
        cells["model"] = model
    if 0.0 < _number(given.get("mem_fraction_static", "")) < 1.0:
        cells["static_share"] = given["mem_fraction_static"]
    if longest := next((given[name] for name in _LENGTH if _COUNT.fullmatch(given.get(name, ""))), ""):
        cells["longest"] = longest
    return cells


def checkpoint_cells(model: str) -> dict[str, str]:
    """Return the format of a checkpoint as a cell where its name says it, {} where it exists in several.

    >>> checkpoint_cells("deepseek-ai/DeepSeek-R1"), checkpoint_cells("Qwen/Qwen3-14B")
    ({'precision': 'fp8-block'}, {})
    """
    precision = _precision_cell(values_of("vllm", {"--model": model})) if model else ""
    return {"precision": precision} if precision else {}


def _precision_cell(values: Mapping[str, float]) -> str:
    """Return the format of weights in the words of tables, "" for none: of mixtures 4 bits are those of the experts."""
    expert_bytes, weight_bytes = values.get(_EXPERT_BYTES, 0.0), values.get(_WEIGHT_BYTES, 0.0)
    if expert_bytes and expert_bytes < 1.0:
        return "mxfp4" if values.get("mapping.precision") == float(Precision.bf16) and expert_bytes < 0.54 else "int4"
    if expert_bytes or weight_bytes:
        return "w8a16" if max(expert_bytes, weight_bytes) > 0.75 else "w4a16"
    return design_cells(values).get("precision", "")


#: Bytes of a parameter with what is not quantised → format that it shows, the largest first, and bounds of that.
_BYTES = {"bf16": (1.7, 2.4), "fp8": (0.95, 1.35), "fp4": (0.45, 0.8)}
_GIB = 2.0**30


def check_weights(run: MeasuredRun) -> None:
    """Fill an open format from the bytes of a loaded parameter, in place, or remark that they belie the stated one.

    Bytes are those of a device times the devices of a replica, over the parameters of the model in the catalogue; ranks
    with attention of their own share some, and are not checked.
    """
    weights, slug = run.peaks.get("weight_memory"), catalog.find("workload", run.cells.get("model", ""))
    if weights is None or not slug or run.cells.get("dp", "1") != "1" or "tp" not in run.cells:
        return
    devices = _number(run.cells["tp"]) * _number(run.cells.get("pp", "1"))
    parameters = float(parameter_count(main_model(catalog.record(Workload, slug))))
    each = weights.value * _GIB * devices / parameters
    shown = next((name for name, (low, high) in _BYTES.items() if low <= each <= high), "")
    stated = run.cells.get("precision", "")
    if not stated and shown:
        run.cells["precision"] = shown
        run.note = f"weights of {each:.2f} B a parameter: {shown}"
    elif stated and shown and _is_belied(stated, each):
        run.note = f"weights of {each:.2f} B a parameter, which {stated} has not"


def _is_belied(precision: str, each: float) -> bool:
    """Return True where bytes of a parameter are none of a format."""
    bits = 16 if "16" in precision.partition("a")[0] else 4 if "4" in precision.partition("a")[0] else 8
    low, high = {16: _BYTES["bf16"], 8: _BYTES["fp8"], 4: _BYTES["fp4"]}[bits]
    return not 0.85 * low <= each <= 1.15 * high


def _number(text: str) -> float:
    """Return a text as a number, 0 where it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0
