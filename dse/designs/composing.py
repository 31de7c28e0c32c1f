"""Designs from names of the catalogue and values of leaves: ``design(...)``."""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import Any

from dse.designs import catalog
from dse.designs.checks import (
    check_chip,
    check_experts,
    check_load,
    check_networks,
    check_routing,
    check_tiers,
    check_turns,
    check_vendor,
    has_experts,
)
from dse.designs.leaves import MAX_COUNT, is_integer, leaf_of_alias, leaf_path, leaf_value, paths_by_ending, short_name
from dse.designs.records import (
    CAN,
    CHIP,
    LEAVES_OF_SERVING,
    LOAD,
    MANUFACTURE,
    N_DEVICES,
    PLAIN_EXPERTS,
    PLAIN_MAPPING,
    REQUEST_RATE,
    implied_values,
    with_serving_defaults,
)
from dse.errors import InputError, unknown_name
from dse.types import Design, Recompute, Requests, choice_name, paths

#: Kinds of designs.
KINDS = ("training", "serving")


def stack_values(
    name: str,
    where: str = "software",
    any_option: bool = False,
    experts: bool = False,
    zero_stage: float | None = None,
) -> catalog.Values:
    """Return full path → value that a stack brings into a design: its leaves, and defaults of open options.

    Args:
        name: of the stack, in the catalogue.
        where: place of the name, for errors.
        any_option: leave out capabilities, so that all options are allowed.
        experts: include the cost of mixtures of experts, for workloads with experts.
        zero_stage: ZeRO stage that the mapping states, if it does.

    Returns:
        Full path → value in SI units.

    Raises:
        InputError: for an unknown stack, and for a fault of its file.
    """
    values = catalog.with_prefix("software", catalog.values("software", name, where))
    if experts:
        values |= catalog.with_prefix("software.experts", catalog.expert_kernels(name, where))
        values |= catalog.with_prefix("mapping.experts", catalog.expert_options(name, where))
    if any_option:
        values = {path: value for path, value in values.items() if not path.startswith(CAN)}
    serving = catalog.with_prefix("mapping.serving", catalog.serving_defaults(name, where))
    options = catalog.mapping_defaults(name, where, zero_stage=zero_stage)
    return values | catalog.with_prefix("mapping", options) | serving


def design(
    workload: str,
    system: str,
    software: str | None = None,
    n_devices: int | None = None,
    where: str = "design",
    any_option: bool = False,
    kind: str = "training",
    **settings: Any,
) -> Design:
    """Return one design, composed from catalogue names and leaf values.

    Args:
        workload: catalogue name of the model.
        system: catalogue name of a cluster, or of an accelerator with its default node and network.
        software: catalogue name of the stack; by default the system's training stack or, for serving, its engine.
        n_devices: devices used; by default ``tp cp pp dp``.
        where: place of the values, for errors.
        any_option: allow options that the stack lacks, and stacks of other vendors.
        kind: ``serving`` for a serving design without a serving leaf in ``settings``.
        **settings: any leaf by its name or dotted ending (``tp=8``, ``recompute="full"``,
            ``**{"memory.bandwidth": "3.35 TB/s"}``); numbers are in SI units.

    Returns:
        A design whose leaves are Python numbers in SI units. ``dp`` follows from ``n_devices`` by default; other open
        options of the mapping are those of the stack (:func:`dse.designs.catalog.mapping_defaults`).

    Raises:
        InputError: for unknown names, values with a wrong unit or out of bounds, and stacks of other vendors.

    >>> cluster_design = design("megatron-1t", "selene", n_devices=3072, tp=8, pp=64, recompute="full")
    >>> cluster_design.mapping.dp, cluster_design.system.scale_up.bandwidth
    (6.0, 300000000000.0)
    """
    if kind not in KINDS:
        raise unknown_name(f"{where}: kind", kind, KINDS, "kinds of designs")
    _check_texts({"workload": workload, "system": system, "software": software}, where)
    serves = kind == "serving" or any(leaf_of_alias(name).startswith(LEAVES_OF_SERVING) for name in settings)
    serves |= any(path.startswith(LEAVES_OF_SERVING) for name in settings for path in paths_by_ending().get(name, []))
    paths_of = {name: leaf_path(name, where, serves) for name in settings}
    explicit_values = {path: leaf_value(path, settings[name], f"{where}.{name}") for name, path in paths_of.items()}
    serves |= any(path.startswith(LEAVES_OF_SERVING) for path in explicit_values)
    stack = catalog.default_software(system, serving=serves, workload=workload) if software is None else software
    values = _named_values(workload, system, stack, any_option, explicit_values.get("mapping.zero_stage"))
    _check_explicit(explicit_values, values, where)
    plain = PLAIN_MAPPING | (PLAIN_EXPERTS if has_experts(values) else {})
    if serves and not set(catalog.SERVED_FORMAT) & set(explicit_values):
        values |= catalog.served_format(workload, values)
    values = plain | values | implied_values(explicit_values) | explicit_values
    check_load(
        [explicit_values[LOAD]] if LOAD in explicit_values else (), REQUEST_RATE in explicit_values, f"{where}.load"
    )
    built_design = paths.build(Design, values | _device_counts(values, explicit_values, n_devices))
    if built_design.workload.reuse is not None:
        check_turns(built_design.workload.requests or Requests(), built_design.workload.reuse.turns, f"{where}.turns")
    if built_design.workload.experts is not None:
        places = {path: f"{where}.{short_name(path)}" for path in explicit_values}
        check_routing(built_design.workload.experts, places, f"{where}: experts")
    return with_serving_defaults(built_design) if kind == "serving" else built_design


def _check_texts(names: MappingABC[str, Any], where: str) -> None:
    """Raise InputError for names of the catalogue (kind → name) that are no texts; only software may be None."""
    for kind, name in names.items():
        if not isinstance(name, str) and (name is not None or kind != "software"):
            fix = f"see: dse catalog list {kind}"
            raise InputError(f"{where}: {kind}", repr(name), "a name of the catalogue", fix)


def _named_values(workload: str, system: str, stack: str, any_option: bool, zero_stage: float | None) -> dict[str, Any]:
    """Return full path → value of the named entries of the catalogue."""
    catalog.resolve("software", stack, "software")
    if not any_option:
        check_vendor(stack, system, "software")
    shape = catalog.with_prefix("workload", catalog.values("workload", workload))
    return (
        shape
        | catalog.with_prefix("system", catalog.values("system", system))
        | stack_values(stack, "software", any_option, has_experts(shape), zero_stage)
        | catalog.with_prefix(MANUFACTURE, catalog.manufacture(system))
    )


def _check_explicit(explicit_values: dict[str, Any], values: dict[str, Any], where: str) -> None:
    """Raise InputError for a leaf that a design states and does not have.

    Args:
        explicit_values: full path → value.
        values: those of the named entries.
        where: place of the values, for errors.
    """
    for path in explicit_values:
        check_chip(path, f"{CHIP}.die_area" in values, where)
        check_experts(path, values, where)
        check_networks(path, values, explicit_values, where)
        check_tiers(path, explicit_values[path], values | explicit_values, f"{where}.{short_name(path)}")
    policy = explicit_values.get("mapping.recompute", 0.0)
    if policy >= Recompute.norms and not has_experts(values):
        raise InputError(
            f"{where}.recompute",
            choice_name(Recompute(int(policy))),
            "none, selective, full, selective-op for a model without experts",
            "name a workload that has experts, such as deepseek-v3",
        )


def _device_counts(
    values: MappingABC[str, Any], explicit_values: MappingABC[str, Any], n_devices: int | None
) -> dict[str, float]:
    """Return full path → number for ``dp`` and the devices, one derived from the other.

    InputError for a number of devices that is not whole, or no multiple of ``tp cp pp``.
    """
    parallel = values["mapping.tp"] * values["mapping.cp"] * values["mapping.pp"]
    dp = values["mapping.dp"]
    if n_devices is not None:
        if not is_integer(n_devices):
            raise InputError(
                "n_devices", str(n_devices), f"a whole number, 1 to {MAX_COUNT:,}", "give the number of devices"
            )
        if "mapping.dp" not in explicit_values:
            if n_devices % parallel:
                raise InputError(
                    "n_devices",
                    str(n_devices),
                    f"multiples of tp x cp x pp = {parallel:g}",
                    "change n_devices or one of the degrees",
                )
            dp = n_devices / parallel
    devices = (
        values[N_DEVICES] if N_DEVICES in explicit_values else parallel * dp if n_devices is None else float(n_devices)
    )
    return {"mapping.dp": dp, N_DEVICES: devices}
