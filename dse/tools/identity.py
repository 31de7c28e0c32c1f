"""Model, chip and devices of a run, by its options first, then by what stands around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dse.designs import catalog
from dse.designs.calibrated import context_of
from dse.errors import InputError
from dse.tools import recognition
from dse.tools.calls import configurations
from dse.tools.clients import client_of
from dse.tools.options import (
    CHIP,
    MODEL_CONTEXT,
    N_EXPERTS,
    N_LAYERS,
    NODES,
    USAGE,
    WORLD_SIZE,
    Tool,
)
from dse.tools.recognition import DeviceCount, NamedChip
from dse.tools.sources import Sources


def model_of_files(
    files: Sources, stated: Mapping[str, str], tool: Tool, workload: str, texts: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return (text that names the model, workload of the catalogue), by options, then by variables and file names."""
    if workload:
        return workload, catalog.resolve("workload", workload)
    candidates = [_joined(entry, stated) for entry in tool.model_options]
    candidates += [stated.get(name, "") for name in ("--tokenizer-model", "--tokenizer-name-or-path", "tokenizer_path")]
    by_variable = (text for name, text in files.variables.items() if "MODEL" in name.upper() or "CKPT" in name.upper())
    candidates += re.findall(r"hf://([\w.-]+/[\w.-]+)", files.text)
    candidates += [*by_variable, *texts]
    named = [text for text in candidates if text and not text.startswith("-") and " " not in text.strip()]
    for text in named:
        if text.lower() in tool.models:  # "" for a model that the catalogue lacks
            return text, tool.models[text.lower()] or None
        if slug := recognition.model_of(text):
            return text, _generation(
                slug, [stated.get(name) or stated.get(name.lstrip("-"), "") for name in tool.model_hints]
            )
    for text in configurations(files) if not named or named[0] in texts else ():
        if slug := recognition.model_of(text):
            return text, slug
    name = named[0] if named and named[0] not in texts else ""
    if tool.study == "serving" and (kind := recognition.other_kind(name)):
        fix = "give a decoder, or its shape: -w NAME, or its config.json too"
        raise InputError(", ".join(texts), f"{name}, {kind}", "a model that decodes text", fix)
    return name, None


def _generation(slug: str, hints: Sequence[str]) -> str:
    """Return the model of the same shape that a path to its tokenizer or checkpoint names, else the model itself."""
    entry = catalog.entry("workload", slug)
    for other in filter(None, map(recognition.model_of, hints)):
        shape = catalog.entry("workload", other)
        if all(shape.value(name) == entry.value(name) for name in _SHAPE):
            return other
    return slug


#: Fields by which two models are generations of one shape.
_SHAPE = ("n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab")


def _joined(entry: str | Sequence[str], stated: Mapping[str, str]) -> str:
    """Return the text of an option, or those of several joined; "" where one is not stated."""
    names = [entry] if isinstance(entry, str) else list(entry)
    texts = [stated.get(name, "") for name in names]
    return "-".join(texts) if all(texts) else ""


def chip_of_files(
    files: Sources, stated: Mapping[str, str], tool: Tool, system: str, texts: Mapping[str, str]
) -> NamedChip | None:
    """Return the chip that options, schedulers, manifests, variables, file names or comments name, None for none."""
    if system:
        return NamedChip(system, system)
    places = [[stated.get(name, "") for name in tool.chip_options], files.directives]
    places.append([text for part in files.parts if part.table is not None for text in _hardware_texts(part.table)])
    places.append(
        [
            word
            for part in files.parts
            for word in part.words
            if re.match(r"--?(gpu|device|tpu|gres|constraint|instance|accelerator)", word)
        ]
    )
    places.append(
        [
            text
            for name, text in files.variables.items()
            if re.search(r"GPU|CHIP|DEVICE|HARDWARE|INSTANCE", name.upper())
        ]
    )
    places.append(configurations(files))
    places.append([word for part in files.parts if part.words[:1] == ("grep",) for word in part.words])  # of nvidia-smi
    places += [list(texts), _comments(files.text)]
    for place in places:
        chips = recognition.chips_in(" ; ".join(place))
        if len(chips) == 1:
            return NamedChip(*next(iter(chips.items())))
        if chips:
            return recognition.chip_of(next(text for text in place if recognition.chip_of(text)))
    return None


def _hardware_texts(node: Any, key: str = "") -> Iterator[str]:
    """Yield the texts of a manifest that name hardware: labels of nodes, instance types, accelerators."""
    if isinstance(node, dict):
        for name, child in node.items():
            if (
                re.search(r"(?i)nodeSelector|affinity|instance|accelerator|gpu|machine|tolerations|labels", str(name))
                or key
            ):
                yield str(name)
                yield from _hardware_texts(child, str(name))
            else:
                yield from _hardware_texts(child, "")
    elif isinstance(node, list):
        for child in node:
            yield from _hardware_texts(child, key)
    elif key and isinstance(node, str):
        yield node


def _comments(text: str) -> list[str]:
    """Return the comments of files."""
    return re.findall(r"(?:^|\s)#(?!SBATCH|!)\s*(.{0,200})$", text, re.M)


def devices_of_files(
    files: Sources,
    stated: Mapping[str, str],
    launched: DeviceCount,
    chip: NamedChip | None,
    n_devices: int | None,
) -> DeviceCount:
    """Return the number of devices: as it is stated, as of slices of a TPU, or of hosts of an instance type."""
    if n_devices is not None:
        return DeviceCount(n_devices, launched.nodes, launched.per_node)
    if launched.total is None:
        words = [word for part in files.parts for word in part.words]
        texts = (*(text for word in words for text in word.split("=")), *files.variables.values(), *stated.values())
        if chips := next(filter(None, map(recognition.slice_devices, texts)), None):
            slices = re.search(r"(?:--num[-_]slices|compile_topology_num_slices)[= ](\d+)", " ".join(words))
            count = int(slices[1]) if slices else 1
            return DeviceCount(chips * count, count, chips)
        if launched.nodes and (per_node := _host_devices(files, chip)):
            return DeviceCount(launched.nodes * per_node, launched.nodes, per_node)
    return launched


def _host_devices(files: Sources, chip: NamedChip | None) -> int:
    """Return the devices of a host by an instance type that files name, 0 for none."""
    return recognition.chip_devices(files.text) if chip else 0


def usage_of_files(files: Sources) -> dict[str, str]:
    """Return the pseudo-option of how a program uses its engine: of a benchmark by its row, of Python by its class."""
    rows = filter(None, (client_of(part.words) for part in files.parts))
    usage = next((row["usage"] for row in rows if "usage" in row), "")
    is_offline = any(name.endswith(".py") and re.search(r"\bLLM\(", text) for name, text in files.files.items())
    return {USAGE: usage or "offline"} if usage or is_offline else {}


def pseudo_options(chip: NamedChip | None, devices: DeviceCount, slug: str | None, system: str) -> dict[str, str]:
    """Return what rules may read besides options: devices, chip, layers and experts of the model."""
    pseudo: dict[str, str] = {}
    if devices.total:
        pseudo[WORLD_SIZE] = str(devices.total)
    if devices.nodes:
        pseudo[NODES] = str(devices.nodes)
    if chip:
        from dse.designs import accelerator_of

        pseudo[CHIP] = accelerator_of(chip.name) or ""
    if slug:
        entry = catalog.entry("workload", slug)
        pseudo[N_LAYERS] = f"{entry.value('n_layers'):g}"
        if context := context_of(slug):
            pseudo[MODEL_CONTEXT] = f"{context:g}"
        pseudo[N_EXPERTS] = f"{entry.value('experts.n_experts') or 0:g}"
    return pseudo
