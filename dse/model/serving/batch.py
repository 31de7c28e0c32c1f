"""What one step of an engine works on."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Scalar


class Batch(NamedTuple):
    """What one engine step works on, in one rank of data parallelism."""

    sequences: Scalar  # that decode
    context: Scalar  # tokens that each of them has in the cache
    prompt: Scalar  # tokens of prompts
    prompt_context: Scalar  # tokens that each of these attends to, in the mean
    drafts: Scalar = 0.0  # tokens that are checked beside the one of each sequence

    @property
    def tokens(self) -> Scalar:
        """Rows of every matrix but the head's."""
        return self.sequences * (1.0 + self.drafts) + self.prompt

    @property
    def drafting(self) -> Scalar:
        """Drafts of a step that decodes, one after the other: each is a layer and the head once more."""
        return self.drafts * jnp.minimum(self.sequences, 1.0)
