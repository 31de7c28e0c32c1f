"""What a fit of software stacks found, as tables: errors by source, a TOML file, and the catalogue's own files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.calibrate import experts, residuals, writing
from dse.calibrate.step_priors import (
    FAMILY,
    LINEAGE,
    NAMES,
    NOT_FITTED,
    fitted_as,
    is_levelled,
    is_physical,
    lineage_of,
)
from dse.calibrate.steps import Calibration, mean_error
from dse.designs import catalog
from dse.errors import InputError
from dse.types import ExpertKernels, Software, field_metadata
from dse.types.paths import leaves

#: Rows whose mapping is known, and those that the model completed: these are judged kindlier.
STATED, COMPLETED = "mapping stated", "mapping completed by search"


class SourceErrors(NamedTuple):
    """Errors of one source as fractions: of the fit, of fits without a row's configuration, without the source."""

    source: str
    rows: int
    seen: float
    unseen: float
    unseen_median: float
    unseen_p90: float
    unseen_bias: float
    foreign: float


def errors_by_source(found: Calibration) -> list[SourceErrors]:
    """One record a source, then of the rows with a mapping of their own, of the others, and of all."""
    return [_errors(found, name, part) for name, part in parts(found).items()]


def parts(found: Calibration) -> dict[str, np.ndarray]:
    """Name → which rows: of each source, with a mapping as stated or completed by search, all; none without rows."""
    sources, completed = found.rows.sources, found.rows.completed
    by_source = {source: sources == source for source in sorted(set(sources))}
    by_mapping = {name: rows for name, rows in ((STATED, ~completed), (COMPLETED, completed)) if rows.any()}
    return by_source | by_mapping | {"all": np.ones(len(sources), bool)}


def _errors(found: Calibration, name: str, part: np.ndarray) -> SourceErrors:
    unseen = np.expm1(found.unseen[part])
    return SourceErrors(
        name, int(part.sum()), mean_error(found.solution.errors[part]), float(np.mean(np.abs(unseen))),
        float(np.median(np.abs(unseen))), float(np.quantile(np.abs(unseen), 0.9)), float(np.mean(unseen)),
        mean_error(found.foreign[part]),
    )  # fmt: skip


def coverage(found: Calibration, name: str = "all", foreign: bool = False) -> float:
    """Share of the unseen rows of a part (see :func:`parts`) in their intervals, by residuals of the other folds.

    With ``foreign`` of the rows of sources left out, in the intervals of a stack without rows by the other sources.
    """
    part = parts(found)[name]
    errors = found.foreign if foreign else found.unseen
    open_part = found.foreign_residuals if foreign else found.residuals
    return residuals.coverage(errors[part], found.deviations[part], open_part[part])


def by_source(found: Calibration, errors: np.ndarray) -> float:
    """Mean over sources of the mean error of each one's rows."""
    sources = found.rows.sources
    return float(np.mean([mean_error(errors[sources == source]) for source in sorted(set(sources))]))


def toml(found: Calibration) -> str:
    """The fit as a TOML document: shared values, every stack's values, errors by source."""
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
            for name, value in e._asdict().items() if name != "source"
        }  # fmt: skip
    return writing.document(tables, "Written by dse calibrate. Errors are fractions.")


def _origin(found: Calibration, stack: str, name: str) -> str:
    """How a stack came by a value, and whether that stands in for something else."""
    absorbs = "; beyond its physical range: absorbs what is not modelled"
    return _how(found, stack, name) + ("" if is_physical(name, found.values(stack)) else absorbs)


def _how(found: Calibration, stack: str, name: str) -> str:
    """Fitted to its rows, or near what all stacks share because they told little."""
    if name not in found.own.get(fitted_as(stack), []):
        if name in FAMILY:
            return "shared by the stacks of a chip family"
        return "shared by the stacks of a lineage" if lineage_of(stack) and name in LINEAGE else "shared by all stacks"
    spread = f"spread {found.solution.spread_of(stack, name):.0%}"
    return f"fitted, {spread}" if name in found.moved(stack) else f"fitted, but the rows tell little, {spread}"


def _text(name: str, value: float) -> str:
    """A value as the catalogue writes it, to three digits."""
    return writing.number(value, catalog_units(name), seconds="ms")


def catalog_units(name: str) -> str:
    """Units of a parameter in SI."""
    return field_metadata(Software, name)["units"]


def write(found: Calibration, path: str | Path, force: bool = False) -> None:
    """:func:`toml` in a file."""
    writing.write(path, toml(found), force)


def write_catalog(found: Calibration, folder: str | Path | None = None) -> list[Path]:
    """Writes the values into the files of the catalogue's stacks that train; returns the files.

    Kernels of a stack that serves are as measured alone.
    """
    root = Path(folder) if folder is not None else catalog.catalog_root()
    if not (root / "software").is_dir():
        raise InputError(str(root), "no folder software/ in it", "a catalogue of stacks", "name the folder hw_catalog")
    written = [path for path in sorted((root / "software").glob("*.toml")) if path.stem not in NOT_FITTED]
    written = [path for path in written if not is_levelled(path.stem)]
    written = [path for path in written if not catalog.serving_defaults(path.stem, folder=root)]
    for path in written:
        writing.revise(path, _entries(found, path.stem))
        if found.experts is not None and path.stem in experts.STACKS:
            writing.revise(path, _expert_entries(found.experts), "experts")
    return written


def _entries(found: Calibration, stack: str) -> dict[str, str]:
    """Name → value as TOML of what a stack's file says of the fit."""
    family = catalog.entry("software", stack).value("family", "")
    about = {"source": writing.quoted(_source(found, stack)), "residual": f"{found.residual(stack):.3f}"}
    return about | {
        name: writing.stated(
            _text(name, value), found.solution.spread_alone(stack, name), _origin(found, stack, name), "estimate"
        )
        for name, value in found.values(stack, family).items()
    }


def _expert_entries(found: experts.Found) -> dict[str, str]:
    """The same of the mixtures of experts of all stacks."""
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
    return f"dse calibrate: {own.sum()} rows of {sources}; {errors}"
