"""Results as options state them: a file, an open dataset, or the report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.errors import InputError
from dse.reports import Report

if TYPE_CHECKING:
    import xarray as xr


def file_or_dataset(results: Any, where: str) -> Path | xr.Dataset:
    """Return the path or the dataset of results.

    Args:
        results: a path, an open dataset, or a report that has one.
        where: option, for errors.

    Raises:
        InputError: for anything else.
    """
    if isinstance(results, str | Path):
        return Path(results)
    if isinstance(results, Report) and results.load is not None:
        return results.dataset
    if hasattr(results, "data_vars"):
        dataset: xr.Dataset = results
        return dataset
    allowed = "a path, a dataset, or the report of dse.run or dse.search"
    raise InputError(where, repr(results)[:200], allowed, "name a file of results")


def check_files(
    output: Path | None, ending: str, figure: Path | None, force: bool, inputs: Sequence[Path] = ()
) -> tuple[list[Path], list[Path]]:
    """Return the files and figures that a capability is to write, where there are any.

    Args:
        output: file of the ending.
        ending: ``.csv``, ….
        figure: file of a figure.
        force: replace files that dse has not written.
        inputs: files that must not be replaced.

    Raises:
        InputError: for other endings and for files that must not be written, before anything is computed.
    """
    from dse.io import check_output

    if output and output.suffix.lower() != ending:
        raise InputError(f"output {output}", repr(output.suffix), ending, f"name {output.with_suffix(ending)}")
    if figure:
        from dse.views.plot.style import check_ending

        check_ending(figure)
    for path in filter(None, (output, figure)):
        check_output(path, force, inputs)
    return [path for path in (output,) if path], [path for path in (figure,) if path]


def results_name(results: Path | xr.Dataset) -> str:
    """Return the path of results; of a dataset that of its file, else its title."""
    if isinstance(results, Path):
        return str(results)
    return str(results.encoding.get("source") or results.attrs.get("title") or "a dataset")
