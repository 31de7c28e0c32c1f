"""Co-design: the envelope gradient against differences, budgets, the soft-min, repetition, and what it reaches."""

from __future__ import annotations

import dataclasses
import json
import math
import os

import jax
import numpy as np
import pytest

import dse
from benchmarks.search.codesign import differences, random_points
from dse.cli import app
from dse.errors import InputError
from dse.model.money.device import bill
from dse.optimizers import SearchOptions, perform, plan
from dse.optimizers.codesign import chip as chips, descent as codesign
from dse.optimizers.problem import build
from dse.spec import search as specification
from dse.views import explanation

CHIP = "system.accelerator.chip."

#: Keys of ``dse search --json`` of a descent beside those of every search.
TOLD = {"title", "objective", "value", "hardware", "cost", "active", "workloads", "elasticities", "starts"}
TOLD |= {"evaluations", "seconds", "whole_stacks", "lacks", "notes", "output", "finished"}

#: Of die, memory, package, test and a share of the design.
BUDGET = "5500 USD"

SMALL = """
title = "a small co-design"

[system]
name = "eos"
n_devices = 64
accelerator = "gpu"
node = "n3e"
memory = "hbm4-8-0"

[software]
name = "megatron-core-te"
any_option = true

[mapping]
precision = "bf16"
sequence_parallel = true

[axes]
workload = ["gpt-3-13b", "llama-3-8b"]
global_batch = [128, 128]
tp = [1, 2, 4]
pp = [1, 2, 4]
micro_batch = [1, 2]
recompute = ["none", "full"]
zero_stage = [1, 3]
overlap_dp = [true]

[zip]
groups = [["workload", "global_batch"]]

[codesign]
starts = 6
steps = 30
k = 4
shares = [["chip.core_power", "chip.memory_power", "chip.link_power"], ["chip.memory_area", "chip.link_area"]]

[codesign.between]
"chip.die_area" = { from = "200 mm2", to = "800 mm2" }
"chip.stacks" = { from = 1, to = 8 }
"chip.core_area" = { from = 0.3, to = 0.8 }

[codesign.budget]
cost = "5500 USD"
"""


def built(text):
    """The problem of a text's descent."""
    return build(specification.from_text(text)).descent


@pytest.fixture(scope="module")
def problem():
    return built(SMALL)


def as_search():
    """The same as a search by descent: continuous axes, constraints and the method's options."""
    axes, _, rest = SMALL.partition("[codesign]\n")
    options, _, rest = rest.partition("[codesign.between]\n")
    ranges, _, _ = rest.partition("[codesign.budget]\n")
    limits = "[constraints]\nall = [\"device_cost <= '5500 USD'\"]\n"
    moving = ranges.strip().replace(" }", ", continuous = true }")
    axes = axes.replace("[axes]\n", f"[axes]\n{moving}\n")
    return f'{axes}{limits}[search]\nmethod = "descent"\n[search.descent]\n{options}'


def test_a_section_of_co_design_is_read_as_a_search_by_descent(problem):
    section, search = specification.from_text(SMALL), specification.from_text(as_search())
    assert section.methods == search.methods == ("descent",) and section.options == search.options
    assert section.intervals == search.intervals and not search.sweep.constraints
    (one,), (other,) = section.limits, search.limits
    assert (
        (one.name, one.value, one.is_upper)
        == (other.name, other.value, other.is_upper)
        == ("device_cost", 5500.0, True)
    )
    found = built(as_search())
    assert str(found.hardware) == str(problem.hardware) and found.schedule == problem.schedule
    assert found.inner.program == problem.inner.program, "one program: the limit is none of its constraints"


def test_limits_of_a_variable_are_ends_of_its_range(problem):
    area, text = f"{CHIP}die_area", as_search()
    limits = ["chip.die_area <= '700 mm2'", "chip.die_area >= '300 mm2'", "fits_probability >= 0.5"]
    more = text.replace("all = [", f"all = {json.dumps(limits)[:-1]}, ")
    search = specification.from_text(more)
    assert [one.text for one in search.sweep.constraints] == limits[2:]
    assert build(search).descent.hardware.bounds[area] == pytest.approx((300e-6, 700e-6))
    with pytest.raises(InputError, match=r"0\.0002 or more"):
        built(text.replace("all = [", "all = [\"chip.die_area <= '100 mm2'\", "))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"descent"\n', '["descent", "random"]\n', "alone"),
        ('"descent"\n', '"descent"\nseeds = 2\n', "write seed under"),
        ("continuous = true", "continuous = true, log = false", "in their logarithm"),
        ("[search]\n", "[codesign]\n[search]\n", r"\[search\] beside \[codesign\]"),
        ("starts = 6", "begins = 6", "begins"),
    ],
)
def test_bad_searches_by_descent_say_what_is_wrong(old, new, message):
    with pytest.raises(InputError, match=message):
        built(as_search().replace(old, new))


@pytest.fixture(scope="module")
def trace(problem):
    return codesign.search(problem)


def within(problem, points) -> None:
    """That every point is within bounds and budget, and shares add up."""
    hardware = problem.hardware
    found = codesign.leaves(hardware, points)
    for path, (low, high) in hardware.bounds.items():
        assert np.all(found[path] >= low) and np.all(found[path] <= high), path
    for simplex, total in zip(hardware.simplices, hardware.totals, strict=True):
        np.testing.assert_allclose(sum(found[path] for path in simplex), total, rtol=1e-5)
    cost = jax.vmap(hardware.cost)(points)
    assert np.all(np.asarray(cost) <= hardware.budget * (1.0 + 1e-6)), np.max(cost)


def test_envelope_gradient_is_the_difference_of_the_inner_minimum(problem):
    """In float64, where the winner does not change between the ends of a difference, nor a ceiling (waves of tiles)."""
    step, compared = 1e-4, 0  # the clock under a power limit is exact to 2^-24: shorter steps would see that
    stiff = 1e3  # so that the relaxed winner has its memory
    with jax.enable_x64(True):
        inner = built(SMALL.replace("k = 4", "k = 1")).inner
        own = problem._replace(inner=inner)
        at = {path: values.astype(np.float64) for path, values in problem.hardware.random(3, 6).items()}
        slope, _ = codesign.gradient(own, at, 1e-9, stiff)
        middle = inner.best(codesign.leaves(own.hardware, at), stiff)
        for path in own.hardware.names:
            ends = [inner.best(codesign.leaves(own.hardware, at | {path: at[path] + way * step})) for way in (-1, 1)]
            winners = [ends[0].mapping, ends[1].mapping, middle.mapping, middle.mappings[..., 0]]
            same = np.all([np.all(winner == winners[0], axis=1) for winner in winners], axis=0)
            same &= np.all(np.isfinite(middle.best), axis=1)
            three = (ends[0].best, middle.best, ends[1].best)
            low, at_point, high = (np.where(same[:, None], best, 0.0) @ own.weights for best in three)
            left, right = (at_point - low) / step, (high - at_point) / step
            same &= np.abs(right - left) < 2e-3 + 0.01 * np.abs(right)
            measured = 0.5 * (left + right)[same]
            np.testing.assert_allclose(slope[path][same], measured, rtol=5e-3, atol=1e-3, err_msg=path)
            compared += same.sum()
    assert compared > 2 * len(own.hardware.names)


def test_every_point_is_within_the_budgets(problem):
    within(problem, problem.hardware.random(0, 64))
    far = np.random.default_rng(1)
    wild = {path: far.normal(0.0, 5.0, 64).astype(np.float32) for path in problem.hardware.names}
    within(problem, jax.tree.map(np.asarray, jax.vmap(problem.hardware.project)(wild)))


def test_search_stays_within_the_budgets_and_uses_them(problem, trace):
    within(problem, {path: np.array([value], np.float32) for path, value in trace.coordinates.items()})
    assert trace.best < trace.objective[0].min()


def test_reduced_gradient_has_nothing_along_an_active_budget(problem):
    hardware = problem.hardware
    rich = {path: np.full(1, math.log(high), np.float32) for path, (_, high) in hardware.bounds.items()}
    at = jax.vmap(hardware.project)({path: np.zeros(1, np.float32) for path in hardware.names} | rich)
    at = {path: values[0] for path, values in at.items()}
    assert "cost at its budget" in hardware.active_limits({path: float(v) for path, v in at.items()})
    slope = {path: np.float32(-1.0 if path in hardware.bounds else 0.0) for path in hardware.names}
    left = hardware.projected_gradient(at, slope)
    normal = jax.grad(lambda part: hardware.cost(at | part))(
        {path: at[path] for path in (f"{CHIP}die_area", f"{CHIP}stacks")}
    )
    assert abs(sum(float(normal[p] * left[p]) for p in normal)) < 1e-3 * sum(abs(float(n)) for n in normal.values())


def test_soft_min_tends_to_the_minimum():
    values = np.array([[1.0, 1.01, 1.2], [0.5, np.inf, np.inf], [np.inf, np.inf, np.inf]])
    gaps = []
    for temperature in (1.0, 0.1, 1e-2, 1e-3):
        weights = codesign.soft_min_weights(values, temperature)
        assert np.all(np.isfinite(weights))
        gaps.append(float((weights[0] * values[0]).sum() - 1.0))
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] < 1e-6
    np.testing.assert_array_equal(weights[1], [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(weights[2], 0.0)


def test_gradient_has_no_nan(problem):
    points = problem.hardware.random(5, problem.schedule.starts)
    for temperature, stiffness in ((1.0, 0.5), (1e-6, 10.0)):
        slope, exact = codesign.gradient(problem, points, temperature, stiffness)
        assert all(np.all(np.isfinite(values)) for values in slope.values())
        assert not np.any(np.isnan(exact))


def test_same_seed_same_search(problem, trace):
    again = codesign.search(problem)
    assert again.coordinates == trace.coordinates and again.best == trace.best
    other = codesign.search(problem._replace(schedule=problem.schedule.model_copy(update={"seed": 7})))
    assert other.coordinates != trace.coordinates


def test_beats_random_hardware_and_differences_at_equal_evaluations(problem, trace):
    points = int(trace.evaluations[-1]) // problem.inner.evaluations_per_point
    assert trace.best < random_points(problem, points, 11).best
    steps = max(1, problem.schedule.steps // (1 + len(problem.hardware.names)))
    fewer = problem._replace(schedule=problem.schedule.model_copy(update={"steps": steps}))
    by_differences = codesign.search(fewer, slopes=differences(0.01))
    assert by_differences.evaluations[-1] <= trace.evaluations[-1]
    assert trace.best < by_differences.best


def test_report_is_what_the_model_says(problem, trace):
    report = chips.solution(problem, trace).chip
    assert report.value == pytest.approx(trace.best, rel=1e-5)
    assert [row.workload for row in report.workloads] == ["gpt-3-13b", "llama-3-8b"]
    assert report.cost <= 5500.0
    largest = report.elasticities[0]
    assert largest.elasticity < 0.0
    assert {"chip.die_area", "node.energy"} <= {row.leaf for row in report.elasticities}
    json.dumps(dataclasses.asdict(report))


def test_elasticities_are_of_the_objective_as_it_is_named():
    """A chip for the most tokens a second: elasticities are those of ``dse.explain``, and of a tenth more."""
    text = SMALL.replace('["gpt-3-13b", "llama-3-8b"]', '["llama-3-8b"]').replace("[128, 128]", "[128]")
    text = text.replace("starts = 6", "starts = 1") + '\n[objective]\nmaximize = "tokens_per_second"\n'
    problem = built(text)
    at = {path: float(values[0]) for path, values in problem.hardware.random(2, 1).items()}
    found = {row.leaf: row for row in codesign.elasticities(problem, at)}
    chip = {path: float(values[0]) for path, values in codesign.leaves(problem.hardware, _batch(at)).items()}
    (mapping, best), *_ = codesign.best_mappings(problem, at)
    design = dse.designs.leaves.replace(problem.inner.grid.base, chip | problem.inner.values(0, mapping))
    assert best == pytest.approx(float(dse.evaluate(design).tokens_per_second), rel=1e-4)
    explained = {row.parameter: row.elasticity for row in explanation.explain(design, "tokens_per_second").elasticities}
    compared = [path for path in found if abs(found[path].elasticity) > 1e-2]
    assert len(compared) > 5
    for path in compared:
        expected = explained[dse.designs.leaves.short_name(path)]
        assert found[path].elasticity == pytest.approx(expected, rel=2e-3, abs=1e-4), path
    area = found[f"{CHIP}die_area"]
    larger = dse.designs.leaves.replace(design, {area.leaf: 1.1 * area.value})
    more = math.log(float(dse.evaluate(larger).tokens_per_second) / best) / math.log(1.1)
    assert area.elasticity > 0.0 and area.remapped == pytest.approx(more, abs=0.05)


def _batch(at):
    return {path: np.array([value], np.float32) for path, value in at.items()}


def test_whole_stacks_are_the_better_of_both_roundings(problem, trace):
    wanted, trace = problem._replace(whole_stacks=True), chips.without_excess_stacks(problem, trace)
    stacks = math.exp(trace.coordinates[f"{CHIP}stacks"])
    tried = chips.integer_stack_chips(wanted, trace)
    assert [one.stacks for one in tried] == sorted({math.floor(stacks), math.ceil(stacks)})
    for one in tried:
        within(problem, {path: np.array([value], np.float32) for path, value in one.coordinates.items()})
        assert one.loss == pytest.approx(one.objective / trace.best - 1.0)
    report = chips.solution(wanted, trace).chip
    best = min(tried, key=lambda one: one.objective)
    assert report.value == pytest.approx(best.objective, rel=1e-4)
    assert next(leaf.value for leaf in report.hardware if leaf.name == "chip.stacks") == pytest.approx(best.stacks)
    assert report.cost <= 5500.0 * (1.0 + 1e-5)
    assert [one["stacks"] for one in report.whole_stacks] == [one.stacks for one in tried]
    json.dumps(dataclasses.asdict(report), allow_nan=False)


def test_stacks_that_find_no_room_are_left_out(problem, trace):
    """They are neither built nor paid: the chip is the same; a whole number of them beyond needs other shares."""
    path = f"{CHIP}stacks"
    largest = problem.hardware.bounds[path][1]
    crowded = dataclasses.replace(trace, coordinates=trace.coordinates | {path: math.log(largest)})
    left = chips.without_excess_stacks(problem, crowded).coordinates[path]
    assert math.exp(left) < 0.99 * largest, "these shares have room for fewer"
    same = [codesign.objective_at(problem, trace.coordinates | {path: at}) for at in (math.log(largest), left)]
    assert same[1] == pytest.approx(same[0], rel=1e-5)
    more = chips.integer_stack_chips(problem, dataclasses.replace(trace, coordinates=trace.coordinates | {path: left}))[
        -1
    ]
    assert more.stacks > math.exp(left) and more.as_dict()["loss"] >= -1e-6, "memory takes area from the other shares"


def test_whole_stacks_need_stacks_that_may_change():
    text = SMALL.replace('"chip.stacks" = { from = 1, to = 8 }\n', "").replace("k = 4", "k = 4\nwhole_stacks = true")
    text = text.replace(BUDGET, "9000 USD")
    with pytest.raises(InputError, match=r"chip\.stacks as a variable"):
        built(text)


def test_whole_stacks_that_cannot_be_leave_the_chip_as_it_is(trace):
    nothing = [chips.IntegerStackChip(3, math.inf, math.inf, {})]
    assert chips.with_best_variant(trace, nothing) is trace and chips.with_best_variant(trace, []) is trace
    assert nothing[0].as_dict() == {"stacks": 3, "loss": None}


def test_energy_delay_is_an_objective_too():
    text = SMALL + '\n[objective]\nminimize = "step_time * energy_per_step"\n'
    problem = built(text.replace("steps = 30", "steps = 3"))
    assert math.isfinite(codesign.search(problem).best)


def test_the_budget_is_the_bill_of_the_model(problem):
    """What a chip may cost is ``device_cost`` of the design that it makes, base dies and splits included."""
    hardware = problem.hardware
    at = {path: math.log(0.5 * (low + high)) for path, (low, high) in hardware.bounds.items()}
    chip = {path: math.exp(value) for path, value in at.items() if path in hardware.billed_paths}
    design = dse.designs.leaves.replace(problem.inner.grid.base, chip)
    design = dse.designs.leaves.replace(design, {"system.accelerator.made": hardware.priced_accelerator.made})
    expected = float(bill(design.system.accelerator).total)
    assert float(hardware.cost(dict.fromkeys(hardware.names, 0.0) | at)) == pytest.approx(expected, rel=1e-6)
    more = SMALL.replace(
        "[codesign.budget]",
        '"chip.base_area" = { from = "100 mm2", to = "400 mm2" }\n'
        '"made.chiplets" = { from = 1, to = 4 }\n[codesign.budget]',
    )
    richer = built(more.replace(BUDGET, "9000 USD")).hardware
    within_reach = {path: math.log(low) for path, (low, _) in richer.bounds.items()}
    whole = dict.fromkeys(richer.names, 0.0) | within_reach
    assert len(richer.billed_paths) == 4
    assert float(richer.cost(whole | {f"{CHIP}base_area": math.log(4e-4)})) > float(richer.cost(whole))


def test_variables_may_be_of_records_that_the_objective_does_not_read():
    """A fab's reticle, where nothing that is sought costs anything; and within a budget."""
    more = '"made.chiplets" = { from = 1, to = 4 }\n"fab.reticle" = { from = 4e-4, to = 8e-4 }\n[codesign.budget]'
    text = SMALL.replace("[codesign.budget]", more)
    problem = built(text[: text.index("[codesign.budget]")])
    at = problem.hardware.random(0, problem.schedule.starts)
    slope, exact = codesign.gradient(problem, at, 0.03, 0.5)
    assert np.isfinite(exact).any() and not np.any(slope["system.accelerator.fab.reticle"])
    priced = built(text)
    within(priced, priced.hardware.random(0, 4))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"chip.stacks" = { from = 1, to = 8 }', '"pods.size" = { from = 8, to = 16 }', "that the system has"),
        ('cost = "5500 USD"', 'cost = "100 USD"', "USD or more"),
        ('cost = "5500 USD"', 'money = "5500 USD"', "money"),
        ("starts = 6", "starts = 0", "1 to 10,000"),
        ("starts = 6", "begins = 6", "begins"),
        ('["chip.memory_area", "chip.link_area"]', '["chip.memory_area", "chip.core_power"]', "twice"),
        ('accelerator = "gpu"\nnode = "n3e"\nmemory = "hbm4-8-0"', "", "not generated"),
        ("k = 4", "k = 4\nweights = [1]", "2 numbers"),
        ("k = 4", "k = 4\nwhole_stacks = 2", "whole_stacks"),
        ('"chip.stacks" = { from = 1, to = 8 }', '"chip.stacks" = { from = 8, to = 1 }', "from < to"),
        ('"chip.stacks" = { from = 1, to = 8 }', '"tp" = { from = 1, to = 8 }', "continuous leaves"),
    ],
)
def test_bad_specifications_say_what_is_wrong(old, new, message):
    with pytest.raises(InputError, match=message):
        built(SMALL.replace(old, new))


def test_bad_budgets_of_less_than_a_step_are_refused(tmp_path):
    """A step of 2 starts takes 480 evaluations: with fewer it would be taken all the same."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace("starts = 6", "starts = 2"))
    with pytest.raises(InputError) as error:
        perform(plan(path), SearchOptions(tmp_path / "chip.nc", evaluations=479))
    assert error.value.where == "--evaluations" and error.value.got == "479"
    assert error.value.allowed.startswith("480 or more") and "--seconds" in error.value.fix
    assert not (tmp_path / "chip.nc").exists()


@pytest.mark.parametrize("budget", [480, 1000])
def test_the_budget_of_evaluations_is_kept(problem, budget):
    two = problem._replace(schedule=problem.schedule.model_copy(update={"starts": 2}))
    spent = codesign.search(two, budget=codesign.DescentBudget(budget)).evaluations
    assert spent[0] == problem.inner.evaluations_per_step(2) == 480
    assert spent[-1] == budget // 480 * 480


def test_numbers_without_their_unit_are_told_how_they_were_read():
    text = SMALL.replace('"200 mm2"', "2e-4").replace("[codesign.budget]", "[codesign.budget]\npower = 1500")
    assert specification.from_text(text).notes == (
        "chip.die_area = 0.0002 has no unit: read as 0.0002 m^2",
        "budget.power = 1500 has no unit: read as 1500 W",
    )
    assert specification.from_text(SMALL).notes == ()
    with pytest.raises(InputError, match="no unit"):
        built(SMALL.replace('"5500 USD"', "5500"))


def test_an_elasticity_where_no_such_chip_can_be_is_a_dash():
    assert codesign.MachineElasticity("clock", 1.0, -0.5, None).texts == ("-0.500", "–")
    assert codesign.MachineElasticity("clock", 1.0, -0.5, 0.25).texts == ("-0.500", "+0.250")


def _printed(capsys, *arguments):
    """What ``dse search FILE -o OUTPUT …`` prints."""
    file, output, *others = map(str, arguments)
    with pytest.raises(SystemExit) as ended:
        app(["search", file, "-o", output, *others], prog_name="dse")
    assert not ended.value.code
    return capsys.readouterr().out


def test_a_file_is_kept_and_shown_again(tmp_path, monkeypatch, capsys):
    """An output, a budget of evaluations, --fresh; a stranger's file is refused before anything is computed.

    It is shown where nothing can be written, too.
    """
    path, output = tmp_path / "small.toml", tmp_path / "chip.nc"
    path.write_text(SMALL.replace("starts = 6", "starts = 2"))
    output.write_text("a thesis")
    with pytest.raises(InputError, match="has not written"):
        perform(plan(path), SearchOptions(output))
    output.unlink()
    few = SearchOptions(output, evaluations=500)
    labelled, first = perform(plan(path), few)
    assert labelled is not None and first.output == output and not first.finished
    content = output.read_bytes()
    nothing, again = perform(plan(path), few)
    assert nothing is None and again.finished and again.chip.value == pytest.approx(first.chip.value)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
        assert perform(plan(path), few)[1].finished
        with pytest.raises(InputError, match="without write permission"):
            perform(plan(path), dataclasses.replace(few, fresh=True))
    assert perform(plan(path), dataclasses.replace(few, fresh=True))[0] is not None
    assert output.read_bytes() == content
    told = _printed(capsys, path, output, "--evaluations", "500")
    assert "active limits" in told and "finished by a run on" in told and "starts have a mapping of every" in told
    document = json.loads(_printed(capsys, path, output, "--evaluations", "500", "--json"))
    assert document.keys() > TOLD and document["finished"] and document["evaluations"] == first.chip.evaluations
    assert document["workloads"] == json.loads(json.dumps(dataclasses.asdict(first.chip)))["workloads"]
    more = perform(plan(path), dataclasses.replace(few, evaluations=2000))
    assert more[0] is not None and more[1].chip.evaluations > first.chip.evaluations


def test_mappings_that_may_not_fit_are_left_out_but_show_the_way():
    """A constraint on whether memory fits is forgiven on the way, like too small a memory; another one is not."""
    surely = SMALL.replace("[codesign]\n", '[constraints]\nall = ["fits_probability >= 0.9"]\n\n[codesign]\n')
    inner = built(surely).inner
    bits = inner.grid.spec.study.reason_bits
    assert inner._memory_reasons == bits["memory"] | bits["constraint"]
    other = built(surely.replace("fits_probability >= 0.9", "mfu >= 0.1")).inner
    assert other._memory_reasons == bits["memory"]
