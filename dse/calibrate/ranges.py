"""What the measured rows of stacks cover, written into their files: beyond it a prediction extrapolates.

Of a mapping counts what a row states; what the model chose for it is no measurement. Nothing is evaluated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dse.calibrate import writing
from dse.calibrate.engines import tells_of_engine
from dse.calibrate.step_priors import fitted_as
from dse.designs import catalog
from dse.designs.calibrated import OF_TRAINING, QUANTITIES
from dse.designs.leaves import leaf
from dse.measured import Skip, read_cases, serving
from dse.measured.completion import complete
from dse.measured.names import Lookup, accelerator_of
from dse.model.work.parameters import main_model, parameter_count
from dse.types import Design, Workload


class Covered(NamedTuple):
    """A row's designs, with the stack and the accelerator that it names."""

    stack: str
    designs: list[Design]
    accelerator: str


def write_catalog(
    tables: Sequence[str | Path], folder: str | Path, fitted: Callable[[str], bool] = lambda stack: True
) -> list[Path]:
    """Write what the rows of some tables cover into the stacks of a catalogue folder; gives the files.

    Stacks that are not ``fitted``, or without a row in these tables, keep what their files say.
    """
    rows: dict[str, list[Covered]] = {}
    for row in (row for table in tables for row in _rows(table) if fitted(row.stack)):
        rows.setdefault(fitted_as(row.stack), []).append(row)
    changed = []
    for path in sorted((Path(folder) / "software").glob("*.toml")):
        if own := rows.get(fitted_as(path.stem)):
            about = {"source": '"what the rows of the fit cover: dse calibrate"', "confidence": '"paper"'}
            writing.revise(path, about | extents(own) | mixtures(path.stem, own, folder), "calibrated", drop=None)
            changed.append(path)
    return changed


def mixtures(stack: str, rows: Sequence[Covered], folder: str | Path | None = None) -> dict[str, str]:
    """The accelerators on which rows are of mixtures of experts, as TOML; none of a stack that does not price theirs.

    Stacks that share the fit of dense steps may differ in that: only some of them say what their experts cost.
    """
    prices = catalog.entry("software", stack, folder=folder).states("experts")
    return {"mixtures": _names(row.accelerator for row in rows if prices and row.designs[0].workload.experts)}


def _names(accelerators: Iterable[str]) -> str:
    """Accelerators as TOML, each once."""
    return f"[{', '.join(writing.quoted(name) for name in sorted({*accelerators} - {''}))}]"


def extents(rows: Sequence[Covered]) -> dict[str, str]:
    """Field of ``[calibrated]`` → what rows cover, as TOML."""
    values = {field: [_stated(field, row.designs) for row in rows] for field in QUANTITIES}
    known = {field: [one for one in found if one] for field, found in values.items()}
    return {
        field: f"[{min(found):.3g}, {max(found):.3g}]" if field == "parameters"
        else f"[{min(found):.15g}, {max(found):.15g}]"
        for field, found in known.items() if found
    } | {"accelerators": _names(row.accelerator for row in rows)}  # fmt: skip


def _rows(table: str | Path) -> Iterator[Covered]:
    """The rows of a table of steps or of serving that are designs, of steps those whose time was measured."""
    lookup = Lookup()
    if serving.is_table(table):
        for case, one in serving.designs(serving.read(table), lookup):
            if tells_of_engine(case.row, one.stack, one.design.workload, lookup):
                yield Covered(one.stack, [one.design], accelerator_of(case.row))
        return
    for case in read_cases(table):
        if not any(figure.meaning.kind == "time" for figure in case.measurements):
            continue
        try:
            found = complete(case, lookup)
        except Skip:
            continue
        designs = [
            Design(workload=found.workload, system=found.system, software=found.software, mapping=mapping)
            for mapping in found.mappings
        ]
        yield Covered(found.stack, designs, accelerator_of(case.row))


def _stated(field: str, designs: Sequence[Design]) -> float | None:
    """A quantity of a row, None where it leaves it open or its design has none."""
    if field == "parameters":
        return _parameters(designs[0].workload)
    path = QUANTITIES[field].path
    if field in OF_TRAINING and designs[0].workload.requests is not None:
        return None
    try:
        found = {float(leaf(design, path)) for design in designs}
    except AttributeError:  # no such record
        return None
    return found.pop() if len(found) == 1 else None


@functools.lru_cache(maxsize=4096)
def _parameters(workload: Workload) -> float:
    return float(parameter_count(workload if workload.requests is None else main_model(workload)))
