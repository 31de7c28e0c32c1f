"""State-space layers in numbers, worked out by hand in comments."""

from __future__ import annotations

import pytest

from dse.model.work.states import States
from dse.types import Recurrent


def states(**changes):
    """8 heads of 64 x 32 with 2 groups of keys, 16 columns of gates, states of 4 B and a convolution of 4 taps."""
    shape = dict(attention_layers=0.0, recurrent_layers=4.0, ffn_layers=4.0, state_heads=8.0, state_key_heads=2.0)
    shape |= dict(state_key_dim=64.0, state_value_dim=32.0, state_gates=16.0, state_bytes=4.0, convolution=4.0)
    return States(Recurrent(**shape | changes))


@pytest.mark.parametrize(
    ("tp", "columns"),
    # 2 x 64 columns of keys, 8 x 32 of values, 16 of gates. Each device has at least one group of keys.
    [(1.0, (128.0, 256.0, 16.0)), (2.0, (64.0, 128.0, 8.0)), (4.0, (64.0, 64.0, 4.0))],
)
def test_columns_of_a_device(tp, columns):
    assert tuple(map(float, states().columns(tp))) == columns


def test_parameters_of_a_layer():
    """Keys and queries, values and outputs, gates: 1000 (2 x 128 + 2 x 256 + 16); 4 taps of 2 x 128 + 256 columns."""
    assert float(states().parameters(1000.0)) == 784_000.0 + 4.0 * 512.0
    assert float(states(convolution=0.0).parameters(1000.0)) == 784_000.0
    # Of four devices: 1000 (2 x 64 + 2 x 64 + 4), and 4 taps of 2 x 64 + 64 columns.
    assert float(states().parameters(1000.0, 4.0)) == 260_000.0 + 4.0 * 192.0


def test_bytes_of_a_sequence():
    """4 B of 8 x 64 x 32 elements are 65,536; 3 former tokens of 2 x 128 + 256 columns of 2 B are 3,072."""
    assert float(states().size(1.0)) == 16_384.0 and float(states().size(4.0)) == 4096.0
    assert float(states().cache_bytes(1.0)) == 65_536.0 + 3072.0
    assert float(states().cache_bytes(1.0, activation=1.0)) == 65_536.0 + 1536.0
    assert float(states().cache_bytes(4.0)) == 16_384.0 + 3.0 * 2.0 * 192.0
    assert float(states(convolution=0.0).cache_bytes(1.0)) == 65_536.0
