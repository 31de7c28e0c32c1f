"""Every slope of a step is a one-sided difference quotient, at the values that designs have by default too."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dse
from dse import types
from dse.designs import catalog, leaf, replace
from dse.doors.evaluation import evaluate
from dse.equations import ScalarFunction
from dse.views.explanation import continuous_leaves, explain

METRICS = ("step_time", "energy_per_step")
ACCELERATOR = "system.accelerator"
#: Relative step, and how near slopes of logarithms are: solved clocks have a rounding of their own.
STEP, NEAR, NEAR_SOLVED = 1e-6, 1e-6, 1e-5


def trained(system, software=None, /, **values):
    """A model on 1,024 devices of this system, whose leaves below the accelerator are replaced."""
    design = dse.design("gpt-3-175b", system, software, n_devices=1024, tp=8, pp=8, recompute="full", zero_stage=1)
    return replace(design, {f"{ACCELERATOR}.{name.replace('__', '.')}": value for name, value in values.items()})


def limited(system, share):
    """The same under a power limit that is this share of the one as sold."""
    return trained(system, power__limit=share * trained(system).system.accelerator.power.tdp)


DESIGNS = {
    "bought": lambda: trained("selene"),
    "bought, 8 bits as fast as 16": lambda: replace(trained("gaudi-3"), {"mapping.precision": 4.0}),
    "nothing overlaps": lambda: trained("selene", "pytorch-eager"),
    "limited as sold": lambda: trained("selene", power__tdp=350.0, power__limit=350.0),  # layers would draw more
    "limited": lambda: limited("selene", 0.8),
    "limited, not throttled as sold": lambda: limited("h200-sxm-141gb", 0.6),
    "generated": lambda: trained("gpu", chip__node=catalog.record(types.LogicNode, "n7")),
    "generated, its links as fast as the network": lambda: trained("generated-h100"),
    "generated, its budget binds": lambda: trained("generated-b200", chip__power_budget=300.0),
    "superconducting": lambda: trained("scd-board"),
}


def logarithms(values, weights, design):
    """Of the metrics: their weighted sum, and each."""
    metrics = evaluate(replace(design, values))
    found = [jnp.log(getattr(metrics, name)) for name in METRICS]
    return (sum(weight * one for weight, one in zip(weights, found, strict=True)), found), None


NUMBERS = ScalarFunction(logarithms, None)


def slopes_and_differences(design):
    """By leaf: elasticities of the metrics, and their difference quotients to the left and to the right."""
    with jax.enable_x64(True):
        design = jax.tree.map(np.float64, design)
        found = {path: leaf(design, path) for path in continuous_leaves(design)}
        at = {path: value for path, value in found.items() if value}
        numbers = np.array(list(at.values()))
        moved = np.diag(STEP * numbers)
        points = np.concatenate([numbers[None], numbers + moved, numbers - moved])
        _, found = NUMBERS.batch_values(len(points), dict(zip(at, points.T, strict=True)), (1.0, 0.0), design)
        here, above, below = (values := np.stack(found, axis=1))[0], *np.split(values[1:], 2)
        slopes = [NUMBERS.slopes(0, at, weights, design)[2] for weights in ((1.0, 0.0), (0.0, 1.0))]
        return {
            path: (
                np.array([slope[path] for slope in slopes]) * at[path],
                (here - below[i]) / STEP,
                (above[i] - here) / STEP,
            )
            for i, path in enumerate(at)
        }


@pytest.mark.parametrize("name", DESIGNS)
def test_every_slope_is_a_one_sided_difference(name):
    """Of time and energy by every continuous leaf: all metrics to the same side."""
    design = DESIGNS[name]()
    accelerator = design.system.accelerator
    solved = accelerator.chip is not None or accelerator.power.limit is not None
    wrong = {}
    for path, (slope, left, right) in slopes_and_differences(design).items():
        near = (NEAR_SOLVED if solved else NEAR) + 2e-3 * np.maximum(np.abs(left), np.abs(right))
        if not any(np.all(np.abs(slope - side) <= near) for side in (left, right)):
            wrong[path] = (slope, left, right)
    assert not wrong


def elasticity(design, ending, metric="step_time"):
    found = explain(design, metric).elasticities
    return next((e.elasticity for e in found if e.parameter == ending), 0.0)


def ratio(design, path, factor, metric="step_time"):
    """Elasticity of a metric as a difference quotient: from a leaf to ``factor`` times it."""
    with jax.enable_x64(True):
        value = float(leaf(design, path))
        ends = [float(getattr(evaluate(replace(design, {path: x})), metric)) for x in (value, factor * value)]
    return float(np.log(ends[1] / ends[0]) / np.log(factor))


def test_a_clock_at_the_nominal_one_has_the_slope_of_lower_clocks():
    """What the share of a step that follows the cores is read from (dse.views.explanation)."""
    design = DESIGNS["generated"]()
    path = f"{ACCELERATOR}.chip.clock_ratio"
    expected = ratio(design, path, 0.999)
    assert expected < -0.1
    assert elasticity(design, "chip.clock_ratio") == pytest.approx(expected, rel=1e-2)


def test_a_limit_as_sold_has_the_slope_of_lower_limits():
    with jax.enable_x64(True):
        design = DESIGNS["limited as sold"]()
        expected = ratio(design, f"{ACCELERATOR}.power.limit", 0.999)
        assert expected < -0.1
        assert elasticity(design, "limit") == pytest.approx(expected, rel=1e-2)


def test_a_warm_chip_has_no_slope_by_its_temperature():
    design = DESIGNS["generated"]()
    assert leaf(design, f"{ACCELERATOR}.chip.node.temperature") == 300.0
    assert elasticity(design, "node.temperature") == 0.0
