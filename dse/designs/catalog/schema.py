"""What a catalogue file may hold: one table of fields a kind, derived from the records of ``dse.types``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from dse import types
from dse.designs.catalog import value
from dse.designs.catalog.value import Parser, Sourced
from dse.errors import InputError, unknown_name
from dse.types import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, YES_OR_NO, Bounds, paths


@dataclasses.dataclass(frozen=True)
class TableField:
    """A table of a file: fields and tables by key."""

    fields: Mapping[str, Parser | TableField]
    needs: tuple[str, ...] = ()  #: fields and tables that must be there
    plain: bool = False  #: whether its fields keep their plain names in an entry (``latency``, not ``fit.latency``)
    shorthand: str = ""  #: the field that a text in place of the table means
    check: Callable[[dict[str, Sourced], str], None] = lambda values, where: None  #: of all values together


#: Header of a file, and the further fields of a kind.
_HEADER = ("name", "aliases", "note")
_HEADERS = {
    "workload": (*_HEADER, "n_experts"), "system": (*_HEADER, "sources"),
    "software": (*_HEADER, "sources", "nearest"),
}  # fmt: skip


# --- fields -----------------------------------------------------------------------------------------------


def _leaves(record: type, *names: str) -> dict[str, Parser]:
    """Return leaf → parser of a record itself, without those of inner records: all, or those named."""
    return {
        name: ChoiceField(metadata["enum"], metadata["long_name"])
        if "enum" in metadata
        else NumberField(metadata["units"], metadata["bounds"], metadata["long_name"], metadata.get("default"))
        for name, metadata in paths.leaves(record).items()
        if "." not in name and (not names or name in names)
    }


@dataclasses.dataclass(frozen=True)
class NumberField:
    """Parser of a number of a unit within bounds, with ``meaning`` and ``default`` where it is a leaf of a design."""

    units: str
    bounds: Bounds = NOT_NEGATIVE
    meaning: str = ""
    default: float | None = None

    def __call__(self, raw: Any, where: str) -> tuple[float, str]:
        """Return (number in SI units, units) of a raw value."""
        return value.number(raw, self.units, self.bounds, where), self.units


@dataclasses.dataclass(frozen=True)
class ChoiceField:
    """Parser of a name of an enumeration."""

    enum: type[IntEnum]
    meaning: str = ""

    def __call__(self, raw: Any, where: str) -> tuple[float, str]:
        """Return (code of the choice, "1") of a raw name."""
        return value.choice(raw, self.enum, where), "1"


def _numbers(**units: str | tuple[str, Bounds]) -> dict[str, Parser]:
    """Return field → parser of a number; values are its units, or (units, bounds)."""
    return {name: NumberField(*([unit] if isinstance(unit, str) else unit)) for name, unit in units.items()}


def _texts(*names: str) -> dict[str, Parser]:
    """Return field → parser of a text."""
    return dict.fromkeys(names, value.text)


def _omit(fields: dict[str, Parser], *names: str) -> dict[str, Parser]:
    """Return fields without those named."""
    return {name: field for name, field in fields.items() if name not in names}


def _required_leaves(record: type) -> tuple[str, ...]:
    """Return the paths of the leaves of a record that have no default."""
    return tuple(name for name, metadata in paths.leaves(record).items() if "default" not in metadata)


# --- kinds ------------------------------------------------------------------------------------------------

#: Power at rest, which a family states as shares of the power limit as sold; of leakage also what a transistor has.
AT_REST = ("uncore", "leakage", "control")

_AREA, _TDP, _CLOCK = ("m^2", POSITIVE), ("W", POSITIVE), ("Hz", POSITIVE)
_NUMBERS = _numbers(
    devices_per_node=("1", POSITIVE),
    devices_per_host=("1", COUNT),
    scale_up_bandwidth=("B/s", POSITIVE),
    scale_out_bandwidth=("B/s", POSITIVE),
)
_HOST = _numbers(
    host_memory="B",
    host_bandwidth="B/s",
    host_power="W",
    host_power_share="1",
    pue=("1", Bounds(low=1.0)),
    crowding="1",
    host_slowdown=("1", POSITIVE),
)
_YEAR = _numbers(year=("1", Bounds(low=1990.0, is_integer=True)))
_NODE = TableField(_texts("scale_up", "scale_out", "software", "engine", "tool") | _YEAR | _HOST | _NUMBERS)
_POWER = _leaves(types.Power)


def _check_any_rate(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError where every rate is 0."""
    if not any(rate.value for rate in values.values()):
        raise InputError(where, "no rate", "at least one of bf16, fp16, fp8, …", 'add bf16 = "… TFLOP/s"')


def _check_rates_or_chip(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError unless an accelerator states matrix rate and memory, or a chip, and not both."""
    tables = {field.partition(".")[0] for field in values}
    for name in ("matrix_rate", "memory"):
        if {"chip", name} <= tables:
            allowed, fix = f"either {name}, or a chip that it follows from", f"remove [{name}] or [chip]"
            raise InputError(f"{where}: {name}", "both", allowed, fix)
        if not {"chip", name} & tables:
            raise _missing(f"{where}: {name}", name)


def _check_usable_memory(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError where the memory that the runtime leaves is more than the capacity."""
    capacity, usable = values["capacity"], values.get("usable")
    if usable is not None and usable.value > capacity.value:
        raise InputError(
            f"{where}.usable", usable.text, f"{capacity.text} (capacity) or less", "state both of one device"
        )


def _check_cores(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError where enabled cores are more than those of the dies."""
    enabled, full = values.get("cores"), values.get("full_cores")
    if enabled is not None and full is not None and full.value < enabled.value:
        allowed = f"{enabled.text} or more: enabled cores are part of them"
        raise InputError(f"{where}.full_cores", full.text, allowed, "count the cores that are off too")


_RATES = _leaves(types.MatrixRate)
_STEPS = TableField(dict(matrix=value.steps("FLOP"), vector=value.steps("FLOP"), memory=value.steps("B")))
_COLLECTIVE_KERNELS = _leaves(types.CollectiveKernels) | _leaves(
    types.Network, "latency", "efficiency", "ramp", "in_network_reduction", "crowding"
)

#: One device; all but the matrix rate and the memory falls back on its kernel family. One with a ``chip`` is
#: generated from it, and states neither.
_ACCELERATOR = TableField(
    _texts("vendor", "architecture", "status") | _numbers(year="1")
    | _omit(_leaves(types.Accelerator), "cores")
    | {
        "kernels": TableField(_texts("family") | _leaves(types.Kernels) | {"steps": _STEPS}, shorthand="family"),
        "matrix_rate": TableField(_RATES, check=_check_any_rate),
        "memory": TableField(
            _leaves(types.MemoryTier) | _texts("kind") | _numbers(usable=("B", POSITIVE)),
            needs=_required_leaves(types.MemoryTier), check=_check_usable_memory,
        ),
        "chip": TableField(
            _texts("architecture", "node", "memory", "base_node") | _leaves(types.Chip),
            needs=("architecture", "node", "memory", "die_area", "power_budget", "stacks"),
        ),
        "structure": TableField(
            _leaves(types.Accelerator, "cores") | _numbers(full_cores=("1", POSITIVE), cache_bandwidth="B/s"),
            plain=True, check=_check_cores,
        ),
        "physical": TableField(plain=True, fields=_leaves(types.Manufacture, "price") | _numbers(
            compute_dies="1", die_area=_AREA, transistors="1", tdp=_TDP, idle_power="W", boost_clock=_CLOCK,
            onchip_memory="B", host_bandwidth="B/s",
        )),
        "made": TableField(_texts("node", "base_node") | _omit(_leaves(types.Manufacture), "price")),
        "power": TableField(_omit(_POWER, "tdp")),  # tdp and the boost clock are physical
        "link": TableField(_texts("kind", "topology") | _numbers(bandwidth=("B/s", POSITIVE), domain=("1", POSITIVE))),
        "node": _NODE,
    },
    check=_check_rates_or_chip,
)  # fmt: skip

#: Kernel efficiencies of a chip or a family, and what stands in for what its accelerators leave out.
#:
#: What it leaves out itself is that of the ``family`` it names. ``alone`` is what collectives of every network share.
#: ``power`` holds energies, and power at rest in shares of the power limit as sold, leakage of accelerators that state
#: their transistors by these.
_KERNELS = TableField(
    _texts("family", "vendor")
    | _leaves(types.Kernels)
    | {
        "device": TableField(
            _numbers(
                vector_share=("1", POSITIVE),
                cores=("1", POSITIVE),
                cache=("B", POSITIVE),
                tdp=_TDP,
                clock=_CLOCK,
            )
        ),
        "node": _NODE,
        "fine": TableField(_leaves(types.FineKernels)),
        "attention": TableField(_leaves(types.AttentionKernels)),
        "power": TableField(
            _omit(_POWER, *AT_REST, "tdp", "nominal_clock", "clock", "limit", "feed")
            | _numbers(transistor_leakage="W", **{f"{name}_share": ("1", SHARE) for name in AT_REST})
        ),
        "alone": TableField(_COLLECTIVE_KERNELS),
    }
)


def _some_domain(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError unless a network states how many devices it joins, or the switches of a fat tree."""
    if "domain" not in values and not {"radix", "levels"} <= values.keys():
        raise _missing(f"{where}: domain", "domain, or radix and levels")


#: One network level: what is built, and how near software comes to it (``fit``).
_FIT = ("latency", "efficiency", "ramp", "processor_usage")
_NETWORK = TableField(
    _leaves(types.Network, "bandwidth", "domain", "in_network_reduction", "mesh", "crowding", "bridged")
    | _texts("family", "scope", "topology") | _numbers(year="1", energy="J/B")
    | _numbers(radix=("1", Bounds(low=2.0, is_integer=True)), levels=("1", COUNT))
    | {
        "fit": TableField(_leaves(types.Network, *_FIT), needs=_FIT, plain=True),
        "volumes": TableField(_leaves(types.Volumes)),
        "pods": TableField(_leaves(types.Pods), needs=("size", "oversubscription")),
        "links": TableField(_leaves(types.Links), needs=("topology", "per_device")),
        "package": TableField(_leaves(types.Package), needs=("dies", "speedup")),
        "alone": TableField(_COLLECTIVE_KERNELS),
    },
    needs=("bandwidth", "fit"),
    check=_some_domain,
)  # fmt: skip

#: A cluster of nodes; ``sources`` names the measured sources that ran there. A known machine states the ``tool`` that
#: trained there, and the ``year``; ``software`` and ``engine`` name stacks in place of the rule
#: (:mod:`dse.designs.catalog.stack_selection`).
_SYSTEM = TableField(
    _texts("accelerator", "scale_up", "scale_out", "software", "engine", "tool", "topology") | _YEAR | _HOST | _NUMBERS,
    needs=("accelerator", "scale_up", "scale_out", "devices_per_node"),
)

#: Options of a mapping that a stack's file states for mappings that leave them open.
LEFT_OPEN = ("zero_stage", "sequence_parallel", "overlap_dp", "overlap_tp")

#: What a stack has of the options of a mapping: all, where nothing is said.
_CAPABILITIES: dict[str, Parser | TableField] = {"can": TableField(_leaves(types.Capabilities))}

#: Options of how experts are spread that a stack's file states for mappings that leave them open.
EXPERTS_LEFT_OPEN = ("all_to_all", "dispatch_precision", "overlap_ep")

#: What the mixtures of experts of a stack cost, and what it does where a mapping leaves it open.
_EXPERT_KERNELS: dict[str, Parser | TableField] = {
    "experts": TableField(_leaves(types.ExpertKernels) | _leaves(types.ExpertMapping, *EXPERTS_LEFT_OPEN))
}
#: What a stack that serves costs besides its kernels, what it does where a mapping leaves it open, and what is left
#: unexplained of its figures, as standard deviations of logarithms.
_ENGINE: dict[str, Parser | TableField] = {
    "engine": TableField(_leaves(types.Engine)), "serving": TableField(_leaves(types.Serving)),
    "residuals": TableField(
        _numbers(**dict.fromkeys(("token", "first", "latency", "rate", "energy"), ("1", POSITIVE)))
    ),
}  # fmt: skip

#: What the rows of a stack's fit covered, by quantity: the least and the largest (:mod:`dse.designs.calibrated`).
EXTENTS = ("n_devices", "parameters", "seq_len", "micro_batch", "prompt_tokens", "output_tokens", "concurrency")
#: ``mixtures`` are the accelerators of rows of mixtures of experts, ``sources`` the sources of all rows,
#: ``families`` those of their models that no other stack has rows of.
_CALIBRATED = {
    "calibrated": TableField(
        dict.fromkeys(EXTENTS, value.number_range)
        | dict.fromkeys(("accelerators", "mixtures", "sources", "families"), value.texts)
    )
}

#: A stack, what it does where a mapping leaves it open, and in ``sources`` the measured sources that used it, in
#: ``nearest`` those of which it is the nearest (releases without a stack of their own). It ``spills`` where
#: activations that do not fit go to the host, not only through recompute. Data-parallel messages that a mapping
#: leaves open overlap from the ZeRO stage ``overlap_dp_from_stage`` on, whatever ``overlap_dp`` says of the others.
#: ``selective`` is the policy that it calls selective recompute; ``lineage`` the code base it descends from, with
#: which it shares what is fitted. ``flash_published`` is how many times as long its attention kernel takes as its
#: chips' best one by what is published: where a fit starts. ``family`` names the chips of a stack that nothing was
#: measured of: it gets what their stacks share. ``vendors`` are the makers of the accelerators that it exists for,
#: where that is not all. ``tools`` are those that its figures are of, ``chips`` the kernel families or accelerators,
#: where stacks of the same tools are for others. ``released`` is its year and month: of engines, others near it are
#: like it. ``level`` multiplies all its times and slow-downs: what runs of one's own show beyond the other values.
_SOFTWARE = TableField(
    _texts("family", "lineage")
    | {"released": value.month}
    | _leaves(types.Software)
    | _numbers(
        residual="1",
        level=("1", POSITIVE),
        spills=("1", YES_OR_NO),
        flash_published=("1", POSITIVE),
        overlap_dp_from_stage=("1", Bounds(high=3.0, is_integer=True)),
    )
    | {"selective": ChoiceField(types.Recompute)}
    | dict.fromkeys(("vendors", "tools", "chips"), value.texts)
    | _CAPABILITIES
    | _EXPERT_KERNELS
    | _ENGINE
    | _CALIBRATED
    | _leaves(types.Mapping, *LEFT_OPEN),
    needs=_required_leaves(types.Software),
)

#: A decoder transformer: dense, or with ``experts``; ``active_published`` are the parameters that a token meets.
_MODEL = TableField(
    _leaves(types.Workload) | _texts("family")
    | _numbers(**dict.fromkeys(
        ("max_seq_len", "draft_layers", "parameters_published", "active_published"), ("1", POSITIVE)
    ))
    | {
        "checkpoint": ChoiceField(types.Precision, "weight format of the checkpoint, in which it is served"),
        "experts": TableField(_leaves(types.Experts), needs=_required_leaves(types.Experts)),
        "latent": TableField(_leaves(types.Latent), needs=_required_leaves(types.Latent)),
        "recurrent": TableField(_leaves(types.Recurrent), needs=_required_leaves(types.Recurrent)),
        "sparse": TableField(_leaves(types.Sparse), needs=_required_leaves(types.Sparse)),
    },
    needs=("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab", "seq_len"),
)  # fmt: skip

#: Operations whose energies a node may tell.
OPERATIONS = (
    "int8_add",
    "int32_add",
    "int8_multiply",
    "int32_multiply",
    "fp16_multiply",
    "fp32_multiply",
    "sram_8kb",
    "sram_32kb",
    "sram_1mb",
    "memory_low",
    "memory_high",
)

#: A process of logic. ``delay`` is that of a gate over N7's at iso power, as claimed, ``operations`` are energies of an
#: operation and of 64 bits read, as published; the model uses neither.
_LOGIC_NODE = TableField(
    _leaves(types.LogicNode)
    | _texts("foundry", "status")
    | _numbers(year="1", supply=("V", POSITIVE), delay="1")
    | {"operations": TableField(_numbers(**dict.fromkeys(OPERATIONS, "J")))},
    needs=_required_leaves(types.LogicNode),
)

#: A memory by its unit (stack, device, DIMM, drive).
_MEMORY = TableField(
    _leaves(types.MemoryTechnology) | _texts("family", "status", "unit") | _numbers(year="1"),
    needs=_required_leaves(types.MemoryTechnology),
)

#: Shares and constants that the chips of an architecture have in common: all leaves but a chip's own.
_SHARED = _omit(_leaves(types.Chip), "die_area", "base_area", "power_budget", "clock_ratio", "stacks", "link_bandwidth")
_ARCHITECTURE = TableField(_SHARED, needs=tuple(name for name in _required_leaves(types.Chip) if name in _SHARED))

#: Processes that a cost model prices, by their names in it.
COST_NODES = ("3nm", "5nm", "7nm", "10nm", "12nm", "14nm", "20nm", "28nm", "40nm", "55nm")

#: The parameters of a cost model: all of them, with the processes that it prices.
_COST = TableField(
    _leaves(types.Fab)
    | {
        packaging.name: TableField(_leaves(types.Assembly), needs=tuple(paths.leaves(types.Assembly)))
        for packaging in types.Packaging
    }
    | {
        "nodes": TableField(
            {name: TableField(_leaves(types.Process), needs=("wafer_price", "defect_density")) for name in COST_NODES}
        )
    },
    needs=tuple(name for name in paths.leaves(types.Fab) if "." not in name),
)

#: Kind → what its files may hold.
SCHEMAS = {
    "accelerator": _ACCELERATOR,
    "network": _NETWORK,
    "system": _SYSTEM,
    "software": _SOFTWARE,
    "workload": _MODEL,
    "kernels": _KERNELS,
    "node": _LOGIC_NODE,
    "memory": _MEMORY,
    "architecture": _ARCHITECTURE,
    "cost": _COST,
}


# --- reading ----------------------------------------------------------------------------------------------


def read(kind: str, data: Mapping[str, Any], file: str) -> dict[str, Sourced]:
    """Return field → value of a parsed file of a kind; fields of a table are dotted (``memory.bandwidth``).

    Raises:
        InputError: for the first thing that is wrong; a misspelt key before the one that it leaves missing.
    """
    header = ("source", "confidence", *_HEADERS.get(kind, _HEADER))
    _check_keys(data, SCHEMAS[kind], file, "", header)
    _check_header(data, file)
    return _values(data, SCHEMAS[kind], file, "", data["source"], data["confidence"])


def _check_keys(
    data: Mapping[str, Any], table: TableField, file: str, key_prefix: str, header: tuple[str, ...]
) -> None:
    """Raise InputError for a key of a table, or of one in it, that is neither a field nor of the header.

    ``key_prefix`` is the table's own dotted key, with a dot at its end.
    """
    for key, raw in data.items():
        field = table.fields.get(key)
        if field is None and key not in header:
            raise unknown_name(file, key_prefix + key, [key_prefix + name for name in table.fields], "fields")
        if isinstance(field, TableField) and isinstance(raw, dict):
            _check_keys(raw, field, file, f"{key_prefix}{key}.", ("source", "confidence"))


def _check_header(data: Mapping[str, Any], file: str) -> None:
    """Raise InputError for a header without source or confidence, or with values of another type."""
    for key in ("source", "confidence"):
        if not data.get(key):
            raise _missing(f"{file}: {key}", key)
    for key in ("source", "name", "note"):
        value.text(data.get(key, ""), f"{file}: {key}")
    for key in ("aliases", "sources", "nearest"):
        texts = data.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{file}: {key}", repr(texts), "a list of strings", f'write {key} = ["…"]')
    if data.get("n_experts", 1) != 1:
        fix = "state a mixture of experts under [experts]"
        raise InputError(f"{file}: n_experts", repr(data["n_experts"]), "1 or absent", fix)


def _values(
    data: Mapping[str, Any], table: TableField, file: str, key_prefix: str, source: str, confidence: str
) -> dict[str, Sourced]:
    """Return field → value of the table at ``key_prefix``, with inherited sources and confidences.

    InputError for a missing field and for a value that its parser refuses.
    """
    source = data.get("source") or source
    confidence = value.checked_confidence(data.get("confidence") or confidence, f"{file}: {key_prefix}confidence")
    values: dict[str, Sourced] = {}
    for key, field in table.fields.items():
        raw, where = data.get(key), f"{file}: {key_prefix}{key}"
        if raw is None:
            if key in table.needs:
                raise _missing(where, key_prefix + key)
            continue
        if not isinstance(field, TableField):
            values[key] = value.sourced_value(raw, field, where, source, confidence)
            continue
        inner = {field.shorthand: raw} if isinstance(raw, str) and field.shorthand else raw
        if not isinstance(inner, dict):
            raise InputError(where, repr(raw), "a table", f"write [{key_prefix}{key}] on a line of its own")
        prefix = "" if field.plain else f"{key}."
        table_values = _values(inner, field, file, f"{key_prefix}{key}.", source, confidence)
        values |= {prefix + name: sourced for name, sourced in table_values.items()}
    table.check(values, f"{file}: {key_prefix[:-1]}" if key_prefix else file)
    return values


def _missing(where: str, name: str) -> InputError:
    """Return the error for a required field that is missing."""
    return InputError(where, "nothing", "a value: the field is required", f"add {name} (is the file complete?)")
