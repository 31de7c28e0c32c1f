"""What files of the catalogue leave out: defaults of workloads and networks, and of accelerators by kernel family."""

from __future__ import annotations

import dataclasses

from dse import types
from dse.designs.catalog.entries import Entry, file_entry, reference
from dse.designs.catalog.load import Folder, display_path
from dse.designs.catalog.schema import AT_REST, ROWS
from dse.designs.catalog.value import Sourced
from dse.errors import InputError
from dse.types import SHARED_KERNEL_LEAVES
from dse.types.paths import leaves

_TOKENS_PER_STEP = 4194304  # of a workload that states no global batch


def load(kind: str, slug: str, folder: Folder = None) -> Entry:
    """Return the validated entry of an existing slug with its defaults filled in.

    Args:
        kind: of the entry.
        slug: of the entry.
        folder: a catalogue to search first.

    Raises:
        InputError: for a fault of the file.
    """
    entry = file_entry(kind, slug, folder)
    if kind == "workload":
        return dataclasses.replace(entry, values=_workload_defaults(entry))
    if kind == "accelerator":
        return dataclasses.replace(entry, values=_accelerator_defaults(entry, folder))
    if kind == "network":
        return dataclasses.replace(entry, values=_network_defaults(entry))
    return entry


def _default(value: float, units: str, rule: str) -> Sourced:
    """Return a value with its units that a rule gives by default, as an estimate."""
    return Sourced(value, units, f"{value:g}", f"default: {rule}", "estimate")


def _workload_defaults(entry: Entry) -> dict[str, Sourced]:
    """Return field → value of a workload, with defaults for those that its file leaves out.

    Flags are 0, heads are those of plain attention, the window is the sequence, and
    the global batch is about 4 Mi tokens.
    """
    value_of = entry.value
    heads, sequence = value_of("n_heads"), value_of("seq_len")
    defaults = {flag: _default(0.0, "1", "off unless stated") for flag in ROWS["workload"]["off"]["fields"]} | {
        "n_kv_heads": _default(heads, "1", "n_heads"),
        "head_dim": _default(value_of("hidden") / heads, "1", "hidden / n_heads"),
        "window": _default(sequence, "1", "seq_len"),
        "global_batch": _default(float(max(1, round(_TOKENS_PER_STEP / sequence))), "1", "about 4 Mi tokens per step"),
    }
    values = defaults | entry.values
    _check_parts(entry, values)
    if heads % values["n_kv_heads"].value:
        raise InputError(
            f"{display_path(entry.path)}: n_kv_heads",
            f"{values['n_kv_heads'].value:g}",
            f"divisors of n_heads = {heads:g}",
            "correct one of the two",
        )
    return values


def _check_parts(entry: Entry, values: dict[str, Sourced]) -> None:
    """Raise InputError where a part of a model is larger than what it is a part of."""
    for field, limit_field in ROWS["workload"]["parts"].items():
        limit = values[limit_field].value if limit_field in values else 1.0
        if field in values and values[field].value > limit:
            raise InputError(
                f"{display_path(entry.path)}: {field}",
                f"{values[field].value:g}",
                f"at most {limit_field} = {limit:g}",
                "correct one of the two",
            )


def _network_defaults(entry: Entry) -> dict[str, Sourced]:
    """Return field → value of a network, with the number of devices of its domain.

    A fat tree of ``l`` levels of switches with ``k`` ports each joins ``2 (k / 2)^l`` devices: Al-Fares et al., SIGCOMM
    2008, has it for three levels.
    """
    if "domain" in entry.values:
        return entry.values
    n_devices = 2.0 * (entry.value("radix") / 2.0) ** entry.value("levels")
    return {"domain": _default(n_devices, "1", "2 (radix / 2)^levels, a fat tree")} | entry.values


def _accelerator_defaults(entry: Entry, folder: Folder) -> dict[str, Sourced]:
    """Return field → value of an accelerator, those that its file leaves out from its kernel family.

    The vector rate is ``device.vector_share`` of the 16-bit (else the fastest) matrix rate. A generated chip
    takes nothing of its family's device, but the leaves of its architecture.
    """
    unstated = Sourced("generic", "", "generic", "default: no family stated", "estimate")
    chosen = entry.values.get("kernels.family", unstated)
    family = _kernel_values(reference(entry, "kernels.family", folder, chosen.value)[1], folder)
    device = _device(entry, family) if entry.value("chip.node") is None else _architecture(entry, folder)
    shared = ("device.", "node.", "alone.", "power.", "vendor")
    kernels = {f"kernels.{field}": sourced for field, sourced in family.items() if not field.startswith(shared)}
    node = {field: sourced for field, sourced in family.items() if field.startswith("node.")}
    if entry.values.get("node.scale_up") is not None:  # an own scale-up network has its own bandwidth
        node.pop("node.scale_up_bandwidth", None)
    if entry.values.get("node.scale_out") is not None:
        node.pop("node.scale_out_bandwidth", None)
    power = _power_defaults(entry, family)
    kernels |= _sustained_shares(entry, family)
    isolated_kernels = {  # what a chip says of its kernels holds of those measured alone too
        f"kernels.{measured}": entry.values[f"kernels.{name}"]
        for measured, name in SHARED_KERNEL_LEAVES.items()
        if f"kernels.{name}" in entry.values
    }
    return {"kernels.family": chosen} | device | kernels | isolated_kernels | node | power | entry.values


def _sustained_shares(entry: Entry, family: dict[str, Sourced]) -> dict[str, Sourced]:
    """Return field → share of the rates of kernels alone that a chip without rows of its own sustains in training.

    That of its family, times ``((TDP / R) / e)^(1/3)`` with its 16-bit rate ``R`` and the family's limit ``e``
    (``flop_limit``), at most 1: switching takes ``f V^2``, and the voltage follows the clock, so that the clock under
    a limit is as its cube root. A generated chip solves its clock itself; one without a stated TDP is as its family.
    """
    limit = family.get("device.flop_limit")
    if limit is None or entry.value("chip.node") is not None or "tdp" not in entry.values:
        return {}
    ratio = _clock_share(entry, limit)
    names = ("sustained_16", "sustained_8", "sustained_4", "sustained_attention")
    shares = {name: family[name] for name in names}
    text = "{} x (TDP over rate / {})^(1/3)"
    return {
        f"kernels.{name}": dataclasses.replace(
            share, value=min(share.value * ratio, 1.0), text=text.format(share.text, limit.text)
        )
        for name, share in shares.items()
    }


def _clock_share(entry: Entry, limit: Sourced) -> float:
    """Return the clock that a chip's power leaves over that of its family, the cube root of their powers per FLOP."""
    return float((entry.values["tdp"].value / _matrix_rate(entry.values) / limit.value) ** (1.0 / 3.0))


def clock_share(slug: str, folder: Folder = None) -> float:
    """Return the clock that the power limit of an accelerator leaves over that of its kernel family, 1 without one."""
    entry = file_entry("accelerator", slug, folder)
    _, family_name = reference(entry, "kernels.family", folder, entry.value("kernels.family", "generic"))
    family = _kernel_values(family_name, folder)
    limit = family.get("device.flop_limit")
    return 1.0 if limit is None or "tdp" not in entry.values else _clock_share(entry, limit)


def _device(entry: Entry, family: dict[str, Sourced]) -> dict[str, Sourced]:
    """Return field → value that a kernel family states for a device of known matrix rates."""
    matrix = _matrix_rate(entry.values)
    device = {
        field.removeprefix("device."): sourced for field, sourced in family.items() if field.startswith("device.")
    }
    vector_share = device.pop("vector_share")
    for name in ("tdp", "flop_limit"):  # of its power, as is its clock
        device.pop(name, None)
    del device["clock"]
    vector = dataclasses.replace(
        vector_share, value=vector_share.value * matrix, units="FLOP/s", text=f"{vector_share.text} x matrix rate"
    )
    return {"vector_rate": vector} | device


def _architecture(entry: Entry, folder: Folder) -> dict[str, Sourced]:
    """Return field (``chip.…``) → value that the architecture of a generated chip states."""
    architecture_values = load(*reference(entry, "chip.architecture", folder), folder).values
    return {f"chip.{field}": value for field, value in architecture_values.items()}


def _power_defaults(entry: Entry, family: dict[str, Sourced]) -> dict[str, Sourced]:
    """Return field → value of an accelerator's power: limit and clock as sold, power at rest, energies.

    Leakage is that of its transistors, where their number is stated. Cores can ask for the bandwidth of their cache.
    """
    values = entry.values
    tdp = (
        values.get("tdp") or values.get("chip.power_budget") or family.get("device.tdp") or _full_power(values, family)
    )
    clock = values.get("power.nominal_clock", values.get("boost_clock", family["device.clock"]))
    power_values = {field: sourced for field, sourced in family.items() if field.startswith("power.")}
    for name in AT_REST:
        share_of_tdp = power_values.pop(f"power.{name}_share")
        power_values[f"power.{name}"] = dataclasses.replace(
            share_of_tdp, value=share_of_tdp.value * tdp.value, units="W", text=f"{share_of_tdp.text} x {tdp.text}"
        )
    transistor_leakage = power_values.pop("power.transistor_leakage", None)
    if transistor_leakage is not None and "transistors" in values:
        power_values["power.leakage"] = _leakage(values, transistor_leakage)
    if "cache_bandwidth" in values:
        power_values["power.feed"] = values["cache_bandwidth"]
    return power_values | {"power.tdp": tdp, "power.nominal_clock": clock, "power.clock": clock}


def _leakage(values: dict[str, Sourced], transistor_leakage: Sourced) -> Sourced:
    """Return the static power in W of the transistors of an accelerator.

    Disabled cores have no supply, and their share leaks nothing.
    """
    count, enabled_share = values["transistors"], 1.0
    if {"cores", "full_cores"} <= values.keys():
        enabled_share = values["cores"].value / values["full_cores"].value
    text = f"{transistor_leakage.text} x {count.text}" + (f" x {enabled_share:.3g}" if enabled_share < 1.0 else "")
    return dataclasses.replace(
        transistor_leakage, value=transistor_leakage.value * count.value * enabled_share, units="W", text=text
    )


def _full_power(values: dict[str, Sourced], family: dict[str, Sourced]) -> Sourced:
    """Return the power in W that matrix units and memory draw at their full rates, in place of a power limit.

    It is ``e_matrix R + e_memory B``. A100, H100, H200, B200, L40S, V100 and TPU v4 are sold with 0.82 to 1.14 times as
    much.
    """
    all_values, power = family | values, leaves(types.Power)

    def energy(name: str) -> float:
        sourced = all_values.get(f"power.{name}")
        return power[name]["default"] if sourced is None else sourced.value

    watts = energy("matrix_energy") * _matrix_rate(values) + energy("memory_energy") * values["memory.bandwidth"].value
    source = "default: its matrix units and memory at their full rates"
    return Sourced(watts, "W", f"{watts:.4g} W", source, "estimate")


def _matrix_rate(values: dict[str, Sourced]) -> float:
    """Return the 16-bit matrix rate of a device in FLOP/s, its fastest where it has none."""
    rates = {field: sourced.value for field, sourced in values.items() if field.startswith("matrix_rate.")}
    return max(rates.get("matrix_rate.bf16", 0.0), rates.get("matrix_rate.fp16", 0.0)) or max(rates.values())


def _kernel_values(slug: str, folder: Folder, ancestors: tuple[str, ...] = ()) -> dict[str, Sourced]:
    """Return field → value of a kernels file, completed by those of the family that it names.

    InputError where families lead in a circle.
    """
    entry = load("kernels", slug, folder)
    family_name = entry.value("family")
    if family_name is None:
        return _root_kernel_values(entry)
    _, parent = reference(entry, "family", folder)
    if parent in (*ancestors, slug):
        where = f"{display_path(entry.path)}: family"
        raise InputError(where, repr(family_name), "a family that does not lead back here", "break the cycle")
    values = {field: value for field, value in entry.values.items() if field != "family"}
    return _kernel_values(parent, folder, (*ancestors, slug)) | values


def _root_kernel_values(entry: Entry) -> dict[str, Sourced]:
    """Return field → value of a kernels file that names no family; InputError where one is missing."""
    required_fields = list(leaves(types.Kernels))
    required_fields += [f"device.{name}" for name in ("vector_share", "cores", "cache", "clock")]
    required_fields += [f"power.{name}_share" for name in AT_REST]
    for name in required_fields:
        if name not in entry.values:
            fix = f"add {name} or a family to take it from"
            raise InputError(f"{display_path(entry.path)}: {name}", "nothing", "a value: the field is required", fix)
    return entry.values
