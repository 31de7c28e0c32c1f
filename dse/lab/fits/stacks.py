"""Results of a fit of software stacks: errors by source, a TOML file, and the files of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.designs import catalog
from dse.errors import InputError
from dse.io.quantities import counted
from dse.lab.fits import experts, residuals, writing
from dse.lab.fits.step_priors import (
    FAMILY,
    LINEAGE,
    NAMES,
    NOT_FITTED,
    fitted_as,
    is_levelled,
    is_physical,
    lineage_of,
)
from dse.lab.fits.steps import Calibration, mean_error
from dse.lab.fits.writing import Revision
from dse.types import ExpertKernels, Software, field_metadata
from dse.types.paths import leaves

#: Rows with a stated mapping, and rows completed by the model, whose errors are lower.
STATED, COMPLETED = "mapping stated", "mapping completed by search"


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


def errors_by_source(found: Calibration) -> list[SourceErrors]:
    """One record per source, then for rows with stated mappings, completed ones, and all."""
    return [_errors(found, name, part) for name, part in parts(found).items()]


def parts(found: Calibration) -> dict[str, np.ndarray]:
    """Name → mask of rows: of each source, with stated or completed mapping, all; none without rows."""
    sources, completed = found.rows.sources, found.rows.completed
    by_source = {source: sources == source for source in sorted(set(sources))}
    by_mapping = {name: rows for name, rows in ((STATED, ~completed), (COMPLETED, completed)) if rows.any()}
    return by_source | by_mapping | {"all": np.ones(len(sources), bool)}


def _errors(found: Calibration, name: str, part: np.ndarray) -> SourceErrors:
    unseen = np.expm1(found.unseen[part])
    return SourceErrors(
        name,
        int(part.sum()),
        mean_error(found.solution.errors[part]),
        float(np.mean(np.abs(unseen))),
        float(np.median(np.abs(unseen))),
        float(np.quantile(np.abs(unseen), 0.9)),
        float(np.mean(unseen)),
        mean_error(found.foreign[part]),
    )


def coverage(found: Calibration, name: str = "all", foreign: bool = False) -> float:
    """Share of the unseen rows of a part (see :func:`parts`) within their intervals, by residuals of the other folds.

    ``foreign``: of the rows of left-out sources, with the intervals of a stack without rows.
    """
    part = parts(found)[name]
    errors = found.foreign if foreign else found.unseen
    open_part = found.foreign_residuals if foreign else found.residuals
    return residuals.coverage(errors[part], found.deviations[part], open_part[part])


def by_source(found: Calibration, errors: np.ndarray) -> float:
    """Mean over sources of the mean error of their rows."""
    sources = found.rows.sources
    return float(np.mean([mean_error(errors[sources == source]) for source in sorted(set(sources))]))


def document(found: Calibration) -> str:
    """The fit as a TOML document: shared values, values of every stack, errors by source."""
    tables: dict[str, dict[str, str]] = {"": {"coverage": f"{coverage(found):.4f}"}}
    tables["shared"] = {name: _text(name, found.solution.value("", name)) for name in NAMES}
    for stack in found.stacks:
        own = found.rows.stacks == stack
        tables[f"software.{writing.quoted(stack)}"] = {
            "rows": str(own.sum()),
            "error": f"{mean_error(found.solution.errors[own]):.4f}",
            "unseen_error": f"{mean_error(found.unseen[own]):.4f}",
            "residual": f"{found.residual(stack):.4f}",
        } | {
            name: f"{{ value = {_text(name, value)}, spread = {found.solution.spread_of(stack, name):.3f}, "
            f"from = {writing.quoted(_origin(found, stack, name))} }}"
            for name, value in found.values(stack).items()
        }
    if found.experts is not None:
        tables |= {"experts": _expert_entries(found.experts)}
    for e in errors_by_source(found):
        tables[f"source.{writing.quoted(e.source)}"] = {
            name: f"{value:.4f}" if isinstance(value, float) else str(value)
            for name, value in e._asdict().items()
            if name != "source"
        }
    return writing.document(tables, "Written by dse calibrate. Errors are fractions.")


def _origin(found: Calibration, stack: str, name: str) -> str:
    """Source of a stack's value, and whether it absorbs something else."""
    absorbs = "; beyond its physical range: absorbs what is not modelled"
    return _how(found, stack, name) + ("" if is_physical(name, found.values(stack)) else absorbs)


def _how(found: Calibration, stack: str, name: str) -> str:
    """Whether the value is fitted to the stack's rows, or close to the shared one."""
    if name not in found.own.get(fitted_as(stack), []):
        if name in FAMILY:
            return "shared by the stacks of a chip family"
        return "shared by the stacks of a lineage" if lineage_of(stack) and name in LINEAGE else "shared by all stacks"
    spread = f"spread {found.solution.spread_of(stack, name):.0%}"
    return f"fitted, {spread}" if name in found.moved(stack) else f"fitted, but the rows tell little, {spread}"


def _text(name: str, value: float) -> str:
    """A value with three digits, in the unit of the catalogue."""
    return writing.number(value, catalog_units(name), seconds="ms")


def catalog_units(name: str) -> str:
    """SI units of a parameter."""
    return field_metadata(Software, name)["units"]


def revisions(found: Calibration, folder: Path) -> list[Revision]:
    """Values for the files of a catalogue's training stacks; serving stacks keep the kernels measured in isolation."""
    if not (folder / "software").is_dir():
        wanted = "a catalogue of stacks"
        raise InputError(str(folder), "no folder software/ in it", wanted, "name the folder hw_catalog")
    stacks = [path.stem for path in sorted((folder / "software").glob("*.toml"))]
    stacks = [one for one in stacks if one not in NOT_FITTED and not is_levelled(one)]
    changed = []
    for stack in stacks:
        if catalog.serving_defaults(stack, folder=folder):
            continue
        changed.append(Revision("software", stack, _entries(found, stack)))
        if found.experts is not None and stack in experts.STACKS:
            changed.append(Revision("software", stack, _expert_entries(found.experts), "experts"))
    return changed


def _entries(found: Calibration, stack: str) -> dict[str, str]:
    """Entries of a stack's file: name → value as TOML."""
    family = catalog.entry("software", stack).value("family", "")
    about = {"source": writing.quoted(_source(found, stack)), "residual": f"{found.residual(stack):.3f}"}
    return about | {
        name: writing.stated(
            _text(name, value), found.solution.spread_alone(stack, name), _origin(found, stack, name), "estimate"
        )
        for name, value in found.values(stack, family).items()
    }


def _expert_entries(found: experts.Found) -> dict[str, str]:
    """The same for the mixtures of experts of all stacks."""
    units = leaves(ExpertKernels)
    about = (
        "dse calibrate: shared by all releases and chips; of cells of chips and releases left out, median error "
        f"{np.median(np.abs(found.errors['cell left out'])):.1%}"
    )
    return {"source": writing.quoted(about)} | {
        name: writing.stated(
            writing.number(value, units[name]["units"], seconds="us" if name == "expert_time" else "ms"),
            found.spreads[name],
        )
        for name, value in found.values.items()
    }


def _source(found: Calibration, stack: str) -> str:
    own = np.array([fitted_as(other) == fitted_as(stack) for other in found.rows.stacks])
    if not own.any():
        return "dse calibrate: no measured rows, so what stacks share"
    sources = ", ".join(sorted(set(found.rows.sources[own])))
    errors = f"mean error {mean_error(found.solution.errors[own]):.1%}, unseen {mean_error(found.unseen[own]):.1%}"
    return f"dse calibrate: {counted(own.sum(), 'row')} of {sources}; {errors}"
