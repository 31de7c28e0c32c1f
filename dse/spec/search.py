"""Search specifications: a sweep specification with continuous axes and a section ``[search]``.

Everything but those two is parsed by :mod:`dse.spec.sweep`. A continuous axis stands in the sweep as an axis with
one value, its lower end, so that grids, mappings and catalogue names are what they are for a sweep. The sweep of a
descent is that of mappings and workloads alone: its continuous axes and their limits are the method's.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, create_model, field_validator

from dse.doors import Study
from dse.errors import InputError, unknown_name
from dse.io import toml
from dse.spec import codesign, continuous, sweep as sweep_spec
from dse.spec.codesign import DESCENT, Descent, DescentSection
from dse.spec.continuous import Interval, Limit
from dse.spec.document import Positive, PositiveCount, Section, Truth, bounded_integer, checked
from dse.spec.sweep import SweepSpec

#: Method → its options and what they are when they are not given; :mod:`dse.optimizers.methods` says what they do.
METHOD_OPTIONS: Mapping[str, dict[str, int | float | str]] = {
    "random": {"population": 64},
    "evolution": {"population": 32, "best_share": 0.2},
    "annealing": {"walkers": 16, "temperature": 0.1, "steps": 200},
    "relaxed": {
        "starts": 16,
        "temperature": 0.1,
        "steps": 200,
        "rate": 0.1,
        "guided": 0.5,
        "optimizer": "adam",
        "schedule": "exponential",
    },
    "nsga2": {"population": 64},
}

#: Chains of optax that the relaxed gradient may follow (``optax.scale_by_NAME``, or plain descent), and its schedules.
OPTIMIZERS = ("adam", "amsgrad", "lion", "rms", "sgd", "yogi")
SCHEDULES = ("exponential", "cosine", "linear")

#: Name of an option that is a word → the words that it may be.
_WORDS = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}

#: Methods that a specification may name.
METHODS = (*METHOD_OPTIONS, DESCENT)

#: Options that say how many designs a method evaluates a step.
BATCHES = ("population", "walkers", "starts")

#: Designs that a method may look at in one step, and seeds that may go side by side.
MOST_A_STEP, MOST_SEEDS = 100_000, 1_000
_COUNT = bounded_integer(1, MOST_A_STEP)

#: Name of a specification in errors where it is a dictionary.
_NAME = "specification"

DEFAULT_METHOD = "evolution"
DEFAULT_EVALUATIONS = 10_000
DEFAULT_SEEDS = 4


def _options_section(name: str, options: Mapping[str, int | float | str]) -> type[Section]:
    """Return a section class with the options of a method as fields, and their defaults."""

    def kind(key: str, value: int | float | str) -> Any:
        """Return the type of the field of an option, by its default."""
        if isinstance(value, str):
            return Literal[_WORDS[key]]
        return _COUNT if isinstance(value, int) else Positive

    fields: dict[str, Any] = {
        key: (kind(key, value), Field(value, title=f"leave it out for {value}")) for key, value in options.items()
    }
    return create_model(f"Options of {name}", __base__=Section, **fields)


class _SearchFields(Section):
    """What ``[search]`` says besides the options of methods."""

    method: tuple[str, ...] = Field((DEFAULT_METHOD,), description=", ".join(METHODS), title="name a method")
    evaluations: PositiveCount | None = None
    seconds: Positive | None = None
    seeds: tuple[int, ...] = Field(
        tuple(range(DEFAULT_SEEDS)),
        title="write seeds = 4",
        description=f"a count up to {MOST_SEEDS:,}, or a list of at most as many different whole numbers below 2^32",
    )
    polish: Truth = True

    @field_validator("method", mode="before")
    @classmethod
    def _method_names(cls, value: Any) -> Any:
        """Return the names of methods as a tuple, from a name or a list; InputError for unknown or repeated ones."""
        names = value if isinstance(value, list) else [value]
        for name in names:
            if not isinstance(name, str) or name not in METHODS:
                raise unknown_name("", str(name), METHODS, "methods")
            if names.count(name) > 1:
                raise InputError("", f"{name} twice", "each method once", "remove one of them")
        if DESCENT in names and len(names) > 1:
            allowed = f"{DESCENT} alone: it seeks one chip for all workloads, others one design"
            raise InputError("", ", ".join(names), allowed, "write a specification of its own for it")
        if not names:
            raise ValueError("no method")
        return tuple(names)

    @field_validator("seeds", mode="before")
    @classmethod
    def _seed_list(cls, value: Any) -> Any:
        """Return seeds as a tuple, from a count (0, 1, …) or a list of them; ValueError for anything else."""
        if type(value) is int and 1 <= value <= MOST_SEEDS:
            return tuple(range(value))
        is_list_of_seeds = isinstance(value, list) and all(type(seed) is int and 0 <= seed < 1 << 32 for seed in value)
        if not is_list_of_seeds or not 1 <= len(value) <= MOST_SEEDS or len(set(value)) != len(value):
            raise ValueError("no seeds")
        return tuple(value)


_tables: dict[str, Any] = {
    name: (_options_section(name, options) | None, None) for name, options in METHOD_OPTIONS.items()
}
_tables[DESCENT] = (DescentSection | None, None)
#: ``[search]`` with a table of options a method.
SearchSection = create_model("SearchSection", __base__=_SearchFields, **_tables)


@dataclasses.dataclass(frozen=True)
class SearchSpec:
    """A checked search specification."""

    sweep: SweepSpec  #: everything but the continuous axes, which have one value in it, and ``[search]``
    intervals: tuple[Interval, ...]
    methods: tuple[str, ...]
    options: dict[str, dict[str, Any]]  #: by method
    evaluations: int | None  #: budget of each seed of each method
    seconds: float | None  #: budget of each method
    seeds: tuple[int, ...]
    polish: bool
    limits: tuple[Limit, ...] = ()  #: of the continuous axes of a descent, and of what a chip may cost
    section: str = f"search.{DESCENT}"  #: where the options of a descent stand

    @property
    def descends(self) -> bool:
        """True for a search that moves continuous hardware by its gradient."""
        return DESCENT in self.methods

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes, as texts, on values whose units were assumed, each once."""
        end_notes = (*(interval.note for interval in self.intervals), *(limit.note for limit in self.limits))
        return tuple(dict.fromkeys((*self.sweep.notes, *filter(None, end_notes))))

    def hash(self) -> str:
        """Return the SHA-256, in hexadecimal, of the document without title, ``[output]`` and ``[search]``."""
        return self.sweep.hash_without("title", "output", "search")


def read(spec: str | Path | Mapping[str, Any], study: Study | None = None) -> SearchSpec:
    """Return the search specification in a TOML file, ``example:NAME`` or a dictionary, in SI units.

    Args:
        spec: path of the file, or its sections as a dictionary (:func:`dse.spec.sweep.read`).
        study: what is evaluated; by default what the specification asks for.

    Returns:
        The checked specification: the sweep that its grid is, continuous axes, methods and their options.

    Raises:
        InputError: for any fault of the file or its text.

    >>> read("sweeps/search_gpt3_mapping.toml").methods
    ('random', 'evolution', 'annealing', 'relaxed')
    """
    search = from_text(sweep_spec.text_of(spec, _NAME), sweep_spec.name_of(spec, _NAME), study)
    return dataclasses.replace(search, sweep=sweep_spec.named_by_title(search.sweep, spec))


def from_text(text: str, file: str = "search.toml", study: Study | None = None) -> SearchSpec:
    """Return the search specification in a TOML text, in SI units.

    Args:
        text: the TOML document.
        file: what errors call it; it names the default output too.
        study: see :func:`read`.

    Returns:
        The checked specification: see :func:`read`.

    Raises:
        InputError: for any fault of the text.

    >>> spec = from_text('''
    ... [workload]
    ... name = "gpt-3-13b"
    ... [system]
    ... name = "selene"
    ... [axes]
    ... tp = [1, 2, 4]
    ... "memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", continuous = true }
    ... [search]
    ... method = ["random", "evolution"]
    ... ''')
    >>> spec.methods, spec.intervals[0].high, spec.options["random"]
    (('random', 'evolution'), 3000000000000.0, {'population': 64})
    """
    document = copy.deepcopy(toml.parse(text, file))
    if codesign.SECTION in document:
        return _codesign(document, text, file, study)
    section = checked(SearchSection, document.pop("search", {}), f"{file}: search")
    tables: dict[str, dict[str, Any]] = {}
    if isinstance(document.get("axes"), dict):
        continuous.extract_continuous(document["axes"], "", tables, lower_ends=DESCENT not in section.method)
    sweep = sweep_spec.from_document(document, text, file, study)
    if DESCENT in section.method:
        intervals = tuple(continuous.variable(name, table, f"{file}: axes.{name}") for name, table in tables.items())
        return _descent_search(sweep, Descent(_options(section, file)[DESCENT], intervals, ()), section)
    budget = section.evaluations, section.seconds
    return SearchSpec(
        sweep=sweep,
        intervals=tuple(
            continuous.interval(name, table, sweep, f"{file}: axes.{name}") for name, table in tables.items()
        ),
        methods=section.method,
        options=_options(section, file),
        evaluations=DEFAULT_EVALUATIONS if budget == (None, None) else section.evaluations,
        seconds=section.seconds,
        seeds=section.seeds,
        polish=section.polish,
    )


def _codesign(document: dict[str, Any], text: str, file: str, study: Study | None) -> SearchSpec:
    """Return the search by descent that a section ``[codesign]`` of a parsed document describes."""
    if "search" in document:
        got, fix = f"[search] beside [{codesign.SECTION}]", f"write [search.{DESCENT}], or leave [search] out"
        raise InputError(f"{file}: search", got, "one of them", fix)
    descent = codesign.read(document.pop(codesign.SECTION), file)
    section = checked(SearchSection, {"method": DESCENT}, f"{file}: search")
    spec = _descent_search(sweep_spec.from_document(document, text, file, study), descent, section)
    return dataclasses.replace(spec, section=codesign.SECTION)


def _descent_search(sweep: SweepSpec, descent: Descent, section: _SearchFields) -> SearchSpec:
    """Return a search by descent, with limits taken out of the constraints of the sweep.

    InputError for keys of ``[search]`` that belong to other methods.
    """
    for key in ("seeds", "polish"):
        if key in section.model_fields_set:
            fix = f"write seed under [search.{DESCENT}]" if key == "seeds" else "leave it out"
            raise InputError(f"{sweep.file}: search.{key}", "a key of other methods", "evaluations, seconds", fix)
    limits, constraints = continuous.limits(sweep.constraints, tuple(interval.path for interval in descent.intervals))
    return SearchSpec(
        sweep=dataclasses.replace(sweep, constraints=tuple(constraints)),
        intervals=descent.intervals,
        methods=section.method,
        options={DESCENT: descent.options},
        evaluations=section.evaluations,
        seconds=section.seconds,
        seeds=(descent.options.get("seed", 0),),
        polish=False,
        limits=(*descent.limits, *limits),
    )


def _options(section: _SearchFields, file: str) -> dict[str, dict[str, Any]]:
    """Return method → its options, for the methods that are run; InputError for options of others."""
    options = {}
    for name in METHODS:
        table = getattr(section, name)
        if table is not None and name not in section.method:
            where, fix = f"{file}: search.{name}", f'add "{name}" to method'
            raise InputError(where, "options of a method that is not run", ", ".join(section.method), fix)
        if name in section.method:
            options[name] = dict(METHOD_OPTIONS.get(name, {}))
            if table:
                options[name] = table.options if name == DESCENT else table.model_dump()
    return options
