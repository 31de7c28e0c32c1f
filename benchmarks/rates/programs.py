"""Rates of the compiled programs, in this process: of evaluation, of gradients, of writing."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import pkgutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rates.sweeps import EXPERTS_SWEEP, ROOT, SERVING_SWEEP
from dse.io import fuse_outputs
from dse.io.environment import reuse_memory

if TYPE_CHECKING:
    import numpy as np

    from dse.sweep.engine.engine import SweepEngine
    from dse.sweep.results.labelled import Labelled

#: Leaves of the system by which the step time is differentiated.
GRADIENT_LEAVES = (
    "accelerator.matrix_rate.fp16", "accelerator.vector_rate", "accelerator.memory.bandwidth",
    "accelerator.memory.capacity", "accelerator.kernels.matrix_efficiency", "accelerator.kernels.vector_efficiency",
    "accelerator.kernels.memory_efficiency", "accelerator.kernels.roofline_blend", "accelerator.kernels.kernel_floor",
    "accelerator.kernels.wave_quantization", "accelerator.kernels.matrix_depth", "accelerator.cores",
    "scale_up.bandwidth", "scale_up.latency", "scale_out.bandwidth", "scale_out.latency",
)  # fmt: skip

#: Design whose step time is differentiated: names of its parts, and settings.
DESIGN = "megatron-1t", "selene", "megatron-2022"
SETTINGS: dict[str, Any] = {"n_devices": 4096, "tp": 8, "pp": 64, "recompute": "full"}

#: Evaluates designs and returns how many.
Round = Callable[[], float]

#: Turns in which two programs are timed one after the other.
_TURNS = 8

#: Seconds that a rate is measured for, after one round to warm up.
_LONG_ENOUGH = 3.0


def rates(sweep: Path) -> dict[str, float]:
    """Designs a second of the compiled programs on the designs of a sweep.

    ``grid_*`` is the sweep as it runs (outer index x inner product), ``flat_*`` the same designs one by one;
    ``*_full`` gives every output, ``*_best`` the scores and the counts by reason alone. Only distinct
    mappings count. ``loop`` is the same formulas in a plain Python loop.
    """
    engine = engine_of(sweep)
    import numpy as np

    from dse.sweep.engine.engine import CHUNK_SHORT
    from dse.sweep.engine.nesting import Nest

    flat = Nest(engine.grid)
    outer = np.arange(CHUNK_SHORT) * 1009 % flat.n_outer
    return {name: rate(once) for name, once in (flat_rounds(engine) | grid_rounds(engine)).items()} | {
        "loop": loop_rate(engine, flat.design_index(outer[:: len(outer) // 50], np.zeros(1, np.int64)))
    }


def rates_by_kind() -> dict[str, float]:
    """Designs a second of a sweep over mixtures of experts and of one over serving, each as it runs."""
    with tempfile.TemporaryDirectory() as folder:
        sweeps = {"experts": EXPERTS_SWEEP, "serving": long_serving_sweep(Path(folder))}
        found = {kind: grid_rounds(engine_of(sweep)) for kind, sweep in sweeps.items()}
    return {f"{kind}_{name}": rate(once) for kind, rounds in found.items() for name, once in rounds.items()}


def long_serving_sweep(folder: Path) -> Path:
    """The sweep over serving with 2,000 values of concurrency, written into a folder."""
    sweep, text = folder / "serving.toml", SERVING_SWEEP.read_text(encoding="utf-8")
    sweep.write_text(text.replace("to = 1024, factor = 4 }", "to = 1024, count = 2000 }"), encoding="utf-8")
    return sweep


def engine_of(sweep: Path) -> SweepEngine:
    """The engine of a sweep, as every sweep has it."""
    fuse_outputs()
    reuse_memory()
    from dse.sweep import plan
    from dse.sweep.engine.engine import SweepEngine

    return SweepEngine(plan(sweep, "top:1")[0], by_numpy=False)


def flat_rounds(engine: SweepEngine) -> dict[str, Round]:
    """Rounds over the designs of a sweep one by one: a chunk with every output, and one of the scores alone."""
    import jax
    import numpy as np

    from dse.sweep.engine.engine import CHUNK_SHORT, SweepEngine
    from dse.sweep.engine.nesting import Nest

    flat, one_by_one = Nest(engine.grid), SweepEngine(engine.grid, by_numpy=False)
    one_by_one.full_nest = flat
    lines, best = one_by_one.lines(flat, CHUNK_SHORT), engine.length(flat, CHUNK_SHORT)

    def full() -> float:
        jax.block_until_ready([output.values for output in jax.tree.leaves(one_by_one.full(0, lines))])
        return flat.line_start(lines)

    def scores() -> float:
        jax.block_until_ready(engine.scores(flat, 0, best, np.zeros((0, 1), np.float32)))
        return best

    return {"flat_full": full, "flat_best": scores}


def grid_rounds(engine: SweepEngine) -> dict[str, Round]:
    """Rounds with every output, and of the scores alone: a pass over a small sweep, chunks of a large one."""
    import jax
    import numpy as np

    from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SCORES

    nest = engine.score_nest(by_point=False)
    pivots = np.zeros((0, 1), np.float32)
    full, best = engine.lines(engine.full_nest, CHUNK_FULL), engine.length(nest, CHUNK_SCORES)

    def over_grid(total: int, chunk: int, run: Callable[[int], Any]) -> Round:
        """A whole pass over a small sweep, eight chunks of a large one; two at a time, as a sweep has them."""
        starts = range(0, min(total, 8 * chunk), chunk)

        def once() -> float:
            before = None
            for start in starts:
                found = run(start)
                jax.block_until_ready(before)
                before = found
            jax.block_until_ready(before)
            return min(total, 8 * chunk) * engine.grid.n_designs / total

        return once

    def outputs(line: int) -> list[Any]:
        return [output.values for output in jax.tree.leaves(engine.full(line, full))]

    return {
        "grid_full": over_grid(engine.full_nest.n_lines, full, outputs),
        "grid_best": over_grid(nest.n_outer, best, lambda first: engine.scores(nest, first, best, pivots)),
    }


def loop_rate(engine: SweepEngine, index: np.ndarray) -> float:
    """Designs a second of ``evaluate`` on Python's own numbers, one design after the other."""
    import jax

    from dse.designs import replace
    from dse.doors.evaluation import evaluate

    base, values = jax.tree.map(float, engine.grid.base), engine.grid.values(index)
    designs = [replace(base, {path: float(own[i]) for path, own in values.items()}) for i in range(len(index))]
    with plain_numbers():

        def once() -> float:
            for design in designs:
                evaluate(design)
            return len(designs)

        return rate(once)


@contextlib.contextmanager
def plain_numbers() -> Iterator[None]:
    """Let the model compute with Python's floats: its ``jnp`` is the math module meanwhile."""
    import numpy as np

    import dse.model
    from dse.doors.evaluation import evaluate

    def fmod(whole: float, part: float) -> float:  # NumPy's, because what compares it is negated with ~
        return np.float64(math.fmod(whole, part) if part else math.nan)

    numbers = types.SimpleNamespace(
        maximum=max,
        square=lambda value: value * value,
        minimum=min,
        sqrt=math.sqrt,
        exp=math.exp,
        expm1=math.expm1,
        log1p=math.log1p,
        log2=lambda x: math.log2(x) if x > 0.0 else -math.inf,
        ceil=lambda x: float(math.ceil(x)),
        floor=lambda x: float(math.floor(x)),
        round=np.round,
        mod=fmod,
        where=lambda condition, yes, no: yes if condition else no,
        int32=int,
        clip=lambda x, low, high: min(max(x, low), high),
    )
    names = [module.name for module in pkgutil.walk_packages(dse.model.__path__, "dse.model.")]
    modules = [importlib.import_module(name) for name in names] + [sys.modules[evaluate.__module__]]
    patched = [module for module in modules if hasattr(module, "jnp")]
    real = [module.jnp for module in patched]
    try:
        for module in patched:
            module.jnp = numbers
        yield
    finally:
        for module, jnp in zip(patched, real, strict=True):
            module.jnp = jnp


def gradients() -> dict[str, float]:
    """See :func:`gradients_here`; in a fresh process, with no program kept."""
    code = "import json; from benchmarks.rates import programs; print(json.dumps(programs.gradients_here()))"
    unset = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["DSE_CACHE"] = "0"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def gradients_here(count: int = 1024) -> dict[str, float]:
    """Step time and its gradient by 16 leaves (``dse.value_and_grad``), against the step time alone, compiled by JAX.

    Ratio of times with ``count`` designs and with 16 times as many, and seconds of the first call: it traces, compiles.
    """
    fuse_outputs()
    import jax
    import jax.numpy as jnp
    import numpy as np

    import dse
    from dse.designs import design, leaf, replace
    from dse.doors.evaluation import evaluate

    base = design(*DESIGN, **SETTINGS)
    paths = [f"system.{name}" for name in GRADIENT_LEAVES]
    both = dse.value_and_grad("step_time", base, paths)
    alone = jax.jit(jax.vmap(lambda values: evaluate(replace(base, values)).step_time))

    def values(count: int) -> dict[str, Any]:
        scale = np.linspace(0.9, 1.1, count, dtype=np.float32)
        return {path: scale * np.float32(leaf(base, path)) for path in paths}

    began = time.perf_counter()
    both(values(count))
    compiled = time.perf_counter() - began

    def ratio(count: int) -> float:
        """The least of some turns: what else a machine does lengthens either of them."""
        given = values(count)
        on_device = jax.tree.map(jnp.asarray, given)
        turns = [
            (_seconds(lambda: jax.block_until_ready(alone(on_device))), _seconds(lambda: both(given)))
            for _ in range(_TURNS)
        ]
        value, gradient = map(min, zip(*turns, strict=True))
        return gradient / value

    return {
        "gradient_ratio": ratio(count),
        "gradient_ratio_many": ratio(16 * count),
        "gradient_compile_seconds": compiled,
    }


def _seconds(once: Callable[[], Any]) -> float:
    """Seconds of ``once``: the least of many in a fifth of a second."""
    once()
    found, began = [], time.perf_counter()
    while time.perf_counter() - began < 0.2:
        start = time.perf_counter()
        once()
        found.append(time.perf_counter() - start)
    return min(found)


def writing(sweep: Path) -> dict[str, float]:
    """Bytes a second, before compression, at which results are written: as by default, and by zlib."""
    from dse.sweep import perform
    from dse.sweep.results.writing import usable

    labelled, _ = perform(sweep, output=False)
    by_compression = write_rate(labelled)
    return {
        "write_bytes_per_second": by_compression[usable("auto")],
        "write_bytes_per_second_zlib": by_compression["zlib"],
    }


def write_rate(results: Labelled, size: float = 5e8, repeats: int = 3) -> dict[str, float]:
    """Return compression → rate at which the metrics of ``results`` are written, B/s before compression.

    They are repeated to ``size`` bytes, each time by another factor, so that no compressor sees its own history.
    """
    import numpy as np

    from dse.sweep.results.labelled import Labelled, Variable
    from dse.sweep.results.writing import usable

    metrics = {name: v for name, v in results.data.items() if v.values.dtype == np.float32 and v.values.size > 1}
    n_bytes = sum(v.values.nbytes for v in metrics.values())
    factors = 1.0 + np.linspace(0.0, 1.0, max(1, round(size / n_bytes)), dtype=np.float32)
    data = {
        name: Variable(("design",), np.concatenate([v.values.reshape(-1) * f for f in factors]), v.attrs)
        for name, v in metrics.items()
    }
    repeated, names = Labelled(data, {}), dict.fromkeys((usable("auto"), "zlib", "none"))
    return {name: _writing_rate(repeated, name, repeats) for name in names}


def _writing_rate(results: Labelled, compression: str, repeats: int) -> float:
    """Return the rate of writing results, B/s before compression: the median of ``repeats`` files."""
    from dse.sweep.results.writing import write

    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            start = time.perf_counter()
            write(results, Path(folder) / "rate.nc", compression)
            seconds.append(time.perf_counter() - start)
    return sum(v.values.nbytes for v in results.data.values()) / statistics.median(seconds)


def rate(once: Round) -> float:
    """Designs a second of a round: the best of many.

    What makes a round slower than another is the machine's other work, as the ``timeit`` module argues.
    """
    once()
    best = 0.0
    began = time.perf_counter()
    while time.perf_counter() - began < _LONG_ENOUGH:
        start = time.perf_counter()
        count = once()
        best = max(best, count / (time.perf_counter() - start))
    return best
