r"""The job on steps of TPUs: one level of the matrix rate a generation, and what slices lose to each other.

XLA compiles whole steps, so that nothing is known of kernels apart and hosts do not count. All that is fitted is how
far products stay behind the family's ramp on each generation, ``matrix_slowdown`` of its stack, and the share of
compute that each doubling of the slices costs, one for all. Nothing is fitted to a row, a model or a size; stacks on
GPUs share nothing with them and take no part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.calibrate import writing
from dse.calibrate.fit import Parameter, gauss_newton, held_out, posterior
from dse.calibrate.step_priors import is_levelled
from dse.calibrate.step_rows import Rows, rows_of
from dse.calibrate.steps import DELTA, NOISE, mean_error
from dse.calibrate.structures import by_structure
from dse.designs import catalog
from dse.designs.leaves import replace
from dse.doors.evaluation import evaluate
from dse.errors import InputError
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import compare_predictions
from dse.measured.names import Lookup
from dse.sweep.engine.programs import persistent_jit

#: Level of a generation's products, and of what slices lose, before any step is seen.
LEVEL = Parameter("software.matrix_slowdown", 1.15, 0.15, 0.5)
LOSS = Parameter("system.scale_up.links.slice_loss", 0.02, 0.5, 0.0, 0.2)


@dataclasses.dataclass(frozen=True)
class Levels:
    """A fit of every generation: values with their spreads, and errors of rows seen and unseen."""

    rows: Rows
    stacks: list[str]
    values: dict[str, float]  #: stack → level
    spread: dict[str, float]
    loss: float
    loss_spread: float
    errors: np.ndarray  #: log(predicted / measured)
    unseen: np.ndarray  #: the same by a fit without any row of the configuration
    unseen_model: np.ndarray  #: by a fit without any row of the model on that generation

    def median(self, stack: str, errors: np.ndarray) -> float:
        """Median of |predicted / measured - 1| of the rows of a stack."""
        return float(np.median(np.abs(np.expm1(errors[self.rows.stacks == stack]))))


def calibrate(paths: Sequence[str | Path], progress: Callable[[str], None] = print) -> Levels:
    """Fits the levels to the timed rows of the tables."""
    lookup = Lookup()
    cases = [case for path in paths for case in read_cases(path)]
    rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.chips, levelled=True)
    stacks = sorted(set(rows.stacks))
    which = np.array([stacks.index(stack) for stack in rows.stacks])

    def at(x: np.ndarray) -> np.ndarray:
        return np.stack([x[which], np.broadcast_to(x[-1], which.shape)], axis=1).astype(np.float32)

    def residuals(x: np.ndarray) -> np.ndarray:
        return by_structure(rows.alike, _log_step_times, which.shape, at(x)) - rows.measured

    def slopes(x: np.ndarray, _: np.ndarray) -> np.ndarray:
        by_row = by_structure(rows.alike, _slopes, (*which.shape, 2), at(x))
        own = by_row[:, :1] * (which[:, None] == np.arange(len(stacks)))
        return np.concatenate([own, by_row[:, 1:]], axis=1)

    def solved(weights: np.ndarray) -> Any:
        return gauss_newton(residuals, slopes, np.zeros(len(stacks) + 1), weights, noise=NOISE, delta=DELTA)

    found = solved(rows.trust)
    after = posterior(found.curvature)
    progress(f"{len(rows.measured)} rows, mean error {mean_error(found.errors):.2%}")

    def unseen(groups: list[Hashable]) -> np.ndarray:
        parts = [np.array([group == one for group in groups]) for one in dict.fromkeys(groups)]
        return held_out(parts, lambda part: solved(rows.trust * ~part).errors)

    models = [(stack, group[:3]) for stack, group in zip(rows.stacks, rows.groups, strict=True)]
    return Levels(
        rows, stacks, {stack: float(LEVEL.value(z)) for stack, z in zip(stacks, found.z[:-1], strict=True)},
        {s: float(d * LEVEL.slope(z)) for s, d, z in zip(stacks, after[:-1], found.z[:-1], strict=True)},
        float(LOSS.value(found.z[-1])), float(after[-1] * LOSS.slope(found.z[-1])), found.errors,
        unseen(list(zip(rows.stacks, rows.groups, strict=True))), unseen(list(models)),
    )  # fmt: skip


def _log_step_time(row: jax.Array, z: jax.Array, structure: Any) -> jax.Array:
    design = jax.tree.unflatten(structure, list(row))
    return jnp.log(evaluate(replace(design, {LEVEL.path: LEVEL.value(z[0]), LOSS.path: LOSS.value(z[1])})).step_time)


@persistent_jit("structure")
def _log_step_times(leaves: jax.Array, z: jax.Array, *, structure: Any) -> jax.Array:
    """Log step times (rows)."""
    return jax.vmap(lambda row, at: _log_step_time(row, at, structure))(leaves, z)


@persistent_jit("structure")
def _slopes(leaves: jax.Array, z: jax.Array, *, structure: Any) -> jax.Array:
    """Their derivatives (rows x 2)."""
    return jax.vmap(jax.jacfwd(lambda row, at: _log_step_time(row, at, structure), argnums=1))(leaves, z)


# --- what was found, written -------------------------------------------------------------------------------------


def errors(found: Levels) -> list[list[str | int | float]]:
    """Stack, rows, level, and median errors of rows seen, of unseen configurations and of unseen models."""
    return [
        [stack, int((found.rows.stacks == stack).sum()), writing.digits(found.values[stack]),
         *(found.median(stack, part) for part in (found.errors, found.unseen, found.unseen_model))]
        for stack in found.stacks
    ]  # fmt: skip


def write(found: Levels, path: str | Path, force: bool = False) -> None:
    """The fit as a TOML document."""
    tables: dict[str, dict[str, str]] = {"": {"slice_loss": writing.digits(found.loss)}}
    for stack, count, level, seen, unseen, unseen_model in errors(found):
        figures = {"error": seen, "unseen_error": unseen, "unseen_model_error": unseen_model}
        tables[f"software.{writing.quoted(str(stack))}"] = {
            "rows": str(count), "matrix_slowdown": str(level),
            **{name: f"{value:.4f}" for name, value in figures.items()},
        }  # fmt: skip
    writing.write(path, writing.document(tables, "Written by dse calibrate. Errors are fractions, medians."), force)


def write_catalog(found: Levels, folder: str | Path) -> list[Path]:
    """Writes the levels into the stacks of a catalogue, of one without rows their mean, and what slices lose."""
    mean = float(np.exp(np.mean(np.log(list(found.values.values())))))
    written = []
    for slug in catalog.names("software"):
        if not is_levelled(slug):
            continue
        path = writing.catalog_file(folder, "software", slug)
        own = found.rows.stacks == slug
        sources = ", ".join(sorted(set(found.rows.sources[own])))
        about = (
            f"dse calibrate: {own.sum()} rows of {sources}; median error {found.median(slug, found.errors):.1%}, "
            f"unseen {found.median(slug, found.unseen):.1%}"
        ) if own.any() else "dse calibrate: no measured rows, so the mean of the generations"  # fmt: skip
        spread = found.spread.get(slug, float(np.std(np.log(list(found.values.values())))))
        # A median of absolute errors is 0.6745 standard deviations of a normal distribution.
        off = found.unseen[own] if own.any() else np.log(list(found.values.values())) - np.log(mean)
        residual = max(float(np.median(np.abs(off))) / 0.6745, NOISE)
        level = writing.stated(writing.digits(found.values.get(slug, mean)), spread, "a level a generation", "estimate")
        writing.revise(path, {"source": writing.quoted(about), "residual": f"{residual:.3f}", "matrix_slowdown": level})
        written.append(path)
    for slug in catalog.names("network"):
        if catalog.entry("network", slug).value("links.slice_loss") is not None:
            path = writing.catalog_file(folder, "network", slug)
            stated = writing.stated(
                writing.digits(found.loss), found.loss_spread, "dse calibrate: one for all generations", "estimate"
            )
            writing.revise(path, {"slice_loss": stated}, "links")
            written.append(path)
    if not written:
        raise InputError(str(folder), "no such stacks", "a catalogue with them", "name the folder hw_catalog")
    return written
