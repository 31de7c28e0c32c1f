"""Designs of pages, and random ones near them with the figures that Python has of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import dse
from dse.designs.leaves import known_leaves, leaf, replace
from dse.doors.studies import STUDIES
from dse.types import Design

#: Degrees that random designs have.
DEGREES = ("tp", "pp", "dp", "cp", "micro_batch", "virtual_stages")

#: Largest relative difference of a figure: single precision in another order of the last bits.
CLOSE = 1e-5


@functools.cache
def start(kind: str) -> Design:
    """The design that a page of this kind begins with."""
    if kind == "training":
        made = dse.design("llama-3-70b", "h100", n_devices=64, tp=8, pp=4, global_batch=128)
    else:
        made = dse.design("llama-3-70b", "h100", "vllm", tp=8, concurrency=64, kind="serving")
    return STUDIES[kind].complete(made)


def near(design: Design, paths: list[str], count: int, seed: int) -> np.ndarray:
    """Values of the leaves of random designs [design, leaf]: any leaf by its kind, degrees that mostly divide."""
    rng = np.random.default_rng(seed)
    base = np.array([float(leaf(design, path)) for path in paths])
    return np.float32([[_moved(path, base[i], rng) for i, path in enumerate(paths)] for _ in range(count)])


def _moved(path: str, value: float, rng: np.random.Generator) -> float:
    about = known_leaves()[path]
    bounds, name = about["bounds"], path.rpartition(".")[2]
    if name in DEGREES and path.startswith("mapping."):
        return float(rng.choice([1, 2, 4, 8])) if rng.random() < 0.5 else value
    if name == "n_devices" or rng.random() > 0.15:
        return value
    if "enum" in about:
        return float(rng.choice([float(one) for one in about["enum"]]))
    if bounds.whole:
        return float(rng.integers(2)) if bounds.high <= 1.0 else max(1.0, round(value * rng.choice([0.5, 1.0, 2.0])))
    return min(value * float(np.exp(0.4 * rng.standard_normal())), bounds.high)


def figures(kind: str, design: Design, paths: list[str], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Python's metrics of these designs: name → values [design]."""
    evaluate = dse.evaluate if kind == "training" else dse.serve
    found = [evaluate(replace(design, dict(zip(paths, map(float, row), strict=True)))) for row in rows]
    return {name: np.array([float(getattr(one, name)) for one in found]) for name in STUDIES[kind].units}


def assert_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Figures are equal to :data:`CLOSE`, reasons and what is not finite in all bits."""
    for name, values in theirs.items():
        if name in ("infeasible_reason", "feasible"):
            np.testing.assert_array_equal(ours[name], values, err_msg=name)
        else:
            np.testing.assert_allclose(ours[name], values, rtol=CLOSE, atol=0.0, err_msg=name)


def plain(value: Any) -> Any:
    """JSON of JavaScript as numbers: what is not finite comes as text."""
    return float(value) if isinstance(value, str) else value
