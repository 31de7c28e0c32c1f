"""Programs in stages: what they give is what the whole gives, wherever the inputs move."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse.equations import recording
from dse.equations.equation import Constant
from dse.sweep import plan
from dse.sweep.engine import reductions
from dse.sweep.engine.chunks import ChunkPrograms
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.nesting import FIRST, OUTER, SECOND, Inner, Nest
from dse.sweep.engine.scores import DesignIndices
from dse.sweep.engine.staging import (
    AXES,
    StagedProgram,
    expand_axes,
    score_outputs,
)
from tests.unit.sweep import toy
from tests.unit.sweep.toy import sweep

_OPERATIONS = (
    jnp.add,
    jnp.multiply,
    jnp.maximum,
    lambda a, b: jnp.where(a > b, a, 2.0 * b),
    lambda a, b: a / (1.0 + b),
)
_LENGTHS = 4, 2, 3


def made(choices):
    """A function of four numbers: each step takes two of the values so far."""

    def function(*inputs):
        values = list(inputs)
        for operation, left, right in choices:
            values.append(_OPERATIONS[operation](values[left % len(values)], values[right % len(values)]))
        return values[-1], values[-2], values[1]

    return function


class Fixed(StagedProgram):
    """A program that is a list of equations."""

    def __init__(self, found, levels):
        object.__setattr__(self, "_found", found)
        object.__setattr__(self, "input_axes", levels)

    equations = property(lambda self: self._found)


@settings(max_examples=60, deadline=None)
@given(
    choices=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=12),
    levels=st.tuples(*[st.sampled_from([0, OUTER, FIRST, SECOND])] * 4),
)
def test_stages_give_what_the_whole_gives(choices, levels):
    function = made(choices)
    found, structure = recording.trace(function, *[jax.ShapeDtypeStruct((), jnp.float32)] * 4)
    of = Fixed(found, levels)
    random = np.random.default_rng(1)
    inputs = [
        random.random([size for size, part in zip(_LENGTHS, AXES, strict=True) if level & part], np.float32)
        for level in levels
    ]
    values = dict(enumerate(inputs))
    stages = of.output_stages(found.outputs)
    for stage in stages.tables:
        assert all(of.axes_of(i) & ~stage.axes == 0 for i in (*stage.inputs, *stage.outputs))
        made_here = of.run(stage, [values[i] for i in stage.inputs], stage.outputs)
        values |= dict(zip(stage.outputs, made_here, strict=True))
    computed = [{*stage.outputs} for stage in stages.tables]
    assert not any(a & b for a, b in itertools.combinations(computed, 2)), "nothing is computed twice"
    spreads = [
        np.broadcast_to(expand_axes(value, level), _LENGTHS) for value, level in zip(inputs, levels, strict=True)
    ]
    expected = jax.vmap(function)(*[value.reshape(-1) for value in spreads])
    inner, outer = np.divmod(np.arange(24), 3)
    outputs = of.outputs(found.outputs, structure).from_values(values, _LENGTHS)
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output.select(DesignIndices(outer, inner, (4, 2))), wanted, rtol=1e-6)


@pytest.mark.parametrize("inner", [Inner(), Inner((3,)), Inner((0, 3), (1, 4)), Inner((3,), (4, 5))])
def test_a_design_has_every_term_of_its_reason_once(inner):
    engine = SweepEngine(plan(sweep(toy.MAPPING_AXES + "memory.capacity = ['1 GB', '2 GB', '30 GB']"), study=None)[0])
    nest = Nest(engine.grid, inner)
    of = engine.score_programs(nest, 1).staged_program
    wanted = score_outputs(of.program, of.structure)
    assert len(wanted.reasons) > 5
    stages = of.score_stages(wanted, inner)
    assert sorted(i for group in stages.groups for i in group.reasons) == list(range(len(wanted.reasons)))
    assert sorted(i for group in stages.groups for i in group.objectives) == [0]


def test_one_program_and_two_score_alike(monkeypatch):
    found = []
    for in_two in (True, False):
        monkeypatch.setattr(ChunkPrograms, "_has_outer_program", in_two)
        axes = toy.MAPPING_AXES + "memory.capacity = ['1 GB', '2 GB', '30 GB']"
        engine = SweepEngine(plan(sweep(axes), study=None)[0], by_numpy=False)
        nest = Nest(engine.grid, Inner((3,), (4, 5)))
        found.append(engine.scores(nest, 0, nest.n_outer, np.zeros((0, 1), np.float32)))
    for two, one in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 6, 7, 50])
def test_positions_are_counted_by_bit(rows):
    draw = np.random.default_rng(rows)
    reason = draw.choice([0, 1, 2, 3, 6, 8], (rows, 5)).astype(np.int32)
    own = np.where((reason == 8) & (draw.random((rows, 5)) < 0.5), 1.0, np.inf)[None]
    tallies = reductions._tallies(jnp.asarray(own, jnp.float32), jnp.asarray(reason), feasible_bit=8)
    expected = [*(reason >> bit & 1 for bit in range(4)), reason != 0, np.isfinite(own[0])]
    np.testing.assert_array_equal(tallies, [flags.sum(axis=0) for flags in expected])


def test_what_is_the_same_for_all_is_a_constant():
    found, _ = recording.trace(lambda x: (x, 2.0), jax.ShapeDtypeStruct((), jnp.float32))
    assert isinstance(found.outputs[1], Constant)
    of = Fixed(found, (OUTER,))
    assert of.output_stages(found.outputs).tables == ()
    outputs = of.outputs(found.outputs, jax.tree.structure((0, 0))).from_values({0: np.arange(3.0)}, (1, 1, 3))
    where = DesignIndices(np.array([2, 0]), np.array([0, 0]), (1, 1))
    assert [output.select(where).tolist() for output in outputs] == [[2.0, 0.0], [2.0, 2.0]]
