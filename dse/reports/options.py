"""One declaration of an option, from which every door takes what it needs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

#: Where an option has no default.
REQUIRED: Any = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Option:
    """What an option of a capability is, next to its type and default: ``Annotated[int | None, Option(…)]``."""

    help: str = ""  #: with ``[default: …]`` at its end where that does not say what happens; "": as the docstring says
    flag: str = ""  #: in a command line, by default ``--`` and the parameter's name
    short: str = ""  #: letter of a command line, ``-n``
    metavar: str = ""  #: what a command line writes for the value
    low: float | None = None  #: smallest value
    high: float | None = None  #: largest value
    is_argument: bool = False  #: stands in a command line without a flag
    terminal: Any = None  #: type in a command line where it is another one
    terminal_default: Any = REQUIRED  #: default in a command line where it is another one
    is_needed: bool = False  #: in a command line, which has no default then
    python: Any = None  #: type in Python where it is another one; of a document, whose path a text is
    gathers: bool = False  #: in Python other keywords are values of it: leaves of a design, sections of a document
    section: str = ""  #: heading of the page of options
    local: str = ""  #: reason why HTTP and MCP do not have it; a file says so by its type
    remote: Any = REQUIRED  #: value that it has there, by default its default
    environment: str = ""  #: environment variable that a command line reads
    choices: tuple[str, ...] = ()  #: values that shells complete
    instead: tuple[str, ...] = ()  #: of a switch: words of the command that runs in place of this one


@dataclasses.dataclass(frozen=True)
class BoundOption:
    """An option as a parameter of a capability's function."""

    name: str  #: of the parameter
    option: Option
    type: Any
    default: Any = REQUIRED
    annotation: Any = None  #: as the function states it
    group: tuple[str, type] | None = None  #: parameter and record of the group of options that it is a field of

    @property
    def key(self) -> str:
        """Name in requests and files: that of the flag, with underscores."""
        return (self.option.flag.partition("/")[0].removeprefix("--") or self.name).replace("-", "_")

    @property
    def terminal_default(self) -> Any:
        """Default in a command line."""
        if self.option.is_needed:
            return REQUIRED
        return self.default if self.option.terminal_default is REQUIRED else self.option.terminal_default

    @property
    def flag(self) -> str:
        """Flag of a command line; of a switch that is on by default also the one that turns it off."""
        if self.option.flag:
            return self.option.flag
        flag = f"--{self.name.replace('_', '-')}"
        return f"{flag}/--no-{flag[2:]}" if self.terminal_default is True else flag

    @property
    def takes_mapping(self) -> bool:
        """True where a value may be a dictionary."""
        return any((get_origin(kind) or kind) in (Any, dict, Mapping) for kind in _members(self.type))

    @property
    def remote_type(self) -> Any:
        """Type without files, None for nothing else."""
        inner = [kind for kind in _members(self.type) if not _is_path(kind)]
        return functools.reduce(operator.or_, inner) if set(inner) - {type(None), bool} or inner == [bool] else None

    @property
    def reason_local(self) -> str:
        """Reason why HTTP and MCP lack it, "" where they have it."""
        if self.option.instead:
            return f"is dse {' '.join(self.option.instead)}"
        return self.option.local or ("names a file of this machine" if self.remote_type is None else "")


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the only one."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is_path(kind: Any) -> bool:
    """Return True for a type that is or contains ``Path``, and for labelled results."""
    return kind in (Path, DatasetLike) or any(_is_path(inner) for inner in get_args(kind))


def parameters_of(function: Any, group: tuple[str, type] | None = None) -> tuple[BoundOption, ...]:
    """Return the parameters of a function that declares its options, needed ones first.

    What an option means stands in the section ``Args`` of the docstring, where its declaration does not say it. A
    parameter whose type is a dataclass stands for its fields: a group of options, declared once for all functions that
    take it.

    Args:
        function: with an :class:`Option` for each parameter, or the record of a group.
        group: parameter and record that the fields are of.

    Raises:
        TypeError: for a parameter without an :class:`Option` that the docstring does not explain either.
    """
    hints, texts = typing.get_type_hints(function, include_extras=True), _argument_texts(function)
    parameters: list[BoundOption] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            parameters += parameters_of(hints[name], (name, hints[name]))
            continue
        kind, option = _declared(hints[name])
        if function.__doc__ and name not in texts and not (option and option.help):
            raise TypeError(f"{function.__module__}.{function.__name__}: {name} has no Option")
        if option is None or not option.help:
            option = dataclasses.replace(option or Option(), help=texts.get(name, ""))
        parameters.append(BoundOption(name, option, kind, parameter.default, parameter.annotation, group))
    return tuple(sorted(parameters, key=lambda parameter: parameter.default is not REQUIRED))


def _argument_texts(function: Any) -> dict[str, str]:
    """Return parameter → its text in the section ``Args`` of a docstring."""
    _, _, section = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    entries = re.split(r"^    (\w+): ", section.partition("\n\n")[0], flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, text in zip(entries[::2], entries[1::2], strict=True)}


def _declared(hint: Any) -> tuple[Any, Option | None]:
    """Return type and option of an annotation, of which a member of a union may have the option."""
    if get_origin(hint) is Annotated:
        kind, *annotations = get_args(hint)
        return kind, next((item for item in annotations if isinstance(item, Option)), None)
    pairs = [_declared(member) for member in _members(hint)] if len(_members(hint)) > 1 else []
    option = next((option for _, option in pairs if option), None)
    return functools.reduce(operator.or_, [kind for kind, _ in pairs]) if option else hint, option


def settings_option(metavar: str, section: str = "", text: str = "") -> Option:
    """Return the option of values by name, of which a command line states one at a time: ``--set NAME=VALUE``.

    Args:
        metavar: what a command line writes for a value.
        section: heading of the page of options.
        text: what it means.
    """
    return Option(text, flag="--set", metavar=metavar, terminal=list[str], gathers=True, section=section)


# --- options common to several capabilities

Force = Annotated[bool, Option("Replace a file that dse has not written.", local="writes no file there")]
Fresh = Annotated[
    bool, Option("Start over, without results of an earlier run.", local="nothing is kept there", remote=True)
]
Figure = Annotated[
    bool,
    Option(
        "Draw the figures that suit the results.", terminal_default=True, local="writes no figure there", remote=False
    ),
]
OfferAny = Annotated[
    bool, Option("Offer mapping options that the stack lacks, and stacks of other vendors.", flag="--any-option")
]
ShowProgress = Annotated[
    bool | Callable[..., None] | None,
    Option(
        "Show progress on standard error, or in a notebook.",
        flag="--progress/--no-progress",
        terminal=bool,
        terminal_default=True,
        local="answers when it has finished",
        remote=False,
    ),
]

Output = Annotated[
    Path | bool | None,
    Option(
        "Results file [default: results/NAME.nc of the specification].",
        short="-o",
        terminal=Path,
        local="writes no file there",
        remote=False,
    ),
]

#: Specification of a sweep, a search or pools.
Specification = Annotated[
    Path | Mapping[str, Any],
    Option(
        "Specification, or example:NAME; in Python and requests its sections as a dictionary.",
        is_argument=True,
        metavar="SPEC.toml",
        terminal=Path,
        python=Any,
        gathers=True,
    ),
]

#: Options of a design.
_DESIGN = "design"
Workload = Annotated[str, Option("Workload, by its name in the catalogue.", short="-w", section=_DESIGN)]
System = Annotated[str, Option("System or accelerator, by its name in the catalogue.", short="-s", section=_DESIGN)]
Settings = Annotated[
    Mapping[str, Any] | Sequence[str] | None,
    settings_option("NAME=VALUE", _DESIGN, "Set any value of the design: tp=8, recompute=full, …"),
]
Devices = Annotated[int | None, Option("Number of devices [default: tp x cp x pp x dp].", short="-n", section=_DESIGN)]
Software = Annotated[
    str | None, Option("Software stack [default: by chip, kind of model and measured rows].", section=_DESIGN)
]
AnyOption = Annotated[
    bool,
    Option("Allow mapping options that the stack lacks, and stacks of another vendor.", section=_DESIGN),
]
Serving = Annotated[bool, Option("Serve requests instead of training.", section=_DESIGN)]


@typing.runtime_checkable
class DatasetLike(typing.Protocol):
    """Labelled results in Python, named without an import of xarray."""

    @property
    def attrs(self) -> Any:
        """Attributes of the results."""


#: Arguments of a decision between designs.
Designs = Annotated[
    str | Sequence[str | Mapping[str, Any]] | Path | DatasetLike,
    Option(
        "Designs: SYSTEM, SYSTEM,tp=8,… or tp=8,… each; or a results file, for its best.",
        is_argument=True,
        metavar="A B …",
        terminal=list[str],
    ),
]
CommonWorkload = Annotated[
    str | None, Option("Workload of designs without their own [default: none].", flag="--workload", short="-w")
]
CommonSystem = Annotated[
    str | None, Option("System of designs without their own [default: none].", flag="--system", short="-s")
]
