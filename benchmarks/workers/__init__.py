"""Sweeps on many processes: workers against shards, a worker that is killed, what a shard costs, memory over time.

``python -m benchmarks.workers`` prints it all as JSON; ``python -m docs.make.many_machines`` writes the page.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.rates.runs import SMALLER, _by_step_time, _with_counts
from benchmarks.rates.sweeps import LARGE_SWEEP

#: What is kept of a billion designs.
_KEEP = "top:10"

#: Times the designs of the sweep of a billion → how many values its ranges have.
SIZES = {1: (15, 38, 31), 4: (15, 38, 124)}

#: And those over which memory is watched: forty billion designs, half a minute.
_WATCHED = (15, 380, 124)

#: Times the designs → rounds of shards, workers, and workers of which one is killed, in turn.
_ROUNDS = {1: 5, 4: 3}


def measure() -> dict[str, Any]:
    """Everything, in one run: seconds, bytes, and what they were measured on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        memory = memory_over_time(folder)  # compiles: the others find their programs
        one = _timed(_run, folder, _sweep(folder, 1), "one.nc")
        sizes, same = zip(*(_in_turn(folder, times) for times in SIZES), strict=True)
        return {
            "one_seconds": one,
            "one_rate": sizes[0]["designs"] / one,
            "sizes": sizes,
            "same_bytes": all(same) and _digest(folder / "one.nc") == _digest(folder / "workers-1-0.nc"),
            **memory,
            **_shard_cost(folder),
            **_circumstances(),
        }


def _in_turn(folder: Path, times: int) -> tuple[dict[str, Any], bool]:
    """Shards, workers, and workers of which one is killed half-way, on so many times the sweep of a billion designs.

    The other result is whether all of them have written the same.
    """
    sweep = _sweep(folder, times)
    shards, workers, killed = [], [], []
    for i in range(_ROUNDS[times]):
        shards.append(_timed(_two_shards, folder, sweep, f"shards-{times}-{i}.nc"))
        workers.append(_timed(_run, folder, sweep, f"workers-{times}-{i}.nc", "--workers", "2"))
        killer = _Killer(workers[-1] / 2.0)
        killed.append(_timed(_run, folder, sweep, f"killed-{times}-{i}.nc", "--workers", "2", watch=killer))
    told = json.loads((folder / f"workers-{times}-0.json").read_text())
    return {
        "designs": told["n_designs"],
        "rounds": _ROUNDS[times],
        "start_seconds": told["seconds"]["start"],
        "shards_seconds": min(shards),
        "workers_seconds": min(workers),
        "killed_seconds": min(killed),
        "workers_to_shards": _ratio(workers, shards),
        "killed_to_shards": _ratio(killed, shards),
    }, len({_digest(path) for path in folder.glob(f"*-{times}-*.nc")}) == 1


def _sweep(folder: Path, times: int) -> Path:
    """The sweep of a billion designs with a multiple of its designs, by step time alone."""
    return _sized(folder, f"times-{times}", SIZES[times])


def _sized(folder: Path, name: str, counts: tuple[int, int, int]) -> Path:
    path = folder / f"{name}.toml"
    text = _with_counts(LARGE_SWEEP.read_text(encoding="utf-8"), counts)
    path.write_text(_by_step_time(text), encoding="utf-8")
    return path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def memory_over_time(folder: Path) -> dict[str, float]:
    """Resident memory of one process on a longer sweep: its peak, and how fast it grows at the end."""
    found: dict[str, float] = {}
    _run(folder, _sized(folder, "memory", _WATCHED), "memory.nc", watch=found.update)
    return found


def _circumstances() -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "date": date.today().isoformat()}


def _ratio(those: list[float], these: list[float]) -> float:
    """Of times that were taken in turn: the median, because a machine is faster in one minute than in the next."""
    return statistics.median(a / b for a, b in zip(those, these, strict=True))


def _timed(do: Callable[..., Any], *arguments: Any, **options: Any) -> float:
    began = time.perf_counter()
    do(*arguments, **options)
    return time.perf_counter() - began


# --- runs -------------------------------------------------------------------------------------------------


def _start(folder: Path, *arguments: str, told: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"DSE_CACHE": str(folder / "cache")}
    with (folder / told).open("wb") as out, (folder / f"{told}.err").open("wb") as err:
        return subprocess.Popen([sys.executable, "-m", "dse", *arguments], stdout=out, stderr=err, env=environment)


def _ended(running: subprocess.Popen[bytes]) -> None:
    if running.wait():
        raise RuntimeError(f"{running.args} ended with status {running.returncode}")


def _run(folder: Path, sweep: Path, output: str, *options: str, watch: Callable[[Any], None] | None = None) -> None:
    """``dse run --json`` in a process of its own; ``watch`` gets its resident memory, or the process itself."""
    told = output.replace(".nc", ".json")
    arguments = ("run", str(sweep), "-o", str(folder / output), "--keep", _KEEP, "--no-figure", "--json", *options)
    running = _start(folder, *arguments, told=told)
    if isinstance(watch, _Killer):
        watch(running)
        return _ended(running)
    with _resident(running.pid) as found:
        _ended(running)
    return watch(found) if watch else None


def _two_shards(folder: Path, sweep: Path, output: str) -> None:
    """Two processes at once, a share each, then the merge."""
    common = ("run", str(sweep), "-o", str(folder / output), "--keep", _KEEP, "--no-figure")
    both = [_start(folder, *common, "--shard", f"{i}/2", told=f"shard-{i}.json") for i in (1, 2)]
    for running in both:
        _ended(running)
    _ended(_start(folder, "merge", str(folder / output), "--no-figure", told="merge.json"))


class _Killer:
    """Kills one worker of a run so many seconds after its start."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, running: subprocess.Popen[bytes]) -> None:
        """Wait, then kill; a run that had no worker then is no measurement."""
        time.sleep(self._seconds)
        os.kill(workers_of(running.pid)[0], signal.SIGKILL)


def workers_of(driver: int) -> list[int]:
    """Processes of the workers that a driver has spawned: the children that have spawned nothing but compute."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == driver:
                command = (stat.parent / "cmdline").read_bytes()
                if b"spawn_main" in command:
                    found.append(int(stat.parent.name))
    return sorted(found)


# --- memory -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _resident(pid: int) -> Iterator[dict[str, float]]:
    """Resident memory of a process each second: its peak, and bytes a second that it grows by at the end."""
    taken: list[tuple[float, float]] = []
    found: dict[str, float] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            with contextlib.suppress(OSError, IndexError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                taken.append((time.monotonic(), pages * os.sysconf("SC_PAGE_SIZE")))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found |= growth([one for one in taken if one[1]])


#: Intervals over which growth is measured: what leaks grows in each, an allocator's heap in some.
_INTERVALS = 7


def growth(taken: list[tuple[float, float]]) -> dict[str, float]:
    """Of the samples of the later two thirds, the median over equal intervals: before that programs are loaded."""
    import numpy as np

    later = np.array(taken[len(taken) // 3 :])
    ends = later[np.linspace(0, len(later) - 1, _INTERVALS + 1).astype(int)] if len(later) > _INTERVALS else later[:0]
    slope = np.median(np.diff(ends[:, 1]) / np.diff(ends[:, 0])) if len(ends) else 0.0
    peak = max((size for _, size in taken), default=0.0)
    return {"memory_peak_bytes": peak, "memory_growth_bytes_per_second": float(slope), "memory_samples": len(taken)}


# --- what a shard costs -----------------------------------------------------------------------------------


def _shard_cost(folder: Path) -> dict[str, float]:
    """Seconds that one more shard takes a worker: the same sweep as few and as many, in processes of their own."""
    sweep = folder / "smaller.toml"
    text = _by_step_time(LARGE_SWEEP.read_text(encoding="utf-8"))
    sweep.write_text(_with_counts(text, SMALLER["1e8"]), encoding="utf-8")
    code = (
        "import sys, json; from dse.sweep import cluster, perform\n"
        "if __name__ == '__main__':\n"
        "    cluster._CHUNKS_PER_SHARD, cluster._SHARDS_PER_WORKER = 1, int(sys.argv[1])\n"
        f"    s = perform(sys.argv[2], sys.argv[3], keep='{_KEEP}', workers=2, fresh=True)[1]\n"
        "    print(json.dumps(s.seconds))\n"
    )
    program = folder / "shards.py"
    program.write_text(code, encoding="utf-8")

    def seconds(shares: int) -> float:
        arguments = [sys.executable, str(program), str(shares), str(sweep), str(folder / "cost.nc")]
        environment = os.environ | {"DSE_CACHE": str(folder / "cache")}
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
        environment["PYTHONPATH"] = path
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
        return json.loads(done.stdout.splitlines()[-1])["run"]

    few, many = 4, 64
    seconds(few)
    return {"shard_cost_seconds": max(seconds(many) - seconds(few), 0.0) / (many - few)}
