"""A real trace of JAX's profiler for the tests of its reader: ``python -m tests.unit.measured.jax_trace FILE.json.gz``.

A second file takes the planes of the same run, which name files of the machine.

Six steps of a small network on two devices of the host, of which the gradients are summed over both.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def main(path: Path, planes: Path | None = None) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))

    def loss(weights, inputs):
        for one in weights:
            inputs = jnp.tanh(inputs @ one)
        return jnp.mean(inputs**2)

    @jax.jit
    def train(weights, inputs):
        return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, jax.grad(loss)(weights, inputs))

    weights = jax.device_put([0.01 * jnp.ones((512, 512))] * 4, whole)
    inputs = jax.device_put(jnp.ones((256, 512)), rows)
    weights = jax.block_until_ready(train(weights, inputs))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for step in range(6):
                with jax.profiler.StepTraceAnnotation("train", step_num=step):
                    weights = jax.block_until_ready(train(weights, inputs))
        (written,) = Path(folder).rglob("*.trace.json.gz")
        shutil.copyfile(written, path)
        if planes is not None:
            (kept,) = Path(folder).rglob("*.xplane.pb")
            shutil.copyfile(kept, planes)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
