"""What a calibration found, as TOML: a file of its own, and the tables of the catalogue."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path

from dse import types
from dse.calibrate.kernels import Found
from dse.catalog.load import FOLDERS
from dse.errors import InputError

#: Records whose leaves a table may hold.
_RECORDS = (types.Kernels, types.FineKernels, types.AttentionKernels, types.Network, types.CollectiveKernels)


def write(found: Sequence[Found], path: str | Path) -> None:
    """All tables in one TOML file, each headed by the file of the catalogue that it belongs to."""
    about = "# Fitted by dse calibrate; behind a value, the standard deviation of its logarithm.\n"
    parts = [table(one, f"{one.job.slug}.{one.job.table}") for one in found]
    try:
        Path(path).write_text(about + "\n" + "\n".join(parts), encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error), "a file that can be written", "check -o") from None


def write_catalog(found: Sequence[Found], folder: str | Path) -> list[Path]:
    """Replaces the fitted tables in the files of a catalogue folder; returns the files."""
    changed = []
    for one in found:
        path = Path(folder) / FOLDERS[one.job.kind] / f"{one.job.slug}.toml"
        if not path.is_file():
            raise InputError(str(path), "no such file", "a catalogue with this entry", "name the folder hw_catalog")
        path.write_text(_with_table(path.read_text(encoding="utf-8"), one.job.table, table(one, one.job.table)))
        changed.append(path)
    return list(dict.fromkeys(changed))


def _with_table(text: str, name: str, new: str) -> str:
    """A TOML text with one of its tables replaced, or added at its end."""
    old = re.compile(rf"^\[{re.escape(name)}\].*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
    if not old.search(text):
        return text.rstrip("\n") + "\n\n" + new
    return old.sub(lambda match: new + ("\n" if match.end() < len(text) else ""), text, count=1)


def table(found: Found, heading: str) -> str:
    """One table: its source with rows and residuals, then a leaf a line with its spread."""
    fit, job = found.fit, found.job
    lines = [f"[{heading}]", f'source = "{_source(found)}"', 'confidence = "estimate"']
    for parameter in job.parameters:
        path = parameter.path
        text = written(path.split(".")[-1], fit.values[path])
        lines.append(
            f"{path.split('.')[-1]} = {text}  # +-{100.0 * fit.spread[path]:.2g} %"
            if fit.moved[path]
            else f'{path.split(".")[-1]} = {{ value = {text}, source = "prior: the rows say nothing of it" }}'
        )
    return "\n".join(lines) + "\n"


def _source(found: Found) -> str:
    kind = "of held-out shapes" if len(found.held_out) else "of the rows fitted"
    return (
        f"fitted to {found.fit.rows} {' and '.join(found.job.kernels)} rows of ai-dynamo/aiconfigurator on "
        f"{', '.join(found.job.devices)}; median error {100.0 * found.median_error:.1f} % {kind}"
    )


def written(leaf: str, value: float) -> str:
    """A leaf's value as the catalogue writes it: three digits, in the unit that suits it."""
    units = next(
        types.field_metadata(record, leaf)["units"] for record in _RECORDS
        if leaf in {field.name for field in dataclasses.fields(record)}
    )  # fmt: skip
    if units == "s":
        return f'"{_digits(1e9 * value)} ns"' if value < 0.1e-6 else f'"{_digits(1e6 * value)} us"'
    if units == "B":
        return f'"{_digits(1e-6 * value)} MB"'
    return _digits(value)


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0.0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:.0f}"
