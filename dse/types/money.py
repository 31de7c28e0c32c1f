"""Cost and carbon of accelerators, systems and their power.

All records are optional parts of a design; the defaults are typical of 2024 and 2025. Every leaf names its source;
``actuary`` is the chiplet actuary (Feng and Ma, DAC 2022), ``CATCH`` the model of Graening et al. 2025, whose own
parameters are in ``hw_catalog/cost``. Money is in US dollars.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dse.types.choices import Packaging
from dse.types.fields import (
    Bounds,
    Scalar,
    choice,
    field_metadata,
    number,
    positive,
    positive_share,
    record,
    share,
    yes_or_no,
)

_KWH = 3.6e6  # J
_YEAR = 365.25 * 86400.0  # s
_MM2, _CM2 = 1e-6, 1e-4  # m^2

_AT_LEAST_ONE = Bounds(low=1.0)
_BELOW_ONE = Bounds(high=0.99)
_ACTUARY = "chiplet actuary (DAC 2022), spec/parameter.ini"
_ESTIMATE = "estimate"
_ACT = "ACT (Gupta et al., ISCA 2022), models of 2023"


@record
class Process:
    """Cost of a logic process: money per wafer and design, carbon per area."""

    wafer_price: Scalar = positive("price per 300 mm wafer", "USD", default=16988.0, source=f"5 nm: {_ACTUARY}")
    defect_density: Scalar = number(
        "defect density of logic", "1/m^2", default=0.11 / _CM2, symbol="D_0", source=f"5 nm: {_ACTUARY}"
    )
    design_cost: Scalar = number(
        "design cost of a 300 mm2 chip, first masks included",
        "USD",
        default=542e6,
        symbol="C",
        source=f"5 nm: {_ACTUARY}",
    )
    fab_energy: Scalar = number(
        "fab energy per area", "J/m^2", default=2.75 * _KWH / _CM2, symbol="EPA", source=f"5 nm: {_ACT}"
    )
    fab_gas: Scalar = number(
        "fab gas emissions per area, CO2 equivalent",
        "kg/m^2",
        default=0.225 / _CM2,
        symbol="GPA",
        source=f"5 nm, 99 % abated: {_ACT}",
    )


@record
class Assembly:
    """Parameters of one packaging; by default an organic substrate.

    Chips stand on a carrier (interposer, redistribution layers) where ``carrier_scale`` is not 0, the carrier on a
    substrate. ``bond_yield``: of one die on its carrier, or on the substrate without one.
    """

    carrier_scale: Scalar = number("carrier area over the area of its dies", default=0.0, symbol="k", source="none")
    carrier_price: Scalar = number("price per 300 mm carrier wafer", "USD", default=0.0, source="none")
    carrier_defects: Scalar = number("defect density of the carrier", "1/m^2", default=0.0, source="none")
    carrier_clustering: Scalar = positive("defect clustering, carrier", default=6.0, source=_ACTUARY)
    bond_yield: Scalar = positive_share(
        "bonding yield per die",
        default=0.998,
        symbol="b",
        source="estimate: flip-chip in volume; actuary has 0.99, CATCH 0.999",
    )
    bond_defects: Scalar = number("bonding defects per die area", "1/m^2", default=0.0, source="none")
    bond_price: Scalar = number("bonding price per die area", "USD/m^2", default=0.0, source="in the carrier")
    bump_price: Scalar = number("bump price per die area", "USD/m^2", default=0.005 / _MM2, source=_ACTUARY)
    design_rate: Scalar = number(
        "design cost per carrier or substrate area", "USD/m^2", default=3000.0 / _MM2, source=_ACTUARY
    )
    design_fixed: Scalar = number("fixed design cost of a package", "USD", default=0.3e6, source=_ACTUARY)


def _restated(name: str, default: float, source: str = "") -> Any:
    """Return the dataclass field ``name`` of :class:`Assembly` with another default, and a source where stated."""
    about = field_metadata(Assembly, name)
    return dataclasses.field(default=default, metadata=about | ({"source": source} if source else {}))


_COWOS = "estimate: analysts put a wafer of CoWoS at 8,000 to 12,000 USD, packaging included"


@record
class FanOut(Assembly):
    """Redistribution layers under the dies."""

    carrier_scale: Scalar = _restated("carrier_scale", 1.2, _ACTUARY)
    carrier_price: Scalar = _restated("carrier_price", 3000.0, "estimate: between a wafer of layers and CoWoS")
    carrier_defects: Scalar = _restated("carrier_defects", 0.02 / _CM2, _ESTIMATE)
    carrier_clustering: Scalar = _restated("carrier_clustering", 3.0, _ACTUARY)
    bond_yield: Scalar = _restated("bond_yield", 0.997, _ESTIMATE)
    bump_price: Scalar = _restated("bump_price", 0.01 / _MM2, _ACTUARY)
    design_rate: Scalar = _restated("design_rate", 25000.0 / _MM2, _ACTUARY)
    design_fixed: Scalar = _restated("design_fixed", 25000.0, _ACTUARY)


@record
class SiliconInterposer(Assembly):
    """A passive interposer of silicon under dies and stacks of memory (CoWoS-S)."""

    carrier_scale: Scalar = _restated("carrier_scale", 1.1, _ACTUARY)
    carrier_price: Scalar = _restated("carrier_price", 10000.0, _COWOS)
    carrier_defects: Scalar = _restated(
        "carrier_defects", 0.01 / _CM2, "estimate: of wires alone, between actuary (0.06 /cm2) and CATCH (0.001 /cm2)"
    )
    bond_yield: Scalar = _restated("bond_yield", 0.995, _ESTIMATE)
    bump_price: Scalar = _restated("bump_price", 0.01 / _MM2, _ACTUARY)
    design_rate: Scalar = _restated("design_rate", 33600.0 / _MM2, _ACTUARY)
    design_fixed: Scalar = _restated("design_fixed", 6.72e6, _ACTUARY)


@record
class Bridge(SiliconInterposer):
    """Redistribution layers with silicon bridges (CoWoS-L, EMIB): large ones cost less than an interposer."""

    carrier_price: Scalar = _restated("carrier_price", 9000.0, _COWOS)
    carrier_defects: Scalar = _restated("carrier_defects", 0.005 / _CM2, _ESTIMATE)
    bond_yield: Scalar = _restated("bond_yield", 0.993, "estimate: bridges are placed beside the dies")


@record
class Hybrid(SiliconInterposer):
    """Compute dies bonded face to face on base dies, these on an interposer (SoIC on CoWoS)."""

    bond_yield: Scalar = _restated("bond_yield", 0.995, _ESTIMATE)
    bond_defects: Scalar = _restated("bond_defects", 0.01 / _CM2, "CATCH: 1e-4 /mm2 of a dielectric bond")
    bond_price: Scalar = _restated("bond_price", 0.05 / _MM2, "estimate: some 3,500 USD a wafer")


@record
class Fab:
    """Cost of wafers, packages, tests and designs beyond the process: parameters of a cost model.

    Sets of other models are in ``hw_catalog/cost``; a set is used whole.
    """

    wafer_diameter: Scalar = positive("wafer diameter", "m", default=0.3, symbol="D", source=_ACTUARY)
    wafer_edge: Scalar = number("wafer edge exclusion", "m", default=5e-3, symbol="e", source=_ACTUARY)
    scribe: Scalar = number("scribe width", "m", default=0.2e-3, symbol="s", source=_ACTUARY)
    reticle: Scalar = positive(
        "reticle limit; larger dies are split evenly", "m^2", default=858e-6, source="field of a scanner, 26 mm x 33 mm"
    )
    clustering: Scalar = positive("defect clustering, logic", default=10.0, symbol="alpha", source=_ACTUARY)
    critical_area: Scalar = positive_share("critical area, share of the die", default=1.0, symbol="r", source=_ACTUARY)
    link_area: Scalar = number("link area per die of a multi-die package", default=0.1, source=_ACTUARY)
    organic: Assembly = Assembly()
    fan_out: FanOut = FanOut()
    silicon: SiliconInterposer = SiliconInterposer()
    bridge: Bridge = Bridge()
    hybrid: Hybrid = Hybrid()
    substrate_price: Scalar = number(
        "substrate price per layer pair and area", "USD/m^2", default=0.005 / _MM2, source=_ACTUARY
    )
    substrate_scale: Scalar = positive("substrate area over the area it carries", default=4.0, source=_ACTUARY)
    substrate_layers: Scalar = number(
        "substrate layers, multi-die over single-die", default=1.5, symbol="f", source=_ACTUARY
    )
    layers_above_289mm2: Scalar = number("substrate layers above 289 mm2", default=1.75, source=_ACTUARY)
    layers_above_900mm2: Scalar = number("substrate layers above 900 mm2", default=2.0, source=_ACTUARY)
    attach_yield: Scalar = positive_share("carrier attach yield", default=0.99, source=_ACTUARY)
    carrier_dicing: Scalar = number("carrier bump price per area", "USD/m^2", default=0.005 / _MM2, source=_ACTUARY)
    memory_price: Scalar = number(
        "default memory price per byte",
        "USD/B",
        default=15.0 / 1e9,
        source="analysts' bills of 2025: 1,350 USD for 80 GB of H100, 2,900 USD for 192 GB of B200",
    )
    memory_unit: Scalar = positive(
        "default capacity per memory stack", "B", default=16e9, source="HBM2e and HBM3 of eight layers"
    )
    memory_area: Scalar = number(
        "carrier area per memory stack", "m^2", default=110e-6, source="HBM: about 10 mm x 11 mm"
    )
    die_test: Scalar = number("die test price", "USD", default=0.0, source="in the wafer")
    coverage: Scalar = share("die test coverage", default=1.0, symbol="c", source="known good dies")
    test_price: Scalar = number(
        "test and assembly price per accelerator",
        "USD",
        default=900.0,
        source="analysts' bill of the H100, 2025: 920 USD",
    )
    module_share: Scalar = number("design cost share of modules", default=0.5, source=_ACTUARY)
    chip_share: Scalar = number("design cost share of the chip, by area", default=0.3, source=_ACTUARY)
    fixed_share: Scalar = number("design cost share of masks and tools, fixed", default=0.2, source=_ACTUARY)
    link_design: Scalar = number("area of the die-to-die module", "m^2", default=20e-6, source=_ACTUARY)
    design_area: Scalar = positive("chip area of the stated design cost", "m^2", default=300e-6, source=_ACTUARY)


@record
class Manufacture:
    """Dies and price of an accelerator.

    For a generated accelerator, area, process and memory are those of its chip, and these leaves are not read.
    """

    price: Scalar = number("price as sold; 0: unit cost / (1 - margin) + design", "USD", default=0.0)
    margin: Scalar = number(
        "seller's margin, where the price is unknown",
        default=0.8,
        bounds=_BELOW_ONE,
        source="what accelerators of the catalogue that are sold keep over the cost of a unit: 0.79 "
        "(A100) to 0.88 (H100), MI300X 0.57; above their makers' gross margins, as a bill has no board nor software",
    )
    process: Process = Process()
    base_process: Process = Process()
    chiplets: Scalar = number("compute dies of equal area", default=1.0, bounds=_AT_LEAST_ONE, symbol="n")
    logic_area: Scalar = number("area of all compute dies; 0: unknown", "m^2", default=0.0)
    base_chiplets: Scalar = number("base (I/O) dies", default=1.0, bounds=_AT_LEAST_ONE)
    io_area: Scalar = number("area of all base dies", "m^2", default=0.0)
    stacks_beside: Scalar = number("memory stacks; 0: by capacity", default=0.0)
    packaging: Scalar = choice("packaging", Packaging, default=float(Packaging.silicon))
    chip_first: Scalar = yes_or_no("chip-first packaging: 1 yes", default=0.0)
    blocks: Scalar = number("redundant blocks per compute die, such as cores", default=1.0, bounds=_AT_LEAST_ONE)
    spare_blocks: Scalar = number(
        "defective blocks allowed per compute die, up to 16", default=0.0, bounds=Bounds(high=16.0)
    )
    block_area: Scalar = share("area share of those blocks", default=0.0)
    volume: Scalar = positive("production volume", default=1e6, source=_ESTIMATE)
    reuse: Scalar = number("products sharing the die design", default=1.0, bounds=_AT_LEAST_ONE)


@record
class Prices:
    """Prices of a system beyond its accelerators, and of its operation."""

    watt_price: Scalar = number(
        "default accelerator price per watt of TDP",
        "USD/W",
        default=35.0,
        source="median of the priced accelerators of the catalogue",
    )
    server: Scalar = number(
        "server price per device, 256 GiB of memory included",
        "USD",
        default=9000.0,
        source="estimate: with it a node of eight H100 is 320,000 USD, sold at 300,000 to 400,000",
    )
    host_byte_price: Scalar = number(
        "host memory price per byte above 256 GiB per device",
        "USD/B",
        default=2.0 / 1e9,
        source="DDR5, 2 USD a GB as the catalogue has it, a rough market price",
    )
    nic_price: Scalar = number(
        "NIC price per bandwidth, one direction",
        "USD/(B/s)",
        default=30.0 / 1e9,
        source="estimate: 1,500 USD for 400 Gbit/s",
    )
    switch: Scalar = number(
        "scale-out switch price per port",
        "USD/(B/s)",
        default=12.0 / 1e9,
        source="estimate: 38,000 USD for 64 of 400 Gbit/s",
    )
    transceiver: Scalar = number(
        "optical transceiver price", "USD/(B/s)", default=16.0 / 1e9, source="estimate: 800 USD for 400 Gbit/s"
    )
    cable: Scalar = number(
        "cable price, copper or fibre", "USD/(B/s)", default=4.0 / 1e9, source="estimate: 200 USD for 400 Gbit/s"
    )
    local_switch: Scalar = number(
        "scale-up switch price per port",
        "USD/(B/s)",
        default=2.0 / 1e9,
        source="estimate: 900 USD a device for the NVSwitches of an H100",
    )
    optical_share: Scalar = share(
        "optical share of torus or hypercube links",
        default=0.3,
        source="estimate: cubes of 4 x 4 x 4 of TPU v4 have optical links on their faces",
    )
    radix: Scalar = number(
        "ports per scale-out switch", default=64.0, bounds=Bounds(low=4.0), source="Quantum-2, Tomahawk 4"
    )
    facility: Scalar = number(
        "facility price per watt of IT power", "USD/W", default=10.0, source="estimate: 8 to 13 USD a watt"
    )
    lifetime: Scalar = positive(
        "depreciation time of devices, servers, networks", "s", default=4.0 * _YEAR, source="estimate: 3 to 6 years"
    )
    facility_lifetime: Scalar = positive(
        "depreciation time of the facility", "s", default=15.0 * _YEAR, source=_ESTIMATE
    )
    in_use: Scalar = positive_share("utilisation over the lifetime", default=0.85, source=_ESTIMATE)
    electricity: Scalar = number("electricity price", "USD/J", default=0.083 / _KWH, source="US industry, EIA 2024")
    maintenance: Scalar = number(
        "maintenance per year, share of capital", "1/s", default=0.05 / _YEAR, source="estimate: 5 % a year"
    )


@record
class Emissions:
    """Emissions of electricity and of manufacturing, in kg of CO2."""

    grid: Scalar = number("grid carbon intensity, operation", "kg/J", default=0.369 / _KWH, source=f"USA: {_ACT}")
    fab_grid: Scalar = number("grid carbon intensity, fabs", "kg/J", default=0.642 / _KWH, source=f"Taiwan: {_ACT}")
    materials: Scalar = number(
        "emissions of raw materials per die area", "kg/m^2", default=0.5 / _CM2, symbol="MPA", source=_ACT
    )
    carrier: Scalar = number(
        "emissions of carrier and substrate per area",
        "kg/m^2",
        default=1.0 / _CM2,
        source="estimate: ACT's area of 28 nm",
    )
    memory_intensity: Scalar = number(
        "emissions of device memory per byte", "kg/B", default=0.065 / 1e9, source=f"DDR4 of 10 nm: {_ACT}"
    )
    watt: Scalar = number(
        "default accelerator emissions per watt of TDP",
        "kg/W",
        default=0.15,
        source="estimate: as the accelerators whose dies are known",
    )
    server: Scalar = number(
        "server and network emissions per device",
        "kg",
        default=250.0,
        source="share of a GPU in an A100 instance, 318 kg (Chien et al., HotCarbon 2023), less the GPU",
    )
