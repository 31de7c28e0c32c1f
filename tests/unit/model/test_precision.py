"""float32 against float64: no metric of either door loses digits where numbers nearly equal are subtracted."""

import re

import jax
import numpy as np
import pytest

from dse.designs import leaf, leaves_of, replace
from dse.doors import scalars
from dse.io.environment import double_precision
from dse.types import Infeasible
from tests.designs import GENERATED, STATED
from tests.panel import PANEL, design

VARIANTS = 200

#: Largest relative error of a metric; a part of a total may add the second share of its total.
ROUNDING, OF_TOTAL = 1e-5, 1e-6

#: Metrics that numbers with rounding of their own decide: what weights leave of a memory, the tail of a distribution.
STATED_ROUNDING = {"concurrency_limit": 1e-4, "fits_probability": 1e-4}

PERCENTILE = re.compile(r"p\d\d_")

#: Loads and counts, and what multiplies them.
COUNTS = {
    "workload.requests.concurrency": (0.1, 0.5, 2.0, 8.0), "workload.requests.prompt_tokens": (0.25, 4.0),
    "workload.requests.output_tokens": (0.1, 4.0), "mapping.serving.chunk": (0.25, 4.0),
    "workload.global_batch": (2.0, 4.0), "mapping.micro_batch": (2.0,), "workload.seq_len": (0.5, 2.0),
}  # fmt: skip


def variants(name):
    """The design of the panel with machine, software and load of :data:`VARIANTS` others: leaves are arrays."""
    one, draw = design(name), np.random.default_rng(0)
    known = leaves_of(one)
    found = {}
    for path in (GENERATED if one.system.accelerator.chip else STATED) + list(COUNTS):
        if path not in known or leaf(one, path) is None:
            continue
        factors = draw.choice((1.0, *COUNTS[path]), VARIANTS) if path in COUNTS else draw.uniform(0.7, 1.4, VARIANTS)
        factors = np.where(draw.random(VARIANTS) < 0.5, 1.0, factors)
        bounds, values = known[path]["bounds"], leaf(one, path) * factors
        values = np.maximum(np.round(values), 1.0) if path in COUNTS else values
        found[path] = np.clip(values, bounds.low, bounds.high).astype(np.float32)
    return replace(one, found)


def metrics(name, precision):
    """Metric → its values, computed in a precision."""
    many = variants(name)
    function = {"training": scalars._evaluate, "serving": scalars._serve}[PANEL[name].kind]
    with double_precision(precision == "float64"):
        many = jax.tree.map(lambda value: np.asarray(np.float32(value)).astype(precision)[()], many)
        return {path: np.asarray(v, np.float64) for path, v in vars(function.batch_values(VARIANTS, many)).items()}


def condition(name, found, exact):
    """How much more than a load its difference to what memory holds, or to what is served, is rounded in a queue.

    Where memory binds, waits have the digits of the limit, which are held apart, once a turn (load / limit); a queue
    near saturation multiplies the rounding of its steps (3e-6) by 1 / (1 - utilisation).
    """
    if "concurrency_limit" not in exact:
        return 1.0
    load, limit = leaf(variants(name), "workload.requests.concurrency"), exact["concurrency_limit"]
    of_limit = np.abs(found["concurrency_limit"] / np.maximum(limit, 1e-6) - 1.0) / ROUNDING
    turns = load / np.maximum(limit, 1.0)
    of_memory = np.where(limit < load, load / np.maximum(load - limit, 1.0) + of_limit * turns, 1.0)
    left = 1.0 - exact["utilisation"]
    return np.maximum(of_memory, np.where(left > 0.0, 0.3 / np.maximum(left, 1e-6), 1.0))


@pytest.mark.parametrize("name", PANEL)
def test_every_metric_keeps_its_digits(name):
    study = PANEL[name].study
    found, exact = metrics(name, "float32"), metrics(name, "float64")
    has_room = (exact["infeasible_reason"].astype(int) & Infeasible.memory) == 0
    rounding = condition(name, found, exact)
    total_of = {part: total for total in study.totals for part in study.parts(total)}
    lost = {}
    for metric in study.smooth:
        # A percentile is the mean and a multiple of the deviation, whose digits it has where they nearly cancel.
        size = np.maximum(np.abs(exact[metric]), np.abs(exact[metric[4:]]) if PERCENTILE.match(metric) else 0.0)
        allowed = STATED_ROUNDING.get(metric, ROUNDING) * rounding * size
        allowed = allowed + OF_TOTAL * np.abs(exact[total_of[metric]]) if metric in total_of else allowed
        error = np.where(exact[metric] == found[metric], 0.0, np.abs(found[metric] - exact[metric])) * has_room
        if np.any(error > allowed + 1e-30):
            worst = int(np.argmax(error / (allowed + 1e-30)))
            lost[metric] = found[metric][worst], exact[metric][worst], int(np.sum(error > allowed)), worst
    assert not lost
