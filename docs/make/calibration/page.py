"""The page of a calibration of stacks: what was found, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from docs.make.markdown import document, percent, table
from dse.calibrate import stacks
from dse.calibrate.steps import NAMES, Calibration, fitted_as

_ABOUT = """\
The numbers of every stack in `hw_catalog/software/`, fitted to measured training steps: values that all stacks share,
what the stacks on one family of chips share, and at most five numbers of a stack alone, all at once
(`dse/calibrate/steps.py` says how). Run it again whenever kernels, networks or the model change.

*Error* is of the fit itself. *Unseen* errors are of rows whose configuration (model shape, batch, mapping) a fit did
not see, in folds. *Source left out* is the error when no row of the source was seen: what a stack or cluster without
measurements has to expect. *In 80 %* is the share of the unseen rows that lie in the 80 % interval of their
prediction (`--uncertainty`), with residuals taken from the other folds."""

_LIMITS = """\
The form of the model and the priors were chosen while looking at these unseen errors, so they are somewhat kinder than
those of rows never looked at; *source left out* is the sterner figure. Folds keep the choices that the whole fit made
for what a row leaves open. vTrain measured the same kernel sequence up to 30 % apart between neighbouring cells;
sources of one to six rows leave folds without their stack."""

_HEADER = [
    "source", "rows", "error", "unseen, mean", "median", "90 %", "bias", "source left out", "in 80 %",
]  # fmt: skip


def page(found: Calibration, command: str) -> str:
    """The page as Markdown; ``command`` made it."""
    parts = [
        "# Calibration of software stacks", f"Written by `{command}`.", _ABOUT,
        table(_HEADER, _errors(found)), _LIMITS,
        "## Values", "Shared by all stacks: " + ", ".join(
            f"`{name}` {_value(name, found.solution.value('', name))}" for name in NAMES
        ) + ".",
        "A stack's own values with the standard deviation of their logarithm after the data; *rows tell little* where "
        "that is nearly what it was before. *Residual* is what they leave unexplained.",
        table(["stack", "rows", "residual", *NAMES], _stacks(found)),
        f"A stack without rows has the shared values and a residual of {percent(found.residual(''))}.",
    ]  # fmt: skip
    return document(parts)


def _errors(found: Calibration) -> Iterable[list[str]]:
    for e in stacks.errors_by_source(found):
        held = stacks.coverage(found, None if e.source == "all" else e.source)
        unseen = [percent(value) for value in (e.unseen, e.unseen_median, e.unseen_p90)]
        yield [e.source, str(e.rows), percent(e.seen), *unseen, percent(e.unseen_bias, "+"), percent(e.foreign),
               percent(held, digits=0)]  # fmt: skip


def _stacks(found: Calibration) -> Iterable[Sequence[str]]:
    for stack in found.stacks:
        count = sum(other == stack for other in found.rows.stacks)
        yield [stack, str(count), percent(found.residual(stack)), *(_own(found, stack, name) for name in NAMES)]


def _own(found: Calibration, stack: str, name: str) -> str:
    if name not in found.own.get(fitted_as(stack), []):
        return ""
    value, spread = found.solution.value(stack, name), found.solution.spread_of(stack, name)
    text = f"{_value(name, value)} ± {percent(spread, digits=0)}"
    return text if name in found.moved(stack) else f"{text} (rows tell little)"


def _value(name: str, value: float) -> str:
    return f"{1e3 * value:.3g} ms" if stacks.catalog_units(name) == "s" else f"{value:.3g}"
