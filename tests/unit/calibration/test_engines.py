"""Errors of engines by fits without a group of rows."""

from typing import NamedTuple

import numpy as np
import pytest

from calibration import engines
from dse.lab.fits.fit import FitProblem

COUNT = len(engines.PARAMETERS)
#: Log times of the rows of two engines of one code base, which the first parameter adds to.
TIMES = {"vllm-2025": np.array([0.3, 0.3, 0.5, 0.5]), "vllm-2026": np.array([0.4, 0.4])}


class Rows(NamedTuple):
    """Rows of an engine whose figures follow its first parameter."""

    stack: str
    times: np.ndarray
    sources: np.ndarray

    def residuals(self, zs: np.ndarray) -> np.ndarray:
        return zs[:, :1] - self.times


def problem_of(rows: Rows) -> FitProblem:
    """Priors so wide that rows decide."""
    slopes = np.zeros((len(rows.times), COUNT))
    slopes[:, 0] = 1.0
    weights = np.ones(len(rows.times))
    return FitProblem(
        lambda z: rows.residuals(z[None])[0], lambda z, errors: slopes, weights, 1e-3, 1.0, np.ones(COUNT)
    )


@pytest.fixture
def errors():
    rows = [Rows(stack, times, np.full(len(times), stack)) for stack, times in TIMES.items()]
    problems = [problem_of(one) for one in rows]
    alone = [problem.solve().z for problem in problems]
    labels = [["a", "a", "b", "b"], ["a", "b"]]
    return (
        engines.left_out_errors(rows, problems, alone, labels),
        engines.left_out_errors(rows, problems, alone, [[one.stack] * len(one.times) for one in rows]),
        alone,
    )


def test_rows_are_judged_by_a_fit_without_their_group(errors):
    """By hand: without the rows at 0.3 those at 0.5 are left, which are 0.2 above."""
    groups, _, _ = errors
    assert groups[0] == pytest.approx([0.2, 0.2, -0.2, -0.2], abs=1e-3)
    assert groups[1] == pytest.approx([0.0, 0.0], abs=1e-3)


def test_an_engine_without_rows_is_what_its_kin_say(errors):
    """Nine tenths of the other release, the only one of the code base with rows, and a tenth of the general prior."""
    _, releases, alone = errors
    assert releases[1] == pytest.approx(0.9 * alone[0][0] - TIMES["vllm-2026"], abs=1e-3)
    assert releases[0] == pytest.approx(0.9 * alone[1][0] - TIMES["vllm-2025"], abs=1e-3)


def test_strangers_are_chips_releases_engines_and_models():
    assert list(engines.RINGS) == ["chip", "release", "engine", "model"]
    row = {"model": "Llama-3.1-8B"}
    assert engines.RINGS["engine"]("vllm-2026", row) == engines.RINGS["engine"]("vllm-2025", row) != "vllm-2026"
    assert (
        engines.RINGS["release"]("vllm-2026", row) == "vllm-2026" and engines.RINGS["model"]("", row) == "Llama-3.1-8B"
    )


def test_an_edition_for_one_vendor_keeps_the_host_of_its_code_base():
    """Rows of one model cannot tell times of a step from those of its layers."""
    host = [parameter.path in engines.OF_HOST for parameter in engines.PARAMETERS]
    for stack, of_host, of_kernels in (("vllm-rocm", 0.3, 2.0), ("vllm", 1.0, 1.0), ("tensorrt-llm", 1.0, 1.0)):
        found = engines.priors_of(stack)
        assert {*found[host]} == {of_host} and {*found[~np.array(host)]} == {of_kernels}, stack
