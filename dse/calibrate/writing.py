"""What a calibration found, as TOML: a file of its own, and the tables of the catalogue."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse import types
from dse.calibrate.kernel_jobs import SHARED, leaf
from dse.calibrate.kernels import Found
from dse.catalog.load import FOLDERS
from dse.errors import InputError
from dse.measured.kernels import POWER

#: Records whose leaves a table may hold.
_RECORDS = (
    types.Kernels, types.FineKernels, types.AttentionKernels, types.Network, types.CollectiveKernels, types.Power,
)  # fmt: skip


class Value(NamedTuple):
    """A fitted number, the standard deviation of its logarithm, and whether the rows told it; 0: not built."""

    value: float
    spread: float
    told: bool


_NONE = Value(0.0, 0.0, told=False)


class Table(NamedTuple):
    """One table of one catalogue file."""

    kind: str
    slug: str
    name: str
    source: str
    values: dict[str, Value]

    @property
    def text(self) -> str:
        """The table as TOML: a leaf a line with its spread."""
        return self.headed(self.name)

    def headed(self, heading: str) -> str:
        """The same under another heading."""
        lines = [f"[{heading}]", f'source = "{self.source}"', 'confidence = "estimate"']
        return "\n".join([*lines, *(_line(name, value) for name, value in self.values.items())]) + "\n"


def _line(name: str, value: Value) -> str:
    text = written(name, value.value)
    if value.value == 0.0:
        return f'{name} = {{ value = {text}, source = "not of such links" }}'
    if not value.told:
        return f'{name} = {{ value = {text}, source = "prior: the rows say nothing of it" }}'
    return f"{name} = {{ value = {text}, spread = {_digits(value.spread, 2)} }}"


def tables(found: Found) -> list[Table]:
    """What one fit says, file by file: own values, means over a family, and in the generic file what all share."""
    own = {slug: _own(found, slug) for slug in found.slugs}
    result = [Table(found.job.kind, slug, found.job.table, _source(found, slug), own[slug]) for slug in own]
    for family, members in found.job.families.items():
        kept = [slug for slug in members if slug in own]
        values = _means([own[slug] for slug in kept])
        if family == SHARED:
            values = _in_order(found, values | _shared(found))
        if kept:
            source = f"{_source(found)}; a chip's own values as the mean over {', '.join(kept)}, spread among them"
            kind = "kernels" if family == SHARED else found.job.kind
            result.append(Table(kind, family, found.job.table, source, values))
    return result


def _own(found: Found, slug: str) -> dict[str, Value]:
    absent = {leaf(path): _NONE for path in found.job.zeros(slug)}
    keys = found.job.keys(slug)
    return {found.job.written(path): _value(found, key) for path, key in keys.items() if key != path} | absent


def _shared(found: Found) -> dict[str, Value]:
    return {found.job.written(path): _value(found, path) for path in found.fit.values if ":" not in path}


def _value(found: Found, key: str) -> Value:
    return Value(found.fit.values[key], found.fit.spread[key], found.fit.moved[key])


def _means(members: Sequence[dict[str, Value]]) -> dict[str, Value]:
    """Geometric means of what members have, over those whose rows told it; scatter and own spread add up."""
    result = {}
    for name in dict.fromkeys(name for one in members for name in one):
        known = [one[name] for one in members if name in one and one[name].value > 0.0]
        told = [value for value in known if value.told]
        if not told:
            result[name] = known[0] if known else _NONE
            continue
        logs = [math.log(value.value) for value in told]
        spread = math.hypot(statistics.pstdev(logs), statistics.fmean(value.spread for value in told))
        result[name] = Value(math.exp(statistics.fmean(logs)), spread, told=True)
    return result


def _in_order(found: Found, values: dict[str, Value]) -> dict[str, Value]:
    """What a table of the generic file may state, in the order of the parameters.

    A network without its own has its ``fit``, not another's latency or bandwidth, and is a switch.
    """
    level = {field.name for field in dataclasses.fields(types.Network)} if found.job.kind == "network" else set()
    names = [found.job.written(parameter.path) for parameter in found.job.parameters]
    values = {name: values[name] for name in names if name in values and name not in level}
    return values | ({"crowding": _NONE} if level else {})


def write(found: Sequence[Found], path: str | Path) -> None:
    """All tables in one TOML file, each headed by the file of the catalogue that it belongs to."""
    about = "# Fitted by dse calibrate; spread is the standard deviation of a value's logarithm.\n"
    parts = [one.headed(f"{one.slug}.{one.name}") for job in found for one in tables(job)]
    try:
        Path(path).write_text(about + "\n" + "\n".join(parts), encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error), "a file that can be written", "check -o") from None


def write_catalog(found: Sequence[Found], folder: str | Path) -> list[Path]:
    """Replaces the fitted tables in the files of a catalogue folder; returns the files."""
    changed = []
    for one in [table for job in found for table in tables(job)]:
        path = Path(folder) / FOLDERS[one.kind] / f"{one.slug}.toml"
        if not path.is_file():
            raise InputError(str(path), "no such file", "a catalogue with this entry", "name the folder hw_catalog")
        path.write_text(with_table(path.read_text(encoding="utf-8"), one.name, one.text))
        changed.append(path)
    return list(dict.fromkeys(changed))


def with_table(text: str, name: str, new: str) -> str:
    """A TOML text with one of its tables replaced, or added at its end."""
    old = re.compile(rf"^\[{re.escape(name)}\].*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
    if not old.search(text):
        return text.rstrip("\n") + "\n\n" + new
    return old.sub(lambda match: new + ("\n" if match.end() < len(text) else ""), text, count=1)


def _source(found: Found, slug: str = "") -> str:
    """What a table was fitted to, and how far off it is, in power where that was measured: of one file or of all."""
    used = np.array([slug in ("", found.job.devices[one.device]) for one in found.kernels])
    devices = dict.fromkeys(one.device for one, mine in zip(found.kernels, used, strict=True) if mine)
    power = used & np.array([one.metric == POWER for one in found.kernels])
    error = float(np.median(np.abs(np.expm1(found.errors[power if power.any() else used]))))
    kind = "of held-out shapes" if len(found.held_out) else "of the rows fitted"
    kind = f"of power {kind}" if power.any() else kind
    return (
        f"fitted to {int(used.sum())} {' and '.join(found.job.kernels)} rows of ai-dynamo/aiconfigurator on "
        f"{', '.join(devices)}; median error {100.0 * error:.1f} % {kind}"
    )


def written(leaf: str, value: float) -> str:
    """A leaf's value as the catalogue writes it: three digits, in the unit that suits it."""
    units = next(
        (types.field_metadata(record, leaf)["units"] for record in _RECORDS
         if leaf in {field.name for field in dataclasses.fields(record)}), "1",
    )  # fmt: skip
    if units == "s":
        return f'"{_digits(1e9 * value)} ns"' if value < 0.1e-6 else f'"{_digits(1e6 * value)} us"'
    if units in ("J/FLOP", "J/B"):
        return f'"{_digits(1e12 * value)} p{units}"'
    if units == "B/s":
        return f'"{_digits(1e-9 * value)} GB/s"'
    if units == "B":
        return f'"{_digits(1e-6 * value)} MB"'
    return _digits(value)


def _digits(value: float, digits: int = 3) -> str:
    """So many significant digits, without an exponent."""
    if value == 0.0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:.0f}"
