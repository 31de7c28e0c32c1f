"""Launch lines: command lines of tools for a design, and designs from such lines.

It answers how Megatron-LM, vLLM and other tools are started for a design (:func:`launch`), what design a line, a
configuration or a manifest starts (:func:`settings`, :func:`read_arguments`), and which mappings a tool runs
(:mod:`dse.tools.runs`).

It knows the options of tools at one version each: rows of ``tables/TOOL.toml`` (option, leaf, unit, default, values),
which writing and reading share, and rules in Python for what follows from several leaves. A new option of a leaf is one
row.

Start with a table, then :mod:`dse.tools.rows`, which makes rules of it, and :mod:`dse.tools.options`, what a rule is.
"""

from __future__ import annotations

import functools
import shlex
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dse.designs import accelerator_of, all_leaves, catalog, leaf, leaf_path, leaves_of, lookup_of, short_name
from dse.designs.calibrated import context_note, context_of
from dse.designs.records import PLAIN_EXPERTS, PLAIN_MAPPING
from dse.doors import Study
from dse.equations import ScalarFunction
from dse.errors import ELSEWHERE, InputError, plain, unknown_name
from dse.tools import files, measuring, reading
from dse.tools.deepspeed import DEEPSPEED
from dse.tools.huggingface import ACCELERATE, AXOLOTL, LLAMA_FACTORY, TORCHTUNE, TRANSFORMERS, TRL
from dse.tools.maxtext import MAXTEXT
from dse.tools.measuring import benchmark_lines, router
from dse.tools.megatron import MEGATRON_LM
from dse.tools.options import (
    ALL_WEIGHTS,
    CACHE_TOKENS,
    CAPACITY,
    CHECKPOINT,
    CONTEXT,
    DRAFT_LAYERS,
    HOST_DEVICES,
    RUNTIME,
    WEIGHTS,
    CompositeOption,
    LaunchLine,
    Lookup,
    Pairs,
    Tool,
)
from dse.tools.reading import RecipeReading
from dse.tools.recipes import MEGATRON_BRIDGE, MEGATRON_DEEPSPEED, NEMO, NEMO_RL, NEMO_RUN, PRIMUS
from dse.tools.rule_names import option_names, read_options
from dse.tools.sglang import SGLANG
from dse.tools.statuses import DEFAULT, STATED
from dse.tools.tensorrt_llm import TENSORRT_LLM
from dse.tools.torchtitan import TORCHTITAN
from dse.tools.vllm import VLLM
from dse.types import Design, Engine, Requests, Scalar, Serving

TOOLS = {
    tool.name: tool
    for tool in (
        MEGATRON_LM,
        MEGATRON_BRIDGE,
        NEMO,
        NEMO_RUN,
        NEMO_RL,
        PRIMUS,
        MEGATRON_DEEPSPEED,
        DEEPSPEED,
        TORCHTITAN,
        MAXTEXT,
        TRANSFORMERS,
        TRL,
        ACCELERATE,
        AXOLOTL,
        LLAMA_FACTORY,
        TORCHTUNE,
        VLLM,
        SGLANG,
        TENSORRT_LLM,
    )
}

#: Leaves that a line should state: the mapping, and formats of stored and sent tensors.
_EXPECTED_PATHS = ("mapping.", "software.moment_bytes", "software.weight_message_bytes", "software.parameter_bytes")

#: Neutral values of absent records whose own defaults are not neutral.
_NEUTRAL_WITHOUT_RECORD = {"mapping.nano.nano_batches": 1.0}

#: For training it follows from the number of processes.
_IMPLIED_PATHS = {"training": ("mapping.dp",), "serving": ()}

__all__ = [
    "TOOLS",
    "ArgumentValues",
    "LaunchLine",
    "RecipeReading",
    "Tool",
    "benchmark_lines",
    "design_lookup",
    "launch",
    "measuring",
    "option_names",
    "read_arguments",
    "read_files",
    "router",
    "tool_of",
    "values_of",
]  # fmt: skip


def launch(
    design: Design,
    tool: str,
    study: Study,
    workload: str = "",
    software: str = "",
    role: str = "",
    form: str = "line",
    system: str = "",
) -> LaunchLine:
    """Return the command line, or the text of another file, that runs ``design`` with a tool.

    Args:
        design: the design, completed for its study.
        tool: a name of ``TOOLS``.
        study: kind of the design.
        workload: name of its model in the catalogue; "" if unknown.
        software: name of its stack in the catalogue; "" if unknown.
        role: of a pool of an engine, ``prefill`` or ``decode``; "" for one that does both.
        form: of its text: ``line``, or a name of :data:`dse.tools.files.FORMS`.
        system: name of its system in the catalogue, with the devices of its hosts and their maker; "" if unknown.

    Returns:
        Text, options, values of the design other than the defaults without an option of the tool, and notes.

    Raises:
        InputError: for an unknown tool, role or form or tool of another kind of design, and for a fractional number of
            drafts.

    >>> import dse
    >>> from dse.doors.study_training import TRAINING
    >>> line = launch(dse.design("gpt-3-13b", "selene", tp=8, recompute="full"), "megatron-lm", TRAINING)
    >>> ("--tensor-model-parallel-size", "8") in line.options
    True
    """
    target = tool_of(tool)
    if target.study != study.name:
        tool_names = ", ".join(name for name, other in TOOLS.items() if other.study == study.name)
        raise InputError(
            "--for", f"{tool}, a tool of {target.study}", f"one of {study.name}: {tool_names}", "choose one"
        )
    if target.reads_only:
        raise InputError(
            "--for", f"{tool}, which is read, not written", "the tool of the program", "--for transformers"
        )
    values = _leaf_values(design)
    lookup = _lookup(design, values, workload, system)
    options: Pairs = []
    written_paths, refused_paths = set[str](), list[str]()
    for rule in target.rules:
        pairs = rule.write(lookup)
        if pairs is None:
            if isinstance(rule, CompositeOption) and rule.writes_default:
                refused_paths += rule.paths
        else:
            written_paths |= set(rule.paths)
            options += [pair for pair in pairs if pair not in options]
    if role:
        options += _role(target, role)(lookup)
    other = (*study.ignored_leaves, *_IMPLIED_PATHS[study.name])
    unsupported = {
        path: value
        for path, value in values.items()
        if path.startswith(_EXPECTED_PATHS)
        and path not in written_paths
        and not path.startswith(other)
        and (path in refused_paths or value not in _plain_values(path))
    }
    notes = (*(note(lookup) for note in target.notes), *_notes_of(target, design, workload, software))
    comments = tuple(comment(lookup) for comment in target.value_comments)
    if form == "line":
        text = target.show(lookup, options)
    else:
        text = files.write(form, target, lookup, options, role, _vendor(system) if system else "")
        notes = (*notes, files.note(form))
    return LaunchLine(target, text, options, unsupported, tuple(filter(None, notes)), comments)


def _host_devices(system: str) -> float | None:
    """Return the number of devices of a host as the system or its accelerator states it, else None."""
    host_devices = catalog.entry("system", system).value("devices_per_host")
    return host_devices or catalog.entry("accelerator", accelerator_of(system)).value("node.devices_per_host")


def _vendor(system: str) -> str:
    """Return the vendor of the accelerators of a system (any name), "" where it is unknown."""
    slug = accelerator_of(system)
    return str(catalog.entry("accelerator", slug).value("vendor") or "") if slug else ""


def _role(tool: Tool, role: str) -> Callable[[Lookup], Pairs]:
    """Return the function (leaves → options) of a role of a pool; InputError for a role that the tool lacks."""
    if role not in tool.roles:
        tool_names = ", ".join(name for name, other in TOOLS.items() if other.roles)
        raise InputError("--role", f"{role} of {tool.name}", f"prefill, decode; of {tool_names}", "choose one of these")
    return tool.roles[role]


def _plain_values(path: str) -> tuple[float | None, float | None]:
    """Return the two values of a leaf that need no option: its default, and the one equal to its absence.

    None where there is none.
    """
    metadata, defaults = all_leaves()[path], PLAIN_MAPPING | PLAIN_EXPERTS | _NEUTRAL_WITHOUT_RECORD
    return defaults.get(path, metadata.get("default")), metadata.get("absent")


def _leaf_values(design: Design) -> dict[str, float]:
    """Return full path → value of the leaves of a design, without absent ones."""
    return {path: float(value) for path in leaves_of(design) if (value := leaf(design, path)) is not None}


def _lookup(design: Design, values: Mapping[str, float], workload: str = "", system: str = "") -> Lookup:
    """Return the function from a leaf's path, or a name of the rules, to its number, None where there is none."""

    @functools.cache
    def computed() -> dict[str, float]:
        return {name: float(value) for name, value in zip(_BYTE_NAMES, _bytes(design)[0], strict=True)}

    def lookup(path: str) -> float | None:
        if path == DRAFT_LAYERS:
            return catalog.entry("workload", workload).value("draft_layers") if workload else None
        if path == HOST_DEVICES:
            return _host_devices(system) if system else None
        if path == CONTEXT:
            return context_of(workload) if workload else None
        if path == CHECKPOINT:
            return catalog.entry("workload", workload).value("checkpoint") if workload else None
        return computed()[path] if path in _BYTE_NAMES else values.get(path)

    return lookup


#: Byte values of the rules, in the order of :func:`_memory`.
_BYTE_NAMES = (WEIGHTS, RUNTIME, CAPACITY, ALL_WEIGHTS, CACHE_TOKENS)


def _memory(design: Design) -> tuple[tuple[Scalar, ...], None]:
    """Return (bytes of the most loaded device, in parts; tokens that its cache holds of one sequence), and None.

    The bytes are those of weights, of the engine's runtime, of the memory, and of weights with offloaded ones; then the
    tokens. The sequence counts as requests do in the mean: their length times the bytes of a token.
    """
    import jax.numpy as jnp

    from dse.model import cache_bytes, generated, kv_capacity, stage_of, weight_bytes

    generated_design = generated(design)
    serving, engine = generated_design.mapping.serving or Serving(), generated_design.software.engine or Engine()
    stage = stage_of(generated_design)
    requests = generated_design.workload.requests or Requests()
    kv = kv_capacity(stage, requests, serving, engine)
    weights = weight_bytes(stage.design, stage.layout, serving)
    request_tokens = requests.prompt_tokens + requests.output_tokens
    cache_capacity = kv.sequences * kv.bytes_per_sequence + kv.prefix
    tokens = (
        cache_capacity
        * request_tokens
        / jnp.maximum(stage.layout.layers * cache_bytes(stage.design, serving, request_tokens), 1.0)
    )
    return (kv.weights, kv.runtime, generated_design.system.accelerator.memory.capacity, weights, tokens), None


_bytes = ScalarFunction(_memory, "launch bytes")


def _notes_of(tool: Tool, design: Design, workload: str, software: str) -> tuple[str, ...]:
    """Return the notes on a line for an engine that follow from the names of model and stack; "" where one is void."""
    if tool.study != "serving":
        return ()
    context = context_note(workload, lookup_of(design, {})) if workload else ""
    stack = catalog.resolve("software", software) if software else tool.name
    other = (
        f"the design is of the stack {stack}, and so are its values: --software {tool.name} has those of {tool.name}"
    )
    if tool.name in stack:
        other = ""
    return ": ".join(filter(None, [context, tool.texts.get("long_sequences", "")])) if context else "", other


def unsupported_hardware(tool: str, system: str) -> str:
    """Return the hardware of a system that a tool does not support as text, "" where it does.

    Args:
        tool: a name of ``TOOLS``.
        system: name of the system or accelerator in the catalogue.

    Returns:
        Hardware and vendor; "" where it is supported, or unknown.

    >>> unsupported_hardware("tensorrt-llm", "mi300x"), unsupported_hardware("vllm", "h100")
    ('mi300x of AMD (it runs on those of NVIDIA)', '')
    """
    vendor, vendors = _vendor(system), tool_of(tool).vendors
    if not vendor or not vendors or vendor in vendors:
        return ""
    return f"{accelerator_of(system)} of {vendor} (it runs on those of {', '.join(vendors)})"


def tool_of(name: str) -> Tool:
    """Return the tool of a name.

    Args:
        name: one of ``TOOLS``.

    Returns:
        The tool: its options, the format of its line, its hardware.

    Raises:
        InputError: for an unknown name.

    >>> tool_of("vllm").study
    'serving'
    """
    if name not in TOOLS:
        raise unknown_name("--for", name, TOOLS, "tools")
    return TOOLS[name]


def settings(tool: str, arguments: str | Sequence[str], within: Design | None = None) -> dict[str, float]:
    """Return short name of a leaf → value in SI units that the arguments of a tool state, for :func:`dse.design`.

    Args:
        tool: a name of ``TOOLS`` that reads arguments.
        arguments: a command line, or its words; other options are ignored (:func:`read_arguments` lists them).
        within: the design that receives the values; without it, shares of memory that depend on its weights are left
            out.

    Returns:
        Short name of a leaf → its value in SI units.

    Raises:
        InputError: for invalid values, and where no option states anything of a design.

    >>> settings("megatron-lm", "--tensor-model-parallel-size 8 --use-distributed-optimizer --lr 1e-4")["tp"]
    8.0
    """
    return read_arguments(tool, arguments, within).settings


class ArgumentValues(NamedTuple):
    """Values of a design that arguments state."""

    settings: dict[str, float]  #: short name of a leaf → value
    foreign_options: dict[str, str]  #: option of another tool → name of its leaf here
    design_dependent: tuple[str, ...] = ()  #: options that need the bytes of a design, without one
    notes: tuple[str, ...] = ()  #: options that are read differently
    unread: tuple[str, ...] = ()  #: options without a leaf, or not supported
    defaults: Mapping[str, float] = types.MappingProxyType({})  #: short name → value by default of the tool


def read_arguments(
    tool: str,
    arguments: str | Sequence[str],
    within: Design | None = None,
    workload: str = "",
    system: str = "",
    n_devices: int | None = None,
    role: str = "",
) -> ArgumentValues:
    """Return the values that the arguments of a tool state, as :func:`settings` does, with its unread options.

    Args:
        tool: a name of ``TOOLS`` that reads arguments.
        arguments: a command line, or its words; or the text of a configuration or a manifest.
        within: as of :func:`settings`.
        workload: name of the model in the catalogue; "" if unknown.
        system: name of the system or accelerator; "" if unknown.
        n_devices: number of devices; None if unknown.
        role: of a pool of an engine; "" for one that does both.

    Returns:
        Values by short name, options of other tools with names here, options that need a design, remarks, and options
        without a leaf.

    Raises:
        InputError: for invalid values, and where no option states anything of a design.

    >>> values = read_arguments("vllm", "vllm serve model --tensor-parallel-size 8 --seed 1")
    >>> values.settings, values.unread
    ({'tp': 8.0}, ('--seed',))
    """
    text = arguments if isinstance(arguments, str) else shlex.join(arguments)
    tool_of(tool)
    read = reading.read({"arguments": text}, TOOLS, tool, workload, system, n_devices, role, has_model=not workload)
    values = read.shape | read.values | ({} if within is None else read.shares(design_lookup(within)))
    stated = {short_name(path): value for path, value in values.items() if path in read.stated}
    defaults = {short_name(path): value for path, value in values.items() if path not in read.stated}
    options = {option.option: option for option in read.options if option.status != DEFAULT}
    dependent = read.design_dependent if within is None else ()
    notes = (*read.notes, *(f"{name} is left out: {_NEEDS_BYTES}" for name in dependent if name in options))
    named = [name for name, option in options.items() if option.status == STATED and option.moves]
    silent = [n for n, option in options.items() if not option.leaves and n not in (*named, *read.design_dependent)]
    own = option_names(read.tool)
    foreign = {name: leaf_name for name in silent if name not in own and (leaf_name := _foreign_leaf(name))}
    unread = [name for name in silent if name not in foreign and not any(name in note for note in notes)]
    return ArgumentValues(stated, foreign, dependent, notes, tuple(unread), defaults)


def _foreign_leaf(option: str) -> str:
    """Return the leaf of the mapping that an option has in other tools, "" for none."""
    leaf_name = ELSEWHERE.get(plain(option.rpartition(".")[2]), ("",))[0]
    return leaf_name if _is_of_mapping(leaf_name) else ""


def read_files(
    texts: Mapping[str, str],
    tool: str = "",
    workload: str = "",
    system: str = "",
    n_devices: int | None = None,
    role: str = "",
    has_model: bool = False,
) -> RecipeReading:
    """Return the design that recipes, launch scripts, manifests and configurations state.

    Args:
        texts: name of a file → its text; a later file counts before an earlier one.
        tool: a name of ``TOOLS``; "" for the one that is recognised.
        workload: name of the model in the catalogue; "" for the one that the files name.
        system: name of the system or accelerator; "" for the one that the files name.
        n_devices: number of devices; None for the one that the files state.
        role: of a pool of an engine, ``prefill`` or ``decode``; "" for the only one.
        has_model: whether something else says the model.

    Returns:
        Tool, model, chip, devices, values by path, and what each option was read as.

    Raises:
        InputError: for files of no tool, invalid values, and values that contradict one another.

    >>> reading = read_files({"serve.sh": "TP=8; vllm serve Qwen/Qwen3-8B -tp $TP --seed 1"})
    >>> reading.tool.name, reading.workload, reading.settings["tp"]
    ('vllm', 'qwen3-8b', 8.0)
    """
    if tool:
        tool_of(tool)
    result = reading.read(texts, TOOLS, tool, workload, system, n_devices, role, has_model)
    reading.check(result, ", ".join(texts))
    return result


def design_lookup(design: Design, workload: str = "", system: str = "") -> Lookup:
    """Return the function from a leaf's path, or a name of the rules, to its number in a design.

    Args:
        design: complete for its study.
        workload: name of its model in the catalogue; "" if unknown.
        system: name of its system; "" if unknown.

    Returns:
        The function; it gives None for what the design does not have.
    """
    return _lookup(design, _leaf_values(design), workload, system)


def values_of(tool: str, options: Mapping[str, str]) -> dict[str, float]:
    """Return path of a leaf → value that options state under their names in the rules of a tool.

    Args:
        tool: a name of ``TOOLS``.
        options: option → its value, "" for a switch.

    Returns:
        Path of a leaf → value; without those of which the value is no number.

    >>> values_of("megatron-lm", {"--micro-batch-size": "2", "--sequence-parallel": ""})["mapping.micro_batch"]
    2.0
    """
    return read_options(tool_of(tool), options, strict=False)


#: Reason not to read a share of memory without a design.
_NEEDS_BYTES = "the share that it means depends on the bytes of a design"


def _is_of_mapping(name: str) -> bool:
    """True for the name of a leaf of the mapping, False for an unknown name."""
    try:
        return bool(name) and leaf_path(name).startswith("mapping.")
    except InputError:
        return False
