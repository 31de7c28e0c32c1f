"""Launch lines: how the tools that run designs are told of one, and designs from such lines.

:func:`launch` gives the line of a design for a tool, with what the tool has no option for; :func:`settings` gives the
values of a design that a line states.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from dse.designs import PLAIN_EXPERTS, PLAIN_MAPPING, known_leaves, leaf, leaves_of, short_name
from dse.errors import InputError, unknown_name
from dse.launch.engines import SGLANG, TENSORRT_LLM, VLLM
from dse.launch.maxtext import MAXTEXT
from dse.launch.megatron import MEGATRON_BRIDGE, MEGATRON_LM
from dse.launch.options import Line, Pairs, Tool
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

__all__ = ["TOOLS", "Line", "Tool", "launch", "settings", "tool_of"]


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
    told: set[str] = set()
    for rule in found.rules:
        pairs = rule.write(values.get)
        if pairs is not None:
            told |= set(rule.paths)
            options += [pair for pair in pairs if pair not in options]
    plain, other = PLAIN_MAPPING | PLAIN_EXPERTS, (*study.unread, *_IMPLIED[study.name])
    unsaid = {
        path: value for path, value in values.items()
        if path.startswith(_EXPECTED) and path not in told and not path.startswith(other)
        and value != plain.get(path, known_leaves()[path].get("default"))
    }  # fmt: skip
    return Line(found, found.show(values.get, options), options, unsaid)


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

    >>> settings("megatron-lm", "--tensor-model-parallel-size 8 --use-distributed-optimizer --lr 1e-4")["tp"]
    8.0
    """
    given = _given(_words(arguments) if isinstance(arguments, str) else arguments)
    found: dict[str, float] = {}
    for rule in tool_of(tool).rules:
        try:
            found |= rule.read(given)
        except ValueError as error:
            paths = ", ".join(map(short_name, rule.paths))
            raise InputError("arguments", str(error), f"numbers for {paths}", "correct the option") from error
    return {short_name(path): value for path, value in found.items()}


def _words(text: str) -> list[str]:
    """The words of a command line, which may go on behind a backslash."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InputError("arguments", str(error), "words as on a command line", "close the quotation") from None


#: ``name=value`` as configurations have it.
_ASSIGNED = re.compile(r"[A-Za-z_][\w.]*=")


def _given(words: Sequence[str]) -> Mapping[str, str]:
    """Option → its values, joined by spaces; "" for a switch. ``--name=value`` and ``name=value`` too."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--") or _ASSIGNED.match(word):
            name, equals, value = word.partition("=")
            found[name] = [value] if equals else []
        elif name:
            found[name].append(word)
    return {name: " ".join(values) for name, values in found.items()}
