"""``dse catalog``: entries of the catalogue, with the source of every value.

In Python ``dse.catalog`` is the module of the catalogue, so that its capabilities have names of their own:
``dse.catalog_list()``, ``dse.show("a100")``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.errors import InputError, unknown_name
from dse.io import counted, percent
from dse.reports import Column, Line, Option, Report, Table, capability, heading
from dse.reports.options import Force
from dse.reports.tables import Section

if TYPE_CHECKING:
    from dse.designs.catalog import Entry

#: Exit status of a catalogue with faults.
_FAULTY = 2

#: Values of a record above which it is a detail.
_LONG = 8

_HELP = (
    "Show and check the catalogue.\n\nIt holds accelerators and their technology, networks, systems, software and "
    "workloads."
)

_Folder = Annotated[Path | None, Option("A catalogue folder to search first [default: $DSE_CATALOG].")]


@capability("Manage", "catalog list", path="catalog", group_help=_HELP)
def catalog_list(
    kind: Annotated[str | None, Option(is_argument=True)] = None,
    folder: _Folder = None,
) -> Report:
    """List the names of all entries, by kind.

    Args:
        kind: Only this kind [default: all kinds].
        folder: A catalogue folder to search first [default: $DSE_CATALOG].
    """
    from dse.designs import catalog

    names = {each: catalog.names(each, folder) for each in (catalog.kinds() if kind is None else [kind])}
    rows = [{"kind": each, "entries": len(slugs), "names": "  ".join(slugs)} for each, slugs in names.items()]
    columns = [Column("kind", "kind", left=True), Column("entries", "entries")]
    return Report(names, [Table("names", [*columns, Column("names", "names", left=True, prose=True)], rows)])


@capability("Manage", "catalog show", path="show")
def show(
    name: Annotated[str, Option(is_argument=True)],
    kind: str | None = None,
    folder: _Folder = None,
) -> Report:
    """Show the values of an entry, with their sources and confidence.

    Long records, such as rates of kernels, are details, which all prints.

    Args:
        name: A name or alias.
        kind: Only this kind [default: all kinds].
        folder: A catalogue folder to search first [default: $DSE_CATALOG].
    """
    entries = _entries(name, kind, folder)
    keys = ("kind", "slug", "name", "aliases", "note", "values")
    document = [{key: getattr(entry, key) for key in keys} for entry in entries]
    return Report(document, [section for entry in entries for section in _sections(entry)])


@capability("Manage", "catalog check", local="checks files of this machine")
def catalog_check(folder: _Folder = None) -> Report:
    """Check every file. Exit status 2 when something is wrong."""
    from dse.designs import catalog

    problems = catalog.check(folder)
    total = sum(len(catalog.names(kind, folder)) for kind in catalog.kinds())
    note = f"{counted(total, 'entry', 'entries')}, {counted(len(problems), 'problem')}"
    document = {"entries": total, "problems": problems}
    return Report(document, [*map(Line, problems)], [note], status=_FAULTY if problems else 0)


@capability("Manage", "catalog from-config", local="writes a file")
def catalog_from_config(
    config: Annotated[Path, Option(is_argument=True, metavar="CONFIG.json")],
    output: Annotated[Path, Option(short="-o", metavar="FILE.toml")],
    name: str | None = None,
    force: Force = False,
) -> Report:
    """Write a workload from a config.json of Hugging Face.

    The shape is read from its keys, and the format of the weights from its quantization_config or from the
    hf_quant_config.json in its folder; set seq_len and global_batch to those of your training. Dense decoders, mixtures
    of experts with or without latent attention, and hybrids with a state; of several models in one the text model.

    Args:
        config: The config.json of a model on Hugging Face.
        output: File to write, in workloads/ of a catalogue.
        name: Name of the workload [default: that of the file].
        force: Replace a file that dse has not written.
    """
    from dse.designs.catalog import huggingface
    from dse.io import outputs

    quantization, name = huggingface.read_quantization(config), name or output.stem
    model = huggingface.read_config(huggingface.read(config), config.name, quantization)
    text, remarks = huggingface.as_toml(model, name, config.name), model.remarks
    with outputs.replacing(output, force, [config]) as partial:
        partial.write_text(text, encoding="utf-8")
    return Report({"name": name, "output": output, "remarks": remarks}, notes=remarks, files=[output])


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


def _sections(entry: Entry) -> Iterator[Section]:
    """Yield an entry: names and note, its values, and their sources as numbered footnotes; long records as details."""
    yield heading(f"{entry.slug} ({entry.kind}): {entry.name}")
    if entry.aliases:
        yield Line(f"also {', '.join(entry.aliases)}")
    if entry.note:
        yield Line(entry.note)
    parts: dict[str, list[dict[str, Any]]] = {}
    sizes = Counter(_record(field) for field in entry.values)
    for field, value in entry.values.items():
        record = _record(field)
        detail = record if sizes[record] > _LONG else ""
        parts.setdefault(detail, []).append({"field": field, **dataclasses.asdict(value)})
    numbers: dict[str, int] = {}
    for detail in sorted(parts):
        rows = parts[detail]
        cited = [source for source in dict.fromkeys(row["source"] for row in rows) if source not in numbers]
        numbers |= {source: number for number, source in enumerate(cited, start=len(numbers) + 1)}
        yield Table(f"{entry.kind} {detail}".strip(), _columns(numbers), rows, show=detail)
        yield from (Line(f"[{numbers[source]}] {source}", show=detail) for source in cited)


def _record(field: str) -> str:
    """Return the record that a field is of, "" for those of the entry itself."""
    return field.partition(".")[0] if "." in field else ""


def _columns(numbers: Mapping[str, int]) -> list[Column]:
    """Return the columns of a table of values, with the numbers of their sources."""
    return [
        Column("field", "field", left=True),
        Column("value", "value", row_text=_value_text),
        Column("units", "units", hidden=True),
        Column("spread", "spread", hidden=True),
        Column("confidence", "confidence", left=True),
        Column("source", "source", lambda source: f"[{numbers[source]}]"),
    ]


def _value_text(row: Mapping[str, Any]) -> str:
    """Return a value as its file has it, with its spread."""
    return f"{row['text']} ±{percent(row['spread'])}" if row["spread"] else str(row["text"])
