"""A nest on the device: tables of leaf values along its axes, and the mask of mappings."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from dse.sweep.engine.decoding import FEW_ROWS
from dse.sweep.engine.devices import device_sharding
from dse.sweep.engine.nesting import Nest
from dse.types import Design

#: Tables that are longer than a few rows are padded to this length at least.
MIN_TABLE_ROWS = 1024

#: Bits of a word of the mask of mappings.
_WORD = 32


class Tables(NamedTuple):
    """A nest on the device. Tables are padded to few lengths, so that most grids share their programs."""

    base: Design
    outer: tuple[dict[str, Array], ...]  #: by digit of the outer index: leaf path → its value for each digit
    first: dict[str, Array]  #: leaf path → values along the first factor of the inner product
    second: dict[str, Array]  #: leaf path → values along the second factor
    radices: Array  #: of the outer index
    mask: Array  #: [mask row, word] bits of the inner options that are mappings


def device_tables(nest: Nest, paths: Container[str]) -> Tables:
    """Return the tables of a nest on the device, in float32, of the leaves in ``paths``."""
    first, second = (nest.columns_along(axes) for axes in (nest.inner.first, nest.inner.second))
    host: dict[str, Any] = dict(
        base=nest.grid.base,
        outer=tuple(
            {path: _padded(column).astype(np.float32) for path, column in columns.items() if path in paths}
            for columns in nest.outer_columns()
        ),
        first={path: values.astype(np.float32) for path, values in first.items()},
        second={path: values.astype(np.float32) for path, values in second.items()},
        radices=np.array(nest.outer_shape, np.int32),
        mask=_padded(_pack_bits(nest.mask)),
    )
    return Tables(**jax.device_put(host, device_sharding()))


def mask_bits(nest: Nest, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return [index along the product of a group's axes] (word of the mask, bit of the word), int32."""
    column = nest.mask_columns(axes).astype(np.int32)
    return column // _WORD, column % _WORD


def _pack_bits(flags: np.ndarray) -> np.ndarray:
    """Return flags packed along the last axis into 32-bit words, as int32; flag 0 is the lowest bit of word 0."""
    words = np.zeros((*flags.shape[:-1], -(-flags.shape[-1] // _WORD)), np.uint32)
    for i in range(flags.shape[-1]):
        words[..., i // _WORD] |= flags[..., i].astype(np.uint32) << np.uint32(i % _WORD)
    return words.view(np.int32)


def _padded(column: np.ndarray) -> np.ndarray:
    """Return a table padded with its last row to a power of two rows, at least 1024 unless it has few."""
    extra = max(1 << (len(column) - 1).bit_length(), MIN_TABLE_ROWS if len(column) > FEW_ROWS else 1) - len(column)
    return np.pad(column, [(0, extra)] + [(0, 0)] * (column.ndim - 1), mode="edge")
