"""All candidates of all configurations through the model in one batch, and the choice among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.measured.completion import Candidates, complete
from dse.measured.names import Lookup
from dse.measured.table import Case, Skip
from dse.model.formats import RECIPES
from dse.sweep.engine.few import evaluate_few
from dse.sweep.engine.point import Program
from dse.types import Design, Mapping, Precision, Recompute

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

    @property
    def chosen(self) -> Design:
        """The design of a training step that was predicted."""
        assert self.design is not None, "no design was predicted"
        return self.design


def predict_cases(
    cases: Sequence[Case], lookup: Lookup | None = None, study: Study = TRAINING
) -> list[Prediction]:
    """One prediction a configuration, in order; nothing raises.

    Of what a row leaves open, a mapping takes the lightest recompute that fits memory, and of
    the mappings the fastest is taken. A row that states all that decides its memory did run: it is
    predicted even above the capacity, and noted; so is one that states what its stack is said to lack.

    Args:
        cases: configurations of :func:`dse.measured.table.read_cases`.
        lookup: how names in rows are found in the catalogue; by default as files say.
        study: whose metrics are predicted.

    Returns:
        The design chosen for each and its metrics in SI units, or why it was skipped.

    >>> from dse.measured.table import read_cases
    >>> found = predict_cases(read_cases("tests/published/narayanan_2021.csv")[:1])[0]
    >>> found.stack, found.design.mapping.tp
    ('megatron-2021', 1.0)
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
        Design(workload=c.workload, system=c.system, software=tier.software, mapping=mapping)
        for c in found
        for tier in c.tiers.values()
        for mapping in tier.mappings
    ]
    metrics = evaluate_many(designs, study)
    predictions, start = [], 0
    for case, candidates in zip(cases, open_cases, strict=True):
        if isinstance(candidates, Skip):
            predictions.append(Prediction(case, skip=candidates))
            continue
        stop = start + sum(len(tier.mappings) for tier in candidates.tiers.values())
        part = {name: values[start:stop] for name, values in metrics.items()}
        predictions.append(_choose(case, candidates, designs[start:stop], part, study))
        start = stop
    return predictions


def evaluate_many(designs: Sequence[Design], study: Study = TRAINING) -> dict[str, np.ndarray]:
    """Metrics of many designs; traced once for any number of one structure.

    Args:
        designs: of plain numbers, in any order of structures.
        study: whose metrics.

    Returns:
        Name of a metric → its values [designs] in SI units, in their order.

    >>> import dse
    >>> one = dse.design("gpt-3-13b", "selene", tp=8, micro_batch=1, recompute="full")
    >>> evaluate_many([one, one])["step_time"].shape
    (2,)
    """
    found = {name: np.zeros(len(designs)) for name in study.units}
    for members, stack in alike(designs):
        metrics = evaluate_stack(stack, study)
        for name in study.units:
            found[name][members] = getattr(metrics, name)
    return found


def alike(designs: Sequence[Design]) -> Iterator[tuple[list[int], Design]]:
    """(positions, stack) of designs by structure: those with an optional record apart from those without.

    A stack is a design whose leaves are arrays, with one number a design.
    """
    positions: dict[jax.tree_util.PyTreeDef, list[int]] = {}
    for position, design in enumerate(designs):
        positions.setdefault(jax.tree.structure(design), []).append(position)
    for members in positions.values():
        yield members, jax.tree.map(lambda *leaves: np.array(leaves, np.float32), *(designs[i] for i in members))


def evaluate_stack(stack: Design, study: Study = TRAINING) -> Any:
    """Metrics of a stack of designs (see :func:`alike`), each an array in their order."""
    return evaluate_few(stack, {}, program=Program(study))[0]


def _choose(
    case: Case, candidates: Candidates, designs: list[Design], metrics: dict[str, np.ndarray], study: Study
) -> Prediction:
    """The prediction of one configuration from the metrics of its candidates."""
    layers, mappings = candidates.workload.n_layers, [design.mapping for design in designs]
    reason = metrics["infeasible_reason"].astype(int)
    uneven = np.array([layers % (m.pp * m.virtual_stages) != 0.0 for m in mappings])
    # More stages that differ by a layer than the ends are only taken where a row states them: then they did run.
    stated = uneven & np.array([m.virtual_stages == 1.0 and m.pp <= layers for m in mappings])
    reason = np.where(stated, reason & ~study.reason_bits.get("layers_not_divisible", 0), reason)
    lacks = study.reason_bits.get("stack_lacks", 0)
    beyond = bool(np.all(reason & lacks))  # what a row states of its options its stack had
    reason = reason & ~lacks if beyond else reason
    runs = (reason & ~int(study.memory_reasons)) == 0
    if not runs.any():
        skip = Skip("infeasible as stated", _sentence(int(reason[0]), study))
        return Prediction(case, completed=candidates.completed, skip=skip)
    runs &= np.isfinite(metrics[study.objective]) & np.isfinite(metrics[study.memory])
    if not runs.any():
        return Prediction(case, completed=candidates.completed, skip=Skip("beyond the range of single precision"))
    need, fits, note = metrics[study.memory], runs & (reason == 0), candidates.note
    if not fits.any():
        if candidates.fits_memory_by_choice:
            smallest = f"smallest need {need[runs].min() / _GIB:.1f} GiB"
            return Prediction(case, completed=candidates.completed, skip=Skip("does not fit in memory", smallest))
        fits, note = runs & (need == need[runs].min()), "; ".join(filter(None, (note, "over capacity")))
    fits, told = _first_tier(candidates, fits)
    note = "; ".join(filter(None, (note, told)))
    chosen = _fastest(mappings, metrics[study.objective], fits)
    if beyond:
        note = "; ".join(filter(None, (note, "asks for what its stack is said to lack")))
    if uneven[chosen]:
        note = "; ".join(filter(None, (note, "stages differ by a layer")))
    return Prediction(
        case, designs[chosen], {name: float(values[chosen]) for name, values in metrics.items()},
        _completed(candidates, mappings[chosen]), note, stack=candidates.stack,
    )  # fmt: skip


def _first_tier(candidates: Candidates, fits: np.ndarray) -> tuple[np.ndarray, str]:
    """Which designs of the first tier that has any fit, and what is to be told of it."""
    start = 0
    for note, tier in candidates.tiers.items():
        stop = start + len(tier.mappings)
        if fits[start:stop].any():
            place = np.arange(len(fits))
            return fits & (place >= start) & (place < stop), note
        start = stop
    return fits, ""


def _fastest(mappings: Sequence[Mapping], step_time: np.ndarray, fits: np.ndarray) -> int:
    """Index of the fastest mapping that fits, each with the least recompute and offloading that let it fit.

    What a host-bound step moves costs it no time, and no one would move it.
    """
    lightest: dict[Mapping, int] = {}
    for index in map(int, np.flatnonzero(fits)):  # candidates come lightest first
        alike = dataclasses.replace(mappings[index], recompute=0.0, recompute_share=1.0, offload_activations=0.0)
        lightest.setdefault(alike, index)
    return min(lightest.values(), key=lambda index: step_time[index])


def _completed(candidates: Candidates, mapping: Mapping) -> dict[str, str]:
    """Completed fields with the values chosen for those that were searched."""

    def chosen(name: str) -> str:
        value = getattr(mapping, name)
        return Recompute(int(value)).name if name == "recompute" else f"{value:g}"

    return {name: value or chosen(name) for name, value in candidates.completed.items()}


def _sentence(bits: int, study: Study) -> str:
    return "; ".join(study.reason_meanings[name] for name in study.reasons_in(bits & ~int(study.memory_reasons)))


def peak_rate(design: Design) -> float:
    """Dense peak of all devices of a design at its precision, in FLOP/s."""
    recipe = RECIPES[Precision(int(design.mapping.precision))]
    return float(getattr(design.system.accelerator.matrix_rate, recipe.rate)) * float(design.system.n_devices)
