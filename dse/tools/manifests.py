"""Engines in manifests: which containers and tables of a manifest start one, on what, and in which pool.

Manifests of Kubernetes (Deployments and their kin, LeaderWorkerSets, KServe, Dynamo, with ConfigMaps beside them),
values of the charts of vLLM's production stack and llm-d, files of Docker Compose and of Ray Serve, and tables with a
part for each pool. :func:`engine_processes` gives one :class:`EngineProcess` for each engine that they start.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dse.tools.clients import benchmark_values, is_client
from dse.tools.pods import (
    EngineProcess,
    Pod,
    Table,
    command_words,
    config_maps,
    containers,
    count_value,
    model_name,
    pods,
    subtable,
    tables,
    texts,
    variables_of,
    whole_number,
    within,
)
from dse.tools.programs import keyword_options
from dse.tools.rows import table


def engine_processes(documents: Sequence[Table]) -> list[EngineProcess]:
    """Return the engines that documents start, empty where they are no manifest.

    Args:
        documents: of one file.

    Raises:
        InputError: for a file of too many values.

    >>> container = {"name": "vllm", "args": ["serve", "m", "-tp", "8"], "image": "vllm/vllm-openai:v0.17.0"}
    >>> [worker.words for worker in engine_processes([{"kind": "Pod", "spec": {"containers": [container]}}])]
    [('vllm', 'serve', 'm', '-tp', '8')]
    """
    steps = itertools.count()
    engines = [worker for worker in _candidates(documents, steps) if _is_engine(worker)]
    return [worker._replace(role=worker.role or _role(worker)) for worker in engines]


def clients(documents: Sequence[Table]) -> list[EngineProcess]:
    """Return the containers of documents that send requests to an engine."""
    candidates = _candidates(documents, itertools.count())
    return [worker for worker in candidates if is_client(worker.words) and not _is_engine(worker)]


def _candidates(documents: Sequence[Table], steps: Iterator[int]) -> Iterator[EngineProcess]:
    """Yield the containers and tables of options of documents."""
    maps = {name: data for document in documents for name, data in config_maps(document)}
    for document in documents:
        yield from _workers(document, maps, steps)


def _workers(document: Table, maps: Mapping[str, Table], steps: Iterator[int]) -> Iterator[EngineProcess]:
    """Yield the engines that a document starts, by its kind."""
    if "servingEngineSpec" in document:
        yield from _production_stack(document["servingEngineSpec"])
    elif "llm_configs" in document or "applications" in document:
        yield from _ray_serve(document)
    elif isinstance(document.get("services"), dict) and "apiVersion" not in document:
        services = {name: child for name, child in document["services"].items() if isinstance(child, dict)}
        for name, service in services.items():
            yield from containers([service], Pod(str(name), {}, maps), steps)
    elif "modelArtifacts" in document or document.get("kind") == "LLMInferenceService" or _has_degrees(document):
        yield from _llm_d(document, maps, steps)
    elif "apiVersion" in document or "kind" in document:
        yield from pods(document, Pod("", document, maps), steps)
    else:
        yield from _pools(document, document, steps)


# --- roles ------------------------------------------------------------------------------------------------

#: Words of containers that start no engine.
_OTHER = re.compile(
    r"dynamo\.(frontend|planner|router|mocker|operator|kv_|profiler|global)|sglang_router|sglang\.bench|bench_serving"
    r"|vllm bench|benchmark_serving|aiperf|genai-perf|toy_proxy|vllm_router|\bray (stop|status)\b"
)


#: Words that start an engine, whatever else a script does.
_START = re.compile(r"vllm serve\b|api_server|launch_server|trtllm-serve|dynamo\.(vllm|sglang|trtllm)\b")

#: Words of programs and images of engines, and keys of tables of their options.
_ENGINE = re.compile(r"vllm|sglang|trtllm|tensorrt[-_]llm|huggingfaceserver")
_ENGINE_KEY = re.compile(
    r"(tensor|expert|data)[-_]parallel[-_]size|tp([-_]size)?|mem[-_]fraction.*|max[-_](batch|num).*"
)


def _is_engine(worker: EngineProcess) -> bool:
    """True for a container or a table of an engine, not of a frontend, a router, a client or a trainer."""
    text = " ".join((*worker.words, *(content for _, content in worker.files)))
    if _START.search(text):
        return True
    if _OTHER.search(" ".join(worker.words)):
        return False
    return bool(_ENGINE.search(f"{text} {worker.image}")) or any(
        _ENGINE_KEY.fullmatch(key) for options in worker.tables for key in _keys(options)
    )


def _keys(node: Any) -> Iterator[str]:
    """Yield the keys of a table and of those within."""
    for key, child in node.items() if isinstance(node, dict) else ():
        yield str(key)
        yield from _keys(child)


def _role(worker: EngineProcess) -> str:
    """Return the role of a pool by the options of an engine, else by its name; "" for none."""
    text = " ".join(worker.words)
    if match := re.search(r"--disaggregation[-_]mode[= ](prefill|decode)\b", text):
        return match[1]
    for role, pattern in (
        ("prefill", r"--is-prefill-worker|kv_producer|--server[-_]role[= ]context"),
        ("decode", r"--is-decode-worker|kv_consumer|--server[-_]role[= ]generation"),
    ):
        if re.search(pattern, text, re.IGNORECASE):
            return role
    roles = [role for role in ("prefill", "decode") if role in worker.name.lower()]
    return roles[0] if len(roles) == 1 else ""


#: Names of the tables of two pools, and of one that does both.
_POOL_KEYS = (("prefill", "decode"), ("context_servers", "generation_servers"), ("ctx", "gen"), ("aggregated",))
_ROLES = {"context_servers": "prefill", "ctx": "prefill", "generation_servers": "decode", "gen": "decode"}

#: What a document says of its engine → the engine's program.
_PROGRAMS = {
    "sglang": ("sglang.launch_server",),
    "trtllm|tensorrt|context_servers": ("trtllm-serve",),
    "vllm": ("vllm", "serve"),
}


def _pools(node: Any, document: Table, steps: Iterator[int], path: str = "") -> Iterator[EngineProcess]:
    """Yield the engines of a document that has a table of options for each of its pools."""
    count_value(steps)
    if not isinstance(node, dict) or path.count(".") > 4:
        return
    for names in _POOL_KEYS:
        entries = {name: node.get(name) for name in names}
        if all(isinstance(entry, dict) and any(map(_ENGINE_KEY.fullmatch, _keys(entry))) for entry in entries.values()):
            for name, entry in entries.items():
                role = "" if name == "aggregated" else _ROLES.get(name, name)
                shared = {key: child for key, child in node.items() if not isinstance(child, dict | list)}
                yield _pool(name, role, {**shared, **(entry or {})}, document, f"{path}.{name}")
            return
    for key, child in node.items():
        yield from _pools(child, document, steps, f"{path}.{key}")


def _pool(name: str, role: str, options: Table, document: Table, path: str) -> EngineProcess:
    """Return the engine of a pool: options of TensorRT-LLM are those of its file, others those of a command."""
    text = " ".join((path, *texts(document, 0))).lower()
    program = next((words for pattern, words in _PROGRAMS.items() if re.search(pattern, text)), ())
    resources = subtable(document, "resources") or subtable(document, "hardware")
    prefix = role or "agg"
    nodes, replicas = (whole_number(resources.get(f"{prefix}_{key}")) for key in ("nodes", "workers"))
    places = (subtable(document, "environment").get("model_path"), subtable(document, "model").get("path"))
    if not {"model", "model_path", "model-path"} & options.keys():
        place = next((place for place in places if isinstance(place, str)), None)
        options |= {} if place is None else {"model": place}
    place = next((place for place in places if isinstance(place, str)), "")
    for key in ("model-path", "model_path", "model"):  # where its files are mounted says nothing
        if place and re.fullmatch(r"/?models?/?", str(options.get(key, ""))):
            options |= {key: place}
    is_command = bool(program) and program[0] != "trtllm-serve"
    return EngineProcess(
        name=name,
        role=role,
        words=(*program, *keyword_options(options)) if is_command else program,
        tables=() if is_command else (options,),
        nodes=max((nodes or 1) // (replicas or 1), 1) if nodes else None,
        per_node=whole_number(resources.get("gpus_per_node")),
        replicas=whole_number(options.get("num_instances")) or replicas or 1,
        hardware=tuple(map(str, filter(None, [resources.get("gpu_type"), document.get("gpu_type")]))),
        image=" ".join(text for text in texts(document.get("model"), 0)),
        variables={name.upper(): text for name, text in benchmark_values(document)},
    )


# --- charts -----------------------------------------------------------------------------------------------


def _options(values: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return the words of the options that a table states under its own names; a switch that is off has ``--no-``."""
    words: list[str] = []
    for key, option in names.items():
        value = values.get(key)
        if value is None or isinstance(value, dict | list):
            continue
        if isinstance(value, bool):
            words += [option] if value else [f"--no-{option[2:]}"] if option.startswith("--enable-") else []
        else:
            words.append(f"{option}={value}")
    return words


def _production_stack(node: Any) -> Iterator[EngineProcess]:
    """Yield the engines of the values of vLLM's production stack."""
    for model in tables(node.get("modelSpec") if isinstance(node, dict) else None):
        config = subtable(model, "vllmConfig")
        words = [
            "vllm",
            "serve",
            model_name(model.get("modelURL")),
            *_options(config, table("manifests")["vllmConfig"]),
        ]
        words += command_words(config.get("extraArgs"))
        yield EngineProcess(
            name=str(model.get("name", "model")),
            words=tuple(words),
            variables=variables_of(model, {}),
            per_node=whole_number(model.get("requestGPU")),
            replicas=whole_number(model.get("replicaCount")) or 1,
            hardware=tuple(texts([model.get("nodeSelectorTerms"), model.get("nodeSelector")], 0)),
            image=f"{model.get('repository', '')}:{model.get('tag', '')}",
        )


def _ray_serve(document: Table) -> Iterator[EngineProcess]:
    """Yield the engines of a file of Ray Serve: a model with the keyword arguments of vLLM's engine."""
    configs = tables(document.get("llm_configs"))
    for application in tables(document.get("applications")):
        arguments = application.get("args")
        configs += tables(arguments.get("llm_configs")) if isinstance(arguments, dict) else []
    for config in configs:
        loading = config.get("model_loading_config")
        loading = loading if isinstance(loading, dict) else {}
        source = loading.get("model_source") or loading.get("model_id")
        keywords = subtable(config, "engine_kwargs")
        model = [source] if isinstance(source, str) else []
        words = ("vllm", "serve", *model, *keyword_options(keywords))
        hardware = str(config.get("accelerator_type") or "")
        replicas = whole_number(subtable(config, "deployment_config").get("num_replicas")) or 1
        name = str(loading.get("model_id", "model"))
        yield EngineProcess(name, words=words, replicas=replicas, hardware=(hardware,))


def _llm_d(document: Table, maps: Mapping[str, Table], steps: Iterator[int]) -> Iterator[EngineProcess]:
    """Yield the engines of llm-d's chart, and of a service of KServe that has its form."""
    service = document.get("spec") if document.get("kind") == "LLMInferenceService" else None
    spec = service if isinstance(service, dict) else document
    model_table = spec.get("model") if service else spec.get("modelArtifacts")
    model = model_name(model_table.get("uri")) if isinstance(model_table, dict) else ""
    model = model or str(model_table.get("name", "") if isinstance(model_table, dict) else "")
    pools = {"prefill": spec.get("prefill"), "decode": spec if service else spec.get("decode")}
    hardware = tuple(texts(document.get("accelerator"), 0))
    is_single = not isinstance(pools["prefill"], dict) or not _is_started(pools["prefill"])
    for role, pool in pools.items():
        if not isinstance(pool, dict) or not _is_started(pool):
            continue
        values = {key: child for key, child in pool.items() if key not in ("prefill", "decode")}
        options = _degree_options(values.get("parallelism")) | ({"--model": model} if model else {})
        nodes = _node_count(values.get("parallelism"))
        pod = Pod(role, document, maps, "" if is_single else role, nodes, hardware=hardware, options=options)
        template = subtable(values, "template") or values
        for node in (tables(template.get("containers")) or [{}])[:1]:
            yield from containers([{"modelCommand": "vllmServe", **node}], within(values, pod), steps)


def _has_degrees(document: Table) -> bool:
    """True for values of llm-d's chart that state degrees of a pool, without the model of other values."""
    return any("parallelism" in subtable(document, pool) for pool in ("prefill", "decode"))


def _node_count(node: Any) -> int | None:
    """Return the nodes over which ranks of data parallelism are started, None where a chart does not say it."""
    degrees = node if isinstance(node, dict) else {}
    ranks, ranks_per_node = whole_number(degrees.get("data")), whole_number(degrees.get("dataLocal"))
    return max(ranks // ranks_per_node, 1) if ranks and ranks_per_node else None


def _is_started(pool: Table) -> bool:
    """True for a pool of llm-d's chart that is not switched off."""
    return bool(pool.get("create", True)) and bool(pool.get("enabled", True)) and pool.get("replicas", 1) != 0


def _degree_options(node: Any) -> dict[str, str]:
    """Return option → text of the degrees that a table of llm-d's chart states, empty for any other node."""
    degrees = (
        {key: value for key, value in node.items() if value is True or value != 1} if isinstance(node, dict) else {}
    )
    pairs = (word.partition("=") for word in _options(degrees, table("manifests")["parallelism"]))
    return {option: text or "true" for option, _, text in pairs}
