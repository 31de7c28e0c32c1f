"""Layers with a state in place of keys and values: their parameters, and the bytes of the state."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Recurrent, Scalar


class NoStates(NamedTuple):
    """Of a model all of whose layers attend."""

    def parameters(self, hidden: Scalar, tp: Scalar) -> Scalar:
        """None."""
        return 0.0

    def kept_bytes(self, tp: Scalar) -> Scalar:
        """None."""
        return 0.0


class States(NamedTuple):
    """Of layers each of whose heads keeps a matrix (Dao and Gu 2024)."""

    recurrent: Recurrent

    def parameters(self, hidden: Scalar, tp: Scalar = 1.0) -> Scalar:
        """Parameters of a layer: ``h (2 G N + 2 H P + gates)`` and a convolution's taps."""
        keys, values, gates = self.columns(tp)
        return hidden * (2.0 * keys + 2.0 * values + gates) + self.recurrent.convolution * (2.0 * keys + values)

    def columns(self, tp: Scalar = 1.0) -> tuple[Scalar, Scalar, Scalar]:
        """Columns of keys (queries have as many), of values and of gates, on one of tp devices."""
        r = self.recurrent
        keys = jnp.maximum(r.state_key_heads / tp, 1.0) * r.state_key_dim
        return keys, r.state_heads * r.state_value_dim / tp, r.state_gates / tp

    def size(self, tp: Scalar) -> Scalar:
        """Elements of the state that one layer of a device keeps of a sequence of any length: ``H N P / tp``."""
        return self.recurrent.state_heads * self.recurrent.state_key_dim * self.recurrent.state_value_dim / tp

    def kept_bytes(self, tp: Scalar, activation: Scalar = 2.0) -> Scalar:
        """Bytes of it, and of the last tokens that its convolution sees."""
        keys, values, _ = self.columns(tp)
        taps = jnp.maximum(self.recurrent.convolution - 1.0, 0.0)
        return self.recurrent.state_bytes * self.size(tp) + taps * activation * (2.0 * keys + values)
