"""``dse.read``: the design of recipes, launch scripts, manifests and configurations, and what it will do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.evaluate import DETAILS, explained
from dse.capabilities.recipes import RecipeDesign, parameter_counts, read_recipe
from dse.capabilities.settings import leaf_setting, number_or_text
from dse.io import counted
from dse.reports import Column, Line, Option, Report, Table, capability, heading, verbatim
from dse.reports.options import Devices, Force, Settings, Software
from dse.reports.report import NOTHING_FEASIBLE

if TYPE_CHECKING:
    from dse.capabilities.changes import Change
    from dse.capabilities.designs import DesignRequest
    from dse.designs.catalog.huggingface import ModelConfig
    from dse.tools import RecipeReading
    from dse.tools.statuses import OptionReading

#: Files of one run.
_Files = Annotated[
    str | Path | Sequence[str | Path],
    Option(is_argument=True, metavar="FILE …", terminal=list[str], local="names files"),
]


@capability("Ask", details=("options", "file", *DETAILS), local="reads files of this machine")
def read(
    files: _Files,
    workload: Annotated[str | None, Option(short="-w")] = None,
    system: Annotated[str | None, Option(short="-s")] = None,
    tool: Annotated[str | None, Option(flag="--for", metavar="TOOL")] = None,
    settings: Settings = None,
    n_devices: Devices = None,
    software: Software = None,
    role: Annotated[str, Option(metavar="prefill|decode")] = "",
    output: Annotated[Path | None, Option(short="-o", metavar="FILE", local="writes a file")] = None,
    force: Force = False,
    uncertainty: Annotated[bool, Option(flag="--uncertainty/--no-uncertainty")] = True,
) -> Report:
    """Read a recipe, and say what it will do.

    Recipes, launch scripts, manifests and configurations of training and serving tools: the tool, the model, the chip
    and the number of devices are recognised. Shows what each option was read as, the defaults of the tool, and the
    options that the model does not have; then whether the design fits, its time, what is slow, and the changes that
    buy most. Nothing of a file is executed.

    Args:
        files: Files of one run; a later one counts before an earlier one.
        workload: Workload, by its name in the catalogue [default: the one that the files name].
        system: System or accelerator, by its name in the catalogue [default: the one that the files name].
        tool: Tool of the files [default: the one that is recognised].
        settings: Values of the design, which count before those of the files.
        n_devices: Number of devices [default: the one that the files state].
        software: Software stack [default: that of the tool].
        role: Role of a pool of engines, where files have several [default: the only one].
        output: File to write the changed file to [default: none].
        force: Replace a file that dse has not written.
        uncertainty: 80 % intervals of times, rates, energy and peak memory.
    """
    from dse.io import inputs
    from dse.reports.settings import setting_texts

    paths = [files] if isinstance(files, str | Path) else list(files)
    texts = {str(path): inputs.text(path, "a recipe, a script, a manifest or a configuration") for path in paths}

    def read_again(texts: Mapping[str, str]) -> RecipeDesign:
        return read_recipe(texts, tool or "", workload or "", system or "", n_devices, role)

    recipe = read_again(texts)
    document: dict[str, Any] = {"read": _read_document(recipe)}
    sections, notes = list(_reading_sections(recipe)), list(recipe.reading.notes if recipe.reading else ())
    notes += _spelling_notes(recipe)
    if recipe.missing:
        notes.append(f"to say what it will do: {'; '.join(recipe.missing)}")
        return Report(document, sections, notes, status=NOTHING_FEASIBLE)
    with recipe.named_workload() as name:
        request = recipe.request(name, setting_texts(settings), software)
        report = explained(request, None, uncertainty)
        changed = _changed(texts, recipe, request, report["changes"], read_again)
    document |= {**report.document, "file": changed}
    sections += report.sections
    files_written = []
    if changed:
        sections += [
            Line(f"the files with {'; '.join(changed['changes'])}", show="file"),
            *(verbatim(text, show="file") for text in changed["texts"].values()),
        ]
        files_written = _write(output, force, changed["texts"])
        notes += [f"{output} has {'; '.join(changed['changes'])}"] if output else []
    else:
        notes += (
            [f"{output} is not written: no change of an option of {_tool_name(recipe)} improves it"] if output else []
        )
        sections.append(Line("no change of an option improves it by a per cent: the file stays as it is", show="file"))
    return Report(document, sections, [*notes, *report.notes], files=files_written, status=report.status)


# --- what was read


def _read_document(recipe: RecipeDesign) -> dict[str, Any]:
    """Return what was read as a document: tool, model, chip, devices, settings, options; the fields of a model."""
    document: dict[str, Any] = recipe.reading.to_dict() if recipe.reading else {"missing": recipe.missing}
    if recipe.model is not None:
        model = recipe.model
        document["model_config"] = {
            "name": recipe.model_name,
            "fields": dict(model.fields),
            "remarks": model.remarks,
            "read": list(model.read),
            "silent": list(model.silent),
            "unread": list(model.unread),
        }
    return document


def _reading_sections(recipe: RecipeDesign) -> Iterator[Line | Table]:
    """Yield what was recognised, the options with their leaves, and those without."""
    if recipe.model is not None:
        yield from _model_sections(recipe.model, recipe.model_name)
    if recipe.reading is not None:
        yield from _option_sections(recipe.reading)


def _model_sections(model: ModelConfig, name: str) -> Iterator[Line | Table]:
    """Yield the shape that a configuration of a model states, and what it leaves out."""
    yield heading(f"{name}: {model.model_type or 'model'}, {_parameters_text(model)}")
    rows = [{"field": field, "value": str(value)} for field, value in model.fields.items()]
    yield Table(
        "model", (Column("field", "field", left=True), Column("value", "value", left=True)), rows, show="options"
    )
    yield from map(Line, model.remarks)


def _parameters_text(model: ModelConfig) -> str:
    """Return the number of parameters of a model as text."""
    total, active = parameter_counts(model)
    mixture = f", {active / 1e9:.3g} G for a token" if active < total else ""
    return f"{total / 1e9:.4g} G parameters{mixture}"


def _option_sections(reading: RecipeReading) -> Iterator[Line | Table]:
    """Yield what was recognised of a recipe, and its options."""
    from dse.tools import recognition
    from dse.tools.statuses import DEFAULT, NOT_MODELLED, STATED, UNKNOWN

    version = f" {reading.version}" if reading.has_version else f", as of {reading.version}"
    model = reading.workload or (
        f"a model of {reading.shape.get('workload.n_layers', 0):g} layers" if reading.fields[0] else "model not named"
    )
    named = f" ({reading.model_text})" if reading.model_text and reading.model_text != reading.workload else ""
    chip = (
        f"{reading.system} ({reading.chip.word})"
        if reading.chip and reading.chip.word != reading.system
        else reading.system
    )
    devices = counted(reading.devices.total, "device") if reading.devices.total else ""
    yield heading(f"{recognition.title_of(reading.tool.name)}{version}: {model}{named}")
    yield Line(" on ".join(filter(None, [devices, chip or "no chip named"])))
    by_status = {
        status: [o for o in reading.options if o.status == status]
        for status in (STATED, DEFAULT, NOT_MODELLED, UNKNOWN)
    }
    silent = [option for option in by_status[NOT_MODELLED] if option.moves == "nothing"]
    moving = [option for option in by_status[NOT_MODELLED] if option.moves != "nothing"]
    names = [option for option in by_status[STATED] if not option.leaves and option.moves == "launcher"]
    deciding = [option for option in by_status[STATED] if option not in names]
    yield Table("options", _COLUMNS, [*deciding, *moving, *by_status[UNKNOWN]], title="options")
    defaults = dict.fromkeys(text for option in by_status[DEFAULT] for text in _texts_of_leaves(option))
    if defaults:
        yield Line(f"defaults of {reading.tool.name} {reading.version}: {', '.join(defaults)}")
    if silent:
        shown = ", ".join(option.option for option in silent)
        yield Line(f"{counted(len(silent), 'option')} without effect on time and memory: {shown}")
    more = [*names, *by_status[DEFAULT], *silent]
    yield Table("more options", _COLUMNS, more, title="launcher, defaults, and what changes nothing", show="options")


def _texts_of_leaves(option: OptionReading) -> list[str]:
    """Return the leaves of an option as ``--set`` takes them."""
    from dse.designs import short_name

    return [f"{short_name(path)}={leaf_setting(path, value)}" for path, value in option.leaves.items()]


def _leaf_texts(option: OptionReading) -> str:
    """Return the leaves of an option as ``--set`` takes them, or what it names."""
    if option.leaves:
        return ", ".join(_texts_of_leaves(option))
    return f"({option.moves})" if option.status == "stated" and option.moves else ""


def _status_text(option: OptionReading) -> str:
    """Return what an option is, with what it would move."""
    return f"{option.status}: {option.moves}" if option.status == "not modelled" else option.status


_COLUMNS = (
    Column("option", "option", left=True, prose=True),
    Column("value", "text", left=True, prose=True),
    Column("is", "status", left=True, row_text=_status_text),
    Column("read as", "leaves", left=True, prose=True, row_text=_leaf_texts),
    Column("moves", "moves", hidden=True),
    Column("file", "file", hidden=True),
)


# --- the same file with changes


def _changed(
    texts: Mapping[str, str], recipe: RecipeDesign, request: DesignRequest, changes: Sequence[Change], read_again: Any
) -> dict[str, Any]:
    """Return the files with the changes of the mapping that buy most, and these; empty where there are none."""
    from dse import tools
    from dse.designs import leaf_path, leaf_value, replace
    from dse.tools.rewriting import rewritten
    from dse.views.explanation import infeasibility_reasons

    reading = recipe.reading
    if reading is None:
        return {}
    serves, moves, design = reading.tool.study == "serving", dict[str, float](), request.design
    applied, result = list[str](), dict[str, str]()
    for change in changes:
        if change.memory is None:
            continue
        pairs = (text.partition("=") for text in change.change.split(", "))
        values = {leaf_path(name, "--set", serves): value for name, _, value in pairs}
        numbers = {path: leaf_value(path, number_or_text(value)) for path, value in values.items()}
        if numbers.keys() & moves.keys():
            continue
        candidate = replace(design, numbers)
        if moves and infeasibility_reasons(candidate, request.study):  # each runs, both do not
            continue
        lookups = (
            tools.design_lookup(request.design, reading.workload or "", reading.system),
            tools.design_lookup(candidate, reading.workload or "", reading.system),
        )
        attempt = rewritten(texts, reading, lookups, {**moves, **numbers}, lambda texts: read_again(texts).reading)
        if attempt is not None:
            moves |= numbers
            design = candidate
            applied.append(change.change)
            result = attempt
    return {"changes": applied, "texts": result} if applied else {}


def _spelling_notes(recipe: RecipeDesign) -> Iterator[str]:
    """Yield a note for each unknown option that is spelt like one of the tool."""
    import difflib

    from dse.tools import option_names
    from dse.tools.statuses import UNKNOWN

    reading = recipe.reading
    if reading is None:
        return
    unknown = [option.option for option in reading.options if option.status == UNKNOWN]
    for name in unknown[:50]:
        if close := difflib.get_close_matches(name, option_names(reading.tool), 1, 0.9):
            yield f"{name} is unknown: did you mean {close[0]}?"


def _tool_name(recipe: RecipeDesign) -> str:
    """Return the name of the tool of a recipe."""
    return recipe.reading.tool.name if recipe.reading else "the configuration"


def _write(output: Path | None, force: bool, texts: Mapping[str, str]) -> list[Path]:
    """Write the changed file, and return it; none without an output."""
    from dse.io import outputs

    if output is None:
        return []
    with outputs.replacing(output, force, [Path(name) for name in texts]) as partial:
        partial.write_text(list(texts.values())[-1], encoding="utf-8")
    return [output]
