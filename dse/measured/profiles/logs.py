"""Logs of tools, by the rows of ``formats.toml``; what rows cannot say of a tool's settings: :mod:`.log_settings`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.io import toml
from dse.measured.profiles import log_settings
from dse.measured.profiles.engine_loads import EngineLoads
from dse.measured.profiles.run import (
    WARM_UP,
    Figure,
    MeasuredRun,
    design_cells,
    device_slug,
    number_text,
    slower_rank,
)
from dse.measured.table import joined_remarks
from dse.tools import values_of

#: Figures above this are damaged text.
_LARGEST = 1e15

#: Text that a pattern matches → text of a cell or setting.
_CONVERSIONS: dict[str, Callable[[str], str]] = {"text": str, "lower": str.lower, "device": device_slug}


@dataclasses.dataclass(frozen=True)
class LogRow:
    """A pattern and what its first group is: a figure, a cell or a setting (meaning: ``formats.toml``)."""

    pattern: str
    figure: str = ""
    unit: str = ""
    scale: float = 1.0
    step: bool = False
    smallest: bool = False
    column: str = ""
    setting: str = ""
    value: str = ""
    as_: str = "number"
    tool: str = ""

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern."""
        return re.compile(self.pattern)

    def match(self, line: str) -> str:
        """Return the text that the row finds in a line, or its ``value``; "" for nothing or no positive number."""
        match = self.compiled.search(line)
        if not match or self.value:
            return self.value if match else ""
        text = match[1].replace(",", "") if self.as_ == "number" else _CONVERSIONS[self.as_](match[1])
        return text if self.as_ != "number" or 0.0 < _number(text) * self.scale < _LARGEST else ""

    def figure_of(self, text: str) -> Figure:
        """Return the figure of a text that the row found."""
        return Figure(self.figure, _number(text) * self.scale, self.unit)

    def add(self, text: str, run: MeasuredRun, settings: dict[str, str]) -> None:
        """Add a text that the row found to the cells and peaks of a run, or to settings, all in place."""
        run.tool = self.tool or run.tool
        if self.column:
            run.cells[self.column] = number_text(_number(text)) if self.as_ == "number" and not self.value else text
        elif self.setting:
            settings.setdefault(self.setting, text)
        elif not self.step:
            run.peak(self.figure_of(text), self.smallest)


def _number(text: str) -> float:
    """Return a text as a number, 0 where it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


@dataclasses.dataclass(frozen=True)
class LogFormat:
    """A log as rows, in the words of ``formats.toml``."""

    signature: str
    rows: tuple[LogRow, ...]
    tool: str = ""
    kind: str = "steps"
    warm_up: int = WARM_UP
    step: tuple[str, ...] = ()
    lines: str = ""
    settings: tuple[str, ...] = ()
    setting_lines: str = ""
    loads: tuple[str, ...] = ()
    prompts: str = ""
    drafts: str = ""
    begin: str = ""
    last_setting: bool = False
    tools: Mapping[str, str] = dataclasses.field(default_factory=dict)
    option_tool: str = ""
    prefix: str = ""
    dash: str = "_"
    on: str = ""
    off: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    off_cells: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    needs: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Adds to a run in place what rows cannot say of its settings, name → text.
    complete: Callable[[MeasuredRun, Mapping[str, str]], None] = lambda run, settings: None

    def read(self, lines: Iterable[str]) -> list[MeasuredRun]:
        """Read the runs of a log: figures of steps and others, and configurations; [] for an engine without any.

        Of steps whose batch grows, those with the last one count. Where steps begin anew, so does a run; one without
        steps after the warm-up is left out if another has some.

        Raises:
            InputError: for two configurations in what is one run by its steps.
        """
        parts, pending, loads = [_Part(self)], list[_Found](), EngineLoads(self.loads, self.prompts, self.drafts)
        tool = self.tool
        for line in lines:
            tool = tool or next((name for name, words in self.tools.items() if re.search(words, line)), "")
            if (self.loads and loads.add(line)) or (self.lines and not re.search(self.lines, line)):
                continue
            found = self._found(line)
            if found.step is None:
                pending += [found] if found.matches or found.pairs or found.begin else []
                continue
            if parts[-1].is_left(found, any(one.begin for one in pending)):
                begin = next((i for i, one in enumerate(pending) if one.begin), 0)
                parts[-1].add(pending[:begin])
                parts, pending = [*parts, _Part(self)], pending[begin:]
            parts[-1].add([*pending, found])
            pending = []
        parts[-1].add(pending)
        finished = [part.finished(tool) for part in parts]
        runs = [run for run in finished if len(run.steps) > self.warm_up] or finished
        for number, run in enumerate(runs):
            run.part = number
            if len(runs) > 1:
                run.note = joined_remarks(
                    run.note, f"run {number + 1} of {len(runs)}, which begins where steps do anew"
                )
        load_runs = loads.runs(runs[0])
        return [*runs, *load_runs] if runs[0].peaks or load_runs or self.kind != "engine" else []

    def _found(self, line: str) -> _Found:
        """Return what a line has."""
        matches = [(row, match) for row in self.rows if (match := row.match(line))]
        step_figures = [row.figure_of(match) for row, match in matches if row.step]
        is_timed = bool(step_figures) and step_figures[0].metric == self.rows[0].figure
        number = self._step_number(line) if is_timed else None
        has_settings = re.search(self.setting_lines, line) if self.setting_lines else not matches
        pairs = self._line_settings(line) if number is None and has_settings else {}
        begin = re.search(self.begin, line) if self.begin else None
        rank = "".join(match[0] for match in _RANK.finditer(line, 0, 200)) if number is not None else ""
        return _Found(matches, pairs, step_figures, number, rank, begin[0] if begin else "")

    def _step_number(self, line: str) -> int | None:
        """Return the number of the step that a line is of, None for other lines."""
        numbers = [int(match[1][-15:]) for pattern in self.step if (match := re.search(pattern, line))]
        return next(filter(None, numbers), 0) if numbers else None

    def _line_settings(self, line: str) -> dict[str, str]:
        """Return name → text of the settings in a line."""
        if self.setting_lines:
            pairs = [pair for pattern in self.settings for pair in re.findall(pattern, line)]
        else:
            match = next(filter(None, (re.search(pattern, line) for pattern in self.settings)), None)
            pairs = [match.groups()] if match else []
        return {name: value.strip().strip("'\"") for name, value in reversed(pairs)}

    def setting_cells(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return column → text of the settings of the tool, name → text; {} where its settings are no options."""
        if not self.option_tool:
            return {}
        options = {
            self.options.get(name, self.prefix + name.replace("_", self.dash)): log_settings.option_text(value, self.on)
            for name, value in settings.items()
            if value not in self.off
        }
        cells = design_cells(values_of(self.option_tool, options))
        for column, names in self.needs.items():
            if not set(names) <= settings.keys():
                cells.pop(column, None)
        for name, off_cells in self.off_cells.items():
            cells |= {c: text for c, text in off_cells.items() if settings.get(name) in self.off and c not in cells}
        numbers = {column: settings.get(name, "") for name, column in self.columns.items()}
        return cells | {column: text for column, text in numbers.items() if text.isdigit() and text != "0"}


class _Found(NamedTuple):
    """What a line has: matches of rows, settings, figures of a step, its number, its rank, words that begin a run."""

    matches: list[tuple[LogRow, str]]
    pairs: dict[str, str]
    step_figures: list[Figure]
    step: int | None
    rank: str
    begin: str


#: What tells apart who wrote a line, and the epochs in which a tool counts its steps anew.
_RANK = re.compile(r"(?i)\[(?:rank|default|worker) ?\d+\]|^\s*\[?\d+\]?:|^\([^)]{1,60}\)|\bepoch[ :#]+\d+")

#: Steps of a run from which the first one again is of another run, and not of another rank.
_OWN_STEPS = 3


class _Part:
    """A run of a log as far as it was read."""

    def __init__(self, log_format: LogFormat) -> None:
        """Begin with nothing."""
        self.format = log_format
        self.run = MeasuredRun(log_format.tool, log_format.kind, {}, warm_up=log_format.warm_up)
        self.settings, self.last_settings = dict[str, str](), dict[str, str]()
        self.begins, self.has_repeated = set[str](), False
        self.batches = dict[int, str | None]()
        self.seen = dict[str, tuple[int, int, int]]()  # rank → its first and last step, and how many it wrote

    def is_left(self, found: _Found, has_begun: bool) -> bool:
        """Return True where a step is the first of another run: its rank was there before, and beyond or begun anew."""
        if found.step is None or found.rank not in self.seen:
            return False
        first, last, count = self.seen[found.rank]
        return found.step <= first and (has_begun or (first < last and count >= _OWN_STEPS))

    def add(self, lines: Iterable[_Found]) -> None:
        """Add what lines have."""
        run = self.run
        for found in lines:
            self.has_repeated |= found.begin in self.begins
            self.begins |= {found.begin} - {""}
            for row, match in found.matches:
                row.add(match, run, self.settings)
            if found.step is not None:
                figures = found.step_figures
                run.steps[found.step] = slower_rank(run.steps.get(found.step, figures), figures)
                self.batches[found.step] = run.cells.get("global_batch")
                first, _, count = self.seen.get(found.rank, (found.step, 0, 0))
                self.seen[found.rank] = first, found.step, count + 1
            is_last = self.format.last_setting
            self.settings = self.settings | found.pairs if is_last else found.pairs | self.settings
            if self.has_repeated:
                self.last_settings |= found.pairs

    def finished(self, tool: str) -> MeasuredRun:
        """Return the run, or raise InputError for one of two configurations."""
        run, log_format = self.run, self.format
        run.tool = run.tool or tool
        last_batch = run.cells.get("global_batch")
        run.steps = {number: figures for number, figures in run.steps.items() if self.batches[number] == last_batch}
        order = [row.column or row.figure for row in log_format.rows]
        row_cells = dict(sorted(run.cells.items(), key=lambda cell: order.index(cell[0])))
        if self.last_settings and not log_format.last_setting:
            others = self._completed({}, self.settings | self.last_settings, run.tool).cells
            own = self._completed({}, self.settings, run.tool).cells
            if differ := [
                f"{name} {own.get(name, 'open')} and {text}" for name, text in others.items() if own.get(name) != text
            ]:
                got = f"two configurations in one run: {', '.join(differ)[:200]}"
                raise InputError(
                    "configuration", got, "one run, or several one after the other", "give the log of one run"
                )
        completed = self._completed(row_cells, self.settings, run.tool)
        run.cells, run.note, run.peaks = completed.cells, completed.note, completed.peaks  # and steps, in place
        run.peaks = dict(sorted(run.peaks.items(), key=lambda peak: order.index(peak[0])))
        return run

    def _completed(self, row_cells: Mapping[str, str], settings: Mapping[str, str], tool: str) -> MeasuredRun:
        """Return a copy of the run with the cells of its settings."""
        cells = {**self.format.setting_cells(settings), **row_cells}
        run = dataclasses.replace(self.run, tool=tool, cells=cells, peaks=dict(self.run.peaks))
        self.format.complete(run, settings)
        return run


def log_format(name: str, rows: list[dict[str, Any]], **fields: Any) -> LogFormat:
    """Return a log format of the fields of a table of ``formats.toml``."""
    log_rows = tuple(LogRow(**{"as_" if key == "as" else key: value for key, value in row.items()}) for row in rows)
    complete = getattr(log_settings, f"complete_{name}", LogFormat.complete)
    return LogFormat(rows=log_rows, complete=complete, **fields)


#: Name → log that rows tell.
LOG_FORMATS = {
    name: log_format(name, **fields) for name, fields in toml.table(Path(__file__).with_name("formats.toml")).items()
}
