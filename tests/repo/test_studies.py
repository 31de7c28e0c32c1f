"""Claims of published studies: docs/studies.md has what its generator computes, and a reason for every difference."""

from __future__ import annotations

import shlex
from collections import Counter

import pytest

import dse
from benchmarks.serving import systems
from docs.make.studies.claim import DIFFERS, SETTING, WORDS, Case, Claim, judged, least
from docs.make.studies.page import cells, claims, rows_of
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
CLAIMS = claims()
CASES = list(dict.fromkeys(case.command() for claim in CLAIMS for case in claim.cases))

#: Claims whose values take less than a second.
CHEAP = ("a100-energy", "zero-fits", "zero-volumes", "infinity-fits", "infinity-drives", "fuyou", "datastates", "reft")


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
    assert all(row.why and row.why in PAGE for row in rows if row.verdict in (DIFFERS, SETTING))


def test_every_claim_has_a_line_and_every_difference_a_reason():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS) == PAGE.count("\n|") - 2
    assert "Not explained" not in PAGE
    assert not [claim.name for claim in CLAIMS if claim.word == SETTING and not claim.why]


def test_a_value_outside_its_bounds_differs_and_an_identity_stays_one():
    claim = Claim("a", "b", "c", "d", lambda: (1.0,), (least(2.0),))
    assert judged(claim).verdict == DIFFERS and judged(claim._replace(word=SETTING)).verdict == SETTING
    assert judged(claim._replace(bounds=(least(1.0),))).verdict == "agrees"
    assert judged(claim._replace(ours=None)).verdict == "not checked"
    with pytest.raises(ValueError, match="1 values for 0 intervals"):
        judged(claim._replace(bounds=()))


@pytest.mark.parametrize("command", CASES, ids=lambda one: one[:60])
def test_commands_of_designs_build_them(command):
    """What ``--claim`` prints is a ``dse evaluate`` whose every name is known."""
    from dse.cli.evaluate import design_of
    from dse.doors import STUDIES
    from tests.repo.test_pages import parsed

    _, options = parsed(tuple(shlex.split(command)[1:]))
    keys = ("workload", "system", "settings", "n_devices", "software", "any_option")
    case = next(case for claim in CLAIMS for case in claim.cases if case.command() == command)
    assert design_of(*map(options.get, keys), STUDIES["training"]).design == case.design()


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
