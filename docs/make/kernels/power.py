"""The part of the kernels' page on power: board power by class, and what the power limit costs in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.kernels import FittedJob, fitted_device
from docs.make.markdown import filed, percent, table
from dse.measured.kernels import POWER, Kernel, times_or_powers
from dse.types import Precision

#: Measured power over the limit from which a kernel counts as at the limit.
AT_LIMIT = 0.97
#: Measured over predicted power below which a reading counts as low.
LOW = 0.7
#: Bounds of classes of GEMMs: measured seconds, and predicted power over the limit.
DURATIONS = (0.0, 5e-6, 20e-6, 50e-6, 100e-6, np.inf)
LOADS = (0.0, 0.3, 0.4, 0.6, 0.8, 0.99, np.inf)

_TEXT = (
    "Mean board power of kernels that repeat, from predicted times. GEMMs: by a fit that saw no row "
    "of the shape; at the limit: measured at 97 % of it or more. Attention: no row of it was fitted. "
    "*Read low*: share of rows measured below 0.7 of the prediction, which say little of the kernel, "
    "as do readings of decode attention."
)

_READABLE = (
    "A reading is the mean of samples 100 ms apart while a kernel repeats for a second. It is the "
    "kernel's power for GEMMs of 50 us or more on boards predicted at their limit or below 30 % of "
    "it. Of shorter ones, and on boards in between, a fifth to a third of the readings are low by a "
    "third or more, so that the median over all GEMMs stays above 12 %. Block-scaled GEMMs include a "
    "launch of 60 to 180 us on B200."
)


def sections(found: Sequence[FittedJob], kernels: Sequence[Kernel]) -> list[str]:
    """Markdown of both tables; none where no power was fitted."""
    fitted = [one for one in found if any(kernel.metric == POWER for kernel in one.kernels)]
    if not fitted:
        return []
    readable = ["### Which readings are a kernel's", _READABLE, *_readable(found, fitted[0], kernels)]
    return ["## Power", _TEXT, _power(found, fitted[0], kernels), *readable, *_ratios(found, kernels)]


def name(kernel: Kernel) -> str:
    """Class of a kernel whose power was measured."""
    if kernel.base == "gemm":
        return f"GEMM, {Precision(int(kernel.values[3])).name}"
    whole = kernel.values[7] > 0.0 and kernel.values[1] > 1.0
    return f"attention, {'context' if whole else 'decode'}"


def _power(found: Sequence[FittedJob], fitted: FittedJob, kernels: Sequence[Kernel]) -> str:
    """Errors by class, device and regime."""
    told = [(k, float(np.expm1(e))) for k, e in zip(fitted.kernels, fitted.errors, strict=True) if k.metric == POWER]
    unseen = [k for k in kernels if k.kind == "attention_power" and k.device in fitted.job.devices]
    told += [(k, p / k.measured - 1.0) for k, p in zip(unseen, predicted(found, unseen), strict=True)]
    limits = {device: float(fitted_device(found, "gemm", device).power.tdp) for device in fitted.job.devices}
    groups: dict[tuple[str, str], list[tuple[Kernel, float]]] = {}
    for kernel, error in told:
        limited = kernel.measured >= AT_LIMIT * limits[kernel.device]
        for key in (name(kernel), name(kernel) + (", at the limit" if limited else ", below it")):
            groups.setdefault((key, kernel.device), []).append((kernel, error))
        what = "GEMMs" if kernel.base == "gemm" else "attention"
        groups.setdefault((f"**all {what}**", "all"), []).append((kernel, error))
    rows = [[*key, *_figures(members)] for key, members in sorted(groups.items())]
    header = ["class", "device", "rows", "median", "90 %", "bias", "read low"]
    whole = [row for row in rows if row[1] == "all"]
    return f"{table(header, whole)}\n\nBy class and device: {filed('kernels_power', header, rows)}"


def _readable(found: Sequence[FittedJob], fitted: FittedJob, kernels: Sequence[Kernel]) -> list[str]:
    """Errors of GEMMs by how long they take, and by how much of its limit the board is predicted to draw."""
    seconds = {(k.device, k.values[:4]): k.measured for k in kernels if k.kind == "gemm" and k.values[4] > 0.0}
    limits = {device: float(fitted_device(found, "gemm", device).power.tdp) for device in fitted.job.devices}
    times: dict[tuple[str, str, int], list[tuple[Kernel, float]]] = {}
    loads: dict[tuple[str, int], list[tuple[Kernel, float]]] = {}
    for kernel, log in zip(fitted.kernels, fitted.errors, strict=True):
        key = kernel.device, kernel.values[:4]
        if kernel.kind != "gemm_power" or key not in seconds:
            continue
        blocks = kernel.values[3] == float(Precision.fp8_block)
        told = kernel, float(np.expm1(log))
        what = "GEMM, scaled by blocks" if blocks else "GEMM"
        times.setdefault((what, kernel.device, _class(seconds[key], DURATIONS)), []).append(told)
        if not blocks:
            load = kernel.measured * np.exp(log) / limits[kernel.device]
            loads.setdefault((kernel.device, _class(load, LOADS)), []).append(told)
    header = ["rows", "median", "90 %", "bias", "read low"]
    by_time = [[*key[:2], _span(key[2], DURATIONS, 1e6, " us"), *_figures(rows)] for key, rows in sorted(times.items())]
    by_load = [[key[0], _span(key[1], LOADS, 100.0, " %"), *_figures(rows)] for key, rows in sorted(loads.items())]
    times_table = filed("kernels_power_times", ["class", "device", "time", *header], by_time)
    loads_table = filed("kernels_power_loads", ["device", "load predicted", *header], by_load)
    return [f"By time: {times_table}; by predicted load: {loads_table}"]


def _class(value: float, bounds: Sequence[float]) -> int:
    return int(np.searchsorted(bounds, value, side="right")) - 1


def _span(index: int, bounds: Sequence[float], scale: float, unit: str) -> str:
    low, high = (scale * bound for bound in bounds[index : index + 2])
    return f"{low:.0f}{unit} or more" if high == np.inf else f"{low:.0f} to {high:.0f}{unit}"


def _figures(members: Sequence[tuple[Kernel, float]]) -> list[str]:
    errors = np.array([error for _, error in members])
    low = float(np.mean(errors > 1.0 / LOW - 1.0))
    size = abs(errors)
    return [
        str(len(errors)),
        percent(float(np.median(size))),
        percent(float(np.quantile(size, 0.9))),
        percent(float(np.median(errors)), "+"),
        percent(low),
    ]


def predicted(found: Sequence[FittedJob], kernels: Sequence[Kernel]) -> list[float]:
    """Times or powers of kernels by what the fits found."""
    values = np.zeros(len(kernels))
    for key in dict.fromkeys((k.kind, k.device) for k in kernels):
        members = [i for i, k in enumerate(kernels) if (k.kind, k.device) == key]
        rows = np.array([kernels[i].values for i in members], np.float32)
        values[members] = np.asarray(times_or_powers(key[0], rows, fitted_device(found, *key)))
    return values.tolist()


def _ratios(found: Sequence[FittedJob], kernels: Sequence[Kernel]) -> list[str]:
    """Time of repeated GEMMs over that of short runs, of points at the limit."""
    watts = {(k.device, k.values[:4]): k.measured for k in kernels if k.kind == "gemm_power"}
    runs: dict[str, dict[tuple, Kernel]] = {"sustained": {}, "burst": {}}
    for kernel in kernels:
        if kernel.label in runs:
            runs[kernel.label][kernel.device, kernel.values[:4]] = kernel
    limits = {k.device: float(fitted_device(found, "gemm", k.device).power.tdp) for k in runs["burst"].values()}
    keys = [k for k in runs["burst"] if k in runs["sustained"] and watts.get(k, 0.0) >= AT_LIMIT * limits[k[0]]]
    if not keys:
        return []
    pairs = [[runs[label][key] for key in keys] for label in ("sustained", "burst")]
    measured = np.array([s.measured / b.measured for s, b in zip(*pairs, strict=True)])
    ours = np.array(predicted(found, pairs[0])) / np.array(predicted(found, pairs[1]))
    devices = np.array([device for device, _ in keys])
    rows = [_ratio(device, measured[devices == device], ours[devices == device]) for device in dict.fromkeys(devices)]
    text = (
        "Time of 16-bit GEMMs that repeat over that of short runs, of shapes at the power limit: the clock that the "
        "limit leaves, by the fit to all rows. The two runs are of two versions of a library, of which the later is "
        "2 to 4 % slower where no limit holds."
    )
    header = ["device", "rows", "measured", "predicted", "measured, 10 to 90 %", "predicted, 10 to 90 %"]
    return ["### At the power limit", text, table(header, [*rows, _ratio("**all**", measured, ours)])]


def _ratio(device: str, measured: np.ndarray, ours: np.ndarray) -> list[str]:
    spans = ["{:.2f} to {:.2f}".format(*np.quantile(ratios, [0.1, 0.9])) for ratios in (measured, ours)]
    return [device, str(len(ours)), f"{np.median(measured):.3f}", f"{np.median(ours):.3f}", *spans]
