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
    from dse.tools import Stated
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
    from dse.designs.leaves import leaf_path, short_name
    from dse.doors.studies import STUDIES
    from dse.views.explanation import infeasibility_reasons

    found = launching.tool_of(tool)
    study, stated = STUDIES[found.study], launching.Stated({}, {})
    if arguments is not None:
        stated = launching.read_arguments(tool, _text(arguments))
    given = _by_path(settings or [], found.study == "serving")
    engines = ", ".join(sorted(name for name, one in launching.TOOLS.items() if one.study == "serving"))
    to_serve = f"name a tool that serves: --for {engines}"

    def design_read(stated: Stated) -> tuple[list[str], EvaluateRequest]:
        paths = {name: leaf_path(name) for name in stated.settings}
        read = [
            f"{name}={_setting(paths[name], value)}"
            for name, value in stated.settings.items()
            if paths[name] not in given
        ]
        both = [*read, *(settings or [])]
        return read, design_of(workload, system, both, n_devices, software, any_option, study, to_serve, found.name)

    read, asked = design_read(stated)
    if stated.open and arguments is not None:  # with the weights under the other options
        stated = launching.read_arguments(tool, _text(arguments), asked.design)
        read, asked = design_read(stated)
    for text in (*_overridden(stated, given), *stated.notes, *asked.readings):
        show.note(text)
    line = launching.launch(asked.design, tool, study, workload, asked.stack, role, form, system)
    takes_comments = not line.text.startswith("{")  # DeepSpeed's file is JSON
    unsaid = {short_name(path): value for path, value in line.unsaid.items()}
    hardware, reasons = launching.unfit(tool, system), infeasibility_reasons(asked.design, study)
    status = NOTHING_FEASIBLE if any(reason.name not in _NO_OPTION for reason in reasons) else 0
    if as_json:
        show.document(
            {
                "tool": found.name,
                "version": found.version,
                "source": found.source,
                "line": line.text,
                "settings": stated.settings,
                "no_option": unsaid,
                "passed_over": stated.strange,
                "not_read": stated.unread,
                "no_hardware": hardware,
                "notes": [*stated.notes, *line.notes],
                "comments": list(line.comments),
                "feasible": not reasons,
                "reasons": [reason._asdict() for reason in reasons],
            }
        )
        return status
    if read:
        show.note("stated: " + " ".join(f"--set {text}" for text in read))
    lacking = [f"{short_name(path)} = {_value(path, value)}" for path, value in line.unsaid.items()]
    if takes_comments:
        for comment in (*_comments(asked.design, f"{found.name} {found.version}", lacking), *line.comments):
            print(f"# {comment}")
        lacking = []
    print(line.text)
    if lacking or hardware:
        words = f"{found.name} {found.version} has no option for {', '.join([*filter(None, [hardware]), *lacking])}"
        show.console(stderr=True).print(Text(words, "yellow"), soft_wrap=True)
    for text in line.notes:
        show.console(stderr=True).print(Text(text, "yellow"), soft_wrap=True)
    if reasons:
        print_obstacles(show.console(stderr=True), reasons)
    return status


def _load(requests: Requests) -> str:
    """The load that a client makes: requests in flight, or at a rate."""
    from dse.types import Load, choice_name

    load = Load(int(requests.load))
    if load == Load.rate:
        return f"{show.digits(float(requests.request_rate or 0.0))} requests/s"
    if load == Load.offline:
        return f"{choice_name(load)}, all requests at once"
    return f"{show.counted(requests.concurrency, 'request')} in flight"


def _comments(design: Design, tool: str, lacking: list[str]) -> Iterator[str]:
    """Comments on a line: the load that a client makes, and values without an option of the tool."""
    requests = design.workload.requests
    if requests is not None:
        answer = show.counted(requests.output_tokens, "output token")
        yield (f"load of the design: {_load(requests)}, {requests.prompt_tokens:g} prompt and {answer} (of the client)")
    serving = design.mapping.serving
    if requests is not None and serving is not None and serving.drafts:
        yield f"acceptance of the design: {serving.acceptance:g} per draft token (of model and draft)"
    if lacking:
        yield f"no option of {tool}: {', '.join(lacking)}"


def _by_path(settings: list[str], serving: bool) -> dict[str, str]:
    """Full path → text of ``--set``; of several settings of one leaf the last one counts."""
    from dse.designs.leaves import leaf_path

    pairs = (text.partition("=") for text in settings)
    named = {name.strip(): value.strip() for name, _, value in pairs if name.strip() not in _NO_LEAVES}
    return {leaf_path(name, "--set", serving): value for name, value in named.items()}


#: Reasons of infeasibility without an option of the line, which starts nevertheless; reported with it.
_NO_OPTION = ("stack_lacks",)

#: Names that ``--set`` takes in addition to leaves.
_NO_LEAVES = ("n_devices", "software")


def _overridden(stated: Stated, given: dict[str, str]) -> Iterator[str]:
    """Remarks on ignored arguments: those overridden by ``--set``, options of other tools, unread ones."""
    from dse.designs.leaves import leaf_path, leaf_value

    for name, value in stated.settings.items():
        asked = given.get(path := leaf_path(name))
        if asked is not None and leaf_value(path, _number(asked), "--set") != value:
            yield f"{name}: the arguments state {_value(path, value)}, --set {asked}, which counts"
    for option, name in stated.strange.items():
        yield f"{option} is passed over: it says nothing here; of other tools it is {name}"
    if stated.unread:
        yield f"not read: {', '.join(stated.unread)}"


def _number(text: str) -> Any:
    """A number, or the text."""
    try:
        return float(text)
    except ValueError:
        return text


def _value(path: str, value: float) -> str:
    """A leaf's value, by name for a choice."""
    from dse.designs.leaves import known_leaves
    from dse.types import choice_name

    enum = known_leaves()[path].get("enum")
    return choice_name(enum(int(value))) if enum else f"{value:.12g}"


def _setting(path: str, value: float) -> str:
    """A leaf's value for ``--set``, with its unit."""
    from dse.designs.leaves import known_leaves

    units = known_leaves()[path]["units"]
    return _value(path, value) + ("" if units == "1" else units)


def _text(file: Path) -> str:
    """Text of a file of arguments."""
    from dse.io import inputs

    return inputs.text(file, "a text of options, as on a command line")
