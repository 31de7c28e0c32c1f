"""The step side of the calibration: a joint fit of stacks, its priors, and what it writes."""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from dse import types
from dse.designs import catalog
from dse.errors import InputError
from dse.lab.fits import stacks, step_priors, steps
from dse.lab.fits.jobs import JOBS
from dse.lab.fits.step_rows import StepRows
from dse.lab.fits.writing import write_catalog
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import compare_predictions
from dse.measured.names import Lookup

PUBLISHED = [Path(__file__).parents[3] / "published" / name for name in ("korthikanti_2022.csv", "narayanan_2021.csv")]
SHARED = Path(__file__).parents[5] / "shared" / "reference" / "measured"
TABLES = [SHARED / name for name in ("training.csv", "training_a100_vtrain.csv", "training_b200_simumax.csv")]


@pytest.fixture(scope="module")
def found() -> steps.Calibration:
    """Some of the published rows that come with the package, all of one kind of design."""
    return steps.calibrate(PUBLISHED, k=2, rounds=1, progress=lambda _: None)


def test_every_row_is_held_out_once(found):
    assert np.isfinite(found.unseen).all() and np.isfinite(found.foreign).all()
    assert len(found.unseen) == len(found.rows.measured) > 20
    assert steps.mean_error(found.solution.errors) <= steps.mean_error(found.unseen) + 0.01


def test_rows_of_one_source_are_enough(found):
    """What a user has measured is one source: fits without it would be of nothing, and are not shown."""
    alone = dataclasses.replace(found.rows, sources=np.full(len(found.rows.sources), "ours"))
    steps.check_enough(alone, 2)
    one, several = (JOBS["steps"].summary(dataclasses.replace(found, rows=rows)) for rows in (alone, found.rows))
    assert several.header[-1] == "source left out" and one.header == several.header[:-1]
    assert {len(row) for row in one.rows} == {len(one.header)}
    with pytest.raises(InputError, match="several configurations"):
        steps.check_enough(dataclasses.replace(alone, groups=np.full(len(alone.groups), "one")), 2)


def test_no_stack_has_more_than_five_values_of_its_own(found):
    assert all(len(names) <= 5 for names in found.parameters_by_stack.values())
    assert all(set(names) <= set(steps.NAMES) for names in found.parameters_by_stack.values())


def test_the_fit_is_a_minimum(found):
    """A second solution from elsewhere finds the same values."""
    start = found.solution.z + 0.3
    again = steps.solve(found.rows, found.parameters_by_stack, found.rows.weights, start)
    assert np.abs(again.errors - found.solution.errors).max() < 0.01


def test_rows_that_state_their_stack_are_fitted(tmp_path):
    table = tmp_path / "ours.csv"
    table.write_text(
        "model,system,software,n_gpus,global_batch,seq_len,tp,pp,micro_batch,vp,recompute,iteration_s_measured\n"
        "gpt-22b,selene,megatron-2022,8,4,2048,8,1,4,1,full,1.42\n"
    )
    rows = steps.rows_of(compare_predictions(predict_cases(read_cases(table))), Lookup().kernel_families)
    assert list(rows.stacks) == ["megatron-2022"]


def test_tables_whose_rows_state_their_mapping_have_errors(found, monkeypatch):
    monkeypatch.setattr(StepRows, "completed", np.zeros(len(found.rows.measured), bool))
    names = [errors.source for errors in stacks.errors_by_source(found)]
    assert stacks.EXPLICIT_MAPPING in names and stacks.COMPLETED_MAPPING not in names


def test_rows_without_weight_say_nothing(found):
    silent = steps.solve(found.rows, found.parameters_by_stack, 0.0 * found.rows.weights)
    assert np.abs(silent.z).max() < 1e-6
    assert np.allclose(silent.spread, 1.0)
    assert silent.value("megatron-2021", "matrix_slowdown") == pytest.approx(1.15, rel=1e-6)


def test_a_stack_without_rows_gets_what_is_shared(found):
    assert found.values("nothing-known")["host_time"] == pytest.approx(found.solution.value("", "host_time"))
    assert found.informed_parameters("nothing-known") == []


def test_a_fit_starts_from_what_is_published_of_a_kernel(found):
    """Of a stack's attention alone, relative to what stacks share: 1.75 times for FlashAttention-2 on Hopper."""
    silent = steps.solve(found.rows, found.parameters_by_stack, 0.0 * found.rows.weights)
    of_two = silent.value("torchtitan", "flash_slowdown") / silent.value("nemo", "flash_slowdown")
    assert of_two == pytest.approx(catalog.entry("software", "torchtitan").value("flash_published"), rel=1e-6)
    others = set(steps.NAMES) - {"flash_slowdown"}
    assert all(silent.value("torchtitan", name) == silent.value("nemo", name) for name in others)


def test_values_beyond_their_range_are_told():
    """A step's attention is slowed as its matrices are, so that its range is that of both."""
    values = {"matrix_slowdown": 1.3, "flash_slowdown": 0.7, "communication_slowdown": 0.9}
    assert [step_priors.is_physical(name, values) for name in values] == [True, True, False]
    assert not step_priors.is_physical("flash_slowdown", values | {"matrix_slowdown": 1.0})


def test_values_are_written_where_they_were(found, tmp_path):
    folder = tmp_path / "software"
    folder.mkdir()
    for path in (catalog.catalog_root() / "software").glob("*.toml"):
        (folder / path.name).write_text(path.read_text())
    write_catalog(stacks.revisions(found, tmp_path), tmp_path)
    for stack in found.stacks:
        written, before = catalog.record(types.Software, stack, folder=tmp_path), catalog.record(types.Software, stack)
        for name, value in found.values(stack).items():
            assert getattr(written, name) == pytest.approx(value, rel=6e-3)
        fitted = {name: getattr(before, name) for name in steps.NAMES}
        assert dataclasses.replace(written, **fitted) == before, "nothing else changes"
    for stack in ("calculon", "vllm", "tensorrt-llm-2023", "fastertransformer"):
        kept = catalog.catalog_root() / "software" / f"{stack}.toml"
        assert (folder / kept.name).read_text() == kept.read_text()


def test_a_folder_that_is_no_catalogue_is_refused(found, tmp_path):
    with pytest.raises(InputError, match="no folder software"):
        stacks.revisions(found, tmp_path)


def test_the_report_is_toml(found):
    import tomllib

    document = tomllib.loads(stacks.document(found))
    assert document["source"]["all"]["rows"] == len(found.rows.measured)
    assert set(document["software"]) == set(found.stacks)
    assert document["shared"].keys() == set(steps.NAMES)


def test_chips_have_their_family():
    chips = Lookup().kernel_families
    for slug, family in (("a100-sxm-40gb", "ampere"), ("h100-sxm-80gb", "hopper"), ("b200-sxm-180gb", "blackwell")):
        device = catalog.record(types.Accelerator, slug)
        assert chips[device.matrix_rate, device.cores] == family


#: Source (prefix) → mean error of rows whose configuration a fit has not seen, at most.
UNSEEN = {
    "Korthikanti2022_table5": 0.025, "Narayanan2021_table1": 0.04, "vTrain_multi": 0.08, "vTrain_single": 0.07,
    "SimuMax": 0.04, "llm-foundry": 0.05, "NeMo_24.07": 0.05, "NeMo-Launcher": 0.05, "NeMo_longseq": 0.065,
    "Megatron-Core": 0.06, "Megatron-LM": 0.05, "Megatron-Bridge_25.09": 0.05, "Megatron-Bridge": 0.10,
    "torchtitan_2024": 0.08,
}  # fmt: skip

#: Sources within their bounds before the reference tables had grown, until the next fit.
GROWN = ("Megatron-Bridge_25.09",)


@functools.cache
def named_sources() -> tuple[str, ...]:
    """How the sources begin that some stack of the catalogue ran in, or some cluster that has one."""
    entries = (catalog.entry(kind, name) for kind in ("software", "system") for name in catalog.names(kind))
    return tuple(source.partition(" | ")[0] for entry in entries for source in entry.measured_sources)


def has_stack(row: dict[str, str]) -> bool:
    """Whether a stack of the catalogue names the source of a row; none describes FSDP under a pipeline."""
    if row["zero_stage"] == "3" and row["pp"] not in ("", "1"):
        return False
    return row["source"].startswith(named_sources()) or row["gpu"].startswith("TPU")  # one stack a TPU


#: Sources of another release and chip than the stack that stands in for theirs → their steps. A row that is a source of
#: its own weighs as much as 2.6 of the seven of 2024: with it their unseen errors are 10.6 %, without 7.3 %.
LATER = {"torchtitan_2025-06_H200": 1}


def split(folder: Path) -> dict[str, Path]:
    """The table of training: its rows that a stack describes, those of a later release, and the others."""
    with TABLES[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    later = [row for row in rows if row["source"] in LATER]
    described = [row for row in rows if row not in later and has_stack(row)]
    parts = {"described": described, "later": later, "others": [r for r in rows if r not in later and not has_stack(r)]}
    for name, part in parts.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(part)
    return {name: folder / f"{name}.csv" for name in parts}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, Path]:
    if not TABLES[0].exists():
        pytest.skip("the measured tables are not beside this checkout")
    return split(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def measured(tables) -> steps.Calibration:
    return steps.calibrate([tables["described"], *TABLES[1:]], k=5, rounds=1, progress=lambda _: None)


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="no stack models plain FSDP with tiled losses, or FSDP under a pipeline")
def test_rows_that_no_stack_describes_are_predicted(tables):
    compared = compare_predictions(predict_cases(read_cases(tables["others"])))
    errors = [abs(one.error) for one in compared if one.skip is None and one.metric != "peak_memory"]
    assert len(errors) >= 8
    assert np.mean(errors) <= 0.15


def worst_unseen(found: steps.Calibration, start: str) -> float:
    return max(e.unseen for e in stacks.errors_by_source(found) if e.source.startswith(start))


@pytest.mark.slow
@pytest.mark.parametrize(("start", "bound"), [row for row in UNSEEN.items() if row[0] not in GROWN])
def test_errors_of_unseen_configurations(measured, start, bound):
    assert worst_unseen(measured, start) <= bound


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="5.6 % since the reference tables have grown: the fit of the catalogue is older")
@pytest.mark.parametrize("start", GROWN)
def test_errors_of_unseen_configurations_of_grown_tables(measured, start):
    assert worst_unseen(measured, start) <= UNSEEN[start]


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="one row on H200, where the stack has no other: what is unseen is the chip too")
def test_errors_of_a_later_release_of_torchtitan(tables, measured):
    errors = errors_of_later(tables, measured)
    assert max(map(abs, errors)) <= UNSEEN["torchtitan_2024"]


@pytest.mark.slow
def test_every_step_of_a_later_release_is_predicted(tables, measured):
    assert len(errors_of_later(tables, measured)) == sum(LATER.values())


def errors_of_later(tables: dict[str, Path], found: steps.Calibration) -> list[float]:
    """Errors of the steps of later releases, by stacks that were fitted without them."""
    lookup = steps.fitted_lookup(Lookup(), found.solution)
    compared = compare_predictions(predict_cases(read_cases(tables["later"]), lookup))
    return [one.error for one in compared if one.skip is None and one.metric != "peak_memory"]


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="one or two rows of a kind: folds leave out all of FSDP on Blackwell")
def test_errors_of_later_releases_of_megatron_bridge(measured):
    assert worst_unseen(measured, "Megatron-Bridge") <= UNSEEN["Megatron-Bridge_25.09"]


@pytest.mark.slow
def test_errors_of_unseen_mixtures_of_experts(measured):
    assert np.median(np.abs(measured.experts.errors["configuration left out"])) <= 0.10


@pytest.mark.slow
def test_errors_of_mixtures_of_experts(measured):
    """Median of points whose chips were not seen in their range of releases, beside the baseline."""
    sizes = {name: np.median(np.abs(errors)) for name, errors in measured.experts.errors.items()}
    assert sizes["cell left out"] <= 0.10
    assert sizes["cell left out"] < 0.5 * sizes["constant MFU of other cells"]
    values, spread = measured.experts.values, measured.experts.fit.spread["software.experts.grouped_efficiency"]
    assert values["grouped_efficiency"] * np.exp(spread) >= 0.75 and values["grouped_efficiency"] <= 1.0
    assert spread <= 0.05 and 5e-6 <= values["expert_time"] <= 1e-4


@pytest.mark.slow
def test_errors_of_all_unseen_configurations(measured):
    everything = stacks.errors_by_source(measured)[-1]
    assert everything.unseen <= 0.08 and everything.unseen_median <= 0.05
    assert everything.rows >= 700
    assert 0.75 <= stacks.coverage(measured) <= 0.85, "80 % intervals"


@pytest.mark.slow
def test_measured_steps_fit(measured):
    """But for ZeRO 3 on 640 A100 of 2021, whose activations and gathered layers we count 95 of 78 GiB."""
    over = [c.source for c in measured.rows.compared if "over capacity" in c.prediction.note]
    assert set(over) <= {"Narayanan2021_table2"} and len(over) <= 1


@pytest.mark.slow
def test_errors_of_sources_left_out(measured):
    everything = stacks.errors_by_source(measured)[-1]
    assert everything.foreign <= 0.12
    assert stacks.mean_source_error(measured, measured.foreign) <= 0.10


@pytest.mark.slow
def test_intervals_of_sources_left_out(measured):
    assert 0.75 <= stacks.coverage(measured, foreign=True) <= 0.85, "80 % intervals"


@pytest.mark.slow
def test_solving_again_finds_the_same(measured):
    assert measured.solution.errors == pytest.approx(
        steps.solve(measured.rows, measured.parameters_by_stack, measured.rows.weights, measured.solution.z).errors,
        abs=0.01,
    )
