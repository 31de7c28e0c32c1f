"""The page of the docs on names: leaves, keys of the catalogue, metrics, columns, names of other tools.

``python -m docs.make.reference docs/reference.md`` writes it.
"""

from __future__ import annotations

from typing import Any

from docs.make import catalog_keys
from docs.make.command import page_parser
from docs.make.markdown import document, tight_table
from dse.cli.listing import listing
from dse.designs.leaves import known_leaves
from dse.doors.studies import STUDIES
from dse.errors import THEIRS
from dse.spec.space import NAMED
from dse.types import choice_name

_INTRODUCTION = """\
# Reference: all names

Written by `python -m docs.make.reference docs/reference.md` from the records of the engine; `dse list KIND [PATTERN]`
prints the same. [files.md](files.md) describes the files that these names stand in.

- [Leaves](#leaves) of a design, by record, with their path, [keys of the catalogue](#keys-of-the-catalogue)
- [Metrics](#metrics) of training and serving
- [Columns](#columns-of-tables) of measured tables
- [Names of other tools](#names-of-other-tools)"""

_LEAVES = """\
For `--set`, `dse.design`, `[workload]`, `[system]`, `[mapping]`, `[software]`, `[serving]`, `[axes]` and expressions.
The path of a leaf is the record and its last name; any unique ending of the path names it, the table has the shortest.
Numbers are in SI units; texts carry a unit (`"3.35 TB/s"`). Without a default, the catalogue states the value;
*stack*: the default of the software stack. Every leaf may be an axis; further axes are the names of the catalogue:
{axes}. Degrees of a mapping also take `"divisors"` and `"powers_of_two"`."""

_KEYS = """\
Keys of the TOML files of `hw_catalog/`, by folder; keys in bold are needed. `memory.capacity` is `capacity` under
`[memory]`. Keys *for readers* and *for comparison* are not used by the model."""

_METRICS = "For `[objective]`, `[constraints]`, `--metric`; variables of results. Parts `<metric>_<part>` add up."


def page() -> str:
    """The page."""
    axes = ", ".join(f"`{name}`" for name in NAMED)
    return document(
        [
            _INTRODUCTION,
            "## Leaves",
            _LEAVES.format(axes=axes),
            *_leaves(),
            "## Keys of the catalogue",
            _KEYS,
            *catalog_keys.sections(),
            "## Metrics",
            _METRICS,
            *_metrics(),
            "## Columns of tables",
            *_columns(),
            "## Names of other tools",
            "A name of another tool is an error that names ours; capitals, dashes and underscores do not count.",
            tight_table(("ours", "elsewhere"), [[_codes(ours), _codes(theirs)] for ours, theirs in THEIRS.items()]),
        ]
    )


def _leaves() -> list[str]:
    """A section for each record; records with the same leaves share one."""
    records: dict[str, list[tuple[Any, ...]]] = {}
    names: dict[str, dict[str, str]] = {}
    for row in listing("leaves").rows:
        record, _, leaf = row[5].rpartition(".")
        about = known_leaves()[row[5]]
        records.setdefault(record, []).append((leaf, row[1], row[2], _values(about), _default(row[4])))
        names.setdefault(record, {})[leaf] = row[0]
    shared: dict[tuple[Any, ...], list[str]] = {}
    for record, rows in records.items():
        shared.setdefault(tuple(rows), []).append(record)
    parts = []
    for rows, of in shared.items():
        lines = [[", ".join(f"`{names[record][row[0]]}`" for record in of), *row[1:]] for row in rows]
        heading = ", ".join(f"`{record}`" for record in of)
        parts += [f"### Leaves: {heading}", tight_table(("name", "unit", "meaning", "values", "default"), lines)]
    return parts


def _values(about: dict[str, Any]) -> str:
    if "enum" in about:
        return ", ".join(map(choice_name, about["enum"]))
    return catalog_keys.interval(about["bounds"])


def _default(told: str) -> str:
    return {"the catalogue's": "", "the stack's": "*stack*", "absent": "*absent*"}.get(told, told)


def _metrics() -> list[str]:
    parts = []
    for name, study in STUDIES.items():
        rows = [[f"`{row[0]}`", row[1], row[2]] for row in listing("metrics", studies=[study]).rows]
        parts += [f"### Metrics: {name}", tight_table(("name", "unit", "meaning"), rows)]
    return parts


def _columns() -> list[str]:
    found = listing("columns")
    parts = [f"{found.what[0].upper()}{found.what[1:]}."]
    for kind, title in (("read", "training"), ("read of serving", "serving"), ("written", "written")):
        rows = [[f"`{row[0]}`", row[2], row[3]] for row in found.rows if row[1] == kind]
        parts += [f"### Columns: {title}", tight_table(("name", "meaning", "default"), rows)]
    return parts


def _codes(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())


if __name__ == "__main__":
    page_parser(__doc__).parse_args().page.write_text(page(), encoding="utf-8")
