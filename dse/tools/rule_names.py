"""Options that the rules of a tool read: their names, and what rules say of them."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import math
from collections.abc import Mapping
from typing import Any

from dse.designs import short_name
from dse.errors import InputError
from dse.tools.options import (
    ByteDependentOption,
    ChoiceOption,
    CompositeOption,
    NumberOption,
    OptionRule,
    SwitchOption,
    Tool,
)


@functools.lru_cache(maxsize=64)
def option_names(tool: Tool) -> frozenset[str]:
    """Return the names of the options that a tool's rules read, with aliases and options of its tables."""
    names = {*tool.aliases, *tool.aliases.values(), *tool.defaults, *(name for name in tool.effects if "*" not in name)}
    names |= {name for name in tool.model_options if isinstance(name, str)}
    for rule in tool.rules:
        names |= names_of_rule(rule)
    return frozenset(names)


def names_of_rule(rule: OptionRule) -> set[str]:
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


def is_word(tool: Tool, name: str, text: str) -> bool:
    """True where a word that states nothing elsewhere is a value of an option; ``auto`` never is."""
    choices = (rule for rule in tool.rules if isinstance(rule, ChoiceOption))
    is_choice = text.lower() != "auto" and any(rule.has_word(name, text) for rule in choices)
    return is_choice or (name in tool.none_options and text.lower() == "none")


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


@functools.lru_cache(maxsize=64)
def rules_by_name(tool: Tool) -> dict[str, list[OptionRule]]:
    """Return option → rules that read it."""
    rules: dict[str, list[OptionRule]] = {}
    for rule in tool.rules:
        for name in names_of_rule(rule):
            rules.setdefault(name, []).append(rule)
    return rules


def values_or_none(rule: OptionRule, options: Mapping[str, str]) -> dict[str, float] | None:
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
