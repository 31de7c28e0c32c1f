"""The job on kernels: parameters of chips and networks from measured kernels, through the model's own formulas.

A *job* fits one table (``fine`` or ``attention`` of kernels files, ``alone`` of networks') to all devices together:
what differs by device is its own, what an algorithm or a library has is one value for all. :func:`calibrate` runs the
jobs that the rows allow; :mod:`calibration.kernel_tables` writes what they found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibration.kernel_parameters import JOBS, KernelJob
from dse.designs import replace
from dse.errors import InputError
from dse.lab.fits.adding import kernels_of
from dse.lab.fits.fit import Fit, FitProblem, curvature, derivatives, fit_at, folds, influence, posterior
from dse.measured.kernels import FORMULAS, Kernel, device_of, kind_of
from dse.measured.table import read_table
from dse.types import Precision

#: Residual from which one counts linearly: what is judged is the median.
DELTA = 0.05
#: Residual from which one counts less and less, of rows of which many are false readings.
REDESCENDING_DELTA = 0.1
#: Standard deviation of a residual that the optimum weighs the priors against, and most steps of a fit.
NOISE, STEPS = 0.1, 100

Group = tuple[str, str]  # kind of kernel, device


@dataclasses.dataclass(frozen=True)
class FittedJob:
    """A job with its fit and, over held-out groups of shapes, the errors of every row."""

    job: KernelJob
    fit: Fit
    kernels: list[Kernel]
    held_out: np.ndarray  #: log(predicted / measured) with the row's shape left out of the fit; empty without folds

    @property
    def errors(self) -> np.ndarray:
        """log(predicted / measured) of every row, held out where there are folds."""
        return self.held_out if len(self.held_out) else self.fit.errors

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|, of held-out rows where there are some."""
        return float(np.median(np.abs(np.expm1(self.errors))))

    @property
    def slugs(self) -> list[str]:
        """Files that have rows of their own."""
        known = self.job.devices
        return list(dict.fromkeys(known[one.device] for one in self.kernels))


def read_kernels(paths: Iterable[str | Path]) -> list[Kernel]:
    """Every kernel of some tables that can be predicted; InputError for a file that is no table of kernels."""
    found: list[Kernel] = []
    for path in paths:
        columns, rows = read_table(path)
        kind = kind_of(columns)
        if not kind:
            allowed = "a table of kernels: latency_ms or median_ms and the columns of a shape"
            raise InputError(f"{path}: columns", ", ".join(columns[:8]), allowed, "name tables of measured kernels")
        found += [kernel for kernel, _ in kernels_of(columns, rows) if kind != "operator"]
    return found


#: Values that fits found so far: (kind of file, device) → path → value.
Known = dict[tuple[str, str], dict[str, float]]


def calibrate(kernels: Sequence[Kernel], k: int = 0, jobs: Sequence[KernelJob] = JOBS) -> list[FittedJob]:
    """Every job that has rows, fitted; with ``k`` also cross-validated over ``k`` folds of shapes.

    A job builds on the values of those before it: what kernels draw on how long they take.
    """
    found: list[FittedJob] = []
    known: list[Known] = [{} for _ in range(k + 1)]
    for job in jobs:
        own = [one for one in kernels if one.kind in job.kernels and one.device in job.devices]
        if own:
            found.append(run(job, _thinned(own, job.rows), k, known))
    if not found:
        devices = sorted({d for job in jobs for d in job.devices})
        raise InputError("rows", "none that a parameter depends on", ", ".join(devices), "name tables of these chips")
    return found


def run(job: KernelJob, kernels: Sequence[Kernel], k: int, known: list[Known]) -> FittedJob:
    """One job: its fit to all rows, and the error of each row by a fit to the other folds.

    ``known`` holds the values before each fold's fit and, last, before the fit to all; this job's are added.
    """
    split = folds([shape(one) for one in kernels], k) if k else np.zeros(0, int)
    held = np.zeros(len(kernels) if k else 0)
    for fold in range(k):
        found = _fitted(job, kernels, split != fold, known[fold])
        held[split == fold] = found.errors[split == fold]
        _learn(job, found, known[fold])
    found = _fitted(job, kernels, np.ones(len(kernels), bool), known[k])
    _learn(job, found, known[k])
    return FittedJob(job, found, list(kernels), held)


def fitted_device(found: Iterable[FittedJob], kind: str, name: str) -> Any:
    """A device of the catalogue with what fits to all rows found."""
    known: Known = {}
    for one in found:
        _learn(one.job, one.fit, known)
    return _device(next(one.job for one in found if one.job.kind == "kernels"), kind, name, known)


def _learn(job: KernelJob, found: Fit, known: Known) -> None:
    """Adds what a fit found to what is known of its devices."""
    for device, slug in job.devices.items():
        values = {path: found.values[key] for path, key in job.keys(slug).items() if key in found.values}
        stated = job.stated(values, device_of(job.kernels[0], device))
        known.setdefault((job.kind, device), {}).update(stated)


def shape(kernel: Kernel) -> tuple[float, ...]:
    """What rows of one shape have in common, whatever ran them and in which format: they share a fold."""
    v = kernel.values
    if kernel.base == "gemm":
        return v[:3]
    if kernel.base == "attention":  # batch, tokens, heads, window; context or decode
        return (*v[:6], v[7])
    return v[1:3] if kernel.kind == "collective" else v[:2]  # bytes, members


def _fitted(job: KernelJob, kernels: Sequence[Kernel], used: np.ndarray, known: Known) -> Fit:
    """The fit to the rows that are ``used``; its errors are those of all rows, in order."""
    order, data = _grouped(kernels)
    weights = (used * _weights(job, kernels))[order]
    unknowns = job.unknowns(dict.fromkeys(job.devices[device] for g in data for device in g.devices))
    residuals = _residuals(job, data, known)

    def at(z: jax.Array, *rows: Any) -> jax.Array:
        return residuals({p.path: p.value(z[i]) for i, p in enumerate(unknowns)}, *rows)

    problem = FitProblem(
        *derivatives(at, *(group.arrays for group in data)),
        weights,
        NOISE,
        REDESCENDING_DELTA if job.redescending else DELTA,
        np.ones(len(unknowns)),
        redescending=job.redescending,
        starts=3,
        tolerance=1e-6,
        steps=STEPS,
    )
    best = problem.solve()
    counts = weights * influence(best.errors, problem.delta, job.redescending)
    variance = max(float(np.sum(counts * best.errors**2) / max(np.sum(counts), 1e-30)), 1e-12)
    spread = posterior(curvature(problem.slopes(best.z, best.errors), counts / variance))
    errors = np.empty(len(order))
    errors[order] = best.errors
    return dataclasses.replace(fit_at(unknowns, best.z, spread, errors, best.loss), rows=int(used.sum()))


def _weights(job: KernelJob, kernels: Sequence[Kernel]) -> np.ndarray:
    """Weights of rows, such that every device counts alike whatever its number of rows.

    16-bit GEMMs count most for times: they alone tell what all formats share, and they are what is trained in.
    """
    sixteen = [one.kind == "gemm" and one.values[3] == float(Precision.bf16) for one in kernels]
    plain = np.where(sixteen, job.sixteen_bit, 1.0)
    devices = np.array([one.device for one in kernels])
    names, where = np.unique(devices, return_inverse=True)
    sums = np.bincount(where, plain)
    return plain * (plain.sum() / len(names) / sums)[where]


@dataclasses.dataclass(frozen=True)
class _KernelRows:
    """Kernels of one kind."""

    kind: str
    devices: list[str]
    arrays: tuple[jax.Array, ...]  #: rows, which device ran each, and what was measured


def _grouped(kernels: Sequence[Kernel]) -> tuple[np.ndarray, list[_KernelRows]]:
    """Kernels of one kind together: where each went, and their arrays."""
    groups: dict[str, list[int]] = {}
    for index, kernel in enumerate(kernels):
        groups.setdefault(kernel.kind, []).append(index)
    data = []
    for kind, members in groups.items():
        own = [kernels[i] for i in members]
        devices = list(dict.fromkeys(one.device for one in own))
        which = jnp.asarray([devices.index(one.device) for one in own])
        rows, measured = (jnp.asarray(x, jnp.float32) for x in ([k.values for k in own], [k.measured for k in own]))
        data.append(_KernelRows(kind, devices, (rows, which, measured)))
    return np.concatenate(list(groups.values())), data


def _residuals(job: KernelJob, groups: Sequence[_KernelRows], known: Known) -> Callable[..., jax.Array]:
    """log(predicted / measured) of all rows, kind after kind, as a function of the parameters."""
    devices_of = [[(_device(job, g.kind, name, known), job.devices[name]) for name in g.devices] for g in groups]
    kinds = [g.kind for g in groups]

    def residuals(values: dict[str, jax.Array], *data: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        logs = []
        for kind, devices, (rows, which, measured) in zip(kinds, devices_of, data, strict=True):
            fitted = []
            for device, slug in devices:
                stated = job.stated({path: values[key] for path, key in job.keys(slug).items()}, device)
                fitted.append(replace(device, dict.fromkeys(job.zeros(slug), 0.0) | stated))
            stack = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(x, jnp.float32) for x in leaves]), *fitted)
            logs.append(jnp.log(_each(kind, rows, which, stack)) - jnp.log(measured))
        return jnp.concatenate(logs)

    return residuals


def _device(job: KernelJob, kind: str, name: str, known: Known) -> Any:
    """A device of the catalogue with the values that earlier fits found."""
    return replace(device_of(kind, name), known.get((job.kind, name), {}))


def _each(kind: str, rows: jax.Array, which: jax.Array, devices: Any) -> jax.Array:
    """Seconds of kernels of one kind, a row each on one of some devices: one program for all of them."""
    seconds = jax.vmap(lambda row, i: FORMULAS[kind](list(row), jax.tree.map(lambda x: x[i], devices)))(rows, which)
    return jnp.asarray(seconds)


def _thinned(kernels: list[Kernel], most: int) -> list[Kernel]:
    """At most ``most`` kernels of each kind and device, evenly over the table."""
    groups: dict[Group, list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.kind, kernel.device), []).append(kernel)
    return [kernel for group in groups.values() for kernel in group[:: -(-len(group) // most)]]
