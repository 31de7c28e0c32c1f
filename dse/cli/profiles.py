"""Option ``--profile`` of ``dse validate`` and ``dse calibrate``: files of tools as tables of rows."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dse.cli import show
from dse.cli.settings import split_setting
from dse.errors import InputError

if TYPE_CHECKING:
    from dse.measured.profiles import Rows

Profile = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="Read files of tools instead of tables: logs of Megatron-LM, NeMo, torchtitan, MaxText; results of "
        "vllm bench serve, sglang bench_serving, GenAI-Perf; starts of vLLM, SGLang, TensorRT-LLM; nccl-tests, "
        "rccl-tests; profiles of PyTorch, JAX and Nsight Systems; power logs of nvidia-smi and DCGM next to their run.",
    ),
]
RowsFile = Annotated[Path | None, typer.Option("--rows", help="CSV file for the rows of the files [default: none].")]
Workload = Annotated[
    str | None, typer.Option("--workload", "-w", help="Model of the runs [default: what the files say].")
]
System = Annotated[
    str | None, typer.Option("--system", "-s", help="System or accelerator of the runs [default: what the files say].")
]
Devices = Annotated[
    int | None, typer.Option("--n-devices", "-n", min=1, help="Devices of the runs [default: what the files say].")
]
Stack = Annotated[
    str | None, typer.Option("--software", help="Software stack of the runs [default: what the files say].")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="COLUMN=VALUE", help="Any column of the rows: tp=8, precision=fp8, …"),
]


class RunCells(NamedTuple):
    """Values of all runs that the command states, by option."""

    workload: str | None
    system: str | None
    n_devices: int | None
    software: str | None
    settings: list[str] | None

    def cells(self) -> dict[str, str]:
        """Return column → text of a table's row; raise an InputError for an unknown column or catalogue name."""
        from dse import types
        from dse.designs import catalog
        from dse.measured.profiles import COLUMNS

        text_by_column: dict[str, str] = {}
        for text in self.settings or []:
            columns = () if text.partition("=")[0].strip() == "note" else COLUMNS  # remarks may say anything
            name, value = split_setting(text, "--set", "COLUMN=VALUE", columns.__contains__)
            text_by_column[name] = value
        if self.workload:
            text_by_column["model"] = catalog.resolve("workload", self.workload)
        if self.system:
            catalog.record(types.System, self.system)
            text_by_column["system"] = self.system
        if self.software:
            text_by_column["software"] = catalog.resolve("software", self.software)
        return text_by_column | ({"n_gpus": str(self.n_devices)} if self.n_devices else {})


@contextlib.contextmanager
def tables(
    paths: list[Path], profile: bool, run_cells: RunCells, rows: Path | None, output: Path | None, force: bool
) -> Iterator[list[Path]]:
    """Yield the tables to read: ``paths``, or with ``profile`` temporary CSV files of their rows, one per kind."""
    from dse.io import outputs

    if not profile:
        if rows is not None or any(run_cells):
            raise InputError(
                "options",
                "-w, -s, -n, --software, --set or --rows",
                "these with --profile alone",
                "add --profile, or write the values into the table",
            )
        yield paths
        return
    from dse.measured import profiles
    from dse.measured.comparison import write_lines

    for path in filter(None, (output, rows)):
        outputs.check_output(path, force, paths)
    profile_rows = profiles.read(paths, run_cells.cells())
    for note in profile_rows.notes:
        show.note(note)
    if rows is not None:
        if len(profile_rows.tables) > 1:
            raise InputError(
                "--rows",
                f"rows of {' and '.join(profile_rows.tables)}",
                "one kind of rows a file",
                "give the files of one kind at a time",
            )
        write_lines(rows, next(iter(profile_rows.tables.values())), force)
    if profile_rows.missing:
        raise _missing_values_error(profile_rows, rows)
    with tempfile.TemporaryDirectory(prefix="dse-") as folder:
        table_paths = [Path(folder, f"{kind}.csv") for kind in profile_rows.tables]
        for path, lines in zip(table_paths, profile_rows.tables.values(), strict=True):
            write_lines(path, lines, force)
        yield table_paths


def _missing_values_error(profile_rows: Rows, rows: Path | None) -> InputError:
    """Return the InputError that names all values that the files lack, with the option that states each."""
    rows_note = f", or fill in {rows}, which is written, and give that without --profile" if rows else ""
    return InputError(
        "--profile",
        f"files that do not say {', '.join(profile_rows.missing)}",
        "rows that say what ran",
        f"add {' '.join(profile_rows.missing.values())}{rows_note}",
    )
