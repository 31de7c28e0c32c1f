"""Keys of the files of the catalogue, for the page of names: leaves by record, other keys with their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from docs.make.markdown import tight_table
from dse.designs import all_leaves
from dse.designs.catalog.schema import ChoiceField, NumberField, TableField, schemas, table
from dse.designs.catalog.value import Parser, number_range, text, texts
from dse.types import Bounds, choice_name
from dse.types.fields import YES_OR_NO

SCHEMAS = schemas()

_READERS = "for readers"
_COMPARISON = "for comparison"
_RULE = "default: by where measured rows are"

#: Keys that are no leaves of a design → what they are; by key, or by ``kind: key``.
MEANINGS = {
    "vendor": "manufacturer",
    "architecture": f"generation, {_READERS}",
    "status": f"`shipping`, `announced`, `roadmap`, …, {_READERS}",
    "year": "year of introduction",
    "kernels.family": "entry of `kernels/` for kernels, energies and node",
    "kernels.steps.matrix": "efficiency by FLOPs of a matrix operator, all three or none",
    "kernels.steps.vector": "efficiency by FLOPs of an element-wise operator",
    "kernels.steps.memory": "efficiency by bytes of an operator",
    "memory.usable": "what the runtime leaves of `memory.capacity` to programs, which is then that of designs",
    "memory.kind": f"`HBM3`, `GDDR6`, …, {_READERS}",
    "chip.architecture": "entry of `architectures/` for the other keys of `chip`",
    "chip.node": "entry of `nodes/`, compute dies",
    "chip.base_node": "entry of `nodes/`, base dies; default: that of the compute dies",
    "chip.memory": "entry of `memories/`",
    "structure.full_cores": "cores of the dies, disabled ones included",
    "structure.cache_bandwidth": "bandwidth of the last-level cache (`power.feed`)",
    "physical.compute_dies": "compute dies, for the bill with `made.node`",
    "physical.die_area": "area of all dies, for the bill with `made.node`",
    "physical.transistors": "transistors of all dies, disabled ones included (`power.leakage`)",
    "physical.tdp": "power limit as sold (`power.tdp`)",
    "physical.idle_power": _COMPARISON,
    "physical.boost_clock": "clock of the stated rates (`power.nominal_clock`)",
    "made.node": "entry of `nodes/`, compute dies; without it no dies are priced",
    "made.base_node": "entry of `nodes/`, base dies",
    "physical.onchip_memory": f"memory of all cores, {_COMPARISON}",
    "physical.host_bandwidth": "host link, one direction",
    "link.kind": _READERS,
    "link.topology": _READERS,
    "link.bandwidth": f"all links of a device, one direction, {_COMPARISON}",
    "link.domain": f"devices that the links join, {_COMPARISON}",
    "node.scale_up": "entry of `networks/` inside the node, or `none`",
    "node.scale_out": "entry of `networks/` between nodes",
    "node.software": f"training stack, entry of `software/`; {_RULE}",
    "node.engine": f"serving stack, entry of `software/`; {_RULE}",
    "node.tool": "tool that trained on such machines, of `tools` of the stacks",
    "node.year": "year of that tool's release",
    "accelerator": "entry of `accelerators/`",
    "scale_up": "entry of `networks/` inside the node",
    "scale_out": "entry of `networks/` between nodes, or `none`",
    "software": f"training stack, entry of `software/`; {_RULE}",
    "engine": f"serving stack, entry of `software/`; {_RULE}",
    "tool": "tool that trained on a known machine, of `tools` of the stacks; default: any",
    "system: year": "year of that tool's release; default: today's",
    "topology": _READERS,
    "devices_per_node": "devices that the scale-up network joins",
    "devices_per_host": "devices of a host, where the scale-up network joins several; default: that of the accelerator",
    "crowding": "`scale_up.crowding` behind this host's root ports; default: that of the network",
    "scale_up_bandwidth": "bandwidth per device and direction; default: that of the network",
    "scale_out_bandwidth": "bandwidth per device and direction; default: that of the network",
    "host_memory": "host memory per device; default: 256 GiB",
    "host_bandwidth": "host link per device, one direction; default: that of the accelerator, else 32 GB/s",
    "host_power": "host power per device",
    "host_power_share": "host power over the accelerator's power limit",
    "host_slowdown": "time of a serving engine's code on the host over that on x86 processors, default 1",
    "pue": "power usage effectiveness (PUE)",
    "scope": f"`scale-up` or `scale-out`, {_READERS}",
    "energy": "link energy per byte, both ends, with optics",
    "radix": "ports per switch of a fat tree",
    "levels": "levels of a fat tree of 2 (radix / 2)^levels devices",
    "vendors": "accelerator makers that the stack supports; default: all",
    "tools": "tools whose figures these are; a stack without any is taken only where it is named",
    "chips": "kernel families or accelerators that the stack is for; others of its tools are for the rest",
    "lineage": "code base, with which fitted values are shared",
    "released": "year and month; of engines, fitted values of one near it in time and code base are its priors",
    "residual": "log standard deviation of step times, beyond the spread of fitted values",
    "level": "factor of all times and slow-downs of a stack of one's own; default: 1",
    "residuals.token": "log standard deviation of time per output token",
    "residuals.first": "log standard deviation of time to first token",
    "residuals.latency": "log standard deviation of request latencies",
    "residuals.rate": "log standard deviation of throughput",
    "residuals.energy": "log standard deviation of energy and power",
    "calibrated.n_devices": "range of the fitted rows: devices",
    "calibrated.parameters": "range of the fitted rows: parameters",
    "calibrated.seq_len": "range of the fitted rows: sequence length",
    "calibrated.micro_batch": "range of the fitted rows: sequences per micro-batch",
    "calibrated.prompt_tokens": "range of the fitted rows: prompt tokens",
    "calibrated.output_tokens": "range of the fitted rows: output tokens",
    "calibrated.concurrency": "range of the fitted rows: concurrent requests",
    "calibrated.accelerators": "accelerators of the fitted rows",
    "calibrated.sources": "sources of the fitted rows",
    "calibrated.families": "families of the models of the fitted rows, by the first word of their names",
    "calibrated.mixtures": "accelerators of the fitted rows with mixtures of experts; none: all dense",
    "flash_published": "published time of its attention kernel over the chips' best, start of the fit",
    "spills": "offload of activations that do not fit",
    "overlap_dp_from_stage": "first ZeRO stage whose dp messages overlap by default",
    "selective": "policy that the stack calls selective recompute",
    "max_seq_len": "maximum context length; a longer one is reported",
    "weight_bytes": "bytes per weight of the checkpoint without experts, where they do not follow from `checkpoint`",
    "expert_bytes": "bytes per weight of its routed experts, likewise",
    "draft_layers": "draft layers of the checkpoint, for launch lines",
    "parameters_published": f"parameters as published, {_COMPARISON}",
    "active_published": f"active parameters as published, {_COMPARISON}",
    "device.vector_share": "vector rate over 16-bit matrix rate, default of its accelerators",
    "device.cores": "cores, default of its accelerators",
    "device.cache": "last-level cache, default of its accelerators",
    "device.tdp": "power limit, default of its accelerators",
    "device.flop_limit": "power limit over 16-bit matrix rate at which sustained_… of the family hold",
    "device.clock": "clock, default of its accelerators",
    "power.uncore_share": "`power.uncore` over the power limit as sold",
    "power.leakage_share": "`power.leakage` over the power limit as sold, without known transistors",
    "power.transistor_leakage": "`power.leakage` per enabled transistor",
    "power.control_share": "`power.control` over the power limit as sold",
    "foundry": "manufacturer",
    "generation": f"length that names the node, `node_nm` of results, {_COMPARISON}",
    "supply": f"nominal voltage, {_COMPARISON}",
    "delay": f"gate delay over N7 at iso power, {_COMPARISON}",
    "unit": f"`stack`, `device`, `DIMM`, `drive`, {_READERS}",
    "kernels: family": "entry of `kernels/` for all other keys; without one all keys are needed",
    "software: family": "chips of a stack without measurements, with which fitted values are shared",
    "network: family": _READERS,
    "workload: family": _READERS,
    "memory: family": _READERS,
    **{f"operations.{name}": f"energy as published, {_COMPARISON}" for name in table("operations").fields},
}

#: What a workload leaves out; other defaults are those of the leaves.
WORKLOAD_DEFAULTS = {
    "n_kv_heads": "n_heads",
    "head_dim": "hidden / n_heads",
    "window": "seq_len",
    "global_batch": "about 4 Mi tokens",
}

#: Tables that hold fields of another table → what they are shown as.
ELSEWHERE = {
    "accelerator.kernels": (SCHEMAS["kernels"], "leaves of a file of `kernels/`"),
    "accelerator.chip": (SCHEMAS["architecture"], "keys of a file of `architectures/`"),
    "accelerator.node": (SCHEMAS["kernels"].fields["node"], "keys of `[node]` of a file of `kernels/`"),
    "kernels.node": (SCHEMAS["system"], "keys of a file of `systems/`"),
    "kernels.alone": (SCHEMAS["network"].fields["alone"], "keys of `[alone]` of a file of `networks/`"),
}


def section(kind: str) -> str:
    """Return the lines on the leaves that a file states, and the table of its other keys."""
    lines: list[str] = []
    rows: list[Sequence[str]] = []
    for at, fields in _tables(SCHEMAS[kind], ""):
        if kind == "cost" and at.startswith("nodes.") and at != "nodes.3nm.":
            continue
        lines += _leaf_lines(kind, at, fields)
        rows += _other_rows(kind, at, fields)
    if kind == "cost":
        lines.append("- `[nodes.5nm]`, … of the other processes: the keys of `[nodes.3nm]`")
    if kind == "workload":
        lines.append("- defaults: " + "; ".join(f"`{key}` {value}" for key, value in WORKLOAD_DEFAULTS.items()))
    header = ("key", "unit", "meaning", "values")
    return "\n\n".join(part for part in ("\n".join(lines), tight_table(header, rows) if rows else "") if part)


def _tables(table: TableField, at: str) -> Iterator[tuple[str, TableField]]:
    yield at, table
    for key, field in table.fields.items():
        if isinstance(field, TableField):
            yield from _tables(field, f"{at}{key}.")


def _own(kind: str, at: str, fields: TableField) -> dict[str, Parser]:
    """Fields of a table that are shown with it."""
    other = ELSEWHERE.get(f"{kind}.{at[:-1]}")
    known: Mapping[str, Parser | TableField] = other[0].fields if other and isinstance(other[0], TableField) else {}
    return {
        key: field
        for key, field in fields.fields.items()
        if not isinstance(field, TableField) and known.get(key) != field
    }


def _leaf_lines(kind: str, at: str, fields: TableField) -> Iterator[str]:
    """List the leaves that a table states, by record, with those that it needs."""
    if f"{kind}.{at[:-1]}" in ELSEWHERE:
        yield f"- `{at}…`: {ELSEWHERE[f'{kind}.{at[:-1]}'][1]}"
    by_records: dict[tuple[str, ...], list[str]] = {}
    for key, field in _own(kind, at, fields).items():
        if records := _records(key, field):
            by_records.setdefault(tuple(records), []).append(key)
    for listed, keys in by_records.items():
        records = [record for record in listed if at and record.endswith(f".{at[:-1]}")] or listed
        needed = [key for key in keys if key in fields.needs]
        told = f"; needed: {'all' if len(needed) == len(keys) > 3 else _codes(needed)}" if needed else ""
        under = f"`{at}…`: " if at else ""
        yield f"- {under}leaves of {_codes(records)}: {_most(records[0], keys)}{told}"


def _most(record: str, keys: Sequence[str]) -> str:
    """Name the leaves of a record: all of them, all but a few, or one by one."""
    others = [
        name for path in all_leaves() for at, _, name in [path.rpartition(".")] if at == record and name not in keys
    ]
    if not others:
        return "all"
    return f"all but {_codes(others)}" if 2 * len(others) < len(keys) else _codes(keys)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _records(key: str, field: Parser) -> list[str]:
    """Paths of the records that have a key as a leaf of the same meaning; the most of them that share it."""
    meaning = getattr(field, "meaning", "")
    paths = (path.rpartition(".") for path, about in all_leaves().items() if meaning == about["long_name"])
    return [record for record, _, name in paths if name == key] if meaning else []


def _other_rows(kind: str, at: str, fields: TableField) -> Iterator[Sequence[str]]:
    """List key, unit, meaning and values of the keys that are no leaves; keys that differ in the name alone share a row."""
    shared: dict[Sequence[str], list[str]] = {}
    for key, field in _own(kind, at, fields).items():
        if not _records(key, field):
            name = f"**`{at}{key}`**" if key in fields.needs else f"`{at}{key}`"
            meaning = getattr(field, "meaning", "") or MEANINGS.get(f"{kind}: {at}{key}") or MEANINGS[_plain(at + key)]
            unit = field.units if isinstance(field, NumberField) and field.units != "1" else ""
            shared.setdefault((unit, meaning, _values(field)), []).append(name)
    yield from ([", ".join(names), *cells] for cells, names in shared.items())


def _values(field: Parser) -> str:
    if isinstance(field, NumberField):
        return interval(field.bounds)
    if isinstance(field, ChoiceField):
        return ", ".join(f"`{choice_name(one)}`" for one in field.enum)
    return {text: "text", texts: "texts", number_range: "`[low, high]`"}.get(field, "pairs of size and share")


def interval(bounds: Bounds) -> str:
    """Bounds as an interval.

    >>> interval(Bounds(high=1.0)), interval(Bounds(above=True, whole=True)), interval(YES_OR_NO)
    ('[0,1]', 'integer>0', '0, 1')
    """
    if bounds == YES_OR_NO:
        return "0, 1"
    kind = "integer" if bounds.is_integer else ""
    if bounds.high < float("inf"):
        return f"{kind}{'(' if bounds.above else '['}{bounds.low:g},{bounds.high:g}]"
    if bounds.low == -float("inf"):
        return f"{kind} any".strip()
    return f"{kind}{'>' if bounds.above else '≥'}{bounds.low:g}"


def _plain(key: str) -> str:
    """A key as meanings have it: those of a ``node`` are those of a system."""
    return key if key in MEANINGS else key.removeprefix("node.")
