"""The best design of results as the page below the explorer."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

import dse
from dse.designs import replace
from dse.errors import InputError
from dse.lab.page import best, lines, model, table
from tests.unit.lab.page.results import many
from tests.unit.lab.page.test_lines import parsed
from tests.unit.lab.page.test_table import CONTINUOUS, of_a_search


def begun(results) -> tuple[dict, table.DesignTable, int]:
    """(data of the page, the table, row of the best design that can run)."""
    shown = table.build(results, 1000)
    begin = best.start(shown, lines.build(shown))
    able = shown.results.feasible.values.reshape(-1)[shown.rows]
    row = int(np.where(able, shown.column(shown.start["x"]).values, np.inf).argmin())
    return model.document(begin), shown, row


@pytest.mark.slow
def test_it_begins_at_the_best_design_with_a_line_that_means_it(small_results):
    results, _ = small_results
    data, shown, row = begun(results)
    values = {leaf["path"]: leaf["value"] for leaf in data["leaves"]}
    assert values["mapping.tp"] == results.tp.values.reshape(-1)[shown.rows[row]]
    settings = [f"--set {shlex.quote(f'{name}={text}')}" for name, text in data["stated"].items()]
    line = " ".join([data["command"].removeprefix("dse evaluate "), f"-n {values['system.n_devices']:.0f}", *settings])
    design = parsed(line, shown.study)
    assert float(design.mapping.tp) == values["mapping.tp"] and design.workload.hidden == values["workload.hidden"]


def test_it_begins_between_the_points_of_a_grid():
    results, _, bandwidth = of_a_search(CONTINUOUS)
    data, _, row = begun(results)
    values = {leaf["path"]: leaf["value"] for leaf in data["leaves"]}
    assert np.float32(values["system.accelerator.memory.bandwidth"]) == bandwidth[row]


def test_results_without_a_specification_are_refused_in_four_parts():
    shown = table.build(many(50), 1000)
    with pytest.raises(InputError, match="dse page"):
        best.start(shown, lines.build(shown))


def test_a_stated_design_computes_those_of_the_results_too(small_results):
    """What a design beside results has otherwise comes with each of theirs; another kind of design is refused."""
    shown = table.build(small_results[0], 1000)
    words = lines.build(shown)
    study = shown.study
    begin = best.start(shown, words)
    stated = study.complete(dse.design("gpt-3-13b", "selene", n_devices=16, tp=4, global_batch=32))
    names = model.CatalogNames("gpt-3-13b", "selene", "megatron-2022", "a100-sxm-80gb")
    data = model.document(best.start_with_results(shown, words, model.Start(study, stated, names)))
    values = {leaf["path"]: leaf["value"] for leaf in data["leaves"]}
    assert values["workload.global_batch"] == 32 and data["base"]["workload.global_batch"] == 64
    theirs = dse.evaluate(begin.design)
    ours = dse.evaluate(replace(model.with_money(stated), data["base"]))
    assert float(ours.step_time) == pytest.approx(float(theirs.step_time), rel=1e-6)
    sparse = study.complete(dse.design("mixtral-8x7b", "h100", n_devices=8))
    with pytest.raises(InputError, match="records of the results"):
        best.start_with_results(shown, words, model.Start(study, sparse, names))
    newer = study.complete(dse.design("gpt-3-13b", "h100", n_devices=16))  # whose stack states a leaf more
    with pytest.raises(InputError, match="records of the results"):
        best.start_with_results(shown, words, model.Start(study, newer, names))
