"""``dse diagnose``: a measured step against the predicted one, cause by cause, and what would help most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli import profiles, show
from dse.cli.options import Force, Json
from dse.cli.panels import Registration
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from dse.lab.evidence import Advice, Diagnosis, GapExplanation


@report_errors
def diagnose(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE …", help="Logs and traces of training, or tables (.csv) of rows.")
    ],
    workload: profiles.Workload = None,
    system: profiles.System = None,
    n_devices: profiles.Devices = None,
    software: profiles.Stack = None,
    settings: profiles.Settings = None,
    rows: profiles.RowsFile = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Figure of the causes, ending in .png, .svg or .pdf [default: none]."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Both timelines side by side, for ui.perfetto.dev [default: none]."),
    ] = None,
    advice: Annotated[bool, typer.Option(help="Changes of the mapping that would shorten the step most.")] = True,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Compare a measured training step with the predicted one.

    Prints both with the 80 % interval of the prediction, and causes of the gap. Traces of the PyTorch profiler are
    matched kernel by kernel: what is slower than predicted, in seconds, with its evidence (a clock, kernels, recompute,
    links, a slow rank, the host, the order of the pipeline). Traces of several ranks of one step are given together:
    ranks of a stage show which of them is slow. Then the changes of mapping or options that shorten the step most, with
    the 80 % interval of their gains. Exit status 1 when no step is predicted.
    """
    from dse.io import check_output
    from dse.lab import evidence
    from dse.measured import Skip, read_cases

    _check_outputs(output, trace, files, force)
    run_cells = profiles.RunCells(workload, system, n_devices, software, settings)
    are_tables = all(".csv" in path.suffixes[-2:] for path in files)
    with profiles.tables(files, not are_tables, run_cells, rows, None, force) as tables:
        diagnoses = evidence.diagnose([case for path in tables for case in read_cases(path)])
    predicted = [diagnosis for diagnosis in diagnoses if not isinstance(diagnosis, Skip)]
    causes = [None if are_tables else _explain_step(diagnosis, files, len(predicted) == 1) for diagnosis in predicted]
    advice_list = [_advice(diagnosis) if advice else None for diagnosis in predicted]
    explained = [cause for cause in causes if cause is not None]
    if (output or trace) and len(explained) != 1:
        got = f"{show.counted(len(explained), 'step')} with traces of kernels"
        raise InputError(
            "--trace" if trace else "-o",
            got,
            "traces of the ranks of one step",
            "give traces of the PyTorch profiler, of one run",
        )
    if as_json:
        skipped = [str(diagnosis) for diagnosis in diagnoses if isinstance(diagnosis, Skip)]
        steps = [_document(*step) for step in zip(predicted, causes, advice_list, strict=True)]
        show.document({"steps": steps, "skipped": skipped})
    else:
        for diagnosis in diagnoses:
            if isinstance(diagnosis, Skip):
                show.note(f"not predicted: {diagnosis}")
        for diagnosis, explanation, step_advice in zip(predicted, causes, advice_list, strict=True):
            _print(diagnosis, explanation)
            if step_advice:
                _print_advice(diagnosis, step_advice)
    if explained:
        _write(
            explained[0],
            predicted[causes.index(explained[0])],
            check_output(output, force) if output else None,
            trace,
            force,
        )
    return 0 if predicted else NOTHING_FEASIBLE


def _check_outputs(output: Path | None, trace: Path | None, files: Sequence[Path], force: bool) -> None:
    """Raise an InputError where a file must not be written, or figures cannot be drawn."""
    from dse.io import check_output

    if output is not None:
        from dse.views.figures import missing_requirement
        from dse.views.plot.style import check_ending

        if missing := missing_requirement():
            raise missing
        check_output(check_ending(output), force, files)
    if trace is not None:
        check_output(trace, force, files)


def _explain_step(diagnosis: Diagnosis, files: Sequence[Path], is_only: bool) -> GapExplanation | None:
    """Explain a step by its traces; None without any, and with a note where they cannot be explained."""
    from dse.lab.evidence import explain, is_trace, read_trace

    trace_files = [path for path in dict.fromkeys(files) if is_only or str(path) in diagnosis.source.split()]
    traces = [step_trace for path in trace_files if is_trace(path) and (step_trace := read_trace(path)) is not None]
    if not traces:
        return None
    try:
        return explain(diagnosis.ran.design, traces)
    except InputError as error:
        show.note(f"no causes: {error.got}; {error.allowed}")
        return None


def _advice(diagnosis: Diagnosis) -> Advice:
    """Return the changes of the design that shorten a step most."""
    from dse.lab.evidence import advise

    return advise(diagnosis.ran)


def _write(
    explained: GapExplanation, diagnosis: Diagnosis, output: Path | None, trace: Path | None, force: bool
) -> None:
    """Write the figure and the timelines of an explained step, each where its path is not None."""
    if output is not None:
        from dse.lab.evidence import gap_figure
        from dse.views.plot import save

        title = f"{diagnosis.ran.model or 'step'} on {diagnosis.ran.system or diagnosis.ran.accelerator}"
        save(gap_figure(explained, title), output, force)
        show.note(f"written: {output}")
    if trace is not None:
        from dse.lab.evidence import write_timelines

        write_timelines(explained, trace, force)
        show.note(f"written: {trace}")


def _document(diagnosis: Diagnosis, explanation: GapExplanation | None, advice: Advice | None) -> dict[str, Any]:
    """Return the JSON-ready dictionary of a diagnosis with its explanation and advice, where there are any."""
    from dse.lab.evidence import as_dict

    document = diagnosis.as_dict() | ({"trace": as_dict(explanation)} if explanation else {})
    if advice is not None:
        changes = [change._asdict() | {"command": _command(diagnosis, change.design)} for change in advice.changes]
        for change in changes:
            del change["design"]
        document |= {"changes": changes, "forbidden": advice.forbidden and advice.forbidden._asdict()}
    return document


# Text


def _print(diagnosis: Diagnosis, explanation: GapExplanation | None) -> None:
    """Print a diagnosis: step times in seconds, parts, memory, causes."""
    ends, ratio = diagnosis.interval, diagnosis.measured / diagnosis.predicted
    interval_text = f" (80 %: {show.seconds(ends.low)} to {show.seconds(ends.high)})" if ends else ""
    differs = f"{show.percent(abs(ratio - 1.0))} {'longer' if ratio >= 1.0 else 'shorter'} than predicted"
    print(diagnosis.source)
    print(
        f"step {show.seconds(diagnosis.measured)} measured, "
        f"{show.seconds(diagnosis.predicted)} predicted{interval_text}: {differs}, "
        f"{'within' if diagnosis.is_explained else 'outside'} the interval"
    )
    _print_parts(diagnosis, explanation)
    if diagnosis.memory:
        measured, predicted = (value / 2**30 for value in diagnosis.memory)
        print(f"peak memory {measured:.1f} GiB measured, {predicted:.1f} GiB predicted")
    if explanation:
        _print_causes(explanation)
    elif diagnosis.note:
        show.note(diagnosis.note)


def _print_parts(diagnosis: Diagnosis, explanation: GapExplanation | None) -> None:
    """Print a table of measured and predicted seconds by part of a step."""
    from dse.lab.evidence import step_parts

    heads = ["part", "measured", "predicted", "longer by"]
    parts = (
        step_parts(explanation)
        if explanation
        else [(part.name, part.measured, part.predicted) for part in diagnosis.parts]
    )
    cells = [
        [
            name,
            *(
                ["–", show.seconds(predicted), "–"]
                if measured is None
                else [
                    show.seconds(_visible_seconds(measured)),
                    show.seconds(_visible_seconds(predicted)),
                    _signed_text(measured - predicted),
                ]
            ),
        ]
        for name, measured, predicted in parts
    ]
    if explanation:
        cells.append(
            [
                "step",
                show.seconds(explanation.measured),
                show.seconds(explanation.predicted),
                _signed_text(explanation.measured - explanation.predicted),
            ]
        )
        heads[0] = f"part, rank {explanation.ranks[0].trace.rank}"
    show.print_table(show.console(), heads, cells, left=[heads[0]])


def _print_causes(explanation: GapExplanation) -> None:
    """Print how much was matched, and the causes of the gap, or that too little was matched."""
    match_shares = ", ".join(
        f"{show.percent(share)} by {how}" for how, share in explanation.shares.items() if share > 5e-4
    )
    matched = show.percent(sum(explanation.shares.values()))
    print(f"matched to the model: {matched} of the time of kernels ({match_shares})")
    if unmatched := explanation.unmatched:
        kernel_text = ", ".join(
            f"{_short_kernel_name(name)} {show.seconds(value)}" for name, value in [*unmatched.items()][:5]
        )
        rest_text = (
            f", and {len(unmatched) - 5:,} more {show.seconds(sum([*unmatched.values()][5:]))}"
            if len(unmatched) > 5
            else ""
        )
        print(f"not matched, s a step: {kernel_text}{rest_text}")
    if not explanation.is_matched:
        show.note(
            "no causes: most of the time is of kernels that the stated model and mapping do not have; check -w, "
            "-s and --set"
        )
        return
    rows = [
        [
            cause.name,
            _signed_text(cause.seconds),
            show.percent(abs(cause.seconds) / explanation.measured),
            cause.evidence,
        ]
        for cause in explanation.causes
        if cause.named or _visible_seconds(cause.seconds)
    ]
    rows.append(
        [
            "measured beyond predicted",
            _signed_text(explanation.measured - explanation.predicted),
            show.percent(abs(explanation.measured / explanation.predicted - 1.0)),
            "",
        ]
    )
    summary = (
        f"{show.counted(len(explanation.prominent_causes), 'cause')} found"
        if explanation.prominent_causes
        else "no cause stands out"
    )
    show.heading(show.console(), summary)
    columns = ["cause", "longer by", "of the step", "evidence"]
    show.print_table(show.console(), columns, rows, left=["cause", "evidence"], prose=["evidence"])


#: Characters of the name of a kernel that are shown.
_NAME = 48


def _short_kernel_name(name: str) -> str:
    """Return the name of a kernel in at most ``_NAME`` characters."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _print_advice(diagnosis: Diagnosis, advice: Advice) -> None:
    """Print the changes that shorten the step most, each with its options and launch command."""
    from dse.designs import leaf_path
    from dse.lab.evidence import leaf_text

    def settings_text(values: dict[str, float]) -> str:
        return ", ".join(f"{name}={leaf_text(leaf_path(name), value)}" for name, value in values.items())

    title = "changes that shorten the step most" if advice.changes else "no change shortens the step by 1 %"
    show.heading(show.console(), title)
    for place, change in enumerate(advice.changes, 1):
        gain_interval = _percent_range(change.low, change.high)
        print(f"{place}. {settings_text(change.values)}: {show.percent(change.gain)} shorter (80 %: {gain_interval})")
        for sign, options in (("+", change.options), ("-", change.without)):
            if options:
                print(f"   {sign} {'  '.join(options)}")
        if command := _command(diagnosis, change.design):
            print(f"   {command}")
    if forbidden := advice.forbidden:
        print(
            f"memory forbids {settings_text(forbidden.values)}: {show.percent(forbidden.gain)} shorter, but needs "
            f"{show.gib(forbidden.memory)} of {show.gib(forbidden.capacity)}"
        )


def _percent_range(low: float, high: float) -> str:
    """Format the ends of a gain (shares) in per cent; the lower one may be a loss."""
    return f"{100.0 * low:.1f} to {100.0 * high:.1f} %"


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


def _visible_seconds(seconds: float) -> float:
    """Return seconds as they are, 0 below the resolution of a profiler."""
    return seconds if abs(seconds) >= _RESOLUTION else 0.0


#: Resolution of a profiler, s.
_RESOLUTION = 1e-6


def _signed_text(seconds: float) -> str:
    """Format seconds with a sign, "0 s" below the resolution of a profiler."""
    if not _visible_seconds(seconds):
        return "0 s"
    return f"{'-' if seconds < 0.0 else '+'}{show.seconds(abs(seconds))}"


REGISTRATION = Registration("Compare with reality", diagnose)
