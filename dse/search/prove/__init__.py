"""An optimum with a proof: branch and bound over the blocks of a space (``dse search SPEC --prove``).

``prove`` bounds what no design of a space can be better than, ``check`` recomputes a certificate by other means.
"""

from __future__ import annotations

from dse.search.prove.proof import Proof, ProofOptions, prove

__all__ = ["Proof", "ProofOptions", "prove"]
