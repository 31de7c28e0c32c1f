"""What measurements are worth: never less than nothing, nothing for what is shared, at most what perfection is."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest

import dse
from calibration import replay
from calibration.replay import RANDOM, WORTH
from dse.cli import app
from dse.designs import replace
from dse.doors import STUDIES
from dse.lab.decide.candidates import Machine, measurement_offer, on_fewer_devices
from dse.lab.decide.worth import Belief, MeasurementCandidate, loss_after, measurement_order, measurement_value
from dse.measured import read_cases
from dse.measured.kernels import kind_of, read
from dse.measured.table import read_table
from dse.measured.uncertainty.posterior import Choice, posterior

TRAINING, SERVING = STUDIES["training"], STUDIES["serving"]


def belief(seed=0, designs=4, factors=8):
    rng = np.random.default_rng(seed)
    keys = [f"f{i}" for i in range(factors)]
    losses, matrix = 0.03 * rng.standard_normal(designs), 0.05 * rng.standard_normal((designs, factors))
    return Belief(losses, matrix, keys, np.eye(factors), np.zeros(factors))


def candidate(seed, noise=0.1, factors=8):
    effects = 0.1 * np.random.default_rng(seed).standard_normal(factors)
    return MeasurementCandidate(f"c{seed}", "run", {f"f{i}": float(e) for i, e in enumerate(effects)}, noise, 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_no_measurement_is_worth_less_than_nothing_or_more_than_perfect_information(seed):
    known = belief(seed)
    for one in map(candidate, range(5)):
        worths = [measurement_value(known, one._replace(noise=noise)) for noise in (0.0, 0.05, 0.2, 1.0, 1e3)]
        assert all(0.0 <= worse <= better + 1e-12 for better, worse in itertools.pairwise(worths))
        assert worths[0] <= known.loss * 1.02 + 1e-5
        assert worths[-1] < 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_more_measurements_never_raise_the_expected_loss(seed):
    steps = measurement_order(belief(seed), [candidate(i) for i in range(10)])
    losses = [belief(seed).loss, *(step.loss for step in steps)]
    assert losses == sorted(losses, reverse=True) and losses[-1] >= 0.0
    assert all(step.value >= 0.0 for step in steps)


def test_what_all_designs_share_is_worth_nothing():
    known = belief()
    shared = known._replace(
        matrix=np.column_stack([known.matrix, np.full(4, 0.3)]),
        factors=[*known.factors, "shared"],
        basis=np.eye(9),
        centre=np.zeros(9),
    )
    one = MeasurementCandidate("of what is shared", "run", {"shared": 1.0}, 0.0, 1.0)
    assert measurement_value(shared, one) == 0.0
    assert loss_after(shared, shared.slope(one)[:, None]) == pytest.approx(shared.loss, rel=1e-2)


def test_an_exact_measurement_leaves_nothing_open_along_it():
    one = candidate(3, noise=0.0)
    after = belief().after_measurement(one, 0.2)
    assert after.expected(one) == pytest.approx(0.2)
    np.testing.assert_allclose(after.effects_of(one), 0.0, atol=1e-12)
    assert measurement_value(after, one) == pytest.approx(0.0, abs=1e-12)


def test_the_order_of_two_measurements_does_not_change_the_belief():
    first, second = candidate(1), candidate(2, noise=0.3)
    one = belief().after_measurement(first, 0.1).after_measurement(second, -0.2)
    other = belief().after_measurement(second, -0.2).after_measurement(first, 0.1)
    np.testing.assert_allclose(one.losses, other.losses)
    np.testing.assert_allclose(one.matrix @ one.matrix.T, other.matrix @ other.matrix.T, atol=1e-12)


def choice(name, system, stack, chip, **settings):
    asked = {"n_devices": 64, "tp": 8, "global_batch": 128} | settings
    return Choice(name, dse.design("llama-3-70b", system, stack, **asked), stack, chip, "llama-3-70b", system)


TWO = [
    choice("Blackwell", "dgx-b200", "megatron-bridge", "b200-sxm-180gb"),
    choice("Ampere", "selene", "megatron-core-te", "a100-sxm-80gb", tp=8, pp=4, n_devices=128),
]


def test_designs_on_one_chip_share_its_draws():
    """A decision between two mappings is less open than what each of them is."""
    near = [TWO[0], choice("smaller", "dgx-b200", "megatron-bridge", "b200-sxm-180gb", tp=4)]
    found = posterior(near, "step_time", TRAINING)
    kernels = [e for key, e in found.effects.items() if key.startswith("kernels/")]
    assert kernels and all(effect.all() for effect in kernels if abs(effect).max() > 1e-3)
    assert np.allclose(found.draws()[0].std(), found.deviations[0], rtol=0.5)
    assert not any(
        key.startswith("kernels/blackwell") and e[1] for key, e in posterior(TWO, "step_time", TRAINING).effects.items()
    )


def test_a_run_of_a_design_is_worth_most_and_its_kernels_something():
    rubin = choice("Rubin", "rubin-r200", "megatron-bridge", "rubin-r200", any_option=True)
    offer = measurement_offer([rubin, TWO[0]], "step_time", TRAINING, Machine("rubin-r200", "rubin-r200", 64))
    kinds = {one.kind for one in offer.candidates}
    assert kinds == {"run", "gemm", "attention", "collective"}
    known = Belief.from_posterior(offer.posterior, False)
    near = known._replace(losses=0.0 * known.losses)  # a decision that is open
    worths = {one.name: measurement_value(near, one) for one in offer.candidates}
    assert max(worths, key=worths.__getitem__) == "run Rubin"
    assert all(0.0 <= worth <= near.loss * 1.02 for worth in worths.values())
    assert max(worth for name, worth in worths.items() if name.startswith("GEMM")) > 0.0


def test_products_of_engines_tell_of_the_kernels_that_these_have():
    made = [dse.design("llama-3-70b", name, tp=4, concurrency=64) for name in ("h100-sxm-80gb", "mi300x")]
    choices = [
        Choice(name, one, stack, name)
        for name, one, stack in zip(("h100-sxm-80gb", "mi300x"), made, ("vllm", "vllm-rocm"), strict=True)
    ]
    offer = measurement_offer(choices, "request_latency", SERVING, Machine("mi300x", "mi300x", 8))
    products = [{*one.effects} for one in offer.candidates if one.kind == "gemm"]
    told = {f"accelerator/mi300x:kernels.fine.gemm_{name}" for name in ("efficiency", "memory")}
    assert products and all(told <= effects for effects in products)


def test_collectives_are_as_the_model_sends_them():
    blackwell = TWO[0]._replace(design=replace(TWO[0].design, {"mapping.zero_stage": 1.0}))
    offer = measurement_offer([blackwell, TWO[1]], "step_time", TRAINING, Machine("dgx-b200", "b200-sxm-180gb", 64))
    offered_sizes = {float(one.row["bytes"]) for one in offer.candidates if one.kind == "collective"}
    sent = [m for one in (blackwell, TWO[1]) for m in TRAINING.breakdown(one.design).messages if float(m.times)]
    assert offered_sizes and all(
        any(abs(size / float(m.size / m.pieces) - 1.0) < 1e-5 for m in sent) for size in offered_sizes
    )


def test_a_run_fits_on_the_machine():
    found = on_fewer_devices(TWO[0], 8)
    assert found is not None and float(found.design.system.n_devices) == 8.0 == float(found.design.mapping.tp)
    assert on_fewer_devices(TWO[1], 8) is None  # a replica needs 32
    assert on_fewer_devices(TWO[0], 64) is TWO[0]


def test_rows_of_candidates_are_read_back(tmp_path):
    """With a value in it, each row is one of the tables that calibration reads, of the same shape."""
    offer = measurement_offer([TWO[0]], "step_time", TRAINING, Machine("dgx-b200", "b200-sxm-180gb", 8))
    for i, one in enumerate(offer.candidates):
        row = {name: text or "1.5" for name, text in one.row.items()}
        path = tmp_path / f"{i}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(row), list(row.values())])
        if one.kind == "run":
            (case,) = read_cases(path)
            assert case.measurements[0].value == pytest.approx(1.5e-3)
            continue
        columns, rows = read_table(path)
        assert kind_of(columns) == one.kind
        (kernel,) = read(rows[0], kind_of(columns))
        assert kernel.measured == pytest.approx(1.5e-3) and kernel.device == "b200-sxm-180gb"


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        app(list(arguments), prog_name="dse")
    return ended.value.code, capsys.readouterr()


def test_the_command_ranks_measurements(capsys):
    asked = ["measure", "mi300x", "h100", "--serving", "-w", "llama-3-70b", "--set", "tp=4", "--set", "concurrency=64"]
    status, printed = told(capsys, *asked, "--on", "mi300x", "--json")
    found = json.loads(printed.out)
    assert status == 0 and found["measurements"]
    losses = [found["expected_loss"], *(one["expected_loss"] for one in found["measurements"])]
    assert losses == sorted(losses, reverse=True)
    first = found["measurements"][0]
    assert first["line"] and first["row"]["isl"] == "1024" and first["row"]["value"] == ""
    status, printed = told(capsys, *asked, "--on", "mi300x")
    assert "vllm bench serve" in printed.out and "expected loss" in printed.out
    assert told(capsys, *asked, "--on", "b200")[0] == 2


def test_replayed_on_sources_left_out_the_order_is_faster_than_random():
    """A small version of docs/measure.md, on the published tables alone."""
    tables = [
        f"tests/published/{name}.csv"
        for name in ("korthikanti_2022", "narayanan_2021", "torchtitan_2024", "megatron_b200")
    ]
    found = [one for rows in replay.left_out(tables) if (one := replay.curves(rows)) is not None]
    assert len(found) >= 2
    every = replay.together(found)
    assert every.needed(RANDOM, 0.5) > every.needed(WORTH, 0.5)
    assert all(curve[-1] < 0.02 for curve in every.regret.values())


def test_where_the_belief_is_true_the_order_is_faster_than_random():
    rng = np.random.default_rng(1)
    known = belief(2, designs=8, factors=16)
    runs = [
        MeasurementCandidate(str(i), "run", {f"f{k}": float(e) for k, e in enumerate(row)}, 0.02, 1.0)
        for i, row in enumerate(known.matrix)
    ]
    regrets: dict[str, list[np.ndarray]] = {WORTH: [], RANDOM: []}
    for _ in range(60):
        changes = known.matrix @ rng.standard_normal(16)
        true = known.losses + changes
        decision = replay.Decision(known, runs, changes, true - true.min())
        regrets[WORTH].append(replay.replayed(decision, replay.by_worth))
        regrets[RANDOM].append(replay.replayed(decision, replay.at_random(rng)))
    needed = {name: replay.crossing(np.mean(found, axis=0), 0.5) for name, found in regrets.items()}
    assert needed[RANDOM] > 1.4 * needed[WORTH]
    assert all(found[-1] < 0.02 for found in regrets[WORTH])
