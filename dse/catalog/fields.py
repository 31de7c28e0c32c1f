"""Values of a catalogue file: how they are written, their bounds, and tables of them.

A value is written bare, under its file's (or its table's) ``source`` and ``confidence``::

    bf16 = "312 TFLOP/s"

or, where these differ, as an inline table::

    cores = { value = 108, confidence = "estimate", source = "counted on the die" }

A fitted value adds its ``spread``, the standard deviation of its logarithm.

Texts carry units; plain numbers are for dimensionless fields only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, create_model

from dse import types
from dse.catalog.units import quantity
from dse.errors import InputError, unknown_name

Confidence = Literal["datasheet", "paper", "estimate", "memory-unverified"]


#: Steps that a table of efficiencies may have; shorter ones are filled up, so that all are one structure.
MOST_STEPS = 8


@dataclasses.dataclass(frozen=True)
class Sourced:
    """One value and where it comes from; ``source`` and ``confidence`` empty until the file's are filled in."""

    value: Any  #: SI number, a text (a name, a topology), or steps of (size, efficiency)
    units: str  #: SI units; "1" dimensionless, "" for texts and steps
    text: str  #: as written in the file
    source: str = ""
    confidence: str = ""
    spread: float = 0.0  #: standard deviation of the value's logarithm; 0 where none is stated


#: Keys of a value written as an inline table.
_KEYS = ("value", "source", "confidence", "spread")

# Bounds of the fields that have narrower ones than "not negative".
_POSITIVE = {
    *(f.name for record in (types.FineKernels, types.AttentionKernels, types.CollectiveKernels)
      for f in dataclasses.fields(record)
      if f.name.endswith(("efficiency", "memory", "split", "split_time", "feed", "fp8", "direct_rate"))),
    "n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "ffn_hidden", "vocab", "window", "seq_len",
    "max_seq_len", "global_batch", "capacity", "bandwidth", "domain", "efficiency", "ramp", "cores",
    "vector_rate", "vector_share", "cache", "devices_per_node", "scale_up_bandwidth", "scale_out_bandwidth",
    "matrix_efficiency", "tile_rows", "tile_columns", "vector_efficiency", "memory_efficiency",
    "flash_efficiency", "flash_backward", "matrix_slowdown", "elementwise_slowdown", "parameters_published",
    "tdp", "limit", "die_area", "boost_clock", "nominal_clock", "clock", "lowest_voltage",
    "density", "supply", "temperature", "unit_bandwidth", "unit_capacity", "unit_temperature", "power_budget",
    "matrix_devices", "vector_devices", "core_devices", "cooler", "memory_cooler",
}  # fmt: skip
_SHARES = {
    "gated", "tied_embeddings", "learned_positions", "rotary", "relative_positions", "dropout", "local_layers",
    "efficiency", "in_network_reduction", "processor_usage", "matrix_efficiency", "wave_quantization",
    "vector_efficiency", "memory_efficiency", "roofline_blend", "flash_efficiency", "fused_elementwise",
    "tp_overlap_across", "tp_overlap", "cp_overlap", "dp_overlap", "pp_overlap",
    "gradient_cache", "backward_tp_overlap", "scatter_gather",
    "core_area", "matrix_area", "vector_area", "core_memory_area", "cache_area", "memory_area", "link_area",
    "memory_edge", "link_edge", "core_power", "memory_power", "link_power", "activity", "control_activity",
    "cooler", "memory_cooler",
    "activation_output_kept", "overlap_dp", "overlap_tp", "offload_weights", "offload_activations", "offload_optimizer",
    "threshold", "lowest_voltage", "uncore_share", "leakage_share", "control_share",
}  # fmt: skip


#: Counts: whole numbers, one or more.
_COUNTS = {"tp", "pp", "dp", "cp", "micro_batch", "virtual_stages", "n_devices"}
#: Whole numbers that code a choice, and the largest.
_MOST = {"zero_stage": 3.0, "sequence_parallel": 3.0}

#: Fields that may be negative.
_SIGNED = {"gather_share", "reduce_share"}


def _number(raw: Any, units: str) -> float:
    """SI number of a raw TOML value; booleans, texts and bare numbers where ``units`` allow them."""
    if isinstance(raw, str):
        return quantity(raw, units, "")
    if not isinstance(raw, int | float):
        raise InputError("", repr(raw), f"a text with units ({units})", "write a single value")
    if units != "1":
        return quantity(str(raw), units, "")
    return float(raw)


def upper_bound(name: str) -> float:
    """The largest value of a field or leaf."""
    return 1.0 if name in _SHARES else _MOST.get(name, math.inf)


def bounded(value: float, raw: Any, name: str, where: str = "") -> float:
    """``value`` if it lies in the range of the field or leaf ``name``; what was written is ``raw``."""
    low_open, high = name in _POSITIVE | _COUNTS, upper_bound(name)
    whole = name in _COUNTS or name in _MOST
    if (
        not math.isfinite(value)
        or (value < 0 and name not in _SIGNED)
        or value > high
        or (low_open and value == 0)
        or (whole and value != int(value))
    ):
        low = "more than 0" if low_open else "0 or more"
        allowed = ("a whole number, " if whole else "") + low + (f", at most {high:g}" if math.isfinite(high) else "")
        raise InputError(where, repr(raw), allowed, "check the number")
    if isinstance(raw, bool) and high == math.inf:
        raise InputError(where, str(raw).lower(), "a number", "write the number")
    return value


def _spread(given: dict[str, Any]) -> float:
    """The spread of a value written as an inline table; 0 where it states none."""
    raw = given.get("spread", 0.0)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0.0 <= raw < math.inf:
        raise InputError("", f"spread = {raw!r}", "0 or more", "write the standard deviation of the logarithm")
    return float(raw)


def _sourced(parse: Callable[[Any], tuple[float | str, str]]) -> PlainValidator:
    """Validator of a value, bare or as ``{ value, source, confidence, spread }``; ``parse`` gives (value, units)."""

    def validate(raw: Any) -> Sourced:
        given = raw if isinstance(raw, dict) else {"value": raw}
        for key in given:
            if key not in _KEYS:
                raise unknown_name("", key, _KEYS, "keys of a value")
        if "value" not in given:
            raise InputError("", "no value", "{ value, source, confidence, spread }", "add value = …")
        confidence = given.get("confidence", "")
        if confidence and confidence not in get_args(Confidence):
            raise unknown_name("", str(confidence), get_args(Confidence), "confidences")
        value, units = parse(given["value"])
        return Sourced(value, units, str(given["value"]), str(given.get("source", "")), confidence, _spread(given))

    return PlainValidator(validate)


def _quantity_type(name: str, units: str) -> Any:
    def parse(raw: Any) -> tuple[float, str]:
        return bounded(_number(raw, units), raw, name), units

    return Annotated[Any, _sourced(parse)]


def _choice_type(enum: type[IntEnum]) -> Any:
    names = {member.name.replace("_", "-"): float(member) for member in enum}

    def parse(raw: Any) -> tuple[float, str]:
        key = str(raw).replace("_", "-")
        if key not in names:
            raise unknown_name("", str(raw), names, f"names of {enum.__name__}")
        return names[key], "1"

    return Annotated[Any, _sourced(parse)]


def steps_type(units: str) -> Any:
    """Pairs of (least size, efficiency), as a tuple in ascending order of size, the first from 0 on."""

    def parse(raw: Any) -> tuple[Any, str]:
        if not isinstance(raw, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in raw):
            raise InputError("", repr(raw), "pairs of a size and an efficiency", 'write [["1 GFLOP", 0.5], …]')
        if not 1 <= len(raw) <= MOST_STEPS:
            raise InputError("", f"{len(raw)} steps", f"1 to {MOST_STEPS}", "merge steps that differ least")
        shares = [bounded(_number(share, "1"), share, "efficiency") for _, share in raw]
        pairs = sorted(zip((_number(size, units) for size, _ in raw), shares, strict=True))
        if pairs[0][0] != 0.0:
            raise InputError("", f"a least size of {pairs[0][0]:g}", "a step from 0 on", f'add ["0 {units}", …]')
        return tuple(pairs), ""  # a table has no one unit

    return Annotated[Any, _sourced(parse)]


def _parse_text(raw: Any) -> tuple[str, str]:
    if not isinstance(raw, str):
        raise InputError("", repr(raw), "a text", "put it in quotes")
    return raw, ""


Text = Annotated[Any, _sourced(_parse_text)]


class Table(BaseModel):
    """A table of values, with the source and confidence of those that state none."""

    model_config = ConfigDict(extra="forbid", defer_build=True)  # bases and tables that no file needs are never built
    source: str | None = None
    confidence: Confidence | None = None


class File(Table):
    """What every catalogue file says of itself."""

    name: str | None = None
    aliases: list[str] = Field(default_factory=list)
    note: str = ""
    source: str = Field(min_length=1)
    confidence: Confidence


def table(name: str, required: dict[str, Any], optional: dict[str, Any], base: type[Table] = Table) -> Any:
    """A model of a table with required and optional fields."""
    fields = {key: (kind, ...) for key, kind in required.items()}
    fields |= {key: (kind, None) for key, kind in optional.items()}
    return create_model(name, __base__=base, **fields)


def leaves(record: type, *names: str) -> dict[str, Any]:
    """Field name → type of the leaves of a noun (all, or those named)."""
    kinds = {}
    for field in dataclasses.fields(record):
        if field.metadata and (not names or field.name in names):
            enum = field.metadata.get("enum")
            units = field.metadata["units"]
            kinds[field.name] = _choice_type(enum) if enum else _quantity_type(field.name, units)
    return kinds


def quantities(**units: str) -> dict[str, Any]:
    """Field name → type of numbers in these units."""
    return {name: _quantity_type(name, unit) for name, unit in units.items()}


def without(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Fields less those named."""
    return {name: kind for name, kind in fields.items() if name not in names}
