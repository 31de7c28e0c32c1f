"""What files say of a run besides its options: tool and version, model, chip, number of devices.

Signs stand in ``tables/recognition.toml``: words of commands, keys of files, names of chips and of instance types,
options of launchers. Each answer has the text that it was read from, so that a reader can check it.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from dse.designs import catalog
from dse.errors import InputError
from dse.tools.rows import table
from dse.tools.shell import whole_number
from dse.tools.sources import Source, Sources


class NamedChip(NamedTuple):
    """A chip of the catalogue with the word that names it."""

    name: str
    word: str


class DeviceCount(NamedTuple):
    """Number of devices of a run, as far as files state it."""

    total: int | None
    nodes: int | None
    per_node: int | None


@functools.cache
def _signs() -> dict[str, Any]:
    """Return the table of signs."""
    return table("recognition")


def title_of(tool: str) -> str:
    """Return the name of a tool as its makers write it."""
    return str(_signs()["tools"].get(tool, {}).get("title", tool))


# --- tool -------------------------------------------------------------------------------------------------


def scores(files: Sources, names: Mapping[str, frozenset[str]]) -> dict[str, float]:
    """Return tool → number of its signs in files, without tools that have none.

    Args:
        files: parts of the files.
        names: tool → names of its options.
    """
    tools = _signs()["tools"]
    paths = [[] if part.table is None else paths_of(part.table) for part in files.parts]
    own = {tool: _sign_count(files.parts, paths, entry) for tool, entry in tools.items()}
    counts = {tool: own[tool] + _option_count(files.parts, names.get(tool, frozenset())) for tool in tools}
    # of a tool that runs with others, their files are its own
    shared = {
        tool: sum(counts[other] for other in entry.get("with", ())) * (own[tool] > 0.0) for tool, entry in tools.items()
    }
    return {tool: count + shared[tool] for tool, count in counts.items() if count}


def _sign_count(parts: Sequence[Source], paths_of_parts: Sequence[Sequence[str]], signs: Mapping[str, Any]) -> float:
    """Return the number of signs of a tool: a word of a command counts most, then keys."""
    count = 0.0
    for part, paths in zip(parts, paths_of_parts, strict=True):
        if part.table is not None:
            count += 3.0 * sum(any(matches_path(path, key) for path in paths) for key in signs["keys"])
        else:
            count += 10.0 * any(matches_word(word, pattern) for word in part.words for pattern in signs["words"])
    return count


def states_options(files: Sources, names: frozenset[str]) -> bool:
    """True where files have tables, or commands with options of these names."""
    return any(part.table is not None for part in files.parts) or _option_count(files.parts, names) > 0


def _option_count(parts: Sequence[Source], names: frozenset[str]) -> int:
    """Return the number of words of commands that are options of a tool."""
    return sum(word.partition("=")[0] in names for part in parts for word in part.words if len(word) > 2)


def framework_of(files: Sources, tool: str) -> str:
    """Return the tool whose options files of a tool state: that of the framework that they name, else the tool.

    Args:
        files: parts of the files.
        tool: that is recognised.
    """
    frameworks = _signs()["tools"][tool].get("frameworks", {})
    tables = (part.table for part in files.parts if part.table is not None)
    names = [str(module.get("framework")) for node in tables for module in _tables(node) if "framework" in module]
    names += re.findall(r"examples/(\w+)/configs/", files.text) if not names else []
    return next((frameworks[name] for name in names if name in frameworks), tool)


def _tables(node: Any) -> Iterator[dict[str, Any]]:
    """Yield a table and those within it."""
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _tables(child)


def matches_word(word: str, pattern: str) -> bool:
    """True for a word of a command that a pattern describes, with or without its folder."""
    is_of_kind = word[:1] != "-" or pattern[:1] == "-"
    return is_of_kind and len(word) < _LONGEST_WORD and bool(_pattern(pattern).fullmatch(word))


#: Characters from which on a word names no program.
_LONGEST_WORD = 500


@functools.lru_cache(maxsize=512)
def _pattern(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern, with any folder in front."""
    return re.compile(rf"(?:.*/)?(?:{fnmatch.translate(pattern)})", re.DOTALL)


def paths_of(node: Any, prefix: str = "") -> list[str]:
    """Return the dotted paths of a table's keys, tables within included."""
    paths: list[str] = []
    for key, child in node.items() if isinstance(node, dict) else ():
        path = f"{prefix}.{key}" if prefix else str(key)
        paths += [path, *paths_of(child, path)]
    for child in node if isinstance(node, list) else ():
        paths += paths_of(child, prefix)
    return paths


def matches_path(path: str, pattern: str) -> bool:
    """True for a dotted path that a pattern describes, as a whole."""
    return fnmatch.fnmatchcase(path, pattern)


def words_of(tool: str) -> tuple[str, ...]:
    """Return the patterns of words of a tool's commands."""
    return tuple(_signs()["tools"].get(tool, {}).get("words", ()))


def strange_programs(files: Sources) -> list[str]:
    """Return the names of programs in files that are seen and not read."""
    words = {word for part in files.parts for word in part.words}
    programs = _signs()["other"].items()
    return [name for name, patterns in programs if any(matches_word(word, p) for word in words for p in patterns)]


def foreign_framework(files: Sources) -> str:
    """Return the program that is not read whose classes a table of files names, "" for none."""
    text = files.text.lower()
    programs = (name for name in _signs()["foreign"] if re.search(_signs()["foreign"][name], text))
    return next(programs, "") if not any(part.words for part in files.parts) else ""


def without_other_programs(files: Sources) -> tuple[Sources, str]:
    """Return files without commands that are no run of a decoder, and what these are; "" for none."""
    meanings: list[str] = []
    parts = []
    for part in files.parts:
        meaning = next(
            (
                meaning
                for meaning, patterns in _signs()["no_runs"].items()
                if any(matches_word(word, pattern) for word in part.words for pattern in patterns)
            ),
            "",
        )
        if meaning:
            meanings.append(meaning)
        else:
            parts.append(part)
    return files._replace(parts=parts), ", ".join(dict.fromkeys(meanings))


def version_of(tool: str, text: str) -> str:
    """Return the version of a tool that a text states (an image, a requirement), "" for none.

    >>> version_of("vllm", "image: vllm/vllm-openai:v0.8.5")
    '0.8.5'
    """
    matches = (re.search(pattern, text, re.IGNORECASE) for pattern in _signs()["versions"].get(tool, ()))
    return next((match[1] for match in matches if match), "")


# --- model ------------------------------------------------------------------------------------------------

#: Words in names of files, recipes and checkpoints that say nothing of a model's shape.
_NOISE = re.compile(
    r"(instruct|chat|base|it|hf|thinking|reasoning|pretrain\w*|pretraining|finetun\w*|sft|dpo|grpo|lora|qlora|full|cpt"
    r"|config|conf|recipe|recipes|proxy|bf16|fp16|fp8|nvfp4|fp4|mxfp4|int4|int8|awq|gptq|w4a16|w8a8|w4a8|kv|dynamic"
    r"|quantized|preview|release|train|training|run|job|launch|serve|server|deploy|deployment|disagg|agg|example"
    r"|dropped|dropless|optimized|dcn|synthetic|megablox|benchmark|perf|test|script|mcore|megatron|moe|dense|tuned|single|multi|node|nodes|slurm|sbatch|srun|vllm|sglang"
    r"|trtllm|dynamo|nemo|torchtitan|maxtext|primus|deepspeed|fsdp|zero\d?|v0|v\d+\.\d+|(tp|pp|dp|ep|cp|bs|gbs|mbs)\d+"
    r"|\d+(gpus?|nodes?|n|g|k|gb)|x?\d+x?|[a-z]?h?\d{2,3}x?|(0\d|1[0-2])[0-3]\d|2\d(0\d|1[0-2])|a100|h100|h200|b200"
    r"|gb200|gb300|b300|mi\d+x?|v5p|v6e|v5e|v4|pile|c4|alpaca|meta|the|sh|py|yaml|yml|toml|json|txt)",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=1024)
def model_of(text: str) -> str | None:
    """Return the workload of the catalogue that the name of a model, a recipe or a file means, None for none.

    What says nothing of the shape is left out: how a checkpoint was tuned, its format, the chips of a recipe.

    >>> model_of("llama31_405b_pretrain_config_h100"), model_of("nvidia/Llama-3.1-70B-Instruct-FP8")
    ('llama-3-1-405b', 'llama-3-1-70b')
    """
    text = text.strip().rstrip("/")
    if not text or len(text) > 200 or "${" in text:
        return None
    name = PurePath(text).name.removesuffix(".yaml").removesuffix(".toml").removesuffix(".json").removesuffix(".sh")
    name = name.removesuffix(".yml").removesuffix(".py")
    if match := _COMPONENT.fullmatch(name):
        name = match[1]
    for short, full in _signs()["short_names"].items():
        name = re.sub(rf"(?i)(?<![a-z0-9]){short}(?![a-z0-9])", full, name)
    if slug := _signs()["models"].get(name.lower()):
        return str(slug)
    for spelling in (text, name, *_spellings(name)):
        if any(c.isalpha() for c in spelling) and (slug := catalog.find("workload", spelling)):
            return slug
    return None


#: A function that makes a model, as in configurations of torchtune.
_COMPONENT = re.compile(r"(?:[a-z]\w*\.){2,}(?:q?lora_|q?dora_)?([a-z]\w*)")


def _spellings(name: str) -> Iterator[str]:
    """Yield spellings of a name without its noise, with the point that recipes leave out of a generation."""
    joined = re.sub(r"(?i)\b(llama|qwen|glm|phi|gemma)[-_]?(\d)[-_](\d)(?=[-_])", r"\1-\2.\3", name)
    if joined != name:
        yield from _spellings(joined)
    words = [word for word in re.split(r"[-_ ]+", name) if word]
    significant = [word for word in words if not _NOISE.fullmatch(word) or re.fullmatch(r"\d+x\d+", word)]
    for kept in (significant, [w for w in words if not _NOISE.fullmatch(w) or re.fullmatch(r"[a-z]\d+b?|\d+", w)]):
        text = "-".join(kept)
        yield text
        yield re.sub(r"(?i)\b(llama|qwen|glm|phi)-?(\d)p?(\d)(?=-|$)", r"\1-\2.\3", text)


def other_kind(text: str) -> str:
    """Return what the model of a name is where it is no decoder of text, "" for others.

    >>> other_kind("openai/whisper-large-v3"), other_kind("meta-llama/Llama-3.1-8B")
    ('a speech model with encoder and decoder', '')
    """
    name = PurePath(text.lower().rstrip("/")).name
    kinds = _signs()["other_models"].items()
    return next((kind for kind, patterns in kinds if any(fnmatch.fnmatchcase(name, p) for p in patterns)), "")


# --- chip -------------------------------------------------------------------------------------------------


@functools.cache
def _chips() -> list[tuple[re.Pattern[str], str, int]]:
    """Return (pattern, catalogue name, devices per host) of chips."""
    return [(re.compile(pattern), name, int(count)) for pattern, name, count in _signs()["chips"]["rows"]]


def chip_of(text: str) -> NamedChip | None:
    """Return the accelerator or system of the catalogue that a text names, None for none.

    >>> chip_of("NVIDIA-H100-80GB-HBM3").name, chip_of("a3-ultragpu-8g").name, chip_of("p5.48xlarge").name
    ('h100-sxm-80gb', 'h200-sxm-141gb', 'h100-sxm-80gb')
    """
    plain = _plain(text)
    for pattern, name, _ in _chips():
        if match := pattern.search(plain):
            return NamedChip(name, match[0])
    return None


def _plain(text: str) -> str:
    """Return a text in small letters, with a blank behind the count of ``8xH100``."""
    return re.sub(r"(?<![\w.])(\d+)x(?=(?:a|h|b|l|v|mi|gb)\d)", r"\1x ", text.lower())


def chips_in(text: str) -> dict[str, str]:
    """Return catalogue name → word of the chips that a text names."""
    plain, chips = _plain(text), dict[str, str]()
    for pattern, name, _ in _chips():
        if (match := pattern.search(plain)) and not any(match[0] in word for word in chips.values()):
            chips.setdefault(name, match[0])
    return chips


def chip_devices(text: str) -> int:
    """Return the number of devices of a host by an instance type in a text, 0 where none says it."""
    matches = [(pattern.search(text.lower()), count) for pattern, _, count in _chips()[:_INSTANCE_TYPES]]
    return next((count for match, count in matches if match), 0)


#: Rows of instance types in the table of chips.
_INSTANCE_TYPES = 37


def slice_devices(text: str) -> int | None:
    """Return the number of chips of a TPU slice by its name (``v5p-256``: 128), None for another text.

    The number counts cores, two of a chip, for some generations, and chips for others.
    """
    pattern = r"(?:tpu-?)?(v\d+[ep]?|v5litepod|tpu7x)-(\d{1,6}(?:x\d{1,4}){0,2})"
    match = re.fullmatch(pattern, text.strip().lower())
    if not match or match[2].startswith("0"):
        return None
    if "x" in match[2]:  # axes of the slice, in chips
        return math.prod(map(int, match[2].split("x")))
    cores = match[1] in _signs()["chips"]["cores"]
    return max(int(match[2]) // (2 if cores else 1), 1)


# --- devices ----------------------------------------------------------------------------------------------


def devices_of(files: Sources, options: Mapping[str, str], stated: Mapping[str, Sequence[str]]) -> DeviceCount:
    """Return the number of devices that options, launchers, schedulers and variables state.

    Args:
        files: parts of the files.
        options: option → text of the tool.
        stated: ``nodes``, ``per_node``, ``total`` → options of the tool that state them.

    Raises:
        InputError: for counts that contradict one another.
    """
    launchers = _signs()["launchers"]
    words = list(itertools.chain(files.directives, *(part.words for part in files.parts if _launches(part))))
    launched = dict(_pairs(words))
    counts: dict[str, int | None] = {}
    for key in ("nodes", "per_node", "total"):
        texts = [options.get(name) for name in stated.get(key, ())]
        texts += [launched.get(name) for name in launchers[key]]
        texts += [_gres(launched), launched.get("--ntasks-per-node")] if key == "per_node" else []
        texts += [files.variables.get(name) for name in launchers[f"variables_{key}"]]
        counts[key] = next(filter(None, map(_count, texts)), None)
    nodes, per_node, total = counts["nodes"], counts["per_node"], counts["total"]
    if included := _included(launched.get("--include", "")):
        nodes, total = included
    if per_node is None and total is None:
        per_node = next(filter(None, (_listed(files.variables.get(name, "")) for name in _VISIBLE)), None)
    if total is nodes is per_node is None and (slots := _host_slots(files)):
        nodes, total = len(slots), sum(slots)
        per_node = total // nodes if len(set(slots)) == 1 else None
    if total is None and (nodes or per_node):
        total = (nodes or 1) * per_node if per_node else None
    return DeviceCount(total, nodes, per_node)


def launcher_options() -> frozenset[str]:
    """Return the options of launchers that state devices: each has one value."""
    launchers = _signs()["launchers"]
    keys = ("nodes", "per_node", "total", "more")
    return frozenset(("-m", *itertools.chain.from_iterable(launchers[key] for key in keys)))


def identity_of(
    name: str, model_options: Sequence[Any], chip_options: Sequence[str], device_options: Mapping[str, Sequence[str]]
) -> str:
    """Return what an option names besides leaves: ``model``, ``chip``, ``devices`` or ``launcher``; "" for nothing."""
    if any(name == entry or (not isinstance(entry, str) and name in entry) for entry in model_options):
        return "model"
    if name in chip_options:
        return "chip"
    if name in itertools.chain(*device_options.values()):
        return "devices"
    return "launcher" if name in launcher_options() else ""


def _launches(part: Source) -> bool:
    """True for a command of a launcher."""
    programs = _signs()["launchers"]["programs"]
    return any(matches_word(word, program) for word in part.words[:12] for program in programs)


def pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, its text) of words; a word with a dash behind an option is none of its text."""
    for name, text in _pairs(words):
        yield name.partition("=")[0], "" if text.startswith("-") else text


def starts_container(words: Sequence[str]) -> bool:
    """True for a command that starts others in a container or on nodes."""
    return PurePath(words[0]).name in _signs()["beside"]["programs"]


def is_container(words: Sequence[str]) -> bool:
    """True for words in front of the image of a container, which :mod:`dse.tools.sources` splits from its command."""
    return PurePath(words[0]).name in ("docker", "podman") and own_words(words) == words


def own_words(words: Sequence[str]) -> Sequence[str]:
    """Return the words of such a command in front of the program of an engine."""
    patterns = [pattern for entry in _signs()["tools"].values() for pattern in entry["words"]]
    end = next((i for i, word in enumerate(words[1:], 1) if any(matches_word(word, p) for p in patterns)), len(words))
    return words[:end]


def effects_beside() -> Mapping[str, str]:
    """Return pattern of an option or a variable beside those of an engine → what it moves."""
    effects: dict[str, str] = _signs()["beside"]["effects"]
    return effects


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, word behind it) of words."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            yield name, value if equals else words[i + 1] if i + 1 < len(words) else ""


#: Variables that list the devices of a node which programs see.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


def _listed(text: str) -> int | None:
    """Return how many devices a list of numbers has, None for another text.

    >>> _listed("0,1,2,3"), _listed("all")
    (4, None)
    """
    return len(text.split(",")) if re.fullmatch(r"\d+(,\d+)*", text.strip()) else None


def _host_slots(files: Sources) -> list[int]:
    """Return the devices of each host of a host file (``worker-1 slots=8``), empty without one."""
    lines = (part.words for part in files.parts if len(part.words) >= 2)
    matches = (re.fullmatch(r"slots=(\d{1,4})", words[1]) for words in lines)
    return [int(match[1]) for match in matches if match and int(match[1])]


def _included(text: str) -> tuple[int, int] | None:
    """Return (nodes, devices) of ``--include`` of DeepSpeed's launcher, None where it does not list devices.

    >>> _included("worker-0:0,1@worker-1:2,3")
    (2, 4)
    """
    counts = [_listed(host.partition(":")[2]) for host in text.split("@")]
    known = [count for count in counts if count]
    return (len(counts), sum(known)) if len(known) == len(counts) else None


def _gres(launched: Mapping[str, str]) -> str | None:
    """Return the devices of a node by ``--gres=gpu:h100:8`` and the like, None where it is not there."""
    text = next((launched[name] for name in ("--gres", "--gpus", "-G") if name in launched), "")
    return text.rpartition(":")[2] if text.startswith("gpu:") or text.isdigit() else None


def _count(text: str | None) -> int | None:
    """Return the positive number that a text is, of a range ``2:4`` its first; None for another text."""
    number = whole_number((text or "").partition(":")[0].strip())
    return number if number is not None and 0 < number <= 10_000_000 else None


def check_devices(total: int | None, degrees: float, where: str) -> None:
    """Raise InputError where the number of devices is no multiple of the product of degrees.

    Args:
        total: number of devices; None for unknown, which passes.
        degrees: product of tensor, pipeline and context parallelism, and of data parallelism where it is stated.
        where: name of the files.
    """
    if total and degrees and math.fmod(total, degrees):
        raise InputError(
            where,
            f"degrees of parallelism whose product is {degrees:g}, on {total} devices",
            "devices that are a multiple of that",
            "correct a degree, or give the number of devices (-n)",
        )
