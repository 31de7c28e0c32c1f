"""Tables of what packages of chiplets cost, by the formulas of the model and the parameters of a cost model.

A row names the cost model (``model``), the package, its dies (``7 nm:100 mm2 x2``), what links add to their area, and
a volume where the design is shared; every other column is a figure of the bill, in USD and mm2 as such tables have it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from dse.designs import catalog
from dse.errors import InputError
from dse.io.environment import double_precision
from dse.measured.prediction import Prediction
from dse.measured.table import Case, Meaning, Measurement, Row, Skip, read_table
from dse.model.money.device import Making, Parts, making
from dse.model.money.die import dies_per_wafer
from dse.model.money.package import assembly
from dse.types import Fab, Made, Packaging, Process, Scalar
from dse.types.paths import build

#: Column that gives tables of such bills away.
SIGN = "die0_area"

#: Figures of a row, each a metric of its own name.
METRICS = (
    "die0_area", "die0_yield", "die0_per_wafer", "die0_kgd_cost", "total_die_area", "package_area", "interposer_area",
    "package_yield", "re_raw_chips", "re_defect_chips", "re_raw_package", "re_defect_package", "re_wasted_kgd",
    "re_total", "nre_module_total", "nre_chip_total", "nre_package_total", "nre_per_unit", "total_per_unit",
)  # fmt: skip

_MODELS = {"chiplet_actuary": "actuary", "catch": "catch"}
_PACKAGES = {
    "SoC_organic": Packaging.organic, "MCM_organic": Packaging.organic, "InFO_RDL": Packaging.fan_out,
    "2.5D_Si_interposer": Packaging.silicon,
}  # fmt: skip
_DIES = re.compile(r"\s*(\d+) ?nm: ?([\d.]+) ?mm2 x(\d+)\s*")
_MM2 = 1e-6


class Asked(NamedTuple):
    """What a row asks for."""

    made: Made
    fab: Fab
    parts: Parts


def is_table(path: str | Path) -> bool:
    """Whether a file is a table of bills of chiplets."""
    return SIGN in read_table(path)[0]


def predict_table(path: str | Path) -> list[Prediction]:
    """A prediction of every row of a table, in order, in double precision."""
    return [_prediction(row) for row in read_table(path)[1]]


def _prediction(row: Row) -> Prediction:
    told = [(name, float(row.get(name))) for name in METRICS if row.get(name)]
    measured = [Measurement(row, name, Meaning(name, name), value) for name, value in told if value]
    case = Case((row,), tuple(measured))
    try:
        asked = _asked(row)
    except (Skip, InputError) as why:
        return Prediction(case, skip=why if isinstance(why, Skip) else Skip("not in the catalogue", str(why)))
    with double_precision():
        figures = {name: float(value) for name, value in _figures(asked).items()}
    return Prediction(case, metrics=figures)


def _asked(row: Row) -> Asked:
    """The accelerator that a row describes; Skip where it cannot be read."""
    model, packaging = row.get("model"), row.get("package")
    if model not in _MODELS:
        raise Skip("unknown cost model", f"{model!r}; known: {', '.join(_MODELS)}")
    if packaging not in _PACKAGES:
        raise Skip("unknown package", f"{packaging!r}; known: {', '.join(_PACKAGES)}")
    found = _DIES.fullmatch(row.get("groups"))
    if found is None:
        raise Skip("dies that cannot be read", f"{row.get('groups')!r}; write 7 nm:100 mm2 x2, one group of equal dies")
    node, area, count = f"{found[1]}nm", float(found[2]) * _MM2, float(found[3])
    entry = catalog.entry("cost", _MODELS[model])
    if entry.value(f"nodes.{node}.wafer_price") is None:
        raise Skip("node without a price", f"{model} has none of {node}")
    if entry.value(f"{_PACKAGES[packaging].name}.bond_yield") is None:
        raise Skip("package without a price", f"{model} has none of {packaging}")
    names = ("wafer_price", "defect_density", "design_cost")
    stated = {name: entry.value(f"nodes.{node}.{name}") for name in names}
    process = Process(**{name: value for name, value in stated.items() if value is not None})
    values = catalog.values("cost", _MODELS[model]) | {"link_area": float(row.get("d2d_area_ratio") or 0.0)}
    made = Made(
        chiplets=count, packaging=float(_PACKAGES[packaging]), chip_first=float(row.get("chip_last") in ("0", "0.0")),
        volume=float(row.get("volume") or 1.0),
    )  # fmt: skip
    return Asked(made, build(Fab, values), Parts(count * area, 0.0, process, process, 0.0, 0.0, 0.0, 0.0))


def _figures(asked: Asked) -> dict[str, Scalar]:
    """The figures of a row in its units; a row without a volume is of one unit."""
    made, fab, parts = asked
    done: Making = making(parts, made, fab)
    using, die, n = assembly(made.packaging, fab), done.compute, made.chiplets
    bumps = using.bump_price * done.linked
    cost = n * die.cost + bumps
    design, _, package = done.nre
    each = (design.modules + design.chips + package) / made.volume
    total = cost + done.found.raw + done.found.lost + cost * done.found.dies_lost
    return {
        "die0_area": done.linked / n / _MM2, "die0_yield": die.good,
        "die0_per_wafer": dies_per_wafer(done.linked / n, fab), "die0_kgd_cost": die.cost,
        "total_die_area": done.linked / _MM2, "package_area": done.found.substrate_area / _MM2,
        "interposer_area": done.found.carrier_area / _MM2, "package_yield": done.found.carrier_yield,
        "re_raw_chips": n * die.raw + bumps, "re_defect_chips": n * (die.cost - die.raw),
        "re_raw_package": done.found.raw, "re_defect_package": done.found.lost,
        "re_wasted_kgd": cost * done.found.dies_lost, "re_total": total, "nre_module_total": design.modules,
        "nre_chip_total": design.chips, "nre_package_total": package, "nre_per_unit": each,
        "total_per_unit": total + each,
    }  # fmt: skip
