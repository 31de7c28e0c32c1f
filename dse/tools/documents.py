"""Arguments of a tool in files as tools keep them: TOML, YAML and JSON configurations, and Kubernetes manifests."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.io import install_extra
from dse.tools.megatron_memory import SHARD_SWITCHES
from dse.tools.options import Tool
from dse.tools.rows import table
from dse.tools.words import split

#: First line of a YAML mapping, and of a table of TOML.
_MAPPING, _TABLE = re.compile(r"[A-Za-z_][\w.-]*:(\s|$)"), re.compile(r"\[\[?[\w.\"-]+\]?\]|[\w.-]+\s*=\s*\S")

#: A value taken from the environment: its default counts.
_DEFAULT = re.compile(r"^\$\{\w+:-?([^}]*)\}$")

#: Maximum number of values in a file; the anchors of YAML may repeat a part any number of times.
MAX_VALUES = 20_000

#: Attributes of Megatron-LM's arguments whose names differ from those of their options.
RENAMED: dict[str, str] = table("megatron-lm")["attributes"]
NEGATED: dict[str, str] = table("megatron-lm")["negated"]


class Container(NamedTuple):
    """A container of a manifest with the words of its command line."""

    name: str
    words: list[str]


def parse_documents(text: str, tool: Tool) -> list[dict[str, Any]]:
    """Return the documents of a file of TOML, YAML or JSON, empty for a command line.

    Args:
        text: content of the file.
        tool: that the arguments are of; a file of its own entries is read as a command line.

    Raises:
        InputError: for YAML without the package that reads it, and for brackets nested too deep.
    """
    lines = (line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    first = next(lines, "").lstrip("\ufeff")
    try:
        if first.lstrip().startswith("{"):
            values = [json.loads(text)]
        elif _TABLE.match(first) and not first.startswith(("--", "+")):
            values = [tomllib.loads(text)]
        elif first == "---" or _MAPPING.match(first):
            values = yaml_documents(text)
        else:
            return []
    except InputError:
        raise
    except ValueError:  # of a text that is none of these: a command line
        return []
    except RecursionError:
        raise InputError("arguments", "brackets nested too deep", "a configuration", "check the file") from None
    documents = [document for document in values if isinstance(document, dict)]
    return [] if any(set(document) & set(tool.entries) for document in documents) else documents


def yaml_module() -> Any:
    """Return the module that reads and writes YAML; InputError where it is not installed."""
    try:
        import yaml
    except ImportError:
        raise InputError(
            "a file of YAML",
            "no package PyYAML, which reads and writes it",
            "an installation with the extra recipes",
            install_extra("recipes"),
        ) from None
    return yaml


def yaml_documents(text: str, strict: bool = False) -> list[Any]:
    """Return the documents of a YAML text, empty for one that is no YAML.

    Args:
        text: of the file.
        strict: whether a text that is no YAML is an error.

    Raises:
        InputError: for too many merged values, without the package that reads YAML, and for no YAML where ``strict``.
    """
    yaml, steps = yaml_module(), itertools.count()

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined, unused-ignore]
        """Counts the keys that ``<<`` merges: each level of a few may have those of all before several times."""

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            for _ in node.value:
                _count_value(steps)

    try:
        return list(yaml.load_all(text, Loader))
    except yaml.YAMLError as error:
        if strict:
            got = " ".join(str(error).split())
            raise InputError("a file of YAML", got[:200], "valid YAML", "correct the file") from None
        return []


def words(documents: list[dict[str, Any]], tool: Tool, states: Callable[[list[str]], object]) -> list[str]:
    """Return the words of a command line with the arguments of documents.

    Args:
        documents: as :func:`parse_documents`.
        tool: that the arguments are of.
        states: what words say of a design; false for nothing.

    Raises:
        InputError: for a manifest whose containers say different things, and for a file of too many values.
    """
    steps = itertools.count()
    if tool.study == "serving" and (
        containers := [container for document in documents for container in _containers(document, steps, "")]
    ):
        return _agreeing_words(containers, states)
    return [
        word
        for document in documents
        for path, value in _flat(document, "", steps)
        for word in _word(path, value, tool)
    ]


def _agreeing_words(containers: list[Container], states: Callable[[list[str]], object]) -> list[str]:
    """Return the words of one of the containers that run the tool; InputError where these say different things.

    Where none runs it, the words of all.
    """
    running = [(container, settings) for container in containers if (settings := states(container.words))]
    if not running:
        return [word for container in containers for word in container.words]
    if any(settings != running[0][1] for _, settings in running):
        names = ", ".join(dict.fromkeys(container.name for container, _ in running))
        raise InputError(
            "arguments",
            f"{len(running)} containers of different options: {names}",
            "one kind of engine",
            "give the manifest of one of them, as a design of its own",
        )
    return running[0][0].words


def _count_value(steps: Iterator[int]) -> None:
    """Count one value; InputError for a file of too many."""
    if next(steps) > MAX_VALUES:
        raise InputError("arguments", "a file of too many values", f"at most {MAX_VALUES:,}", "give one recipe")


def _containers(node: Any, steps: Iterator[int], name: str) -> Iterator[Container]:
    """Yield the containers below a node of a manifest, with the degrees that the chart of llm-d states beside them."""
    _count_value(steps)
    if isinstance(node, list):
        for child in node:
            yield from _containers(child, steps, name)
    if not isinstance(node, dict):
        return
    arguments = [*_command_words(node.get("command")), *_command_words(node.get("args"))]
    if arguments:
        yield Container(str(node.get("name", name) if name in ("", "containers") else name), _without_shell(arguments))
    degrees = _degrees(node.get("parallelism"))
    for key, value in node.items():
        inner = name if key in _LEVELS else str(key)
        for container in _containers(value, steps, inner):
            yield container._replace(words=[*degrees, *container.words])


#: Keys of a manifest that name no part of it.
_LEVELS = ("containers", "mainContainer", "spec", "template", "extraPodSpec", "podTemplate", "services")

#: Degrees of llm-d's chart → option of vLLM.
_DEGREES = {"tensor": "--tensor-parallel-size", "data": "--data-parallel-size"}


def _degrees(node: Any) -> list[str]:
    """Return the words of the degrees that a table of llm-d's chart states, empty for any other node."""
    parallelism = node if isinstance(node, dict) else {}
    return [f"{option}={parallelism[key]}" for key, option in _DEGREES.items() if isinstance(parallelism.get(key), int)]


def _command_words(node: Any) -> list[str]:
    """Return the words of a command or of arguments: a list of plain values, or a text as ``-c`` and a script.

    Empty for any other node.
    """
    if isinstance(node, str):
        return ["-c", node]
    return [str(element) for element in node] if isinstance(node, list) and not any(map(_is_nested, node)) else []


def _is_nested(node: Any) -> bool:
    """True for a table or a list."""
    return isinstance(node, dict | list)


def _without_shell(arguments: list[str]) -> list[str]:
    """Return words with a script for a shell replaced by its own words."""
    script_words, is_script = list[str](), False
    for word in arguments:
        if is_script:
            script_words += split(word)
        elif word not in ("-c", "-lc", "-ec"):
            script_words.append(word)
        is_script = word in ("-c", "-lc", "-ec")
    return script_words


def _flat(node: Any, path: str, steps: Iterator[int]) -> Iterator[tuple[str, str]]:
    """Yield (dotted path, text) of each value of a configuration, without null and lists of tables."""
    _count_value(steps)
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key), steps)
    elif isinstance(node, list):
        if not any(map(_is_nested, node)):
            yield path, " ".join(_text(element) for element in node)
    elif node is not None:
        yield path, _text(node)


def _text(value: Any) -> str:
    """Return a value of a configuration as text: true and false in small letters, of a variable its default."""
    if isinstance(value, bool):
        return "true" if value else "false"
    default = _DEFAULT.match(value.strip()) if isinstance(value, str) else None
    return default[1].strip("\"'") if default else str(value)


#: Tools whose options have dashes; those of others are paths.
_DASHED = ("megatron-lm", "vllm", "sglang", "tensorrt-llm")


def _word(path: str, value: str, tool: Tool) -> list[str]:
    """Return the option of a value as a word in a list, by its path or with dashes by its last name.

    Empty for a switch that is off.
    """
    name = path.rpartition(".")[2]
    if tool.name == "torchtitan":
        return [f"--{path}={value}"]
    if tool.name not in _DASHED:
        return [f"{path}=[{value.replace(' ', ',')}]" if " " in value and "(" not in value else f"{path}={value}"]
    if name in NEGATED:
        return [NEGATED[name]] if value.lower() == "false" else []
    option = RENAMED.get(name, "--" + name.replace("_", "-")) if tool.study == "training" else f"--{name}"
    if value.lower() == "false" and option in SHARD_SWITCHES:
        return [f"{option}=false"]
    if value.lower() in ("true", "false"):
        return [option] if value.lower() == "true" else []
    return [f"{option}={value}"]
