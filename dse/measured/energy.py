"""Measurements under power limits and clocks, as figures relative to the fastest run.

Absolute figures of such a study compare within their group only: runs of one model, batch and device under different
power limits (Zeus, You et al., NSDI 2023), or the clock of least energy over the fastest one (Fröning's decoder
layers). Each row becomes relative time, power and energy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.designs import design, replace
from dse.doors import TRAINING, Study
from dse.errors import InputError
from dse.measured import serving
from dse.measured.names import resolve_accelerator
from dse.measured.prediction import Prediction, TableKind, evaluate_many
from dse.measured.serving_rows import has_energy
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, group_rows, kind_rows, positive_number
from dse.types import Design

#: Column of the power limit in W, which identifies tables of such studies.
KEY_COLUMN = "power_limit_W"

#: Metrics of every row.
METRICS: Sequence[str] = kind_rows("energy")["metrics"]

#: Path of the leaf that a clock study varies.
CLOCK = "system.accelerator.power.clock"
_LIMIT = "system.accelerator.power.limit"

#: Device names in the traces; their power limits, 100 to 250 W, are those of the cards.
_BOARDS = {"V100-32GB": "v100-pcie-32gb"}

#: Default sequence lengths in tokens. SQuAD: the common configuration. Sentiment140: estimated; an epoch with 18 times
#: as many sequences took 2.5 times as long, in large batches, which makes about 50 tokens.
_SEQUENCE_TOKENS = {"squad": 384, "sentiment140": 50}

#: A30 study: clocks in Hz of the driver, power limit in W.
CLOCKS_HZ = 1e6 * np.arange(210.0, 1441.0, 15.0)
_A30_LIMIT_W = 165.0
#: Passes per optimiser step; the study has none.
LOOPS = 64


class RelativeStudy(NamedTuple):
    """Designs behind the relative figures of a row: its own and the reference, or one per clock."""

    device: str
    group: tuple[str, ...]  #: key of the group of runs
    designs: tuple[Design, ...]
    has_clock_designs: bool  #: whether there is one design per clock, else (own, reference)


def read(rows: list[Row]) -> list[Case]:
    """Return the configurations of a table: studies in order, then serving rows."""
    groups = [group for group in group_rows(rows) if not has_energy(group[0])]
    references: dict[tuple[str, ...], list[Row]] = {}
    for group in groups:
        reference = references.setdefault(_group(group[0]), group)
        if _rank(group[0]) > _rank(reference[0]):
            references[_group(group[0])] = group
    studies = [_case(group, references[_group(group[0])]) for group in groups]
    return studies + [case for case in serving.read(rows) if has_energy(case.row)]


def _case(rows: list[Row], reference: list[Row]) -> Case:
    """Return rows of a run as a case with relative figures and their study, or with a reason to skip it."""
    study: RelativeStudy | Skip
    try:
        reader = next((r for source, r in _READERS.items() if rows[0].source.startswith(source)), None)
        if reader is None:
            raise Skip("no study of energy that is known", rows[0].source)
        study, figures = reader(rows, reference)
    except Skip as skip:
        study, figures = skip, [(row, row.get("metric"), math.nan) for row in rows]
    measurements = (
        Measurement(row, row.get("metric"), Meaning(metric, metric), value) for row, metric, value in figures
    )
    return Case(tuple(rows), tuple(measurements), "energy", study)


def predict(configurations: Sequence[tuple[Case, RelativeStudy]], _: Study) -> list[Prediction]:
    """Predict relative figures of power limits and clocks.

    Args:
        configurations: rows that state one figure relative to another.

    Returns:
        One prediction a configuration, in order: metric → ratio to the reference; of a clock study ``best_clock``, Hz.
    """
    figures = relative_figures([study for _, study in configurations])
    return [
        Prediction(case, study.designs[0], metrics)
        for (case, study), metrics in zip(configurations, figures, strict=True)
    ]


def relative_figures(studies: Sequence[RelativeStudy]) -> list[dict[str, float]]:
    """Return metric → ratio to the reference of each study, by the model."""
    metrics = evaluate_many([variant for study in studies for variant in study.designs])
    return summarize_studies(studies, metrics["step_time"], metrics["device_power"])


def summarize_studies(
    studies: Sequence[RelativeStudy], step_times: np.ndarray, powers: np.ndarray
) -> list[dict[str, float]]:
    """Return metric → ratio of each study from time (s) and power (W) of its designs, all studies in one row."""
    figures, start = [], 0
    for study in studies:
        times, watts = (values[start : start + len(study.designs)] for values in (step_times, powers))
        start += len(study.designs)
        if study.has_clock_designs:
            figures.append(least_energy_figures(times, watts))
        else:
            ratios = {"relative_time": times[0] / times[1], "relative_power": watts[0] / watts[1]}
            figures.append({name: float(ratio) for name, ratio in ratios.items()})
    return figures


def least_energy_figures(times: np.ndarray, powers: np.ndarray) -> dict[str, float]:
    """Return ratios of time and energy, least energy over the highest clock, and ``best_clock`` in Hz.

    The least energy is that of the parabola through the best clock and its neighbours: near it the energy hardly
    depends on the clock while the time does, so that steps of 15 MHz would decide what a run loses.
    """
    energies = times * powers
    best_index = int(np.argmin(energies))
    center = min(max(best_index, 1), len(energies) - 2)
    places = np.array([center - 1, center, center + 1])
    below, least, above = energies[places]
    curvature = below - 2.0 * least + above
    shift = np.clip(0.5 * (below - above) / curvature, -1.0, 1.0) if curvature > 0.0 else best_index - center
    time, energy, clock = (
        np.polyval(np.polyfit([-1.0, 0.0, 1.0], values[places], 2), shift) for values in (times, energies, CLOCKS_HZ)
    )
    return dict(
        relative_time=float(time / times[-1]),
        relative_energy=float(energy / energies[-1]),
        best_clock=float(clock),
    )


# Rows of studies


def _group(row: Row) -> tuple[str, ...]:
    """Return the key of the group of runs that a row is relative to."""
    return tuple(row.get(name) for name in ("source", "gpu", "model", "precision", "batch", "isl", "workload"))


def _rank(row: Row) -> float:
    """Return the power limit in W, by whose maximum a group has its reference, or 0 where unusable."""
    try:
        return positive_number(row, KEY_COLUMN)
    except Skip:
        return 0.0


def _device(row: Row) -> str:
    """Return the accelerator of a row by its name in the catalogue, or raise Skip."""
    return _BOARDS.get(row.get("gpu")) or resolve_accelerator(row.get("gpu"))


Figures = list[tuple[Row, str, float]]


def read_power_limit(rows: list[Row], reference: list[Row]) -> tuple[RelativeStudy, Figures]:
    """Read a fine-tuning run under a power limit, over the run under the highest limit of its group; else raise Skip.

    In fp32: epoch times on the two chips have the ratio of their fp32 rates.
    """
    row = rows[0]
    if reference is rows:
        raise Skip("the reference of its group")
    device, batch, limit = _device(row), positive_number(row, "batch"), positive_number(row, KEY_COLUMN)
    tokens = next((tokens for name, tokens in _SEQUENCE_TOKENS.items() if row.get("model").endswith(name)), None)
    if tokens is None:
        raise Skip("unknown data set", row.get("model"))
    reference_limit = positive_number(reference[0], KEY_COLUMN)
    base = _run_design(
        "bert-base", tokens, device, reference_limit, global_batch=batch, micro_batch=batch, precision="fp32"
    )
    limited_design = replace(base, {_LIMIT: limit})
    names = {"time_per_epoch": "relative_time", "avg_power_total": "relative_power"}
    reference_values = {r.get("metric"): positive_number(r, "value") for r in reference}
    compared = [(r, r.get("metric")) for r in rows if r.get("metric") in names.keys() & reference_values.keys()]
    figures = [(r, names[name], positive_number(r, "value") / reference_values[name]) for r, name in compared]
    group = row.get("gpu"), row.get("model"), row.get("batch")
    return RelativeStudy(device, group, (limited_design, base), has_clock_designs=False), figures


def read_clocks(rows: list[Row], _: list[Row]) -> tuple[RelativeStudy, Figures]:
    """Read one decoder layer, looped at every clock, as least energy over fastest; Skip for an unknown model."""
    row = rows[0]
    device, tokens = _device(row), positive_number(row, "isl")
    try:
        base = decoder_layer(row.get("model"), tokens, device)
    except InputError:
        raise Skip("unknown model", row.get("model")) from None
    metric_and_sign = {"dvfs_energy_saving": ("relative_energy", -1.0), "dvfs_runtime_penalty": ("relative_time", 1.0)}
    signed_rows = [(r, *metric_and_sign[r.get("metric")]) for r in rows if r.get("metric") in metric_and_sign]
    figures = [(r, metric, 1.0 + 0.01 * sign * positive_number(r, "value")) for r, metric, sign in signed_rows]
    designs = tuple(replace(base, {CLOCK: float(clock)}) for clock in CLOCKS_HZ)
    group = row.get("gpu"), row.get("model"), row.get("isl")
    return RelativeStudy(device, group, designs, has_clock_designs=True), figures


def decoder_layer(model: str, tokens: float, device: str = "a30") -> Design:
    """Return the design of one layer's passes over one sequence in fp16, looped under the study's power limit.

    The study states neither passes nor batch, but its times imply both: 40 to 120 ms for a layer of 13B, of which the
    forward alone takes 7 to 27. Gradients are in 16 bits, with ``1 / LOOPS`` of an optimiser step: with Adam states a
    layer of 175B would not fit. A looped layer is not bound by its host.
    """
    return _run_design(
        model,
        tokens,
        device,
        _A30_LIMIT_W,
        n_layers=1,
        global_batch=LOOPS,
        micro_batch=1,
        precision="fp16",
        gradient_bytes=2.0,
        host_time=0.0,
        step_overhead=0.0,
    )


def _run_design(model: str, tokens: float, device: str, limit: float, **values: Any) -> Design:
    """Return the design of a run in eager PyTorch without a vocabulary, under a power limit in W."""
    return design(model, device, "pytorch-eager", seq_len=tokens, window=tokens, vocab=1, limit=limit, **values)


_READERS = {"Zeus_power_trace": read_power_limit, "Froening_A30_DVFS": read_clocks}

KIND = TableKind("energy", TRAINING, predict, read=read)
