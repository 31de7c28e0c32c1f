"""The prover of ``dse search --prove``: what :class:`dse.optimizers.proofs.Prover` asks of a module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dse.lab.prove import proof as proofs
from dse.lab.prove.check import check
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import Proof, ProofOptions
from dse.optimizers.space import Point

__all__ = ["check", "prove"]


def prove(
    task: Problem,
    incumbents: Point | None,
    identity: Mapping[str, str],
    options: ProofOptions,
    output: Path | None,
    force: bool,
) -> tuple[Proof, Point | None]:
    """Prove a bound on the objectives of a space; return the proof and the designs of its front.

    Args:
        task: the space, with one objective or two.
        incumbents: feasible designs that the proof begins with.
        identity: what results depend on; its digest stands in the certificate.
        options: the gap that is asked for, and the time.
        output: results file beside which the certificate is written; None: none is.
        force: replace a file that dse has not written.

    Returns:
        The proof, and the designs of its front; None where none is feasible.
    """
    file = proofs.certificate_path(output) if output else None
    proof, certificate = proofs.prove(task, incumbents, identity, options, file, force)
    return proof, proofs.front_points(task, certificate.front) if proof.front else None
