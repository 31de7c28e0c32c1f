"""Sections of specifications as pydantic models; errors have four parts."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from dse.designs import is_integer
from dse.designs.leaves import MAX_COUNT, is_number
from dse.errors import InputError, unknown_name


class Section(BaseModel):
    """A table of a specification. A field's ``description`` says what is allowed, its ``title`` the usual fix."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _checking(fits: Callable[[Any], bool], allowed: str) -> BeforeValidator:
    """Return a pydantic validator that raises InputError, ``allowed`` in it, where ``fits`` of the value is false."""

    def check(value: Any) -> Any:
        if not fits(value):
            raise InputError("", repr(value), allowed, "leave it out for the default")
        return value

    return BeforeValidator(check)


#: Largest number of a specification: its square fits in single precision.
LARGEST = 1e18


def bounded_integer(least: int, most: int) -> Any:
    """Return the annotated type, for pydantic, of an integer from ``least`` to ``most``, both included."""
    return Annotated[int, _checking(lambda v: is_integer(v, least, most), f"a whole number, {least:,} to {most:,}")]


PositiveCount = bounded_integer(1, MAX_COUNT)
NaturalCount = bounded_integer(0, MAX_COUNT)
Positive = Annotated[
    float, _checking(lambda v: is_number(v) and 0 < v <= LARGEST, f"a number above 0, up to {LARGEST:g}")
]
Truth = Annotated[bool, _checking(lambda v: isinstance(v, bool), "true or false")]

Model = TypeVar("Model", bound=Section)


def checked(model: type[Model], table: Any, where: str) -> Model:
    """Return a table as a validated section of class ``model``.

    Args:
        model: the section's class.
        table: from the TOML document.
        where: file and section, ``search.toml: search``.

    Raises:
        InputError: for the first fault, unknown keys before others, and for a value that is no table.
    """
    try:
        if isinstance(table, dict):
            return model.model_validate(table)
    except ValidationError as error:
        raise _input_error(error, model, where) from None
    raise _no_table(where, table)


def _no_table(where: str, got: Any) -> InputError:
    """Return the InputError of a value in place of a table."""
    return InputError(where, repr(got), "a table", f"write [{where.rpartition(' ')[2]}] on a line of its own")


def _input_error(error: ValidationError, model: type[Section] | None, where: str) -> InputError:
    """Return the first fault of a validation as an InputError, unknown keys before others."""
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    field = None
    for key in problem["loc"]:
        fields = None if model is None else model.model_fields
        if fields is None or (key not in fields and problem["type"] != "extra_forbidden"):
            break
        if key not in fields:
            return unknown_name(where, str(key), fields, f"keys of [{where.rpartition(' ')[2]}]")
        field, where = fields[key], f"{where}.{key}"
        model = _section_of(field.annotation)
    inner_error = problem.get("ctx", {}).get("error")
    if isinstance(inner_error, InputError):
        suggestion = (
            field.title if field and field.title and not inner_error.fix.startswith("did you mean") else inner_error.fix
        )
        return InputError(where, inner_error.got, inner_error.allowed, suggestion)
    if model is not None:
        return _no_table(where, problem["input"])
    allowed, fix = (field.description, field.title) if field else (None, None)
    return InputError(where, repr(problem["input"]), allowed or problem["msg"], fix or "leave it out for the default")


def _section_of(kind: Any) -> type[Section] | None:
    """Return the section class in the type of a field, None for other types."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, Section)), None)


def option_text(option: str, fixed: Mapping[str, Any]) -> str:
    """Return an option as text with its settings as the command line has them, the bare option for none.

    Args:
        option: of the command line.
        fixed: name → value.

    >>> option_text("--train", {"tp": 4, "overlap_tp": True})
    '--train tp=4 --train overlap_tp=true'
    """
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fixed.items()}
    return " ".join(f"{option} {name}={value}" for name, value in values.items()) or option


@contextlib.contextmanager
def errors_of_option(option: str, fixed: Mapping[str, Any]) -> Iterator[None]:
    """In the context, raise InputErrors of axes that an option fixes with option and settings as their place."""
    try:
        yield
    except InputError as error:
        file, _, axis = error.where.partition("axes")
        name = axis.lstrip(".").partition("[")[0]
        if not fixed or not (name in fixed or error.where == f"{file}axes"):
            raise
        got = f"{name}, which the command sets" if error.got.endswith(" twice") else error.got
        suggestion = error.fix.partition("; --")[0]  # without options of other commands
        fix = suggestion if name and got == error.got and "divisors" not in suggestion else "leave it out"
        options = {name: fixed[name]} if name else fixed
        raise InputError(option_text(option, options), got, error.allowed, fix) from None
