"""Designs of pages, and random ones near them with the figures that Python has of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import dse
import dse.lab.page
from dse.designs import all_leaves, leaf, replace
from dse.doors import STUDIES
from dse.lab.page import CatalogNames
from dse.lab.page.model import with_money
from dse.lab.page.program import Kernel, kernels_script
from dse.types import Design, Load

#: Kind of study → catalogue names of its design.
NAMES = {
    "training": CatalogNames(
        "llama-3-70b", "h100", "megatron-bridge", "h100-sxm-80gb", ("-w", "llama-3-70b", "-s", "h100")
    ),
    "serving": CatalogNames(
        "llama-3-70b", "h100", "vllm", "h100-sxm-80gb", ("-w", "llama-3-70b", "-s", "h100", "--software", "vllm")
    ),
}

#: Degrees that random designs have.
DEGREES = ("tp", "pp", "dp", "cp", "micro_batch", "virtual_stages")

#: Largest relative difference of a figure: single precision in another order of the last bits.
CLOSE = 1e-5


def machine_script(kernels: Iterable[Kernel]) -> str:
    """The script that runs a program, without a page."""
    machine = Path(dse.lab.page.__file__).parent / "assets" / "machine.js"
    return kernels_script(kernels) + machine.read_text(encoding="utf-8")


@functools.cache
def start(kind: str) -> Design:
    """The design that a page of this kind begins with, as the page has it."""
    if kind == "training":
        made = dse.design("llama-3-70b", "h100", n_devices=64, tp=8, pp=4, global_batch=128)
    else:
        made = dse.design("llama-3-70b", "h100", "vllm", tp=8, concurrency=64, kind="serving")
    return with_money(STUDIES[kind].complete(made))


def near(design: Design, paths: list[str], count: int, seed: int) -> np.ndarray:
    """Values of the leaves of random designs [design, leaf]: any leaf by its kind, degrees that mostly divide."""
    rng = np.random.default_rng(seed)
    base = np.array([float(leaf(design, path)) for path in paths])
    rows = np.float32([[_moved(path, base[i], rng) for i, path in enumerate(paths)] for _ in range(count)])
    whole = [paths.index(f"mapping.{name}") for name in ("tp", "pp", "dp", "cp")]
    fitting = rng.random(count) < 0.9
    rows[fitting, paths.index("system.n_devices")] = rows[fitting][:, whole].prod(axis=1)
    return rows


def _moved(path: str, value: float, rng: np.random.Generator) -> float:
    about = all_leaves()[path]
    bounds, name = about["bounds"], path.rpartition(".")[2]
    if name in DEGREES and path.startswith("mapping."):
        return float(rng.choice([1, 2, 4])) if rng.random() < 0.2 else value
    chance = rng.random()
    if "enum" in about:
        values = [float(one) for one in about["enum"] if one != Load.rate or about["enum"] is not Load]
        return float(rng.choice(values)) if chance < 0.008 else value
    if bounds.is_integer or path.startswith("workload."):
        moved = rng.integers(2) if bounds.high <= 1.0 else max(1.0, round(value * rng.choice([0.5, 1.0, 2.0])))
        return float(moved) if chance < 0.008 else value
    return min(value * float(np.exp(0.3 * rng.standard_normal())), bounds.high) if chance < 0.3 else value


def figures(kind: str, design: Design, paths: list[str], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Python's metrics of these designs: name → values [design]."""
    evaluate = dse.evaluate if kind == "training" else dse.serve
    found = [evaluate(replace(design, dict(zip(paths, map(float, row), strict=True)))) for row in rows]
    return {name: np.array([float(getattr(one, name)) for one in found]) for name in STUDIES[kind].units}


def assert_same(kind: str, ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Figures are equal to :data:`CLOSE`, a part to that of its total, reasons in all bits."""
    study = STUDIES[kind]
    whole = {part: total for total in study.totals for part in study.parts(total)}
    for name, values in theirs.items():
        size = np.fmax(np.abs(values), np.abs(theirs[whole.get(name, name)]))  # a total may be none
        with np.errstate(invalid="ignore"):
            close = np.abs(ours[name] - values) <= (0.0 if "feasible" in name else CLOSE) * size
        alike = close | (ours[name] == values) | (np.isnan(ours[name]) & np.isnan(values))  # infinities; without a step
        assert alike.all(), (name, np.flatnonzero(~alike), ours[name][~alike], values[~alike])


def plain(value: Any) -> float:
    """A number of JavaScript's JSON, where what is not finite comes as text, and large ones without a point."""
    return float(value)
