"""The page of the docs on energy: power limits and clocks beside measurement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from calibration.power import CHIPS, FittedChip
from docs.make.energy.figure import draw
from docs.make.markdown import document, filed, percent, publish, table
from dse.designs import leaf, replace
from dse.measured.energy import CLOCK, CLOCKS_HZ, decoder_layer, least_energy_figures, relative_figures
from dse.measured.prediction import evaluate_many
from dse.types import Power, field_metadata

_LIMIT = "system.accelerator.power.limit"

_TRACES = """\
Zeus (You et al., NSDI 2023) fine-tuned BERT-base on one card under every power limit. Compared are time and mean power
over those under the highest limit. Assumed: fp32, 384 tokens a sequence on SQuAD and 50 on sentiment140, PCIe cards.
Four numbers are fitted a chip. *Unseen*: by a fit without any row of the same data set and batch. *Other chip*: with
only what the other chip says of the parameters."""

_CLOCKS = """\
Fröning's study looped one decoder layer on an A30 (limit 165 W) at every clock from 210 to 1440 MHz. Compared are energy
and time at the clock of least energy with those at the fastest. Assumed: forward and backward pass over one sequence in
fp16, gradients in 16 bits, no optimiser, a host that is ahead. *Unseen*: by a fit without the row's own model and
length. Four numbers are fitted to eight figures: they say how the chip answers to its clock, not which part draws the
power."""

_LAYERS = """\
The model alone, for more layers: larger ones have less to save, as the limit holds their clock.
The best clock of all sizes and lengths is {clocks}.
`sweeps/dvfs_decoder_layers.toml` has every clock."""

#: Layers of that table.
_MODELS, _LENGTHS = ("gpt-3-125m", "gpt-3-1-3b", "gpt-3-6-7b", "gpt-3-13b", "gpt-3-175b"), (128, 512, 1024)


def write_page(
    path: str | Path, found: Sequence[FittedChip], command: str, sections: Sequence[tuple[str, str]] = ()
) -> None:
    """Write the page to ``path`` and its figure beside it; further ``sections`` are pairs of a title and a text."""
    path = Path(path)
    figure = path.with_suffix(".png")
    draw(found, figure)
    publish(path, page(found, command, figure.name, sections))


def page(found: Sequence[FittedChip], command: str, figure: str, sections: Sequence[tuple[str, str]] = ()) -> str:
    """The page as Markdown."""
    limits = [one for one in found if not one.rows.studies[0].has_clock_designs]
    clocks = [one for one in found if one.rows.studies[0].has_clock_designs]
    parts = [
        "# Energy, clocks and power limits",
        f"Written by `{command}`.",
        f"![Measured and predicted]({figure})",
        *_section("Power-limit traces", _TRACES, limits, (_errors(limits), _by_limit(limits), _by_batch(limits))),
        *_section("A30 clock study", _CLOCKS, clocks, (_cells(clocks), *_layers(clocks))),
        *(part for title, text in sections for part in (f"## {title}", text.rstrip())),
        "## Parameters",
        _parameters(found),
    ]
    return document(parts)


def _section(title: str, text: str, found: Sequence[FittedChip], tables: Iterable[str]) -> list[str]:
    return [f"## {title}", text, *tables] if found else []


class _Errors:
    """Log errors of the figures of some chips, with what they belong to."""

    def __init__(self, found: Sequence[FittedChip]):
        figures = [(one, figure) for one in found for figure in one.rows.figures]
        self.chip = np.array([one.slug for one, _ in figures])
        self.metric = np.array([figure.metric for _, figure in figures])
        self.batch = np.array([int(figure.group[2]) for _, figure in figures])
        self.data = np.array([figure.group[1].rpartition("-")[2] for _, figure in figures])
        self.limit = np.array([float(leaf(one.rows.studies[f.study].designs[0], _LIMIT)) for one, f in figures])
        self.measured = np.array([figure.measured for _, figure in figures])
        self.fitted = np.concatenate([one.fit.errors for one in found])
        self.unseen = np.concatenate([one.unseen for one in found])
        nothing = [one.elsewhere if len(one.elsewhere) else np.full(len(one.unseen), np.nan) for one in found]
        self.elsewhere = np.concatenate(nothing)


def _figures(errors: np.ndarray) -> list[str]:
    sizes = np.abs(np.expm1(errors))
    return [percent(float(np.mean(sizes))), percent(float(np.median(sizes)))]


def _errors(found: Sequence[FittedChip]) -> str:
    if not found:
        return ""
    e, rows = _Errors(found), []
    for chip in [*dict.fromkeys(e.chip), "**all**"]:
        for metric in dict.fromkeys(e.metric):
            pick = (e.metric == metric) & ((e.chip == chip) | (chip == "**all**"))
            figures = [text for errors in (e.fitted, e.unseen, e.elsewhere) for text in _figures(errors[pick])]
            rows.append([chip, metric, str(pick.sum()), *figures])
    header = ["chip", "metric", "rows"]
    header += [f"{which} {what}" for which in ("fit", "unseen", "other chip") for what in ("mean", "median")]
    return table(header, rows)


def _by_limit(found: Sequence[FittedChip]) -> str:
    """Means over batches, predicted by fits that saw none of the batch."""
    if not found:
        return ""
    e, rows = _Errors(found), []
    for chip in dict.fromkeys(e.chip):
        for limit in sorted(set(e.limit[e.chip == chip])):
            pick = (e.chip == chip) & (e.limit == limit)
            rows.append([chip, f"{limit:.0f} W", *_means(e, pick, "relative_time"), *_means(e, pick, "relative_power")])
    header = ["chip", "limit", "time measured", "time unseen", "power measured", "power unseen"]
    return f"By limit: {filed('energy_limits', header, rows)}"


def _means(e: _Errors, pick: np.ndarray, metric: str) -> list[str]:
    own = pick & (e.metric == metric)
    return [f"{np.mean(values):.3f}" for values in (e.measured[own], (e.measured * np.exp(e.unseen))[own])]


def _by_batch(found: Sequence[FittedChip]) -> str:
    if not found:
        return ""
    e, rows = _Errors(found), []
    for chip, data, batch in sorted(set(zip(e.chip, e.data, e.batch, strict=True))):
        pick = (e.chip == chip) & (e.data == data) & (e.batch == batch)
        both = [
            percent(float(np.mean(np.abs(np.expm1(e.unseen[pick & (e.metric == metric)])))))
            for metric in ("relative_time", "relative_power")
        ]
        rows.append([chip, data, str(batch), str(pick.sum() // 2), *both])
    header = ["chip", "source", "batch", "limits", "time, unseen", "power, unseen"]
    return f"By data set and batch: {filed('energy_batches', header, rows)}"


def _cells(found: Sequence[FittedChip]) -> str:
    rows = []
    for one in found:
        best = [metrics["best_clock"] for metrics in relative_figures(one.rows.fitted_studies(one.fit))]
        for index, study in enumerate(one.rows.studies):
            picks = {f.metric: i for i, f in enumerate(one.rows.figures) if f.study == index}
            cells = [
                text
                for metric, sign in (("relative_energy", -1.0), ("relative_time", 1.0))
                for text in _points(one, picks[metric], sign)
            ]
            rows.append([study.group[1], study.group[2], *cells, f"{1e-6 * best[index]:.0f} MHz"])
    header = ["model", "tokens", "energy saved", "fit", "unseen", "time lost", "fit", "unseen", "best clock"]
    return table(header, rows)


def _layers(found: Sequence[FittedChip]) -> tuple[str, str]:
    """Text on the layers, with the range of their best clocks, and their table."""
    rows, best = [], []
    for one in found:
        for model in _MODELS:
            for tokens in _LENGTHS:
                base = one.rows.fitted(decoder_layer(model, tokens, one.slug), one.fit)
                metrics = evaluate_many([replace(base, {CLOCK: float(clock)}) for clock in CLOCKS_HZ])
                end = least_energy_figures(metrics["step_time"], metrics["device_power"])
                joules = metrics["step_time"] * metrics["device_power"] / metrics["model_flops"]
                best.append(end["best_clock"])
                rows.append(
                    [
                        model,
                        str(tokens),
                        f"{1e12 * joules.min():.2f}",
                        percent(1.0 - end["relative_energy"]),
                        percent(end["relative_time"] - 1.0),
                        f"{1e-6 * end['best_clock']:.0f} MHz",
                    ]
                )
    header = ["model", "tokens", "pJ per FLOP", "energy saved", "time lost", "best clock"]
    return _LAYERS.format(clocks=clock_range(best)), filed("energy_layers", header, rows)


def clock_range(clocks: Sequence[float]) -> str:
    """The lowest and the highest of some clocks in Hz, in MHz: one number where they are equal.

    >>> clock_range([840e6, 855e6, 825e6]), clock_range([840e6])
    ('825 to 855 MHz', '840 MHz')
    """
    low, high = (f"{1e-6 * clock:.0f}" for clock in (min(clocks, default=0.0), max(clocks, default=0.0)))
    return f"{low} MHz" if low == high else f"{low} to {high} MHz"


def _points(found: FittedChip, index: int, sign: float) -> list[str]:
    measured = found.rows.figures[index].measured
    values = (measured, *(measured * np.exp(errors[index]) for errors in (found.fit.errors, found.unseen)))
    return [percent(sign * (value - 1.0)) for value in values]


def _parameters(found: Sequence[FittedChip]) -> str:
    rows = []
    for one in found:
        for parameter in CHIPS[one.slug].parameters:
            path = parameter.path
            meta = field_metadata(Power, path.rpartition(".")[2])
            told = percent(one.fit.spread[path]) if one.fit.is_informed[path] else "not told by the rows"
            scale, units = (1e12, "p" + meta["units"]) if meta["units"].startswith("J") else (1.0, meta["units"])
            values = [f"{scale * value:.3g}" for value in (parameter.prior, one.fit.values[path])]
            rows.append([one.slug, meta["long_name"], units, *values, told])
    return filed("energy_parameters", ["chip", "term", "unit", "prior", "fitted", "spread"], rows)
