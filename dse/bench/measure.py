"""How fast it is: rates of evaluation, and what a cold and a warm ``dse run`` take and spend it on."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import pkgutil
import platform
import re
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from dse.sweep.engine.engine import Engine

#: The sweep that is measured.
STANDARD_SWEEP = "sweeps/megatron_1t_4096_a100.toml"

#: The sweep of a billion designs.
LARGE_SWEEP = "sweeps/billion_designs.toml"

#: The sweep of node x memory x network x clock x mapping.
MACHINES_SWEEP = "sweeps/technology_nodes_training.toml"

#: Leaves of the system by which the step time is differentiated.
_GRADIENT_LEAVES = (
    "accelerator.matrix_rate.fp16", "accelerator.vector_rate", "accelerator.memory.bandwidth",
    "accelerator.memory.capacity", "accelerator.kernels.matrix_efficiency", "accelerator.kernels.vector_efficiency",
    "accelerator.kernels.memory_efficiency", "accelerator.kernels.roofline_blend", "accelerator.kernels.kernel_floor",
    "accelerator.kernels.wave_quantization", "accelerator.kernels.matrix_depth", "accelerator.cores",
    "scale_up.bandwidth", "scale_up.latency", "scale_out.bandwidth", "scale_out.latency",
)  # fmt: skip

#: Seconds that a rate is measured for, after one round to warm up.
_LONG_ENOUGH = 3.0

#: Fresh processes of each kind, of which the fastest counts.
_PROCESSES = 3


def bench(sweep: str | Path = STANDARD_SWEEP, starts: bool = True) -> dict[str, Any]:
    """Measure everything; see ``interface.md`` for the names.

    Args:
        sweep: specification of the sweep that is run and whose designs are evaluated.
        starts: also run it in fresh processes, cold and warm, and a billion designs.

    Returns:
        Rates in designs/s, times in seconds, memory in bytes, and what they were measured on.
    """
    # Fresh processes first: Linux counts the size of the process that starts another one as that one's peak.
    measured = start_up(sweep) | billion() | machines() if starts else {}
    measured |= rates(LARGE_SWEEP if Path(sweep) == Path(STANDARD_SWEEP) else sweep) | gradients() | writing(sweep)
    if starts:
        measured |= scaling(measured)

    import jax

    return measured | {
        "device": jax.devices()[0].device_kind,
        "dtype": "float32",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "jax": jax.__version__,
        "date": date.today().isoformat(),
    }


def rates(sweep: str | Path) -> dict[str, float]:
    """Designs a second of the compiled programs on the designs of a sweep.

    ``grid_*`` is the sweep as it runs (outer index x inner product), ``flat_*`` the same designs one by one;
    ``*_full`` gives every output, ``*_best`` the scores and the counts by reason alone. Only distinct
    mappings count. ``loop`` is the same formulas in a plain Python loop.
    """
    import jax
    import numpy as np

    from dse.sweep import plan
    from dse.sweep.engine.chunks import evaluate_designs
    from dse.sweep.engine.decoding import look_up
    from dse.sweep.engine.engine import CHUNK_FULL, CHUNK_SCORES, CHUNK_SHORT, Engine
    from dse.sweep.engine.nesting import Nest

    grid, _ = plan(sweep)
    engine = Engine(grid)
    flat = Nest(grid, (), ())
    index = np.arange(CHUNK_SHORT) * 1009 % grid.n_designs
    digits, share = tuple(flat.digits(index)), grid.table.distinct.mean()
    tables, nest = engine.tables(flat), engine.score_nest(by_point=False)
    pivots = np.zeros((0, 1), np.float32)
    full, best = engine.lines(engine.full_nest, CHUNK_FULL), engine.lines(nest, CHUNK_SCORES)
    flat_best = engine.lines(flat, CHUNK_SHORT)

    def over_grid(nest: Nest, lines: int, run: Callable[[int], Any]) -> Callable[[], float]:
        """A whole pass over a small sweep, eight chunks of a large one; two at a time, as a sweep has them."""
        starts = range(0, min(nest.n_lines, 8 * lines), lines)

        def once() -> float:
            before = None
            for line in starts:
                found = run(line)
                jax.block_until_ready(before)
                before = found
            jax.block_until_ready(before)
            return min(nest.n_lines, 8 * lines) * grid.n_designs / nest.n_lines

        return once

    def flat_full() -> float:
        values = look_up(tables.outer, digits)
        jax.block_until_ready(evaluate_designs(tables.base, values, program=engine.program))
        return len(index)

    def flat_scores() -> float:
        jax.block_until_ready(engine.scores(flat, 0, flat_best, pivots))
        return flat_best * flat.outer_a_line * share

    return {
        "flat_full": _rate(flat_full),
        "flat_best": _rate(flat_scores),
        "grid_full": _rate(over_grid(engine.full_nest, full, lambda line: engine.full(line, full))),
        "grid_best": _rate(over_grid(nest, best, lambda line: engine.scores(nest, line, best, pivots))),
        "loop": loop_rate(engine, index[:: len(index) // 50]),
    }


def loop_rate(engine: Engine, index: np.ndarray) -> float:
    """Designs a second of ``evaluate`` on Python's own numbers, one design after the other."""
    import jax

    from dse.design import replace
    from dse.evaluate import evaluate
    from dse.sweep.engine.nesting import Nest

    flat = Nest(engine.grid, (), ())
    tables = jax.device_get(engine.tables(flat))
    base = jax.tree.map(float, tables.base)
    designs = [
        replace(base, {path: float(column[i]) for table, i in zip(tables.outer, digits, strict=True)
                       for path, column in table.items()})
        for digits in flat.digits(index).T
    ]  # fmt: skip
    with plain_numbers():

        def once() -> float:
            for design in designs:
                evaluate(design)
            return len(designs)

        return _rate(once)


@contextlib.contextmanager
def plain_numbers() -> Iterator[None]:
    """Let the model compute with Python's floats: its ``jnp`` is the math module meanwhile."""
    import numpy as np

    import dse.model
    from dse.evaluate import evaluate

    def fmod(whole: float, part: float) -> float:  # NumPy's, because what compares it is negated with ~
        return np.float64(math.fmod(whole, part) if part else math.nan)

    numbers = types.SimpleNamespace(
        maximum=max, minimum=min, sqrt=math.sqrt, exp=math.exp, log2=lambda x: math.log2(x) if x > 0.0 else -math.inf,
        ceil=lambda x: float(math.ceil(x)), floor=lambda x: float(math.floor(x)), round=np.round,
        mod=fmod, where=lambda condition, yes, no: yes if condition else no, int32=int,
        clip=lambda x, low, high: min(max(x, low), high),
    )  # fmt: skip
    names = [f"dse.model.{module.name}" for module in pkgutil.iter_modules(dse.model.__path__)]
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
    """See :func:`_gradients`; in a fresh process, as of who differentiates ``evaluate`` and sweeps nothing.

    (A sweep asks XLA for fused outputs, which single gradients do not gain by.)
    """
    code = "import json; from dse.bench import measure; print(json.dumps(measure._gradients()))"
    unset = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _gradients(count: int = 1024) -> dict[str, float]:
    """Step time and its gradient by 16 leaves, against the step time alone: ratio of times, seconds to compile.

    A gradient goes over some two thousand values a design twice: of more designs at once they leave the cache, and
    the ratio grows (13 at 4,096, 23 at 16,384).
    """
    import jax
    import jax.numpy as jnp

    from dse.design import design, leaf, replace
    from dse.evaluate import evaluate

    base = design("megatron-1t", "selene", "megatron-2022", n_devices=4096, tp=8, pp=64, recompute="full")
    paths = [f"system.{name}" for name in _GRADIENT_LEAVES]

    def step_time(values: tuple[jax.Array, ...]) -> jax.Array:  # a tuple: leaves of one stacked vector are far slower
        return evaluate(replace(base, dict(zip(paths, values, strict=True)))).step_time

    scale = jnp.linspace(0.9, 1.1, count, dtype=jnp.float32)
    values = tuple(scale * jnp.float32(leaf(base, path)) for path in paths)
    alone = jax.jit(jax.vmap(step_time)).lower(values).compile()
    lowered = jax.jit(jax.vmap(jax.value_and_grad(step_time))).lower(values)
    began = time.perf_counter()
    both = lowered.compile()
    compiled = time.perf_counter() - began

    def timed(program: Callable[..., Any]) -> Callable[[], float]:
        def once() -> float:
            jax.block_until_ready(program(values))
            return count

        return once

    return {"gradient_ratio": _rate(timed(alone)) / _rate(timed(both)), "gradient_compile_seconds": compiled}


def writing(sweep: str | Path) -> dict[str, float]:
    """Bytes a second, before compression, at which results are written: as by default, and by zlib."""
    from dse.sweep.results.writing import usable, write_rate
    from dse.sweep.run import perform

    labelled, _ = perform(sweep, output=False)
    by_compression = write_rate(labelled)
    return {
        "write_bytes_per_second": by_compression[usable("auto")],
        "write_bytes_per_second_zlib": by_compression["zlib"],
    }


#: Values of the three axes of the large sweep → about so many designs.
SMALLER = {"1e5": (2, 1, 1), "1e6": (15, 1, 1), "1e7": (15, 10, 1), "1e8": (15, 31, 3)}


def scaling(measured: dict[str, Any]) -> dict[str, float]:
    """Designs a second of exact best-only sweeps of growing size, compilation apart; the last as in ``billion``."""
    from dse.sweep.run import perform

    text = Path(LARGE_SWEEP).read_text(encoding="utf-8")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for size, counts in SMALLER.items():
            file = Path(folder) / f"{size}.toml"
            file.write_text(_by_step_time(_with_counts(text, counts)), encoding="utf-8")
            summaries = [perform(file, output=False, keep="top:1")[1] for _ in range(3)]
            found[f"best_of_{size}"] = max(s.n_designs / s.seconds["run"] for s in summaries[1:])
    return found | {"best_of_1e9": measured["billion_designs"] / measured["billion_best_seconds"]}


def _with_counts(text: str, counts: tuple[int, ...]) -> str:
    """A specification with other numbers of values along its ranges; of a single one the first value stays."""
    for line, count in zip(re.findall(r".*count = \d+.*", text), counts, strict=True):
        single = re.sub(r"\{ from = (.*?), .*\}", r"[\1]", line)
        text = text.replace(line, single if count == 1 else re.sub(r"count = \d+", f"count = {count}", line))
    return text


def billion() -> dict[str, float]:
    """Seconds, compilation apart, and memory of the exact best and the exact front of a billion designs.

    The best is of step time alone: with a second objective its best values along every axis are found too.
    """
    text = Path(LARGE_SWEEP).read_text(encoding="utf-8")
    runs: dict[str, list[dict[str, Any]]] = {"top:1": [], "pareto": []}
    with tempfile.TemporaryDirectory() as folder:
        best = Path(folder) / "best.toml"
        best.write_text(_by_step_time(text), encoding="utf-8")
        for _ in range(_PROCESSES):
            for sweep, (keep, done) in zip((best, LARGE_SWEEP), runs.items(), strict=True):
                done.append(_timed_run(sweep, Path(folder), "--fresh", "--keep", keep))
    seconds = {keep: min(run["seconds"]["run"] for run in done) for keep, done in runs.items()}
    return {
        "billion_best_seconds": seconds["top:1"],
        "billion_pareto_seconds": seconds["pareto"],
        "billion_peak_memory_bytes": max(run["memory"] for done in runs.values() for run in done),
        "billion_designs": runs["pareto"][0]["n_designs"],
    }


def machines() -> dict[str, float]:
    """Seconds of the sweep over generated machines, each with its best mapping, in fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        done = [_timed_run(MACHINES_SWEEP, Path(folder), "--fresh") for _ in range(_PROCESSES)]
    best = min(done, key=lambda run: run["seconds"]["run"])
    return {
        "machines_seconds": best["seconds"]["run"], "machines_designs": best["n_designs"],
        "machines_wall_seconds": min(run["wall"] for run in done),
    }  # fmt: skip


def _by_step_time(text: str) -> str:
    """A specification with the step time as its one objective."""
    return re.sub(r"minimize = .*", 'minimize = "step_time"', text)


def _rate(once: Callable[[], float]) -> float:
    """Designs a second of ``once``, which returns how many it evaluated: the best of many rounds.

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


def start_up(sweep: str | Path) -> dict[str, float]:
    """Seconds and memory of ``dse run`` in fresh processes: cold (nothing kept), then warm; the fastest of each."""
    cold, warm, size = [], [], 0.0
    for _ in range(_PROCESSES):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_timed_run(sweep, Path(folder)))
            warm.append(_timed_run(sweep, Path(folder), "--fresh"))  # else it would find its results
            size = (Path(folder) / "results.nc").stat().st_size
    memory = max(run["memory"] for run in cold + warm)
    first, again = (min(runs, key=lambda run: run["wall"]) for runs in (cold, warm))
    return {
        "cold_seconds": first["wall"],
        "warm_seconds": again["wall"],
        "import_seconds": first["seconds"]["import"],
        "trace_seconds": first["seconds"]["trace"],
        "compile_seconds": first["seconds"]["compile"],
        "warm_compile_seconds": again["seconds"]["compile"],
        "run_seconds": again["seconds"]["run"],
        "write_seconds": again["seconds"]["write"],
        "figure_seconds": again["seconds"]["figure"],
        "file_bytes": size,
        "peak_memory_bytes": memory,
        "designs": first["n_designs"],
    }


def _timed_run(sweep: str | Path, folder: Path, *options: str) -> dict[str, Any]:
    """What ``dse run --json`` prints, with its wall time and its peak resident memory."""
    command = [sys.executable, "-m", "dse", "run", str(sweep), "-o", str(folder / "results.nc"), "--json", *options]
    printed = folder / "printed.json"
    environment = os.environ | {"DSE_CACHE": str(folder / "cache")}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"):
        environment.pop(name, None)
    began = time.perf_counter()
    redirect = [
        (os.POSIX_SPAWN_OPEN, 1, str(printed), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    process = os.posix_spawn(sys.executable, command, environment, file_actions=redirect)
    _, status, usage = os.wait4(process, 0)
    wall = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} failed with status {os.waitstatus_to_exitcode(status)}")
    kilobyte = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there
    return json.loads(printed.read_text()) | {"wall": wall, "memory": usage.ru_maxrss * kilobyte}
