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


class OptionRule(Protocol):
    """Options that tell of some leaves."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The leaves that it tells of."""

    def write(self, leaf: Lookup) -> Pairs | None:
        """Options for the values of a design; None where the tool has none for these values."""

    def read(self, given: Mapping[str, str]) -> dict[str, float]:
        """Path → value of what options say; nothing where they are not given."""


class _OfOneLeaf:
    """What rules about a single leaf share."""

    path: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The leaf alone."""
        return (self.path,)


@dataclasses.dataclass(frozen=True)
class NumberOption(_OfOneLeaf):
    """An option whose value is that of a leaf, in the tool's ``unit``; left out where it has its ``plain`` value."""

    name: str
    path: str
    plain: float | None = None
    unit: float = 1.0

    def write(self, leaf: Lookup) -> Pairs:  # noqa: D102
        value = leaf(self.path)
        return [] if value is None or value == self.plain else [(self.name, number(value / self.unit))]

    def read(self, given: Mapping[str, str]) -> dict[str, float]:  # noqa: D102
        return {self.path: float(given[self.name]) * self.unit} if self.name in given else {}


@dataclasses.dataclass(frozen=True)
class SwitchOption(_OfOneLeaf):
    """An option that is there where a leaf has the value ``on``, and absent where it has the value ``off``."""

    name: str
    path: str
    on: float = 1.0
    off: float = 0.0
    value: str = ""  #: what is written behind it, where it is no mere flag
    opposite: str = ""  #: the option for ``off``, where the tool would do otherwise without one

    def write(self, leaf: Lookup) -> Pairs | None:  # noqa: D102
        found = leaf(self.path)
        if found is None or found == self.off:
            return [] if found is None or not self.opposite else [(self.opposite, "")]
        return [(self.name, self.value)] if found == self.on else None

    def read(self, given: Mapping[str, str]) -> dict[str, float]:  # noqa: D102
        last = next((name for name in list(given)[::-1] if name in (self.name, self.opposite)), "")
        if self.opposite and last == self.opposite:
            return {self.path: self.off}
        on = given.get(self.name, "").lower() not in ("false", "0") and self.name in given
        return {self.path: self.on} if on else {}


@dataclasses.dataclass(frozen=True)
class ChoiceOption(_OfOneLeaf):
    """Options by the value of a leaf; no value without options of its own can be told."""

    path: str
    by_value: Mapping[float, Sequence[tuple[str, str]]]

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


#: What :class:`OfBytes` asks a lookup for besides leaves: bytes of weights and of the engine's own memory on a device,
#: what the device has, and weights with those of them that are kept beyond it.
WEIGHTS, RUNTIME, CAPACITY = "launch.weights", "launch.runtime", "launch.capacity"
ALL_WEIGHTS = "launch.all_weights"

#: Layers of a checkpoint that predict further tokens, as its file in the catalogue says.
DRAFT_LAYERS = "launch.draft_layers"


@dataclasses.dataclass(frozen=True)
class OfBytes(_OfOneLeaf):
    """An option for a leaf that takes the bytes of a design to be read."""

    name: str
    path: str

    def read(self, given: Mapping[str, str]) -> dict[str, float]:
        """Nothing, as no design is known: a number that is none is refused all the same."""
        if self.name in given:
            self._number(given)
        return {}

    def read_within(self, given: Mapping[str, str], leaf: Lookup) -> dict[str, float]:
        """The same for a design; where more would be taken than there is it is all of it."""
        return {self.path: min(self._share(self._number(given), leaf), 1.0)} if self.name in given else {}

    def _number(self, given: Mapping[str, str]) -> float:
        """The option's value."""
        raise NotImplementedError

    def _share(self, value: float, leaf: Lookup) -> float:
        """The leaf's value."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class OffloadedWeights(OfBytes):
    """An option for GiB of the weights of a device that are in the host's memory, where the leaf is their share."""

    def write(self, leaf: Lookup) -> Pairs | None:  # noqa: D102
        share = leaf(self.path)
        if not share:
            return []
        if leaf("system.far.capacity") is not None:
            return None
        return [(self.name, number(share * (leaf(ALL_WEIGHTS) or 0.0) / _GIB))]

    def _number(self, given: Mapping[str, str]) -> float:
        value = float(given[self.name])
        if not value >= 0.0:
            raise ValueError(f"{self.name} {given[self.name]}, which is no size in GiB")
        return value

    def _share(self, value: float, leaf: Lookup) -> float:
        return value * _GIB / (leaf(ALL_WEIGHTS) or 1.0)


_GIB = 2.0**30


@dataclasses.dataclass(frozen=True)
class MemoryShare(OfBytes):
    """An option for a share of memory that counts other bytes than a leaf, which is the share of all that is taken.

    ``of_rest``: the option is a share of what weights and the engine's own memory leave free; else it is the share of
    weights and cache without the latter. Both ways need the bytes of a design.
    """

    of_rest: bool

    def write(self, leaf: Lookup) -> Pairs | None:  # noqa: D102
        share = leaf(self.path)
        if share is None:
            return []
        taken, size = self._line(leaf)
        found = (share - taken) / size if size > 0.0 else 0.0
        return [(self.name, number(found))] if 0.0 < found <= 1.0 else None

    def _number(self, given: Mapping[str, str]) -> float:
        value = float(given[self.name])
        if not 0.0 < value <= 1.0:
            raise ValueError(f"{self.name} {given[self.name]}, which is no share")
        return value

    def _share(self, value: float, leaf: Lookup) -> float:
        taken, size = self._line(leaf)
        return taken + value * size

    def _line(self, leaf: Lookup) -> tuple[float, float]:
        """The share that is taken at an option of 0, and how much more at one of 1."""
        weights, runtime = ((leaf(name) or 0.0) / (leaf(CAPACITY) or 1.0) for name in (WEIGHTS, RUNTIME))
        taken = weights + runtime
        return (taken, 1.0 - taken) if self.of_rest else (runtime, 1.0)  # all of the rest is exactly 1


class Tool(NamedTuple):
    """A tool that runs designs."""

    name: str
    study: str  #: kind of study whose designs it runs
    version: str  #: of the documentation that its options were taken from
    source: str
    rules: tuple[OptionRule, ...]
    show: Callable[[Lookup, Pairs], str]  #: the line, or the file, that options make
    aliases: Mapping[str, str] = types.MappingProxyType({})  #: other names that the tool takes for an option
    dashes: bool = False  #: whether it reads ``--an_option`` as ``--an-option``
    vendors: tuple[str, ...] = ()  #: of the accelerators that it, or a fork by the vendor, runs on
    notes: tuple[Callable[[Lookup], str], ...] = ()  #: what a reader of a line must know besides; empty where nothing
    remarks: tuple[Callable[[Mapping[str, str]], str], ...] = ()  #: the same of options that are read
    entries: tuple[str, ...] = ()  #: of a file in YAML that it reads beside its options
    beyond: str = ""  #: what it does with sequences beyond the model's context


class Line(NamedTuple):
    """What starts a design."""

    tool: Tool
    text: str
    options: Pairs
    unsaid: dict[str, float]  #: path → value of what the tool has no option for
    notes: tuple[str, ...] = ()  #: what must be known besides to start it


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


def with_entries(command: str, option: str, file: str) -> Callable[[Lookup, Pairs], str]:
    """How a tool with flags is called that reads entries of YAML from a ``file`` behind ``option`` too."""
    call = flags(command)

    def show(leaf: Lookup, pairs: Pairs) -> str:
        entries = [f"{name}: {value}" for name, value in pairs if not name.startswith("-")]
        options = [(name, value) for name, value in pairs if name.startswith("-")]
        if not entries:
            return call(leaf, options)
        return "\n".join([f"cat > {file} <<EOF", *entries, "EOF", call(leaf, [*options, (option, file)])])

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
