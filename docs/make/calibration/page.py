"""The page of a calibration of stacks: what was found, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from docs.make.markdown import document, filed, percent, table
from dse.lab.fits import experts, stacks
from dse.lab.fits.step_priors import NAMES, PHYSICAL, fitted_as, is_physical
from dse.lab.fits.steps import Calibration, mean_error
from dse.measured.uncertainty.parts import quantile
from dse.types import Precision, choice_name

_ABOUT = """\
The numbers of every stack in `hw_catalog/software/`, fitted to measured training steps at once
(`dse/lab/fits/steps.py`): values that all stacks share, those of a lineage or a chip family, and at most five numbers of
a stack alone.

*Unseen publication*: mean error of fits without any row of the publication; what a stack or cluster without
measurements has to expect. *Unseen configuration*: of fits without the row's configuration (model shape, batch,
mapping), in folds. *Fitted rows*: of the fit itself. *In 80 %*: share of the rows in the 80 % interval of their
prediction."""

_LIMITS = """\
The form of the model and the priors were chosen while looking at these errors, so they are somewhat kinder than those
of rows never looked at. vTrain measured the same kernel sequence up to 30 % apart between neighbouring cells.
Sources of one to six rows leave folds without their stack. A row with
*mapping completed by search* leaves degrees or recompute open; the model chooses the fastest that fits, so its errors
flatter."""

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
        "# Calibration of software stacks",
        f"Written by `{command}`.",
        _ABOUT,
        table(
            _HEADER,
            [row for row in _errors(found) if row[0] in (stacks.EXPLICIT_MAPPING, stacks.COMPLETED_MAPPING, "all")],
        ),
        f"{_sources(found)} By source: {filed('calibration_sources', _HEADER, _errors(found))}",
        _LIMITS,
        "## Values",
        "Shared by all stacks: "
        + ", ".join(f"`{name}` {_value(name, found.solution.value('', name))}" for name in NAMES)
        + ".",
        "A stack's own values with the standard deviation of their logarithm after the data (*weakly determined* where "
        "that is nearly what it was before), and the residual, what they leave unexplained: "
        + filed("calibration_stacks", ["stack", "rows", "residual", *NAMES], _stacks(found)),
        "### Values beyond their physical range",
        _BEYOND,
        filed("calibration_beyond", ["stack", "parameter", "value", "range"], _beyond(found)),
        f"A stack without rows has the shared values and a residual of {percent(found.residual(''))}.",
        "## Recipes on Blackwell",
        _RECIPES,
        table(["recipe", "points", *_ERRORS], _recipes(found)),
    ]
    if found.experts is not None:
        parts += mixtures(found.experts)
    return document(parts)


def mixtures(found: experts.ExpertCalibration) -> list[str]:
    """What was found of mixtures of experts."""
    heads = ["cell", "model", "tp", "pp", "ep", "micro-batch", "precision", "error", "constant MFU", "nearer"]
    return [
        "## Mixtures of experts",
        _EXPERTS,
        table(["prediction", "points", *_ERRORS], _experts(found)),
        "Shared by all stacks: "
        + ", ".join(
            f"`{name}` {value:.3g}" if value > 0.01 else f"`{name}` {1e6 * value:.3g} µs"
            for name, value in found.values.items()
        )
        + ".",
        "Every point, its cell unseen: " + filed("calibration_experts", heads, _points(found)),
    ]


_ERRORS = ["mean", "median", "90 %", "bias"]

#: Names of errors of mixtures of experts as the page has them.
_SHOWN = {
    "in sample": "fitted rows",
    "configuration left out": "unseen configuration",
    "cell left out": "unseen cell",
    "model left out": "unseen model",
}

_RECIPES = """\
Errors of unseen configurations of dense models by recipe. A design measured in several releases is one point. Nothing
is fitted to a recipe (`dse/model/formats.py`)."""

_EXPERTS = """\
Rows of mixtures of experts are fitted apart, with dense steps fixed (`dse/lab/fits/experts.py`): four numbers that all
chips and releases share. What releases changed is in their files (`all_to_all`, `fused`). A design measured several
times with one stack is one point. *Unseen cell*: no row of the point's accelerator in its range of releases was seen;
*unseen model*: none of its model. *Blind*: defaults of the leaves. *Constant MFU*: the mean share of the peak of all
other cells. The mechanisms were chosen while looking at these rows. Two releases took twice as long as their neighbours
on H100 with 30B-A3B, unexplained; GPT-OSS stays a fifth too fast."""


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


def _experts(found: experts.ExpertCalibration) -> Iterable[list[str]]:
    for name, errors in found.errors.items():
        yield [_SHOWN.get(name, name), *_summary(errors)]


def _points(found: experts.ExpertCalibration) -> Iterable[list[str]]:
    """The points, with the better of model and baseline."""
    errors = found.errors
    for place, i in enumerate(found.firsts):
        get = found.rows.steps.compared[i].prediction.case.row.get
        model, constant = errors["cell left out"][place], errors["constant MFU of other cells"][place]
        nearer = "model" if abs(model) <= abs(constant) else "constant MFU"
        yield [
            found.rows.cells[i],
            *(get(name) for name in ("model", "tp", "pp", "ep", "micro_batch", "precision")),
            percent(model, "+"),
            percent(constant, "+"),
            nearer,
        ]


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


def _beyond(found: Calibration) -> Iterable[Sequence[str]]:
    shared = (
        "all stacks",
        [name for name in NAMES if not any(name in names for names in found.parameters_by_stack.values())],
    )
    for stack, names in [
        shared,
        *((stack, found.parameters_by_stack.get(fitted_as(stack), [])) for stack in found.stacks),
    ]:
        values = found.solution.values("" if stack == "all stacks" else stack)
        for name in names:
            if not is_physical(name, values):
                low, high = PHYSICAL[name]
                yield [stack, f"`{name}`", _value(name, values[name]), f"{low:g} to {high:g}"]


def _own(found: Calibration, stack: str, name: str) -> str:
    if name not in found.parameters_by_stack.get(fitted_as(stack), []):
        return ""
    value, spread = found.solution.value(stack, name), found.solution.spread_of(stack, name)
    text = f"{_value(name, value)} ± {percent(spread, digits=0)}"
    return text if name in found.informed_parameters(stack) else f"{text} (weakly determined)"


def _value(name: str, value: float) -> str:
    return f"{1e3 * value:.3g} ms" if stacks.catalog_units(name) == "s" else f"{value:.3g}"
