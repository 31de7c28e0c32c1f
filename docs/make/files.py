"""Tables of the pages of the docs on files and terms: methods, schedule of co-design, fields of the catalogue, names.

``python -m docs.make.files PAGE.md`` (``docs/files.md`` or ``docs/glossary.md``) writes them in place, between
``<!-- table: NAME -->`` and ``<!-- end of table -->``; the text around them is written by hand.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docs.make.command import page_parser
from docs.make.markdown import table
from dse.designs.catalog.schema import OPERATIONS, SCHEMAS, Choice, Number, Table
from dse.designs.catalog.value import Parser, extent, text, texts
from dse.errors import THEIRS
from dse.io import quantities
from dse.search.codesign.descent import Schedule
from dse.search.methods import METHODS
from dse.spec.search import BATCHES, METHOD_OPTIONS, MOST_A_STEP
from dse.types import choice_name
from dse.types.fields import YES_OR_NO

_MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with its tables as the code has them today."""
    return fill(page, tables())


def fill(page: str, made: Mapping[str, str]) -> str:
    """The page with these tables in their places; a name of a table that there is not is a KeyError."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}", page)


def tables() -> dict[str, str]:
    """Name → table."""
    kinds = {kind: table(_COLUMNS, _rows(kind), words=_COLUMNS) for kind in SCHEMAS}
    return kinds | {"methods": _methods(), "schedule": _schedule(), "elsewhere": _elsewhere()}


# --- searches ---------------------------------------------------------------------------------------------

#: Option of a method → what it is.
OPTIONS = {
    "population": "designs evaluated in one step",
    "best_share": "share of the population whose members trials move towards",
    "walkers": "chains side by side, one design each in one step",
    "temperature": "at the start, in logarithms of the objective",
    "steps": "steps of one cooling schedule, after which it restarts",
    "guide": "temperature of the predicted change that neighbours are drawn by",
    "plain": "share of neighbours that are drawn evenly all the same",
}


def _methods() -> str:
    rows = []
    for name, defaults in METHOD_OPTIONS.items():
        rows.append([f"`{name}`", "", "", METHODS[name].about])
        rows += [["", f"`{option}`", f"{value:g}", OPTIONS[option]] for option, value in defaults.items()]
    header = ("method", "option", "default", "what")
    whole = f"Whole numbers are 1 to {MOST_A_STEP:,} (`{'`, `'.join(BATCHES)}` are the designs of one step), "
    return f"{whole}other options are above 0.\n\n{table(header, rows, words=header)}"


#: Key of the schedule of a co-design → what it is.
SCHEDULE = {
    "starts": "starting points, spread over the bounds",
    "steps": "steps of every start",
    "seed": "of the starting points",
    "k": "mappings that enter the soft minimum of each workload",
    "rate": "first step of a variable, in its logarithm",
    "last_rate": "last one; in between they fall geometrically, as below",
    "temperature": "first temperature of the soft minimum, in logarithms of the objective",
    "last_temperature": "last one",
    "stiffness": "first weight of what is infeasible",
    "last_stiffness": "last one",
}


def _schedule() -> str:
    defaults = {field.name: field.default for field in dataclasses.fields(Schedule)}
    rows = [[f"`{name}`", f"{value:g}", SCHEDULE[name]] for name, value in defaults.items()]
    header = ("key", "default", "what")
    return table(header, rows, words=header)


# --- names of other tools ---------------------------------------------------------------------------------


def _elsewhere() -> str:
    rows = [[_listed(ours), _listed(theirs)] for ours, theirs in THEIRS.items()]
    header = ("ours", "elsewhere")
    return table(header, rows, words=header)


def _listed(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())


# --- the catalogue ----------------------------------------------------------------------------------------

_COLUMNS = ("key", "unit", "values", "where it is left out", "meaning")

#: Fields of the catalogue that are no leaves of a design → what they are; by key, or by ``kind: key``.
MEANINGS = {
    "vendor": "who makes it",
    "architecture": "name of its generation, for readers",
    "status": "`shipping`, `announced`, `roadmap`, …, for readers",
    "year": "of its introduction",
    "kernels.family": "entry of `kernels/` whose kernels, energies and node it takes over",
    "kernels.steps.matrix": "efficiency by the FLOPs of a matrix operator, all three or none",
    "kernels.steps.vector": "efficiency by the FLOPs of an element-wise operator",
    "kernels.steps.memory": "efficiency by the bytes that an operator moves",
    "memory.kind": "`HBM3`, `GDDR6`, …, for readers",
    "chip.architecture": "entry of `architectures/`: what the other keys of `chip` are where they are left out",
    "chip.node": "entry of `nodes/`: process of the compute dies",
    "chip.base_node": "entry of `nodes/`: process of the base dies; that of the compute dies where it is left out",
    "chip.memory": "entry of `memories/`",
    "structure.full_cores": "those of its dies, cores that are off included: without a supply, they do not leak",
    "structure.cache_bandwidth": "bandwidth of the last cache: what cores can ask of device memory (`power.feed`)",
    "physical.compute_dies": "compute dies of the bill, where `made.node` is stated",
    "physical.die_area": "area of the dies together, for the bill, where `made.node` is stated",
    "physical.transistors": "of all dies, what is off included: what leaks (`power.leakage`)",
    "physical.tdp": "power limit as sold (`power.tdp`)",
    "physical.idle_power": "for comparison",
    "physical.boost_clock": "clock at which the rates are stated (`power.nominal_clock`)",
    "made.node": "entry of `nodes/`: process of the compute dies; without it no dies are priced",
    "made.base_node": "entry of `nodes/`: process of the base dies",
    "physical.onchip_memory": "memory of the cores together; for comparison",
    "physical.host_bandwidth": "bandwidth of the link to the host, one direction",
    "link.kind": "of the accelerator's own links, for readers",
    "link.topology": "for readers",
    "link.bandwidth": "of all links of a device, one direction; for comparison",
    "link.domain": "devices that the links join; for comparison",
    "node.scale_up": "entry of `networks/` inside of the node, or `none`",
    "node.scale_out": "entry of `networks/` between nodes",
    "node.software": "entry of `software/` that runs unless told otherwise",
    "node.engine": "entry of `software/` that serves unless told otherwise",
    "accelerator": "entry of `accelerators/`",
    "scale_up": "entry of `networks/` inside of the node",
    "scale_out": "entry of `networks/` between nodes, or `none`",
    "software": "entry of `software/` that runs unless told otherwise",
    "engine": "entry of `software/` that serves unless told otherwise; by default that of the accelerator",
    "topology": "for readers",
    "devices_per_node": "devices that the scale-up network joins",
    "scale_up_bandwidth": "bandwidth of a device and direction, in place of the network's",
    "scale_out_bandwidth": "bandwidth of a device and direction, in place of the network's",
    "host_memory": "host memory of a device; 256 GiB where nothing is said",
    "host_bandwidth": "link of a device to its host, one direction; that of the accelerator, else 32 GB/s",
    "host_power": "a device's share of its host's power",
    "host_power_share": "the same over the accelerator's power limit",
    "pue": "power of the facility over that of its computers",
    "scope": "`scale-up` or `scale-out`, for readers",
    "energy": "energy of a byte over the link, both ends, optics included",
    "radix": "ports of a switch of a fat tree",
    "levels": "levels of a fat tree: it joins 2 (radix / 2)^levels devices",
    "vendors": "makers of the accelerators that the stack exists for; all where it is left out",
    "lineage": "code base that the stack descends from: its stacks share what is fitted",
    "residual": "standard deviation of the logarithm of step times, besides what fitted values leave open",
    "residuals.token": "standard deviation of the logarithm of an engine's times of a token, for their intervals",
    "residuals.first": "the same of times to the first token",
    "residuals.latency": "the same of times of a request",
    "residuals.rate": "the same of throughput",
    "residuals.energy": "the same of energy and power",
    "calibrated.n_devices": "the least and the largest number of devices among the rows of the fit",
    "calibrated.parameters": "the same of parameters of the model",
    "calibrated.seq_len": "the same of tokens of a sequence",
    "calibrated.micro_batch": "the same of sequences of a micro-batch",
    "calibrated.prompt_tokens": "the same of tokens of a prompt",
    "calibrated.output_tokens": "the same of tokens of an answer",
    "calibrated.concurrency": "the same of requests in flight",
    "calibrated.accelerators": "accelerators of the rows, by slug",
    "calibrated.mixtures": "accelerators on which some of the rows are of mixtures of experts; none: all are dense",
    "flash_published": "published time of its attention kernel over the best one's of its chips: where a fit starts",
    "spills": "whether activations that do not fit go to the host",
    "selective": "what the stack calls selective recompute",
    "max_seq_len": "longest context of the model; what is longer is told",
    "draft_layers": "layers of the checkpoint that predict further tokens, with which engines draft; for launch lines",
    "parameters_published": "parameters as its authors count them; for comparison",
    "active_published": "those that a token meets, as its authors count them; for comparison",
    "device.vector_share": "rate of the vector units over the 16-bit matrix rate",
    "device.cores": "cores of an accelerator that does not say",
    "device.cache": "last cache of an accelerator that does not say",
    "device.tdp": "power limit of an accelerator that does not say",
    "device.clock": "clock of an accelerator that does not say",
    "power.uncore_share": "`power.uncore` over the power limit as sold",
    "power.leakage_share": "`power.leakage` over the power limit as sold, of accelerators that state no transistors",
    "power.transistor_leakage": "`power.leakage` of one transistor that is on",
    "power.control_share": "`power.control` over the power limit as sold",
    "foundry": "who makes it",
    "supply": "nominal voltage; for comparison",
    "delay": "delay of a gate over N7's at iso power; for comparison",
    "unit": "`stack`, `device`, `DIMM`, `drive`, for readers",
    "kernels: family": "entry of `kernels/` that it takes the rest from; without one all fields are needed",
    "software: family": "chips that a stack without measurements is for: it gets what their stacks share",
    "network: family": "for readers",
    "workload: family": "for readers",
    "memory: family": "for readers",
    **{f"operations.{name}": "energy as published; for comparison" for name in OPERATIONS},
}

#: Kinds whose entries take a leaf's own default where a file leaves it out; elsewhere a family or architecture does.
_OWN_DEFAULTS = ("workload", "software", "network", "node", "memory")

#: What a workload leaves out; the other defaults are those of the leaves.
WORKLOAD_DEFAULTS = {
    "n_kv_heads": "n_heads", "head_dim": "hidden / n_heads", "window": "seq_len", "global_batch": "about 4 Mi tokens",
    **dict.fromkeys(
        ("gated", "tied_embeddings", "learned_positions", "rotary", "relative_positions", "dropout", "local_layers"),
        "0",
    ),
}  # fmt: skip

#: Tables of accelerators and networks that hold fields of another table → what they are shown as.
_ELSEWHERE = {
    "accelerator.kernels": (SCHEMAS["kernels"], "every leaf of a file of `kernels/`"),
    "accelerator.chip": (SCHEMAS["architecture"], "every key of a file of `architectures/`"),
    "accelerator.node": (SCHEMAS["kernels"].fields["node"], "every key of `[node]` of a file of `kernels/`"),
    "kernels.fine": (SCHEMAS["kernels"], "every leaf of the file itself"),
    "kernels.alone": (SCHEMAS["network"].fields["alone"], "every key of `[alone]` of a file of `networks/`"),
}


def _rows(kind: str) -> Iterator[Sequence[str]]:
    """The rows of a kind's files: keys of the file itself, then of its tables."""
    yield from _rows_of(kind, SCHEMAS[kind], "")


def _rows_of(kind: str, fields: Table, at: str) -> Iterator[Sequence[str]]:
    other, told = _ELSEWHERE.get(f"{kind}.{at[:-1]}", (None, ""))
    known: Mapping[str, Parser | Table] = other.fields if isinstance(other, Table) else {}
    if told:
        yield [f"`{at}…`", "", "", "", told]
    for key, field in fields.fields.items():
        if not isinstance(field, Table) and known.get(key) != field:
            yield [f"`{at}{key}`", *_about(kind, at + key, field, key in fields.needs)]
    for key, field in fields.fields.items():
        if isinstance(field, Table):
            yield from _rows_of(kind, field, f"{at}{key}.")


def _about(kind: str, key: str, field: Parser, needed: bool) -> tuple[str, str, str, str]:
    """Unit, values, what holds where it is left out, and meaning of a field."""
    meaning = getattr(field, "meaning", "") or MEANINGS.get(f"{kind}: {key}") or MEANINGS[_without_record(key)]
    absent = "needed" if needed else _absent(kind, key, field)
    if isinstance(field, Number):
        unit = "" if field.units == "1" else field.units
        return unit, "`true` or `false`" if field.bounds == YES_OR_NO else str(field.bounds), absent, meaning
    if isinstance(field, Choice):
        return "", ", ".join(f"`{choice_name(one)}`" for one in field.enum), absent, meaning
    read = {text: "a string", texts: "a list of strings", extent: "a pair, `[least, largest]`"}
    return "", read.get(field, "pairs of a size and a share"), absent, meaning


def _absent(kind: str, key: str, field: Parser) -> str:
    if kind == "workload" and key in WORKLOAD_DEFAULTS:
        return WORKLOAD_DEFAULTS[key]
    default = getattr(field, "default", None)
    if kind not in _OWN_DEFAULTS or default is None:
        return ""
    units = field.units if isinstance(field, Number) else "1"
    return quantities.quantity(default, units) if units != "1" else f"{default:g}"


def _without_record(key: str) -> str:
    """A key as meanings have it: those of a ``node`` are those of a system."""
    inner = key.removeprefix("node.")
    return key if key in MEANINGS else inner


if __name__ == "__main__":
    target: Path = page_parser(__doc__).parse_args().page
    target.write_text(filled(target.read_text(encoding="utf-8")), encoding="utf-8")
