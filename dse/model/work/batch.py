"""Sequences and tokens of one engine step."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus
from dse.types import Scalar


class Batch(NamedTuple):
    """Sequences and tokens of one engine step in one data-parallel rank."""

    sequences: Scalar  # that decode
    context: Scalar  # cached tokens per decoding sequence
    prompt: Scalar  # prompt tokens
    prompt_context: Scalar  # mean tokens that a prompt token attends to
    drafts: Scalar = 0.0  # further tokens verified per decoding sequence
    padding: Scalar = 0.0  # rows of a captured graph without a sequence

    @property
    def tokens(self) -> Scalar:
        """Rows of every matrix except the head."""
        return plus(self.sequences * (1.0 + self.drafts) + self.prompt, self.padding)

    @property
    def drafting(self) -> Scalar:
        """Drafts of a decode step, one after the other: each runs one layer and the head."""
        return self.drafts * jnp.minimum(self.sequences, 1.0)
