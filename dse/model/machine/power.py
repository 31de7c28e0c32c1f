"""Clock, voltage and power of a device, and the clock under a power limit."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dse.model.choice import choose, min_prefer_first
from dse.model.recipes import RECIPES
from dse.types import Accelerator, Kernels, Power, Scalar

#: Lowest clock under a power limit, over the nominal one.
LOWEST_CLOCK = 0.1
#: Maximum threshold over nominal voltage of the clock's law.
HIGHEST_THRESHOLD = 0.95
#: Bisections of the clock, to 2^-8; each following Newton step squares the error.
_HALVINGS = 8
#: Powers over their limit that differ by less are equal within rounding.
_EQUAL_WATTS = 1e-5
#: Least slope of a clock above the nominal one by voltage, over that of a current that does not saturate.
_LEAST_SLOPE = 1e-3
#: Highest voltage over the nominal one, of clocks above the nominal: no chip stands it, and leakage, which is
#: exponential, keeps its digits.
_HIGHEST_VOLTAGE = 3.0
#: Voltages that differ by less are equal within rounding.
_EQUAL_VOLTS = 1e-6
#: Part of the kernels → leaves in seconds that pass in cycles of the cores (launch, issue, start of a tile,
#: exponentials; the host's part of a launch, ``block_floor``, does not), and shares of the memory's bandwidth.
_CYCLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fine": (("gemm_floor", "split_time", "quantize_floor", "quantize_row"), ("gemm_memory",)),
    "attention": (
        (
            "context_pair",
            "context_tile",
            "context_floor",
            "decode_tile",
            "decode_split",
            "decode_floor",
            "grouped_floor",
            "latent_key",
        ),
        ("context_memory", "decode_memory"),
    ),
}


def voltage(ratio: Scalar, power: Power) -> Scalar:
    """Return the ratio to the nominal voltage at ``ratio`` times the nominal clock, at least ``lowest_voltage``.

    ``f ~ (V - V_t)^2 / (V (1 + s (V - V_t)))``, solved for V: currents of transistors whose carriers saturate at
    ``1 / s`` of the nominal voltage (Toh, Ko & Meyer 1988). ``s = 0`` is the alpha-power law of Sakurai & Newton 1990
    with alpha = 2, a large s that with alpha = 1. At the lowest voltage the slope is that of lower clocks; a bend makes
    it smooth (:func:`_bent`).
    """
    threshold = jnp.minimum(power.threshold, HIGHEST_THRESHOLD)
    overdrive = 1.0 - threshold
    gain = overdrive * overdrive * ratio / (1.0 + power.saturation * overdrive)
    slow = jnp.maximum(1.0 - power.saturation * gain, _LEAST_SLOPE)
    half = threshold + 0.5 * gain * (1.0 - power.saturation * threshold)
    root = jnp.sqrt(jnp.maximum(half * half - slow * threshold * threshold, 1e-12))
    volts = jnp.minimum((half + root) / slow, _HIGHEST_VOLTAGE)
    if power.voltage_bend is not None:
        return _bent(volts, power.lowest_voltage, power.voltage_bend)
    return jnp.where(volts > (1.0 + _EQUAL_VOLTS) * power.lowest_voltage, volts, power.lowest_voltage)


def _bent(volts: Scalar, lowest: Scalar, bend: Scalar) -> Scalar:
    """Return ``volts`` with a smooth bend into ``lowest`` at most 1, both over the nominal voltage: none from it up.

    ``V_0 + (1 - V_0) h(V - V_0) / h(1 - V_0)`` with the hyperbola ``h(x) = (x + (x^2 + w^2)^0.5) / 2`` of width
    ``w = bend V_0``: parts of a chip reach their lowest voltage one after the other.
    """
    width = jnp.maximum(bend * lowest, _EQUAL_VOLTS)

    def hyperbola(excess: Scalar) -> Scalar:
        return jnp.maximum(excess + jnp.sqrt(jnp.square(excess) + width * width), 0.0)

    bent = lowest + (1.0 - lowest) * hyperbola(volts - lowest) / hyperbola(1.0 - lowest)
    return jnp.where(volts > 1.0, volts, bent)


def clock_ratio(power: Power) -> Scalar:
    """Return the ratio of the clock that the design sets to the nominal clock."""
    return power.clock / power.nominal_clock


def clock_reached(ratio: Scalar, power: Power) -> Scalar:
    """Return the core clock in Hz at ``ratio`` times the nominal clock."""
    return ratio * power.nominal_clock


def leakage_power(volts: Scalar, power: Power) -> Scalar:
    """Return the static power of the cores in W at ``volts`` times the nominal voltage.

    ``P_leak V exp(slope (V - 1))``: the voltage over the nominal one times an exponential current.
    """
    return power.leakage * volts * jnp.exp(power.leakage_slope * (volts - 1.0))


def control_power(ratio: Scalar, volts: Scalar, power: Power) -> Scalar:
    """Return the power of clock trees and control of busy cores in W at relative clock and voltage.

    ``P_control V^2 f`` with voltage and clock over the nominal ones.
    """
    return power.control * volts * volts * ratio


def flop_energy(precision: Scalar, power: Power) -> Scalar:
    """Return the energy of a matrix FLOP at ``precision`` in J, at the nominal voltage."""
    energy_over_bf16_by_rate: dict[str, Scalar] = {
        "fp32": power.four_byte_energy,
        "tf32": power.tf32_energy,
        "bf16": 1.0,
        "fp16": 1.0,
        "fp8": power.one_byte_energy,
        "int8": power.one_byte_energy,
        "fp4": power.half_byte_energy,
        "int4": power.half_byte_energy,
    }
    energy_over_bf16 = choose(
        precision, {code: energy_over_bf16_by_rate[recipe.rate] for code, recipe in RECIPES.items()}
    )
    return power.matrix_energy * energy_over_bf16


def power_limit(power: Power) -> Scalar:
    """Return the power limit in W: the operator's where one is set, at most the TDP."""
    return power.tdp if power.limit is None else min_prefer_first(power.limit, power.tdp)


def at_clock(accelerator: Accelerator, ratio: Scalar) -> Accelerator:
    """Return the accelerator with its cores at ``ratio`` times the nominal clock.

    Rates follow the clock, and so do launch and issue of kernels. Device memory keeps its bandwidth, unless slow cores
    cannot use it.

    Args:
        accelerator: at its nominal clock.
        ratio: clock over the nominal one.
    """
    rate = jax.tree.map(lambda peak: peak * ratio, accelerator.matrix_rate)
    memory = accelerator.memory
    bandwidth = jnp.minimum(memory.bandwidth, accelerator.power.feed * ratio)
    return dataclasses.replace(
        accelerator,
        matrix_rate=rate,
        vector_rate=accelerator.vector_rate * ratio,
        memory=dataclasses.replace(memory, bandwidth=bandwidth),
        kernels=_kernels_at_clock(accelerator.kernels, 1.0 / ratio, bandwidth / (memory.bandwidth * ratio)),
    )


def _kernels_at_clock(kernels: Kernels, stretch: Scalar, byte_stretch: Scalar) -> Kernels:
    """Return the kernels at a clock at which a cycle is ``stretch`` times as long.

    Seconds that pass in cycles are longer. Of the bandwidth ``B`` of device memory a kernel uses a share ``e``: a byte
    takes ``1 / B`` at the memory's own clock and ``(1 / e - 1) / B`` in cycles of the cores, caches and their links.

    Args:
        kernels: at the nominal clock.
        stretch: seconds of a cycle over those at the nominal clock.
        byte_stretch: the same over the seconds of a byte at the bandwidth that the cores can use.
    """

    def slowed(part: Any, seconds: tuple[str, ...], shares: tuple[str, ...]) -> Any:
        slower = {name: getattr(part, name) * stretch for name in seconds}
        less = {name: (share := getattr(part, name)) / (share + (1.0 - share) * byte_stretch) for name in shares}
        return dataclasses.replace(part, **slower, **less)

    parts = {
        name: slowed(part, *leaves) for name, leaves in _CYCLES.items() if (part := getattr(kernels, name)) is not None
    }
    return dataclasses.replace(slowed(kernels, ("kernel_floor",), ("memory_efficiency",)), **parts)


class Demand(NamedTuple):
    """Time and energy of repeated work at the nominal clock, of the cores and of the rest."""

    core_time: Scalar  # follows the clock
    other_time: Scalar
    core_energy: Scalar  # follows the square of the voltage
    other_energy: Scalar
    active: Scalar = 1.0  # share of the cores' time with work; otherwise their clocks are gated
    host_time: Scalar = 0.0  # host launch time; the device waits where it is longer
    memory_time: Scalar = 0.0  # part of other_time that follows the clock below ``knee`` times the nominal one
    knee: Scalar = 0.0

    def time(self, ratio: Scalar) -> Scalar:
        """Return the seconds at ``ratio`` times the nominal clock."""
        starved_time = self.memory_time * jnp.maximum(self.knee / ratio - 1.0, 0.0)
        return self.core_time / ratio + self.other_time + starved_time


def busy_power(demand: Demand, ratio: Scalar, power: Power) -> Scalar:
    """Return the board power in W of a device that repeats this work at ``ratio`` times the nominal clock.

    ``uncore + leakage(V) + (a control V^2 f t + E_core V^2 + E_other) / max(t, t_host)`` with
    ``t = t_core / f + t_other`` and memory time stretched where slow cores limit the bandwidth; ``a`` is the active
    share of the cores. Core power counts ``1 + cooling`` times. Waits for the host are too short for a limiter.

    Args:
        demand: of the work at the nominal clock.
        ratio: clock over the nominal one.
        power: parameters of the device.
    """
    volts = voltage(ratio, power)
    time = jnp.maximum(demand.time(ratio), 1e-12)
    clocks = demand.active * control_power(ratio, volts, power) * time
    cooling_factor = 1.0 + power.cooling
    work = cooling_factor * (demand.core_energy * volts * volts + clocks) + demand.other_energy
    return power.uncore + cooling_factor * leakage_power(volts, power) + work / jnp.maximum(time, demand.host_time)


def clock_under_limit(demand: Demand, limit: Scalar, highest: Scalar, power: Power) -> Scalar:
    """Return the ratio to the nominal clock, at most ``highest``, at which this work draws ``limit`` watts or less.

    Power grows with the clock, so bisection finds it; two Newton steps sharpen the root, and the second one gives its
    derivatives (implicit function theorem), since the steps before have none. At the onset of the limit they are those
    of a lower limit.

    Args:
        demand: of the work at the nominal clock.
        limit: W.
        highest: highest clock over the nominal one.
        power: parameters of the device.
    """

    def excess(ratio: Scalar) -> Scalar:
        return busy_power(demand, ratio, power) - limit

    low, high = jnp.minimum(LOWEST_CLOCK, highest), highest
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_above = excess(middle) > 0.0
        low, high = jnp.where(is_above, low, middle), jnp.where(is_above, middle, high)

    def newton(ratio: Scalar) -> Scalar:
        point = jax.lax.stop_gradient(ratio)
        slope = jax.lax.stop_gradient(jax.jvp(excess, (point,), (jnp.ones_like(point),))[1])
        return point - excess(point) / jnp.maximum(slope, 1e-6)

    near = jnp.clip(newton(0.5 * (low + high)), low, high)
    sharp = jnp.maximum(newton(near), jnp.minimum(LOWEST_CLOCK, highest))
    # Within the halves, of which proofs on intervals know the ends, with the slope of the step.
    bound = jax.lax.stop_gradient(jnp.clip(sharp, low, high)) + (sharp - jax.lax.stop_gradient(sharp))
    return jnp.where(excess(highest) > -_EQUAL_WATTS * limit, bound, highest)
