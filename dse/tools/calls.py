"""Calls whose text states options: of scripts that are not among the files, and of functions that make a recipe.

A row of a tool's ``scripts`` has the ``words`` by which a script is called, what it always says (``options``), and the
``variables`` that it reads: name → options, with ``{}`` for the value, or value → options.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from dse.tools.options import Tool
from dse.tools.recognition import matches_word
from dse.tools.rows import pairs_of
from dse.tools.sources import Sources

#: Option under which the name of a called script is, for rows of defaults.
SCRIPT = "@script"


class ScriptCall(NamedTuple):
    """What a call of a script that is not among the files states."""

    options: dict[str, str]  #: option → text
    note: str  #: "" where nothing is read


def script_call(files: Sources, tool: Tool) -> ScriptCall:
    """Return the options that variables state for a script of a tool, empty where none is called.

    Args:
        files: parts of the files.
        tool: whose ``scripts`` count.
    """
    for row in tool.scripts:
        name = next((PurePath(word).name for word in called_scripts(files) if _is_of(word, row["words"])), "")
        if not name:
            continue
        options, variables = dict(pairs_of(row.get("options", ""))), list[str]()
        for variable, texts in row.get("variables", {}).items():
            value = files.variables.get(variable, "")
            text = texts.replace("{}", value) if isinstance(texts, str) else texts.get(value.lower(), "")
            if value and "$" not in value and text:
                options |= dict(pairs_of(text))
                variables.append(variable)
        shown = f"{name} is not among the files: {', '.join(variables)} are read as they count there"
        return ScriptCall({SCRIPT: name} | options, shown if variables else "")
    return ScriptCall({}, "")


def _is_of(word: str, patterns: Sequence[str]) -> bool:
    """True for a word that one of the patterns describes."""
    return any(matches_word(word, pattern) for pattern in patterns)


def called_scripts(files: Sources) -> Iterator[str]:
    """Yield the scripts that commands call, which are not among the files."""
    present = {PurePath(name).name for name in files.files}
    for part in files.parts:
        for word in part.words[:6]:
            if word.endswith((".sh", ".bash", ".sbatch", ".slurm")) and PurePath(word).name not in present:
                yield word


def configurations(files: Sources) -> list[str]:
    """Return the paths of configurations that variables and commands name."""
    words = (word.rpartition("=")[2] for part in files.parts for word in part.words)
    suffixes = (".yaml", ".yml", ".toml")
    return [text for text in dict.fromkeys((*files.variables.values(), *words)) if text.endswith(suffixes)]


def absent_configurations(files: Sources) -> list[str]:
    """Return the names of configurations that variables and commands name, and that are not among the files."""
    present = {PurePath(text).name for part in files.parts for text in (part.file, part.file.rpartition(": ")[2])}
    names = dict.fromkeys(PurePath(text).name for text in configurations(files) if "$" not in text and " " not in text)
    present |= {*map(_base, files.files), *_OWN_FILES}
    return [name for name in names if name not in present]


#: Files of defaults of tools, which their tables have.
_OWN_FILES = ("base.yml",)  # of MaxText


def _base(path: str) -> str:
    """Return the name of a file without its folder."""
    return PurePath(path).name


#: A call of a function with named arguments.
_CALL = re.compile(r"\s*([\w.]+)\s*\((.*)\)\s*", re.S)


def function_options(options: Mapping[str, str], tool: Tool) -> dict[str, str]:
    """Return options whose texts call a function, with its name alone, and those that its arguments state.

    An argument is one of ``call_arguments``; others state nothing.

    Args:
        options: option → text.
        tool: whose ``model_options`` may call a function.
    """
    result: dict[str, str] = {}
    for name in tool.model_options if tool.call_arguments else ():
        match = _CALL.fullmatch(options.get(name, "")) if isinstance(name, str) else None
        if not match:
            continue
        result[name] = match[1]
        for key, value in _arguments(match[2]).items():
            if key in tool.call_arguments:
                result.setdefault(tool.call_arguments[key], str(value))
    return result


def _arguments(text: str) -> dict[str, Any]:
    """Return name → constant of the arguments of a call, empty for a text that is none."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return {word.arg: word.value.value for word in keywords if word.arg and isinstance(word.value, ast.Constant)}
