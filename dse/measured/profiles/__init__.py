"""Rows of measured tables from files of tools: logs of training, results of serving benchmarks, collectives, traces.

:func:`read` recognises each file by its content, and joins files of the ranks of one run, and those that tell of it:
power and clocks, the start of its engine. What a file leaves out may be
stated for all of them; what is still missing is asked for at once (:attr:`Rows.missing`).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dse.designs import calibrated, catalog
from dse.designs.leaves import leaf_path
from dse.errors import InputError, unknown_name
from dse.measured.columns import READ, SERVED
from dse.measured.profiles import (
    collectives,
    engine_start,
    kineto,
    maxtext,
    megatron,
    nsight,
    serving_benchmarks,
    telemetry,
    torchtitan,
    xla,
)
from dse.measured.profiles.attached import attached
from dse.measured.profiles.run import ALLOWED, MeasuredRun, blocks, cells_of, joined, lines, text
from dse.tools import read_arguments


class Format(NamedTuple):
    """Lines of a tool's log, and its reader."""

    sign: re.Pattern[str]
    read: Callable[[Iterable[str]], MeasuredRun | list[MeasuredRun]]


#: Logs, recognised by the first line that is of one of them.
LOGS = {
    "megatron": Format(megatron.SIGN, megatron.read), "torchtitan": Format(torchtitan.SIGN, torchtitan.read),
    "maxtext": Format(maxtext.SIGN, maxtext.read), "nccl-tests": Format(collectives.SIGN, collectives.read),
    "telemetry": Format(telemetry.SIGN, telemetry.read), "engine": Format(engine_start.SIGN, engine_start.read),
}  # fmt: skip

#: Needed cells of a kind of rows: columns, one of which must be filled, and the option that states it.
NEEDED: dict[str, dict[str, tuple[tuple[str, ...], str]]] = {
    "steps": {
        "the model": (("model", "layers_used"), "-w MODEL"), "the system": (("system", "gpu"), "-s SYSTEM"),
        "the number of devices": (("n_gpus",), "-n DEVICES"),
        "the sequences of a step": (("global_batch",), "--set global_batch=…"),
        "the tokens of a sequence": (("seq_len",), "--set seq_len=…"),
    },
    "serving": {
        "the model": (("model",), "-w MODEL"), "the system": (("system", "gpu"), "-s SYSTEM"),
        "the number of devices": (("n_gpus", "tp"), "-n DEVICES"),
        "the engine": (("framework", "software"), "--software STACK"),
        "the tokens of a prompt": (("isl",), "--set isl=…"), "the tokens of an answer": (("osl",), "--set osl=…"),
        "the requests in flight": (("batch", "batch_kind"), "--set batch=…"),
    },
    "collectives": {
        "the accelerator": (("system",), "-s ACCELERATOR"), "the number of devices": (("num_gpus",), "-n DEVICES"),
        "the collective (all_reduce, all_gather, reduce_scatter or alltoall)": (
            ("collective",), "--set collective=…"
        ),
    },
}  # fmt: skip

#: Columns that predictions complete by a rule where they are open, though the run had a value.
_OPEN: dict[str, tuple[str, ...]] = {
    "steps": ("tp", "pp", "micro_batch", "recompute"), "serving": ("tp", "precision"), "collectives": (),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of some files: one table a kind, what is missing in them, and remarks."""

    tables: dict[str, list[dict[str, str]]]
    missing: dict[str, str]  #: what → the option that states it
    notes: tuple[str, ...]


def read(paths: Sequence[str | Path], stated: Mapping[str, str] | None = None) -> Rows:
    """Rows of files of tools.

    Args:
        paths: files of any of the formats, mixed; gzipped ones end in ``.gz``.
        stated: column → text, for all rows; it counts more than what a file says.

    Returns:
        Rows with the columns of measured tables, what they lack, and remarks on what was left out.

    Raises:
        InputError: for a foreign or damaged file, for one without steps after the warm-up, and for an unknown column.
    """
    stated = {_column(name): value for name, value in (stated or {}).items() if value}
    runs = attached(joined(run for path in dict.fromkeys(map(Path, paths)) for run in runs_of(path)))
    notes = list(dict.fromkeys(note for run in runs for note in _notes(run, stated)))
    tables: dict[str, list[dict[str, str]]] = {}
    missing: dict[str, str] = {}
    for run in runs:
        run.cells = _stated(run, stated)
    notes.append(_not_interleaved(runs))
    for number, run in enumerate(runs):
        missing |= {
            what: option
            for what, (columns, option) in NEEDED[run.kind].items()
            if not any(run.cells.get(column) for column in columns)
        }
        missing |= _of_model(run)
        tables.setdefault(run.kind, []).extend(_rows(run, number))
    notes += [_left_open(kind, [run for run in runs if run.kind == kind]) for kind in tables]
    return Rows(tables, missing, tuple(filter(None, notes)))


def runs_of(path: Path) -> list[MeasuredRun]:
    """The runs of one file, each with figures; InputError where it has none."""
    start = next(blocks(path, 1 << 40, 1 << 16), b"").lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(nsight.SIGN):
        found = [nsight.read(path)]
    elif start[:1] == b"{":
        reads = xla.read if xla.SIGN.search(start) else kineto.read
        found = [reads(path)] if kineto.SIGN.search(start) else serving_benchmarks.read(path)
    else:
        found = _of_log(path)
    for run in found:
        run.files = (str(path),)
        if run.kind == "steps" and len(run.steps) <= run.warm_up:
            raise InputError(
                str(path),
                f"{_timed(len(run.steps))} of {run.tool}",
                f"more than {run.warm_up}, which warm up",
                "give a longer run, or check that the log is whole",
            )
    if not found:
        raise InputError(str(path), "no measured lines", ALLOWED, "check that the file is whole")
    return found


#: Tool → what its command line has, as shells with ``set -x`` write it into logs.
_COMMANDS = {
    "megatron-lm": re.compile(r"\bpretrain_\w+\.py\b"),
    "torchtitan": re.compile(r"\btorchtitan\.train\b|run_train\.sh"),
    "maxtext": re.compile(r"\bMaxText[./]train"), "megatron-bridge": re.compile(r"\brun_script\.py\b"),
}  # fmt: skip

#: What a command line of Megatron-LM, which has no other configuration, says by saying nothing.
_UNSAID = {"tp": "1", "pp": "1", "cp": "1", "recompute": "none"}

_RANKS = {name: re.compile(rf"--{name}[ =](\d+)") for name in ("nnodes", "nproc[-_]per[-_]node")}


def _of_log(path: Path) -> list[MeasuredRun]:
    """The runs of a log: what its lines say counts more than the command line before them."""
    started, command = dict[str, str](), ""
    for line in itertools.islice(lines(path), _HEAD):
        known = next((one for one in LOGS.values() if one.sign.search(line)), None)
        if known is not None:
            try:
                found = known.read(lines(path))
            except InputError as error:
                where = error.where if error.where.startswith(str(path)) else f"{path}: {error.where}"
                raise InputError(where, error.got, error.allowed, error.fix) from None
            runs = [found] if isinstance(found, MeasuredRun) else found
            for run in runs:
                run.cells = (started if run.kind == "steps" else {}) | run.cells
            return runs
        command = (command + " " + line.strip().removesuffix("\\"))[-_COMMAND:]
        if not line.rstrip().endswith("\\"):
            started |= _launched(command)
            command = ""
    raise InputError(str(path), "a file of no known tool", ALLOWED, "check the path; leave --profile out for tables")


#: Characters of a command line; lines before the first of a tool.
_COMMAND, _HEAD = 1 << 15, 1_000_000


def _launched(command: str) -> dict[str, str]:
    """Cells that a command line of a tool states; none for any other line."""
    tool = next((name for name, sign in _COMMANDS.items() if sign.search(command)), "")
    try:
        settings = read_arguments(tool, command).settings if tool else {}
        stated = cells_of({leaf_path(name): value for name, value in settings.items()})
        cells = (_UNSAID if tool == "megatron-lm" else {}) | stated
    except (InputError, ValueError):
        return {}
    sizes = [int(found[1]) for sign in _RANKS.values() if (found := sign.search(command))]
    return cells | ({"n_gpus": str(sizes[0] * sizes[1])} if tool and len(sizes) == len(_RANKS) else {})


#: Columns that may be stated, of all kinds of tables.
COLUMNS = frozenset(
    (*itertools.chain.from_iterable(header.names for header in (*READ, *SERVED)), "collective", "num_gpus")
) - {"metric", "value", "unit", "source", "config_id"}


def _column(name: str) -> str:
    if name not in COLUMNS:
        raise unknown_name("--set", name, COLUMNS, "columns of measured tables")
    return name


#: Column of ``stated`` → column of tables of collectives.
_OF_COLLECTIVES = {"n_gpus": "num_gpus", "num_gpus": "num_gpus", "collective": "collective"}


def _stated(run: MeasuredRun, stated: Mapping[str, str]) -> dict[str, str]:
    """Cells with what is stated for all; of a system that is stated, not what the file says of the device."""
    if run.kind == "collectives":
        given = {_OF_COLLECTIVES[name]: value for name, value in stated.items() if name in _OF_COLLECTIVES}
        if system := stated.get("system", stated.get("gpu", "")):
            given["system"] = calibrated.accelerator_of(system) or system
        return run.cells | given
    cells = dict(run.cells)
    if "system" in stated:
        cells.pop("gpu", None)
    if "model" in stated:
        cells.pop("shape", None)
    return cells | {name: value for name, value in stated.items() if name not in ("collective", "num_gpus")}


def _of_model(run: MeasuredRun) -> dict[str, str]:
    """A model that is not in the catalogue, or whose columns of a shape do not tell all: experts, an unusual width."""
    named, option = run.cells.get("model", ""), "-w MODEL"
    unusual = run.cells.pop("shape", "") or float(run.cells.get("n_experts") or 1.0) > 1.0
    if run.kind == "collectives" or (named and catalog.find("workload", named)):
        return {}
    if named and (run.kind == "serving" or "layers_used" not in run.cells):
        return {f"the model in the catalogue's words ({named[:80]} is not there)": option}
    return {"the model, whose shape the arguments do not tell whole": option} if unusual else {}


def _rows(run: MeasuredRun, number: int) -> list[dict[str, str]]:
    about = {"source": f"profile {run.tool}", "url_or_repo_path": " ".join(run.files)[:1000]}
    if run.kind == "collectives":
        return [about | run.cells]
    about |= {"config_id": str(number + 1)}
    ends = ({"note": run.note} if run.kind == "serving" else {}) | run.shares
    figures = ({"metric": one.metric, "value": text(one.value), "unit": one.unit} for one in run.figures())
    return [about | run.cells | figure | ends for figure in figures]


def _notes(run: MeasuredRun, stated: Mapping[str, str]) -> Iterable[str]:
    if run.kind == "steps":
        kept = len(run.steps) - run.warm_up
        yield f"{run.files[0]}: median of {_timed(kept)} of {run.tool}, after {run.warm_up} of warm-up"
    if len(run.files) > 1:
        parts = "; parts of a step are those of the first" if run.shares else ""
        yield f"{len(run.files)} files of one configuration count as ranks of one run: {', '.join(run.files)}{parts}"
    if run.note:
        yield f"{run.files[0]}: {run.note}"
    differ = {name: run.cells[name] for name in stated if run.cells.get(name, stated[name]) != stated[name]}
    for name, theirs in differ.items():
        if not _same(name, theirs, stated[name]):
            yield f"{name}: {run.files[0]} says {theirs}, the command {stated[name]}, which counts"


def _same(column: str, one: str, other: str) -> bool:
    """Whether two names are of one model or accelerator."""
    if column == "model":
        return catalog.find("workload", one) == catalog.find("workload", other)
    return column == "system" and calibrated.accelerator_of(one) == calibrated.accelerator_of(other)


def _left_open(kind: str, runs: Sequence[MeasuredRun]) -> str:
    """Remark on columns that some run leaves open."""
    names = [name for name in _OPEN[kind] if any(not run.cells.get(name) for run in runs)]
    if not names:
        return ""
    return f"left open, and completed by rule: {', '.join(names)} (state them with --set {names[0]}=…)"


def _not_interleaved(runs: Sequence[MeasuredRun]) -> str:
    """Remark on pipelines whose files say nothing of chunks: no tool interleaves unless asked, so they count as one."""
    silent = [run for run in runs if run.kind == "steps" and not any(run.cells.get(name) for name in _CHUNKS)]
    for run in silent:
        run.cells["vp"] = "1"
    deep = any(run.cells.get("pp", "") not in ("", "1") for run in silent)
    return "not stated, and taken as 1: vp, chunks of a pipeline stage (state them with --set vp=…)" if deep else ""


#: Columns of the chunks of a stage, stated or by the schedule.
_CHUNKS = ("vp", "virtual_stages", "schedule")


def _timed(count: int) -> str:
    return f"{count} timed step{'s' * (count != 1)}"
