"""Specifications of pools: that of a sweep with sections ``[prefill]``, ``[decode]``, ``[together]`` and ``[pools]``.

The section of a pool overrides the sections of the file; :mod:`dse.fleet.pools` evaluates and matches the pools.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dse.designs import catalog
from dse.designs.records import is_of_model
from dse.errors import InputError, nearest, unknown_name
from dse.io import toml
from dse.io.examples import stem_of
from dse.spec.axes import Axis
from dse.spec.sweep import SweepSpec, from_document, name_of, text_of
from dse.types.fields import POSITIVE

#: Most devices of whole workers.
_MAX_DEVICES = 1_000_000

#: Similarity from which an unknown section counts as a misspelt pool.
_MIN_SIMILARITY = 0.7

#: Pool → the settings that its section cannot change: the prefill pool generates no answer, and the decode pool finds
#: all keys and values in its memory.
POOLS: dict[str, dict[str, Any]] = {
    "prefill": {"load": "static", "output_tokens": 1},
    "decode": {"prefix_share": 1.0},
    "together": {},
}

#: Keys of ``[pools]``.
KEYS = ("prices", "transfer", "n_devices", "utilisation")

#: Share of what whole workers can serve that is asked of them, where none is stated.
_UTILISATION = 0.8


class PoolsSpec(NamedTuple):
    """A checked specification: the sweep of each pool, and how pools are matched."""

    title: str
    specs: dict[str, SweepSpec]
    prices: dict[str, float]  #: accelerator → price of a device, USD/s; empty where none are stated
    transfer: float  #: bandwidth of a device for keys and values, B/s; 0: transfers are not counted
    devices: dict[str, int]  #: accelerator → devices, of any accelerator under ""; empty: no whole workers
    utilisation: float  #: share of what whole workers can serve that is asked of them


def from_text(text: str, file: str = "pools.toml") -> PoolsSpec:
    """Return the specification of pools, in SI units, from a TOML text; ``file`` is its name in errors.

    Raises:
        InputError: for any fault of the text.
    """
    document = toml.parse(text, file)
    settings = _settings(document.pop("pools", {}), f"{file}: pools")
    overlays = {name: document.pop(name, None) for name in POOLS}
    for name in ("prefill", "decode"):
        if overlays[name] is None:
            near_names = nearest(name, document, 1, _MIN_SIMILARITY)
            fix = f"write [{name}] for [{near_names[0]}]" if near_names else f"add [{name}.axes]"
            raise InputError(file, f"no section [{name}]", "[prefill] and [decode]", fix)
    specs = {}
    for name, overlay in overlays.items():
        if overlay is not None:
            with errors_of(name, file):
                specs[name] = from_document(_merge_sections(document, overlay, name, f"{file}: {name}"), text, file)
            _check_one_model(specs[name], specs["prefill"], f"{file}: {name}")
    return PoolsSpec(str(document.get("title", stem_of(file))), specs, *settings)


def read(spec: str | Path | Mapping[str, Any]) -> PoolsSpec:
    """Return the specification of pools, in SI units, from a TOML file, ``example:NAME`` or a dictionary.

    Raises:
        InputError: for any fault of the file or its text.
    """
    return from_text(text_of(spec, "pools"), name_of(spec, "pools"))


@contextlib.contextmanager
def errors_of(name: str, file: str) -> Iterator[None]:
    """In the context, raise InputErrors with the name of the pool added to their place."""
    try:
        yield
    except InputError as error:
        location = error.where.removeprefix(f"{file}: ")
        qualified = location if location.startswith(name) or location == error.where else f"{name}.{location}"
        raise InputError(f"{file}: {qualified}", error.got, error.allowed, error.fix) from None


def _check_one_model(spec: SweepSpec, prefill: SweepSpec, where: str) -> None:
    """Raise InputError where a pool has axes of the model, or another model than the prefill pool."""
    axis_name = next((axis.name for axis in spec.axes if _is_of_model(axis.key) and varies(axis)), None)
    if axis_name is not None:
        raise InputError(
            f"{where}.axes.{axis_name}", "an axis of the model", "one model for all pools", "fix it under [workload]"
        )
    models = [_model(pool) for pool in (spec, prefill)]
    if models[0] != models[1]:
        got, allowed = (", ".join(f"{name} = {value}" for name, value in model.items()) for model in models)
        raise InputError(
            f"{where}.workload", got, f"the model of the pool of prompts: {allowed}", "fix one model under [workload]"
        )


def _model(spec: SweepSpec) -> dict[str, Any]:
    """Return leaf path, or ``workload`` → setting of the model in a specification, sorted by path."""
    axes = (*spec.names.values(), *spec.fixed.values(), *spec.axes)
    return {axis.key: axis.labels[0] for axis in sorted(axes, key=lambda axis: axis.key) if _is_of_model(axis.key)}


def _is_of_model(key: str) -> bool:
    """True for the path of a model leaf, and for ``workload``, the key of its catalogue name."""
    return key == "workload" or is_of_model(key)


def varies(axis: Axis) -> bool:
    """True for an axis of several values, or with a rule."""
    return bool(axis.rule) or len(axis.labels) > 1


def _settings(table: Any, where: str) -> tuple[dict[str, float], float, dict[str, int], float]:
    """Return (accelerator → USD/s, transfer bandwidth in B/s or 0, accelerator → devices, utilisation) of ``[pools]``.

    InputError for unknown keys and impossible values.
    """
    if not isinstance(table, dict) or not isinstance(table.get("prices", {}), dict):
        raise InputError(where, repr(table), "a table", "write [pools.prices] on a line of its own")
    for key in table:
        if key not in KEYS:
            raise unknown_name(where, key, KEYS, "keys")
    prices = {
        catalog.resolve("accelerator", name): _positive_quantity(value, "USD/s", f"{where}.prices.{name}", "4.75 USD/h")
        for name, value in table.get("prices", {}).items()
    }
    rate = table.get("transfer")
    transfer = 0.0 if rate is None else _positive_quantity(rate, "B/s", f"{where}.transfer", "25 GB/s")
    share = table.get("utilisation", _UTILISATION)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 < share < 1.0:
        raise InputError(f"{where}.utilisation", repr(share), "more than 0, less than 1", "write 0.8")
    return prices, transfer, _devices(table.get("n_devices", {}), f"{where}.n_devices"), float(share)


def _devices(setting: Any, where: str) -> dict[str, int]:
    """Return accelerator → count of devices, with "" for devices of any accelerator; InputError for other values."""
    by_name = setting if isinstance(setting, dict) else {"": setting}
    for value in by_name.values():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_DEVICES:
            allowed = f"a whole number from 1 to {_MAX_DEVICES:,}, or a table of them by accelerator"
            raise InputError(where, repr(value), allowed, "write n_devices = 64")
    return {catalog.resolve("accelerator", name) if name else "": value for name, value in by_name.items()}


def _positive_quantity(value: Any, units: str, where: str, example: str) -> float:
    """Return a text with a unit as a number above 0 in the SI units ``units``, else InputError.

    With a rate of 0 all pairs would be equal.
    """
    if not isinstance(value, str):
        raise InputError(where, repr(value), f"a string with a unit ({units})", f"write {example!r}")
    return catalog.bounded(catalog.quantity(value, units, where), value, POSITIVE, where)


def _merge_sections(document: dict[str, Any], overlay: dict[str, Any], pool: str, where: str) -> dict[str, Any]:
    """Return section → settings of a pool's sweep: the file's, overridden by the pool's, with energy computed."""
    if not isinstance(overlay, dict) or not all(isinstance(section, dict) for section in overlay.values()):
        raise InputError(where, repr(overlay), "sections of a sweep", f"write [{pool}.axes] on a line of its own")
    sections = {**document}
    overrides = {**overlay, "serving": {**overlay.get("serving", {}), **POOLS[pool]}}
    for name, section in overrides.items():
        sections[name] = {**document.get(name, {}), **section}
    sections["output"] = {**sections.get("output", {}), "energy": True}
    return sections
