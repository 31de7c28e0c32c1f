"""Files that tell of a run of another file: logs of power and clocks, and logs of the start of an engine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dse.designs import catalog
from dse.errors import InputError
from dse.measured.profiles.engines import checkpoint_cells
from dse.measured.profiles.run import CELL_ROWS, Figure, MeasuredRun, known_model, number_text
from dse.measured.table import joined_remarks

_SECONDS = {"s": 1.0, "ms": 1e-3}


def attach_logs(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Return the runs of steps, serving and collectives with what logs of power and of engines tell of them.

    Logs of power and clocks, of all nodes, belong to the one run that is given with them, or to each that says when it
    ran; what a log of an engine's
    start states fills the open cells of results of that engine, and its memory counts with the first of these.

    Raises:
        InputError: for logs of power without a run, or with several.
    """
    logs = [run for run in runs if run.kind == "telemetry"]
    results = _attach_engine_starts([run for run in runs if run.kind not in ("telemetry", "load")])
    if logs:
        timed_runs = [run for run in results if run.kind in ("steps", "serving") and run.tool != "dse-trace"]
        windows = [run.window for run in timed_runs if run.window]
        if not timed_runs or len(timed_runs) > max(len(windows), 1):
            raise InputError(
                logs[0].files[0],
                f"a log of power and clocks with {len(timed_runs) or 'no'} runs",
                "one run: a log of training, a profile, or a result of a benchmark; several that say when they ran",
                "name the file of the run that it was kept of next to it, one run at a time",
            )
        for run in timed_runs:
            if len(timed_runs) == 1 or (run.window and all(log.within and log.within(run.window) for log in logs)):
                _add_power(run, logs)
    loads = _completed_loads([run for run in runs if run.kind == "load"], results)
    for run in (*results, *loads):
        if run.kind == "serving" and "precision" not in run.cells:
            run.cells |= checkpoint_cells(run.cells.get("model", ""))
    return [*results, *loads]


def _completed_loads(loads: Sequence[MeasuredRun], results: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Return the loads of an engine's lines as runs of serving, with the lengths of the one result of that engine.

    Loads without a length do not count where others have one.
    """
    lengths: dict[str, str] = {}
    for run in loads:
        benchmarks = [result for result in results if result.kind == "serving" and _is_engine_of(run, result)]
        benchmarks = [result for result in benchmarks if result.peaks.keys() - _MEMORY]
        if len(benchmarks) == 1:
            result = benchmarks[0]
            lengths = {name: result.cells[name] for name in ("isl", "osl") if name in result.cells}
            run.cells = lengths | {name: result.cells[name] for name in _OF_ENGINE if name in result.cells} | run.cells
    known = [run for run in loads if "isl" in run.cells]
    for run in known or loads:
        run.kind = "serving"
    return list(known or loads)


#: Columns of a result that are its engine's, and figures of the start of that.
_OF_ENGINE = ("framework", "model", "gpu", "tp", "pp", "dp", "ep", "etp", "n_gpus", "precision")
_MEMORY = {"weight_memory", "cache_memory", "graph_memory", "cache_tokens"}


def _add_power(run: MeasuredRun, logs: Sequence[MeasuredRun]) -> None:
    """Add to a run, in place, power and clocks of its devices, and from its time or rate the energy."""
    window, is_within = run.window, True
    parts = [log.within(window) if window and log.within else [] for log in logs]
    if not all(parts):
        parts, is_within = [[*log.steps.values()] for log in logs], False
    devices = [{figure.metric: figure.value for figure in figures} for part in parts for figures in part]
    mean_power = statistics.fmean(device["device_power"] for device in devices)
    slowest = min(devices, key=lambda device: device.get("sm_clock", float("inf")))
    run.cells |= {
        column: number_text(slowest[name]) for column, name in CELL_ROWS["clock_columns"].items() if name in slowest
    }
    for name, value in (cell for log in logs for cell in log.cells.items()):
        if "system" not in run.cells:
            run.cells.setdefault(name, value)
    remark = f"{mean_power:.4g} W a device, mean of {len(devices)}"
    if run.kind == "steps":
        run.peaks["device_power"] = Figure("device_power", mean_power, "W/device")
        if seconds := next((f.value * _SECONDS[f.unit] for f in run.figures() if f.metric == "iteration_time"), 0.0):
            run.peaks["device_energy_per_step"] = Figure("device_energy_per_step", mean_power * seconds, "J/device")
            remark += f", {mean_power * seconds:.4g} J a step of a device"
    else:
        total_power = sum(device["device_power"] for device in devices)
        run.peaks["avg_power_total"] = Figure("avg_power_total", total_power, "W")
        if rate := run.peaks.get("output_throughput_total"):
            energy = Figure("energy_per_output_token", total_power / rate.value, "J/token")
            run.peaks["energy_per_output_token"] = energy
            remark += f", {energy.value:.4g} J an output token"
    if "sm_clock" in slowest:
        limit = f" of {slowest['sm_clock_limit']:.0f}" if "sm_clock_limit" in slowest else ""
        remark += f"; slowest at {slowest['sm_clock']:.0f}{limit} MHz"
    if not is_within:
        remark = joined_remarks(remark, *(log.note for log in logs))
    if window and not is_within:
        remark += "; over the time at work, since the log does not hold that of the run"
    elif window:
        remark += f"; over the {window.end - window.start:.0f} s of the run"
    if len(devices) > float(run.cells.get("n_gpus") or "inf"):
        remark += "; more devices at work than the run has"
    run.note = joined_remarks(run.note, f"{' '.join(log.files[0] for log in logs)}: {remark}")


#: Cells of an engine that was asked for nothing yet: one short request, on which its memory does not depend.
_IDLE = {"isl": "1", "osl": "1", "batch": "1", "batch_kind": "concurrency"}


def _attach_engine_starts(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Return results with what the one log that is their engine's states; logs without results as runs."""
    engines, tool_runs = [run for run in runs if run.kind == "engine"], [run for run in runs if run.kind != "engine"]
    results = [run for run in tool_runs if run.kind == "serving"]
    attached: list[MeasuredRun] = []
    for run in results:
        matching = [engine for engine in engines if _is_engine_of(engine, run)]
        if len(matching) != 1:
            continue
        engine = matching[0]
        own_cells = {name: text for name, text in run.cells.items() if name not in run.guessed}
        model = known_model(own_cells.get("model", ""), engine.cells.get("model", ""))
        run.cells, run.guessed = engine.cells | own_cells | ({"model": model} if model else {}), ()
        if engine not in attached:
            attached.append(engine)
            run.peaks |= engine.peaks
            run.note = joined_remarks(run.note, f"engine and its memory as {engine.files[0]} says", engine.note)
    alone = [engine for engine in engines if engine.peaks and engine not in attached]
    for engine in alone:
        engine.kind, engine.cells = "serving", _IDLE | engine.cells
    return [*tool_runs, *alone]


def _is_engine_of(engine: MeasuredRun, result: MeasuredRun) -> bool:
    """Return True where a result may be of an engine: of its name, unless that is the client's, and of its model."""
    names, models = (
        {run.cells.get(column, "") for run in (engine, result)} - {""} for column in ("framework", "model")
    )
    slugs = {catalog.find("workload", model) for model in models} - {None}
    return (len(names) < 2 or "framework" in result.guessed) and len(slugs) < 2
