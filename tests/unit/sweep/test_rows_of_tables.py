"""Every row of the tables of sweeps and searches: merged fields, attributes, numbers, sections, watched leaves."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from dse.designs import all_leaves, catalog
from dse.optimizers.codesign import problem
from dse.spec.space import CATALOGUE_KEYS, SECTIONS
from dse.sweep import plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.reduce import keep as keeping
from dse.sweep.reduce.keep import BlockResult, block_ranges, block_results, merge_results
from dse.sweep.results import catalogue_numbers, declared
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep


@pytest.mark.parametrize("keep", ["all", "feasible"])
def test_results_merge_to_the_same_however_they_are_divided(keep):
    """Field by field, with a histogram."""
    assert keeping._MERGES.keys() == {*BlockResult._fields}
    grid, kept = plan(sweep(MAPPING_AXES, more="[output]\nhistogram = 8"), keep, toy.STUDY)
    merged = []
    for chunk in (7, None):
        engine = SweepEngine(grid, chunk)
        blocks = list(block_results(engine, kept, block_ranges(engine, kept)))
        assert len(blocks) > 1 or chunk is None
        merged.append(merge_results(blocks))
    for name, few, many in zip(BlockResult._fields, *merged, strict=True):
        assert few.size, name
        np.testing.assert_array_equal(few, many, err_msg=name)


def test_every_kind_of_attribute_has_a_rule():
    table = tomllib.loads(Path(declared.__file__).with_name("attributes.toml").read_text(encoding="utf-8"))
    assert {kind for kinds in table.values() for kind in kinds} == declared._RULES.keys()
    for owner, kinds in table.items():
        names = [name for names in kinds.values() for name in names]
        assert len(names) == len(set(names)) == len(declared._rules(owner)), owner


@pytest.mark.parametrize("kind", catalogue_numbers._numbers())
def test_numbers_of_a_kind_are_those_of_its_entries(kind):
    entries = [catalog.entry(kind, slug) for slug in catalog.names(kind)]
    for number in catalogue_numbers._numbers()[kind]:
        assert any(entry.value(number.field) is not None for entry in entries), number.field


def test_sections_name_kinds_of_the_catalogue_and_records_of_a_design():
    assert {kind for kind, _ in CATALOGUE_KEYS.values()} <= {*catalog.kinds()}
    for key, (_, path) in CATALOGUE_KEYS.items():
        assert any(leaf.startswith(f"{path}.") for leaf in all_leaves()), key
    assert sorted(axis for keys in SECTIONS.values() for axis in keys.values()) == sorted(CATALOGUE_KEYS)


def test_watched_leaves_are_leaves():
    assert {*problem._watched_leaves()} <= all_leaves().keys()
