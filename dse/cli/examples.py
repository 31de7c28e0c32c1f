"""``dse examples``: included specifications, with their questions and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Force, Json
from dse.cli.status import report_errors

app = typer.Typer(
    help="List the sweeps and searches that come with dse.\n\nThose of pools too. Wherever a command takes the file of "
    "a specification, it takes example:NAME.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@app.callback()
@report_errors
def list_examples(context: typer.Context, as_json: Json = False) -> None:
    """List the examples: what each asks, and the command that runs it."""
    if context.invoked_subcommand:
        return
    from dse.io import examples

    example_list = examples.all_examples()
    if as_json:
        show.document([example._asdict() for example in example_list])
        return
    out = show.console()
    for example in example_list:
        out.print(Text(example.asks, "bold"), soft_wrap=True)
        out.print(Text(f"  {example.command}"), soft_wrap=True)
    end = "\ndse examples show NAME prints one with what it has found, and copies it with -o FILE.toml"
    out.print(Text(end), soft_wrap=True)


@app.command("show")
@report_errors
def show_example(
    name: Annotated[str, typer.Argument(help="Its name, with or without example:.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.toml", help="File to copy it to [default: none].")
    ] = None,
    force: Force = False,
) -> None:
    """Print an example, or copy it to a file of your own."""
    from dse.io import examples, outputs

    text = examples.find_example(name).file.read_text(encoding="utf-8")
    if output is None:
        print(text, end="")
        return
    with outputs.replacing(output, force) as partial:
        partial.write_text(text, encoding="utf-8")
    print(f"written: {output}")
