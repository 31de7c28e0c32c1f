r"""The job on steps: the few numbers of each software stack, from measured training steps.

A stack is software, an era and a cluster. All stacks have the same kinds of numbers. Each is drawn around a value
that stacks of its lineage share (the code base it descends from), moved by what stacks on its family of chips share,
and these around one of all; they are fitted too and are what a stack without measurements gets (a hierarchical prior;
Gelman et al., *Bayesian Data Analysis*, chapter 5): in prior spreads, ``z = shared + family + lineage + own`` with

.. math:: \sum_i w_i \rho\Big(\frac{\log \hat T_i / T_i}{\sigma}\Big) + \frac12 \sum_j z_j^2
   + \frac12 \sum_{s,j} \Big(\frac{z_{s,j}}{r_j}\Big)^2

and the robust ``rho`` of :mod:`dse.calibrate.fit`. Every row of every stack takes part at once, on the design that
was chosen for it, with derivatives of ``evaluate``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse import catalog
from dse.calibrate import experts, residuals
from dse.calibrate.fit import MOVED, Parameter, folds, gauss_newton, held_out, posterior
from dse.calibrate.structures import Alike, by_structure, rows_alike
from dse.designs import leaf_path, replace
from dse.errors import InputError
from dse.evaluation import evaluate
from dse.measured import predict_cases, read_cases
from dse.measured.comparison import Comparison, compare_predictions, is_timed, step_time
from dse.measured.completion import SEARCHED
from dse.measured.names import Lookup
from dse.sweep.engine.programs import persistent_jit
from dse.types import Attention, Software, Workload

#: What steps can tell, with what is believed before any step is seen, and the bounds.
PARAMETERS = (
    Parameter("software.matrix_slowdown", 1.15, 0.15, 0.7),
    Parameter("software.elementwise_slowdown", 1.2, 0.3, 0.5),
    Parameter("software.flash_slowdown", 1.0, 0.3, 0.3),
    Parameter("software.communication_slowdown", 1.2, 0.4, 0.8),  # links are known within a fifth
    Parameter("software.host_time", 1e-3, 0.5),
    Parameter("software.small_kernel_time", 1e-4, 1.0),
    Parameter("software.cp_overlap", 0.8, 0.3, 0.0, 1.0),
    Parameter("software.pp_overlap", 0.5, 0.5, 0.0, 1.0),
    Parameter("software.step_overhead", 5e-3, 1.0),
)

#: How far a lineage of stacks strays from what all share, in prior spreads; what is absent is the same for all.
LINEAGE = {
    "matrix_slowdown": 1.5, "elementwise_slowdown": 1.5, "flash_slowdown": 1.5, "communication_slowdown": 0.4,
    "host_time": 1.0, "small_kernel_time": 1.0,
}  # fmt: skip

#: How far a stack strays from its lineage.
OWN = {name: 0.8 * stray for name, stray in LINEAGE.items()}

#: Between what a value is what its name says; beyond, it stands in for something that is not modelled.
PHYSICAL = {
    "matrix_slowdown": (1.0, 1.6), "elementwise_slowdown": (0.9, 3.0), "flash_slowdown": (0.8, 2.5),
    "communication_slowdown": (1.0, 3.0), "cp_overlap": (0.5, 1.0), "pp_overlap": (0.3, 1.0),
}  # fmt: skip

#: Stacks of which less is known beforehand: DeepSpeed of 2021 gathered tensor by tensor and copied each.
WIDER = {("deepspeed", "communication_slowdown"): 6.0}

#: Stacks that differ in a choice of the software or in the chips, and share what is fitted of another alone.
ALIKE = {
    "torchtitan-eager": "torchtitan", "fms-fsdp-a100": "fms-fsdp-h100", "jax-toolbox-a100": "jax-toolbox-h100",
    "mlperf-b200": "megatron-bridge",
    # Releases of one code base, whose dense steps differ by a few per cent; those of their experts do by twice.
    "megatron-bridge-26-02": "megatron-bridge", "megatron-bridge-26-06": "megatron-bridge",
    "megatron-bridge-blackwell-26-02": "megatron-bridge-blackwell",
    "megatron-bridge-blackwell-26-06": "megatron-bridge-blackwell",
    "megatron-bridge-blackwell-ultra-26-02": "megatron-bridge-blackwell-ultra",
    "megatron-bridge-blackwell-ultra-26-06": "megatron-bridge-blackwell-ultra",
}  # fmt: skip

#: How far the stacks on one family of chips stray together: their clocks fall with the power that matrices draw.
FAMILY = {"matrix_slowdown": 1.0, "flash_slowdown": 1.0}

#: Stacks that stand for something else than measured steps: what is fitted to power assumes one of them.
NOT_FITTED = ("calculon", "deepseek-dualpipe", "pytorch-eager", "superconducting-compiled")

#: Lineages whose stacks have one level each and share nothing with the others: see :mod:`dse.calibrate.levels`.
LEVELLED = ("maxtext",)

#: Weight of a figure that its collector quotes from memory.
FROM_MEMORY = 0.2

#: Relative size of an error that the priors are weighed against, and from which it counts linearly.
NOISE, DELTA = 0.02, 0.05


#: Families of chips, by their files of kernel efficiencies.
FAMILIES = frozenset(catalog.names("kernels"))


@functools.cache
def lineage_of(stack: str) -> str:
    """The lineage that a stack states; "" for none, for one that is not in the catalogue and for what all share."""
    if stack not in catalog.names("software"):
        return ""
    return str(catalog.entry("software", stack).value("lineage", ""))


#: Lineages that stacks state.
LINEAGES = frozenset(map(lineage_of, catalog.names("software"))) - {""}


def name_of(parameter: Parameter) -> str:
    """Field of :class:`dse.types.Software`."""
    return parameter.path.rpartition(".")[2]


NAMES = tuple(name_of(p) for p in PARAMETERS)


def own_names(software: Software) -> list[str]:
    """What is fitted of a stack alone, at most five: its attention kernel, or its host where it has no flash."""
    other = "host_time" if software.attention == Attention.flash else "flash_slowdown"
    return [name for name in OWN if name != other]


def fitted_as(stack: str) -> str:
    """The stack whose numbers this one has."""
    return ALIKE.get(stack, stack)


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
    kept = [c for c in kept if (lineage_of(c.prediction.stack) in LEVELLED) == levelled]
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


@dataclasses.dataclass(frozen=True)
class Solution:
    """Fitted values in prior spreads, with how much of them the data said."""

    columns: list[tuple[str, str]]  #: (stack, lineage, family, or "" for shared; name)
    z: np.ndarray
    spread: np.ndarray  #: standard deviation of each ``z`` after the data over that before
    alone: np.ndarray  #: the same where all other values stay: less, because they can stand in for one another
    errors: np.ndarray  #: log(predicted / measured) of every row

    families: dict[str, str]  #: stack → family of its chips

    def at(self, stack: str, name: str) -> float:
        """``z`` of a stack's parameter: what all share, what stacks on its chips and of its lineage do, and its own."""
        parts = {(whose, name) for whose in ("", self.families.get(stack, ""), lineage_of(stack), fitted_as(stack))}
        return float(sum(z for column, z in zip(self.columns, self.z, strict=True) if column in parts))

    def value(self, stack: str, name: str) -> float:
        """The parameter of a stack; one without rows has nothing of its own."""
        return float(PARAMETERS[NAMES.index(name)].value(self.at(stack, name)))

    def values(self, stack: str) -> dict[str, float]:
        """Every parameter of a stack."""
        return {name: self.value(stack, name) for name in NAMES}

    def spread_of(self, stack: str, name: str) -> float:
        """Standard deviation of the logarithm of a stack's value after the data; of the shared one if it has none."""
        return self._spread_of(stack, name, self.spread)

    def spread_alone(self, stack: str, name: str) -> float:
        """The same where all other values stay: independent draws of these are nearest to the joint posterior.

        (The mean-field approximation; Bishop, *Pattern Recognition and Machine Learning*, section 10.1.2.)
        """
        return self._spread_of(stack, name, self.alone)

    def _spread_of(self, stack: str, name: str, spread: np.ndarray) -> float:
        # Of the narrowest group that has the parameter.
        candidates = [(fitted_as(stack), name), (lineage_of(stack), name), ("", name)]
        column = next(candidate for candidate in candidates if candidate in self.columns)
        return float(spread[self.columns.index(column)] * _prior(*column) * self._slope(stack, name))

    def _slope(self, stack: str, name: str) -> float:
        """Change of the logarithm of a stack's value for one unit of ``z``."""
        return abs(PARAMETERS[NAMES.index(name)].slope(self.at(stack, name)))

    def deviations(self, rows: Rows) -> np.ndarray:
        """Standard deviation of each row's log step time over the spread of its stack's values, to first order."""
        z = np.array([[self.at(stack, name) for name in NAMES] for stack in rows.stacks], np.float32)
        slopes = slopes_of(rows, z)
        units = {stack: [self.spread_alone(stack, name) / self._slope(stack, name) for name in NAMES]
                 for stack in set(rows.stacks)}  # fmt: skip
        return np.sqrt(np.sum((slopes * np.array([units[s] for s in rows.stacks])) ** 2, axis=1))

    def narrowing(self, stack: str, name: str) -> float:
        """Posterior over prior spread of a stack's own deviation, 1 where it has none."""
        own = (fitted_as(stack), name)
        return next((s for c, s in zip(self.columns, self.spread, strict=True) if c == own), 1.0)


def solve(
    rows: Rows, own: dict[str, list[str]], weights: np.ndarray, start: np.ndarray | None = None
) -> Solution:
    """The most probable shared and own values given the rows of positive weight."""
    kinds = sorted(set(rows.families))
    columns = [("", name) for name in NAMES] + [(family, name) for family in kinds for name in FAMILY]
    stacks = np.array([fitted_as(stack) for stack in rows.stacks])
    lineages = np.array([lineage_of(stack) for stack in stacks])
    columns += [(lineage, name) for lineage in sorted(set(lineages) - {""}) for name in LINEAGE]
    columns += [(stack, name) for stack in sorted(own) for name in own[stack]]
    prior = np.array([_prior(*column) for column in columns])
    # Which ``z`` of which row a column moves.
    moves = np.zeros((len(columns), len(rows.measured), len(NAMES)))
    for index, (whose, name) in enumerate(columns):
        held = (whose == "") | (rows.families == whose) | (lineages == whose) | (stacks == whose)
        moves[index, held, NAMES.index(name)] = 1.0

    def by_row(x: np.ndarray) -> np.ndarray:
        return np.einsum("c,crp->rp", x, moves).astype(np.float32)

    def residuals(x: np.ndarray) -> np.ndarray:
        return log_step_times(rows, by_row(x)) - rows.measured

    def slopes(x: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.einsum("rp,crp->rc", slopes_of(rows, by_row(x)), moves)

    first = np.zeros(len(columns)) if start is None else start
    found = gauss_newton(residuals, slopes, first, weights, noise=NOISE, delta=DELTA, prior=prior)
    chips = dict(zip(rows.stacks, rows.families, strict=True))
    after, alone = posterior(found.curvature), np.diag(found.curvature) ** -0.5
    return Solution(columns, found.z, after / prior, alone / prior, found.errors, chips)


def _prior(whose: str, name: str) -> float:
    """Prior spreads that a column's ``z`` is believed to stray."""
    if not whose:
        return 1.0
    if whose in FAMILIES:
        return FAMILY[name]
    return (LINEAGE if whose in LINEAGES else OWN)[name] * WIDER.get((whose, name), 1.0)


def is_physical(name: str, value: float) -> bool:
    """Whether a value is in the range in which it is what its name says."""
    low, high = PHYSICAL.get(name, (0.0, np.inf))
    return low <= value <= high


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fit of all stacks, its errors row by row, and those of rows it had not seen."""

    rows: Rows
    own: dict[str, list[str]]
    solution: Solution
    unseen: np.ndarray  #: log errors, each row by a fit without any row of its configuration
    foreign: np.ndarray  #: the same by a fit without any row of its source, by shared values where no stack is left
    fold: np.ndarray  #: of each row among those of ``unseen``
    experts: experts.Found | None = None  #: what stacks' mixtures of experts cost, where rows tell of them

    @property
    def stacks(self) -> list[str]:
        """Stacks that rows were measured of."""
        return sorted(set(self.rows.stacks))

    def values(self, stack: str, family: str = "") -> dict[str, float]:
        """Every parameter of a stack; one without rows gets what its lineage and what stacks on ``family`` share."""
        known = {stack: family} | self.solution.families
        return dataclasses.replace(self.solution, families=known).values(stack)

    @functools.cached_property
    def deviations(self) -> np.ndarray:
        """See :meth:`Solution.deviations`."""
        return self.solution.deviations(self.rows)

    def residual(self, stack: str, among: np.ndarray | None = None) -> float:
        """What a stack's values leave unexplained, by its unseen rows (those ``among`` marks; all by default)."""
        among = np.ones(len(self.fold), bool) if among is None else among
        known = (self.rows.sources[among], self.rows.trust[among])
        members = np.array([fitted_as(other) == fitted_as(stack) for other in self.rows.stacks[among]])
        if not members.any():
            return residuals.of_unmeasured(known[0], self.foreign[among], self.deviations[among], known[1])
        return residuals.of_class(members, known[0], self.unseen[among], self.deviations[among], known[1])

    @functools.cached_property
    def residuals(self) -> np.ndarray:
        """The residual of each row's stack by the rows of the other folds."""
        found = np.zeros(len(self.fold))
        for fold in set(self.fold):
            by_stack = {stack: self.residual(stack, self.fold != fold) for stack in set(self.rows.stacks)}
            part = self.fold == fold
            found[part] = [by_stack[stack] for stack in self.rows.stacks[part]]
        return found

    @functools.cached_property
    def foreign_residuals(self) -> np.ndarray:
        """The residual of a stack without rows by the other sources, for the rows of each source left out."""
        found, sources = np.zeros(len(self.foreign)), self.rows.sources
        for source in set(sources):
            others = sources != source
            found[~others] = residuals.of_unmeasured(
                sources[others], self.foreign[others], self.deviations[others], self.rows.trust[others]
            )
        return found

    def moved(self, stack: str) -> list[str]:
        """Own parameters that the data narrowed well below their prior."""
        return [name for name in self.own.get(fitted_as(stack), []) if self.solution.narrowing(stack, name) < MOVED]


def calibrate(
    paths: Sequence[str | Path], k: int = 5, rounds: int = 2, progress: Callable[[str], None] = print
) -> Calibration:
    """Fits every stack to the timed rows of the tables.

    What rows leave open depends on the values (a fastest micro-batch, say), so designs are chosen again with
    what was found, ``rounds`` times in all. Then come ``k`` folds by configuration, and one fit without each source.
    """
    cases = [case for path in paths for case in read_cases(path)]
    lookup = Lookup()
    start = None
    for number in range(rounds):
        rows = rows_of(compare_predictions(predict_cases(cases, lookup)), lookup.chips)
        _check_enough(rows, k)
        own = {stack: own_names(lookup.software(stack)) for stack in sorted(set(map(fitted_as, rows.stacks)))}
        solution = solve(rows, own, rows.weights, start)
        start = solution.z
        progress(f"round {number + 1}: {len(rows.measured)} rows, mean error {mean_error(solution.errors):.2%}")
        lookup = _with(lookup, solution)
    folded = folds(rows.groups, k)
    unseen = _held_out(rows, own, solution, [folded == fold for fold in range(k)])
    foreign = _held_out(rows, own, solution, [rows.sources == source for source in sorted(set(rows.sources))])
    return Calibration(rows, own, solution, unseen, foreign, folded, experts.calibrate(cases, lookup, k))


def _check_enough(rows: Rows, k: int) -> None:
    """That the rows can be divided: errors are those of folds that a fit has not seen."""
    if len(set(folds(rows.groups, k))) < 2:
        raise InputError(
            "calibrate", f"predicted step times of {len(set(rows.groups))} configurations",
            "several configurations: models, mappings or numbers of devices",
            "add rows; dse validate tells which are skipped",
        )  # fmt: skip


def _with(lookup: Lookup, solution: Solution) -> Lookup:
    """A look-up whose stacks have the fitted values."""

    def fitted(stack: str) -> Software:
        before = lookup.software(stack)
        if stack in NOT_FITTED:
            return before
        return replace(before, solution.values(stack))

    return Lookup(software=fitted)


def _held_out(rows: Rows, own: dict[str, list[str]], solution: Solution, parts: list[np.ndarray]) -> np.ndarray:
    """Errors of each part by a fit without it."""
    return held_out(parts, lambda part: solve(rows, own, rows.weights * ~part, solution.z).errors)


def mean_error(errors: np.ndarray) -> float:
    """Mean of |predicted / measured - 1|."""
    return float(np.mean(np.abs(np.expm1(errors))))

