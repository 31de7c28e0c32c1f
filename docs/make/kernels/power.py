"""The part of the kernels' page on power: board power by class, and what the power limit costs in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from docs.make.markdown import percent, table
from dse.calibrate.kernels import FittedJob, fitted_device
from dse.measured.kernels import POWER, Kernel, times
from dse.types import Precision

#: Measured power over the limit from which a kernel counts as at the limit.
AT_LIMIT = 0.97
#: Measured over predicted power below which a reading counts as low.
LOW = 0.7

_TEXT = (
    "Mean board power of kernels that repeat, from predicted times. GEMMs: by a fit that saw no row of the shape; at "
    "the limit: measured at 97 % of it or more. Attention: no row of it was fitted. *Read low* is the share of rows "
    "measured below 0.7 of the prediction. Of GEMMs these readings are no property of the kernel: many run at a rate, "
    "and are slowed down against short runs, as only a board at its limit is, and blocks of neighbouring shapes "
    "share them. Readings of decode attention tell little of the kernel: of near-identical ones they differ by a "
    "fifth, and one head on one core is read at 540 W. Power of block-scaled GEMMs is that of the device without the "
    "host's launches."
)


def sections(found: Sequence[FittedJob], kernels: Sequence[Kernel]) -> list[str]:
    """Markdown of both tables; none where no power was fitted."""
    fitted = [one for one in found if any(kernel.metric == POWER for kernel in one.kernels)]
    if not fitted:
        return []
    return ["## Power", _TEXT, _power(found, fitted[0], kernels), *_ratios(found, kernels)]


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
    return table(["class", "device", "rows", "median", "90 %", "bias", "read low"], rows)


def _figures(members: Sequence[tuple[Kernel, float]]) -> list[str]:
    errors = np.array([error for _, error in members])
    low = float(np.mean(errors > 1.0 / LOW - 1.0))
    size = abs(errors)
    return [
        str(len(errors)), percent(float(np.median(size))), percent(float(np.quantile(size, 0.9))),
        percent(float(np.median(errors)), "+"), percent(low),
    ]  # fmt: skip


def predicted(found: Sequence[FittedJob], kernels: Sequence[Kernel]) -> list[float]:
    """Times or powers of kernels by what the fits found."""
    values = np.zeros(len(kernels))
    for key in dict.fromkeys((k.kind, k.device) for k in kernels):
        members = [i for i, k in enumerate(kernels) if (k.kind, k.device) == key]
        rows = np.array([kernels[i].values for i in members], np.float32)
        values[members] = np.asarray(times(key[0], rows, fitted_device(found, *key)))
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
