"""Rates of the kernels of a serving engine: those measured alone, by the formats that it computes in."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from dse.model.choice import min_prefer_first
from dse.model.machine.rates import Rates, matrix_rate, rates_of, with_isolated_kernels
from dse.types import Accelerator, Design, OperatorKind, Scalar, Serving, Software

#: Rows of an output tile: with few rows, libraries swap rows and columns to fill the tiles.
TILE_ROWS = 16.0


def engine_rates(design: Design) -> Rates:
    """Return the kernel rates of a pass of ``design``'s engine, without the engine's own constants."""
    rates = isolated_rates(design.system.accelerator, design.mapping.precision, design.software)
    return attention_rates(expert_rates(rates, design), design)


def isolated_rates(accelerator: Accelerator, precision: Scalar, software: Software | None = None) -> Rates:
    """Return the rates of kernels measured alone, with small row tiles, as engines have them.

    What these have beyond a roofline (split-k, quarter tiles, output) is left out: figures unseen are no nearer with
    it, for a third more equations.
    """
    isolated = with_isolated_kernels(accelerator)
    tile = min_prefer_first(isolated.kernels.tile_rows, TILE_ROWS)
    small = dataclasses.replace(isolated, kernels=dataclasses.replace(isolated.kernels, tile_rows=tile))
    rates, attention = rates_of(small, precision, software), isolated.kernels.attention
    if attention is None:
        return rates
    decode = rates.units[OperatorKind.flash]._replace(
        stretch=isolated.kernels.memory_efficiency / attention.decode_memory
    )
    return rates._replace(units={**rates.units, OperatorKind.flash: decode})


def expert_rates(rates: Rates, design: Design) -> Rates:
    """Return the rates with experts of 4-bit weights at the fp4 rate, unchanged where device or experts lack it."""
    serving, accelerator = design.mapping.serving or Serving(), design.system.accelerator
    if OperatorKind.grouped not in rates.units:
        return rates
    fp4_rate, unit = accelerator.matrix_rate.fp4, rates.units[OperatorKind.grouped]
    is_four_bit = (serving.expert_bytes > 0.0) & (serving.expert_bytes < 1.0) & (fp4_rate > 0.0)
    recipe_rate = matrix_rate(accelerator, design.mapping.precision)
    flop_time = unit.flop_time * jnp.where(is_four_bit, recipe_rate / jnp.maximum(fp4_rate, 1.0), 1.0)
    return rates._replace(units={**rates.units, OperatorKind.grouped: unit._replace(flop_time=flop_time)})


def attention_rates(rates: Rates, design: Design) -> Rates:
    """Return the rates with prompt attention over an 8-bit cache at its measured speed, unchanged for latent attention.

    Compressed keys and values are made whole in 16 bits before prompts attend to them.
    """
    attention, serving = rates.kernels.attention, design.mapping.serving or Serving()
    if attention is None or design.workload.latent is not None:
        return rates
    time_ratio = jnp.where(serving.cache_bytes < 2.0, attention.context_fp8, 1.0)
    prompts = rates.units[OperatorKind.context]
    prompts = prompts._replace(flop_time=prompts.flop_time * time_ratio)
    attention = dataclasses.replace(attention, context_pair=attention.context_pair * time_ratio)
    kernels = dataclasses.replace(rates.kernels, attention=attention)
    return rates._replace(units={**rates.units, OperatorKind.context: prompts}, kernels=kernels)
