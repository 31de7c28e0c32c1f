"""What a fit to kernels says, as tables of the catalogue."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibration.kernel_parameters import SHARED, leaf
from calibration.kernels import FittedJob
from dse import types
from dse.lab.fits import writing
from dse.lab.fits.writing import Revision
from dse.measured.kernels import POWER

#: Records whose leaves a table may hold.
_KERNELS = types.Kernels, types.FineKernels, types.AttentionKernels
_RECORDS = (*_KERNELS, types.Network, types.CollectiveKernels, types.Power)


class Value(NamedTuple):
    """A number (0: not built), the standard deviation of its logarithm, and whether the rows say anything of it."""

    value: float
    spread: float
    fitted: bool


_NONE = Value(0.0, 0.0, fitted=False)


class KernelTable(NamedTuple):
    """One table of one catalogue file."""

    kind: str
    slug: str
    name: str
    source: str
    values: dict[str, Value]
    names: tuple[str, ...]  #: what the job may state in it; what else it holds is none of the fit's

    @property
    def entries(self) -> dict[str, str]:
        """Name → value as TOML: a leaf with its spread."""
        about = {"source": writing.quoted(self.source), "confidence": '"estimate"'}
        return about | {name: _stated(name, value) for name, value in self.values.items()}


def _stated(name: str, value: Value) -> str:
    text = writing.number(value.value, units(name)) if value.value else "0"
    if value.value == 0.0:
        return writing.value_table(text, source="not of such links")
    if not value.fitted:
        return writing.value_table(text, source="prior: the rows say nothing of it")
    return writing.value_table(text, value.spread)


def units(name: str) -> str:
    """SI units of a leaf, which what is written as a share has none of."""
    records = (record for record in _RECORDS if name in {field.name for field in dataclasses.fields(record)})
    return next((types.field_metadata(record, name)["units"] for record in records), "1")


def tables(found: FittedJob) -> list[KernelTable]:
    """What one fit says, file by file: own values, means over a family, and in the generic file what all share."""
    own = {slug: _own(found, slug) for slug in found.slugs}
    names = tuple(found.job.written(parameter.path) for parameter in found.job.parameters)
    job = found.job
    result = [KernelTable(job.kind, slug, job.table, _source(found, slug), own[slug], names) for slug in own]
    for family, members in found.job.families.items():
        kept = [slug for slug in members if slug in own]
        values = _means([own[slug] for slug in kept])
        if family == SHARED:
            shared = {path: path for path in found.fit.values if ":" not in path}
            values = _in_order(found, values | _values(found, shared))
        if kept:
            source = f"{_source(found)}; a chip's own values as the mean over {', '.join(kept)}, spread among them"
            kind = "kernels" if family == SHARED else found.job.kind
            result.append(KernelTable(kind, family, found.job.table, source, values, names))
    return result


def _values(found: FittedJob, keys: Mapping[str, str]) -> dict[str, Value]:
    """Name in a table → what was fitted, from path → name in the fit."""
    fit, written = found.fit, found.job.written
    return {written(path): Value(fit.values[key], fit.spread[key], fit.is_informed[key]) for path, key in keys.items()}


def _own(found: FittedJob, slug: str) -> dict[str, Value]:
    own = {path: key for path, key in found.job.keys(slug).items() if key != path}
    return _values(found, own) | {leaf(path): _NONE for path in found.job.zeros(slug)}


def _means(members: Sequence[dict[str, Value]]) -> dict[str, Value]:
    """Geometric means of what members have, over those whose rows say anything of it; scatter and spread add up."""
    result = {}
    for name in dict.fromkeys(name for one in members for name in one):
        known = [one[name] for one in members if name in one and one[name].value > 0.0]
        fitted = [value for value in known if value.fitted]
        if not fitted:
            result[name] = known[0] if known else _NONE
            continue
        logs = [math.log(value.value) for value in fitted]
        spread = math.hypot(statistics.pstdev(logs), statistics.fmean(value.spread for value in fitted))
        result[name] = Value(math.exp(statistics.fmean(logs)), spread, fitted=True)
    return result


def _in_order(found: FittedJob, values: dict[str, Value]) -> dict[str, Value]:
    """What a table of the generic file may state, in the order of the parameters.

    A network without its own has its ``fit``, not another's latency, bandwidth or bridges.
    """
    level = {field.name for field in dataclasses.fields(types.Network)} if found.job.kind == "network" else set()
    level |= {"simple_floor"}
    names = [found.job.written(parameter.path) for parameter in found.job.parameters]
    return {name: values[name] for name in names if name in values and name not in level}


def document(found: Sequence[FittedJob]) -> str:
    """All tables as TOML, each headed by the file of the catalogue that it belongs to."""
    about = "Fitted by dse calibrate; spread is the standard deviation of a value's logarithm."
    return writing.document({f"{one.slug}.{one.name}": one.entries for job in found for one in tables(job)}, about)


def revisions(found: Sequence[FittedJob], _: Path) -> list[Revision]:
    """The fitted tables of the files of a catalogue."""
    return [Revision(one.kind, one.slug, one.entries, one.name, one.names) for job in found for one in tables(job)]


def _source(found: FittedJob, slug: str = "") -> str:
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
