"""Designs of files that people have: recipes, launch scripts, manifests, configurations.

:func:`read` gives the values of a design that files state, with the defaults of their tool for what they leave out, and
what each option was read as. The rules between options and leaves are those of :mod:`dse.tools.rows`, which write
launch lines too; parts of files are those of :mod:`dse.tools.sources`; tool, model, chip and devices are recognised by
:mod:`dse.tools.recognition`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dse.designs import all_leaves, catalog, short_name
from dse.errors import InputError
from dse.tools import recognition
from dse.tools.calls import SCRIPT, called_scripts
from dse.tools.clients import is_client, load_of
from dse.tools.file_options import options_of_files, options_with_defaults
from dse.tools.identity import chip_of_files, devices_of_files, model_of_files, pseudo_options, usage_of_files
from dse.tools.models import completed_shape
from dse.tools.options import (
    CHIP,
    ByteDependentOption,
    Lookup,
    Tool,
    is_on,
)
from dse.tools.recognition import DeviceCount, NamedChip
from dse.tools.rows import defaults_of, holds
from dse.tools.rule_names import option_names, read_options
from dse.tools.sources import Sources, sources
from dse.tools.statuses import STATED, UNKNOWN, OptionReading, further_options, option_readings, paths_of_files

#: Degrees whose product the number of devices is a multiple of.
_DEGREES = ("mapping.tp", "mapping.pp", "mapping.cp")


@dataclasses.dataclass(frozen=True)
class RecipeReading:
    """A design as files state it."""

    tool: Tool
    version: str  #: that the files state, else that of the tool's table
    has_version: bool
    model_text: str  #: by which the files name the model, "" for none
    workload: str | None  #: of the catalogue
    shape: dict[str, float]  #: path → value of the leaves of the workload that options state
    chip: NamedChip | None
    devices: DeviceCount
    values: dict[str, float]  #: path → value of the leaves of mapping, software and load, stated or default
    stated: frozenset[str]  #: paths whose values the files state
    options: tuple[OptionReading, ...]
    raw: dict[str, str]  #: option → text, as the rules read them
    design_dependent: tuple[str, ...] = ()  #: options whose values need the bytes of a design
    notes: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()  #: what the model lacks without which a prediction would be of another run

    @property
    def settings(self) -> dict[str, float]:
        """Short name → value of the leaves of mapping, software and load."""
        return {short_name(path): value for path, value in self.values.items()}

    @property
    def system(self) -> str:
        """System or accelerator of the catalogue, "" for none."""
        return self.chip.name if self.chip else ""

    @property
    def n_devices(self) -> int | None:
        """Devices of a training run; None where they follow from the degrees."""
        return self.devices.total if self.tool.study == "training" else None

    @property
    def fields(self) -> tuple[dict[str, float], list[str]]:
        """Fields of the workload that the shape is, empty for none, and notes on what is assumed."""
        return completed_shape(self.shape, self.values.get("workload.seq_len"))

    @property
    def missing(self) -> list[str]:
        """What a reader has to add before the design can be evaluated."""
        texts = list(self.limits)
        if self.workload is None and not self.fields[0]:
            named = f" ({self.model_text} is not in the catalogue)" if self.model_text else ""
            texts.append(f"name the model{named}: -w NAME, or give its config.json too")
        if not self.system:
            texts.append("name the system or the accelerator: -s NAME")
        if self.tool.study == "training" and not self.devices.total and "mapping.dp" not in self.values:
            texts.append("give the number of devices: -n")
        return texts

    def shares(self, lookup: Lookup) -> dict[str, float]:
        """Return path → value of the options whose values need the bytes of a design, by its leaves."""
        rules = [rule for rule in self.tool.rules if isinstance(rule, ByteDependentOption)]
        return {path: value for rule in rules for path, value in rule.read_for_design(self.raw, lookup).items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the reading by short names of leaves."""
        return {
            "tool": self.tool.name,
            "version": self.version,
            "study": self.tool.study,
            "model": self.model_text,
            "workload": self.workload,
            "shape": {short_name(path): value for path, value in self.shape.items()},
            "chip": self.system,
            "chip_text": self.chip.word if self.chip else "",
            "n_devices": self.devices.total,
            "settings": self.settings,
            "stated": sorted(map(short_name, self.stated)),
            "options": [
                {
                    "option": option.option,
                    "value": option.text,
                    "status": option.status,
                    "leaves": {short_name(path): value for path, value in option.leaves.items()},
                    "moves": option.moves,
                    "file": option.file,
                }
                for option in self.options
            ],
            "missing": self.missing,
            "notes": list(self.notes),
        }


def read(
    texts: Mapping[str, str],
    tools: Mapping[str, Tool],
    tool: str = "",
    workload: str = "",
    system: str = "",
    n_devices: int | None = None,
    role: str = "",
    has_model: bool = False,
) -> RecipeReading:
    """Return the design that files state.

    Args:
        texts: name of a file → its text; a later file counts before an earlier one.
        tools: name → tool.
        tool: name of the tool; "" for the one that is recognised.
        workload: name of the model in the catalogue; "" for the one that the files name.
        system: name of the system or accelerator; "" for the one that the files name.
        n_devices: number of devices; None for the one that the files state.
        role: of a pool of an engine, ``prefill`` or ``decode``.
        has_model: whether something else says the model, and names in the files say nothing.

    Returns:
        Values by path, with what each option was read as.

    Raises:
        InputError: for files of no tool, invalid values, and values that contradict one another.
    """
    everything = sources(texts, role)
    files = everything._replace(parts=[part for part in everything.parts if not is_client(part.words)])
    where = ", ".join(texts)
    chosen = tools[tool] if tool else _recognised(files, tools, where)
    stated, places, notes, open_names, n_engines = options_of_files(files, chosen, role, where)
    launched = recognition.devices_of(files, stated, chosen.device_options)
    if launched.nodes and launched.total is None and chosen.host_devices:
        each = int(chosen.host_devices)
        launched = DeviceCount(launched.nodes * each, launched.nodes, each)
        notes.append(f"{each} devices of a node, as by default")
    chip = chip_of_files(files, stated, chosen, system, texts)
    devices = devices_of_files(files, stated, launched, chip, n_devices)
    model_text, slug = ("", None) if has_model else model_of_files(files, stated, chosen, workload, texts)
    version = recognition.version_of(chosen.name, files.text)
    pseudo = pseudo_options(chip, devices, slug, system) | usage_of_files(files)
    defaults = defaults_of(chosen, version, pseudo.get(CHIP, ""), pseudo | stated)
    stated.pop(SCRIPT, None)
    defaults = {name: text for name, text in defaults.items() if name not in open_names}
    merged = options_with_defaults(chosen, defaults, stated) | pseudo
    values = read_options(chosen, merged, where)
    unstated = read_options(chosen, options_with_defaults(chosen, defaults, {}) | pseudo, where, strict=False)
    alone = read_options(chosen, options_with_defaults(chosen, {}, stated) | pseudo, where, strict=False)
    stated_paths = paths_of_files(chosen, merged, stated, defaults, (values, unstated, alone))
    readings = option_readings(chosen, merged, stated, defaults, values, places, stated_paths, model_text)
    has_shares = any(isinstance(rule, ByteDependentOption) and rule.name in stated for rule in chosen.rules)
    if not slug and not has_shares and not any(reading.leaves for reading in readings if reading.status == STATED):
        scripts = ", ".join(dict.fromkeys(called_scripts(files)))
        got = f"no option of a design{f', {scripts} is not among the files' if scripts else ''}"
        raise InputError(where, got, f"options of {chosen.name} {chosen.version}", _NO_OPTION)
    values = _without_absent_experts(values, slug)
    if chosen.study == "serving":
        parts = everything.parts
        load = load_of([p.words for p in parts], [p.table for p in parts if p.table], everything.variables)
        values |= load.values
        loads = {name.lower() for name in load.options}
        readings = [
            reading
            for reading in readings
            if reading.status != UNKNOWN or reading.option.rpartition(".")[2].lower() not in loads
        ]
        readings += [
            OptionReading(name, text, STATED, {path: load.values[path] for path in paths}, file=load.client)
            for name, (text, paths) in load.options.items()
        ]
        stated_paths = stated_paths.union(load.values)
    readings += further_options(everything, {reading.option for reading in readings})
    if chosen.study == "serving" and n_devices is None:
        total = math.prod(values.get(path, 1.0) for path in (*_DEGREES, "mapping.dp"))
        devices = DeviceCount(int(total) * n_engines, devices.nodes, devices.per_node)
        if n_engines > 1:
            notes.append(f"{n_engines} engines of {total:g} devices each: the design is one of them")
    shape = {path: value for path, value in values.items() if is_shape(path)}
    shares = [rule.name for rule in chosen.rules if isinstance(rule, ByteDependentOption) and rule.name in merged]
    stated_shares = [
        rule.path for rule in chosen.rules if isinstance(rule, ByteDependentOption) and rule.name in stated
    ]
    return RecipeReading(
        chosen,
        version or chosen.version,
        bool(version),
        model_text,
        slug,
        shape,
        chip,
        devices,
        {path: value for path, value in values.items() if path not in shape},
        stated_paths.union(stated_shares),
        tuple(readings),
        merged,
        tuple(shares),
        (*files.notes, *notes, *filter(None, (remark(merged) for remark in chosen.remarks))),
        tuple(filter(None, (limit(merged) for limit in chosen.limits))),
    )


_NO_OPTION = "check the files and --for: docs/launch.md lists the options of each tool"


def _recognised(files: Sources, tools: Mapping[str, Tool], where: str) -> Tool:
    """Return the tool of files; InputError, with what was seen and what it resembles, where none is recognised."""
    files, other = recognition.without_other_programs(files)
    names = {name: option_names(entry) for name, entry in tools.items()}
    scores = recognition.scores(files, names)
    order = sorted((name for name in scores if name in tools), key=lambda name: -scores[name])
    foreign = recognition.foreign_framework(files)
    runs = not other or recognition.states_options(files, _own_options(tools[order[0]]) if order else frozenset())
    if order and scores[order[0]] >= _LEAST_SCORE and not foreign and runs:
        return tools[recognition.framework_of(files, order[0])]
    scripts = ", ".join(dict.fromkeys(called_scripts(files)))
    strange = [*filter(None, [foreign, other]), *recognition.strange_programs(files)]
    seen = [*strange, *_seen(files)]
    resembling = ", ".join(order[:3]) or "none"
    raise InputError(
        where,
        f"not recognised: no tool that dse reads; seen: {', '.join(seen[:8]) or 'nothing'}; it resembles: {resembling}",
        f"a file of {', '.join(tools)}",
        f"give {scripts} too, which states the options" if scripts else "name the tool: --for NAME",
    )


def _own_options(tool: Tool) -> frozenset[str]:
    """Return the options of a tool's rules, without those that launchers of other programs have too."""
    shared = {*tool.effects, *tool.chip_options, *itertools.chain(*tool.device_options.values())}
    return option_names(tool) - shared - recognition.launcher_options()


#: Signs below which a tool is not recognised.
_LEAST_SCORE = 2.0


def _seen(files: Sources) -> Iterator[str]:
    """Yield what files have at their top: keys of tables, programs of commands."""
    for part in files.parts:
        if part.table is not None:
            yield from map(str, itertools.islice(part.table, 6))
        elif part.words:
            yield part.words[0]


#: Leaves of a workload that are a recipe's, not of the model's shape.
_RECIPE = ("workload.seq_len", "workload.global_batch", "workload.requests.", "workload.adapters.")


def _without_absent_experts(values: Mapping[str, float], slug: str | None) -> dict[str, float]:
    """Return values without those of experts at their neutral value, of a model that has none."""
    if (slug is not None and catalog.is_mixture(slug)) or values.get("workload.experts.n_experts"):
        return dict(values)
    leaves = all_leaves()

    def is_neutral(path: str, value: float) -> bool:
        metadata = leaves.get(path, {})
        return value in (metadata.get("absent"), metadata.get("default"), 0.0, 1.0)

    return {
        path: value
        for path, value in values.items()
        if not (path.startswith(("mapping.experts.", "workload.experts.")) and is_neutral(path, value))
    }


def check(reading: RecipeReading, where: str) -> None:
    """Raise InputError for degrees that contradict the devices, the model or the batch: the tool does not start.

    Args:
        reading: of files.
        where: name of the files.
    """
    values, devices, slug = reading.shape | reading.values, reading.devices, reading.workload
    entry = catalog.entry("workload", slug) if slug else None

    def value(name: str) -> float:
        path = f"workload.{name}"
        return float(values.get(path) or (entry.value(name) if entry else 0.0) or 0.0)

    for path in _DEGREES:
        if values.get(path, 1.0) < 1.0:
            name = short_name(path)
            raise InputError(where, f"{name} {values[path]:g}", f"{name} of at least 1", f"correct {name}")
    if got := next(filter(None, (contradicts(reading.raw) for contradicts in reading.tool.contradictions)), ""):
        raise InputError(where, got, "degrees that divide the ranks", "correct one of them")
    degrees = math.prod(values.get(path, 1.0) for path in _DEGREES)
    tp, ep, dp = (values.get(f"mapping.{name}", 1.0) for name in ("tp", "experts.ep", "dp"))
    recognition.check_devices(devices.total, degrees, where)
    heads, experts = value("n_heads"), value("experts.n_experts")
    checks = [(heads, tp, "heads", "tp"), (experts, ep, "experts", "ep")]
    for count, degree, what, name in checks:
        if count and degree > 1.0 and count % degree:
            got = f"{count:g} {what} over {degree:g} ranks"
            raise InputError(where, got, f"{what} that are a multiple of {name}", f"correct {name}")
    if entry is not None and not experts and ep > 1.0:
        raise InputError(
            where, f"expert parallelism (ep {ep:g}) of {slug}, which has no experts", "ep 1", "leave it out"
        )
    batch, micro = (values.get(path) for path in ("workload.global_batch", "mapping.micro_batch"))
    replicas = devices.total / degrees if devices.total else dp if "mapping.dp" in values else 0.0
    if batch and micro and replicas and batch % (micro * replicas):
        got = f"a global batch of {batch:g}, micro-batches of {micro:g} on {replicas:g} data-parallel ranks"
        raise InputError(where, got, "a batch that is a multiple of both", "correct one of the batches")
    if "mapping.dp" in values and devices.total and batch and devices.total != degrees * dp:
        got = f"a global batch of {batch:g} of {dp:g} data-parallel ranks, on {devices.total} devices"
        raise InputError(
            where, got, f"{devices.total / degrees:g} data-parallel ranks", "correct the batch or a degree"
        )
    missing = [name for name in reading.tool.required if name not in reading.raw]
    if missing and reading.fields[0]:
        got, allowed = f"no {missing[0]}", f"what {reading.tool.name} needs to start: {missing[0]}"
        raise InputError(where, got, allowed, "add the option")
    for row in reading.tool.conflicts:
        if all(is_on(reading.raw, name) for name in row["options"]) and holds(row.get("leaves", {}), values.get):
            named = " and ".join((*row["options"], *map(short_name, row.get("leaves", ()))))
            raise InputError(where, f"{named}: {row['why']}", "one of them", "leave the other out")


def is_shape(path: str) -> bool:
    """True for a leaf of a model's shape."""
    return path.startswith("workload.") and not path.startswith(_RECIPE)
