"""All candidates of all configurations through the model in one batch, and the choice among them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np

from dse.evaluate import evaluate
from dse.measured.completion import Candidates, complete
from dse.measured.names import Lookup
from dse.measured.table import Case, Skip
from dse.types import INFEASIBLE_MEANING, Design, Infeasible, Mapping, Metrics, Precision, Recompute

#: Designs a compiled call takes; the last call is padded, so that one program serves every table.
BATCH = 256

_GIB = 2.0**30


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What became of a configuration: the design chosen for it and its metrics, or why it was skipped."""

    case: Case
    design: Design | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    completed: dict[str, str] = dataclasses.field(default_factory=dict)  #: field left open → value taken
    note: str = ""
    skip: Skip | None = None
    stack: str = ""  #: slug of the software


def predict_cases(cases: Sequence[Case], lookup: Lookup | None = None) -> list[Prediction]:
    """One prediction a configuration, in order; nothing raises.

    Of what a row leaves open, a mapping takes the lightest recompute that fits memory, and of
    the mappings the fastest is taken. A row that states all that decides its memory did run: it is
    predicted even above the capacity, and noted.
    """
    lookup = lookup or Lookup()
    open_cases: list[Candidates | Skip] = []
    for case in cases:
        try:
            if case.other:
                raise Skip(case.other)
            open_cases.append(complete(case, lookup))
        except Skip as skip:
            open_cases.append(skip)
    found = [candidates for candidates in open_cases if isinstance(candidates, Candidates)]
    designs = [
        Design(workload=c.workload, system=c.system, software=c.software, mapping=mapping)
        for c in found
        for mapping in c.mappings
    ]
    metrics = evaluate_many(designs)
    predictions, start = [], 0
    for case, candidates in zip(cases, open_cases, strict=True):
        if isinstance(candidates, Skip):
            predictions.append(Prediction(case, skip=candidates))
            continue
        stop = start + len(candidates.mappings)
        part = {name: values[start:stop] for name, values in metrics.items()}
        predictions.append(_choose(case, candidates, designs[start:stop], part))
        start = stop
    return predictions


def evaluate_many(designs: Sequence[Design]) -> dict[str, np.ndarray]:
    """Metrics of many designs, each an array in their order; compiled once for any number of one structure."""
    names = [field.name for field in dataclasses.fields(Metrics)]
    if not designs:
        return {name: np.zeros(0) for name in names}
    structures = [jax.tree.structure(design) for design in designs]
    order: list[int] = []
    parts = []
    for structure in dict.fromkeys(structures):  # those with optional records apart from those without
        members = [index for index, own in enumerate(structures) if own == structure]
        order += members
        parts.append(_evaluate_alike([designs[index] for index in members], structure))
    back = np.argsort(order)
    return {name: np.concatenate([getattr(part, name) for part in parts])[back] for name in names}


def _evaluate_alike(designs: Sequence[Design], structure: jax.tree_util.PyTreeDef) -> Metrics:
    """Metrics of designs of one structure, each an array in their order."""
    return evaluate_leaves(np.array([jax.tree.leaves(design) for design in designs], np.float32), structure)


def evaluate_leaves(leaves: np.ndarray, structure: jax.tree_util.PyTreeDef) -> Metrics:
    """Metrics of designs given by their leaves [design, leaf], each an array in their order."""
    count, padding = len(leaves), -len(leaves) % BATCH
    leaves = np.concatenate([leaves, np.repeat(leaves[-1:], padding, axis=0)])
    parts = [_evaluate_batch(leaves[at : at + BATCH], structure) for at in range(0, len(leaves), BATCH)]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays)[:count], *jax.device_get(parts))


@functools.partial(jax.jit, static_argnames="structure")
def _evaluate_batch(leaves: jax.Array, structure: jax.tree_util.PyTreeDef) -> Metrics:
    """Metrics of ``leaves``: one row a design, one column a leaf."""
    return jax.vmap(lambda row: evaluate(jax.tree.unflatten(structure, list(row))))(leaves)


def _choose(case: Case, candidates: Candidates, designs: list[Design], metrics: dict[str, np.ndarray]) -> Prediction:
    """The prediction of one configuration from the metrics of its candidates."""
    reason = metrics["infeasible_reason"].astype(int)
    runs = (reason & ~int(Infeasible.memory | Infeasible.host_memory)) == 0
    if not runs.any():
        return Prediction(case, completed=candidates.completed, skip=Skip("infeasible as stated", _sentence(reason[0])))
    runs &= np.isfinite(metrics["step_time"]) & np.isfinite(metrics["peak_memory"])
    if not runs.any():
        return Prediction(case, completed=candidates.completed, skip=Skip("beyond the range of single precision"))
    need, fits, note = metrics["peak_memory"], runs & (reason == 0), ""
    if not fits.any():
        if candidates.fits_memory_by_choice:
            smallest = f"smallest need {need[runs].min() / _GIB:.1f} GiB"
            return Prediction(case, completed=candidates.completed, skip=Skip("does not fit in memory", smallest))
        fits, note = runs & (need == need[runs].min()), "over capacity"
    chosen = _fastest(candidates.mappings, metrics["step_time"], fits)
    if candidates.workload.n_layers % candidates.mappings[chosen].pp:
        note = "; ".join(filter(None, (note, "stages differ by a layer")))
    return Prediction(
        case, designs[chosen], {name: float(values[chosen]) for name, values in metrics.items()},
        _completed(candidates, candidates.mappings[chosen]), note, stack=candidates.stack,
    )  # fmt: skip


def _fastest(mappings: Sequence[Mapping], step_time: np.ndarray, fits: np.ndarray) -> int:
    """Index of the fastest mapping that fits, each with the lightest recompute that lets it fit."""
    lightest: dict[Mapping, int] = {}
    for index in np.flatnonzero(fits):  # candidates come lightest recompute first
        lightest.setdefault(dataclasses.replace(mappings[index], recompute=0.0), int(index))
    return min(lightest.values(), key=lambda index: step_time[index])


def _completed(candidates: Candidates, mapping: Mapping) -> dict[str, str]:
    """Completed fields with the values chosen for those that were searched."""

    def chosen(name: str) -> str:
        value = getattr(mapping, name)
        return Recompute(int(value)).name if name == "recompute" else f"{value:g}"

    return {name: value or chosen(name) for name, value in candidates.completed.items()}


def _sentence(bits: int) -> str:
    return "; ".join(text for bit, text in INFEASIBLE_MEANING.items() if bits & bit and bit != Infeasible.memory)


def peak_rate(design: Design) -> float:
    """Dense peak of all devices of a design at its precision, in FLOP/s."""
    rate, precision = design.system.accelerator.matrix_rate, Precision(int(design.mapping.precision)).name
    return float(getattr(rate, precision.removesuffix("_block"))) * float(design.system.n_devices)
