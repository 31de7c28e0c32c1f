"""Page of options: every capability by panel, with its options as each door has them.

``python -m docs.make.options docs/options.md`` writes them in place, between ``<!-- table: NAME -->`` and
``<!-- end of table -->``; the text around them is written by hand.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from docs.make.command import page_parser
from docs.make.markdown import fill, linked, publish, tight_table
from dse.reports import Capability
from dse.reports.options import REQUIRED, BoundOption
from dse.reports.registry import PANELS, capabilities

#: Type → the words of the page.
_WORDS = {
    bool: "yes or no",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "file",
    Mapping: "object",
    dict: "object",
    Sequence: "list",
    list: "list",
    Callable: "function",
    type(None): "",
}

#: What a help says of its default at its end.
_DEFAULT = re.compile(r" \[default: (.*)\](?=\.?$)")


def filled(page: str) -> str:
    """Return the page with its tables as the capabilities have them today."""
    return linked(fill(page, tables()))


def tables() -> dict[str, str]:
    """Return the tables by name."""
    made = list(capabilities().values())
    rows = [[f"`dse {one.name}`", f"`dse.{one.python}`", _door(one), _summary(one)] for one in _ordered(made)]
    names = tight_table(("command", "Python", "HTTP and MCP", "answers"), rows)
    return {"capabilities": names, "options": "\n\n".join(part for one in _ordered(made) for part in _parts(one))}


def _ordered(made: Sequence[Capability]) -> list[Capability]:
    """Return capabilities by panel, as the help has them."""
    panels = list(dict.fromkeys((*PANELS, *(one.panel for one in made))))
    return sorted(made, key=lambda one: panels.index(one.panel))


def _door(capability: Capability) -> str:
    """Return the name in HTTP and MCP, a dash where they lack the capability."""
    return "–" if capability.local else f"`{capability.key}`"


def _summary(capability: Capability) -> str:
    """Return the first sentence of the help."""
    return capability.help.partition("\n\n")[0]


def _parts(capability: Capability) -> Iterator[str]:
    """Yield the section of a capability: its help, and a table of options for each of their sections."""
    yield f"## dse {capability.name}"
    yield from (" ".join(paragraph.split()) for paragraph in capability.help.split("\n\n"))
    if capability.returns:
        yield "In Python it returns the labelled results; `.dse.report` of these is their report."
    if capability.local:
        yield f"HTTP and MCP do not have it: it {capability.local}."
    sections: dict[str, list[BoundOption]] = {}
    for parameter in capability.parameters:
        sections.setdefault(parameter.option.section, []).append(parameter)
    heads = ("command line", "Python, JSON", "type", "default", "meaning")
    heads = heads if capability.local else (*heads, "not over HTTP and MCP")
    for section, parameters in sorted(sections.items()):
        if section:
            yield f"Options of a {section}:"
        yield tight_table(heads, [_row(parameter)[: len(heads)] for parameter in parameters])


def _row(parameter: BoundOption) -> list[str]:
    """Return the cells of an option."""
    option, found = parameter.option, _DEFAULT.search(parameter.option.help)
    names = parameter.name, parameter.key
    return [
        _flag(parameter),
        ", ".join(f"`{name}`" for name in dict.fromkeys(names)),
        _type(parameter),
        found[1] if found else _defaults(parameter),
        _DEFAULT.sub("", option.help),
        parameter.reason_local,
    ]


def _flag(parameter: BoundOption) -> str:
    """Return how a command line states an option: its flags, or the word in its place."""
    option = parameter.option
    if option.is_argument:
        return f"`{option.metavar or parameter.name.upper()}`"
    flags = [*([option.short] if option.short else []), *parameter.flag.split("/")]
    return ", ".join(f"`{flag}`" for flag in flags)


def _type(parameter: BoundOption) -> str:
    """Return the words for the type of an option: its choices, or what it takes, with its limits."""
    option = parameter.option
    if "|" in option.metavar:
        return ", ".join(f"`{word}`" for word in option.metavar.split("|"))
    if parameter.type is Any:
        return "file, dataset" if option.terminal is Path else "any value"
    words = ", ".join(dict.fromkeys(filter(None, map(_word, _members(parameter.type)))))
    if option.low is None and option.high is None:
        return words
    high = "" if option.high is None else f"{option.high:,g}"
    low = "" if option.low is None else f"{option.low:,g}"
    return f"{words}, {low} to {high}" if low and high else f"{words} ≥ {low}" if low else f"{words} ≤ {high}"


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the only one."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def _word(kind: Any) -> str:
    """Return the word for a type; of an enumeration its values."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    plain = typing.get_origin(kind) or kind
    return _WORDS.get(plain, str(getattr(plain, "__name__", plain)))


def _defaults(parameter: BoundOption) -> str:
    """Return the text of the defaults that the help leaves to the declaration: in a command line, and in Python."""
    terminal, python = _default(parameter.terminal_default), _default(parameter.default)
    return terminal if python in ("", terminal) else f"{terminal}; in Python {python}"


def _default(value: Any) -> str:
    """Return the text of a default that the help leaves to the declaration."""
    if value is REQUIRED:
        return "needed"
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value.value if isinstance(value, Enum) else f"{value:g}" if isinstance(value, float) else str(value)
    return f"`{text}`"


if __name__ == "__main__":
    target: Path = page_parser(__doc__).parse_args().page
    publish(target, filled(target.read_text(encoding="utf-8")))
