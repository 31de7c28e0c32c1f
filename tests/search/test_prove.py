"""Proofs of searches: their optimum is that of enumeration, bounds hold, and certificates are checked."""

import dataclasses
import json

import numpy as np
import pytest

from dse.errors import InputError
from dse.search import problem
from dse.search.prove import ProofOptions, forms, prove
from dse.search.prove import check as checking
from dse.search.prove import proof as proofs
from dse.search.prove.blocks import Ranges
from dse.search.prove.branch import gap_of
from dse.search.run import identity
from dse.spec import search as spec
from dse.sweep.engine.numpy_backend import evaluate_few

DENSE = """
[workload]
name = "gpt-3-13b"
global_batch = 128
[system]
name = "selene"
n_devices = 64
[axes]
tp = [1, 2, 4, 8]
pp = "divisors"
micro_batch = [1, 2, 4]
recompute = ["none", "selective", "full"]
zero_stage = [0, 1]
"""
HARDWARE = DENSE + """
"memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", count = 5 }
"memory.capacity" = { from = "40 GB", to = "80 GB", count = 3 }
"scale_out.bandwidth" = { from = "10 GB/s", to = "50 GB/s", count = 4 }
"power.clock" = { from = "800 MHz", to = "1400 MHz", count = 4 }
"""
BUDGET = HARDWARE + """
[constraints]
all = ["memory.bandwidth * 1e-12 + memory.capacity * 25e-12 + scale_out.bandwidth * 20e-12 <= 3.5"]
"""
MIXED = """
[workload]
global_batch = 64
seq_len = 2048
[system]
name = "eos"
n_devices = 16
[axes]
workload = ["llama-3-8b", "deepseek-v2-lite", "mixtral-8x7b"]
tp = [1, 2, 8]
pp = [1, 2]
ep = [1, 2, 8]
imbalance = [1.0, 1.25, 1.5]
"scale_up.bandwidth" = { from = "200 GB/s", to = "450 GB/s", count = 4 }
recompute = ["none", "full"]
overlap_dp = [false, true]
"""
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
name = "megatron-core-te-hopper"
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
CONTINUOUS = DENSE + """
"memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", continuous = true }
"scale_out.bandwidth" = { from = "10 GB/s", to = "50 GB/s", continuous = true }
[constraints]
all = ["memory.bandwidth * 1e-12 + scale_out.bandwidth * 50e-12 <= 3.5"]
"""
SPACES = {
    "dense": (DENSE, 'minimize = "step_time"'), "hardware": (HARDWARE, 'minimize = "energy_per_step"'),
    "budget": (BUDGET, 'minimize = "step_time"'), "rate": (BUDGET, 'maximize = "mfu"'),
    "mixed": (MIXED, 'minimize = "step_time"'), "chips": (CHIPS, 'minimize = "energy_per_step"'),
    "serving": (SERVING, 'maximize = "output_tokens_per_second_per_device"'),
}  # fmt: skip


def task(name):
    text, objective = SPACES[name]
    return problem.build(spec.from_text(f'title = "{name}"\n{text}\n[objective]\n{objective}\n'))


def least(one):
    """The least objective of all designs of a space, each of them evaluated."""
    grid, found = one.grid, np.inf
    for places, own, local in grid.by_structure(grid.indices(np.arange(grid.n_designs))):
        program = dict((id(g), p) for g, p in one.programs)[id(own)]
        metrics, objectives = evaluate_few(own.base, own.values(local), program=program)
        able = metrics.feasible & np.isfinite(objectives[0])
        found = min(found, np.where(able, objectives[0], np.inf).min())
        assert len(places) == len(able)
    return float(found)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("gap", [0.0, 0.01])
def test_the_optimum_is_that_of_enumeration(name, gap):
    one = task(name)
    proof, certificate = prove(one, None, {}, ProofOptions(gap))
    expected = least(one)
    best = certificate.header["best"]["objective"]
    assert expected <= best <= expected + gap * abs(best)
    assert certificate.header["bound"] <= expected
    assert proof.is_closed and proof.gap == gap_of(best, certificate.header["bound"]) <= gap


@pytest.mark.parametrize("name", ["hardware", "mixed", "chips", "serving"])
def test_designs_lie_between_the_bounds_of_their_block(name):
    generator = np.random.default_rng(0)
    for blocks in proofs.members(task(name)):
        sizes, n = blocks.whole.behind[0], 400
        ends = np.sort(generator.integers(0, sizes + 1, (2, n, len(sizes))), axis=0)
        first, behind = np.minimum(ends[0], sizes - 1), np.maximum(ends[1], np.minimum(ends[0], sizes - 1) + 1)
        objective, reason = blocks.computed(blocks.values(Ranges(first, behind)))
        low, high = (np.broadcast_to(end, n) for end in forms.pair(objective))
        none, some = (np.broadcast_to(end, n) for end in forms.pair(reason))
        for _ in range(5):
            at = generator.integers(first, behind)
            value, why = blocks.evaluated(Ranges(at, at + 1))
            known = ~(np.isnan(low) | np.isnan(high) | np.isnan(value))
            assert np.all((low <= value)[known]) and np.all((value <= high)[known])
            assert np.all((none == 0) | (why != 0)) and np.all((some != 0) | (why == 0))


def test_single_designs_are_those_of_the_model():
    one = task("mixed")
    for blocks in proofs.members(one):
        at = np.random.default_rng(0).integers(0, blocks.whole.behind[0], (200, len(blocks.axes)))
        values = {path: column[at[:, 0]] for path, column in blocks.mappings.items()}
        for number, axis in enumerate(blocks.axes[1:], 1):
            values |= axis.at(at[:, number])
        metrics, objectives = evaluate_few(blocks.grid.base, values, program=blocks.program)
        found, reason = blocks.evaluated(Ranges(at, at + 1))
        assert np.array_equal(found, objectives[0]) and np.array_equal(reason, metrics.infeasible_reason)


@pytest.mark.parametrize("some_run", [False, True])
def test_what_cannot_run_is_proven(tmp_path, some_run):
    limit = "100 s" if some_run else "1 us"
    rest = f'[constraints]\nall = ["step_time <= {limit!r}"]\n[objective]\nminimize = "mfu"\n'
    text = f'title = "none"\n{HARDWARE}\n{rest}'
    one, file = problem.build(spec.from_text(text)), tmp_path / "none.certificate.npz"
    proof, certificate = prove(one, None, identity(one), ProofOptions())
    assert proof.nothing_runs == (not some_run) == (proof.best is None) and proof.is_closed
    header = certificate.header | {"best": None, "bound": np.inf}
    proofs.write(file, certificate._replace(header=header), force=False)
    assert checking.check(one, file).is_valid == proof.nothing_runs


def test_continuous_axes_are_proven_to_a_gap():
    one = problem.build(spec.from_text(f'title = "c"\n{CONTINUOUS}\n[objective]\nminimize = "step_time"\n'))
    proof, certificate = prove(one, None, {}, ProofOptions(0.01))
    assert proof.is_closed and 0.0 < proof.gap <= 0.01
    listed = CONTINUOUS.replace("continuous = true", "count = 40")
    some = least(problem.build(spec.from_text(f'title = "c"\n{listed}\n[objective]\nminimize = "step_time"\n')))
    assert certificate.header["bound"] <= some
    with pytest.raises(InputError, match="continuous"):
        prove(one, None, {}, ProofOptions(0.0))


def test_a_stop_says_what_is_proven_so_far():
    one = task("hardware")
    proof, _ = prove(one, None, {}, ProofOptions(0.0, minutes=0.0))
    assert not proof.is_closed and proof.blocks["open"] == 1
    assert proof.bound is None or proof.bound <= least(one)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    one, file = task("budget"), tmp_path_factory.mktemp("proof") / "budget.certificate.npz"
    _, certificate = prove(one, None, identity(one), ProofOptions(0.01))
    proofs.write(file, certificate, force=False)
    return one, file, certificate


def test_a_certificate_is_checked(written):
    one, file, certificate = written
    found = checking.check(one, file)
    assert found.is_valid and not found.fault
    assert (found.best, found.blocks) == (certificate.header["best"]["objective"], len(certificate.node.kind))


def _bound(header, node):
    header["bound"] = 1.01 * header["best"]["objective"]


def _best(header, node):
    header["best"]["objective"] *= 0.99


def _leaf(header, node):
    header["best"]["values"]["mapping.tp"] = 3.0


def _cut(header, node):
    at = int(np.flatnonzero(node.kind == 1)[-1])
    node.parts[at] -= 1


def _twice(header, node):
    first, second = np.flatnonzero(node.kind == 1)[:2]
    node.child[second] = node.child[first]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_bound, "below the bound"), (_best, "the best design"), (_leaf, "no design of the space"), (_cut, "block"),
        (_twice, "block"),
    ],
)  # fmt: skip
def test_a_false_certificate_is_told(written, tmp_path, change, fault):
    one, _, certificate = written
    header = json.loads(json.dumps(certificate.header))
    node = type(certificate.node)(*(column.copy() for column in certificate.node))
    change(header, node)
    file = tmp_path / "false.certificate.npz"
    proofs.write(file, proofs.Certificate(header, node), force=False)
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


def test_several_objectives_are_bad_input():
    text = f'title = "two"\n{DENSE}\n[objective]\nminimize = ["step_time", "peak_memory"]\n'
    with pytest.raises(InputError, match="one objective"):
        prove(problem.build(spec.from_text(text)), None, {}, ProofOptions())


def test_a_known_design_is_where_a_proof_begins():
    one = task("dense")
    _, first = prove(one, None, {}, ProofOptions(0.0))
    best = first.header["best"]
    known = proofs.incumbent(one, best["member"], best["values"])
    again, _ = prove(one, known, {}, ProofOptions(0.0))
    assert again.best == pytest.approx(best["objective"]) and dataclasses.asdict(again)["leaves"] == best["values"]
