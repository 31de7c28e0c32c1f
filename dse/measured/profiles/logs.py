"""Logs of tools, by the rows of ``formats.toml``; what rows cannot say of a tool's settings: :mod:`.log_settings`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

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
        """Read the run of a log: figures of its steps and others, and its configuration; [] for an engine without any.

        Of steps whose batch grows, those with the last one count.
        """
        run, settings, batches = MeasuredRun(self.tool, self.kind, {}), dict[str, str](), dict[int, str | None]()
        run.warm_up, loads = self.warm_up, EngineLoads(self.loads, self.prompts)
        for line in lines:
            run.tool = run.tool or next((tool for tool, words in self.tools.items() if re.search(words, line)), "")
            if (self.loads and loads.add(line)) or (self.lines and not re.search(self.lines, line)):
                continue
            matches = [(row, match) for row in self.rows if (match := row.match(line))]
            for row, match in matches:
                row.add(match, run, settings)
            step_figures = [row.figure_of(match) for row, match in matches if row.step]
            is_timed = bool(step_figures) and step_figures[0].metric == self.rows[0].figure
            number = self._step_number(line) if is_timed else None
            if number is not None:
                run.steps[number] = slower_rank(run.steps.get(number, step_figures), step_figures)
                batches[number] = run.cells.get("global_batch")
            elif re.search(self.setting_lines, line) if self.setting_lines else not matches:
                pairs = self._line_settings(line)
                settings = settings | pairs if self.last_setting else pairs | settings
        last_batch = run.cells.get("global_batch")
        run.steps = {number: figures for number, figures in run.steps.items() if batches[number] == last_batch}
        order = [row.column or row.figure for row in self.rows]
        row_cells = dict(sorted(run.cells.items(), key=lambda cell: order.index(cell[0])))
        run.cells = self._setting_cells(settings) | row_cells
        self.complete(run, settings)
        run.peaks = dict(sorted(run.peaks.items(), key=lambda peak: order.index(peak[0])))
        load_runs = loads.runs(run)
        return [run, *load_runs] if run.peaks or load_runs or self.kind != "engine" else []

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

    def _setting_cells(self, settings: Mapping[str, str]) -> dict[str, str]:
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


def log_format(name: str, rows: list[dict[str, Any]], **fields: Any) -> LogFormat:
    """Return a log format of the fields of a table of ``formats.toml``."""
    log_rows = tuple(LogRow(**{"as_" if key == "as" else key: value for key, value in row.items()}) for row in rows)
    complete = getattr(log_settings, f"complete_{name}", LogFormat.complete)
    return LogFormat(rows=log_rows, complete=complete, **fields)


#: Name → log that rows tell.
LOG_FORMATS = {
    name: log_format(name, **fields) for name, fields in toml.table(Path(__file__).with_name("formats.toml")).items()
}
