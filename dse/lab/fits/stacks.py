"""Results of a fit of software stacks and chips: errors by source, a TOML file, and the files of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.designs import catalog
from dse.errors import InputError
from dse.io import counted
from dse.lab.fits import residuals, writing
from dse.lab.fits.step_priors import (
    CHIP_NAMES,
    NAMES,
    NOT_FITTED,
    SPREADS,
    fitted_as,
    is_levelled,
    is_physical,
    lineage_of,
)
from dse.lab.fits.steps import Calibration, fits_chips, mean_error
from dse.lab.fits.writing import Revision
from dse.types import ExpertKernels, Software, field_metadata
from dse.types.paths import leaves

#: Rows with a stated mapping, and rows completed by the model, whose errors are lower.
EXPLICIT_MAPPING, COMPLETED_MAPPING = "mapping stated", "mapping completed by search"


class SourceErrors(NamedTuple):
    """Errors of one source as fractions: of the fit, without the row's configuration, without the source."""

    source: str
    rows: int
    seen: float
    unseen: float
    unseen_median: float
    unseen_p90: float
    unseen_bias: float
    foreign: float


def errors_by_source(calibration: Calibration) -> list[SourceErrors]:
    """Return the errors of each source, then of rows with stated mappings, completed ones, and all."""
    return [_part_errors(calibration, name, part) for name, part in parts(calibration).items()]


def parts(calibration: Calibration) -> dict[str, np.ndarray]:
    """Return name → mask [row]: of each source, of stated and completed mappings where there are any, and of all."""
    sources, completed = calibration.rows.sources, calibration.rows.completed
    masks = {source: sources == source for source in sorted(set(sources))}
    masks |= {EXPLICIT_MAPPING: ~completed, COMPLETED_MAPPING: completed, "all": np.ones(len(sources), bool)}
    return {name: rows for name, rows in masks.items() if rows.any()}


def _part_errors(calibration: Calibration, name: str, row_mask: np.ndarray) -> SourceErrors:
    """Return the errors of the rows of a mask, under a name, as fractions."""
    unseen = np.expm1(calibration.unseen[row_mask])
    return SourceErrors(
        name,
        int(row_mask.sum()),
        mean_error(calibration.solution.errors[row_mask]),
        float(np.mean(np.abs(unseen))),
        float(np.median(np.abs(unseen))),
        float(np.quantile(np.abs(unseen), 0.9)),
        float(np.mean(unseen)),
        mean_error(calibration.foreign[row_mask]),
    )


def coverage(calibration: Calibration, name: str = "all", foreign: bool = False) -> float:
    """Return the share (0 to 1) of unseen rows of a part (:func:`parts`) within intervals by residuals of other folds.

    ``foreign``: of the rows of left-out sources, with the intervals of a stack without rows.
    """
    row_mask = parts(calibration)[name]
    errors = calibration.foreign if foreign else calibration.unseen
    row_residuals = calibration.foreign_residuals if foreign else calibration.residuals
    return residuals.coverage(errors[row_mask], calibration.deviations[row_mask], row_residuals[row_mask])


def mean_source_error(calibration: Calibration, errors: np.ndarray) -> float:
    """Return the mean over sources of the mean |predicted / measured - 1| of their rows, from log errors [row]."""
    sources = calibration.rows.sources
    return float(np.mean([mean_error(errors[sources == source]) for source in sorted(set(sources))]))


def document(calibration: Calibration) -> str:
    """Return the fit as the text of a TOML document: shared values, values of every stack, errors by source."""
    tables: dict[str, dict[str, str]] = {"": {"coverage": f"{coverage(calibration):.4f}"}}
    tables["shared"] = {name: _text(name, calibration.solution.value("", name)) for name in NAMES}
    for stack in calibration.stacks:
        is_of_stack = calibration.rows.stacks == stack
        tables[f"software.{writing.quoted(stack)}"] = {
            "rows": str(is_of_stack.sum()),
            "error": f"{mean_error(calibration.solution.errors[is_of_stack]):.4f}",
            "unseen_error": f"{mean_error(calibration.unseen[is_of_stack]):.4f}",
            "residual": f"{calibration.residual(stack):.4f}",
        }
        for name, value in calibration.values(stack).items():
            spread, origin = calibration.solution.spread_of(stack, name), _origin(calibration, stack, name)
            text = f"{{ value = {_text(name, value)}, spread = {spread:.3f}, from = {writing.quoted(origin)} }}"
            tables[f"software.{writing.quoted(stack)}"][name] = text
    tables["experts"] = _expert_entries(calibration)
    families = zip(calibration.rows.families, calibration.rows.chips, strict=True)
    for family, chip in sorted(set(families)) if fits_chips(calibration.rows) else ():
        tables[f"accelerator.{writing.quoted(str(chip))}"] = _chip_entries(calibration, str(family), str(chip))
    for e in errors_by_source(calibration):
        tables[f"source.{writing.quoted(e.source)}"] = {
            name: f"{value:.4f}" if isinstance(value, float) else str(value)
            for name, value in e._asdict().items()
            if name != "source"
        }
    return writing.document(tables, "Written by dse calibrate. Errors are fractions.")


def _origin(calibration: Calibration, stack: str, name: str) -> str:
    """Return words on where a stack's value is from, and on a value beyond its physical range."""
    absorbs = "; beyond its physical range: absorbs what is not modelled"
    return _fit_origin(calibration, stack, name) + ("" if is_physical(name, calibration.values(stack)) else absorbs)


def _fit_origin(calibration: Calibration, stack: str, name: str) -> str:
    """Return words on whether a value is fitted to the stack's rows or shared."""
    if name not in SPREADS["stack"] or not _has_rows(calibration, stack):
        of_lineage = lineage_of(stack) and name in SPREADS["lineage"]
        return "shared by the stacks of a lineage" if of_lineage else "shared by all stacks"
    tells_little = "" if name in calibration.informed_parameters(stack) else ", but the rows tell little"
    return f"fitted{tells_little}, spread {calibration.solution.spread_of(stack, name):.0%}"


def _has_rows(calibration: Calibration, stack: str) -> bool:
    """Return True for a stack with measured rows, or one that shares the fit of such a stack."""
    return fitted_as(stack) in {fitted_as(other) for other in calibration.stacks}


def _text(name: str, value: float) -> str:
    """Return a parameter's value in SI units as TOML: three digits, in the unit of the catalogue."""
    return writing.number(value, catalog_units(name), seconds="ms")


def catalog_units(name: str) -> str:
    """Return the SI units of a parameter, a field of :class:`dse.types.Software`."""
    return field_metadata(Software, name)["units"]


def revisions(calibration: Calibration, folder: Path) -> list[Revision]:
    """Return entries for the files of training stacks; serving stacks keep the kernels measured in isolation.

    Raises:
        InputError: for a folder without stacks.
    """
    if not (folder / "software").is_dir():
        expected = "a catalogue of stacks"
        raise InputError(str(folder), "no folder software/ in it", expected, "name the folder hw_catalog")
    changed = []
    for stack in (path.stem for path in sorted((folder / "software").glob("*.toml"))):
        if stack in NOT_FITTED or is_levelled(stack) or catalog.serving_defaults(stack, folder=folder):
            continue
        changed.append(Revision("software", stack, _entries(calibration, stack)))
        if catalog.entry("software", stack, folder=folder).states("experts"):
            changed.append(Revision("software", stack, _expert_entries(calibration), "experts"))
    return changed + (_chip_revisions(calibration, folder) if fits_chips(calibration.rows) else [])


def _chip_revisions(calibration: Calibration, folder: Path) -> list[Revision]:
    """Return entries for kernel files of families, for that of all others, and for accelerators with rows.

    A folder without kernels, of a user, gets accelerators alone: their own shares say what families would.
    """
    chips = dict(zip(calibration.rows.chips, calibration.rows.families, strict=True))
    families = ["generic", *sorted(set(chips.values()))] if (folder / "kernels").is_dir() else []
    revisions = [Revision("kernels", str(f), _chip_entries(calibration, str(f))) for f in families]
    entries = ((str(chip), _chip_entries(calibration, str(f), str(chip))) for chip, f in sorted(chips.items()))
    return revisions + [Revision("accelerator", chip, values, "kernels") for chip, values in entries]


def _chip_entries(calibration: Calibration, family: str, chip: str = "") -> dict[str, str]:
    """Return name → share that a chip, or a family, sustains of the rates of kernels alone, as TOML."""
    is_of_chip, rows = calibration.rows.chips == chip, calibration.rows
    count = int(is_of_chip.sum() if chip else (rows.families == family).sum())
    about = f"fitted to {counted(count, 'training step')}" if count else "mean of the families: dse calibrate"
    ratio = catalog.clock_share(chip) if chip else 1.0
    values = calibration.solution.chip_values(family, chip)
    return {
        name: writing.value_table(
            writing.digits(min(ratio * values[name], 1.0)),
            calibration.solution.chip_spread(name, family, chip),
            about,
            "estimate",
        )
        for name in CHIP_NAMES
    }


def _entries(calibration: Calibration, stack: str) -> dict[str, str]:
    """Return the entries of a stack's file: name → value as TOML."""
    about = {"source": writing.quoted(_source(calibration, stack)), "residual": f"{calibration.residual(stack):.3f}"}
    return about | {
        name: writing.value_table(
            _text(name, value),
            calibration.solution.spread_of(stack, name, conditional=True),
            _origin(calibration, stack, name),
            "estimate",
        )
        for name, value in calibration.values(stack).items()
    }


def _expert_entries(calibration: Calibration) -> dict[str, str]:
    """Return the entries for expert layers, the same for all stacks: name → value as TOML."""
    units, solution = leaves(ExpertKernels), calibration.solution
    errors = np.abs(calibration.point_errors("chip", calibration.rows.mixtures))
    about = "dse calibrate: shared by all stacks"
    about += f"; of mixtures on chips left out, median error {np.median(errors):.1%}" if len(errors) else ""
    return {"source": writing.quoted(about)} | {
        name: writing.value_table(
            writing.number(value, units[name]["units"], seconds="us" if name == "expert_time" else "ms"),
            solution.spread_of("", name, conditional=True),
        )
        for name, value in solution.expert_values().items()
    }


def _source(calibration: Calibration, stack: str) -> str:
    """Return one sentence on the rows and errors of a stack's fit."""
    is_of_stack = np.array([fitted_as(other) == fitted_as(stack) for other in calibration.rows.stacks])
    if not is_of_stack.any():
        return "dse calibrate: no measured rows, so what stacks share"
    sources = ", ".join(sorted(set(calibration.rows.sources[is_of_stack])))
    fitted, unseen = (mean_error(part[is_of_stack]) for part in (calibration.solution.errors, calibration.unseen))
    errors = f"mean error {fitted:.1%}, unseen {unseen:.1%}"
    return f"dse calibrate: {counted(is_of_stack.sum(), 'row')} of {sources}; {errors}"
