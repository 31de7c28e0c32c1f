"""Engines in Python programs: the keyword arguments with which a program makes one. Nothing is run.

``LLM`` and the arguments of engines of vLLM, ``Engine`` of SGLang, ``LLM`` of TensorRT-LLM: what the program imports
tells which.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: Package → (classes, words of the command that a call stands for); TensorRT-LLM's arguments are those of its file.
_ENGINES = {
    "vllm": (("LLM", "EngineArgs", "AsyncEngineArgs"), ("vllm", "serve")),
    "sglang": (("Engine", "ServerArgs", "Runtime"), ("sglang.launch_server",)),
    "tensorrt_llm": (("LLM",), ("trtllm-serve",)),
}


class EngineCall(NamedTuple):
    """A call that makes an engine."""

    words: tuple[str, ...]  #: of the command that it stands for
    table: dict[str, Any]  #: of its keywords, for an engine whose file has these; else empty


def engine_calls(tree: ast.AST) -> list[EngineCall]:
    r"""Return the calls of a program that make an engine.

    Args:
        tree: of the program.

    >>> engine_calls(ast.parse("from vllm import LLM\nTP = 4\nLLM('m', tensor_parallel_size=TP)"))[0].words
    ('vllm', 'serve', 'm', '--tensor-parallel-size=4')
    """
    classes = dict(_classes(tree))
    constants = {
        target.id: value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and (value := _value(node.value, {})) is not None
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        _call(classes[name], node, constants)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (name := _dotted(node.func)) in classes
    ]


def _classes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (name in the program, package) of the classes of engines that a program imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = (node.module or "").partition(".")[0]
            for alias in node.names:
                if package in _ENGINES and alias.name in _ENGINES[package][0]:
                    yield alias.asname or alias.name, package
        elif isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                for name in _ENGINES.get(package, ((),))[0]:
                    yield f"{alias.asname or alias.name}.{name}", package


def _dotted(node: ast.expr) -> str:
    """Return the dotted name of an expression, "" for others."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _call(package: str, node: ast.Call, constants: Mapping[str, Any]) -> EngineCall:
    """Return a call as the command that it stands for, without values that are no constants."""
    words = list(_ENGINES[package][1])
    keywords: dict[str, Any] = {}
    for keyword in node.keywords:
        value = _value(keyword.value, constants)
        if keyword.arg and value is not None:
            keywords[keyword.arg] = value
        elif keyword.arg is None and isinstance(value, dict):
            keywords |= value
    model = _value(node.args[0], constants) if node.args else None
    if package == "tensorrt_llm":
        return EngineCall(tuple(words), keywords | ({"model": model} if isinstance(model, str) else {}))
    words += [model] if isinstance(model, str) else []
    return EngineCall((*words, *keyword_options(keywords)), {})


def keyword_options(keywords: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of the options that keyword arguments of an engine state.

    >>> list(keyword_options({"tensor_parallel_size": 8, "enforce_eager": True}))
    ['--tensor-parallel-size=8', '--enforce-eager']
    """
    for key, value in keywords.items():
        option = f"--{str(key).replace('_', '-')}"
        if isinstance(value, bool):
            yield option if value else f"{option}=false"
        elif isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict | list) for v in value)):
            yield f"{option}={json.dumps(value, default=str)}"
        elif isinstance(value, list):
            yield from (option, *map(str, value))
        elif value is not None:
            yield f"{option}={value}"


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """Return the value of a constant, of a name that is assigned one, of a table, or of a configuration's keywords.

    None for other expressions.
    """
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.Call):
        values = {keyword.arg: _value(keyword.value, constants) for keyword in node.keywords if keyword.arg}
        is_table = bool(values) and (_dotted(node.func).endswith("Config") or _dotted(node.func) == "dict")
        return {key: value for key, value in values.items() if value is not None} if is_table else None
    if isinstance(node, ast.Dict):
        pairs = ((key, _value(value, constants)) for key, value in zip(node.keys, node.values, strict=True))
        return {key.value: value for key, value in pairs if isinstance(key, ast.Constant) and value is not None}
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
