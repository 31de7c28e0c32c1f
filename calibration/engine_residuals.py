"""What fitted engines leave unexplained, by kind of figure: set where 80 % of unseen figures lie in their intervals.

Of a kind that an engine has no figures of, and of an engine without any, intervals are as wide as figures of sources
that no fit had seen ask for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.doors import SERVING
from dse.lab.fits import residuals
from dse.measured.uncertainty.parts import quantile

#: Kinds that follow from the time of a token where they are not measured themselves.
OF_TOKENS = ("latency", "rate")


class EngineErrors(NamedTuple):
    """Figures of all engines with their errors, as logarithms."""

    stack: np.ndarray
    source: np.ndarray
    kind: np.ndarray
    fold: np.ndarray
    unseen: np.ndarray
    foreign: np.ndarray

    def among(self, part: np.ndarray) -> EngineErrors:
        """Some of them."""
        return EngineErrors(*(column[part] for column in self))


class Coverage(NamedTuple):
    """Of some figures the share in their intervals, of those of sources left out too, and how wide both are."""

    figures: int
    unseen: float
    foreign: float
    width: float  # half of it, of the logarithm: median
    foreign_width: float


def of_engine(stack: str, kind: str, errors: EngineErrors) -> float:
    """The residual of an engine's figures of a kind."""
    alike = errors.among(errors.kind == kind)
    nothing = np.zeros(len(alike.kind))
    members = alike.stack == stack
    if not members.any():
        tokens = (errors.stack == stack) & (errors.kind == "token")
        return of_engine(stack, "token", errors) if kind in OF_TOKENS and tokens.any() else unmeasured(kind, errors)
    return residuals.class_residual(members, alike.source, alike.unseen, nothing, nothing + 1.0)


def unmeasured(kind: str, errors: EngineErrors) -> float:
    """The residual of an engine without figures of a kind."""
    alike = errors.among(errors.kind == kind)
    nothing = np.zeros(len(alike.kind))
    return residuals.unmeasured_residual(alike.source, alike.foreign, nothing, nothing + 1.0)


def widths(errors: EngineErrors) -> tuple[np.ndarray, np.ndarray]:
    """Half the width of the interval of each figure, by figures of other folds; and by those of other sources."""
    own, foreign = np.zeros(len(errors.kind)), np.zeros(len(errors.kind))
    for kind in set(errors.kind):
        for fold in set(errors.fold):
            part = (errors.kind == kind) & (errors.fold == fold)
            known = errors.among(errors.fold != fold)
            by_stack = {stack: of_engine(stack, kind, known) for stack in set(errors.stack[part])}
            own[part] = [by_stack[stack] for stack in errors.stack[part]]
        for source in set(errors.source[errors.kind == kind]):
            others = errors.among((errors.source != source) & (errors.kind == kind))
            known = others if len(others.kind) else errors
            foreign[(errors.kind == kind) & (errors.source == source)] = unmeasured(kind, known)
    return quantile() * own, quantile() * foreign


def held(errors: EngineErrors) -> dict[str, Coverage]:
    """Kind of figure → what intervals hold, and of all."""
    each = zip((errors.unseen, errors.foreign), widths(errors), strict=True)
    sizes = [(np.abs(kind_errors) <= own, own) for kind_errors, own in each]
    parts = {"all": np.ones(len(errors.kind), bool)}
    parts |= {kind: errors.kind == kind for kind in SERVING.residuals.values() if (errors.kind == kind).any()}
    return {
        name: Coverage(
            int(part.sum()),
            *(float(np.mean(inside[part])) for inside, _ in sizes),
            *(float(np.median(own[part])) for _, own in sizes),
        )
        for name, part in parts.items()
    }
