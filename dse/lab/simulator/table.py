"""Time of an engine step as a table over its work, from one call of the model, interpolated linearly."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from dse.doors import step_time
from dse.equations import ScalarFunction
from dse.model import Batch
from dse.types import Design

#: Values of an axis per factor of 2, up to where every whole number is one.
_PER_DOUBLING = 3

#: Cached tokens of the table over the most of a sequence; attention is nearly linear between them.
_CONTEXTS = (0.0, 0.03, 0.125, 0.35, 1.0)


class StepTable(NamedTuple):
    """Seconds of a step by decoding sequences, mean context, prompt tokens, and tokens that these attend to."""

    sequences: list[float]
    contexts: list[float]
    prompts: list[float]
    reaches: list[float]
    seconds: list[float]  # flat, the last axis fastest

    def decode(self, sequences: int, context: float) -> float:
        """Return the seconds of a step without prompts; ``context``: mean cached tokens per sequence."""
        return self.mixed(sequences, context, 0.0, 0.0)

    def knot(self, context: float) -> float:
        """Return the next context, in tokens, at which the slope of the table changes, infinity for none."""
        index = bisect_right(self.contexts, context)
        return self.contexts[index] if index < len(self.contexts) else float("inf")

    def mixed(self, sequences: int, context: float, prompt: float, reach: float) -> float:
        """Return the seconds of a step with prompts.

        Args:
            sequences: decoding.
            context: cached tokens per decoding sequence, mean.
            prompt: prompt tokens.
            reach: tokens that a prompt token attends to, mean.
        """
        n, n_share = _interval_index(self.sequences, sequences)
        c, c_share = _interval_index(self.contexts, context) if sequences else (0, 0.0)
        q, q_share = _interval_index(self.prompts, prompt)
        r, r_share = _interval_index(self.reaches, reach) if prompt else (0, 0.0)
        reaches = len(self.reaches)
        of_context = len(self.prompts) * reaches
        of_sequence = of_context * len(self.contexts)
        table, total = self.seconds, 0.0
        for n_weight, n_at in ((1.0 - n_share, n * of_sequence), (n_share, (n + 1) * of_sequence)):
            for c_weight, c_at in ((1.0 - c_share, c * of_context), (c_share, (c + 1) * of_context)):
                for q_weight, q_at in ((1.0 - q_share, q * reaches), (q_share, (q + 1) * reaches)):
                    weight = n_weight * c_weight * q_weight
                    if weight:
                        offset = n_at + c_at + q_at + r
                        total += weight * (
                            table[offset] + (r_share * (table[offset + 1] - table[offset]) if r_share else 0.0)
                        )
        return total


def _interval_index(axis: list[float], value: float) -> tuple[int, float]:
    """Return the index of the interval of ``axis`` that holds ``value``, and the value's share of the way in it."""
    index = bisect_right(axis, value) - 1
    if index >= len(axis) - 1:
        return len(axis) - 1, 0.0
    low = axis[index]
    return index, (value - low) / (axis[index + 1] - low)


def step_table(design: Design, most_sequences: int, most_prompt: int, longest: int) -> StepTable:
    """Return the seconds of an engine's steps with a design as a table, from one call of the model.

    Args:
        design: with requests, serving options and engine.
        most_sequences: decoding sequences of the largest step.
        most_prompt: prompt tokens of the largest step.
        longest: most tokens of a sequence.
    """
    sequences, prompts = _axis(most_sequences, 1), _axis(most_prompt, 32)
    contexts = [share * max(longest, 2) for share in _CONTEXTS]
    reaches = [*contexts]
    points = np.array(list(itertools.product(sequences, contexts, prompts, reaches)))
    batch = Batch(*points.T)
    seconds = _seconds.batch_values(len(points), design, batch)
    return StepTable(sequences, contexts, prompts, reaches, np.asarray(seconds, np.float64).tolist())


def _axis(largest: int, first: int) -> list[float]:
    """Return 0, 1, then whole numbers from ``first`` to ``largest`` in a geometric series.

    >>> _axis(10, 1)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
    """
    knots, value = {0.0, 1.0, float(largest)}, float(first)
    while value < largest:
        knots.add(float(round(value)))
        value = max(value + 1.0, value * 2.0 ** (1.0 / _PER_DOUBLING))
    return sorted(knots)


#: Seconds of an engine step of a design and a batch.
_seconds = ScalarFunction(lambda design, batch: (step_time(design, batch), None), "engine step")
