"""Logs of power and clocks: ``nvidia-smi --query-gpu … --format=csv -l``, ``dcgmi dmon``, scrapes of dcgm-exporter.

A log belongs to a run of another file (:mod:`dse.measured.profiles.attached`). Samples count within the time that this
states; else, of a device that worked, those from the first to the last that draw more than half of its range: the run,
not the idle time around it.
"""

from __future__ import annotations

import csv
import functools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dse.measured.profiles.run import CELL_ROWS, Figure, MeasuredRun, TimeWindow, device_slug, seconds_of

#: Number of a sample → its names in nvidia-smi, dcgmi dmon, DCGM and amd-smi, the best first.
_COLUMNS: dict[str, list[str]] = CELL_ROWS["telemetry"]

#: A heading of columns, or a line of an exporter; no command line that asks for them.
SIGNATURE = re.compile(
    r"^[^-=]{0,400}\b(?:power\.draw|DCGM_FI_DEV_POWER_USAGE)\b[^-=]*$|^[\s\d.]*# ?Entity\s+\w|^DCGM_FI_DEV_\w+\{"
    rf"|^(?=.*,)[\w., ]{{0,400}}\b(?:{'|'.join(name for name in _COLUMNS['power'] if '_' in name)})\b[\w., ]*$"
)

_FIELD = {name: field for field, names in _COLUMNS.items() for name in names}
_DEVICE = ("index", "uuid", "gpu_uuid", "gpu_index", "pci.bus_id", "gpu_bus_id", "gpu")
_NAME = ("name", "gpu_name", "modelName")
_TIMES = ("timestamp", "timestamp_unix", "time", "datetime")

#: Bits of reasons for a lower clock (nvml.h, nvmlClocksEventReasons): the power limit, and heat.
_POWER_BITS, _HEAT_BITS = 0x04 | 0x80, 0x20 | 0x40

_ENTITY = re.compile(r"\bGPU\s+(\d+)\s+(\S.*)$")
_EXPORTER_LINE = re.compile(r"^(DCGM_FI_DEV_\w+)\{([^}]*)\}\s+(\S+)")
_LABEL = re.compile(r'\b(\w{1,100})="([^"]{0,1000})"')

#: Devices of one log.
_MAX_DEVICES = 4096
#: Least share of the busiest device's power that a device at work draws.
_WORKING_SHARE = 0.5
#: Share of the samples of a run that may be idle without a remark.
_LARGEST_IDLE = 0.1
#: Step and most of the difference of a local time from UTC, s.
_ZONE_STEP, _ZONES = 900.0, 56
#: Samples that a time has to hold.
_LEAST_SAMPLES = 3


class Sample(NamedTuple):
    """Numbers of a device at one time, NaN where unknown."""

    device: str
    name: str
    values: Mapping[str, float]
    time: float = float("nan")  #: s since 1970 by the clock of the log


def read(lines: Iterable[str]) -> list[MeasuredRun]:
    """Read power and clock of each device at work as one run of kind ``telemetry``, or [].

    Its steps are devices.
    """
    series: dict[str, dict[str, array[float]]] = {}
    names: set[str] = set()
    for sample in _samples(lines):
        if sample.device not in series and len(series) >= _MAX_DEVICES:
            continue
        device_series = series.setdefault(sample.device, {field: array("d") for field in (*_COLUMNS, "time")})
        if "power" in sample.values:
            device_series["time"].append(sample.time)
        for field, value in sample.values.items():
            device_series[field].append(value)
        names |= {sample.name} - {""}
    run = MeasuredRun("telemetry", "telemetry", {}, warm_up=0)
    powers = {
        device: np.frombuffer(device_series["power"])
        for device, device_series in series.items()
        if np.any(device_series["power"])
    }
    highs = {device: float(np.nanquantile(power, 0.95)) for device, power in powers.items() if np.any(power > 0.0)}
    working_devices = [device for device, high in highs.items() if high >= _WORKING_SHARE * max(highs.values())]
    for number, device in enumerate(working_devices):
        run.steps[number] = list(_figures(series[device], highs[device]))
    slugs = {device_slug(name) for name in names} - {""}
    run.cells = {"gpu": slugs.pop()} if len(slugs) == 1 else {}
    run.within = functools.partial(_figures_within, series)
    idle_share = max((_idle_share(powers[device], highs[device]) for device in working_devices), default=0.0)
    if idle_share > _LARGEST_IDLE:
        run.note = f"idle for {100.0 * idle_share:.0f} % of the time between: of several runs, or of one that waits"
    return [run] if run.steps else []


def _idle_share(power: np.ndarray, high_power: float) -> float:
    """Return the share of the samples from the first to the last at work that are nearer to idle."""
    is_busy = power > 0.5 * (float(np.nanmin(power)) + high_power)
    busy_indices = np.flatnonzero(is_busy)
    return 1.0 - float(np.mean(is_busy[busy_indices[0] : busy_indices[-1] + 1])) if len(busy_indices) else 0.0


def _figures_within(series: Mapping[str, Mapping[str, array[float]]], window: TimeWindow) -> list[list[Figure]]:
    """Return the means of each device at work over the samples of a time, [] where the log has none of it.

    Where the log has a local time and the run one in UTC, or the other way round, their difference is the number of
    quarters of an hour, the smallest first, that puts the run into the log with the most power.
    """
    known = {device: each for device, each in series.items() if len(each["power"]) == len(each["time"])}
    if not known:
        return []
    times = np.concatenate([np.frombuffer(each["time"]) for each in known.values()])
    powers = np.concatenate([np.frombuffer(each["power"]) for each in known.values()])
    best, shift = 0.0, 0.0
    for quarters in sorted(range(-_ZONES, _ZONES + 1), key=lambda count: (count % 4 != 0, abs(count))):
        start, end = window.start + _ZONE_STEP * quarters, window.end + _ZONE_STEP * quarters
        inside = powers[(times >= start) & (times <= end) & np.isfinite(powers)]
        if len(inside) < _LEAST_SAMPLES * len(known):
            continue
        if not best or float(np.mean(inside)) > 1.02 * best:
            best, shift = float(np.mean(inside)), _ZONE_STEP * quarters
        if not quarters and best > _WORKING_SHARE * float(np.nanquantile(powers, 0.95)):
            break  # of one clock
    if not best:
        return []
    ends: dict[str, tuple[int, int]] = {}
    for device, each in known.items():
        indices = np.flatnonzero(
            (np.frombuffer(each["time"]) >= window.start + shift) & (np.frombuffer(each["time"]) <= window.end + shift)
        )
        if len(indices):
            ends[device] = int(indices[0]), int(indices[-1]) + 1
    figures = {device: list(_figures(known[device], between=between)) for device, between in ends.items()}
    means = {device: device_figures[0].value for device, device_figures in figures.items() if device_figures}
    return [figures[device] for device, mean in means.items() if mean >= _WORKING_SHARE * max(means.values())]


def _figures(
    device_series: Mapping[str, array[float]], high_power: float = 0.0, between: tuple[int, int] | None = None
) -> Iterator[Figure]:
    """Yield means of a device over the samples of the run, those ``between`` two indices or by its ``high_power``."""
    power = np.frombuffer(device_series["power"])
    first, last = between or (0, len(power))
    if not np.any(power[first:last] > 0.0):
        return
    min_power = float(np.nanmin(power))
    if between is None and min_power < 0.5 * high_power:
        busy_indices = np.flatnonzero(power > 0.5 * (min_power + high_power))
        first, last = int(busy_indices[0]), int(busy_indices[-1]) + 1
    yield Figure("device_power", float(np.nanmean(power[first:last])), "W")

    def run_samples(field: str) -> np.ndarray:
        """Return the samples of the run, of series of other lengths in proportion."""
        values = np.frombuffer(device_series[field]) if len(device_series[field]) else np.empty(0)
        ends = [round(index * len(values) / len(power)) for index in (first, last)]
        values = values[ends[0] : max(ends[1], ends[0] + 1)]
        return values[np.isfinite(values)]

    if len(clock := run_samples("clock")):
        yield Figure("sm_clock", float(np.mean(clock)), "MHz")
    if len(limit := run_samples("limit")):
        yield Figure("sm_clock_limit", float(np.max(limit)), "MHz")
    if len(reasons := run_samples("reasons").astype(np.int64)):
        yield Figure("power_capped", float(np.mean((reasons & _POWER_BITS) > 0)), "1")
        yield Figure("heat_capped", float(np.mean((reasons & _HEAT_BITS) > 0)), "1")


def _samples(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield samples of a log in any of the formats."""
    columns: list[str] = []
    is_dmon = False
    for line in lines:
        if metric_match := _EXPORTER_LINE.match(line):
            labels, field = dict(_LABEL.findall(metric_match[2])), _FIELD.get(metric_match[1])
            if field:
                device = f"{labels.get('Hostname', '')} {labels.get('gpu', '')}"
                yield Sample(device, labels.get("modelName", ""), {field: _number(metric_match[3])})
        elif SIGNATURE.search(line):
            is_dmon = "Entity" in line
            columns = line.split("Entity", 1)[1].split() if is_dmon else _cells(line)
        elif is_dmon and (entity_match := _ENTITY.search(line)):
            yield Sample(entity_match[1], "", _values(columns, entity_match[2].split()))
        elif columns and not is_dmon and len(cells := _cells(line)) == len(columns):
            text_by_column = dict(zip(columns, cells, strict=True))
            device = next((text_by_column[name] for name in _DEVICE if name in text_by_column), "")
            yield Sample(
                device,
                next((text_by_column[name] for name in _NAME if name in text_by_column), ""),
                _values(columns, cells),
                next((_time(text_by_column[name]) for name in _TIMES if name in text_by_column), float("nan")),
            )


def _cells(line: str) -> list[str]:
    """Return the cells of a line of CSV, of headings without their units; [] for a line that is none."""
    try:
        cells = next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        return []
    return [re.sub(r" \[[\w%/]+\]$", "", cell.strip()) for cell in cells]


def _values(columns: list[str], cells: list[str]) -> dict[str, float]:
    """Return field → number of the best of its columns that the log has, NaN where that is no number."""
    text_by_column = dict(zip(columns, cells, strict=False))
    values = {}
    for field, names in _COLUMNS.items():
        if present_names := [name for name in names if name in text_by_column]:
            values[field] = _number(text_by_column[present_names[0]])
    return values


def _time(cell: str) -> float:
    """Return a time in s since 1970, of a number in s or ms or of a text, NaN for none."""
    number = _number(cell)
    return seconds_of(number) or seconds_of(1e-3 * number) or seconds_of(cell) or float("nan")


def _number(cell: str) -> float:
    """Return a nonnegative number with or without a unit, also hexadecimal, or NaN for any other."""
    word = cell.split(" ")[0]
    try:
        value = float(int(word, 16)) if word.startswith("0x") and len(word) < 20 else float(word)
    except ValueError:
        return float("nan")
    return value if 0.0 <= value < 1e15 else float("nan")
