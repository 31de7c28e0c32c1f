"""Sweep specifications: TOML text to a checked :class:`SweepSpec`.

Only what the text alone can tell is checked here; what fits a workload and a system
is :mod:`dse.sweep.grid.mappings`' business. All values are SI from here on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse import inputs, toml
from dse.designs import MOST, is_whole, known_leaves, told_reading
from dse.errors import InputError, nearest, unknown_name
from dse.records import CHIP, LEAVES_OF_SERVING
from dse.spec import axes as axis_values
from dse.spec.axes import Axis
from dse.spec.expression import Expression, parse
from dse.studies import of_document
from dse.study import Study
from dse.types.metrics import GROUPS

#: What a catalogue name may stand for → the kind of its entry and the path of the record it fills.
NAMED = {
    "workload": ("workload", "workload"),
    "system": ("system", "system"),
    "accelerator": ("accelerator", "system.accelerator"),
    "node": ("node", f"{CHIP}.node"),
    "memory": ("memory", f"{CHIP}.memory"),
    "scale_up": ("network", "system.scale_up"),
    "scale_out": ("network", "system.scale_out"),
    "software": ("software", "software"),
}

#: Section → the names it may give; ``name`` is the section's own.
_SECTIONS = {
    "workload": {"name": "workload"},
    "system": {
        "name": "system",
        "accelerator": "accelerator",
        "node": "node",
        "memory": "memory",
        "scale_up": "scale_up",
        "scale_out": "scale_out",
    },
    "software": {"name": "software"},
    "mapping": {},
    "serving": {},
}

#: Key of ``[software]`` that lets mappings ask for what the stack lacks.
ANY_OPTION = "any_option"

#: Section → the keys of its own; leaves and catalogue names are keys of some besides.
KEYS = {
    **{section: tuple(own) for section, own in _SECTIONS.items()},
    "software": ("name", ANY_OPTION),
    "axes": (),
    "zip": ("groups",),
    "constraints": ("all",),
    "objective": ("minimize", "maximize"),
    "output": ("keep", "file", "limit", "compression", "histogram", *GROUPS),
}
#: Sections that only ``dse pools`` reads.
_OF_POOLS = ("prefill", "decode", "together", "pools")
COMPRESSIONS = ("auto", "zstd", "zlib", "none")
KEEP_MODES = ("all", "feasible", "best", "pareto", "top")

#: Bins that a histogram may have.
FEWEST_BINS, MOST_BINS = 4, 256

#: Designs that may be kept unless the specification says another number.
DEFAULT_LIMIT = 5_000_000


@dataclasses.dataclass(frozen=True)
class Objective:
    """An expression of metrics and leaves that is minimised (sign 1) or maximised (sign -1: it is negated)."""

    expression: Expression
    sign: float


@dataclasses.dataclass(frozen=True)
class Keep:
    """Which designs end up in the results: a mode, and for ``top`` how many."""

    mode: str = "all"
    count: int = 0

    def __str__(self) -> str:
        return f"top:{self.count}" if self.mode == "top" else self.mode


@dataclasses.dataclass(frozen=True)
class SweepSpec:
    """A checked sweep specification."""

    study: Study
    file: str  #: as errors name it
    text: str
    title: str
    names: dict[str, Axis]  #: fixed catalogue names, one value each, by what they stand for
    fixed: dict[str, Axis]  #: fixed leaves, one value each, by full path
    axes: tuple[Axis, ...]
    zips: tuple[tuple[str, ...], ...]  #: names of axes that move together
    constraints: tuple[Expression, ...]
    objectives: tuple[Objective, ...]
    keep: Keep
    output: Path
    limit: int
    compression: str
    histogram: int = 0  #: bins of every objective's histogram, 0 for none
    any_option: bool = False  #: whether options are offered that the stack lacks
    groups: tuple[str, ...] = ()  #: groups of metrics that are wanted besides: of energy and power, money, carbon, runs

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that results hold, in the model's order."""
        left_out = frozenset().union(*(self.study.group(name) for name in GROUPS if name not in self.groups))
        return tuple(name for name in self.study.units if name not in left_out)

    @property
    def notes(self) -> tuple[str, ...]:
        """How values without their units were read, in words."""
        read = (axis.note for axis in (*self.fixed.values(), *self.axes) if axis.note)
        return (*read, *dict.fromkeys(note for constraint in self.constraints for note in constraint.notes))

    def hash(self) -> str:
        """SHA-256 of what the sweep computes; title and output do not count."""
        document = toml.parsed(self.text, self.file)
        meaning = {key: value for key, value in document.items() if key not in ("title", "output")}
        meaning |= dict.fromkeys(self.groups, True)
        return hashlib.sha256(json.dumps(meaning, sort_keys=True, default=str).encode()).hexdigest()


def read(path: str | Path, study: Study | None = None) -> SweepSpec:
    """The specification in a TOML file.

    Args:
        path: of the file.
        study: what is evaluated; by default what the specification asks for.

    Returns:
        The checked specification, all values in SI units.

    Raises InputError for whatever is wrong with the file or its text.
    """
    return from_text(text_of(path), str(path), study)


def text_of(path: str | Path) -> str:
    """The text of a specification's file; one that cannot be read is an InputError."""
    if not isinstance(path, str | os.PathLike):
        fix = "write the specification to a file, or read its text by dse.sweep.from_text"
        raise InputError("specification", type(path).__name__, "the path of a TOML file", fix)
    path = Path(path)
    try:
        return inputs.text(path, "a TOML file")
    except (OSError, UnicodeDecodeError) as error:
        near = nearest(path.name, [p.name for p in path.parent.glob("*.toml")])
        fix = f"did you mean {path.parent / near[0]}?" if near else "give the path of a sweep specification"
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(str(path), reason, "a readable TOML file", fix) from None


def from_text(text: str, file: str = "sweep.toml", study: Study | None = None) -> SweepSpec:
    """The specification in a TOML text.

    Args:
        text: the TOML document.
        file: what errors call it; it names the default output too.
        study: see :func:`read`.

    Raises InputError for whatever is wrong with the text.

    >>> spec = from_text('''
    ... [workload]
    ... name = "gpt-3-13b"
    ... [system]
    ... name = "selene"
    ... [axes]
    ... tp = [1, 2, 4]
    ... ''')
    >>> [(axis.name, axis.values) for axis in spec.axes]
    [('tp', (1.0, 2.0, 4.0))]
    """
    return from_document(toml.parsed(text, file), text, file, study)


def from_document(document: dict[str, Any], text: str, file: str, study: Study | None = None) -> SweepSpec:
    """The specification in a parsed TOML text; ``text`` is what results carry and what is hashed."""
    study = study or of_document(document)
    for key in document:
        if key in _OF_POOLS:
            raise InputError(f"{file}: {key}", "a section of pools", "those of a sweep", "run dse pools instead")
        if key not in ("title", *KEYS):
            raise unknown_name(file, key, ("title", *KEYS), "sections")
    for key in set(document) - {"title"}:
        _expect_table(document[key], f"{file}: {key}")
    names, fixed = _fixed(document, file)
    any_option = document.get("software", {}).get(ANY_OPTION, False)
    axes = tuple(_axes(document.get("axes", {}), file))
    _check_conflicts(names, fixed, axes)
    _check_read((*fixed.values(), *axes), study)
    output = document.get("output", {})
    _check_keys(output, KEYS["output"], f"{file}: output")
    constraints = _constraints(document.get("constraints", {}), f"{file}: constraints", study)
    objectives = _objectives(document.get("objective", {}), f"{file}: objective", study)
    used = {*fixed, *(axis.key for axis in axes), *itertools.chain(*(c.names for c in constraints))}
    used.update(*(objective.expression.names for objective in objectives))
    return SweepSpec(
        study=study,
        file=file,
        text=text,
        title=str(document.get("title", Path(file).stem)),
        names=names,
        fixed=fixed,
        axes=axes,
        zips=_zips(document.get("zip", {}), axes, f"{file}: zip"),
        constraints=constraints,
        objectives=objectives,
        keep=parse_keep(output.get("keep", "all"), f"{file}: output.keep"),
        output=Path(str(output.get("file", f"results/{Path(file).stem}.nc"))),
        limit=_limit(output.get("limit", DEFAULT_LIMIT), f"{file}: output.limit"),
        compression=_compression(output.get("compression", "auto"), f"{file}: output.compression"),
        histogram=_histogram(output.get("histogram", 0), f"{file}: output.histogram"),
        any_option=_truth(any_option, f"{file}: software.{ANY_OPTION}", ANY_OPTION),
        groups=tuple(g for g in GROUPS if _wanted(output.get(g), used, f"{file}: output.{g}", study, g)),
    )


def parse_keep(text: Any, where: str) -> Keep:
    """``all feasible best pareto top:K`` as a :class:`Keep`."""
    mode, _, count = str(text).partition(":")
    if mode == "top" and _is_count(count):
        return Keep("top", int(count))
    if mode in KEEP_MODES and mode != "top" and not count:
        return Keep(mode)
    raise InputError(where, repr(text), "all, feasible, best, pareto or top:K", "write top:100 for the best hundred")


def _is_count(text: str) -> bool:
    """Whether a text is a whole number from 1 to what may be kept at all."""
    return text.isdecimal() and len(text) <= len(str(MOST)) and 1 <= int(text) <= MOST


def _expect_table(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise InputError(where, repr(value), "a table", f"write [{where.rpartition(' ')[2]}] on a line of its own")


def _check_keys(table: dict[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise unknown_name(where, key, allowed, "keys")


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested tables (TOML reads ``memory.bandwidth`` as nested); ranges stay whole."""
    for key, value in table.items():
        if isinstance(value, dict) and not axis_values.is_range(value):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _fixed(document: dict[str, Any], file: str) -> tuple[dict[str, Axis], dict[str, Axis]]:
    """Catalogue names and leaves that the sections ``workload system software mapping`` fix."""
    names: dict[str, Axis] = {}
    fixed: dict[str, Axis] = {}
    for section, own in _SECTIONS.items():
        for key, value in flat(document.get(section, {})):
            where = f"{file}: {section}.{key}"
            if (section, key) == ("software", ANY_OPTION):
                continue
            if isinstance(value, list | dict):
                raise InputError(where, repr(value), "a single value", f"move {key} to [axes] to sweep it")
            if key in own:
                names[own[key]] = axis_values.named(own[key], NAMED[own[key]][0], [value], where)
            else:
                path = _leaf_of(section, key, own, where)
                axis = axis_values.listed(path.rpartition(".")[2], path, [value], where)
                fixed[path] = dataclasses.replace(axis, note=told_reading(key, path, value))
    return names, fixed


def _leaf_of(section: str, key: str, own: dict[str, str], where: str) -> str:
    """Full path of a key of a section; a leaf of another section is an InputError."""
    begins = LEAVES_OF_SERVING if section == "serving" else (f"{section}.",)
    inside = [path for path in known_leaves() if path.startswith(begins)]
    path = axis_values.find_leaf(key, where, own, f"keys of [{section}]")
    if path not in inside:
        raise InputError(where, key, f"leaves of [{section}]", f"move it to [{path.partition('.')[0]}]")
    return path


def _axes(table: dict[str, Any], file: str) -> Iterator[Axis]:
    for key, value in flat(table):
        where = f"{file}: axes.{key}"
        if key in NAMED:
            yield axis_values.named(key, NAMED[key][0], value, where)
            continue
        path = axis_values.find_leaf(key, where, NAMED, "leaves of a design and catalogue names", "axes")
        yield axis_values.leaf(key, path, value, where)


def _check_read(axes: tuple[Axis, ...], study: Study) -> None:
    """That the model of a study reads what is said: a leaf that it does not would be swept in vain."""
    for axis in axes:
        if study.unread and axis.key.startswith(study.unread):
            raise InputError(
                axis.where, f"{axis.name}, which {study.name} does not read", f"leaves of {study.name}",
                f"leave it out, or leave out [{study.name}]",
            )  # fmt: skip
        if study.name != "serving" and axis.key.startswith(LEAVES_OF_SERVING):
            raise InputError(
                axis.where, f"{axis.name}, of a model that is served", f"leaves of {study.name}",
                "add a section [serving]",
            )  # fmt: skip


def _check_conflicts(names: dict[str, Axis], fixed: dict[str, Axis], axes: tuple[Axis, ...]) -> None:
    """One thing may be said once: not both fixed and swept, nor swept under two names."""
    said = {axis.key: axis for axis in (*names.values(), *fixed.values())}
    for axis in axes:
        if axis.key in said:
            raise InputError(
                axis.where, f"{axis.name} twice", "each once", f"remove it here or at {said[axis.key].where}"
            )
        said[axis.key] = axis


def _zips(table: dict[str, Any], axes: tuple[Axis, ...], where: str) -> tuple[tuple[str, ...], ...]:
    _check_keys(table, KEYS["zip"], where)
    by_name = {axis.name: axis for axis in axes}
    groups = table.get("groups", [])
    where = f"{where}.groups"
    if not isinstance(groups, list) or not all(isinstance(g, list) and len(g) > 1 for g in groups):
        raise InputError(where, repr(groups), "lists of two or more axes", 'write groups = [["workload", "n_devices"]]')
    members = [str(name) for group in groups for name in group]
    for name in members:
        if name not in by_name:
            raise unknown_name(where, name, by_name, "axes")
        if members.count(name) > 1:
            raise InputError(where, f"{name} twice", "each axis once", "remove one of them")
        if by_name[name].rule:
            raise InputError(
                where,
                f"{name}, which is {by_name[name].rule!r}",
                "axes with listed values",
                f"list the values of {name}",
            )
    for group in groups:
        lengths = {name: len(by_name[name].values) for name in group}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise InputError(
                where,
                f"axes of different lengths ({shown})",
                "equal lengths",
                "list the same number of values for each",
            )
    return tuple(tuple(map(str, group)) for group in groups)


def _constraints(table: dict[str, Any], where: str, study: Study) -> tuple[Expression, ...]:
    _check_keys(table, KEYS["constraints"], where)
    texts = table.get("all", [])
    if not isinstance(texts, list):
        raise InputError(f"{where}.all", repr(texts), "a list of strings", 'write all = ["tp <= 8"]')
    found = tuple(parse(text, f"{where}.all[{i}]", study) for i, text in enumerate(texts))
    for expression in found:
        if not expression.is_comparison:
            raise InputError(expression.where, repr(expression.text), "a comparison", "write what must hold: 'tp <= 8'")
    return found


def _objectives(table: dict[str, Any], where: str, study: Study) -> tuple[Objective, ...]:
    _check_keys(table, KEYS["objective"], where)
    found = []
    for key, sign in (("minimize", 1.0), ("maximize", -1.0)):
        texts = table.get(key, [])
        for text in texts if isinstance(texts, list) else [texts]:
            expression = parse(text, f"{where}.{key}", study)
            if expression.is_comparison:
                raise InputError(
                    expression.where,
                    repr(text),
                    "a number, not a comparison",
                    f"name a metric such as {study.objective}",
                )
            if not set(expression.names) & set(study.units):
                raise InputError(
                    expression.where, repr(text), "an expression with a metric",
                    f"name a metric such as {study.objective}",
                )  # fmt: skip
            found.append(Objective(expression, sign))
    return tuple(found) or (Objective(parse(study.objective, where, study), 1.0),)


def _limit(value: Any, where: str) -> int:
    if is_whole(value):
        return int(value)
    raise InputError(where, repr(value), f"a number of designs, up to {MOST:,}", f"leave it out for {DEFAULT_LIMIT:,}")


def _compression(value: Any, where: str) -> str:
    if value in COMPRESSIONS:
        return value
    raise InputError(where, repr(value), ", ".join(COMPRESSIONS), "leave it out: auto takes the fastest one available")


def _histogram(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and (value == 0 or FEWEST_BINS <= value <= MOST_BINS):
        return value
    raise InputError(where, repr(value), f"{FEWEST_BINS} to {MOST_BINS} bins", "leave it out for no histogram")


def _wanted(value: Any, used: set[str], where: str, study: Study, group: str) -> bool:
    """Whether a group of metrics is wanted: as said, else where the sweep names a metric or leaf of theirs."""
    if value is None:
        metrics, leaves = study.group(group), study.optional.get(group, ())
        return any(name in metrics or name.startswith(leaves) for name in used)
    return _truth(value, where, group)


def _truth(value: Any, where: str, key: str) -> bool:
    if isinstance(value, bool):
        return value
    raise InputError(where, repr(value), "true or false", f"write {key} = true")
