"""The accuracy page: what was predicted, how far off it is, and what was left out, as Markdown."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse import catalog
from dse.types import Recompute
from dse.validate import Comparison, Report, compare, report


class Claim(NamedTuple):
    """Rows that are shown one by one, and the mean error they must stay within (None: not yet claimed)."""

    source: str  #: prefix
    metric: str
    heading: str
    table: str  #: where a checkout has the rows
    bound: float | None = None


CLAIMS = (
    Claim(
        "Korthikanti2022_table5", "step_time", "Korthikanti et al. 2022, table 5: step time", "korthikanti_2022", 0.025,
    ),
    Claim("Narayanan2021_table1", "step_time", "Narayanan et al. 2021, table 1: step time", "narayanan_2021", 0.04),
    Claim(
        "Korthikanti2022_fig1", "peak_memory_state", "Korthikanti et al. 2022, figure 1: model state of the layers",
        "korthikanti_2022", 0.001,
    ),
    Claim(
        "Korthikanti2022_fig1", "peak_memory_activations",
        "Korthikanti et al. 2022, figure 1: activations of the layers", "korthikanti_2022", 0.001,
    ),
    Claim("SimuMax", "peak_memory", "Megatron-LM on 8 B200 (with SimuMax): peak memory", "megatron_b200", 0.005),
    Claim("SimuMax", "step_time", "Megatron-LM on 8 B200 (with SimuMax): step time", "megatron_b200", 0.04),
)  # fmt: skip

_HOW_TO_READ = """\
An error is predicted over measured, less one; a rate counts as the source gives it, a FLOP rate as the step time it
was computed from. *Mean*, *median* and *90 %* are of absolute errors, *bias* keeps the sign. *Constant MFU* predicts a
whole source by one utilisation, the median of what its own rows imply: a model that does not beat it has learnt
nothing about that source beyond its level, and a source of one row says nothing. `n` counts configurations, each once
per kind of figure. What a row leaves open is completed by rule (`completed` in the output of `dse validate -o`): a
stack's default, the lightest recompute that fits memory, the fastest micro-batch, interleaving, tp and pp. *Over
capacity* marks rows whose stated mapping needs more memory than the device has by our count, though it was run or
published."""


def write_accuracy(path: str | Path, tables: Sequence[str | Path], command: str | None = None) -> Report:
    """Validate ``tables`` and write the page to ``path``; returns the report.

    ``command`` is what the page says to run; by default ``python -m dse validate`` with the tables.
    """
    compared = compare(tables)
    command = command or shlex.join(["python", "-m", "dse", "validate", *map(str, tables)])
    Path(path).write_text(page(compared, command), encoding="utf-8")
    return report(compared)


def page(compared: Sequence[Comparison], command: str) -> str:
    """The page as Markdown."""
    found = report(compared)
    claimed = [(claim, rows) for claim in CLAIMS if (rows := _claimed(claim, compared))]
    details = [part for claim, rows in claimed for part in (f"### {claim.heading}", _details(rows), _mean(rows))]
    parts = [
        "# Accuracy",
        f"Written by `{command}`. Catalogue {catalog.digest()[:12]}.",
        *(["## What is claimed", _claims(claimed)] if claimed else []),
        "## By source and metric",
        _table(_ERRORS, [[r["source"], r["metric"], *_errors(r)] for r in found["rows"] if r["n"]]),
        "## By metric",
        _table(_ERRORS[1:], [[metric, *_errors(r)] for metric, r in found["all"].items() if r["n"]]),
        *(["## Row by row", *details] if details else []),
        *calculon_section(compared),
        "## What is skipped, and why",
        _skipped(compared),
        "## How to read this",
        _HOW_TO_READ,
    ]
    return "\n\n".join(parts) + "\n"


_ERRORS = ["source", "metric", "n", "predicted", "skipped", "mean", "median", "90 %", "bias", "constant MFU"]


def _errors(row: dict[str, Any]) -> list[str]:
    counts = [row["n"], row["predicted"], sum(row["skipped"].values())]
    statistics = [row[name] for name in ("mape", "median_ape", "p90")]
    return [*map(str, counts), *map(_percent, statistics), _percent(row["bias"], "+"), _percent(row["baseline_mape"])]


def _percent(value: float | None, sign: str = "", digits: int = 1) -> str:
    return "–" if value is None or math.isnan(value) else f"{100.0 * value:{sign}.{digits}f} %"


_TEXTS = ("source", "metric", "model", "reason", "completed", "note", "claim", "command", "term")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---" if h in _TEXTS else "---:" for h in header]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _claimed(claim: Claim, compared: Iterable[Comparison]) -> list[Comparison]:
    return [c for c in compared if c.metric == claim.metric and c.skip is None and c.source.startswith(claim.source)]


def _claims(claimed: Iterable[tuple[Claim, list[Comparison]]]) -> str:
    """Each claim with its figure, its bound, the baseline and the command that shows it."""
    rows = []
    for claim, found in claimed:
        mean, baseline = (sum(map(abs, errors)) / len(found) for errors in _errors_and_baseline(found))
        bound = "–" if claim.bound is None else f"≤ {_percent(claim.bound)}"
        command = f"`dse validate tests/published/{claim.table}.csv`"
        rows.append([claim.heading, str(len(found)), _percent(mean, digits=2), bound, _percent(baseline), command])
    return _table(["claim", "rows", "mean error", "must be", "constant MFU", "command"], rows)


def _errors_and_baseline(rows: Sequence[Comparison]) -> tuple[list[float], list[float]]:
    return [c.error for c in rows], [c.baseline_error for c in rows]


_UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "step_time": ("s", lambda value: f"{value:.4g}"),
    "peak_memory": ("GiB", lambda value: f"{value / 2**30:.2f}"),
}


def _details(rows: Sequence[Comparison]) -> str:
    """Measured and predicted of some rows of one metric, with their mappings."""
    metric = rows[0].metric
    unit, shown = _UNITS["peak_memory" if metric.startswith("peak_memory") else "step_time"]
    header = [
        "model", "devices", "tp", "pp", "dp", "micro-batch", "v", "recompute", "sequence parallel",
        f"measured ({unit})", f"predicted ({unit})", "error", "completed", "note",
    ]  # fmt: skip
    lines = []
    for c in rows:
        mapping = c.prediction.design.mapping
        degrees = (c.prediction.design.system.n_devices, mapping.tp, mapping.pp, mapping.dp, mapping.micro_batch)
        completed = [f"{k}={v}" for k, v in c.prediction.completed.items() if k not in ("system", "software")]
        lines.append([
            c.measurement.row.get("model"), *(f"{degree:g}" for degree in degrees), f"{mapping.virtual_stages:g}",
            Recompute(int(mapping.recompute)).name, "yes" if mapping.sequence_parallel else "no",
            shown(c.measured), shown(c.predicted), _percent(c.error, "+"), " ".join(completed), c.prediction.note,
        ])  # fmt: skip
    return _table(header, lines)


def _mean(rows: Sequence[Comparison]) -> str:
    return f"Mean absolute error {_percent(sum(abs(c.error) for c in rows) / len(rows))} over {len(rows)} rows."


# Calculon side by side

_CALCULON = """\
[Calculon](https://github.com/calculon-ai/calculon) (Isaev et al., SC 2023; commit caa4b11f8fe1, Apache-2.0) is another
analytic model, expressed here by its inputs: the systems `calculon-a100-80g`, `-80e` and `-h100-80g-nvl8` and the stack
`calculon` of the catalogue (efficiencies in steps of an operator's size, link volumes as stated, no overlap of
compute and memory, unfused attention, no embedding or head). FLOPs and weights of a layer are the same to the last
digit that single precision holds (`tests/validation/test_calculon.py` says which FLOPs Calculon counts as messages).
Rows are left out where Calculon gives no figure, where a mapping cannot be built, and where its known defects show;
which and how many is under *What is skipped*. Rows above a capacity stay: both models still time them."""

_CALCULON_MEMORY = """\
Peak memory is under *By source and metric*. Weights, optimiser state and, without recompute, activations are the same.
Calculon splits all but one layer's gradients when it shards the optimiser (here from ZeRO 2 on), keeps fp32 gradients
of one layer and 16-bit ones of the others, forgets the attention's input under `attn_only` with `ar` or `p2p_rs_ag`,
does not split full-recompute checkpoints over tp (here with sequence parallelism), counts a dropout's gradient as one
byte, and, with offload, keeps one layer's activations and gradients on the device, where here two layers' activations
and all gradients stay."""

#: Term, Calculon's columns, our part of the step time, and why they differ.
_TERMS = (
    ("layer forward", ("fw_time",), "forward",
     "Q, K and V are one product here, three there without overlap: less input traffic, larger steps of efficiency"),
    ("layer backward", ("bw_time",), "backward",
     "here the gradients of scores and context write their results; there each copy of a tensor that several "
     "operators read is summed apart, and norm gradients are two passes"),
    ("recompute", ("recompute_time",), "recompute",
     "selective recompute here repeats the context product too (Korthikanti et al. 2022), there it does not"),
    ("tensor parallel", ("tp_comm_exposed_time", "recomm_exposed_time"), "tensor_parallel",
     "with overlap, all messages of a pass here share the time of all its matrices, there each hides behind the one "
     "product it feeds, tile by tile; without, they agree but for the FLOPs of the sums"),
    ("bubble", ("bubble_time",), "bubble", "the terms above once for each other stage; there the sends of fill and "
     "drain too"),
    ("sends between stages", ("pp_comm_exposed_time",), "pipeline_parallel",
     "the sends of fill and drain are here, there in the bubble"),
    ("data parallel", ("dp_comm_exposed_time",), "data_parallel",
     "with overlap, one window for the whole message here, there one for each model chunk"),
    ("optimiser", ("optim_step_time",), "optimizer",
     "states are read and written, gradients read twice here; there states are read once"),
    ("offload", ("fw_offload_exposed_time", "bw_offload_exposed_time"), "offload",
     "follows the bytes of a layer, which differ in activations; the optimiser's state moves once a step here"),
)  # fmt: skip


def calculon_section(compared: Sequence[Comparison]) -> list[str]:
    """The part of the page that sets our step times beside Calculon's, term by term; nothing without its rows."""
    rows = [c for c in compared if c.metric == "step_time" and c.source.startswith("Calculon")]
    kept = [c for c in rows if c.skip is None]
    if not kept:
        return []
    sizes = np.array([abs(c.error) for c in kept])
    times = (np.array([c.measured for c in kept]), np.array([c.predicted for c in kept]))
    summary = (
        f"{len(kept)} of {len(rows)} rows: Spearman rank correlation of step time {spearman(*times):.4f}, median "
        f"difference {_percent(float(np.median(sizes)))}, mean {_percent(float(sizes.mean()))}, 90 % within "
        f"{_percent(float(np.quantile(sizes, 0.9)))}."
    )
    header = ["term", "mean share", "mean difference", "90 % within", "reason"]
    terms = [_calculon_term(kept, *term) for term in _TERMS]
    note = "Shares and differences are of Calculon's step time; a difference is ours less Calculon's."
    return ["## Calculon side by side", _CALCULON, summary, note, _table(header, terms), _CALCULON_MEMORY]


def _calculon_term(
    kept: Sequence[Comparison], name: str, columns: tuple[str, ...], part: str, reason: str
) -> list[str]:
    theirs = np.array([sum(float(c.measurement.row.get(column)) for column in columns) for c in kept])
    ours = np.array([c.prediction.metrics[f"step_time_{part}"] for c in kept])
    whole = np.array([c.measured for c in kept])
    difference = (ours - theirs) / whole
    share, mean = float(np.mean(theirs / whole)), float(difference.mean())
    return [name, _percent(share), _percent(mean, "+"), _percent(float(np.quantile(np.abs(difference), 0.9))), reason]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of two sets of figures (ties share no rank: they are rare among times)."""
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def _skipped(compared: Iterable[Comparison]) -> str:
    counts = Counter((c.skip.reason, c.source) for c in compared if c.skip is not None and not c.duplicate)
    rows = [[reason, source, str(count)] for (reason, source), count in sorted(counts.items())]
    return _table(["reason", "source", "rows"], rows) if rows else "Nothing."
