"""``docs/search.md`` from the record of the suite."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.search import suite
from benchmarks.search.measure import POLISH_AT
from benchmarks.search.reading import BASELINES, GRADIENT, LUCK, Reading
from docs.make.markdown import document, filed, percent, table
from docs.make.search import codesign, large
from dse import sweep
from dse.optimizers.driver import METHODS

#: Seconds that anyone waits for an exact answer rather than read what a searcher may have missed.
_PATIENCE = 60.0

#: Gaps below this are roundings of programs that differ.
_ROUNDING = 1e-6

#: Sizes of the plain table.
_SIZES = (1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12)

#: Figures of co-design, as :mod:`benchmarks.search.codesign` measured them.
_CODESIGN = Path(__file__).parents[2] / "codesign.json"


#: What a proof is; no figure of the suite is in it.
_PROOF = """\
A searcher does not know how good its best design is. `--prove` bounds all others by branch and bound:

```console
$ dse search sweeps/search_llama3_budget.toml --prove  # after the search, to within 0.5 %
$ dse search sweeps/search_llama3_budget.toml --prove --gap 0.02 --minutes 10
$ dse search sweeps/search_llama3_budget.toml --check results/search_llama3_budget.certificate.npz
```

*No design of the 1,194,062,728,373,424 designs is better than step time 6.48 s by more than 0.5 %*: the proof divides
the space into blocks, ranges of positions along every axis, and bounds the objective of each. A block goes when no design
of it can run, when its bound is not below the best less the gap, or when its last designs have been evaluated. Better
designs met on the way replace the best (annealing had found 6.75 s). The results then have the attributes `proof_gap`,
`proof_bound` and `proof_certificate`.

For two objectives the front is proven: *no design is better than the nearest of the front's designs by more than 1 %*.
Three objectives have no proof.

- What the mapping alone decides is computed exactly, for every mapping.
- What hardware moves is computed on intervals and on lines along the axes (affine arithmetic: de Figueiredo & Stolfi
  2004), so the gap of a block falls with the square of its width.
- A limit (memory, a budget) is added to the objective with the multiplier that bounds it best.
- Bounds hold for the model as it is computed, in single precision.

Counts and minima by axis are given up. `NAME.certificate.npz` holds the division of the space, the best designs and the
gap; `--check` is a second program that bounds each block again in double precision, and ends with status 1 where the
certificate does not hold. If time ends first, or at Ctrl-C, the gap reached by then is kept: `by more than 3.1 %; stopped
after 10 min`.

Step times close within seconds, energy over wide ranges of all hardware within minutes. With a power limit or generated
chips, proofs close over an axis or two; over wide ranges of all hardware they have no useful gap after minutes."""


_RELAXED = """The model takes every leaf as a real number, so one gradient tells what each of them is worth. `relaxed` moves designs by it
(`dse/optimizers/methods/relaxed.py`):

- **Axes.** Every axis of the search is a position in [0, 1]: continuous axes, lists of values, catalogue entries, degrees of
  parallelism (in an order that keeps their product), options. A position lies in a cell, and the cell is a valid design.
- **Slopes.** Along a continuous axis the derivative. Along cells the central difference of what the gradient predicts from the cell
  before to the cell behind, over all leaves that the two set: for a degree of parallelism a step of its logarithm, for a catalogue
  entry a step of all its values. Choices that the model compares rather than calculates with (recompute, ZeRO stage) have none.
- **Steps.** A chain of optax (`[search.relaxed] optimizer = "adam"`, `amsgrad`, `lion`, `rms`, `sgd`, `yogi`) moves the positions,
  straight through the rounding; noise moves an axis or two beside it. A step is kept by the rule of Metropolis, at a temperature
  that falls by a `schedule` of optax (`exponential`, `cosine`, `linear`).
- **Limits** (memory, power, money) are met by an augmented Lagrangian: what a design lacks has a slope, and each start its price.
- **Ends.** The best of each seed is polished by exact steps to neighbours, and `--prove` bounds all others.

```toml
[search]
method = "relaxed"
[search.relaxed]
starts = 16
optimizer = "adam"
schedule = "exponential"
```

Co-design (`method = "descent"`) is for a chip of several workloads: there the mapping of each workload is chosen exactly at every
step, and the gradient is that of the chosen ones."""


def page(record: dict[str, Any]) -> str:
    """The page as Markdown, from the record of the suite."""
    reading = Reading(record)
    parts = [
        "# Search",
        _head(reading),
        "## What is relaxed, and how", _RELAXED,
        "## When not to search", _when_not(reading), _sizes(reading),
        "## A proof", _PROOF,
        "## Which method", _verdict(),
        "## Acceptance", _must_show(reading),
        "## The spaces", _spaces(reading),
        "## Gap against evaluations", "![Gap against evaluations by method, a panel for each space](search.png)",
        _gaps_text(reading), *_gaps(reading),
        "## Spaces that nobody can list", _large(reading),
        "## What the relaxed gradient predicts", _foresight(reading),
        "## Fronts", _fronts(reading),
        "## Where methods stop short", _stopped(reading),
        _codesign(),
    ]  # fmt: skip
    return document(parts)


def _head(reading: Reading) -> str:
    d = reading.document
    return (
        "Written by `python -m docs.make.search docs/search.md` from what `python -m benchmarks.search` measured on "
        f"{d['date']}: {d['cores']} cores ({d['processor']}), jax {d['jax']}, {reading.seeds} seeds. Every space is "
        "a sub-space of the real model (`benchmarks/search/spaces`); its optimum or front is exact, by enumeration "
        "(`benchmarks/search/optima.json`). A gap is objective over optimum, less one; infinite where a seed found "
        "nothing feasible. Evaluations are those of one seed." + _not_measured(reading)
    )


def _not_measured(reading: Reading) -> str:
    """Spaces and methods that the record lacks."""
    methods = {method for space in reading.spaces for method in reading.methods(space)}
    missing = [name for name in (*suite.names(), *METHODS) if name not in (*reading.spaces, *methods)]
    return f" **Not measured here**: {', '.join(f'`{name}`' for name in missing)}." if missing else ""


# --- when not to search -----------------------------------------------------------------------------------


def _when_not(reading: Reading) -> str:
    searchers = _searchers(reading)
    rows = []
    for space in reading.single:
        times = {method: reading.seconds_to_1(space, method) for method in searchers}
        known = {method: seconds for method, seconds in times.items() if seconds is not None}
        exhaustive = reading.enumeration(space)
        fastest = min(known.values(), default=math.inf)
        verdict = "enumerate" if exhaustive <= max(fastest, _PATIENCE) else "search first"
        rows.append(
            [
                f"`{space}`",
                f"{reading.optima[space].designs:,}",
                _seconds(exhaustive),
                *(_seconds(times[method]) for method in searchers),
                verdict,
            ]
        )
    header = ["space", "designs", "all of them, exactly", *(name.replace("_", " ") for name in searchers), "note"]
    return (
        f"Seconds to enumerate a space, and seconds of a searcher ({reading.seeds} seeds at once) until half of its "
        "seeds are within 1 % of the optimum, compilation apart. A searcher does not know that it has arrived.\n\n"
        + table(header, rows)
    )


def _sizes(reading: Reading) -> str:
    large = sorted(reading.single, key=lambda space: reading.optima[space].designs)[-3:]
    rates = {space: reading.optima[space].designs / reading.enumeration(space) for space in large}
    slowest, fastest = min(rates, key=rates.get), max(rates, key=rates.get)
    rows = []
    for size in _SIZES:
        least, seconds = size / rates[fastest], size / rates[slowest]
        feasible = "enumerate (< 15 min)" if seconds < 900 else "search"
        better = "enumerate (< 1 min)" if seconds <= _PATIENCE else feasible
        times = _seconds(least), _seconds(seconds)
        rows.append([f"{size:.0e}".replace("+0", "").replace("+", ""), *times, better])
    continuous = ["any, with continuous axes", "–", "–", "search, or co-design by gradient"]
    return (
        f"By size alone, at the {rates[fastest] / 1e6:.3g} million designs per second of `{fastest}` and the "
        f"{rates[slowest] / 1e6:.3g} of `{slowest}`:\n\n"
        + table(["designs", "like the one", "like the other", "note"], [*rows, continuous])
        + "\n\nSearch is for what cannot be listed: continuous hardware, or more than some 1e9 to 1e10 designs. Below "
        "that enumeration is exact, with the front and the minima along every axis."
    )


def _seconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if value >= 7200:
        return f"{value / 3600:.0f} h"
    return f"{value:.0f} s" if value >= 10 else f"{value:.2g} s"


def _searchers(reading: Reading) -> list[str]:
    """Methods of any single-objective space, in the order of their first."""
    return list(dict.fromkeys(method for space in reading.single for method in reading.methods(space)))


# --- which method -----------------------------------------------------------------------------------------

#: Method → where it is best: see the tables of the page.
_BEST_FOR = {
    "random": "the baseline that every other method has to beat at equal evaluations",
    "evolution": "the default: the smallest median gap after 1,000 evaluations on every space, in the least time; it "
    "may stay in a valley where a limit of memory or power binds",
    "annealing": "without gradients, the safest where there is time for 20,000 evaluations, limits included",
    "relaxed": "the relaxed gradient: the smallest gaps on spaces that nobody can list, of hardware in small steps or "
    "continuous, under limits that bind; an evaluation takes as long as several of the others",
    "nsga2": "the whole front of several objectives from one seed",
}

#: Methods that were measured on the same spaces (2026-11-25, 32 seeds) and removed → why.
_REMOVED = {
    "Sobol points": "no difference from random search, at 6 to 17 times the time",
    "cross-entropy": "larger gaps than evolution after 1,000 evaluations, no smaller ones than annealing after 20,000",
    "CMA-ES": "larger gaps than evolution after 1,000 evaluations, no smaller ones later, at 24 to 136 times the time",
    "straight-through Gumbel-softmax": "larger gaps than annealing by slopes, no smaller ones later, at 6 to 58 times "
    "the time",
    "annealing by slopes (langevin)": "evaluations as of annealing, each at 2 to 4 times the time, and no better than "
    "annealing on 1.2e15 designs",
}


def _verdict() -> str:
    """Which method to choose, and which were measured and removed."""
    rows = [[f"`{name}`", text] for name, text in _BEST_FOR.items()]
    removed = "\n".join(f"- {name}: {why}." for name, why in _REMOVED.items())
    header = ("method", "best for")
    return (
        table(header, rows, words=header) + f"\n\nMeasured on the same spaces, best on none, and removed:\n\n{removed}"
    )


# --- must show --------------------------------------------------------------------------------------------


def _must_show(reading: Reading) -> str:
    gradient = [method for method in _searchers(reading) if method in GRADIENT]
    free = [method for method in _searchers(reading) if method not in (*BASELINES, *gradient)]
    rows = [_random_line(reading), _reach_line(reading, "gradient-free", free)]
    if gradient:
        rows.append(_reach_line(reading, "relaxed-gradient", gradient))
        counted = "relaxed-gradient, an evaluation counted as those of annealing that its time would buy"
        rows.append(_reach_line(reading, counted, gradient, by_time=True))
    rows += [*_front_lines(reading), *_pymoo_lines(reading)]
    return table(["claim", "note", "acceptance"], rows)


def _random_line(reading: Reading) -> list[str]:
    behind = [(space, *found) for space in reading.single for found in reading.behind_random(space)]
    listed = [
        f"{method.replace('_', ' ')} on `{space}` at {mark:,}{' (surely)' if sure else ''}"
        for space, method, mark, sure in behind
    ]
    text = f"{len(behind)} of {reading.compared()} medians are behind" + (": " if listed else "") + "; ".join(listed)
    surely = any(sure for *_, sure in behind)
    claim = (
        f"every method at least as good as random search at equal evaluations (one-sided Mann-Whitney test, p < {LUCK})"
    )
    return [claim, text, "fail" if surely else "pass" if not behind else "pass: no difference shown"]


def _reach_line(reading: Reading, kind: str, methods: list[str], by_time: bool = False) -> list[str]:
    """Whether a method of a kind is where it must be, and on which spaces."""
    claim = f"best {kind}: median gap ≤ 1 % with ≤ 1 % of the evaluations, 95 % of the seeds within 5 %"

    def meets_on(space: str, method: str) -> bool:
        return reading.meets(space, method, reading.cost(space, method) if by_time else 1.0)

    meets = {method: [space for space in reading.single if meets_on(space, method)] for method in methods}
    if not meets:
        return [claim, "none measured", "fail"]
    best = max(meets, key=lambda method: len(meets[method]))
    missing = [space for space in reading.single if space not in meets[best]]
    others = sorted({space for space in missing if any(space in found for found in meets.values())})
    text = f"{best.replace('_', ' ')} on {len(meets[best])} of {len(reading.single)} spaces"
    if missing:
        text += "; not on " + ", ".join(f"`{space}`" for space in missing)
    if others:
        text += " (another method does on " + ", ".join(f"`{space}`" for space in others) + ")"
    return [claim, text, "fail" if missing else "pass"]


def _front_lines(reading: Reading) -> list[list[str]]:
    """Whether the front of all seeds together is at least that of random search."""
    if not reading.fronts:
        return []
    behind = [
        f"{method.replace('_', ' ')} on `{space}` at {mark:,}"
        for space in reading.fronts
        for mark, method in reading.fronts_behind_random(space)
    ]
    claim = "fronts of every method, all seeds together, at least those of random search (1,000 and 5,000 evaluations)"
    return [[claim, "behind: " + "; ".join(behind) if behind else "on all", "fail" if behind else "pass"]]


def _pymoo_lines(reading: Reading) -> list[list[str]]:
    rows = []
    for space in reading.fronts:
        found = reading.document["spaces"][space].get("pymoo")
        if found:
            error = abs(found["our_volume"] / found["their_volume"] - 1.0)
            front = f"{found['ours']} and {found['theirs']} designs of {found['designs']:,} feasible"
            text = f"{front}; hypervolumes differ by {error:.0e}"
            equal = found["same"] and error < 1e-9
            rows.append([f"exact front and hypervolume of `{space}` equal pymoo's", text, "pass" if equal else "fail"])
    return rows


# --- tables -----------------------------------------------------------------------------------------------


def _spaces(reading: Reading) -> str:
    rows = []
    for name in reading.spaces:
        optimum, spec = reading.optima[name], sweep.read(suite.path(name))
        objective = ", ".join(o.expression.text for o in spec.objectives)
        best = f"front of {len(optimum.front)}" if optimum.front else f"{optimum.value:.5g}"
        seconds, share = reading.enumeration(name), optimum.feasible_share
        where = "" if optimum.front else " ".join(f"{key}={_plain(value)}" for key, value in optimum.at.items())
        rows.append(
            [
                f"`{name}`",
                spec.title,
                f"`{objective}`",
                f"{optimum.designs:,}",
                percent(share),
                best,
                where,
                _seconds(seconds),
                f"{optimum.designs / seconds / 1e6:.3g} M/s",
            ]
        )
    header = ["space", "what", "objective", "designs", "feasible", "optimum", "at", "enumerated in", "rate"]
    return "Title, objective, size, optimum and rate of each: " + filed("search_spaces", header, rows)


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _gaps_text(reading: Reading) -> str:
    costs = "; ".join(_costs(reading, name) for name in GRADIENT if name in _searchers(reading))
    return (
        "Median of the seeds, and the 95th percentile. *At 1 %*: with 1 % of the space's evaluations, or the whole budget "
        f"where that is less. *Polished*: the best after {POLISH_AT:,} evaluations, then steps to the best neighbour. "
        "Defaults of methods were chosen with the three smallest spaces in view."
        + (f" Evaluations count designs; {costs}." if costs else "")
    )


def _costs(reading: Reading, method: str) -> str:
    """What time a gradient takes."""
    costs = [reading.cost(space, method) for space in reading.single if method in reading.methods(space)]
    times = f"{min(costs):.0f} to {max(costs):.0f} of {GRADIENT[method]}"
    return f"on these spaces one of {method} takes the time of {times}"


def _gaps(reading: Reading) -> list[str]:
    """Median gaps at 1 % by method and space, and a file of all figures."""
    searchers = _searchers(reading)
    short = [
        [name.replace("_", " "), *(_median_at_1(reading, space, name) for space in reading.single)]
        for name in searchers
    ]
    parts = ["Median gap *at 1 %*:", table(["method", *(f"`{space}`" for space in reading.single)], short)]
    lines = []
    header = ["method", "at 1,000", "at 5,000", "at 1 %", "within 5 %", "to 1 %", "polished", "within 1 %", "rate, 1/s"]
    for space in reading.single:
        for method, found in reading.methods(space).items():
            share = reading.at_share(space, method)
            to_1 = found["to_1"]
            polished = [math.inf if gap is None else gap for gap in found["polished"]["gap"]]
            late = 5_000 if reading.reached(space, method, 5_000) else 0
            lines.append(
                [
                    space,
                    method.replace("_", " "),
                    _pair(reading.at(space, method, 1_000)["gap"]),
                    _pair(reading.at(space, method, late)["gap"]) if late else "–",
                    f"{_pair(share['gap'])} ({share['evaluations']:,})",
                    percent(share["within_5"], digits=0),
                    f"{to_1:,}" if to_1 else "–",
                    _pair(polished),
                    percent(found["polished"]["within_1"], digits=0),
                    f"{found['rate']:,.0f}",
                ]
            )
    return [*parts, f"All figures, by space and method: {filed('search_gaps', ['space', *header], lines)}"]


def _median_at_1(reading: Reading, space: str, method: str) -> str:
    """Median gap of a method with 1 % of a space's evaluations; a dash where it was not run."""
    if method not in reading.methods(space):
        return "–"
    return _gap(reading.at_share(space, method)["gap"][1])


def _pair(gap: list[float]) -> str:
    """Median, 95th percentile."""
    return f"{_gap(gap[1])}, {_gap(gap[2])}"


def _gap(value: float) -> str:
    if not math.isfinite(value):
        return "∞"
    return "0 %" if value < _ROUNDING else f"{100.0 * value:.3g} %"


def _large(reading: Reading) -> str:
    found = reading.document.get("large")
    return large.section(found) if found else "Not measured here."


def _foresight(reading: Reading) -> str:
    """Signs predicted by slopes, by coordinate."""
    found = {space: rows for space in reading.single if (rows := reading.document["spaces"][space].get("foresight"))}
    if not found:
        return "Not measured here."
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    lines = [[name.replace("_", " "), *(_agreement(rows.get(name)) for rows in found.values())] for name in names]
    return (
        "Steps to a neighbour between random designs that can run, by the coordinate that changes: how often the gradient "
        "has the sign of the change, of steps that change the objective by more than 0.1 %; in brackets the steps "
        "predicted to change less. Ceilings (layers of a stage, tiles of a shard) have the slope of what is rounded.\n\n"
        + filed("search_slopes", ["step of", *found], lines)
    )


def _agreement(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    agrees = "–" if row["agrees"] is None else percent(row["agrees"], digits=0)
    return f"{agrees} ({percent(row['flat'], digits=0)})"


def _fronts(reading: Reading) -> str:
    rows = []
    for space in reading.fronts:
        for method, found in reading.methods(space).items():
            for i, mark in enumerate(found["marks"]):
                if mark in (1_000, 5_000):
                    low, middle, _ = found["single"][i]
                    rows.append(
                        [
                            f"`{space}`",
                            method.replace("_", " "),
                            f"{mark:,}",
                            f"{100 * middle:.2f} %",
                            f"{100 * low:.2f} %",
                            f"{100 * found['together'][i]:.3f} %",
                        ]
                    )
    header = ["space", "method", "evaluations", "median seed", "5th percentile", "all seeds together"]
    return (
        "Share of the exact hypervolume. Seeds of the methods for one objective seek different weighted geometric means; "
        "nsga2 seeks the whole front with each seed. " + filed("search_fronts", header, rows)
    )


def _stopped(reading: Reading) -> str:
    """Methods that leave seeds above 1 %, and in what these differ from the optimum."""
    rows = []
    for space in reading.single:
        for method, found in reading.methods(space).items():
            if found["left"] and method not in BASELINES:
                differs = ", ".join(f"{name} {count}" for name, count in found["differs"].items())
                polished = percent(found["polished"]["within_1"], digits=0)
                rows.append(
                    [
                        f"`{space}`",
                        method.replace("_", " "),
                        f"{found['budget']:,}",
                        f"{found['left']} of {reading.seeds}",
                        differs,
                        polished,
                    ]
                )
    if not rows:
        return "No method that learns leaves a seed above 1 % at the end of its budget."
    header = [
        "space",
        "method",
        "evaluations",
        "seeds above 1 %",
        "in how many of them differs",
        f"within 1 % if polished after {POLISH_AT:,}",
    ]
    return (
        "Seeds above 1 % at the end of the budget, and the coordinates in which their best design differs from the "
        "optimum. " + filed("search_stops", header, rows)
    )


def _codesign() -> str:
    """The section of co-design, where its figures have been measured."""
    return codesign.section(json.loads(_CODESIGN.read_text(encoding="utf-8"))).strip() if _CODESIGN.exists() else ""
