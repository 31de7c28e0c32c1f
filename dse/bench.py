"""How fast it is: rates of evaluation, and what a cold and a warm ``dse run`` take and spend it on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

#: The sweep that is measured.
STANDARD_SWEEP = "sweeps/megatron_1t_4096_a100.toml"

#: Seconds that a rate is measured for, after one round to warm up.
_LONG_ENOUGH = 1.0


def bench(sweep: str | Path = STANDARD_SWEEP, starts: bool = True) -> dict[str, Any]:
    """Measure everything; see ``interface.md`` for the names.

    Args:
        sweep: specification of the sweep that is run and whose designs are evaluated.
        starts: also run it in fresh processes, cold and warm.

    Returns:
        Rates in designs/s, times in seconds, memory in bytes, and what they were measured on.
    """
    import jax

    measured = rates(sweep)
    if starts:
        measured |= start_up(sweep)
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
    ``*_full`` gives every output, ``*_best`` the objective and feasibility alone. Only distinct mappings count.
    """
    import jax
    import numpy as np

    from dse.evaluate import evaluate
    from dse.sweep import plan
    from dse.sweep.engine import CHUNK_FULL, CHUNK_SCORES, Engine, evaluate_designs

    grid, _ = plan(sweep)
    engine = Engine(grid, evaluate)
    index = np.arange(CHUNK_FULL) % grid.n_designs
    digits, column = (jax.numpy.asarray(part, jax.numpy.int32) for part in grid.locate(index))

    def over_grid(run: Callable[[int, int], Any], chunk: int) -> Callable[[], int]:
        rows = engine.rows(chunk)

        def once() -> int:
            jax.block_until_ready([run(start, rows) for start in range(0, grid.n_outer, rows)])
            return grid.n_designs

        return once

    def flat() -> int:
        jax.block_until_ready(evaluate_designs(engine.tables, digits, column, program=engine.program))
        return len(index)

    return {
        "flat_full": _rate(flat),
        "grid_full": _rate(over_grid(engine.full, CHUNK_FULL)),
        "grid_best": _rate(over_grid(engine.scores, CHUNK_SCORES)),
    }


def _rate(once: Callable[[], int]) -> float:
    """Median designs a second of ``once``, which returns how many it evaluated."""
    once()
    found: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < _LONG_ENOUGH or len(found) < 3:
        start = time.perf_counter()
        count = once()
        found.append(count / (time.perf_counter() - start))
    return statistics.median(found)


def start_up(sweep: str | Path) -> dict[str, float]:
    """Seconds and memory of ``dse run`` in fresh processes: cold (empty compilation cache), then warm."""
    with tempfile.TemporaryDirectory() as folder:
        cold = _timed_run(sweep, Path(folder))
        warm = _timed_run(sweep, Path(folder))
        size = (Path(folder) / "results.nc").stat().st_size
    return {
        "cold_seconds": cold["wall"],
        "warm_seconds": warm["wall"],
        "import_seconds": cold["seconds"]["import"],
        "trace_seconds": cold["seconds"]["trace"],
        "compile_seconds": cold["seconds"]["compile"],
        "warm_compile_seconds": warm["seconds"]["compile"],
        "run_seconds": warm["seconds"]["run"],
        "write_seconds": warm["seconds"]["write"],
        "figure_seconds": warm["seconds"]["figure"],
        "file_bytes": size,
        "peak_memory_bytes": max(cold["memory"], warm["memory"]),
        "designs": cold["n_designs"],
    }


def _timed_run(sweep: str | Path, folder: Path) -> dict[str, Any]:
    """What ``dse run --json`` prints, with its wall time and its peak resident memory."""
    command = [sys.executable, "-m", "dse", "run", str(sweep), "-o", str(folder / "results.nc"), "--json"]
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


#: Line of the page: what is shown, name in ``bench``, how it is written, what it must be.
_LINES = [
    ("cold `dse run` (import, compile, evaluate, write, figure)", "cold_seconds", "{:.1f} s", "≤ 15 s"),
    ("second `dse run` (persistent compilation cache)", "warm_seconds", "{:.1f} s", "≤ 6 s"),
    ("– import", "import_seconds", "{:.2f} s", ""),
    ("– trace", "trace_seconds", "{:.2f} s", ""),
    ("– compile, cold", "compile_seconds", "{:.2f} s", ""),
    ("– compile, from the cache", "warm_compile_seconds", "{:.2f} s", ""),
    ("– evaluate, select, spool (warm)", "run_seconds", "{:.2f} s", ""),
    ("– build the dataset and write it", "write_seconds", "{:.2f} s", ""),
    ("– figure", "figure_seconds", "{:.2f} s", ""),
    ("peak resident memory", "peak_memory_bytes", "{:.2e} B", "≤ 1.5e9 B"),
    ("sweep as it runs, every output", "grid_full", "{:,.0f} designs/s", "≥ 1,000,000"),
    ("sweep as it runs, objective only", "grid_best", "{:,.0f} designs/s", ""),
    ("design by design, every output", "flat_full", "{:,.0f} designs/s", "≥ 1,000,000"),
]


def page(measured: dict[str, Any]) -> str:
    """``docs/benchmarks.md`` from what :func:`bench` measured."""
    lines = [
        "# Benchmarks",
        "",
        f"Made by `dse bench --docs docs/benchmarks.md` on {measured['date']}: {measured['cores']} cores "
        f"({measured['processor']}), {measured['device']}, {measured['dtype']}, jax {measured['jax']}. The sweep is "
        f"`{STANDARD_SWEEP}`: {measured['designs']:,} designs, {measured['file_bytes'] / 1e6:.0f} MB written.",
        "",
        "| what | measured | must be |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {what} | {form.format(measured[name])} | {bound} |"
        for what, name, form, bound in _LINES
        if name in measured
    ]
    lines += [
        "",
        "Cold and warm runs are fresh processes (`dse run " + STANDARD_SWEEP + "`), the cold one with an empty "
        "compilation cache; rates are medians within one process, compilation apart, and count distinct mappings only. "
        "Machines differ and are noisy: compare the lines of one page with each other.",
        "",
    ]
    return "\n".join(lines)
