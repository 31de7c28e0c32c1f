"""Programs for GPUs, lowered without one: all that sweeps and gradients run, in single precision throughout."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import dse
from dse.designs import leaf
from dse.sweep import plan
from dse.sweep.engine import gradients
from dse.sweep.engine.chunks import ChunkPrograms
from dse.sweep.engine.devices import scale_in_memory
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.programs import PersistentFunction
from tests.conftest import slow
from tests.panel import design


@pytest.fixture
def modules(monkeypatch):
    """Name → StableHLO for CUDA of every program that is asked for meanwhile; none is run, results are zeros."""
    met = {}

    def compiled(self, *arguments, **static):
        met[f"{self.__name__} {len(met)}"] = export.export(self.jitted, platforms=["cuda"])(*arguments, **static)
        shapes = jax.eval_shape(functools.partial(self.jitted, **static), *arguments)
        return lambda *_: jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)

    monkeypatch.setattr(PersistentFunction, "compiled", compiled)
    gradients._program.cache_clear()
    yield met
    gradients._program.cache_clear()
    for name, module in met.items():
        text = module.mlir_module()
        assert "f64" not in text and "tensor" in text, name


@pytest.mark.parametrize("sweep", ["megatron_1t_4096_a100", "llama3_70b_serving", slow("deepseek_v3_2048_h800")])
def test_programs_of_sweeps(sweep, modules, monkeypatch):
    monkeypatch.setattr(ChunkPrograms, "_has_outer_program", False)  # as on devices that are no processors
    engine = SweepEngine(plan(f"sweeps/{sweep}.toml", "top:1")[0], by_numpy=False).structure_engines[0]
    engine.full(0, 1)
    engine.scores(engine.score_nest(by_point=False), 0, 64, np.zeros((2, 1), np.float32), np.zeros((1, 5), np.float32))
    names = {name.partition(" ")[0] for name in modules}
    assert {"full_chunk", "score_chunk", "summarise", "count_below"} <= names


KINDS = [("dense, eager attention", "step_time"), ("served, dense", "request_latency")]


@pytest.mark.parametrize("name, metric", KINDS)
def test_programs_of_gradients(name, metric, modules):
    one = design(name)
    bandwidth = np.full(gradients.BLOCK, leaf(one, "system.accelerator.memory.bandwidth"))
    dse.value_and_grad(metric, one, ["memory.bandwidth"])({"memory.bandwidth": bandwidth})
    assert len(modules) == 1


def test_chunks_of_gpus_are_as_long_as_their_memory_allows():
    assert [scale_in_memory(memory << 30) for memory in (1, 16, 40, 80, 192)] == [1, 8, 20, 40, 64]
