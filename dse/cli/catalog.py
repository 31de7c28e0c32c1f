"""``dse catalog``: entries of the catalogue, with the source of every value."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.options import Force, Json
from dse.cli.status import BAD_INPUT, report_errors
from dse.errors import InputError, unknown_name

if TYPE_CHECKING:
    from dse.designs.catalog import Entry

app = typer.Typer(
    help="Show and check the catalogue.\n\nIt holds accelerators and their technology, networks, systems, software and "
    "workloads.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[
    Path | None, typer.Option("--folder", help="A catalogue folder to search first [default: $DSE_CATALOG].")
]


@app.command("list")
@report_errors
def list_names(
    kind: Annotated[str | None, typer.Argument(help="Only this kind.", show_default="all kinds")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """List the names of all entries, by kind."""
    from dse.designs import catalog

    names = {k: catalog.names(k, folder) for k in (catalog.kinds() if kind is None else [kind])}
    if as_json:
        show.document(names)
        return
    for k, slugs in names.items():
        show.console().print(Text(f"{k} ({len(slugs)})", "bold"))
        show.console().print(Text("  " + "  ".join(slugs)))


@app.command("show")
@report_errors
def show_entry(
    name: Annotated[str, typer.Argument(help="A name or alias.")],
    kind: Annotated[str | None, typer.Option(help="Only this kind [default: all kinds].")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Show every value of an entry, with its source and confidence."""
    entries = _entries(name, kind, folder)
    if as_json:
        show.document([_as_dict(entry) for entry in entries])
        return
    for entry in entries:
        _print(entry)


@app.command()
@report_errors
def check(folder: Folder = None) -> int:
    """Check every file. Exit status 2 when something is wrong."""
    from dse.designs import catalog

    problems = catalog.check(folder)
    for problem in problems:
        print(problem)
    total = sum(len(catalog.names(kind, folder)) for kind in catalog.kinds())
    show.note(f"{show.counted(total, 'entry', 'entries')}, {show.counted(len(problems), 'problem')}")
    return BAD_INPUT if problems else 0


@app.command("from-config")
@report_errors
def from_config(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.json", help="The config.json of a model on Hugging Face.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE.toml", help="File to write, in workloads/ of a catalogue."),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the workload [default: that of the file].")] = None,
    force: Force = False,
) -> None:
    """Write a workload from a config.json of Hugging Face.

    The shape is read from it; set seq_len and global_batch to those of your training. Dense decoders, and mixtures of
    experts with or without latent attention.
    """
    from dse.designs.catalog import huggingface
    from dse.io import outputs

    workload = huggingface.read(config)
    text = huggingface.as_toml(workload, name or output.stem, config.name)
    with outputs.replacing(output, force, [config]) as partial:
        partial.write_text(text, encoding="utf-8")
    for remark in huggingface.remarks(workload, config.name):
        show.note(remark)
    print(f"written: {output}")


def _entries(name: str, kind: str | None, folder: Path | None) -> list[Entry]:
    """Return the catalogue entries with a name, of one kind or of all; raise an InputError for none."""
    from dse.designs import catalog

    entries, all_names = [], []
    for candidate in catalog.kinds() if kind is None else [kind]:
        all_names += catalog.names(candidate, folder)
        try:
            slug = catalog.resolve(candidate, name, folder=folder)
        except InputError:
            continue
        if slug in catalog.names(candidate, folder):  # an accelerator and a system may share a name
            entries.append(catalog.entry(candidate, slug, folder=folder))
    if not entries:
        raise unknown_name("catalogue", name, all_names, "names of the catalogue")
    return entries


def _as_dict(entry: Entry) -> dict[str, Any]:
    """Return the JSON-ready dictionary of an entry, each value with its source."""
    values = {field: dataclasses.asdict(value) for field, value in entry.values.items()}
    return {
        "kind": entry.kind,
        "slug": entry.slug,
        "name": entry.name,
        "aliases": list(entry.aliases),
        "note": entry.note,
        "values": values,
    }


def _print(entry: Entry) -> None:
    """Print an entry: its values, and their sources as numbered footnotes."""
    out = show.console()
    out.print(Text(f"{entry.slug} ({entry.kind}): {entry.name}", "bold"))
    if entry.aliases:
        out.print(Text(f"also {', '.join(entry.aliases)}"))
    if entry.note:
        out.print(Text(entry.note))
    sources = list(dict.fromkeys(v.source for v in entry.values.values()))
    rows = [
        [
            field,
            v.text,
            f"±{show.percent(v.spread)}" if v.spread else "",
            v.confidence,
            f"[{sources.index(v.source) + 1}]",
        ]
        for field, v in entry.values.items()
    ]
    columns = ["field", "value", "spread", "confidence", "source"]
    show.print_table(out, columns, rows, left=["field", "confidence"])
    for number, source in enumerate(sources, start=1):
        out.print(Text(f"[{number}] {source}"), soft_wrap=True)
