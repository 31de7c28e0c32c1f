"""Sweep specifications: TOML text to a checked :class:`SweepSpec`.

Only faults that the text alone shows are checked here; :mod:`dse.sweep.grid.mappings` checks the fit of workload and
system. All values are SI. :mod:`dse.spec.space` reads the sections that define the designs, :mod:`dse.spec.output`
reads ``[output]``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.doors import Study
from dse.doors.studies import study_of_document
from dse.errors import InputError, nearest, unknown_name
from dse.io import examples, inputs, toml
from dse.spec.axes import Axis
from dse.spec.expression import Expression, parse
from dse.spec.output import (
    DEFAULT_LIMIT,
    Keep,
    is_group_computed,
    parse_keep,
    read_compression,
    read_histogram,
    read_limit,
    read_truth,
)
from dse.spec.space import (
    ANY_OPTION,
    SECTIONS,
    ZIP_KEYS,
    check_conflicts,
    check_keys,
    check_read,
    flat,
    read_axes,
    read_fixed,
    read_zips,
)
from dse.types.metrics import GROUPS

#: Section → its own keys; some sections have leaves and catalogue names as keys too.
KEYS = {
    **{section: tuple(keys) for section, keys in SECTIONS.items()},
    "software": ("name", ANY_OPTION),
    "axes": (),
    "zip": ZIP_KEYS,
    "constraints": ("all",),
    "objective": ("minimize", "maximize"),
    "output": ("keep", "file", "limit", "compression", "histogram", *GROUPS),
}
#: Sections that only ``dse search`` reads → the specifications they belong to.
_SEARCH_SECTIONS = {"search": "searches", "codesign": "co-designs"}
#: Maximum length of a title, in characters.
LONGEST_TITLE = 2_000

#: Maximum length of the name of results that a title gives, in characters.
_LONGEST_NAME = 100

#: Section of a dictionary → its key that a plain value of the section is.
SHORT_FORMS = {"workload": "name", "system": "name", "software": "name", "constraints": "all"}

#: Sections that only ``dse pools`` reads.
_POOL_SECTIONS = ("prefill", "decode", "together", "pools")


@dataclasses.dataclass(frozen=True)
class Objective:
    """An expression of metrics and leaves, minimised (sign 1) or maximised (sign -1: its negative is minimised)."""

    expression: Expression
    sign: float


@dataclasses.dataclass(frozen=True)
class SweepSpec:
    """A checked sweep specification."""

    study: Study
    file: str  #: name of the file in errors
    text: str
    title: str
    names: dict[str, Axis]  #: fixed catalogue names, one value each, by key of ``NAMED``
    fixed: dict[str, Axis]  #: fixed leaves, one value each, by full path
    axes: tuple[Axis, ...]
    zips: tuple[tuple[str, ...], ...]  #: names of axes that move together
    constraints: tuple[Expression, ...]
    objectives: tuple[Objective, ...]
    keep: Keep
    output: Path
    limit: int
    compression: str
    histogram: int = 0  #: bins of each objective's histogram; 0: no histogram
    any_option: bool = False  #: whether options that the software stack lacks are allowed
    groups: tuple[str, ...] = ()  #: groups of optional metrics to compute: energy, cost, carbon, runs

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics in results, in the model's order: all but those of optional groups not computed."""
        left_out = frozenset().union(*(self.study.group(name) for name in GROUPS if name not in self.groups))
        return tuple(name for name in self.study.units if name not in left_out)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes, as texts, on values without units, of fixed leaves, axes and constraints."""
        axis_notes = (axis.note for axis in (*self.fixed.values(), *self.axes) if axis.note)
        return (*axis_notes, *dict.fromkeys(note for constraint in self.constraints for note in constraint.notes))

    def hash(self) -> str:
        """Return the SHA-256, in hexadecimal, of the document without title and ``[output]`` but with metric groups."""
        return self.hash_without("title", "output", **dict.fromkeys(self.groups, True))

    def hash_without(self, *sections: str, **more: bool) -> str:
        """Return the SHA-256, in hexadecimal, of the document without some sections, and of more."""
        document = toml.parse(self.text, self.file)
        hashed_keys = {key: value for key, value in document.items() if key not in sections} | more
        return hashlib.sha256(json.dumps(hashed_keys, sort_keys=True, default=str).encode()).hexdigest()


def read(spec: str | Path | Mapping[str, Any], study: Study | None = None) -> SweepSpec:
    """Return the sweep specification in a TOML file or in a dictionary.

    Args:
        spec: path of the file, ``example:NAME`` for an example of the package, or its sections as a dictionary
            (:func:`text_of`), whose results are ``results/TITLE.nc`` unless ``[output]`` names a file.
        study: the model to evaluate; by default the one that the specification implies.

    Returns:
        The checked specification, all values in SI units.

    Raises:
        InputError: for any fault of the file or its text.

    >>> spec = read("sweeps/megatron_1t_4096_a100.toml")
    >>> spec.study.name, [axis.name for axis in spec.axes][:3]
    ('training', ['n_devices', 'tp', 'pp'])
    >>> read({"title": "a small one", "workload": "gpt-3-13b", "system": "selene", "axes": {"tp": (1, 2)}}).output
    PosixPath('results/a_small_one.nc')
    """
    return named_by_title(from_text(text_of(spec), name_of(spec, "sweep"), study), spec)


def named_by_title(spec: SweepSpec, source: Any) -> SweepSpec:
    """Return a specification whose results have the name of its title, where its source is no file that has one."""
    if not isinstance(source, Mapping) or "file" in source.get("output", {}):
        return spec
    name = re.sub(r"[^\w.+-]+", "_", spec.title).strip("._")[:_LONGEST_NAME]
    return dataclasses.replace(spec, output=Path("results", f"{name or 'sweep'}.nc"))


def name_of(spec: Any, name: str) -> str:
    """Return what errors call a specification: its path, or ``name`` where it is a dictionary."""
    return name if isinstance(spec, Mapping) else str(spec)


def text_of(spec: str | Path | Mapping[str, Any], name: str = "sweep") -> str:
    """Return the TOML text of a specification: of a file, of ``example:NAME``, or of its sections as a dictionary.

    In a dictionary tuples and arrays are lists, ``"workload": "llama-3-70b"`` is its name, and a list of constraints
    is all of them.

    Args:
        spec: path, or dictionary.
        name: of a dictionary in errors.

    Raises:
        InputError: for anything else, for a file that cannot be read, and for what TOML cannot say.

    >>> print(text_of({"workload": "gpt-3-13b", "axes": {"tp": (1, 2)}}), end="")
    [workload]
    name = "gpt-3-13b"
    <BLANKLINE>
    [axes]
    tp = [1, 2]
    """
    if isinstance(spec, Mapping):
        sections = {
            key: value if key not in SHORT_FORMS or isinstance(value, Mapping) else {SHORT_FORMS[key]: value}
            for key, value in spec.items()
        }
        return toml.document_text(sections, name)
    if not isinstance(spec, str | os.PathLike):
        fix = "write its sections as a dictionary, or read its text by dse.sweep.from_text"
        raise InputError("specification", type(spec).__name__, "the path of a TOML file, or a dictionary", fix)
    path = examples.resolve_path(spec)
    return inputs.text(path, "a TOML file", "check the path" if path.exists() else _path_suggestion(path))


def _path_suggestion(path: Path) -> str:
    """Return a suggested fix, as text, for the path of a file that does not exist."""
    if path.stem in examples.names():
        return f"it comes with dse: {examples.PREFIX}{path.stem}"
    near_names = nearest(path.name, [p.name for p in path.parent.glob("*.toml")])
    return (
        f"did you mean {path.parent / near_names[0]}?"
        if near_names
        else "give the path of a specification; see dse examples"
    )


def from_text(text: str, file: str = "sweep.toml", study: Study | None = None) -> SweepSpec:
    """Return the sweep specification in a TOML text.

    Args:
        text: the TOML document.
        file: its name in errors and in the default output.
        study: see :func:`read`.

    Returns:
        The checked specification, all values in SI units.

    Raises:
        InputError: for any fault of the text.

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
    return from_document(toml.parse(text, file), text, file, study)


def _title_of(document: dict[str, Any], file: str) -> str:
    """Return the title of a specification, by default the name of its file; InputError for a too long one."""
    title = str(document.get("title", examples.stem_of(file)))
    if len(title) > LONGEST_TITLE:
        got = f"{len(title):,} letters"
        raise InputError(f"{file}: title", got, f"at most {LONGEST_TITLE:,} letters", "write the rest as a comment")
    return title


def from_document(document: dict[str, Any], text: str, file: str, study: Study | None = None) -> SweepSpec:
    """Return the sweep specification of a parsed TOML document.

    Args:
        document: the parsed text.
        text: stored in results and hashed.
        file: its name in errors and in the default output.
        study: see :func:`read`.

    Raises:
        InputError: for any fault of the document.
    """
    study = study or study_of_document(document)
    serves = study.name == "serving"
    for key in document:
        if key in _POOL_SECTIONS:
            raise InputError(f"{file}: {key}", "a section of pools", "those of a sweep", "run dse pools instead")
        if key in _SEARCH_SECTIONS:
            raise InputError(
                f"{file}: {key}", f"a section of {_SEARCH_SECTIONS[key]}", "those of a sweep", "run dse search instead"
            )
        if key not in ("title", *KEYS):
            raise unknown_name(file, key, ("title", *KEYS), "sections")
    for key in set(document) - {"title"}:
        if not isinstance(document[key], dict):
            raise InputError(f"{file}: {key}", repr(document[key]), "a table", f"write [{key}] on a line of its own")
    names, fixed = read_fixed(document, file, serves)
    any_option = document.get("software", {}).get(ANY_OPTION, False)
    axes = tuple(read_axes(document.get("axes", {}), file, serves))
    check_conflicts(names, fixed, axes)
    check_read((*fixed.values(), *axes), study)
    output = document.get("output", {})
    check_keys(output, KEYS["output"], f"{file}: output")
    constraints = _constraints(document.get("constraints", {}), f"{file}: constraints", study)
    objectives = _objectives(document.get("objective", {}), f"{file}: objective", study)
    names_read = {*fixed, *(axis.key for axis in axes), *itertools.chain(*(c.names for c in constraints))}
    names_read.update(*(objective.expression.names for objective in objectives))
    return SweepSpec(
        study=study,
        file=file,
        text=text,
        title=_title_of(document, file),
        names=names,
        fixed=fixed,
        axes=axes,
        zips=read_zips(document.get("zip", {}), axes, f"{file}: zip", serves),
        constraints=constraints,
        objectives=objectives,
        keep=parse_keep(output.get("keep", "all"), f"{file}: output.keep"),
        output=Path(str(output.get("file", f"results/{examples.stem_of(file)}.nc"))),
        limit=read_limit(output.get("limit", DEFAULT_LIMIT), f"{file}: output.limit"),
        compression=read_compression(output.get("compression", "auto"), f"{file}: output.compression"),
        histogram=read_histogram(output.get("histogram", 0), f"{file}: output.histogram"),
        any_option=read_truth(any_option, f"{file}: software.{ANY_OPTION}", ANY_OPTION),
        groups=tuple(
            g for g in GROUPS if is_group_computed(output.get(g), names_read, f"{file}: output.{g}", study, g)
        ),
    )


def _constraints(table: dict[str, Any], where: str, study: Study) -> tuple[Expression, ...]:
    """Return the constraints of the table ``[constraints]``; InputError where one is not a comparison."""
    _expect_no_key(table, where, study)
    texts = table.get("all", [])
    if not isinstance(texts, list):
        raise InputError(f"{where}.all", repr(texts), "a list of strings", 'write all = ["tp <= 8"]')
    constraints = tuple(parse(text, f"{where}.all[{i}]", study) for i, text in enumerate(texts))
    for expression in constraints:
        if not expression.is_comparison:
            raise InputError(expression.where, repr(expression.text), "a comparison", "write what must hold: 'tp <= 8'")
    return constraints


def _expect_no_key(table: dict[str, Any], where: str, study: Study) -> None:
    """Raise InputError for a leaf as a key of ``[constraints]``, with the constraint as it should be written."""
    leaf_keys = [(key, value) for key, value in flat(table) if key not in KEYS["constraints"]]
    for key, value in leaf_keys[:1]:
        number = f"{value}".lstrip("<>=! ")
        sign = f"{value}".removesuffix(number).strip() or "=="
        is_plain = re.fullmatch(r"[\d.e+-]+", number) or _is_expression(f"{key} {sign} {number}", study)
        right = number if is_plain else f"'{number}'"  # a unit or a choice: a text
        raise InputError(
            where,
            f"{key} = {value!r}",
            "all, a list of comparisons in quotation marks",
            f'write all = ["{key} {sign} {right}"]',
        )


def _is_expression(text: str, study: Study) -> bool:
    """True for a text that parses as an expression of the study."""
    try:
        parse(text, "constraints", study)
    except InputError:
        return False
    return True


def _objectives(table: dict[str, Any], where: str, study: Study) -> tuple[Objective, ...]:
    """Return the objectives of the table ``[objective]``, the study's own by default.

    InputError for comparisons and for expressions without a metric.
    """
    check_keys(table, KEYS["objective"], where)
    objectives = []
    for key, sign in (("minimize", 1.0), ("maximize", -1.0)):
        texts = table.get(key, [])
        for text in texts if isinstance(texts, list) else [texts]:
            expression = parse(text, f"{where}.{key}", study)
            allowed = "a number, not a comparison" if expression.is_comparison else "an expression with a metric"
            if expression.is_comparison or not set(expression.names) & set(study.units):
                fix = f"name a metric such as {study.objective}"
                raise InputError(expression.where, repr(text), allowed, fix)
            objectives.append(Objective(expression, sign))
    return tuple(objectives) or (Objective(parse(study.objective, where, study), 1.0),)
