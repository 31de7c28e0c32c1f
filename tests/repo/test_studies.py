"""Claims of published studies: docs/studies.md has what its generator computes, and a reason for every difference."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections import Counter

import numpy as np
import pytest

import dse
from benchmarks.serving import systems
from docs.make.studies import costs, energy, training
from docs.make.studies.claim import (
    AGREES,
    ANY,
    DIFFERS,
    FITTED,
    IDENTITY,
    LAW,
    NO_FIGURE,
    SETTING,
    WORDS,
    Case,
    Claim,
    about,
    between,
    judged,
    least,
    reached,
)
from docs.make.studies.page import NEED_A_REASON, cells, claims, rows_of
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
CLAIMS = claims()
CASES = list(dict.fromkeys(case.command() for claim in CLAIMS for case in claim.cases))

#: Claims whose values take less than a second.
CHEAP = ("a100-energy", "reads", "zero-fits", "infinity-fits", "infinity-drives", "fuyou", "datastates", "reft", "c4")


def line(claim_cells: list[str]) -> str:
    return "|" + "|".join(claim_cells) + "|"


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_rows_are_those_of_the_page(name):
    rows = rows_of(name)
    assert rows and all(line(cells(row)) in PAGE for row in rows)


@pytest.mark.slow
def test_the_page_is_what_its_generator_writes():
    rows = rows_of("")
    assert [line(cells(row)) for row in rows if line(cells(row)) not in PAGE] == []
    counts = Counter(row.verdict for row in rows)
    assert all(f"*{word}* ({counts[word]})" in PAGE for word in WORDS)
    assert all(row.why in PAGE for row in rows if row.why or row.verdict in NEED_A_REASON)
    assert f"{len(rows)} claims" in PAGE and counts[AGREES] > 0


def test_every_claim_has_a_line_and_every_difference_a_reason():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) == PAGE.count("\n|") - 2
    assert "Not explained" not in PAGE
    assert not [claim.name for claim in CLAIMS if claim.word in (SETTING, FITTED) and not claim.why]


def test_published_is_a_figure_or_a_dash():
    """Bars of ours stand in the claim; what has no figure of a source can at most keep a law or be an identity."""
    assert not [one.name for one in CLAIMS if one.published != NO_FIGURE and not any(map(str.isdigit, one.published))]
    assert {one.word for one in CLAIMS if one.published == NO_FIGURE} == {LAW, IDENTITY}


def test_what_agrees_has_two_sides():
    """Nine times what was reached at least is no agreement; a value without a figure is shown and not judged."""
    for claim in CLAIMS:
        if claim.word in (AGREES, FITTED, SETTING):
            assert all(bounds == ANY or all(map(math.isfinite, bounds)) for bounds in claim.bounds), claim.name
            assert any(bounds != ANY for bounds in claim.bounds), claim.name
    assert reached(25.0) == (25.0, 30.0) and between(2.0, 4.0) == pytest.approx((1.8, 4.4))


def test_what_is_from_memory_is_not_judged():
    assert {claim.word for claim in CLAIMS if "*" in claim.study} == {"not checked"}


def test_every_study_of_the_list_has_a_verdict():
    studies = {claim.study.removesuffix(" \\*") for claim in CLAIMS}
    assert studies >= {
        "Optimus", "SCD", "Performance and cost", "GraphCulon", "A30 clocks", "45 → 7 nm", "Calculon", "Megatron",
        "ZeRO", "Frontier", "MegaScale", "ZeRO-Infinity", "Deep Optimizer States", "Superpipeline", "Fuyou", "Holmes",
        "DataStates", "REFT", "C4", "NeMo", "GenZ", "Long context", "NanoFlow", "Splitwise", "POLCA", "InstInfer",
        "Block formats", "SN40L", "EnergonAI", "Cryogenic cores", "Governance",
    }  # fmt: skip
    assert all(claim.ours for claim in CLAIMS)


def test_every_cell_of_the_talk_has_a_row_and_the_doubtful_one_is_in_no_mean(monkeypatch):
    rows = [claim for claim in CLAIMS if claim.name.startswith("clocks-") and "/" in claim.published]
    assert [one.published for one in rows] == [f"{a:.1f}/{b:.1f}" for a, b in energy.SLIDES.values()] and len(rows) == 9
    assert Counter(one.word for one in rows) == {FITTED: 4, AGREES: 5}
    monkeypatch.setattr(
        energy, "cell", lambda layer: np.add(energy.SLIDES[layer], (1.0, -3.0 if "13b" in layer[0] else 1.0))
    )
    assert energy.mean_errors(True) == pytest.approx((1.0, 2.0)) and energy.mean_errors(False) == pytest.approx(
        (1.0, 1.0)
    )
    assert energy.mean_errors() == pytest.approx((1.0, 1.5))
    monkeypatch.setattr(energy, "cell", energy.SLIDES.__getitem__)
    assert energy.forest() == (0.0, 0.0, 0.0)


def test_mappings_of_the_sweep_take_as_long_event_by_event():
    """“The same ballpark”: the page has 300; these are others of the same sweep, drawn with the same seed."""
    differences = np.abs(training.ballpark(16) - 1.0)
    assert differences.mean() < 0.02 and differences.max() < 0.1


def test_the_bubble_alone_bounds_the_gain_of_interleaving():
    """12 stages: (1 + 11 / m) / (1 + 11 / 2 m)."""
    assert training._bubble_alone() == pytest.approx((23 / 12 / (1 + 11 / 24), 71 / 60 / (1 + 11 / 120)))


def test_a_value_outside_its_bounds_differs_whatever_else_is_true_of_it():
    claim = Claim("a", "b", "c", "d", lambda: (1.0,), (least(2.0),))
    assert {judged(claim._replace(word=word)).verdict for word in WORDS} == {DIFFERS}
    assert judged(claim._replace(bounds=(about(1.0),), word=SETTING)).verdict == SETTING
    assert judged(claim._replace(bounds=(least(1.0),))).verdict == "agrees"
    assert judged(claim._replace(ours=None)).verdict == "not checked"
    with pytest.raises(ValueError, match="1 values for 0 intervals"):
        judged(claim._replace(bounds=()))


@pytest.mark.parametrize("command", CASES, ids=lambda one: one[:60])
def test_commands_of_designs_build_them(command):
    """What ``--claim`` prints is a ``dse evaluate`` whose every name is known."""
    from dse.capabilities.designs import DesignOptions
    from dse.doors import STUDIES
    from tests.repo.test_pages import parsed

    _, options = parsed(tuple(shlex.split(command)[1:]))
    case = next(case for claim in CLAIMS for case in claim.cases if case.command() == command)
    stated = {field.name: options.get(field.name) for field in dataclasses.fields(DesignOptions)}
    assert DesignOptions(**stated).request(STUDIES["training"]).design == case.design()


def test_a_command_has_the_number_of_devices_once():
    assert Case("a", "b", None, {"n_devices": 8, "tp": 2}).command() == (
        "dse evaluate -w a -s b --any-option -n 8 --set tp=2"
    )


def test_the_latency_table_is_that_of_its_sweep():
    """The claims name the sweep as their command: it has the same designs."""
    found = dse.run(ROOT / "sweeps" / "llama2_latency.toml", output=False).set_index(mapping="tp").request_latency
    for check in systems.optimus():
        model, tp, device = check.what.partition(":")[0].split(", ")
        point = found.sel(workload=model, mapping=int(tp.removeprefix("tp ")), accelerator=device)
        assert 1e3 * float(point) == pytest.approx(check.ours, rel=1e-5)


#: Laws that take seconds; those of clocks have tests of their own.
LAWS = (
    "attention",
    "five-dimensions",
    "all-to-all",
    "topology",
    "parallelism",
    "c4-detection",
    "layer-energy-large",
    "reads",
)


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_cost_and_energy_hold(name):
    rows = rows_of(name)
    assert rows and not [row.claim.name for row in rows if row.verdict == DIFFERS]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chiplet", "scd-"])
def test_laws_of_chiplets_and_superconducting_boards_hold(name):
    rows = rows_of(name)
    assert len(rows) == 2 and not [row.claim.name for row in rows if row.verdict == DIFFERS]


def test_networks_trade_time_for_money_as_their_prices_say():
    """Mixtral-8x22B on 2,048 H100: a quarter of the top of the tree costs 0.2 % of time and saves 4 to 5 % of money."""
    full, thin, _, slow, _ = costs.networks().values()
    assert thin[0] / full[0] == pytest.approx(1.002, abs=0.004) and 0.04 < 1.0 - thin[1] / full[1] < 0.05
    assert slow[0] / full[0] == pytest.approx(1.6, abs=0.1) and slow[2] < 0.75 * full[2]
    for _, money, operations in costs.networks().values():  # FLOP per USD is FLOP of the run over its money
        assert money * operations == pytest.approx(full[1] * full[2], rel=1e-4)


def test_the_schedules_of_the_talk_hold_what_they_must():
    """GPipe has all micro-batches in flight, 1F1B as many as stages; (p - 1) / m of bubble; a path without a gap."""
    in_flight, stages, bubble, path = training._schedules()
    assert (in_flight, stages) == (64.0, 8.0)
    assert bubble == pytest.approx(100.0 * 7 / 64, rel=0.03) and path == pytest.approx(1.0, abs=1e-3)
