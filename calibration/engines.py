"""The job on serving: what engines cost on top of kernels, a few numbers a framework and era, from measured serving.

Of an engine are fitted the slow-down of its kernels, its times a layer, a layer with experts, a step, a sequence, a
request and a small message, and from which width its experts' kernels are slow. Chips are not: their kernels are as
measured alone. Residuals are logarithms of predicted over measured figures, their slopes finite differences: one
program evaluates an engine's rows at all of them.

An engine's priors are what others of its code base and time show. A row is judged by engines that never saw its
configuration (folds), and by those that never saw its source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from calibration.engine_residuals import OF_TOKENS, EngineErrors, of_engine
from calibration.kernel_parameters import DOCUMENT
from calibration.kin import OF_HOST, Kin, main_source
from dse.designs import catalog, replace
from dse.doors import SERVING
from dse.errors import InputError
from dse.lab.fits import writing
from dse.lab.fits.fit import Fit, FitProblem, Minimum, differences, folds, parameters_of
from dse.lab.fits.ranges import Covered
from dse.lab.fits.writing import Revision
from dse.measured import Skip, comparison, read_cases, rules
from dse.measured.names import Lookup, accelerator_of
from dse.measured.prediction import evaluate_batch, group_by_structure
from dse.measured.serving import KIND as SERVED, METRICS
from dse.measured.serving_rows import client_slowdown
from dse.measured.table import Row
from dse.types import Design, Engine, Software, Workload
from dse.types.fields import field_metadata

#: What is fitted of an engine.
PARAMETERS = parameters_of(DOCUMENT["engines"])

#: Standard deviation of a residual that the optimum weighs the priors against, by metric: times to the first token
#: depend on what a benchmark's clients did, those of tokens do not; energies must not decide on times. Beyond twice as
#: much a residual counts less.
NOISE = {"time_to_first_token": 0.4, "energy_per_output_token": 0.3}
_NOISE, _DELTA = 0.1, 2.0
#: Finite difference in prior spreads.
_STEP = 0.05
_FOLDS = 5
#: Correlation of the errors of one source's figures.
_SHARED = 0.01
#: Metrics that are not fitted: memory has its own account, power is energy by rate.
_UNFITTED = ("peak_memory", "average_power")


@dataclasses.dataclass(frozen=True)
class EngineRows:
    """Measured figures of one engine: their designs by structure, and which metric of which design each is."""

    stack: str
    compared: tuple[comparison.Comparison, ...]
    groups: tuple[tuple[np.ndarray, Design], ...]  #: positions among the designs, and their stack
    design: np.ndarray  #: of each figure, its position among the designs
    clients: np.ndarray  #: of each design, how much longer its source's client takes

    @property
    def measured(self) -> np.ndarray:
        """Measured figures in SI."""
        return np.array([c.measured for c in self.compared])

    @property
    def sources(self) -> np.ndarray:
        """Who measured each."""
        return np.array([c.source for c in self.compared])

    @property
    def deployments(self) -> list[str]:
        """Model, devices, mapping and format of each."""
        names = ("model", "gpu", "n_gpus", "tp", "pp", "ep", "dp", "precision", "source")
        return [" ".join(c.measurement.row.get(name) for name in names) for c in self.compared]

    @property
    def configurations(self) -> list[str]:
        """Deployment, batch and lengths of each: all that was measured of one point."""
        asked = ("batch", "isl", "osl")
        return [
            f"{deployment} {' '.join(c.measurement.row.get(name) for name in asked)}"
            for deployment, c in zip(self.deployments, self.compared, strict=True)
        ]

    def predicted(self, values: np.ndarray) -> np.ndarray:
        """Figures (sets of parameters x figures) under engines of ``values`` (sets x parameters)."""
        sets, metrics = len(values), {name: np.zeros((len(values), len(self.clients))) for name in METRICS}
        for positions, stack in self.groups:
            n, many = len(positions), jax.tree.map(functools.partial(np.tile, reps=sets), stack)
            columns = {p.path: np.repeat(values[:, i], n) for i, p in enumerate(PARAMETERS)}
            columns["request_time"] = columns["request_time"] * np.tile(self.clients[positions], sets)
            engine = {f"software.engine.{name}": column.astype(np.float32) for name, column in columns.items()}
            found = evaluate_batch(replace(many, engine), SERVING)
            for name, into in metrics.items():
                into[:, positions] = np.asarray(getattr(found, name)).reshape(sets, n)
        figures = [metrics[c.metric][:, d] for c, d in zip(self.compared, self.design, strict=True)]
        return np.stack(figures, axis=1)

    def residuals(self, zs: np.ndarray) -> np.ndarray:
        """log(predicted / measured) of every figure at each of some ``z``."""
        values = np.array([[float(p.value(z)) for p, z in zip(PARAMETERS, one, strict=True)] for one in zs])
        return np.log(np.maximum(self.predicted(values), 1e-30) / self.measured)

    @property
    def problem(self) -> FitProblem:
        """The fit to the figures: one program evaluates all finite differences."""
        noise = np.array([NOISE.get(c.metric, _NOISE) for c in self.compared])
        rows, prior = differences(self.residuals, _STEP), priors_of(self.stack)
        return FitProblem(*rows, self.weights, noise, _DELTA * noise, prior, tolerance=1e-3, steps=15)

    @property
    def weights(self) -> np.ndarray:
        """Weight of each figure, ``1 / (1 + rho (n - 1))`` of ``n`` of its source: what one did, all of them share."""
        _, of, many = np.unique(self.sources, return_inverse=True, return_counts=True)
        return 1.0 / (1.0 + _SHARED * (many[of] - 1.0))


class FittedEngine(NamedTuple):
    """What a fit found of an engine; errors are log(predicted / measured) of its figures."""

    rows: EngineRows
    fit: Fit
    unseen: np.ndarray  #: by fits without the row's configuration
    elsewhere: np.ndarray  #: by fits without its deployment, at any batch and lengths
    foreign: np.ndarray  #: by fits without its source
    rings: dict[str, np.ndarray]  #: what is left out (:data:`RINGS`) → by fits without any figure of the row's group


#: What is left out → the group of a figure of an engine: strangers of an engine that somebody else has measured.
RINGS: dict[str, Callable[[str, Row], str]] = {
    "chip": lambda stack, row: accelerator_of(row),
    "release": lambda stack, row: stack,
    "engine": lambda stack, row: str(catalog.entry("software", stack).value("lineage", "")) or stack,
    "model": lambda stack, row: row.get("model"),
}


def read(tables: Sequence[str | Path]) -> list[EngineRows]:
    """The usable figures of some tables by engine."""
    return by_stack(comparison.compare(list(tables)), Lookup())


def by_stack(compared: Sequence[comparison.Comparison], lookup: Lookup) -> list[EngineRows]:
    """The usable ones of compared figures by engine."""
    found: dict[str, list[comparison.Comparison]] = {}
    for c in compared:
        if is_fitted(c, lookup):
            found.setdefault(c.prediction.stack, []).append(c)
    if not found:
        raise InputError("calibrate", "no usable row", "measured rows of serving", "see what dse validate skips")
    return [rows_of(stack, own) for stack, own in sorted(found.items())]


def is_fitted(c: comparison.Comparison, lookup: Lookup | None = None) -> bool:
    """Whether a figure tells of an engine."""
    row, prediction = c.measurement.row, c.prediction
    return is_of_fit(c) and tells_of_engine(row, prediction.stack, prediction.chosen.workload, lookup or Lookup())


def is_of_fit(c: comparison.Comparison) -> bool:
    """Whether a figure is of a kind that engines are fitted to, and compared."""
    of_serving = c.prediction.case.kind == SERVED.name and c.metric in METRICS
    return of_serving and c.skip is None and c.metric not in _UNFITTED


def tells_of_engine(row: Row, stack: str, workload: Workload, lookup: Lookup) -> bool:
    """Whether a row does: of its own release, in a mapping that its source lists; not of layers with a state.

    Those have kernels of their own. A stack that only stands in for the release of a row is not fitted to it.
    """
    stands_in = lookup.is_nearest(stack, row.source, row.get("framework"))
    return not rules.unused(row, "fit of engines") and not stands_in and workload.recurrent is None


def rows_of(stack: str, compared: Sequence[comparison.Comparison]) -> EngineRows:
    """Figures of one engine, each design once."""
    first = {id(c.prediction): c for c in reversed(compared)}
    places = {prediction: i for i, prediction in enumerate(dict.fromkeys(id(c.prediction) for c in compared))}
    stacks = group_by_structure([first[prediction].prediction.chosen for prediction in places])
    groups = tuple((np.array(members), one) for members, one in stacks)
    position = np.array([places[id(c.prediction)] for c in compared])
    clients = np.array([client_slowdown(first[prediction].measurement.row) for prediction in places])
    return EngineRows(stack, tuple(compared), groups, position, clients)


def covered(table: str | Path) -> Iterator[Covered]:
    """The rows of a table that are designs and tell of an engine."""
    lookup = Lookup()
    for case in read_cases(table):
        if case.kind != SERVED.name:
            continue
        with contextlib.suppress(Skip):
            one = SERVED.complete(case, lookup)
            if tells_of_engine(case.row, one.stack, one.workload, lookup):
                yield Covered(one.stack, one.designs, accelerator_of(case.row), case.row.source)


def calibrate(tables: Sequence[str | Path], k: int = 0, progress: Callable[[str], None] = print) -> list[FittedEngine]:
    """Fit every engine of some tables, and judge it by what it has not seen (``k`` folds of configurations).

    The prior of an engine is what the others of its code base and its time show (``calibration/kin.py``). Without a
    source, no engine has seen its rows; one of no other source is what its prior says.
    """
    engines = read(tables)
    minima = [rows.problem.solve() for rows in engines]
    alone = [minimum.z for minimum in minima]
    centres = centres_of(engines, alone, [np.ones(len(rows.compared), bool) for rows in engines], fitted_before())
    problems = [rows.problem for rows in engines]
    foreign = left_out_errors(engines, problems, alone, [list(rows.sources) for rows in engines])
    near = [linear(problem, minimum) for problem, minimum in zip(problems, minima, strict=True)]
    rings = {
        ring: left_out_errors(
            engines,
            near,
            alone,
            [[group(rows.stack, c.measurement.row) for c in rows.compared] for rows in engines],
        )
        for ring, group in RINGS.items()
    }
    found = []
    for i, (rows, centre) in enumerate(zip(engines, centres, strict=True)):
        progress(f"{rows.stack}: {len(rows.compared)} figures")
        problem = dataclasses.replace(rows.problem, centre=centre)
        best = problem.solve(start=centre)
        labels = (folds(rows.configurations, k or _FOLDS), folds(rows.deployments, k or _FOLDS))
        unseen, elsewhere = (problem.cross_validate(list(one), best.z) for one in labels)
        own_rings = {ring: errors[i] for ring, errors in rings.items()}
        found.append(FittedEngine(rows, best.fit(PARAMETERS), unseen, elsewhere, foreign[i], own_rings))
    return found


def centres_of(
    engines: Sequence[EngineRows],
    found: Sequence[np.ndarray],
    kept: Sequence[np.ndarray],
    others: Sequence[FittedBefore] = (),
) -> np.ndarray:
    """Prior mean of each engine's ``z`` by those of engines with kept rows (:class:`calibration.kin.Kin`).

    Args:
        engines: rows of each engine.
        found: ``z`` of each.
        kept: of each, which of its rows are kept.
        others: engines that were fitted before: so a fit of a few still knows their kin. None where rows are left out,
            which these may have seen.
    """
    stacks = [rows.stack for rows in engines]
    others = [one for one in others if one.stack not in stacks]
    kin = Kin.of([*stacks, *(one.stack for one in others)])
    sources = [main_source(rows.sources[left]) for rows, left in zip(engines, kept, strict=True)]
    of_all = [*found, *(one.z for one in others)], [*sources, *(one.source for one in others)]
    centres = kin.centres(*of_all, [p.path for p in PARAMETERS])[: len(stacks)]
    editions = np.array([is_edition(stack) for stack in stacks], bool)
    return np.where(editions[:, None] & _IS_STEP, 0.0, centres)


class FittedBefore(NamedTuple):
    """What the catalogue says of an engine that was fitted."""

    stack: str
    z: np.ndarray
    source: str


@functools.cache
def fitted_before() -> tuple[FittedBefore, ...]:
    """The fitted engines of the catalogue, those whose files state a source of their rows; ``z`` within 4 spreads."""
    entries = [catalog.entry("software", slug) for slug in catalog.readable_names("software")]
    fitted = [one for one in entries if one.states("engine") and one.value("calibrated.sources", ())]
    return tuple(
        FittedBefore(
            one.slug, np.clip([p.z_of(float(getattr(engine, p.path))) for p in PARAMETERS], -4.0, 4.0), sources[0]
        )
        for one in fitted
        if (engine := catalog.record(Software, one.slug).engine) is not None
        if (sources := list(one.value("calibrated.sources", ())))
    )


#: Standard deviations of the priors of what a host takes, and of the rest, of an engine that is an edition for one
#: vendor's chips. Its rows are of few models, which cannot tell times of a step from those of its layers: its code on
#: the host is that of others, its kernels and launches are not.
_SAME_CODE, _OTHER_KERNELS = 0.3, 2.0
_IS_HOST, _IS_STEP = (
    np.isin([p.path for p in PARAMETERS], names) for names in (OF_HOST, [n for n in OF_HOST if n != "sequence_time"])
)


def is_edition(stack: str) -> bool:
    """Whether an engine states vendors while others of its code base are for all."""
    own = catalog.entry("software", stack)
    kin = (catalog.entry("software", one.stack) for one in fitted_before() if one.stack != stack)
    lineage = own.value("lineage", "")
    return bool(own.value("vendors", ())) and any(
        one.value("lineage", "") == lineage and not one.value("vendors", ()) for one in kin
    )


def priors_of(stack: str) -> np.ndarray:
    """Prior standard deviation of each ``z`` of an engine."""
    return np.where(_IS_HOST, _SAME_CODE, _OTHER_KERNELS) if is_edition(stack) else np.ones(len(PARAMETERS))


def without(
    engines: Sequence[EngineRows],
    problems: Sequence[FitProblem],
    alone: Sequence[np.ndarray],
    kept: Sequence[np.ndarray],
    wanted: Sequence[bool],
) -> list[np.ndarray | None]:
    """``z`` of the wanted engines by the rows that are kept and the prior that these make; None for others.

    Args:
        engines: rows of each engine.
        problems: fit of each.
        alone: ``z`` of each by all of its own rows.
        kept: of each, which of its rows are kept.
        wanted: which engines.
    """
    seen = [
        z if left.all() or not left.any() else problem.solve(left, z).z
        for problem, left, z in zip(problems, kept, alone, strict=True)
    ]

    def solved(problem: FitProblem, left: np.ndarray, centre: np.ndarray) -> np.ndarray:
        return dataclasses.replace(problem, centre=centre).solve(left, centre).z if left.any() else centre

    each = zip(problems, kept, centres_of(engines, seen, kept), wanted, strict=True)
    return [solved(problem, left, centre) if is_wanted else None for problem, left, centre, is_wanted in each]


def left_out_errors(
    engines: Sequence[EngineRows],
    problems: Sequence[FitProblem],
    alone: Sequence[np.ndarray],
    labels: Sequence[Sequence[str]],
) -> list[np.ndarray]:
    """Errors of the rows of each engine by fits, of its own and of its prior, without the rows of their label.

    Args:
        engines: rows of each engine.
        problems: fit of each; of linear ones the fits move along their slopes, the errors are those of the model.
        alone: ``z`` of each by all of its own rows.
        labels: of the rows of each.
    """
    errors = [np.full(len(own), np.nan) for own in labels]
    for label in sorted(set().union(*labels)):
        kept = [np.array([other != label for other in own]) for own in labels]
        found = without(engines, problems, alone, kept, [not left.all() for left in kept])
        for rows, left, z, into in zip(engines, kept, found, errors, strict=True):
            if z is not None:
                into[~left] = rows.residuals(z[None])[0][~left]
    return errors


def linear(problem: FitProblem, at: Minimum) -> FitProblem:
    """A fit with residuals that are linear about its optimum: without some rows it stays near, and costs nothing."""
    slopes = problem.slopes(at.z, at.errors)
    return dataclasses.replace(
        problem, residuals=lambda z: at.errors + slopes @ (z - at.z), slopes=lambda z, errors: slopes, starts=1
    )


# What was found


def texts(found: FittedEngine) -> dict[str, str]:
    """Name → value as TOML, and whether the rows narrowed it."""
    values = {}
    measured = {c.metric for c in found.rows.compared}
    asked = (c.prediction.chosen.workload.requests for c in found.rows.compared)
    drawn = any(one is not None and one.sampled is not None for one in asked)
    unseen = {"kernel_energy": "energy_per_output_token" not in measured, "sampler_bytes": not drawn}
    for p in PARAMETERS:
        if unseen.get(p.path):
            continue
        units = field_metadata(Engine, p.path)["units"]
        number = writing.number(found.fit.values[p.path], units, "ms" if p.path in _MILLISECONDS else "us")
        spread = found.fit.spread[p.path]
        how = "fitted" if spread < 0.7 * p.spread else "fitted, but the rows tell little"
        values[p.path] = writing.value_table(number, spread, how, "estimate")
    return values


_MILLISECONDS = ("host_step_time", "rank_time", "request_time")


def open_errors(found: Sequence[FittedEngine], k: int = 0) -> EngineErrors:
    """All figures of some engines with the errors that their residuals follow from."""
    columns = []
    for one in found:
        each = zip(one.rows.compared, folds(one.rows.configurations, k or _FOLDS), one.unseen, one.foreign, strict=True)
        columns += [(one.rows.stack, c.source, SERVING.residuals[c.metric], *errors) for c, *errors in each]
    return EngineErrors(*(np.array(column) for column in zip(*columns, strict=True)))


def open_parts(one: FittedEngine, errors: EngineErrors) -> dict[str, str]:
    """Kind of figure → what an engine's figures of that kind leave unexplained, as TOML."""
    measured = dict.fromkeys(errors.kind[errors.stack == one.rows.stack])
    if "token" in measured:
        measured |= dict.fromkeys(OF_TOKENS)
    return {kind: f"{of_engine(one.rows.stack, kind, errors):.3f}" for kind in measured}


def document(found: Sequence[FittedEngine]) -> str:
    """All engines as TOML, a table each."""
    errors = open_errors(found)
    tables = {one.rows.stack: texts(one) for one in found}
    residuals = {f"{one.rows.stack}.residuals": open_parts(one, errors) for one in found}
    return writing.document(tables | residuals, "engines")


def revisions(found: Sequence[FittedEngine], _: Path) -> list[Revision]:
    """What was found for the stacks of a catalogue."""
    errors = open_errors(found)
    return [
        Revision("software", one.rows.stack, values, table, drop)
        for one in found
        for table, values, drop in (
            ("", {"source": writing.quoted(_source(one))}, ()),
            ("engine", texts(one), ()),
            ("residuals", open_parts(one, errors), None),
        )
    ]


def _source(one: FittedEngine) -> str:
    return f"dse calibrate: {one.fit.rows} figures of {', '.join(sorted(set(one.rows.sources)))}"


def errors_by_metric(found: Sequence[FittedEngine]) -> list[list[Any]]:
    """[source, metric, figures, median and mean error seen, unseen, elsewhere, source left out], as fractions."""
    groups: dict[tuple[str, str], list[np.ndarray]] = {}
    for one in found:
        seen = (one.fit.errors, one.unseen, one.elsewhere, one.foreign)
        for c, *errors in zip(one.rows.compared, *seen, strict=True):
            sizes = np.abs(np.expm1(errors))
            for source in (c.source, "all"):
                groups.setdefault((source, c.metric), []).append(sizes)
    rows: list[list[Any]] = []
    for (source, metric), errors in sorted(groups.items()):
        table = np.array(errors)
        statistics = [float(f(table[:, i])) for i in range(4) for f in (np.median, np.mean)]
        rows.append([source, metric, len(table), *statistics])
    return rows
