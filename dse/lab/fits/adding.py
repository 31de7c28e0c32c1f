r"""An update of the catalogue by a few measured rows, without a fit: a Gaussian update of what is not known.

Errors of the rows are linear in the factors of all leaves and of the levels of distance
(:mod:`dse.measured.uncertainty.posterior`), ``r = C z + e`` with noise ``N``, so that

.. math:: E[z] = C^\top (C C^\top + N)^{-1} r, \qquad \mathrm{Cov}[z] = 1 - C^\top (C C^\top + N)^{-1} C.

The leaves of stacks, chips and links move by their share and narrow; what levels of distance and residuals take of the
errors stays out of the files, and is reported. Rows of runs move a stack and its chip together, those of isolated
kernels the chip or its links alone.
"""

from __future__ import annotations

import datetime
import math
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import tomlkit

from dse.designs import all_leaves, catalog, design, leaf
from dse.designs.catalog.filling import LEVEL_SCALED
from dse.designs.catalog.load import FOLDERS
from dse.errors import InputError
from dse.io import outputs
from dse.lab.fits import writing
from dse.lab.fits.usage import usage_line
from dse.measured import KINDS, Comparison, Skip, kind_of, read_table
from dse.measured.decisions.evidence import RUN_DEVIATION, compared_rows, figure_of_row, gain_of
from dse.measured.kernels import Kernel, read as read_kernels
from dse.measured.uncertainty.kernel_times import MODEL_ERROR, TimedCollective, TimedKernel, perturbed_times
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
_COLLECTIVES = (
    MessageKind.all_reduce,
    MessageKind.all_gather,
    MessageKind.reduce_scatter,
    MessageKind.all_to_all,
    MessageKind.send,
)


class RowErrors(NamedTuple):
    """Measured rows with what of their errors is known."""

    errors: np.ndarray  #: measured over predicted, logarithm [rows]
    effects: dict[str, np.ndarray]  #: factor → effects on the rows [rows]
    noise: np.ndarray  #: standard deviation of what no factor explains [rows]
    leaves: dict[tuple[str, str, str], tuple[float, Spreads]]
    #: (kind, entry, leaf) → value, and its factors under its path
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
    are_runs = {_kind(path) for path in tables} != {"kernels"}
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


def _kind(path: str | Path) -> str:
    """Return the name of the kind of a table of measurements, such as ``steps``, ``serving`` or ``kernels``."""
    return kind_of(read_table(path)[0]).name


def catalog_update(row_errors: RowErrors) -> Added:
    """Return the change of each leaf whose value moves or whose spread narrows, the largest change first."""
    matrix = np.stack([*row_errors.effects.values()], axis=1)
    column_by_key = {key: i for i, key in enumerate(row_errors.effects)}
    gain = gain_of(matrix, row_errors.noise)
    mean, covariance = gain @ row_errors.errors, np.eye(len(column_by_key)) - gain @ matrix
    residual_errors, updates = row_errors.errors.copy(), []
    leaf_keys = {
        factor.key for _, spreads in row_errors.leaves.values() for factors in spreads.values() for factor in factors
    }
    for key, i in column_by_key.items():
        if key in leaf_keys:
            residual_errors -= matrix[:, i] * mean[i]
    for (kind, slug, path), (value, spreads) in row_errors.leaves.items():
        direction = np.zeros(len(column_by_key))
        for factor in spreads[path]:
            if factor.key in column_by_key:
                direction[column_by_key[factor.key]] += factor.deviation
        prior_spread = float(np.linalg.norm(direction))
        if not prior_spread:
            continue
        spread_ratio = math.sqrt(max(float(direction @ covariance @ direction), 0.0)) / prior_spread
        log_change, file_spread = float(direction @ mean), total_deviation(spreads["as stated"])
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
    leaves: dict[tuple[str, str, str], tuple[float, Spreads]] = {}
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


def _catalog_leaves(choice: Choice, spreads: Spreads) -> dict[tuple[str, str, str], tuple[float, Spreads]]:
    """Return (kind, entry, leaf) → value and spreads, for the leaves of a design that files of the catalogue state.

    The value is without the level of the stack. Spreads: those in use under the path, those of the file under
    "as stated".
    """
    spreads_by_leaf = spreads_of(choice.stack, choice.accelerator, choice.system)
    leaves: dict[tuple[str, str, str], tuple[float, Spreads]] = {}
    for path, factors in spreads.items():
        if (place := _entry_of_leaf(path, choice)) is not None:
            value = float(leaf(choice.design, path)) / _level_factor(path, choice.stack)
            leaves[(*place, path)] = (value, {path: factors, "as stated": spreads_by_leaf[path]})
    return leaves


#: Name of a stack's level in results; it is no leaf.
LEVEL = "software.level"


def _stack_level(choice: Choice, effects: Iterable[str]) -> dict[tuple[str, str, str], tuple[float, Spreads]]:
    """Return (kind, entry, :data:`LEVEL`) → value and spreads of a stack's level, as :func:`_catalog_leaves` of leaves.

    Empty for a stack that states no level, and where the level is not among the effects.
    """
    level = catalog.entry("software", choice.stack).values.get("level")
    key = next((effect for effect in effects if effect == shared_key("level", choice)), None)
    if level is None or key is None:
        return {}
    factors = (Factor(key, level.spread),)
    return {("software", choice.stack, LEVEL): (float(level.value), {LEVEL: factors, "as stated": factors})}


def _level_factor(path: str, stack: str) -> float:
    """Return the factor by which a stack's level scales a leaf: the level, or 1 for a leaf that it leaves as it is."""
    is_levelled = path.startswith("software.") and path.removeprefix("software.") in LEVEL_SCALED
    return float(catalog.entry("software", stack).value("level", 1.0)) if is_levelled else 1.0


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
    for path in tables:
        kinds, table_rows = _kernel_table(path)
        for row in table_rows:
            try:
                for kernel_row in read_kernels(row, kinds):
                    if kernel_row.kind in MODEL_ERROR and kernel_row.device in catalog.names("accelerator"):
                        rows.setdefault(kernel_row.device, []).append((kernel_row, row.source))
            except Skip:
                continue
    parts = [part for device, device_rows in rows.items() if (part := _device_errors(device, device_rows)) is not None]
    if not parts:
        raise InputError(
            "calibrate --add",
            "no row that can be predicted",
            "measured kernels or collectives",
            "dse validate lists skipped rows",
        )
    return _concatenate(parts)


def _kernel_table(path: str | Path) -> tuple[str, list[Any]]:
    """Return the kind of a table of kernels, and its rows."""
    from dse.measured.kernels import kind_of as reader_of

    columns, rows = read_table(path)
    return reader_of(columns), rows


def _device_errors(device: str, rows: Sequence[tuple[Kernel, str]]) -> RowErrors | None:
    """Return the log errors of kernels of an accelerator and effects of its leaves, None where none is predicted."""
    base: Design = design(_ANY_WORKLOAD, device)
    stack = catalog.default_software(device)
    choice = Choice("", base, stack, device)
    spreads = {
        path: factors
        for path, factors in present_spreads(base, spreads_of(stack, device)).items()
        if path.startswith("system.")
    }
    timed = [
        (kernel_row, source, kernel)
        for kernel_row, source in rows
        if (kernel := _timed_kernel(kernel_row, base)) is not None
    ]
    if not timed or not spreads:
        return None
    logs, effects = perturbed_times(base, spreads, [kernel for *_, kernel in timed])
    measured = np.log([kernel_row.measured for kernel_row, *_ in timed])
    noise = np.array([MODEL_ERROR[kernel_row.kind] for kernel_row, *_ in timed])
    return RowErrors(
        measured - logs, effects, noise, _catalog_leaves(choice, spreads), [source for _, source, _ in timed]
    )


def _timed_kernel(kernel_row: Kernel, base: Design) -> TimedKernel | TimedCollective | None:
    """Return a measured kernel as one whose time is predicted, None where that is not: across nodes, say."""
    if kernel_row.kind == "gemm":
        m, n, k, precision, *_ = kernel_row.values
        element = Element(operand_bytes(precision), 2.0, 2.0, base.system.accelerator.cache)
        return TimedKernel(OperatorKind.matrix, matmul_work(m, n, k, 1.0, element), precision)
    if kernel_row.kind != "collective":
        return None
    operation, n_bytes, members, local_members, *_ = kernel_row.values
    return TimedCollective(_COLLECTIVES[int(operation)], n_bytes, members) if members == local_members else None


def _concatenate(parts: Sequence[RowErrors]) -> RowErrors:
    """Concatenate rows, with the factors of all; a factor has the effect 0 on rows that it is unknown of."""
    count = [len(part.errors) for part in parts]
    starts = np.concatenate([[0], np.cumsum(count)])
    effects: dict[str, np.ndarray] = {}
    leaves: dict[tuple[str, str, str], tuple[float, Spreads]] = {}
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
        for table, values in _tables(updates, about, kind).items():
            if table == "kernels":
                _write_kernels(path, values)
                continue
            for name, text in values.items():
                writing.revise(path, {name: text}, table or _heading(path, name))
        yield path


def _heading(path: Path, name: str) -> str:
    """Return the heading of the TOML table in which a file states a field, "" where no table does."""
    entry = tomlkit.parse(path.read_text(encoding="utf-8"))
    return next((key for key, part in entry.items() if isinstance(part, dict) and name in part), "")


def _tables(updates: Iterable[Update], about: str, kind: str) -> dict[str, dict[str, str]]:
    """Return table of an entry's file ("" for the file itself) → name → value as TOML."""
    prefix = {"software": 1, "accelerator": 2, "network": 2}[kind]
    tables: dict[str, dict[str, str]] = {}
    for update in updates:
        *table, name = update.path.split(".")[prefix:]
        units = all_leaves()[update.path]["units"] if update.path != LEVEL else "1"
        text = writing.number(update.after, units) if units in ("1", "s", "B/s") else f'"{update.after:.6g} {units}"'
        entry = writing.value_table(text, max(update.spread_after, 1e-4), about, "estimate")
        tables.setdefault(".".join(table), {})[name] = entry
    return tables


def _write_kernels(path: Path, values: dict[str, str]) -> None:
    """Set values (name → TOML) in the table ``kernels`` of an accelerator's file, which keeps its family."""
    entry = tomlkit.parse(path.read_text(encoding="utf-8"))
    kernels = entry.get("kernels", "generic")
    if isinstance(kernels, str):
        kernels = tomlkit.inline_table()
        kernels["family"] = entry.get("kernels", "generic")
    table = cast("Any", kernels)
    for name, value in values.items():
        table[name] = tomlkit.value(value)
    entry["kernels"] = table
    with outputs.disk_errors(path):
        path.write_text(tomlkit.dumps(entry), encoding="utf-8")
