"""What stacks do where a design leaves it open: options, formats, costs of experts, vendors."""

from __future__ import annotations

from collections.abc import Iterable

from dse import types
from dse.designs.catalog.filling import Values, device_of, leaf_values, manufacture_values, scaled_by_level
from dse.designs.catalog.load import Folder, plain
from dse.designs.catalog.lookup import entry
from dse.designs.catalog.schema import EXPERTS_LEFT_OPEN, LEFT_OPEN
from dse.designs.catalog.stack_selection import is_mixture
from dse.types.choices import EIGHT_BITS, INT4_BYTES, NVFP4_BYTES, WEIGHTS_ALONE
from dse.types.paths import leaves


def mapping_defaults(
    name: str, where: str = "software", folder: Folder = None, zero_stage: float | None = None
) -> Values:
    """Return option → default of a stack for open options of a mapping, 0 where its file states none.

    Options that a mapping may lack, such as CUDA graphs, are left out unless the file states them.

    Args:
        name: of the stack, in the catalogue.
        where: place of the name, for errors.
        folder: a catalogue to search first.
        zero_stage: ZeRO stage of the mapping, which may decide the overlap of data-parallel messages; by default the
            stack's own.

    >>> mapping_defaults("nemo")
    {'zero_stage': 1.0, 'sequence_parallel': 1.0, 'overlap_dp': 1.0, 'overlap_tp': 1.0}
    >>> [mapping_defaults("deepspeed-zero-2021", zero_stage=stage)["overlap_dp"] for stage in (2.0, 3.0)]
    [0.0, 1.0]
    """
    stack_entry = entry("software", name, where, folder)
    options = leaves(types.Mapping)
    stated = {option: stack_entry.value(option, options[option].get("default", 0.0)) for option in LEFT_OPEN}
    values = {option: float(value) for option, value in stated.items() if value is not None}
    first_stage, stage = (
        stack_entry.value("overlap_dp_from_stage"),
        values["zero_stage"] if zero_stage is None else zero_stage,
    )
    return values | ({"overlap_dp": 1.0} if first_stage is not None and stage >= first_stage else {})


def expert_kernels(name: str, where: str = "software", folder: Folder = None) -> Values:
    """Return path in :class:`dse.types.ExpertKernels` → cost of a stack's mixtures of experts.

    >>> 0.5 < expert_kernels("megatron-core-b200")["grouped_efficiency"] <= 1.0
    True
    """
    stack_entry = entry("software", name, where, folder)
    return scaled_by_level(stack_entry, leaf_values(stack_entry, types.ExpertKernels, "experts."), "experts.")


def expert_options(name: str, where: str = "software", folder: Folder = None) -> Values:
    """Return option → default (or code) of a stack for open options of experts.

    >>> expert_options("megatron-bridge-26-02")["all_to_all"]
    2.0
    """
    stack_entry, options = entry("software", name, where, folder), leaves(types.ExpertMapping)
    return {path: float(stack_entry.value(f"experts.{path}", options[path]["default"])) for path in EXPERTS_LEFT_OPEN}


#: Leaves of the format that a model is served in.
SERVED_FORMAT = ("mapping.precision", "mapping.serving.weight_bytes", "mapping.serving.expert_bytes")


def served_format(workload: str, device: Values) -> Values:
    """Return full path → value of the format of a model's checkpoint, in which it is served by default.

    Experts in MXFP4 or INT4 are multiplied in 16 bits, and so are 8-bit and NVFP4 weights on a device without such
    products, and all weights of dense models in INT4. Bytes that the file of a workload states (``weight_bytes``,
    ``expert_bytes``) count before those that follow from its ``checkpoint``.

    Args:
        workload: slug, name or alias.
        device: full path → value of its system.

    >>> served_format("deepseek-v3", {"system.accelerator.matrix_rate.fp8": 2e15})["mapping.precision"] == 4.0
    True
    >>> served_format("gpt-oss-120b", {})["mapping.serving.expert_bytes"]
    0.53125
    """
    precision, weight_bytes, expert_bytes = types.Precision.bf16, 0.0, 0.0
    file = entry("workload", workload, "workload")
    checkpoint = file.value("checkpoint")
    generated = any(path.startswith("system.accelerator.chip.") for path in device)
    if checkpoint == types.Precision.mxfp4:
        expert_bytes = WEIGHTS_ALONE["w4a16"]
    elif checkpoint == types.Precision.int4 and is_mixture(workload):
        expert_bytes = INT4_BYTES
    elif checkpoint == types.Precision.int4:
        weight_bytes = INT4_BYTES
    elif checkpoint in EIGHT_BITS and not generated and not device.get("system.accelerator.matrix_rate.fp8"):
        weight_bytes = WEIGHTS_ALONE["w8a16"]
    elif checkpoint == types.Precision.nvfp4 and not generated and not device.get("system.accelerator.matrix_rate.fp4"):
        weight_bytes = NVFP4_BYTES
    elif checkpoint is not None:
        precision = types.Precision(int(checkpoint))
    weight_bytes, expert_bytes = file.value("weight_bytes", weight_bytes), file.value("expert_bytes", expert_bytes)
    return dict(zip(SERVED_FORMAT, (float(precision), weight_bytes, expert_bytes), strict=True))


def format_note(workloads: Iterable[str]) -> str:
    """Return the note on the formats of checkpoints that models are served in by default, "" without any."""
    checkpoints = {name: entry("workload", name, "workload").value("checkpoint") for name in dict.fromkeys(workloads)}
    texts = [f"{name} {types.choice_name(types.Precision(int(code)))}" for name, code in checkpoints.items() if code]
    return f"in the format of the checkpoint: {', '.join(texts)}; set precision for another" if texts else ""


def serving_defaults(name: str, where: str = "software", folder: Folder = None) -> Values:
    """Return path in :class:`dse.types.Serving` → default of an engine, empty for a training stack.

    Options that are absent unless an engine states them are left out.

    Args:
        name: software stack.
        where: place of the name, for errors.
        folder: catalogue to search first.

    Raises:
        InputError: for an unknown name or a faulty file.

    >>> serving_defaults("sglang")["mixed"]
    0.0
    """
    stack_entry = entry("software", name, where, folder)
    return leaf_values(stack_entry, types.Serving, "serving.") if stack_entry.states("engine") else {}


def manufacture(name: str, where: str = "system", folder: Folder = None) -> Values:
    """Return path in :class:`dse.types.Manufacture` → value: dies and price of (a system's) accelerator.

    Args:
        name: of the accelerator or system in the catalogue.
        where: place of the name, for errors.
        folder: a catalogue to search first.

    Returns:
        Path → value in SI units and USD.

    >>> manufacture("h100")["price"], manufacture("selene")["chiplets"]
    (28000.0, 1.0)
    """
    return manufacture_values(device_of(entry("system", name, where, folder), folder))


def vendor_mismatch(stack: str, system: str, folder: Folder = None) -> tuple[str, tuple[str, ...]] | None:
    """Return the vendors of a system and of a stack that does not exist for it, None where it does.

    A stack without vendors exists for all; an accelerator without one, such as a generated one, has all stacks.

    Args:
        stack: name in the catalogue.
        system: name of a system or accelerator in the catalogue.
        folder: a catalogue to search first.

    Returns:
        (vendor of the system's accelerator, vendors of the stack); None where the stack exists for that vendor.

    >>> (
    ...     vendor_mismatch("tensorrt-llm", "mi300x"),
    ...     vendor_mismatch("vllm", "mi300x"),
    ...     vendor_mismatch("tensorrt-llm", "gpu"),
    ... )
    (('AMD', ('NVIDIA',)), None, None)
    """
    device = device_of(entry("system", system, folder=folder), folder)
    vendor, vendors = device.value("vendor"), entry("software", stack, folder=folder).value("vendors", ())
    if not vendor or not vendors or plain(vendor) in map(plain, vendors):
        return None
    return vendor, vendors
