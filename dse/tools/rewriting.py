"""Files with changed options: the same recipe for another design.

An option that a file states is replaced where it stands; another is written behind one that the file states, as the
format of the file has it. What was written is read again, and counts only where it says what it should.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath

from dse.tools.options import Lookup, Pairs, Tool
from dse.tools.reading import STATED, RecipeReading


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
    result = dict(texts)
    for name, text in changed.items():
        _state(result, reading, name, text)
    for name in removed:
        _remove(result, reading, name)
    try:
        values = again(result).values
    except ValueError:
        return None
    if any(values.get(path, _neutral(path)) != value for path, value in moves.items()):
        return None
    return {name: text for name, text in result.items() if text != texts[name]}


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
    for file in reversed(list(texts)):
        for spelling in _spellings(reading.tool, name):
            matches = list(_pattern(spelling).finditer(texts[file]))
            if matches and value:
                match = matches[-1]
                shown = value if " " not in value or not match[3] else value.replace(" ", ",")
                texts[file] = texts[file][: match.start(4)] + shown + texts[file][match.end(4) :]
                return
    for option in reading.options:
        file = option.file.partition(":")[0]
        if option.status == STATED and file in texts and _insert(texts, file, option.option, reading.tool, name, value):
            return


def _insert(texts: dict[str, str], file: str, present: str, tool: Tool, name: str, value: str) -> bool:
    """Write an option in front of one that a file states, in the format of the file; False where that is not seen."""
    for spelling in _spellings(tool, present):
        match = re.search(rf"(?m)(?<![\w.-])\"?{re.escape(spelling)}\"?(?![\w-])", texts[file])
        if match is None:
            continue
        start, line_start = match.start(), texts[file].rfind("\n", 0, match.start()) + 1
        indent = texts[file][line_start:start]
        is_table = PurePath(file).suffix in (".yaml", ".yml", ".toml") and not indent.strip(" -")
        key = name if spelling == present else name.lstrip("-").rpartition(".")[2].replace("-", "_")
        if is_table and not spelling.startswith("--"):
            mark = " = " if PurePath(file).suffix == ".toml" else ": "
            text = f"{key}{mark}{value or 'true'}\n{indent}"
        elif PurePath(file).suffix == ".json":
            text = f'"{key}": {value or "true"}, '
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
        for spelling in _spellings(reading.tool, name):
            if spelling.startswith("-"):
                texts[file] = re.sub(
                    rf"(?<![\w-]){re.escape(spelling)}(=\S+|[ \t]+[^-\s\\]\S*)?(?![\w-])", "", texts[file]
                )
            else:
                texts[file] = re.sub(rf"(?m)^\s*\"?{re.escape(spelling)}\"?\s*[:=].*\n", "", texts[file])
