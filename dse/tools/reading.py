"""Designs of files that people have: recipes, launch scripts, manifests, configurations.

:func:`read` gives the values of a design that files state, with the defaults of their tool for what they leave out, and
what each option was read as. The rules between options and leaves are those of :mod:`dse.tools.rows`, which write
launch lines too; parts of files are those of :mod:`dse.tools.sources`; tool, model, chip and devices are recognised by
:mod:`dse.tools.recognition`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fnmatch
import functools
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dse.designs import all_leaves, catalog, short_name
from dse.designs.calibrated import context_of
from dse.errors import InputError
from dse.tools import recognition
from dse.tools.calls import SCRIPT, absent_configurations, called_scripts, configurations, function_options, script_call
from dse.tools.clients import client_of, is_client, load_of
from dse.tools.models import completed_shape
from dse.tools.options import (
    CHIP,
    MODEL_CONTEXT,
    N_EXPERTS,
    N_LAYERS,
    NODES,
    USAGE,
    WORLD_SIZE,
    ByteDependentOption,
    ChoiceOption,
    CompositeOption,
    Lookup,
    NumberOption,
    OptionRule,
    SwitchOption,
    Tool,
    is_on,
)
from dse.tools.recognition import DeviceCount, NamedChip
from dse.tools.rows import defaults_of, holds, option_name, options_of
from dse.tools.sources import ENVIRONMENTS, Source, Sources, sources

#: What an option of a file is.
STATED, DEFAULT, NOT_MODELLED, UNKNOWN = "stated", "default of the tool", "not modelled", "unknown"

#: Texts of options that state nothing.
_NOTHING = ("auto", "null", "none", "~", "default", "unset")

#: In place of the text of an option, to see which rules read it.
_PROBES = ("918273", "?")
_TURNED = {"true": ("false",), "false": ("true",)}

#: Degrees whose product the number of devices is a multiple of.
_DEGREES = ("mapping.tp", "mapping.pp", "mapping.cp")


@dataclasses.dataclass(frozen=True)
class OptionReading:
    """What an option of a file, or of its tool's defaults, was read as."""

    option: str
    text: str  #: its value in the file; "" for a switch
    status: str  #: ``stated``, ``default of the tool``, ``not modelled`` or ``unknown``
    leaves: dict[str, float] = dataclasses.field(default_factory=dict)  #: path → value in SI units
    moves: str = ""  #: what an option that is not modelled moves: time, memory, both or nothing
    file: str = ""  #: that states it


@dataclasses.dataclass(frozen=True)
class RecipeReading:
    """A design as files state it."""

    tool: Tool
    version: str  #: that the files state, else that of the tool's table
    has_version: bool
    model_text: str  #: by which the files name the model, "" for none
    workload: str | None  #: of the catalogue
    shape: dict[str, float]  #: path → value of the leaves of the workload that options state
    chip: NamedChip | None
    devices: DeviceCount
    values: dict[str, float]  #: path → value of the leaves of mapping, software and load, stated or default
    stated: frozenset[str]  #: paths whose values the files state
    options: tuple[OptionReading, ...]
    raw: dict[str, str]  #: option → text, as the rules read them
    design_dependent: tuple[str, ...] = ()  #: options whose values need the bytes of a design
    notes: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()  #: what the model lacks without which a prediction would be of another run

    @property
    def settings(self) -> dict[str, float]:
        """Short name → value of the leaves of mapping, software and load."""
        return {short_name(path): value for path, value in self.values.items()}

    @property
    def system(self) -> str:
        """System or accelerator of the catalogue, "" for none."""
        return self.chip.name if self.chip else ""

    @property
    def n_devices(self) -> int | None:
        """Devices of a training run; None where they follow from the degrees."""
        return self.devices.total if self.tool.study == "training" else None

    @property
    def fields(self) -> tuple[dict[str, float], list[str]]:
        """Fields of the workload that the shape is, empty for none, and notes on what is assumed."""
        return completed_shape(self.shape, self.values.get("workload.seq_len"))

    @property
    def missing(self) -> list[str]:
        """What a reader has to add before the design can be evaluated."""
        texts = list(self.limits)
        if self.workload is None and not self.fields[0]:
            named = f" ({self.model_text} is not in the catalogue)" if self.model_text else ""
            texts.append(f"name the model{named}: -w NAME, or give its config.json too")
        if not self.system:
            texts.append("name the system or the accelerator: -s NAME")
        if self.tool.study == "training" and not self.devices.total and "mapping.dp" not in self.values:
            texts.append("give the number of devices: -n")
        return texts

    def shares(self, lookup: Lookup) -> dict[str, float]:
        """Return path → value of the options whose values need the bytes of a design, by its leaves."""
        rules = [rule for rule in self.tool.rules if isinstance(rule, ByteDependentOption)]
        return {path: value for rule in rules for path, value in rule.read_for_design(self.raw, lookup).items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the reading by short names of leaves."""
        return {
            "tool": self.tool.name,
            "version": self.version,
            "study": self.tool.study,
            "model": self.model_text,
            "workload": self.workload,
            "shape": {short_name(path): value for path, value in self.shape.items()},
            "chip": self.system,
            "chip_text": self.chip.word if self.chip else "",
            "n_devices": self.devices.total,
            "settings": self.settings,
            "stated": sorted(map(short_name, self.stated)),
            "options": [
                {
                    "option": option.option,
                    "value": option.text,
                    "status": option.status,
                    "leaves": {short_name(path): value for path, value in option.leaves.items()},
                    "moves": option.moves,
                    "file": option.file,
                }
                for option in self.options
            ],
            "missing": self.missing,
            "notes": list(self.notes),
        }


def read(
    texts: Mapping[str, str],
    tools: Mapping[str, Tool],
    tool: str = "",
    workload: str = "",
    system: str = "",
    n_devices: int | None = None,
    role: str = "",
    environment: Mapping[str, str] | None = None,
    has_model: bool = False,
) -> RecipeReading:
    """Return the design that files state.

    Args:
        texts: name of a file → its text; a later file counts before an earlier one.
        tools: name → tool.
        tool: name of the tool; "" for the one that is recognised.
        workload: name of the model in the catalogue; "" for the one that the files name.
        system: name of the system or accelerator; "" for the one that the files name.
        n_devices: number of devices; None for the one that the files state.
        role: of a pool of an engine, ``prefill`` or ``decode``.
        environment: variables of the environment.
        has_model: whether something else says the model, and names in the files say nothing.

    Returns:
        Values by path, with what each option was read as.

    Raises:
        InputError: for files of no tool, invalid values, and values that contradict one another.
    """
    everything = sources(texts, environment, role)
    files = everything._replace(parts=[part for part in everything.parts if not is_client(part.words)])
    where = ", ".join(texts)
    chosen = tools[tool] if tool else _recognised(files, tools, where)
    stated, places, notes, open_names, n_engines = _stated_options(files, chosen, role, where)
    launched = recognition.devices_of(files, stated, chosen.device_options)
    if launched.nodes and launched.total is None and chosen.host_devices:
        each = int(chosen.host_devices)
        launched = DeviceCount(launched.nodes * each, launched.nodes, each)
        notes.append(f"{each} devices of a node, as by default")
    chip = _chip(files, stated, chosen, system, texts)
    devices = _with_slices(files, stated, launched, chip, n_devices)
    model_text, slug = ("", None) if has_model else _model(files, stated, chosen, workload, texts)
    version = recognition.version_of(chosen.name, files.text)
    pseudo = _pseudo_options(chip, devices, slug, system) | _usage(files)
    defaults = defaults_of(chosen, version, pseudo.get(CHIP, ""), pseudo | stated)
    stated.pop(SCRIPT, None)
    defaults = {name: text for name, text in defaults.items() if name not in open_names}
    merged = _merged(chosen, defaults, stated) | pseudo
    values = read_options(chosen, merged, where)
    unstated = read_options(chosen, _merged(chosen, defaults, {}) | pseudo, where, strict=False)
    alone = read_options(chosen, _merged(chosen, {}, stated) | pseudo, where, strict=False)
    stated_paths = _stated_paths(chosen, merged, stated, defaults, (values, unstated, alone))
    readings = _option_readings(chosen, merged, stated, defaults, values, places, stated_paths, model_text)
    has_shares = any(isinstance(rule, ByteDependentOption) and rule.name in stated for rule in chosen.rules)
    if not slug and not has_shares and not any(reading.leaves for reading in readings if reading.status == STATED):
        scripts = ", ".join(dict.fromkeys(called_scripts(files)))
        got = f"no option of a design{f', {scripts} is not among the files' if scripts else ''}"
        raise InputError(where, got, f"options of {chosen.name} {chosen.version}", _NO_OPTION)
    values = _without_absent_experts(values, slug)
    if chosen.study == "serving":
        parts = everything.parts
        load = load_of([p.words for p in parts], [p.table for p in parts if p.table], everything.variables)
        values |= load.values
        loads = {name.lower() for name in load.options}
        readings = [
            reading
            for reading in readings
            if reading.status != UNKNOWN or reading.option.rpartition(".")[2].lower() not in loads
        ]
        readings += [
            OptionReading(name, text, STATED, {path: load.values[path] for path in paths}, file=load.client)
            for name, (text, paths) in load.options.items()
        ]
        stated_paths = stated_paths.union(load.values)
    readings += _beside(everything, {reading.option for reading in readings})
    if chosen.study == "serving" and n_devices is None:
        total = math.prod(values.get(path, 1.0) for path in (*_DEGREES, "mapping.dp"))
        devices = DeviceCount(int(total) * n_engines, devices.nodes, devices.per_node)
        if n_engines > 1:
            notes.append(f"{n_engines} engines of {total:g} devices each: the design is one of them")
    shape = {path: value for path, value in values.items() if is_shape(path)}
    shares = [rule.name for rule in chosen.rules if isinstance(rule, ByteDependentOption) and rule.name in merged]
    stated_shares = [
        rule.path for rule in chosen.rules if isinstance(rule, ByteDependentOption) and rule.name in stated
    ]
    return RecipeReading(
        chosen,
        version or chosen.version,
        bool(version),
        model_text,
        slug,
        shape,
        chip,
        devices,
        {path: value for path, value in values.items() if path not in shape},
        stated_paths.union(stated_shares),
        tuple(readings),
        merged,
        tuple(shares),
        (*files.notes, *notes, *filter(None, (remark(merged) for remark in chosen.remarks))),
        tuple(filter(None, (limit(merged) for limit in chosen.limits))),
    )


_NO_OPTION = "check the files and --for: docs/launch.md lists the options of each tool"


# --- tool -------------------------------------------------------------------------------------------------


def _recognised(files: Sources, tools: Mapping[str, Tool], where: str) -> Tool:
    """Return the tool of files; InputError, with what was seen and what it resembles, where none is recognised."""
    files, other = recognition.without_other_programs(files)
    names = {name: option_names(entry) for name, entry in tools.items()}
    scores = recognition.scores(files, names)
    order = sorted((name for name in scores if name in tools), key=lambda name: -scores[name])
    foreign = recognition.foreign_framework(files)
    runs = not other or recognition.states_options(files, _own_options(tools[order[0]]) if order else frozenset())
    if order and scores[order[0]] >= _LEAST_SCORE and not foreign and runs:
        return tools[recognition.framework_of(files, order[0])]
    scripts = ", ".join(dict.fromkeys(called_scripts(files)))
    strange = [*filter(None, [foreign, other]), *recognition.strange_programs(files)]
    seen = [*strange, *_seen(files)]
    resembling = ", ".join(order[:3]) or "none"
    raise InputError(
        where,
        f"not recognised: no tool that dse reads; seen: {', '.join(seen[:8]) or 'nothing'}; it resembles: {resembling}",
        f"a file of {', '.join(tools)}",
        f"give {scripts} too, which states the options" if scripts else "name the tool: --for NAME",
    )


def _own_options(tool: Tool) -> frozenset[str]:
    """Return the options of a tool's rules, without those that launchers of other programs have too."""
    shared = {*tool.effects, *tool.chip_options, *itertools.chain(*tool.device_options.values())}
    return option_names(tool) - shared - recognition.launcher_options()


#: Signs below which a tool is not recognised.
_LEAST_SCORE = 2.0


def _seen(files: Sources) -> Iterator[str]:
    """Yield what files have at their top: keys of tables, programs of commands."""
    for part in files.parts:
        if part.table is not None:
            yield from map(str, itertools.islice(part.table, 6))
        elif part.words:
            yield part.words[0]


@functools.lru_cache(maxsize=64)
def option_names(tool: Tool) -> frozenset[str]:
    """Return the names of the options that a tool's rules read, with aliases and options of its tables."""
    names = {*tool.aliases, *tool.aliases.values(), *tool.defaults, *(name for name in tool.effects if "*" not in name)}
    names |= {name for name in tool.model_options if isinstance(name, str)}
    for rule in tool.rules:
        names |= _names_of(rule)
    return frozenset(names)


def _names_of(rule: OptionRule) -> set[str]:
    """Return the names of the options that a rule reads: those of its row, or those that its function looks up."""
    if isinstance(rule, NumberOption):
        return {rule.option, *rule.names} if rule.reads else set()
    if isinstance(rule, SwitchOption):
        return {rule.switch, *filter(None, [rule.opposite])}
    if isinstance(rule, ChoiceOption):
        return {name for _, pairs in (*rule.values, *rule.reads) for name, _ in pairs}
    if isinstance(rule, ByteDependentOption):
        return {rule.name}
    if isinstance(rule, CompositeOption):
        return _looked_up(rule)
    return set()


class _Recorder(dict[str, str]):
    """Options that note which names are looked up."""

    def __init__(self, answer: str | None) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.answer = answer

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return self.answer is not None

    def get(self, name: Any, default: Any = None) -> Any:
        self.names.add(name)
        return default if self.answer is None else self.answer

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        if self.answer is None:
            raise KeyError(name)
        return self.answer


def _looked_up(rule: CompositeOption) -> set[str]:
    """Return the names that a rule in Python looks up, without options and with all of them."""
    names: set[str] = set()
    for answer in (None, "1"):
        recorder = _Recorder(answer)
        with contextlib.suppress(Exception):  # a rule may not like the answers: the names count
            rule.read(recorder)
        names |= recorder.names
    return {name for name in names if not name.startswith("@")}


# --- options ----------------------------------------------------------------------------------------------


def _stated_options(
    files: Sources, tool: Tool, role: str, where: str
) -> tuple[dict[str, str], dict[str, str], list[str], frozenset[str], int]:
    """Return what files state, of tables, then of the tool's commands.

    These are (option → text, option → file, notes, options that another program fills in, number of engines alike).
    """
    options, places, notes = dict[str, str](), dict[str, str](), list[str]()
    names = option_names(tool)
    for part in files.parts:
        if part.table is not None and not _is_manifest(part.table, tool):
            stated = dict(_table_options(part.table, tool, names, "", itertools.count()))
            stated = {name: text for name, text in stated.items() if text.lower() != "auto" or name not in options}
            options |= stated
            places |= dict.fromkeys(stated, part.file)
    commands = _commands(files, tool, names)
    single = recognition.launcher_options() | {name for name in tool.model_options if isinstance(name, str)}
    single |= {name for some in tool.device_options.values() for name in some}
    by_command = [
        (part, options_of(_with_model(_from_program(part.words, tool), tool), tool, single)) for part in commands
    ]
    if any(_BUILD in part.words for part, _ in by_command):  # what converts a checkpoint states the ranks of the engine
        notes.append(f"{_BUILD}: its engines are read as those of the PyTorch backend")
        by_command = [(by_command[-1][0], {name: text for _, stated in by_command for name, text in stated.items()})]
    chosen, more, n_engines = _of_role(by_command, tool, options, role, where)
    notes += more
    for part, stated in chosen:
        stated = {name: text for name, text in stated.items() if not _is_variable(name)}
        stated = dict(_turned_off(name, text, names) for name, text in stated.items())
        calls = function_options(stated, tool)
        stated |= {name: text for name, text in calls.items() if name not in stated or name in tool.model_options}
        stated |= _inline_options(stated, tool, names)
        if tool.file_overrides:
            stated = {name: text for name, text in stated.items() if name not in options}
        for name in stated:
            options.pop(name, None)
        options |= stated
        places |= dict.fromkeys(stated, part.file)
    call = script_call(files, tool)
    notes += filter(None, [call.note])
    absent = absent_configurations(files)[:3] if tool.study == "training" else []
    notes += [f"{', '.join(absent)} not among the files: what it states is open"] if absent else []
    by_variable = call.options | {
        tool.variable_options[name]: text for name, text in files.variables.items() if name in tool.variable_options
    }
    if prefix := tool.variable_prefix:
        by_prefix = ((name, text) for name, text in files.variables.items() if name.startswith(prefix))
        by_variable |= {option_name(name.removeprefix(prefix).lower(), tool): text for name, text in by_prefix}
    options = {name: text for name, text in by_variable.items() if name not in options} | options
    if len(options) > _MOST_OPTIONS:
        allowed = f"at most {_MOST_OPTIONS}"
        raise InputError(where, f"{len(options):,} options", allowed, "give one recipe")
    open_names = {name for name, text in options.items() if text.lower() == "auto"} if tool.auto_is_open else set()
    n_engines *= files.n_engines
    return _without_nothing(options, tool, files, notes), places, notes, frozenset(open_names), n_engines


def _engine_count(parts: Sequence[Source]) -> int:
    """Return the number of engines that commands of one design start: of several those on devices of their own."""
    copies = {part.devices: part.copies for part in parts}
    return sum(copies.values()) if "" not in copies else max(copies.values(), default=1)


def _turned_off(name: str, text: str, names: frozenset[str]) -> tuple[str, str]:
    """Return (option, text) of a dotted switch ``--table.no_key`` as one that is off; others as they are."""
    head, dot, key = name.rpartition(".")
    option = f"{head}{dot}{key[3:].replace('-', '_')}"
    return (option, "false") if dot and key.startswith(("no_", "no-")) and option in names else (name, text)


#: Program that builds engines of TensorRT-LLM's first backend.
_BUILD = "trtllm-build"


def _inline_options(stated: Mapping[str, str], tool: Tool, names: frozenset[str]) -> dict[str, str]:
    """Return the options that others state as JSON; InputError for a text that is none."""
    options: dict[str, str] = {}
    for name in tool.inline_options:
        text = stated.get(name, "")
        if not text.lstrip().startswith("{"):
            continue
        try:
            path = "" if tool.study == "serving" else name.lstrip("-")
            options |= dict(_table_options(json.loads(text), tool, names, path, itertools.count()))
        except (ValueError, RecursionError) as error:
            raise InputError(name, str(error)[:80], "JSON of options", "correct the text") from None
    return options


def _is_manifest(table: Mapping[str, Any], tool: Tool) -> bool:
    """True for a manifest of Kubernetes around a trainer, whose commands and files are parts of their own."""
    return tool.study == "training" and {"apiVersion", "kind"} <= table.keys()


#: Maximum number of options of a recipe.
_MOST_OPTIONS = 2000


def _is_variable(name: str) -> bool:
    """True for the name of a shell variable in front of a command."""
    return name.isupper() and not name.startswith("-")


def _commands(files: Sources, tool: Tool, names: frozenset[str]) -> list[Source]:
    """Return the commands that run a tool by their words, else those with options of it."""
    patterns = recognition.words_of(tool.name)
    commands = [part for part in files.parts if part.words and not recognition.is_container(part.words)]
    running = [
        part
        for part in commands
        if any(recognition.matches_word(word, pattern) for word in part.words for pattern in patterns)
        and any(word.startswith("-") or "=" in word or word in _SERVES for word in part.words)
    ]
    stating = [part for part in commands if any(_plain_name(w, tool) in names for w in _with_model(part.words, tool))]
    return stating or running


#: Words of commands of engines behind which the model stands.
_SERVES = ("serve", "trtllm-serve", "vllmServe")


def _plain_name(word: str, tool: Tool) -> str:
    """Return the name of the option that a word is, as rules have it."""
    return option_name(word.lstrip("+").partition("=")[0], tool)


def _from_program(words: Sequence[str], tool: Tool) -> Sequence[str]:
    """Return the words from the program of an engine on, without those of launchers in front; others as they are."""
    patterns = recognition.words_of(tool.name) if tool.study == "serving" else ()
    starts = (i for i, word in enumerate(words) if any(recognition.matches_word(word, p) for p in patterns))
    return words[next(starts, 0) :]


def _with_model(words: Sequence[str], tool: Tool) -> list[str]:
    """Return words with the model behind ``serve`` as the option that states it."""
    model_option = next((name for name in tool.model_options if isinstance(name, str)), "")
    if tool.study != "serving" or not model_option:
        return list(words)
    for i, word in enumerate(words[:-1]):
        if word in _SERVES and not words[i + 1].startswith("-"):
            if words[i + 1] in ("serve", "disaggregated"):
                continue
            return [*words[: i + 1], f"{model_option}={words[i + 1]}", *words[i + 2 :]]
    return list(words)


_ByCommand = list[tuple[Source, dict[str, str]]]


def _of_role(
    by_command: _ByCommand, tool: Tool, shared: Mapping[str, str], role: str, where: str
) -> tuple[_ByCommand, list[str], int]:
    """Return the commands of one design, notes, and the number of engines alike that they start.

    Raises:
        InputError: for pools of different roles without a role.
    """

    def values(stated: Mapping[str, str]) -> dict[str, float]:
        values = read_options(tool, {**tool.defaults, **shared, **stated}, where, strict=False)
        return {path: value for path, value in values.items() if path.startswith(("mapping.", "software."))}

    without = values({})
    engines = [(part, stated) for part, stated in by_command if values(stated) != without]
    others = [entry for entry in by_command if entry not in engines]
    roles = {i: _role_of(part) for i, (part, _) in enumerate(engines)}
    if role and role in roles.values():
        pool = [engines[i] for i in roles if roles[i] == role]
        return [*others, *pool], [], _engine_count([part for part, _ in pool])
    kinds = []
    for _, stated in engines:
        if values(stated) not in kinds:
            kinds.append(values(stated))
    if len(kinds) < 2:
        return [*others, *engines], [], _engine_count([part for part, _ in engines or others])
    if {"prefill", "decode"} <= set(roles.values()):
        raise InputError(
            where, "two pools of engines: prefill and decode", "one of them", "add --role prefill, or decode"
        )
    first = next(i for i, (_, stated) in enumerate(engines) if values(stated) == kinds[0])
    note = f"{len(kinds)} commands state different designs: the first is read"
    alike = [part for part, stated in engines if values(stated) == kinds[0]]
    return [*others, engines[first]], [note], _engine_count(alike)


def _role_of(part: Source) -> str:
    """Return the role of a pool that a command has by its options or its name, "" for none."""
    text = " ".join((part.file, *part.words)).lower()
    is_prefill = bool(re.search(r"prefill(?!-(?:tokens|size|max))|kv_producer|context_server", text))
    is_decode = bool(re.search(r"decode(?!-(?:log|bs))|kv_consumer|generation_server", text))
    by_option = re.search(r"--disaggregation-mode[= ](prefill|decode)", text)
    if by_option:
        return by_option[1]
    return "prefill" if is_prefill and not is_decode else "decode" if is_decode and not is_prefill else ""


def _table_options(
    node: Any, tool: Tool, names: frozenset[str], path: str, steps: Iterator[int]
) -> Iterator[tuple[str, str]]:
    """Yield (option, text) of the values of a table, by the names in the rules of a tool."""
    if isinstance(node, dict):
        for key, child in node.items():
            if key in ENVIRONMENTS or (key in ("run", "setup") and isinstance(child, str)):
                continue
            yield from _table_options(child, tool, names, f"{path}.{key}" if path else str(key), steps)
    elif isinstance(node, list):
        if not any(isinstance(element, dict | list) for element in node):
            yield _option_name(path, tool, names), " ".join(map(_text, node))
        elif path.rpartition(".")[2] not in ("containers", "env", "services"):
            for child in node:
                yield from _table_options(child, tool, names, path, steps)
    elif node is not None:
        yield _option_name(path, tool, names), _text(node)


def _text(value: Any) -> str:
    """Return a value of a configuration as the text of an option."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value == int(value) if isinstance(value, float) and math.isfinite(value) else False:
        return str(int(value))
    return str(value)


def _option_name(path: str, tool: Tool, names: frozenset[str]) -> str:
    """Return the option of a path in a configuration: the longest end of the path that the tool's rules know.

    Names are tried as they are, behind two dashes, and with dashes for underscores. A key within an option of an engine
    that is a table (``speculative-config.model``) is none of the engine's own.
    """
    keys = path.split(".")
    for start in range(len(keys)):
        end = ".".join(keys[start:])
        for name in _spellings(end):
            if name in names:
                return tool.aliases.get(name, name)
        table = next((name for name in _spellings(keys[start]) if name in _table_names(tool)), "")
        if table and start + 1 < len(keys):
            return option_name(".".join([table, *keys[start + 1 :]]), tool)
    if tool.study == "serving" and tool.dashes and len(keys) == 1:
        return option_name(f"--{path}", tool)
    return keys[-1] if keys[-1].startswith("--") else option_name(path, tool)


def _spellings(name: str) -> tuple[str, ...]:
    """Return the ways in which rules may have the name of a key."""
    return (name, f"--{name}", f"--{name.replace('_', '-')}", name.replace("-", "_"), f"--{name.lstrip('-')}")


@functools.lru_cache(maxsize=64)
def _table_names(tool: Tool) -> frozenset[str]:
    """Return the options of an engine that are tables, by the dotted names of its rules and effects."""
    if tool.study != "serving":
        return frozenset()
    names = {*option_names(tool), *tool.effects}
    dotted = {name.partition(".")[0] for name in names if "." in name}
    return frozenset(dotted | {name[:-1] for name in tool.effects if re.fullmatch(r"[\w-]+[-_]config\*", name)})


def _without_nothing(options: Mapping[str, str], tool: Tool, files: Sources, notes: list[str]) -> dict[str, str]:
    """Return options without those whose texts state nothing, and add a note on open variables."""
    open_names = {
        name: text for name, text in options.items() if re.search(r"\$\{?\w", text) and not text.startswith("{")
    }
    models = {name for entry in tool.model_options for name in ([entry] if isinstance(entry, str) else entry)}
    relevant = [name for name in open_names if name in option_names(tool) - models and name not in tool.effects]
    if relevant:
        shown = ", ".join(f"{name} {options[name]}" for name in relevant[:4])
        notes.append(f"left open by the file: {shown}")
    rows = {rule.option: rule for rule in tool.rules if isinstance(rule, NumberOption)}
    read_names = _rules_by_name(tool).keys()
    open_names = {name: text for name, text in open_names.items() if name in read_names | models}  # others are named
    return {
        name: text
        for name, text in options.items()
        if name not in open_names
        and (text.lower() not in _NOTHING or _is_word(tool, name, text))
        and not (name in rows and (text in rows[name].nothing or (text == "" and not rows[name].switch)))
    }


def _is_word(tool: Tool, name: str, text: str) -> bool:
    """True where a word that states nothing elsewhere is a value of an option; ``auto`` never is."""
    choices = (rule for rule in tool.rules if isinstance(rule, ChoiceOption))
    is_choice = text.lower() != "auto" and any(rule.has_word(name, text) for rule in choices)
    return is_choice or (name in tool.none_options and text.lower() == "none")


def _merged(tool: Tool, defaults: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, str]:
    """Return defaults and stated options; a switch that is stated to be off is no option of tools with dashes."""
    merged = {**defaults}
    for name, text in stated.items():
        merged.pop(name, None)
        if name.startswith("--no-") and f"--{name[5:]}" in merged:
            merged.pop(f"--{name[5:]}")
        merged[name] = text
    if not tool.dashes and tool.name != "megatron-lm":
        return merged
    keeps = tool.off_options
    return {name: text for name, text in merged.items() if text.lower() != "false" or name in keeps}


def read_options(
    tool: Tool, options: Mapping[str, str], where: str = "arguments", strict: bool = True
) -> dict[str, float]:
    """Return path → value that options state by the rules of a tool.

    Args:
        tool: the tool.
        options: option → text, with pseudo-options.
        where: name of the files, for errors.
        strict: whether a text that is no number is an error, else the rule is left out.

    Raises:
        InputError: for an invalid number.
    """
    values: dict[str, float] = {}
    for rule in tool.rules:
        try:
            read_values = rule.read(options)
            if not all(map(math.isfinite, read_values.values())):
                raise ValueError("not a number")
            values |= read_values
        except (ValueError, ArithmeticError, KeyError, IndexError, TypeError, RecursionError) as error:
            if strict:
                paths = ", ".join(map(short_name, rule.paths))
                raise InputError(where, str(error), f"numbers for {paths}", "correct the option") from error
    return values


# --- what options were read as ----------------------------------------------------------------------------


def _stated_paths(
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


def _option_readings(
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


def _beside(files: Sources, seen: set[str]) -> Iterator[OptionReading]:
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
    rules = [rule for rule in tool.rules if name in _names_of(rule)]
    return any(not isinstance(rule, ChoiceOption) or rule.has_word(name, text) for rule in rules)


def _paths_without(tool: Tool, merged: Mapping[str, str], name: str) -> set[str]:
    """Return the paths of the leaves that change, or are not read, without an option."""
    without = {other: text for other, text in merged.items() if other != name}
    paths: set[str] = set()
    for rule in tool.rules:
        if name in _names_of(rule):
            now, then = _quietly(rule, merged) or {}, _quietly(rule, without) or {}
            paths |= {path for path in now if then.get(path) != now[path]}
    return paths


def _paths_read(tool: Tool, merged: Mapping[str, str], name: str) -> set[str]:
    """Return the paths of the leaves that an option decides: those that change with its text or without it.

    Where there are none, those for which it alone gives their value: other options say the same.
    """
    rules = _rules_by_name(tool).get(name, [])
    if not rules:
        return set()
    if name not in merged:  # a switch that is off
        return {path for rule in rules if not isinstance(rule, CompositeOption) for path in rule.paths}
    without = {other: text for other, text in merged.items() if other != name}
    only = {other: text for other, text in merged.items() if other == name or other.startswith("@")}
    paths, same = set[str](), set[str]()
    for rule in rules:
        probes = (*_PROBES, *_TURNED.get(merged[name].lower(), ()))
        now, thens = _quietly(rule, merged) or {}, [_quietly(rule, {**merged, name: probe}) for probe in probes]
        for then in [then for then in (*thens, _quietly(rule, without)) if then is not None] or [{}]:
            paths |= {path for path in now if then.get(path) != now[path]}
            paths |= {path for path in then if path not in now and now}
        nothing = _quietly(rule, {other: text for other, text in only.items() if other != name}) or {}
        alone = _quietly(rule, only) or {}
        same |= {path for path, value in now.items() if alone.get(path) == value and path not in nothing}
    return paths or same


@functools.lru_cache(maxsize=64)
def _rules_by_name(tool: Tool) -> dict[str, list[OptionRule]]:
    """Return option → rules that read it."""
    rules: dict[str, list[OptionRule]] = {}
    for rule in tool.rules:
        for name in _names_of(rule):
            rules.setdefault(name, []).append(rule)
    return rules


def _quietly(rule: OptionRule, options: Mapping[str, str]) -> dict[str, float] | None:
    """Return what a rule reads, None where it refuses."""
    try:
        return rule.read(options)
    except (ValueError, ArithmeticError, KeyError, IndexError, TypeError, RecursionError):
        return None


def effect_of(tool: Tool, name: str) -> str:
    """Return what an option without a leaf moves, by the tool's table of effects; "" where it is in no table."""
    last = name.rpartition(".")[2]
    for candidate in (name, f"--{last.lstrip('-').replace('_', '-')}", last):
        if candidate in tool.effects:
            return str(tool.effects[candidate])
        for pattern, moves in tool.effects.items():
            if "*" in pattern and fnmatch.fnmatchcase(candidate, pattern):
                return str(moves)
    return ""


# --- model, chip, devices ---------------------------------------------------------------------------------


def _model(
    files: Sources, stated: Mapping[str, str], tool: Tool, workload: str, texts: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return (text that names the model, workload of the catalogue), by options, then by variables and file names."""
    if workload:
        return workload, catalog.resolve("workload", workload)
    candidates = [_joined(entry, stated) for entry in tool.model_options]
    candidates += [stated.get(name, "") for name in ("--tokenizer-model", "--tokenizer-name-or-path", "tokenizer_path")]
    by_variable = (text for name, text in files.variables.items() if "MODEL" in name.upper() or "CKPT" in name.upper())
    candidates += [*by_variable, *texts]
    named = [text for text in candidates if text and not text.startswith("-") and " " not in text.strip()]
    for text in named:
        if text.lower() in tool.models:  # "" for a model that the catalogue lacks
            return text, tool.models[text.lower()] or None
        if slug := recognition.model_of(text):
            return text, _generation(
                slug, [stated.get(name) or stated.get(name.lstrip("-"), "") for name in tool.model_hints]
            )
    for text in configurations(files) if not named or named[0] in texts else ():
        if slug := recognition.model_of(text):
            return text, slug
    name = named[0] if named and named[0] not in texts else ""
    if tool.study == "serving" and (kind := recognition.other_kind(name)):
        fix = "give a decoder, or its shape: -w NAME, or its config.json too"
        raise InputError(", ".join(texts), f"{name}, {kind}", "a model that decodes text", fix)
    return name, None


def _generation(slug: str, hints: Sequence[str]) -> str:
    """Return the model of the same shape that a path to its tokenizer or checkpoint names, else the model itself."""
    entry = catalog.entry("workload", slug)
    for other in filter(None, map(recognition.model_of, hints)):
        shape = catalog.entry("workload", other)
        if all(shape.value(name) == entry.value(name) for name in _SHAPE):
            return other
    return slug


#: Fields by which two models are generations of one shape.
_SHAPE = ("n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab")


def _joined(entry: str | Sequence[str], stated: Mapping[str, str]) -> str:
    """Return the text of an option, or those of several joined; "" where one is not stated."""
    names = [entry] if isinstance(entry, str) else list(entry)
    texts = [stated.get(name, "") for name in names]
    return "-".join(texts) if all(texts) else ""


def _chip(
    files: Sources, stated: Mapping[str, str], tool: Tool, system: str, texts: Mapping[str, str]
) -> NamedChip | None:
    """Return the chip that options, schedulers, manifests, variables, file names or comments name, None for none."""
    if system:
        return NamedChip(system, system)
    places = [[stated.get(name, "") for name in tool.chip_options], files.directives]
    places.append([text for part in files.parts if part.table is not None for text in _hardware_texts(part.table)])
    places.append(
        [
            word
            for part in files.parts
            for word in part.words
            if re.match(r"--?(gpu|device|tpu|gres|constraint|instance|accelerator)", word)
        ]
    )
    places.append(
        [
            text
            for name, text in files.variables.items()
            if re.search(r"GPU|CHIP|DEVICE|HARDWARE|INSTANCE", name.upper())
        ]
    )
    places.append(configurations(files))
    places.append([word for part in files.parts if part.words[:1] == ("grep",) for word in part.words])  # of nvidia-smi
    places += [list(texts), _comments(files.text)]
    for place in places:
        chips = recognition.chips_in(" ; ".join(place))
        if len(chips) == 1:
            return NamedChip(*next(iter(chips.items())))
        if chips:
            return recognition.chip_of(next(text for text in place if recognition.chip_of(text)))
    return None


def _hardware_texts(node: Any, key: str = "") -> Iterator[str]:
    """Yield the texts of a manifest that name hardware: labels of nodes, instance types, accelerators."""
    if isinstance(node, dict):
        for name, child in node.items():
            if (
                re.search(r"(?i)nodeSelector|affinity|instance|accelerator|gpu|machine|tolerations|labels", str(name))
                or key
            ):
                yield str(name)
                yield from _hardware_texts(child, str(name))
            else:
                yield from _hardware_texts(child, "")
    elif isinstance(node, list):
        for child in node:
            yield from _hardware_texts(child, key)
    elif key and isinstance(node, str):
        yield node


def _comments(text: str) -> list[str]:
    """Return the comments of files."""
    return re.findall(r"(?:^|\s)#(?!SBATCH|!)\s*(.{0,200})$", text, re.M)


def _with_slices(
    files: Sources,
    stated: Mapping[str, str],
    launched: DeviceCount,
    chip: NamedChip | None,
    n_devices: int | None,
) -> DeviceCount:
    """Return the number of devices: as it is stated, as of slices of a TPU, or of hosts of an instance type."""
    if n_devices is not None:
        return DeviceCount(n_devices, launched.nodes, launched.per_node)
    if launched.total is None:
        words = [word for part in files.parts for word in part.words]
        texts = (*(text for word in words for text in word.split("=")), *files.variables.values(), *stated.values())
        if chips := next(filter(None, map(recognition.slice_devices, texts)), None):
            slices = re.search(r"(?:--num[-_]slices|compile_topology_num_slices)[= ](\d+)", " ".join(words))
            count = int(slices[1]) if slices else 1
            return DeviceCount(chips * count, count, chips)
        if launched.nodes and (per_node := _host_devices(files, chip)):
            return DeviceCount(launched.nodes * per_node, launched.nodes, per_node)
    return launched


def _host_devices(files: Sources, chip: NamedChip | None) -> int:
    """Return the devices of a host by an instance type that files name, 0 for none."""
    return recognition.chip_devices(files.text) if chip else 0


def _usage(files: Sources) -> dict[str, str]:
    """Return the pseudo-option of how a program uses its engine: of a benchmark by its row, of Python by its class."""
    rows = filter(None, (client_of(part.words) for part in files.parts))
    usage = next((row["usage"] for row in rows if "usage" in row), "")
    is_offline = any(name.endswith(".py") and re.search(r"\bLLM\(", text) for name, text in files.files.items())
    return {USAGE: usage or "offline"} if usage or is_offline else {}


def _pseudo_options(chip: NamedChip | None, devices: DeviceCount, slug: str | None, system: str) -> dict[str, str]:
    """Return what rules may read besides options: devices, chip, layers and experts of the model."""
    pseudo: dict[str, str] = {}
    if devices.total:
        pseudo[WORLD_SIZE] = str(devices.total)
    if devices.nodes:
        pseudo[NODES] = str(devices.nodes)
    if chip:
        from dse.designs import accelerator_of

        pseudo[CHIP] = accelerator_of(chip.name) or ""
    if slug:
        entry = catalog.entry("workload", slug)
        pseudo[N_LAYERS] = f"{entry.value('n_layers'):g}"
        if context := context_of(slug):
            pseudo[MODEL_CONTEXT] = f"{context:g}"
        pseudo[N_EXPERTS] = f"{entry.value('experts.n_experts') or 0:g}"
    return pseudo


#: Leaves of a workload that are a recipe's, not of the model's shape.
_RECIPE = ("workload.seq_len", "workload.global_batch", "workload.requests.", "workload.adapters.")


def _without_absent_experts(values: Mapping[str, float], slug: str | None) -> dict[str, float]:
    """Return values without those of experts at their neutral value, of a model that has none."""
    if (slug is not None and catalog.is_mixture(slug)) or values.get("workload.experts.n_experts"):
        return dict(values)
    leaves = all_leaves()

    def is_neutral(path: str, value: float) -> bool:
        metadata = leaves.get(path, {})
        return value in (metadata.get("absent"), metadata.get("default"), 0.0, 1.0)

    return {
        path: value
        for path, value in values.items()
        if not (path.startswith(("mapping.experts.", "workload.experts.")) and is_neutral(path, value))
    }


def check(reading: RecipeReading, where: str) -> None:
    """Raise InputError for degrees that contradict the devices, the model or the batch: the tool does not start.

    Args:
        reading: of files.
        where: name of the files.
    """
    values, devices, slug = reading.shape | reading.values, reading.devices, reading.workload
    entry = catalog.entry("workload", slug) if slug else None

    def value(name: str) -> float:
        path = f"workload.{name}"
        return float(values.get(path) or (entry.value(name) if entry else 0.0) or 0.0)

    for path in _DEGREES:
        if values.get(path, 1.0) < 1.0:
            name = short_name(path)
            raise InputError(where, f"{name} {values[path]:g}", f"{name} of at least 1", f"correct {name}")
    if got := next(filter(None, (contradicts(reading.raw) for contradicts in reading.tool.contradictions)), ""):
        raise InputError(where, got, "degrees that divide the ranks", "correct one of them")
    degrees = math.prod(values.get(path, 1.0) for path in _DEGREES)
    tp, ep, dp = (values.get(f"mapping.{name}", 1.0) for name in ("tp", "experts.ep", "dp"))
    recognition.check_devices(devices.total, degrees, where)
    heads, experts = value("n_heads"), value("experts.n_experts")
    checks = [(heads, tp, "heads", "tp"), (experts, ep, "experts", "ep")]
    for count, degree, what, name in checks:
        if count and degree > 1.0 and count % degree:
            got = f"{count:g} {what} over {degree:g} ranks"
            raise InputError(where, got, f"{what} that are a multiple of {name}", f"correct {name}")
    if entry is not None and not experts and ep > 1.0:
        raise InputError(
            where, f"expert parallelism (ep {ep:g}) of {slug}, which has no experts", "ep 1", "leave it out"
        )
    batch, micro = (values.get(path) for path in ("workload.global_batch", "mapping.micro_batch"))
    replicas = devices.total / degrees if devices.total else dp if "mapping.dp" in values else 0.0
    if batch and micro and replicas and batch % (micro * replicas):
        got = f"a global batch of {batch:g}, micro-batches of {micro:g} on {replicas:g} data-parallel ranks"
        raise InputError(where, got, "a batch that is a multiple of both", "correct one of the batches")
    if "mapping.dp" in values and devices.total and batch and devices.total != degrees * dp:
        got = f"a global batch of {batch:g} of {dp:g} data-parallel ranks, on {devices.total} devices"
        raise InputError(
            where, got, f"{devices.total / degrees:g} data-parallel ranks", "correct the batch or a degree"
        )
    missing = [name for name in reading.tool.required if name not in reading.raw]
    if missing and reading.fields[0]:
        got, allowed = f"no {missing[0]}", f"what {reading.tool.name} needs to start: {missing[0]}"
        raise InputError(where, got, allowed, "add the option")
    for row in reading.tool.conflicts:
        if all(is_on(reading.raw, name) for name in row["options"]) and holds(row.get("leaves", {}), values.get):
            named = " and ".join((*row["options"], *map(short_name, row.get("leaves", ()))))
            raise InputError(where, f"{named}: {row['why']}", "one of them", "leave the other out")


def is_shape(path: str) -> bool:
    """True for a leaf of a model's shape."""
    return path.startswith("workload.") and not path.startswith(_RECIPE)
