"""Tables of chiplet package costs, predicted by the formulas of the model with the parameters of a cost model.

A row names the cost model (``model``), the package, its dies (``7 nm:100 mm2 x2``), the area of links, and a volume for
shared design cost; all other columns are figures of the bill, in USD and mm2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dse.designs import catalog
from dse.doors import TRAINING, Study
from dse.io.environment import double_precision
from dse.measured.names import Lookup
from dse.measured.prediction import TableKind
from dse.measured.table import Case, Measurement, Row, Skip, kind_rows, unnamed_figure
from dse.model.money.device import Manufacturing, manufacture, specified_parts
from dse.model.money.die import dies_per_wafer
from dse.model.money.package import assembly
from dse.types import Fab, Manufacture, Packaging, Process, Scalar
from dse.types.paths import build

#: Figures of a row, each a metric of the same name.
METRICS: Sequence[str] = kind_rows("chiplets")["metrics"]

_MODELS = {"chiplet_actuary": "actuary", "catch": "catch"}
_PACKAGES = {
    "SoC_organic": Packaging.organic,
    "MCM_organic": Packaging.organic,
    "InFO_RDL": Packaging.fan_out,
    "2.5D_Si_interposer": Packaging.silicon,
}
_DIES = re.compile(r"\s*(\d+) ?nm: ?([\d.]+) ?mm2 x(\d+)\s*")
_MM2 = 1e-6


class PricedRow(NamedTuple):
    """Package and cost model of a row."""

    package_spec: Manufacture
    fab: Fab


def read(rows: list[Row]) -> list[Case]:
    """Return one case per row with its figures, USD and mm2, without those that are zero."""
    figures = ((row, [_figure(row, name) for name in METRICS if row.get(name)]) for row in rows)
    return [
        Case((row,), tuple(figure for figure in measurements if figure.value or figure.skip), "chiplets")
        for row, measurements in figures
    ]


def _figure(row: Row, name: str) -> Measurement:
    """Return a figure of a row as a measurement, NaN with a skip where the cell is no number."""
    try:
        return unnamed_figure(row, name, float(row.get(name)))
    except ValueError:
        return unnamed_figure(row, name, skip=Skip("no usable measured value", f"{name} = {row.get(name)!r}"))


def predict(configurations: Sequence[tuple[Case, PricedRow]], _: Study) -> list[dict[str, float]]:
    """Predict the bill of every row, in double precision.

    Args:
        configurations: rows of bills with their packages and cost models.

    Returns:
        Metric → value in USD, in mm2 for areas, of each configuration in order.
    """
    with double_precision():
        return [{name: float(value) for name, value in _figures(row).items()} for _, row in configurations]


def _priced_row(case: Case, _: Lookup) -> PricedRow:
    """Return the package and cost model that a row describes; raise Skip, or ValueError for a bad cell."""
    row = case.row
    model, packaging = row.get("model"), row.get("package")
    if model not in _MODELS:
        raise Skip("unknown cost model", f"{model!r}; known: {', '.join(_MODELS)}")
    if packaging not in _PACKAGES:
        raise Skip("unknown package", f"{packaging!r}; known: {', '.join(_PACKAGES)}")
    dies_match = _DIES.fullmatch(row.get("groups"))
    if dies_match is None:
        raise Skip("dies that cannot be read", f"{row.get('groups')!r}; write 7 nm:100 mm2 x2, one group of equal dies")
    node, area, count = f"{dies_match[1]}nm", float(dies_match[2]) * _MM2, float(dies_match[3])
    entry = catalog.entry("cost", _MODELS[model])
    if entry.value(f"nodes.{node}.wafer_price") is None:
        raise Skip("node without a price", f"{model} has none of {node}")
    if entry.value(f"{_PACKAGES[packaging].name}.bond_yield") is None:
        raise Skip("package without a price", f"{model} has none of {packaging}")
    names = ("wafer_price", "defect_density", "design_cost")
    process_values = {name: entry.value(f"nodes.{node}.{name}") for name in names}
    process = Process(**{name: value for name, value in process_values.items() if value is not None})
    values = catalog.values("cost", _MODELS[model]) | {"link_area": float(row.get("d2d_area_ratio") or 0.0)}
    package_spec = Manufacture(
        chiplets=count,
        packaging=float(_PACKAGES[packaging]),
        chip_first=float(row.get("chip_last") in ("0", "0.0")),
        volume=float(row.get("volume") or 1.0),
        logic_area=count * area,
        process=process,
    )
    return PricedRow(package_spec, build(Fab, values))


def _figures(priced_row: PricedRow) -> dict[str, Scalar]:
    """Return metric → figure of a row, USD and mm2, per unit of its volume or of one unit where it states none."""
    package_spec, fab = priced_row
    parts = specified_parts(package_spec, fab, 0.0)
    costs: Manufacturing = manufacture(parts, package_spec, fab)
    bonding, die, n_dies = assembly(package_spec.packaging, fab), costs.compute, package_spec.chiplets
    bump_cost = bonding.bump_price * costs.linked
    good_die_cost = n_dies * die.cost + bump_cost
    design_cost, _, package_design_cost = costs.nre
    nre_per_unit = (design_cost.modules + design_cost.chips + package_design_cost) / package_spec.volume
    total = (
        good_die_cost + costs.package_cost.raw + costs.package_cost.lost + good_die_cost * costs.package_cost.dies_lost
    )
    return {
        "die0_area": costs.linked / n_dies / _MM2,
        "die0_yield": die.good,
        "die0_per_wafer": dies_per_wafer(costs.linked / n_dies, fab),
        "die0_kgd_cost": die.cost,
        "total_die_area": costs.linked / _MM2,
        "package_area": costs.package_cost.substrate_area / _MM2,
        "interposer_area": costs.package_cost.carrier_area / _MM2,
        "package_yield": costs.package_cost.carrier_yield,
        "re_raw_chips": n_dies * die.raw + bump_cost,
        "re_defect_chips": n_dies * (die.cost - die.raw),
        "re_raw_package": costs.package_cost.raw,
        "re_defect_package": costs.package_cost.lost,
        "re_wasted_kgd": good_die_cost * costs.package_cost.dies_lost,
        "re_total": total,
        "nre_module_total": design_cost.modules,
        "nre_chip_total": design_cost.chips,
        "nre_package_total": package_design_cost,
        "nre_per_unit": nre_per_unit,
        "total_per_unit": total + nre_per_unit,
    }


KIND = TableKind("chiplets", TRAINING, predict, _priced_row, read)
