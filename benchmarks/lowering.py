"""Programs that a card would run, lowered for it on any machine: nothing here needs one.

:func:`lowering` is a context in which every program that the package asks for is lowered for CUDA and none is compiled:
all its numbers are 1. :data:`CASES` ask for programs of sweeps, searches, co-design, gradients, the posterior, plans
and post-training. ``python -m docs.make.lowering docs/tables/benchmarks_lowering.csv`` keeps the list.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, export

import dse
from benchmarks.rates.sweeps import EXPERTS_SWEEP, ROOT, SEARCH, SERVING_SWEEP, STANDARD_SWEEP
from dse.designs import leaf
from dse.doors import STUDIES
from dse.fleet.demand import ServiceDemand
from dse.fleet.runs import RunDemand, plan_run
from dse.fleet.service import provision
from dse.lab.rl.posttraining import RlDemand, plan_rl
from dse.measured.uncertainty.posterior import Choice, posterior
from dse.optimizers import driver as drivers, evaluation, plan as plan_search, polish as polishing
from dse.optimizers.codesign import descent
from dse.sweep import plan as plan_sweep
from dse.sweep.engine import chunks, engine, gradients, reductions
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.programs import PersistentFunction

#: Programs of processors alone: a card has ``score_chunk`` in their place.
OF_PROCESSORS = frozenset(f"{chunks.__name__}:{name}" for name in ("outer_chunk", "inner_chunk"))


class Program(NamedTuple):
    """A program as it was lowered."""

    name: str  #: module and function
    arguments: int  #: arrays that it takes
    operations: int  #: of StableHLO
    custom_calls: tuple[str, ...]  #: their targets, sorted
    has_float64: bool


#: In the text of a module: a number of double precision, an operation, the target of a custom call.
_FLOAT64 = re.compile(r"(?<![A-Za-z0-9_])(?:\d+x)*f64\b")
_OPERATION = re.compile(r"\b(?:stablehlo|chlo)\.\w+")
_CUSTOM_CALL = re.compile(r"stablehlo\.custom_call @([\w.$]+)")


def program_of(name: str, jitted: Any, arguments: Any, static: dict[str, Any], platform: str) -> Program:
    """Return a jitted function at these arguments, lowered for a platform.

    Args:
        name: of the program.
        jitted: the function.
        arguments: arrays or their shapes.
        static: static keyword arguments.
        platform: ``cuda``, ``rocm``, ``tpu`` or ``cpu``.

    Raises:
        NotImplementedError, ValueError: by JAX, for a function that calls Python on the host.
    """
    exported = export.export(jitted, platforms=[platform])(*arguments, **static)
    module = exported.mlir_module()
    targets = tuple(sorted(set(_CUSTOM_CALL.findall(module))))
    n_operations = len(_OPERATION.findall(module))
    return Program(name, len(exported.in_avals), n_operations, targets, bool(_FLOAT64.search(module)))


@contextlib.contextmanager
def lowering(platform: str = "cuda") -> Iterator[list[Program]]:
    """Lower every program that is asked for meanwhile, and yield the list that they are added to.

    The package takes JAX's default device for a GPU, and NumPy evaluates no small sweep or search.
    """
    programs: list[Program] = []
    jit, active = jax.jit, [True]

    def added(function: Any, jitted: Any, arguments: Any, static: dict[str, Any]) -> Any:
        """Add a program and return the value of the function with 1 in the place of its numbers."""
        name = f"{function.__module__}:{function.__qualname__}"
        programs.append(program_of(name, jitted, arguments, static, platform))
        shapes = jax.eval_shape(functools.partial(jitted, **static), *arguments)
        return jax.tree.map(_constant, shapes)

    def compiled(self: PersistentFunction, *arguments: Any, **static: Any) -> Callable[..., Any]:
        value = added(self, self.jitted, arguments, static)
        return lambda *_: value

    def plain(jitted: Any) -> Any:
        @functools.wraps(jitted)
        def call(*arguments: Any, **static: Any) -> Any:
            is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((arguments, static)))
            if is_traced or not active:  # part of another program, or kept by a module that was imported meanwhile
                return jitted(*arguments, **static)
            return added(jitted, jitted, arguments, static)

        call.trace, call.lower = jitted.trace, jitted.lower  # type: ignore[attr-defined]
        return call

    modules = [module for name, module in sys.modules.items() if name.startswith("dse.")]
    with contextlib.ExitStack() as stack:
        for module in modules:
            for name, value in [*vars(module).items()]:
                if isinstance(value, type(jit(abs))) and value.__module__.startswith("dse."):
                    _patch(stack, module, name, plain(value))
        _patch(stack, jax, "jit", lambda *given, **options: plain(jit(*given, **options)))
        _patch(stack, jax, "default_backend", lambda: "gpu" if platform in ("cuda", "rocm") else platform)
        _patch(stack, PersistentFunction, "compiled", compiled)
        for module in (engine, evaluation):
            _patch(stack, module, "MAX_NUMPY_DESIGNS", 0)
        gradients._program.cache_clear()
        stack.callback(gradients._program.cache_clear)
        stack.callback(active.clear)
        yield programs


def _constant(shape: jax.ShapeDtypeStruct) -> Array:
    """Return an array of ones, or of zeros where it does not hold floating-point numbers."""
    return jnp.full(shape.shape, jnp.issubdtype(shape.dtype, jnp.floating), shape.dtype)


def _patch(stack: contextlib.ExitStack, where: Any, name: str, value: Any) -> None:
    """Set an attribute until the stack is closed."""
    stack.callback(setattr, where, name, getattr(where, name))
    setattr(where, name, value)


# --- who asks for programs ----------------------------------------------------------------------------------


def _sweep(sweep: Path) -> None:
    """Ask for every output of a chunk, scores, counts below a threshold, and rows of scores."""
    swept = SweepEngine(plan_sweep(sweep, "top:1")[0]).structure_engines[0]
    swept.full(0, 1)
    nest, pivots, thresholds = swept.score_nest(by_point=False), np.zeros((2, 1), np.float32), np.zeros((1, 5))
    scores = swept.scores(nest, 0, 64, pivots, thresholds.astype(np.float32))
    reductions.device_rows(scores.outer_best, np.arange(3))


def _search(specification: Path) -> None:
    """Ask for the steps of every method, the evaluation, and the polish."""
    task = plan_search(specification)
    for name in task.spec.methods:
        driver = drivers.driver(task, name)
        driver.advance(0, 1)
    polishing.polish(task, jax.tree.map(lambda array: array[:1], jax.device_get(driver.best)), driver.weights[:1])
    cube = np.zeros((1, 4, len(task.space.sizes) + len(task.space.paths)), np.float32)
    drivers._place_points(task.space, cube, size=task.evaluator.size)  # of methods that ask and tell


def _descend(specification: Path) -> None:
    """Ask for a step of a co-design by descent: chips, mappings, slopes, the optimiser."""
    problem = plan_search(specification).descent
    assert problem is not None
    descent.search(problem, budget=descent.DescentBudget(evaluations=1))


def _gradients(kind: str) -> None:
    """Ask for the gradient of a design's metric."""
    workload, metric = ("llama-3-70b", "request_latency") if kind == "serving" else ("gpt-3-175b", "step_time")
    design = dse.design(workload, "h100", n_devices=8, tp=8, kind=kind)
    path = "memory.bandwidth"
    bandwidth = np.full(gradients.BLOCK, leaf(design, f"system.accelerator.{path}"))
    dse.value_and_grad(metric, design, [path])({path: bandwidth})


def _posterior() -> None:
    """Ask for joint draws of two designs, which NumPy evaluates."""
    study = STUDIES["serving"]
    design = study.complete(
        dse.design("llama-3-70b", "h100", "vllm", kind="serving", tp=8, n_devices=8, concurrency=32)
    )
    choices = [Choice(name, design, "vllm", "h100-sxm-80gb", "llama-3-70b", "h100") for name in ("one", "other")]
    posterior(choices, "request_latency", study).draws()


def _plan_of_a_run() -> None:
    """Ask for the cheapest clusters that train a model in time."""
    plan_run(RunDemand("llama-3-8b", ("h100",), 20.0 * 86400.0, math.inf, 512, 1e12))


def _plan_of_a_service() -> None:
    """Ask for the cheapest fleets that serve a load."""
    provision(ServiceDemand("llama-3-8b", ("h100",), 10.0, 2000.0, 300.0, 1.0, 0.04, 16))


def _post_training() -> None:
    """Ask for the fastest step of reinforcement learning."""
    plan_rl(RlDemand("llama-3-8b", "h100", 16, 64, 8, 512.0, 2048.0))


#: What asks for programs, by name.
CASES: dict[str, Callable[[], None]] = {
    "sweep of training": functools.partial(_sweep, STANDARD_SWEEP),
    "sweep of mixtures of experts": functools.partial(_sweep, EXPERTS_SWEEP),
    "sweep of serving": functools.partial(_sweep, SERVING_SWEEP),
    "search": functools.partial(_search, SEARCH),
    "search, co-design by descent": functools.partial(_descend, ROOT / "sweeps" / "codesign_gpu.toml"),
    "gradients of training": functools.partial(_gradients, "training"),
    "gradients of serving": functools.partial(_gradients, "serving"),
    "posterior": _posterior,
    "plan of a run": _plan_of_a_run,
    "plan of a service": _plan_of_a_service,
    "post-training": _post_training,
}


def lowered(case: str, platform: str = "cuda") -> list[Program]:
    """Return the programs that a case asks for, lowered for a platform, each once."""
    with lowering(platform) as programs:
        CASES[case]()
    return list(dict.fromkeys(programs))
