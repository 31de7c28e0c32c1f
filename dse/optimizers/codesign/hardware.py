"""Continuous hardware as coordinates: shares by softmax, positive leaves by their logarithm, budgets by projection.

Every coordinate is a scalar of its own (a gradient by one stacked vector compiles for minutes). Shares of one whole
keep their sum, whatever the coordinates. Other leaves stay between their bounds, and the chip within its price, by
projection: a bound that is active is met exactly, where a sigmoid would only creep up to it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dse.designs import replace
from dse.designs.records import CHIP, MANUFACTURE
from dse.model.money.device import bill
from dse.types import Accelerator, Scalar

#: A coordinate of each variable: the logarithm of a positive leaf, or a share's logit; by full path.
Coordinates = dict[str, Scalar]

#: Full path → value in SI units.
Leaves = dict[str, Scalar]

STACKS, MEMORY_AREA = f"{CHIP}.stacks", f"{CHIP}.memory_area"

#: Leaves that a chip's bill counts, and how those of what it is made of begin.
_BILLED_LEAVES, _BILLED_RECORDS = (
    (f"{CHIP}.die_area", f"{CHIP}.base_area", STACKS),
    (f"{MANUFACTURE}.", "system.accelerator.fab."),
)

_DEVICE = "system.accelerator."

#: Linearisations of the price by which a chip is brought into its budget; each squares the distance.
_PROJECTION_STEPS = 6

#: Budgets are met with this to spare, relative; a price as near to its budget as ``_ACTIVE`` counts as at it.
_SPARE, _ACTIVE = 2e-6, 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Hardware:
    """The continuous variables of a co-design, their bounds and their budget; equal where all their texts are."""

    simplices: tuple[tuple[str, ...], ...]  #: leaves whose values are shares of one whole
    totals: tuple[float, ...]  #: what the shares of each simplex add up to
    bounds: dict[str, tuple[float, float]]  #: positive leaf → least and largest value
    fixed: Leaves  #: die area and stacks, where they are no variables
    priced_accelerator: Accelerator | None = None  #: whose bill is held against the budget, with the variables in it
    budget: float = math.inf  #: USD that making one may cost, with its memory, package, test and share of the design

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hardware) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def names(self) -> tuple[str, ...]:
        """Full paths of the variables: shares, then the bounded leaves."""
        return (*(path for simplex in self.simplices for path in simplex), *self.bounds)

    @property
    def dimensions(self) -> int:
        """Number of degrees of freedom: a simplex of n shares has n - 1."""
        return len(self.bounds) + sum(len(simplex) - 1 for simplex in self.simplices)

    def leaves(self, coordinates: Coordinates) -> Leaves:
        """Return full path → value in SI units of the variables at a point."""
        values: Leaves = {path: jnp.exp(coordinates[path]) for path in self.bounds}
        for simplex, total in zip(self.simplices, self.totals, strict=True):
            largest = coordinates[simplex[0]]
            for path in simplex[1:]:
                largest = jnp.maximum(largest, coordinates[path])
            largest = jax.lax.stop_gradient(largest)  # softmax does not change by what all logits share
            weights = {path: jnp.exp(coordinates[path] - largest) for path in simplex}
            weight_sum = sum(weights.values())
            values |= {path: total * weight / weight_sum for path, weight in weights.items()}
        return values

    def cost(self, coordinates: Mapping[str, Scalar]) -> Scalar:
        """Return the USD of making one accelerator, 0 where no budget of money is given."""
        if self.priced_accelerator is None:
            return jnp.zeros_like(next(iter(coordinates.values())))
        values = {path: jnp.asarray(value) for path, value in self.fixed.items()}
        values |= {path: jnp.exp(coordinates[path]) for path in self.billed_paths}
        return bill(
            replace(self.priced_accelerator, {path.removeprefix(_DEVICE): value for path, value in values.items()})
        ).total

    @property
    def billed_paths(self) -> tuple[str, ...]:
        """Full paths of the bounded leaves that a bill counts."""
        return tuple(path for path in self.bounds if path in _BILLED_LEAVES or path.startswith(_BILLED_RECORDS))

    def project(self, coordinates: Coordinates) -> Coordinates:
        """Return coordinates moved within bounds and budget: boxes, and half-spaces of the linearised price.

        The bill is nearly convex in the logarithms, so that each half-space holds every chip that can be paid.
        """
        coordinates = self._centred(self._boxed(coordinates))
        if self.priced_accelerator is None:
            return coordinates
        billed = self.billed_paths
        log_budget = math.log(self.budget) - _SPARE

        def log_excess(billed_coordinates: Coordinates) -> Scalar:
            """Return the logarithm of the cost over the budget."""
            return jnp.log(self.cost(coordinates | billed_coordinates)) - log_budget

        for _ in range(_PROJECTION_STEPS):
            billed_coordinates = {path: coordinates[path] for path in billed}
            excess_logarithm, slope = jax.value_and_grad(log_excess)(billed_coordinates)
            slope = {path: jnp.where(coordinates[path] <= self._box[0][path], 1e-9, slope[path]) for path in billed}
            level = sum(slope[path] * billed_coordinates[path] for path in billed) - excess_logarithm
            projected = optax.projections.projection_halfspace(billed_coordinates, slope, level)
            is_dear = excess_logarithm > 0.0
            coordinates = self._boxed(
                coordinates | {path: jnp.where(is_dear, projected[path], billed_coordinates[path]) for path in billed}
            )
        return coordinates

    def projected_gradient(self, coordinates: Coordinates, slope: Coordinates) -> Coordinates:
        """Return the part of a gradient that bounds and budget leave, whose steps the projection does not undo.

        Adam scales every coordinate by itself; what is normal to an active budget would bend its steps.
        """
        low, high = self._box

        def is_held(path: str) -> Scalar:
            """Return True where a bound holds a leaf against its slope."""
            at_low, at_high = coordinates[path] <= low[path], coordinates[path] >= high[path]
            return (at_low & (slope[path] > 0.0)) | (at_high & (slope[path] < 0.0))

        is_free = {path: jnp.where(is_held(path), 0.0, 1.0) for path in self.bounds}
        slope = slope | {path: slope[path] * is_free[path] for path in is_free}
        billed = self.billed_paths
        if self.priced_accelerator is None or not billed:
            return slope
        log_cost, normal = jax.value_and_grad(lambda billed_only: jnp.log(self.cost(coordinates | billed_only)))(
            {path: coordinates[path] for path in billed}
        )
        normal = {path: normal[path] * is_free[path] for path in billed}
        normal_slope = sum(normal[path] * slope[path] for path in billed)
        at_budget = (log_cost > math.log(self.budget) - _ACTIVE) & (normal_slope < 0.0)
        square = jnp.maximum(sum(path_slope * path_slope for path_slope in normal.values()), 1e-12)
        normal_factor = jnp.where(at_budget, normal_slope / square, 0.0)
        return slope | {path: slope[path] - normal_factor * normal[path] for path in billed}

    def active_limits(self, coordinates: dict[str, float]) -> list[str]:
        """Return the bounds and budgets that hold this point as texts: ``chip.die_area at its most``, say."""
        texts = []
        for path, (low, high) in self.bounds.items():
            texts += [f"{path} at its least"] * (coordinates[path] <= math.log(low) + 1e-3)
            texts += [f"{path} at its most"] * (coordinates[path] >= math.log(high) - 1e-3)
        if self.priced_accelerator is not None and float(self.cost(coordinates)) >= self.budget * (1.0 - _ACTIVE):
            texts.append("cost at its budget")
        return texts

    def random(self, seed: int, count: int) -> dict[str, np.ndarray]:
        """Return full path → coordinates [point] of ``count`` random points within bounds and budget.

        Positive leaves are spread evenly in their logarithm, shares over the whole simplex (Dirichlet of
        parameter 1).
        """
        draw = np.random.default_rng(seed)
        coordinates: dict[str, np.ndarray] = {}
        for simplex, total in zip(self.simplices, self.totals, strict=True):
            shares = total * draw.dirichlet(np.ones(len(simplex)), size=count)
            coordinates |= dict(zip(simplex, np.log(np.maximum(shares, 1e-4 * total)).T, strict=True))
        for path, (low, high) in self.bounds.items():
            coordinates[path] = draw.uniform(math.log(low), math.log(high), count)
        points = {path: coordinates[path].astype(np.float32) for path in self.names}
        return {path: np.asarray(values) for path, values in jax.jit(jax.vmap(self.project))(points).items()}

    @property
    def _box(self) -> tuple[dict[str, float], dict[str, float]]:
        """Path → least, and path → largest logarithm of the bounded leaves, inset by a margin for rounding."""
        low = {path: math.log(low) + _SPARE for path, (low, _) in self.bounds.items()}
        return low, {path: math.log(high) - _SPARE for path, (_, high) in self.bounds.items()}

    def _boxed(self, coordinates: Coordinates) -> Coordinates:
        """Return all coordinates, those of the bounded leaves clipped to their bounds."""
        bounded = {path: coordinates[path] for path in self.bounds}
        return coordinates | optax.projections.projection_box(bounded, *self._box)

    def _centred(self, coordinates: Coordinates) -> Coordinates:
        """Return the coordinates with each share's logit replaced by the logarithm of the share."""
        leaves = self.leaves(coordinates)
        return coordinates | {
            path: jnp.log(jnp.maximum(leaves[path], 1e-6)) for simplex in self.simplices for path in simplex
        }
