r"""Calibration to steps of TPUs: one level of the matrix rate per generation, and the loss between slices.

XLA compiles whole steps, so kernels are not known separately and hosts do not count. Fitted are the slow-down of
products against the ramp of the chip family per generation, ``matrix_slowdown`` of its stack, and the compute lost per
doubling of the slices, common to all. No row, model or size has values of its own; GPU stacks take no part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dse.designs import catalog
from dse.io import counted
from dse.lab.fits import writing
from dse.lab.fits.fit import Fit, parameters_of
from dse.lab.fits.step_priors import DOCUMENT, is_levelled
from dse.lab.fits.step_rows import StepModel, StepRows, rows_of
from dse.lab.fits.steps import DELTA, NOISE, mean_error
from dse.lab.fits.writing import Revision
from dse.measured import Lookup, predict_cases, read_cases
from dse.measured.comparison import compare_predictions

#: Priors of the level of a generation, and of the loss between slices. Attention has the level of products.
LEVEL, LOSS = parameters_of(DOCUMENT["levels"])
ATTENTION = dataclasses.replace(LEVEL, path="software.flash_slowdown")


@dataclasses.dataclass(frozen=True)
class LevelCalibration:
    """A fit of all generations: values with spreads, and errors of seen and unseen rows."""

    rows: StepRows
    stacks: list[str]
    fit: Fit  #: one level per stack, under its name, and the loss between slices
    unseen: np.ndarray  #: log errors, each row by a fit without the rows of its configuration
    unseen_model: np.ndarray  #: by a fit without the rows of its model on that generation

    @property
    def values(self) -> dict[str, float]:
        """Stack → level: the fitted ``matrix_slowdown``."""
        return {stack: self.fit.values[stack] for stack in self.stacks}

    @property
    def loss(self) -> float:
        """Share of compute lost per doubling of the slices."""
        return self.fit.values[LOSS.path]

    def median(self, stack: str, errors: np.ndarray) -> float:
        """Return the median of |predicted / measured - 1| over the rows of a stack, from log errors of all rows."""
        return float(np.median(np.abs(np.expm1(errors[self.rows.stacks == stack]))))


def calibrate(paths: Sequence[str | Path], progress: Callable[[str], None] = print) -> LevelCalibration:
    """Fit one level per stack and a common loss between slices to the timed rows of tables; return them with errors."""
    lookup = Lookup()
    cases = [case for path in paths for case in read_cases(path)]
    rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.kernel_families, levelled=True)
    stacks = sorted(set(rows.stacks))
    rows_by_column = [rows.stacks == stack for stack in stacks] + [np.ones(len(rows.stacks), bool)]
    columns = [(0, 2)] * len(stacks) + [(1,)]
    problem = StepModel(rows, (LEVEL, LOSS, ATTENTION), columns, rows_by_column).problem(rows.trust, NOISE, DELTA)
    fit = problem.solve().fit([*(dataclasses.replace(LEVEL, path=stack) for stack in stacks), LOSS])
    progress(f"{counted(len(rows.measured), 'row')}, mean error {mean_error(fit.errors):.2%}")
    models = [(stack, group[:3]) for stack, group in zip(rows.stacks, rows.groups, strict=True)]
    configurations = list(zip(rows.stacks, rows.groups, strict=True))
    return LevelCalibration(rows, stacks, fit, problem.cross_validate(configurations), problem.cross_validate(models))


# Output


def errors(calibration: LevelCalibration) -> list[list[str | int | float]]:
    """Return a list per stack: name, count of rows, level as text, and three median errors as fractions.

    The errors are those of fitted rows, unseen configurations, and unseen models.
    """
    kinds = (calibration.fit.errors, calibration.unseen, calibration.unseen_model)
    return [
        [
            stack,
            int((calibration.rows.stacks == stack).sum()),
            writing.digits(calibration.values[stack]),
            *(calibration.median(stack, part) for part in kinds),
        ]
        for stack in calibration.stacks
    ]


def document(calibration: LevelCalibration) -> str:
    """Return the fit as the text of a TOML document."""
    tables: dict[str, dict[str, str]] = {"": {"slice_loss": writing.digits(calibration.loss)}}
    for stack, count, level, *medians in errors(calibration):
        figures = zip(("error", "unseen_error", "unseen_model_error"), medians, strict=True)
        tables[f"software.{writing.quoted(str(stack))}"] = {"rows": str(count), "matrix_slowdown": str(level)} | {
            name: f"{value:.4f}" for name, value in figures
        }
    return writing.document(tables, "Written by dse calibrate. Errors are fractions, medians.")


def revisions(calibration: LevelCalibration, _: Path) -> list[Revision]:
    """Return entries for the files of stacks, with the mean level for those without rows, and of networks."""
    stacks = [slug for slug in catalog.readable_names("software") if is_levelled(slug)]
    about = "dse calibrate: one for all generations"
    text, spread = writing.digits(calibration.loss), calibration.fit.spread[LOSS.path]
    loss = writing.value_table(text, spread, about, "estimate")
    entries = {name: catalog.entry("network", name) for name in catalog.readable_names("network")}
    networks = [name for name, entry in entries.items() if entry.value("links.slice_loss") is not None]
    return [
        *(Revision("software", stack, _level_entries(calibration, stack)) for stack in stacks),
        *(Revision("network", name, {"slice_loss": loss}, "links") for name in networks),
    ]


def _level_entries(calibration: LevelCalibration, stack: str) -> dict[str, str]:
    """Return the entries of a stack's file: name → value as TOML."""
    logs = np.log(list(calibration.values.values()))
    mean, is_of_stack = float(np.exp(np.mean(logs))), calibration.rows.stacks == stack
    errors, about = logs - np.log(mean), "no measured rows, so the mean of the generations"
    if is_of_stack.any():
        errors, sources = calibration.unseen[is_of_stack], sorted(set(calibration.rows.sources[is_of_stack]))
        seen, unseen = (calibration.median(stack, part) for part in (calibration.fit.errors, calibration.unseen))
        rows = counted(is_of_stack.sum(), "row")
        about = f"{rows} of {', '.join(sources)}; median error {seen:.1%}, unseen {unseen:.1%}"
    # The median absolute error of a normal distribution is 0.6745 standard deviations.
    residual = max(float(np.median(np.abs(errors))) / 0.6745, NOISE)
    text, spread = writing.digits(calibration.values.get(stack, mean)), calibration.fit.spread.get(stack, np.std(logs))
    level = writing.value_table(text, float(spread), "a level a generation", "estimate")
    return {
        "source": writing.quoted(f"dse calibrate: {about}"),
        "residual": f"{residual:.3f}",
        "matrix_slowdown": level,
        "flash_slowdown": level,
    }
