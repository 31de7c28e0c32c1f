"""Text to copy for each design of a page: options of ``dse evaluate`` and ``dse launch``, and a specification.

Options are the differences between a design and the defaults of its catalogue names; each kind of line is verified
here. A specification is that of the results with one value per axis.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import shlex
from typing import Any, NamedTuple

import numpy as np
import tomlkit

from dse.designs import all_leaves, design, leaf_path, short_name
from dse.designs.catalog import default_software
from dse.designs.records import N_DEVICES, OF_MONEY
from dse.errors import InputError
from dse.io import toml
from dse.lab.page.model import value_text
from dse.lab.page.program import leaf_values
from dse.lab.page.table import DesignTable, PageColumn, column_of
from dse.spec import Axis
from dse.spec.space import ANY_OPTION
from dse.sweep import Grid
from dse.sweep.grid import compose, structures
from dse.sweep.grid.grid import variable_name
from dse.sweep.results.labels import labels
from dse.sweep.results.rebuilding import indices_at, labels_at
from dse.tools import TOOLS
from dse.types import Design

#: Leaves that a line always sets, so that nothing is derived from the others.
_EXPLICIT_LEAVES = (N_DEVICES, "mapping.dp")

#: Catalogue names with options of a command line.
_NAMES = ("workload", "system", "accelerator", "software")

#: Sections of a specification without effect on a single design.
_SWEEP_SECTIONS = ("axes", "search", "output", "zip")


class LineChoice(NamedTuple):
    """A leaf that differs between designs."""

    codes: np.ndarray  #: position in ``texts`` per design
    texts: tuple[str, ...]  #: words of a command line, "" for a default


class LineGroup(NamedTuple):
    """Designs with the same catalogue names."""

    names: str  #: options for the names, and for common differences
    plain: tuple[int, ...]  #: position of the default per choice, or -1
    why: str = ""  #: reason without a line
    absent: tuple[str, ...] = ()  #: axes in TOML of absent leaves


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of a page; empty where unknown."""

    groups: tuple[LineGroup, ...] = ()
    group: np.ndarray | None = None  #: position in ``groups`` per design
    choices: tuple[LineChoice, ...] = ()
    serving: bool = False
    tools: tuple[str, ...] = ()  #: tools that launch such designs
    toml: str = ""  #: a specification without its axes
    axes: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  #: (axis in TOML, column, each value of the column in TOML)
    why: str = ""  #: reason without lines


def build(table: DesignTable) -> Lines:
    """Return the lines of the designs of a table, or the reason why there are none."""
    if table.spec is None:
        return Lines(why="the results carry no valid specification")
    tools = tuple(name for name, tool in TOOLS.items() if tool.study == table.study.name and not tool.stack_tool)
    why = ""
    for spec in (table.spec, dataclasses.replace(table.spec, any_option=True)):  # with --any-option if needed
        try:
            candidate_table = dataclasses.replace(table, spec=spec)
            toml_head, axes = _specification(candidate_table)
            return Lines(*_options(candidate_table), table.study.name == "serving", tools, toml_head, axes)
        except InputError as error:
            why = why or str(error)
    return Lines(why=why)


# Specification of one design


def _specification(table: DesignTable) -> tuple[str, tuple[tuple[str, str, tuple[str, ...]], ...]]:
    """Return the TOML text before ``[axes]``, and the axes: (key in TOML, column, values in TOML)."""
    assert table.spec is not None
    document = toml.parse(table.spec.text, table.spec.file)
    sections = {key: value for key, value in document.items() if key not in _SWEEP_SECTIONS}
    if table.spec.any_option:
        sections["software"] = {**sections.get("software", {}), ANY_OPTION: True}
    groups = dict.fromkeys(table.spec.groups, True)
    text = tomlkit.dumps(sections | ({"output": groups} if groups else {}))
    columns = {column.name: column for column in table.columns if column.kind == "axis"}
    axes = []
    for axis in table.spec.axes:
        name = variable_name(axis)
        column = columns.get(name) or _constant_column(table, name)
        if column is not None:
            axes.append((_key(axis), name, _literals(column)))
    return text, tuple(axes)


def _key(axis: Axis) -> str:
    """Return the name of an axis as a TOML key, in quotes where it needs them."""
    return tomlkit.key(axis.name).as_string() if "." not in axis.name else f'"{axis.name}"'


def _constant_column(table: DesignTable, name: str) -> PageColumn | None:
    """Return the column of an axis with one value on the page, None for an axis that the results lack."""
    if name not in table.results.variables:
        return None
    variable = table.results.variables[name]
    distinct_values = np.unique(variable.values)[-1:]
    return column_of(name, "axis", np.zeros(0), variable.attrs, texts=("",), distinct_values=distinct_values)


def _literals(column: PageColumn) -> tuple[str, ...]:
    """Return the distinct values of an axis as TOML texts."""
    assert column.distinct_values is not None
    values = [value.item() for value in column.distinct_values]
    if column.path not in all_leaves() or isinstance(values[0], bool | str):
        return tuple(tomlkit.item(value).as_string() for value in values)
    return tuple(
        tomlkit.item(text).as_string() if not _is_number(text) else text
        for text in (value_text(column.path, float(value)) for value in values)
    )


# Options of a command line


def _options(table: DesignTable) -> tuple[tuple[LineGroup, ...], np.ndarray, tuple[LineChoice, ...]]:
    """Return the fields ``groups``, ``group`` and ``choices`` of :class:`Lines`."""
    assert table.spec is not None
    grid = compose.build(table.spec)
    index = indices_at(table.results, table.rows, grid, {interval.path for interval in table.intervals})
    values = _values(table, grid, index)
    group, group_names = _catalog_groups(table, grid)
    varying, fixed = {}, {}
    plain: dict[str, Any] = {}
    for structure_grid in reversed(grid.structure_grids):
        plain |= leaf_values(table.study.complete(structure_grid.base))
    for path, value in plain.items():
        column = values.get(path)
        if column is None or (np.float32(column) == np.float32(column[0])).all():
            fixed[path] = value if column is None else column[0]
        else:
            varying[path] = column
    varying = {path: column for path, column in varying.items() if not path.startswith(table.study.ignored_leaves)}
    codes = {path: np.unique(column, return_inverse=True) for path, column in varying.items()}
    groups = []
    for i, names in enumerate(group_names):
        row = int(np.flatnonzero(group == i)[0])
        ((_, row_grid, _),) = grid.by_structure(index[[row]])
        absent = tuple(map(_key, structures.absent_axes(grid.spec, row_grid.spec)))
        if "software" not in {axis.key for dimension in grid.dimensions for axis in dimension.axes}:
            names = names | {axis.key: str(axis.labels[0]) for axis in row_grid.fixed if axis.key == "software"}
        groups.append(_group(table, names, fixed, codes, row)._replace(absent=absent))
    choices = []
    for path, (distinct_values, code) in codes.items():
        texts = ("" if np.isnan(value) else option_words(path, float(value)) for value in distinct_values)
        choices.append(LineChoice(code.reshape(-1), tuple(texts)))
    return tuple(groups), group, tuple(choices)


def _values(table: DesignTable, grid: Grid, index: np.ndarray) -> dict[str, np.ndarray]:
    """Return leaf path → its values [design], for all leaves of axes."""
    real = {interval.path for interval in table.intervals}
    values = grid.values(index)
    for dimension in grid.dimensions:
        for axis in dimension.axes:
            if axis.key in real:
                values[axis.key] = labels_at(table.results, table.rows, grid, axis)
    return values


def _catalog_groups(table: DesignTable, grid: Grid) -> tuple[np.ndarray, list[dict[str, str]]]:
    """Return the index of each design's catalogue names in a list [design], and that list: option → name."""
    axes = [*grid.fixed, *itertools.chain(*(dimension.axes for dimension in grid.dimensions))]
    axes = [axis for axis in axes if axis.key in _NAMES]
    key = np.zeros(table.size, np.int64)
    columns = {}
    for axis in axes:
        is_varied = len(axis.labels) > 1
        axis_labels = labels_at(table.results, table.rows, grid, axis) if is_varied else labels(axis)[:1]
        columns[axis.key] = np.broadcast_to(np.asarray(axis_labels).astype(str), table.size)
        _, code = np.unique(columns[axis.key], return_inverse=True)
        _, key = np.unique(key * (code.max(initial=0) + 1) + code, return_inverse=True)
    _, first = np.unique(key, return_index=True)
    return key, [{name: str(column[row]) for name, column in columns.items()} for row in first]


def _group(
    table: DesignTable, names: dict[str, str], fixed: dict[str, Any], codes: dict[str, Any], row: int
) -> LineGroup:
    """Return the options of a group of designs, verified for that of ``row``, or the reason why there are none."""
    groups, why = [], "no name of the catalogue stands for its machine"
    for system in dict.fromkeys(names[key] for key in ("system", "accelerator") if key in names):
        try:
            group = _group_options(table, names, system, fixed, codes)
            _check_line(table, names, system, group, fixed, codes, row)
            groups.append(group)
        except InputError as error:
            why = error.got
    no_line = LineGroup("", (), f"{why}; take the TOML instead")
    return min(groups, key=lambda group: _word_count(group, codes, row), default=no_line)


def _word_count(group: LineGroup, codes: dict[str, Any], row: int) -> int:
    """Return the count of words of the line of the design of ``row``."""
    n_changes = sum(
        code.reshape(-1)[row] != plain for (_, code), plain in zip(codes.values(), group.plain, strict=True)
    )
    return len(shlex.split(group.names)) + 2 * n_changes


def _group_options(
    table: DesignTable, names: dict[str, str], system: str, fixed: dict[str, Any], codes: dict[str, Any]
) -> LineGroup:
    """Return the options of a group by its differences from the defaults of catalogue names, not verified."""
    assert table.spec is not None
    plain = leaf_values(_design(table, names, system))
    words = ["-w", names["workload"], "-s", system]
    if names["software"] != default_software(system, serving=table.study.name == "serving", workload=names["workload"]):
        words += ["--software", names["software"]]
    if table.spec.any_option:
        words.append("--any-option")
    text = " ".join(map(shlex.quote, words))
    for path, value in fixed.items():
        if path in _EXPLICIT_LEAVES or (
            not path.startswith(table.study.ignored_leaves) and not _equal(value, _value_or_default(plain, path))
        ):
            text += f" {option_words(path, float(_checked_value(path, value)))}"
    plain_positions = tuple(
        -1
        if path in _EXPLICIT_LEAVES
        else next((i for i, v in enumerate(distinct_values) if _equal(v, _value_or_default(plain, path))), -1)
        for path, (distinct_values, _) in codes.items()
    )
    return LineGroup(text, plain_positions)


def _check_line(
    table: DesignTable,
    names: dict[str, str],
    system: str,
    group: LineGroup,
    fixed: dict[str, Any],
    codes: dict[str, Any],
    row: int,
) -> None:
    """Check that the line of the design of ``row`` gives that design.

    Raises:
        InputError: for a line that gives another one.
    """
    expected = {
        **{path: value for path, value in fixed.items() if not path.startswith(table.study.ignored_leaves)},
        **{path: distinct_values[code.reshape(-1)[row]] for path, (distinct_values, code) in codes.items()},
    }
    expected = {
        path: value for path, value in expected.items() if not np.isnan(value).any()
    }  # leaves of other structures
    changes = [option_words(path, float(expected[path])) for path in codes if path in expected]
    _, settings = words_and_settings(" ".join([group.names, *changes]))
    actual = leaf_values(_design(table, names, system, settings))
    mismatches = [path for path, value in expected.items() if not _equal(value, _value_or_default(actual, path))]
    optional = tuple(f"{record}." for record in OF_MONEY)
    mismatches += [
        path
        for path, value in actual.items()
        if path not in expected
        and not path.startswith(table.study.ignored_leaves)
        and not path.startswith(optional)
        and not _equal(value, all_leaves().get(path, {}).get("default"))
    ]
    if mismatches:
        raise InputError("line", f"no option says {mismatches[0]}", "the options of a design", "take the TOML")


def _design(table: DesignTable, names: dict[str, str], system: str, settings: dict[str, str] | None = None) -> Design:
    """Return the complete design of catalogue names and settings, as a command line would."""
    assert table.spec is not None
    texts = settings or {}
    values: dict[str, Any] = {name: float(text) if _is_number(text) else text for name, text in texts.items()}
    devices = values.pop("n_devices", None)
    line_design = design(
        names["workload"], system, names["software"], devices and int(devices), "line", table.spec.any_option, **values
    )
    return table.study.complete(line_design)


def words_and_settings(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a command line without its settings, and these: name → text, ``n_devices`` of ``-n``.

    Args:
        text: names and options, as :func:`option_words` writes them.
    """
    words, settings = list[str](), dict[str, str]()
    remaining = iter(shlex.split(text))
    for word in remaining:
        if word == "--set":
            name, _, settings[name] = next(remaining).partition("=")
        elif word == "-n":
            settings["n_devices"] = next(remaining)
        else:
            words.append(word)
    return words, settings


# Leaves


def _value_or_default(values: dict[str, Any], path: str) -> Any:
    """Return the value of a path in values, the default of the leaf where it is absent, None for no leaf."""
    return values[path] if path in values else all_leaves().get(path, {}).get("default")


def _equal(first: Any, second: Any) -> bool:
    """Return whether two values are equal in single precision; None equals None alone."""
    if first is None or second is None:
        return first is second
    return np.shape(first) == np.shape(second) and bool(np.all(np.float32(first) == np.float32(second)))


def _checked_value(path: str, value: Any) -> Any:
    """Return ``value``, or raise InputError where ``path`` is no leaf."""
    if path not in all_leaves():
        raise InputError("line", f"no option says {path}", "leaves of a design", "take the TOML")
    return value


def option_words(path: str, value: float) -> str:
    """Return the text of a command line that sets a leaf: ``-n N`` or ``--set NAME=VALUE``."""
    if path == N_DEVICES:
        return f"-n {value:.0f}"
    return f"--set {shlex.quote(f'{_leaf_name(path)}={value_text(path, value)}')}"


@functools.cache
def _leaf_name(path: str) -> str:
    """Return the short name of a leaf."""
    name = short_name(path)
    assert leaf_path(name) == path
    return name


def _is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
