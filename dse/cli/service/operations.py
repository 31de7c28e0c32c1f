"""Operations that programs may ask for: commands with JSON in and out, of which no option names a file.

A request is a JSON object with the options of the command. Its schema follows from the command's signature: what a
command learns, programs may ask.
"""

from __future__ import annotations

import csv
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pydantic
import typer

from dse.cli import calibration, catalog, decide, evaluate, names, plan, run, search
from dse.errors import InputError

#: Largest numbers: of characters of a text, of items of a list, of rows of a table, of designs of a sweep.
MOST_CHARACTERS, MOST_ITEMS, MOST_ROWS, MOST_DESIGNS = 2_000, 200, 2_000, 1e9

#: Beginnings of texts that name files; names of the catalogue have none of them.
_PATHS = ("/", "\\", "~", ".", "file:")


@dataclass(frozen=True)
class Operation:
    """A command as programs ask for it."""

    name: str
    command: Callable[..., int | None]
    about: str
    fixed: Mapping[str, Any] = field(default_factory=dict)  #: parameters that requests do not have
    documents: Mapping[str, str] = field(default_factory=dict)  #: parameters that are files → how one is written

    @functools.cached_property
    def request(self) -> type[pydantic.BaseModel]:
        """Pydantic model of its requests: a field per option; parameters that are paths or fixed are left out."""
        function = inspect.unwrap(self.command)
        hints = typing.get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name in self.documents:
                fields[name] = (_DOCUMENTS[self.documents[name]][0], ...)
            elif name not in self.fixed and not _is_path(hints[name]):
                default = ... if parameter.default is inspect.Parameter.empty else parameter.default
                help_text, option_name = _help_and_name(hints[name], name)
                fields[name] = (
                    Annotated[_plain(hints[name]), pydantic.Field(alias=option_name, description=help_text)],
                    default,
                )
        settings = pydantic.ConfigDict(extra="forbid")
        model: type[pydantic.BaseModel] = pydantic.create_model(f"{self.name}_request", __config__=settings, **fields)
        return model

    def arguments(self, request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the arguments of the command for a request, writing its documents to files in ``folder``.

        Raises:
            InputError: for what the schema does not allow, and for texts that name files.
        """
        try:
            checked = self.request.model_validate(dict(request))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "request"
            raise InputError(
                f"{self.name}: {where}", str(first["input"])[:200], first["msg"], "see the schema of the request"
            ) from None
        values = {name: getattr(checked, name) for name in checked.model_fields_set}
        refuse_files(values, self.name)
        documents = {
            name: _DOCUMENTS[kind][1](values.pop(name), folder / f"{name}.{kind}", self.name)
            for name, kind in self.documents.items()
        }
        paths = {name: folder / value for name, value in self.fixed.items() if isinstance(value, Path)}
        return {**values, **self.fixed, **paths, **documents}


def refuse_files(value: Any, where: str) -> None:
    """Raise an InputError where a text, at any depth, may name a file or is too long, or a list has too many items."""
    if isinstance(value, str):
        if value.strip().startswith(_PATHS) or ".." in value:
            raise InputError(where, repr(value[:200]), "names of the catalogue and values", "send no paths of files")
        if len(value) > MOST_CHARACTERS:
            raise InputError(where, f"{len(value):,} characters", f"up to {MOST_CHARACTERS:,}", "shorten it")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_files(key, where)
            refuse_files(inner, f"{where}: {key}")
    elif isinstance(value, list | tuple):
        if len(value) > MOST_ROWS:
            raise InputError(where, f"{len(value):,} items", f"up to {MOST_ROWS:,}", "send fewer at a time")
        for inner in value:
            refuse_files(inner, where)


def _toml(document: Mapping[str, Any], path: Path, where: str) -> Path:
    """Write a specification as TOML to a file and return its path; raise an InputError for what TOML cannot say."""
    import tomlkit

    try:
        path.write_text(tomlkit.dumps(document), encoding="utf-8")
    except (TypeError, ValueError) as error:
        raise InputError(where, str(error)[:200], "what TOML can say: no null", "leave the key out") from None
    return path


def _csv(rows: list[dict[str, Any]], path: Path, where: str) -> Path:
    """Write rows (column → value) as CSV to a file and return its path; raise an InputError for no columns."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        raise InputError(where, "no rows", "one row or more", "send objects: column → value")
    with path.open("w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, columns, restval="")
        table.writeheader()
        table.writerows(rows)
    return path


_Specification = Annotated[dict[str, Any], pydantic.Field(description="The specification, by sections of its file.")]
_Rows = Annotated[
    list[dict[str, str | int | float | bool | None]],
    pydantic.Field(description="Rows: column → value.", max_length=MOST_ROWS),
]

#: Kind of a document → type of its field, and its writer.
_DOCUMENTS: dict[str, tuple[Any, Callable[..., Path]]] = {"toml": (_Specification, _toml), "csv": (_Rows, _csv)}


def _is_path(hint: Any) -> bool:
    """Return True for a type annotation that is or contains ``Path``."""
    return hint is Path or any(_is_path(inner) for inner in typing.get_args(hint))


def _plain(hint: Any) -> Any:
    """Return the type of a parameter without its typer annotation, with a length limit for a list."""
    plain = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    if any(typing.get_origin(inner) is list or inner is list for inner in (plain, *typing.get_args(plain))):
        return Annotated[plain, pydantic.Field(max_length=MOST_ITEMS)]
    return plain


def _help_and_name(hint: Any, name: str) -> tuple[str, str]:
    """Return (help, field name) of a parameter; the name is that of its long option: ``set`` of ``--set``."""
    info = next((item for item in typing.get_args(hint)[1:] if isinstance(item, typer.models.ParameterInfo)), None)
    # In annotations typer takes the first declaration for the default.
    declarations = (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
    long_names = [item.partition("/")[0] for item in declarations if isinstance(item, str) and item.startswith("--")]
    return getattr(info, "help", None) or "", (long_names[0].removeprefix("--") if long_names else name).replace(
        "-", "_"
    )


_JSON: dict[str, Any] = {"as_json": True}
_FILES = _JSON | {"output": Path("results.nc"), "figure": False, "fresh": True, "force": True}
_SINGLE_PROCESS = {"shard": None, "workers": None, "scheduler": None, "chunk": None}

#: What may be asked, by name.
OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            "evaluate",
            evaluate.evaluate,
            "One training design: time, memory, energy, money, what bounds it, on what it depends.",
            _JSON | {"serving": False},
        ),
        Operation(
            "serve",
            evaluate.evaluate,
            "Latency, throughput, memory and money of one serving design.",
            _JSON | {"serving": True},
        ),
        Operation(
            "run",
            run.run,
            "Every design of a sweep: the best, how many can run, why others cannot.",
            _FILES | _SINGLE_PROCESS,
            {"sweep": "toml"},
        ),
        Operation(
            "search",
            search.search,
            "The best designs of a space too large to list, with a proof if asked.",
            _FILES | {"certificate": None},
            {"specification": "toml"},
        ),
        Operation(
            "decide",
            decide.decide,
            "Which of some designs is best under the uncertainty of predictions.",
            _JSON | {"measured": None},
        ),
        Operation("plan", plan.plan, "The cheapest devices for a service or a training run.", _JSON),
        Operation(
            "predict",
            calibration.predict,
            "Predictions of rows of configurations, with intervals.",
            _JSON | {"output": Path("predicted.csv"), "columns": False, "force": True},
            {"cases": "csv"},
        ),
        Operation("names", names.names, "Leaves, metrics, axes, constraints, columns: unit and meaning.", _JSON),
        Operation(
            "catalog",
            catalog.list_names,
            "Names of accelerators, systems, workloads and stacks.",
            _JSON | {"folder": None},
        ),
        Operation(
            "show",
            catalog.show_entry,
            "Values of an entry of the catalogue, with sources and confidence.",
            _JSON | {"folder": None},
        ),
    )
}
