"""Words of a command line, and the options among them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from dse.errors import InputError
from dse.tools.options import Tool


def split(text: str | Sequence[str]) -> list[str]:
    """Return the words of a command line, continued by backslashes; a list is returned as it is.

    Raises:
        InputError: for an open quotation.
    """
    if not isinstance(text, str):
        return list(text)
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError("arguments", str(error), "words as on a command line", "close the quotation") from None


#: ``name=value`` of configurations, with Hydra's prefixes.
_ASSIGNED = re.compile(r"\+{0,2}[A-Za-z_][\w.]*=")

#: An option with one dash, not a negative number.
_SHORT = re.compile(r"-[A-Za-z]")


def options(words: Sequence[str], tool: Tool) -> Mapping[str, str]:
    """Return option → its values joined by spaces, "" for a switch, in order of last occurrence.

    ``--name=value``, ``name=value`` and ``name: value`` are read too.

    Args:
        words: of a command line.
        tool: whose names of options count.
    """
    values_by_option: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.endswith(":") and word[:-1] in tool.entries:
            name = word[:-1]
            values_by_option[name] = []
            continue
        if word.startswith("--") or _SHORT.match(word) or _ASSIGNED.match(word):
            option_text, equals, value = word.lstrip("+").partition("=")
            name = _name(option_text, tool)
            values_by_option.pop(name, None)
            values_by_option[name] = [value] if equals else []
        elif word in ("(", ")"):  # of a shell array
            name = ""
        elif name:
            values_by_option[name].append(word)
    return {name: " ".join(values) for name, values in values_by_option.items()}


def _name(option_text: str, tool: Tool) -> str:
    """Return the name of an option in the rules of a tool."""
    name = "--" + option_text[2:].replace("_", "-") if tool.dashes and option_text.startswith("--") else option_text
    return tool.aliases.get(name, name)
