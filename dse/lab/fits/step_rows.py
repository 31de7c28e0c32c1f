"""Measured steps as arrays: chosen designs, times and slopes by the model, and their fit problem."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.designs import leaf, leaf_path, replace
from dse.errors import InputError
from dse.lab.fits.fit import FitProblem, Parameter
from dse.lab.fits.step_priors import NOT_FITTED, is_levelled
from dse.measured import Comparison, rules
from dse.measured.comparison import is_timed, step_time
from dse.measured.completion import SEARCHED
from dse.measured.prediction import evaluate_batch, group_by_structure
from dse.types import Design, Workload

#: Weight of a figure that its collector quotes from memory.
FROM_MEMORY = 0.2


@dataclasses.dataclass(frozen=True)
class StepRows:
    """Measured steps as arrays, one entry per row: chosen designs and measurements."""

    structures: list[tuple[list[int], Design]]  #: rows of designs of one structure, and these as one of arrays
    measured: np.ndarray  #: log of the step time in s
    stacks: np.ndarray
    families: np.ndarray  #: of chips
    sources: np.ndarray
    groups: list[tuple[float, ...]]  #: rows of one configuration
    compared: list[Comparison]

    @classmethod
    def from_comparisons(cls, compared: Sequence[Comparison], chips: dict[object, str]) -> StepRows:
        """Return the rows of comparisons; ``chips``: (rates, cores) of an accelerator → its family."""
        designs = [c.prediction.chosen for c in compared]
        return cls(
            structures=list(group_by_structure(designs)),
            measured=np.log([step_time(c) for c in compared]),
            stacks=np.array([c.prediction.stack for c in compared]),
            families=np.array([chips[d.system.accelerator.matrix_rate, d.system.accelerator.cores] for d in designs]),
            sources=np.array([c.source for c in compared]),
            groups=[tuple(float(leaf(d, leaf_path(path))) for path in _CONFIGURATION) for d in designs],
            compared=list(compared),
        )

    @property
    def weights(self) -> np.ndarray:
        """Weight [row]: a source of ``n`` rows counts as ``sqrt(n)`` sources of one row, less if from memory."""
        size = {source: np.count_nonzero(self.sources == source) for source in set(self.sources)}
        return np.array([size[source] ** -0.5 for source in self.sources]) * self.trust

    @property
    def completed(self) -> np.ndarray:
        """True for rows with a part of the mapping chosen by the model among candidates [row]."""
        return np.array([bool(SEARCHED & c.prediction.completed.keys()) for c in self.compared])

    @property
    def trust(self) -> np.ndarray:
        """Weight of each row by its confidence, lower if quoted from memory [row]."""
        quoted = [c.measurement.row.get("confidence") == "memory" for c in self.compared]
        return np.where(quoted, FROM_MEMORY, 1.0)


#: Leaves that tell configurations apart.
_CONFIGURATION = (
    *(f"workload.{name}" for name in ("n_layers", "hidden", "seq_len", "global_batch")),
    *(f"mapping.{name}" for name in ("tp", "pp", "cp", "dp", "micro_batch", "recompute")),
)


def is_plain(workload: Workload) -> bool:
    """True for a dense model with all weights trained on whole sequences."""
    return workload.experts is None and workload.adapters is None and workload.packing is None


def rows_of(compared: Sequence[Comparison], chips: dict[object, str], levelled: bool = False) -> StepRows:
    """Return the timed rows of dense models with a stack of the catalogue.

    Args:
        compared: predictions with measurements.
        chips: (rates, cores) of an accelerator → its family.
        levelled: keep rows with a stack of TPU levels, instead of the others.

    Raises:
        InputError: where there are none.
    """
    fitted_rows = [
        c
        for c in compared
        if is_timed(c)
        and c.prediction.stack not in (*NOT_FITTED, "")
        and is_plain(c.prediction.chosen.workload)
        and rules.unused(c.prediction.case.row, "fit of steps") is None
        and is_levelled(c.prediction.stack) == levelled
    ]
    if not fitted_rows:
        raise InputError("calibrate", "no measured step that can be predicted", "training rows", "see dse validate")
    return StepRows.from_comparisons(fitted_rows, chips)


class StepModel(NamedTuple):
    """Leaves of the designs of steps as functions of ``z``, for all jobs on steps.

    Column ``c`` changes parameter ``columns[c]`` of the rows ``rows_by_column[c]``: ``z_row = offsets + moves x``.
    NumPy evaluates all rows at once, so that nothing is compiled for a few hundred of them; slopes are finite
    differences.
    """

    rows: StepRows
    parameters: tuple[Parameter, ...]
    columns: Sequence[int]  #: parameter changed by each column
    rows_by_column: Sequence[np.ndarray]  #: rows changed by each column
    offsets: np.ndarray | float = 0.0  #: ``z`` of each row and parameter with all columns at zero
    factors: np.ndarray | float = 1.0  #: multiplies the values of each row and parameter

    def problem(self, weights: np.ndarray, noise: float, delta: float, prior: np.ndarray | float = 1.0) -> FitProblem:
        """Return the fit problem of the columns to the rows, in one ``z`` per column."""
        moves = np.zeros((len(self.columns), len(self.rows.measured), len(self.parameters)))
        for index, (parameter, column_rows) in enumerate(zip(self.columns, self.rows_by_column, strict=True)):
            moves[index, column_rows, parameter] = 1.0

        def by_row(x: np.ndarray) -> np.ndarray:
            return self.offsets + np.einsum("c,crp->rp", x, moves)

        def residuals(x: np.ndarray) -> np.ndarray:
            return self.log_times(by_row(x)[None])[0] - self.rows.measured

        def slopes(x: np.ndarray, _: np.ndarray) -> np.ndarray:
            return np.einsum("rp,crp->rc", self.slopes(by_row(x)), moves)

        return FitProblem(residuals, slopes, weights, noise, delta, np.broadcast_to(prior, len(moves)))

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Return the derivatives of the log step times by ``z`` [row, parameter], at ``z`` [row, parameter]."""
        changes = _STEP * np.eye(z.shape[1])[:, None, :]
        upper, lower = np.split(self.log_times(np.concatenate([z + changes, z - changes])), 2)
        return (upper - lower).T / (2.0 * _STEP)

    def log_times(self, z: np.ndarray) -> np.ndarray:
        """Return log step times, in s, [set, row] at each ``z`` [set, row, parameter]."""
        logs, factors = np.zeros(z.shape[:2]), np.broadcast_to(np.asarray(self.factors), z.shape[1:])
        for members, designs in self.rows.structures:
            copies = jax.tree.map(functools.partial(np.tile, reps=len(z)), designs)
            values = {
                p.path: (factors[members, i] * np.asarray(p.value(jnp.asarray(z[:, members, i])))).astype(np.float32)
                for i, p in enumerate(self.parameters)
            }
            metrics = evaluate_batch(replace(copies, {path: column.reshape(-1) for path, column in values.items()}))
            logs[:, members] = np.log(np.asarray(metrics.step_time, float)).reshape(len(z), len(members))
        return logs


#: Finite difference in prior spreads.
_STEP = 0.02
