"""Sequences and tokens of one engine step."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus
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


def split_batch(batch: Batch, parts: Scalar) -> Batch:
    """Return one of ``parts`` equal parts of a batch, at least 1 sequence where there are any.

    Args:
        batch: sequences and tokens of a step.
        parts: count of pipeline stages, or of nano-batches, that work on different sequences at a time.
    """
    sequences = jnp.where(batch.sequences > 0.0, jnp.maximum(batch.sequences / parts, 1.0), 0.0)
    prompt, padding = (0.0 if nothing(part) else part / parts for part in (batch.prompt, batch.padding))
    return batch._replace(sequences=jnp.where(parts > 1.0, sequences, batch.sequences), prompt=prompt, padding=padding)
