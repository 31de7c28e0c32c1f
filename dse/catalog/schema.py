"""What a catalogue file may hold: one table of fields a kind, derived from the records of ``dse.types``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from dse import types
from dse.catalog import value
from dse.catalog.value import Parser, Sourced
from dse.errors import InputError, unknown_name
from dse.types import NOT_NEGATIVE, POSITIVE, SHARE, Bounds, paths


class Field(NamedTuple):
    """One value of a file."""

    parse: Parser
    required: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a file: fields and tables by key."""

    fields: dict[str, Field | Table]
    required: bool = False
    plain: bool = False  #: whether its fields keep their plain names in an entry (``latency``, not ``fit.latency``)
    shorthand: str = ""  #: the field that a text in place of the table means
    check: Callable[[dict[str, Sourced], str], None] = lambda values, where: None  #: of all values together


#: What a file says of itself beside its values, and what files of a kind say too.
_HEADER = ("name", "aliases", "note")
_HEADERS = {"workload": (*_HEADER, "n_experts"), "system": (*_HEADER, "sources"), "software": (*_HEADER, "sources")}


# --- fields -----------------------------------------------------------------------------------------------


def _leaf(about: dict[str, Any]) -> Field:
    """A leaf of a record by its metadata."""
    enum = about.get("enum")
    if enum:
        return Field(lambda raw, where: (value.choice(raw, enum, where), "1"))
    return _number(about["units"], about["bounds"])


def _number(units: str, bounds: Bounds = NOT_NEGATIVE) -> Field:
    return Field(lambda raw, where: (value.number(raw, units, bounds, where), units))


def _leaves(record: type, *names: str) -> dict[str, Field]:
    """The leaves of a record itself: all, or those named."""
    return {name: _leaf(about) for name, about in paths.leaves(record).items()
            if "." not in name and (not names or name in names)}  # fmt: skip


def _numbers(**units: str | tuple[str, Bounds]) -> dict[str, Field]:
    return {name: _number(*([unit] if isinstance(unit, str) else unit)) for name, unit in units.items()}


def _texts(*names: str) -> dict[str, Field]:
    return dict.fromkeys(names, Field(value.text))


def _required(fields: dict[str, Field]) -> dict[str, Field]:
    return {name: field._replace(required=True) for name, field in fields.items()}


def _without(fields: dict[str, Field], *names: str) -> dict[str, Field]:
    return {name: field for name, field in fields.items() if name not in names}


def _first_required(fields: dict[str, Field], *names: str) -> dict[str, Field]:
    """The fields with those named required and in front."""
    return _required({name: fields[name] for name in fields if name in names}) | _without(fields, *names)


# --- kinds ------------------------------------------------------------------------------------------------

#: Power at rest, which a family states as shares of the power limit as sold.
AT_REST = ("uncore", "leakage", "control")

_AREA, _TDP, _CLOCK = ("m^2", POSITIVE), ("W", POSITIVE), ("Hz", POSITIVE)
_LEVELS = dict(scale_up_bandwidth=("B/s", POSITIVE), scale_out_bandwidth=("B/s", POSITIVE))
_HOST = _numbers(
    host_memory="B", host_bandwidth="B/s", host_power="W", host_power_share="1", pue=("1", Bounds(low=1.0))
)
_NODE = Table(
    _texts("scale_up", "scale_out", "software") | _numbers(devices_per_node=("1", POSITIVE), **_LEVELS) | _HOST
)
_POWER, _CHIP, _WORKLOAD = _leaves(types.Power), _leaves(types.Chip), _leaves(types.Workload)
_YEAR = _numbers(year="1")


def _some_rate(values: dict[str, Sourced], where: str) -> None:
    if not any(rate.value for rate in values.values()):
        raise InputError(where, "no rate", "at least one of bf16, fp16, fp8, …", 'add bf16 = "… TFLOP/s"')


def _stated_or_generated(values: dict[str, Sourced], where: str) -> None:
    """An accelerator states its matrix rate and memory, or has a chip that makes them."""
    tables = {field.partition(".")[0] for field in values}
    for name in ("matrix_rate", "memory"):
        if {"chip", name} <= tables:
            allowed, fix = f"{name} or a chip that makes it", f"remove [{name}] or [chip]"
            raise InputError(f"{where}: {name}", "both", allowed, fix)
        if not {"chip", name} & tables:
            raise _missing(f"{where}: {name}", name)


_RATES = _leaves(types.MatrixRate) | _numbers(fp64="FLOP/s")
_STEPS = Table({"matrix": Field(value.steps("FLOP")), "vector": Field(value.steps("FLOP")),
                "memory": Field(value.steps("B"))})  # fmt: skip
_COLLECTIVE_KERNELS = _leaves(types.CollectiveKernels) | _leaves(
    types.Network, "latency", "efficiency", "ramp", "in_network_reduction"
)

#: One device; all but the matrix rate and the memory falls back on its kernel family. One with a ``chip`` is
#: generated from it, and states neither.
_ACCELERATOR = Table(
    _texts("vendor", "architecture", "status") | _YEAR | _leaves(types.Accelerator, "vector_rate", "cache")
    | {
        "kernels": Table(_texts("family") | _leaves(types.Kernels) | {"steps": _STEPS}, shorthand="family"),
        "matrix_rate": Table(_RATES, check=_some_rate),
        "memory": Table(_required(_leaves(types.MemoryTier)) | _texts("kind")),
        "chip": Table(
            _required(_texts("architecture", "node", "memory"))
            | _first_required(_texts("base_node") | _CHIP, "die_area", "power_budget", "stacks")
        ),
        "structure": Table(plain=True, fields=_numbers(
            cores=("1", POSITIVE), vector_rate_16bit="FLOP/s", cache_bandwidth="B/s", onchip_bandwidth="B/s",
        )),
        "physical": Table(plain=True, fields=_texts("process_node", "host_link") | _numbers(
            compute_dies="1", die_area=_AREA, transistors="1", tdp=_TDP, idle_power="W", boost_clock=_CLOCK,
            price="USD", vector_rate_fp64="FLOP/s", onchip_memory="B", host_bandwidth="B/s",
        )),
        "power": Table(_without(_POWER, "tdp")),  # tdp and the boost clock are physical
        "link": Table(_texts("kind", "topology") | _numbers(bandwidth=("B/s", POSITIVE), domain=("1", POSITIVE))),
        "node": _NODE,
    },
    check=_stated_or_generated,
)  # fmt: skip

#: Kernel efficiencies of a chip or a family, and what stands in for what its accelerators leave out.
#:
#: What it leaves out itself is that of the ``family`` it names. ``fine`` restates those leaves that take another
#: value beside the finer terms. ``alone`` is what collectives of every network share. ``power`` holds energies, and
#: power at rest in shares of the power limit as sold.
_KERNELS = Table(_texts("family") | _leaves(types.Kernels) | {
    "device": Table(_numbers(
        vector_share=("1", POSITIVE), cores=("1", POSITIVE), cache=("B", POSITIVE), tdp=_TDP, clock=_CLOCK,
    )),
    "node": _NODE,
    "fine": Table(_leaves(types.FineKernels) | _leaves(types.Kernels)),
    "attention": Table(_leaves(types.AttentionKernels)),
    "power": Table(
        _without(_POWER, *AT_REST, "tdp", "nominal_clock", "clock", "limit", "feed")
        | _numbers(**{f"{name}_share": ("1", SHARE) for name in AT_REST})
    ),
    "alone": Table(_COLLECTIVE_KERNELS),
})  # fmt: skip

#: One network level: what is built, and how near software comes to it (``fit``).
_NETWORK = Table(
    _required(_leaves(types.Network, "bandwidth", "domain")) | _texts("family", "scope", "topology", "lanes")
    | _leaves(types.Network, "in_network_reduction")
    | _numbers(year="1", wire_latency="s", energy="J/B")
    | {
        "fit": Table(
            _required(_leaves(types.Network, "latency", "efficiency", "ramp", "processor_usage")),
            required=True, plain=True,
        ),
        "volumes": Table(_leaves(types.Volumes)),
        "alone": Table(_COLLECTIVE_KERNELS),
    }
)  # fmt: skip

#: A cluster of nodes; ``sources`` names the measured sources that ran there.
_SYSTEM = Table(
    _required(_texts("accelerator", "scale_up", "scale_out", "software") | _numbers(devices_per_node=("1", POSITIVE)))
    | _texts("topology") | _HOST | _numbers(**_LEVELS, nics_per_node="1")
)  # fmt: skip

#: A stack, what it does where a mapping leaves it open, and in ``sources`` the measured sources that used it.
#: ``family`` names the chips of a stack that nothing was measured of: it gets what their stacks share.
_SOFTWARE = Table(
    _first_required(
        _texts("family") | _leaves(types.Software),
        *(name for name, about in paths.leaves(types.Software).items() if "default" not in about),
    )
    | _numbers(
        zero_stage=("1", Bounds(high=3.0, whole=True)), sequence_parallel=("1", Bounds(high=3.0, whole=True)),
        overlap_dp=("1", SHARE), overlap_tp=("1", SHARE), residual="1",
    )
)  # fmt: skip

#: A dense decoder transformer.
_MODEL = Table(
    _first_required(_WORKLOAD, "n_layers", "hidden", "n_heads", "ffn_hidden", "vocab", "seq_len")
    | _texts("family") | _numbers(max_seq_len=("1", POSITIVE), parameters_published=("1", POSITIVE))
)  # fmt: skip

#: A process of logic. ``delay`` is that of a gate over N7's at iso power, as claimed; the model does not use it.
_LOGIC_NODE = Table(
    _required(_leaves(types.LogicNode)) | _texts("foundry", "status")
    | _numbers(year="1", supply=("V", POSITIVE), wafer_price="USD", defect_density="1/m^2", delay="1", bitcell="m^2")
)  # fmt: skip

#: A memory by its unit (stack, device, DIMM, drive).
_MEMORY = Table(
    _required(_leaves(types.MemoryTechnology)) | _texts("family", "status", "unit")
    | _numbers(year="1", unit_latency="s", unit_price="USD")
)  # fmt: skip

#: Shares and constants that the chips of an architecture have in common: all leaves but a chip's own.
_ARCHITECTURE = Table(
    _required(_without(_CHIP, "die_area", "base_area", "power_budget", "clock_ratio", "stacks", "link_bandwidth"))
)

#: Kind → what its files may hold.
SCHEMAS = {
    "accelerator": _ACCELERATOR, "network": _NETWORK, "system": _SYSTEM, "software": _SOFTWARE, "workload": _MODEL,
    "kernels": _KERNELS, "node": _LOGIC_NODE, "memory": _MEMORY, "architecture": _ARCHITECTURE,
}  # fmt: skip


# --- reading ----------------------------------------------------------------------------------------------


def read(kind: str, data: dict[str, Any], file: str) -> dict[str, Sourced]:
    """Field → value of a parsed file of a kind; fields of a table are dotted (``memory.bandwidth``).

    Raises:
        InputError: for the first thing that is wrong; a misspelt key before the one that it leaves missing.
    """
    header = ("source", "confidence", *_HEADERS.get(kind, _HEADER))
    _check_keys(data, SCHEMAS[kind], file, "", header)
    _check_header(data, file)
    return _values(data, SCHEMAS[kind], file, "", data["source"], data["confidence"])


def _check_keys(data: dict[str, Any], table: Table, file: str, at: str, header: tuple[str, ...]) -> None:
    """That every key of a table at the dotted key ``at`` is one of its fields, or says what they have in common."""
    for key, raw in data.items():
        field = table.fields.get(key)
        if field is None and key not in header:
            raise unknown_name(file, at + key, [at + name for name in table.fields], "fields")
        if isinstance(field, Table) and isinstance(raw, dict):
            _check_keys(raw, field, file, f"{at}{key}.", ("source", "confidence"))


def _check_header(data: dict[str, Any], file: str) -> None:
    for key in ("source", "confidence"):
        if not data.get(key):
            raise _missing(f"{file}: {key}", key)
    for key in ("source", "name", "note"):
        value.text(data.get(key, ""), f"{file}: {key}")
    for key in ("aliases", "sources"):
        texts = data.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{file}: {key}", repr(texts), "a list of texts", f'write {key} = ["…"]')
    if data.get("n_experts", 1) != 1:
        fix = "mixture of experts is not modelled yet: use a dense model"
        raise InputError(f"{file}: n_experts", repr(data["n_experts"]), "1 or absent", fix)


def _values(data: dict[str, Any], table: Table, file: str, at: str, source: str, confidence: str) -> dict[str, Sourced]:
    """Field → value of a table at the dotted key ``at``; sources and confidences are inherited."""
    source = data.get("source") or source
    confidence = value.checked_confidence(data.get("confidence") or confidence, f"{file}: {at}confidence")
    found: dict[str, Sourced] = {}
    for key, field in table.fields.items():
        raw, where = data.get(key), f"{file}: {at}{key}"
        if raw is None and field.required:
            raise _missing(where, at + key)
        if raw is None:
            continue
        if isinstance(field, Field):
            found[key] = value.sourced(raw, field.parse, where, source, confidence)
            continue
        inner = {field.shorthand: raw} if isinstance(raw, str) and field.shorthand else raw
        if not isinstance(inner, dict):
            raise InputError(where, repr(raw), "a table", f"write [{at}{key}] on a line of its own")
        prefix = "" if field.plain else f"{key}."
        values = _values(inner, field, file, f"{at}{key}.", source, confidence)
        found |= {prefix + name: one for name, one in values.items()}
    table.check(found, f"{file}: {at[:-1]}" if at else file)
    return found


def _missing(where: str, name: str) -> InputError:
    return InputError(where, "nothing", "a value: the field is required", f"add {name} (is the file complete?)")
