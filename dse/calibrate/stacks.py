"""What a fit of software stacks found, as tables: errors by source, a TOML file, and the catalogue's own files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse import catalog
from dse.calibrate import residuals
from dse.calibrate.steps import FAMILY, NAMES, NOT_FITTED, Calibration, fitted_as, mean_error
from dse.errors import InputError
from dse.types import Software, field_metadata

#: Units in which the catalogue writes a parameter, and how many of them make one in SI.
_UNITS = {"s": ("ms", 1e3)}


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
    """One record a source, and one of all rows."""
    sources = found.rows.sources
    parts = [(source, sources == source) for source in sorted(set(sources))]
    return [_errors(found, name, part) for name, part in [*parts, ("all", np.ones(len(sources), bool))]]


def _errors(found: Calibration, name: str, part: np.ndarray) -> SourceErrors:
    unseen = np.expm1(found.unseen[part])
    return SourceErrors(
        name, int(part.sum()), mean_error(found.solution.errors[part]), float(np.mean(np.abs(unseen))),
        float(np.median(np.abs(unseen))), float(np.quantile(np.abs(unseen), 0.9)), float(np.mean(unseen)),
        mean_error(found.foreign[part]),
    )  # fmt: skip


def coverage(found: Calibration, source: str | None = None) -> float:
    """Share of the unseen rows (of a source) in their intervals, by residuals of the other folds."""
    part = np.ones(len(found.unseen), bool) if source is None else found.rows.sources == source
    return residuals.coverage(found.unseen[part], found.deviations[part], found.residuals[part])


def toml(found: Calibration) -> str:
    """The fit as a TOML document: shared values, every stack's values, errors by source."""
    lines = ["# Written by dse calibrate. Errors are fractions.", f"coverage = {coverage(found):.4f}", "", "[shared]"]
    lines += [f"{name} = {_text(name, found.solution.value('', name))}" for name in NAMES]
    for stack in found.stacks:
        own = found.rows.stacks == stack
        seen, unseen = mean_error(found.solution.errors[own]), mean_error(found.unseen[own])
        lines += ["", f'[software."{stack}"]', f"rows = {own.sum()}", f"error = {seen:.4f}"]
        lines += [f"unseen_error = {unseen:.4f}", f"residual = {found.residual(stack):.4f}"]
        lines += [
            f"{name} = {{ value = {_text(name, value)}, spread = {found.solution.spread_of(stack, name):.3f}, "
            f"from = {_quoted(_origin(found, stack, name))} }}"
            for name, value in found.values(stack).items()
        ]
    for e in errors_by_source(found):
        lines += ["", f"[source.{_quoted(e.source)}]"]
        lines += [f"{name} = {value:.4f}" if isinstance(value, float) else f"{name} = {value}"
                  for name, value in e._asdict().items() if name != "source"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _origin(found: Calibration, stack: str, name: str) -> str:
    """How a stack came by a value: fitted to its rows, or near what all stacks share because they told little."""
    if name not in found.own.get(fitted_as(stack), []):
        return "shared by the stacks of a chip family" if name in FAMILY else "shared by all stacks"
    spread = f"spread {found.solution.spread_of(stack, name):.0%}"
    return f"fitted, {spread}" if name in found.moved(stack) else f"fitted, but the rows tell little, {spread}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(name: str, value: float) -> str:
    """A value as the catalogue writes it, to three digits."""
    units = catalog_units(name)
    if units == "1":
        return f"{value:.3g}"
    unit, factor = _UNITS[units]
    return f'"{value * factor:.3g} {unit}"'


def catalog_units(name: str) -> str:
    """Units of a parameter in SI."""
    return field_metadata(Software, name)["units"]


def write_catalog(found: Calibration, folder: str | Path | None = None) -> list[Path]:
    """Writes the values into the stacks' files of the catalogue; returns the files."""
    root = Path(folder) if folder is not None else catalog.catalog_root()
    if not (root / "software").is_dir():
        raise InputError(str(root), "no folder software/ in it", "a catalogue of stacks", "name the folder hw_catalog")
    written = []
    for path in sorted((root / "software").glob("*.toml")):
        if path.stem not in NOT_FITTED:
            path.write_text(_revised(path.read_text(encoding="utf-8"), found, path.stem), encoding="utf-8")
            written.append(path)
    return written


def _revised(text: str, found: Calibration, stack: str) -> str:
    """A stack's file with the fitted values; all else stays."""
    family = catalog.entry("software", stack).value("family", "")
    for name, value in reversed(found.values(stack, family).items()):  # new lines go in from the last to the first
        origin, spread = _quoted(_origin(found, stack, name)), f"{found.solution.spread_alone(stack, name):.2g}"
        fields = f"value = {_text(name, value)}, spread = {spread}, source = {origin}"
        line = f'{name} = {{ {fields}, confidence = "estimate" }}'
        text = _with_line(text, name, line)
    text = _with_line(text, "residual", f"residual = {found.residual(stack):.3f}")
    return _with_line(text, "source", f"source = {_quoted(_source(found, stack))}")


def _with_line(text: str, name: str, line: str) -> str:
    """``text`` with the line of a field replaced, or put behind the attention kernel where there is none."""
    pattern = re.compile(rf"^{name} = .*$", re.MULTILINE)
    if pattern.search(text):
        return pattern.sub(lambda _: line, text, count=1)
    return re.sub(r"^(fused_elementwise = .*)$", lambda match: f"{match[1]}\n{line}", text, count=1, flags=re.MULTILINE)


def _source(found: Calibration, stack: str) -> str:
    own = np.array([fitted_as(other) == fitted_as(stack) for other in found.rows.stacks])
    if not own.any():
        return "dse calibrate: no measured rows, so what stacks share"
    sources = ", ".join(sorted(set(found.rows.sources[own])))
    errors = f"mean error {mean_error(found.solution.errors[own]):.1%}, unseen {mean_error(found.unseen[own]):.1%}"
    return f"dse calibrate: {own.sum()} rows of {sources}; {errors}"

