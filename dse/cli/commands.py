"""Commands of capabilities: parameters of typer from their options, and a renderer for what they return."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from dse.cli.status import report_errors
from dse.errors import InputError
from dse.reports import Capability, Report
from dse.reports.options import BoundOption

#: Options of renderers other than the terminal's.
_RENDERERS = ("--json", "--csv", "--html")


def _renderers(capability: Capability, documents: dict[Path | None, dict[str, Any]]) -> list[inspect.Parameter]:
    """Return the parameters that every command has: its details, renderers, and a file of its options.

    Args:
        capability: of the command.
        documents: filled by file with parameter → document in it.
    """

    def read(context: typer.Context, request: Path | None) -> Path | None:
        if request is not None:
            values = read_request(request, capability)
            documents[request] = {name: value for name, value in values.items() if isinstance(value, dict)}
            paths = dict.fromkeys(documents[request], str(request))  # typer takes a path in the place of a document
            context.default_map = {**(context.default_map or {}), **values, **paths}
        return request

    details = typer.Option("--show", metavar="DETAIL,…|all", help="Print these details too [default: a short answer].")
    request = typer.Option(
        "--request",
        metavar="FILE",
        help="Options by name, .toml or .json; those of the command line count first [default: none].",
        is_eager=True,
        callback=read,
    )
    declared: list[tuple[str, Any, Any, Any]] = [
        ("shown", str | None, details, None),
        ("as_json", bool, typer.Option("--json", help="Print one JSON document."), False),
        ("as_csv", bool, typer.Option("--csv", help="Print the first table, or that of --show, in SI units."), False),
        ("as_html", bool, typer.Option("--html", help="Print a piece of HTML."), False),
        ("request", Path | None, request, None),
    ]
    taken = {parameter.flag for parameter in capability.parameters}
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
        for name, kind, option, default in declared
        if not taken & {option.default, *(option.param_decls or ())}
    ]


def command(capability: Capability) -> Any:
    """Return the function of a command for typer: the capability's options, and those of renderers.

    Args:
        capability: what the command asks.
    """
    documents: dict[Path | None, dict[str, Any]] = {}

    def call(
        shown: str | None = None,
        as_json: bool = False,
        as_csv: bool = False,
        as_html: bool = False,
        request: Path | None = None,
        **values: Any,
    ) -> int:
        chosen = [name for name, is_on in zip(_RENDERERS, (as_json, as_csv, as_html), strict=True) if is_on]
        if len(chosen) > 1:  # before anything is computed
            raise InputError("options", " and ".join(chosen), "one of --json, --csv and --html", "leave the others out")
        for name, document in documents.get(request, {}).items():
            if values[name] == request:  # the command line names no other
                values[name] = document
        details = [] if shown is None else [name.strip() for name in shown.split(",")]
        capability.check_details(details)
        with contextlib.redirect_stdout(sys.stderr) if chosen else contextlib.nullcontext():
            report = capability.perform(values)
        _print(report, details, *chosen)
        return report.status

    parameters = [*map(_parameter, capability.parameters), *_renderers(capability, documents)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__doc__, call.__name__ = capability.help, capability.key
    return report_errors(call)


def alone(capability: Capability) -> Any:
    """Return the function of a group of commands for typer: the capability, where no command of the group is named.

    Args:
        capability: of the group's name.
    """
    run = command(capability)

    def call(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is None:
            run(**values)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *inspect.signature(run).parameters.values()]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameter(parameter: BoundOption) -> inspect.Parameter:
    """Return a parameter with the declaration that typer reads."""
    option = parameter.option
    shared: dict[str, Any] = {"help": option.help, "metavar": option.metavar or None}
    if option.low is not None or option.high is not None:
        shared |= {"min": option.low, "max": option.high}
    if option.choices:
        shared["autocompletion"] = lambda incomplete: [text for text in option.choices if text.startswith(incomplete)]
    kind = parameter.type if option.terminal is None else option.terminal
    if option.terminal is not None and parameter.terminal_default is None:
        kind = option.terminal | None
    if option.is_argument:
        declared: Any = typer.Argument(**shared)
    else:
        names = [parameter.flag, *([option.short] if option.short else [])]
        if option.environment:
            shared |= {"envvar": option.environment, "show_envvar": True}
        if option.instead:
            shared |= {"is_eager": True, "callback": _runs_instead(option.instead)}
        declared = typer.Option(*names, **shared)
    default, keyword_only = parameter.terminal_default, inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(parameter.name, keyword_only, default=default, annotation=Annotated[kind, declared])


def _runs_instead(words: tuple[str, ...]) -> Any:
    """Return the callback of a switch that runs another command and exits."""

    def run(context: typer.Context, requested: bool) -> None:
        if requested:
            context.find_root().command.main(list(words), standalone_mode=False)
            raise typer.Exit

    return run


def _print(report: Report, shown: list[str], renderer: str = "") -> None:
    """Print a report by the renderer that an option names; its notes go to standard error."""
    from dse.reports import terminal

    if not renderer:
        terminal.print_report(report, shown)
        return
    report.selected(shown)  # an unknown detail is an error of every renderer
    for text in report.notes:
        terminal.note(text)
    if renderer == "--json":
        terminal.print_document(report.document)
    elif renderer == "--html":
        print(report.to_html())
    else:
        name = next((table.name for table in report.tables.values() if table.show in shown), None) if shown else None
        print(report.to_csv(name), end="")


def read_request(path: Path, capability: Capability) -> dict[str, Any]:
    """Return parameter → value, as a command line has it, of the options in a TOML or JSON file.

    Raises:
        InputError: for a file that cannot be read, and for options that the capability does not have.
    """
    from dse.errors import unknown_name
    from dse.io import inputs, toml

    text = inputs.text(path, "a file of options, .toml or .json")
    if path.suffix.lower() == ".json":
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(str(path), f"no JSON: {error}", "one JSON object", "check quotes and commas") from None
        toml.check(document, str(path))
        if not isinstance(document, dict):
            raise InputError(str(path), repr(document)[:200], "one JSON object", "write the options by name")
    else:
        document = toml.parse(text, str(path))
    by_key = {parameter.key: parameter for parameter in capability.parameters}
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key not in by_key:
            raise unknown_name(str(path), key, by_key, "options")
        if isinstance(value, dict) and by_key[key].option.python is None:  # leaves
            value = [
                f"{name}={str(inner).lower() if isinstance(inner, bool) else inner}"
                for name, inner in _leaves(value).items()
            ]
        if isinstance(value, str) and get_origin(by_key[key].option.terminal) is list:
            value = [value]  # one of an option that may be repeated
        values[by_key[key].name] = value
    return values


def _leaves(document: dict[str, Any]) -> dict[str, Any]:
    """Return values by dotted name: TOML reads ``memory.bandwidth = …`` as a dictionary in one."""
    leaves: dict[str, Any] = {}
    for name, value in document.items():
        inner = {f"{name}.{rest}": leaf for rest, leaf in _leaves(value).items()} if isinstance(value, dict) else {}
        leaves |= inner or {name: value}
    return leaves
