"""Writer of fitted values: TOML texts, and files of a catalogue with their comments and order kept.

Values are TOML texts (``'"2.41 us"'``, ``'{ value = 0.8, spread = 0.1 }'``), so that files have the unit and digits of
:func:`number`.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit

from dse.designs import all_leaves, catalog
from dse.designs.catalog.load import FOLDERS
from dse.errors import InputError
from dse.io import atomic_file, outputs
from dse.io.files import MARK

#: SI unit → its size in the unit of the catalogue, and that unit.
_UNITS = {
    "J/FLOP": (1e12, "pJ/FLOP"), "J/B": (1e12, "pJ/B"), "B/s": (1e-9, "GB/s"), "B": (1e-6, "MB"),
}  # fmt: skip

_SECONDS = {"ns": 1e9, "us": 1e6, "ms": 1e3}

#: A parsed file, or one of its tables.
TomlTable = MutableMapping[str, Any]

#: Table → name → value as TOML; the table "" is the file itself.
Tables = Mapping[str, Mapping[str, str]]


def number(value: float, units: str, seconds: str = "us") -> str:
    """Return a value in SI ``units`` as TOML text of the catalogue: three digits, in a suitable unit.

    Args:
        value: in SI units.
        units: SI units.
        seconds: unit of times: ``us`` or ``ms``.

    >>> number(0.5e-12, "J/FLOP"), number(0.8349, "1"), number(1.06e-3, "s", "ms")
    ('"0.5 pJ/FLOP"', '0.835', '"1.06 ms"')
    """
    if units == "1":
        return digits(value)
    if units == "s":
        unit = "ns" if seconds == "us" and value < 0.1e-6 else seconds
        return f'"{digits(_SECONDS[unit] * value)} {unit}"'
    factor, unit = _UNITS.get(units, (1.0, units))
    return f'"{digits(factor * value)} {unit}"'


def digits(value: float, count: int = 3) -> str:
    """Return a number as text with ``count`` significant digits, all of those before the point, and no exponent."""
    if value == 0.0:
        return "0"
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:.0f}"


def quoted(text: str) -> str:
    """Return a text as a TOML string, in quotes."""
    return json.dumps(text, ensure_ascii=False)


def value_table(value: str, spread: float | None = None, source: str = "", confidence: str = "") -> str:
    """Return the text of a TOML inline table of a value with its spread, source and confidence, where stated.

    Args:
        value: as TOML.
        spread: standard deviation of the logarithm.
        source: where it is from.
        confidence: level of the catalogue.
    """
    fields = [f"value = {value}"]
    fields += [f"spread = {digits(spread, 2)}"] if spread is not None else []
    fields += [f"{name} = {quoted(text)}" for name, text in (("source", source), ("confidence", confidence)) if text]
    return f"{{ {', '.join(fields)} }}"


def document(tables: Tables, about: str = "") -> str:
    """Return tables as the text of a TOML document, after a comment.

    Args:
        tables: heading → name → value as TOML.
        about: text of the comment.
    """
    parts = [f"# {about}"] if about else []
    for heading, values in tables.items():
        lines = [f"\n[{heading}]"] if heading else []
        parts += [*lines, *(f"{name} = {value}" for name, value in values.items())]
    return "\n".join(parts).lstrip("\n") + "\n"


def write(path: str | Path, text: str, force: bool = False) -> None:
    """Write a text (TOML) to a file, marked as written by dse.

    Raises:
        InputError: for a file that dse has not written, unless ``force``, or that cannot be written.
    """
    with outputs.replacing(path, force) as partial:
        partial.write_text(f"# {MARK}\n{text}", encoding="utf-8")


def catalog_file(folder: str | Path, kind: str, slug: str) -> Path:
    """Return the path of the file of an entry in a catalogue folder.

    Raises:
        InputError: for an entry without a file.
    """
    path = Path(folder) / FOLDERS[kind] / f"{slug}.toml"
    if not path.is_file():
        raise InputError(str(path), "no such file", "a catalogue with this entry", "name the folder hw_catalog")
    return path


class Revision(NamedTuple):
    """Values of a fit for one table of one file of a catalogue, as :func:`revise` takes them."""

    kind: str
    slug: str
    values: Mapping[str, str]
    table: str = ""
    drop: tuple[str, ...] | None = ()


def write_catalog(revisions: Iterable[Revision], folder: str | Path) -> list[Path]:
    """Write the results of a fit to the files of a catalogue folder and return the paths of the files, each once.

    An accelerator that the folder lacks is copied to it from the catalogue first: a user's folder has files of its own.
    A folder that does not exist is an input error: it is a name mistyped.
    """
    changed_files = []
    is_folder = Path(folder).is_dir()
    for revision in revisions:
        own = Path(folder) / FOLDERS[revision.kind] / f"{revision.slug}.toml"
        known = revision.kind == "accelerator" and revision.slug in catalog.names("accelerator")
        if known and is_folder and not own.is_file():
            own.parent.mkdir(exist_ok=True)
            shutil.copyfile(catalog.entry("accelerator", revision.slug).path, own)
        changed_files.append(catalog_file(folder, revision.kind, revision.slug))
        revise(changed_files[-1], revision.values, revision.table, revision.drop)
    return list(dict.fromkeys(changed_files))


def revise(path: Path, values: Mapping[str, str], table: str = "", drop: tuple[str, ...] | None = ()) -> None:
    """Set values in a TOML file (in one of its tables); all else but ``drop`` stays, comments and order included.

    Args:
        path: of the file.
        values: name → value as TOML.
        table: their table, appended to the file if absent; "" is the file itself.
        drop: other names to remove, if present; None: all others of the table.
    """
    with revised(path) as entry:
        table_entry = subtable(entry, table)
        for name in list(table_entry) if drop is None else drop:
            if name in table_entry and name not in values:
                del table_entry[name]
        for name, value in values.items():
            table_entry[name] = tomlkit.value(value)


@contextlib.contextmanager
def revised(path: Path) -> Iterator[TomlTable]:
    """Yield the parsed content of a TOML file, which is written back, comments and order kept."""
    entry = tomlkit.parse(path.read_text(encoding="utf-8"))
    yield entry
    with outputs.disk_errors(path), atomic_file(outputs.link_target(path)) as partial:
        partial.write_text(tomlkit.dumps(entry), encoding="utf-8")


def subtable(entry: TomlTable, name: str) -> TomlTable:
    """Return a table of a parsed file, appended to it if absent; "" is the file itself.

    A family alone (``kernels = "hopper"``) becomes a table of it.
    """
    if name and isinstance(family := entry.get(name, {}), str):
        entry[name] = tomlkit.inline_table()
        entry[name]["family"] = family
    return entry.setdefault(name, tomlkit.table()) if name else entry


def set_value(entry: TomlTable, name: str, value: str) -> None:
    """Set a value (TOML) of a parsed file by its name, in its table or, of a bare name, in a table that states it."""
    table, _, field = name.rpartition(".")
    if not table:
        table = next((key for key, part in entry.items() if isinstance(part, dict) and field in part), "")
    subtable(entry, table)[field] = tomlkit.value(value)


def leaf_value(path: str, value: float, count: int) -> str:
    """Return the value of a leaf in SI units as TOML, in units without a usual one with ``count`` digits."""
    units = all_leaves()[path]["units"] if path in all_leaves() else "1"
    return number(value, units) if units in ("1", "s", "B/s") else f'"{value:.{count}g} {units}"'
