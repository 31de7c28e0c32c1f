"""Containers of Kubernetes and Docker Compose: their commands, environments, files, devices and hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.tools.documents import MAX_VALUES
from dse.tools.rows import table
from dse.tools.words import split, value_text

Table = dict[str, Any]


class EngineProcess(NamedTuple):
    """A container, or a table of options, that starts an engine."""

    name: str
    role: str = ""  #: of its pool, ``prefill`` or ``decode``; "" for both
    words: tuple[str, ...] = ()  #: of its command
    tables: tuple[Table, ...] = ()  #: of options beside its command
    files: tuple[tuple[str, str], ...] = ()  #: (name, text) of the files that its command names
    variables: Mapping[str, str] = {}  #: of its environment
    nodes: int | None = None  #: of one replica
    per_node: int | None = None  #: devices of a node
    replicas: int = 1  #: engines alike
    hardware: tuple[str, ...] = ()  #: texts that name the chip
    image: str = ""


class Pod(NamedTuple):
    """What stands around containers."""

    name: str
    document: Table
    maps: Mapping[str, Table]  #: name of a ConfigMap → its data
    role: str = ""
    nodes: int | None = None
    per_node: int | None = None
    replicas: int = 1
    hardware: tuple[str, ...] = ()
    volumes: Mapping[str, str] = {}  #: name of a volume → that of its ConfigMap
    variables: Mapping[str, str] = {}
    options: Mapping[str, str] = {}  #: option → text that stands beside the containers


#: Keys with the containers of a pod, alone or in a list.
_CONTAINERS = ("containers", "container", "mainContainer")

#: Keys that name no part of a manifest.
_LEVELS = frozenset(
    {"spec", "template", "services", "components", "extraPodSpec", "podTemplate", "leaderTemplate", "workerTemplate"}
    | {"leaderWorkerTemplate", "jobTemplate", "replicatedJobs", "predictor", "items", "tfReplicaSpecs", *_CONTAINERS}
)


def pods(node: Any, pod: Pod, steps: Iterator[int]) -> Iterator[EngineProcess]:
    """Yield the engines of the containers below a node of a manifest."""
    count_value(steps)
    for child in node if isinstance(node, list) else ():
        yield from pods(child, pod, steps)
    if not isinstance(node, dict):
        return
    pod = within(node, pod)
    for key in _CONTAINERS:
        if key in node:
            children = node[key] if isinstance(node[key], list) else [node[key]]
            yield from containers([child for child in children if isinstance(child, dict)], pod, steps)
    if isinstance(node.get("model"), dict) and "modelFormat" in node["model"]:  # KServe
        yield from containers([_kserve_container(node["model"])], pod, steps)
    for key, child in node.items():
        if key not in (*_CONTAINERS, "initContainers", "metadata"):
            yield from pods(child, pod if key in _LEVELS else pod._replace(name=str(key)), steps)


def within(node: Table, pod: Pod) -> Pod:
    """Return a pod with what a node of a manifest says: names, roles, nodes, devices, hardware, volumes, variables."""
    metadata = subtable(node, "metadata")
    name = metadata.get("name") or (
        node.get("name") if {"componentType", "subComponentType", "podTemplate"} & node.keys() else ""
    )
    labels = subtable(metadata, "labels")
    role = str(node.get("subComponentType") or labels.get("llm-d.ai/role") or labels.get("role") or "")
    if role not in ("prefill", "decode"):
        role = str(node.get("componentType") or (node.get("type") if "podTemplate" in node else "") or "")
    multinode = subtable(node, "multinode")
    is_group = "leaderTemplate" in node or "workerTemplate" in node
    nodes = whole_number(multinode.get("nodeCount")) or (whole_number(node.get("size")) if is_group else None)
    volumes = {
        str(volume.get("name")): str(volume["configMap"].get("name"))
        for volume in tables(node.get("volumes"))
        if isinstance(volume.get("configMap"), dict)
    }
    group = {"LWS_GROUP_SIZE": str(nodes), "LWS_WORKER_INDEX": "0"} if is_group and nodes else {}
    return pod._replace(
        name=str(name or pod.name),
        role=role if role in ("prefill", "decode") else pod.role,
        nodes=nodes or pod.nodes,
        per_node=_devices(node.get("resources")) or pod.per_node,
        replicas=_replicas(node) or pod.replicas,
        hardware=(*pod.hardware, *hardware_texts(node)),
        volumes={**pod.volumes, **volumes},
        variables={**pod.variables, **group, **variables_of(node, pod.maps)},
    )


#: Keys beside a number of replicas that are engines, not nodes of one.
_REPLICATED = frozenset(
    {"template", "extraPodSpec", "podTemplate", "leaderWorkerTemplate", "parallelism", "componentType"}
    | {"subComponentType", "containers", "model"}
)


def _replicas(node: Table) -> int | None:
    """Return the number of engines alike that a node of a manifest states, None for none and for an open number."""
    if "replicas" in node and _REPLICATED & node.keys() and "rayStartParams" not in node:
        return whole_number(node["replicas"])
    least, most = (whole_number(node.get(key)) for key in ("minReplicas", "maxReplicas"))
    return least if least == most else None


def _engine_replicas(words: Sequence[str], pod: Pod) -> int:
    """Return the number of engines of a container: 1 where the pods of a StatefulSet are the nodes of one."""
    nodes = re.search(r"--nnodes[= ](\d+)", " ".join(words))
    is_one = pod.document.get("kind") == "StatefulSet" and nodes is not None and int(nodes[1]) == pod.replicas
    return 1 if is_one else pod.replicas


def containers(nodes: Sequence[Table], pod: Pod, steps: Iterator[int]) -> Iterator[EngineProcess]:
    """Yield the engines of containers: their words with variables replaced, and the files that these name."""
    for node in nodes:
        count_value(steps)
        words = [*command_words(node.get("entrypoint", node.get("command"))), *command_words(node.get("args"))]
        if "entrypoint" in node:
            words += command_words(node.get("command"))
        image = str(node.get("image", ""))
        program = () if _names_program(words) else _program(image, node)
        variables = {**pod.variables, **variables_of(node, pod.maps)}
        if not words and not program:
            continue
        expanded = [_expanded(word, variables) for word in (*program, *words)]
        expanded += split(variables.get("VLLM_ADDITIONAL_ARGS", "")) if node.get("modelCommand") else []
        yield EngineProcess(
            name="/".join(dict.fromkeys(filter(None, [pod.name, str(node.get("name", ""))]))) or "container",
            role=pod.role,
            words=tuple(expanded),
            tables=(dict(pod.options),) if pod.options else (),
            files=tuple(_named_files(expanded, node, pod)),
            variables=variables,
            nodes=pod.nodes,
            per_node=_devices(node.get("resources")) or _devices(node.get("deploy")) or pod.per_node,
            replicas=whole_number(subtable(node, "deploy").get("replicas")) or _engine_replicas(expanded, pod),
            hardware=(*pod.hardware, *hardware_texts(node)),
            image=image,
        )


def command_words(node: Any) -> list[str]:
    """Return the words of a command: of a list of plain values, or of a text; empty for any other node."""
    if isinstance(node, str):
        return ["sh", "-c", node] if "\n" in node.strip() or "&&" in node or ";" in node else split(node)
    if isinstance(node, list) and not any(isinstance(word, dict | list) for word in node):
        return [str(word) for word in node if word is not None]
    return []


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    """Return a word with ``$(NAME)`` of Kubernetes replaced by the variable, where it is known."""
    return re.sub(r"\$\((\w+)\)", lambda match: variables.get(match[1], match[0]), word)


#: Words with which a command names its program, by their ends.
_PROGRAM = re.compile(r"(^|/)(ba)?sh$|^python3?$|vllm$|sglang|trtllm|^serve$|^exec$|dynamo\.|launch_server|api_server")


def _names_program(words: Sequence[str]) -> bool:
    """True for words that start with a program, not with the options of an image's own."""
    return bool(words) and bool(_PROGRAM.search(words[0])) and words[0] != "serve"


def _program(image: str, node: Table) -> tuple[str, ...]:
    """Return the program that an image starts, empty for images of none; of a chart, that of its model's command."""
    if node.get("modelCommand") == "vllmServe":
        return ("vllm", "serve")
    first = next(iter(command_words(node.get("args")) or command_words(node.get("command"))), "")
    for pattern, program in table("manifests")["images"].items():
        if re.search(pattern, image.lower()):
            return tuple(program[:1] if first == "serve" else program)
    return ()


def _named_files(words: Sequence[str], node: Table, pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of the files of ConfigMaps that words name: by mounts, else by the name of the file."""
    mounts = {
        str(mount.get("mountPath", "")).rstrip("/"): (pod.volumes.get(str(mount.get("name"))), mount.get("subPath"))
        for mount in tables(node.get("volumeMounts"))
    }
    text = " ".join(words)
    for path in dict.fromkeys(re.findall(r"[\w./-]*\w\.(?:ya?ml|json|sh|toml)\b", text)):
        folder, name = str(PurePath(path).parent), PurePath(path).name
        data = pod.maps.get(mounts.get(folder, mounts.get(path, (None, None)))[0] or "", {})
        holders = [data] if name in data else [entry for entry in pod.maps.values() if name in entry]
        if holders:
            yield path, str(holders[0][name])


def config_maps(document: Table) -> Iterator[tuple[str, Table]]:
    """Yield (name, data) of the ConfigMaps of a document, of a list too."""
    for entry in tables(document.get("items")) or [document]:
        data, metadata = entry.get("data"), entry.get("metadata")
        if entry.get("kind") == "ConfigMap" and isinstance(data, dict) and isinstance(metadata, dict):
            yield str(metadata.get("name", "")), data


def variables_of(node: Table, maps: Mapping[str, Table]) -> dict[str, str]:
    """Return the variables that a node states: plain ones, and those of ConfigMaps of the same file."""
    variables: dict[str, str] = {}
    for source in tables(node.get("envFrom")):
        reference = source.get("configMapRef")
        data = maps.get(str(reference.get("name")), {}) if isinstance(reference, dict) else {}
        variables |= {str(key): str(value) for key, value in data.items() if "\n" not in str(value)}
    for key in ("env", "envs", "environment"):
        entries = node.get(key)
        if isinstance(entries, dict):
            variables |= {str(k): value_text(v) for k, v in entries.items() if isinstance(v, str | int | float)}
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, str) and "=" in entry:
                name, _, value = entry.partition("=")
                variables[name] = value
            elif isinstance(entry, dict) and "name" in entry:
                text = _variable(entry, maps)
                variables |= {} if text is None else {str(entry["name"]): text}
    return {name: _expanded(value, variables) for name, value in variables.items()}


def _variable(entry: Table, maps: Mapping[str, Table]) -> str | None:
    """Return the value of an entry of an environment, of a key of a ConfigMap too; None where the file lacks it."""
    if isinstance(entry.get("value"), str | int | float):
        return value_text(entry["value"])
    reference = subtable(subtable(entry, "valueFrom"), "configMapKeyRef")
    value = maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
    return None if value is None else str(value)


def subtable(node: Table, key: str) -> Table:
    """Return the table under a key, an empty one for any other node."""
    child = node.get(key)
    return child if isinstance(child, dict) else {}


def tables(node: Any) -> list[Table]:
    """Return the tables of a list, empty for any other node."""
    return [entry for entry in node if isinstance(entry, dict)] if isinstance(node, list) else []


def whole_number(value: Any) -> int | None:
    """Return the positive whole number of a value or its text, None for others."""
    text = str(value).strip().strip("\"'")
    return int(text) if re.fullmatch(r"\d{1,7}", text) and int(text) else None


def _devices(node: Any) -> int | None:
    """Return the accelerators that resources ask for, None for none; of Docker Compose those it reserves."""
    if not isinstance(node, dict):
        return None
    for key in ("limits", "requests", "resources", "reservations"):
        inner = node.get(key)
        if isinstance(inner, dict):
            custom = inner.get("custom", {})  # of Dynamo
            amounts = {**inner, **custom} if isinstance(custom, dict) else inner
            counts = [whole_number(value) for name, value in amounts.items() if _is_accelerator(str(name))]
            if count := next(filter(None, counts), None) or _devices(inner):
                return count
    for device in tables(node.get("devices")):
        if count := whole_number(device.get("count")) or len(device.get("device_ids") or []):
            return count
    return None


def _is_accelerator(name: str) -> bool:
    """True for the name of a resource that counts accelerators."""
    return name in ("gpu", "tpu") or name in table("manifests")["resources"].values()


#: Keys whose values and names of labels name hardware.
_HARDWARE = re.compile(r"(?i)nodeSelector|affinity|tolerations|acceleratorType|accelerator_type|gpu_type|gpuType")


def hardware_texts(node: Table) -> Iterator[str]:
    """Yield the texts under the keys of a node that name hardware."""
    for key, child in node.items():
        if _HARDWARE.search(str(key)):
            yield from texts(child, 0)


def texts(node: Any, depth: int) -> Iterator[str]:
    """Yield keys and texts of a node."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict) and depth < 12:
        for key, child in node.items():
            yield str(key)
            yield from texts(child, depth + 1)
    elif isinstance(node, list) and depth < 12:
        for child in node:
            yield from texts(child, depth + 1)


def count_value(steps: Iterator[int]) -> None:
    """Count one value; InputError for a file of too many."""
    if next(steps) > MAX_VALUES:
        raise InputError("arguments", "a file of too many values", f"at most {MAX_VALUES:,}", "give one recipe")


def model_name(uri: Any) -> str:
    """Return the name of a model without the scheme of its place."""
    return re.sub(r"^(hf|s3|oci|pvc|gs)(\+\w+)?://", "", str(uri or ""))


def _kserve_container(model: Table) -> Table:
    """Return the container that a model of KServe's InferenceService stands for."""
    place = model_name(model.get("storageUri"))
    arguments = [*command_words(model.get("args"))]
    if place and not any(re.match(r"--model[-_](id|dir)|--model$", word) for word in arguments):
        arguments.append(f"--model={place}")
    return {**model, "args": arguments, "image": "huggingfaceserver", "name": model.get("name", "")}
