"""How a tool is told of a design: options beside leaves, written from a design and read back.

A rule says which leaves it tells of. What no rule of a tool tells of is listed beside the line, never dropped.
"""

from __future__ import annotations

import dataclasses
import shlex
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

#: Reads a leaf by its full path; None where the design has no such leaf.
Lookup = Callable[[str], float | None]

#: Options with their values; "" for a switch that is on.
Pairs = list[tuple[str, str]]


class Rule(Protocol):
    """Options that tell of some leaves."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The leaves that it tells of."""

    def write(self, leaf: Lookup) -> Pairs | None:
        """Options for the values of a design; None where the tool has none for these values."""

    def read(self, given: Mapping[str, str]) -> dict[str, float]:
        """Path → value of what options say; nothing where they are not given."""


@dataclasses.dataclass(frozen=True)
class Number:
    """An option whose value is that of a leaf, in the tool's ``unit``; left out where it has its ``plain`` value."""

    name: str
    path: str
    plain: float | None = None
    unit: float = 1.0

    @property
    def paths(self) -> tuple[str, ...]:  # noqa: D102
        return (self.path,)

    def write(self, leaf: Lookup) -> Pairs:  # noqa: D102
        value = leaf(self.path)
        return [] if value is None or value == self.plain else [(self.name, number(value / self.unit))]

    def read(self, given: Mapping[str, str]) -> dict[str, float]:  # noqa: D102
        return {self.path: float(given[self.name]) * self.unit} if self.name in given else {}


@dataclasses.dataclass(frozen=True)
class Switch:
    """An option that is there where a leaf has the value ``on``, and absent where it has the value ``off``."""

    name: str
    path: str
    on: float = 1.0
    off: float = 0.0
    value: str = ""  #: what is written behind it, where it is no mere flag

    @property
    def paths(self) -> tuple[str, ...]:  # noqa: D102
        return (self.path,)

    def write(self, leaf: Lookup) -> Pairs | None:  # noqa: D102
        found = leaf(self.path)
        if found is None or found == self.off:
            return []
        return [(self.name, self.value)] if found == self.on else None

    def read(self, given: Mapping[str, str]) -> dict[str, float]:  # noqa: D102
        on = given.get(self.name, "").lower() not in ("false", "0") and self.name in given
        return {self.path: self.on} if on else {}


@dataclasses.dataclass(frozen=True)
class Choice:
    """Options by the value of a leaf; no value without options of its own can be told."""

    path: str
    by_value: Mapping[float, Sequence[tuple[str, str]]]

    @property
    def paths(self) -> tuple[str, ...]:  # noqa: D102
        return (self.path,)

    def write(self, leaf: Lookup) -> Pairs | None:  # noqa: D102
        value = leaf(self.path)
        if value is None:
            return []
        return list(self.by_value[value]) if value in self.by_value else None

    def read(self, given: Mapping[str, str]) -> dict[str, float]:  # noqa: D102
        told = [
            (len(pairs), value) for value, pairs in self.by_value.items()
            if pairs and all(given.get(name) == text for name, text in pairs)
        ]  # fmt: skip
        return {self.path: max(told)[1]} if told else {}


@dataclasses.dataclass(frozen=True)
class Written:
    """Options that follow from several leaves."""

    paths: tuple[str, ...]
    write: Callable[[Lookup], Pairs | None]
    read: Callable[[Mapping[str, str]], dict[str, float]] = lambda given: {}
    tells_plain: bool = False  #: whether plain values are told too where the tool would do something else


class Tool(NamedTuple):
    """A tool that runs designs."""

    name: str
    study: str  #: kind of study whose designs it runs
    version: str  #: of the documentation that its options were taken from
    source: str
    rules: tuple[Rule, ...]
    show: Callable[[Lookup, Pairs], str]  #: the line, or the file, that options make
    aliases: Mapping[str, str] = types.MappingProxyType({})  #: other names that the tool takes for an option
    dashes: bool = False  #: whether it reads ``--an_option`` as ``--an-option``
    vendors: tuple[str, ...] = ()  #: of the accelerators that it, or a fork by the vendor, runs on


class Line(NamedTuple):
    """What starts a design."""

    tool: Tool
    text: str
    options: Pairs
    unsaid: dict[str, float]  #: path → value of what the tool has no option for


def number(value: float) -> str:
    """A number as command lines have it.

    >>> number(4096.0), number(0.9)
    ('4096', '0.9')
    """
    return f"{value:.0f}" if value == round(value) else f"{value:.6g}"


def flags(command: str) -> Callable[[Lookup, Pairs], str]:
    """How tools with flags are called: one a line, behind ``command``, which may name ``{nodes}`` and ``{each}``."""

    def show(leaf: Lookup, pairs: Pairs) -> str:
        nodes, each = hosts(leaf)
        words = (f"{name} {_words(value)}".strip() for name, value in pairs)
        parts = [command.format(nodes=nodes, each=each), *words]
        return " \\\n    ".join(parts)

    return show


def _words(value: str) -> str:
    """The values of an option as a shell takes them."""
    return shlex.quote(value) if any(c in value for c in "{([*") else value


def assignments(command: str) -> Callable[[Lookup, Pairs], str]:
    """How tools with ``name=value`` are called."""

    def show(leaf: Lookup, pairs: Pairs) -> str:
        nodes, each = hosts(leaf)
        words = (_words(f"{name}={value}") for name, value in pairs)
        return " \\\n    ".join([command.format(nodes=nodes, each=each), *words])

    return show


#: Accelerators of a host whose scale-up domain is larger than any host: a tray of an NVL72 rack has four.
_OF_A_TRAY = 4

#: The most accelerators that one host has.
_OF_A_HOST = 16


def hosts(leaf: Lookup) -> tuple[int, int]:
    """Hosts of a design and accelerators of each."""
    devices, domain = int(leaf("system.n_devices") or 1), int(leaf("system.scale_up.domain") or 1)
    each = min(devices, domain if domain <= _OF_A_HOST else _OF_A_TRAY)
    return -(-devices // each), each
