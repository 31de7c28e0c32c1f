"""A nest on the device: the tables that its designs are made from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from dse.sweep.engine.devices import over_devices
from dse.sweep.engine.nesting import Nest
from dse.types import Design

#: Tables and lists of designs are padded to this length at least.
SHORTEST = 1024

#: Bits of a word of the mask of mappings.
_WORD = 32


class Tables(NamedTuple):
    """A nest on the device. Tables are padded to few lengths, so that most grids share their programs."""

    base: Design
    outer: tuple[dict[str, Array], ...]  #: by digit: leaf path → value at each position
    inner: dict[str, Array]  #: leaf path → values along the inner product
    radices: Array  #: of the outer index
    mask: Array  #: [row, outer options, word] bits of which columns of options are mappings there
    word: Array  #: [inner] word of the mask that tells of each position of the inner product
    bit: Array  #: [inner] and its bit


def tables(nest: Nest) -> Tables:
    """The tables of a nest, in float32."""
    grid = nest.grid
    n_columns = nest.distinct.shape[-1]
    column = np.tile(np.arange(n_columns, dtype=np.int32), nest.n_inner // n_columns)
    host: dict[str, Any] = dict(
        base=grid.base,
        outer=tuple(map(_padded_columns, host_columns(nest))),
        inner={path: values.astype(np.float32) for path, values in nest.inner_columns().items()},
        radices=np.array(nest.outer_shape, np.int32),
        mask=_padded(_packed(nest.distinct)),
        word=column // _WORD,
        bit=column % _WORD,
    )
    return Tables(**jax.device_put(host, over_devices()))


def host_columns(nest: Nest) -> list[dict[str, np.ndarray]]:
    """By digit of the outer index: leaf path → value at each position."""
    dimensions = [nest.grid.dimensions[i].columns for i in nest.outer_dimensions]
    return [*dimensions, nest.grid.table.degrees, *(nest.options[i] for i in nest.outer_options)]


def host_values(nest: Nest, digits: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Leaf path → values at outer indices given by their digits: what ``decoding.values_at`` gives on the device."""
    pairs = zip(host_columns(nest), digits, strict=True)
    return {path: column[at] for columns, at in pairs for path, column in columns.items()}


def _packed(flags: np.ndarray) -> np.ndarray:
    """Flags along the last axis as bits of 32-bit words."""
    words = np.zeros((*flags.shape[:-1], -(-flags.shape[-1] // _WORD)), np.uint32)
    for position in range(flags.shape[-1]):
        words[..., position // _WORD] |= flags[..., position].astype(np.uint32) << np.uint32(position % _WORD)
    return words.view(np.int32)


def _padded(column: np.ndarray) -> np.ndarray:
    """A table with its last row repeated up to a power of two, 1024 at least; no index ever points there."""
    extra = max(1 << (len(column) - 1).bit_length(), SHORTEST) - len(column)
    return np.pad(column, [(0, extra)] + [(0, 0)] * (column.ndim - 1), mode="edge")


def _padded_columns(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {path: _padded(column).astype(np.float32) for path, column in columns.items()}
