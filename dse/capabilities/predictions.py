"""``dse.predict`` and ``dse.validate``: predictions of tables, and predictions against measurements."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities import tables
from dse.io import counted, percent
from dse.reports import Column, Line, Option, Report, Table, capability
from dse.reports.options import Force
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section, span_text

if TYPE_CHECKING:
    from dse.doors import Study

#: Maximum numbers of printed rows of predictions, and of reasons.
_ROWS, _REASONS = 15, 20

#: Columns that name a row, the first of each group that a table has; and those that are shown where there is room.
_NAMES = (("model", "workload"), ("system", "gpu", "accelerator", "device", "gpu_type"), ("n_gpus", "n_devices"))
_SPARE = ("tp", "pp", "micro_batch", "global_batch", "seq_len", "isl", "osl", "batch", "concurrency")

#: Text of a number in a cell.
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?")


@capability("Ask", details=("rows",))
def predict(
    *,
    cases: tables.Cases,
    output: Annotated[Path | None, Option(short="-o", terminal=Path, is_needed=True)] = None,
    uncertainty: Annotated[bool, Option(flag="--uncertainty/--no-uncertainty")] = True,
    run_cells: tables.RunCells,
    force: Force = False,
    columns: tables.Columns = False,
) -> Report:
    """Predict every row of a table.

    A row needs at least a model, a gpu (or a system), n_gpus, global_batch and seq_len; --columns lists all columns,
    with what holds for a row that leaves one empty; options state values for all such rows.
    The columns of the table are kept. Added are pred_<metric> in SI units, completed (what the row left open, with the
    value taken), pred_note, and skipped (why there is none).

    A bad row never stops the file. Exit status 1 when no row is predicted.

    Args:
        cases: Configurations, one per row: a table, rows as column and value, or a data frame.
        output: CSV file to write.
        uncertainty: Add the ends of 80 % intervals of times, rates and peak memory.
        run_cells: Options of the runs.
        force: Replace a file that dse has not written.
        columns: List the columns of the tables and exit.
    """
    from dse.measured.comparison import predict_lines, write_lines

    with tables.measured_tables(cases, run_cells, output=output, force=force) as read:
        summary, lines = predict_lines(read.paths[0], uncertainty, read.cells)
    if output is not None:
        write_lines(output, lines, force)
    rows = [{name: _number(text) for name, text in line.items()} for line in lines]
    document = {
        "rows": [_line_document(line) for line in lines],
        "all": summary.counts,
        "output": None if output is None else str(output),
    }
    suggestions = ", ".join(f"{name} (did you mean {suggestion}?)" for name, suggestion in summary.misspelt.items())
    sections = [
        Line(f"{summary.predicted:,} of {counted(summary.rows, 'row')} predicted"),
        _prediction_table(rows, summary.kind),
        *_skipped_sections(summary.skipped),
    ]
    return Report(
        document,
        sections,
        [f"columns that are not read: {suggestions}"] if suggestions else [],
        files=[] if output is None else [output],
        status=0 if summary.predicted else NOTHING_FEASIBLE,
    )


@capability("Compare with reality", details=("figures",))
def validate(
    *,
    cases: tables.Measured,
    output: Annotated[Path | None, Option(short="-o")] = None,
    uncertainty: bool = False,
    profile: tables.Profile = False,
    run_cells: tables.RunCells,
    rows: tables.RowsFile = None,
    force: Force = False,
    columns: tables.Columns = False,
) -> Report:
    """Compare predictions with measurements.

    Errors by source and metric; the detail figures has every comparison. The tables have the columns of dse predict,
    and measured figures: metric, value and unit, or columns such as iteration_ms_measured; --columns lists them. With
    --profile the files are those of tools. Options of a design state what rows or files leave out.

    A bad row never stops the file. Exit status 1 when no figure is predicted.

    Args:
        cases: Measured configurations: tables, rows as column and value, or files of --profile.
        output: CSV file with every comparison [default: none].
        uncertainty: Also the share of rows within their 80 % intervals.
        profile: Read files of tools instead of tables: logs of Megatron-LM, NeMo, torchtitan, MaxText; results of vllm
            bench serve, sglang bench_serving, GenAI-Perf; starts of vLLM, SGLang, TensorRT-LLM; nccl-tests, rccl-tests;
            profiles of PyTorch, JAX and Nsight Systems; power logs of nvidia-smi and DCGM next to their run.
        run_cells: Options of the runs.
        rows: CSV file for the rows of the files [default: none].
        force: Replace a file that dse has not written.
        columns: List the columns of the tables and exit.
    """
    from dse.measured import compare
    from dse.measured.comparison import comparison_line, coverage, report, write_lines

    with tables.measured_tables(cases, run_cells, profile, rows, output, force) as read:
        comparisons = compare(read.paths, read.cells)
    lines = [comparison_line(comparison) for comparison in comparisons]
    if output is not None:
        write_lines(output, lines, force)
    document = report(comparisons) | ({"coverage": coverage(comparisons)} if uncertainty else {})
    is_predicted = any(row["predicted"] for row in document["rows"])
    files = [path for path in (rows, output) if path is not None]
    sections = [*_error_sections(document), _figure_table(lines)]
    return Report(document, sections, read.notes, files=files, status=0 if is_predicted else NOTHING_FEASIBLE)


# --- predictions


def _line_document(line: Mapping[str, str]) -> dict[str, Any]:
    """Return a line of the table for JSON: predictions as numbers, empty cells as None, other cells as texts."""
    return {
        name: float(text) if name.startswith("pred_") and name != "pred_note" and text else text or None
        for name, text in line.items()
    }


def _number(text: str) -> Any:
    """Return the text of a cell as a number where it is one, None where it is empty.

    >>> _number("8"), _number("2.5"), _number("007"), _number("bf16"), _number("")
    (8, 2.5, '007', 'bf16', None)
    """
    found = _NUMBER.fullmatch(text)
    if not found:
        return text or None
    return float(text) if found[2] or found[3] else int(text)


def _prediction_table(rows: Sequence[dict[str, Any]], kind: str) -> Table:
    """Return the table of predicted rows: what names them, the first metric and memory, each with its interval."""
    from dse.measured import KINDS

    study = KINDS[kind].study
    header = list(dict.fromkeys(name for row in rows for name in row))
    filled = {name for row in rows for name, value in row.items() if value is not None}
    names = [next((name for name in group if name in filled), "") for group in _NAMES]
    metrics = [
        name
        for name in header
        if name in filled and name.startswith("pred_") and not name.endswith(("_low", "_high", "_note"))
    ]
    shown = [*metrics[:1], *(name for name in metrics[1:] if name == f"pred_{study.memory}")]

    def column(name: str) -> Column:
        """Return the column of a name, hidden where it is long or says little."""
        if name in names or name in _SPARE:
            return Column(name, name, left=name in names[:2], spare=name in _SPARE, hidden=name not in filled)
        if name in shown:
            heading = name.removeprefix("pred_").replace("_", " ")
            return Column(heading, name, row_text=lambda row: _metric_text(row, name, study))
        if name == "skipped":
            return Column("skipped", name, left=True, prose=True, hidden=name not in filled)
        return Column(name, name, hidden=True)

    columns = [column(name) for name in header]
    detail = "rows" if len(rows) > _ROWS else ""
    first = [one for one in columns if one.key in names]
    return Table("rows", [*first, *(one for one in columns if one not in first)], rows, show=detail, keys=len(first))


def _metric_text(row: Mapping[str, Any], name: str, study: Study) -> str:
    """Return the text of a predicted metric with its interval, "" for none."""
    from dse.io import digits
    from dse.views.sections import metric_text

    value, metric = row.get(name), name.removeprefix("pred_")
    if value is None:
        return ""
    if metric not in study.display_units:
        return digits(value)
    ends = [row.get(f"{name}_{end}") for end in ("low", "high")]
    middle, *texts = (metric_text(float(each), metric, study) for each in (value, *ends) if each is not None)
    return f"{middle} ({span_text(*texts)})" if len(texts) == len(ends) else middle


def _skipped_sections(skipped: Mapping[str, int]) -> list[Section]:
    """Return the table of skipped rows by reason, most frequent first; nothing for none."""
    ordered = sorted(skipped.items(), key=lambda item: -item[1])
    rows = [{"reason": reason, "rows": count} for reason, count in ordered[:_REASONS]]
    if rest := sum(count for _, count in ordered[_REASONS:]):
        rows.append({"reason": "other reasons: see the column skipped", "rows": rest})
    columns = [Column("skipped", "rows", "{:,}".format), Column("because", "reason", left=True, prose=True)]
    return [Line(""), Table("skipped", columns, rows)] if rows else []


# --- comparisons

_SOURCE = Column("source", "source", left=True, prose=True)
_METRIC = Column("metric", "metric", lambda name: name.replace("_", " "), left=True, prose=True)


def _error_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return errors by source and metric, refused figures, skipped rows, and coverage of the intervals."""
    by_metric = Counter(row["metric"] for row in document["rows"])
    sums = [{"source": "all", "metric": name, **document["all"][name]} for name, n in by_metric.items() if n > 1]
    rows = [*document["rows"], *sums]
    errors = [
        _SOURCE,
        _METRIC,
        Column("predicted", "predicted", row_text=lambda row: f"{row['predicted']:,} of {row['n']:,}"),
        Column("figures", "n", hidden=True),
        Column("MAPE", "mape", percent),
        Column("bias", "bias", percent),
        Column("median", "median_ape", percent, spare=True),
        Column("90th percentile", "p90", percent, spare=True),
        Column("constant MFU", "baseline_mape", percent, spare=True),
    ]
    sections: list[Section] = [Table("errors", errors, rows, keys=2)]
    # Figures better than a roofline are in no statistic above.
    refused = [{**row, **row["refused"]} for row in document["rows"] if row["refused"]["n"]]
    columns = [_SOURCE, _METRIC, Column("refused", "n", "{:,}".format), errors[4], errors[6], errors[5]]
    if refused:
        sections += [Line(""), Table("refused", columns, refused, keys=2)]
    skipped: dict[str, int] = {}
    for row in document["all"].values():
        for reason, count in row["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + count
    sections += _skipped_sections(skipped)
    if "coverage" in document:
        columns = [_SOURCE, Column("figures", "n"), Column("within 80 % intervals", "coverage", percent)]
        sections += [Line(""), Table("coverage", columns, document["coverage"])]
    return sections


def _figure_table(lines: Sequence[Mapping[str, str]]) -> Table:
    """Return the table of compared figures, a detail."""
    rows = [{name: _number(text) for name, text in line.items()} for line in lines]
    shown = {
        "source": Column("source", "source", left=True),
        "model": Column("model", "model", left=True),
        "metric_compared": Column("metric", "metric_compared", left=True),
        "measured": Column("measured", "measured", "{:.4g}".format),
        "predicted": Column("predicted", "predicted", "{:.4g}".format),
        "error": Column("error", "error", lambda error: percent(float(error))),
        "skipped": Column("skipped", "skipped", left=True, prose=True),
    }
    header = dict.fromkeys(name for line in lines for name in line)
    columns = [shown.get(name) or Column(name, name, hidden=True) for name in {**shown, **header}]
    return Table("figures", columns, rows, "figures, SI units", "figures", keys=2)
