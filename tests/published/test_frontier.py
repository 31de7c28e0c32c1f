"""Steps on Frontier (Dash et al. 2023, arXiv 2312.12705) in their published mappings, and the kernels fitted to two."""

from __future__ import annotations

import numpy as np
import pytest

from calibration import cdna2
from dse.designs import catalog, replace
from dse.doors.evaluation import evaluate

MODELS = {"GPT-22B", "GPT-175B", "GPT-1T"}


def test_frontier_has_the_published_shares_of_its_peak():
    """38.38, 36.14 and 31.96 % of 191.5 TFLOP/s for 22B, 175B, 1T (Dash et al. 2023, abstract)."""
    shares = [step.utilisation for step in cdna2.steps().values()]
    assert shares == pytest.approx([0.3838, 0.3614, 0.3196], abs=1e-4)


def test_each_step_on_frontier_is_met_by_the_fit_to_the_other_two():
    errors = {model: unseen.error for model, unseen in cdna2.unseen_steps().items()}
    assert set(errors) == MODELS
    assert max(map(abs, errors.values())) <= 0.15, errors
    assert 1.0 / (1.0 + errors["GPT-1T"]) - 1.0 <= 0.15  # in FLOP rate too


def test_the_kernels_of_cdna_2_are_the_fit_to_two_steps():
    """What the catalogue has is what the fit finds, and the third step is held out."""
    assert cdna2.fitted_factor() == pytest.approx(1.0, abs=0.01)
    assert MODELS - set(cdna2.FITTED) == {"GPT-1T"}
    assert np.abs(cdna2.log_errors(cdna2.FITTED)).max() <= 0.03


def test_the_mappings_are_those_of_the_launch_scripts():
    """Tp, pp, micro-batches of a replica and devices; one sequence a micro-batch, full recompute."""
    mappings = {
        model: (int(m.tp), int(m.pp), int(step.design.workload.global_batch / m.dp), int(step.design.system.n_devices))
        for model, step in cdna2.steps().items()
        for m in (step.design.mapping,)
    }
    assert mappings == {"GPT-22B": (1, 8, 320, 16), "GPT-175B": (4, 16, 640, 1024), "GPT-1T": (8, 64, 1600, 3072)}
    assert {step.design.mapping.micro_batch for step in cdna2.steps().values()} == {1.0}


def test_the_stack_fits_nothing_beyond_its_physical_range():
    """The one number that is fitted is the chip's; those of the stack are of its code base and of ROCm's."""
    stack, base, rocm = (
        catalog.entry("software", name)
        for name in ("megatron-deepspeed-rocm", "megatron-deepspeed", "megatron-core-rocm")
    )
    assert stack.value("matrix_slowdown") == rocm.value("matrix_slowdown")
    for name in ("elementwise_slowdown", "small_kernel_time", "host_time", "step_overhead", "flash_slowdown"):
        assert stack.value(name) == base.value(name)
    kernels = catalog.entry("kernels", "cdna2")
    assert kernels.value("flash_efficiency") / kernels.value("matrix_efficiency") == pytest.approx(0.6 / 0.8, rel=2e-3)
    assert 0.4 < kernels.value("matrix_efficiency") < 0.6


def test_blocking_sends_and_links_of_modules_matter_on_frontier():
    """Sends that overlap would be faster, and so would tensor parallelism over a switch of all links of a die."""
    step = cdna2.steps()["GPT-1T"].design
    seconds = float(evaluate(step).step_time)
    assert float(evaluate(replace(step, {"software.pp_overlap": 1.0})).step_time) < seconds
    assert float(evaluate(replace(step, {"system.scale_up.bandwidth": 100e9})).step_time) < seconds
