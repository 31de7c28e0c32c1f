"""How a calibrated catalogue is used: the shell command that names its folder, and one that predicts with its stack."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from dse.designs import catalog, leaf
from dse.measured import Prediction
from dse.measured.table import DEVICE_COLUMNS
from dse.types import Precision, Recompute, choice_name

#: Leaves of a run that the command repeats: of training steps, and of serving.
_SETTINGS = {
    "steps": (
        "workload.global_batch", "workload.seq_len", "mapping.tp", "mapping.pp", "mapping.cp", "mapping.micro_batch",
        "mapping.recompute", "mapping.precision",
    ),
    "serving": (
        "workload.requests.prompt_tokens", "workload.requests.output_tokens", "workload.requests.concurrency",
        "mapping.tp", "mapping.pp", "mapping.precision",
    ),
}  # fmt: skip

#: Leaf → its choices.
_CHOICES = {"mapping.recompute": Recompute, "mapping.precision": Precision}


def usage_line(folder: str | Path, stack: str = "", run: Prediction | None = None) -> str:
    """Return a line of text with the command that makes a calibrated catalogue the one in use.

    Args:
        folder: the catalogue that was written.
        stack: slug of a fitted stack in it; "" for none.
        run: of the stack, which the command predicts again with it, where the catalogue has its model and system.

    Returns:
        ``use it: `` and commands of a POSIX shell, which run as they are where ``run`` is stated.

    >>> usage_line("my catalog")
    "use it: export DSE_CATALOG='my catalog'"
    >>> usage_line("mine", "my-stack")
    'use it: export DSE_CATALOG=mine; then any command with --software my-stack'
    """
    export, command = _export(Path(folder)), _command(stack, run) if run else ""
    if stack and not command:
        command = f"{'then ' if export else ''}any command with --software {stack}"
    return f"use it: {'; '.join(filter(None, (export, command))) or f'DSE_CATALOG names {folder} already'}"


def _export(folder: Path) -> str:
    """Return the command that puts a folder before others in DSE_CATALOG, "" where it is in use."""
    folders = [name for name in os.environ.get("DSE_CATALOG", "").split(os.pathsep) if name]
    if any(_is_same(folder, Path(name)) for name in [*folders, str(catalog.catalog_root())]):
        return ""
    tail = f'{os.pathsep}"$DSE_CATALOG"' if folders else ""
    return f"export DSE_CATALOG={shlex.quote(str(folder))}{tail}"


def _is_same(folder: Path, other: Path) -> bool:
    """Return True for two paths of one folder."""
    return folder.absolute() == other.absolute() or (folder.exists() and other.exists() and folder.samefile(other))


def _command(stack: str, run: Prediction) -> str:
    """Return the command of ``dse evaluate`` for a run with a stack, "" where the catalogue lacks model or system."""
    row, design = run.case.row, run.design
    model = catalog.find("workload", row.get("model", "workload"))
    system = row.get("system") or catalog.find("accelerator", row.get(*DEVICE_COLUMNS))
    if design is None or not model or not system or run.case.kind not in _SETTINGS:
        return ""
    words = ["dse", "evaluate", *(["--serving"] if run.case.kind == "serving" else []), "-w", model, "-s", system]
    words += ["-n", f"{design.system.n_devices:g}", "--software", stack]
    for path in _SETTINGS[run.case.kind]:
        value = float(leaf(design, path))
        text = choice_name(_CHOICES[path](int(value))) if path in _CHOICES else f"{value:.10g}"
        words += ["--set", f"{path.rpartition('.')[2]}={text}"]
    return shlex.join(words)
