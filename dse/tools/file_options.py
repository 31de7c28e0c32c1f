"""Options that files state: of tables, and of the commands that run a tool."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dse.errors import InputError
from dse.tools import recognition
from dse.tools.calls import absent_configurations, function_options, script_call
from dse.tools.options import (
    ChoiceOption,
    NumberOption,
    SwitchOption,
    Tool,
)
from dse.tools.rows import option_name, options_of
from dse.tools.rule_names import is_word, option_names, read_options, rules_by_name
from dse.tools.sources import ENVIRONMENTS, Source, Sources
from dse.tools.words import value_text

#: Texts of options that state nothing.
_NOTHING = ("auto", "null", "none", "~", "default", "unset")


def options_of_files(
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
    else:
        name = _option_name(path, tool, names)
        # A null is no value, but where it turns off what is on by default.
        if node is not None or any(
            isinstance(rule, ChoiceOption) and rule.has_word(name, "null") for rule in tool.rules
        ):
            yield name, "null" if node is None else _text(node)


def _text(value: Any) -> str:
    """Return a value of a configuration as the text of an option."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value_text(value)


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
    """Return options without those whose texts state nothing, and add a note on open variables.

    An open variable behind a switch is none of its text: a shell leaves nothing of it.
    """
    options = {name: "" if _is_open_switch(tool, name, text) else text for name, text in options.items()}
    open_names = {
        name: text for name, text in options.items() if re.search(r"\$\{?\w", text) and not text.startswith("{")
    }
    models = {name for entry in tool.model_options for name in ([entry] if isinstance(entry, str) else entry)}
    relevant = [name for name in open_names if name in option_names(tool) - models and name not in tool.effects]
    if relevant:
        shown = ", ".join(f"{name} {options[name]}" for name in relevant[:4])
        notes.append(f"left open by the file: {shown}")
    rows = {rule.option: rule for rule in tool.rules if isinstance(rule, NumberOption)}
    read_names = rules_by_name(tool).keys()
    open_names = {name: text for name, text in open_names.items() if name in read_names | models}  # others are named
    return {
        name: text
        for name, text in options.items()
        if name not in open_names
        and (text.lower() not in _NOTHING or is_word(tool, name, text))
        and not (name in rows and (text in rows[name].nothing or (text == "" and not rows[name].switch)))
    }


def _is_open_switch(tool: Tool, name: str, text: str) -> bool:
    """True for a switch with nothing behind it but variables that the file does not assign."""
    if not name.startswith("-") or not re.fullmatch(r"(\$\{\w+\}\s*)+", text):
        return False
    if tool.defaults.get(name, "").lower() in ("false", "true") or name in tool.off_options:
        return True
    rules = rules_by_name(tool).get(name, [])
    return any(
        (isinstance(rule, SwitchOption) and not rule.value)
        or (isinstance(rule, ChoiceOption) and any((name, "") in pairs for _, pairs in rule.values))
        for rule in rules
    )


def options_with_defaults(tool: Tool, defaults: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, str]:
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
