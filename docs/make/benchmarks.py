"""``python -m docs.make.benchmarks docs/benchmarks.md``: rates and start-up times, measured and written."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import gpu, questions
from benchmarks.rates import against_loop, bench
from benchmarks.rates.revisions import PASSES, RECORD
from benchmarks.rates.runs import SMALLER
from benchmarks.rates.sweeps import EXPERTS_SWEEP, LARGE_SWEEP, SERVING_SWEEP, STANDARD_SWEEP, shown
from docs.make import growth, lowering
from docs.make.command import page_parser
from docs.make.markdown import document, table

#: Designs a second and core of Calculon (commit caa4b11f8fe1), as shipped and with its logging stripped.
_CALCULON = {"as shipped": (73.0, 100_000), "its logging stripped": (1690.0, 5_000)}

#: Line of the page: what is shown, name in ``bench``, how it is written, what it must be.
_LINES = [
    ("cold `dse run` (import, compile, evaluate, write, figure)", "cold_seconds", "{:.1f} s", "≤ 6 s"),
    ("second `dse run` (its programs are kept)", "warm_seconds", "{:.1f} s", "≤ 2.5 s"),
    ("– import", "import_seconds", "{:.2f} s", ""),
    ("– trace, cold", "trace_seconds", "{:.2f} s", ""),
    ("– compile, cold", "compile_seconds", "{:.2f} s", "≤ 4 s"),
    ("– load programs (warm, nothing is traced)", "warm_compile_seconds", "{:.2f} s", ""),
    ("– evaluate, select, store (warm)", "run_seconds", "{:.2f} s", ""),
    ("– build the dataset and write it", "write_seconds", "{:.2f} s", ""),
    ("– figure", "figure_seconds", "{:.2f} s", ""),
    ("`dse --help`, user time", "help_seconds", "{:.2f} s", "≤ 0.5 s"),
    ("import of every door, against jax and xarray, user time", "import_ratio", "{:.2f} x", "≤ 1.5 x"),
    ("peak resident memory", "peak_memory_bytes", "{:.2e} B", "≤ 0.8e9 B"),
    ("sweep as it runs, every output", "grid_full", "{:,.0f} designs/s", "≥ 50,000,000"),
    ("sweep as it runs, best only", "grid_best", "{:,.0f} designs/s", "≥ 500,000,000"),
    ("design by design, every output", "flat_full", "{:,.0f} designs/s", "≥ 20,000,000"),
    ("design by design, best only", "flat_best", "{:,.0f} designs/s", "≥ 21,000,000"),
    ("the same formulas in a plain Python loop", "loop", "{:,.0f} designs/s", ""),
    ("exact best of 1e9 designs", "billion_best_seconds", "{:.1f} s", "≤ 2 s"),
    ("exact front of 1e9 designs, step time against memory", "billion_pareto_seconds", "{:.1f} s", "≤ 4 s"),
    ("– peak resident memory", "billion_peak_memory_bytes", "{:.2e} B", "≤ 1e9 B"),
    ("best mapping of 1,400 generated machines, 6.1e7 designs", "machines_seconds", "{:.1f} s", "≤ 2.5 s"),
    ("– compilation and the rest included", "machines_wall_seconds", "{:.1f} s", ""),
    ("every mapping of DeepSeek-V3 on 2,048 H800s, 1.7e7 designs", "experts_seconds", "{:.1f} s", "≤ 8.7 s"),
    ("– the rest of a second `dse run` included", "experts_wall_seconds", "{:.1f} s", ""),
    ("– cold", "experts_cold_seconds", "{:.1f} s", ""),
    ("– as it runs, every output", "experts_grid_full", "{:,.0f} designs/s", "≥ 25,000,000"),
    ("– as it runs, best only", "experts_grid_best", "{:,.0f} designs/s", "≥ 60,000,000"),
    ("serving as it runs, every output", "serving_grid_full", "{:,.0f} designs/s", "≥ 9,000,000"),
    ("serving as it runs, best only", "serving_grid_best", "{:,.0f} designs/s", "≥ 23,000,000"),
    ("cold `dse run` of serving", "serving_cold_seconds", "{:.1f} s", "≤ 7 s"),
    ("second one", "serving_warm_seconds", "{:.1f} s", ""),
    ("cold `dse search` of four methods, 80,000 designs", "search_cold_seconds", "{:.1f} s", "≤ 7 s"),
    ("second one", "search_warm_seconds", "{:.1f} s", ""),
    *(
        (f"exact best of {size} designs", f"best_of_{size}", "{:,.0f} designs/s", "alike" if size == "1e5" else "")
        for size in (*SMALLER, "1e9")
    ),
    ("results written, as by default", "write_bytes_per_second", "{:.2e} B/s", "≥ 4e8 B/s with zstd"),
    ("results written with zlib", "write_bytes_per_second_zlib", "{:.2e} B/s", "≥ 1.2e8 B/s"),
    ("step time and its gradient by 16 leaves, against the step time", "gradient_ratio", "{:.1f} x", "≤ 8 x"),
    ("– of 16,384 designs", "gradient_ratio_many", "{:.1f} x", "≤ 12 x"),
    ("– trace and compile", "gradient_compile_seconds", "{:.1f} s", "≤ 10 s"),
]


_PROFILE = """\
*Every output*: a third of the time are the equations that all axes reach, the rest writes some twenty numbers a design.
*Best only*: nine tenths of the equations are shared among thousands of designs. *Design by design*: nothing is shared.
*Gradient*: 3.5 times the FLOPs of the value (`jax.grad` of the model takes 14 times the value at 1,024 designs). *1e5
designs* are evaluated by NumPy. *Second run*: half of it is the figure."""


def revisions(record: dict[str, Any]) -> str:
    """The section of what the engine takes against its earlier revisions, of ``docs/revisions.json``."""
    rows = [
        [name, of["date"], *("{median:.3f} ({least:.3f} to {greatest:.3f})".format(**of[one]) for one in PASSES)]
        for name, of in record.items()
    ]
    return "\n\n".join(
        [
            "## Against earlier revisions",
            "Time of the engine over that of an earlier revision (below 1: faster now), timed in turn in processes of their "
            f"own over `{shown(LARGE_SWEEP)}`: median of some starts of both, and the extremes "
            "(`python -m benchmarks.rates.revisions CHECKOUT --name NAME`).",
            table(["against", "measured on", *PASSES.values()], rows),
        ]
    )


def page(measured: dict[str, Any]) -> str:
    """``docs/benchmarks.md`` from what :func:`benchmarks.rates.bench` measured."""
    header = ["what", "measured", "must be"]
    rows = [[what, form.format(measured[name]), bound] for what, name, form, bound in _LINES if name in measured]
    rows += [
        [f"– against that loop, {name.replace('_', ', ')}", f"{ratio:,.0f} x", ""]
        for name, ratio in against_loop(measured).items()
    ]
    rows += [
        [
            f"sweep as it runs, best only, a core, against Calculon's {rate:,.0f} designs/s a core ({what})",
            f"{measured['grid_best'] / measured['cores'] / rate:,.0f} x",
            f"≥ {bound:,} x",
        ]
        for what, (rate, bound) in _CALCULON.items()
    ]
    return document(
        [
            "# Benchmarks",
            f"Made by `python -m docs.make.benchmarks docs/benchmarks.md` on {measured['date']}: {measured['cores']} cores "
            f"({measured['processor']}), {measured['device']}, {measured['dtype']}, jax {measured['jax']}. The sweep is "
            f"`{shown(STANDARD_SWEEP)}`: {measured['designs']:,} designs, {measured['file_bytes'] / 1e6:.0f} MB written.",
            table(header, rows, words=header),
            f"Cold and warm runs are fresh processes (`dse run {shown(STANDARD_SWEEP)}`), the cold one with nothing "
            "kept from before but the bytecode of modules; they and those of 1e9 designs are the fastest of three. Rates are "
            "the best of many rounds in one process, compilation apart, and count distinct mappings only. 1e9 designs are "
            f"`{shown(LARGE_SWEEP)}`, by step time. Gradients are of 1,024 designs. Experts: `{shown(EXPERTS_SWEEP)}`; "
            f"serving: `{shown(SERVING_SWEEP)}` with 2,000 values of concurrency. Compare the lines of one page with each "
            "other: machines differ.",
            _PROFILE,
            *filter(None, [questions.section()]),
            gpu.section(),
            *lowering.section(),
            *growth.section(),
            revisions(json.loads(RECORD.read_text(encoding="utf-8"))),
        ]
    )


if __name__ == "__main__":
    path = page_parser(__doc__).parse_args().page
    path.write_text(page(bench()), encoding="utf-8")
