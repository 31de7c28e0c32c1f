"""A stack of one's own from a few runs: at most eight numbers, in seconds, as a file of a catalogue of one's own."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomlkit

from dse.designs import catalog
from dse.designs.catalog.filling import LEVELLED
from dse.designs.catalog.load import FOLDERS
from dse.designs.leaves import known_leaves, leaf
from dse.errors import InputError
from dse.io import outputs
from dse.lab.fits import ranges, writing
from dse.lab.fits.adding import marked
from dse.lab.fits.own_fit import OwnFit, OwnRows, chosen, errors_at, held_out, priors_of, rows_of_own, shrunk, solve
from dse.lab.fits.steps import mean_error
from dse.measured import Comparison
from dse.measured.decisions.evidence import compared_rows
from dse.measured.uncertainty import distance
from dse.measured.uncertainty import parts as uncertainty
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
class OwnStack:
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
    shrunk: float  #: share of the rows' common error that counts as the stack's
    path: Path

    @property
    def note(self) -> str:
        """How far the runs tell the stack from its configurations."""
        if self.runs == 1:
            return (
                f"one run cannot tell the stack from its configuration: {100 * self.shrunk:.0f} % of what the other "
                "values leave counts as the stack's, as rows elsewhere have it; add runs of other sizes"
            )
        share = f"{100 * self.shrunk:.0f} %"
        return f"of what the {self.runs} runs have in common beyond the other values {share} is the level"


def _check_folder(folder: Path) -> None:
    """InputError for a folder that is there, and neither empty nor one of a catalogue."""
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / kind).is_dir() for kind in FOLDERS.values()):
        raise InputError(
            f"-o {folder}",
            "a folder with other things",
            "a catalogue of your own, or a new folder",
            "write -o my_catalog",
        )


def fit(tables: Sequence[str | Path], name: str, folder: str | Path, force: bool = False) -> OwnStack:
    """Fit a stack to the rows of tables, and write it as a file of a catalogue of one's own.

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
    mark = marked(tables)
    compared = compared_rows(tables, "calibrate --stack")
    base = _base(compared, name, path, mark)
    outputs.checked(path, force, tables)
    rows = rows_of_own(compared, name)
    paths, widths = chosen(rows, priors_of(base, rows.designs))
    count, runs = len(rows.measured), int(rows.runs.max()) + 1
    (found,) = solve(rows, paths, widths, [np.ones(count, bool)])
    start = errors_at(rows, paths, np.zeros((1, len(paths) + 1)))[0][:count]
    result = OwnStack(
        name,
        base,
        _values(base, paths, widths, found, rows),
        runs,
        tuple(dict.fromkeys(c.source for c in compared)),
        mean_error(start),
        mean_error(found.errors),
        mean_error(held_out(rows, paths, widths)) if runs > 1 else None,
        float(np.sqrt(np.mean(found.apart**2))),
        shrunk(rows, found),
        path,
    )
    _write(result, compared, rows, found, mark, force)
    return result


def _base(compared: Sequence[Comparison], name: str, path: Path, mark: str) -> str:
    """The stack that the fit starts from."""
    stacks = sorted({c.prediction.stack for c in compared})
    if len(stacks) > 1:
        raise InputError(
            "calibrate --stack",
            f"rows of {' and '.join(stacks)}",
            "rows of one stack",
            "name the stack to start from: --software NAME, or the column software",
        )
    known = catalog.find("software", name)
    if known and not (path.is_file() and catalog.entry("software", known).path.samefile(path)):
        raise InputError("--stack", repr(name), "a name that no stack of the catalogue has", "choose another name")
    entry = catalog.entry("software", stacks[0])
    if f"({mark})" in entry.path.read_text(encoding="utf-8"):
        raise InputError(
            "calibrate --stack",
            f"rows that {stacks[0]} was fitted to",
            "a stack fitted to others",
            "name the stack that it was fitted from: --software NAME",
        )
    return stacks[0]


# Output


def _values(
    base: str, paths: Sequence[str], widths: np.ndarray, found: OwnFit, rows: OwnRows
) -> tuple[FittedValue, ...]:
    """The numbers of the fit, without the level of the stack that it starts from."""
    level = float(catalog.entry("software", base).value(LEVEL, 1.0))
    result = [
        FittedValue(
            LEVEL,
            level,
            level * math.exp(found.logs[-1]),
            rows.common,
            float(found.spreads[-1]),
            float(found.alone[-1]),
        )
    ]
    for path, log, width, *spreads in zip(paths, found.logs, widths, found.spreads, found.alone, strict=False):
        value = float(leaf(rows.designs[0], path)) / (level if path.removeprefix("software.") in LEVELLED else 1.0)
        after = min(value * math.exp(log), known_leaves()[path]["bounds"].high)
        result.append(FittedValue(path, value, after, float(width), *map(float, spreads)))
    return tuple(result)


def _write(
    found: OwnStack, compared: Sequence[Comparison], rows: OwnRows, fitted: OwnFit, mark: str, force: bool
) -> None:
    """Write the file of the stack: that of the stack it starts from with the numbers of the fit."""
    text = catalog.entry("software", found.base).path.read_text(encoding="utf-8")
    whole = tomlkit.parse(text)
    for name in ("aliases", "sources", "nearest", "tools", "chips", "released", "note", "calibrated"):
        whole.pop(name, None)
    for name, value in _heads(found, mark).items():
        whole[name] = tomlkit.value(value)
    for one in found.values[1:]:
        *table, name = one.path.split(".")[1:]
        place: Any = whole
        for key in table:
            place = place.setdefault(key, tomlkit.table())
        place[name] = tomlkit.value(_entry(one, found))
    if rows.study.residuals:
        of_rows = zip(rows.metrics, fitted.apart, strict=True)
        kinds = {uncertainty.figure_of(metric, rows.study): float(one) for metric, one in of_rows}
        for kind, width in kinds.items():
            whole.setdefault("residuals", tomlkit.table())[kind] = tomlkit.value(writing.digits(width))
    whole["calibrated"] = tomlkit.table()
    for name, value in _covered(found, compared).items():
        whole["calibrated"][name] = tomlkit.value(value)
    writing.write(found.path, tomlkit.dumps(whole), force)


def _heads(found: OwnStack, mark: str) -> dict[str, str]:
    unseen = "" if found.unseen is None else f", unseen {found.unseen:.1%}"
    about = (
        f"dse calibrate: {found.runs} run{'s' * (found.runs != 1)} of {', '.join(found.sources)} ({mark}), "
        f"{datetime.date.today().isoformat()}, from {found.base}; mean error {found.error:.1%}{unseen}"
    )
    level = found.values[0]
    return {
        "name": writing.quoted(found.name),
        "source": writing.quoted(about),
        "confidence": '"estimate"',
        "residual": writing.stated(
            writing.digits(found.residual),
            None,
            "of a configuration: its rows, and what rows of others have shown",
            "estimate",
        ),
        LEVEL: writing.stated(writing.digits(level.after, 4), max(level.alone, 1e-3), found.note, "estimate"),
    }


def _entry(one: FittedValue, found: OwnStack) -> str:
    """A fitted value as TOML."""
    units = known_leaves()[one.path]["units"]
    text = writing.number(one.after, units) if units in ("1", "s", "B/s") else f'"{one.after:.4g} {units}"'
    told = "fitted" if one.spread_after < 0.9 * one.spread_before else "fitted, but the rows tell little"
    source = f"{told}: {writing.number(one.before, units).strip(chr(34))} in {found.base}"
    return writing.stated(text, max(one.alone, 1e-3), source, "estimate")


def _covered(found: OwnStack, compared: Sequence[Comparison]) -> dict[str, str]:
    """What the rows cover, as TOML."""
    choices = [choice_of(c.prediction, "") for c in compared]
    rows = [
        ranges.Covered(found.base, [one.design], one.accelerator, c.source)
        for c, one in zip(compared, choices, strict=True)
    ]
    families = sorted({distance.family_of(one.model) for one in choices if one.model})
    about = {"source": '"what the rows of the fit cover: dse calibrate"', "confidence": '"paper"'}
    mixtures = {one.accelerator for one in choices if one.design.workload.experts is not None}
    return (
        about
        | ranges.extents(rows)
        | {
            "mixtures": f"[{', '.join(map(writing.quoted, sorted(mixtures - {''})))}]",
            "families": f"[{', '.join(map(writing.quoted, families))}]",
        }
    )
