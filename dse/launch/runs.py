"""Which degrees of parallelism the tool of a stack can run, by the rules of its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dse.designs.leaves import leaf_path
from dse.launch import TOOLS
from dse.launch.options import Tool

_STAGES = "mapping.virtual_stages"
_DEGREES = {"mapping.tp", "mapping.pp", "mapping.dp", "mapping.experts.ep", "mapping.experts.etp"}


def by_mapping(columns: Mapping[str, Any], judged: Callable[[str, dict[str, float]], Any]) -> list[Any]:
    """What is said of stack and degrees of each design, where ``columns`` have arrays of them by name [designs]."""
    names = [name for name in ("tp", "pp", "dp", "ep", "virtual_stages") if name in columns]
    rows = list(zip(*(columns[name].tolist() for name in ("software", *names)), strict=True))
    known = {row: judged(row[0], dict(zip(map(leaf_path, names), map(float, row[1:]), strict=True))) for row in {*rows}}
    return [known[row] for row in rows]


def stack_tool(stack: str, study: str) -> Tool | None:
    """The tool of a stack of the catalogue, by its name; None where it has none.

    >>> stack_tool("vllm-2026", "serving").name, stack_tool("megatron-core-te", "training").name
    ('vllm', 'megatron-lm')
    """
    found = next((name for name, tool in TOOLS.items() if tool.study == study and name in stack), "")
    return TOOLS.get(found or ("megatron-lm" if study == "training" and stack.startswith("megatron-") else ""))


def engine_runs(stack: str, values: Mapping[str, float]) -> bool:
    """Whether one process group of a stack's engine has these degrees.

    Args:
        stack: name in the catalogue; one without a tool is taken to run all.
        values: path → value of the degrees of a mapping.

    Returns:
        Whether no rule of the engine refuses them.

    >>> mapping = {"mapping.tp": 8.0, "mapping.dp": 1.0, "mapping.experts.ep": 2.0}
    >>> engine_runs("vllm", mapping), engine_runs("sglang", mapping)
    (False, True)
    """
    tool = stack_tool(stack, "serving")
    rules = [] if tool is None else [rule for rule in tool.rules if _DEGREES & set(rule.paths)]
    return all(rule.write(values.get) is not None for rule in rules)


def stage_options(stack: str, values: Mapping[str, float]) -> str | None:
    """Options by which a stack's trainer has pipeline stages of unequal layers.

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
