"""An optimum with a proof: branch and bound over the blocks of a space (``dse search SPEC --prove``).

``prove`` bounds what no design of a space can be better than, ``check.check`` recomputes a certificate by other means;
``prover`` is both as the entry point ``dse.provers`` names them.
"""

from __future__ import annotations

from dse.lab.prove.proof import prove as prove
from dse.optimizers.proofs import Proof, ProofOptions

__all__ = [
    "Proof",
    "ProofOptions",
]
