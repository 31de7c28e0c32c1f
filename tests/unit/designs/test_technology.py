"""Nodes, memories and architectures of the catalogue, and the accelerators generated from them."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

import pytest

import dse
from dse import types
from dse.designs import catalog, replace
from dse.designs.catalog import value
from dse.errors import InputError
from dse.model import generated
from dse.types import Chip

SWEEPS = Path(__file__).parents[3] / "sweeps"
REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "hardware"

CHIP = """
source = "a guess"
confidence = "estimate"

[chip]
architecture = "gpu"
node = "n3e"
memory = "hbm4-8-0"
stacks = 6
die_area = "700 mm2"
power_budget = "900 W"
"""


def rows(name):
    path = REFERENCE / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "accelerators").mkdir()
    return tmp_path


def test_nodes_are_the_claims_of_the_foundry():
    claims = [row for row in rows("logic_nodes.csv") if row["series"] == "TSMC"]
    assert len(claims) == 14
    for row in claims:
        node = catalog.record(types.LogicNode, row["node"])
        assert node.energy == float(row["rel_energy_per_op_n7"])
        if row["density_mtr_mm2"]:
            assert node.density == pytest.approx(float(row["density_mtr_mm2"]) * 1e12)
        if row["sram_mb_per_mm2"]:  # Mbit
            assert node.sram_density == pytest.approx(float(row["sram_mb_per_mm2"]) * 1e12 / 8, rel=1e-3)


def test_what_is_no_claim_is_told_apart():
    for slug in catalog.names("node"):
        found = catalog.entry("node", slug)
        energy = found.values["energy"]
        if slug.startswith(("imec-", "extrapolated-")):
            assert energy.confidence == "estimate"
            assert found.value("status") in ("roadmap", "extrapolation")
        assert found.values["leakage"].confidence == "estimate" or found.value("leakage") == 0.0


def test_memories_are_the_rows_of_the_table():
    there = {plain(slug): slug for slug in catalog.names("memory")}
    found = [row for row in rows("memories.csv") if plain(row["name"]) in there]
    assert len(found) >= 40
    for row in found:
        memory = catalog.record(types.MemoryTechnology, row["name"])
        assert memory.unit_bandwidth == pytest.approx(float(row["bw_gbps"]) * 1e9, rel=1e-5)
        assert memory.unit_capacity == pytest.approx(float(row["capacity_gb"]) * 1e9)
        if "KAIST" not in row["source"] and plain(row["name"]) != "hbm411":  # of the series, not of the table
            assert memory.unit_energy == pytest.approx(float(row["energy_pj_per_bit"]) * 8e-12, rel=1e-6, abs=0.0)


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.toml")), ids=lambda path: path.stem)
def test_sweeps_give_a_memory_of_the_market_the_energy_of_the_catalogue(path):
    """What a study varies is cold memory, which nobody knows: rivals have the bits that their catalogue entry has."""
    axes = tomllib.loads(path.read_text(encoding="utf-8")).get("axes", {})
    energies = axes.get("chip.memory.unit_energy")
    for slug, told in zip(axes["accelerator"], energies, strict=True) if energies else ():
        name = catalog.entry("accelerator", slug).value("chip.memory")
        if not name.startswith("cryo-dram"):
            known = catalog.entry("memory", name).value("unit_energy")
            assert value.number(told, "J/B", types.Bounds(), path.name) == pytest.approx(known), slug


def plain(name):
    return "".join(c for c in name.lower() if c.isalnum())


def test_placeholders_say_so():
    for slug in ("cryo-dram-77k", "cryo-dram-4k"):
        found = catalog.entry("memory", slug)
        assert found.values["unit_bandwidth"].confidence == "memory-unverified" and "placeholder" in found.note
    assert "open" in catalog.entry("architecture", "scd").note


def test_a_chip_of_ten_lines(folder):
    (folder / "accelerators" / "mine.toml").write_text(CHIP)
    found = catalog.record(types.Accelerator, "mine", folder=folder)
    assert isinstance(found.chip, Chip)
    assert found.chip.base_area == 0.0
    assert found.chip.base_node == found.chip.node == catalog.record(types.LogicNode, "n3e")
    assert found.chip.core_power == catalog.entry("architecture", "gpu").value("core_power")
    assert catalog.check(folder) == []
    assert ("node", "n3e") in catalog.reachable_entries([("accelerator", "mine")], folder)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"n3e"', '"n3x"', "'n3e'"),
        ('architecture = "gpu"', "", "architecture"),
        ("stacks = 6", "stakcs = 6", "did you mean 'chip.stacks'"),
        ("[chip]", '[matrix_rate]\nbf16 = "1 PFLOP/s"\n\n[chip]', "either matrix_rate, or a chip"),
        ('"700 mm2"', '"700 mm"', "another dimension"),
        ("stacks = 6", "stacks = 6\nmatrix_area = 1.2", "at most 1"),
        ("stacks = 6", "", "chip.stacks"),
    ],
)
@pytest.mark.filterwarnings("ignore::dse.errors.Notice")  # of the same file, which another scan meets first
def test_what_is_wrong_with_a_chip_is_told(folder, old, new, told):
    (folder / "accelerators" / "mine.toml").write_text(CHIP.replace(old, new))
    with pytest.raises(InputError) as caught:
        catalog.record(types.Accelerator, "mine", folder=folder)
    assert told in str(caught.value) and "mine.toml" in caught.value.where


def test_a_chip_that_says_nothing_of_its_links_has_those_of_its_family(folder):
    (folder / "accelerators" / "mine.toml").write_text(f'kernels = "hopper"{CHIP}')
    family = catalog.record(types.Network, "nvlink-4").bandwidth
    assert catalog.record(types.System, "mine", folder=folder).scale_up.bandwidth == family
    design = dse.design("llama-3-70b", "gpu", n_devices=8, tp=8)
    mine = replace(design, {"system": catalog.record(types.System, "mine", folder=folder)})
    assert 1e11 < float(generated(mine).system.scale_up.bandwidth) <= family


def test_generations_of_stacked_memory_are_of_one_series():
    """Energies of one source and kind: a later generation takes no more for a bit than one before."""
    stacks = [catalog.entry("memory", slug) for slug in catalog.names("memory") if slug.startswith("hbm")]
    known = [
        (one.value("year"), catalog.record(types.MemoryTechnology, one.slug).unit_energy)
        for one in stacks
        if one.value("family") == "HBM"
    ]
    assert len(known) > 10
    for year, energy in known:
        assert all(energy <= before for earlier, before in known if earlier < year)


def test_what_is_neither_stated_nor_generated_is_told(folder):
    (folder / "accelerators" / "mine.toml").write_text('source = "a"\nconfidence = "estimate"\n')
    with pytest.raises(InputError, match=r"mine.toml: matrix_rate"):
        catalog.record(types.Accelerator, "mine", folder=folder)
