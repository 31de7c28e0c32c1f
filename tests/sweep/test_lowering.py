"""Programs for GPUs, lowered without one: all of a sweep's, and that of gradients, in single precision throughout."""

import jax
import numpy as np
import pytest
from jax import export

import dse
from dse.designs.leaves import leaf
from dse.sweep import plan
from dse.sweep.engine import chunks, gradients, reductions
from dse.sweep.engine.engine import SweepEngine
from tests.panel import design

SWEEPS = {"dense": "sweeps/megatron_1t_4096_a100.toml", "served": "sweeps/llama3_70b_serving.toml"}


def lowered(function, *arguments, **static):
    """StableHLO of a program for CUDA."""
    return export.export(function.jitted, platforms=["cuda"])(*arguments, **static).mlir_module()


def modules(engine):
    """Name → the module of every program of a sweep that computes with designs."""
    nest = engine.score_nest(by_point=False)
    tables, (values, words) = engine.tables(nest), engine.outer(nest, 0, 2)
    study, pivots = engine.program.study, np.zeros((2, 1), np.float32)
    scores, reasons = jax.eval_shape(
        lambda *given: chunks.score_chunk.jitted(*given, program=engine.program), tables, values, words
    )
    return {
        "scores": lowered(chunks.score_chunk, tables, values, words, program=engine.program),
        "every output": lowered(chunks.evaluate_chunk, tables, values, program=engine.program),
        "summary": lowered(reductions.summarise, scores, reasons, pivots, feasible_bit=study.feasible_bit),
        "counts": lowered(reductions.count_below, scores, np.zeros((1, 5), np.float32)),
    }


@pytest.mark.parametrize("kind", SWEEPS)
def test_programs_of_sweeps_lower_for_gpus_in_single_precision(kind):
    engine = SweepEngine(plan(SWEEPS[kind], "top:1")[0], by_numpy=False)
    for name, module in modules(engine).items():
        assert "f64" not in module and "f32" in module, name


def test_gradients_lower_for_gpus_in_single_precision(monkeypatch):
    met = []

    def compiled(*arguments, **static):
        met.append(lowered(gradients.value_and_slopes, *arguments, **static))
        raise InterruptedError

    monkeypatch.setattr(gradients.value_and_slopes, "compiled", compiled)
    one = design("dense, eager attention")
    slopes = dse.value_and_grad("step_time", one, ["memory.bandwidth"])
    with pytest.raises(InterruptedError):
        slopes({"memory.bandwidth": np.full(gradients.BLOCK, leaf(one, "system.accelerator.memory.bandwidth"))})
    assert "f64" not in met[0] and "f32" in met[0]
