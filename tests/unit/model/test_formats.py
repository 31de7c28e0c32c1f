"""Formats and the matrix units that multiply them."""

from __future__ import annotations

import pytest

import dse
from dse import types
from dse.designs import catalog, replace
from dse.model.machine.rates import unsupported
from dse.types import Infeasible, Precision

#: What NVIDIA's Transformer Engine and AMD's CDNA 4 whitepaper name for each generation.
HOPPER = {"fp8", "fp8_block", "fp8_row"}
CDNA4 = HOPPER | {"fp4", "mxfp8", "mxfp4"}


@pytest.mark.parametrize(("chip", "narrow"), [
    ("a100-sxm-80gb", set()), ("h100-sxm-80gb", HOPPER), ("mi300x", HOPPER), ("mi355x", CDNA4),
    ("b200-sxm-180gb", CDNA4 | {"nvfp4"}), ("gb300-nvl72", CDNA4 | {"nvfp4"}),
])  # fmt: skip
def test_blocks_are_scaled_by_the_chips_that_have_units_for_them(chip, narrow):
    accelerator = catalog.record(types.Accelerator, chip)
    found = {one.name for one in Precision if not unsupported(accelerator, float(one))}
    assert {name for name in found if "fp8" in name or "fp4" in name} == narrow


@pytest.mark.parametrize(
    ("evaluate", "asked"),
    [
        (dse.evaluate, {}),
        (dse.serve, dict(prompt_tokens=1024, output_tokens=128)),
    ],
)
def test_a_chip_without_units_for_a_block_cannot_run_it(evaluate, asked):
    asked = dict(tp=8, n_devices=8, any_option=True) | asked
    found = {}
    for precision in ("fp8-block", "mxfp8", "nvfp4"):
        design = dse.design("llama-3-8b", "h100-sxm-80gb", precision=precision, **asked)
        found[precision] = bool(int(evaluate(design).infeasible_reason) & Infeasible.precision_unsupported)
    assert found == {"fp8-block": False, "mxfp8": True, "nvfp4": True}


@pytest.mark.parametrize("precision", ["fp8", "int8"])
def test_what_a_recipe_leaves_in_16_bits_must_run_too(precision):
    """Attention and head of a chip of 8-bit units alone; what a wide recipe leaves is multiplied as the rest."""
    bare = dse.design("llama-3-8b", "a100-sxm-80gb", n_devices=8, tp=8, any_option=True, precision=precision)
    rates = dict.fromkeys(("bf16", "fp16"), 0.0) | {precision: 1e15, "tf32": 1e14}
    bare = replace(bare, {f"system.accelerator.matrix_rate.{name}": rate for name, rate in rates.items()})
    assert int(dse.evaluate(bare).infeasible_reason) & Infeasible.precision_unsupported
    wide = dse.evaluate(replace(bare, {"mapping.precision": float(Precision.tf32)}))
    assert not int(wide.infeasible_reason) & Infeasible.precision_unsupported and float(wide.step_time) < 1e3
