r"""An update of the catalogue by a few measured rows, without a fit: a Gaussian update of what is not known.

Errors of the rows are linear in the factors of all leaves and of the levels of distance
(:mod:`dse.measured.uncertainty.posterior`), ``r = C z + e`` with noise ``N``, so that

.. math:: E[z] = C^\top (C C^\top + N)^{-1} r, \qquad \mathrm{Cov}[z] = 1 - C^\top (C C^\top + N)^{-1} C.

The leaves of stacks, chips and links move by their share and narrow; what levels of distance and residuals take of the
errors stays out of the files, and is reported. Rows of runs move a stack and its chip together, those of isolated
kernels the chip or its links alone.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.designs import all_leaves, catalog, design, leaf
from dse.designs.catalog.filling import LEVEL_SCALED
from dse.designs.catalog.load import FOLDERS
from dse.errors import InputError
from dse.io import outputs
from dse.lab.fits import writing
from dse.lab.fits.usage import usage_line
from dse.measured import KINDS, Comparison, Skip, kernels, kind_of, read_table
from dse.measured.decisions.evidence import RUN_DEVIATION, compared_rows, figure_of_row, gain_of
from dse.measured.kernels import Kernel
from dse.measured.table import Row
from dse.measured.uncertainty.kernel_times import (
    MODEL_ERROR,
    TimedKernel,
    perturbed_times,
    timed_collective,
    timed_kernel,
)
from dse.measured.uncertainty.posterior import Choice, posterior, shared_key
from dse.measured.uncertainty.rows import choice_of
from dse.measured.uncertainty.spreads import Factor, Spreads, present_spreads, spreads_of, total_deviation
from dse.model import matmul_work, operand_bytes
from dse.types import Design, Element, MessageKind, OperatorKind

#: A leaf is written where its spread narrows by more than this share, or its value moves by this share of the spread.
_MIN_NARROWING, _MIN_SHIFT = 0.02, 0.1

#: Any workload of the catalogue: rows of kernels depend on the system alone.
_ANY_WORKLOAD = "gpt-3-13b"

#: Codes of collectives in tables of kernels, in their order.
_COLLECTIVES = tuple(MessageKind[name] for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"))


class FileLeaf(NamedTuple):
    """A value that a file of the catalogue states."""

    value: float  #: without the level of the stack
    factors: tuple[Factor, ...]  #: of its spread, as they are drawn
    file_spread: float  #: standard deviation of its logarithm by its file


#: Kind and slug of an entry, and leaf → what it states.
FileLeaves = dict[tuple[str, str, str], FileLeaf]


class RowErrors(NamedTuple):
    """Measured rows with what of their errors is known."""

    errors: np.ndarray  #: measured over predicted, logarithm [rows]
    effects: dict[str, np.ndarray]  #: factor → effects on the rows [rows]
    noise: np.ndarray  #: standard deviation of what no factor explains [rows]
    leaves: FileLeaves
    sources: list[str]


class Update(NamedTuple):
    """What rows changed of one value of the catalogue."""

    kind: str  #: of the entry
    slug: str
    path: str  #: leaf
    before: float
    after: float
    spread_before: float  #: standard deviation of the logarithm
    spread_after: float


class Added(NamedTuple):
    """An update of a catalogue by rows."""

    rows: int
    sources: list[str]
    updates: list[Update]
    before: float  #: root mean square of the log errors of the rows
    residual: float  #: the same after the update of the leaves alone
    files: tuple[Path, ...] = ()
    are_runs: bool = True  #: of steps or of serving, not of kernels
    usage: str = ""  #: how the catalogue is used (:func:`dse.lab.fits.usage.usage_line`); "" where nothing was written


def add(tables: Sequence[str | Path], folder: str | Path, output: str | Path, force: bool = False) -> Added:
    """Update the catalogue by the rows of tables: write changed entries and a report (TOML), and return the update.

    Args:
        tables: measured rows of one kind: training steps, serving, or isolated kernels and collectives.
        folder: catalogue of one's own (``DSE_CATALOG``); entries that it lacks are copied to it.
        output: TOML file of what was updated.
        force: replace an output that dse has not written.

    Raises:
        InputError: for tables without a row that can be predicted, a row that was added before, a run ten times as
            slow or fast as predicted, and a catalogue whose entries are not those in use.
    """
    outputs.check_output(output, force, tables)
    digest = rows_digest(tables)
    are_runs = {kind_of(read_table(path)[0]).name for path in tables} != {"kernels"}
    row_errors = _run_rows(tables) if are_runs else _kernel_rows(tables)
    update = catalog_update(row_errors)._replace(are_runs=are_runs)
    about = (
        f"dse calibrate --add: {update.rows} row{'s' * (update.rows != 1)} of {', '.join(update.sources)} ({digest}); "
        f"{datetime.date.today().isoformat()}"
    )
    _check_entries(update, Path(folder), digest)
    writing.write(output, document(update), force)
    files = (Path(output), *_write_catalog(update, Path(folder), about))
    return update._replace(files=files, usage=usage_line(folder) if update.updates else "")


def rows_digest(tables: Sequence[str | Path]) -> str:
    """Return a checksum of the rows of tables as hexadecimal text, whatever their order and their column ``software``.

    Raises:
        InputError: for a row that is there twice.
    """
    places_by_row: dict[str, str] = {}
    for row in (row for path in tables for row in read_table(path)[1]):
        run = {column: text for column, text in row.cells.items() if column != "software"}  # whatever predicts it
        text, place = repr(sorted(run.items())), f"{row.file}: line {row.line}"
        if text in places_by_row:
            raise InputError(place, f"the row of {places_by_row[text]} again", "each row once", "remove it")
        places_by_row[text] = place
    return f"{zlib.crc32(repr(sorted(places_by_row)).encode()):08x}"


def _check_entries(update: Added, folder: Path, digest: str) -> None:
    """Check that the rows are not part of the entries yet, and that no other entries of the folder are lost.

    Raises:
        InputError: for an entry that has the digest of the rows, and for one in the folder that is not in use.
    """
    for kind, slug in dict.fromkeys((change.kind, change.slug) for change in update.updates):
        entry_path, path = catalog.entry(kind, slug).path, folder / FOLDERS[kind] / f"{slug}.toml"
        if path.is_file() and not path.samefile(entry_path):
            fix = f"run it with DSE_CATALOG={folder}, which adds to it, or name an empty folder"
            raise InputError(str(path), "an entry that is not in use", "a catalogue in use, or a new one", fix)
        if f"({digest})" in entry_path.read_text(encoding="utf-8"):
            raise InputError(str(entry_path), "the same rows, added before", "each row once", "add others")


def catalog_update(row_errors: RowErrors) -> Added:
    """Return the change of each leaf whose value moves or whose spread narrows, the largest change first."""
    matrix = np.stack([*row_errors.effects.values()], axis=1)
    column_by_key = {key: i for i, key in enumerate(row_errors.effects)}
    gain = gain_of(matrix, row_errors.noise)
    mean, covariance = gain @ row_errors.errors, np.eye(len(column_by_key)) - gain @ matrix
    residual_errors, updates = row_errors.errors.copy(), []
    leaf_keys = {factor.key for file_leaf in row_errors.leaves.values() for factor in file_leaf.factors}
    for key, i in column_by_key.items():
        if key in leaf_keys:
            residual_errors -= matrix[:, i] * mean[i]
    for (kind, slug, path), (value, factors, file_spread) in row_errors.leaves.items():
        direction = np.zeros(len(column_by_key))
        for factor in factors:
            if factor.key in column_by_key:
                direction[column_by_key[factor.key]] += factor.deviation
        prior_spread = float(np.linalg.norm(direction))
        if not prior_spread:
            continue
        spread_ratio = math.sqrt(max(float(direction @ covariance @ direction), 0.0)) / prior_spread
        log_change = float(direction @ mean)
        if spread_ratio < 1.0 - _MIN_NARROWING or abs(log_change) > _MIN_SHIFT * prior_spread:
            high = all_leaves()[path]["bounds"].high if path != LEVEL else math.inf
            new_value = min(value * math.exp(log_change), high)
            updates.append(Update(kind, slug, path, value, new_value, file_spread, file_spread * spread_ratio))
    updates.sort(key=lambda update: -abs(math.log(update.after / update.before)))
    sources = list(dict.fromkeys(row_errors.sources))
    return Added(len(row_errors.errors), sources, updates, _rms(row_errors.errors), _rms(residual_errors))


def _rms(errors: np.ndarray) -> float:
    """Return the root mean square of errors."""
    return float(np.sqrt(np.mean(errors**2)))


# Rows


def _run_rows(tables: Sequence[str | Path]) -> RowErrors:
    """Return the log errors of rows of training steps and of serving, with the effects of factors on them."""
    by_metric: dict[str, list[Comparison]] = {}
    for c in compared_rows(tables, "calibrate --add"):
        by_metric.setdefault(figure_of_row(c)[0], []).append(c)
    parts = [_metric_errors(metric, rows) for metric, rows in by_metric.items()]
    return _concatenate(parts)


def _metric_errors(metric: str, compared: Sequence[Comparison]) -> RowErrors:
    """Return the log errors of rows that are compared by one metric, with the effects of factors on them."""
    study = KINDS[compared[0].prediction.case.kind].study
    choices = [choice_of(c.prediction, f"{metric} {i}") for i, c in enumerate(compared)]
    posterior_effects = posterior(choices, metric, study)
    measured = [figure_of_row(c)[1] for c in compared]
    leaves: FileLeaves = {}
    for choice, spreads in zip(choices, posterior_effects.spreads, strict=True):
        leaves |= _catalog_leaves(choice, spreads)
        if not study.residuals:
            leaves |= _stack_level(choice, posterior_effects.effects)
    return RowErrors(
        np.log(measured) - posterior_effects.logs,
        dict(posterior_effects.effects),
        np.full(len(choices), RUN_DEVIATION),
        leaves,
        [c.source for c in compared],
    )


def _catalog_leaves(choice: Choice, spreads: Spreads) -> FileLeaves:
    """Return the leaves of a design that files of the catalogue state; ``spreads``: as they are drawn."""
    file_spreads = spreads_of(choice.stack, choice.accelerator, choice.system)
    level = float(catalog.entry("software", choice.stack).value("level", 1.0))
    return {
        (*place, path): FileLeaf(
            float(leaf(choice.design, path)) / (level if is_level_scaled(path) else 1.0),
            factors,
            total_deviation(file_spreads[path]),
        )
        for path, factors in spreads.items()
        if (place := _entry_of_leaf(path, choice)) is not None
    }


#: Name of a stack's level in results; it is no leaf.
LEVEL = "software.level"


def _stack_level(choice: Choice, effects: Collection[str]) -> FileLeaves:
    """Return the level of a stack; empty for one that states none, and where the level is not among the effects."""
    level, key = catalog.entry("software", choice.stack).values.get("level"), shared_key("level", choice)
    if level is None or key not in effects:
        return {}
    return {("software", choice.stack, LEVEL): FileLeaf(float(level.value), (Factor(key, level.spread),), level.spread)}


def is_level_scaled(path: str) -> bool:
    """Return whether the level of a stack multiplies a leaf."""
    return path.startswith("software.") and path.removeprefix("software.") in LEVEL_SCALED


def _entry_of_leaf(path: str, choice: Choice) -> tuple[str, str] | None:
    """Return (kind, slug) of the entry that states a leaf, None for a leaf that no file states by its name."""
    if path.startswith("software."):
        return "software", choice.stack
    if path.startswith("system.accelerator."):
        field = path.removeprefix("system.accelerator.")
        fits = field.startswith(("kernels.", "matrix_rate.", "memory.")) and field.count(".") == 1
        return ("accelerator", choice.accelerator) if fits else None
    level, _, field = path.removeprefix("system.").partition(".")
    entry = catalog.entry("system", choice.system or choice.accelerator)
    prefix = "node." if entry.kind == "accelerator" else ""
    if level not in ("scale_up", "scale_out") or "." in field:
        return None
    if field == "bandwidth" and entry.value(f"{prefix}{level}_bandwidth") is not None:
        return None
    return "network", catalog.resolve("network", str(entry.value(prefix + level)))


def _kernel_rows(tables: Sequence[str | Path]) -> RowErrors:
    """Return the log errors of rows of isolated kernels and collectives, predicted by the formulas of a step.

    Raises:
        InputError: where no row can be predicted.
    """
    rows: dict[str, list[tuple[Kernel, str]]] = {}
    for kernel, source in (pair for path in tables for pair in kernels_of(*read_table(path))):
        if kernel.kind in MODEL_ERROR and kernel.device in catalog.names("accelerator"):
            rows.setdefault(kernel.device, []).append((kernel, source))
    parts = [part for device, device_rows in rows.items() if (part := _device_errors(device, device_rows)) is not None]
    if not parts:
        raise InputError(
            "calibrate --add",
            "no row that can be predicted",
            "measured kernels or collectives",
            "dse validate lists skipped rows",
        )
    return _concatenate(parts)


def kernels_of(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[tuple[Kernel, str]]:
    """Yield the kernels of a table, each with its source, without rows that cannot be predicted."""
    kind = kernels.kind_of(columns)
    for row in rows:
        with contextlib.suppress(Skip):
            yield from ((kernel, row.source) for kernel in kernels.read(row, kind))


def _device_errors(device: str, rows: Sequence[tuple[Kernel, str]]) -> RowErrors | None:
    """Return the log errors of kernels of an accelerator and effects of its leaves, None where none is predicted."""
    base, stack = design(_ANY_WORKLOAD, device), catalog.default_software(device)
    spreads = present_spreads(base, spreads_of(stack, device))
    spreads = {path: factors for path, factors in spreads.items() if path.startswith("system.")}
    pairs = [(kernel, source, _timed_kernel(kernel, base)) for kernel, source in rows]
    timed = [(kernel, source, predicted) for kernel, source, predicted in pairs if predicted is not None]
    if not timed or not spreads:
        return None
    measured, sources, predicted_kernels = zip(*timed, strict=True)
    logs, effects = perturbed_times(base, spreads, predicted_kernels)
    return RowErrors(
        np.log([kernel.measured for kernel in measured]) - logs,
        effects,
        np.array([MODEL_ERROR[kernel.kind] for kernel in measured]),
        _catalog_leaves(Choice("", base, stack, device), spreads),
        list(sources),
    )


def _timed_kernel(kernel_row: Kernel, base: Design) -> TimedKernel | None:
    """Return a measured kernel as one whose time is predicted, None where that is not: across nodes, say."""
    if kernel_row.kind == "gemm":
        m, n, k, precision, *_ = kernel_row.values
        element = Element(operand_bytes(precision), 2.0, 2.0, base.system.accelerator.cache)
        return timed_kernel(OperatorKind.matrix, matmul_work(m, n, k, 1.0, element), precision)
    if kernel_row.kind != "collective":
        return None
    operation, n_bytes, members, local_members, *_ = kernel_row.values
    return timed_collective(_COLLECTIVES[int(operation)], n_bytes, members) if members == local_members else None


def _concatenate(parts: Sequence[RowErrors]) -> RowErrors:
    """Concatenate rows, with the factors of all; a factor has the effect 0 on rows that it is unknown of."""
    count = [len(part.errors) for part in parts]
    starts = np.concatenate([[0], np.cumsum(count)])
    effects: dict[str, np.ndarray] = {}
    leaves: FileLeaves = {}
    for start, part in zip(starts, parts, strict=False):
        for key, effect in part.effects.items():
            effects.setdefault(key, np.zeros(sum(count)))[start : start + len(effect)] += effect
        leaves |= part.leaves
    return RowErrors(
        np.concatenate([part.errors for part in parts]),
        effects,
        np.concatenate([part.noise for part in parts]),
        leaves,
        [source for part in parts for source in part.sources],
    )


# Output


def document(update: Added) -> str:
    """Return the update as the text of a TOML document: counts, errors, and each change by entry."""
    tables: dict[str, dict[str, str]] = {
        "": {
            "rows": str(update.rows),
            "sources": f"[{', '.join(map(writing.quoted, update.sources))}]",
            "date": writing.quoted(datetime.date.today().isoformat()),
            "error_before": f"{update.before:.4f}",
            "residual": f"{update.residual:.4f}",
        }
    }
    for change in update.updates:
        heading = f"{change.kind}.{writing.quoted(change.slug)}"
        tables.setdefault(heading, {})[writing.quoted(change.path)] = (
            f"{{ before = {change.before:.6g}, value = {change.after:.6g}, spread_before = {change.spread_before:.4f}, "
            f"spread = {change.spread_after:.4f} }}"
        )
    return writing.document(
        tables, "Written by dse calibrate --add. SI units; errors are standard deviations of logarithms."
    )


#: Kind of an entry → parts of a leaf's path before its name in the entry's file.
_PREFIX_PARTS = {"software": 1, "accelerator": 2, "network": 2}


def _write_catalog(update: Added, folder: Path, about: str) -> Iterator[Path]:
    """Write the updates to the entries in a folder, copied there where absent, and yield the path of each file."""
    entries: dict[tuple[str, str], list[Update]] = {}
    for change in update.updates:
        entries.setdefault((change.kind, change.slug), []).append(change)
    for (kind, slug), updates in entries.items():
        path = folder / FOLDERS[kind] / f"{slug}.toml"
        if not path.is_file():
            with outputs.disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(catalog.entry(kind, slug).path, path)
        with writing.revised(path) as entry:
            for change in updates:
                text = writing.leaf_value(change.path, change.after, 6)
                value = writing.value_table(text, max(change.spread_after, 1e-4), about, "estimate")
                writing.set_value(entry, change.path.split(".", _PREFIX_PARTS[kind])[-1], value)
        yield path
