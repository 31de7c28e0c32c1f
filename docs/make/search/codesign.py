"""The section on co-design, from what :mod:`benchmarks.search.codesign` measured."""

from __future__ import annotations

import math
import statistics
from typing import Any

from docs.make.markdown import filed, percent, table
from dse.optimizers.codesign.descent import MachineElasticity

#: Evaluations of DeepFlow's search for one gradient: a run for each of its parameters and one more.
DEEPFLOW = 17


def section(figures: dict[str, Any]) -> str:
    """The figures as a section of a page, in Markdown."""
    report, grid = figures["report"], figures["grid"]
    ratio = figures["minima_a_gradient"]
    parts = [
        "## Co-design",
        f"`{figures['specification']}`: {report['title']}. {figures['dimensions']} degrees of freedom of the chip; "
        f"a chip is worth what the best mappings of its workloads make it, found by evaluating all "
        f"{figures['mappings']:,} of them. {figures['starts']} starts of {figures['steps']} steps.",
        _methods(figures["methods"]),
        f"Gap: to the best that any method found. A gradient takes {ratio['envelope']:.2f} inner minima by the "
        f"envelope theorem and {ratio['differences']:.0f} by one-sided differences (DeepFlow: {DEEPFLOW} runs).",
        f"Over {', '.join(f'`{name}`' for name in grid['variables'])} alone (three degrees of freedom, all money "
        f"spent) co-design finds {grid['co-design']:.4f} s with {grid['co-design evaluations'] / 1e6:.0f} million "
        f"evaluations, a grid of {grid['grid points']:,} chips {grid['grid']:.4f} s with "
        f"{grid['grid evaluations'] / 1e6:.0f} million ({percent(grid['co-design'] / grid['grid'] - 1.0, '+', 2)}), "
        f"and as many more within a step of the best of them {grid['fine grid']:.4f} s "
        f"({percent(grid['co-design'] / grid['fine grid'] - 1.0, '+', 2)}).",
        "### The chip that was found",
        _hardware(report),
        f"Held by: {'; '.join(report['active'])}. All else is inside its bounds.",
        _mappings(report),
        "Per cent of objective for a per cent more of a leaf, with mappings held (the gradient) and with the best mappings "
        "of a chip that has a tenth more, which alone sees capacity; – where no such chip can be.",
        _elasticities(report),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _methods(rows: list[dict[str, Any]]) -> str:
    found = [[math.inf if value is None else value for value in row["best"]] for row in rows]
    least = min(map(min, found))
    cells = [
        [
            row["method"],
            f"{statistics.median(best):.4f}",
            percent(statistics.median(best) / least - 1.0, "+"),
            percent(max(best) / least - 1.0, "+") if math.isfinite(max(best)) else "nothing fits",
            f"{row['evaluations'] / 1e6:.1f} M",
            f"{row['seconds']:.1f}",
        ]
        for row, best in zip(rows, found, strict=True)
    ]
    header = ["method", "objective, median of seeds", "gap", "gap of the worst seed", "evaluations", "seconds"]
    return table(header, cells)


def _hardware(report: dict[str, Any]) -> str:
    scale = {"m^2": (1e6, "mm2")}
    rows = []
    for row in report["hardware"]:
        factor, unit = scale.get(row["units"], (1.0, row["units"].replace("1", "")))
        rows.append([f"`{row['name']}`", f"{row['value'] * factor:.4g} {unit}".strip()])
    if report["cost"] is not None:
        rows.append(["making one", f"{report['cost']:.0f} USD"])
    return filed("search_chip", ["leaf", "value"], rows)


def _mappings(report: dict[str, Any]) -> str:
    rows = [
        [
            row["workload"],
            f"{row['metrics']['step_time']:.3f} s",
            percent(row["metrics"]["mfu"]),
            " ".join(f"{name}={value}" for name, value in row["mapping"].items()),
        ]
        for row in report["workloads"]
    ]
    return table(["workload", "step", "MFU", "mapping"], rows)


def _elasticities(report: dict[str, Any]) -> str:
    rows = [[f"`{row['leaf']}`", *MachineElasticity(**row).texts] for row in report["elasticities"]]
    return filed("search_elasticities", ["leaf", "mappings held", "mappings anew"], rows)
