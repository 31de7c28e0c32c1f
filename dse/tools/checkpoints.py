"""Formats of the weights of served models: what a quantisation option, or the name of a checkpoint, says of them.

The table ``tables/checkpoints.toml`` has formats with their leaves, options of engines, and patterns of names.
"""

from __future__ import annotations

import fnmatch

from dse.designs import catalog
from dse.designs.leaves import leaf_value
from dse.tools.rows import table

#: Column of a format → leaf.
_LEAVES = {
    "precision": "mapping.precision",
    "weight_bytes": "mapping.serving.weight_bytes",
    "expert_bytes": "mapping.serving.expert_bytes",
}


def option_format(text: str, table_name: str = "options") -> str:
    """Return the format that a quantisation option states, "" for one that leaves it to the checkpoint.

    Args:
        text: of the option.
        table_name: ``options``, or ``fallbacks`` for those whose checkpoint does not say its format.

    >>> option_format("awq_marlin"), option_format("compressed-tensors")
    ('w4a16', '')
    """
    name = text.strip().lower()
    formats: dict[str, str] = table("checkpoints")[table_name]
    return formats.get(name) or formats.get(name.partition("-")[0], "")


def model_format(model: str) -> str:
    """Return the format that the name of a checkpoint states, "" for one that states none.

    >>> (
    ...     model_format("nvidia/DeepSeek-R1-0528-NVFP4"),
    ...     model_format("Qwen/Qwen3-32B-FP8"),
    ...     model_format("Qwen/Qwen3-32B"),
    ... )
    ('nvfp4', 'fp8-block', '')
    """
    name = model.strip().lower().rstrip("/")
    patterns: dict[str, str] = table("checkpoints")["models"]
    return next((form for pattern, form in patterns.items() if fnmatch.fnmatchcase(name, pattern)), "")


#: Formats of 8-bit floating point whose scales a checkpoint says, and not an option.
FP8_FORMATS = ("fp8", "fp8-row", "fp8-block")

#: Format → that of the same weights, widened, on an accelerator without such products.
_WIDENED = {
    **dict.fromkeys(FP8_FORMATS, ("w8a16", "fp8")),
    "mxfp8": ("w8a16", "fp8"),
    "nvfp4": ("nvfp4a16", "fp4"),
    "mxfp4": ("w4a16", "fp4"),
}


def format_leaves(form: str, chip: str = "", is_half: bool = False) -> dict[str, float]:
    """Return path of a leaf → value of a format: products, and bytes of stored weights; empty for "".

    Args:
        form: name of a format.
        chip: accelerator in the catalogue; one without the products of the format widens its weights. "" if unknown.
        is_half: whether 16-bit products are those of fp16.

    >>> format_leaves("fp8"), format_leaves("fp8", "a100-sxm-80gb")
    ({'mapping.precision': 4.0}, {'mapping.precision': 2.0, 'mapping.serving.weight_bytes': 1.0})
    """
    widened, rate = _WIDENED.get(form, ("", ""))
    if widened and chip and not catalog.entry("accelerator", chip).value(f"matrix_rate.{rate}"):
        form = widened
    row = table("checkpoints")["formats"].get(form, {})
    if is_half and row.get("precision", "bf16") == "bf16":
        row = {**row, "precision": "fp16"}
    return {_LEAVES[column]: leaf_value(_LEAVES[column], value) for column, value in row.items()}
