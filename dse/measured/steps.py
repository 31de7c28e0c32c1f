"""Measured training steps: candidates of all configurations in one batch, and the choice among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dse.doors import TRAINING, Study
from dse.measured.completion import Candidates, complete
from dse.measured.prediction import Prediction, TableKind, evaluate_many, reason_text
from dse.measured.table import Case, Skip, joined_remarks
from dse.types import Design, Mapping, Recompute

_GIB = 2.0**30


def predict(configurations: Sequence[tuple[Case, Candidates]], study: Study) -> list[Prediction]:
    """Predict every configuration.

    For open values a mapping takes the lightest recompute that fits memory, and the fastest mapping is chosen. A row
    that states all values that decide its memory did run: it is predicted even above the capacity, with a note; so is a
    row with options that its stack lacks.

    Args:
        configurations: configurations with the designs that a row leaves open.
        study: kind of study that is evaluated.

    Returns:
        One prediction a configuration, in order; SI units.
    """
    designs_by_case = [row_candidates.designs for _, row_candidates in configurations]
    metrics = evaluate_many([design for designs in designs_by_case for design in designs], study)
    predictions, start = [], 0
    for (case, row_candidates), designs in zip(configurations, designs_by_case, strict=True):
        case_metrics = {name: values[start : start + len(designs)] for name, values in metrics.items()}
        predictions.append(_choose(case, row_candidates, designs, case_metrics, study))
        start += len(designs)
    return predictions


def _choose(
    case: Case, candidates: Candidates, designs: list[Design], metrics: dict[str, np.ndarray], study: Study
) -> Prediction:
    """Return the prediction of one configuration from metric → values of its candidates [designs]."""
    layers, mappings = candidates.workload.n_layers, [design.mapping for design in designs]
    reasons = metrics["infeasible_reason"].astype(int)
    is_uneven = np.array([layers % (m.pp * m.virtual_stages) != 0.0 for m in mappings])
    # Stages that differ by a layer beyond the ends count only where a row states them, since it did run.
    is_uneven_by_row = is_uneven & np.array([m.virtual_stages == 1.0 and m.pp <= layers for m in mappings])
    reasons = np.where(is_uneven_by_row, reasons & ~study.reason_bits.get("layers_not_divisible", 0), reasons)
    lacks_bit = study.reason_bits.get("stack_lacks", 0)
    all_lack_options = bool(np.all(reasons & lacks_bit))  # stated options that the stack lacks
    reasons = reasons & ~lacks_bit if all_lack_options else reasons
    can_run = (reasons & ~int(study.memory_reasons)) == 0
    is_finite = np.isfinite(metrics[study.objective]) & np.isfinite(metrics[study.memory])
    memory_bytes, is_fitting = metrics[study.memory], can_run & is_finite & (reasons == 0)
    is_over_capacity = not is_fitting.any()
    skip: Skip | None = None
    if not can_run.any():
        skip = Skip("infeasible as stated", reason_text(int(reasons[0]), study))
    elif not (can_run & is_finite).any():
        skip = Skip("beyond the range of single precision")
    elif is_over_capacity and candidates.fits_memory_by_choice:
        least_bytes = memory_bytes[can_run & is_finite].min()
        skip = Skip("does not fit in memory", f"smallest need {least_bytes / _GIB:.1f} GiB")
    if skip:
        return Prediction(case, completed=candidates.completed, skip=skip)
    if is_over_capacity:
        can_run &= is_finite
        is_fitting = can_run & (memory_bytes == memory_bytes[can_run].min())
    is_fitting, tier_note = _first_tier(candidates, is_fitting)
    best_index = _fastest(mappings, metrics[study.objective], is_fitting)
    note = joined_remarks(
        candidates.note,
        "over capacity" if is_over_capacity else "",
        tier_note,
        "asks for what its stack is said to lack" if all_lack_options else "",
        "stages differ by a layer" if is_uneven[best_index] else "",
    )
    return Prediction(
        case,
        designs[best_index],
        {name: float(values[best_index]) for name, values in metrics.items()},
        _completed(candidates, mappings[best_index]),
        note,
        stack=candidates.stack,
    )


def _first_tier(candidates: Candidates, is_fitting: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the mask of the designs that fit in the first tier with any, and its note; all and "" where none fits."""
    start = 0
    for note, tier in candidates.tiers.items():
        stop = start + len(tier.mappings)
        if is_fitting[start:stop].any():
            indices = np.arange(len(is_fitting))
            return is_fitting & (indices >= start) & (indices < stop), note
        start = stop
    return is_fitting, ""


def _fastest(mappings: Sequence[Mapping], step_time: np.ndarray, is_fitting: np.ndarray) -> int:
    """Return the index of the fastest mapping that fits, each with the least recompute and offloading that fits.

    Host-bound steps may hide transfers, so that step time alone would not decide.
    """
    lightest: dict[Mapping, int] = {}
    for index in map(int, np.flatnonzero(is_fitting)):  # lightest candidates come first
        mapping_key = dataclasses.replace(mappings[index], recompute=0.0, recompute_share=1.0, offload_activations=0.0)
        lightest.setdefault(mapping_key, index)
    return min(lightest.values(), key=lambda index: step_time[index])


def _completed(candidates: Candidates, mapping: Mapping) -> dict[str, str]:
    """Return completed field → value, of searched ones that of the chosen mapping."""

    def chosen_value(name: str) -> str:
        """Return the chosen mapping's value as text."""
        value = getattr(mapping, name)
        return Recompute(int(value)).name if name == "recompute" else f"{value:g}"

    return {name: value or chosen_value(name) for name, value in candidates.completed.items()}


KIND = TableKind("steps", TRAINING, predict, complete)
