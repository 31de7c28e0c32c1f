"""Parts of files that may state options: commands of scripts and containers, and tables of configurations.

A file is read by its content: JSON, TOML, YAML, Python's assignments, else a shell script. Scripts within
configurations, files within scripts (heredocs) and ConfigMaps within manifests are parts of their own. Variables that
one file states count in all files of a reading.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.tools import manifests
from dse.tools.documents import MAX_VALUES, yaml_documents
from dse.tools.interpolation import resolved
from dse.tools.pods import EngineProcess
from dse.tools.programs import engine_calls
from dse.tools.shell import ShellCommand, script
from dse.tools.words import split

#: Tables of variables of the environment, by their keys.
ENVIRONMENTS = ("env", "envs", "ENV_VARS", "env_vars", "env_variables", "environment", "environment_variables")

#: Keys whose texts are scripts.
_SCRIPTS = ("run", "script", "cmd", "command", "commands", "args", "launch_command", "entrypoint", "inline")

#: Maximum depth of parts within parts.
_MAX_DEPTH = 6

#: Options of a shell behind which a script stands.
_SHELL_OPTIONS = ("-c", "-lc", "-ec", "-exc", "-xc", "-cx", "-euc", "-lic")


class Source(NamedTuple):
    """A part of a file: the words of a command, or a table."""

    file: str  #: name of the file, and of the part within it
    words: tuple[str, ...] = ()
    table: dict[str, Any] | None = None
    devices: str = ""  #: that a command sees, as its shell says
    copies: int = 1  #: engines alike that a loop starts, each on devices of its own


class Sources(NamedTuple):
    """Parts of the files of a reading."""

    parts: list[Source]
    variables: dict[str, str]  #: of scripts and environments
    directives: list[str]  #: words of lines ``#SBATCH`` and the like
    text: str  #: of all files
    files: dict[str, str]  #: name → text
    notes: list[str]
    n_engines: int = 1  #: of a manifest, alike
    role: str = ""  #: of the pool of engines that counts


def sources(texts: Mapping[str, str], role: str = "") -> Sources:
    """Return the parts of files; of a manifest with several engines those of one.

    Args:
        texts: name of a file → its text.
        role: of the pool of engines that counts, ``prefill`` or ``decode``; "" where there is one.

    Raises:
        InputError: for a file that is none of the formats, for one of too many values, and for two pools without a
            role.

    >>> sources({"a.sh": "TP=8; vllm serve m -tp $TP"}).parts[0].words
    ('vllm', 'serve', 'm', '-tp', '8')
    """
    result = Sources([], {}, [], "\n".join(texts.values()), dict(texts), [], role=role)
    called = _called_files(texts)
    engines: list[tuple[str, EngineProcess]] = []
    clients: list[tuple[str, EngineProcess]] = []
    # scripts first: what they assign counts in configurations with variables
    ordered = sorted(texts, key=lambda name: PurePath(name).suffix not in _SHELLS and "${" in texts[name])
    for name, text in ((name, texts[name]) for name in ordered):
        documents = [] if PurePath(name).suffix == ".py" else _documents(name, text.lstrip("\ufeff"))
        workers = manifests.engine_processes(documents)
        engines += [(name, worker) for worker in workers]
        clients += [(name, client) for client in manifests.clients(documents)] if workers else []
        if not workers and name not in called:
            _read(name, text.lstrip("\ufeff"), result, 0)
    if engines:
        name, worker = _chosen(engines, role, result)
        _read_engine(name, worker, result)
        for client_name, client in clients:
            _read_engine(client_name, client._replace(nodes=None, per_node=None, hardware=()), result)
        return result._replace(text=f"{result.text}\n{worker.image}", n_engines=worker.replicas)
    return result._replace(n_engines=_group_count(result.parts))


def _chosen(engines: list[tuple[str, EngineProcess]], role: str, result: Sources) -> tuple[str, EngineProcess]:
    """Return the engine of a role, or the first.

    Raises:
        InputError: for pools of two roles where none is chosen, and for a role that is not there.
    """
    where, roles = ", ".join(dict.fromkeys(name for name, _ in engines)), {worker.role for _, worker in engines}
    present = [name for name in ("prefill", "decode") if name in roles]
    if role and present and role not in present:
        raise InputError("--role", role, f"of {where}: {', '.join(present)}", "choose one of these, or none")
    if not role and len(present) == 2:
        got, usual_fix = "two pools of engines: prefill and decode", "add --role prefill, or decode"
        raise InputError(where, got, "one of them", usual_fix)
    candidates = [entry for entry in engines if not role or entry[1].role in (role, "" if not present else role)]
    models = {name: None for _, worker in candidates if (name := _model_of(worker.words))}
    if len(models) > 1:
        got = f"engines of {len(models)} models: {', '.join(list(models)[:4])}"
        raise InputError(where, got, "one model: each is a design of its own", "keep one of them in the file")
    alike = [worker for _, worker in candidates if _is_alike(worker.words, candidates[0][1].words)]
    if len(alike) == len(candidates):
        return candidates[0][0], candidates[0][1]._replace(replicas=sum(worker.replicas for worker in alike))
    if len({worker.words for _, worker in candidates}) > 1:
        names = ", ".join(dict.fromkeys(worker.name for _, worker in candidates))
        result.notes.append(f"{len(candidates)} engines ({names}): the first is read")
    return candidates[0]


def _is_alike(words: Sequence[str], others: Sequence[str]) -> bool:
    """True for the words of engines of one design, but for their ports; nodes of one engine are none."""
    texts = [re.sub(r"--port[= ]\S+", "", " ".join(line)) for line in (words, others)]
    return texts[0] == texts[1] and not re.search(r"--nnodes|--node-rank", texts[0])


def _group_count(parts: Sequence[Source]) -> int:
    """Return the number of engines alike that a SkyPilot service states, 1 without it."""
    services = (part.table.get("service") for part in parts if part.table is not None and "run" in part.table)
    counts = (service.get("replicas") for service in services if isinstance(service, dict))
    return next((count for count in counts if isinstance(count, int) and 0 < count < 10_000), 1)


def _model_of(words: Sequence[str]) -> str:
    """Return the model that the words of an engine name, "" for none and for a variable."""
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        behind = words[i + 1] if i + 1 < len(words) else ""
        if option.replace("_", "-") in ("--model", "--model-path"):
            return "" if "$" in (value or behind) else value if equals else behind
        if word in ("serve", "trtllm-serve") and behind not in ("", "serve") and not behind.startswith(("-", "$")):
            return behind
    return ""


def _read_engine(name: str, worker: EngineProcess, result: Sources) -> None:
    """Add an engine of a manifest to a result: its files, options and command; devices and hardware beside it."""
    result.variables.update(worker.variables)
    counts = {"NNODES": worker.nodes, "GPUS_PER_NODE": worker.per_node}
    result.variables.update({key: str(count) for key, count in counts.items() if count})
    result.directives.extend(worker.hardware)
    place = f"{name}: {worker.name}"
    for table in worker.tables:
        result.parts.append(Source(place, table=resolved(table, result.variables)))
    for path, text in worker.files:
        _read(f"{name}: {path}", text, result, 1)
    if worker.words:
        words = _without_shell(list(worker.words))
        plain = resolved([word for word in words if not _is_script(word)], result.variables)
        texts = iter(map(str, plain))
        words = [word if _is_script(word) else next(texts) for word in words]
        _read_command(place, ShellCommand(words), result, 0)


def _called_files(texts: Mapping[str, str]) -> set[str]:
    """Return the scripts that others of the files call: these are read where they are called."""
    return {
        name
        for name in texts
        if PurePath(name).suffix in _SHELLS
        and any(_CALL.search(text) and PurePath(name).name in text for other, text in texts.items() if other != name)
    }


#: A call of a script.
_CALL = re.compile(r"(?:bash|sh|source|\.|srun|sbatch)\s")


def _read(name: str, text: str, result: Sources, depth: int) -> None:
    """Add the parts of a text to a result."""
    if depth > _MAX_DEPTH:
        raise InputError(name, "files nested too deep", f"at most {_MAX_DEPTH}", "give the inner file")
    if PurePath(name).suffix == ".py":
        tree = _parsed(name, text)
        calls = engine_calls(tree)
        for call in calls:
            result.parts.extend([Source(name, table=call.table), Source(name, call.words)])
        if not calls:
            result.parts.append(Source(name, table=_assignments(tree)))
        return
    rest = _HEREDOC_END.search(text)
    if rest and "<<" not in text[: rest.start()]:
        _read(name, text[: rest.start()], result, depth + 1)
        text = text[rest.end() :]
    documents = _documents(name, text)
    for document in documents:
        result.variables.update(
            (key, value) for key, value in _environment(document, itertools.count()) if key not in result.variables
        )
    for document in documents:
        table = resolved(document, result.variables)
        result.parts.append(Source(name, table=table))
        _read_inner(name, table, result, depth, itertools.count())
    if not documents:
        _read_script(name, text, result, depth)


#: Line that ends a heredoc, with which a file and its command are copied without the line in front.
_HEREDOC_END = re.compile(r"(?m)^(EOF|EOL|END|YAML)$")


def _documents(name: str, text: str) -> list[dict[str, Any]]:
    """Return the tables of a file of JSON, TOML or YAML, empty for a script."""
    lines = (line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "//")))
    first, suffix = next(lines, ""), PurePath(name).suffix.lower()
    try:
        if suffix in (".json", ".jsonc") or first.lstrip().startswith("{"):
            values = [json.loads(text)]
        elif suffix == ".toml" or (_TABLE.match(first) and suffix not in _SHELLS and _is_toml(text)):
            values = [tomllib.loads(text)]
        elif suffix in (".yaml", ".yml") or (suffix not in _SHELLS and (first == "---" or _MAPPING.match(first))):
            values = yaml_documents(text, strict=suffix in (".yaml", ".yml"))
        else:
            return []
    except RecursionError:
        raise InputError(name, "brackets nested too deep", "a configuration", "check the file") from None
    except InputError as error:
        raise InputError(name, error.got, error.allowed, error.fix) from None
    except ValueError as error:
        if suffix in (".json", ".toml"):
            allowed = f"valid {suffix[1:].upper()}"
            raise InputError(name, " ".join(str(error).split()), allowed, "correct the file") from None
        return []
    return [document for document in values if isinstance(document, dict)]


_SHELLS = (".sh", ".bash", ".slurm", ".sbatch", ".zsh")

#: First line of a YAML mapping, and of a table of TOML.
_MAPPING = re.compile(r"-?\s*[A-Za-z_\"'][\w.\"'/ -]*:(\s|$)")
_TABLE = re.compile(r"\[\[?[\w.\"-]+\]?\]|[\w.-]+\s*=\s*\S")


def _is_toml(text: str) -> bool:
    """True for a text that TOML's reader takes."""
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


# --- scripts ----------------------------------------------------------------------------------------------


def _read_script(name: str, text: str, result: Sources, depth: int) -> None:
    """Add the commands of a script, its heredocs and scripts within words to a result."""
    before = dict(result.variables)
    try:
        shell = script(text, before, depth, result.role)
    except InputError as error:
        raise InputError(name, error.got, error.allowed, error.fix) from None
    result.variables.update(shell.variables)
    result.directives.extend(shell.directives)
    if shell.conditions:
        shown = "; ".join(dict.fromkeys(shell.conditions[:3]))
        result.notes.append(f"conditions that the file leaves open, read as if they did not hold: {shown}")
    for command in _joined(shell.commands):
        _read_command(name, command, result, depth)
    assignments = split(text) if not shell.commands and not shell.directives else []
    if assignments and all(re.match(r"[A-Za-z_][\w.]*=", word) for word in assignments):  # options without dashes
        result.parts.append(Source(name, tuple(assignments)))
    used = {word for part in result.parts for word in part.words}
    assigned = {key: value for key, value in shell.variables.items() if before.get(key) != value}
    for variable, value in assigned.items():  # options and commands that no command of the file takes
        words = tuple(split(value)) if value.lstrip().startswith("-") else ()
        if words and not used & set(words):
            result.parts.append(Source(f"{name}: {variable}", words))
        elif _is_script(value) and not used & {word for word in split(value) if word.startswith("-")}:
            _read_script(f"{name}: {variable}", value, result, depth + 1)


def _joined(commands: Iterable[ShellCommand]) -> Iterator[ShellCommand]:
    """Yield commands, lines of options joined to the command in front: a list of arguments needs no backslashes."""
    before: ShellCommand | None = None
    for command in commands:
        if before is not None and command.words[0].startswith("-") and not command.text and not before.text:
            before = before._replace(words=[*before.words, *command.words])
            continue
        if before is not None:
            yield before
        before = command
    if before is not None:
        yield before


def _read_command(name: str, command: ShellCommand, result: Sources, depth: int) -> None:
    """Add a command to a result, with the file or the script that it reads, and with scripts within its words."""
    if command.text and command.target:
        _read(command.target, command.text, result, depth + 1)
    elif command.text:
        _read(f"{name}: {command.words[0]}", command.text, result, depth + 1)
    words = _without_container(command.words, result)
    if len(words) < len(command.words):
        result.parts.append(Source(name, tuple(command.words[: -len(words) or None])))
    if called := _called(words, result.files, name):
        file, arguments = called
        places = {str(i): argument for i, argument in enumerate(arguments, 1)}
        result.variables.update(places)
        _read(file, result.files[file], result, depth + 1)
        for place in places:
            result.variables.pop(place, None)
        return
    behind = [word for i, word in enumerate(words) if i > 1 and words[i - 1] in _SHELL_OPTIONS and "sh" in words[i - 2]]
    scripts = [*behind, *(word for word in words if _is_script(_value_of(word)) and word not in behind)]
    if scripts and not command.text:
        for text in scripts:
            _read_script(name, _value_of(text), result, depth + 1)
        words = [word for word in words if word not in scripts]
    result.parts.append(Source(name, tuple(words), devices=command.devices, copies=command.copies))


def _without_container(words: list[str], result: Sources) -> list[str]:
    """Return a command that runs in a container from its image on, and add variables that it states to a result.

    Other words are returned as they are.
    """
    if len(words) < 3 or PurePath(words[0]).name not in ("docker", "podman") or words[1] != "run":
        return words
    i = 2
    while i < len(words) and words[i].startswith("-"):
        name, equals, value = words[i].partition("=")
        takes_next = not equals and name not in _CONTAINER_SWITCHES and not re.fullmatch(r"-[ditP]+", name)
        value = words[i + 1] if takes_next and i + 1 < len(words) else value
        variable, assigned, text = value.partition("=")
        if name in ("-e", "--env") and assigned:
            result.variables[variable] = text
        i += 1 + takes_next
    return words[i:]


#: Options of a container's command without a value.
_CONTAINER_SWITCHES = ("--rm", "--privileged", "--init", "--detach", "--interactive", "--tty", "--read-only")


def _called(words: Sequence[str], files: Mapping[str, str], name: str) -> tuple[str, list[str]] | None:
    """Return (file, arguments) of a command that calls another of the files, None for others."""
    for i, word in enumerate(words[:8]):
        for file in files:
            is_name = (
                " " not in word and PurePath(word).name == PurePath(file).name and PurePath(file).suffix in _SHELLS
            )
            if is_name and file != name.partition(":")[0]:
                return file, list(words[i + 1 :])
    return None


def _value_of(word: str) -> str:
    """Return the value of ``--name=value``, another word as it is."""
    return word.partition("=")[2] if re.match(r"--[\w-]+=", word) else word


def _is_script(word: str) -> bool:
    """True for a word that has a command in it: with options, or of Python."""
    return bool(
        re.search(r"\s", word.strip())
        and re.search(r"(^|\s)(--?[A-Za-z]|python3?\s)", word)
        and not word.startswith("-")
    ) and (not word.lstrip().startswith(("{", "[")))


# --- configurations ---------------------------------------------------------------------------------------


def _count(steps: Iterator[int]) -> None:
    """Count one value; InputError for a file of too many."""
    if next(steps) > MAX_VALUES:
        raise InputError("arguments", "a file of too many values", f"at most {MAX_VALUES:,}", "give one recipe")


def _environment(node: Any, steps: Iterator[int]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the variables that tables of the environment state, and of ConfigMaps' short values."""
    _count(steps)
    if isinstance(node, list):
        for child in node:
            yield from _environment(child, steps)
    if not isinstance(node, dict):
        return
    for key, child in node.items():
        if key in ENVIRONMENTS or (key == "data" and node.get("kind") == "ConfigMap"):
            yield from _variables(child)
        yield from _environment(child, steps)


def _variables(node: Any) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of a table, of a list of ``name`` and ``value``, or of texts ``NAME=value``."""
    if isinstance(node, dict):
        yield from (
            (str(k), str(v)) for k, v in node.items() if isinstance(v, str | int | float) and "\n" not in str(v)
        )
    for entry in node if isinstance(node, list) else ():
        if isinstance(entry, dict) and "name" in entry and isinstance(entry.get("value"), str | int | float):
            yield str(entry["name"]), str(entry["value"])
        elif isinstance(entry, str) and "=" in entry:
            name, _, value = entry.partition("=")
            yield name, value


def _read_inner(name: str, node: Any, result: Sources, depth: int, steps: Iterator[int]) -> None:
    """Add the scripts and files within a table to a result, and the commands of containers."""
    _count(steps)
    if isinstance(node, list):
        for child in node:
            _read_inner(name, child, result, depth, steps)
    if not isinstance(node, dict):
        return
    is_map = node.get("kind") == "ConfigMap"
    words = [*_command_words(node.get("command")), *_command_words(node.get("args"))]
    if words:
        _read_command(name, ShellCommand(_without_shell(words)), result, depth)
    for key, child in node.items():
        if is_map and key == "data" and isinstance(child, dict):
            for file, text in child.items():
                if isinstance(text, str) and "\n" in text:
                    _read(f"{name}: {file}", text, result, depth + 1)
        elif isinstance(child, str) and ("\n" in child or key in _SCRIPTS) and key not in ("command", "args"):
            if re.search(r"(^|\s)--?[A-Za-z]", child):
                _read_script(f"{name}: {key}", child, result, depth + 1)
        elif key not in ("command", "args") or isinstance(child, dict):
            _read_inner(name, child, result, depth, steps)


def _command_words(node: Any) -> list[str]:
    """Return the words of a command of a container: of a list of plain values, or of a text; empty for others."""
    if isinstance(node, str):
        return ["-c", node] if "\n" in node else split(node)
    return (
        [str(word) for word in node]
        if isinstance(node, list) and not any(isinstance(w, dict | list) for w in node)
        else []
    )


def _without_shell(words: list[str]) -> list[str]:
    """Return words without a shell in front of a script."""
    return [
        word
        for i, word in enumerate(words)
        if word not in _SHELL_OPTIONS and not (i + 1 < len(words) and words[i + 1] in _SHELL_OPTIONS and "sh" in word)
    ]


# --- Python -----------------------------------------------------------------------------------------------


def _parsed(name: str, text: str) -> ast.AST:
    """Return the tree of a Python program, which is not run; InputError for a text that is none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(name, "no Python program", "a recipe", "give the command line or the configuration") from None


def _assignments(tree: ast.AST) -> dict[str, Any]:
    """Return dotted name → constant of the assignments and keyword arguments of a Python program."""
    values: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and (value := _constant(node.value)) is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values |= {path: value for target in targets if (path := _dotted(target))}
        elif isinstance(node, ast.keyword) and node.arg and (value := _constant(node.value)) is not None:
            values.setdefault(node.arg, value)
    return values


def _constant(node: ast.expr | None) -> Any:
    """Return the constant of an expression, None for others."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, str | int | float | bool) else None


def _dotted(node: ast.expr) -> str:
    """Return the dotted name of an attribute without the object that it is of, "" for others."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names, node = [node.attr, *names], node.value
    return ".".join(names) if isinstance(node, ast.Name) and names else node.id if isinstance(node, ast.Name) else ""
