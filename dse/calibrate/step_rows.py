"""Measured steps as arrays: the designs chosen for them, and their times and slopes by the model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.calibrate.step_priors import NOT_FITTED, PARAMETERS, is_levelled
from dse.calibrate.structures import Alike, by_structure, rows_alike
from dse.designs.leaves import leaf_path, replace
from dse.doors.evaluation import evaluate
from dse.errors import InputError
from dse.measured.comparison import Comparison, is_timed, step_time
from dse.measured.completion import SEARCHED
from dse.sweep.engine.programs import persistent_jit
from dse.types import Workload

#: Weight of a figure that its collector quotes from memory.
FROM_MEMORY = 0.2


@dataclasses.dataclass(frozen=True)
class Rows:
    """Measured steps as arrays, one a row: the designs chosen, and what is known of the measurements."""

    alike: list[Alike]
    measured: np.ndarray  #: log of the step time in seconds
    stacks: np.ndarray
    families: np.ndarray  #: of chips
    sources: np.ndarray
    groups: list[tuple[float, ...]]  #: rows of one configuration
    compared: list[Comparison]

    @property
    def weights(self) -> np.ndarray:
        """A source of ``n`` rows counts as the root of ``n`` sources of one row, and less if quoted from memory."""
        size = {source: np.count_nonzero(self.sources == source) for source in set(self.sources)}
        return np.array([size[source] ** -0.5 for source in self.sources]) * self.trust

    @property
    def completed(self) -> np.ndarray:
        """Whether a row's mapping was chosen among candidates in part, so that the model had a say in it."""
        return np.array([bool(SEARCHED & c.prediction.completed.keys()) for c in self.compared])

    @property
    def trust(self) -> np.ndarray:
        """How far each row is trusted: less if quoted from memory."""
        quoted = [c.measurement.row.get("confidence") == "memory" for c in self.compared]
        return np.where(quoted, FROM_MEMORY, 1.0)


_CONFIGURATION = (
    "workload.n_layers", "workload.hidden", "workload.seq_len", "workload.global_batch", "mapping.tp", "mapping.pp",
    "mapping.cp", "mapping.dp", "mapping.micro_batch", "mapping.recompute",
)  # fmt: skip


def is_plain(workload: Workload) -> bool:
    """Whether it is a dense model whose weights are all trained, on whole sequences: what stacks are fitted to."""
    return workload.experts is None and workload.adapters is None and workload.packing is None


def rows_of(compared: Sequence[Comparison], chips: dict[object, str], levelled: bool = False) -> Rows:
    """The timed rows of dense models that were predicted with a stack of the catalogue, a ``levelled`` one or not.

    What stacks are fitted with says nothing of experts.
    """
    kept = [c for c in compared if is_timed(c) and c.prediction.stack not in (*NOT_FITTED, "")]
    kept = [c for c in kept if is_plain(c.prediction.chosen.workload)]
    kept = [c for c in kept if is_levelled(c.prediction.stack) == levelled]
    if not kept:
        raise InputError("calibrate", "no measured step that can be predicted", "training rows", "see dse validate")
    designs = [c.prediction.design for c in kept if c.prediction.design is not None]
    return Rows(
        alike=rows_alike(designs),
        measured=np.log([step_time(c) for c in kept]),
        stacks=np.array([c.prediction.stack for c in kept]),
        families=np.array([chips[d.system.accelerator.matrix_rate, d.system.accelerator.cores] for d in designs]),
        sources=np.array([c.source for c in kept]),
        groups=[tuple(float(_leaf(d, path)) for path in _CONFIGURATION) for d in designs],
        compared=kept,
    )


def _leaf(design: Any, path: str) -> float:
    return functools.reduce(getattr, leaf_path(path).split("."), design)


def _log_step_time(row: jax.Array, z: jax.Array, structure: Any) -> jax.Array:
    """Log step time of a row's design with its stack's parameters at ``z``."""
    design = jax.tree.unflatten(structure, list(row))
    values = {p.path: p.value(z[i]) for i, p in enumerate(PARAMETERS)}
    return jnp.log(evaluate(replace(design, values)).step_time)


def log_step_times(rows: Rows, z: np.ndarray) -> np.ndarray:
    """Log step times (rows) at ``z`` (rows x parameters)."""
    return by_structure(rows.alike, _log_step_times, z.shape[:1], z)


def slopes_of(rows: Rows, z: np.ndarray) -> np.ndarray:
    """Their derivatives (rows x parameters)."""
    return by_structure(rows.alike, _slopes, z.shape, z)


@persistent_jit("structure")
def _log_step_times(leaves: jax.Array, z: jax.Array, *, structure: Any) -> jax.Array:
    """Log step times (rows) at ``z`` (rows x parameters)."""
    return jax.vmap(functools.partial(_log_step_time, structure=structure))(leaves, z)


@persistent_jit("structure")
def _slopes(leaves: jax.Array, z: jax.Array, *, structure: Any) -> jax.Array:
    """Their derivatives (rows x parameters)."""
    return jax.vmap(jax.jacfwd(functools.partial(_log_step_time, structure=structure), argnums=1))(leaves, z)
