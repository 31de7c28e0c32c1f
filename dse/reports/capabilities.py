"""A capability: a function of ``dse`` that returns a report, with one declaration of its options for every door."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from dse.errors import InputError, nearest, unknown_name
from dse.io.attachments import attach
from dse.reports.options import REQUIRED, BoundOption, parameters_of
from dse.reports.report import ALL, Report

#: Beginning of the parts of a docstring that are of Python alone.
_OF_PYTHON = re.compile(r"\n\n(?:Args|Returns|Raises):\n|\n\n>>> ")

#: Beginning of a type of fault of pydantic → what is allowed, in words.
_KINDS = {
    "string_": "a text",
    "dict_": "a dictionary",
    "mapping_": "a dictionary",
    "list_": "a list",
    "sequence_": "a list",
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
}

#: Largest number of items of a list in a request.
MOST_ITEMS = 2_000


@dataclasses.dataclass(frozen=True, eq=False)
class Capability:
    """A function of ``dse``, a command, a path of HTTP and a tool of MCP."""

    name: str  #: as a command: ``evaluate``, ``catalog show``
    function: Callable[..., Report]
    panel: str  #: heading of the help: Ask, Serve, Compare with reality, Show, Manage, or one of its own
    local: str = ""  #: reason why HTTP and MCP do not have it
    path: str = ""  #: of HTTP, name of MCP, by default the name
    group_help: str = ""  #: of the group of commands that it begins
    returns: str = ""  #: in Python: ``dataset`` for that of the report, where it has one; "" for the report
    details: tuple[str, ...] | None = None  #: names of the details that its reports may have; None: known afterwards

    @property
    def python(self) -> str:
        """Name in Python: that of the function."""
        return self.function.__name__

    @property
    def key(self) -> str:
        """Name in HTTP and MCP."""
        return self.path or self.name.replace(" ", "_").replace("-", "_")

    @property
    def help(self) -> str:
        """Text of the help: a sentence, and paragraphs below it, without what is of Python alone."""
        return _OF_PYTHON.split(inspect.getdoc(self.function) or "")[0]

    @functools.cached_property
    def parameters(self) -> tuple[BoundOption, ...]:
        """Parameters with their options."""
        return parameters_of(self.function)

    @property
    def signature(self) -> inspect.Signature:
        """Signature in Python, with the options of groups as parameters."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.signature(self.function).replace(
            parameters=[
                inspect.Parameter(option.name, kind, default=option.default, annotation=option.annotation)
                for option in self.parameters
            ]
        )

    def perform(self, values: Mapping[str, Any]) -> Report:
        """Return the report of checked values by parameter.

        Args:
            values: those of a group become its record.
        """
        options = dict(values)
        groups = dict.fromkeys(parameter.group for parameter in self.parameters if parameter.group)
        for group in groups:
            names = [parameter.name for parameter in self.parameters if parameter.group == group]
            fields = {name: options.pop(name) for name in names if name in options}
            options[group[0]] = group[1](**fields)
        return self.function(**options)

    def check_details(self, shown: Sequence[str]) -> None:
        """Raise an InputError for a name that is none of the details, before anything is computed.

        Args:
            shown: names of details, or ``all``.
        """
        for name in shown if self.details is not None else ():
            if name not in (*(self.details or ()), ALL):
                raise unknown_name("--show", name, [*(self.details or ()), ALL], "details")

    @functools.cached_property
    def keywords(self) -> Any:
        """Pydantic model of what Python may pass, by names of parameters."""
        return self._model(
            {parameter.name: (parameter, parameter.option.python or parameter.type) for parameter in self.parameters}
        )

    @functools.cached_property
    def request(self) -> Any:
        """Pydantic model of what HTTP and MCP may ask, by keys; options that name files are left out."""
        return self._model(
            {
                parameter.key: (parameter, parameter.remote_type)
                for parameter in self.parameters
                if not parameter.reason_local
            }
        )

    def _model(self, fields: Mapping[str, tuple[BoundOption, Any]]) -> Any:
        """Return the pydantic model of some parameters by their names in it."""
        import pydantic

        def field(parameter: BoundOption, kind: Any, alias: str) -> tuple[Any, Any]:
            option = parameter.option
            limits: dict[str, Any] = {} if option.low is None else {"ge": option.low}
            limits |= {} if option.high is None else {"le": option.high}
            about = pydantic.Field(alias=alias, description=option.help, **limits)
            annotation: Any = Annotated[_plain(kind), about]
            return annotation, ... if parameter.default is REQUIRED else parameter.default

        definitions: dict[str, Any] = {
            parameter.name: field(parameter, kind, alias) for alias, (parameter, kind) in fields.items()
        }
        settings = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        return pydantic.create_model(f"{self.key}_request", __config__=settings, **definitions)

    def call(self, *arguments: Any, **keywords: Any) -> Report:
        """Return the report of arguments in Python.

        Options have the names of the function's parameters, or those of requests. Where one of them gathers, other
        keywords are values of it: leaves of a design (``tp=8``), or sections of a document (``axes={"tp": [1, 2]}``).

        Raises:
            InputError: for unknown options and values that do not fit.
        """
        names = [parameter.name for parameter in self.parameters]
        if len(arguments) > len(names):
            raise InputError(f"dse.{self.python}", f"{len(arguments)} arguments", ", ".join(names), "name the options")
        values: dict[str, Any] = dict(zip(names, arguments, strict=False))
        by_key = {key: parameter for parameter in self.parameters for key in (parameter.key, parameter.name)}
        gathering = next((parameter for parameter in self.parameters if parameter.option.gathers), None)
        gathered = {}
        for keyword, value in keywords.items():
            parameter = by_key.get(keyword)
            if gathering and (parameter is None or (isinstance(value, Mapping) and not parameter.takes_mapping)):
                gathered[keyword] = value
            elif parameter is None:
                raise unknown_name(f"dse.{self.python}", keyword, names, "options")
            elif parameter.name in values:
                raise InputError(f"dse.{self.python}", f"{keyword} twice", "each option once", "remove one of them")
            else:
                values[parameter.name] = value
        if gathering and gathered:
            values[gathering.name] = _gathered(f"dse.{self.python}", values.get(gathering.name), gathered, names)
        for parameter in self.parameters:
            if parameter.option.python and isinstance(values.get(parameter.name), str):  # the path of a document
                values[parameter.name] = Path(values[parameter.name])
        checked = self._checked(self.keywords, values, f"dse.{self.python}")
        try:
            return self.perform(checked)
        except InputError as error:  # a misspelt option is gathered too
            misspelt = next((keyword for keyword in gathered if error.got == repr(keyword)), "")
            if not (misspelt and nearest(misspelt, names)):
                raise
            raise unknown_name(f"dse.{self.python}", misspelt, names, "options") from None

    def answer(self, request: Mapping[str, Any]) -> Report:
        """Return the report of a request of HTTP or MCP, or of a file.

        Raises:
            InputError: for what the schema does not allow.
        """
        held = {
            parameter.name: parameter.option.remote
            for parameter in self.parameters
            if parameter.reason_local and parameter.option.remote is not REQUIRED
        }
        return self.perform(held | self._checked(self.request, request, self.name))

    @staticmethod
    def _checked(model: Any, values: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return parameter → checked value of the options that are given; raise an InputError for others."""
        import pydantic

        if not isinstance(values, Mapping):
            raise InputError(where, repr(values)[:200], "options by name", "write them as a dictionary, or one object")
        try:
            checked = model.model_validate(dict(values))
        except pydantic.ValidationError as error:
            faults = error.errors(include_url=False)
            fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
            place = ".".join(map(str, fault["loc"]))
            fields = {field.alias or name: field for name, field in model.model_fields.items()}
            if fault["type"] == "extra_forbidden":
                raise unknown_name(where, place, fields, "options") from None
            name = str(fault["loc"][0])
            about = str(fields[name].description)
            if fault["type"] == "missing":
                raise InputError(f"{where}: {place}", "none", about, "add it") from None
            alike = [one for one in faults if one["loc"][0] == name]  # one for each member of a union
            allowed = " or ".join(dict.fromkeys(map(_allowed, alike)))
            raise InputError(f"{where}: {name}", repr(fault["input"])[:200], allowed, about) from None
        return {name: getattr(checked, name) for name in checked.model_fields_set}


def _allowed(fault: Mapping[str, Any]) -> str:
    """Return in words what pydantic would have allowed in the place of a fault.

    >>> _allowed({"type": "int_parsing", "msg": "Input should be a valid integer"})
    'a whole number'
    """
    kind = str(fault["type"])
    if kind == "is_instance_of":
        kind = f"{fault['ctx']['class'].lower()}_"
    return next((text for start, text in _KINDS.items() if kind.startswith(start)), str(fault["msg"]))


def _plain(kind: Any) -> Any:
    """Return a type for pydantic, with a limit on the length of lists, and without truth values as numbers."""
    import typing

    import pydantic

    def plain(member: Any) -> Any:
        if member in (int, float):
            return Annotated[member, pydantic.BeforeValidator(functools.partial(_no_truth_value, member))]
        is_list = typing.get_origin(member) in (list, Sequence)
        return Annotated[member, pydantic.Field(max_length=MOST_ITEMS)] if is_list else member

    members = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    return typing.Union[tuple(map(plain, members))]  # noqa: UP007


def _no_truth_value(kind: type, value: Any) -> Any:
    """Return a value as it is; refuse True and False, which Python counts as the numbers 1 and 0."""
    from pydantic_core import PydanticCustomError

    if isinstance(value, bool):
        raise PydanticCustomError(f"{kind.__name__}_type", "Input should be a valid number")
    return value


def _gathered(where: str, value: Any, keywords: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value of a gathering option with further keywords, in the form that it has."""
    if value is None or isinstance(value, Mapping):
        for keyword in {*(value or {})} & {*keywords}:
            raise InputError(where, f"{keyword} twice", "each name once", "remove one of them")
        return {**(value or {}), **keywords}
    if isinstance(value, list | tuple):
        return [*value, *(f"{name}={inner}" for name, inner in keywords.items())]
    raise unknown_name(where, next(iter(keywords)), names, "options")  # a file, which has its sections


def capability(
    panel: str,
    name: str = "",
    *,
    local: str = "",
    path: str = "",
    door: str = "",
    group_help: str = "",
    returns: str = "",
    details: Sequence[str] | None = None,
) -> Callable[[Callable[..., Report]], Callable[..., Any]]:
    """Return the decorator that makes a function a capability, which its attribute ``capability`` is.

    Args:
        panel: heading of the help.
        name: as a command, by default the function's.
        local: reason why HTTP and MCP do not have it.
        path: name in HTTP and MCP, by default the command's.
        group_help: help of the group of commands that its name begins.
        door: ``module:function`` that takes a design in its place: ``dse.evaluate(design)`` is pure.
        returns: what the function returns in Python: "" for the report, ``dataset`` for that of the report where it
            has one, whose ``.dse.report`` is the report.
        details: names of the details that its reports may have, by which ``--show`` refuses others before the work;
            None where only a report knows them.

    Returns:
        The decorator.

    >>> from typing import Annotated
    >>> from dse.reports import Option, Report, capability
    >>> def double(number: Annotated[float, Option("A number.")]) -> Report:
    ...     return Report({"double": 2.0 * number})
    >>> double.__annotations__ = {"number": Annotated[float, Option("A number.")], "return": Report}
    >>> capability("Ask")(double)(number=4)["double"]
    8.0
    """

    def decorate(function: Callable[..., Report]) -> Callable[..., Any]:
        command = name or function.__name__.replace("_", "-")
        names = None if details is None else tuple(details)
        made = Capability(command, function, panel, local, path, group_help, returns, names)

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            if door and len(arguments) == 1 and not keywords and not isinstance(arguments[0], str):
                return _door(door)(*arguments)
            report = made.call(*arguments, **keywords)
            if returns != "dataset" or not report.load:
                return report
            dataset = report.dataset
            attach(dataset, report)
            return dataset

        call.capability = made  # type: ignore[attr-defined]
        call.__signature__ = made.signature  # type: ignore[attr-defined]
        return call

    return decorate


@functools.cache
def _door(text: str) -> Callable[..., Any]:
    """Import the function that ``module:function`` names."""
    import importlib

    module, _, name = text.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
