"""How time and memory grow with designs, positions and number of axes, chunks and devices: exponents of powers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rates.sweeps import LARGE_SWEEP, ROOT

#: Hardware axes of the large sweep by their number of positions: the mapping table has 56,949 mappings.
_AXES = {"memory.capacity": ("40 GB", "320 GB"), "memory.bandwidth": ("1 TB/s", "8 TB/s")}
_LINK = "scale_out.bandwidth", "25 GB/s", "400 GB/s"


class Point(NamedTuple):
    """A measured sweep."""

    value: float  #: of what is varied
    designs: int
    seconds: float  #: of evaluation, compilation apart
    memory: float  #: bytes, the peak of the process


class Growth(NamedTuple):
    """What is varied, and what that costs."""

    what: str
    points: tuple[Point, ...]

    def exponent(self, name: str) -> float:
        """Slope of the logarithm of a column over that of the value, by least squares over the upper half."""
        upper = self.points[len(self.points) // 2 - 1 :]
        pairs = [(math.log(point.value), math.log(getattr(point, name))) for point in upper]
        mean = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
        spread = sum((x - mean[0]) ** 2 for x, _ in pairs)
        return sum((x - mean[0]) * (y - mean[1]) for x, y in pairs) / spread


def specification(capacity: int, memory: int, link: int, more: str = "", objective: str = '"step_time"') -> str:
    """The large sweep with other numbers of positions on its hardware axes, ranked by step time."""
    lines = []
    for line in LARGE_SWEEP.read_text(encoding="utf-8").splitlines():
        name = line.split(" = ")[0].strip('"')
        counts = {"memory.capacity": capacity, "memory.bandwidth": memory, _LINK[0]: link}
        if name in counts:
            first, last = _AXES.get(name, _LINK[1:])
            count = counts[name]
            span = f'{{ from = "{first}", to = "{last}", count = {count} }}' if count > 1 else f'["{first}"]'
            line = f'"{name}" = {span}'
        lines.append(line)
    text = "\n".join(lines).replace('["step_time", "peak_memory"]', objective)
    return text.replace("[axes]\n", f"[axes]\n{more}")


def measured() -> list[Growth]:
    """All of them."""
    sizes = [(1, 1, 1), (2, 5, 1), (4, 6, 5), (10, 15, 8), (15, 38, 31), (30, 80, 76)]
    designs = _growth("designs, the best kept", ((specification(*size), {}) for size in sizes), by_designs=True)
    front = _growth(
        "designs, the front kept",
        ((specification(*size, objective='["step_time", "peak_memory"]'), {"keep": "pareto"}) for size in sizes[:-1]),
        by_designs=True,
    )
    names = [10, 100, 1_000, 10_000]
    positions = _growth("positions of one axis", ((specification(4, count, 1), {"value": count}) for count in names))
    leaves = [
        "accelerator.kernels.matrix_efficiency",
        "accelerator.kernels.memory_efficiency",
        "scale_up.latency",
        "scale_out.latency",
        "accelerator.kernels.kernel_floor",
        "software.host_time",
    ]
    axes = _growth(
        "axes of two positions more",
        (
            (
                specification(
                    4,
                    6,
                    5,
                    "".join(
                        f'"{name}" = {{ from = {low}, to = {2 * low}, count = 2 }}\n'
                        for name, low in zip(leaves[:n], _LOW, strict=False)
                    ),
                ),
                {"value": 2**n},
            )
            for n in range(1, 7)
        ),
    )
    chunks = _growth(
        "scores a chunk",
        ((specification(10, 15, 8), {"value": 1 << power, "chunk": 1 << power}) for power in (13, 15, 17, 19, 21)),
    )
    devices = _growth(
        "devices (threads of one host)", ((specification(15, 38, 31), {"value": n, "devices": n}) for n in (1, 2))
    )
    return [designs, front, positions, axes, chunks, devices]


#: The lower of the two values of each leaf of ``axes``, in SI units.
_LOW = (0.4, 0.4, 1e-6, 2e-6, 2e-6, 1e-3)


def _growth(what: str, cases: Iterable[tuple[str, dict[str, Any]]], by_designs: bool = False) -> Growth:
    points = []
    for text, options in cases:
        found = _run(text, options)
        value = found["designs"] if by_designs else options["value"]
        points.append(Point(value, found["designs"], found["seconds"], found["memory"]))
    return Growth(what, tuple(points))


def _run(text: str, options: dict[str, Any]) -> dict[str, Any]:
    """A sweep in a process of its own, twice: the second run finds the programs in memory."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    if "devices" in options:
        fused = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"
        environment["XLA_FLAGS"] = f"{fused} --xla_force_host_platform_device_count={options['devices']}"
    with tempfile.TemporaryDirectory() as folder:
        sweep = Path(folder) / "sweep.toml"
        sweep.write_text(text, encoding="utf-8")
        line = [sys.executable, "-m", "benchmarks.rates.growth", str(sweep), options.get("keep", "top:1"),
                str(options.get("chunk", 0))]  # fmt: skip
        done = subprocess.run(line, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(sweep: str, keep: str, chunk: str) -> None:
    """One sweep: designs, seconds of the faster of two runs, bytes."""
    import resource

    from dse.sweep import execute
    from dse.sweep.engine import engine

    engine.MAX_NUMPY_DESIGNS = 0
    runs = [execute(sweep, output=False, keep=keep, chunk=int(chunk) or None)[1] for _ in range(2)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = min(run.seconds["run"] for run in runs)
    print(json.dumps({"designs": runs[0].n_designs, "seconds": seconds, "memory": memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
