"""Tables of the page of the docs on money and carbon: bills beside published ones, and every leaf with its source.

``python -m docs.make.cost docs/cost.md`` writes them in place, between ``<!-- table: NAME -->`` and
``<!-- end of table -->``; the text around them is written by hand.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import dse
from docs.make.command import page_parser
from docs.make.markdown import filed, fill, publish, table
from dse import types
from dse.designs import all_leaves, catalog, short_name
from dse.designs.records import OF_MONEY
from dse.io import quantities
from dse.measured.comparison import compare
from dse.model.money.device import Bill, bill
from dse.types import Manufacture
from dse.types.choices import choice_name
from dse.types.paths import build

#: Table of the chiplet actuary's own results.
ROWS = Path("tests/published/bills/chiplet_actuary.csv")

#: Accelerator → what analysts put its making at, in USD (siliconanalysts.com, 2025).
ANALYSTS = {"h100": 3320.0, "b200": 6400.0, "mi300x": 5300.0}

#: Accelerator → USD of owning one for an hour (SemiAnalysis InferenceX, hyperscalers, August 2025).
OWNED = {"b200": 1.95, "mi300x": 1.12, "mi355x": 1.48}

_SHOWN = ("re_total", "nre_per_unit", "die0_yield", "die0_kgd_cost")


def tables() -> dict[str, str]:
    """Name → table."""
    return {"rows": _rows(), "bills": _bills(), "hours": _hours(), "leaves": _leaves()}


def _rows() -> str:
    found: dict[str, dict[str, str]] = {}
    for one in compare(ROWS):
        cells = one.measurement.row.cells
        case = found.setdefault(cells["case_id"], {"package": cells["package"], "dies": cells["groups"]})
        if one.metric in _SHOWN:
            case[one.metric] = f"{one.measured:g} / {one.predicted:.7g}"
    header = ("row", "package", "dies", *(f"`{name}`" for name in _SHOWN))
    rows = (
        [name, case["package"], case["dies"], *(case.get(one, "") for one in _SHOWN)] for name, case in found.items()
    )
    return filed("cost_rows", header, rows)


def bill_of(name: str) -> Bill:
    """The bill of an accelerator of the catalogue."""
    device = dataclasses.replace(
        catalog.record(types.Accelerator, name), made=build(Manufacture, catalog.manufacture(name))
    )
    return Bill(*map(float, bill(device)))


def _bills() -> str:
    rows = []
    for name, published in ANALYSTS.items():
        found = bill_of(name)
        made = found.total - found.design
        parts = [f"{part:,.0f}" for part in found[:-1]]
        rows.append(
            [
                name,
                *parts,
                f"{made:,.0f}",
                f"{published:,.0f}",
                f"{100 * (made / published - 1):+.0f} %",
                f"{found.design:,.0f}",
            ]
        )
    header = ("accelerator", *Bill._fields[:-1], "sum", "analysts", "error", "design, a unit of a million")
    return table(header, rows, words=header[:1])


def hour_of(name: str) -> tuple[float, float]:
    """Price of an accelerator, and cost of a device hour in its node, USD."""
    found = dse.serve(dse.design("llama-3-70b", name, tp=8, concurrency=64, kind="serving"))
    return float(found.device_price), float(found.cost_per_device_hour)


def _hours() -> str:
    rows = []
    for name, published in OWNED.items():
        price, hour = hour_of(name)
        error = f"{100 * (hour / published - 1):+.0f} %"
        rows.append([name, f"{price:,.0f}", f"{hour:.2f}", f"{published:.2f}", error])
    return table(("accelerator", "price", "ours, an hour", "published", "error"), rows, words=("accelerator",))


def _leaves() -> str:
    rows = []
    for path, about in all_leaves().items():
        if not path.startswith(tuple(f"{record}." for record in OF_MONEY)):
            continue
        units, default = about["units"], about["default"]
        value = choice_name(about["enum"](int(default))) if "enum" in about else quantities.setting(default, units)
        source = about.get("source", "that of the accelerator")
        rows.append([f"`{short_name(path)}`", value, about["long_name"], source])
    return filed("cost_leaves", ("leaf", "default", "what", "source"), rows)


if __name__ == "__main__":
    target: Path = page_parser(__doc__).parse_args().page
    publish(target, fill(target.read_text(encoding="utf-8"), tables()))
