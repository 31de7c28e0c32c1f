"""The page of the docs on generated accelerators: chips as built against their data sheets.

``python -m docs.make.technology docs/technology.md`` writes it.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import dse
from docs.make.command import page_parser
from docs.make.energy.rates import Product, product
from docs.make.markdown import document, filed, percent, publish, table
from dse import types
from dse.designs import catalog, replace
from dse.designs.catalog import schema
from dse.model.machine import technology
from dse.model.machine.die_links import crossings
from dse.model.machine.power import voltage
from dse.types import Accelerator, Chip, Metrics, Power, Precision, ServingMetrics


class AsBuilt(NamedTuple):
    """A chip as built: the generated accelerator it starts from, and what of that one differs."""

    base: str  #: generated accelerator
    sheet: str  #: accelerator of the catalogue whose figures are compared
    node: str = ""
    memory: str = ""
    values: dict[str, float] = {}  # noqa: RUF012  (never changed)

    def chip(self) -> Chip:
        """Node, memory and budgets of the chip under the common shares."""
        chip = catalog.record(types.Accelerator, self.base).chip
        records: dict[str, Any] = {}
        if self.node:
            records |= {"node": catalog.record(types.LogicNode, self.node)}
        if self.memory:
            records |= {"memory": catalog.record(types.MemoryTechnology, self.memory)}
        return dataclasses.replace(chip, **records, **self.values)


def _of(node: str, memory: str, stacks: float, die: float, watts: float, base: str = "gpu", **others: float) -> dict:
    """Arguments of a chip as built: areas in mm2."""
    values = dict(stacks=stacks, die_area=die * 1e-6, power_budget=watts, **others)
    return dict(base=base, node=node, memory=memory, values=values)


#: Chips whose figures set the common shares.
FITTED = ("A100", "H100", "B200", "MI300X")

#: Name → chip as built.
AS_BUILT = {
    "A100": AsBuilt("generated-a100", "a100-sxm-80gb"),
    "H100": AsBuilt("generated-h100", "h100-sxm-80gb"),
    "B200": AsBuilt("generated-b200", "b200-sxm-180gb"),
    "MI300X": AsBuilt("generated-mi300x", "mi300x"),
    "V100": AsBuilt(sheet="v100-sxm-32gb", **_of("n12", "hbm2-2-0", 4, 815, 300)),
    "A30": AsBuilt(sheet="a30", **_of("n7", "hbm2-2-0", 4, 826, 165)),
    "H200": AsBuilt(sheet="h200-sxm-141gb", **_of("n4p", "hbm3-6-4", 6, 814, 700)),
    "L40S": AsBuilt(sheet="l40s", **_of("n4p", "gddr6-16", 12, 608.5, 350)),
    "TPU v4": AsBuilt(sheet="tpu-v4", **_of("n7", "hbm2-2-4", 4, 600, 192)),
    "MI250X, one die": AsBuilt(sheet="mi250x-gcd", **_of("n6", "hbm2e-3-2", 4, 724, 280)),
    "MI355X": AsBuilt(
        sheet="mi355x", **_of("n3p", "hbm3e-8-0", 8, 880, 1400, base="generated-mi300x", base_area=1480e-6)
    ),
}


@functools.cache
def made(name: str) -> Accelerator:
    """The generated accelerator of a chip as built."""
    row = AS_BUILT[name]
    return technology.generate(dataclasses.replace(catalog.record(types.Accelerator, row.base), chip=row.chip()))


def figures(name: str) -> dict[str, tuple[float, float]]:
    """Figure → (generated, data sheet) of a chip: 16-bit peak, memory on the chip, memory bandwidth."""
    found, sheet = made(name), catalog.entry("accelerator", AS_BUILT[name].sheet)
    on_chip = found.cache + technology.core_memory(found.chip)
    peak = max(sheet.value("matrix_rate.bf16", 0.0), sheet.value("matrix_rate.fp16", 0.0))
    return {
        "16-bit peak": (float(found.matrix_rate.bf16), peak),
        "on-chip memory": (float(on_chip), sheet.value("cache") + sheet.value("onchip_memory", 0.0)),
        "memory bandwidth": (float(found.memory.bandwidth), sheet.value("memory.bandwidth")),
    }


def errors(name: str) -> dict[str, float]:
    """Figure → generated over data sheet, less one."""
    return {figure: found / stated - 1.0 for figure, (found, stated) in figures(name).items()}


#: TSMC's nodes, each newer than the one before.
NODES = ("n16", "n12", "n10", "n7", "n6", "n5", "n4p", "n3e", "n3p", "n2", "n2p", "a16", "a14")


def iso_power_speed(slug: str) -> float:
    """Speed of a node over that of N7 at the power of N7, by the voltage law from its energy at iso speed alone."""
    node = catalog.record(types.LogicNode, slug)
    law = Power(threshold=node.threshold, lowest_voltage=0.0)
    slow, fast = 0.01, 10.0
    for _ in range(60):  # f V^2 e = 1
        middle = 0.5 * (slow + fast)
        above = float(middle * voltage(middle, law) ** 2 * node.energy) > 1.0
        slow, fast = (slow, middle) if above else (middle, fast)
    return slow


def page() -> str:
    """The page as Markdown."""
    parts = [
        "# Generated accelerators",
        "Written by `python -m docs.make.technology docs/technology.md`. Node, die areas, power "
        "limit, memory and links between dies are those of the chip as built; every share and every "
        "other constant is that of `hw_catalog/architectures/gpu.toml`. An error is generated over "
        "data sheet, less one. On-chip memory is the last cache and the cores' own, without register "
        "files.",
        "## Chips that set the shares",
        _errors(FITTED),
        "## Chips that did not",
        _errors(tuple(name for name in AS_BUILT if name not in FITTED)),
        "The common shares are those of accelerators for training. Chips with other aims differ: half"
        " of an A30's cores are switched off, an L40S spends area on graphics, an MI250X on 64-bit "
        "arithmetic, a TPU has few but large matrix units.",
        "## What the cores come to",
        _cores(),
        "Voltage is over the node's nominal one, at which GPU logic runs at 1.5 GHz; 0.7 of it is the"
        " lowest (A30 and V100 stop at 0.73 and 0.76 of their boost voltage). No boost clock is laid "
        "out for less than `boost_voltage`: where power leaves less, fewer cores are fed. The peak is"
        " that of the boost clock, as on data sheets; the clock falls until the power limit holds. "
        "`highest_clock` of the node and `heat_flux` of the architecture (1.5 W/mm2 for cold plates) "
        "bound no chip of this page.",
        "## One voltage curve a node",
        "A node takes the foundry's claim of less power at the old speed; the voltage law `f ~ (V - "
        "V_t)^2 / V` gives the speed at the old power, here next to the claim (cumulative, N7 = 1).",
        _curve(),
        "## What an operation takes, and what a chip draws for it",
        "Energies as published, of an operation or of 64 bits read, in 45 nm (Horowitz 2014) and in 7"
        " nm (Jouppi et al. 2021).",
        _operations(),
        "An A100 at its power limit and peak draws so much an operation; what its logic does not explain is operands "
        "moved, control and power at rest. The model's energy of a 16-bit FLOP, operands from on-chip memory included, "
        f"is {1e12 * catalog.record(types.Accelerator, 'a100-sxm-80gb').power.matrix_energy:.2f} pJ.",
        _residuals(),
        "## What they draw, against the chips as sold",
        "The same steps of a generated chip and of the one as sold. The common shares were set with "
        "the first step in sight; the others and the products below are checks.",
        _draws(),
        "A square product in bf16 that repeats, 8,192 each side, at the power limit.",
        _products(),
        "Answers of Llama-3-70B on eight devices (tp 8, vLLM, 1,000 tokens in and 500 out): energy "
        "per output token with hosts and facility, and its time.",
        _answers(),
        _stands_out(),
        "## Several dies",
        "Memory and last cache are interleaved over the dies of a device. Between two random dies of "
        "a square of `n` a byte crosses `max((n - 1) / n, 2 (sqrt(n) - 1 / sqrt(n)) / 3)` edges; a "
        "quarter of all bytes crosses the middle in either direction. Bytes are those that the last "
        "cache serves: of a product the operands `2 sqrt(n m k) / (m + k)` times for `m x k` outputs,"
        " else once. They bound a kernel (`die_links`), take energy, and each crossing lengthens an "
        "access. Links are those of UCIe-advanced, of NV-HBI and AMD's for B200 and MI300X "
        "(`chip.die_link_density`, `_depth`, `_energy`, `_latency`).",
        "A GPU of 800 mm2 in N3E at 1 kW with HBM3E on redistribution layers, a step of Llama-3-70B (64 devices, tp 8, "
        "pp 4, bf16):",
        _dies(),
    ]
    return document(parts)


def _stands_out() -> str:
    """Where B200 and the one that is generated differ."""
    own = catalog.record(types.Accelerator, "b200-sxm-180gb").power
    made = technology.generate(catalog.record(types.Accelerator, "generated-b200")).power
    less = 100.0 * (1.0 - own.matrix_energy / float(made.matrix_energy))
    return (
        f"B200 stands out: its FLOP takes {less:.0f} % less than that of the generated one, while its board draws "
        f"{own.uncore + own.leakage:.0f} W whatever the cores do ({float(made.uncore + made.leakage):.0f} W of the "
        "generated one): larger matrix units, and links and a second die, which common shares do not know."
    )


#: Generated chip → the same as sold, and a stack of both.
TWINS = {
    "generated-a100": ("a100-sxm-80gb", "megatron-core-te"),
    "generated-h100": ("h100-sxm-80gb", "megatron-core-te"),
    "generated-b200": ("b200-sxm-180gb", "megatron-core-te"),
    "generated-mi300x": ("mi300x", "megatron-core-rocm"),
}


#: Step → model, devices and mapping.
STUDIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "Llama-3-70B, tp 8, pp 4": (
        "llama-3-70b", 64, dict(tp=8, pp=4, zero_stage=1, recompute="selective", global_batch=256, micro_batch=1)
    ),
    "Llama-3-8B, ZeRO 3": ("llama-3-8b", 8, dict(zero_stage=3, recompute="full", global_batch=64, micro_batch=1)),
    "GPT-3-175B, tp 8, pp 8": (
        "gpt-3-175b", 512, dict(tp=8, pp=8, zero_stage=1, recompute="full", global_batch=512, micro_batch=1)
    ),
}  # fmt: skip


def draws(name: str, study: str) -> tuple[Metrics, Metrics]:
    """A step of a generated chip, and of the same as sold."""
    sold, stack = TWINS[name]
    model, devices, mapping = STUDIES[study]
    first, second = (
        dse.design(model, one, stack, devices, **mapping, precision="bf16", any_option=True) for one in (name, sold)
    )
    return dse.evaluate(first), dse.evaluate(second)


def _draws() -> str:
    rows = []
    for study in STUDIES:
        for name in TWINS:
            generated, sold = draws(name, study)
            watts = (f"{float(one.device_power):.0f} W" for one in (generated, sold))
            more = (float(getattr(generated, of) / getattr(sold, of)) - 1.0 for of in ("device_power", "step_time"))
            rows.append([study, TWINS[name][0], *watts, *(f"{100.0 * one:+.0f} %" for one in more)])
    header = ["step", "chip", "generated draws", "as sold draws", "power", "step time"]
    return filed("technology_steps", header, rows)


#: Compute dies of the device that is split.
DIES = (1, 2, 3, 4, 6, 8, 16)


def _dies() -> str:
    """What splitting a device into equal dies costs and saves."""
    names = {"node": "n3e", "memory": "hbm3e-8-0"}
    records = {"node": types.LogicNode, "memory": types.MemoryTechnology}
    chip = dataclasses.replace(
        catalog.record(types.Accelerator, "gpu").chip,
        die_area=800e-6,
        power_budget=1000.0,
        **{name: catalog.record(record, names[name]) for name, record in records.items()},
    )
    model, devices, mapping = STUDIES["Llama-3-70B, tp 8, pp 4"]
    base = dse.design(model, "gpu", "megatron-core-te", devices, **mapping, precision="bf16", any_option=True)
    rows, whole = [], None
    for dies in map(float, DIES):
        own = {
            "system.accelerator.chip": chip,
            "system.accelerator.made.chiplets": dies,
            "system.accelerator.made.packaging": float(types.Packaging.fan_out),
        }
        found = dse.evaluate(replace(base, own))
        whole = whole or found
        more = (float(getattr(found, of) / getattr(whole, of)) - 1.0 for of in ("step_time", "energy_per_step"))
        made = found.device_cost_dies + found.device_cost_package + found.device_cost_lost
        area = percent(float(technology.split_area(chip, dies)) / chip.die_area)
        rows.append(
            [
                f"{dies:g}",
                f"{float(crossings(dies)):.2f}",
                area,
                *(f"{100.0 * one:+.2f} %" for one in more),
                *(f"{float(dollars):,.0f}" for dollars in (made, found.device_cost_design, found.device_cost)),
            ]
        )
    return table(
        [
            "dies",
            "edges a byte crosses",
            "more area",
            "step time",
            "energy",
            "dies, package, lost (USD)",
            "design (USD)",
            "all (USD)",
        ],
        rows,
    )


#: Requests in flight.
IN_FLIGHT = (1, 32, 256)


def answers(name: str, in_flight: float) -> tuple[ServingMetrics, ServingMetrics]:
    """Answers of a generated chip, and of the same as sold."""
    asked = dict(tp=8, concurrency=in_flight, precision="bf16", prompt_tokens=1000, output_tokens=500)
    first, second = (dse.serve(dse.design("llama-3-70b", one, "vllm", 8, **asked)) for one in (name, TWINS[name][0]))
    return first, second


def _answers() -> str:
    rows = []
    for name in TWINS:
        cells = []
        for in_flight in IN_FLIGHT:
            one, sold = answers(name, in_flight)
            for of in ("energy_per_output_token", "time_per_output_token"):
                cells.append(f"{100.0 * (float(getattr(one, of) / getattr(sold, of)) - 1.0):+.0f} %")
        rows.append([TWINS[name][0], *cells])
    columns = [f"{in_flight} in flight: {what}" for in_flight in IN_FLIGHT for what in ("energy", "time")]
    return filed("technology_serving", ["chip", *columns], rows)


def products(name: str, size: float = 8192.0) -> tuple[Product, Product]:
    """A square product in bf16 on a generated chip, and on the same as sold."""
    chips = (catalog.record(types.Accelerator, one) for one in (name, TWINS[name][0]))
    made, sold = map(technology.generate, chips)
    return product(made, Precision.bf16, size), product(sold, Precision.bf16, size)


def _products() -> str:
    rows = []
    for name in TWINS:
        both = products(name)
        cells = [cell for one in both for cell in (f"{one.power:.0f} W", f"{one.slower:.2f}")]
        rows.append([TWINS[name][0], *cells, f"{100.0 * (both[0].time / both[1].time - 1.0):+.0f} %"])
    header = ["chip", "generated draws", "generated slower", "as sold draws", "as sold slower", "time"]
    return filed("technology_products", header, rows)


#: The nodes whose energies of operations are published side by side.
OLD_NODE, NEW_NODE = "stillmaker-baas-45nm", "n7"
#: Format of an A100's matrix units → the multiplication that its logic does.
MULTIPLIED = {"tf32": "fp32_multiply", "fp16": "fp16_multiply", "int8": "int8_multiply"}


def operations() -> dict[str, tuple[float, float]]:
    """Operation → its energy in 45 nm and in 7 nm, in J."""
    old, new = (catalog.entry("node", slug) for slug in (OLD_NODE, NEW_NODE))
    return {
        name: (old.value(f"operations.{name}"), new.value(f"operations.{name}"))
        for name in schema.table("operations").fields
    }


def residuals(slug: str = "a100-sxm-80gb") -> dict[str, tuple[float, float]]:
    """Format → (power limit over peak, energy of the logic) of a chip in 7 nm, in J an operation."""
    sheet, logic = catalog.entry("accelerator", slug), operations()
    return {
        name: (sheet.value("tdp") / sheet.value(f"matrix_rate.{name}"), logic[operation][1])
        for name, operation in MULTIPLIED.items()
    }


def _operations() -> str:
    rows = [
        [name.replace("_", " "), *(f"{1e12 * joules:.6g}" for joules in (old, new)), f"{old / new:.1f}"]
        for name, (old, new) in operations().items()
    ]
    return filed("technology_operations", ["term", "pJ in 45 nm", "pJ in 7 nm", "ratio"], rows)


def _residuals() -> str:
    rows = [
        [name, *(f"{1e12 * joules:.2f}" for joules in (drawn, logic, drawn - logic)), percent(1.0 - logic / drawn)]
        for name, (drawn, logic) in residuals().items()
    ]
    return table(["term", "pJ drawn", "pJ of the logic", "the rest", "share of the rest"], rows)


def _errors(names: tuple[str, ...]) -> str:
    columns = list(figures(names[0]))
    scale = {"16-bit peak": (1e12, "TFLOP/s"), "on-chip memory": (1e6, "MB"), "memory bandwidth": (1e9, "GB/s")}
    rows = []
    for name in names:
        cells = []
        for figure, (found, stated) in figures(name).items():
            unit, text = scale[figure]
            cells += [f"{found / unit:.0f} / {stated / unit:.0f} {text}", percent(found / stated - 1.0, "+")]
        rows.append([name, *cells])
    return table(["chip", *(cell for column in columns for cell in (column, "error"))], rows)


def _cores() -> str:
    rows = []
    for name in AS_BUILT:
        found, sheet = made(name), catalog.entry("accelerator", AS_BUILT[name].sheet)
        cores, chip = technology.clocked(found.chip), found.chip
        rows.append(
            [
                name,
                f"{float(cores.clock) / 1e9:.2f}",
                f"{sheet.value('boost_clock', 0.0) / 1e9:.2f}",
                f"{float(cores.volts):.2f}",
                f"{float(found.cores):.0f}",
                f"{sheet.value('cores'):.0f}",
                f"{float(found.power.matrix_energy) * 1e12:.2f}",
                f"{float(technology.memory_units(chip)):.1f}",
            ]
        )
    columns = ["chip", "clock, GHz", "as sold", "voltage", "cores", "as built", "pJ/FLOP", "stacks with room"]
    return filed("technology_cores", columns, rows)


def _curve() -> str:
    rows = []
    for slug in NODES:
        entry, speed = catalog.entry("node", slug), iso_power_speed(slug)
        claimed = 1.0 / entry.value("delay")
        cells = (f"{entry.value('energy'):.3f}", f"{speed:.2f}", f"{claimed:.2f}", percent(speed / claimed - 1.0, "+"))
        rows.append([entry.name, *cells, entry.values["energy"].confidence])
    header = ["node", "energy at iso speed", "speed at iso power", "claimed", "error", "claim"]
    return filed("technology_nodes", header, rows)


if __name__ == "__main__":
    publish(page_parser(__doc__).parse_args().page, page())
