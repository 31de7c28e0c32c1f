"""Options of Megatron-LM by the names of the tools that are built on it.

The table of such a tool has the ``sections`` (option of Megatron-LM → its path), the ``prefixes`` of paths that mean
options of Megatron-LM by their attributes, ``read_sections`` (further path → option, "" for none), and what an option
``implies``. What recipes state is in ``tables/recipes.toml``.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from dse.tools.megatron import MEGATRON_LM
from dse.tools.options import CompositeOption, Lookup, OptionRule, Pairs, Tool, is_on, unwritten
from dse.tools.rows import pairs_of, read_tool, table

#: Values of an option that says nothing.
_NOTHING = ("null", "none", "~")


@functools.cache
def _attributes() -> dict[str, list[tuple[str, bool]]]:
    """Return option of Megatron-LM → (attribute or field of another name, True for its opposite)."""
    document = table("megatron-lm")
    names: dict[str, list[tuple[str, bool]]] = {}
    for key, is_negated in (("attributes", False), ("fields", False), ("negated", True), ("negated_fields", True)):
        for attribute, option in document[key].items():
            names.setdefault(option, []).append((attribute, is_negated))
    return names


@functools.cache
def _paths_of(tool: str, option: str) -> tuple[tuple[str, bool], ...]:
    """Return the paths by which a tool states an option of Megatron-LM, with True for those of its opposite.

    Options of a launcher are first: they count before what a recipe has.
    """
    document = table(tool)
    sections, further = document.get("sections", {}), document.get("read_sections", {})
    paths = [(sections[option], False)] if option in sections else []
    paths += [(path, False) for path, name in further.items() if name == option]
    attributes = [(option.removeprefix("--").replace("-", "_"), False), *_attributes().get(option, [])]
    prefixes = document.get("prefixes", [])
    paths += [(prefix + name, is_negated) for prefix in prefixes for name, is_negated in attributes]
    foreign = {*further, *(path for name, path in sections.items() if name != option)}
    paths = [entry for entry in paths if entry[0] not in foreign or further.get(entry[0]) == option]
    return tuple(sorted(paths, key=lambda entry: not entry[0].startswith("--")))


@functools.cache
def _implied(tool: str, option: str) -> tuple[tuple[str, str], ...]:
    """Return (option or path, value) that imply an option of Megatron-LM."""
    rows = table(tool).get("implies", {}).items()
    return tuple((key, value) for key, text in rows for name, value in pairs_of(text) if name == option)


class MegatronOptions(Mapping[str, str]):
    """Options of a tool by the names of Megatron-LM: "" for a switch, "false" for one that is off, words for a list.

    Names are looked up one by one, so that a reader learns which options a rule reads.

    >>> options = MegatronOptions(
    ...     "megatron-bridge", {"model.add_bias_linear": "false", "model.cp_comm_type": "[p2p,a2a]"}
    ... )
    >>> options["--disable-bias-linear"], options["--cp-comm-type"], "--bf16" in options
    ('', 'p2p a2a', False)
    """

    def __init__(self, tool: str, options: Mapping[str, str]) -> None:
        self._tool = tool
        self._options = options

    def __getitem__(self, option: str) -> str:
        text = self._text(option)
        if text is None:
            raise KeyError(option)
        return text

    def __iter__(self) -> Iterator[str]:
        return (option for option in _option_names() if option in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, option: object) -> bool:
        return self._text(str(option)) is not None

    def _text(self, option: str) -> str | None:
        """Return the text of an option, None without it: as it is stated, else as implied, else by default."""
        if option.startswith("@"):
            return self._options.get(option)
        document, default = table(self._tool), None
        default_texts, none_options = document.get("defaults", {}), document.get("none_options", [])
        paths, implied = _paths_of(self._tool, option), _implied(self._tool, option)
        n_launched = sum(path.startswith("--") for path, _ in paths)
        for i, (path, is_negated) in enumerate(paths):
            if i == n_launched and (value := self._implied_text(implied, by_launcher=True)) is not None:
                return value
            text = self._options.get(path)
            if text is not None and text.lower() == "none" and path in none_options:
                return "1"  # as many as one
            if text is None or text.lower() in _NOTHING:
                continue
            value = _as_words(text)
            value = ("" if value == "false" else "false") if is_negated else value
            if default_texts.get(path) != text:
                return value
            default = value if default is None else default
        value = self._implied_text(implied)
        return default if value is None else value

    def _implied_text(self, implied: tuple[tuple[str, str], ...], by_launcher: bool = False) -> str | None:
        """Return the text that an option has by others, or by options of a launcher alone; None without it."""
        for key, value in implied:
            is_launched = key.startswith("--") and key not in _option_names()
            if (is_launched or not by_launcher) and is_on(self._options if is_launched or key[0] != "-" else self, key):
                return value
        return None


@functools.cache
def _option_names() -> frozenset[str]:
    """Return the names of Megatron-LM's options in its table and in those of tools that are built on it."""
    document = table("megatron-lm")
    return frozenset((*document["defaults"], *document["effects"], *_attributes(), "--num-query-groups"))


def as_value(value: str) -> str:
    """Return the value of an option as a recipe writes it: "true" for a switch, a list in brackets."""
    if not value:
        return "true"
    return "[" + ",".join(value.split()) + "]" if " " in value else value


def _as_words(text: str) -> str:
    """Return a value of a recipe as Megatron-LM's option has it: "" for "true", a list as words, a type by its name."""
    if text.lower() in ("true", ""):
        return ""
    if text.lower() == "false":
        return "false"
    words = text.strip("[]").replace(",", " ") if not text.startswith("[[") else text
    return words.removeprefix("torch.")


def renamed_rule(tool: str, rule: OptionRule) -> OptionRule:
    """Return a rule of Megatron-LM by the names of the configuration of a tool."""
    document = table(tool)
    sections, prefix = document.get("sections", {}), document.get("prefixes", [""])[0]
    attributes = {option: name for name, option in reversed(table("megatron-lm")["attributes"].items())}

    def write(leaf: Lookup) -> Pairs | None:
        pairs = rule.write(leaf)
        return None if pairs is None else [(path_of(name), value_of(name, value)) for name, value in pairs]

    def path_of(option: str) -> str:
        attribute = _NEGATED.get(option) or attributes.get(option) or option.removeprefix("--").replace("-", "_")
        return str(sections.get(option, prefix + attribute))

    def value_of(option: str, value: str) -> str:
        return "false" if option in _NEGATED and option not in sections and not value else as_value(value)

    return CompositeOption(rule.paths, write, lambda options: rule.read(MegatronOptions(tool, options)))


_NEGATED = {option: name for name, option in table("megatron-lm")["negated"].items()}


def _inherited(tool: str, row: Mapping[str, Any]) -> list[OptionRule]:
    """Return Megatron-LM's rules that a row names, by the names of a tool; of options of a command they stay."""
    patterns, exceptions = row["inherit"], row.get("except", [])
    rules: list[OptionRule] = []
    for pattern in patterns:
        matching = [rule for rule in MEGATRON_LM.rules if fnmatch.fnmatchcase(rule.paths[0], pattern)]
        rules += matching if "*" in pattern else matching[:1]
    rules = [rule for rule in rules if not any(fnmatch.fnmatchcase(rule.paths[0], name) for name in exceptions)]
    if not row.get("writes", True):
        rules = [CompositeOption(rule.paths, unwritten, rule.read) for rule in rules]
    return rules if table(tool)["line"] == "flags" else [renamed_rule(tool, rule) for rule in rules]


def recipe_tool(name: str, code: Mapping[str, OptionRule], **fields: Any) -> Tool:
    """Return a tool of recipes, with the defaults of those that it is known by name."""
    rows = (*table(name).get("other_defaults", []), *table("recipes").get(name, []))
    effects = {**table(name).get("effects", {})}
    for option, moves in table("megatron-lm")["effects"].items():
        names = [(option.removeprefix("--").replace("-", "_"), False), *_attributes().get(option, [])]
        patterns = [option] if table(name)["line"] == "flags" else [f"*.{attribute}" for attribute, _ in names]
        effects |= {pattern: moves for pattern in patterns if pattern not in effects}
    return read_tool(name, code, functools.partial(_inherited, name), other_defaults=rows, effects=effects, **fields)


def rule_of(path: str) -> OptionRule:
    """Return Megatron-LM's rule of a leaf."""
    return next(rule for rule in MEGATRON_LM.rules if rule.paths[0] == path)


def read_by_names(tool: str, path: str) -> Any:
    """Return the function (options of a tool → values) of Megatron-LM's rule of a leaf."""
    return renamed_rule(tool, rule_of(path)).read
