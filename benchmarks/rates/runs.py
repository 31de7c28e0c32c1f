"""Seconds and memory of whole runs: fresh processes of ``dse run``, and sweeps of growing size."""

from __future__ import annotations

import compileall
import functools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dse
from benchmarks.rates.sweeps import EXPERTS_SWEEP, LARGE_SWEEP, MACHINES_SWEEP, SEARCH

#: Fresh processes of each kind, of which the fastest counts.
_PROCESSES = 3

#: Values of the three axes of the large sweep → about so many designs.
SMALLER = {"1e5": (2, 1, 1), "1e6": (15, 1, 1), "1e7": (15, 10, 1), "1e8": (15, 31, 3)}


def scaling(measured: dict[str, Any]) -> dict[str, float]:
    """Designs a second of exact best-only sweeps of growing size, compilation apart; the last as in ``billion``."""
    from dse.sweep import perform

    text = LARGE_SWEEP.read_text(encoding="utf-8")
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
    text = LARGE_SWEEP.read_text(encoding="utf-8")
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
        "machines_seconds": best["seconds"]["run"],
        "machines_designs": best["n_designs"],
        "machines_wall_seconds": min(run["wall"] for run in done),
    }


def experts() -> dict[str, float]:
    """Seconds of the sweep over every mapping of a mixture of experts, in fresh processes; the first compiles."""
    with tempfile.TemporaryDirectory() as folder:
        done = [_timed_run(EXPERTS_SWEEP, Path(folder), "--fresh") for _ in range(_PROCESSES)]
    best = min(done[1:], key=lambda run: run["seconds"]["run"])
    return {
        "experts_seconds": best["seconds"]["run"],
        "experts_designs": best["n_designs"],
        "experts_wall_seconds": min(run["wall"] for run in done[1:]),
        "experts_cold_seconds": done[0]["wall"],
    }


def _by_step_time(text: str) -> str:
    """A specification with the step time as its one objective."""
    return re.sub(r"minimize = .*", 'minimize = "step_time"', text)


def start_up(sweep: Path) -> dict[str, float]:
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


def searches() -> dict[str, float]:
    """Seconds of ``dse search``, its figures apart, in fresh processes: cold (nothing kept), then warm; the fastest."""
    cold, warm, options = [], [], ("--fresh", "--no-figure")
    for _ in range(_PROCESSES):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_timed_run(SEARCH, Path(folder), *options, command="search")["wall"])
            warm.append(_timed_run(SEARCH, Path(folder), *options, command="search")["wall"])
    return {"search_cold_seconds": min(cold), "search_warm_seconds": min(warm)}


def _timed_run(specification: Path, folder: Path, *options: str, command: str = "run") -> dict[str, Any]:
    """What ``dse run --json``, or another command, prints, with its wall time and its peak resident memory."""
    _compile_modules()
    output = "-o", str(folder / "results.nc")
    line = [sys.executable, "-m", "dse", command, str(specification), *output, "--json", *options]
    printed = folder / "printed.json"
    environment = os.environ | {"DSE_CACHE": str(folder / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.perf_counter()
    redirect = [
        (os.POSIX_SPAWN_OPEN, 1, str(printed), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    process = os.posix_spawn(sys.executable, line, environment, file_actions=redirect)
    _, status, usage = os.wait4(process, 0)
    wall = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise RuntimeError(f"{' '.join(line)} failed with status {os.waitstatus_to_exitcode(status)}")
    kilobyte = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there
    return json.loads(printed.read_text()) | {"wall": wall, "memory": usage.ru_maxrss * kilobyte}


def doors() -> dict[str, float]:
    """User time of the first impressions: help, and the import of every door against that of what it stands on."""
    whole = "import dse; dse.design, dse.evaluate, dse.serve, dse.run, dse.open_results, dse.explain"
    return {
        "help_seconds": _user_seconds("-m", "dse", "--help"),
        "import_ratio": _user_seconds("-c", whole) / _user_seconds("-c", "import jax, xarray"),
    }


@functools.cache
def _compile_modules() -> None:
    """Write the bytecode that an installation has: without it every process compiles two hundred files anew."""
    compileall.compile_dir(Path(dse.__file__).parent, quiet=1)


def _user_seconds(*arguments: str, repeats: int = 3) -> float:
    """User time of a process of Python, the least of a few."""
    _compile_modules()
    taken = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        taken.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return min(taken)
