"""``dse.diagnose``: a measured step against the predicted one, cause by cause, and what would help most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dse.capabilities import tables
from dse.errors import InputError
from dse.io import check_output, counted, percent, seconds
from dse.io.quantities import gib
from dse.reports import Column, Line, Option, Report, Table, capability, heading, verbatim
from dse.reports.options import Force
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section, span_text

if TYPE_CHECKING:
    from dse.lab.evidence import Advice, Diagnosis, GapExplanation

#: Resolution of a profiler, s.
_RESOLUTION = 1e-6

#: Characters of a source, and of the name of a kernel, and kernels, that are shown.
_SOURCE, _NAME, _KERNELS = 28, 48, 5


class _Step(NamedTuple):
    """A measured step that is predicted, with the causes of its gap and advice, where there are any."""

    diagnosis: Diagnosis
    explanation: GapExplanation | None
    advice: Advice | None


@capability("Compare with reality", details=("steps", "commands"))
def diagnose(
    files: Annotated[
        Sequence[Path] | Sequence[tables.Row],
        Option(
            "Logs and traces of training, or tables (.csv) of rows; rows as column and value.",
            is_argument=True,
            metavar="FILE …",
            terminal=list[Path],
            python=Any,
        ),
    ],
    run_cells: tables.RunCells,
    rows: tables.RowsFile = None,
    output: Annotated[
        Path | None,
        Option("Figure of the causes, ending in .png, .svg or .pdf [default: none].", short="-o"),
    ] = None,
    trace: Annotated[
        Path | None,
        Option("Both timelines side by side, for ui.perfetto.dev [default: none].", metavar="FILE.json"),
    ] = None,
    advice: Annotated[bool, Option("Changes of the mapping that would shorten the step most.")] = True,
    force: Force = False,
) -> Report:
    """Compare a measured training step with the predicted one.

    Both with the 80 % interval of the prediction, and causes of the gap. Traces of the PyTorch profiler are matched
    kernel by kernel: what is slower than predicted, in seconds, with its evidence (a clock, kernels, recompute, links,
    a slow rank, the host, the order of the pipeline). Traces of several ranks of one step are given together: ranks of
    a stage show which of them is slow. Then the changes of mapping or options that shorten the step most, with the 80 %
    interval of their gains. Of several steps it prints one line each; the detail steps has all. Exit status 1 when no
    step is predicted.
    """
    from dse.lab import evidence
    from dse.measured import Skip, read_cases

    is_of_tables = tables.are_tables(files)
    _check_outputs(output, trace, [] if is_of_tables else files, force)
    stated = run_cells.cells()
    with tables.measured_tables(files, run_cells, not is_of_tables, rows, None, force) as read:
        cases = [case for path in read.paths for case in read_cases(path, cells=read.cells)]
        diagnoses = evidence.diagnose(cases)
    skipped = [str(diagnosis) for diagnosis in diagnoses if isinstance(diagnosis, Skip)]
    predicted = [diagnosis for diagnosis in diagnoses if not isinstance(diagnosis, Skip)]
    notes = [*read.notes, *(f"not predicted: {text}" for text in skipped)]
    steps = []
    for diagnosis in predicted:
        explanation = None
        if not is_of_tables:
            explanation = _explain_step(diagnosis, files, len(predicted) == 1, stated, notes)
        is_known = explanation is None or explanation.is_matched
        steps.append(_Step(diagnosis, explanation, evidence.advise(diagnosis.ran) if advice and is_known else None))
    explained = [step for step in steps if step.explanation is not None]
    if (output or trace) and len(explained) != 1:
        raise InputError(
            "--trace" if trace else "-o",
            f"{counted(len(explained), 'step')} with traces of kernels",
            "traces of the ranks of one step",
            "give traces of the PyTorch profiler, of one run",
        )
    if output or trace:
        _write(explained[0], output, trace, force)
    sections: list[Section] = [_overview(steps)] if steps else []
    for number, step in enumerate(steps, 1):
        sections += _step_sections(step, number if len(steps) > 1 else None, notes)
    return Report(
        {"steps": [_document(step) for step in steps], "skipped": skipped},
        sections,
        list(dict.fromkeys(notes)),
        figures=[output] if output else [],
        files=[trace] if trace else [],
        status=0 if predicted else NOTHING_FEASIBLE,
    )


def _check_outputs(output: Path | None, trace: Path | None, files: Any, force: bool) -> None:
    """Raise an InputError where a file must not be written, or figures cannot be drawn."""
    inputs = [files] if isinstance(files, str | Path) else files
    if output is not None:
        from dse.views.figures import missing_requirement
        from dse.views.plot.style import check_ending

        if missing := missing_requirement():
            raise missing
        check_output(check_ending(output), force, inputs)
    if trace is not None:
        check_output(trace, force, inputs)


def _explain_step(
    diagnosis: Diagnosis, files: Any, is_only: bool, stated: Mapping[str, str], notes: list[str]
) -> GapExplanation | None:
    """Explain a step by its traces; None without any, and with a note where they cannot be explained.

    ``stated``: column → text of the command, of which the stage and the mark of steps count.
    """
    from dse.lab.evidence import explain, is_trace, read_trace
    from dse.measured.profiles import STAGE, STEP_MARK

    paths = dict.fromkeys(map(Path, [files] if isinstance(files, str | Path) else files))
    trace_files = [path for path in paths if is_only or str(path) in diagnosis.source.split()]
    read = (read_trace(path, stated.get(STEP_MARK, "")) for path in trace_files if is_trace(path))
    traces = [step_trace for step_trace in read if step_trace is not None]
    if not traces:
        return None
    stage = stated.get(STAGE, "")
    if stage and not stage.isdecimal():
        raise InputError("--set stage", stage, "the number of a stage, from 0 on", "name a stage of the pipeline")
    try:
        explanation = explain(diagnosis.ran.design, traces, int(stage) if stage else None)
        notes += explanation.remarks
        return explanation
    except InputError as error:
        if stage and error.where == "--set stage":
            raise
        notes.append(f"no causes: {error.got}; {error.allowed}")
        return None


def _write(step: _Step, output: Path | None, trace: Path | None, force: bool) -> None:
    """Write the figure and the timelines of an explained step, each where its path is not None."""
    from dse.lab.evidence import gap_figure, write_timelines
    from dse.views.plot import save

    run, explanation = step.diagnosis.ran, step.explanation
    if explanation is None:
        return
    if output is not None:
        save(gap_figure(explanation, f"{run.model or 'step'} on {run.system or run.accelerator}"), output, force)
    if trace is not None:
        write_timelines(explanation, trace, force)


def _document(step: _Step) -> dict[str, Any]:
    """Return a diagnosis for JSON with its explanation and advice, where there are any; times in s, memory in B."""
    from dse.lab.evidence import as_dict

    diagnosis, explanation, advice = step
    values = diagnosis._asdict() | {"gap": diagnosis.gap, "within": diagnosis.is_explained}
    document = {name: value for name, value in values.items() if name != "ran"}
    if explanation is not None:
        document |= {"trace": as_dict(explanation)}
    if advice is not None:
        changes = [change._asdict() | {"command": _command(diagnosis, change.design)} for change in advice.changes]
        for change in changes:
            del change["design"]
        document |= {"changes": changes, "forbidden": advice.forbidden}
    return document


# --- what people read


def _overview(steps: Sequence[_Step]) -> Table:
    """Return the table of steps, a detail where there is only one."""
    from dse.doors import TRAINING
    from dse.views.sections import metric_text

    def step_text(value: float) -> str:
        return metric_text(value, "step_time", TRAINING)

    columns = [
        Column("", "step"),
        Column("step", "source", lambda source: _short(source, _SOURCE), left=True),
        Column("measured", "measured", seconds),
        Column("predicted", "predicted", seconds),
        Column("80 % interval", "low", step_text, high="high"),
        Column("longer by", "gap", _signed_text, spare=True),
        Column("within", "within", lambda within: "yes" if within else "no"),
    ]
    rows = [
        (n, d.source, d.measured, d.predicted, *(d.interval or (None, None)), d.gap, d.is_explained)
        for n, (d, _, _) in enumerate(steps, 1)
    ]
    return Table("steps", columns, _records(columns, rows), show="steps" if len(rows) == 1 else "", keys=2)


def _records(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows of values as dictionaries by the keys of the columns."""
    keys = [key for column in columns for key in column.keys]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _short(text: str, most: int) -> str:
    """Return a text in at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _step_sections(step: _Step, number: int | None, notes: list[str]) -> list[Section]:
    """Return a step as sections: times, parts, memory, causes, changes; of several (``number``) as the detail steps."""
    diagnosis, explanation, advice = step
    detail, suffix = ("", "") if number is None else ("steps", f" {number}")
    ratio = diagnosis.measured / diagnosis.predicted
    ends = diagnosis.interval
    interval = f" (80 %: {span_text(seconds(ends.low), seconds(ends.high))})" if ends else ""
    differs = f"{percent(abs(ratio - 1.0))} {'longer' if ratio >= 1.0 else 'shorter'} than predicted"
    sections: list[Section] = [
        heading(diagnosis.source if number is None else f"{number}: {diagnosis.source}", detail),
        Line(
            f"step {seconds(diagnosis.measured)} measured, {seconds(diagnosis.predicted)} predicted{interval}: "
            f"{differs}, {'within' if diagnosis.is_explained else 'outside'} the interval",
            show=detail,
        ),
        _part_table(diagnosis, explanation, detail, suffix),
    ]
    if diagnosis.memory:
        measured, predicted = map(gib, diagnosis.memory)
        sections.append(Line(f"peak memory {measured} measured, {predicted} predicted", show=detail))
    if explanation:
        sections += _cause_sections(explanation, detail, suffix, notes)
    elif diagnosis.note:
        notes.append(diagnosis.note)
    return [*sections, *(_change_sections(diagnosis, advice, detail, suffix) if advice else [])]


def _part_table(diagnosis: Diagnosis, explanation: GapExplanation | None, detail: str, suffix: str) -> Table:
    """Return the table of measured and predicted seconds by part of a step."""
    from dse.lab.evidence import step_parts

    parts: list[tuple[str, float | None, float]] = [*diagnosis.parts]
    title = "part"
    if explanation:
        parts = [*step_parts(explanation), ("step", explanation.measured, explanation.predicted)]
        title = f"part, rank {explanation.ranks[0].trace.rank}"

    def text(name: str, form: Any) -> Column:
        heading_text = "longer by" if name == "gap" else name
        return Column(heading_text, name, row_text=lambda row: "–" if row[name] is None else form(row[name]))

    columns = [
        Column(title, "part", left=True),
        text("measured", lambda value: seconds(_visible_seconds(value))),
        text("predicted", lambda value: seconds(_visible_seconds(value))),
        text("gap", _signed_text),
    ]
    rows = [{"part": part, "measured": m, "predicted": p, "gap": None if m is None else m - p} for part, m, p in parts]
    return Table(f"parts{suffix}", columns, rows, show=detail)


def _cause_sections(explanation: GapExplanation, detail: str, suffix: str, notes: list[str]) -> list[Section]:
    """Return how much was matched, and the causes of the gap; a note where too little was matched."""
    shares = ", ".join(f"{percent(share)} by {how}" for how, share in explanation.shares.items() if share > 5e-4)
    matched = percent(sum(explanation.shares.values()))
    sections: list[Section] = [Line(f"matched to the model: {matched} of the time of kernels ({shares})", show=detail)]
    if unmatched := [*explanation.unmatched.items()]:
        text = ", ".join(f"{_short(name, _NAME)} {seconds(value)}" for name, value in unmatched[:_KERNELS])
        if rest := unmatched[_KERNELS:]:
            text += f", and {len(rest):,} more {seconds(sum(value for _, value in rest))}"
        sections.append(Line(f"not matched, s a step: {text}", show=detail))
    if not explanation.is_matched:
        notes.append(f"no causes and no changes: {explanation.doubt}")
        return sections
    rows = [
        {"cause": cause.name, "share": abs(cause.seconds) / explanation.measured} | cause._asdict()
        for cause in explanation.causes
        if cause.named or _visible_seconds(cause.seconds)
    ]
    gap = explanation.measured - explanation.predicted
    share = abs(gap) / explanation.predicted
    rows.append({"cause": "measured beyond predicted", "seconds": gap, "share": share, "evidence": ""})
    count = len(explanation.prominent_causes)
    title = f"{counted(count, 'cause')} found" if count else "no cause stands out"
    columns = [
        Column("cause", "cause", left=True, prose=True),
        Column("longer by", "seconds", _signed_text),
        Column("of the step", "share", percent),
        Column("evidence", "evidence", left=True, prose=True),
    ]
    return [*sections, Table(f"causes{suffix}", columns, rows, title, detail)]


def _change_sections(diagnosis: Diagnosis, advice: Advice, detail: str, suffix: str) -> list[Section]:
    """Return the changes that shorten the step most; options of the tool and launch commands as a detail."""
    rows = [change._asdict() | {"change": _settings_text(change.values)} for change in advice.changes]
    sections: list[Section] = [heading("no change shortens the step by 1 %", detail)]
    if rows:
        columns = [
            Column("change", "change", left=True, prose=True),
            Column("shorter by", "gain", percent),
            Column("80 % interval", "low", percent, high="high"),
        ]
        title = "changes that shorten the step most"
        sections = [Table(f"changes{suffix}", columns, rows, title, detail)]
    for row, change in zip(rows, advice.changes, strict=True):
        signs = {"+": change.options, "-": change.without}
        options = [f"{sign} {'  '.join(words)}" for sign, words in signs.items() if words]
        if lines := [*options, *filter(None, [_command(diagnosis, change.design)])]:
            sections += [heading(row["change"], "commands"), verbatim("\n".join(lines), "commands")]
    if forbidden := advice.forbidden:
        text = (
            f"memory forbids {_settings_text(forbidden.values)}: {percent(forbidden.gain)} shorter, but needs "
            f"{gib(forbidden.memory)} of {gib(forbidden.capacity)}"
        )
        sections.append(Line(text, show=detail))
    return sections


def _settings_text(values: Mapping[str, float]) -> str:
    """Return a change of leaves as ``--set`` takes it."""
    from dse.designs import leaf_path
    from dse.designs.neighbours import leaf_text

    return ", ".join(f"{name}={leaf_text(leaf_path(name), value)}" for name, value in values.items())


def _command(diagnosis: Diagnosis, design: Any) -> str:
    """Return the command ``dse launch …`` of a design, "" without the name of a model, system or tool."""
    from dse.lab.evidence import settings_of
    from dse.tools.runs import stack_tool

    run = diagnosis.ran
    tool = stack_tool(run.stack, "training")
    if not (tool and run.model and run.system):
        return ""
    values = " ".join(f"--set {text}" for text in settings_of(design))
    return f"dse launch -w {run.model} -s {run.system} --software {run.stack} --for {tool.name} {values}"


def _visible_seconds(value: float) -> float:
    """Return seconds as they are, 0 below the resolution of a profiler."""
    return value if abs(value) >= _RESOLUTION else 0.0


def _signed_text(value: float) -> str:
    """Format seconds with a sign, "0 s" below the resolution of a profiler."""
    return f"{'-' if value < 0.0 else '+'}{seconds(abs(value))}" if _visible_seconds(value) else "0 s"
