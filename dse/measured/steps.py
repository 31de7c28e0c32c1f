"""Measured training steps: candidates of all configurations in one batch, and the choice among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.measured.completion import Candidates, complete
from dse.measured.prediction import Prediction, TableKind, evaluate_many
from dse.measured.table import Case, Skip, cases_of, step_figures
from dse.types import Design, Mapping, Recompute

_GIB = 2.0**30

#: Metrics written as ``pred_<metric>`` columns.
PREDICTED = (
    "step_time",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "peak_memory",
    "peak_memory_state",
    "peak_memory_activations",
    "mfu",
    "mfu_causal",
    "hfu",
)


def predict(known: Sequence[tuple[Case, Candidates]], study: Study) -> list[Prediction]:
    """Prediction of every configuration.

    For open values a mapping takes the lightest recompute that fits memory, and the fastest mapping is chosen. A row
    that states all values that decide its memory did run: it is predicted even above the capacity, with a note; so is a
    row with options that its stack lacks.
    """
    candidates = [one.designs for _, one in known]
    metrics = evaluate_many([design for designs in candidates for design in designs], study)
    predictions, start = [], 0
    for (case, one), designs in zip(known, candidates, strict=True):
        part = {name: values[start : start + len(designs)] for name, values in metrics.items()}
        predictions.append(_choose(case, one, designs, part, study))
        start += len(designs)
    return predictions


def _choose(
    case: Case, candidates: Candidates, designs: list[Design], metrics: dict[str, np.ndarray], study: Study
) -> Prediction:
    """Prediction of one configuration from the metrics of its candidates."""
    layers, mappings = candidates.workload.n_layers, [design.mapping for design in designs]
    reason = metrics["infeasible_reason"].astype(int)
    uneven = np.array([layers % (m.pp * m.virtual_stages) != 0.0 for m in mappings])
    # Stages that differ by a layer beyond the ends count only where a row states them, since it did run.
    stated = uneven & np.array([m.virtual_stages == 1.0 and m.pp <= layers for m in mappings])
    reason = np.where(stated, reason & ~study.reason_bits.get("layers_not_divisible", 0), reason)
    lacks = study.reason_bits.get("stack_lacks", 0)
    beyond = bool(np.all(reason & lacks))  # stated options that the stack lacks
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
    fits, remark = _first_tier(candidates, fits)
    note = "; ".join(filter(None, (note, remark)))
    chosen = _fastest(mappings, metrics[study.objective], fits)
    if beyond:
        note = "; ".join(filter(None, (note, "asks for what its stack is said to lack")))
    if uneven[chosen]:
        note = "; ".join(filter(None, (note, "stages differ by a layer")))
    return Prediction(
        case,
        designs[chosen],
        {name: float(values[chosen]) for name, values in metrics.items()},
        _completed(candidates, mappings[chosen]),
        note,
        stack=candidates.stack,
    )


def _first_tier(candidates: Candidates, fits: np.ndarray) -> tuple[np.ndarray, str]:
    """Mask of the designs that fit in the first tier with any, and its note."""
    start = 0
    for note, tier in candidates.tiers.items():
        stop = start + len(tier.mappings)
        if fits[start:stop].any():
            place = np.arange(len(fits))
            return fits & (place >= start) & (place < stop), note
        start = stop
    return fits, ""


def _fastest(mappings: Sequence[Mapping], step_time: np.ndarray, fits: np.ndarray) -> int:
    """Index of the fastest mapping that fits, each with the least recompute and offloading that fits.

    Host-bound steps may hide transfers, so that step time alone would not decide.
    """
    lightest: dict[Mapping, int] = {}
    for index in map(int, np.flatnonzero(fits)):  # lightest candidates come first
        plain = dataclasses.replace(mappings[index], recompute=0.0, recompute_share=1.0, offload_activations=0.0)
        lightest.setdefault(plain, index)
    return min(lightest.values(), key=lambda index: step_time[index])


def _completed(candidates: Candidates, mapping: Mapping) -> dict[str, str]:
    """Completed fields, with the chosen values of searched ones."""

    def chosen(name: str) -> str:
        value = getattr(mapping, name)
        return Recompute(int(value)).name if name == "recompute" else f"{value:g}"

    return {name: value or chosen(name) for name, value in candidates.completed.items()}


def _sentence(bits: int, study: Study) -> str:
    return "; ".join(study.reason_meanings[name] for name in study.reasons_in(bits & ~int(study.memory_reasons)))


KIND = TableKind(
    "steps",
    TRAINING,
    lambda columns: True,
    lambda columns, rows: cases_of(rows, step_figures, "steps"),
    complete,
    predict,
    lambda case: PREDICTED,
)
