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
    """Rule between some leaves of a design and options of a tool."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Full paths of the leaves of the rule."""

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the options for the values of a design, empty at defaults, None for values without an option."""

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → value of the options of the rule, empty where ``options`` has none of them."""


class _LeafOption:
    """Common part of the rules of a single leaf."""

    path: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Full path of the leaf, alone."""
        return (self.path,)


@dataclasses.dataclass(frozen=True)
class NumberOption(_LeafOption):
    """Option with the value of a leaf in the tool's ``unit``, left out at the tool's ``default``."""

    name: str
    path: str
    default: float | None = None
    unit: float = 1.0

    def write(self, leaf: Lookup) -> Pairs:
        """Return the option, empty for an absent leaf and at the tool's default."""
        value = leaf(self.path)
        return [] if value is None or value == self.default else [(self.name, number(value / self.unit))]

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → value in SI units; ValueError for a text that is no number."""
        return {self.path: float(options[self.name]) * self.unit} if self.name in options else {}


@dataclasses.dataclass(frozen=True)
class SwitchOption(_LeafOption):
    """Option that is present where a leaf has the value ``on``, and left out where it has the value ``off``."""

    name: str
    path: str
    on: float = 1.0
    off: float = 0.0
    value: str = ""  #: value of the option, if it is not a mere flag
    opposite: str = ""  #: option for ``off``, where that is not the tool's default

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the option at ``on``, ``opposite`` or nothing at ``off``, None at any other value.

        Nothing for an absent leaf.
        """
        leaf_value = leaf(self.path)
        if leaf_value is None or leaf_value == self.off:
            return [] if leaf_value is None or not self.opposite else [(self.opposite, "")]
        return [(self.name, self.value)] if leaf_value == self.on else None

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → ``on`` or ``off`` by the last of the two options, empty for none and for "false"."""
        last_name = next((name for name in list(options)[::-1] if name in (self.name, self.opposite)), "")
        if self.opposite and last_name == self.opposite:
            return {self.path: self.off}
        is_on = options.get(self.name, "").lower() not in ("false", "0") and self.name in options
        return {self.path: self.on} if is_on else {}


@dataclasses.dataclass(frozen=True)
class ChoiceOption(_LeafOption):
    """Options by the value of a leaf; other values have no option."""

    path: str
    options_by_value: Mapping[float, Sequence[tuple[str, str]]]

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the options of the leaf's value, None for a value without an entry."""
        value = leaf(self.path)
        if value is None:
            return []
        return list(self.options_by_value[value]) if value in self.options_by_value else None

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → value of the most options that are all present, empty for none."""
        matching = [
            (len(pairs), value)
            for value, pairs in self.options_by_value.items()
            if pairs and all(options.get(name) == text for name, text in pairs)
        ]
        return {self.path: max(matching)[1]} if matching else {}


@dataclasses.dataclass(frozen=True)
class CompositeOption:
    """Rule whose options depend on several leaves."""

    paths: tuple[str, ...]
    write: Callable[[Lookup], Pairs | None]
    read: Callable[[Mapping[str, str]], dict[str, float]] = lambda options: {}
    writes_default: bool = False  #: whether defaults of a design are written, since the tool's own differ


#: Further values of a lookup for :class:`ByteDependentOption`: bytes of weights and of the engine runtime on a device,
#: capacity of the device, and weights including offloaded ones.
WEIGHTS, RUNTIME, CAPACITY = "launch.weights", "launch.runtime", "launch.capacity"
ALL_WEIGHTS = "launch.all_weights"

#: Context of a model, by its file in the catalogue, and that for which the cache of a rank has room, in tokens.
CONTEXT, CACHE_TOKENS = "launch.context", "launch.cache_tokens"

#: Code of the weight format of a checkpoint, by its file in the catalogue; None for 16 bits.
CHECKPOINT = "launch.checkpoint"

#: Multi-token prediction layers of a checkpoint, by its file in the catalogue.
DRAFT_LAYERS = "launch.draft_layers"


@dataclasses.dataclass(frozen=True)
class ByteDependentOption(_LeafOption):
    """Option for a leaf whose value is converted by the bytes of a design."""

    name: str
    path: str

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return an empty mapping, since the leaf needs a design; ValueError for an invalid number."""
        if self.name in options:
            self._number(options)
        return {}

    def read_for_design(self, options: Mapping[str, str], leaf: Lookup) -> dict[str, float]:
        """Return path → value for a design, at most 1 (all of its bytes); empty without it."""
        return {self.path: min(self._share(self._number(options), leaf), 1.0)} if self.name in options else {}

    def _number(self, options: Mapping[str, str]) -> float:
        """Return the number that the option states; ValueError for one that it cannot have."""
        raise NotImplementedError

    def _share(self, value: float, leaf: Lookup) -> float:
        """Return the value of the leaf, a share, from the number of the option."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class OffloadedWeights(ByteDependentOption):
    """Option for the offloaded weights of a device in GiB; the leaf is their share."""

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the option with GiB of weights, empty for none, None for a device with far memory."""
        share = leaf(self.path)
        if not share:
            return []
        if leaf("system.far.capacity") is not None:
            return None
        return [(self.name, number(share * (leaf(ALL_WEIGHTS) or 0.0) / _GIB))]

    def _number(self, options: Mapping[str, str]) -> float:
        """Return the GiB that the option states; ValueError below 0."""
        value = float(options[self.name])
        if not value >= 0.0:
            raise ValueError(f"{self.name} {options[self.name]} is not a size in GiB")
        return value

    def _share(self, value: float, leaf: Lookup) -> float:
        """Return the share of all weights that ``value`` GiB are."""
        return value * _GIB / (leaf(ALL_WEIGHTS) or 1.0)


_GIB = 2.0**30


@dataclasses.dataclass(frozen=True)
class MemoryShare(ByteDependentOption):
    """An option for a share of memory whose bytes differ from those of the leaf, the share of all used memory.

    ``is_of_free_memory``: share of the memory left by weights and engine runtime; otherwise share of weights and cache
    without the runtime. Both need the bytes of a design.
    """

    is_of_free_memory: bool

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the option with the tool's share, None where that is not above 0 and at most 1."""
        share = leaf(self.path)
        if share is None:
            return []
        intercept, slope = self._line(leaf)
        option_share = (share - intercept) / slope if slope > 0.0 else 0.0
        return [(self.name, number(option_share))] if 0.0 < option_share <= 1.0 else None

    def _number(self, options: Mapping[str, str]) -> float:
        """Return the share that the option states; ValueError for one outside of 0 to 1, and for 0."""
        value = float(options[self.name])
        if not 0.0 < value <= 1.0:
            raise ValueError(f"{self.name} {options[self.name]} is not a share")
        return value

    def _share(self, value: float, leaf: Lookup) -> float:
        """Return the share of the leaf, of all used memory, for a share of the option."""
        intercept, slope = self._line(leaf)
        return intercept + value * slope

    def _line(self, leaf: Lookup) -> tuple[float, float]:
        """Return (share of the leaf for an option of 0, its increase to an option of 1)."""
        weights, runtime = ((leaf(name) or 0.0) / (leaf(CAPACITY) or 1.0) for name in (WEIGHTS, RUNTIME))
        used_share = weights + runtime
        return (
            (used_share, 1.0 - used_share) if self.is_of_free_memory else (runtime, 1.0)
        )  # an option of 1 is exactly 1


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
    long_sequence_note: str = ""  #: treatment of sequences beyond the model's context
    roles: Mapping[str, Callable[[Lookup], Pairs]] = types.MappingProxyType({})  #: role of a pool → its options


class LaunchLine(NamedTuple):
    """Command line of a design."""

    tool: Tool
    text: str
    options: Pairs
    unsupported: dict[str, float]  #: path → value without an option of the tool
    notes: tuple[str, ...] = ()  #: further requirements
    comments: tuple[str, ...] = ()  #: what values of options are


def number(value: float) -> str:
    """Return a number as text, as written on command lines: whole ones without a point, others to six digits.

    >>> number(4096.0), number(0.9)
    ('4096', '0.9')
    """
    return f"{value:.0f}" if value == round(value) else f"{value:.6g}"


def flags(command: str) -> Callable[[Lookup, Pairs], str]:
    """Return the function (leaves, options) → command line of flags, one per line.

    Args:
        command: start of the line; it may contain ``{nodes}`` and ``{each}``, the devices of a node.
    """

    def show(leaf: Lookup, pairs: Pairs) -> str:
        nodes, devices_per_host = hosts(leaf)
        words = (f"{name} {_quoted(value)}".strip() for name, value in pairs)
        parts = [command.format(nodes=nodes, each=devices_per_host), *words]
        return " \\\n    ".join(parts)

    return show


def with_entries(command: str, option: str, file: str) -> Callable[[Lookup, Pairs], str]:
    """Return the function (leaves, options) → command line of flags, after a line that writes a YAML file.

    Entries are the options without a dash; there is no file without any.

    Args:
        command: start of the line.
        option: that takes the file.
        file: name of the file.
    """
    call = flags(command)

    def show(leaf: Lookup, pairs: Pairs) -> str:
        entries = [f"{name}: {value}" for name, value in pairs if not name.startswith("-")]
        options = [(name, value) for name, value in pairs if name.startswith("-")]
        if not entries:
            return call(leaf, options)
        return "\n".join([f"cat > {file} <<EOF", *entries, "EOF", call(leaf, [*options, (option, file)])])

    return show


def _quoted(value: str) -> str:
    """Return the value of an option, quoted for a shell where it has brackets or stars."""
    return shlex.quote(value) if any(c in value for c in "{([*") else value


def assignments(command: str) -> Callable[[Lookup, Pairs], str]:
    """Return the function (leaves, options) → command line of ``name=value``, one per line.

    ``command`` is the start of the line, as of :func:`flags`.
    """

    def show(leaf: Lookup, pairs: Pairs) -> str:
        nodes, devices_per_host = hosts(leaf)
        words = (_quoted(f"{name}={value}") for name, value in pairs)
        return " \\\n    ".join([command.format(nodes=nodes, each=devices_per_host), *words])

    return show


#: Accelerators per host of a system of the catalogue whose scale-up network joins several hosts.
HOST_DEVICES = "launch.host_devices"

#: Maximum accelerators per host; those of a host of a rack that the catalogue has not.
_MAX_HOST_DEVICES, _TRAY_DEVICES = 16, 4


def hosts(leaf: Lookup) -> tuple[int, int]:
    """Return (number of hosts, number of devices per host) of a design."""
    devices, domain = int(leaf("system.n_devices") or 1), int(leaf("system.scale_up.domain") or 1)
    devices_per_host = min(devices, domain if domain <= _MAX_HOST_DEVICES else int(leaf(HOST_DEVICES) or _TRAY_DEVICES))
    return -(-devices // devices_per_host), devices_per_host
