"""Tables of tools: rows of ``tables/TOOL.toml``, which become rules, and the lines that are written of their options.

A row has a ``leaf`` (or ``leaves``) by full path, the value ``absent`` of a design without it (by default there are no
options then), ``also`` for further leaves that its options say something of, and one of these:

``option``
    An option with the number of the leaf in the tool's ``unit``, left out at the tool's ``default``: a number, or a
    leaf of equal value. ``names`` are read too, ``text`` holds the number within the value, which is also read by its
    ``key`` in JSON, ``high`` is the largest number that is read. ``switch`` comes in front; with ``needs_switch`` the
    option is read behind it alone, and ``names`` without it; with ``reads = false`` the option is only written.
    ``nothing``: texts of a number that the tool computes.
``switch``
    An option that is present at ``on`` (1), absent or its ``opposite`` at ``off`` (0).
``values``
    Names or numbers of the leaf → options as on a command line; other values have none. Of several leaves one word
    each, ``*`` for any value. ``reads``: further options, with patterns → the value that they are read as.
``cases``
    Tried in order before the above: where all conditions of ``when`` hold, ``text`` are the options, or without a text
    there is no option for the design.

A row of ``mixture = true`` is not read for a dense model. With ``writes = false`` a row is only read, and of a switch
what it states where it is on.

A ``when`` of the row itself leaves its options out unless all conditions hold. A condition is a path with a name or
number, a list of them, ``> n``, or true and false for any value but 0 and for 0 or none. ``{ code = NAME }`` is a rule
in Python, ``{ inherit = LEAVES }`` the rules of the tool that this one is built on whose first leaf is one of them or
matches a pattern, but those of ``except``; with ``writes = false`` they are only read.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
import re
import shlex
import types
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.designs.leaves import leaf_value
from dse.io import toml
from dse.tools.options import (
    CaseOption,
    ChoiceOption,
    Condition,
    Lookup,
    NumberOption,
    OptionRule,
    Pairs,
    SwitchOption,
    Tool,
    hosts,
    number_of,
)
from dse.tools.words import options


@functools.cache
def table(name: str) -> dict[str, Any]:
    """Return key → value of the table of a tool."""
    return toml.table(Path(__file__).parent / "tables" / f"{name}.toml")


def read_tool(
    name: str,
    code: Mapping[str, OptionRule | tuple[OptionRule, ...]] = types.MappingProxyType({}),
    inherited: Callable[[Mapping[str, Any]], Sequence[OptionRule]] | None = None,
    **fields: Any,
) -> Tool:
    """Return the tool of a table.

    Args:
        name: of the tool, and of its table.
        code: name in the table → rule in Python, or several in a row.
        inherited: gives the rules that a row has of the tool that this one is built on.
        **fields: further fields of :class:`Tool`.
    """
    document = table(name)
    rules: list[OptionRule] = []
    for row in document["rules"]:
        if "inherit" in row and inherited:
            rules += inherited(row)
        else:
            found = code[row["code"]] if "code" in row else _row_rule(**row)
            rules += found if isinstance(found, tuple) else (found,)
    fields_of_tool = {field.name for field in dataclasses.fields(Tool)}
    values: dict[str, Any] = {key: value for key, value in document.items() if key in fields_of_tool}
    values |= {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    values["roles"] = {role: _writer(text) for role, text in document.get("roles", {}).items()}
    return Tool(**values | {"name": name, "rules": tuple(rules), "show": _line_writer(document)} | fields)


def defaults_of(
    tool: Tool, version: str = "", chip: str = "", stated: Mapping[str, str] = types.MappingProxyType({})
) -> dict[str, str]:
    """Return option → text of what a tool takes where nothing is said.

    Args:
        tool: with defaults of its version, and others before or since a version, of chips, or with options.
        version: that runs; "" for that of the table.
        chip: accelerator of the catalogue; "" if unknown.
        stated: option → text of what is said; a row of ``options`` counts where all of its patterns match, and none
            of those ``without``, and the first that is there of each entry of ``over`` exceeds its number. A row that
            ``replaces`` has no other defaults: a configuration that is not there has its own.

    >>> from dse.tools import tool_of
    >>> defaults_of(tool_of("vllm"), "0.33", "b200-sxm-180gb")["--gpu-memory-utilization"]
    '0.92'
    """
    defaults = dict(tool.defaults)
    for row in tool.other_defaults:
        is_of_version = ("before" not in row or (version and _parts(version) < _parts(row["before"]))) and (
            "since" not in row or (version and _parts(version) >= _parts(row["since"]))
        )
        matches = {
            name: name in stated and fnmatch.fnmatchcase(stated[name].lower(), pattern)
            for name, pattern in {**row.get("options", {}), **row.get("without", {})}.items()
        }
        is_of_options = all(matches[name] == (name in row.get("options", {})) for name in matches)
        is_of_chip = "chips" not in row or any(fnmatch.fnmatchcase(chip, pattern) for pattern in row["chips"])
        is_over = all(_exceeds(stated, names.split("|"), limit) for names, limit in row.get("over", {}).items())
        if is_of_version and is_of_options and is_of_chip and is_over:
            defaults = {**({} if row.get("replaces") else defaults), **row["values"]}
    return defaults


def _exceeds(stated: Mapping[str, str], names: Sequence[str], limit: float) -> bool:
    """True where the first of some options that is there exceeds a number."""
    text = next((stated[name] for name in names if name in stated), "")
    try:
        return number_of(text) > limit
    except ValueError:
        return False


def _parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, by which versions compare."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _row_rule(
    leaf: str = "",
    leaves: Sequence[str] = (),
    also: Sequence[str] = (),
    when: Mapping[str, Any] = types.MappingProxyType({}),
    cases: Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> CaseOption:
    """Return the rule of a row."""
    paths = tuple(leaves or (leaf,))
    case_pairs = tuple((_condition(case["when"]), _writer(case["text"]) if "text" in case else None) for case in cases)
    fields |= {"leaves": paths, "also": tuple(also), "when": _condition(when), "cases": case_pairs}
    fields |= {key: tuple(fields[key]) for key in ("names", "nothing") if key in fields}
    for key in ("values", "reads") if "values" in fields else ():
        rows = fields.get(key, {}).items()
        code_pairs = rows if key == "values" else ((codes, text) for text, codes in rows)
        fields[key] = tuple((_codes(paths, str(codes)), pairs_of(text)) for codes, text in code_pairs)
    kind = next((kind for key, kind in _KINDS.items() if key in fields), CaseOption)
    arguments: dict[str, Any] = {key: float(value) if type(value) is int else value for key, value in fields.items()}
    return kind(**arguments)


_KINDS: dict[str, type[CaseOption]] = {"values": ChoiceOption, "option": NumberOption, "switch": SwitchOption}


def _codes(paths: Sequence[str], words: str) -> tuple[float | None, ...]:
    """Return the value of each leaf from its word, None for "*"."""
    return tuple(None if word == "*" else _code(path, word) for path, word in zip(paths, words.split(), strict=True))


def _code(path: str, value: Any) -> float:
    """Return a value of a leaf in SI units from its name or number."""
    return leaf_value(path, float(value) if re.fullmatch(r"-?[\d.]+", str(value)) else value)


def holds(conditions: Mapping[str, Any], leaf: Lookup) -> bool:
    """Return True where all conditions of a table hold for leaves, by path."""
    return _condition(conditions)(leaf)


def _condition(conditions: Mapping[str, Any]) -> Condition:
    """Return the function (leaves → truth) of conditions by path, all of which must hold."""

    def holds(path: str, allowed: Any) -> Condition:
        if isinstance(allowed, bool):
            return lambda leaf: bool(leaf(path)) is allowed
        if isinstance(allowed, str) and allowed.startswith(">"):
            limit = float(allowed[1:])
            return lambda leaf: (leaf(path) or 0.0) > limit
        codes = [_code(path, value) for value in (allowed if isinstance(allowed, list) else [allowed])]
        return lambda leaf: leaf(path) in codes

    tests = [holds(path, allowed) for path, allowed in conditions.items()]
    return lambda leaf: all(test(leaf) for test in tests)


def pairs_of(text: str) -> Pairs:
    """Return options as a command line states them.

    >>> pairs_of("--fp8-format hybrid --bf16"), pairs_of("model.fp8=true")
    ([('--fp8-format', 'hybrid'), ('--bf16', '')], [('model.fp8', 'true')])
    """
    return list(options(shlex.split(text)).items())


def options_of(words: Sequence[str], tool: Tool, single: Container[str] = ()) -> dict[str, str]:
    """Return option → its values joined by spaces, "" for a switch, by the names in the rules of a tool.

    ``single`` are options of one value.
    """
    return options(words, tool.entries, lambda text: option_name(text, tool), single)


def option_name(text: str, tool: Tool) -> str:
    """Return the name of an option, or of a key of a file, in the rules of a tool.

    Underscores are dashes or the reverse where the tool's parser reads both. Of a dotted name (``-cc.mode``) the first
    part may be an alias.
    """
    if tool.underscores:
        text = "--" + text[2:].replace("-", "_") if text.startswith("--") else text[:1] + text[1:].replace("-", "_")
    elif tool.dashes and text.startswith("--"):
        text = "--" + text[2:].replace("_", "-")
    if text in tool.aliases:
        return tool.aliases[text]
    if tool.overrides_prefix and text.startswith("--"):
        return tool.overrides_prefix + text[2:].replace("-", "_")
    head, dot, tail = text.partition(".")
    return f"{tool.aliases[head]}{dot}{tail}" if dot and head in tool.aliases else text


def _writer(text: str) -> Callable[[Lookup], Pairs]:
    """Return the function (leaves → options) of a text, with ``{nodes}`` and ``{each}``, the devices of a node."""
    pairs = pairs_of(text)
    if "{each}" not in text:
        return lambda leaf: list(pairs)

    def write(leaf: Lookup) -> Pairs:
        nodes, devices_per_host = hosts(leaf)
        return [(name, value.format(nodes=nodes, each=devices_per_host)) for name, value in pairs]

    return write


# --- lines ------------------------------------------------------------------------------------------------


def _line_writer(document: Mapping[str, Any]) -> Callable[[Lookup, Pairs], str]:
    """Return the function (leaves, options) → text of a tool's table.

    The ``line`` has ``flags`` or ``assignments`` (``name=value``), one per line, behind the ``command``, in which
    ``{nodes}`` and ``{each}``, the devices of a node, are replaced; or it is ``json`` or ``yaml``, nested by dots. Of a
    tool with ``entries_option``, options without a dash are entries of a YAML file that a line in front writes.
    """

    def show(leaf: Lookup, pairs: Pairs) -> str:
        if document["line"] == "yaml":
            return "\n".join(_yaml_lines(nested_tables(pairs)))
        if document["line"] == "json":
            return json.dumps(nested_tables(pairs), indent=2)
        entries = [f"{name}: {value}" for name, value in pairs if "entries_option" in document and name[0] != "-"]
        if entries:
            options = [pair for pair in pairs if pair[0][0] == "-"]
            pairs = [*options, (document["entries_option"], document["entries_file"])]
        nodes, devices_per_host = hosts(leaf)
        command = document["command"].format(nodes=nodes, each=devices_per_host)
        if document["line"] == "flags":
            words = [f"{name} {_quoted(value)}".strip() for name, value in pairs]
        else:
            words = [_quoted(f"{name}={value}") for name, value in pairs]
        line = " \\\n    ".join([command, *words])
        return "\n".join([f"cat > {document['entries_file']} <<EOF", *entries, "EOF", line]) if entries else line

    return show


def _yaml_lines(tables: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of nested tables as YAML, each value as JSON has it."""
    for key, value in tables.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _yaml_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{key}: {value if isinstance(value, str) else json.dumps(value)}"


def _quoted(value: str) -> str:
    """Return the value of an option, quoted for a shell where it has brackets or stars."""
    return shlex.quote(value) if any(c in value for c in "{([*") else value


def nested_tables(pairs: Pairs) -> dict[str, Any]:
    """Return nested tables of the values of options whose names are dotted paths.

    >>> nested_tables([("--zero.stage", "3"), ("zero.overlap", "true")])
    {'zero': {'stage': 3, 'overlap': True}}
    """
    document: dict[str, Any] = {}
    for name, text in pairs:
        *tables, key = name.removeprefix("--").split(".")
        inner = document
        for table_name in tables:
            inner = inner.setdefault(table_name, {})
        inner[key] = parsed_value(text)
    return document


def parsed_value(text: str) -> Any:
    """Return the number, truth value, list or text that the text of an option states; True for ""."""
    if text.lower() in ("", "true", "false"):
        return text.lower() != "false"
    if text.startswith("[") and text.endswith("]"):
        return [parsed_value(element) for element in text[1:-1].split(",")]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text
