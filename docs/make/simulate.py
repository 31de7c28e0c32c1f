"""The page of the docs on the simulator of requests: what it does, and the closed forms against it.

``python -m docs.make.simulate docs/simulate.md``: simulates every case, some minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import dse
from docs.make.command import page_parser
from docs.make.markdown import document, filed, percent, publish, table
from dse.designs.records import with_serving_defaults
from dse.lab.simulator.run import simulate
from dse.lab.simulator.summary import statistics
from dse.types import Design

#: Name → a design without its load.
CASES: dict[str, dict[str, Any]] = {
    "Llama 3 8B, 1 H100": dict(workload="llama-3-8b", system="h100-sxm-80gb", prompt_tokens=512, output_tokens=256),
    "Llama 3 70B, 4 H100": dict(
        workload="llama-3-70b", system="h100-sxm-80gb", tp=4, prompt_tokens=2000, output_tokens=500
    ),
    "Llama 3 70B, 8 H100, spread 0.5": dict(
        workload="llama-3-70b", system="h100-sxm-80gb", tp=8, prompt_tokens=1000, output_tokens=300,
        length_spread=0.5, answer_spread=0.5,
    ),
    "Mixtral 8x7B, 2 H100": dict(
        workload="mixtral-8x7b", system="h100-sxm-80gb", tp=2, prompt_tokens=1000, output_tokens=300
    ),
    "DeepSeek-V3 fp8, 8 H200": dict(
        workload="deepseek-v3", system="h200-sxm-141gb", tp=8, ep=8, precision="fp8", prompt_tokens=1000,
        output_tokens=1000,
    ),
    "GPT-OSS 120B, 4 H100, spread 0.3, 0.7": dict(
        workload="gpt-oss-120b", system="h100-sxm-80gb", tp=4, expert_bytes=0.53, prompt_tokens=1000,
        output_tokens=500, length_spread=0.3, answer_spread=0.7,
    ),
}  # fmt: skip

#: The same where the closed forms hold less.
OTHERS: dict[str, dict[str, Any]] = {
    "Llama 3 70B, 8 H100, prompts apart": CASES["Llama 3 70B, 8 H100, spread 0.5"] | dict(mixed=0),
    "Llama 3 70B, 8 H100, prompts of 4 steps": dict(
        workload="llama-3-70b", system="h100-sxm-80gb", tp=8, prompt_tokens=8000, output_tokens=200, chunk=2048
    ),
    "Llama 3 8B, 1 H100, arrival_variation 4": CASES["Llama 3 8B, 1 H100"] | dict(arrival_variation=4),
    "Llama 3 8B, 1 H100, arrival_variation 0": CASES["Llama 3 8B, 1 H100"] | dict(arrival_variation=0),
    "Llama 3 70B, 4 H100, arrival_variation 0": CASES["Llama 3 70B, 4 H100"] | dict(arrival_variation=0),
    "Llama 3 8B, 1 H100, 64 places": CASES["Llama 3 8B, 1 H100"] | dict(most_sequences=64),
}

#: Llama 3 8B on one H100 with prompts of 4,000 tokens and answers of 200.
_REUSE = dict(workload="llama-3-8b", system="h100-sxm-80gb", prompt_tokens=4000, output_tokens=200)

#: Name → a design whose requests share prefixes or belong to sessions.
REUSES: dict[str, dict[str, Any]] = {
    **{
        f"{groups:,} prefixes of half a prompt, skew {skew:g}": _REUSE
        | dict(request_rate=5, prefix_share=0.5, prefix_groups=groups, prefix_skew=skew)
        for groups in (30, 300, 3000)
        for skew in (0.6, 1.0)
    },
    "1,000 prefixes, 100 GB of host memory": _REUSE
    | dict(request_rate=5, prefix_share=0.5, prefix_groups=1000, host_cache=1e11),
    "1,000 prefixes, 100 GB of host memory, 500 GB of disk": _REUSE
    | dict(request_rate=5, prefix_share=0.5, prefix_groups=1000, host_cache=1e11, disk_cache=5e11),
    "300 prefixes, 64 requests in flight": _REUSE | dict(concurrency=64, prefix_share=0.5, prefix_groups=300),
    **{
        f"sessions of {turns} turns, {think:g} s apart": _REUSE | dict(request_rate=5, turns=turns, think_time=think)
        for turns, think in ((2, 30), (8, 3), (8, 30), (20, 30))
    },
    "sessions of 8 turns, 30 s apart, 100 GB of host memory": _REUSE
    | dict(request_rate=5, turns=8, think_time=30, host_cache=1e11),
    "sessions of 8 turns, 30 s apart, with 100 system prompts": _REUSE
    | dict(request_rate=5, turns=8, think_time=30, prefix_share=0.2, prefix_groups=100),
}

#: Loads over capacity, requests in flight of closed loops, drawn requests of each.
UTILISATIONS, FLIGHTS, COUNT = (0.3, 0.6, 0.8), (16, 64, 256), 40_000

_LATENCIES = ("time_to_first_token", "time_per_output_token", "request_latency")
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")

_TEXT = """\
# Simulator of requests

Closed forms give means, and percentiles of Poisson arrivals, in microseconds. `dse simulate` serves requests one by one,
for bursts, traces, prefixes and full caches:

```console
$ dse simulate -w llama-3-70b -s h100 --set tp=8 --set request_rate=8 --set prompt_tokens=1000 --set output_tokens=300
$ dse simulate -w llama-3-70b -s h100 --set tp=8 --set concurrency=64 -o requests.csv --timeline steps.json
```

**Requests.** Without a trace, `--requests` are drawn with `--seed` by the leaves of the design: `load=rate` with
`request_rate` and `arrival_variation` (gamma), `concurrency` (each answer is followed by another request) or `offline`;
lognormal lengths by `prompt_tokens`, `length_spread`, `output_tokens`, `answer_spread`; one prefix for all
(`prefix_share`), or one of `prefix_groups` (Zipf, `prefix_skew`); sessions of `turns` requests, `think_time` apart. In a
closed loop, answers without `answer_spread` vary by 5 %: equal ones would keep requests in step. `--trace FILE.csv` has a
line per request: `arrival_s`, `prompt_tokens`, `answer_tokens` and, if any, `prefix_id`, `prefix_tokens`, `session_id`.

**Engine.** The model is called once, for a table of step times. The scheduler
(`dse/lab/simulator/scheduler.py::Scheduler`) is that of vLLM (V1) and SGLang: first come, first served; a step has
`chunk` tokens, one per decoding sequence and the rest for prompts (`mixed`, or prompts first); admission by
`most_sequences` and cache blocks of 16 tokens, with the share `reserved_answer`. If answers outgrow the cache, the last
admitted request is preempted and computed again. Prefixes and contexts leave least recently used first, to `host_cache`
and `disk_cache`. Data-parallel ranks get requests by chance, all of a session to one. Statistics leave out the first
tenth of drawn requests and the last twentieth.

**Output.** Percentiles of latency, rates, use of engine and cache, hits, preemptions, and whether the queue still grows;
`-o` the times of every request (.nc or .csv), `--timeline` steps and requests for ui.perfetto.dev, `--json` all figures.

**Limits.** Under a pipeline first tokens are early. Ranks that share experts wait for prompts of each other with
`prompt_balance=independent`, and hold theirs back with `together` and a `prompt_timeout`; without either each rank is
alone. Accepted drafts are their mean. A prompt takes all its blocks at admission.

## Closed forms against it

`dse evaluate --serving`, sweeps and searches have the same figures in closed form
(`dse/model/serving/tails.py::tails`): `p50_`, `p90_`, `p95_` and `p99_` before `time_to_first_token`,
`time_per_output_token` and `request_latency`, with `utilisation`, `requests_in_flight` and `replicas_needed`. The tables
have the largest error of mean, p50, p90, p95 and p99 at utilisations of 0.3, 0.6 and 0.8 (rate over capacity)."""


class Compared(NamedTuple):
    """Closed form and simulation of one load."""

    case: str
    load: str
    rate: float  # requests/s
    simulated: dict[str, float]
    errors: dict[str, float]  # of closed forms, by metric


def design_of(case: dict[str, Any], **load: float) -> Design:
    """The design of a case under a load."""
    return with_serving_defaults(dse.design(software="vllm", **case, **load))


def compared(name: str, load: str, design: Design, count: int) -> Compared:
    """Both figures of a design."""
    closed, simulated = dse.serve(design), statistics(simulate(design, count=count))
    errors = {"output_tokens_per_second": float(closed.output_tokens_per_second)}
    for metric in _LATENCIES:
        errors[f"mean_{metric}"] = float(getattr(closed, metric))
        errors |= {f"{p}_{metric}": float(getattr(closed, f"{p}_{metric}")) for p in _STATISTICS[1:]}
    errors = {metric: value / simulated[metric] - 1.0 for metric, value in errors.items()}
    return Compared(name, load, simulated["requests_per_second"], simulated, errors)


def open_loads(cases: dict[str, dict[str, Any]], count: int = COUNT) -> Iterator[Compared]:
    """Every case at each utilisation."""
    for name, case in cases.items():
        capacity = 1e-3 / float(dse.serve(design_of(case, request_rate=1e-3)).utilisation)
        for share in UTILISATIONS:
            yield compared(name, f"{share:g}", design_of(case, request_rate=share * capacity), count)


def closed_loops(count: int) -> Iterator[Compared]:
    """Every case with each number of requests in flight."""
    for name, case in CASES.items():
        for flight in FLIGHTS:
            yield compared(name, str(flight), design_of(case, concurrency=flight), count)


def _largest(found: list[Compared], metric: str) -> str:
    """Return the largest error of a latency, over loads and statistics."""
    return percent(max((one.errors[f"{p}_{metric}"] for one in found for p in _STATISTICS), key=abs), "+", 0)


def _open_rows(found: list[Compared]) -> str:
    by_case: dict[str, list[Compared]] = {}
    for one in found:
        by_case.setdefault(one.case, []).append(one)
    return table(
        ("model", "TTFT", "TPOT", "latency"),
        ([case, *(_largest(loads, metric) for metric in _LATENCIES)] for case, loads in by_case.items()),
    )


def _every(found: list[Compared]) -> str:
    names = list(found[0].errors)
    header = ("model", "load", *(f"{name}, {what}" for name in names for what in ("simulated", "error")))
    rows = (
        [
            one.case,
            one.load,
            *(text for name in names for text in (f"{one.simulated[name]:.6g}", percent(one.errors[name], "+"))),
        ]
        for one in found
    )
    return filed("simulate", header, rows)


def _closed(found: list[Compared]) -> str:
    """Throughput of closed loops, those apart whose caches overflow."""

    def span(overflows: bool) -> str:
        some = [
            one.errors["output_tokens_per_second"] for one in found if (one.simulated["preemptions"] > 0) == overflows
        ]
        return " to ".join(dict.fromkeys(percent(end(some), "+") for end in (min, max))) if some else "none"

    return (
        f"Closed loops of {', '.join(map(str, FLIGHTS))} requests in flight, of the same models: the throughput of the "
        f"steady state differs by {span(False)}; where the cache overflows, {span(True)}, as closed forms leave out what "
        f"is computed again. Mean time to first token: {_spread(found, 'mean_time_to_first_token')} without preemptions."
    )


def _spread(found: list[Compared], name: str) -> str:
    """Least and largest error of a figure where the cache does not overflow."""
    errors = [one.errors[name] for one in found if not one.simulated["preemptions"]]
    return f"{percent(min(errors), '+')} to {percent(max(errors), '+')}"


def _reuse(count: int) -> str:
    """Hit rates of prefix caches, and first tokens with them."""
    rows = []
    for name, case in REUSES.items():
        design = with_serving_defaults(dse.design(software="vllm", **case))
        closed, simulated = dse.serve(design), statistics(simulate(design, count=count))
        hit, first = simulated["cache_hit_rate"], simulated["mean_time_to_first_token"]
        rows.append(
            [
                name,
                percent(hit),
                f"{100.0 * (float(closed.cache_hit_rate) - hit):+.1f}",
                f"{1e3 * first:.0f} ms",
                percent(float(closed.time_to_first_token) / first - 1.0, "+"),
            ]
        )
    largest = [max((row[n] for row in rows), key=lambda text: abs(float(text.removesuffix(" %")))) for n in (2, 4)]
    return (
        f"Largest difference of {len(rows)} cases: {largest[0]} points of the hit rate, {largest[1]} of the time to first "
        f"token. All: {filed('simulate_reuse', ('reuse', 'hits', 'closed form, points', 'TTFT', 'closed form'), rows)}"
    )


def _speed() -> str:
    design = design_of(CASES["Llama 3 70B, 8 H100, spread 0.5"], request_rate=8.0)
    simulate(design, count=100)
    start = time.process_time()
    simulate(design, count=20_000)
    return f"{60 * 20_000 / (time.process_time() - start):,.0f}"


def page() -> str:
    """The page."""
    opened, others, looped = list(open_loads(CASES)), list(open_loads(OTHERS)), list(closed_loops(10_000))
    errors = [error for one in opened for error in one.errors.values()]
    return document(
        [
            _TEXT,
            _open_rows(opened),
            f"Largest of {len(errors)} errors: {percent(max(map(abs, errors)))}. "
            f"All figures: {_every([*opened, *others])}.",
            "They hold less where prompts are apart from decoding (SGLang), a prompt takes several steps, arrivals are not "
            "Poisson, or places for requests run out; simulate these:",
            _open_rows(others),
            _closed(looped),
            "## Prefix caches",
            "Prompt tokens found in the cache, of Llama 3 8B on one H100 with prompts of 4,000 tokens and answers of 200 "
            "at 5 requests/s: simulated, and by the characteristic time of the cache "
            "(`dse/model/serving/reuse.py::characteristic_time`).",
            _reuse(20_000),
            f"{_speed()} requests a minute of one processor core (1,000 prompt and 300 output tokens, 8 requests/s).",
            "Laws of the simulator, for any limits: `tests/laws/test_simulator_laws.py`. Written by "
            "`python -m docs.make.simulate docs/simulate.md`.",
        ]
    )


if __name__ == "__main__":
    publish(page_parser(__doc__).parse_args().page, page())
