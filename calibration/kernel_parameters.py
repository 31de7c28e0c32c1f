"""What is fitted to measured kernels: the jobs of ``parameters.toml``, with the devices whose rows tell them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.io import toml
from dse.lab.fits.fit import Parameter, parameters_of


@dataclasses.dataclass(frozen=True)
class KernelJob:
    """Parameters of one table, fitted to all devices together: some each file's own, the rest one value for all.

    Every file of ``homes`` keeps its own values; those of a file in ``families`` are the geometric means over
    its members', with their scatter as spread: what serves devices without rows.
    """

    kind: str  #: folder of the files with own values: kernels or network
    table: str
    parameters: Sequence[Parameter]
    own: frozenset[str]  #: names of the parameters of which every file has its own value
    kernels: tuple[str, ...]  #: kinds of kernels
    homes: Mapping[str, Sequence[str]]  #: file's slug → devices whose rows tell its own values
    families: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)  #: slug → files it stands for
    absent: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)  #: slug → what is 0 there, unfitted
    apart: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)  #: slug → own there, shared elsewhere
    shares: frozenset[str] = frozenset()  #: powers that are fitted, and written, as shares of the limit as sold
    rows: int = 5000  #: most rows of one device and kind; more change no digit that counts
    sixteen_bit: float = 1.0  #: weight of 16-bit GEMMs among all
    redescending: bool = False  #: whether rows that are far off cease to count

    @property
    def devices(self) -> dict[str, str]:
        """Device → slug of the file with its own values."""
        return {device: slug for slug, devices in self.homes.items() for device in devices}

    def keys(self, slug: str) -> dict[str, str]:
        """Path of each parameter that a file has → its name in the fit."""
        absent, own = self.absent.get(slug, frozenset()), self.own | self.apart.get(slug, frozenset())
        paths = [p.path for p in self.parameters if leaf(p.path) not in absent]
        return {path: f"{slug}:{path}" if leaf(path) in own else path for path in paths}

    def stated(self, values: Mapping[str, Any], device: Any) -> dict[str, Any]:
        """Path → value as the device states it: watts where a share of its power limit is fitted."""
        return {path: v * device.power.tdp if leaf(path) in self.shares else v for path, v in values.items()}

    def written(self, path: str) -> str:
        """Name of a parameter in a table of the catalogue."""
        return f"{leaf(path)}_share" if leaf(path) in self.shares else leaf(path)

    def zeros(self, slug: str) -> list[str]:
        """Paths of what a file has not."""
        return [p.path for p in self.parameters if leaf(p.path) in self.absent.get(slug, frozenset())]

    def unknowns(self, slugs: Iterable[str]) -> list[Parameter]:
        """What is fitted to rows of some files: each parameter once, own ones once a file."""
        known = {p.path: p for p in self.parameters}
        wanted = {key: known[path] for slug in slugs for path, key in self.keys(slug).items()}
        return [dataclasses.replace(parameter, path=key) for key, parameter in wanted.items()]


def leaf(path: str) -> str:
    """Last name of a dotted path."""
    return path.rpartition(".")[2]


#: File whose values serve where a chip's or network's own and its family's say nothing.
SHARED = "generic"

#: ``parameters.toml``, whose tables the jobs of the catalogue state.
DOCUMENT = toml.parse((FILE := Path(__file__).with_name("parameters.toml")).read_text(encoding="utf-8"), str(FILE))

#: Most that a threshold can be of the nominal voltage.
HIGHEST_THRESHOLD = float(DOCUMENT["jobs"]["power"]["parameters"]["threshold"]["upper"])


def _job(table: str, row: Mapping[str, Any]) -> KernelJob:
    """A job of ``parameters.toml``."""
    homes = DOCUMENT["homes"][row["homes"]]
    absent, apart = (
        {slug: frozenset(names) for slug, names in row.get(name, {}).items()} for name in ("absent", "apart")
    )
    return KernelJob(
        row["kind"],
        table,
        parameters_of(row["parameters"], row["prefix"]),
        frozenset(leaf(name) for name, about in row["parameters"].items() if about.get("own")),
        tuple(row["kernels"]),
        homes,
        row["families"] | {SHARED: list(homes)},
        absent,
        apart,
        shares=frozenset(row.get("shares", ())),
        **{name: row[name] for name in ("rows", "sixteen_bit", "redescending") if name in row},
    )


JOBS = [_job(table, row) for table, row in DOCUMENT["jobs"].items()]
