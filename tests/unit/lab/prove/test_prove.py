"""Proofs of searches: their optimum is that of enumeration, bounds hold, and certificates are checked."""

import copy

import numpy as np
import pytest

from dse.errors import InputError
from dse.lab.prove import ProofOptions, check as checking, forms, proof as proofs, prove
from dse.lab.prove.blocks import BlockRanges
from dse.lab.prove.branch import gaps
from dse.optimizers import pareto, problem
from dse.spec import search as spec
from dse.sweep.engine.numpy_backend import evaluate_few
from tests.conftest import slow
from tests.unit.optimizers.small import BUDGET, DENSE, HARDWARE, MIXED

CHIPS = """
[workload]
name = "gpt-3-13b"
global_batch = 128
[system]
name = "eos"
n_devices = 64
accelerator = "gpu"
chip.power_budget = "700 W"
chip.stacks = 6
[software]
name = "megatron-core-te"
[axes]
node = ["n7", "n5"]
memory = ["hbm2e-3-2", "hbm3-5-2"]
"chip.die_area" = { from = "500 mm2", to = "814 mm2", count = 5 }
"chip.clock_ratio" = { from = 0.5, to = 1.0, count = 5 }
tp = [1, 2, 8]
pp = [1, 2, 4]
"""
SERVING = """
[workload]
name = "llama-3-8b"
[system]
name = "h100"
[software]
name = "vllm"
[serving]
prompt_tokens = 1024
output_tokens = 256
[axes]
tp = [1, 2, 4, 8]
concurrency = [1, 2, 4, 8, 16, 32, 64, 128]
"memory.bandwidth" = { from = "2 TB/s", to = "4 TB/s", count = 6 }
"scale_up.bandwidth" = { from = "100 GB/s", to = "450 GB/s", count = 5 }
"""
LIMITED = (
    DENSE
    + """
"power.limit" = { from = "150 W", to = "400 W", count = 26 }
"scale_out.bandwidth" = { from = "10 GB/s", to = "50 GB/s", count = 9 }
"""
)
CONTINUOUS = (
    DENSE
    + """
"memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", continuous = true }
"scale_out.bandwidth" = { from = "10 GB/s", to = "50 GB/s", continuous = true }
[constraints]
all = ["memory.bandwidth * 1e-12 + scale_out.bandwidth * 50e-12 <= 3.5"]
"""
)
SPACES = {
    "dense": (DENSE, 'minimize = "step_time"'), "hardware": (HARDWARE, 'minimize = "energy_per_step"'),
    "budget": (BUDGET, 'minimize = "step_time"'), "rate": (BUDGET, 'maximize = "mfu"'),
    "mixed": (MIXED, 'minimize = "step_time"'), "chips": (CHIPS, 'minimize = "energy_per_step"'),
    "limited": (LIMITED, 'minimize = "energy_per_step"'),
    "serving": (SERVING, 'maximize = "output_tokens_per_second_per_device"'),
    "front": (BUDGET, 'minimize = ["step_time", "energy_per_step"]'),
    "front of memory": (DENSE, 'minimize = ["step_time", "peak_memory"]'),
    "mixed front": (MIXED, 'minimize = "peak_memory"\nmaximize = "mfu"'),
}  # fmt: skip


def task(name):
    text, objective = SPACES[name]
    return problem.build(spec.from_text(f'title = "{name}"\n{text}\n[objective]\n{objective}\n'))


def every(one):
    """Objectives [design, objective] of all designs of a space that can run, each of them evaluated."""
    grid, found = one.grid, []
    for _, own, local in grid.by_structure(grid.indices(np.arange(grid.n_designs))):
        program = dict((id(g), p) for g, p in one.programs)[id(own)]
        metrics, objectives = evaluate_few(own.base, own.values(local), program=program)
        objectives = np.stack(objectives, axis=1)
        found.append(objectives[metrics.feasible & np.isfinite(objectives).all(axis=1)])
    return np.concatenate(found).astype(float)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("gap", [0.0, slow(0.01)])
def test_every_design_is_within_the_gap_of_a_known_one(name, gap):
    one = task(name)
    proof, certificate = prove(one, None, {}, ProofOptions(gap))
    designs, known = every(one), certificate.front.objectives
    assert proof.is_closed and proof.gap == certificate.header["gap"] <= gap
    limits = known - gap * abs(known)
    assert all((design >= limits).all(axis=1).any() for design in np.unique(designs, axis=0))
    assert all((design == designs).all(axis=1).any() for design in known), "a known design is one of the space"
    assert len(pareto.front(known)) == len(known) == proof.front
    if len(known[0]) == 1:
        assert proof.best == one.program.objectives[0].sign * known[0, 0]


def test_blocks_under_power_limits_are_bound():
    """The clock that a limit leaves is known on intervals: few of the designs are computed one by one."""
    axes = """
[axes]
tp = [4, 8]
"power.limit" = { from = "150 W", to = "400 W", count = 251 }
"scale_out.bandwidth" = { from = "10 GB/s", to = "50 GB/s", count = 41 }
"""
    text = f'title = "limits"\n{DENSE[: DENSE.index("[axes]")]}{axes}[objective]\nminimize = "step_time"\n'
    one = problem.build(spec.from_text(text))
    proof, _ = prove(one, None, {}, ProofOptions(0.01))
    assert proof.is_closed and proof.designs < 0.05 * one.grid.n_designs, proof


def test_the_gap_to_a_front_is_the_least_of_all_of_its_designs():
    generator = np.random.default_rng(0)
    front = np.sort(generator.uniform(1, 2, (2, 50)), axis=1).T * [1, -1]
    bound = generator.uniform([0.5, -2], [2, -1], (300, 2))
    expected = ((front - bound[:, None]) / abs(front)).max(axis=2).min(axis=1)
    np.testing.assert_allclose(gaps(front, bound), np.maximum(expected, 0.0))


@pytest.mark.parametrize("name", ["hardware", "mixed", "chips", "limited", "serving"])
def test_designs_lie_between_the_bounds_of_their_block(name):
    generator = np.random.default_rng(0)
    for blocks in proofs.evaluators(task(name)):
        sizes, n = blocks.all_designs.stop[0], 400
        ends = np.sort(generator.integers(0, sizes + 1, (2, n, len(sizes))), axis=0)
        first, stop = np.minimum(ends[0], sizes - 1), np.maximum(ends[1], np.minimum(ends[0], sizes - 1) + 1)
        (objective,), reason = blocks.evaluate_operations(blocks.values(BlockRanges(first, stop)))
        low, high = (np.broadcast_to(end, n) for end in forms.pair(objective))
        none, some = (np.broadcast_to(end, n) for end in forms.pair(reason))
        for _ in range(5):
            at = generator.integers(first, stop)
            (value, *_), why = (part.T for part in blocks.evaluate(BlockRanges(at, at + 1)))
            known = ~(np.isnan(low) | np.isnan(high) | np.isnan(value))
            assert np.all((low <= value)[known]) and np.all((value <= high)[known])
            assert np.all((none == 0) | (why != 0)) and np.all((some != 0) | (why == 0))


def test_single_designs_are_those_of_the_model():
    one = task("mixed")
    for blocks in proofs.evaluators(one):
        at = np.random.default_rng(0).integers(0, blocks.all_designs.stop[0], (200, len(blocks.axes)))
        metrics, objectives = evaluate_few(blocks.grid.base, blocks.leaves(at), program=blocks.program)
        found, reason = blocks.evaluate(BlockRanges(at, at + 1))
        assert np.array_equal(found[:, 0], objectives[0]) and np.array_equal(reason, metrics.infeasible_reason)


@pytest.mark.parametrize("some_run", [False, True])
def test_what_cannot_run_is_proven(tmp_path, some_run):
    limit = "100 s" if some_run else "1 us"
    rest = f'[constraints]\nall = ["step_time <= {limit!r}"]\n[objective]\nminimize = "mfu"\n'
    text = f'title = "none"\n{HARDWARE}\n{rest}'
    one, file = problem.build(spec.from_text(text)), tmp_path / "none.certificate.npz"
    proof, certificate = prove(one, None, one.identity, ProofOptions())
    assert proof.nothing_runs == (not some_run) == (proof.best is None) and proof.is_closed
    front = certificate.front._replace(**{name: array[:0] for name, array in certificate.front._asdict().items()})
    header = certificate.header | {"gap": 0.0}
    proofs.write(file, certificate._replace(header=header, front=front), force=False)
    assert checking.check(one, file).is_valid == proof.nothing_runs


def test_continuous_axes_are_proven_to_a_gap():
    one = problem.build(spec.from_text(f'title = "c"\n{CONTINUOUS}\n[objective]\nminimize = "step_time"\n'))
    proof, certificate = prove(one, None, {}, ProofOptions(0.01))
    assert proof.is_closed and 0.0 < proof.gap <= 0.01
    listed = CONTINUOUS.replace("continuous = true", "count = 40")
    some = every(problem.build(spec.from_text(f'title = "c"\n{listed}\n[objective]\nminimize = "step_time"\n')))
    assert proof.bound <= some.min()
    found = proofs.front_points(one, certificate.front)
    assert one.evaluate_by_numpy(found)[1][0] == pytest.approx(proof.best, rel=1e-5)
    with pytest.raises(InputError, match="continuous"):
        prove(one, None, {}, ProofOptions(0.0))


def test_a_stop_says_what_is_proven_so_far():
    one = task("hardware")
    proof, _ = prove(one, None, {}, ProofOptions(0.0, minutes=0.0))
    assert not proof.is_closed and proof.blocks["open"] == 1
    assert proof.bound is None or proof.bound <= every(one).min()


@pytest.fixture(scope="module", params=["budget", "front"])
def written(request, tmp_path_factory):
    one, file = task(request.param), tmp_path_factory.mktemp("proof") / "budget.certificate.npz"
    _, certificate = prove(one, None, one.identity, ProofOptions(0.01), file)
    return one, file, certificate


def test_a_certificate_is_checked(written):
    one, file, certificate = written
    found = checking.check(one, file)
    assert found.is_valid and not found.fault
    assert (found.front, found.blocks) == (len(certificate.front.member), len(certificate.node.kind))
    assert (found.best is None) == (one.n_objectives == 2) or found.best == certificate.front.objectives[0, 0]


def _gap(found):
    found.header["gap"] = -0.01


def _best(found):
    found.front.objectives[0] *= 0.99


def _position(found):
    found.front.position[0, 1] = 99


def _cut(found):
    found.node.parts[np.flatnonzero(found.node.kind == 1)[-1]] -= 1


def _twice(found):
    first, second = np.flatnonzero(found.node.kind == 1)[:2]
    found.node.child[second] = found.node.child[first]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_gap, "better than the certificate"), (_best, "a known design is not"), (_position, "no design of the space"),
        (_cut, "block"), (_twice, "block"),
    ],
)  # fmt: skip
def test_a_false_certificate_is_refused(written, tmp_path, change, fault):
    one, _, certificate = written
    false = copy.deepcopy(certificate)
    change(false)
    file = tmp_path / "false.certificate.npz"
    proofs.write(file, false, force=False)
    found = checking.check(one, file)
    assert not found.is_valid and fault in found.fault


def test_what_is_no_certificate_of_the_space_is_bad_input(written, tmp_path):
    one, file, _ = written
    with pytest.raises(InputError, match="another space"):
        checking.check(task("dense"), file)
    with pytest.raises(InputError, match="no such file"):
        checking.check(one, tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(InputError, match="certificate"):
        checking.check(one, tmp_path / "text.npz")


def test_three_objectives_are_bad_input():
    text = f'title = "three"\n{DENSE}\n[objective]\nminimize = ["step_time", "peak_memory", "energy_per_step"]\n'
    with pytest.raises(InputError, match="one objective or two"):
        prove(problem.build(spec.from_text(text)), None, {}, ProofOptions())


@pytest.mark.parametrize("name", ["dense", "mixed", "mixed front"])
def test_known_designs_are_where_a_proof_begins(name):
    one = task(name)
    _, first = prove(one, None, {}, ProofOptions(0.0))
    points = proofs.front_points(one, first.front)
    np.testing.assert_array_equal(np.stack(one.evaluate_by_numpy(points)[1], axis=1), first.front.objectives)
    again, second = prove(one, points, {}, ProofOptions(0.0, minutes=0.0))
    assert again.designs == len(points.digits) and again.blocks["open"]
    np.testing.assert_array_equal(second.front.objectives, first.front.objectives)
