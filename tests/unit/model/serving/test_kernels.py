"""Kernels of engines are those measured alone, which training steps do not read."""

import dataclasses

import jax
import pytest

import dse
from dse.designs import catalog, leaf, leaves_of
from dse.doors import STUDIES
from dse.doors.evaluation import evaluate
from dse.model import stage_of
from dse.model.machine.roofline import isolated_time
from dse.types import MEASURED_ALONE, Accelerator, OperatorKind, Work

KERNELS = "system.accelerator.kernels."


def served(system="b200", workload="llama-3-70b", **settings):
    return dse.design(workload, system, "vllm", any_option=True, **dict(tp=8, concurrency=16) | settings)


def test_a_large_product_has_the_efficiency_and_a_wide_read_the_bandwidth_of_kernels_alone():
    design = served()
    fine, chip = design.system.accelerator.kernels.fine, design.system.accelerator
    rates = stage_of(design).rates
    product = Work(2.0 * 8192.0**3, 1.0, rows=8192.0, columns=8192.0, depth=8192.0, batch=1.0)
    read = Work(1.0, 1e9, rows=1.0, columns=1.0, depth=0.5, batch=1.0)
    seconds = [float(isolated_time(OperatorKind.matrix, work, rates)) for work in (product, read)]
    assert seconds[0] == pytest.approx(product.flops / (chip.matrix_rate.bf16 * fine.gemm_efficiency), rel=0.02)
    assert seconds[1] == pytest.approx(read.bytes / (chip.memory.bandwidth * fine.gemm_memory), rel=1e-3)


def prompts(cache_bytes, **settings):
    """Seconds of attention of one long prompt in a step."""
    rates = stage_of(served(cache_bytes=cache_bytes, **settings)).rates
    work = Work(4.0 * 8192.0 * 4096.0 * 128.0 * 8.0, 1.0, rows=8192.0, columns=4096.0, depth=512.0, batch=8.0)
    return float(isolated_time(OperatorKind.context, work, rates))


def test_prompts_attend_in_eight_bits_where_the_chip_multiplies_so():
    """Blackwell does, Hopper as measured does not; compressed keys are made whole in 16 bits before."""
    share = catalog.record(Accelerator, "b200-sxm-180gb").kernels.attention.context_fp8
    assert share < 0.7
    assert share - 0.01 < prompts(1.0) / prompts(2.0) < share + 0.05  # tiles start as before
    assert prompts(1.0, system="h100") == pytest.approx(prompts(2.0, system="h100"), rel=0.02)
    latent = dict(workload="deepseek-v3", ep=8)
    assert prompts(1.0, **latent) == pytest.approx(prompts(2.0, **latent), rel=1e-6)


def slopes(door, design):
    """Slope of a time by every leaf of the kernels, by path."""
    found = jax.grad(lambda d: door(d))(jax.tree.map(float, design))
    return {path: float(leaf(found, path)) for path in leaves_of(design) if path.startswith(KERNELS)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "found", "read"),
    [
        (
            STUDIES["serving"],
            lambda: slopes(lambda d: dse.serve(d).request_latency, served(cache_bytes=1.0)),
            [
                "fine.gemm_efficiency",
                "fine.gemm_waves",
                "fine.gemm_memory",
                "fine.gemm_blend",
                "attention.context_fp8",
                "attention.decode_memory",
            ],
        ),
        (
            STUDIES["training"],
            lambda: slopes(lambda d: evaluate(d).step_time, dse.design("llama-3-8b", "h100", tp=2, dp=4)),
            [*MEASURED_ALONE, "matrix_depth"],
        ),
    ],
)
def test_neither_door_reads_the_kernels_of_the_other(study, found, read):
    by_path = found()
    unread = [path for path in by_path if path.startswith(study.ignored_leaves)]
    assert len(unread) > 15 and all(by_path[path] == 0.0 for path in unread)
    assert all(by_path[KERNELS + name] != 0.0 for name in read)


def test_what_a_chip_says_of_its_kernels_holds_of_those_measured_alone():
    own = catalog.record(Accelerator, "calculon-a100-80g").kernels
    assert own.fine.gemm_efficiency == own.matrix_efficiency == 1.0
    family = catalog.record(Accelerator, "h100-sxm-80gb").kernels
    assert family.fine.gemm_efficiency != family.matrix_efficiency


def test_engines_read_caches_at_the_bandwidth_that_a_chip_states(tmp_path):
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "accelerators/own.toml").write_text(
        """source = "a test"
confidence = "paper"
[matrix_rate]
bf16 = "1200 TFLOP/s"
[memory]
capacity = "96 GB"
bandwidth = "4 TB/s"
[kernels]
memory_efficiency = 0.3
"""
    )
    own = catalog.record(Accelerator, "own", folder=tmp_path).kernels
    assert own.fine.gemm_memory == own.attention.decode_memory == own.attention.context_memory == 0.3


def test_without_kernels_measured_alone_engines_have_those_of_steps():
    design = served()
    kernels = dataclasses.replace(design.system.accelerator.kernels, fine=None)
    chip = dataclasses.replace(design.system.accelerator, kernels=kernels)
    plain = dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=chip))
    assert float(dse.serve(plain).request_latency) != float(dse.serve(design).request_latency)
