"""The job on power: voltage curve and energies of chips from power limits and clocks, few numbers a chip.

Of a chip are fitted the two ends of its voltage curve, the energy of its matrix FLOPs and the power of its clock trees;
what it draws at rest and for its traffic stays at its prior, leakage at that of its transistors. Residuals are
logarithms of relative figures (:mod:`dse.measured.energy`), their slopes finite differences, as the clock of least
energy is a choice among clocks, of which a derivative knows nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.kernel_parameters import DOCUMENT, HIGHEST_THRESHOLD, SHARED
from dse.designs import catalog, replace
from dse.errors import InputError
from dse.lab.fits import writing
from dse.lab.fits.fit import Fit, FitProblem, Parameter, differences
from dse.lab.fits.writing import Revision
from dse.measured import Case, read_cases
from dse.measured.energy import METRICS, RelativeStudy, summarize_studies
from dse.measured.prediction import evaluate_batch, group_by_structure
from dse.types import Design, Power
from dse.types.fields import field_metadata

#: Standard deviation of a residual that the optimum weighs the priors against, and from which one counts less.
NOISE, DELTA = 0.04, 0.2
#: Finite difference in prior spreads, and starts, half a prior spread around the first.
_STEP, _STARTS = 0.05, 3
#: Pace of the damping: the clock study has several minima, and which one a start finds depends on it.
_PACE = (0.3, 4.0)
#: Gain of a step, as a share of the loss, below which a descent ends: some parameters trade off in flat valleys.
_TOLERANCE = 1e-5

_POWER = "system.accelerator.power."

#: The ends of the voltage curve, which chips of a family share.
_CURVE = ("threshold", "lowest_voltage")


class MeasuredChip(NamedTuple):
    """What is believed of a chip before the data: energies of its family, by logic node, and its limit as sold."""

    family: str
    matrix_energy: float
    cache_energy: float
    memory_energy: float
    tdp: float

    @property
    def fixed(self) -> dict[str, float]:
        """Leaves that are not fitted."""
        uncore = _at_rest("uncore") * self.tdp
        return dict(uncore=uncore, cache_energy=self.cache_energy, memory_energy=self.memory_energy)

    @property
    def parameters(self) -> list[Parameter]:
        """Leaves that are."""
        return [
            Parameter(_POWER + "threshold", 0.33, 0.3, upper=HIGHEST_THRESHOLD),
            Parameter(_POWER + "lowest_voltage", 0.75, 0.08, upper=1.0),
            Parameter(_POWER + "matrix_energy", self.matrix_energy, 0.5),
            Parameter(_POWER + "control", _at_rest("control") * self.tdp, 0.7),
        ]


@functools.cache
def _at_rest(name: str) -> float:
    """Power at rest over the limit as sold, as the kernels of other chips have it."""
    return catalog.entry("kernels", SHARED).values[f"power.{name}_share"].value


#: Chips that were measured.
CHIPS = {slug: MeasuredChip(**row) for slug, row in DOCUMENT["power_limits"].items()}


class Figure(NamedTuple):
    """One measured relative figure of a study."""

    study: int
    metric: str
    measured: float
    group: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PowerRows:
    """All figures of one chip, with the designs they rest on."""

    slug: str
    studies: list[RelativeStudy]
    figures: list[Figure]
    stack: Design  #: the designs as one of arrays

    @property
    def parameters(self) -> list[Parameter]:
        """What is fitted."""
        return CHIPS[self.slug].parameters

    @property
    def problem(self) -> FitProblem:
        """The fit to the figures."""
        rows = differences(lambda zs: np.stack([self.residuals(z) for z in zs]), _STEP)
        weights, prior = np.ones(len(self.figures)), np.ones(len(self.parameters))
        problem = FitProblem(*rows, weights, NOISE, DELTA, prior, starts=_STARTS)
        return dataclasses.replace(problem, pace=_PACE, tolerance=_TOLERANCE)

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """log(predicted / measured) of every figure at ``z`` prior spreads."""
        moved = {p.path: _like(self.stack, float(p.value(x))) for p, x in zip(self.parameters, z, strict=True)}
        metrics = evaluate_batch(replace(self.stack, moved))
        found = summarize_studies(self.studies, metrics.step_time, metrics.device_power)
        return np.array([np.log(found[f.study][f.metric] / f.measured) for f in self.figures])

    def fitted_studies(self, fit: Fit) -> list[RelativeStudy]:
        """The studies with the chip as fitted, whatever the catalogue says of it."""
        return [study._replace(designs=tuple(self.fitted(one, fit) for one in study.designs)) for study in self.studies]

    def fitted(self, design: Design, fit: Fit) -> Design:
        """A design with the chip as fitted."""
        fixed = {_POWER + name: value for name, value in CHIPS[self.slug].fixed.items()}
        return replace(design, fixed | fit.values)


@dataclasses.dataclass(frozen=True)
class FittedChip:
    """The fit of one chip, and log errors of each figure by a fit that saw no figure of its group."""

    rows: PowerRows
    fit: Fit
    unseen: np.ndarray
    elsewhere: np.ndarray  #: by the fits of the other chips that were measured alike

    @property
    def slug(self) -> str:
        """The chip."""
        return self.rows.slug


def calibrate(paths: Sequence[str | Path]) -> list[FittedChip]:
    """Every chip that the tables have studies of, fitted, and each group of figures predicted without it."""
    cases = [case for path in paths for case in read_cases(path)]
    chips = [rows for slug in CHIPS if (rows := rows_of(slug, cases)) is not None]
    if not chips:
        raise InputError("rows", "none of a known chip", ", ".join(CHIPS), "name a table of power limits or clocks")
    best = [rows.problem.solve() for rows in chips]
    found = []
    for rows, own in zip(chips, best, strict=True):
        others = [b.z for r, b in zip(chips, best, strict=True) if r is not rows and _alike(r, rows)]
        moved = [rows.residuals(other) for other in others]
        # Groups are batches of a data set, cells of the clock study.
        unseen = rows.problem.cross_validate([figure.group for figure in rows.figures])
        elsewhere = np.mean(moved, 0) if moved else np.zeros(0)
        found.append(FittedChip(rows, own.fit(rows.parameters), unseen, elsewhere))
    return found


def rows_of(slug: str, cases: Sequence[Case]) -> PowerRows | None:
    """The figures of one chip's studies; None where it has none."""
    known = [(c, c.payload) for c in cases if isinstance(c.payload, RelativeStudy) and c.payload.device == slug]
    figures = [
        Figure(index, m.meaning.metric, m.value, study.group)
        for index, (case, study) in enumerate(known)
        for m in case.measurements
        if m.meaning.metric in METRICS
    ]
    if not figures:
        return None
    studies = [study for _, study in known]
    designs = [one for study in studies for one in study.designs]
    ((_, stack),) = group_by_structure(designs)  # a chip's are of one structure
    fixed = {_POWER + name: _like(stack, value) for name, value in CHIPS[slug].fixed.items()}
    return PowerRows(slug, studies, figures, replace(stack, fixed))


def _like(stack: Design, value: float) -> np.ndarray:
    """One value for every design of a stack."""
    return np.full(np.shape(stack.mapping.tp), value, np.float32)


def _alike(a: PowerRows, b: PowerRows) -> bool:
    return a.studies[0].has_clock_designs == b.studies[0].has_clock_designs


# Out

_PRIOR = "prior: the rows say nothing of it"


def entries(found: FittedChip) -> dict[str, str]:
    """The fit of one chip as the table ``power`` of its catalogue file: name → value as TOML."""
    sizes, is_of_clocks = np.abs(np.expm1(found.unseen)), found.rows.studies[0].has_clock_designs
    studies = "clock study of decoder layers (Fröning)" if is_of_clocks else "power-limit traces (Zeus)"
    error = f"mean error {100.0 * sizes.mean():.1f} % of held-out groups"
    source = f"fitted to {len(sizes)} relative figures of the {studies}; {error}"
    result = {"source": writing.quoted(source), "confidence": '"estimate"'}
    for path, value in found.fit.values.items():
        name, moved = path.rpartition(".")[2], found.fit.is_informed[path]
        spread, about = (found.fit.spread[path], "") if moved else (None, _PRIOR)
        result[name] = writing.value_table(_written(name, value), spread, about)
    for name, value in CHIPS[found.slug].fixed.items():
        result[name] = writing.value_table(_written(name, value), source="prior, held in the fit")
    return result


def _written(name: str, value: float) -> str:
    return writing.number(value, field_metadata(Power, name)["units"])


def document(found: Sequence[FittedChip]) -> str:
    """All tables as TOML, each headed by the accelerator that it belongs to."""
    return writing.document({f"{one.slug}.power": entries(one) for one in found})


def revisions(found: Sequence[FittedChip], _: Path) -> list[Revision]:
    """The power tables of the accelerators, and the voltage curve of their families."""
    return [
        revision
        for one in found
        for revision in (
            Revision("accelerator", one.slug, entries(one), "power", drop=None),
            Revision("kernels", CHIPS[one.slug].family, _curve(one), "power", drop=_CURVE),
        )
    ]


def _curve(found: FittedChip) -> dict[str, str]:
    """The ends of the voltage curve that a chip was found to have, for its family."""
    source = f"fitted to the {found.slug}"
    return {
        name: writing.value_table(
            _written(name, found.fit.values[_POWER + name]), found.fit.spread[_POWER + name], source, "estimate"
        )
        for name in _CURVE
        if found.fit.is_informed[_POWER + name]
    }
