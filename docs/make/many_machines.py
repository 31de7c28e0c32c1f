"""``python -m docs.make.many_machines docs/many_machines.md``: what workers cost and gain, measured and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.workers import measure
from docs.make.command import page_parser
from docs.make.files import fill
from docs.make.markdown import table

_HEADER = ("what", "measured", "must be")


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Name → table."""
    growth = found["memory_growth_bytes_per_second"]
    ratio, killed = (100.0 * (found[f"{name}_to_shards"] - 1.0) for name in ("workers", "killed"))
    rows = [
        ("one process", f"{found['one_seconds']:.1f} s", ""),
        ("`--shard 1/2` and `2/2` at once, then `dse merge`", f"{found['shards_seconds']:.1f} s", ""),
        ("`--workers 2`", f"{found['workers_seconds']:.1f} s", ""),
        ("– against the two shards", f"{ratio:+.0f} %", "≤ 15 %"),
        ("– one worker killed half-way", f"{found['killed_seconds']:.1f} s", ""),
        ("– that against the two shards", f"{killed:+.0f} %", "≤ 15 %"),
        ("– start of the workers", f"{found['start_seconds']:.1f} s", ""),
        ("– one more shard", f"{1e3 * found['shard_cost_seconds']:.0f} ms", ""),
        ("all files the same, byte for byte", "yes" if found["same_bytes"] else "no", "yes"),
        *((f"designs from which {n} such machines beat one", f"{_pays(found, n):.1e}", "") for n in (2, 4, 16)),
        ("resident memory of one process, peak", f"{found['memory_peak_bytes'] / 1e6:.0f} MB", "≤ 1000 MB"),
        ("– its growth in the later two thirds of the run", f"{60.0 * growth / 1e6:+.1f} MB/min", "flat: ≤ 10 MB/min"),
    ]
    about = (
        f"Made by `python -m docs.make.many_machines docs/many_machines.md` (`make dist-bench`) on {found['date']}, "
        f"{found['cores']} cores, load {found['load']:.1f}: `sweeps/billion_designs.toml` by step time alone, "
        f"{found['designs']:,} designs, with `--keep top:10`; programs kept, whole commands in fresh "
        "processes. Shards, workers, and workers of which one is killed took five turns: seconds are those of the "
        "fastest, ratios the medians of the turns. Memory is that of all billion designs, read each second."
    )
    return {"measured": f"{about}\n\n{table(_HEADER, rows, words=_HEADER)}"}


def _pays(found: dict[str, Any], machines: int) -> float:
    """Designs from which so many machines are faster than one in spite of their start."""
    return found["start_seconds"] * found["one_rate"] * machines / (machines - 1)


if __name__ == "__main__":
    parser = page_parser(__doc__)
    parser.add_argument("--measured", type=Path, metavar="FILE.json", help="what benchmarks.workers has printed")
    asked = parser.parse_args()
    measured = json.loads(asked.measured.read_text(encoding="utf-8")) if asked.measured else measure()
    asked.page.write_text(fill(asked.page.read_text(encoding="utf-8"), tables(measured)), encoding="utf-8")
