"""Tables of the reference: keys of the catalogue, leaves, metrics, columns, names of other tools.

``python -m docs.make.reference docs/reference.md`` writes them in place, between ``<!-- table: NAME -->`` and
``<!-- end of table -->``; the text around them is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from docs.make import catalog_keys, files
from docs.make.command import page_parser
from docs.make.markdown import fill, linked, publish, tight_table
from dse.capabilities.listing import listing
from dse.designs import all_leaves, catalog
from dse.designs.catalog.schema import schemas
from dse.doors import STUDIES
from dse.errors import THEIRS
from dse.types import choice_name

#: Texts of defaults that cells have in short.
_SHORT = {
    "the catalogue's": "",
    "the stack's": "*stack*",
    "absent": "*absent*",
    "from the model in the catalogue": "*model*",
    "the default of the stack": "*stack*",
    "dse predict needs none": "",
}

Row = tuple[Any, ...]


def filled(page: str) -> str:
    """Return the page with its tables as the code has them today."""
    return linked(fill(page, tables()))


def tables() -> dict[str, str]:
    """Return the tables by name."""
    names = [[_codes(ours.split()), _codes(theirs.split())] for ours, theirs in THEIRS.items()]
    return {
        **files.tables(),
        **{f"keys of {catalog.FOLDERS[kind]}": catalog_keys.section(kind) for kind in schemas()},
        "leaves": "\n\n".join(_leaves()),
        "metrics": "\n\n".join(_metrics()),
        "columns": "\n\n".join(_columns()),
        "names": tight_table(("ours", "elsewhere"), names),
    }


# --- leaves -----------------------------------------------------------------------------------------------


def _leaves() -> list[str]:
    """List a section for each record; records whose leaves are the same but for their defaults share one."""
    records: dict[str, list[Row]] = {}
    names: dict[str, dict[str, str]] = {}
    for row in listing("leaves").rows:
        record, _, leaf = row[5].rpartition(".")
        values = _values(all_leaves()[row[5]])
        meaning = row[2].removesuffix(": 1 yes") if values in ("0, 1", "[0,1]") else row[2]
        records.setdefault(record, []).append((leaf, row[1], meaning, values, _default(row[4], row[1])))
        names.setdefault(record, {})[leaf] = row[0]
    shared: dict[tuple[Row, ...], list[str]] = {}
    for record, rows in records.items():
        shared.setdefault(tuple(row[:-1] for row in rows), []).append(record)
    parts = []
    for rows, alike in shared.items():
        defaults = {record: [row[-1] for row in records[record]] for record in alike}
        is_same = len({tuple(column) for column in defaults.values()}) == 1
        lines = []
        for n, (leaf, *cells) in enumerate(rows):
            path = ", ".join(f"`{names[record][leaf]}`" for record in alike) if is_same else f"`{leaf}`"
            columns = defaults.values() if not is_same else [defaults[alike[0]]]
            lines.append([path, *cells, *(column[n] for column in columns)])
        heads = ["default"] if is_same else [f"`{record.rpartition('.')[2]}`" for record in alike]
        heading = ", ".join(f"`{record}`" for record in alike)
        parts += [f"### Leaves: {heading}", tight_table(("name", "unit", "meaning", "values", *heads), lines)]
    return parts


def _values(about: dict[str, Any]) -> str:
    if "enum" in about:
        return ", ".join(map(choice_name, about["enum"]))
    return catalog_keys.interval(about["bounds"])


def _default(text: str, unit: str) -> str:
    """Shorten a default: without a unit that the line has, and zero without any."""
    return "0" if text.startswith("0 ") else _short(text.removesuffix(f" {unit}") if unit else text)


def _short(text: str) -> str:
    for long, short in _SHORT.items():
        if text == long or text.startswith((f"{long},", f"{long};")):
            return f"{short}{text[len(long) :]}"
    return text


# --- metrics, columns -------------------------------------------------------------------------------------


def _metrics() -> list[str]:
    """List the metrics of each study, and those that have the same name and meaning in all of them."""
    rows = listing("metrics", studies=list(STUDIES.values())).rows
    by_study: dict[str, list[Sequence[str]]] = {}
    for row in rows:
        by_study.setdefault(row[-1], []).append([f"`{row[0]}`", row[1], row[2]])
    return [
        part
        for studies, lines in by_study.items()
        for part in (f"### Metrics: {studies}", tight_table(("name", "unit", "meaning"), lines))
    ]


def _columns() -> list[str]:
    columns = listing("columns")
    parts = [f"{columns.what[0].upper()}{columns.what[1:]}."]
    for kind, title in (("read", "training"), ("read of serving", "serving"), ("written", "written")):
        rows = [[f"`{row[0]}`", row[2], _short(row[3])] for row in columns.rows if row[1] == kind]
        parts += [f"### Columns: {title}", tight_table(("name", "meaning", "default"), rows)]
    return parts


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    target: Path = page_parser(__doc__).parse_args().page
    publish(target, fill(target.read_text(encoding="utf-8"), tables()))
