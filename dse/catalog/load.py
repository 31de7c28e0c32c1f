"""Catalogue files to entries: search path, names, validation, defaults."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from dse import types
from dse.catalog import schema as schemas
from dse.catalog import technology
from dse.catalog.fields import File, Sourced
from dse.catalog.schema import AT_REST, GROUPS
from dse.errors import InputError, unknown_name

#: Kind → its folder in a catalogue.
FOLDERS = {
    "accelerator": "accelerators", "network": "networks", "system": "systems", "software": "software",
    "workload": "workloads", "kernels": "kernels", "node": "nodes", "memory": "memories",
    "architecture": "architectures",
}  # fmt: skip

#: Kind → fields that name an entry of another kind.
REFERENCES = {
    "accelerator": {
        "kernels.family": "kernels", "node.scale_up": "network", "node.scale_out": "network",
        "node.software": "software", "chip.architecture": "architecture", "chip.node": "node",
        "chip.base_node": "node", "chip.memory": "memory",
    },
    "kernels": {
        "family": "kernels", "node.scale_up": "network", "node.scale_out": "network", "node.software": "software",
    },
    "system": {"accelerator": "accelerator", "scale_up": "network", "scale_out": "network", "software": "software"},
}  # fmt: skip

#: Kind → schema of its files.
SCHEMAS = schemas.SCHEMAS | technology.SCHEMAS

#: In place of a network's name: there is none.
NO_NETWORK = "none"

_HEADER = ("name", "aliases", "note", "source", "confidence", "sources", "n_experts")
_FLAGS = (
    "gated", "tied_embeddings", "learned_positions", "rotary", "relative_positions", "dropout", "local_layers",
)  # fmt: skip
_TOKENS_A_STEP = 4194304  # of a workload that states no global batch


@dataclasses.dataclass(frozen=True)
class Entry:
    """One thing of the catalogue: every value in SI with its source."""

    kind: str
    slug: str
    name: str
    aliases: tuple[str, ...]
    note: str
    values: dict[str, Sourced]  #: field → value; fields of a record are dotted (``memory.bandwidth``)
    measured_sources: tuple[str, ...]  #: systems: the measured sources that ran there
    path: Path

    def value(self, field: str, default: Any = None) -> Any:
        """SI value of a field, or ``default`` where the entry has none."""
        found = self.values.get(field)
        return default if found is None else found.value


def catalog_root() -> Path:
    """The catalogue that comes with the package: inside it when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "hw_catalog", package.parent / "hw_catalog"):
        if folder.is_dir():
            return folder
    raise InputError("hw_catalog", "no such folder", str(package.parent / "hw_catalog"), "reinstall the package")


def roots(folder: str | Path | None = None) -> list[Path]:
    """Catalogue folders in search order: ``folder``, those of DSE_CATALOG, the package's own."""
    users = [folder] if folder else []
    users += [part for part in os.environ.get("DSE_CATALOG", "").split(os.pathsep) if part]
    for user in users:
        if not Path(user).is_dir():
            raise InputError("catalogue folder", str(user), "an existing folder", "check the path or DSE_CATALOG")
    return [*map(Path, users), catalog_root()]


def paths(kind: str, folder: str | Path | None = None) -> dict[str, Path]:
    """Slug → file of every entry of a kind; a user's file hides the package's of the same slug."""
    if kind not in FOLDERS:
        raise unknown_name("catalogue", kind, FOLDERS, "kinds")
    found: dict[str, Path] = {}
    for root in roots(folder):
        for path in sorted((root / FOLDERS[kind]).glob("*.toml")):
            found.setdefault(path.stem, path)
    return found


def file_of(kind: str, slug: str, folder: str | Path | None = None) -> Path:
    """File of an existing entry, the user's before the package's."""
    files = (root / FOLDERS[kind] / f"{slug}.toml" for root in roots(folder))
    return next(file for file in files if file.is_file())


def plain(name: str) -> str:
    """A name as it is compared: lower-case letters and digits.

    What stands between two digits stays a break: ``GPT-1.3B`` and ``GPT-13B`` are two models.
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    breaks = ("." if a[-1].isdigit() and b[0].isdigit() else "" for a, b in itertools.pairwise(words))
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(words, breaks, fillvalue="")))


def find(kind: str, name: str, folder: str | Path | None = None) -> str | None:
    """Slug of the entry that ``name`` means (slug, name or alias), None when there is none."""
    slugs = paths(kind, folder)
    if name in slugs:
        return name
    wanted = plain(name)
    return next(
        (slug for slug in slugs if plain(slug) == wanted),
        next((slug for slug, known in _titles(slugs) if plain(known) == wanted), None),
    )


def _titles(slugs: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """(slug, name or alias) of every file."""
    for slug, path in slugs.items():
        data = _parse(path)
        aliases = data.get("aliases")
        for known in [data.get("name"), *(aliases if isinstance(aliases, list) else [])]:
            if isinstance(known, str):
                yield slug, known


def known_names(kind: str, folder: str | Path | None = None) -> dict[str, str]:
    """Slug, name and aliases → slug, of every entry of a kind."""
    slugs = paths(kind, folder)
    return {known: slug for slug, known in _titles(slugs)} | {slug: slug for slug in slugs}


def load(kind: str, slug: str, folder: str | Path | None = None) -> Entry:
    """The entry of a slug, validated, with its defaults filled in; InputError for a bad file."""
    entry = _read(kind, file_of(kind, slug, folder))
    if kind == "workload":
        return dataclasses.replace(entry, values=_workload_defaults(entry))
    if kind == "accelerator":
        return dataclasses.replace(entry, values=_accelerator_defaults(entry, folder))
    return entry


# Files: cached by path and time of change, so that an edit counts at once.


def _parse(path: Path) -> dict[str, Any]:
    return _parse_cached(path, *_stamp(path))


def _read(kind: str, path: Path) -> Entry:
    return _read_cached(kind, path, *_stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=4096)
def _parse_cached(path: Path, *stamp: int) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(shown(path), f"byte {error.start} is not UTF-8", "a TOML file", "save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        line = at[1] if at else str(text.count("\n") + 1)
        raise InputError(
            f"{shown(path)}: line {line}", f"invalid TOML ({error})", "a TOML file", "complete or correct that line"
        ) from None


@functools.lru_cache(maxsize=4096)
def _read_cached(kind: str, path: Path, *stamp: int) -> Entry:
    schema = SCHEMAS[kind]
    try:
        file = schema.model_validate(_parse(path))
    except ValidationError as error:
        raise _input_error(error, schema, shown(path)) from None
    return Entry(
        kind=kind, slug=path.stem, name=file.name or path.stem, aliases=tuple(file.aliases), note=file.note,
        values=dict(_flat(file, "", file.source, file.confidence)),
        measured_sources=tuple(getattr(file, "sources", ())), path=path,
    )  # fmt: skip


def shown(path: Path) -> str:
    """A file as messages name it: from ``hw_catalog/`` on, or the user's own path."""
    root = catalog_root()
    return path.relative_to(root.parent).as_posix() if path.is_relative_to(root) else str(path)


def _flat(table: BaseModel, prefix: str, source: str, confidence: str) -> Iterator[tuple[str, Sourced]]:
    """Field → value of a validated table and its tables, with sources and confidences inherited."""
    for field in type(table).model_fields:
        value = getattr(table, field)
        if isinstance(value, Sourced):
            own = dict(source=value.source or source, confidence=value.confidence or confidence)
            yield prefix + field, dataclasses.replace(value, **own)
        elif isinstance(value, BaseModel):
            inner = prefix if field in GROUPS else f"{prefix}{field}."
            yield from _flat(value, inner, value.source or source, value.confidence or confidence)


def _input_error(error: ValidationError, schema: type[File], file: str) -> InputError:
    """The first problem of a file as an InputError; a misspelt field before the one that it leaves missing."""
    problems = error.errors(include_url=False)
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    field = ".".join(map(str, problem["loc"]))
    inner = problem.get("ctx", {}).get("error")
    if isinstance(inner, InputError) and not field:
        field = inner.where  # of a whole file: the validator names the field
    where = f"{file}: {field}" if field else file
    if isinstance(inner, InputError):
        return InputError(where, inner.got, inner.allowed, inner.fix)
    if problem["type"] == "extra_forbidden":
        return unknown_name(file, field, _fields(schema, problem["loc"]), "fields")
    if problem["type"] == "missing":
        return InputError(where, "nothing", "a value: the field is required", f"add {field} (is the file complete?)")
    return InputError(where, repr(problem["input"]), problem["msg"], "correct the field")


def _fields(schema: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Dotted fields allowed in the table where a field of ``location`` was not."""
    for step in location[:-1]:
        kinds = schema.model_fields[step].annotation
        schema = next(kind for kind in (*get_args(kinds), kinds) if kind is not type(None))  # of an optional table
    prefix = ".".join(map(str, location[:-1]))
    return [f"{prefix}.{name}" if prefix else name for name in schema.model_fields]


# Defaults


def _default(value: float, units: str, rule: str) -> Sourced:
    return Sourced(value, units, f"{value:g}", f"default: {rule}", "estimate")


def _workload_defaults(entry: Entry) -> dict[str, Sourced]:
    """Values of a workload with what it leaves out.

    Flags are 0, heads are those of plain attention, the window is the sequence, and
    the global batch is about 4 Mi tokens.
    """
    v = entry.value
    heads, sequence = v("n_heads"), v("seq_len")
    defaults = {flag: _default(0.0, "1", "off unless stated") for flag in _FLAGS} | {
        "n_kv_heads": _default(heads, "1", "n_heads"),
        "head_dim": _default(v("hidden") / heads, "1", "hidden / n_heads"),
        "window": _default(sequence, "1", "seq_len"),
        "global_batch": _default(float(max(1, round(_TOKENS_A_STEP / sequence))), "1", "about 4 Mi tokens a step"),
    }
    values = defaults | entry.values
    if heads % values["n_kv_heads"].value:
        raise InputError(
            f"{shown(entry.path)}: n_kv_heads", f"{values['n_kv_heads'].value:g}", f"divisors of n_heads = {heads:g}",
            "correct one of the two",
        )  # fmt: skip
    return values


def _accelerator_defaults(entry: Entry, folder: str | Path | None) -> dict[str, Sourced]:
    """Values of an accelerator with what it leaves out taken from its kernel family.

    The vector rate is ``device.vector_share`` of the 16-bit (else the fastest) matrix rate. A generated chip
    takes nothing of its family's device, but the leaves of its architecture.
    """
    unstated = Sourced("generic", "", "generic", "default: no family stated", "estimate")
    chosen = entry.values.get("kernels.family", unstated)
    family = _kernels(_reference(entry, "kernels.family", str(chosen.value), folder), folder)
    device = _device(entry, family) if entry.value("chip.node") is None else _architecture(entry, folder)
    shared = ("device.", "node.", "alone.", "power.")
    kernels = {f"kernels.{f}": s for f, s in family.items() if not f.startswith(shared)}
    node = {f: s for f, s in family.items() if f.startswith("node.")}
    if entry.values.get("node.scale_up") is not None:  # an own scale-up network has its own bandwidth
        node.pop("node.scale_up_bandwidth", None)
    if entry.values.get("node.scale_out") is not None:
        node.pop("node.scale_out_bandwidth", None)
    power = _power_defaults(entry, family)
    return {"kernels.family": chosen} | device | kernels | node | power | entry.values


def _device(entry: Entry, family: dict[str, Sourced]) -> dict[str, Sourced]:
    """What a kernel family says of a device of stated rates."""
    rates = {f: s.value for f, s in entry.values.items() if f.startswith("matrix_rate.")}
    matrix = max(rates.get("matrix_rate.bf16", 0.0), rates.get("matrix_rate.fp16", 0.0)) or max(rates.values())
    device = {f.removeprefix("device."): s for f, s in family.items() if f.startswith("device.")}
    share = device.pop("vector_share")
    del device["tdp"], device["clock"]  # of its power
    vector = dataclasses.replace(share, value=share.value * matrix, units="FLOP/s", text=f"{share.text} x matrix rate")
    return {"vector_rate": vector} | device


def _architecture(entry: Entry, folder: str | Path | None) -> dict[str, Sourced]:
    """The leaves of a generated chip that its architecture states."""
    named = _reference(entry, "chip.architecture", str(entry.value("chip.architecture")), folder)
    return {f"chip.{field}": value for field, value in _read("architecture", named).values.items()}


def _power_defaults(entry: Entry, family: dict[str, Sourced]) -> dict[str, Sourced]:
    """Leaves of an accelerator's power: limit and clock as sold, rest power in shares of it, energies of the family.

    Cores can ask for the bandwidth of their cache.
    """
    own = entry.values
    tdp = own.get("tdp", family["device.tdp"])
    clock = own.get("power.nominal_clock", own.get("boost_clock", family["device.clock"]))
    found = {f: s for f, s in family.items() if f.startswith("power.")}
    for name in AT_REST:
        share = found.pop(f"power.{name}_share")
        found[f"power.{name}"] = dataclasses.replace(
            share, value=share.value * tdp.value, units="W", text=f"{share.text} x {tdp.text}"
        )
    if "cache_bandwidth" in own:
        found["power.feed"] = own["cache_bandwidth"]
    return found | {"power.tdp": tdp, "power.nominal_clock": clock, "power.clock": clock}


def _kernels(path: Path, folder: str | Path | None, within: tuple[Path, ...] = ()) -> dict[str, Sourced]:
    """Values of a kernels file and, where it leaves some out, of the family that it names."""
    entry = _read("kernels", path)
    named = entry.value("family")
    if named is None:
        return _complete(entry)
    parent = _reference(entry, "family", str(named), folder)
    if parent in (*within, path):
        raise InputError(f"{shown(path)}: family", repr(named), "a family that stands on its own", "break the circle")
    own = {field: value for field, value in entry.values.items() if field != "family"}
    return _kernels(parent, folder, (*within, path)) | own


def _complete(entry: Entry) -> dict[str, Sourced]:
    """Values of a kernels file that names no family; InputError for one without a leaf that it must have."""
    needed = [field.name for field in dataclasses.fields(types.Kernels) if field.metadata]
    needed += [f"device.{name}" for name in ("vector_share", "cores", "cache", "tdp", "clock")]
    needed += [f"power.{name}_share" for name in AT_REST]
    for name in needed:
        if name not in entry.values:
            fix = f"add {name} or a family to take it from"
            raise InputError(f"{shown(entry.path)}: {name}", "nothing", "a value: the field is required", fix)
    return entry.values


def _reference(entry: Entry, field: str, name: str, folder: str | Path | None) -> Path:
    """File of the entry that a field names; InputError when there is none."""
    kind = REFERENCES[entry.kind][field]
    slug = find(kind, name, folder)
    if slug is None:
        raise unknown_name(f"{shown(entry.path)}: {field}", name, paths(kind, folder), f"entries of {FOLDERS[kind]}/")
    return file_of(kind, slug, folder)


def referenced(entry: Entry, folder: str | Path | None = None) -> list[tuple[str, str]]:
    """(kind, slug) of the entries that an entry names; InputError for one that does not exist."""
    return [
        (kind, _reference(entry, field, str(entry.value(field)), folder).stem)
        for field, kind in REFERENCES.get(entry.kind, {}).items()
        if entry.value(field) not in (None, NO_NETWORK)
    ]
