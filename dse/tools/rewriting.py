"""Files with changed options: the same recipe for another design.

An option that a file states is replaced where it stands; another is written behind one that the file states, as the
format of the file has it. What was written is read again, and counts only where it says what it should.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from dse.tools.options import Lookup, Pairs, Tool
from dse.tools.reading import RecipeReading
from dse.tools.rows import parsed_value
from dse.tools.statuses import DEFAULT, STATED


def rewritten(
    texts: Mapping[str, str],
    reading: RecipeReading,
    lookups: tuple[Lookup, Lookup],
    moves: Mapping[str, float],
    again: Callable[[Mapping[str, str]], RecipeReading],
) -> dict[str, str] | None:
    """Return name → text of the files that change with moves of a design, None where the files cannot say them.

    Args:
        texts: name → text of the files.
        reading: of them.
        lookups: of the leaves of the design before and after.
        moves: path → value that changes.
        again: reads files as ``reading`` was.
    """
    before, after = (_pairs(reading.tool, lookup, moves) for lookup in lookups)
    changed = {name: text for name, text in after.items() if before.get(name) != text}
    removed = [name for name in before if name not in after and name in reading.raw]
    totals = {path: total for path in _TOTALS if path in reading.values and (total := lookups[1](path)) is not None}
    wanted = totals | dict(moves)
    for _ in range(2):
        result = dict(texts)
        for name, text in changed.items():
            _state(result, reading, name, text)
        for name in removed:
            _remove(result, reading, name)
        try:
            current = again(result)
        except ValueError:
            return None
        wrong = {path: value for path, value in wanted.items() if current.values.get(path, _neutral(path)) != value}
        if not wrong:
            break
        changed |= _pairs(reading.tool, lookups[1], {path: value for path, value in wrong.items() if path in _TOTALS})
    if wrong or _other_options(reading, changed, removed) != _other_options(current, changed, removed):
        return None
    return {name: text for name, text in result.items() if text != texts[name]}


#: What a file states besides degrees, and a change of these leaves as it is.
_TOTALS = ("workload.global_batch",)


def _other_options(reading: RecipeReading, changed: Container[str], removed: Container[str]) -> dict[str, str]:
    """Return option → text of the options that files state, without those that a change writes or takes out."""
    stated = {option.option: option.text for option in reading.options if option.status != DEFAULT}
    return {name: text for name, text in stated.items() if name not in changed and name not in removed}


def _neutral(path: str) -> float:
    """Return the value of a degree that is not stated."""
    return 1.0 if path.rpartition(".")[2] in ("tp", "pp", "cp", "dp", "ep", "etp", "virtual_stages") else 0.0


def _pairs(tool: Tool, lookup: Lookup, moves: Mapping[str, float]) -> dict[str, str]:
    """Return option → text of the rules of changed leaves, at defaults too."""
    options: Pairs = []
    for rule in tool.rules:
        if set(rule.paths) & moves.keys():
            options += rule.write(lookup) or []
            option, default = getattr(rule, "option", ""), getattr(rule, "default", None)
            if option and option not in dict(options) and isinstance(default, float):
                options.append((option, f"{default:g}"))
    return dict(options)


def _spellings(tool: Tool, name: str) -> list[str]:
    """Return the ways in which files write an option: its aliases, with underscores, and its key in a table."""
    names = [name, *(alias for alias, target in tool.aliases.items() if target == name)]
    keys = [spelling.lstrip("-").rpartition(".")[2] for spelling in names]
    dashes = [f"--{key.replace('-', '_')}" for key in keys]
    return list(dict.fromkeys([*names, *dashes, *keys, *(key.replace("-", "_") for key in keys)]))


def _pattern(spelling: str) -> re.Pattern[str]:
    """Return the pattern of an option with its value: behind a blank, ``=`` or ``:``."""
    key = re.escape(spelling)
    return re.compile(rf"(?<![\w.-])(\"?'?{key}'?\"?)(\s*[:=]\s*|[ \t]+)(\"?'?)([^\s\"'\\,}}#)]+)(\3)")


def _state(texts: dict[str, str], reading: RecipeReading, name: str, value: str) -> None:
    """State an option in the file that has it, else behind another option of the tool."""
    tables = {file: change for file in texts if (change := _TABLES.get(PurePath(file).suffix))}
    paths = _table_paths(reading.tool, name)
    for file, change in tables.items():
        for path in paths:
            if text := change(texts[file], path, value, False):
                texts[file] = text
                return
    for file in reversed([file for file in texts if file not in tables]):
        for spelling in _spellings(reading.tool, name):
            matches = list(_pattern(spelling).finditer(texts[file]))
            if matches and value:
                match = matches[-1]
                shown = value if " " not in value or not match[3] else value.replace(" ", ",")
                texts[file] = texts[file][: match.start(4)] + shown + texts[file][match.end(4) :]
                return
    for option in sorted(reading.options, key=lambda option: -_shared_tables(option.option, name)):
        file = option.file.partition(":")[0]
        if option.status != STATED or file not in texts:
            continue
        if file in tables:
            texts[file] = tables[file](texts[file], paths[0], value, True) or texts[file]
            return
        if _insert(texts, file, option.option, reading.tool, name, value):
            return


def _shared_tables(option: str, name: str) -> int:
    """Return the number of tables in which two options stand both."""
    tables = zip(option.lstrip("-").split(".")[:-1], name.lstrip("-").split(".")[:-1], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], tables))


# --- tables ---------------------------------------------------------------------------------------------------


def _table_paths(tool: Tool, name: str) -> list[list[str]]:
    """Return the paths of keys under which a table states an option: its own, then those of its aliases."""
    names = [name, *(alias for alias, target in tool.aliases.items() if target == name)]
    return [spelling.lstrip("-").split(".") for spelling in names]


def _toml_with(text: str, path: Sequence[str], value: str | None, adds: bool) -> str:
    """Return a text of TOML in which a key has a value, None for no such key; "" where it cannot be said.

    Args:
        text: of the file.
        path: tables, and the key.
        value: as an option has it.
        adds: whether the key may be new.
    """
    lines, table = text.splitlines(keepends=True), ".".join(path[:-1])
    headers = [(i, match[1].strip()) for i, line in enumerate(lines) if (match := re.match(r"\s*\[([^\[\]]+)\]", line))]
    starts = [i + 1 for i, header in headers if header == table] if table else [0]
    entry = "" if value is None else f"{path[-1]} = {json.dumps(parsed_value(value))}\n"
    for start in starts:
        end = next((i for i, _ in headers if i >= start), len(lines))
        for i in range(start, end):
            if re.match(rf"\s*\"?{re.escape(path[-1])}\"?\s*=", lines[i]):
                lines[i] = entry
                return "".join(lines)
    if not adds or value is None:
        return ""
    if starts:
        lines.insert(starts[0], entry)
    else:
        lines += ["" if text.endswith("\n") else "\n", f"\n[{table}]\n{entry}"]
    return "".join(lines)


def _json_with(text: str, path: Sequence[str], value: str | None, adds: bool) -> str:
    """Return a text of JSON in which a key has a value, None for no such key; "" where it cannot be said."""
    document: Any = json.loads(text)
    node: Any = document
    for key in path[:-1]:
        if not isinstance(node, dict) or not (adds or key in node):
            return ""
        node = node.setdefault(key, {})
    if not isinstance(node, dict) or not ((adds and value is not None) or path[-1] in node):
        return ""
    before = json.dumps(node.get(path[-1]))
    node.pop(path[-1]) if value is None else node.update({path[-1]: parsed_value(value)})
    places = list(re.finditer(rf'"{re.escape(path[-1])}"(\s*:\s*){re.escape(before)}(?=\s*[,}}])', text))
    if len(places) == 1 and value is not None and text.count(f'"{path[-1]}"') == 1:
        shown = f'"{path[-1]}"{places[0][1]}{json.dumps(node[path[-1]])}'
        return text[: places[0].start()] + shown + text[places[0].end() :]
    indent = re.search(r"\n([ \t]+)\S", text)
    return json.dumps(document, indent=indent[1] if indent else None, ensure_ascii=False) + "\n" * text.endswith("\n")


#: Suffix of a file whose tables are changed key by key → the function that does.
_TABLES: dict[str, Callable[[str, Sequence[str], str | None, bool], str]] = {".toml": _toml_with, ".json": _json_with}


# --- scripts and YAML -----------------------------------------------------------------------------------------


def _insert(texts: dict[str, str], file: str, present: str, tool: Tool, name: str, value: str) -> bool:
    """Write an option in front of one that a file states, in the format of the file; False where that is not seen."""
    for spelling in _spellings(tool, present):
        match = re.search(rf"(?m)(?<![\w.-])\"?{re.escape(spelling)}\"?(?![\w-])", texts[file])
        if match is None:
            continue
        start, line_start = match.start(), texts[file].rfind("\n", 0, match.start()) + 1
        indent = texts[file][line_start:start]
        is_table = PurePath(file).suffix in (".yaml", ".yml") and not indent.strip(" -")
        key = name if spelling == present else name.lstrip("-").rpartition(".")[2].replace("-", "_")
        if is_table and not spelling.startswith("--"):
            text = f"{key}: {value or 'true'}\n{indent}"
        elif name.startswith("-"):
            text = f"{name} {value} " if value else f"{name} "
        else:
            text = f"{name}={value} "
        texts[file] = texts[file][:start] + text + texts[file][start:]
        return True
    return False


def _remove(texts: dict[str, str], reading: RecipeReading, name: str) -> None:
    """Take an option out of the files."""
    for file in texts:
        if change := _TABLES.get(PurePath(file).suffix):
            for path in _table_paths(reading.tool, name):
                texts[file] = change(texts[file], path, None, False) or texts[file]
            continue
        for spelling in _spellings(reading.tool, name):
            if spelling.startswith("-"):
                texts[file] = re.sub(
                    rf"(?<![\w-]){re.escape(spelling)}(=\S+|[ \t]+[^-\s\\]\S*)?(?![\w-])", "", texts[file]
                )
            else:
                texts[file] = re.sub(rf"(?m)^\s*\"?{re.escape(spelling)}\"?\s*[:=].*\n", "", texts[file])
