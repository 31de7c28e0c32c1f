"""Files of a design beside its line: configurations as tools keep them, and manifests of Kubernetes.

``file`` is the tool's own configuration, ``primus`` an experiment of AMD's Primus with Megatron-LM's arguments,
``kubernetes`` a Deployment (over several nodes a LeaderWorkerSet), ``dynamo`` a DynamoGraphDeployment, ``llm-d`` values
of the chart llm-d-modelservice. All are read back by :mod:`dse.tools.documents`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tomlkit

from dse.errors import InputError
from dse.tools.documents import yaml_module
from dse.tools.engines import has_attention_dp, replica_devices
from dse.tools.megatron_memory import with_switches
from dse.tools.options import Lookup, Pairs, Tool, degrees, hosts, number
from dse.tools.rows import nested_tables, parsed_value, table

_Nested = dict[str, Any]

_MODEL = "${MODEL}"


def write(form: str, tool: Tool, leaf: Lookup, pairs: Pairs, role: str = "", vendor: str = "") -> str:
    """Return the text of a file of a design: TOML, JSON or YAML, by ``form``.

    Args:
        form: a name of ``FORMS``.
        tool: that runs the design.
        leaf: values of the design.
        pairs: options of the tool for it.
        role: of a pool of an engine; "" for one that does both.
        vendor: of the accelerator; "" if unknown.

    Raises:
        InputError: for an unknown form, one that the tool does not have, and engines that it cannot start.
    """
    form_tools = FORMS.get(form, ((), None))[0]
    if tool.name not in form_tools:
        form_names = ", ".join(name for name, (tool_names, _) in FORMS.items() if tool.name in tool_names)
        raise InputError(
            "--format", f"{form} of {tool.name}", f"line, {form_names}".rstrip(", "), "choose one of these"
        )
    return FORMS[form][1](tool, leaf, pairs, role, vendor)


def note(form: str) -> str:
    """Return the note on what has to be filled in a file of ``form``, "" for nothing."""
    if form == "primus":
        return "fill in the model's file of Primus: envsubst '$MODEL' < FILE"
    return "" if form == "file" else "fill in the image and the model: envsubst '$IMAGE $MODEL' < FILE"


def _yaml(*documents: _Nested) -> str:
    """Return documents as YAML, without a line end; texts of several lines as blocks."""
    yaml = yaml_module()

    class BlockDumper(yaml.SafeDumper):  # type: ignore[misc, name-defined, unused-ignore]
        """Dumper that writes texts of several lines as blocks."""

        ignore_aliases = staticmethod(lambda data: True)

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    BlockDumper.add_representer(str, text)
    return str(yaml.dump_all(documents, Dumper=BlockDumper, sort_keys=False, width=120)).rstrip("\n")


def _file(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the tool's own configuration (TOML, JSON or YAML), for engines by option without leading dashes."""
    if tool.name == "torchtitan":
        return tomlkit.dumps(nested_tables(pairs)).rstrip("\n")
    if tool.name in ("deepspeed", *_YAML_LINES):
        return tool.show(leaf, pairs)
    return _yaml(nested_tables([*table(tool.name).get("file", {}).items(), *pairs]))


def _filled(node: Any, values: _Nested) -> Any:
    """Return a template with ``<name>`` replaced by values, without keys whose value is None."""
    if isinstance(node, dict):
        filled = {_filled(key, values): _filled(inner, values) for key, inner in node.items()}
        return {key: inner for key, inner in filled.items() if inner is not None}
    if isinstance(node, list):
        return [_filled(inner, values) for inner in node]
    if not isinstance(node, str):
        return node
    if whole := re.fullmatch(r"<(\w+)>", node):
        return values[whole[1]]
    return re.sub(r"<(\w+)>", lambda match: str(values[match[1]]), node)


def _manifest(template: str, /, **values: Any) -> Any:
    """Return a template of ``tables/manifests.toml`` with its values."""
    return _filled(table("manifests")[template], values)


def _resource(vendor: str) -> str:
    """Return the name in Kubernetes of the accelerators of a vendor."""
    return str(table("manifests")["resources"].get(vendor, "${RESOURCE}"))


def _primus(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the YAML of Primus' pre-trainer with overrides, which are attributes of Megatron-LM's arguments."""
    attributes = table("megatron-lm")
    renamed = {option: name for name, option in attributes["attributes"].items()}
    negated = {option: name for name, option in attributes["negated"].items()}
    overrides: _Nested = {}
    for option, text in with_switches(pairs):
        name = renamed.get(option, option.removeprefix("--").replace("-", "_"))
        value = text.split() if " " in text else parsed_value(text)
        overrides |= {negated[option]: False} if option in negated else {name: value}
    return _yaml(_manifest("primus", overrides=overrides))


def _arguments(pairs: Pairs) -> list[str]:
    """Return options as words; a switch is one word."""
    return [word for name, value in pairs for word in ((name, value) if value else (name,))]


def _kubernetes(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the YAML of a Deployment, or over several nodes of a LeaderWorkerSet."""
    nodes, devices_per_host = hosts(leaf)
    name = f"{tool.name}-{role}" if role else tool.name
    ports = _arguments([pair for pair in _PORTS if pair[0] not in dict(pairs)])

    def pod(command: list[str], args: list[str]) -> _Nested:
        values = {"tool": tool.name, "resource": _resource(vendor), "devices": devices_per_host}
        container = _manifest("container", command=command, args=args, **values)
        return dict(_manifest("pod", name=name, container=container))

    if nodes == 1 and not tool.entries:
        leader = worker = pod(table("manifests")["commands"][tool.name], [*_arguments(pairs), *ports])
    else:  # a script: it writes a file of entries, or computes a rank
        suffixes = ("", "") if nodes == 1 else _node_suffixes(tool, leaf, nodes, devices_per_host)
        line = " ".join([tool.show(leaf, pairs).replace('"$MODEL"', _MODEL), *ports])
        leader, worker = (pod(["sh", "-c"], [line + suffix]) for suffix in suffixes)
    return _yaml(
        _manifest("deployment" if nodes == 1 else "group", name=name, nodes=nodes, leader=leader, worker=worker)
    )


#: Host and port of a container, where the options do not state them.
_PORTS = [("--host", "0.0.0.0"), ("--port", "8000")]


def _node_suffixes(tool: Tool, leaf: Lookup, nodes: int, devices_per_host: int) -> tuple[str, str]:
    """Return the texts that the command lines of the leader and of other nodes add for an engine over several.

    Raises:
        InputError: for TensorRT-LLM, which needs MPI, and for replicas that share nothing or whose ranks span nodes.
    """
    (dp,), ranks = degrees(leaf, "dp"), replica_devices(leaf)
    where, fix = "--format kubernetes", "give one engine (-n), or --format line"
    if tool.name == "tensorrt-llm":
        raise InputError(where, f"TensorRT-LLM over {nodes} nodes", "one node: more need MPI and its operator", fix)
    if dp > 1.0 and (ranks > devices_per_host or not has_attention_dp(leaf)):
        got = f"{dp:g} replicas of {ranks:g} devices on nodes of {devices_per_host}"
        raise InputError(where, got, "one engine, or ranks that share experts and fit into a node", fix)
    values = {"nodes": nodes, "leader": "$LWS_LEADER_ADDRESS", "rank": "$LWS_WORKER_INDEX"}
    values["local"] = number(devices_per_host // ranks)
    rows = table("manifests")["nodes"]
    leader, more = _filled(rows["vllm_ranks"] if tool.name == "vllm" and dp > 1.0 else rows[tool.name], values)
    return f" \\\n    {leader}", f" \\\n    {leader}{more}"


def _dynamo(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the YAML of a DynamoGraphDeployment with a frontend and a worker."""
    nodes, devices_per_host = hosts(leaf)
    model = {"vllm": "--model", "sglang": "--model-path"}[tool.name]
    engine_pairs = [(option, value) for option, value in pairs if option not in _ROLE_OPTIONS]
    role_pairs = [("--disaggregation-mode", role)] if role else []
    document = _manifest(
        "dynamo",
        tool=tool.name,
        name=role or "decode",
        role=role or None,
        gpus=str(devices_per_host),
        multinode={"nodeCount": nodes} if nodes > 1 else None,
        args=[model, _MODEL, *_arguments([*engine_pairs, *role_pairs])],
    )
    return _yaml(document)


#: Options of a pool that Dynamo states by its own.
_ROLE_OPTIONS = (
    "--kv-transfer-config",
    "--disaggregation-mode",
    "--disaggregation-transfer-backend",
    "--host",
    "--port",
)


def _llm_d(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the values of llm-d's chart as YAML.

    Degrees stand beside the container, and in its arguments where the chart has none.
    """
    nodes, devices_per_host = hosts(leaf)
    tp, dp = degrees(leaf, "tp", "dp")
    local = min(dp, max(devices_per_host // replica_devices(leaf), 1.0))
    pool, absent = ("prefill", "decode") if role == "prefill" else ("decode", "prefill")
    document = _manifest(
        "llm-d",
        multinode=nodes > 1,
        accelerator=vendor.lower() or "nvidia",
        pool=pool,
        absent=absent,
        degrees={"tensor": int(tp), "data": int(dp), "dataLocal": int(local)},
        args=_arguments(pairs),
        resource=_resource(vendor),
        gpus=str(devices_per_host),
    )
    return _yaml(document)


_Writer = Callable[[Tool, Lookup, Pairs, str, str], str]

#: Tools whose line is a file of YAML.
_YAML_LINES = ("transformers", "trl", "axolotl", "llama-factory")

_FILE_TOOLS = (
    *_YAML_LINES,
    "megatron-bridge",
    "nemo",
    "nemo-run",
    "nemo-rl",
    "primus",
    "deepspeed",
    "torchtitan",
    "maxtext",
    "vllm",
    "sglang",
)

#: Form of a file → its tools, and what writes it.
FORMS: dict[str, tuple[tuple[str, ...], _Writer]] = {
    "file": (_FILE_TOOLS, _file),
    "primus": (("megatron-lm",), _primus),
    "kubernetes": (("vllm", "sglang", "tensorrt-llm"), _kubernetes),
    "dynamo": (("vllm", "sglang"), _dynamo),
    "llm-d": (("vllm",), _llm_d),
}
