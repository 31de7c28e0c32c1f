"""The table of the best designs: nothing cut off, what is the same said once, the objective shown."""

from __future__ import annotations

import dataclasses

import pytest

import dse
from dse.capabilities.run import best_sections
from dse.io import quantity
from dse.reports import Report
from dse.reports.terminal import plain_text
from dse.sweep import BestDesign, Summary, execute, from_text

LONG = """
title = "long names"
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "eos"
n_devices = 16
accelerator = "gpu"
[axes]
node = ["n5", "extrapolated-a5"]
"chip.power_budget" = ["500 W", "700 W"]
tp = [4, 8]
recompute = ["full"]
[objective]
minimize = "energy_per_step * step_time"
[output]
keep = "best"
"""


@pytest.fixture(scope="module")
def summary(tmp_path_factory) -> Summary:
    return execute(from_text(LONG), tmp_path_factory.mktemp("best") / "r.nc")[1]


def printed(summary: Summary, width: int) -> list[str]:
    return plain_text(Report({}, best_sections(summary)), width=width).splitlines()


def test_nothing_is_cut_off(summary):
    for width in (40, 100, 200):
        lines = printed(summary, width)
        assert not any("…" in line for line in lines)
        assert max(map(len, lines)) <= width
        assert all(any(cell in line for line in lines) for cell in ("extrapolated-a5", " W", " s"))
        assert width < 100 or any("extrapolated-a5" in line and " W" in line and " s " in line for line in lines)


def test_columns_of_time_go_first(summary):
    wide, narrow = (next(line for line in printed(summary, w) if "MFU %" in line) for w in (200, 100))
    assert "comp %" in wide and wide.startswith(narrow) and len(narrow) <= 100 < len(wide)


def test_what_is_the_same_is_said_once(summary):
    lines = printed(summary, 200)
    same = next(line for line in lines if line.startswith("same for all: "))
    assert "recompute full" in same
    assert not any("recompute" in line for line in lines if line is not same)
    alone = dataclasses.replace(summary, best=summary.best[:1])
    assert not any(line.startswith("same for all: ") for line in printed(alone, 200))


def test_rows_of_machines_are_told(summary):
    heading = " ".join(printed(summary, 200)[:2])
    assert "each row is the best mapping of one (node, chip.power_budget)" in heading
    assert "each row" not in " ".join(printed(dataclasses.replace(summary, keep="all"), 200))


def test_the_objective_has_a_column(summary):
    assert any("energy per step * step time" in line for line in printed(summary, 200))
    for design in summary.best:
        product = design.metrics["energy_per_step"] * design.metrics["step_time"]
        assert design.value == pytest.approx(product, rel=1e-6)
    named = dataclasses.replace(summary, objective="average_power")
    assert quantity(summary.best[0].value, "W") in "\n".join(printed(named, 200))
    usual = dataclasses.replace(summary, objective="step_time")
    assert next(line for line in printed(usual, 200) if "MFU %" in line).count("step") == 1


def test_values_are_read_back(summary):
    again = execute(from_text(LONG), summary.output)[1]
    assert again.finished and [d.value for d in again.best] == [d.value for d in summary.best]
    assert again.keep == "best" and again.points == ("node", "chip.power_budget")
    report = dse.run(from_text(LONG), summary.output).dse.report
    assert report["finished"] and report.to_dict()["best"][0]["value"] == again.best[0].value


@pytest.mark.slow
def test_what_is_maximised_has_its_own_sign(tmp_path):
    text = LONG.replace('minimize = "energy_per_step * step_time"', 'maximize = "mfu"')
    summary = execute(from_text(text), False)[1]
    assert isinstance(summary.best[0], BestDesign)
    assert [d.value for d in summary.best] == pytest.approx([d.metrics["mfu"] for d in summary.best])


def test_capacity_is_no_attribute_where_a_chip_makes_it(summary):
    assert "memory_capacity_bytes" not in dse.open_results(summary.output).attrs


WORK = """
title = "batches"
[workload]
name = "gpt-3-13b"
[system]
name = "selene"
n_devices = 64
[axes]
global_batch = [64, 128, 256]
tp = [4, 8]
recompute = ["none", "full"]
"""


@pytest.fixture(
    scope="module",
    params=[
        "best",
        "top:4",
        *(pytest.param(keep, marks=pytest.mark.slow) for keep in ("all", "feasible")),
    ],
)
def batches(request, tmp_path_factory) -> tuple[Summary, Summary, str]:
    """Of a sweep over batches: as it ends, as its file tells it, and what was kept."""
    file, keep = tmp_path_factory.mktemp("work") / "r.nc", request.param
    first, again = (execute(from_text(WORK), file, keep=keep)[1] for _ in range(2))
    assert again.finished
    return first, again, keep


def test_each_workload_has_its_best(batches):
    """By the time of a step the smallest batch would win every place."""
    for summary in batches[:2]:
        if batches[2].startswith("top"):
            assert {design.labels["global_batch"] for design in summary.best} == {64} and len(summary.best) > 1
            assert summary.ranking.startswith("all designs that are kept have global_batch 64; maximize")
            continue
        assert [design.labels["global_batch"] for design in summary.best] == [256, 128, 64]
        rates = [design.metrics["tokens_per_second"] for design in summary.best]
        assert rates == sorted(rates, reverse=True)
        heading = " ".join(printed(summary, 200)[:2])
        assert "the best of each workload (global_batch), most tokens per second first" in heading
        alone = execute(from_text(WORK.replace("[64, 128, 256]", "[128]")), False)[1]
        assert alone.ranking == "" and summary.best[1].value == pytest.approx(alone.best[0].value, rel=1e-6)


def test_another_objective_ranks_the_best_of_each_workload():
    summary = execute(from_text(WORK + '[objective]\nmaximize = "mfu"'), False)[1]
    values = [design.value for design in summary.best]
    assert len(values) == 3 and values == sorted(values, reverse=True)
    assert summary.ranking == "the best of each workload (global_batch)"


def test_a_workload_alone_that_can_run_is_told():
    text = WORK + '[constraints]\nall = ["global_batch > 200"]'
    assert execute(from_text(text), False)[1].ranking == "global_batch 256: designs of no other workload can run"
