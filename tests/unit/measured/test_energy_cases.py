"""Rows of power limits and clocks: what each stands beside, and why others are skipped."""

import csv

import pytest

from dse import predict, validate
from dse.measured.comparison import compare

COLUMNS = (
    "config_id", "source", "model", "gpu", "n_gpus", "precision", "batch", "isl", "workload", "power_limit_W",
    "metric", "value", "unit",
)  # fmt: skip


def trace(limit, metric, value, **changes):
    row = dict(
        config_id=f"z{limit}",
        source="Zeus_power_trace",
        model="BERT-base-squad",
        gpu="P100",
        n_gpus=1,
        batch=8,
        workload="training",
        power_limit_W=limit,
        metric=metric,
        value=value,
    )
    return row | changes


def cell(metric, value):
    return dict(
        config_id="f",
        source="Froening_A30_DVFS",
        model="GPT-125M",
        gpu="A30-24GB",
        isl=512,
        metric=metric,
        value=value,
        unit="%",
    )


@pytest.fixture
def table(tmp_path):
    def write(*rows):
        path = tmp_path / "energy.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


LIMITS = [
    trace(125, "time_per_epoch", 110.0), trace(125, "avg_power_total", 120.0),
    trace(250, "time_per_epoch", 100.0), trace(250, "avg_power_total", 160.0),
]  # fmt: skip


def test_a_limit_is_compared_with_the_highest_of_its_group(table):
    found = {c.metric: c for c in compare(table(*LIMITS)) if c.skip is None}
    assert found["relative_time"].measured == pytest.approx(1.1)
    assert found["relative_power"].measured == pytest.approx(0.75)
    assert found["relative_time"].predicted >= 1.0 >= found["relative_power"].predicted
    (row,) = [r for r in validate(table(*LIMITS))["rows"] if r["metric"] == "relative_time"]
    assert (row["source"], row["predicted"]) == ("Zeus_power_trace", 1)


def test_groups_are_apart(table):
    rows = [*LIMITS, *(row | dict(batch=4, config_id=row["config_id"] + "b") for row in LIMITS)]
    assert sum(c.skip is None for c in compare(table(*rows))) == 4


def test_the_clock_study_becomes_relative_energy_and_time(table):
    rows = [cell("dvfs_energy_saving", 30.0), cell("dvfs_runtime_penalty", 20.0)]
    found = {c.metric: c for c in compare(table(*rows))}
    assert found["relative_energy"].measured == pytest.approx(0.7)
    assert found["relative_time"].measured == pytest.approx(1.2)
    assert found["relative_energy"].predicted < 1.0 < found["relative_time"].predicted


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (dict(source="ML.ENERGY_v3", config_id="m", metric="avg_power_total"), "unknown shape"),  # it serves
        (dict(source="mine", config_id="m"), "no study of energy that is known"),
        (dict(gpu="no such chip"), "unknown accelerator"),
        (dict(model="BERT-base-of-nothing"), "unknown data set"),
        (dict(value="nan"), "no usable number"),
        (dict(batch=""), "no usable number"),
        (dict(power_limit_W="x"), "no usable number"),
    ],
)
def test_what_cannot_be_compared_says_why(table, changes, reason):
    rows = [row | dict(gpu=changes.get("gpu", "P100")) for row in LIMITS[2:]]
    rows = [row | {k: v for k, v in changes.items() if k in ("batch", "model")} for row in rows]
    skips = {c.skip.reason for c in compare(table(LIMITS[0] | changes, *rows)) if c.skip}
    assert reason in skips


def test_predict_adds_the_relative_figures(table, tmp_path):
    counts = predict(table(*LIMITS), tmp_path / "out.csv")["all"]
    assert counts == {"n": 4, "predicted": 2, "skipped": {"the reference of its group": 2}, "misspelt": {}}
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["pred_relative_time"]) >= 1.0
    assert rows[2]["skipped"] == "the reference of its group"
