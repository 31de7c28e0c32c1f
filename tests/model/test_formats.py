"""Formats and the matrix units that multiply them."""

from __future__ import annotations

import pytest

import dse
from dse import catalog
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
    accelerator = catalog.accelerator(chip)
    found = {one.name for one in Precision if not unsupported(accelerator, float(one))}
    assert {name for name in found if "fp8" in name or "fp4" in name} == narrow


@pytest.mark.parametrize(("evaluate", "asked"), [
    (dse.evaluate, {}), (dse.serve, dict(prompt_tokens=1024, output_tokens=128)),
])  # fmt: skip
def test_a_chip_without_units_for_a_block_cannot_run_it(evaluate, asked):
    asked = dict(tp=8, n_devices=8, any_option=True) | asked
    found = {}
    for precision in ("fp8-block", "mxfp8", "nvfp4"):
        design = dse.design("llama-3-8b", "h100-sxm-80gb", precision=precision, **asked)
        found[precision] = bool(int(evaluate(design).infeasible_reason) & Infeasible.precision_unsupported)
    assert found == {"fp8-block": False, "mxfp8": True, "nvfp4": True}
