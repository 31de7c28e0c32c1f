"""``dse launch``: launch line of a design for a tool, and the design of a tool's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import show
from dse.cli.evaluate import EvaluateRequest, design_of, print_obstacles
from dse.cli.options import AnyOption, Devices, Json, Settings, Stack, System, Workload
from dse.cli.status import NOTHING_FEASIBLE, report_errors

if TYPE_CHECKING:
    from dse.tools import ArgumentValues
    from dse.types import Design, Requests


@report_errors
def launch(
    workload: Workload,
    system: System,
    tool: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="TOOL",
            help="megatron-lm, megatron-bridge, nemo, deepspeed, torchtitan, maxtext; vllm, sglang, tensorrt-llm.",
        ),
    ],
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    role: Annotated[
        str, typer.Option(metavar="prefill|decode", help="Role of a pool of engines [default: an engine does both].")
    ] = "",
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="line|file|primus|kubernetes|dynamo|llm-d",
            help="line; the tool's own file; an experiment of Primus; a manifest, or values of a chart.",
        ),
    ] = "line",
    arguments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of the tool's arguments, a configuration or a manifest; settings override them [default: none].",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Write the command line that starts a design, or read one.

    For Megatron-LM, Megatron-Bridge, NeMo, DeepSpeed, torchtitan and MaxText a training design, for vLLM, SGLang and
    TensorRT-LLM one that serves. Lists the values that the tool has no option for. Of a command line that
    is given, first prints the values that it states, as --set takes them. For a design that cannot run it prints the
    reasons; the exit status is 1 if they are about something that the line says.
    """
    from dse import tools as launching
    from dse.designs import leaf_path, short_name
    from dse.doors import STUDIES
    from dse.views.explanation import infeasibility_reasons

    tool_info = launching.tool_of(tool)
    study, tool_arguments = STUDIES[tool_info.study], launching.ArgumentValues({}, {})
    if arguments is not None:
        tool_arguments = launching.read_arguments(tool, _text(arguments))
    setting_texts = _settings_by_path(settings or [], tool_info.study == "serving")
    engines = ", ".join(sorted(name for name, entry in launching.TOOLS.items() if entry.study == "serving"))
    to_serve = f"name a tool that serves: --for {engines}"

    def apply_arguments(tool_arguments: ArgumentValues) -> tuple[list[str], EvaluateRequest]:
        paths = {name: leaf_path(name) for name in tool_arguments.settings}
        read_settings = [
            f"{name}={_setting_text(paths[name], value)}"
            for name, value in tool_arguments.settings.items()
            if paths[name] not in setting_texts
        ]
        all_settings = [*read_settings, *(settings or [])]
        return read_settings, design_of(
            workload, system, all_settings, n_devices, software, any_option, study, to_serve, tool_info.name
        )

    read_settings, request = apply_arguments(tool_arguments)
    if tool_arguments.design_dependent and arguments is not None:  # with the weights under the other options
        tool_arguments = launching.read_arguments(tool, _text(arguments), request.design)
        read_settings, request = apply_arguments(tool_arguments)
    for text in (*_argument_remarks(tool_arguments, setting_texts), *tool_arguments.notes, *request.readings):
        show.note(text)
    line = launching.launch(request.design, tool, study, workload, request.stack, role, form, system)
    takes_comments = not line.text.startswith("{")  # DeepSpeed's file is JSON
    unsaid = {short_name(path): value for path, value in line.unsupported.items()}
    hardware, reasons = launching.unsupported_hardware(tool, system), infeasibility_reasons(request.design, study)
    status = NOTHING_FEASIBLE if any(reason.name not in _NO_OPTION for reason in reasons) else 0
    if as_json:
        show.document(
            {
                "tool": tool_info.name,
                "version": tool_info.version,
                "source": tool_info.source,
                "line": line.text,
                "settings": tool_arguments.settings,
                "no_option": unsaid,
                "passed_over": tool_arguments.foreign_options,
                "not_read": tool_arguments.unread,
                "no_hardware": hardware,
                "notes": [*tool_arguments.notes, *line.notes],
                "comments": list(line.comments),
                "feasible": not reasons,
                "reasons": [reason._asdict() for reason in reasons],
            }
        )
        return status
    if read_settings:
        show.note("stated: " + " ".join(f"--set {text}" for text in read_settings))
    missing_options = [f"{short_name(path)} = {_value_text(path, value)}" for path, value in line.unsupported.items()]
    if takes_comments:
        for comment in (
            *_comments(request.design, f"{tool_info.name} {tool_info.version}", missing_options),
            *line.comments,
        ):
            print(f"# {comment}")
        missing_options = []
    print(line.text)
    if missing_options or hardware:
        unsupported = ", ".join([*filter(None, [hardware]), *missing_options])
        words = f"{tool_info.name} {tool_info.version} has no option for {unsupported}"
        show.console(stderr=True).print(Text(words, "yellow"), soft_wrap=True)
    for text in line.notes:
        show.console(stderr=True).print(Text(text, "yellow"), soft_wrap=True)
    if reasons:
        print_obstacles(show.console(stderr=True), reasons)
    return status


def _load_text(requests: Requests) -> str:
    """Return a text of the load that a client makes: a rate, all at once, or the requests in flight."""
    from dse.types import Load, choice_name

    load = Load(int(requests.load))
    if load == Load.rate:
        return f"{show.digits(float(requests.request_rate or 0.0))} requests/s"
    if load == Load.offline:
        return f"{choice_name(load)}, all requests at once"
    return f"{show.counted(requests.concurrency, 'request')} in flight"


def _comments(design: Design, tool: str, missing_options: list[str]) -> Iterator[str]:
    """Yield the comments of a launch line: load, acceptance of drafts, values for which the tool has no option."""
    requests = design.workload.requests
    if requests is not None:
        answer = show.counted(requests.output_tokens, "output token")
        load = _load_text(requests)
        yield f"load of the design: {load}, {requests.prompt_tokens:g} prompt and {answer} (of the client)"
    serving = design.mapping.serving
    if requests is not None and serving is not None and serving.drafts:
        yield f"acceptance of the design: {serving.acceptance:g} per draft token (of model and draft)"
    if missing_options:
        yield f"no option of {tool}: {', '.join(missing_options)}"


def _settings_by_path(settings: list[str], serving: bool) -> dict[str, str]:
    """Return full path → text of ``NAME=VALUE`` by leaf, the last of several, without names that are no leaves."""
    from dse.designs import leaf_path

    pairs = (text.partition("=") for text in settings)
    text_by_name = {name.strip(): value.strip() for name, _, value in pairs if name.strip() not in _NO_LEAVES}
    return {leaf_path(name, "--set", serving): value for name, value in text_by_name.items()}


#: Reasons of infeasibility without an option of the line, which starts nevertheless; reported with it.
_NO_OPTION = ("stack_lacks",)

#: Names that ``--set`` takes in addition to leaves.
_NO_LEAVES = ("n_devices", "software")


def _argument_remarks(tool_arguments: ArgumentValues, setting_texts: dict[str, str]) -> Iterator[str]:
    """Yield remarks on arguments of a tool that do not count: overridden by ``--set``, of other tools, or not read."""
    from dse.designs import leaf_path, leaf_value

    for name, value in tool_arguments.settings.items():
        setting_text = setting_texts.get(path := leaf_path(name))
        if setting_text is not None and leaf_value(path, _number(setting_text), "--set") != value:
            yield f"{name}: the arguments state {_value_text(path, value)}, --set {setting_text}, which counts"
    for option, name in tool_arguments.foreign_options.items():
        yield f"{option} is passed over: it says nothing here; of other tools it is {name}"
    if tool_arguments.unread:
        yield f"not read: {', '.join(tool_arguments.unread)}"


def _number(text: str) -> Any:
    """Convert a text to a float, or return it as it is if it is no number."""
    try:
        return float(text)
    except ValueError:
        return text


def _value_text(path: str, value: float) -> str:
    """Format the value of a leaf without its unit, a choice by name."""
    from dse.designs import all_leaves
    from dse.types import choice_name

    enum = all_leaves()[path].get("enum")
    return choice_name(enum(int(value))) if enum else f"{value:.12g}"


def _setting_text(path: str, value: float) -> str:
    """Format the value of a leaf as ``--set`` reads it, with its unit."""
    from dse.designs import all_leaves

    units = all_leaves()[path]["units"]
    return _value_text(path, value) + ("" if units == "1" else units)


def _text(file: Path) -> str:
    """Return the text of a file of options as on a command line; raise an InputError where it cannot be read."""
    from dse.io import inputs

    return inputs.text(file, "a text of options, as on a command line")
