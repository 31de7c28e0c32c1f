"""Files of a design beside its line: configurations as tools keep them, and manifests of Kubernetes.

``file`` is the tool's own configuration, ``primus`` an experiment of AMD's Primus with Megatron-LM's arguments,
``kubernetes`` a Deployment (over several nodes a LeaderWorkerSet), ``dynamo`` a DynamoGraphDeployment, ``llm-d`` values
of the chart llm-d-modelservice. All are read back by :mod:`dse.tools.documents`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tomlkit

from dse.errors import InputError
from dse.tools.documents import NEGATED, RENAMED, yaml_module
from dse.tools.engines import has_attention_dp, replica_devices
from dse.tools.megatron import with_switches
from dse.tools.options import Lookup, Pairs, Tool, hosts, number
from dse.tools.rows import nested_tables, parsed_value

_Nested = dict[str, Any]

#: To be filled in by ``envsubst``.
_IMAGE, _MODEL = "${IMAGE}", "${MODEL}"

#: Vendor of an accelerator → its resource in Kubernetes; of others it is to be filled in (of Ascend it counts dies).
_RESOURCES = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "Google": "google.com/tpu",
    "Intel": "habana.ai/gaudi",
    "AWS": "aws.amazon.com/neuron",
    "": "nvidia.com/gpu",
}

_COMMANDS = {
    "vllm": ["vllm", "serve", _MODEL], "sglang": ["python3", "-m", "sglang.launch_server", "--model-path", _MODEL],
    "tensorrt-llm": ["trtllm-serve", _MODEL],
}  # fmt: skip


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
    if tool.name == "deepspeed":
        return tool.show(leaf, pairs)
    return _yaml(nested_tables(pairs))


def _primus(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the YAML of Primus' pre-trainer with overrides, which are attributes of Megatron-LM's arguments."""
    renamed = {option: name for name, option in RENAMED.items()}
    negated = {option: name for name, option in NEGATED.items()}
    overrides: _Nested = {}
    for option, text in with_switches(pairs):
        if option in negated:
            overrides[negated[option]] = False
            continue
        name = renamed.get(option, option.removeprefix("--").replace("-", "_"))
        overrides[name] = text.split() if " " in text else parsed_value(text)
    trainer = {"framework": "megatron", "config": "pre_trainer.yaml", "model": _MODEL, "overrides": overrides}
    return _yaml({"work_group": "dse", "exp_name": "dse", "modules": {"pre_trainer": trainer}})


def _arguments(pairs: Pairs) -> list[str]:
    """Return options as words; a switch is one word."""
    return [word for name, value in pairs for word in ((name, value) if value else (name,))]


def _container(tool: Tool, command: list[str], args: list[str], devices: int, vendor: str) -> _Nested:
    """Return the container of a pod, with ``devices`` of the vendor's resource."""
    return {
        "name": tool.name,
        "image": _IMAGE,
        "command": command,
        "args": args,
        "ports": [{"containerPort": 8000}],
        "resources": {"limits": {_RESOURCES.get(vendor, "${RESOURCE}"): devices}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }


def _pod(container: _Nested, labels: _Nested) -> _Nested:
    """Return the template of a pod with one container and shared memory."""
    shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": [shared]}}


def _kubernetes(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the YAML of a Deployment, or over several nodes of a LeaderWorkerSet."""
    nodes, devices_per_host = hosts(leaf)
    name = f"{tool.name}-{role}" if role else tool.name
    labels = {"app": name}
    if nodes == 1 and not tool.entries:
        container = _container(
            tool, _COMMANDS[tool.name], [*_arguments(pairs), *_port_words(pairs)], devices_per_host, vendor
        )
    else:  # a script: it writes a file of entries, or computes a rank
        suffixes = ("", "") if nodes == 1 else _node_suffixes(tool, leaf, nodes, devices_per_host)
        line = tool.show(leaf, pairs).replace('"$MODEL"', _MODEL)
        line = " ".join([line, *_port_words(pairs)])
        leader, worker = (
            _container(tool, ["sh", "-c"], [line + suffix], devices_per_host, vendor) for suffix in suffixes
        )
        container = leader
    if nodes == 1:
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": _pod(container, labels)}
        return _yaml({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
    group = {
        "size": nodes,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": _pod(leader, labels),
        "workerTemplate": _pod(worker, labels),
    }
    return _yaml(
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": name},
            "spec": {"replicas": 1, "leaderWorkerTemplate": group},
        }
    )


def _port_words(pairs: Pairs) -> list[str]:
    """Return host and port of the container as words, those that the options do not state."""
    values_by_option = dict(pairs)
    return [
        word
        for name, value in (("--host", "0.0.0.0"), ("--port", "8000"))
        if name not in values_by_option
        for word in (name, value)
    ]


_LEADER, _RANK = "$LWS_LEADER_ADDRESS", "$LWS_WORKER_INDEX"


def _node_suffixes(tool: Tool, leaf: Lookup, nodes: int, devices_per_host: int) -> tuple[str, str]:
    """Return the texts that the command lines of the leader and of other nodes add for an engine over several.

    Raises:
        InputError: for TensorRT-LLM, which needs MPI, and for replicas that share nothing or whose ranks span nodes.
    """
    dp, ranks = leaf("mapping.dp") or 1.0, replica_devices(leaf)
    where, fix = "--format kubernetes", "give one engine (-n), or --format line"
    if tool.name == "tensorrt-llm":
        raise InputError(where, f"TensorRT-LLM over {nodes} nodes", "one node: more need MPI and its operator", fix)
    if dp > 1.0 and (ranks > devices_per_host or not has_attention_dp(leaf)):
        got = f"{dp:g} replicas of {ranks:g} devices on nodes of {devices_per_host}"
        raise InputError(where, got, "one engine, or ranks that share experts and fit into a node", fix)
    if tool.name == "sglang":
        suffix = f" \\\n    --nnodes {nodes} --node-rank {_RANK} --dist-init-addr {_LEADER}:20000"
        return suffix, suffix
    if dp == 1.0:
        suffix = f" \\\n    --nnodes {nodes} --node-rank {_RANK} --master-addr {_LEADER}"
        return suffix, f"{suffix} --headless"
    local = number(devices_per_host // ranks)
    suffix = f" \\\n    --data-parallel-size-local {local} --data-parallel-address {_LEADER}"
    return suffix, f"{suffix} --headless --data-parallel-start-rank $(({_RANK} * {local}))"


def _dynamo(tool: Tool, leaf: Lookup, pairs: Pairs, role: str, vendor: str) -> str:
    """Return the YAML of a DynamoGraphDeployment with a frontend and a worker."""
    nodes, devices_per_host = hosts(leaf)
    package, model = {"vllm": ("dynamo.vllm", "--model"), "sglang": ("dynamo.sglang", "--model-path")}[tool.name]
    engine_pairs = [(option, value) for option, value in pairs if option not in _ROLE_OPTIONS]
    role_pairs = [("--disaggregation-mode", role)] if role else []
    worker: _Nested = {
        "componentType": "worker",
        **({"subComponentType": role} if role else {}),
        "replicas": 1,
        "resources": {"limits": {"gpu": str(devices_per_host)}},
        **({"multinode": {"nodeCount": nodes}} if nodes > 1 else {}),
        "extraPodSpec": {
            "mainContainer": {
                "image": _IMAGE,
                "command": ["python3", "-m", package],
                "args": [model, _MODEL, *_arguments([*engine_pairs, *role_pairs])],
            }
        },
    }
    front = {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": {"image": _IMAGE}}}
    name = f"{role or 'decode'}-worker"
    return _yaml(
        {
            "apiVersion": "nvidia.com/v1alpha1",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": f"{tool.name}-dse"},
            "spec": {"services": {"Frontend": front, name: worker}},
        }
    )


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
    tp, dp = leaf("mapping.tp") or 1.0, leaf("mapping.dp") or 1.0
    local = min(dp, max(devices_per_host // replica_devices(leaf), 1.0))
    degrees = {"tensor": int(tp), "data": int(dp), "dataLocal": int(local)}
    limits = {_RESOURCES.get(vendor, "${RESOURCE}"): str(devices_per_host)}
    container = {
        "name": "vllm",
        "image": _IMAGE,
        "modelCommand": "vllmServe",
        "args": _arguments(pairs),
        "resources": {"limits": limits, "requests": limits},
        "mountModelVolume": True,
    }
    pool_key, absent_key = ("prefill", "decode") if role == "prefill" else ("decode", "prefill")
    pool = {"create": True, "replicas": 1, "parallelism": degrees, "containers": [container]}
    return _yaml(
        {
            "multinode": nodes > 1,
            "modelArtifacts": {"uri": f"hf://{_MODEL}", "name": _MODEL},
            "accelerator": {"type": vendor.lower() or "nvidia"},
            pool_key: pool,
            absent_key: {"create": False},
        }
    )


_Writer = Callable[[Tool, Lookup, Pairs, str, str], str]

_FILE_TOOLS = ("megatron-bridge", "nemo", "deepspeed", "torchtitan", "maxtext", "vllm", "sglang")

#: Form of a file → its tools, and what writes it.
FORMS: dict[str, tuple[tuple[str, ...], _Writer]] = {
    "file": (_FILE_TOOLS, _file),
    "primus": (("megatron-lm",), _primus),
    "kubernetes": (("vllm", "sglang", "tensorrt-llm"), _kubernetes),
    "dynamo": (("vllm", "sglang"), _dynamo),
    "llm-d": (("vllm",), _llm_d),
}
