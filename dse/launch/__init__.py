"""Launch lines: how the tools that run designs are told of one, and designs from such lines.

:func:`launch` gives the line of a design for a tool, with what the tool has no option for; :func:`settings` gives the
values of a design that a line states.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dse import catalog
from dse.calibrated import accelerator_of
from dse.designs import PLAIN_EXPERTS, PLAIN_MAPPING, known_leaves, leaf, leaf_path, leaves_of, short_name
from dse.errors import ELSEWHERE, InputError, plain, unknown_name
from dse.launch.engines import SGLANG, TENSORRT_LLM, VLLM
from dse.launch.maxtext import MAXTEXT
from dse.launch.megatron import MEGATRON_BRIDGE, MEGATRON_LM
from dse.launch.options import Line, Pairs, Tool, Written
from dse.launch.pytorch import DEEPSPEED, TORCHTITAN
from dse.study import Study
from dse.types import Design

TOOLS = {
    tool.name: tool
    for tool in (MEGATRON_LM, MEGATRON_BRIDGE, DEEPSPEED, TORCHTITAN, MAXTEXT, VLLM, SGLANG, TENSORRT_LLM)
}

#: Leaves that a line may be expected to tell of: the mapping, and formats of what is kept and sent.
_EXPECTED = ("mapping.", "software.moment_bytes", "software.weight_message_bytes")

#: Of training it follows from the number of processes.
_IMPLIED = {"training": ("mapping.dp",), "serving": ()}

__all__ = ["TOOLS", "Line", "Stated", "Tool", "launch", "read_arguments", "settings", "tool_of", "unfit"]


def launch(design: Design, tool: str, study: Study) -> Line:
    """The line that starts ``design`` with a tool.

    Args:
        design: the design, completed for its study.
        tool: a name of ``TOOLS``.
        study: what kind of design it is.

    Returns:
        The text, its options, and what differs from the plain values of a design without an option of the tool.

    Raises InputError for a tool that is not known, or that runs another kind of design.
    """
    found = tool_of(tool)
    if found.study != study.name:
        others = ", ".join(name for name, other in TOOLS.items() if other.study == study.name)
        raise InputError("--for", f"{tool}, a tool of {found.study}", f"one of {study.name}: {others}", "choose one")
    values = {path: float(value) for path in leaves_of(design) if (value := leaf(design, path)) is not None}
    options: Pairs = []
    told, refused = set[str](), list[str]()
    for rule in found.rules:
        pairs = rule.write(values.get)
        if pairs is None:
            if isinstance(rule, Written) and rule.tells_plain:
                refused += rule.paths
        else:
            told |= set(rule.paths)
            options += [pair for pair in pairs if pair not in options]
    usual, other = PLAIN_MAPPING | PLAIN_EXPERTS, (*study.unread, *_IMPLIED[study.name])
    unsaid = {
        path: value for path, value in values.items()
        if path.startswith(_EXPECTED) and path not in told and not path.startswith(other)
        and (path in refused or value != usual.get(path, known_leaves()[path].get("default")))
    }  # fmt: skip
    return Line(found, found.show(values.get, options), options, unsaid)


def unfit(tool: str, system: str) -> str:
    """The hardware of a system that a tool does not run on, in words; empty where it does, or nothing is known of it.

    >>> unfit("tensorrt-llm", "mi300x"), unfit("vllm", "h100")
    ('mi300x of AMD (it runs on those of NVIDIA)', '')
    """
    slug = accelerator_of(system)
    vendor, known = catalog.entry("accelerator", slug).value("vendor") if slug else None, tool_of(tool).vendors
    if not vendor or not known or vendor in known:
        return ""
    return f"{slug} of {vendor} (it runs on those of {', '.join(known)})"


def tool_of(name: str) -> Tool:
    """A tool by its name; an InputError for one that is not known."""
    if name not in TOOLS:
        raise unknown_name("--for", name, TOOLS, "tools")
    return TOOLS[name]


def settings(tool: str, arguments: str | Sequence[str]) -> dict[str, float]:
    """Values of a design that the arguments of a tool state, by their short names, for :func:`dse.design`.

    Args:
        tool: a name of ``TOOLS`` that reads arguments.
        arguments: a command line, or its words; options that say nothing of a design are passed over.

    Raises InputError for values that are none, and where no option says anything of a design.

    >>> settings("megatron-lm", "--tensor-model-parallel-size 8 --use-distributed-optimizer --lr 1e-4")["tp"]
    8.0
    """
    return read_arguments(tool, arguments).settings


#: Options that one command line may have.
_MOST_OPTIONS = 1000


class Stated(NamedTuple):
    """What arguments state."""

    settings: dict[str, float]  #: short name of a leaf → value
    strange: dict[str, str]  #: option that says nothing here → our name of what it means to other tools


def read_arguments(tool: str, arguments: str | Sequence[str]) -> Stated:
    """What the arguments of a tool state, as :func:`settings` has it, and options of theirs that other tools have."""
    known = tool_of(tool)
    given = _options(_words(arguments) if isinstance(arguments, str) else arguments, known)
    if len(given) > _MOST_OPTIONS:
        raise InputError("arguments", f"{len(given):,} options", f"at most {_MOST_OPTIONS:,}", "give one command line")
    found = _read(known, given)
    passed = [name for name in given if _read(known, {n: v for n, v in given.items() if n != name}, False) == found]
    if len(passed) == len(given):
        raise InputError(
            "arguments", "no option that tells of a design", f"options of {tool} {known.version}",
            "check the file and --for: docs/launch.md has what each tool's lines tell",
        )  # fmt: skip
    meant = {name: ELSEWHERE.get(plain(name.rpartition(".")[2]), ("",))[0] for name in passed}
    strange = {name: ours for name, ours in meant.items() if _is_of_mapping(ours) and leaf_path(ours) not in found}
    return Stated({short_name(path): value for path, value in found.items()}, strange)


def _read(tool: Tool, given: Mapping[str, str], strict: bool = True) -> dict[str, float]:
    """Path → value of what options state; InputError for what is no number, which counts as nothing if not strict."""
    found: dict[str, float] = {}
    for rule in tool.rules:
        try:
            values = rule.read(given)
            if not all(map(math.isfinite, values.values())):
                raise ValueError("a number that is none")
            found |= values
        except (ValueError, ArithmeticError) as error:
            if strict:
                paths = ", ".join(map(short_name, rule.paths))
                raise InputError("arguments", str(error), f"numbers for {paths}", "correct the option") from error
    return found


def _is_of_mapping(name: str) -> bool:
    """Whether a name means a leaf of the mapping."""
    try:
        return bool(name) and leaf_path(name).startswith("mapping.")
    except InputError:
        return False


def _words(text: str) -> list[str]:
    """The words of a command line, which may go on behind a backslash."""
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError("arguments", str(error), "words as on a command line", "close the quotation") from None


#: ``name=value`` as configurations have it, with the signs by which Hydra adds and overrides.
_ASSIGNED = re.compile(r"\+{0,2}[A-Za-z_][\w.]*=")

#: An option of one dash; a negative number is none.
_SHORT = re.compile(r"-[A-Za-z]")


def _options(words: Sequence[str], tool: Tool) -> Mapping[str, str]:
    """Option → its values, joined by spaces; "" for a switch. ``--name=value`` and ``name=value`` too."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--") or _SHORT.match(word) or _ASSIGNED.match(word):
            written, equals, value = word.lstrip("+").partition("=")
            name = _name(written, tool)
            found[name] = [value] if equals else []
        elif word in ("(", ")"):  # of a shell's list
            name = ""
        elif name:
            found[name].append(word)
    return {name: " ".join(values) for name, values in found.items()}


def _name(written: str, tool: Tool) -> str:
    """The name of an option by which the rules of a tool know it."""
    name = "--" + written[2:].replace("_", "-") if tool.dashes and written.startswith("--") else written
    return tool.aliases.get(name, name)
