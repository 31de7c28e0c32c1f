"""What a power cap costs in time: a training step and decode under limits below the one as sold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

import dse
from calibration.power import FittedChip
from docs.make.energy.savings import training
from docs.make.markdown import percent, table
from dse.designs import leaf, replace
from dse.measured.prediction import evaluate_many

_LIMIT, _TDP = (f"system.accelerator.power.{name}" for name in ("limit", "tdp"))
#: Limits over the one as sold; those of the table come second to fourth.
_LIMITS = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
_CHIPS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb")

_TEXT = """\
A step of Llama 3 70B on 64 devices (tp 8, full recompute), and a token of it from vLLM with 64 requests in flight
(tp 4, 1,024 tokens in and out): time added by limits of 90, 80 and 70 % of the one as sold, and by the limit that saves
a tenth of the boards' energy. A cap counts by the clock that it leaves over that of the limit as sold. Below, the means of the traces above. Published studies (McDonald et al. 2022, Zeus; from
memory) save a tenth of the energy at 3 to 8 % of the time."""


def section(found: Sequence[FittedChip]) -> tuple[str, str]:
    """Title and text of a part of a page."""
    columns = ["chip", "work", *(f"limit {ratio:.0%}" for ratio in _LIMITS[1:4]), "a tenth of the energy"]
    rows = [
        [chip, work, *_cells(time, energy)]
        for curves in (_modelled(), _traced(found))
        for chip, work, time, energy in curves
    ]
    return "What a power cap costs", f"{_TEXT}\n\n{table(columns, rows, ('chip', 'work'))}\n"


Curve = tuple[str, str, np.ndarray, np.ndarray]  # chip, work, time and energy over those at the limit as sold


def _modelled() -> Iterator[Curve]:
    for chip in _CHIPS:
        base = training(chip)
        steps = evaluate_many([replace(base, {_LIMIT: float(leaf(base, _TDP) * ratio)}) for ratio in _LIMITS])
        yield chip, "training", *_over_first(steps["step_time"], steps["device_power"])
        served = dse.design(
            "llama-3-70b", chip, "vllm", any_option=True, tp=4, concurrency=64, prompt_tokens=1024, output_tokens=1024
        )
        tokens = [dse.serve(replace(served, {_LIMIT: float(leaf(served, _TDP) * ratio)})) for ratio in _LIMITS]
        names = ("time_per_output_token", "device_power")
        times, watts = ([float(getattr(one, name)) for one in tokens] for name in names)
        yield chip, "decode", *_over_first(times, watts)


def _traced(found: Iterable[FittedChip]) -> Iterator[Curve]:
    """Means over batches of the traces of power limits, measured and predicted."""
    for one in found:
        studies = one.rows.studies
        if studies[0].has_clock_designs:
            continue
        limits = np.array([float(leaf(studies[f.study].designs[0], _LIMIT)) for f in one.rows.figures])
        metric = np.array([f.metric for f in one.rows.figures])
        measured = np.array([f.measured for f in one.rows.figures])
        for what, values in (("measured", measured), ("fitted", measured * np.exp(one.fit.errors))):
            sold = float(leaf(studies[0].designs[0], _TDP))
            time, power = (
                np.array(
                    [
                        1.0,
                        *(
                            np.mean(values[(metric == f"relative_{name}") & np.isclose(limits, sold * ratio)])
                            for ratio in _LIMITS[1:]
                        ),
                    ]
                )
                for name in ("time", "power")
            )
            yield one.slug, f"BERT, {what}", *_over_first(time, power)


def _over_first(time: Iterable[float], watts: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    times, joules = np.array(time), np.array(time) * np.array(watts)
    return times / times[0], joules / joules[0]


def _cells(time: np.ndarray, energy: np.ndarray) -> list[str]:
    """Time added at three limits, and where a tenth of the energy is saved first; a dash where no limit saves it."""
    rises = np.concatenate([[0.0], np.maximum.accumulate(1.0 - energy[1:])])
    tenth = float(np.interp(0.1, rises, time - 1.0)) if rises[-1] >= 0.1 else None
    return [percent(float(value) - 1.0, "+") for value in time[1:4]] + [percent(tenth, "+")]
