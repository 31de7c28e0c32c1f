"""What a proof of a search is asked and says; who proves joins by an entry point (``dse.provers``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dse.errors import InputError
from dse.io import plugins

if TYPE_CHECKING:
    from dse.optimizers.problem import Problem
    from dse.optimizers.space import Point


@dataclasses.dataclass(frozen=True)
class ProofOptions:
    """Gap, time and progress of a proof."""

    gap: float = 0.005  #: how much better than the best a design may be
    minutes: float | None = None  #: at most
    progress: Callable[[Any], None] | None = None  #: called with a progress that tells itself by ``str``


@dataclasses.dataclass(frozen=True)
class Proof:
    """Proven bounds of a space."""

    objectives: tuple[str, ...]
    best: float | None  #: of the one objective, of the best design, as it is written; None where none can run
    bound: float | None  #: of the one objective, that no design is better than; None where nothing is known
    front: int  #: designs that are known, of which none dominates another
    gap: float | None  #: by how much a design may be better than the nearest of them, relative
    asked: float  #: the gap that was asked for
    nothing_runs: bool  #: whether it is proven that no design can run
    leaves: Mapping[str, float]  #: of the best design by full path, those that the space moves
    blocks: Mapping[str, int]  #: blocks by what became of them
    designs: int  #: evaluated one by one
    seconds: float
    certificate: Path | None = None
    interrupted: bool = False

    @property
    def is_closed(self) -> bool:
        """True where the gap that was asked for is proven, or that no design can run."""
        return self.nothing_runs or (self.gap is not None and self.gap <= self.asked)


class CertificateCheck(NamedTuple):
    """Result of the check of a certificate."""

    is_valid: bool
    fault: str  #: where it does not, in words
    best: float | None  #: of one objective, that of the best design, as it is written
    front: int  #: designs that are known, of which none dominates another
    gap: float  #: that is proven
    blocks: int
    halved: int  #: blocks that had to be divided further
    seconds: float


class ProverProtocol(Protocol):
    """A module or an object that proves how good the best designs of a search are."""

    def prove(
        self,
        task: Problem,
        start_points: Point | None,
        identity: Mapping[str, str],
        options: ProofOptions,
        output: Path | None,
        force: bool,
    ) -> tuple[Proof, Point | None]:
        """Return a proof of bounds from known designs on, and the best designs at its end.

        Args:
            task: the space and the objectives.
            start_points: the best designs of a search, None for none.
            identity: of the search, which the certificate repeats.
            options: when the proof ends.
            output: file of the results, beside which the certificate lies; None for none.
            force: replace a file that dse has not written.

        Returns:
            The proof, and the best designs at its end.
        """

    def check(self, problem: Problem, file: Path) -> CertificateCheck:
        """Return the result of checking a certificate by other means than it was computed by."""


def prover() -> ProverProtocol:
    """Return the installed prover: that of this package, else the first by name.

    Raises:
        InputError: where none is.
    """
    entries = sorted(plugins.plugins(plugins.PROVERS).values(), key=lambda entry: not plugins.is_builtin(entry))
    if not entries:
        raise InputError(
            "--prove",
            "no prover",
            "a distribution with an entry point dse.provers",
            "install the package again: its own prover is one",
        )
    module: ProverProtocol = plugins.load(entries[0])
    if not all(callable(getattr(module, name, None)) for name in ("prove", "check")):
        raise plugins.refused(entries[0], entries[0].value, "a module with prove and check")
    return module
