"""Command lines that cannot be read, in four parts like every other error."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from dse.cli import front, show
from dse.cli.status import BAD_INPUT, INTERRUPTED, reader_gone
from dse.errors import ELSEWHERE, InputError, nearest, plain
from dse.interruption import BROKEN_PIPE

#: What typer raises for a command line that it cannot read.
_UsageError: Any = typer.BadParameter.__base__


class Commands(TyperGroup):
    """The commands of ``dse``; typer's own way of telling errors has neither what is allowed nor how to mend it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command; ``dse`` alone is answered at once.

        Typer would import pydantic to read options that are not there, a third of the time that the page takes.
        """
        if not args and ctx.parent is None:
            front.show()
            ctx.exit()
        return super().parse_args(ctx, args)

    def main(self, args: Any = None, *, standalone_mode: bool = True, **options: Any) -> Any:  # type: ignore[override]
        """Read the command line and do what it says; ends the process unless told otherwise."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        try:
            sys.exit(self._status(args, **options))
        except BrokenPipeError:
            sys.exit(reader_gone())

    def _status(self, args: Any, **options: Any) -> int:
        """Read the command line and do what it says; gives the exit status."""
        try:
            status = super().main(args, standalone_mode=False, **options)
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()  # the help: nothing was asked
            else:
                show.error(told(error))
            return BAD_INPUT
        except typer.Abort:
            return INTERRUPTED
        except SystemExit:  # of this mode where the reader of a help has gone, and of nothing else
            return BROKEN_PIPE
        return status if isinstance(status, int) else 0


def told(error: Any) -> InputError:
    """A command line that cannot be read, in four parts."""
    context = error.ctx
    if context is None:
        return InputError("dse", error.format_message(), "dse [OPTIONS] COMMAND [ARGS]…", "dse --help shows them all")
    where, usage = context.command_path, context.get_usage().removeprefix("Usage: ")
    fix = f"{where} --help shows them all"
    if wrong := getattr(error, "option_name", None):
        options = sorted({option for one in context.command.params for option in one.opts if option.startswith("--")})
        theirs = set(map(plain, ELSEWHERE.get(plain(wrong), ())))
        close = [option for option in options if plain(option) in theirs] or nearest(wrong, options)
        fix = f"did you mean {' or '.join(close)}? {fix}" if close else fix
    return InputError(where, " ".join(error.format_message().split()), " ".join(usage.split()), fix)
