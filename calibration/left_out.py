"""Errors of rows left out by source, chip, generation, vendor, framework and family of models, with their levels.

Fits are those of the catalogue's jobs without the rows of one group; few levels are fitted of each, so a leave-out
takes seconds. For chips, generations and vendors the kernels measured in isolation are left out too: the design takes
those of another chip of its family, of the generation before, or of no family at all (and a neutral stack in training).

Rows that no fit has used (of mixtures on further stacks, of further vendors, tunings) are predicted as the catalogue
does.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration import engines
from calibration.engines import linear
from dse.designs import catalog
from dse.doors import SERVING, Study
from dse.lab.fits import levels, steps
from dse.lab.fits.fit import FitProblem, Minimum, folds
from dse.lab.fits.step_priors import fitted_as
from dse.lab.fits.step_rows import StepModel, StepRows, is_fitted, is_plain, rows_of
from dse.measured import comparison, predict_cases, read_cases, read_table
from dse.measured.comparison import Comparison, compare_predictions, is_timed, step_time
from dse.measured.kinds import KINDS, kind_of
from dse.measured.names import Lookup, accelerator_of
from dse.measured.uncertainty.distance import (
    HARDWARE,
    MeasuredPlaces,
    Place,
    distance_levels as levels_of,
    measured_places,
    place_of,
)
from dse.measured.uncertainty.parts import perturb
from dse.measured.uncertainty.spreads import present_spreads, spreads_of, total_deviations
from dse.types import Software

#: Kernel family → the one that stands in where the generation was never measured.
EARLIER = {"blackwell": "hopper", "hopper": "ampere", "h100": "ampere", "h200": "ampere", "ampere": "volta"}
#: Kernels of a chip → those of its family.
ALIKE = {"h100": "hopper", "h200": "hopper"}


def _kin_of(family: str) -> str:
    """Kernels of the family of a chip."""
    return ALIKE.get(family, family)


def _earlier_than(family: str) -> str:
    """Kernels of the generation before."""
    return EARLIER.get(family, family)


#: Folds of configurations, of rows at home.
_FOLDS = 5

#: Family of models of rows that name none: vTrain's are GPTs.
_UNNAMED = "gpt"


class LeftOut(NamedTuple):
    """A figure predicted without the rows of its group."""

    figure: str  #: ``step``, ``memory``, or a kind of residuals of serving
    by: str  #: what was left out
    group: str  #: which one
    source: str
    place: Place
    levels: tuple[str, ...]
    error: float  #: log(predicted / measured)
    deviation: float  #: of the log prediction over the spread of the parameters
    measured: float  #: its logarithm
    metric: str
    row: tuple[str, int, str] = ("", 0, "")  #: file, line and metric of the figure
    chip: float = 0.0  #: standard deviation of the log prediction over the spreads of chip and links
    size: tuple[float, float, float] = (0.0, 0.0, 0.0)  #: logarithms of devices, parameters, tokens of a sequence
    baseline: float = 0.0  #: log(prediction of the source's constant MFU / measured), of step times


def left_out(
    figure: str,
    by: str,
    group: str,
    c: Comparison,
    at: Place,
    found: tuple[str, ...],
    error: float | None = None,
    width: float = 0.0,
) -> LeftOut:
    """A compared figure that was left out; ``error``: by default as predicted, ``width``: its deviation."""
    metric, measured = ("step_time", step_time(c)) if figure == "step" else (c.metric, c.measured)
    if error is None:
        error = float(np.log(c.predicted / c.measured)) * (-1.0 if figure == "step" and c.metric != metric else 1.0)
    told = LeftOut(figure, by, group, c.source, at, found, float(error), float(width), np.log(measured), metric)
    return told._replace(row=key(c), size=size_of(c), baseline=_baseline(c))


#: What may be left out of the names of a place.
PLACES = ("chip", "generation", "vendor", "family", "framework")


def group_of(row: LeftOut, by: str) -> str:
    """The group of a row by what may be left out: a name of its place, or its source."""
    return str(getattr(row.place, by)) if by in PLACES else row.source


def with_chips(rows: Sequence[LeftOut], compared: Sequence[Comparison]) -> list[LeftOut]:
    """Rows with what the spreads of their chips and links make of them, where hardware is a level of theirs."""
    needed = {one.row for one in rows if {*HARDWARE} & {*one.levels}}
    own = [c for c in compared if key(c) in needed and c.prediction.design is not None]
    found: dict[tuple[str, int, str], float] = {}
    for start in range(0, len(own), _AT_ONCE):
        part = own[start : start + _AT_ONCE]
        for study in {KINDS[c.prediction.case.kind].study for c in part}:
            found |= _chip_deviations([c for c in part if KINDS[c.prediction.case.kind].study is study], study)
    return [one._replace(chip=found.get(one.row, 0.0)) if {*HARDWARE} & {*one.levels} else one for one in rows]


def _chip_deviations(compared: Sequence[Comparison], study: Study) -> dict[tuple[str, int, str], float]:
    designs, known = [c.prediction.chosen for c in compared], []
    for design, c in zip(designs, compared, strict=True):
        row = c.prediction.case.row
        spreads = present_spreads(design, spreads_of(c.prediction.stack, accelerator_of(row), row.get("system")))
        known.append({path: d for path, d in total_deviations(spreads).items() if path.startswith("system.")})
    moved = perturb(designs, known, study)
    found = dict.fromkeys(map(key, compared), 0.0)
    for metric in {c.metric for c in compared} - {study.memory}:
        own = moved.deviations(metric if study.residuals else "step_time")
        found |= {key(c): float(d) for c, d in zip(compared, own, strict=True) if c.metric == metric}
    return found


def _stack_deviations(compared: Sequence[Comparison]) -> np.ndarray:
    """Standard deviation of each row's log step time over the spreads of its stack's own parameters."""
    spreads = [total_deviations(spreads_of(c.prediction.stack)) for c in compared]
    own = [{path: d for path, d in one.items() if path.count(".") == 1} for one in spreads]
    return perturb([c.prediction.chosen for c in compared], own).deviations("step_time")


#: Designs whose leaves are moved at once.
_AT_ONCE = 200


def size_of(c: Comparison) -> tuple[float, float, float]:
    """Logarithms of devices, of parameters and of the tokens of a sequence of a compared row."""
    design, metrics = c.prediction.chosen, c.prediction.metrics
    requests = design.workload.requests
    tokens = design.workload.seq_len if requests is None else requests.prompt_tokens + requests.output_tokens
    found = float(design.system.n_devices), metrics["parameters"], float(tokens)
    devices, parameters, sequence = (float(np.log(max(one, 1.0))) for one in found)
    return devices, parameters, sequence


def _baseline(c: Comparison) -> float:
    """log(constant of the source / measured), of a step as a time; NaN where there is none."""
    if not c.baseline > 0.0:
        return np.nan
    error = float(np.log(c.baseline / c.measured))
    return -error if is_timed(c) and c.metric != "step_time" else error


@contextlib.contextmanager
def kernels_of(instead: Callable[[str], str]) -> Iterator[None]:
    """The catalogue with other kernels: ``instead`` of each family."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "accelerators"
        to.mkdir()
        for path in (catalog.catalog_root() / "accelerators").glob("*.toml"):
            text = path.read_text(encoding="utf-8")
            own = re.sub(r'(?m)^kernels = "([^"]*)"', lambda found: f'kernels = "{instead(found[1])}"', text)
            if own != text:
                (to / path.name).write_text(own, encoding="utf-8")
        before = os.environ.get("DSE_CATALOG")
        os.environ["DSE_CATALOG"] = os.pathsep.join(filter(None, (folder, before)))
        try:
            yield
        finally:
            os.environ.pop("DSE_CATALOG") if before is None else os.environ.update(DSE_CATALOG=before)


def tables_of(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Tables of training steps and of serving."""
    kinds = {path: kind_of(read_table(path)[0]).name for path in paths}
    return [p for p in paths if kinds[p] == "steps"], [p for p in paths if kinds[p] != "steps"]


def place(c: Comparison, stack: str = "") -> Place:
    """The place of a compared row."""
    workload, row = c.prediction.chosen.workload, c.measurement.row
    return place_of(stack or c.prediction.stack, accelerator_of(row), workload, row.get("model") or _UNNAMED)


def key(c: Comparison) -> tuple[str, int, str]:
    """What tells a figure from others."""
    return c.measurement.row.file, c.measurement.row.line, c.metric


# Training


def training(tables: Sequence[str | Path]) -> list[LeftOut]:
    """Steps and memory of the tables."""
    cases = [case for path in tables for case in read_cases(path)]
    lookup = Lookup()
    compared = compare_predictions(predict_cases(cases, lookup))
    rows = rows_of(compared, lookup.kernel_families)
    found = [*_steps(cases, rows), *_pods(compared, lookup)]
    found += [*_vendors(cases), *_never_fitted(compared), *_memory(compared)]
    return with_chips(found, compared)


class StepFit(NamedTuple):
    """The fit of all stacks and chips to steps."""

    columns: list[steps.FitColumn]
    problem: FitProblem
    whole: Minimum

    @classmethod
    def of(cls, rows: StepRows) -> StepFit:
        """The fit to rows."""
        columns = steps.columns_of(rows)
        problem = steps.problem_of(rows, columns, rows.weights)
        return cls(columns, problem, problem.solve())


def _steps(cases: Sequence, rows: StepRows) -> Iterator[LeftOut]:
    """Steps by fits of all stacks without a group; of mixtures the first row of each point."""
    columns, problem, whole = StepFit.of(rows)
    near = linear(problem, whole)
    with kernels_of(_earlier_than):
        lookup = Lookup()
        earlier = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.kernel_families)
        foreign = steps.problem_of(earlier, columns, rows.weights)
    assert [key(c) for c in earlier.compared] == [key(c) for c in rows.compared], "other rows with earlier kernels"
    places = [place(c, fitted_as(c.prediction.stack)) for c in rows.compared]
    deviations = _stack_deviations(rows.compared)
    first = np.array([rows.points.index(point) == i for i, point in enumerate(rows.points)]) | ~rows.mixtures
    for by, labels in labels_of(places, list(rows.sources), rows.groups).items():
        for group in dict.fromkeys(labels):
            part = np.array([label == group for label in labels])
            errors = (foreign if by == "generation" else problem).residuals(near.solve(~part, whole.z).z)
            yield from _figures("step", by, group, part & first, places, rows.compared, errors, deviations, part)


def labels_of(
    places: Sequence[Place], sources: Sequence[str], configurations: Sequence[Hashable]
) -> dict[str, list[str]]:
    """What is left out → the group of each row."""
    labels = {"configuration": [f"fold {fold}" for fold in folds(configurations, _FOLDS)], "source": list(sources)}
    return labels | {by: [getattr(p, by) for p in places] for by in ("chip", "generation", "framework", "family")}


def _figures(
    figure: str,
    by: str,
    group: str,
    part: np.ndarray,
    places: Sequence[Place],
    compared: Sequence[Comparison],
    errors: np.ndarray,
    deviations: np.ndarray,
    unseen: np.ndarray | None = None,
) -> Iterator[LeftOut]:
    """The rows of a group, with their distance from all others; ``unseen``: left out, by default the group."""
    out = part if unseen is None else unseen
    known = MeasuredPlaces.from_places(p for p, is_out in zip(places, out, strict=True) if not is_out)
    for i in map(int, np.flatnonzero(part)):
        at = levels_of(places[i], known, is_new_source=by == "source")
        c = compared[i]
        yield left_out(figure, by, group, c, places[i], at, errors[i], deviations[i])


def _pods(compared: Sequence[Comparison], lookup: Lookup) -> Iterator[LeftOut]:
    """Steps of TPUs: the level of a generation by the prior, without its rows."""
    rows = rows_of(compared, lookup.kernel_families, levelled=True)
    everywhere = [np.ones(len(rows.stacks), bool)]
    model = StepModel(rows, (levels.LEVEL, levels.LOSS, levels.ATTENTION), [(0, 2)], everywhere)
    errors = model.problem(rows.trust, levels.NOISE, levels.DELTA).residuals(np.zeros(1))
    places = [place(c) for c in rows.compared]
    for group in sorted({p.chip for p in places}):
        part = np.array([p.chip == group for p in places])
        yield from _figures("step", "chip", group, part, places, rows.compared, errors, np.zeros(len(places)))


def _vendors(cases: Sequence) -> Iterator[LeftOut]:
    """Dense steps of each vendor by the neutral stack and kernels of no family."""
    with kernels_of(lambda family: "generic"):
        lookup = Lookup(software=lambda stack: catalog.record(Software, "neutral"))
        compared = compare_predictions(predict_cases(cases, lookup))
    for c in compared:
        if is_timed(c) and is_plain(c.prediction.chosen.workload):
            at = place(c, "neutral")
            yield left_out("step", "vendor", at.vendor, c, at, ("vendor", "framework"))


def _never_fitted(compared: Sequence[Comparison]) -> Iterator[LeftOut]:
    """Steps that no fit has used, as the catalogue predicts them."""
    kept = [
        c for c in compared if is_timed(c) and c.prediction.stack and not is_fitted(c) and "tpu" not in place(c).chip
    ]
    for c, deviation in zip(kept, _stack_deviations(kept), strict=True):
        at = levels_of(place(c), measured_places(serves=False), is_new_source=True)
        yield left_out("step", "never fitted", c.source, c, place(c), at, width=deviation)


def _memory(compared: Sequence[Comparison]) -> Iterator[LeftOut]:
    """Peaks of memory, to which nothing is fitted but the spread that a stack states."""
    for c in compared:
        if c.skip is None and c.metric == "peak_memory" and c.prediction.stack:
            at = place(c)
            yield left_out("memory", "framework", at.framework, c, at, ("framework",))


# Serving


def serving(tables: Sequence[str | Path]) -> list[LeftOut]:
    """Figures of serving, by engines without a group, and of those that no engine is fitted to."""
    compared, lookup = comparison.compare(list(tables)), Lookup()
    rows = engines.by_stack(compared, lookup)
    with_kernels = {}
    for by, instead in (("chip", _kin_of), ("generation", _earlier_than), ("vendor", lambda _: "generic")):
        with kernels_of(instead):
            with_kernels[by] = _same(rows, engines.read(tables))
    alone = [one.problem.solve() for one in rows]
    near = [linear(one.problem, best) for one, best in zip(rows, alone, strict=True)]
    compared_of = [c for one in rows for c in one.compared]
    configurations = [configuration for one in rows for configuration in one.configurations]
    places = [place(c) for c in compared_of]
    figures = np.array([SERVING.residuals[c.metric] for c in compared_of])
    stacks = np.array([c.prediction.stack for c in compared_of])
    found: list[LeftOut] = []
    for by, labels in labels_of(places, [c.source for c in compared_of], configurations).items():
        engines_of = with_kernels.get(by, {one.stack: one for one in rows})
        for group in dict.fromkeys(labels):
            part = np.array([label == group for label in labels])
            z = _engines_without(rows, near, [one.z for one in alone], part)
            errors = np.zeros(len(part))
            for stack in set(stacks[part]):
                errors[stacks == stack] = engines_of[stack].residuals(z[stack][None])[0]
            for figure in dict.fromkeys(figures):
                some = part & (figures == figure)
                found += _figures(figure, by, group, some, places, compared_of, errors, np.zeros(len(part)), part)
    z = _engines_without(rows, near, [one.z for one in alone], np.zeros(len(places), bool))
    errors = np.concatenate([with_kernels["vendor"][one.stack].residuals(z[one.stack][None])[0] for one in rows])
    for c, spot, error in zip(compared_of, places, errors, strict=True):
        figure = SERVING.residuals[c.metric]
        found.append(left_out(figure, "vendor", spot.vendor, c, spot, ("vendor",), error))
    return with_chips([*found, *_others(compared, lookup), *_memory(compared)], compared)


def _same(rows: Sequence[engines.EngineRows], others: Sequence[engines.EngineRows]) -> dict[str, engines.EngineRows]:
    """The same figures with other kernels, in the same order."""
    by_key = {key(c): (one, i) for one in others for i, c in enumerate(one.compared)}
    found = {}
    for one in rows:
        compared = tuple(by_key[key(c)][0].compared[by_key[key(c)][1]] for c in one.compared if key(c) in by_key)
        assert len(compared) == len(one.compared), f"{one.stack}: other figures with other kernels"
        found[one.stack] = engines.rows_of(one.stack, compared)
    return found


def _engines_without(
    rows: Sequence[engines.EngineRows], near: Sequence[FitProblem], alone: Sequence[np.ndarray], part: np.ndarray
) -> dict[str, np.ndarray]:
    """Stack → parameters of its engine without the rows of a group, by the prior of its kin and what rows are left."""
    kept = np.split(~part, np.cumsum([len(one.compared) for one in rows])[:-1])
    stacks = [one.stack for one in rows]
    found = engines.without(rows, near, alone, kept, [True] * len(rows))
    return {stack: z for stack, z in zip(stacks, found, strict=True) if z is not None}


def _others(compared: Sequence[Comparison], lookup: Lookup) -> Iterator[LeftOut]:
    """Figures that no engine is fitted to, as the catalogue predicts them."""
    known = measured_places(serves=True)
    for c in compared:
        if engines.is_of_fit(c) and not engines.is_fitted(c, lookup):
            at = levels_of(place(c), known, is_new_source=True)
            yield left_out(SERVING.residuals[c.metric], "never fitted", c.source, c, place(c), at)
