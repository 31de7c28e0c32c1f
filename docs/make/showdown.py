"""``python -m docs.make.showdown docs/showdown.md``: the page of the kept predictions of ``benchmarks/showdown``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.showdown import kept
from benchmarks.showdown.kept import Line
from docs.make.command import page_parser
from docs.make.markdown import document, filed, percent, publish, table

_KEPT_BY = "python -m benchmarks.showdown " + " ".join(
    f"../shared/reference/measured/{name}.csv"
    for name in ("training", "training_a100_vtrain", "training_b200_simumax", "training_moe_zoo", "inference", "energy")
)

_ABOUT = """\
The same published rows through every tool that pip installs or whose formulas are published, set up as its
documentation says (below). Errors are median / mean of |predicted / measured − 1|. *Rows*: those that a tool can
express, of all that `dse` compares (so its own share is all). *Ratio*: median of predicted over measured. *One knob*: the tool's times over one
factor, fitted to all other sources, as a user would fit an efficiency; a dash where efficiencies are measured. *dse,
same rows*: by fits that had not seen the row's publication; nothing of `dse` here is fitted to the rows; TPUs are predicted
without their generation, whole runs of ML.ENERGY v2 as steady states. *dse nearer*:
share of the rows on which its factor is the smaller. *Seconds*: processor seconds a figure on one core, without the
start. What a row leaves open (micro-batch, recompute) is completed as `dse` does, for all tools alike."""

_READING = """\
- The tools have different aims. **aiconfigurator** finds deployments on measured NVIDIA hardware, from kernels of the
  newest engine release. **GenZ**, **llm-analysis** and **LLM-Viewer** show what a platform could reach: their times are
  lower bounds. **SimuMax** follows Megatron-LM with products measured on the cluster of the row.
- Time per output token: aiconfigurator has the smaller median error, `dse` the smaller mean; each is nearer on half of
  the rows. Some rows (`aiconfigurator_silicon`) are runs of the group whose kernels are in its database; kernels that it
  published earlier are among those that `dse` is fitted to.
- aiconfigurator's largest error of a group, MiniMax-M2.5 in 8 bits with vLLM on B200, comes from products of its database
  that take 0.17 ms each however few their rows.
- Measured times to first token include queues and the client's time, which differs by source ([serving.md](serving.md)).
- On its own rows SimuMax is nearer than `dse` without that source; errors of unseen configurations are in
  [calibration.md](calibration.md).
- `dse` is worst where no other source covers the engine: ML.ENERGY v2 (vLLM of 2024), and the 16 times to first token of
  TensorRT-LLM 0.5.
- Models of an MFU are for large models; half of the rows are vTrain's small cells.
- For a tool that knows batches but no engine, a constant number of requests in flight is one batch."""

_SETTINGS = """\
- **aiconfigurator**: `cli estimate`, `agg` for requests in flight, `static` for batches, measured kernels (`SILICON`),
  the default release of the engine's database; checkpoints of the row's format, else its formats by option. TensorRT-LLM
  before 1.0 is another engine than that of its database.
- **GenZ**: `prefill_moddeling` and `decode_moddeling`, its own chips and collectives, `system_eff` 1 (the default); a
  token sees the prompt and half of the answer.
- **llm-analysis**: `train` and `infer`, its own chips, `flops_efficiency` and `hbm_memory_efficiency` 1 (the default).
- **6ND**: 6 FLOPs a parameter and token, an MFU of 0.4.
- **Megatron's FLOPs**: Narayanan et al. 2021 (section 5.1), GPTs alone, at half of the peak.
- **LLM-Viewer's roofline**: FLOPs and bytes of every operator at data-sheet rates, without messages; dense models.
- **SimuMax**: the times that its authors publish next to measured ones.

Reasons: *chip*, *model*, *engine* that the tool lacks; *mapping* that it cannot express; *load*: waiting, or batches as
large as memory allows; *unpublished*: no figure of the row; *refused*: the tool said no."""

_NOT_RUN = """\
**vidur** (PyPI 0.0.26) ships no profiles. **Calculon**, **SimuMax**, **LLM-Viewer** and **ASTRA-sim** have no package
there; Calculon states a mean error of 3.65 % for table 5 of Korthikanti et al. ([comparison](comparison.md#numbers))."""


def errors(lines: Sequence[Line], tool: str = "") -> np.ndarray:
    """Predicted over measured, less one, of a tool; of dse by default."""
    return np.array([(one.tools[tool] if tool else one.dse) for one in lines], float) - 1.0


def expressed(lines: Sequence[Line], tool: str) -> list[Line]:
    """Rows that a tool has a figure of."""
    return [one for one in lines if isinstance(one.tools.get(tool), float)]


def one_knob(lines: Sequence[Line], tool: str) -> np.ndarray:
    """Errors with the tool's times over one factor, by which other sources are off in the median; NaN without others.

    Every row is one that the tool expresses; a source counts by the median of its rows, however many they are.
    """
    logs = np.array([one.sign * np.log(float(one.tools[tool])) for one in lines])
    sources = np.array([one.source for one in lines])
    level = {source: np.median(logs[sources == source]) for source in set(sources)}
    found = np.full(len(lines), np.nan)
    for source in level:
        if others := [one for other, one in level.items() if other != source]:
            found[sources == source] = logs[sources == source] - np.median(others)
    return np.expm1(np.array([one.sign for one in lines]) * found)


#: What is judged together in serving → its metrics.
METRICS = {
    "time per output token": ("time_per_output_token", "inter_token_latency"),
    "time to first token": ("time_to_first_token",),
    "throughput": ("output_tokens_per_second", "output_tokens_per_second_per_device"),
    "time of a batch": ("request_latency",),
}

#: Tools with efficiencies that a user sets.
_KNOBS = ("GenZ", "llm-analysis, training", "llm-analysis, serving", "6ND", "Megatron's FLOPs", "LLM-Viewer's roofline")

_HEADER = ("tool", "rows", "of", "ratio", "tool's error", "one knob", "dse, same rows", "dse nearer")


def _both(found: np.ndarray) -> str:
    size = np.abs(found)
    return f"{percent(float(np.median(size)))} / {percent(float(np.mean(size)))}"


def _judged(lines: Sequence[Line], tool: str, knobs: np.ndarray | None) -> list[str]:
    knob = "–" if knobs is None or np.isnan(knobs).any() else _both(knobs)
    ratio = f"{np.median(errors(lines, tool)) + 1.0:.2f}"
    nearer = np.abs(np.log1p(errors(lines))) < np.abs(np.log1p(errors(lines, tool)))
    share = percent(float(np.mean(nearer)), digits=0)
    return [f"{len(lines)}", ratio, _both(errors(lines, tool)), knob, _both(errors(lines)), share]


def rows_of(lines: Sequence[Line], kind: str, holds: Callable[[Line], bool]) -> Iterator[list[str]]:
    """A line a tool of a kind, on those of its rows that a condition holds for; knobs are fitted to all of its rows."""
    asked = sum(one.kind == kind and holds(one) for one in lines)
    for tool, about in kept.tools().items():
        if about.get("kind") != kind:
            continue
        every = expressed(lines, tool)
        part = np.array([holds(one) for one in every], bool)
        if part.any():
            knobs = one_knob(every, tool)[part] if tool in _KNOBS else None
            count, *judged = _judged([one for one in every if holds(one)], tool, knobs)
            yield [tool, count, f"{asked}", *judged]


def rows_of_sources(lines: Sequence[Line]) -> Iterator[list[str]]:
    """A line a tool, source and metric."""
    for tool in (name for name, about in kept.tools().items() if "kind" in about):
        every = expressed(lines, tool)
        knobs = one_knob(every, tool) if tool in _KNOBS else None
        keys = [(one.source, one.metric) for one in every]
        for key in sorted(set(keys)):
            part = np.array([own == key for own in keys])
            some = [one for one, own in zip(every, keys, strict=True) if own == key]
            yield [tool, *key, *_judged(some, tool, None if knobs is None else knobs[part])]


def rows_of_reasons(lines: Sequence[Line]) -> Iterator[list[str]]:
    """A line a tool: how many rows it expresses, and why not the others."""
    for tool, about in kept.tools().items():
        if "kind" in about:
            told = Counter(cell for one in lines if isinstance(cell := one.tools.get(tool), str))
            all_rows = len(expressed(lines, tool)) + told.total()
            share = percent(1.0 - told.total() / all_rows, digits=0)
            why = ", ".join(f"{reason} {n}" for reason, n in told.most_common()) or "–"
            yield [tool, about["version"] or "–", f"{all_rows - told.total()}", share, why, f"{about['seconds']:.2g}"]
        else:
            yield [tool, "–", f"{len(lines)}", "all", "the rows are those that it compares", f"{about['seconds']:.2g}"]


def page(lines: Sequence[Line]) -> str:
    """The page."""
    steps = {
        "All rows:": lambda one: True,
        "The rows of `tests/published`, which anybody with a checkout has:": lambda one: one.measured is not None,
    }
    serving = (
        [what, *row]
        for what, metrics in METRICS.items()
        for row in rows_of(lines, "serving", lambda one, metrics=metrics: one.metric in metrics)
    )
    by_source = ("tool", "source", "metric", *(name for name in _HEADER[1:] if name != "of"))
    return document(
        [
            "# Showdown",
            "Written by `python -m docs.make.showdown docs/showdown.md` from what "
            f"`{_KEPT_BY}` has kept in `benchmarks/showdown`. Without tables "
            "(`make showdown`) that runs the tools on the rows of `tests/published` and checks what was kept; other rows "
            "are of the sources that [serving.md](serving.md) and [calibration.md](calibration.md) name.",
            _ABOUT,
            "## Coverage and time",
            table(
                ("tool", "version", "rows", "share", "why not the others", "seconds"),
                rows_of_reasons(lines),
                words=("tool", "version", "why not the others"),
            ),
            "## Training: time of a step",
            *(
                part
                for what, holds in steps.items()
                for part in (what, table(_HEADER, rows_of(lines, "training", holds), words=("tool",)))
            ),
            "## Serving",
            table(("what", *_HEADER), serving, words=("what", "tool")),
            f"By tool, source and metric: {filed('showdown_sources', by_source, rows_of_sources(lines))}",
            "## How to read this",
            _READING,
            "## Settings, and why rows are missing",
            _SETTINGS,
            "## Not run",
            _NOT_RUN,
        ]
    )


def main() -> None:
    """Write the page."""
    asked = page_parser(__doc__).parse_args()
    publish(asked.page, page(kept.lines()))


if __name__ == "__main__":
    main()
