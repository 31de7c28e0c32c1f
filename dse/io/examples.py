"""Included specifications: ``example:NAME`` is accepted wherever the path of a file is.

They are in the folder ``sweeps``, inside the installed package, or next to it in a checkout. Each begins with its
question, its result, and its command.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from pathlib import Path
from typing import NamedTuple

from dse.errors import unknown_name
from dse.io import inputs, toml
from dse.io.files import distribution_folder

#: Prefix of an example in place of a path.
PREFIX = "example:"

#: Section of a document → the command that takes it; others are run.
_COMMANDS = {"codesign": "search", "search": "search", "pools": "pools"}


class Example(NamedTuple):
    """An included specification."""

    name: str
    asks: str  #: its question, in one line
    command: str  #: its command

    @property
    def file(self) -> Path:
        """Path of its TOML file."""
        return _folder() / f"{self.name}.toml"


def names() -> list[str]:
    """Return the names of all examples, without ``.toml``, sorted.

    >>> "megatron_1t_4096_a100" in names()
    True
    """
    return sorted(file.stem for file in _folder().glob("*.toml"))


def all_examples() -> list[Example]:
    """Return all examples, sorted by name.

    >>> next(example.command for example in all_examples() if example.name == "splitwise_pools")
    'dse pools example:splitwise_pools'
    """
    return [_read_example(name) for name in names()]


def find_example(name: str) -> Example:
    """Return the example of a name.

    Args:
        name: with or without ``example:`` and ``.toml``.

    Raises:
        InputError: for an unknown name.
    """
    plain = name.removeprefix(PREFIX).removesuffix(".toml")
    if plain not in names():
        raise unknown_name(PREFIX.rstrip(":"), plain, names(), "examples", "dse examples")
    return _read_example(plain)


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of ``example:NAME`` in the package, any other path as it is.

    Raises:
        InputError: for an unknown example.

    >>> resolve_path("example:long_context").name, resolve_path("mine.toml").name
    ('long_context.toml', 'mine.toml')
    """
    return find_example(os.fspath(path)).file if os.fspath(path).startswith(PREFIX) else Path(path)


def stem_of(file: str) -> str:
    """Return the default name of the results of a specification: its file name without folder and ending.

    >>> stem_of("sweeps/long_context.toml"), stem_of("example:long_context")
    ('long_context', 'long_context')
    """
    return Path(file.removeprefix(PREFIX)).stem


def _folder() -> Path:
    """Return the folder of the examples."""
    return distribution_folder("sweeps")


@functools.cache
def _read_example(name: str) -> Example:
    """Return the example of a name, its question and command from the comments at the head of its file."""
    text = inputs.text(_folder() / f"{name}.toml", "a TOML file")
    document = toml.parse(text, f"{name}.toml")
    head = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    lines = [line[1:].strip() for line in head]
    question = re.match(r"([^.?:]|\.\d){1,110}\?", " ".join(lines))
    commands, path = (line.partition("  #")[0] for line in lines if line.startswith("dse ")), f"sweeps/{name}.toml"
    kind = next((command for section, command in _COMMANDS.items() if section in document), "run")
    command = next((line for line in commands if path in line), f"dse {kind} {path}").replace(path, PREFIX + name)
    return Example(name, question[0] if question else str(document.get("title", name)), command)
