"""Measured steps as arrays: chosen designs, times and slopes by the model, and their fit problem."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.designs import leaf, leaf_path, leaves_of, replace
from dse.errors import InputError
from dse.lab.fits.fit import FitProblem, Parameter
from dse.lab.fits.step_priors import NOT_FITTED, chip_groups, groups_of, is_levelled
from dse.measured import Comparison, accelerator_of, rules
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
        """Weight [row]: ``n`` rows of a source count as ``sqrt(n)`` rows, so do repeated designs; less from memory."""
        counts, repeats = Counter(self.sources), Counter(self.points)
        sizes = [counts[source] * repeats[point] for source, point in zip(self.sources, self.points, strict=True)]
        return np.array(sizes) ** -0.5 * self.trust

    @functools.cached_property
    def chips(self) -> np.ndarray:
        """Accelerator of each row, by its name in the catalogue [row]."""
        return np.array([accelerator_of(c.measurement.row) for c in self.compared])

    @functools.cached_property
    def points(self) -> list[Hashable]:
        """Design and stack of each row, as a key that repeated measurements share [row]."""
        return [(c.prediction.stack, *map(float, jax.tree.leaves(c.prediction.chosen))) for c in self.compared]

    @property
    def mixtures(self) -> np.ndarray:
        """True for rows of mixtures of experts [row]."""
        return np.array([c.prediction.chosen.workload.experts is not None for c in self.compared])

    @functools.cached_property
    def groups_by_row(self) -> list[frozenset[tuple[str, str]]]:
        """Groups (kind, label) of the stack and of the chip of each row [row]."""
        families = zip(self.stacks, self.families, self.chips, strict=True)
        return [
            frozenset(groups_of(str(stack)) + chip_groups(str(family), str(chip))) for stack, family, chip in families
        ]

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
    return workload.experts is None and trains_whole(workload)


def trains_whole(workload: Workload) -> bool:
    """True for a model with all weights trained on whole sequences."""
    return workload.adapters is None and workload.packing is None


def is_fitted(c: Comparison) -> bool:
    """True for a timed row that the fit of steps uses, of a dense model or of a mixture whose stack has its kernels."""
    if not is_timed(c) or c.prediction.stack in (*NOT_FITTED, ""):
        return False
    design, row = c.prediction.chosen, c.prediction.case.row
    is_priced = design.workload.experts is None or design.software.experts is not None
    return is_priced and trains_whole(design.workload) and rules.unused(row, "fit of steps") is None


def rows_of(compared: Sequence[Comparison], chips: dict[object, str], levelled: bool = False) -> StepRows:
    """Return the timed rows of models with a stack of the catalogue, of TPUs those of dense ones.

    Args:
        compared: predictions with measurements.
        chips: (rates, cores) of an accelerator → its family.
        levelled: keep rows with a stack of TPU levels, instead of the others.

    Raises:
        InputError: where there are none.
    """
    fitted_rows = [c for c in compared if is_fitted(c) and is_levelled(c.prediction.stack) == levelled]
    if levelled:
        fitted_rows = [c for c in fitted_rows if is_plain(c.prediction.chosen.workload)]
    if not fitted_rows:
        raise InputError("calibrate", "no measured step that can be predicted", "training rows", "see dse validate")
    return StepRows.from_comparisons(fitted_rows, chips)


class StepModel(NamedTuple):
    """Leaves of the designs of steps as functions of ``z``, for all jobs on steps.

    Column ``c`` changes parameters ``columns[c]`` of the rows ``rows_by_column[c]``: ``z_row = moves x``.
    NumPy evaluates all rows at once, so that nothing is compiled for a few hundred of them; slopes are finite
    differences.
    """

    rows: StepRows
    parameters: tuple[Parameter, ...]
    columns: Sequence[tuple[int, ...]]  #: parameters changed by each column
    rows_by_column: Sequence[np.ndarray]  #: rows changed by each column
    factors: np.ndarray | float = 1.0  #: multiplies the values of each row and parameter

    def problem(
        self,
        weights: np.ndarray,
        noise: float,
        delta: float,
        prior: np.ndarray | float = 1.0,
        centre: np.ndarray | float = 0.0,
    ) -> FitProblem:
        """Return the fit problem of the columns to the rows, in one ``z`` per column."""
        moves = np.zeros((len(self.columns), len(self.rows.measured), len(self.parameters)))
        for index, (changed, column_rows) in enumerate(zip(self.columns, self.rows_by_column, strict=True)):
            for parameter in changed:
                moves[index, column_rows, parameter] = 1.0

        def by_row(x: np.ndarray) -> np.ndarray:
            return np.einsum("c,crp->rp", x, moves)

        def residuals(x: np.ndarray) -> np.ndarray:
            return self.log_times(by_row(x)[None])[0] - self.rows.measured

        def slopes(x: np.ndarray, _: np.ndarray) -> np.ndarray:
            return np.einsum("rp,crp->rc", self.slopes(by_row(x)), moves)

        return FitProblem(residuals, slopes, weights, noise, delta, np.broadcast_to(prior, len(moves)), centre)

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """Return the derivatives of the log step times by ``z`` [row, parameter], at ``z`` [row, parameter]."""
        slopes = np.zeros_like(z)
        for members, designs in self.rows.structures:
            leaves = leaves_of(designs)
            present = [i for i, p in enumerate(self.parameters) if p.path in leaves]
            changes = _STEP * np.eye(z.shape[1])[present][:, None, :]
            part = z[members]
            sets = np.concatenate([part + changes, part - changes])
            upper, lower = np.split(self._structure_times(members, designs, sets), 2)
            slopes[np.ix_(members, present)] = (upper - lower).T / (2.0 * _STEP)
        return slopes

    def log_times(self, z: np.ndarray) -> np.ndarray:
        """Return log step times, in s, [set, row] at each ``z`` [set, row, parameter]."""
        logs = np.zeros(z.shape[:2])
        for members, designs in self.rows.structures:
            logs[:, members] = self._structure_times(members, designs, z[:, members])
        return logs

    def _structure_times(self, members: Sequence[int], designs: Design, z: np.ndarray) -> np.ndarray:
        """Return log step times, in s, [set, member] of one structure at ``z`` [set, member, parameter]."""
        factors = np.broadcast_to(np.asarray(self.factors), (len(self.rows.measured), z.shape[2]))[members]
        copies = jax.tree.map(functools.partial(np.tile, reps=len(z)), designs)
        present = leaves_of(designs)
        values = {
            p.path: (factors[:, i] * np.asarray(p.value(jnp.asarray(z[:, :, i])))).astype(np.float32)
            for i, p in enumerate(self.parameters)
            if p.path in present
        }
        metrics = evaluate_batch(replace(copies, {path: column.reshape(-1) for path, column in values.items()}))
        return np.log(np.asarray(metrics.step_time, float)).reshape(len(z), len(members))


#: Finite difference in prior spreads.
_STEP = 0.02
