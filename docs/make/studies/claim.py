"""A claim of a study: ours, published, and the word for how they compare."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dse
from dse.types import Design, Metrics

AGREES, FITTED, DIFFERS = "agrees", "fitted", "differs"
LAW, IDENTITY, SETTING, NOT_CHECKED = "law only", "identity", "setting chosen", "not checked"
#: Word of a verdict → its meaning.
WORDS = {
    AGREES: "within ± 10 % or the share named; nothing of ours was fitted to the figure or chosen for it",
    FITTED: "the same, but numbers of ours were fitted to it",
    DIFFERS: "outside, whatever else is true",
    SETTING: "within, but it follows from a setting that we chose",
    IDENTITY: "within, but both sides are one formula or input",
    LAW: "no figure, an “up to”, or a setting that is not known: a direction or a bound was checked",
    NOT_CHECKED: "no figure that has a source",
}
#: No figure of a source.
NO_FIGURE = "–"
_INFINITE = float("inf")

Bounds = tuple[float, float]

#: Of a value that is shown and not judged.
ANY: Bounds = (-_INFINITE, _INFINITE)


def about(value: float, share: float = 0.1) -> Bounds:
    """Interval of ± ``share`` around a published value."""
    return (1.0 - share) * value, (1.0 + share) * value


def between(low: float, high: float, share: float = 0.1) -> Bounds:
    """Interval of a published span, wider by ``share`` of its ends."""
    return (1.0 - share) * low, (1.0 + share) * high


def reached(value: float, more: float = 0.2) -> Bounds:
    """Interval of "at least ``value``": who had more than a fifth above would say so."""
    return value, (1.0 + more) * value


def least(value: float) -> Bounds:
    """Interval of a law from ``value`` on."""
    return value, _INFINITE


def most(value: float) -> Bounds:
    """Interval of a law up to ``value``."""
    return -_INFINITE, value


class Case(NamedTuple):
    """One design, as Python builds it and as a user types it."""

    workload: str
    system: str
    software: str | None
    settings: Mapping[str, Any]

    def design(self, **more: Any) -> Design:
        """The design; ``more`` settings replace those of the case."""
        return dse.design(self.workload, self.system, self.software, any_option=True, **{**self.settings, **more})

    def metrics(self, **more: Any) -> Metrics:
        """Metrics of its training step."""
        return dse.evaluate(self.design(**more))

    def command(self) -> str:
        """The ``dse evaluate`` of the design."""
        words = ["dse", "evaluate", "-w", self.workload, "-s", self.system, "--any-option"]
        words += ["--software", self.software] if self.software else []
        for name, value in self.settings.items():
            words += ["-n", str(value)] if name == "n_devices" else ["--set", f"{name}={value}"]
        return shlex.join(words)


class Claim(NamedTuple):
    """One claim.

    Attributes:
        name: unique name, for ``--claim``.
        study: its study.
        what: the claim in words, with its setting.
        published: figure of the study; :data:`NO_FIGURE` where it has none.
        ours: function of our values; None where nothing is compared.
        bounds: interval in which each of our values must lie to agree.
        shown: format string of our values.
        word: verdict where the values lie within the bounds; outside it is ``differs``.
        why: what a reader must know of it: what is missing, fitted or chosen; a function where it has figures of ours.
        command: command that prints our values; empty: ``--claim`` of this page alone.
        cases: designs behind the values.
    """

    name: str
    study: str
    what: str
    published: str
    ours: Callable[[], Sequence[float]] | None
    bounds: tuple[Bounds, ...]
    shown: str = "{:.3g}"
    word: str = AGREES
    why: str | Callable[[], str] = ""
    command: str = ""
    cases: tuple[Case, ...] = ()


class Row(NamedTuple):
    """A claim with our values and the verdict."""

    claim: Claim
    values: tuple[float, ...]
    verdict: str

    @property
    def ours(self) -> str:
        """Our values as text."""
        return self.claim.shown.format(*self.values) if self.values else "–"

    @property
    def why(self) -> str:
        """The reason as text."""
        return self.claim.why() if callable(self.claim.why) else self.claim.why


def judged(claim: Claim) -> Row:
    """The claim with our values, computed now."""
    if claim.ours is None:
        return Row(claim, (), NOT_CHECKED)
    values = tuple(float(value) for value in claim.ours())
    if len(values) != len(claim.bounds):
        raise ValueError(f"{claim.name}: {len(values)} values for {len(claim.bounds)} intervals")
    inside = all(low <= value <= high for value, (low, high) in zip(values, claim.bounds, strict=True))
    return Row(claim, values, claim.word if inside else DIFFERS)
