"""Operators of a served model under the roofline of its device, in steps that decode and in one of a prompt."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dse
from dse.model.recipes import RECIPES
from dse.types import Design, Precision
from dse.views.plot import style

#: Requests in flight whose decode steps are drawn.
_FLIGHTS = (1, 16, 256)
#: Operators that are drawn: matrices and attention.
_DRAWN = ("matrix", "matrix_16", "flash", "grouped")


def draw(path: Path, workload: str = "llama-3-70b", device: str = "h100-sxm-80gb") -> None:
    """FLOP/s of operators against their FLOPs a byte of device memory, with the roofs of the device."""
    designs = [
        dse.design(workload, device, "vllm", tp=8, precision="fp8", concurrency=c, prompt_tokens=2048, any_option=True)
        for c in _FLIGHTS
    ]
    explained = [dse.explain(design, study="serving") for design in designs]
    with style.style():
        figure = style.new_figure(style.COLUMN, 2.8)
        axes = figure.subplots()
        _roofs(axes, designs[0])
        colours = style.shades(len(_FLIGHTS))
        for place, (c, one) in enumerate(zip(_FLIGHTS, explained, strict=True)):
            _points(axes, one.operators, "decode", f"decode, {c}", colours[place], style.marker(place))
        _points(axes, explained[0].operators, "prefill", "prompt of 2,048", style.FRONT, "o")
        axes.set_xscale("log")
        axes.set_yscale("log")
        for ticks, put in (((1, 10, 100, 1000), axes.set_xticks), ((1, 10, 100, 1000), axes.set_yticks)):
            put(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("FLOP per byte of device memory")
        axes.set_ylabel("TFLOP/s of a device")
        axes.legend(loc="lower right", handletextpad=0.2)
        style.save(figure, path, force=True)


def _roofs(axes, design: Design) -> None:  # type: ignore[no-untyped-def]
    accelerator, recipe = design.system.accelerator, RECIPES[Precision(int(design.mapping.precision))]
    intensity = np.geomspace(0.5, 5000.0, 200)
    peak = float(getattr(accelerator.matrix_rate, recipe.rate))
    axes.plot(intensity, 1e-12 * np.minimum(peak, intensity * float(accelerator.memory.bandwidth)), color=style.INK)


def _points(axes, operators, section: str, label: str, colour, marker: str) -> None:  # type: ignore[no-untyped-def]
    drawn = [o for o in operators if o.section == section and o.kind in _DRAWN and o.name != "head"]
    axes.scatter(
        [o.intensity for o in drawn],
        [1e-12 * o.flops / o.forward_time for o in drawn],
        s=14,
        color=colour,
        marker=marker,
        label=label,
        linewidths=0,
    )
