"""``dse launch``: launch line of a design for a tool, and the design of a tool's arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.designs import DesignOptions, DesignRequest
from dse.capabilities.settings import leaf_setting, number_or_text
from dse.io import counted, digits
from dse.reports import Option, Report, capability, verbatim
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.settings import setting_texts

if TYPE_CHECKING:
    from dse.tools import ArgumentValues, LaunchLine
    from dse.types import Design, Requests

#: Reasons of infeasibility without an option of the line, which starts nevertheless; reported with it.
_NO_OPTION = ("stack_lacks",)

#: Names that settings take in addition to leaves.
_NO_LEAVES = ("n_devices", "software")


@capability("Show")
def launch(
    options: DesignOptions,
    tool: Annotated[str, Option(flag="--for", metavar="TOOL")],
    role: Annotated[str, Option(metavar="prefill|decode")] = "",
    form: Annotated[str, Option(flag="--format", metavar="line|file|primus|kubernetes|dynamo|llm-d")] = "line",
    arguments: Annotated[Path | None, Option(metavar="FILE")] = None,
) -> Report:
    """Write the command line that starts a design, or read one.

    For Megatron-LM, Megatron-Bridge, NeMo, DeepSpeed, torchtitan, MaxText, the Trainer of Transformers, TRL, axolotl
    and LLaMA-Factory a training design, for vLLM, SGLang and TensorRT-LLM one that serves. Lists the values that the
    tool has no option for. Of a command line that is given, first prints the values that it states, as --set takes
    them. For a design that cannot run it prints the reasons; the exit status is 1 if they are about something that the
    line says.

    Args:
        options: Options of the design.
        tool: megatron-lm, megatron-bridge, nemo, deepspeed, torchtitan, maxtext, transformers, trl, axolotl,
            llama-factory; vllm, sglang, tensorrt-llm.
        role: Role of a pool of engines [default: an engine does both].
        form: line; the tool's own file; an experiment of Primus; a manifest, or values of a chart.
        arguments: File of the tool's arguments, a configuration or a manifest; settings override them [default: none].
    """
    from dse import tools as launching
    from dse.designs import leaf_path, short_name
    from dse.doors import STUDIES
    from dse.views.explanation import infeasibility_reasons
    from dse.views.sections import reason_lines

    tool_info = launching.tool_of(tool)
    study, tool_arguments = STUDIES[tool_info.study], launching.ArgumentValues({}, {})
    context: dict[str, Any] = {
        "workload": options.workload,
        "system": options.system,
        "n_devices": options.n_devices,
        "role": role,
    }
    if arguments is not None:
        tool_arguments = launching.read_arguments(tool, _text(arguments), **context)
    texts = setting_texts(options.settings)
    text_by_path = _texts_by_path(texts, tool_info.study == "serving")
    engines = ", ".join(sorted(name for name, entry in launching.TOOLS.items() if entry.study == "serving"))
    to_serve = f"name a tool that serves: --for {engines}"

    def apply_arguments(tool_arguments: ArgumentValues) -> tuple[list[str], DesignRequest]:
        paths = {name: leaf_path(name) for name in tool_arguments.settings}
        read_settings = [
            f"{name}={leaf_setting(paths[name], value)}"
            for name, value in tool_arguments.settings.items()
            if paths[name] not in text_by_path
        ]
        tool_defaults = [
            f"{name}={leaf_setting(leaf_path(name), value)}"
            for name, value in tool_arguments.defaults.items()
            if leaf_path(name) not in text_by_path
        ]
        stated = dataclasses.replace(options, settings=[*tool_defaults, *read_settings, *texts])
        return read_settings, stated.request(study, to_serve, tool_info.stack_tool or tool_info.name)

    read_settings, request = apply_arguments(tool_arguments)
    if tool_arguments.design_dependent and arguments is not None:  # with the weights under the other options
        tool_arguments = launching.read_arguments(tool, _text(arguments), request.design, **context)
        read_settings, request = apply_arguments(tool_arguments)
    line = launching.launch(request.design, tool, study, options.workload, request.stack, role, form, options.system)
    hardware, reasons = (
        launching.unsupported_hardware(tool, options.system),
        infeasibility_reasons(request.design, study),
    )
    document = {
        "tool": tool_info.name,
        "version": tool_info.version,
        "source": tool_info.source,
        "line": line.text,
        "settings": tool_arguments.settings,
        "defaults": dict(tool_arguments.defaults),
        "no_option": {short_name(path): value for path, value in line.unsupported.items()},
        "passed_over": tool_arguments.foreign_options,
        "not_read": tool_arguments.unread,
        "no_hardware": hardware,
        "notes": [*tool_arguments.notes, *line.notes],
        "comments": line.comments,
        "feasible": not reasons,
        "reasons": reasons,
    }
    comments, missing = _comments(request.design, line), _missing_options(line, hardware)
    notes = [*_argument_remarks(tool_arguments, text_by_path), *tool_arguments.notes, *request.readings]
    notes += ["stated: " + " ".join(f"--set {text}" for text in read_settings)] if read_settings else []
    notes += [*filter(None, [missing]), *line.notes, *(reason.text for reason in reason_lines(reasons))]
    status = NOTHING_FEASIBLE if any(reason.name not in _NO_OPTION for reason in reasons) else 0
    return Report(document, [verbatim("\n".join([*comments, line.text]))], notes, status=status)


def _takes_comments(line: LaunchLine) -> bool:
    """Return True for a line or a file with comments, which JSON has none of."""
    return not line.text.startswith("{")


def _comments(design: Design, line: LaunchLine) -> list[str]:
    """Return the lines of comments above a launch line: load, acceptance of drafts, values without an option."""
    if not _takes_comments(line):
        return []
    texts = []
    requests, serving = design.workload.requests, design.mapping.serving
    if requests is not None:
        answer = counted(requests.output_tokens, "output token")
        load = f"{_load_text(requests)}, {requests.prompt_tokens:g} prompt and {answer}"
        texts.append(f"load of the design: {load} (of the client)")
        if serving is not None and serving.drafts:
            acceptance = f"{serving.acceptance:g} per draft token"
            texts.append(f"acceptance of the design: {acceptance} (of model and draft)")
    if line.unsupported:
        texts.append(f"no option of {line.tool.name} {line.tool.version}: {', '.join(_unsupported_texts(line))}")
    return [f"# {text}" for text in (*texts, *line.comments)]


def _missing_options(line: LaunchLine, hardware: str) -> str:
    """Return a text on the hardware, and on values that no comment names, for which a tool has no option; "" for none.

    Args:
        line: of the tool.
        hardware: that the tool does not run on, "" for none.
    """
    texts = [*filter(None, [hardware]), *([] if _takes_comments(line) else _unsupported_texts(line))]
    return f"{line.tool.name} {line.tool.version} has no option for {', '.join(texts)}" if texts else ""


def _unsupported_texts(line: LaunchLine) -> list[str]:
    """Return a text for each value that the tool has no option for."""
    from dse.designs import short_name
    from dse.designs.neighbours import leaf_text

    return [f"{short_name(path)} = {leaf_text(path, value)}" for path, value in line.unsupported.items()]


def _load_text(requests: Requests) -> str:
    """Return a text of the load that a client makes: a rate, all at once, or the requests in flight."""
    from dse.types import Load, choice_name

    load = Load(int(requests.load))
    if load == Load.rate:
        return f"{digits(float(requests.request_rate or 0.0))} requests/s"
    if load == Load.offline:
        return f"{choice_name(load)}, all requests at once"
    return f"{counted(requests.concurrency, 'request')} in flight"


def _texts_by_path(settings: Sequence[str], serving: bool) -> dict[str, str]:
    """Return full path → text of ``NAME=VALUE`` by leaf, the last of several, without names that are no leaves."""
    from dse.designs import leaf_path

    pairs = (text.partition("=") for text in settings)
    text_by_name = {name.strip(): value.strip() for name, _, value in pairs if name.strip() not in _NO_LEAVES}
    return {leaf_path(name, "--set", serving): value for name, value in text_by_name.items()}


def _argument_remarks(tool_arguments: ArgumentValues, text_by_path: Mapping[str, str]) -> Iterator[str]:
    """Yield remarks on arguments of a tool that do not count: overridden by ``--set``, of other tools, or not read."""
    from dse.designs import leaf_path, leaf_value
    from dse.designs.neighbours import leaf_text

    for name, value in tool_arguments.settings.items():
        text = text_by_path.get(path := leaf_path(name))
        if text is not None and leaf_value(path, number_or_text(text), "--set") != value:
            yield f"{name}: the arguments state {leaf_text(path, value)}, --set {text}, which counts"
    for option, name in tool_arguments.foreign_options.items():
        yield f"{option} is passed over: it says nothing here; of other tools it is {name}"
    if tool_arguments.unread:
        yield f"not read: {', '.join(tool_arguments.unread)}"


def _text(file: Path) -> str:
    """Return the text of a file of options as on a command line; raise an InputError where it cannot be read."""
    from dse.io import inputs

    return inputs.text(file, "a text of options, as on a command line")
