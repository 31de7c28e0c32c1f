"""Loads of engines: what benchmark clients beside an engine, or variables of their scripts, say of requests.

Clients stand in ``tables/clients.toml``. Where several ask for different numbers, the first counts.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dse.tools.options import number_of
from dse.tools.rows import table
from dse.types.choices import Load

_REQUESTS = "workload.requests."


class ClientLoad(NamedTuple):
    """The load that files state."""

    values: dict[str, float]  #: path → value
    options: dict[str, tuple[str, tuple[str, ...]]]  #: option → (its text, leaves that it decides)
    client: str  #: name of the program, "" for variables


@functools.cache
def _clients() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return (pattern of a command, row) of the clients."""
    return [(re.compile(row["words"]), row) for row in table("clients")["clients"]]


def client_of(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the row of the client that a command runs, None for another command.

    >>> client_of(["vllm", "bench", "serve", "--max-concurrency", "8"])["name"]
    'vllm bench serve'
    """
    text = " ".join(words[:12])
    return next((row for pattern, row in _clients() if pattern.search(text)), None)


def is_client(words: Sequence[str]) -> bool:
    """True for a command that sends requests to an engine which another command starts.

    >>> is_client(["vllm", "bench", "serve", "-tp"]), is_client(["vllm", "bench", "latency", "-tp", "2"])
    (True, False)
    """
    row = client_of(words)
    return row is not None and not row.get("runs_engine", False)


def load_of(
    commands: Sequence[Sequence[str]], tables: Sequence[Any] = (), variables: Mapping[str, str] | None = None
) -> ClientLoad:
    """Return the load that commands state, else tables and variables by their names; without values for none.

    Args:
        commands: words of commands.
        tables: configurations.
        variables: of scripts and environments.

    >>> load_of([["vllm", "bench", "serve", "--random-input-len", "1000", "--max-concurrency", "8"]]).values
    {'workload.requests.prompt_tokens': 1000.0, 'workload.requests.load': 0.0, 'workload.requests.concurrency': 8.0}
    """
    loads = [_command_load(row, words) for words in commands if (row := client_of(words)) is not None]
    loads.append(_named_load(tables, variables or {}))
    values: dict[str, float] = {}
    options: dict[str, tuple[str, tuple[str, ...]]] = {}
    for load in loads:
        paths = load.values.keys() - values.keys()
        if any(path.endswith((".load", ".concurrency", ".request_rate", ".queue")) for path in values):
            paths = {path for path in paths if not path.endswith((".load", ".concurrency", ".request_rate", ".queue"))}
        values |= {path: value for path, value in load.values.items() if path in paths}
        options |= {name: entry for name, entry in load.options.items() if name not in options and {*entry[1]} & paths}
    return ClientLoad(values, options, next((load.client for load in loads if load.values), ""))


#: What options say → leaves that they decide.
_LEAVES = {
    "prompt": ("prompt_tokens",),
    "answer": ("output_tokens",),
    "prefix": ("prompt_tokens", "prefix_share"),
    "ratio": ("prompt_tokens", "output_tokens", "length_spread", "answer_spread"),
    "prompt_deviation": ("length_spread",),
    "answer_deviation": ("answer_spread",),
    "concurrency": ("load", "concurrency"),
    "batch": ("load", "concurrency"),
    "rate": ("load", "request_rate"),
    "count": ("load", "queue"),
    "burstiness": ("arrival_variation",),
    "arrival": ("arrival_variation",),
    "data": ("prompt_tokens", "output_tokens", "length_spread", "answer_spread"),
    "by_kind": ("load", "concurrency", "request_rate"),
}


def _command_load(row: Mapping[str, Any], words: Sequence[str]) -> ClientLoad:
    """Return the load that the command of a client states."""
    meanings: dict[str, str] = {name.replace("_", "-"): meaning for name, meaning in row["options"].items()}
    texts = {name: text for name, text in _options(words).items() if name in meanings}
    says = {meanings[name.replace("_", "-")]: text for name, text in row.get("defaults", {}).items()}
    says |= {meanings[name]: text for name, text in texts.items()}
    numbers = {meaning: value for meaning, text in _spelled(says) if (value := _number(text)) is not None}
    values = _values(row, numbers)
    return _load(row["name"], values, {name: (meanings[name], text) for name, text in texts.items()})


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return option, with dashes → its values joined by spaces; other words with ``=`` are values."""
    values: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.replace("_", "-", word.partition("=")[0].count("_")).partition("=")
            values[name] = [value] if equals else []
        elif name:
            values[name].append(word)
    return {name: " ".join(texts) for name, texts in values.items()}


def _load(client: str, values: dict[str, float], options: Mapping[str, tuple[str, str]]) -> ClientLoad:
    """Return a load with the leaves that each of its options (name → what it says, text) decides."""
    leaves: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, (meaning, text) in options.items():
        paths = tuple(f"{_REQUESTS}{leaf}" for leaf in _LEAVES.get(meaning, ()))
        is_arrival = bool(paths) and paths[0].endswith(".load")
        if not is_arrival or set(paths[1:]) & values.keys():
            leaves[name] = (text, tuple(path for path in paths if path in values))
    leaves = {name: (text, paths) for name, (text, paths) in leaves.items() if paths}
    return ClientLoad(values if leaves else {}, leaves, client)


def _spelled(says: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (what it says, text), of a text of several names (GuideLLM's ``prompt_tokens=256,…``) each of them."""
    kind = says.get("kind", "")
    for meaning, text in says.items():
        if meaning == "data":
            pairs = dict(re.findall(r"\"?(\w+)\"?\s*[:=]\s*(\d+)", text))
            names = {"prompt_tokens": "prompt", "output_tokens": "answer"}
            names |= {"prompt_tokens_stdev": "prompt_deviation", "output_tokens_stdev": "answer_deviation"}
            yield from ((names[name], count) for name, count in pairs.items() if name in names)
        elif meaning == "by_kind":
            by_kind = {"concurrent": "concurrency", "constant": "rate", "poisson": "rate"}
            yield from [(by_kind[kind], text)] if kind in by_kind else []
            yield from [("arrival", "0")] if kind == "constant" else []
        elif meaning != "kind":
            yield meaning, text


def _number(text: str) -> float | None:
    """Return the first number of a text, also of several with commas or ``x``; None for other texts and infinity."""
    first = re.split(r"[,x\s]+", text.strip().strip("\"'[]"))[0]
    try:
        value = number_of(first)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0.0 else None


def _values(row: Mapping[str, Any], says: Mapping[str, float]) -> dict[str, float]:
    """Return path → value of what options say: lengths with their spread, and arrivals."""
    values: dict[str, float] = {}
    ratio, prefix = says.get("ratio", 0.0 if row.get("range") == "around" else 1.0), says.get("prefix", 0.0)
    mean, spread = _range(row.get("range", ""), ratio)
    for meaning, leaf, spread_leaf in (
        ("prompt", "prompt_tokens", "length_spread"),
        ("answer", "output_tokens", "answer_spread"),
    ):
        if not says.get(meaning):
            continue
        length = says[meaning] * mean
        deviation = says.get(f"{meaning}_deviation", spread * length)
        total = length + (prefix if meaning == "prompt" else 0.0)
        values[f"{_REQUESTS}{leaf}"] = total
        if deviation:
            values[f"{_REQUESTS}{spread_leaf}"] = deviation / total
        if meaning == "prompt" and prefix:
            values[f"{_REQUESTS}prefix_share"] = prefix / total
    return values | _arrivals(str(row.get("load", "")), says) | _variation(says)


def _variation(says: Mapping[str, float]) -> dict[str, float]:
    """Return path → squared variation of the time between requests at a rate: of a gamma distribution 1 over its shape.

    ``np.random.gamma(shape=burstiness, …)`` of ``vllm/benchmarks/serve.py``; even arrivals have none.
    """
    if not says.get("rate") or not {"burstiness", "arrival"} & says.keys():
        return {}
    variation = says["arrival"] if "arrival" in says else 1.0 / says["burstiness"] if says["burstiness"] else 1.0
    return {f"{_REQUESTS}arrival_variation": variation}


def _range(kind: str, ratio: float) -> tuple[float, float]:
    """Return (mean, standard deviation over the mean) of a length that is alike likely within a range, over its limit.

    Around L from (1 - r) L to (1 + r) L the deviation is ``r L / sqrt 3``; from r L to L it is ``(1 - r) L / sqrt 12``.
    """
    if kind == "around":
        return 1.0, ratio / math.sqrt(3.0)
    if kind == "below":
        mean = 0.5 * (1.0 + ratio)
        return mean, (1.0 - ratio) / math.sqrt(12.0) / mean
    return 1.0, 0.0


def _arrivals(kind: str, says: Mapping[str, float]) -> dict[str, float]:
    """Return path → value of arrivals: at a rate, a constant number in flight, one batch, or all at once."""
    if says.get("rate"):
        return {f"{_REQUESTS}load": float(Load.rate), f"{_REQUESTS}request_rate": says["rate"]}
    if says.get("concurrency"):
        return {f"{_REQUESTS}load": float(Load.concurrency), f"{_REQUESTS}concurrency": says["concurrency"]}
    if says.get("batch"):
        return {f"{_REQUESTS}load": float(Load.static), f"{_REQUESTS}concurrency": says["batch"]}
    if kind == "offline" and says.get("count"):
        return {f"{_REQUESTS}load": float(Load.offline), f"{_REQUESTS}queue": says["count"]}
    return {}


def _named_load(tables: Sequence[Any], variables: Mapping[str, str]) -> ClientLoad:
    """Return the load that keys of a table ``benchmark``, else variables, state by their names."""
    meanings: dict[str, str] = table("clients")["variables"]
    candidates = {name: text for entry in tables for name, text in benchmark_values(entry)}
    candidates = candidates or {name: text for name, text in variables.items() if name.isupper()}
    texts = {name: text for name, text in candidates.items() if name.lower() in meanings and _number(text)}
    says = {meanings[name.lower()]: _number(text) or 0.0 for name, text in reversed(texts.items())}
    values = _values({}, says) if {"prompt", "answer"} <= says.keys() else {}
    return _load("", values, {name: (meanings[name.lower()], text) for name, text in texts.items()})


def benchmark_values(node: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (key, text) of the plain values of tables named ``benchmark`` and the like."""
    if not isinstance(node, dict) or depth > 4:
        return
    for key, child in node.items():
        if isinstance(child, dict):
            is_benchmark = re.fullmatch(r"bench(mark)?\w*|load|workload|perf", str(key).lower())
            if is_benchmark:
                yield from ((str(k), str(v)) for k, v in child.items() if isinstance(v, str | int | float))
            yield from benchmark_values(child, depth + 1)
