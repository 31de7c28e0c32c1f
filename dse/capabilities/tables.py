"""Measured tables as options state them: files, rows of a program, files of tools, and values for all of their runs."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dse.capabilities.settings import split_setting
from dse.errors import InputError
from dse.reports import Option
from dse.reports.options import settings_option

if TYPE_CHECKING:
    from dse.measured.profiles import Rows

#: A row of a table: column → value.
Row = Mapping[str, str | int | float | bool | None]

#: What rows that a program passes are called in errors, and where their source is open.
_ROWS = "cases"

Cases = Annotated[
    Path | Sequence[Row],
    Option(
        "Configurations, one per row: a table, rows as column and value, or a data frame.",
        is_argument=True,
        metavar="CASES.csv",
        terminal=Path,
        python=Any,
    ),
]
Measured = Annotated[
    Sequence[Path] | Sequence[Row],
    Option(
        "Measured configurations: tables, rows as column and value, or files of --profile.",
        is_argument=True,
        metavar="CASES.csv …",
        terminal=list[Path],
        python=Any,
    ),
]
Columns = Annotated[bool, Option("List the columns of the tables and exit.", instead=("list", "columns"))]
Profile = Annotated[
    bool,
    Option(
        "Read files of tools instead of tables: logs of Megatron-LM, NeMo, torchtitan, MaxText, MLPerf; golden values; "
        "CSV of W&B; results of vllm bench serve, sglang bench_serving, GenAI-Perf, AIPerf; logs of vLLM, SGLang, "
        "TensorRT-LLM; nccl-tests, rccl-tests; profiles of PyTorch, JAX and Nsight Systems; power logs of nvidia-smi "
        "and DCGM next to their run.",
        local="reads files of this machine",
    ),
]
RowsFile = Annotated[Path | None, Option("CSV file for the rows of the files [default: none].")]


@dataclasses.dataclass(frozen=True)
class RunCells:
    """Values of all runs that options state: a group, which each capability of measured tables takes.

    Args:
        workload: Model of the runs [default: what rows or files say].
        system: System or accelerator of the runs [default: what rows or files say].
        n_devices: Devices of the runs [default: what rows or files say].
        software: Software stack of the runs [default: what rows or files say].
        settings: Any column that rows leave empty, or files leave out: tp=8, precision=fp8, …
    """

    workload: Annotated[str | None, Option(short="-w", section="runs")] = None
    system: Annotated[str | None, Option(short="-s", section="runs")] = None
    n_devices: Annotated[int | None, Option(short="-n", low=1, section="runs")] = None
    software: Annotated[str | None, Option(section="runs")] = None
    settings: Annotated[Mapping[str, Any] | Sequence[str] | None, settings_option("COLUMN=VALUE", "runs")] = None

    def cells(self) -> dict[str, str]:
        """Return column → text of a table's row; raise an InputError for an unknown column or catalogue name."""
        from dse.measured import cells_of
        from dse.measured.profiles import COLUMNS

        text_by_column: dict[str, str] = {}
        if isinstance(self.settings, Mapping):
            text_by_column = {name: _cell(value, "--set", name) for name, value in self.settings.items()}
        else:
            for text in self.settings or ():
                columns = () if text.partition("=")[0].strip() == "note" else COLUMNS  # remarks may say anything
                name, value = split_setting(text, "--set", "COLUMN=VALUE", columns.__contains__)
                text_by_column[name] = value
        return cells_of(self.workload, self.system, self.n_devices, self.software, text_by_column)


class MeasuredTables(NamedTuple):
    """Tables to read."""

    paths: list[Path]
    cells: dict[str, str]  #: column → text of cells that their rows leave empty
    notes: tuple[str, ...] = ()


def are_tables(cases: Any) -> bool:
    """Return True for tables (.csv) and rows, False where some path is that of another file."""
    paths, _ = _parts(cases)
    return all(".csv" in path.suffixes[-2:] for path in paths)


@contextlib.contextmanager
def measured_tables(
    cases: Any,
    run_cells: RunCells,
    profile: bool = False,
    rows: Path | None = None,
    output: Path | None = None,
    force: bool = False,
) -> Iterator[MeasuredTables]:
    """Yield the tables to read; rows, and those of files of tools by kind, as temporary CSV files.

    Args:
        cases: a path or several, rows (column → value), or a data frame.
        run_cells: values of all runs.
        profile: whether the paths are files of tools.
        rows: CSV file to write the rows of files to.
        output: file that the caller writes, and must not be one of these.
        force: replace files that dse has not written.

    Raises:
        InputError: for other cases, and for what files of tools leave out.
    """
    from dse.io import outputs
    from dse.measured.comparison import write_lines

    paths, lines = _parts(cases)
    for path in filter(None, (output, rows)):
        outputs.check_output(path, force, paths)
    with tempfile.TemporaryDirectory(prefix="dse-") as folder, _without(folder):
        if profile:
            tables, notes = _profile_rows(paths, run_cells, rows, force)
            paths = [Path(folder, f"{kind}.csv") for kind in tables]
            for path, table in zip(paths, tables.values(), strict=True):
                write_lines(path, table, force)
            yield MeasuredTables(paths, {}, notes)
            return
        if rows is not None:
            fix = "add --profile; -o writes the rows of tables"
            raise InputError("--rows", str(rows), "this with --profile alone", fix)
        if lines:
            paths = [Path(folder, _ROWS)]
            write_lines(paths[0], lines, force)
        yield MeasuredTables(paths, run_cells.cells())


def _parts(cases: Any) -> tuple[list[Path], list[dict[str, str]]]:
    """Return the paths of cases, and their rows as column → text, one of which is empty."""
    if isinstance(cases, str | Path):
        return [Path(cases)], []
    items = cases.to_dict("records") if hasattr(cases, "to_dict") else cases
    items = [*items] if isinstance(items, Sequence) else [items]
    if items and all(isinstance(item, str | Path) for item in items):
        return [Path(item) for item in items], []
    if others := [item for item in items if not isinstance(item, Mapping)]:
        kinds = " and ".join(dict.fromkeys(type(item).__name__ for item in others))
        raise InputError(_ROWS, kinds, "paths of tables, rows as column → value, or a data frame", "pass one of these")
    if not any(items):
        raise InputError(_ROWS, "no rows", "one row or more", "pass rows: column → value")
    rows = [{str(name): _cell(value, _ROWS, name) for name, value in item.items()} for item in items]
    return [], rows


def _cell(value: Any, where: str, name: object) -> str:
    """Return a value as the text of a cell, "" for None and NaN; raise an InputError for what is no single value."""
    value = value.item() if hasattr(value, "item") else value
    if value is None or value != value:  # NaN of a data frame
        return ""
    if isinstance(value, Mapping | Sequence | set) and not isinstance(value, str):
        raise InputError(f"{where}: {name}", type(value).__name__, "a text, a number, or yes or no", "pass one value")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


@contextlib.contextmanager
def _without(folder: str) -> Iterator[None]:
    """Leave a folder out of the errors of this context."""
    try:
        yield
    except InputError as error:
        for part in ("where", "got", "allowed", "fix"):
            setattr(error, part, getattr(error, part).replace(f"{folder}/", ""))
        error.args = (str(error).replace(f"{folder}/", ""),)
        raise


def _profile_rows(
    paths: Sequence[Path], run_cells: RunCells, rows: Path | None, force: bool
) -> tuple[dict[str, list[dict[str, str]]], tuple[str, ...]]:
    """Return the rows of files of tools by kind, and remarks; write them to ``rows``."""
    from dse.measured import profiles
    from dse.measured.comparison import write_lines

    profile_rows = profiles.read(paths, run_cells.cells())
    if rows is not None:
        if len(profile_rows.tables) > 1:
            raise InputError(
                "--rows",
                f"rows of {' and '.join(profile_rows.tables)}",
                "one kind of rows a file",
                "give the files of one kind at a time",
            )
        table = next(iter(profile_rows.tables.values()))
        write_lines(rows, [profiles.public_row(row) for row in table], force)
    if profile_rows.missing:
        raise _missing_values_error(profile_rows, rows)
    return profile_rows.tables, profile_rows.notes


def _missing_values_error(profile_rows: Rows, rows: Path | None) -> InputError:
    """Return the InputError that names all values that the files lack, with the option that states each."""
    rows_note = f", or fill in {rows}, which is written, and give that without --profile" if rows else ""
    return InputError(
        "--profile",
        f"files that do not say {', '.join(profile_rows.missing)}",
        "rows that say what ran",
        f"add {' '.join(profile_rows.missing.values())}{rows_note}",
    )
