"""Rules between leaves of a design and options of a tool, written from a design and read back.

Rows of ``tables/TOOL.toml`` become rules by :mod:`dse.tools.rows`. Leaves without a rule are listed next to a line.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

#: Reads a leaf by its full path; None where the design has no such leaf.
Lookup = Callable[[str], float | None]

#: Options with their values; "" for a switch.
Pairs = list[tuple[str, str]]

#: True or False for the values of a design.
Condition = Callable[[Lookup], bool]

#: Facts beside the options that rules read where they are known, as texts: number of devices, accelerator in the
#: catalogue, layers and experts of the model ("0" for a dense one), number of nodes.
WORLD_SIZE, CHIP, N_LAYERS, N_EXPERTS, NODES = "@world_size", "@chip", "@n_layers", "@n_experts", "@nodes"

#: Further ones: context of the model in tokens, and how a program uses its engine (``offline``: without a server).
MODEL_CONTEXT, USAGE = "@context", "@usage"


def unwritten(leaf: Lookup) -> None:
    """Return None, for the rule of an option that is read alone."""


def is_dense(options: Mapping[str, str]) -> bool:
    """True for a model without experts: of the catalogue, or by the options of Megatron-LM that state its layers."""
    n_experts = options.get(N_EXPERTS, options.get("--num-experts"))
    if n_experts is not None:
        return not is_on({N_EXPERTS: n_experts}, N_EXPERTS)
    return "--num-layers" in options


class OptionRule(Protocol):
    """Rule between some leaves of a design and options of a tool."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Full paths of the leaves of the rule."""

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the options for the values of a design, empty at defaults, None for values without an option."""

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → value of the options of the rule, empty where ``options`` has none of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseOption:
    """Rule of a row: options by cases alone, which are not read."""

    leaves: tuple[str, ...]
    also: tuple[str, ...] = ()
    absent: float | None = None
    mixture: bool = False  #: whether it is not read for a dense model
    when: Condition = lambda leaf: True
    cases: tuple[tuple[Condition, Callable[[Lookup], Pairs] | None], ...] = ()
    writes: bool = True

    @property
    def path(self) -> str:
        """Full path of the first leaf."""
        return self.leaves[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """Full paths of the leaves of the rule."""
        return (*self.leaves, *self.also)

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the options of the first case that holds, else those of the leaf's value where ``when`` holds."""
        if not self.writes:
            return []
        for condition, pairs in self.cases:
            if condition(leaf):
                return pairs and pairs(leaf)
        value = leaf(self.path)
        value = self.absent if value is None else value
        return [] if value is None or not self.when(leaf) else self.pairs_of(value, leaf)

    def pairs_of(self, value: float, leaf: Lookup) -> Pairs | None:
        """Return the options of a value of the leaf, None for a value without one."""
        return []

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → value of the options of the rule."""
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberOption(CaseOption):
    """Option with the value of a leaf in the tool's ``unit``, left out at the tool's ``default``."""

    option: str
    default: float | str | None = None
    unit: float = 1.0
    high: float = math.inf
    text: str = "%s"
    key: str = ""
    names: tuple[str, ...] = ()
    switch: str = ""
    needs_switch: bool = False
    reads: bool = True
    nothing: tuple[str, ...] = ()  #: texts with which the tool computes the number itself

    def pairs_of(self, value: float, leaf: Lookup) -> Pairs:
        """Return the option, empty at the tool's default."""
        default = leaf(self.default) if isinstance(self.default, str) else self.default
        if default is not None and math.isclose(value, default, rel_tol=1e-6):
            return []
        return [*([(self.switch, "")] if self.switch else []), (self.option, self.text % number(value / self.unit))]

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → value in SI units; ValueError for a text that is no number."""
        names: tuple[str, ...] = (self.option, *self.names) if self.reads else ()
        if self.needs_switch:
            names = names[:1] if is_on(options, self.switch) else names[1:]
        if self.mixture and is_dense(options):
            return {}
        text = next((options[name] for name in names if name in options), None)
        if self.key and text is not None:
            match = re.search(rf'"{self.key}":\s*([^\s,}}]+)', text) if "{" in text else re.match("(.+)", text)
            text = match and match[1].strip("\"'")
        if text is None or text in self.nothing:
            return {}
        return {self.path: min(number_of(text) * self.unit, self.high)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwitchOption(CaseOption):
    """Option that is present where a leaf has the value ``on``, and left out where it has the value ``off``."""

    switch: str
    on: float = 1.0
    off: float = 0.0
    value: str = ""  #: value of the option, if it is not a mere flag
    opposite: str = ""  #: option for ``off``, where that is not the tool's default

    def pairs_of(self, value: float, leaf: Lookup) -> Pairs | None:
        """Return the option at ``on``, ``opposite`` or nothing at ``off``, None at any other value."""
        if value == self.off:
            return [(self.opposite, "")] if self.opposite else []
        return [(self.switch, self.value)] if value == self.on else None

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → ``on`` or ``off`` by the last of the two options, empty for none.

        Off says nothing in a row that is only read: the stack has the leaf's value.
        """
        names = [name for name in (self.switch, self.opposite) if name and name in options]
        if not names or (self.mixture and is_dense(options)):
            return {}
        last_name = names[0] if len(names) == 1 else next(name for name in reversed(list(options)) if name in names)
        is_as_switched = is_on(options, last_name) is (last_name == self.switch)
        return {self.path: self.on if is_as_switched else self.off} if is_as_switched or self.writes else {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceOption(CaseOption):
    """Options by the values of leaves, None for any; other values have no option."""

    values: tuple[tuple[tuple[float | None, ...], Pairs], ...]
    reads: tuple[tuple[tuple[float | None, ...], Pairs], ...] = ()

    def pairs_of(self, value: float, leaf: Lookup) -> Pairs | None:
        """Return the options of the leaves' values, None for values without an entry."""
        numbers = [value, *map(leaf, self.leaves[1:])]
        for codes, pairs in self.values:
            if all(code in (None, number) for code, number in zip(codes, numbers, strict=True)):
                return list(pairs)
        return None

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return path → value of the most options that are all present, empty for none."""
        if self.mixture and is_dense(options):
            return {}
        entries = (*self.values, *self.reads)
        matching = [(codes, pairs) for codes, pairs in entries if all(_states(options, *pair) for pair in pairs)]
        codes, pairs = max(matching, key=lambda match: len(match[1]), default=((), []))
        return {path: code for path, code in zip(self.leaves, codes, strict=False) if pairs and code is not None}

    def has_word(self, name: str, text: str) -> bool:
        """True where an entry has the text of an option."""
        pairs = (pair for _, pairs in (*self.values, *self.reads) for pair in pairs)
        return any(option == name and _states({name: text}, name, pattern) for option, pattern in pairs)


def _states(options: Mapping[str, str], name: str, pattern: str) -> bool:
    """True where an option has a text that a pattern describes; of a switch "true" too."""
    if name not in options:
        return False
    text = options[name]
    return fnmatch.fnmatchcase(text, pattern) or (not pattern and text.lower() == "true")


@dataclasses.dataclass(frozen=True)
class CompositeOption:
    """Rule in Python, for options that follow from several leaves."""

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

#: Words of an option that say nothing.
_NOTHING = ("", "auto", "null", "none")

_GIB = 2.0**30


@dataclasses.dataclass(frozen=True)
class ByteDependentOption:
    """Option for a leaf that is a share of bytes: linear in the number of the option, by the bytes of a design."""

    name: str
    path: str
    line: Callable[[Lookup], tuple[float, float] | None]  #: (share at 0, its increase to 1); None without an option
    meaning: str  #: of the number, for errors
    high: float = math.inf  #: largest number

    @property
    def paths(self) -> tuple[str, ...]:
        """Full path of the leaf, alone."""
        return (self.path,)

    def write(self, leaf: Lookup) -> Pairs | None:
        """Return the option with its number, empty for none of a size, None where it can have no such number."""
        share = leaf(self.path)
        if share is None or (not share and self.high == math.inf):
            return []
        intercept, slope = self.line(leaf) or (0.0, 0.0)
        value = (share - intercept) / slope if slope > 0.0 else 0.0
        return [(self.name, number(value))] if 0.0 < value <= self.high else None

    def read(self, options: Mapping[str, str]) -> dict[str, float]:
        """Return an empty mapping, since the leaf needs a design; ValueError for an invalid number."""
        self._number(options)
        return {}

    def read_for_design(self, options: Mapping[str, str], leaf: Lookup) -> dict[str, float]:
        """Return path → value for a design, at most 1 (all of its bytes); empty without it."""
        value = self._number(options)
        intercept, slope = self.line(leaf) or (0.0, 0.0)
        return {} if value is None else {self.path: min(intercept + value * slope, 1.0)}

    def _number(self, options: Mapping[str, str]) -> float | None:
        """Return the number that the option states, None without it; ValueError for one that it cannot have."""
        if self.name not in options:
            return None
        value = float(options[self.name])
        if not 0.0 <= value <= self.high or (not value and self.high < math.inf):
            raise ValueError(f"{self.name} {options[self.name]} is not {self.meaning}")
        return value


def offloaded_weights(name: str, path: str) -> ByteDependentOption:
    """Return the rule of an option for the offloaded weights of a device in GiB; the leaf is their share.

    A device with far memory has no such option.
    """

    def line(leaf: Lookup) -> tuple[float, float] | None:
        return None if leaf("system.far.capacity") is not None else (0.0, _GIB / (leaf(ALL_WEIGHTS) or 1.0))

    return ByteDependentOption(name, path, line, "a size in GiB")


def memory_share(name: str, path: str, is_of_free_memory: bool) -> ByteDependentOption:
    """Return the rule of an option for a share of memory other than the leaf's, which is the share of all used memory.

    Args:
        name: of the option.
        path: of the leaf.
        is_of_free_memory: True for the share of the memory left by weights and engine runtime; False for the share of
            weights and cache without the runtime. Both need the bytes of a design.
    """

    def line(leaf: Lookup) -> tuple[float, float]:
        weights, runtime = ((leaf(name) or 0.0) / (leaf(CAPACITY) or 1.0) for name in (WEIGHTS, RUNTIME))
        used_share = weights + runtime
        return (used_share, 1.0 - used_share) if is_of_free_memory else (runtime, 1.0)  # an option of 1 is exactly 1

    return ByteDependentOption(name, path, line, "a share", 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Tool:
    """A tool that runs designs."""

    name: str
    study: str  #: kind of study of its designs
    version: str  #: of the documentation of its options
    source: str
    rules: tuple[OptionRule, ...]
    show: Callable[[Lookup, Pairs], str]  #: line or file from options
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: alternative names of options
    dashes: bool = False  #: whether it reads ``--an_option`` as ``--an-option``
    underscores: bool = False  #: whether it reads ``--an-option`` and ``a-key`` as ``--an_option`` and ``a_key``
    vendors: tuple[str, ...] = ()  #: of the supported accelerators, forks of the vendor included
    notes: tuple[Callable[[Lookup], str], ...] = ()  #: notes on a written line; "" for none
    value_comments: tuple[Callable[[Lookup], str], ...] = ()  #: comments on values of a written line
    remarks: tuple[Callable[[Mapping[str, str]], str], ...] = ()  #: remarks on read options; "" for none
    #: options → what the model lacks without which a prediction would be of another run; "" for nothing
    limits: tuple[Callable[[Mapping[str, str]], str], ...] = ()
    #: options → what contradicts in them, with which the tool does not start; "" for nothing
    contradictions: tuple[Callable[[Mapping[str, str]], str], ...] = ()
    entries: tuple[str, ...] = ()  #: of an additional YAML file
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: what its notes say
    #: role of a pool → its options
    roles: Mapping[str, Callable[[Lookup], Pairs]] = dataclasses.field(default_factory=dict)
    #: option → text where nothing is said, of its version
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)
    other_defaults: tuple[Mapping[str, Any], ...] = ()  #: of versions ``before`` one, or of ``chips``
    effects: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: option without a leaf → what it moves
    #: variable of the environment → option that it states
    variable_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scripts: tuple[Mapping[str, Any], ...] = ()  #: scripts that variables of the environment state options for
    call_arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: argument of a recipe → option
    host_devices: float = 0.0  #: devices of a node where nothing is said, 0 for an open number
    overrides_prefix: str = ""  #: of the options that a command's ``--option value`` overrides in a file
    variable_prefix: str = ""  #: of variables of the environment that state options by their names in capitals
    file_overrides: bool = False  #: whether its file counts before its command line
    inline_options: tuple[str, ...] = ()  #: options whose text is JSON of further ones
    off_options: tuple[str, ...] = ()  #: switches that are read when they are off
    model_options: tuple[Any, ...] = ()  #: options that name the model; a list of those that do together
    model_hints: tuple[
        str, ...
    ] = ()  #: options of paths that tell generations of a model of one shape from one another
    models: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: its name of a model → that of the catalogue
    chip_options: tuple[str, ...] = ()  #: options that name the chip
    #: ``nodes``, ``per_node``, ``total`` → options that state them
    device_options: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    reads_only: bool = False  #: whether its options are read, and no line is written
    none_options: tuple[str, ...] = ()  #: options with a value ``none`` that is not their default
    auto_is_open: bool = False  #: whether ``auto`` is filled in by the program that calls it, not by its default
    required: tuple[str, ...] = ()  #: options without which it does not start
    conflicts: tuple[Mapping[str, Any], ...] = ()  #: ``options`` that are on, with ``leaves`` by condition, and ``why``
    stack_tool: str = ""  #: tool of dse's stacks whose figures its runs have, by default its own name


class LaunchLine(NamedTuple):
    """Command line of a design."""

    tool: Tool
    text: str
    options: Pairs
    unsupported: dict[str, float]  #: path → value without an option of the tool
    notes: tuple[str, ...] = ()  #: further requirements
    comments: tuple[str, ...] = ()  #: what values of options are


def option_number(options: Mapping[str, str], name: str) -> float | None:
    """Return the number that an option states, None without it and for a word that says nothing.

    Raises:
        ValueError: for another text that is no number.

    >>> option_number({"tp": "8", "pp": "auto"}, "tp"), option_number({"tp": "8", "pp": "auto"}, "pp")
    (8.0, None)
    """
    text = options.get(name, "").strip().lower()
    return None if text in _NOTHING else float(text)


def option_degree(options: Mapping[str, str], name: str) -> float:
    """Return the degree that an option states, 1 without it.

    Raises:
        ValueError: for a text that is no degree.
    """
    degree = option_number(options, name)
    if degree is not None and not degree >= 1.0:
        raise ValueError(f"{name} {options[name]} is no degree")
    return 1.0 if degree is None else degree


def option_on(options: Mapping[str, str], name: str) -> bool:
    """True for a switch that is on: without a value, or with one that says so; false without the option."""
    return options.get(name, "false").strip().lower() in ("", "true", "1", "yes", "auto")


def number(value: float) -> str:
    """Return a number as text, as written on command lines: whole ones without a point, others to six digits.

    >>> number(4096.0), number(0.9)
    ('4096', '0.9')
    """
    return f"{value:.0f}" if value == round(value) else f"{value:.6g}"


#: Suffix of a number → factor, as vLLM and SGLang read them (``human_readable_int``).
_SUFFIXES = {"k": 1e3, "m": 1e6, "g": 1e9, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30}


def number_of(text: str) -> float:
    """Return the number that a text states, with a suffix of thousands or of 1024s; ValueError for another text.

    >>> number_of("8k"), number_of("8K"), number_of("0.9")
    (8000.0, 8192.0, 0.9)
    """
    factor = _SUFFIXES.get(text[-1:], 0.0)
    return float(text[:-1]) * factor if factor else float(text)


def is_on(options: Mapping[str, str], *names: str) -> bool:
    """True where one of these switches is among the options, and its text does not turn it off."""
    return any(options.get(name, "false").strip().lower() not in _OFF_WORDS for name in names)


#: Texts that turn a switch off.
_OFF_WORDS = ("false", "0", "no", "off", "none", "null")


#: Accelerators per host of a system of the catalogue whose scale-up network joins several hosts.
HOST_DEVICES = "launch.host_devices"

#: Maximum accelerators per host; those of a host of a rack that the catalogue has not.
_MAX_HOST_DEVICES, _TRAY_DEVICES = 16, 4


def hosts(leaf: Lookup) -> tuple[int, int]:
    """Return (number of hosts, number of devices per host) of a design."""
    devices, domain = int(leaf("system.n_devices") or 1), int(leaf("system.scale_up.domain") or 1)
    devices_per_host = min(devices, domain if domain <= _MAX_HOST_DEVICES else int(leaf(HOST_DEVICES) or _TRAY_DEVICES))
    return -(-devices // devices_per_host), devices_per_host


def degrees(leaf: Lookup, *names: str) -> list[float]:
    """Return values of a mapping, such as its degrees of parallelism, by their names; 1 for absent ones and for 0."""
    return [leaf(f"mapping.{name}") or 1.0 for name in names]
