"""What a page holds of a model: the program, leaves with their bounds, figures with their names and units."""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import dse
from dse.designs import all_leaves, catalog, leaf, leaf_value, leaves_of, short_name
from dse.designs.records import LOAD, N_DEVICES, REQUEST_RATE
from dse.doors import Study
from dse.doors.study import more_is_better
from dse.errors import InputError
from dse.io import setting
from dse.io.quantities import DISPLAY_UNITS, capacity_scale, scale
from dse.lab.page.parts import styled_parts
from dse.lab.page.program import LiveModel, model_of
from dse.measured.uncertainty.intervals import has_interval
from dse.measured.uncertainty.parts import quantile
from dse.measured.uncertainty.posterior import Choice, posteriors
from dse.measured.uncertainty.spreads import spreads_of, total_deviation
from dse.types import Design, Emissions, Load, Prices, choice_name
from dse.views.explanation import continuous_leaves
from dse.views.studies import presentation_of
from dse.views.words import IN_PER_CENT

#: Leaves shown first, where a design has them.
_FIRST = (
    "workload.requests.concurrency", "workload.requests.request_rate", "workload.requests.prompt_tokens",
    "workload.requests.output_tokens", "workload.global_batch", "workload.seq_len", N_DEVICES, "mapping.tp",
    "mapping.pp", "mapping.dp", "mapping.cp", "mapping.experts.ep", "mapping.micro_batch", "mapping.virtual_stages",
    "mapping.recompute", "mapping.zero_stage", "mapping.precision", "mapping.serving.weight_bytes",
    "mapping.serving.cache_bytes", "system.accelerator.memory.bandwidth", "system.accelerator.memory.capacity",
    "system.accelerator.matrix_rate.{precision}", "system.scale_up.bandwidth", "system.scale_up.domain",
    "system.scale_out.bandwidth", "system.accelerator.power.clock", "system.accelerator.power.limit",
    "system.accelerator.made.price", "system.prices.electricity",
)  # fmt: skip

#: Leaves whose usual values are powers of two.
_DEGREES = (
    "tp", "pp", "dp", "cp", "ep", "etp", "micro_batch", "virtual_stages", "dp_replicate", "concurrency",
    "global_batch", "n_devices", "seq_len", "prompt_tokens", "output_tokens",
)  # fmt: skip

#: Leaves of the curve, and of the map across and up, the first that a design has.
_CURVE = ("memory.bandwidth", "seq_len")
_MAP_X = ("concurrency", "scale_out.bandwidth", "memory.bandwidth")
_MAP_Y = ("memory.bandwidth", "scale_up.bandwidth", "seq_len")

#: Groups of leaves by the beginning of their paths, and the heading of each.
_GROUPS = {
    "mapping.": "Mapping", "workload.requests.": "Requests", "workload.": "Model", "system.prices.": "Prices",
    "system.emissions.": "Emissions", "system.accelerator.made.": "Dies and price",
    "system.accelerator.power.": "Power", "system.accelerator.kernels.": "Kernels",
    "system.accelerator.": "Accelerator", "system.scale_": "Networks", "system.": "System",
    "software.can.": "What the stack can", "software.": "Software",
}  # fmt: skip

#: Metrics of money and energy in the headline, which a study's own has not.
_EXTRA_HEADLINE = (
    "energy_per_step",
    "energy_per_output_token",
    "capital_cost",
    "cost_per_device_hour",
    "cost_per_run",
    "cost_per_token",
)


class CatalogNames(NamedTuple):
    """Catalogue names of a design."""

    workload: str
    system: str
    software: str
    accelerator: str
    words: Sequence[str] = ()  #: of the command that evaluates it, without settings; empty where there is none
    stated: Mapping[str, str] = types.MappingProxyType({})  #: settings of that command: name of the leaf → text
    same: Mapping[str, str] = types.MappingProxyType({})  #: names that other designs beside the page must share
    known: Collection[str] = ()  #: paths of prices and the like that are known, and so have no spread

    @property
    def title(self) -> str:
        """Model, machine and stack in words."""
        chip = f", {self.accelerator}" * (not self.accelerator.startswith(self.system))
        return f"{self.workload} on {self.system}{chip}, {self.software}"


class Start(NamedTuple):
    """Where a model begins: its catalogue names and records stay."""

    study: Study
    design: Design
    names: CatalogNames
    base: Design | None = None  #: what designs beside the page have that are no values of their axes, if another


def document(start: Start) -> dict[str, Any]:
    """Return the data of a page of a model, JSON-ready."""
    study, names = start.study, start.names
    design = with_money(study.complete(start.design))
    model = model_of(study, design)
    metrics = study.evaluated(design)
    headline, leaves = _headline(study, metrics), _leaves(model, study, design)
    serves = ["--serving"] if study.name == "serving" else []
    return {
        "title": names.title,
        "study": study.name,
        "version": dse.__version__,
        "program": model.program.as_dict(),
        "leaves": leaves,
        "smooth": [model.paths.index(path) for path in continuous_leaves(design) if path in model.read],
        "figures": model.outputs
        | {
            "operators": [
                {"name": name, "section": section, **places}
                for (section, name), places in zip(model.operators, model.outputs["operators"], strict=True)
            ]
        },
        "metrics": {name: _metric(study, name) for name in study.units},
        "headline": headline,
        "totals": [{"name": total, "parts": styled_parts(study.parts(total))} for total in study.totals],
        "bounds": styled_parts({name: f"bound_by_{name}" for name in model.outputs["bounds"]}),
        "shown": _initial_view(study, [about["name"] for about in leaves if about["read"]]),
        "written": DISPLAY_UNITS,
        "memory": study.memory,
        "reasons": [[bit, name, study.reason_meanings[name]] for name, bit in study.reason_bits.items()],
        "noStep": study.no_step_bits,
        "holds": [name for name in study.units if study.is_valid_without_step(name)],
        "follows": _derived_degree(model, study),
        "operatorsOf": presentation_of(study).operators_of,
        "intervals": _intervals(study, design, names, [*headline, *study.totals]),
        "command": " ".join(map(shlex.quote, ["dse", "evaluate", *serves, *names.words])) if names.words else "",
        "stated": dict(names.stated),
        "same": dict(names.same),
        "base": _base(start, design, model.paths),
    }


def _base(start: Start, design: Design, paths: Sequence[str]) -> dict[str, float]:
    """Return leaf path → value of the results' designs where it differs from that of the page's first design."""
    if start.base is None:
        return {}
    base = with_money(start.study.complete(start.base))
    base_paths = leaves_of(base)
    base_values = {path: leaf(base, path) for path in paths if path in base_paths}
    values = {path: float(value) for path, value in base_values.items() if value is not None}
    return {path: value for path, value in values.items() if np.float32(value) != np.float32(leaf(design, path))}


def with_money(design: Design) -> Design:
    """Return the design with its default prices and emissions stated, so that they can be changed."""
    system = design.system
    priced = dataclasses.replace(system, prices=system.prices or Prices(), emissions=system.emissions or Emissions())
    return dataclasses.replace(design, system=priced)


def _headline(study: Study, metrics: Mapping[str, float]) -> list[str]:
    """Return the names of the metrics in the headline."""
    names = [*presentation_of(study).headline(metrics), *_EXTRA_HEADLINE]
    return [name for name in dict.fromkeys(names) if name in study.units]


# --- leaves -----------------------------------------------------------------------------------------------


def _leaves(model: LiveModel, study: Study, design: Design) -> list[dict[str, Any]]:
    """Return a record for each input: description, bounds, and place among the controls, JSON-ready."""
    precision = next((e.name for e in _precisions() if float(e) == float(design.mapping.precision)), "")
    first = [path.format(precision=precision) for path in _FIRST]
    entries = [
        _leaf(path, float(leaf(design, path)), path in model.read and not path.startswith(study.ignored_leaves), first)
        for path in model.paths
    ]
    for entry in entries:  # requests at a rate, of which this design has none
        if entry["path"] == LOAD and REQUEST_RATE not in model.paths:
            entry["choices"] = [choice for choice in entry["choices"] if choice[0] != Load.rate]
    return entries


def _initial_view(study: Study, names: Sequence[str]) -> dict[str, str]:
    """Return what a page shows first: names of a metric and of the leaves of curve and map, and the map's range."""

    def first(candidates: Sequence[str], other: str = "") -> str:
        return next((name for name in candidates if name in names and name != other), names[0])

    x = first(_MAP_X)
    return {"metric": study.objective, "curve": first(_CURVE), "x": x, "y": first(_MAP_Y, x), "times": "4"}


def _precisions() -> Any:
    """Return the enumeration of number formats."""
    return all_leaves()["mapping.precision"]["enum"]


def _leaf(path: str, value: float, is_read: bool, first: Sequence[str]) -> dict[str, Any]:
    """Return the record of an input, JSON-ready: value and bounds in SI units, with the factor to displayed units."""
    about = all_leaves()[path]
    bounds, units, name = about["bounds"], about["units"], short_name(path)
    factor, units_text = capacity_scale(value) if units == "B" and value >= 1.0 else scale(value, units)
    entry: dict[str, Any] = {
        "path": path,
        "name": name,
        "label": about["long_name"],
        "value": value,
        "factor": factor,
        "units": units_text,
        "low": bounds.low,
        "high": bounds.high,
        "above": bounds.above,
        "whole": bounds.is_integer,
        "allowed": str(bounds),
        "group": next(text for start, text in _GROUPS.items() if path.startswith(start)),
        "first": first.index(path) if path in first else -1,
        "read": is_read,
    }
    if "enum" in about:
        entry["choices"] = [[float(choice), choice_name(choice)] for choice in about["enum"]]
    elif bounds.is_integer and bounds.high <= 1.0:
        entry["choices"] = [[0.0, "no"], [1.0, "yes"]]
    elif control_values := _control_values(value, name.rpartition(".")[2] in _DEGREES, bounds.is_integer):
        entry["listed"] = control_values
    return entry


def _control_values(value: float, is_degree: bool, is_integer: bool) -> list[float]:
    """Return the values of a control with few values: powers of two for degrees, small integers, else empty."""
    if not is_degree:
        return [*map(float, range(33))] if is_integer and value < 16.0 else []
    highest = max(64.0, value * 16.0)
    values = {2.0**power for power in range(64) if 2.0**power <= highest}
    values |= {value * 2.0**power for power in range(8) if 1.0 <= value * 2.0**power <= highest}
    while value >= 2.0 and value % 2.0 == 0.0:
        value /= 2.0
        values.add(value)
    return sorted(values | ({0.0} if value == 0.0 else set()))


def _derived_degree(model: LiveModel, study: Study) -> dict[str, Any] | None:
    """Return the indices of inputs by which data parallelism follows from devices, None where one is absent."""
    paths = ["mapping.dp", N_DEVICES, "mapping.tp", "mapping.pp"] + ["mapping.cp"] * (
        "mapping.cp" not in study.ignored_leaves
    )
    if not set(paths) <= set(model.paths):
        return None
    replicas, devices, *degrees = (model.paths.index(path) for path in paths)
    return {"replicas": replicas, "devices": devices, "degrees": degrees}


# --- figures ----------------------------------------------------------------------------------------------


def _metric(study: Study, name: str) -> dict[str, Any]:
    """Return the record of a metric, JSON-ready: names, displayed units, and how it is shown."""
    return {
        "label": study.long_names[name],
        "short": name.replace("_", " "),
        "units": study.display_units[name],
        "share": name in IN_PER_CENT,
        "more": more_is_better(name),
        "smooth": name in study.smooth,
    }


# --- intervals --------------------------------------------------------------------------------------------


def _intervals(study: Study, design: Design, names: CatalogNames, metrics: Sequence[str]) -> dict[str, Any]:
    """Return the data of intervals, to first order as those of :mod:`dse.measured.uncertainty.intervals`.

    ``steps``: leaf → standard deviation of its logarithm, by which the page moves it; ``metrics``: metric → ``rest``,
    the standard deviation of its logarithm that no leaf explains, and ``factors``: of each of what leaves have in
    common, leaf → its share of the change.
    """
    interval_metrics = [name for name in dict.fromkeys(metrics) if has_interval(name, study)]
    stack, model = catalog.resolve("software", names.software), catalog.resolve("workload", names.workload)
    choice = Choice("", design, stack, names.accelerator, model, names.system, fixed_paths=names.known)
    steps = {
        path: total_deviation(factors_of_leaf)
        for path, factors_of_leaf in spreads_of(stack, names.accelerator, names.system).items()
    }
    entries, paths = dict[str, Any](), set[str]()
    for name, metric_posterior in posteriors([choice], interval_metrics, study).items():
        factors: dict[str, dict[str, float]] = {}
        for path, factors_of_leaf in metric_posterior.spreads[0].items():
            for factor in factors_of_leaf:
                shares = factors.setdefault(factor.key, {})
                shares[path] = shares.get(path, 0.0) + _rounded(factor.deviation / steps[path])
        unexplained = math.hypot(
            *(float(effect[0]) for key, effect in metric_posterior.effects.items() if key not in factors)
        )
        entries[name] = {"rest": _rounded(unexplained), "factors": [*factors.values()]}
        paths |= {*metric_posterior.spreads[0]}
    rounded_steps = {path: _rounded(steps[path]) for path in sorted(paths)}
    return {"width": quantile(), "steps": rounded_steps, "metrics": entries}


def _rounded(value: float) -> float:
    """Return a number rounded to seven significant digits."""
    return float(f"{value:.7g}")


# --- the command line -------------------------------------------------------------------------------------


@functools.lru_cache(4096)
def value_text(path: str, value: float) -> str:
    """Return a leaf's value as text as users write it, with its unit and the digits that the model reads.

    Args:
        path: of the leaf.
        value: in SI units.
    """
    about = all_leaves()[path]
    if about.get("enum"):
        return choice_name(about["enum"](int(value)))
    plain = f"{value:.0f}" if value == int(value) and abs(value) < 1e9 else str(np.float32(value))
    if about["units"] == "1":
        return plain
    readable = setting(value, about["units"]).replace("²", "2").replace("µ", "u")
    for text in (readable, f"{plain} {about['units']}"):
        try:
            if np.float32(leaf_value(path, text)) == np.float32(value):
                return text
        except InputError:
            continue
    return plain
