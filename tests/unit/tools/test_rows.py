"""Rows of the tables of tools: each is written from a design that has its value, and read back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dse.designs import all_leaves
from dse.tools import TOOLS
from dse.tools.options import ChoiceOption, NumberOption, SwitchOption
from dse.tools.rows import table

DOCUMENTED = tomllib.loads((Path(__file__).parent / "options.toml").read_text())
ROWS = [(name, number, rule) for name, tool in TOOLS.items() for number, rule in enumerate(tool.rules)]


def ids(of):
    return [f"{name}-{number}" for name, number, _ in of]


def of(kind):
    return [row for row in ROWS if isinstance(row[2], kind)]


NUMBERS, CHOICES, SWITCHES = of(NumberOption), of(ChoiceOption), of(SwitchOption)


@pytest.mark.parametrize(("tool", "number", "rule"), ROWS, ids=ids(ROWS))
def test_a_rule_is_of_leaves(tool, number, rule):
    assert set(rule.paths) <= all_leaves().keys()


@pytest.mark.parametrize(("tool", "number", "rule"), NUMBERS, ids=ids(NUMBERS))
def test_a_number_is_written_unless_it_is_the_default_and_read_back(tool, number, rule):
    assert rule.option in DOCUMENTED[tool]["names"].split()
    value = 0.5 if rule.high == 1.0 else 3.0
    assert rule.pairs_of(value, {}.get)[-1][0] == rule.option
    if rule.default is not None:
        default = value if isinstance(rule.default, str) else rule.default
        assert rule.pairs_of(default, {rule.default: default}.get) == []
    if rule.reads:
        assert rule.read(dict(rule.pairs_of(value, {}.get))) == {rule.path: pytest.approx(value, rel=1e-5)}
    else:
        assert rule.read(dict(rule.pairs_of(value, {}.get))) == {}


@pytest.mark.parametrize(("tool", "number", "rule"), CHOICES, ids=ids(CHOICES))
def test_a_choice_is_written_and_read_back(tool, number, rule):
    names = set(DOCUMENTED[tool]["names"].split())
    for _, pairs in (*rule.values, *rule.reads):
        assert {name for name, _ in pairs} <= names
    for codes, pairs in rule.values:
        values = {path: 0.0 if code is None else code for path, code in zip(rule.leaves, codes, strict=True)}
        assert rule.pairs_of(values[rule.path], values.get) == pairs
        stated = {path: code for path, code in zip(rule.leaves, codes, strict=True) if pairs and code is not None}
        alike = [codes for codes, other in rule.values if other == pairs]
        assert rule.read(dict(pairs)) == stated or len(alike) > 1 or any("*" in p for _, q in rule.reads for _, p in q)
    assert rule.pairs_of(-7.0, {}.get) is None


@pytest.mark.parametrize(("tool", "number", "rule"), SWITCHES, ids=ids(SWITCHES))
def test_a_switch_is_on_off_or_has_no_option(tool, number, rule):
    assert {rule.switch, rule.opposite} - {""} <= set(DOCUMENTED[tool]["names"].split())
    assert rule.read(dict(rule.pairs_of(rule.on, {}.get))) == {rule.path: rule.on}
    assert rule.read(dict(rule.pairs_of(rule.off, {}.get))) == ({rule.path: rule.off} if rule.opposite else {})
    assert rule.pairs_of(0.3, {}.get) is None


@pytest.mark.parametrize("tool", TOOLS)
def test_rules_in_code_are_named_once(tool):
    """Most rows need none: these are the exceptions."""
    names = [row["code"] for row in table(tool)["rules"] if "code" in row]
    assert len(names) == len(set(names)) <= max(11, len(TOOLS[tool].rules) // 2)
