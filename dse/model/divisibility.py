"""Divisibility of sizes by degrees of parallelism, for tables of mappings, infeasibility bits and measured rows.

Rules are arithmetic: values may be Python numbers, NumPy arrays or traced scalars.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, NamedTuple

from dse.io import counted
from dse.model import schedules
from dse.types import Infeasible

#: Whether the first divides the second, or one of the third count of numbers after it.
Divides = Callable[[Any, Any, int], Any]


class Shape(NamedTuple):
    """Sizes divided by the degrees; 0: ``n_devices`` derived from the degrees, and sizes absent from a dense model."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    ffn_hidden: int
    seq_len: int
    global_batch: int
    n_devices: int
    n_experts: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    n_predict: int = 0
    redundant_experts: int = 0
    uneven_layers: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        """Field → size for the rules, with predicted layers in ``n_layers``, redundant experts in ``n_experts``."""
        with_copies = self.n_experts + max(self.redundant_experts, 0)
        added_sizes = {"n_layers": self.n_layers + self.n_predict, "n_experts": with_copies}
        return self._asdict() | added_sizes | {"chosen_copies": float(self.redundant_experts < 0)}


_OF_EXPERTS = ("n_experts", "expert_ffn", "shared_ffn", "n_predict")

#: Leaves of the fields of Shape; a dense model has no ``EXPERT_SHAPE_PATHS``.
EXPERT_SHAPE_PATHS = tuple(f"workload.experts.{name}" for name in _OF_EXPERTS)
#: Leaf of the field before the last, of serving designs; and of the last, whether the stack takes any layout of layers.
COPIES_PATH, UNEVEN_PATH = "mapping.serving.redundant_experts", "software.uneven_layers"
SHAPE_PATHS = (
    *(f"workload.{name}" for name in Shape._fields[:6]),
    "system.n_devices",
    *EXPERT_SHAPE_PATHS,
    COPIES_PATH,
    UNEVEN_PATH,
)


class Rule(NamedTuple):
    """The product of ``degrees`` divides ``dividend``, or one of the ``extra`` numbers after it."""

    reason: Infeasible
    degrees: tuple[str, ...]  #: fields of a mapping
    dividend: str  #: field of a workload, or n_micro_batches
    what: str  #: unit of the dividend, for messages
    multiple: bool = False  #: whether a multiple of the dividend is allowed too
    extra: int = 0  #: numbers after the dividend that are allowed too, an even count
    least: float = 1.0  #: minimum of the product
    above: tuple[str, float] | None = None  #: applies only where this field of a mapping exceeds this value
    unless: str = ""  #: field of an option; where it is 1, parts may differ, and some of ``extra`` may be empty

    def is_satisfied(self, values: Mapping[str, Any], divides: Divides) -> Any:
        """Return true where the rule holds for ``values``, degrees and sizes by field."""
        degree_product = functools.reduce(operator.mul, (values[name] for name in self.degrees))
        dividend = values[self.dividend]
        is_satisfied = divides(degree_product, dividend, self.extra)
        if self.multiple:
            is_satisfied = is_satisfied | divides(dividend, degree_product, 0)
        if values.get(self.unless) is not None:
            is_satisfied = is_satisfied | ((values[self.unless] > 0.0) & (degree_product <= dividend + self.extra))
        if self.least > 1.0:
            is_satisfied = is_satisfied & (degree_product >= self.least)
        return is_satisfied if self.above is None else is_satisfied | (values[self.above[0]] <= self.above[1])


RULES = (
    Rule(Infeasible.heads_not_divisible, ("tp",), "n_heads", "heads"),
    Rule(Infeasible.width_not_divisible, ("tp",), "ffn_hidden", "feed-forward columns"),
    Rule(Infeasible.heads_not_divisible, ("tp",), "n_kv_heads", "key/value heads", multiple=True),
    # Megatron-LM can count the loss and then the embedding as a layer, so that the last and then the first chunk has a
    # layer less (account_for_loss_in_pipeline_split, account_for_embedding_in_pipeline_split); Megatron-Core since 0.13
    # takes any layout (pipeline_model_parallel_layout).
    Rule(
        Infeasible.layers_not_divisible, ("pp", "virtual_stages"), "n_layers",
        "layers (nor the layers plus loss, or plus loss and embedding)", extra=2, unless="uneven_layers",
    ),
    Rule(Infeasible.batch_not_divisible, ("dp", "micro_batch"), "global_batch", "sequences of a global batch"),
    Rule(Infeasible.shards_not_divisible, ("dp_replicate",), "dp", "data parallel ranks"),
    Rule(Infeasible.sequence_not_divisible, ("cp",), "seq_len", "tokens of a sequence"),
    # All kinds of sequence parallelism split the sequence over tp.
    Rule(Infeasible.sequence_not_divisible, ("tp", "cp"), "seq_len", "tokens", above=("sequence_parallel", 0.0)),
    Rule(
        Infeasible.interleave_not_divisible, ("pp",), "n_micro_batches", "micro-batches", least=2.0,
        above=("virtual_stages", 1.0),
    ),
)  # fmt: skip


#: Rules of a mixture of experts; ``stage_devices`` are the tp cp dp of a stage.
EXPERT_RULES = (
    # Copies of experts are chosen so that ranks hold equal numbers.
    Rule(Infeasible.experts_not_divisible, ("ep",), "n_experts", "experts", unless="chosen_copies"),
    Rule(Infeasible.experts_not_divisible, ("etp",), "expert_ffn", "columns of an expert"),
    Rule(Infeasible.experts_not_divisible, ("tp",), "shared_ffn", "columns of the shared expert"),
    Rule(Infeasible.experts_not_divisible, ("ep", "etp", "dp_replicate"), "stage_devices", "devices of a stage"),
)


def remainder_is_zero(part: Any, dividend: Any, extra: int = 0) -> Any:
    """Return true where ``part`` divides ``dividend`` or one of the ``extra`` numbers after it.

    For numbers and arrays on the host.
    """
    return -dividend % part <= extra


def fits(values: Mapping[str, Any], divides: Divides = remainder_is_zero) -> dict[Infeasible, Any]:
    """Return reason of infeasibility → true where all its rules hold, so true for a design that fits.

    Args:
        values: degrees and options of a mapping, sizes of a workload and ``n_micro_batches`` by field, and
            ``splits_hidden`` and ``uneven_layers`` of the stack, None where it has none.
        divides: test of divisibility; the model uses one that vectorises.

    >>> sizes = dict(n_heads=64, n_kv_heads=8, ffn_hidden=28672, n_layers=80, global_batch=512, seq_len=8192)
    >>> mapping = dict(tp=8, pp=7, dp=4, cp=1, micro_batch=1, virtual_stages=1, sequence_parallel=0, dp_replicate=1)
    >>> [reason.name for reason, kept in fits(sizes | mapping | {"n_micro_batches": 128}).items() if not kept]
    ['layers_not_divisible']
    """
    is_satisfied = {reason: keeps(reason, values, divides) for reason in dict.fromkeys(rule.reason for rule in RULES)}
    if values.get("schedule") is not None:
        interleaves = is_satisfied[Infeasible.interleave_not_divisible]
        is_satisfied[Infeasible.interleave_not_divisible] = schedules.fits(values, divides, interleaves)
    if values.get("splits_hidden") is not None:
        along = Infeasible.sequence_not_divisible
        is_satisfied[along] = is_satisfied[along] | splits_hidden(values, divides)
    return is_satisfied


def keeps(reason: Infeasible, values: Mapping[str, Any], divides: Divides = remainder_is_zero) -> Any:
    """Return true where all rules of one reason hold. Arguments are those of :func:`fits`."""
    outcomes = (rule.is_satisfied(values, divides) for rule in RULES if rule.reason == reason)
    return functools.reduce(operator.and_, outcomes)


def expert_members_fit(values: Mapping[str, Any]) -> Any:
    """Return true where ``ep x etp x dp_replicate`` divides ``stage_devices``, all of them keys of ``values``."""
    return EXPERT_RULES[-1].is_satisfied(values, remainder_is_zero)


def experts_fit(values: Mapping[str, Any], divides: Divides = remainder_is_zero) -> Any:
    """Return true where all rules of a mixture of experts hold. Arguments are those of :func:`fits`."""
    return functools.reduce(operator.and_, (rule.is_satisfied(values, divides) for rule in EXPERT_RULES))


def interleaves(values: Mapping[str, Any]) -> Any:
    """Return true where there is one chunk per stage, or a schedule that interleaves several."""
    return keeps(Infeasible.interleave_not_divisible, values)


def schedule_runs(values: Mapping[str, Any]) -> Any:
    """Return true where chunks and micro-batches suit the schedule that a mapping names."""
    return schedules.fits(values, remainder_is_zero, interleaves(values))


def splits_sequence(values: Mapping[str, Any]) -> Any:
    """Return true where tp and cp divide the sequence as sequence parallelism needs."""
    return keeps(Infeasible.sequence_not_divisible, values)


def shards_divide(values: Mapping[str, Any]) -> Any:
    """Return true where the copies of the sharded state divide the data-parallel ranks."""
    return keeps(Infeasible.shards_not_divisible, values)


def splits_hidden(values: Mapping[str, Any], divides: Divides = remainder_is_zero) -> Any:
    """Return true where a stack splits residuals along the hidden size, as tp does not divide the sequence."""
    along_hidden = divides(values["tp"], values["hidden"], 0) & divides(values["cp"], values["seq_len"], 0)
    return (values["splits_hidden"] > 0.0) & along_hidden


def rules_of(degree: str, sizes: Container[str]) -> Iterator[Rule]:
    """Return the unconditional rules by which a degree (field of a mapping) divides one of the fields ``sizes``."""
    rules = (rule for rule in (*RULES, *EXPERT_RULES) if degree in rule.degrees and rule.above is None)
    return (rule for rule in rules if rule.dividend in sizes)


_PLURAL = re.compile(r"s\b")


def fault(degree: str, value: float, sizes: Mapping[str, Any]) -> str:
    """Return the reason why a degree never fits a workload of these sizes, an empty string where it may fit.

    Args:
        degree: field of a mapping.
        value: its value.
        sizes: sizes of a workload by field.

    >>> fault("tp", 12, dict(n_heads=64, n_kv_heads=8, ffn_hidden=28672))
    'does not divide 64 heads'
    """
    for rule in rules_of(degree, sizes):
        if not rule._replace(degrees=(degree,)).is_satisfied({**sizes, degree: value}, remainder_is_zero):
            verb = "neither divides nor is a multiple of" if rule.multiple else "does not divide"
            return f"{verb} {counted(sizes[rule.dividend], re.sub(_PLURAL, '', rule.what, count=1), rule.what)}"
    return ""
