"""The model as compiled programs that tests share: each compiles once in a process."""

from __future__ import annotations

import jax

from dse.evaluation import evaluate

#: Metrics of one design, in the precision that JAX is set to.
metrics_of = jax.jit(evaluate)

#: Metrics of designs stacked along the first axis of every leaf.
metrics_of_many = jax.jit(jax.vmap(evaluate))
