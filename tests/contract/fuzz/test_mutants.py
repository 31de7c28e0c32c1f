"""Documents made wrong are understood or refused in four parts: no traceback, no hang, nothing left behind.

``make fuzz`` tries more of them, and so does ``--hypothesis-profile=fuzz``.
"""

from __future__ import annotations

import random

import pytest

from tests.conftest import full_size
from tests.contract.fuzz import doors, mutants
from tests.contract.fuzz.corpus import ROOT, faults


def test_mutants_of_documents(tmp_path):
    found = list(faults(full_size(80, 2000), seed=1, folder=tmp_path))
    assert not found, "\n".join(f"{name}: {fault}\n{text[:400]}" for name, text, fault in found[:3])


@pytest.mark.parametrize("expression", mutants.EXPRESSIONS)
def test_expressions_that_are_none(expression, tmp_path):
    sweep = (ROOT / "sweeps" / "megatron_1t_4096_a100.toml").read_text()
    path = tmp_path / "sweep.toml"
    path.write_text(f'{sweep}\n[constraints]\nall = ["{mutants.quoted(expression)}"]\n')
    assert doors.fault_of(doors.sweep, path) == ""


@pytest.mark.parametrize("place", ["global_batch", "n_devices", "name", "tp", "limit", "seeds", "evaluations"])
def test_values_that_no_place_is_glad_of(place, tmp_path):
    text = (ROOT / "sweeps" / "search_gpt3_mapping.toml").read_text() + "\n[output]\nlimit = 10\n"
    path = tmp_path / "search.toml"
    rng = random.Random(place)
    for value in rng.sample(mutants.TOML_VALUES, full_size(8, len(mutants.TOML_VALUES))):
        lines = [f"{place} = {value}" if line.startswith(f"{place} =") else line for line in text.split("\n")]
        path.write_text("\n".join(lines))
        assert doors.fault_of(doors.search, path) == "", f"{place} = {value[:100]}"


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        (
            '"memory.bandwidth" = { from = "1 TB/s", to = "9 TB/s", count = 100000 }\n'
            '"memory.capacity" = { from = "10 GB", to = "900 GB", count = 100000 }\n'
            '"scale_out.bandwidth" = { from = "10 GB/s", to = "90 GB/s", count = 100000 }',
            "hours",
        ),
        (
            "offload_optimizer = { from = 0.0, to = 1.0, count = 100000 }\n"
            "recompute_share = { from = 0.1, to = 1.0, count = 100000 }",
            "combinations",
        ),
    ],
)
def test_grids_that_never_end_are_refused_at_once(axes, told, tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(
        '[workload]\nname = "gpt-3-13b"\n[system]\nname = "eos"\nn_devices = 64\n[output]\nkeep = "top:1"\n'
        f'[axes]\ntp = "divisors"\n{axes}\n'
    )
    from dse.errors import InputError

    with pytest.raises(InputError, match=told):
        doors.sweep(path)
    assert doors.fault_of(doors.sweep, path) == ""
