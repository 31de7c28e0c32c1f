"""An optimum with a proof: branch and bound over the blocks of a space (``dse search SPEC --prove``).

It answers how much better than the best designs of a search any design of its space may be, and writes that down so
that it can be checked. Start with ``proof.py``: ``prove`` bounds, ``Certificate`` is what is written.

``blocks.py`` has blocks of designs and what their leaves lie between, ``staged.py`` computes once what the mapping
alone decides, ``forms.py`` bounds the rest by lines, ``branch.py`` divides blocks. ``check.py`` recomputes a
certificate by a second, simpler program, with lines of its own. ``prover.py`` is both as the entry point
``dse.provers`` names them.
"""

from __future__ import annotations

from dse.lab.prove.proof import prove as prove
from dse.optimizers.proofs import Proof, ProofOptions

__all__ = [
    "Proof",
    "ProofOptions",
]
