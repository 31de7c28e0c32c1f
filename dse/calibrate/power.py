"""Voltage curve and energies of chips from power limits and clocks: few numbers a chip, no gradient needed.

Of a chip are fitted the two ends of its voltage curve, the energy of its matrix FLOPs and the power of its clock trees;
what it draws at rest and for its traffic stays at its prior. Residuals are logarithms of relative figures
(:mod:`dse.measured.energy`): Gauss-Newton with Marquardt's damping (1963) on finite differences, as the clock of least
energy is a choice among clocks, of which a derivative knows nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.calibrate.fit import MOVED, Fit, Parameter
from dse.calibrate.writing import with_table
from dse.catalog.load import FOLDERS
from dse.design import replace
from dse.errors import InputError
from dse.measured.energy import METRICS, Study, StudyCase, read, summarise
from dse.measured.prediction import alike, evaluate_stack
from dse.types import Design, Power
from dse.types.fields import field_metadata

#: Standard deviation of a residual that the optimum weighs the priors against, and from which one counts less.
NOISE, DELTA = 0.04, 0.2
#: Finite difference in prior spreads, most steps, and starts half a prior spread around the first.
_STEP, _STEPS, _STARTS = 0.05, 40, 3

_POWER = "system.accelerator.power."
#: Power at rest over the limit as sold, as the kernels of other chips have it (the generic family).
_REST = dict(uncore=0.143, leakage=0.0967, control=0.243)


#: The ends of the voltage curve, which chips of a family share.
_CURVE = ("threshold", "lowest_voltage")


class Chip(NamedTuple):
    """What is believed of a chip before the data: energies of its family, by logic node, and its limit as sold."""

    family: str
    matrix_energy: float
    cache_energy: float
    memory_energy: float
    tdp: float

    @property
    def fixed(self) -> dict[str, float]:
        """Leaves that are not fitted."""
        rest = {name: _REST[name] * self.tdp for name in ("uncore", "leakage")}
        return rest | dict(cache_energy=self.cache_energy, memory_energy=self.memory_energy)

    @property
    def parameters(self) -> list[Parameter]:
        """Leaves that are."""
        return [
            Parameter(_POWER + "threshold", 0.25, 0.5, upper=0.8),
            Parameter(_POWER + "lowest_voltage", 0.75, 0.15, upper=1.0),
            Parameter(_POWER + "matrix_energy", self.matrix_energy, 0.5),
            Parameter(_POWER + "control", _REST["control"] * self.tdp, 0.7),
        ]


#: Chips that were measured.
CHIPS = {
    "a30": Chip("ampere", 0.893e-12, 60.4e-12, 23.3e-12, 165.0),
    "v100-pcie-32gb": Chip("volta", 1.72e-12, 116e-12, 23.3e-12, 250.0),
    "p100-pcie-16gb": Chip("pascal", 1.72e-12, 116e-12, 23.3e-12, 250.0),
}


class Figure(NamedTuple):
    """One measured relative figure of a study."""

    study: int
    metric: str
    measured: float
    group: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Rows:
    """All figures of one chip, with the designs they rest on."""

    slug: str
    studies: list[Study]
    figures: list[Figure]
    stack: Design | None  #: the designs as one of arrays; None where there is none

    def residuals(self, values: Sequence[float]) -> np.ndarray:
        """log(predicted / measured) of every figure."""
        known = CHIPS[self.slug].parameters
        moved = {p.path: _like(self.stack, value) for p, value in zip(known, values, strict=True)}
        metrics = evaluate_stack(replace(self.stack, moved))
        found = summarise(self.studies, metrics.step_time, metrics.device_power)
        return np.array([np.log(found[f.study][f.metric] / f.measured) for f in self.figures])

    def fitted_studies(self, fit: Fit) -> list[Study]:
        """The studies with the chip as fitted, whatever the catalogue says of it."""
        return [
            study._replace(designs=tuple(self.fitted(one, fit) for one in study.designs)) for study in self.studies
        ]

    def fitted(self, design: Design, fit: Fit) -> Design:
        """A design with the chip as fitted."""
        fixed = {_POWER + name: value for name, value in CHIPS[self.slug].fixed.items()}
        return replace(design, fixed | fit.values)


@dataclasses.dataclass(frozen=True)
class Found:
    """The fit of one chip, and log errors of each figure by a fit that saw no figure of its group."""

    rows: Rows
    fit: Fit
    z: np.ndarray
    unseen: np.ndarray
    elsewhere: np.ndarray  #: by the fits of the other chips that were measured alike

    @property
    def slug(self) -> str:
        """The chip."""
        return self.rows.slug


def calibrate(paths: Sequence[str | Path]) -> list[Found]:
    """Every chip that the tables have studies of, fitted, and each group of figures predicted without it."""
    cases = [case for path in paths for case in read(path) if isinstance(case.study, Study)]
    chips = [rows_of(slug, [c for c in cases if c.study.device == slug]) for slug in CHIPS]
    chips = [rows for rows in chips if rows.figures]
    if not chips:
        raise InputError("rows", "none of a known chip", ", ".join(CHIPS), "name a table of power limits or clocks")
    best = [_minimise(rows, np.ones(len(rows.figures))) for rows in chips]
    found = []
    for rows, z in zip(chips, best, strict=True):
        others = [b for r, b in zip(chips, best, strict=True) if r is not rows and _alike(r, rows)]
        moved = [rows.residuals(_values(rows.slug, other)) for other in others]
        found.append(Found(rows, _fit(rows, z), z, _unseen(rows), np.mean(moved, 0) if moved else np.zeros(0)))
    return found


def rows_of(slug: str, cases: Sequence[StudyCase]) -> Rows:
    """The figures of one chip's studies."""
    studies = [case.study for case in cases]
    figures = [
        Figure(index, m.meaning.metric, m.value, case.study.group)
        for index, case in enumerate(cases) for m in case.case.measurements if m.meaning.metric in METRICS
    ]  # fmt: skip
    designs = [one for study in studies for one in study.designs]
    if not designs:
        return Rows(slug, [], [], None)
    ((_, stack),) = alike(designs)  # the studies of a chip are of one structure
    fixed = {_POWER + name: _like(stack, value) for name, value in CHIPS[slug].fixed.items()}
    return Rows(slug, studies, figures, replace(stack, fixed))


def _like(stack: Design, value: float) -> np.ndarray:
    """One value for every design of a stack."""
    return np.full(len(stack.mapping.tp), value, np.float32)


def _alike(a: Rows, b: Rows) -> bool:
    return a.studies[0].clocks == b.studies[0].clocks


def _values(slug: str, z: np.ndarray) -> list[float]:
    return [float(p.value(x)) for p, x in zip(CHIPS[slug].parameters, z, strict=True)]


def _unseen(rows: Rows) -> np.ndarray:
    """Log error of every figure by a fit to the other groups: batches of a data set, cells of the clock study."""
    groups = [figure.group for figure in rows.figures]
    errors = np.zeros(len(groups))
    for group in dict.fromkeys(groups):
        out = np.array([g == group for g in groups])
        z = _minimise(rows, (~out).astype(float), starts=1)
        errors[out] = rows.residuals(_values(rows.slug, z))[out]
    return errors


def _weights(errors: np.ndarray) -> np.ndarray:
    """What the robust loss leaves of each residual's weight (Charbonnier 1994)."""
    return 1.0 / np.sqrt(1.0 + (errors / DELTA) ** 2)


def _minimise(rows: Rows, used: np.ndarray, starts: int = _STARTS) -> np.ndarray:
    """The most probable parameters, in prior spreads, given the figures that are used."""

    def residuals(z: np.ndarray) -> np.ndarray:
        return rows.residuals(_values(rows.slug, z))

    def loss(z: np.ndarray, errors: np.ndarray) -> float:
        robust = DELTA**2 * (np.sqrt(1.0 + (errors / DELTA) ** 2) - 1.0)
        return float(used @ robust) / NOISE**2 + 0.5 * float(z @ z)

    rng = np.random.default_rng(0)
    count = len(CHIPS[rows.slug].parameters)
    firsts = [np.zeros(count), *(0.5 * rng.standard_normal((starts - 1, count)))]
    ends = [_descend(residuals, loss, used, first) for first in firsts]
    return min(ends, key=lambda end: end[1])[0]


def _descend(residuals: Callable, loss: Callable, used: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float]:
    """Damped Gauss-Newton from one start: (parameters, loss)."""
    errors, damping = residuals(z), 1e-2
    lowest = loss(z, errors)
    for _ in range(_STEPS):
        slopes = _slopes(residuals, z, errors)
        w = used * _weights(errors) / NOISE**2
        curvature = slopes.T @ (w[:, None] * slopes) + np.eye(len(z))
        downhill = -(slopes.T @ (w * errors) + z)
        gained = 0.0
        while damping < 1e6 and not gained:
            trial = z + np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), downhill)
            trial = np.clip(trial, z - 1.0, z + 1.0)
            after = residuals(trial)
            if loss(trial, after) < lowest:
                gained = lowest - loss(trial, after)
                z, errors, lowest, damping = trial, after, loss(trial, after), 0.3 * damping
            else:
                damping *= 4.0
        if gained < 1e-3:
            break
        damping = max(damping, 1e-4)
    return z, lowest


def _slopes(residuals: Callable, z: np.ndarray, errors: np.ndarray) -> np.ndarray:
    return np.stack([(residuals(z + _STEP * unit) - errors) / _STEP for unit in np.eye(len(z))], axis=1)


def _fit(rows: Rows, z: np.ndarray) -> Fit:
    """Values, spreads (Laplace) and errors at the optimum."""
    errors = rows.residuals(_values(rows.slug, z))
    slopes = _slopes(lambda at: rows.residuals(_values(rows.slug, at)), z, errors)
    curvature = slopes.T @ (_weights(errors)[:, None] * slopes) / NOISE**2 + np.eye(len(z))
    narrowed = np.sqrt(np.diag(np.linalg.inv(curvature)))
    known = CHIPS[rows.slug].parameters
    scale = [
        abs(np.log(float(p.value(x + _STEP)) / float(p.value(x - _STEP)))) / (2.0 * _STEP)
        for p, x in zip(known, z, strict=True)
    ]
    return Fit(
        values={p.path: v for p, v in zip(known, _values(rows.slug, z), strict=True)},
        spread={p.path: float(n * s) for p, n, s in zip(known, narrowed, scale, strict=True)},
        moved={p.path: bool(n < MOVED or abs(x) > 1.0) for p, n, x in zip(known, narrowed, z, strict=True)},
        errors=errors, loss=0.0, losses=(), rows=len(errors),
    )  # fmt: skip


# Out


def _written(name: str, value: float) -> str:
    units = field_metadata(Power, name)["units"]
    if units == "1":
        return f"{value:.3g}"
    scale, text = (1e12, "p" + units) if units.startswith("J/") else (1.0, units)
    return f'"{scale * value:.3g} {text}"'


def table_of(found: Found) -> str:
    """The fit of one chip as the table of its catalogue file."""
    sizes = np.abs(np.expm1(found.unseen))
    studies = "clock study of decoder layers (Fröning)" if found.rows.studies[0].clocks else "power-limit traces (Zeus)"
    lines = [
        "[power]",
        f'source = "fitted to {len(sizes)} relative figures of the {studies}; mean error {100.0 * sizes.mean():.1f} % '
        'of held-out groups"',
        'confidence = "estimate"',
    ]
    for path, value in found.fit.values.items():
        name, told = path.rpartition(".")[2], found.fit.moved[path]
        remark = f"spread = {found.fit.spread[path]:.2g}" if told else 'source = "prior: the rows say nothing of it"'
        lines.append(f"{name} = {{ value = {_written(name, value)}, {remark} }}")
    for name, value in CHIPS[found.slug].fixed.items():
        lines.append(f'{name} = {{ value = {_written(name, value)}, source = "prior, held in the fit" }}')
    return "\n".join(lines) + "\n"


def write(found: Sequence[Found], path: str | Path) -> None:
    """All tables in one TOML file, each headed by the accelerator that it belongs to."""
    parts = [table_of(one).replace("[power]", f"[{one.slug}.power]") for one in found]
    Path(path).write_text("\n".join(parts), encoding="utf-8")


def write_catalog(found: Sequence[Found], folder: str | Path) -> list[Path]:
    """Replaces the power tables of the accelerators, and the voltage curve of their families; returns the files."""
    changed = []
    for one in found:
        own = Path(folder) / FOLDERS["accelerator"] / f"{one.slug}.toml"
        family = Path(folder) / FOLDERS["kernels"] / f"{CHIPS[one.slug].family}.toml"
        for path in (own, family):
            if not path.is_file():
                raise InputError(str(path), "no such file", "a catalogue with this entry", "name the folder hw_catalog")
        own.write_text(with_table(own.read_text(encoding="utf-8"), "power", table_of(one)), encoding="utf-8")
        family.write_text(_with_curve(family.read_text(encoding="utf-8"), one), encoding="utf-8")
        changed += [own, family]
    return changed


def _with_curve(text: str, found: Found) -> str:
    """A family's file with the ends of the voltage curve that one of its chips was found to have."""
    old = re.compile(r"^\[power\].*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
    kept = old.search(text)
    lines = kept.group().splitlines() if kept else ["[power]"]
    lines = [line for line in lines if line.strip() and not line.startswith(_CURVE)]
    for name in _CURVE:
        path = _POWER + name
        if not found.fit.moved[path]:
            continue
        value = f"value = {found.fit.values[path]:.3g}, spread = {found.fit.spread[path]:.2g}"
        lines.append(f'{name} = {{ {value}, source = "fitted to the {found.slug}", confidence = "estimate" }}')
    return with_table(text, "power", "\n".join(lines) + "\n")
