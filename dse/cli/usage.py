"""What ``dse`` alone prints, and errors of command lines, in four parts like all other errors."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from dse.cli.status import BAD_INPUT, INTERRUPTED, reader_gone
from dse.errors import ELSEWHERE, InputError, nearest, plain, unknown_name
from dse.io.interruption import BROKEN_PIPE
from dse.io.terminal import filtered_output
from dse.reports.settings import check_one_per_option
from dse.reports.terminal import print_error

#: Output of ``dse`` without arguments: three common uses as shell commands.
PAGE = """\
dse predicts time, memory, energy and money of training and serving large language models.

Which mapping is the fastest? A sweep evaluates all of them:

  printf '%s\\n' 'workload.name = "llama-3-70b"' 'workload.global_batch = 512' \\
    'system = { name = "eos", n_devices = 512 }' '[axes]' 'tp = "divisors"' 'pp = "divisors"' \\
    'micro_batch = [1, 2, 4]' 'recompute = ["none", "selective", "full"]' > my_sweep.toml
  dse run my_sweep.toml

Where does the time of one design go, and what would improve it?

  dse evaluate -w llama-3-70b -s eos -n 512 --set tp=8 --set pp=4 --set recompute=full

What may be asked? dse examples lists sweeps that come with it, each with the line that runs it.

How far are predictions from what you have measured?

  printf '%s\\n' 'model,gpu,n_gpus,tp,pp,micro_batch,global_batch,seq_len,iteration_s_measured' \\
    'llama-3-70b,H100,64,4,4,1,128,8192,22.4' > my_runs.csv
  dse validate my_runs.csv

dse --help shows all commands, dse COMMAND --help the options of one, dse catalog list all names.
"""


#: Exceptions of typer for invalid command lines.
_UsageError: Any = typer.BadParameter.__base__


class Commands(TyperGroup):
    """Commands of ``dse``, whose errors state what is allowed and a fix."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the remaining arguments after the options before the command; ``dse`` alone prints its page and exits.

        Typer would import pydantic to read absent options, a third of the time of the page.
        """
        if not args and ctx.parent is None:
            typer.echo(PAGE, nl=False)
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by panel, as typer does with markup alone."""
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        width = max(map(len, commands))
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in commands.items():
            summary = command.get_short_help_str(formatter.width - 6 - width)
            panels.setdefault(str(command.rich_help_panel), []).append((name.ljust(width), summary))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def main(self, args: Any = None, *, standalone_mode: bool = True, **options: Any) -> Any:  # type: ignore[override]
        """Run the command line and exit the process with its status; without ``standalone_mode`` return instead."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        try:
            with filtered_output():
                sys.exit(self._status(args, **options))
        except BrokenPipeError:
            sys.exit(reader_gone())

    def _status(self, args: Any, **options: Any) -> int:
        """Run the command line, print an error of it, and return its exit status."""
        try:
            status = super().main(args, standalone_mode=False, **options)
        except InputError as error:
            print_error(error)
            return BAD_INPUT
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()  # help, for an empty command line
            else:
                print_error(usage_error(error))
            return BAD_INPUT
        except typer.Abort:
            return INTERRUPTED
        except SystemExit:  # in this mode only where the reader of a help has closed the output
            return BROKEN_PIPE
        return status if isinstance(status, int) else 0


class Command(TyperCommand):
    """A command of ``dse``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the remaining arguments; raise an InputError for ``--set tp=8 pp=2``, where one would be ``pp=2``."""
        if not _TAKES_SETTINGS & {param.name for param in self.params}:
            options = [name for param in self.params if "=VALUE" in (param.metavar or "") for name in param.opts]
            check_one_per_option(ctx.command_path, args, options)
        return super().parse_args(ctx, args)


#: Arguments that are NAME=VALUE themselves.
_TAKES_SETTINGS = {"designs"}


def usage_error(error: Any) -> InputError:
    """Return the InputError of an invalid command line, from the exception of typer."""
    context = error.ctx
    if context is None:
        return InputError("dse", error.format_message(), "dse [OPTIONS] COMMAND [ARGS]…", "dse --help shows them all")
    if value_error := _value_error(error):
        return value_error
    where, usage = context.command_path, context.get_usage().removeprefix("Usage: ")
    got, fix = " ".join(error.format_message().split()), f"{where} --help shows them all"
    if type(error).__name__ == "NoSuchOption":
        got = f"no such option: {error.option_name}"
    if unknown_option := getattr(error, "option_name", None):
        close = _suggestions(unknown_option, {option for param in context.command.params for option in param.opts})
        fix = f"did you mean {' or '.join(close)}? {fix}" if close else fix
    elif type(error).__name__ == "MissingParameter" and error.param.name in _NAMED_BY:
        fix = f"{_NAMED_BY[error.param.name]} lists the names"
    return InputError(where, got, " ".join(usage.split()), fix)


#: Option for an entry of the catalogue → command that lists the names.
_NAMED_BY = {"workload": "dse catalog list workload", "system": "dse catalog list system (or accelerator)"}


def _suggestions(unknown_option: str, options: set[str]) -> list[str]:
    """Return options like an unknown one: those of another name for it, ``--set`` of a leaf, or the nearest."""
    options = {option for option in options if option.startswith("--")}
    dse_names = ELSEWHERE.get(plain(unknown_option), ())
    if matches := sorted(option for option in options if plain(option) in set(map(plain, dse_names))):
        return matches
    if "--set" in options:
        from dse.designs import all_leaves, short_name

        leaves = {name for path in all_leaves() for name in (short_name(path), path.rpartition(".")[2])}
        if matches := [name for name in (unknown_option.strip("-").replace("-", "_"), *dse_names) if name in leaves]:
            return [f"--set {name}=…" for name in matches]
    return nearest(unknown_option, options)


#: pydantic's name of an error → what is allowed, with its limits.
_ALLOWED_BY_ERROR = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "less_than_equal": "at most {le}",
    "greater_than_equal": "at least {ge}",
}


def _value_error(error: Any) -> InputError | None:
    """Return the InputError of an invalid value of an option or argument, None for other usage errors."""
    error_list = getattr(error.__cause__, "errors", None)
    if error_list is None or getattr(error, "param", None) is None:
        return None
    detail = error_list()[0]
    value, limits = str(detail["input"]), detail.get("ctx", {})
    param, command = error.param, error.ctx.command_path
    where = f"{command} {param.opts[0] if param.param_type_name == 'option' else param.name}"
    _, sign, choices = str(limits.get("error", "")).partition(" is not one of ")
    if sign:
        allowed = choices.rstrip(".").replace("'", "").split(", ")
        problem = unknown_name(where, value, allowed, "names")
        return problem
    allowed_text = _ALLOWED_BY_ERROR.get(detail["type"])
    if allowed_text is None:
        return None
    fix = "check the number" if limits else "write it in digits, such as 8 or 1024"
    return InputError(where, repr(value), allowed_text.format(**limits), fix)
