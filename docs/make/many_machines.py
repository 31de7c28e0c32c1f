"""``python -m docs.make.many_machines docs/many_machines.md``: what workers cost and gain, measured and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.workers import measure
from docs.make.command import page_parser
from docs.make.markdown import fill, table

_HEADER = ("what", "measured", "must be")


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Name → table."""
    growth, (small, large) = found["memory_growth_bytes_per_second"], found["sizes"]
    rows = [
        ("one process", f"{found['one_seconds']:.1f} s", ""),
        *(row for size in found["sizes"] for row in _of_size(size)),
        ("start of the workers", f"{small['start_seconds']:.1f} s", ""),
        ("one more shard", f"{1e3 * found['shard_cost_seconds']:.0f} ms", ""),
        ("all files of a sweep the same, byte for byte", "yes" if found["same_bytes"] else "no", "yes"),
        *((f"designs from which {n} such machines beat one", f"{_pays(found, n):.1e}", "") for n in (2, 4, 16)),
        ("resident memory of one process, peak", f"{found['memory_peak_bytes'] / 1e6:.0f} MB", "≤ 1000 MB"),
        ("– its growth in the later two thirds of the run", f"{60.0 * growth / 1e6:+.1f} MB/min", "flat: ≤ 10 MB/min"),
    ]
    about = (
        f"Made by `python -m docs.make.many_machines docs/many_machines.md` (`make dist-bench`) on {found['date']}, "
        f"{found['cores']} cores, load {found['load']:.1f}: `sweeps/billion_designs.toml` by step time alone, "
        f"{small['designs']:,} designs and four times as many, with `--keep top:10`; programs kept, whole commands in "
        "fresh processes. Shards, workers, and workers of which one is killed took "
        f"{small['rounds']} turns on the smaller sweep and {large['rounds']} on the larger: seconds are those of the "
        "fastest, ratios the medians of the turns. Memory is read each second, on the larger sweep."
    )
    return {"measured": f"{about}\n\n{table(_HEADER, rows, words=_HEADER)}"}


def _of_size(size: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of the sweep in one size."""
    much = f"{size['designs']:.1g} designs"
    ratio, killed = (100.0 * (size[f"{name}_to_shards"] - 1.0) for name in ("workers", "killed"))
    return [
        (f"{much}: `--shard 1/2` and `2/2` at once, then `dse merge`", f"{size['shards_seconds']:.1f} s", ""),
        (f"{much}: `--workers 2`", f"{size['workers_seconds']:.1f} s", ""),
        ("– against the two shards", f"{ratio:+.0f} %", "≤ 15 %"),
        (f"{much}: one of the workers killed half-way", f"{size['killed_seconds']:.1f} s", ""),
        ("– against the two shards", f"{killed:+.0f} %", "≤ 15 %"),
    ]


def _pays(found: dict[str, Any], machines: int) -> float:
    """Designs from which so many machines are faster than one in spite of their start."""
    return found["sizes"][0]["start_seconds"] * found["one_rate"] * machines / (machines - 1)


if __name__ == "__main__":
    parser = page_parser(__doc__)
    parser.add_argument("--measured", type=Path, metavar="FILE.json", help="what benchmarks.workers has printed")
    asked = parser.parse_args()
    measured = json.loads(asked.measured.read_text(encoding="utf-8")) if asked.measured else measure()
    asked.page.write_text(fill(asked.page.read_text(encoding="utf-8"), tables(measured)), encoding="utf-8")
