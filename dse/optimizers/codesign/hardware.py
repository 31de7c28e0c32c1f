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

from dse.designs.leaves import replace
from dse.designs.records import CHIP, MADE
from dse.model.money.device import bill
from dse.types import Accelerator, Scalar

#: A coordinate of each variable: the logarithm of a positive leaf, or a share's logit; by full path.
Coordinates = dict[str, Scalar]

#: Full path → value in SI units.
Leaves = dict[str, Scalar]

STACKS, MEMORY_AREA = f"{CHIP}.stacks", f"{CHIP}.memory_area"

#: Leaves that a chip's bill counts, and how those of what it is made of begin.
_PAID, _MADE = (f"{CHIP}.die_area", f"{CHIP}.base_area", STACKS), (f"{MADE}.", "system.accelerator.fab.")

_DEVICE = "system.accelerator."

#: Linearisations of the price by which a chip is brought into its budget; each squares the distance.
_CUTS = 6

#: Budgets are met with this to spare, relative; a price as near to its budget as ``_ACTIVE`` counts as at it.
_SPARE, _ACTIVE = 2e-6, 1e-3


@dataclasses.dataclass(frozen=True)
class Hardware:
    """The variables of a co-design and its budgets."""

    simplices: tuple[tuple[str, ...], ...]  #: leaves whose values are shares of one whole
    totals: tuple[float, ...]  #: what the shares of each simplex add up to
    bounds: dict[str, tuple[float, float]]  #: positive leaf → least and largest value
    fixed: Leaves  #: die area and stacks, where they are no variables
    priced: Accelerator | None = None  #: whose bill is held against the budget, with the variables in it
    budget: float = math.inf  #: USD that making one may cost, with its memory, package, test and share of the design

    @property
    def names(self) -> tuple[str, ...]:
        """Full paths of the variables: shares, then positive leaves."""
        return (*(path for simplex in self.simplices for path in simplex), *self.bounds)

    @property
    def dimensions(self) -> int:
        """Degrees of freedom: a simplex of n shares has n - 1."""
        return len(self.bounds) + sum(len(simplex) - 1 for simplex in self.simplices)

    def leaves(self, at: Coordinates) -> Leaves:
        """Values of the variables."""
        found: Leaves = {path: jnp.exp(at[path]) for path in self.bounds}
        for simplex, total in zip(self.simplices, self.totals, strict=True):
            largest = at[simplex[0]]
            for path in simplex[1:]:
                largest = jnp.maximum(largest, at[path])
            largest = jax.lax.stop_gradient(largest)  # softmax does not change by what all logits share
            weights = {path: jnp.exp(at[path] - largest) for path in simplex}
            whole = sum(weights.values())
            found |= {path: total * weight / whole for path, weight in weights.items()}
        return found

    def cost(self, at: Mapping[str, Scalar]) -> Scalar:
        """USD of making the accelerator; 0 where no budget of money is given."""
        if self.priced is None:
            return jnp.zeros_like(next(iter(at.values())))
        values = {path: jnp.asarray(value) for path, value in self.fixed.items()}
        values |= {path: jnp.exp(at[path]) for path in self.paid}
        return bill(replace(self.priced, {path.removeprefix(_DEVICE): value for path, value in values.items()})).total

    @property
    def paid(self) -> tuple[str, ...]:
        """The variables that a bill counts."""
        return tuple(path for path in self.bounds if path in _PAID or path.startswith(_MADE))

    def project(self, at: Coordinates) -> Coordinates:
        """The nearest coordinates within bounds and budget: boxes, and half-spaces of the linearised price.

        The bill is nearly convex in the logarithms, so that each half-space holds every chip that can be paid.
        """
        at = self._centred(self._boxed(at))
        if self.priced is None:
            return at
        paid = self.paid
        goal = math.log(self.budget) - _SPARE

        def over(part: Coordinates) -> Scalar:
            return jnp.log(self.cost(at | part)) - goal

        for _ in range(_CUTS):
            part = {path: at[path] for path in paid}
            excess, slope = jax.value_and_grad(over)(part)
            slope = {path: jnp.where(at[path] <= self._box[0][path], 1e-9, slope[path]) for path in paid}
            level = sum(slope[path] * part[path] for path in paid) - excess
            nearer = optax.projections.projection_halfspace(part, slope, level)
            dear = excess > 0.0
            at = self._boxed(at | {path: jnp.where(dear, nearer[path], part[path]) for path in paid})
        return at

    def reduced(self, at: Coordinates, slope: Coordinates) -> Coordinates:
        """The part of a gradient that bounds and budget leave: steps along it are not undone by the projection.

        Adam scales every coordinate by itself; what is normal to an active budget would bend its steps.
        """
        low, high = self._box
        free = {
            path: jnp.where(
                ((at[path] <= low[path]) & (slope[path] > 0.0)) | ((at[path] >= high[path]) & (slope[path] < 0.0)),
                0.0,
                1.0,
            )
            for path in self.bounds
        }
        slope = slope | {path: slope[path] * free[path] for path in free}
        paid = self.paid
        if self.priced is None or not paid:
            return slope
        cost, normal = jax.value_and_grad(lambda part: jnp.log(self.cost(at | part)))({p: at[p] for p in paid})
        normal = {path: normal[path] * free[path] for path in paid}
        along = sum(normal[path] * slope[path] for path in paid)
        at_budget = (cost > math.log(self.budget) - _ACTIVE) & (along < 0.0)
        share = jnp.where(at_budget, along / jnp.maximum(sum(n * n for n in normal.values()), 1e-12), 0.0)
        return slope | {path: slope[path] - share * normal[path] for path in paid}

    def active(self, at: dict[str, float]) -> list[str]:
        """Which bounds and budgets hold this point: ``chip.die_area at its most``, say."""
        found = []
        for path, (low, high) in self.bounds.items():
            found += [f"{path} at its least"] * (at[path] <= math.log(low) + 1e-3)
            found += [f"{path} at its most"] * (at[path] >= math.log(high) - 1e-3)
        if self.priced is not None and float(self.cost(at)) >= self.budget * (1.0 - _ACTIVE):
            found.append("cost at its budget")
        return found

    def random(self, seed: int, count: int) -> dict[str, np.ndarray]:
        """Coordinates of random points within the budgets: [point].

        Positive leaves are spread evenly in their logarithm, shares over the whole simplex (Dirichlet of
        parameter 1).
        """
        draw = np.random.default_rng(seed)
        found: dict[str, np.ndarray] = {}
        for simplex, total in zip(self.simplices, self.totals, strict=True):
            shares = total * draw.dirichlet(np.ones(len(simplex)), size=count)
            found |= dict(zip(simplex, np.log(np.maximum(shares, 1e-4 * total)).T, strict=True))
        for path, (low, high) in self.bounds.items():
            found[path] = draw.uniform(math.log(low), math.log(high), count)
        points = {path: found[path].astype(np.float32) for path in self.names}
        return {path: np.asarray(values) for path, values in jax.jit(jax.vmap(self.project))(points).items()}

    @property
    def _box(self) -> tuple[dict[str, float], dict[str, float]]:
        """Bounds of the logarithms, with a little to spare for rounding."""
        low = {path: math.log(low) + _SPARE for path, (low, _) in self.bounds.items()}
        return low, {path: math.log(high) - _SPARE for path, (_, high) in self.bounds.items()}

    def _boxed(self, at: Coordinates) -> Coordinates:
        bounded = {path: at[path] for path in self.bounds}
        return at | optax.projections.projection_box(bounded, *self._box)

    def _centred(self, at: Coordinates) -> Coordinates:
        """Logits whose shares they name: each the logarithm of its share."""
        leaves = self.leaves(at)
        return at | {path: jnp.log(jnp.maximum(leaves[path], 1e-6)) for simplex in self.simplices for path in simplex}
