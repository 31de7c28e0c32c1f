"""Rows of measured tables from files of tools: logs of training, results of serving benchmarks, collectives, traces.

:func:`read` recognises each file by its content, and joins files of the ranks of one run, and those that tell of it:
power and clocks, the start of its engine. What a file leaves out may be stated for all of them; what is still missing
is asked for at once (:attr:`Rows.missing`). Formats of logs are rows (``formats.toml``), which ``logs`` reads; so are
columns and needed cells (``cells.toml``) and names of kernels (``kernel_names.toml``). Start at :func:`file_runs`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from dse.designs import calibrated, catalog, leaf_path
from dse.errors import InputError, unknown_name
from dse.measured import filling
from dse.measured.filling import is_same_value
from dse.measured.profiles import (
    collectives,
    kineto,
    nsight,
    series,
    serving_benchmarks,
    telemetry,
    xla,
    xplane,
)
from dse.measured.profiles.attached import attach_logs
from dse.measured.profiles.logs import LOG_FORMATS
from dse.measured.profiles.private import public_row as public_row, public_text
from dse.measured.profiles.run import (
    ALLOWED,
    CELL_ROWS,
    MeasuredRun,
    design_cells,
    merge_ranks,
    number_text,
    read_blocks,
    read_lines,
)
from dse.tools import read_arguments

#: Signature of the lines of a tool's log and the reader of all its lines, by the first line that is of one of them.
LOGS: dict[str, tuple[str | re.Pattern[str], Callable[[Iterable[str]], list[MeasuredRun]]]] = {
    name: (log_format.signature, log_format.read) for name, log_format in LOG_FORMATS.items()
} | {
    "nccl-tests": (collectives.SIGNATURE, collectives.read),
    "telemetry": (telemetry.SIGNATURE, telemetry.read),
    "serving table": (serving_benchmarks.PRINTED, serving_benchmarks.read_printed),
    "wandb": (series.SIGNATURE, series.read),
}


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of some files by kind of table, with what is missing in them and remarks."""

    tables: dict[str, list[dict[str, str]]]
    missing: dict[str, str]  #: what → the option that states it
    notes: tuple[str, ...]


def read(paths: Sequence[str | Path], overrides: Mapping[str, str] | None = None) -> Rows:
    """Read rows of measured tables from files of tools.

    Args:
        paths: files of any of the formats, mixed; gzipped ones end in ``.gz``.
        overrides: column → text, for all rows; it counts more than what a file says.

    Returns:
        Rows with the columns of measured tables, what they lack, and remarks on what was left out.

    Raises:
        InputError: for a foreign or damaged file, for one without steps after the warm-up, and for an unknown column.
    """
    overrides = {_check_column(name): value for name, value in (overrides or {}).items() if value}
    pattern, _ = overrides.pop(STEP_MARK, ""), overrides.pop(STAGE, "")
    files = dict.fromkeys(map(Path, paths))
    runs = attach_logs(merge_ranks(run for path in files for run in file_runs(path, pattern)))
    notes = list(dict.fromkeys(note for run in runs for note in _notes(run, overrides)))
    tables: dict[str, list[dict[str, str]]] = {}
    missing: dict[str, str] = {}
    for run in runs:
        run.cells = _override_cells(run, overrides)
    notes.append(_complete_chunks(runs))
    for run_index, run in enumerate(runs):
        missing |= {
            requirement: row["option"]
            for requirement, row in CELL_ROWS["needed"][run.kind].items()
            if not any(run.cells.get(column) for column in row["columns"])
        }
        missing |= _missing_model(run)
        tables.setdefault(run.kind, []).extend(_rows(run, run_index))
    notes += [_open_columns_note(kind, [run for run in runs if run.kind == kind]) for kind in tables]
    return Rows(tables, missing, tuple(filter(None, notes)))


def file_runs(path: Path, step_mark: str = "") -> list[MeasuredRun]:
    """Return the runs of one file, or raise InputError where it has none or no steps after the warm-up.

    Args:
        path: of the file.
        step_mark: pattern of names that mark a step of a profile, in place of those of ``step_marks.toml``.
    """
    block = next(read_blocks(path, 1 << 40, 1 << 16), b"")
    start = block.lstrip(b"\xef\xbb\xbf \t\r\n")
    if xplane.SIGNATURE.match(block):
        runs = xla.read_planes(path, step_mark)
    elif start.startswith(nsight.SIGNATURE):
        runs = nsight.read(path, step_mark)
    elif start[:1] == b"{":
        reader = xla.read if xla.SIGNATURE.search(start) else kineto.read
        runs = reader(path, step_mark) if kineto.SIGNATURE.search(start) else serving_benchmarks.read(path)
    else:
        runs = _log_runs(path)
    for run in runs:
        run.files = (str(path),)
        if run.kind == "steps" and len(run.steps) <= run.warm_up:
            raise InputError(
                str(path),
                f"{_timed_steps_text(len(run.steps))} of {run.tool}",
                f"more than {run.warm_up}, which warm up",
                "give a longer run, or check that the log is whole",
            )
    if not any(run.kind != "serving" or run.figures() for run in runs):
        raise InputError(str(path), "no measured figures", ALLOWED, "check that the file is whole")
    return runs


_RANKS = {name: re.compile(rf"--{name}[ =](\d+)") for name in ("nnodes", "nproc[-_]per[-_]node")}


def _log_runs(path: Path) -> list[MeasuredRun]:
    """Return the runs of a log, whose lines count more than the command line before them, or raise InputError."""
    command_cells, command = dict[str, str](), ""
    for line in itertools.islice(read_lines(path), _HEAD):
        name = next((name for name, (signature, _) in LOGS.items() if re.search(signature, line)), "")
        if name:
            try:
                runs = _log_of(path, name) + [run for other in _BESIDE.get(name, ()) for run in _log_of(path, other)]
            except InputError as error:
                where = error.where if error.where.startswith(str(path)) else f"{path}: {error.where}"
                raise InputError(where, error.got, error.allowed, error.fix) from None
            for run in runs:
                run.cells = (command_cells if run.kind == "steps" else {}) | run.cells
            return runs
        command = (command + " " + line.strip().removesuffix("\\"))[-_COMMAND:]
        if not line.rstrip().endswith("\\"):
            command_cells |= _command_cells(command)
            command = ""
    raise InputError(str(path), "a file of no known tool", ALLOWED, "check the path; leave --profile out for tables")


#: Characters of a command line; lines before the first of a tool.
_COMMAND, _HEAD = 1 << 15, 1_000_000


#: Logs that may stand in one file: a server's and its client's.
_BESIDE = {"engine": ("serving table",), "serving table": ("engine",)}


def _log_of(path: Path, name: str) -> list[MeasuredRun]:
    """Return the runs of a file as a log of a tool, [] for one without lines of it."""
    signature, reader = LOGS[name]
    has_lines = any(re.search(signature, line) for line in read_lines(path))
    return reader(read_lines(path)) if has_lines else []


def _command_cells(command: str) -> dict[str, str]:
    """Return column → text that a command line of a tool states, {} for any other line."""
    tool = next((name for name, pattern in CELL_ROWS["commands"].items() if re.search(pattern, command)), "")
    try:
        settings = read_arguments(tool, command).settings if tool else {}
        setting_cells = design_cells({leaf_path(name): value for name, value in settings.items()})
        cells = CELL_ROWS["command_defaults"].get(tool, {}) | setting_cells
    except (InputError, ValueError):
        return {}
    sizes = [int(rank_match[1]) for pattern in _RANKS.values() if (rank_match := pattern.search(command))]
    return cells | ({"n_gpus": str(sizes[0] * sizes[1])} if tool and len(sizes) == len(_RANKS) else {})


#: What is stated of how profiles are read, and no column: the mark of a step, the stage of the pipeline of a trace.
STEP_MARK, STAGE = "step_mark", "stage"

#: Columns that may be stated, of all kinds of tables.
COLUMNS = filling.COLUMNS | {"collective", "num_gpus", STEP_MARK, STAGE}


def _check_column(name: str) -> str:
    """Return the name of a column that may be stated, or raise InputError for an unknown one."""
    if name not in COLUMNS:
        raise unknown_name("--set", name, COLUMNS, "columns of measured tables")
    return name


#: Column of ``stated`` → column of tables of collectives.
_COLLECTIVE_COLUMNS = {"n_gpus": "num_gpus", "num_gpus": "num_gpus", "collective": "collective"}


def _override_cells(run: MeasuredRun, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a run with those stated for all runs, which replace device and shape of the file."""
    if run.kind == "collectives":
        collective_cells = {
            _COLLECTIVE_COLUMNS[name]: value for name, value in overrides.items() if name in _COLLECTIVE_COLUMNS
        }
        if system := overrides.get("system", overrides.get("gpu", "")):
            collective_cells["system"] = calibrated.accelerator_of(system) or system
        return run.cells | collective_cells
    cells = dict(run.cells)
    if "system" in overrides:
        cells.pop("gpu", None)
    if "model" in overrides:
        cells.pop("shape", None)
    return cells | {name: value for name, value in overrides.items() if name not in ("collective", "num_gpus")}


def _missing_model(run: MeasuredRun) -> dict[str, str]:
    """Return what is missing → option, for a model unknown to the catalogue or of unusual shape; drop ``shape``."""
    model, option = run.cells.get("model", ""), "-w MODEL"
    has_unusual_shape = run.cells.pop("shape", "") or float(run.cells.get("n_experts") or 1.0) > 1.0
    if run.kind == "collectives" or (model and catalog.find("workload", model)):
        return {}
    if model and (run.kind == "serving" or "layers_used" not in run.cells):
        return {f"the model in the catalogue's words ({model[:80]} is not there)": option}
    return {"the model, whose shape the arguments do not tell whole": option} if has_unusual_shape else {}


def _rows(run: MeasuredRun, run_index: int) -> list[dict[str, str]]:
    """Return a run as rows, column → text: one per figure, one in all of collectives."""
    common_cells = {"source": f"profile {run.tool}", "url_or_repo_path": " ".join(run.files)[:1000]}
    cells = {column: public_text(text) for column, text in run.cells.items()}
    if run.kind == "collectives":
        return [common_cells | cells]
    common_cells |= {"config_id": str(run_index + 1)}
    remark_cells = ({"note": public_text(run.note)} if run.kind == "serving" else {}) | run.shares
    figures = (
        {"metric": run_figure.metric, "value": number_text(run_figure.value), "unit": run_figure.unit}
        for run_figure in run.figures()
    )
    return [common_cells | cells | figure | remark_cells for figure in figures]


def _notes(run: MeasuredRun, overrides: Mapping[str, str]) -> Iterable[str]:
    """Yield remarks on a run: its timed steps, ranks, own note, and cells that the command replaces."""
    if run.kind == "steps":
        n_steps = len(run.steps) - run.warm_up
        yield f"{run.files[0]}: median of {_timed_steps_text(n_steps)} of {run.tool}, after {run.warm_up} of warm-up"
    if len(run.files) > 1:
        parts = "; parts of a step are those of the first" if run.shares else ""
        yield f"{len(run.files)} files of one configuration count as ranks of one run: {', '.join(run.files)}{parts}"
    if "framework" in run.guessed and "software" not in overrides:
        engine = run.cells["framework"]
        yield f"{run.files[0]}: engine {engine} as its client is named; its server's log or --software states it"
    if run.note:
        yield f"{run.files[0]}: {run.note}"
    if system := overrides.get("system", ""):
        yield from _machine_notes(run, calibrated.accelerator_of(system))
    differ = {name: run.cells[name] for name in overrides if run.cells.get(name, overrides[name]) != overrides[name]}
    for name, file_value in differ.items():
        if not is_same_value(name, file_value, overrides[name]):
            yield f"{name}: {run.files[0]} says {file_value}, the command {overrides[name]}, which counts"


#: Bytes of the units of a peak of memory.
_BYTES = {"B": 1.0, "MiB": 2.0**20, "GiB": 2.0**30}


def _machine_notes(run: MeasuredRun, stated: str) -> Iterable[str]:
    """Yield what contradicts the accelerator that a command states of a run: its device, vendor and memory in use."""
    if not stated:
        return
    file, device = run.files[0], run.cells.get("gpu", "")
    vendor = catalog.entry("accelerator", stated).value("vendor", "")
    if device and device != stated:
        yield f"{file} is of {device}, the command says {stated}, which counts"
    elif run.vendor and vendor and run.vendor != vendor:
        yield f"{file} ran on a device of {run.vendor}, the command says {stated} of {vendor}, which counts"
    capacity = catalog.values("accelerator", stated).get("memory.capacity", 0.0)
    in_use = max(
        (f.value * _BYTES.get(f.unit, 0.0) for f in run.peaks.values() if f.metric == "peak_memory"), default=0
    )
    if in_use > capacity > 0.0:
        yield f"{file}: {in_use / 2**30:.4g} GiB in use, more than the {capacity / 2**30:.4g} GiB of {stated}"


def _open_columns_note(kind: str, runs: Sequence[MeasuredRun]) -> str:
    """Return a remark on columns that some run leaves open, "" for none."""
    names = [name for name in CELL_ROWS["open"][kind] if any(not run.cells.get(name) for run in runs)]
    if not names:
        return ""
    return f"left open, and completed by rule: {', '.join(names)} (state them with --set {names[0]}=…)"


def _complete_chunks(runs: Sequence[MeasuredRun]) -> str:
    """Set ``vp`` to 1 in runs of steps that say nothing of chunks, and return a remark, "" without a pipeline."""
    open_runs = [run for run in runs if run.kind == "steps" and not any(run.cells.get(name) for name in _CHUNKS)]
    for run in open_runs:
        run.cells["vp"] = "1"
    has_pipeline = any(run.cells.get("pp", "") not in ("", "1") for run in open_runs)
    return (
        "not stated, and taken as 1: vp, chunks of a pipeline stage (state them with --set vp=…)"
        if has_pipeline
        else ""
    )


#: Columns of the chunks of a stage, stated or by the schedule.
_CHUNKS = ("vp", "virtual_stages", "schedule")


def _timed_steps_text(count: int) -> str:
    """Return a number of timed steps as text."""
    return f"{count} timed step{'s' * (count != 1)}"
