"""Rules between leaves of a design and options of a tool, written from a design and read back.

Leaves without a rule of a tool are listed next to its line.
"""

from __future__ import annotations

import dataclasses
import shlex
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

#: Reads a leaf by its full path; None where the design has no such leaf.
Lookup = Callable[[str], float | None]

#: Options with their values; "" for a switch.
Pairs = list[tuple[str, str]]


class OptionRule(Protocol):
    """Options for some leaves."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Leaves of the rule."""

    def write(self, leaf: Lookup) -> Pairs | None:
        """Options for the values of a design; None for values that the tool has no option for."""

    def read(self, given: Mapping[str, str]) -> dict[str, float]:
        """Path → value of given options; empty where none is given."""


class _OfOneLeaf:
    """Common part of rules of a single leaf."""

    path: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The leaf."""
        return (self.path,)


@dataclasses.dataclass(frozen=True)
class NumberOption(_OfOneLeaf):
    """An option with the value of a leaf in the tool's ``unit``, left out at its default, ``plain``."""

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
    """An option that is given where a leaf has the value ``on``, and left out where it has the value ``off``."""

    name: str
    path: str
    on: float = 1.0
    off: float = 0.0
    value: str = ""  #: value of the option, if it is not a mere flag
    opposite: str = ""  #: option for ``off``, where that is not the tool's default

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
    """Options by the value of a leaf; other values have no option."""

    path: str
    by_value: Mapping[float, Sequence[tuple[str, str]]]

    def write(self, leaf: Lookup) -> Pairs | None:  # noqa: D102
        value = leaf(self.path)
        if value is None:
            return []
        return list(self.by_value[value]) if value in self.by_value else None

    def read(self, given: Mapping[str, str]) -> dict[str, float]:  # noqa: D102
        matching = [
            (len(pairs), value)
            for value, pairs in self.by_value.items()
            if pairs and all(given.get(name) == text for name, text in pairs)
        ]
        return {self.path: max(matching)[1]} if matching else {}


@dataclasses.dataclass(frozen=True)
class Written:
    """Options that depend on several leaves."""

    paths: tuple[str, ...]
    write: Callable[[Lookup], Pairs | None]
    read: Callable[[Mapping[str, str]], dict[str, float]] = lambda given: {}
    writes_default: bool = False  #: whether defaults of a design are written, since the tool's own differ


#: Further values of a lookup for :class:`OfBytes`: bytes of weights and of the engine runtime on a device, capacity of
#: the device, and weights including offloaded ones.
WEIGHTS, RUNTIME, CAPACITY = "launch.weights", "launch.runtime", "launch.capacity"
ALL_WEIGHTS = "launch.all_weights"

#: Context of a model, by its file in the catalogue, and that for which the cache of a rank has room, in tokens.
CONTEXT, CACHE_TOKENS = "launch.context", "launch.cache_tokens"

#: Code of the weight format of a checkpoint, by its file in the catalogue; None for 16 bits.
CHECKPOINT = "launch.checkpoint"

#: Multi-token prediction layers of a checkpoint, by its file in the catalogue.
DRAFT_LAYERS = "launch.draft_layers"


@dataclasses.dataclass(frozen=True)
class OfBytes(_OfOneLeaf):
    """An option for a leaf that is converted by the bytes of a design."""

    name: str
    path: str

    def read(self, given: Mapping[str, str]) -> dict[str, float]:
        """Empty, without a design; invalid numbers are refused."""
        if self.name in given:
            self._number(given)
        return {}

    def read_within(self, given: Mapping[str, str], leaf: Lookup) -> dict[str, float]:
        """Path → value for a design, at most all of its bytes."""
        return {self.path: min(self._share(self._number(given), leaf), 1.0)} if self.name in given else {}

    def _number(self, given: Mapping[str, str]) -> float:
        """Value of the option."""
        raise NotImplementedError

    def _share(self, value: float, leaf: Lookup) -> float:
        """Value of the leaf."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class OffloadedWeights(OfBytes):
    """An option for the offloaded weights of a device in GiB; the leaf is their share."""

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
            raise ValueError(f"{self.name} {given[self.name]} is not a size in GiB")
        return value

    def _share(self, value: float, leaf: Lookup) -> float:
        return value * _GIB / (leaf(ALL_WEIGHTS) or 1.0)


_GIB = 2.0**30


@dataclasses.dataclass(frozen=True)
class MemoryShare(OfBytes):
    """An option for a share of memory whose bytes differ from those of the leaf, the share of all used memory.

    ``of_rest``: share of the memory left by weights and engine runtime; otherwise share of weights and cache without
    the runtime. Both need the bytes of a design.
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
            raise ValueError(f"{self.name} {given[self.name]} is not a share")
        return value

    def _share(self, value: float, leaf: Lookup) -> float:
        taken, size = self._line(leaf)
        return taken + value * size

    def _line(self, leaf: Lookup) -> tuple[float, float]:
        """Leaf value for an option of 0, and its increase for an option of 1."""
        weights, runtime = ((leaf(name) or 0.0) / (leaf(CAPACITY) or 1.0) for name in (WEIGHTS, RUNTIME))
        taken = weights + runtime
        return (taken, 1.0 - taken) if self.of_rest else (runtime, 1.0)  # an option of 1 is exactly 1


class Tool(NamedTuple):
    """A tool that runs designs."""

    name: str
    study: str  #: kind of study of its designs
    version: str  #: of the documentation of its options
    source: str
    rules: tuple[OptionRule, ...]
    show: Callable[[Lookup, Pairs], str]  #: line or file from options
    aliases: Mapping[str, str] = types.MappingProxyType({})  #: alternative names of options
    dashes: bool = False  #: whether it reads ``--an_option`` as ``--an-option``
    vendors: tuple[str, ...] = ()  #: of the supported accelerators, forks of the vendor included
    notes: tuple[Callable[[Lookup], str], ...] = ()  #: notes on a written line; "" for none
    value_comments: tuple[Callable[[Lookup], str], ...] = ()  #: comments on values of a written line
    remarks: tuple[Callable[[Mapping[str, str]], str], ...] = ()  #: remarks on read options; "" for none
    entries: tuple[str, ...] = ()  #: of an additional YAML file
    beyond: str = ""  #: treatment of sequences beyond the model's context
    roles: Mapping[str, Callable[[Lookup], Pairs]] = types.MappingProxyType({})  #: role of a pool → its options


class Line(NamedTuple):
    """Command line of a design."""

    tool: Tool
    text: str
    options: Pairs
    unsaid: dict[str, float]  #: path → value without an option of the tool
    notes: tuple[str, ...] = ()  #: further requirements
    comments: tuple[str, ...] = ()  #: what values of options are


def number(value: float) -> str:
    """A number as written on command lines.

    >>> number(4096.0), number(0.9)
    ('4096', '0.9')
    """
    return f"{value:.0f}" if value == round(value) else f"{value:.6g}"


def flags(command: str) -> Callable[[Lookup, Pairs], str]:
    """Format of tools with flags: one per line, after ``command``, which may contain ``{nodes}`` and ``{each}``."""

    def show(leaf: Lookup, pairs: Pairs) -> str:
        nodes, each = hosts(leaf)
        words = (f"{name} {_words(value)}".strip() for name, value in pairs)
        parts = [command.format(nodes=nodes, each=each), *words]
        return " \\\n    ".join(parts)

    return show


def with_entries(command: str, option: str, file: str) -> Callable[[Lookup, Pairs], str]:
    """Format of tools with flags and YAML entries in a ``file`` given by ``option``."""
    call = flags(command)

    def show(leaf: Lookup, pairs: Pairs) -> str:
        entries = [f"{name}: {value}" for name, value in pairs if not name.startswith("-")]
        options = [(name, value) for name, value in pairs if name.startswith("-")]
        if not entries:
            return call(leaf, options)
        return "\n".join([f"cat > {file} <<EOF", *entries, "EOF", call(leaf, [*options, (option, file)])])

    return show


def _words(value: str) -> str:
    """Values of an option, quoted for a shell."""
    return shlex.quote(value) if any(c in value for c in "{([*") else value


def assignments(command: str) -> Callable[[Lookup, Pairs], str]:
    """Format of tools with ``name=value``."""

    def show(leaf: Lookup, pairs: Pairs) -> str:
        nodes, each = hosts(leaf)
        words = (_words(f"{name}={value}") for name, value in pairs)
        return " \\\n    ".join([command.format(nodes=nodes, each=each), *words])

    return show


#: Accelerators per host of a system of the catalogue whose scale-up network joins several hosts.
HOST_DEVICES = "launch.host_devices"

#: Maximum accelerators per host; those of a host of a rack that the catalogue has not.
_OF_A_HOST, _OF_A_TRAY = 16, 4


def hosts(leaf: Lookup) -> tuple[int, int]:
    """Hosts of a design, and accelerators per host."""
    devices, domain = int(leaf("system.n_devices") or 1), int(leaf("system.scale_up.domain") or 1)
    each = min(devices, domain if domain <= _OF_A_HOST else int(leaf(HOST_DEVICES) or _OF_A_TRAY))
    return -(-devices // each), each
