"""Which degrees of parallelism the tool of a stack can run, by the rules of its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dse.designs import leaf, leaf_path, leaves_of
from dse.tools import TOOLS
from dse.tools.engines import has_attention_dp
from dse.tools.options import Tool
from dse.types import Design

_STAGES = "mapping.virtual_stages"

#: Degrees that the rules of engines read, in the order in which they are told.
ENGINE_DEGREES = ("tp", "pp", "ep", "etp", "dp")


def evaluate_by_mapping(columns: Mapping[str, Any], judge: Callable[[str, dict[str, float]], Any]) -> list[Any]:
    """Return the verdict of ``judge`` on stack and degrees of each design; equal ones are judged once.

    Args:
        columns: ``software`` and degrees → array of their values [designs].
        judge: gives the verdict on a stack and on path → value of degrees.

    Returns:
        Verdict of ``judge`` on each design, in order [designs].

    >>> import numpy as np
    >>> columns = {"software": np.array(["vllm", "sglang"]), "tp": np.array([8, 8]), "ep": np.array([2, 2])}
    >>> evaluate_by_mapping(columns, engine_runs)
    [False, True]
    """
    names = [name for name in (*ENGINE_DEGREES, "virtual_stages") if name in columns]
    rows = list(zip(*(columns[name].tolist() for name in ("software", *names)), strict=True))
    verdict_by_row = {
        row: judge(row[0], dict(zip(map(leaf_path, names), map(float, row[1:]), strict=True))) for row in {*rows}
    }
    return [verdict_by_row[row] for row in rows]


def stack_tool(stack: str, study: str) -> Tool | None:
    """Return the tool of a stack by the stack's name, None where it has none.

    Args:
        stack: name in the catalogue.
        study: kind of designs that the tool runs, ``training`` or ``serving``.

    Returns:
        The tool; None where the stack has none.

    >>> stack_tool("vllm-2026", "serving").name, stack_tool("megatron-core-te", "training").name
    ('vllm', 'megatron-lm')
    >>> stack_tool("megatron-deepspeed", "training").name
    'megatron-deepspeed'
    """
    names = [name for name, tool in TOOLS.items() if tool.study == study and name in stack]
    prefix_tool = next((name for name in names if stack.startswith(name)), "")
    fork = "megatron-lm" if study == "training" and stack.startswith("megatron-") else ""
    return TOOLS.get(prefix_tool or fork or next(iter(names), ""))


def engine_degrees(design: Design) -> dict[str, float]:
    """Return short name → value of the degrees of a design that the rules of engines read.

    Args:
        design: the design.

    Returns:
        Short name → value.

    >>> import dse
    >>> engine_degrees(dse.design("llama-3-8b", "h100", tp=4, dp=2))
    {'tp': 4.0, 'pp': 1.0, 'dp': 2.0}
    """
    names = {leaf_path(name): name for name in ENGINE_DEGREES}
    return {names[path]: float(leaf(design, path)) for path in leaves_of(design) if path in names}


def engine_runs(stack: str, values: Mapping[str, float]) -> bool:
    """True where a stack's engine runs these degrees, and for a stack without a tool.

    Args:
        stack: name in the catalogue; one without a tool is taken to run all.
        values: path → value of the degrees of a mapping.

    Returns:
        Whether no rule of the engine refuses them in one process group, or, where it has no option for replicas that
        share nothing, in a group each.

    >>> mapping = {"mapping.tp": 8.0, "mapping.dp": 1.0, "mapping.experts.ep": 2.0}
    >>> engine_runs("vllm", mapping), engine_runs("sglang", mapping)
    (False, True)
    """
    tool = stack_tool(stack, "serving")
    paths = {*map(leaf_path, ENGINE_DEGREES)}
    rules = [] if tool is None else [rule for rule in tool.rules if paths & set(rule.paths)]

    def starts(degrees: Mapping[str, float]) -> bool:
        return all(rule.write(degrees.get) is not None for rule in rules)

    replicas = {path: value for path, value in values.items() if not path.startswith("mapping.experts.")}
    is_replica_group = not has_attention_dp(values.get) and not starts(replicas)
    return starts({**values, "mapping.dp": 1.0} if is_replica_group else values)


def engine_fault(stack: str, degrees: Mapping[str, float]) -> tuple[str, str, str] | None:
    """Return why a stack's engine cannot run a mapping, as (got, allowed, fix); None where it can.

    Args:
        stack: name in the catalogue.
        degrees: short name → value.

    Returns:
        What was got, what is allowed, and the usual fix; None where the engine runs it.

    >>> engine_fault("vllm", {"tp": 8.0, "ep": 2.0})
    ('tp 8 x ep 2, which vllm cannot be started with', 'ep 1, 8 of tp 8', 'write one of these ep, or software sglang')
    """
    values = {leaf_path(name): float(value) for name, value in degrees.items()}
    if engine_runs(stack, values):
        return None
    ranks = int(degrees.get("tp", 1.0) * degrees.get("dp", 1.0))
    alternatives = [name for name, tool in TOOLS.items() if tool.study == "serving" and engine_runs(name, values)]
    allowed = [
        str(ep)
        for ep in range(1, ranks + 1)
        if ranks % ep == 0
        and engine_runs(stack, {**values, "mapping.experts.ep": float(ep), "mapping.experts.etp": 1.0})
    ]
    degree_texts = {name: f"{name} {value:g}" for name, value in degrees.items() if value > 1.0}
    attention_text = " x ".join(text for name, text in degree_texts.items() if name not in ("ep", "etp")) or "1 device"
    return (
        f"{' x '.join(degree_texts.values())}, which {stack} cannot be started with",
        f"ep {', '.join(allowed)} of {attention_text}",
        f"write one of these ep{f', or software {alternatives[0]}' if alternatives else ''}",
    )


def has_slices(stack: str) -> bool:
    """True where ranks of attention of a stack's engine share dense feed-forwards in slices, unless options say whole.

    Args:
        stack: name in the catalogue.

    >>> has_slices("sglang-2026"), has_slices("vllm"), has_slices("tensorrt-llm")
    (True, False, False)
    """
    tool = stack_tool(stack, "serving")
    return tool is not None and any("mapping.slices.dense_tp" in rule.paths for rule in tool.rules)


def stage_options(stack: str, values: Mapping[str, float]) -> str | None:
    """Return the options, as one text, by which a stack's trainer has pipeline stages of unequal layers.

    Args:
        stack: name in the catalogue.
        values: path → value of layers, layers of multi-token prediction, ``pp`` and ``virtual_stages``.

    Returns:
        The options; "" for equal stages; None where its tool has none for unequal ones.

    >>> stage_options("megatron-core-te", {"workload.n_layers": 80.0, "mapping.pp": 9.0})
    '--account-for-loss-in-pipeline-split'
    """
    if values["workload.n_layers"] % (values["mapping.pp"] * values.get(_STAGES, 1.0)) == 0.0:
        return ""
    tool = stack_tool(stack, "training")
    rules = [] if tool is None else [rule for rule in tool.rules if _STAGES in rule.paths]
    return " ".join(word for rule in rules for pair in rule.write(values.get) or [] for word in pair if word) or None
