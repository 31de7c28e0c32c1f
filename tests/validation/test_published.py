"""Published figures, each with its source and the tolerance the model keeps to."""

from pathlib import Path
from typing import NamedTuple

import pytest

from dse.measured.comparison import Comparison, compare

PUBLISHED = Path(__file__).parents[1] / "published"


class Claim(NamedTuple):
    """Some rows of a file, how many there are, and the largest mean and single error, as fractions."""

    file: str
    source: str
    metric: str
    rows: int
    mean: float
    worst: float


CLAIMS = [
    # Korthikanti et al., MLSys 2023 (arXiv 2205.05198), table 5: A100, four models, full and selective recompute.
    Claim("korthikanti_2022.csv", "Korthikanti2022_table5", "step_time", 8, mean=0.025, worst=0.06),
    # The same, figure 1: computed by the paper's own formulas, so almost exact.
    Claim("korthikanti_2022.csv", "Korthikanti2022_fig1", "peak_memory_state", 8, mean=0.001, worst=0.001),
    Claim("korthikanti_2022.csv", "Korthikanti2022_fig1", "peak_memory_activations", 8, mean=0.001, worst=0.001),
    # Narayanan et al., SC 2021 (arXiv 2104.04473), table 1: micro-batch and interleaving are not published.
    Claim("narayanan_2021.csv", "Narayanan2021_table1", "step_time", 10, mean=0.04, worst=0.10),
    # The same, table 2, the rows with pipelines.
    Claim("narayanan_2021.csv", "Narayanan2021_table2", "step_time", 6, mean=0.05, worst=0.10),
    # Megatron-LM on 8 B200, allocator peak, published with SimuMax v1.2.
    Claim("megatron_b200.csv", "SimuMax", "peak_memory", 8, mean=0.005, worst=0.01),
    Claim("megatron_b200.csv", "SimuMax", "step_time", 8, mean=0.04, worst=0.08),
]


@pytest.fixture(scope="module")
def compared() -> list[Comparison]:
    return compare(sorted(PUBLISHED.glob("*.csv")))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.source}-{claim.metric}")
def test_published_figures_are_met(compared, claim):
    rows = [c for c in compared if c.source.startswith(claim.source) and c.metric == claim.metric]
    assert [c.measurement.row.file for c in rows] == [claim.file] * claim.rows
    assert not [str(c.skip) for c in rows if c.skip is not None]
    errors = {c.measurement.row.line: c.error for c in rows}
    assert sum(map(abs, errors.values())) / claim.rows <= claim.mean, errors
    assert max(map(abs, errors.values())) <= claim.worst, errors


def test_no_published_row_is_skipped(compared):
    assert {str(c.skip) for c in compared if c.skip is not None} == set()


def test_the_model_beats_one_constant_utilisation(compared):
    for claim in CLAIMS:
        rows = [c for c in compared if c.source.startswith(claim.source) and c.metric == claim.metric == "step_time"]
        assert sum(abs(c.error) for c in rows) <= sum(abs(c.baseline_error) for c in rows), claim.source
