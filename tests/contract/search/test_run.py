"""Running: resume bit for bit, interruption, budgets, fronts, the nearest miss, what is written."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dse.errors import InputError
from dse.optimizers import SearchInterrupted, checkpoint, execute, plan
from dse.optimizers.driver import METHODS
from dse.optimizers.outcome import MismatchError
from dse.optimizers.problem import Problem
from dse.sweep.results import files as results
from tests.unit.optimizers.toy import CONTINUOUS, MAPPING_AXES, search, text
from tests.unit.sweep import toy

SEVERAL = '[objective]\nminimize = ["step_time", "peak_memory"]'


def toy_run(spec, output=False, **options):
    return execute(spec, output, study=toy.STUDY, **options)


def spec_of(method, axes=MAPPING_AXES + CONTINUOUS, more="", **keys):
    keys = {"method": method, "evaluations": 640, "seeds": 3} | keys
    return search(axes, search="\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items()), more=more)


def same_variables(one, other):
    assert one.variables.keys() == other.variables.keys()
    for name, variable in one.variables.items():
        assert variable.dtype == other[name].dtype
        assert variable.values.tobytes() == other[name].values.tobytes(), name


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("more", ["", SEVERAL], ids=["one", "several"])
def test_a_run_is_its_first_half_and_the_rest(method, more, tmp_path):
    spec = spec_of(method, more=more)
    whole, _ = toy_run(spec, tmp_path / "whole.nc", evaluations=640)
    toy_run(spec, tmp_path / "parts.nc", evaluations=320)
    parts, _ = toy_run(spec, tmp_path / "parts.nc", evaluations=640)
    same_variables(whole, parts)
    assert (tmp_path / "whole.nc").read_bytes() == (tmp_path / "parts.nc").read_bytes()
    files = [checkpoint.path(tmp_path / name, method).read_bytes() for name in ("whole.nc", "parts.nc")]
    assert files[0] == files[1]


def test_a_search_computes_the_caution_that_it_tells_alone():
    """Each may take an evaluation of the model, recorded anew: one is, of the best designs of three seeds."""
    calls = []

    def caution(metrics, design, evaluated):
        calls.append(metrics["step_time"])
        return f"caution {len(calls)}"

    study = dataclasses.replace(toy.STUDY, caution=caution)
    _, found = execute(spec_of("random"), False, study=study)
    assert found.caution == "caution 1" and len(found.designs) == 3 and len(calls) == 1


def test_an_interrupted_search_goes_on(tmp_path):
    spec = spec_of("evolution", evaluations=50_000)
    calls = []

    def stop(state):
        calls.append(state)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(SearchInterrupted, match="the same command continues"):
        toy_run(spec, tmp_path / "out.nc", progress=stop, between_checkpoints=0.0)
    assert checkpoint.path(tmp_path / "out.nc", "evolution").exists() and not (tmp_path / "out.nc").exists()
    best = json.loads(checkpoint.best_path(tmp_path / "out.nc", "evolution").read_text())
    assert best["can_run"] and best["objectives"] and best["axes"]
    resumed = []
    found, _ = toy_run(spec, tmp_path / "out.nc", progress=resumed.append)
    assert resumed[0].evaluations > calls[0].evaluations
    same_variables(found, toy_run(spec)[0])


def test_a_killed_search_keeps_its_last_checkpoint(tmp_path):
    file = tmp_path / "killed.toml"
    method = 'method = "random"\nevaluations = 1000000000\nseeds = 2'
    file.write_text(text(search=method))
    script = (
        "from dse.optimizers import execute; from tests.unit.sweep import toy;"
        f"execute({str(file)!r}, {str(tmp_path / 'out.nc')!r}, study=toy.STUDY, between_checkpoints=0.0)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=os.getcwd())
    saved = checkpoint.path(tmp_path / "out.nc", "random")
    until = time.monotonic() + 120
    while not saved.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with saved.open("rb") as opened, np.load(opened) as arrays:
        steps = int(arrays["steps"])
    assert steps > 0
    told = []
    toy_run(search(search=method), tmp_path / "out.nc", evaluations=(steps + 10) * 64, progress=told.append)
    assert told[0].evaluations == (steps + 10) * 64 * 2


def test_runs_of_the_same_seeds_are_the_same_and_others_are_not():
    one, again = (toy_run(spec_of(["evolution", "random"]))[0] for _ in range(2))
    same_variables(one, again)
    other, _ = toy_run(spec_of(["evolution", "random"], seeds=[7, 8, 9]))
    assert not np.array_equal(one.best_objective, other.best_objective)


def test_a_larger_number_of_seeds_leaves_each_as_it_is():
    few, many = (toy_run(spec_of("random", seeds=n))[0] for n in (2, 5))
    assert np.array_equal(few.best_objective, many.best_objective.isel(seed=slice(2)))


def test_evaluations_are_counted_exactly():
    found, outcome = toy_run(spec_of(["random", "annealing"], evaluations=650, polish=False))
    assert found.evaluations.sel(searcher="random").values[-1] == 640
    assert found.evaluations.sel(searcher="annealing").values[-1] == 640
    assert outcome.evaluations == {"random": 1920, "annealing": 1920}
    assert found.total_evaluations.values.tolist() == [[640] * 3] * 2
    best = found.best_objective.sel(searcher="random").dropna("step")
    assert best.sizes["step"] == 10 and np.all(np.diff(best, axis=-1) <= 0)


def test_a_budget_of_seconds_ends():
    began = time.monotonic()
    _, outcome = toy_run(spec_of("random"), seconds=0.2)
    assert outcome.evaluations["random"] > 0
    assert time.monotonic() - began < 60


def test_the_file_holds_history_and_best_designs_with_units(tmp_path):
    spec = spec_of(["evolution", "random"])
    made, outcome = toy_run(spec, tmp_path / "out.nc")
    with results.open_results(tmp_path / "out.nc") as found:
        assert found.best_objective.dims == ("searcher", "seed", "step")
        assert found.best_objective.attrs["units"] == "s"
        assert found.memory_bandwidth.attrs["path"] == "system.accelerator.memory.bandwidth"
        assert all("long_name" in variable.attrs for variable in found.variables.values())
        assert found.attrs["title"] == "search" and found.attrs["specification"] == spec.sweep.text
        assert {"source", "sources", "specification_hash", "code_digest"} <= set(found.attrs)
        assert float(found.step_time.min()) == pytest.approx(outcome.designs[0].objectives[0])
        assert np.array_equal(found.tp, made.tp)


def test_the_front_is_that_of_all_designs_when_all_are_evaluated():
    axes = 'tp = [1, 2, 4, 8]\npp = [1, 2]\nmicro_batch = [1, 2]\nrecompute = ["none", "full"]'
    spec = spec_of("random", axes=axes, more=SEVERAL, evaluations=3200)
    found, outcome = toy_run(spec)
    task = plan(spec, toy.STUDY)
    from dse.sweep.engine.engine import SweepEngine

    metrics, objectives = SweepEngine(task.grid).designs(np.arange(task.grid.n_designs))
    from dse.optimizers.pareto import front

    scores = np.stack(objectives, axis=1)[np.asarray(metrics.feasible)]
    expected = scores[front(scores)]
    ours = np.stack([found.front_step_time, found.front_peak_memory], axis=1)
    assert np.allclose(np.sort(ours, axis=0), np.sort(expected, axis=0), rtol=1e-6)
    assert outcome.front_size == len(expected)


def test_where_nothing_is_feasible_the_nearest_miss_is_told():
    _, outcome = toy_run(spec_of("evolution", more="[constraints]\nall = [\"peak_memory <= '1 kB'\"]"))
    assert not outcome.any_feasible
    assert outcome.reasons["constraint"] == 640 * 3
    violations = [design.violation for design in outcome.designs]
    assert violations == sorted(violations) and violations[0] > 0
    assert outcome.designs[0].gap is None


def test_a_best_that_the_model_does_not_confirm_is_an_error(monkeypatch):
    spec = spec_of("random")

    plain = Problem.evaluate_by_numpy

    def other(task, values):
        metrics, objectives = plain(task, values)
        return metrics, tuple(1.01 * objective for objective in objectives)

    monkeypatch.setattr(Problem, "evaluate_by_numpy", other)
    with pytest.raises(MismatchError, match="step_time"):
        toy_run(spec)


def test_a_method_of_a_missing_library_is_bad_input(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymoo", None)
    with pytest.raises(InputError, match=r"extra search"):
        toy_run(spec_of("nsga2"))
