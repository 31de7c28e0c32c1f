"""A stack of one's own from a few runs: at most eight numbers, in seconds, as a file of a catalogue of one's own."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tomlkit

from dse.designs import all_leaves, catalog, leaf
from dse.designs.catalog.load import FOLDERS
from dse.errors import InputError
from dse.io import outputs
from dse.lab.fits import ranges, writing
from dse.lab.fits.adding import is_level_scaled, rows_digest
from dse.lab.fits.own_fit import (
    StackFit,
    StackRows,
    cross_validation_errors,
    errors_at,
    informed_values,
    priors_of,
    solve,
    stack_rows,
    stack_share,
)
from dse.lab.fits.steps import mean_error
from dse.lab.fits.usage import usage_line
from dse.measured import Comparison
from dse.measured.decisions.evidence import compared_rows
from dse.measured.uncertainty import distance, parts as uncertainty
from dse.measured.uncertainty.rows import choice_of

#: Name of the level in results, which is no leaf.
LEVEL = "level"


class FittedValue(NamedTuple):
    """A number of the fit."""

    path: str  #: leaf, or :data:`LEVEL`
    before: float
    after: float
    spread_before: float  #: standard deviation of the logarithm
    spread_after: float
    alone: float  #: the same after the fit, the others fixed


@dataclasses.dataclass(frozen=True)
class FittedStack:
    """A fitted stack."""

    name: str
    base: str
    values: tuple[FittedValue, ...]
    runs: int
    sources: tuple[str, ...]
    before: float  #: mean error before the fit
    error: float  #: and after it
    unseen: float | None  #: of each run by a fit without it; None of one run
    residual: float  #: what a configuration has of its own, standard deviation of the logarithm
    stack_share: float  #: share of the rows' common error that counts as the stack's
    path: Path
    usage: str  #: how the stack is used (:func:`dse.lab.fits.usage.usage_line`)

    @property
    def note(self) -> str:
        """Text on how well the runs separate the stack from its configurations."""
        if self.runs == 1:
            return (
                f"one run cannot tell the stack from its configuration: {100 * self.stack_share:.0f} % of what the "
                "other values leave counts as the stack's, as rows elsewhere have it; add runs of other sizes"
            )
        share = f"{100 * self.stack_share:.0f} %"
        return f"of what the {self.runs} runs have in common beyond the other values {share} is the level"


def _check_folder(folder: Path) -> None:
    """Check that a folder is absent, empty, or a catalogue, else raise InputError."""
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / kind).is_dir() for kind in FOLDERS.values()):
        raise InputError(
            f"-o {folder}",
            "a folder with other things",
            "a catalogue of your own, or a new folder",
            "write -o my_catalog",
        )


def fit(tables: Sequence[str | Path], name: str, folder: str | Path, force: bool = False) -> FittedStack:
    """Fit a stack to the rows of tables, write it as a TOML file of a catalogue of one's own, and return it.

    Args:
        tables: measured training steps or figures of serving, of one stack, from which the fit starts.
        name: of the new stack, a slug.
        folder: the catalogue; it is made where it is not there.
        force: replace a file that dse has not written.

    Raises:
        InputError: for rows of several stacks, without a row that can be predicted, or that the stack has been fitted
            to, for a name that is a stack of the catalogue, and for a folder of other things.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise InputError("--stack", repr(name), "lower-case words and numbers, joined by -", "write, say, my-stack")
    _check_folder(Path(folder))
    path = Path(folder) / FOLDERS["software"] / f"{name}.toml"
    digest = rows_digest(tables)
    compared = compared_rows(tables, "calibrate --stack")
    base = _base_stack(compared, name, path, digest)
    outputs.check_output(path, force, tables)
    rows = stack_rows(compared, name)
    paths, widths = informed_values(rows, priors_of(base, rows.designs))
    count, runs = len(rows.measured), int(rows.runs.max()) + 1
    (stack_fit,) = solve(rows, paths, widths, [np.ones(count, bool)])
    errors_before = errors_at(rows, paths, np.zeros((1, len(paths) + 1)))[0][:count]
    result = FittedStack(
        name,
        base,
        _fitted_values(base, paths, widths, stack_fit, rows),
        runs,
        tuple(dict.fromkeys(c.source for c in compared)),
        mean_error(errors_before),
        mean_error(stack_fit.errors),
        mean_error(cross_validation_errors(rows, paths, widths)) if runs > 1 else None,
        float(np.sqrt(np.mean(stack_fit.configuration_spread**2))),
        stack_share(rows, stack_fit),
        path,
        usage_line(folder, name, compared[0].prediction),
    )
    _write(result, compared, rows, stack_fit, digest, force)
    return result


def _base_stack(compared: Sequence[Comparison], name: str, path: Path, digest: str) -> str:
    """Return the slug of the stack that the fit starts from: that of all rows.

    Raises:
        InputError: for rows of several stacks, a name that another stack has, and rows that the stack was fitted to.
    """
    stacks = sorted({c.prediction.stack for c in compared})
    if len(stacks) > 1:
        raise InputError(
            "calibrate --stack",
            f"rows of {' and '.join(stacks)}",
            "rows of one stack",
            "name the stack to start from: --software NAME, or the column software",
        )
    slug = catalog.find("software", name)
    if slug and not (path.is_file() and catalog.entry("software", slug).path.samefile(path)):
        raise InputError("--stack", repr(name), "a name that no stack of the catalogue has", "choose another name")
    entry = catalog.entry("software", stacks[0])
    if f"({digest})" in entry.path.read_text(encoding="utf-8"):
        raise InputError(
            "calibrate --stack",
            f"rows that {stacks[0]} was fitted to",
            "a stack fitted to others",
            "name the stack that it was fitted from: --software NAME",
        )
    return stacks[0]


# Output


def _fitted_values(
    base: str, paths: Sequence[str], widths: np.ndarray, stack_fit: StackFit, rows: StackRows
) -> tuple[FittedValue, ...]:
    """Return the fitted values, the level first, each of the others with the level of the base stack taken out."""
    level = float(catalog.entry("software", base).value(LEVEL, 1.0))
    *changes, (log, *spreads) = zip(stack_fit.logs, stack_fit.spreads, stack_fit.conditional_spreads, strict=True)
    result = [FittedValue(LEVEL, level, level * math.exp(log), rows.common, *map(float, spreads))]
    for path, width, (log, *spreads) in zip(paths, widths, changes, strict=True):
        value = float(leaf(rows.designs[0], path)) / (level if is_level_scaled(path) else 1.0)
        new_value = min(value * math.exp(log), all_leaves()[path]["bounds"].high)
        result.append(FittedValue(path, value, new_value, float(width), *map(float, spreads)))
    return tuple(result)


def _write(
    stack: FittedStack, compared: Sequence[Comparison], rows: StackRows, stack_fit: StackFit, digest: str, force: bool
) -> None:
    """Write the file of the stack: that of the base stack with the fitted values."""
    entry = tomlkit.parse(catalog.entry("software", stack.base).path.read_text(encoding="utf-8"))
    for name in ("aliases", "sources", "nearest", "tools", "chips", "released", "note", "calibrated"):
        entry.pop(name, None)
    for name, value in _head_entries(stack, digest).items():
        entry[name] = tomlkit.value(value)
    values = {value.path.removeprefix("software."): _value_entry(value, stack) for value in stack.values[1:]}
    if rows.study.residuals:
        for metric, deviation in zip(rows.metrics, stack_fit.configuration_spread, strict=True):
            values[f"residuals.{uncertainty.figure_of(metric, rows.study)}"] = writing.digits(float(deviation))
    values |= {f"calibrated.{name}": value for name, value in _coverage_entries(stack, compared).items()}
    for name, value in values.items():
        writing.set_value(entry, name, value)
    writing.write(stack.path, tomlkit.dumps(entry), force)


def _head_entries(stack: FittedStack, digest: str) -> dict[str, str]:
    """Return the first entries of the stack's file: name → value as TOML."""
    unseen = "" if stack.unseen is None else f", unseen {stack.unseen:.1%}"
    about = (
        f"dse calibrate: {stack.runs} run{'s' * (stack.runs != 1)} of {', '.join(stack.sources)} ({digest}), "
        f"{datetime.date.today().isoformat()}, from {stack.base}; mean error {stack.error:.1%}{unseen}"
    )
    level = stack.values[0]
    return {
        "name": writing.quoted(stack.name),
        "source": writing.quoted(about),
        "confidence": '"estimate"',
        "residual": writing.value_table(
            writing.digits(stack.residual),
            None,
            "of a configuration: its rows, and what rows of others have shown",
            "estimate",
        ),
        LEVEL: writing.value_table(writing.digits(level.after, 4), max(level.alone, 1e-3), stack.note, "estimate"),
    }


def _value_entry(fitted_value: FittedValue, stack: FittedStack) -> str:
    """Return a fitted value with its spread and source as a TOML table."""
    path, narrows = fitted_value.path, fitted_value.spread_after < 0.9 * fitted_value.spread_before
    base_text = writing.number(fitted_value.before, all_leaves()[path]["units"]).strip('"')
    source = f"fitted{'' if narrows else ', but the rows tell little'}: {base_text} in {stack.base}"
    value = writing.leaf_value(path, fitted_value.after, 4)
    return writing.value_table(value, max(fitted_value.alone, 1e-3), source, "estimate")


def _coverage_entries(stack: FittedStack, compared: Sequence[Comparison]) -> dict[str, str]:
    """Return the entries of ``[calibrated]``, what the rows cover: name → value as TOML."""
    choices = [choice_of(c.prediction, "") for c in compared]
    rows = [
        ranges.Covered(stack.base, [choice.design], choice.accelerator, c.source)
        for c, choice in zip(compared, choices, strict=True)
    ]
    mixtures = (choice.accelerator for choice in choices if choice.design.workload.experts is not None)
    families = (distance.model_family(choice.model) for choice in choices if choice.model)
    lists = {"mixtures": mixtures, "families": families}
    return ranges.ABOUT | ranges.extents(rows) | {name: ranges.names_list(names) for name, names in lists.items()}
