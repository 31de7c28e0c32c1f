"""Measured power limits and clocks: what a device takes and draws, over what it does at its fastest.

A figure of such a study means something beside the others of its group: runs of one model, batch and device that
differ in the power limit alone (Zeus, You et al., NSDI 2023), or the frugal end of all clocks over the fastest
(Fröning's decoder layers). So every row becomes relative figures: of time, of power, of energy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.designs import catalog
from dse.designs.leaves import design, replace
from dse.errors import InputError
from dse.measured import serving
from dse.measured.prediction import Prediction, evaluate_many
from dse.measured.serving_rows import has_energy
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, group_rows, read_table
from dse.types import Design

#: Column that gives tables of such studies away.
SIGN = "power_limit_W"

#: Metrics of every row here.
METRICS = ("relative_time", "relative_power", "relative_energy")

#: Path of the leaf that a clock study varies.
CLOCK = "system.accelerator.power.clock"
_LIMIT = "system.accelerator.power.limit"

#: Boards as the traces name them: their power limits, 100 to 250 W, are those of the card.
_BOARDS = {"V100-32GB": "v100-pcie-32gb"}

#: Tokens of a sequence where none are stated. SQuAD: as commonly configured. Sentiment140: not known; an epoch of its
#: 18 times as many sequences took 2.5 times as long, in large batches, so that they are about 50 tokens.
_TOKENS = {"squad": 384, "sentiment140": 50}

#: A30 study: clocks in Hz that the driver offers, the limit in W.
CLOCKS = 1e6 * np.arange(210.0, 1441.0, 15.0)
_A30_LIMIT = 165.0
#: Passes that share one optimiser's step, of which the study has none.
LOOPS = 64


class Study(NamedTuple):
    """The designs that a row's relative figures rest on: its own and the reference, or one for every clock."""

    device: str
    group: tuple[str, ...]  #: what its runs have in common
    designs: tuple[Design, ...]
    clocks: bool  #: one for every clock, else (own, reference)


@dataclasses.dataclass(frozen=True)
class StudyCase:
    """A configuration with what was measured of it, and its study, or why it has none."""

    case: Case
    study: Study | Skip


def is_table(path: str | Path) -> bool:
    """Whether a file is a table of energy and power."""
    return SIGN in read_table(path)[0]


def read(path: str | Path) -> list[StudyCase]:
    """Every configuration of a table, in order."""
    groups = group_rows(read_table(path)[1])
    highest: dict[tuple[str, ...], list[Row]] = {}
    for rows in groups:
        known = highest.setdefault(_group(rows[0]), rows)
        if _rank(rows[0]) > _rank(known[0]):
            highest[_group(rows[0])] = rows
    return [_study_case(rows, highest[_group(rows[0])]) for rows in groups]


def _study_case(rows: list[Row], reference: list[Row]) -> StudyCase:
    try:
        reader = next((r for source, r in _READERS.items() if rows[0].source.startswith(source)), None)
        if reader is None:
            raise Skip("no study of energy that is known", rows[0].source)
        study, figures = reader(rows, reference)
    except Skip as skip:
        unread = (Measurement(r, r.get("metric"), Meaning(r.get("metric"), r.get("metric")), np.nan) for r in rows)
        return StudyCase(Case(tuple(rows), tuple(unread)), skip)
    measured = (
        Measurement(row, row.get("metric"), Meaning(metric, metric), value) for row, metric, value in figures
    )
    return StudyCase(Case(tuple(rows), tuple(measured)), study)


def predict_table(path: str | Path) -> list[Prediction]:
    """A prediction of every configuration of a table: studies in order, then what served."""
    return _predict([one for one in read(path) if not has_energy(one.case.row)]) + serving.predict(
        [case for case in serving.read(path) if has_energy(case.row)]
    )


def _predict(cases: Sequence[StudyCase]) -> list[Prediction]:
    """Of power limits and clocks."""
    studies = [one.study for one in cases if isinstance(one.study, Study)]
    found = iter(zip(studies, relative(studies), strict=True))
    predictions = []
    for one in cases:
        if isinstance(one.study, Skip):
            predictions.append(Prediction(one.case, skip=one.study))
        else:
            study, metrics = next(found)
            predictions.append(Prediction(one.case, study.designs[0], metrics))
    return predictions


def relative(studies: Sequence[Study]) -> list[dict[str, float]]:
    """Relative figures of every study."""
    metrics = evaluate_many([one for study in studies for one in study.designs])
    return summarise(studies, metrics["step_time"], metrics["device_power"])


def summarise(studies: Sequence[Study], times: np.ndarray, powers: np.ndarray) -> list[dict[str, float]]:
    """Relative figures of every study from time and power of all their designs."""
    found, start = [], 0
    for study in studies:
        t, p = (values[start : start + len(study.designs)] for values in (times, powers))
        start += len(study.designs)
        limited = dict(relative_time=float(t[0] / t[1]), relative_power=float(p[0] / p[1]))
        found.append(frugal_end(t, p) if study.clocks else limited)
    return found


def frugal_end(times: np.ndarray, powers: np.ndarray) -> dict[str, float]:
    """Time and energy at the clock of least energy over those at the highest clock, which is the fastest."""
    energies = times * powers
    least = int(np.argmin(energies))
    return dict(
        relative_time=float(times[least] / times[-1]), relative_energy=float(energies[least] / energies[-1]),
        best_clock=float(CLOCKS[least]),
    )  # fmt: skip


# Rows of studies


def _group(row: Row) -> tuple[str, ...]:
    return tuple(row.get(name) for name in ("source", "gpu", "model", "precision", "batch", "isl", "workload"))


def _rank(row: Row) -> float:
    """The limit where there is a usable one: of such rows the highest is the reference."""
    try:
        return _number(row, SIGN)
    except Skip:
        return 0.0


def _number(row: Row, column: str) -> float:
    try:
        value = float(row.get(column))
    except ValueError:
        raise Skip("no usable number", f"{column} = {row.get(column)!r}") from None
    if not np.isfinite(value) or value <= 0.0:
        raise Skip("no usable number", f"{column} = {row.get(column)!r}")
    return value


def _device(row: Row) -> str:
    try:
        return _BOARDS.get(row.get("gpu")) or catalog.resolve("accelerator", row.get("gpu"))
    except InputError:
        raise Skip("unknown accelerator", row.get("gpu")) from None


Figures = list[tuple[Row, str, float]]


def read_power_limit(rows: list[Row], reference: list[Row]) -> tuple[Study, Figures]:
    """A fine-tuning run under a power limit, over the run under the highest limit of its group.

    fp32: the time of an epoch on the two chips is in the ratio of their fp32 rates.
    """
    row = rows[0]
    if reference is rows:
        raise Skip("the reference of its group")
    device, batch, limit = _device(row), _number(row, "batch"), _number(row, SIGN)
    tokens = next((tokens for name, tokens in _TOKENS.items() if row.get("model").endswith(name)), None)
    if tokens is None:
        raise Skip("unknown data set", row.get("model"))
    base = design(
        workload="bert-base", system=device, software="pytorch-eager", seq_len=tokens, window=tokens, vocab=1,
        global_batch=batch, micro_batch=batch, precision="fp32", limit=_number(reference[0], SIGN),
    )  # fmt: skip
    own = replace(base, {_LIMIT: limit})
    names = {"time_per_epoch": "relative_time", "avg_power_total": "relative_power"}
    over = {r.get("metric"): _number(r, "value") for r in reference}
    figures = [
        (r, names[r.get("metric")], _number(r, "value") / over[r.get("metric")])
        for r in rows if r.get("metric") in names and r.get("metric") in over
    ]  # fmt: skip
    return Study(device, (row.get("gpu"), row.get("model"), row.get("batch")), (own, base), clocks=False), figures


def read_clocks(rows: list[Row], _: list[Row]) -> tuple[Study, Figures]:
    """One decoder layer, looped at every clock: the one of least energy over the fastest."""
    row = rows[0]
    device, tokens = _device(row), _number(row, "isl")
    try:
        base = decoder_layer(row.get("model"), tokens, device)
    except InputError:
        raise Skip("unknown model", row.get("model")) from None
    named = {"dvfs_energy_saving": ("relative_energy", -1.0), "dvfs_runtime_penalty": ("relative_time", 1.0)}
    known = [(r, *named[r.get("metric")]) for r in rows if r.get("metric") in named]
    figures = [(r, metric, 1.0 + 0.01 * sign * _number(r, "value")) for r, metric, sign in known]
    designs = tuple(replace(base, {CLOCK: float(clock)}) for clock in CLOCKS)
    return Study(device, (row.get("gpu"), row.get("model"), row.get("isl")), designs, clocks=True), figures


def decoder_layer(model: str, tokens: float, device: str = "a30") -> Design:
    """One layer's forward and backward pass over one sequence in fp16, looped under the study's power limit.

    The study states neither passes nor batch. Its time axis does: 40 to 120 ms of a layer of 13B, of which a forward
    pass alone takes 7 to 27. Gradients stay in 16 bits, and a share of ``1 / LOOPS`` of an optimiser's step is left:
    with Adam's states a layer of 175B would not fit. The host is ahead, as the layer is looped.
    """
    return design(
        workload=model, system=device, software="pytorch-eager", seq_len=tokens, window=tokens, vocab=1, n_layers=1,
        global_batch=LOOPS, micro_batch=1, precision="fp16", gradient_bytes=2.0, host_time=0.0, step_overhead=0.0,
        limit=_A30_LIMIT,
    )  # fmt: skip


_READERS = {"Zeus_power_trace": read_power_limit, "Froening_A30_DVFS": read_clocks}
