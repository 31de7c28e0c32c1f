"""The page of a calibration of stacks: what was found, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from docs.make.markdown import document, filed, percent, table
from dse.designs import catalog
from dse.lab.fits import stacks
from dse.lab.fits.step_priors import CHIP_NAMES, NAMES, PHYSICAL, SPREADS, is_physical
from dse.lab.fits.steps import Calibration, mean_error, release_of
from dse.measured.uncertainty.parts import quantile
from dse.types import Precision, choice_name

_ABOUT = """\
Numbers of the stacks in `hw_catalog/software/` and of the chips in `hw_catalog/`, fitted at once to measured training
steps of dense models and of mixtures of experts (`dse/lab/fits/steps.py`). A chip has how much it sustains of the rates
of kernels alone, by format; a code base its element-wise kernels, links and host; a stack its products and attention;
a release is one step from the one before; all stacks share what experts cost."""

_RINGS = """\
Errors of strangers first: by fits without any row of the row's release, chip, model or publication. Folds by
configuration (model shape, batch, mapping) stand last; they flatter, since rows of the same release, chip and model stay.
A design measured several times in one release is one point. vTrain's 473 rows of one cluster are apart. Left-out fits
move along the slopes of the whole fit; their errors are those of the model."""

_SCALING = """\
Runs of the same degrees at three sizes or more, by fits that saw the smaller half of the sizes alone (mixtures and MLPerf;
all: the file of groups):"""

_PAIRS = """\
Steps of a release on GB200 over GB300 with the same format and mapping, by one stack:"""

_LIMITS = """\
The form of the model and the priors were chosen while looking at these errors, so they are somewhat kinder than those
of rows never looked at. vTrain measured the same kernel sequence up to 30 % apart between neighbouring cells.
A row with *mapping completed by search* leaves degrees or recompute open; the model chooses the fastest that fits, so
its errors flatter."""

_HEADER = [
    "source",
    "rows",
    "unseen publication",
    "publication, in 80 %",
    "unseen configuration",
    "configuration, median",
    "configuration, 90 %",
    "configuration, bias",
    "configuration, in 80 %",
    "fitted rows",
]


def page(found: Calibration, command: str) -> str:
    """The page as Markdown; ``command`` made it."""
    parts = [
        "# Calibration of stacks and chips",
        f"Written by `{command}`.",
        _ABOUT,
        "## Errors of strangers",
        _RINGS,
        table(["left out", "rows of", "points", *_ERRORS], _rings(found)),
        _SCALING,
        table(["run", "devices", "measured", "larger sizes left out", "fit"], _sizes(found)),
        _PAIRS,
        table(["model", "format", "mapping", "measured", "predicted"], _pairs(found)),
        "By group: " + filed("calibration_rings", ["left out", "group", "points", *_ERRORS], _ring_groups(found)),
        "Every mixture: " + filed("calibration_experts", _POINT_HEADS, _points(found)),
        _LIMITS,
        "## By publication",
        table(
            _HEADER,
            [row for row in _errors(found) if row[0] in (stacks.EXPLICIT_MAPPING, stacks.COMPLETED_MAPPING, "all")],
        ),
        f"{_sources(found)} By source: {filed('calibration_sources', _HEADER, _errors(found))}",
        "## Values",
        f"{len(found.solution.columns)} numbers: {_counts(found)}.",
        "Shared by all stacks: "
        + ", ".join(f"`{name}` {_value(name, found.solution.value('', name))}" for name in NAMES)
        + "; of experts: "
        + ", ".join(f"`{name}` {_expert_value(value)}" for name, value in found.solution.expert_values().items())
        + ".",
        "Shares that chips sustain of the rates of kernels alone:",
        table(["chip", "rows", *CHIP_NAMES], _chips(found)),
        "A stack's own values with the standard deviation of their logarithm after the data (*weakly determined* where "
        "that is nearly what it was before), and the residual, what they leave unexplained: "
        + filed("calibration_stacks", ["stack", "rows", "residual", *NAMES], _stacks(found)),
        *_beyond(found),
        f"A stack without rows has the values of its code base and a residual of {percent(found.residual(''))}.",
        "## Recipes on Blackwell",
        _RECIPES,
        table(["recipe", "points", *_ERRORS], _recipes(found)),
    ]
    return document(parts)


#: What is left out → its words; strangers first.
_SHOWN = {
    "release": "release",
    "chip": "chip",
    "model": "model",
    "size": "larger sizes of a run",
    "source": "publication",
    "configuration": "configuration, in folds",
    "fit": "nothing",
}

_POINT_HEADS = ["model", "chip", "release", "n", "tp", "pp", "ep", "precision", "fit", "release left out"]
_POINT_HEADS += ["chip left out", "model left out"]


def _kinds(found: Calibration) -> dict[str, np.ndarray]:
    """Words for a kind of rows → mask [row]."""
    mixtures, sources = found.rows.mixtures, found.rows.sources
    is_vtrain = np.char.startswith(sources.astype(str), "vTrain")
    is_bridge = np.char.startswith(sources.astype(str), "Megatron-Bridge")
    return {
        "Megatron-Bridge": is_bridge,
        "dense": ~mixtures & ~is_vtrain,
        "mixtures": mixtures,
        "vTrain": is_vtrain,
    }


def _rings(found: Calibration) -> Iterable[list[str]]:
    for ring, words in _SHOWN.items():
        for kind, mask in _kinds(found).items():
            errors = found.point_errors(ring, mask)
            if len(errors) and not (kind == "vTrain" and ring in ("model", "size", "source")):
                yield [words, kind, *_summary(errors)]


def _ring_groups(found: Calibration) -> Iterable[list[str]]:
    """Errors of every group that is left out: releases, chips, models of mixtures."""
    models = np.array([c.prediction.case.row.get("model") for c in found.rows.compared])
    labels = {
        "release": np.array([release_of(source) for source in found.rows.sources]),
        "chip": found.rows.chips,
        "model": np.where(found.rows.mixtures, models, ""),
    }
    for ring, groups in labels.items():
        for group in sorted(set(groups) - {""}):
            errors = found.point_errors(ring, groups == group)
            if len(errors):
                yield [ring, str(group), *_summary(errors)]


def _points(found: Calibration) -> Iterable[list[str]]:
    """The rows of mixtures, each design of a release once."""
    points = list(zip(found.rows.points, found.rows.sources, strict=True))
    for i in np.flatnonzero(found.rows.mixtures):
        if points.index(points[i]) != i:
            continue
        get = found.rows.compared[i].prediction.case.row.get
        rings = [found.solution.errors, *(found.rings[ring] for ring in ("release", "chip", "model"))]
        errors = [percent(float(np.expm1(e[i])), "+") if np.isfinite(e[i]) else "" for e in rings]
        fields = ("n_gpus", "tp", "pp", "ep", "precision")
        yield [get("model"), get("gpu"), found.rows.sources[i], *(get(name) for name in fields), *errors]


def _sizes(found: Calibration) -> Iterable[list[str]]:
    """Steps of runs of MLPerf, and of mixtures, whose larger sizes are left out."""
    rows, errors = found.rows, found.rings["size"]
    for i in np.flatnonzero(np.isfinite(errors)):
        c = rows.compared[i]
        if rows.mixtures[i] or c.source.startswith("MLPerf"):
            get, measured = c.measurement.row.get, float(np.exp(rows.measured[i]))
            ring, fit = (percent(float(np.expm1(e)), "+") for e in (errors[i], found.solution.errors[i]))
            yield [f"{get('model')}, {c.source}", get("n_gpus"), f"{measured:.3g} s", ring, fit]


def _pairs(found: Calibration) -> Iterable[list[str]]:
    """Ratios of steps on GB200 and GB300 by one stack, format and mapping: measured, and of the fit."""
    rows, steps = found.rows, {}
    for i, c in enumerate(rows.compared):
        get, mapping = c.measurement.row.get, c.prediction.chosen.mapping
        degrees = tuple(int(getattr(mapping, name)) for name in ("tp", "pp", "cp", "virtual_stages"))
        run = (c.source, get("model"), get("precision"), degrees, get("n_gpus"), get("global_batch"))
        place = (*run, float(mapping.micro_batch), get("ep"))
        steps.setdefault(place, {})[get("gpu")] = (rows.measured[i], found.solution.errors[i])
    for (_, model, precision, degrees, *_), by_chip in steps.items():
        if {"GB200", "GB300"} <= by_chip.keys():
            (first, error), (second, other) = by_chip["GB200"], by_chip["GB300"]
            words = "tp {}, pp {}, cp {}".format(*degrees[:3])
            ratios = np.exp(first - second), np.exp(first + error - second - other)
            yield [model, precision, words, *(f"{ratio:.3f}" for ratio in ratios)]


def _counts(found: Calibration) -> str:
    """How many numbers are of which kind of group."""
    words = {"": "shared", "family": "of families of chips", "chip": "of chips", "lineage": "of code bases"}
    words |= {"stack": "of stacks", "release": "of releases"}
    counts = {kind: sum(c.kind == kind for c in found.solution.columns) for kind in words}
    return ", ".join(f"{count} {words[kind]}" for kind, count in counts.items() if count)


def _chips(found: Calibration) -> Iterable[list[str]]:
    """Shares that every chip with rows sustains, those without a fit of a format left out."""
    families = dict(zip(found.rows.chips, found.rows.families, strict=True))
    for chip, family in sorted(families.items()):
        ratio = catalog.clock_share(str(chip))
        values = found.solution.chip_values(str(family), str(chip))
        shares = [f"{min(ratio * values[name], 1.0):.3f}" for name in CHIP_NAMES]
        yield [str(chip), str(int((found.rows.chips == chip).sum())), *shares]


def _expert_value(value: float) -> str:
    return f"{value:.3g}" if value > 0.01 else f"{1e6 * value:.3g} µs"


_ERRORS = ["mean", "median", "90 %", "bias"]

_RECIPES = """\
Errors of unseen configurations of dense models by recipe. A design measured in several releases is one point. Nothing
is fitted to a recipe (`dse/model/formats.py`)."""


def _summary(errors: np.ndarray) -> list[str]:
    size = np.abs(errors)
    return [
        str(len(errors)),
        percent(float(np.mean(size))),
        percent(float(np.median(size))),
        percent(float(np.quantile(size, 0.9))),
        percent(float(np.mean(errors)), "+"),
    ]


def _recipes(found: Calibration) -> Iterable[list[str]]:
    """Unseen errors on Blackwell by precision, each distinct design once."""
    by_design: dict[tuple[str, object, str], list[float]] = {}
    for c, group, family, error in zip(
        found.rows.compared, found.rows.groups, found.rows.families, found.unseen, strict=True
    ):
        design = c.prediction.chosen
        precision = choice_name(Precision(int(design.mapping.precision)))
        if family == "blackwell":
            by_design.setdefault((precision, group, str(design.system.accelerator.power.tdp)), []).append(error)
    kinds = {"fp8, MXFP8": ("fp8", "fp8-block", "mxfp8"), "NVFP4": ("nvfp4",), "bf16": ("bf16",)}
    for name, precisions in kinds.items():
        errors = [np.mean(rows) for (precision, *_), rows in by_design.items() if precision in precisions]
        if errors:
            yield [name, *_summary(np.expm1(errors))]


def _errors(found: Calibration) -> Iterable[list[str]]:
    for e in stacks.errors_by_source(found):
        held, foreign = (percent(stacks.coverage(found, e.source, way), digits=0) for way in (False, True))
        unseen = [percent(value) for value in (e.unseen, e.unseen_median, e.unseen_p90)]
        yield [
            e.source,
            str(e.rows),
            percent(e.foreign),
            foreign,
            *unseen,
            percent(e.unseen_bias, "+"),
            held,
            percent(e.seen),
        ]


def errors_by_chip(found: Calibration) -> dict[str, dict[str, float]]:
    """Chip → its rows, and their mean errors in sample, unseen, and of a source left out, as fractions."""
    rows = [c.measurement.row for c in found.rows.compared]
    chips = np.array([row.get("gpu") or row.get("system") for row in rows])
    ways = {"seen": found.solution.errors, "unseen": found.unseen, "foreign": found.foreign}
    return {
        str(chip): {"rows": int(np.sum(chips == chip))}
        | {way: mean_error(errors[chips == chip]) for way, errors in ways.items()}
        for chip in sorted(set(chips))
    }


def _sources(found: Calibration) -> str:
    """Errors of sources left out, each source counted once, and how wide their intervals are."""
    mean = percent(stacks.mean_source_error(found, found.foreign))
    width = percent(float(np.median(quantile() * np.hypot(found.deviations, found.foreign_residuals))))
    return f"Each publication counted once: mean error {mean} unseen. Their intervals are ± {width} wide (median)."


def _stacks(found: Calibration) -> Iterable[Sequence[str]]:
    for stack in found.stacks:
        count = sum(other == stack for other in found.rows.stacks)
        yield [stack, str(count), percent(found.residual(stack)), *(_own(found, stack, name) for name in NAMES)]


_BEYOND = """\
A value beyond its range absorbs something that is not modelled, or the kernels of its chip are off; it serves machines
like those of its rows only."""


def _beyond(found: Calibration) -> list[str]:
    """The values beyond their physical range, or that there are none."""
    rows = [
        [stack, f"`{name}`", _value(name, value), "{:g} to {:g}".format(*PHYSICAL[name])]
        for stack in found.stacks
        for name, value in found.values(stack).items()
        if not is_physical(name, found.values(stack))
    ]
    if not rows:
        return ["No value is beyond its physical range, and no slow-down below 1."]
    heads = ["stack", "parameter", "value", "range"]
    return ["### Values beyond their physical range", _BEYOND, filed("calibration_beyond", heads, rows)]


def _own(found: Calibration, stack: str, name: str) -> str:
    if name not in SPREADS["stack"]:
        return ""
    value, spread = found.solution.value(stack, name), found.solution.spread_of(stack, name)
    text = f"{_value(name, value)} ± {percent(spread, digits=0)}"
    return text if name in found.informed_parameters(stack) else f"{text} (weakly determined)"


def _value(name: str, value: float) -> str:
    return f"{1e3 * value:.3g} ms" if stacks.catalog_units(name) == "s" else f"{value:.3g}"
