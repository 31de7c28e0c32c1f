"""Names for users: leaves of a design, metrics, axes, names of expressions, columns of tables.

Read from the records and tables of the engine itself. ``dse list`` prints them, and the reference page of the docs has
all of them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dse.designs import all_leaves, catalog, short_name
from dse.designs.records import PLAIN_MAPPING
from dse.doors import TRAINING, Study
from dse.errors import unknown_name
from dse.io import quantities
from dse.types import choice_name


class Listing(NamedTuple):
    """A table of names."""

    what: str  #: title, in one line
    columns: tuple[str, ...]  #: headings; the first column has the names
    rows: tuple[tuple[str, ...], ...]
    note: str = ""  #: below the table


def listing(kind: str, pattern: str = "", studies: Sequence[Study] = (TRAINING,)) -> Listing:
    """List the names of one kind.

    Args:
        kind: one of :data:`KINDS`.
        pattern: a part of a name or of its meaning, any case; with ``*`` or ``?`` the whole name is matched.
        studies: studies of the metrics; with several, a column names those of each metric.

    Raises:
        InputError: for an unknown kind.

    >>> listing("leaves", "memory.bandwidth").rows[0][:2]
    ('memory.bandwidth', 'B/s')
    """
    if kind not in KINDS:
        raise unknown_name("dse list", kind, KINDS, "kinds of names")
    table = KINDS[kind](studies)
    return table._replace(rows=_matching_rows(table.rows, pattern.lower()))


def _matching_rows(rows: Sequence[tuple[str, ...]], pattern: str) -> tuple[tuple[str, ...], ...]:
    """Return the rows that match a pattern in lower case, matching names first; with ``*`` or ``?`` by name alone."""
    if any(sign in pattern for sign in "*?"):
        return tuple(row for row in rows if fnmatch.filter(row[0].lower().split(", "), pattern))
    name_matches = sorted((row for row in rows if pattern in row[0].lower()), key=lambda row: row[0].lower() != pattern)
    return (
        *name_matches,
        *(row for row in rows if row not in name_matches and any(pattern in cell.lower() for cell in row)),
    )


# Kinds


def _leaves(_: Sequence[Study]) -> Listing:
    """Return the table of all leaves of a design."""
    title = "leaves of a design: for --set, dse.design, [workload] [system] [mapping] [software], [axes], expressions"
    rows = _leaf_rows(lambda path, meta: (meta["long_name"], _allowed_text(meta), _default_text(path, meta), path))
    return Listing(title, ("name", "unit", "meaning", "allowed", "default", "path"), rows)


def _leaf_rows(cells: Callable[[str, dict[str, Any]], tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return (name, unit, *cells) of each leaf."""
    leaves = all_leaves().items()
    return tuple((short_name(path), _units(metadata), *cells(path, metadata)) for path, metadata in leaves)


def _metrics(studies: Sequence[Study]) -> Listing:
    """Return the table of the metrics of the studies, with a column of studies if there are several."""
    names = " and ".join(study.name for study in studies)
    title = f"metrics of {names}: for [objective], [constraints], --metric; variables of results"
    columns = ("name", "unit", "meaning", "part of", *(("of",) if len(studies) > 1 else ()))
    rows = _study_rows(studies, lambda name, study: (study.long_names[name], _part_of(name, study)))
    return Listing(title, columns, tuple(row[: len(columns)] for row in rows))


def _study_rows(studies: Sequence[Study], cells: Callable[[str, Study], tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return (name, unit, *cells, studies joined by commas) per metric; equal rows of several studies are one."""
    studies_by_row: dict[tuple[str, ...], list[str]] = {}
    for study in studies:
        for name, units in study.units.items():
            studies_by_row.setdefault((name, _unit(units), *cells(name, study)), []).append(study.name)
    return [(*row, ", ".join(study_names)) for row, study_names in studies_by_row.items()]


def _axes(_: Sequence[Study]) -> Listing:
    """Return the table of the axes of sweeps and searches: keys of the catalogue, then leaves."""
    from dse.spec.axes import RULES
    from dse.spec.space import CATALOGUE_KEYS
    from dse.sweep.grid.degrees import ALL_DEGREES

    names = (
        (key, "", f"{kind} of the catalogue", f"a list of names: dse catalog list {kind}")
        for key, (kind, _) in CATALOGUE_KEYS.items()
    )
    rules = " or ".join(f'"{rule}"' for rule in RULES)
    leaves = _leaf_rows(lambda path, meta: (meta["long_name"], _axis_values_text(meta, path in ALL_DEGREES[1:], rules)))
    return Listing("axes of sweeps and searches: for [axes]", ("name", "unit", "meaning", "values"), (*names, *leaves))


def _constraints(studies: Sequence[Study]) -> Listing:
    """Return the table of the names of expressions: metrics of the studies, then leaves."""
    title = (
        "names of expressions, for [constraints] and [objective]: with + - * / < <= > >= == != and or not; a string "
        "compared with a name takes its unit or choice: peak_memory <= '70 GiB', recompute == 'full'"
    )
    metrics = (row[:-1] for row in _study_rows(studies, lambda name, study: ("metric", study.long_names[name])))
    leaves = _leaf_rows(lambda path, meta: ("leaf", meta["long_name"]))
    return Listing(title, ("name", "unit", "is a", "meaning"), (*metrics, *leaves))


def _columns(_: Sequence[Study]) -> Listing:
    """Return the table of columns of the tables that are read or written."""
    from dse.measured import OUTPUT_COLUMNS, SERVING_COLUMNS, STEP_COLUMNS

    title = "columns of tables of training steps, and of serving: read by dse predict and dse validate, or written"
    read_rows = (
        (", ".join(column.names), use, column.meaning, column.default_text)
        for use, columns in (("read", STEP_COLUMNS), ("read of serving", SERVING_COLUMNS))
        for column in columns
    )
    written_rows = ((name, "written", meaning, "") for name, meaning in OUTPUT_COLUMNS.items())
    note = "Tables of kernels and of energy have columns of their own: docs/kernels.md, docs/energy.md."
    return Listing(title, ("name", "is", "meaning", "where it is empty"), (*read_rows, *written_rows), note)


#: Kind of names → function that lists it.
KINDS = {"leaves": _leaves, "metrics": _metrics, "axes": _axes, "constraints": _constraints, "columns": _columns}


# Cells


def _unit(units: str) -> str:
    """Return a unit as printed: "" for "1", "1/s" for "s-1"."""
    return {"1": "", "s-1": "1/s"}.get(units, units)


def _units(metadata: dict[str, Any]) -> str:
    """Return the unit of a leaf as printed, "" for a choice or a pure number."""
    return "" if "enum" in metadata else _unit(metadata["units"])


def _allowed_text(metadata: dict[str, Any]) -> str:
    """Return a text of the allowed values of a leaf: names of choices, or bounds."""
    if "enum" in metadata:
        return ", ".join(map(choice_name, metadata["enum"]))
    bounds = metadata["bounds"]
    return "yes or no" if bounds.is_integer and bounds.high == 1.0 else str(bounds)


def _default_text(path: str, metadata: dict[str, Any]) -> str:
    """Return a text of the default of a leaf: its value, or where it comes from."""
    option, computed = (
        path.removeprefix("mapping."),
        {"system.n_devices": "tp cp pp dp", "mapping.dp": "from n_devices"},
    )
    if path in computed:
        return computed[path]
    if option in catalog.LEFT_OPEN and option != path:
        return "the stack's"
    if metadata.get("default", 0.0) is None:
        return "absent"
    value = PLAIN_MAPPING.get(path, metadata.get("default"))
    if value is None or isinstance(value, tuple):
        return "the catalogue's"
    if "enum" in metadata:
        return choice_name(metadata["enum"](int(value)))
    return quantities.setting(value, metadata["units"])


def _part_of(name: str, study: Study) -> str:
    """Return the total that a metric is a part of, or "" for none."""
    return next((total for total in study.totals if name in study.parts(total)), "")


def _axis_values_text(metadata: dict[str, Any], is_degree: bool, rules: str) -> str:
    """Return a text of what may be the values of an axis of a leaf."""
    if "enum" in metadata:
        return "a list of names"
    return "a list, a range" + (f", {rules}" if is_degree else "")
