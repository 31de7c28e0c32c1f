"""What each option was read as: stated, default of the tool, not modelled, or unknown."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import re
from collections.abc import Iterator, Mapping

from dse.tools import recognition
from dse.tools.clients import client_of
from dse.tools.options import (
    ByteDependentOption,
    ChoiceOption,
    CompositeOption,
    Tool,
)
from dse.tools.rule_names import effect_of, rules_by_name, values_or_none
from dse.tools.sources import Sources

#: What an option of a file is.
STATED, DEFAULT, NOT_MODELLED, UNKNOWN = "stated", "default of the tool", "not modelled", "unknown"


#: In place of the text of an option, to see which rules read it.
_PROBES = ("918273", "?")


_TURNED = {"true": ("false",), "false": ("true",)}


@dataclasses.dataclass(frozen=True)
class OptionReading:
    """What an option of a file, or of its tool's defaults, was read as."""

    option: str
    text: str  #: its value in the file; "" for a switch
    status: str  #: ``stated``, ``default of the tool``, ``not modelled`` or ``unknown``
    leaves: dict[str, float] = dataclasses.field(default_factory=dict)  #: path → value in SI units
    moves: str = ""  #: what an option that is not modelled moves: time, memory, both or nothing
    file: str = ""  #: that states it


def paths_of_files(
    tool: Tool,
    merged: Mapping[str, str],
    stated: Mapping[str, str],
    defaults: Mapping[str, str],
    values: tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]],
) -> frozenset[str]:
    """Return the paths that files state: those that their options decide, without those that a default decides too.

    A path is stated as well where the options of the files give its value without any default, and where several
    defaults have a part in it, as the axes of a mesh that a file leaves at 1 do.

    Args:
        tool: of the files.
        merged: options and defaults.
        stated: options of the files.
        defaults: of the tool.
        values: path → value of both, of defaults alone, and of the files' options alone.
    """
    both, unstated, alone = values
    decided = {path for path, value in both.items() if unstated.get(path) != value}
    decided |= {path for name in stated for path in _paths_read(tool, merged, name) if path in both}
    counts = collections.Counter(
        path
        for name in defaults
        if name in merged and name not in stated
        for path in _paths_without(tool, merged, name)
    )
    by_default = {path for path, count in counts.items() if count == 1}
    return frozenset(path for path in decided if alone.get(path) == both[path] or path not in by_default)


def option_readings(
    tool: Tool,
    merged: Mapping[str, str],
    stated: Mapping[str, str],
    defaults: Mapping[str, str],
    values: Mapping[str, float],
    places: Mapping[str, str],
    stated_paths: frozenset[str],
    model_text: str,
) -> list[OptionReading]:
    """Return what each option was read as, stated ones first; leaves by default are those of the defaults."""
    readings = list[OptionReading]()
    for name, text in stated.items():
        paths = _paths_read(tool, merged, name) & values.keys()
        leaves = {path: values[path] for path in sorted((paths & stated_paths) or paths)}
        shares = any(isinstance(rule, ByteDependentOption) and rule.name == name for rule in tool.rules)
        identity = recognition.identity_of(name, tool.model_options, tool.chip_options, tool.device_options)
        if identity == "model" and text != model_text and name in tool.effects:  # a label beside the model
            identity = ""
        reads = _is_understood(tool, name, text)  # even if the leaf is what it would be
        moves = "" if paths or shares else identity or effect_of(tool, name)
        is_stated = paths or shares or identity or (reads and not moves)
        status = STATED if is_stated else NOT_MODELLED if moves else UNKNOWN
        readings.append(OptionReading(name, text, status, leaves, moves, places.get(name, "")))
    for name, text in defaults.items():
        if name in stated:
            continue
        paths = (_paths_read(tool, merged, name) & values.keys()) - stated_paths
        if paths:
            readings.append(OptionReading(name, text, DEFAULT, {path: values[path] for path in sorted(paths)}))
    return readings


def further_options(files: Sources, seen: set[str]) -> Iterator[OptionReading]:
    """Yield what stands beside a tool's options: options of what starts it and of clients, and its variables."""
    effects = recognition.effects_beside()
    found: dict[str, str] = {}
    for part in files.parts:
        client = client_of(part.words)
        if client is not None and not client.get("runs_engine", False):
            found |= dict(recognition.pairs(part.words))
        elif part.words and recognition.starts_container(part.words):
            found |= dict(recognition.pairs(recognition.own_words(part.words)))
    found |= {name: text for name, text in files.variables.items() if re.fullmatch(_ENGINE_VARIABLE, name)}
    for name, text in found.items():
        if name.startswith("--") or not name.startswith("-"):
            plain = f"--{name[2:].replace('_', '-')}" if name.startswith("--") else name
            if not {name, plain} & seen:
                moves = next((moves for pattern, moves in effects.items() if fnmatch.fnmatchcase(plain, pattern)), "")
                yield OptionReading(name, text, NOT_MODELLED if moves else UNKNOWN, moves=moves)


#: Variables of engines and trainers, and of the libraries below them.
_ENGINE_VARIABLE = re.compile(
    r"(VLLM|SGLANG|SGL|TRTLLM|TLLM|NCCL|RCCL|NVSHMEM|DG|DEEPEP|LMCACHE|UCX|HSA|HIP|AITER|GLOO|CUDA|PYTORCH|FLASHINFER"
    r"|NVTE|TORCH|TORCHINDUCTOR|XLA|LIBTPU|MIOPEN|OMP)_\w+|GPU_MAX_HW_QUEUES|LOGLEVEL|LOG_RANK"
)


def _is_understood(tool: Tool, name: str, text: str) -> bool:
    """True for an option of a rule, unless the rule is of words and has none for its text."""
    rules = rules_by_name(tool).get(name, [])
    return any(not isinstance(rule, ChoiceOption) or rule.has_word(name, text) for rule in rules)


def _paths_without(tool: Tool, merged: Mapping[str, str], name: str) -> set[str]:
    """Return the paths of the leaves that change, or are not read, without an option."""
    without = {other: text for other, text in merged.items() if other != name}
    paths: set[str] = set()
    for rule in rules_by_name(tool).get(name, []):
        now, then = values_or_none(rule, merged) or {}, values_or_none(rule, without) or {}
        paths |= {path for path in now if then.get(path) != now[path]}
    return paths


def _paths_read(tool: Tool, merged: Mapping[str, str], name: str) -> set[str]:
    """Return the paths of the leaves that an option decides: those that change with its text or without it.

    Where there are none, those for which it alone gives their value: other options say the same.
    """
    rules = rules_by_name(tool).get(name, [])
    if not rules:
        return set()
    if name not in merged:  # a switch that is off
        return {path for rule in rules if not isinstance(rule, CompositeOption) for path in rule.paths}
    without = {other: text for other, text in merged.items() if other != name}
    only = {other: text for other, text in merged.items() if other == name or other.startswith("@")}
    paths, same = set[str](), set[str]()
    for rule in rules:
        probes = (*_PROBES, *_TURNED.get(merged[name].lower(), ()))
        now, thens = (
            values_or_none(rule, merged) or {},
            [values_or_none(rule, {**merged, name: probe}) for probe in probes],
        )
        for then in [then for then in (*thens, values_or_none(rule, without)) if then is not None] or [{}]:
            paths |= {path for path in now if then.get(path) != now[path]}
            paths |= {path for path in then if path not in now and now}
        nothing = values_or_none(rule, {other: text for other, text in only.items() if other != name}) or {}
        alone = values_or_none(rule, only) or {}
        same |= {path for path, value in now.items() if alone.get(path) == value and path not in nothing}
    return paths or same
