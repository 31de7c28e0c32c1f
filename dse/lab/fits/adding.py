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

from dse.designs import catalog
from dse.designs.catalog.filling import LEVELLED
from dse.designs.catalog.load import FOLDERS
from dse.designs.composing import design
from dse.designs.leaves import known_leaves, leaf
from dse.errors import InputError
from dse.io import outputs
from dse.lab.fits import writing
from dse.measured import KINDS, Comparison, Skip, kind_of, read_table
from dse.measured.decisions.evidence import RUN, compared_rows, figure_of_row, gain_of
from dse.measured.kernels import Kernel
from dse.measured.kernels import read as read_kernels
from dse.measured.uncertainty.kernel_times import OWN_ERROR, collective, kernel, moved_times
from dse.measured.uncertainty.posterior import Choice, posterior, shared_key
from dse.measured.uncertainty.rows import choice_of
from dse.measured.uncertainty.spreads import Factor, Spreads, spreads_of, total, within
from dse.model.formats import operand_bytes
from dse.model.work.operators import matmul_work
from dse.types import Design, Element, MessageKind, OperatorKind

#: A leaf is written where its spread narrows by more than this share, or its value moves by this share of the spread.
_NARROWED, _MOVED = 0.02, 0.1

#: Any workload of the catalogue: of rows of kernels only the system counts.
_ANY = "gpt-3-13b"

#: Codes of collectives in tables of kernels, in their order.
_COLLECTIVES = (
    MessageKind.all_reduce,
    MessageKind.all_gather,
    MessageKind.reduce_scatter,
    MessageKind.all_to_all,
    MessageKind.send,
)


class Errors(NamedTuple):
    """Measured rows with what of their errors is known."""

    errors: np.ndarray  #: measured over predicted, logarithm [rows]
    effects: dict[str, np.ndarray]  #: factor → effects on the rows [rows]
    noise: np.ndarray  #: standard deviation of what no factor explains [rows]
    leaves: dict[tuple[str, str, str], tuple[float, Spreads]]
    #: (kind, entry, leaf) → value, and its factors under its path as drawn
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


def add(tables: Sequence[str | Path], folder: str | Path, output: str | Path, force: bool = False) -> Added:
    """Update the catalogue by the rows of tables, and write what changed as files of a catalogue of one's own.

    Args:
        tables: measured rows of one kind: training steps, serving, or isolated kernels and collectives.
        folder: catalogue of one's own (``DSE_CATALOG``); entries that it lacks are copied to it.
        output: TOML file of what was updated.
        force: replace an output that dse has not written.

    Raises:
        InputError: for tables without a row that can be predicted, a row that was added before, a run ten times as
            slow or fast as predicted, and a catalogue whose entries are not those in use.
    """
    outputs.checked(output, force, tables)
    mark = marked(tables)
    are_runs = {_kind(path) for path in tables} != {"kernels"}
    known = _run_rows(tables) if are_runs else _kernel_rows(tables)
    found = updated(known)._replace(are_runs=are_runs)
    about = (
        f"dse calibrate --add: {found.rows} row{'s' * (found.rows != 1)} of {', '.join(found.sources)} ({mark}); "
        f"{datetime.date.today().isoformat()}"
    )
    _check_entries(found, Path(folder), mark)
    writing.write(output, document(found), force)
    return found._replace(files=(Path(output), *_written(found, Path(folder), about)))


def marked(tables: Sequence[str | Path]) -> str:
    """What tells the rows of tables from others; InputError for a row twice."""
    seen: dict[str, str] = {}
    for row in (row for path in tables for row in read_table(path)[1]):
        run = {column: text for column, text in row.cells.items() if column != "software"}  # whatever predicts it
        text, where = repr(sorted(run.items())), f"{row.file}: line {row.line}"
        if text in seen:
            raise InputError(where, f"the row of {seen[text]} again", "each row once", "remove it")
        seen[text] = where
    return f"{zlib.crc32(repr(sorted(seen)).encode()):08x}"


def _check_entries(found: Added, folder: Path, mark: str) -> None:
    """InputError where the rows are part of the entries already, and where others of the folder would be lost."""
    for kind, slug in dict.fromkeys((one.kind, one.slug) for one in found.updates):
        used, path = catalog.entry(kind, slug).path, folder / FOLDERS[kind] / f"{slug}.toml"
        if path.is_file() and not path.samefile(used):
            fix = f"run it with DSE_CATALOG={folder}, which adds to it, or name an empty folder"
            raise InputError(str(path), "an entry that is not in use", "a catalogue in use, or a new one", fix)
        if f"({mark})" in used.read_text(encoding="utf-8"):
            raise InputError(str(used), "the same rows, added before", "each row once", "add others")


def _kind(path: str | Path) -> str:
    return kind_of(read_table(path)[0]).name


def updated(known: Errors) -> Added:
    """The update of leaves by rows."""
    matrix = np.stack([*known.effects.values()], axis=1)
    keys = {key: i for i, key in enumerate(known.effects)}
    gain = gain_of(matrix, known.noise)
    mean, covariance = gain @ known.errors, np.eye(len(keys)) - gain @ matrix
    left, updates = known.errors.copy(), []
    leaf_keys = {one.key for _, spreads in known.leaves.values() for f in spreads.values() for one in f}
    for key, i in keys.items():
        if key in leaf_keys:
            left -= matrix[:, i] * mean[i]
    for (kind, slug, path), (value, spreads) in known.leaves.items():
        direction = np.zeros(len(keys))
        for one in spreads[path]:
            if one.key in keys:
                direction[keys[one.key]] += one.deviation
        drawn = float(np.linalg.norm(direction))
        if not drawn:
            continue
        narrowed = math.sqrt(max(float(direction @ covariance @ direction), 0.0)) / drawn
        moved, stated = float(direction @ mean), total(spreads["as stated"])
        if narrowed < 1.0 - _NARROWED or abs(moved) > _MOVED * drawn:
            high = known_leaves()[path]["bounds"].high if path != LEVEL else math.inf
            after = min(value * math.exp(moved), high)
            updates.append(Update(kind, slug, path, value, after, stated, stated * narrowed))
    updates.sort(key=lambda one: -abs(math.log(one.after / one.before)))
    sources = list(dict.fromkeys(known.sources))
    return Added(len(known.errors), sources, updates, _size(known.errors), _size(left))


def _size(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


# Rows


def _run_rows(tables: Sequence[str | Path]) -> Errors:
    """Rows of training steps and of serving."""
    by_metric: dict[str, list[Comparison]] = {}
    for c in compared_rows(tables, "calibrate --add"):
        by_metric.setdefault(figure_of_row(c)[0], []).append(c)
    parts = [_of_metric(metric, rows) for metric, rows in by_metric.items()]
    return _joined(parts)


def _of_metric(metric: str, compared: Sequence[Comparison]) -> Errors:
    study = KINDS[compared[0].prediction.case.kind].study
    choices = [choice_of(c.prediction, f"{metric} {i}") for i, c in enumerate(compared)]
    found = posterior(choices, metric, study)
    measured = [figure_of_row(c)[1] for c in compared]
    leaves: dict[tuple[str, str, str], tuple[float, Spreads]] = {}
    for choice, drawn in zip(choices, found.spreads, strict=True):
        leaves |= _leaves_of(choice, drawn)
        if not study.residuals:
            leaves |= _level_of(choice, found.effects)
    return Errors(
        np.log(measured) - found.logs,
        dict(found.effects),
        np.full(len(choices), RUN),
        leaves,
        [c.source for c in compared],
    )


def _leaves_of(choice: Choice, drawn: Spreads) -> dict[tuple[str, str, str], tuple[float, Spreads]]:
    """(kind, entry, leaf) → value of a design, and its factors, of leaves that files of the catalogue hold."""
    stated = spreads_of(choice.stack, choice.accelerator, choice.system)
    found: dict[tuple[str, str, str], tuple[float, Spreads]] = {}
    for path, factors in drawn.items():
        if (place := _place(path, choice)) is not None:
            value = float(leaf(choice.design, path)) / _level_in(path, choice.stack)
            found[(*place, path)] = (value, {path: factors, "as stated": stated[path]})
    return found


#: Level of a stack of one's own, as results name it; no leaf.
LEVEL = "software.level"


def _level_of(choice: Choice, effects: Iterable[str]) -> dict[tuple[str, str, str], tuple[float, Spreads]]:
    """The level of a stack that states one with its spread, as :func:`_leaves_of` has leaves."""
    stated = catalog.entry("software", choice.stack).values.get("level")
    key = next((one for one in effects if one == shared_key("level", choice)), None)
    if stated is None or key is None:
        return {}
    factors = (Factor(key, stated.spread),)
    return {("software", choice.stack, LEVEL): (float(stated.value), {LEVEL: factors, "as stated": factors})}


def _level_in(path: str, stack: str) -> float:
    """What the level of a stack multiplies a leaf by."""
    is_levelled = path.startswith("software.") and path.removeprefix("software.") in LEVELLED
    return float(catalog.entry("software", stack).value("level", 1.0)) if is_levelled else 1.0


def _place(path: str, choice: Choice) -> tuple[str, str] | None:
    """(kind, entry) that a leaf is written to; None for one that no file has under its own name."""
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


def _kernel_rows(tables: Sequence[str | Path]) -> Errors:
    """Rows of isolated kernels and collectives, by the formulas of a step."""
    rows: dict[str, list[tuple[Kernel, str]]] = {}
    for path in tables:
        kinds, listed = _reader(path)
        for row in listed:
            try:
                for one in read_kernels(row, kinds):
                    if one.kind in OWN_ERROR and one.device in catalog.names("accelerator"):
                        rows.setdefault(one.device, []).append((one, row.source))
            except Skip:
                continue
    parts = [part for device, found in rows.items() if (part := _of_device(device, found)) is not None]
    if not parts:
        raise InputError(
            "calibrate --add",
            "no row that can be predicted",
            "measured kernels or collectives",
            "dse validate lists skipped rows",
        )
    return _joined(parts)


def _reader(path: str | Path) -> tuple[str, list[Any]]:
    from dse.measured.kernels import kind_of as reader_of

    columns, listed = read_table(path)
    return reader_of(columns), listed


def _of_device(device: str, rows: Sequence[tuple[Kernel, str]]) -> Errors | None:
    base: Design = design(_ANY, device)
    stack = catalog.default_software(device)
    choice = Choice("", base, stack, device)
    own = {path: f for path, f in within(base, spreads_of(stack, device)).items() if path.startswith("system.")}
    timed = [(one, source, time) for one, source in rows if (time := _time(one, base)) is not None]
    if not timed or not own:
        return None
    logs, effects = moved_times(base, own, [time for *_, time in timed])
    measured = np.log([one.measured for one, *_ in timed])
    noise = np.array([OWN_ERROR[one.kind] for one, *_ in timed])
    return Errors(measured - logs, effects, noise, _leaves_of(choice, own), [source for _, source, _ in timed])


def _time(one: Kernel, base: Design) -> Any:
    """Seconds of a measured kernel on a system; None for one that a step's formulas do not know alone."""
    v = one.values
    if one.kind == "gemm":
        element = Element(operand_bytes(v[3]), 2.0, 2.0, base.system.accelerator.cache)
        return kernel(OperatorKind.matrix, matmul_work(v[0], v[1], v[2], 1.0, element), v[3])
    return collective(_COLLECTIVES[int(v[0])], v[1], v[2]) if one.kind == "collective" and v[2] == v[3] else None


def _joined(parts: Sequence[Errors]) -> Errors:
    """Rows of several parts, with the factors of all."""
    count = [len(part.errors) for part in parts]
    starts = np.concatenate([[0], np.cumsum(count)])
    effects: dict[str, np.ndarray] = {}
    leaves: dict[tuple[str, str, str], tuple[float, Spreads]] = {}
    for start, part in zip(starts, parts, strict=False):
        for key, effect in part.effects.items():
            effects.setdefault(key, np.zeros(sum(count)))[start : start + len(effect)] += effect
        leaves |= part.leaves
    return Errors(
        np.concatenate([part.errors for part in parts]),
        effects,
        np.concatenate([part.noise for part in parts]),
        leaves,
        [source for part in parts for source in part.sources],
    )


# Output


def document(found: Added) -> str:
    """The update as a TOML document."""
    tables: dict[str, dict[str, str]] = {
        "": {
            "rows": str(found.rows),
            "sources": f"[{', '.join(map(writing.quoted, found.sources))}]",
            "date": writing.quoted(datetime.date.today().isoformat()),
            "error_before": f"{found.before:.4f}",
            "residual": f"{found.residual:.4f}",
        }
    }
    for one in found.updates:
        heading = f"{one.kind}.{writing.quoted(one.slug)}"
        tables.setdefault(heading, {})[writing.quoted(one.path)] = (
            f"{{ before = {one.before:.6g}, value = {one.after:.6g}, spread_before = {one.spread_before:.4f}, "
            f"spread = {one.spread_after:.4f} }}"
        )
    return writing.document(
        tables, "Written by dse calibrate --add. SI units; errors are standard deviations of logarithms."
    )


def _written(found: Added, folder: Path, about: str) -> Iterator[Path]:
    """Write the updates to a catalogue of one's own; yields its files."""
    entries: dict[tuple[str, str], list[Update]] = {}
    for one in found.updates:
        entries.setdefault((one.kind, one.slug), []).append(one)
    for (kind, slug), updates in entries.items():
        path = folder / FOLDERS[kind] / f"{slug}.toml"
        if not path.is_file():
            with outputs.disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(catalog.entry(kind, slug).path, path)
        for table, values in _tables(updates, about, kind).items():
            if table == "kernels":
                _own_kernels(path, values)
                continue
            for name, text in values.items():
                writing.revise(path, {name: text}, table or _heading(path, name))
        yield path


def _heading(path: Path, name: str) -> str:
    """Heading under which a file states a field of its record itself; "" for none."""
    whole = tomlkit.parse(path.read_text(encoding="utf-8"))
    return next((key for key, part in whole.items() if isinstance(part, dict) and name in part), "")


def _tables(updates: Iterable[Update], about: str, kind: str) -> dict[str, dict[str, str]]:
    """Table of an entry's file → name → value as TOML."""
    prefix = {"software": 1, "accelerator": 2, "network": 2}[kind]
    found: dict[str, dict[str, str]] = {}
    for one in updates:
        *table, name = one.path.split(".")[prefix:]
        units = known_leaves()[one.path]["units"] if one.path != LEVEL else "1"
        text = writing.number(one.after, units) if units in ("1", "s", "B/s") else f'"{one.after:.6g} {units}"'
        entry = writing.stated(text, max(one.spread_after, 1e-4), about, "estimate")
        found.setdefault(".".join(table), {})[name] = entry
    return found


def _own_kernels(path: Path, values: dict[str, str]) -> None:
    """Kernels of an accelerator of its own: its file names their family in addition."""
    whole = tomlkit.parse(path.read_text(encoding="utf-8"))
    stated = whole.get("kernels", "generic")
    if isinstance(stated, str):
        stated = tomlkit.inline_table()
        stated["family"] = whole.get("kernels", "generic")
    table = cast("Any", stated)
    for name, value in values.items():
        table[name] = tomlkit.value(value)
    whole["kernels"] = table
    with outputs.disk_errors(path):
        path.write_text(tomlkit.dumps(whole), encoding="utf-8")
