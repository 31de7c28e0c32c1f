"""Words of a command line, and the options among them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Sequence
from typing import Any


def split(text: str) -> list[str]:
    """Return the words of a command line, continued by backslashes; by blanks where a quotation is open."""
    text = text.replace("\r\n", "\n").replace("\\\n", " ")
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def value_text(value: Any) -> str:
    """Return a plain value of a configuration as text, truth values in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)


#: An option: with two dashes, with one that is no sign, or ``name=value`` of configurations with Hydra's prefixes.
_OPTION = re.compile(r"--|-[A-Za-z]|\+{0,2}[A-Za-z_][\w.]*=")

#: Names of options whose value may be a program.
_TAKES_FILES = re.compile(r"plugin|file|path|script|module|entry|config|program")


def options(
    words: Sequence[str],
    entries: Container[str] = (),
    name_of: Callable[[str], str] = str,
    single: Container[str] = (),
) -> dict[str, str]:
    """Return option → its values joined by spaces, "" for a switch, in order of last occurrence.

    ``--name=value``, ``name=value`` and ``name: value`` are read too.

    Args:
        words: of a command line.
        entries: names that may be read as ``name: value``.
        name_of: gives the name of an option in the rules of a tool.
        single: options of one value, behind which words without a dash are no values.
    """
    values_by_option: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.endswith(":") and word[:-1] in entries:
            name = word[:-1]
            values_by_option[name] = []
        elif _OPTION.match(word):
            option_text, equals, value = word.lstrip("+").partition("=")
            name = name_of(option_text)
            values_by_option.pop(name, None)
            values_by_option[name] = [value] if equals else []
        elif word in ("(", ")"):  # of a shell array
            name = ""
        elif word.endswith(".py") and (values_by_option.get(name) or not _TAKES_FILES.search(name)):
            name = ""  # the program that a launcher starts
        elif name and not (name in single and values_by_option[name]):
            values_by_option[name].append(word)
    return {name: " ".join(values) for name, values in values_by_option.items()}
