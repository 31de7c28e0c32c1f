"""Where the members of a communicator are: how many of them share a scale-up domain."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Mapping, Placement, Scalar


class Group(NamedTuple):
    """Members of a communicator: in all, and inside one scale-up domain."""

    size: Scalar
    local: Scalar

    @property
    def domains(self) -> Scalar:
        """Scale-up domains the group spans."""
        return self.size / self.local


def members_within(size: Scalar, stride: Scalar, domain: Scalar) -> Scalar:
    """How many of ``size`` members placed ``stride`` devices apart share a domain in the worst-placed group.

    A group that does not tile its domain straddles a border: of groups of 6 in domains of 8, one has 2
    members on a side; what the members on every side have in common is the greatest common divisor.
    """
    fit = jnp.maximum(jnp.floor(domain / stride), 1.0)
    return common_divisor(size, fit)


def common_divisor(a: Scalar, b: Scalar, rounds: int = 6) -> Scalar:
    """Greatest common divisor of two whole numbers (Euclid); ``rounds`` suffice while the smaller is below 21."""
    for _ in range(rounds):
        # Past the end b is 0, and so is the remainder by the 1 that stands in for it: a stays in place of it.
        part = jnp.maximum(b, 1.0)
        a, b = jnp.where(b > 0.0, b, a), a - part * jnp.floor(a / part)
    return jnp.where(b > 0.0, 1.0, a)


class Groups(NamedTuple):
    """The communicators of a mapping."""

    tp: Group
    cp: Group
    dp: Group  # replicas of one weight: dp x cp
    pp: Group  # two neighbours in a pipeline: those that are farthest apart


def groups(mapping: Mapping, domain: Scalar) -> Groups:
    """Communicators of a mapping in scale-up domains of so many devices; the innermost dimension has stride 1."""
    tp, cp, pp, dp, placement = mapping.tp, mapping.cp, mapping.pp, mapping.dp, mapping.placement
    dp_outermost = placement == float(Placement.tp_cp_pp_dp)
    dp_stride = jnp.where(dp_outermost, tp * cp * pp, tp * cp)
    pp_stride = jnp.where(dp_outermost, tp * cp, tp * cp * dp)
    local_cp = members_within(cp, tp, domain)
    return Groups(
        tp=Group(tp, members_within(tp, 1.0, domain)),
        cp=Group(cp, local_cp),
        dp=Group(dp * cp, local_cp * members_within(dp, dp_stride, domain)),
        pp=Group(2.0, jnp.where(pp_stride * pp <= domain, 2.0, 1.0)),
    )
