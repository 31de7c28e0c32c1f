"""The page of the docs on serving: engines fitted to measured rows, and what the model says of rows it has not seen.

``python -m docs.make.serving docs/serving.md CASES.csv … -o FILE.toml``: the fit of engines, and its page.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from calibration import engine_residuals, engines
from calibration.jobs import JOBS
from docs.make import refused, roofline, serving_pairs, serving_power
from docs.make.command import command, page_parser, with_fit
from docs.make.markdown import document, filed, percent, publish, table
from dse.doors import SERVING
from dse.io import quantities
from dse.lab.fits import jobs
from dse.measured import comparison
from dse.measured.comparison import Comparison
from dse.measured.names import Lookup
from dse.measured.prediction import evaluate_many
from dse.types import Engine
from dse.types.fields import field_metadata


class Figure(NamedTuple):
    """One measured figure with its errors, fractions."""

    compared: Comparison
    unfitted: float  #: by the defaults of an engine
    fitted: float
    unseen: float
    elsewhere: float
    foreign: float
    baseline: float


class Line(NamedTuple):
    """Figures that are judged together, and what is asked of their median and mean error."""

    what: str
    of: Callable[[Comparison], bool]
    target: str = ""


def _is(metrics: Sequence[str], source: str = "") -> Callable[[Comparison], bool]:
    return lambda c: c.metric in metrics and c.source.startswith(source)


_TOKENS = ("time_per_output_token", "inter_token_latency")
_RATES = ("output_tokens_per_second", "output_tokens_per_second_per_device")

LINES = (
    Line("time per output token and inter-token latency, all sources", _is(_TOKENS), "7 / 10 %"),
    Line("time to first token, all sources", _is(("time_to_first_token",)), "24 / 30 %"),
    Line(
        "offline throughput, TensorRT-LLM 0.17 and 1.0",
        lambda c: c.metric in _RATES and c.source in ("TensorRT-LLM_v0.17", "TensorRT-LLM_v1.0"),
        "6 / 7 %",
    ),
    Line(
        "static batches, FasterTransformer, TensorRT-LLM 0.5 and 0.6",
        lambda c: c.source.startswith(("FasterTransformer", "TensorRT-LLM_v0.5", "TensorRT-LLM_v0.6")),
        "5 / 8 %",
    ),
    Line("throughput, LMDeploy 0.1", _is(_RATES, "lmdeploy"), "6 % (median)"),
    Line("vLLM 0.10 on ROCm, MI300X", lambda c: c.source.startswith("ROCm"), "15 % (median)"),
    Line("time per output token, ML.ENERGY", _is(_TOKENS, "ML.ENERGY"), "12 / 16 %"),
    Line("throughput, ML.ENERGY", _is(_RATES, "ML.ENERGY"), "12 / 16 %"),
    Line("energy of an output token, ML.ENERGY", _is(("energy_per_output_token",)), "13 % (median)"),
)

#: Kind of figure with an interval → in words.
KINDS = {
    "token": "time per output token",
    "first": "time to first token",
    "latency": "time of a request",
    "rate": "throughput",
    "energy": "energy per token",
}

_ABOUT = """\
Errors are median / mean of |predicted / measured − 1|. *Bytes over bandwidth*: weights and cache that a token reads,
times one constant per source and metric. *No fit*: kernels of the catalogue and the default engine. *Fitted rows*: with
a few numbers a framework and era; chips are not fitted. *Unseen configuration*: by fits without the row's configuration
(five folds). *Unseen deployment*: by fits without its model, devices, mapping and format. *Unseen publication*: by fits
without any row of the publication, in priors either.

In three respects rows are not unseen, as every fit here knows them: the client's time of aiconfigurator (2.35 times that
of InferenceX), 350 tokens of earlier turns in ML.ENERGY v3's chats (an estimate that the delays in its rows support), and
hosts of GB200 1.25 times slower than those of B200 (chosen on rows of TensorRT-LLM 1.0). Mappings, drafts and limits of
InferenceX, and limits, graphs and sums of TensorRT-LLM's offline runs, are those of their scripts and source code."""

HEADER = (
    "what",
    "figures",
    "bytes over bandwidth",
    "no fit",
    "fitted rows",
    "unseen configuration",
    "unseen deployment",
    "unseen publication",
)


def figures(found: Sequence[engines.FittedEngine]) -> list[Figure]:
    """Every fitted figure with all its errors."""
    listed = []
    for one in found:
        designs = [c.prediction.chosen for c in one.rows.compared]
        plain = [dataclasses.replace(d, software=dataclasses.replace(d.software, engine=Engine())) for d in designs]
        metrics = evaluate_many(plain, SERVING)
        for i, c in enumerate(one.rows.compared):
            errors = (one.fit.errors[i], one.unseen[i], one.elsewhere[i], one.foreign[i])
            unfitted = float(metrics[c.metric][i]) / c.measured - 1.0
            listed.append(Figure(c, unfitted, *map(float, np.expm1(errors)), c.baseline_error))
    return listed


#: Figures of an engine that are judged as a stranger's.
STRANGERS = (
    ("time per output token", _is(_TOKENS)),
    ("time to first token", _is(("time_to_first_token",))),
    ("throughput", _is(_RATES)),
)


def rows_of_strangers(found: Sequence[engines.FittedEngine]) -> Iterator[list[str]]:
    """A line for what is left out and the figures that are judged: groups, figures, errors, bias."""
    for ring, group in engines.RINGS.items():
        for what, is_judged in STRANGERS:
            errors, groups = [], set()
            for one in found:
                for c, error in zip(one.rows.compared, one.rings[ring], strict=True):
                    if is_judged(c):
                        errors.append(float(np.expm1(error)))
                        groups.add(group(one.rows.stack, c.measurement.row))
            if errors:
                yield [ring, what, f"{len(groups)}", f"{len(errors)}", _both(errors), percent(np.median(errors), "+")]


def _row(what: str, some: Sequence[Figure], target: str | None = None) -> list[str]:
    columns = [
        [f.baseline for f in some],
        [f.unfitted for f in some],
        [f.fitted for f in some],
        [f.unseen for f in some],
        [f.elsewhere for f in some],
        [f.foreign for f in some],
    ]
    return [what, f"{len(some)}", *map(_both, columns), *([] if target is None else [target])]


def _both(values: Sequence[float]) -> str:
    size = np.abs(values)
    return f"{percent(float(np.median(size)))} / {percent(float(np.mean(size)))}"


def rows_by_source(listed: Sequence[Figure]) -> Iterator[list[str]]:
    """A line a source and metric."""
    for source, metric in sorted({(f.compared.source, f.compared.metric) for f in listed}):
        some = [f for f in listed if (f.compared.source, f.compared.metric) == (source, metric)]
        yield _row(f"{source}: {metric}", some)


def rows_of_engines(found: Sequence[engines.FittedEngine]) -> Iterator[list[str]]:
    """A line an engine: what was fitted of it."""
    for one in found:
        cells = (
            quantities.setting(one.fit.values[p.path], field_metadata(Engine, p.path)["units"])
            for p in engines.PARAMETERS
        )
        yield [one.rows.stack, f"{len(one.fit.errors)}", *cells]


def rows_of_mlperf(compared: Sequence[Comparison]) -> Iterator[list[str]]:
    """MLPerf by model and device."""
    told = [c for c in compared if c.skip is None and c.source.startswith("MLPerf")]
    return _rows_apart([((c.measurement.row.get("model"), c.measurement.row.get("gpu")), c) for c in told])


def rows_of_states(compared: Sequence[Comparison]) -> Iterator[list[str]]:
    """Models whose layers have a state, by model and metric."""
    told = [c for c in compared if c.skip is None and c.metric in engines.METRICS]
    return _rows_apart(
        [
            ((c.measurement.row.get("model"), c.metric), c)
            for c in told
            if c.prediction.chosen.workload.recurrent is not None
        ]
    )


def rows_of_others(compared: Sequence[Comparison]) -> Iterator[list[str]]:
    """Other figures that no engine is fitted to, by source, model and device: mapping or engine are by a rule."""
    lookup = Lookup()
    told = [c for c in compared if engines.is_of_fit(c) and not engines.is_fitted(c, lookup) and not _has_own(c)]
    return _rows_apart([((f"{c.source}: {c.metric}", _model_on(c)), c) for c in told])


def _has_own(c: Comparison) -> bool:
    """Whether a figure is in a section apart of its own."""
    return c.source.startswith("MLPerf") or c.prediction.chosen.workload.recurrent is not None


def _model_on(c: Comparison) -> str:
    row = c.measurement.row
    return f"{row.get('model')}, {row.get('n_gpus')} x {row.get('gpu')}"


def _rows_apart(told: Sequence[tuple[tuple[str, str], Comparison]]) -> Iterator[list[str]]:
    """Figures by two words, predicted by the engines of the catalogue, to which none of them was fitted."""
    for key in [*sorted({key for key, _ in told}), None]:
        some = [c for own, c in told if key in (None, own)]
        errors = [[c.baseline_error for c in some], [c.error for c in some]]
        bias = percent(float(np.median(errors[1])), "+")
        yield [*(key or ("**all**", "")), f"{len(some)}", *map(_both, errors), bias]


def mixtures(found: Sequence[engines.FittedEngine], compared: Sequence[Comparison]) -> list[tuple[Comparison, float]]:
    """Figures of mixtures with their errors: by fits without the configuration where one saw it, else as predicted."""
    unseen = {
        _line_of(c): float(error) for one in found for c, error in zip(one.rows.compared, one.unseen, strict=True)
    }
    return [(c, unseen.get(_line_of(c), error)) for c, error in serving_pairs.predicted(compared)]


def _line_of(c: Comparison) -> tuple[str, int, str]:
    return c.measurement.row.file, c.measurement.row.line, c.metric


def _apart(name: str, keys: Sequence[str], rows: Iterable[list[str]]) -> list[str]:
    """A file of figures that no engine is fitted to, and a table of all of them together."""
    *each, whole = rows
    header = ("figures", "bytes over bandwidth", "predicted", "bias")
    by_key = filed(f"serving_{name}", (*keys, *header), each)
    return [table(header, [whole[len(keys) :]]), f"By {' and '.join(keys)}: {by_key}"]


def starved(listed: Sequence[Figure]) -> list[Figure]:
    """Times to the first token of requests that wait for memory: more are in flight than it holds."""
    found = []
    for figure in listed:
        prediction = figure.compared.prediction
        requests = prediction.chosen.workload.requests
        assert requests is not None
        if figure.compared.metric == "time_to_first_token" and (
            float(requests.concurrency) > prediction.metrics["concurrency_limit"]
        ):
            found.append(figure)
    return found


def _starved(listed: Sequence[Figure]) -> str:
    rows = []
    for what, errors in (
        ("bytes over bandwidth", [f.baseline for f in listed]),
        ("no fit", [f.unfitted for f in listed]),
        ("fitted rows", [f.fitted for f in listed]),
        ("unseen configuration", [f.unseen for f in listed]),
    ):
        factor = np.exp(np.abs(np.log(np.maximum(1.0 + np.array(errors), 1e-6))))
        within = percent(float(np.mean(factor <= 2.0)))
        rows.append([what, f"{len(listed)}", f"{np.median(factor):.2f}", f"{factor.max():.1f}", within])
    return table(("by", "figures", "median factor", "largest", "within a factor of 2"), rows, words=("by",))


def rows_of_intervals(found: Sequence[engines.FittedEngine]) -> Iterator[list[str]]:
    """Kind of figure, and what its intervals hold."""
    for kind, held in engine_residuals.held(engines.open_errors(found)).items():
        name = "**all**" if kind == "all" else KINDS[kind]
        wide = (f"÷ and × {np.exp(width):.2f}" for width in (held.width, held.foreign_width))
        yield [name, f"{held.figures}", percent(held.unseen), percent(held.foreign), *wide]


def page(found: Sequence[engines.FittedEngine], compared: Sequence[Comparison]) -> str:
    """The page."""
    listed = figures(found)
    groups = ((line, [f for f in listed if line.of(f.compared)]) for line in LINES)
    skipped = Counter(c.skip.reason for c in compared if c.skip is not None)
    names = [p.path.replace("_", " ") for p in engines.PARAMETERS]
    return document(
        [
            "# Serving: predicted and measured",
            f"Written by `{command('docs.make.serving')}` from published rows.",
            "## Errors of strangers",
            "Strangers first: median / mean of |predicted / measured − 1| by fits without any figure of the row's chip, "
            "release, engine (code base) or model. Kernels of a chip are measured alone, and stay. Folds, in the next "
            "section, flatter, since rows of the same release, chip and model stay. Left-out fits move along the slopes of "
            "the whole fit; their errors are those of the model.",
            table(("left out", "figures of", "groups", "figures", "error", "bias"), list(rows_of_strangers(found))),
            "## Errors by figure",
            _ABOUT,
            table(
                (*HEADER, "asked of unseen configurations"),
                [_row(line.what, some, line.target) for line, some in groups if some],
            ),
            f"By source and metric: {filed('serving_sources', HEADER, rows_by_source(listed))}",
            "## Waiting for memory",
            "Times to first token of requests that wait for memory: more are in flight than it has "
            "room for. Asked: a factor of 2.",
            _starved(starved(listed)),
            "## MLPerf, apart",
            "MLPerf Inference, Offline, a full queue. Mappings, limits of a step and queues are those of "
            "the submitters' configurations, where there are none the fewest devices that hold the "
            "weights in 62 % of their memory; lengths are those of the data sets. No engine was fitted "
            "to these rows.",
            *_apart("mlperf", ("model", "device"), rows_of_mlperf(compared)),
            "## Layers with a state, apart",
            "Nemotron Nano v2 (Mamba-2 layers and attention) of ML.ENERGY v3; no row of a model with "
            "a state was fitted. Many short requests are predicted too fast: a prompt seems to delay "
            "a step by some 28 ms, as if steps with prompts ran without a graph.",
            *_apart("states", ("model", "metric"), rows_of_states(compared)),
            "## Mappings and releases by a rule, apart",
            "Mixtures of TensorRT-LLM 1.0 on several devices, whose table does not print how experts "
            "lie (attention apart on every device, experts over all), and TensorRT-LLM 1.3, whose "
            "batches are beyond the captured graphs. No engine was fitted to these rows.",
            *_apart("rules", ("what", "model"), rows_of_others(compared)),
            *serving_pairs.section(mixtures(found, compared)),
            "## Intervals",
            "80 % intervals by residuals of the engine and the kind of figure (`[residuals]` of a "
            "stack). Widths are medians.",
            table(
                (
                    "figures of",
                    "figures",
                    "held, unseen configuration",
                    "held, unseen publication",
                    "width",
                    "width, publication",
                ),
                list(rows_of_intervals(found)),
                words=("figures of",),
            ),
            *serving_power.section(),
            "## Roofline",
            "Matrices and attention of Llama 3 70B in fp8 on eight H100 (tp 8) under the roofs of a "
            "device. `dse evaluate --serving` prints what bounds a step.",
            "![Roofline](serving.png)",
            "## Engines",
            "Fitted numbers of the stacks in `hw_catalog/software`: "
            + filed("serving_engines", ("stack", "figures", *names), rows_of_engines(found)),
            *refused.section(compared),
            "## Excluded figures, by reason",
            f"{skipped.total():,} figures, by reason: "
            + filed(
                "serving_excluded", ("reason", "figures"), ([reason, f"{n}"] for reason, n in skipped.most_common())
            ),
        ]
    )


def main() -> None:
    """Fit, and write the page."""
    asked = with_fit(page_parser(__doc__)).parse_args()
    found, *_ = jobs.run(asked.tables, asked.folds, asked.output, asked.catalog, jobs=JOBS)
    roofline.draw(asked.page.with_suffix(".png"))
    publish(asked.page, page(found, comparison.compare(asked.tables)))


if __name__ == "__main__":
    main()
