"""State-space layers: parameters, and bytes of the state."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Recurrent, Scalar


class NoStates(NamedTuple):
    """State-space layers of a model that has none."""

    def parameters(self, hidden: Scalar, tp: Scalar) -> Scalar:
        """Return the parameters per layer: 0."""
        return 0.0

    def cache_bytes(self, tp: Scalar) -> Scalar:
        """Return the bytes of state: 0."""
        return 0.0


class States(NamedTuple):
    """Layers whose heads keep a matrix each (Dao and Gu 2024)."""

    recurrent: Recurrent

    def parameters(self, hidden: Scalar, tp: Scalar = 1.0) -> Scalar:
        """Return the parameters of a layer: ``h (2 G N + 2 H P + gates)`` and a convolution's taps."""
        keys, values, gates = self.columns(tp)
        return hidden * (2.0 * keys + 2.0 * values + gates) + self.recurrent.convolution * (2.0 * keys + values)

    def columns(self, tp: Scalar = 1.0) -> tuple[Scalar, Scalar, Scalar]:
        """Return the counts of columns of keys (the same for queries), values and gates, on one of tp devices."""
        r = self.recurrent
        keys = jnp.maximum(r.state_key_heads / tp, 1.0) * r.state_key_dim
        return keys, r.state_heads * r.state_value_dim / tp, r.state_gates / tp

    def size(self, tp: Scalar) -> Scalar:
        """Return the elements of the state per sequence, layer and device, of any length: ``H N P / tp``."""
        return self.recurrent.state_heads * self.recurrent.state_key_dim * self.recurrent.state_value_dim / tp

    def cache_bytes(self, tp: Scalar, activation: Scalar = 2.0) -> Scalar:
        """Return the bytes per sequence, layer and device of the state and of the last tokens of its convolution."""
        keys, values, _ = self.columns(tp)
        taps = jnp.maximum(self.recurrent.convolution - 1.0, 0.0)
        return self.recurrent.state_bytes * self.size(tp) + taps * activation * (2.0 * keys + values)
