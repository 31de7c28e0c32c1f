"""One run that a file of a tool tells of: its configuration as cells of a table, and what was measured."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import re
import statistics
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from dse.designs import catalog
from dse.errors import InputError
from dse.io import inputs, toml
from dse.types import AllToAll, Graph, Precision, Recompute, Schedule, choice_name

#: Steps at the start that are left out: compilation, first allocations, links that are set up.
WARM_UP = 2

#: Characters of a line that are read at once; a longer one counts as several.
_LINE = 1 << 16

ALLOWED = (
    "logs of Megatron-LM, NeMo, torchtitan, MaxText, MLPerf; golden values; exported CSV of W&B; results of vllm bench "
    "serve, sglang bench_serving, GenAI-Perf, AIPerf; logs of vLLM, SGLang, TensorRT-LLM; output of nccl-tests, "
    "rccl-tests; traces of the profilers of PyTorch and JAX, SQLite exports of Nsight Systems; logs of nvidia-smi, "
    "dcgmi dmon, dcgm-exporter"
)


class Figure(NamedTuple):
    """A measured figure of a run."""

    metric: str
    value: float
    unit: str


class TimeWindow(NamedTuple):
    """Begin and end of a measured part, in s since 1970 by a clock in UTC or in a local time."""

    start: float
    end: float
    is_utc: bool


#: How tools write times, and those that need no separators.
_TIME = re.compile(r"(\d{4})[-/]?(\d\d)[-/]?(\d\d)[T _-](\d\d):?(\d\d):?(\d\d)(?:[.,](\d{1,9}))?", re.ASCII)


def seconds_of(value: Any) -> float:
    """Return a time in s since 1970, of a number or of a text as if it were in UTC, 0 where it is none.

    >>> seconds_of("2025/11/20 10:11:12.500") - seconds_of("20251120-101112"), seconds_of(17.5)
    (0.5, 0.0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 1e8 < value < 1e10 else 0.0
    match = _TIME.search(value) if isinstance(value, str) else None
    if match is None:
        return 0.0
    try:
        moment = datetime.datetime(*map(int, match.groups()[:6]), tzinfo=datetime.UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        return 0.0
    return moment.timestamp() + (float(f"0.{match[7]}") if match[7] else 0.0)


@dataclasses.dataclass
class MeasuredRun:
    """A configuration with its measured figures.

    ``steps``: step → its figures, of which medians are taken; ``peaks``: figures of which the largest counts.
    """

    tool: str
    kind: str  #: of its table: steps, serving, or collectives; telemetry and engine belong to runs of other files
    cells: dict[str, str]
    steps: dict[int, list[Figure]] = dataclasses.field(default_factory=dict)
    peaks: dict[str, Figure] = dataclasses.field(default_factory=dict)
    files: tuple[str, ...] = ()
    note: str = ""
    warm_up: int = WARM_UP
    part: int = 0  #: of a file with several runs: those of equal cells are no ranks of one
    guessed: tuple[str, ...] = ()  #: columns that another file of the run may replace
    window: TimeWindow | None = None  #: when the measured part ran, where the file says it
    #: Of a log of power: a time → the figures of each device in it.
    within: Callable[[TimeWindow], list[list[Figure]]] | None = None
    shares: dict[str, str] = dataclasses.field(default_factory=dict)  #: column → ms a step, of parts of a step
    vendor: str = ""  #: of the device, where the file tells it apart from its name

    def figures(self) -> list[Figure]:
        """Return the median of each figure over the steps after the warm-up, and peaks."""
        measured_steps = [self.steps[step] for step in sorted(self.steps)][self.warm_up :]
        by_name: dict[tuple[str, str], list[float]] = {}
        for figure in (figure for step in measured_steps for figure in step):
            by_name.setdefault((figure.metric, figure.unit), []).append(figure.value)
        medians = [Figure(name, statistics.median(values), unit) for (name, unit), values in by_name.items()]
        return [*medians, *self.peaks.values()]

    def peak(self, figure: Figure, smallest: bool = False) -> None:
        """Keep a figure if it is the largest, or ``smallest``, of its name so far."""
        peak = self.peaks.get(figure.metric)
        if peak is None or (figure.value < peak.value if smallest else figure.value > peak.value):
            self.peaks[figure.metric] = figure


def merge_ranks(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    """Return the runs with those of steps with equal cells merged: ranks, of which the slowest has the time of a step.

    Other runs that are equal in all count once.
    """
    run_by_key: dict[object, MeasuredRun] = {}
    for run in runs:
        key = (
            run.tool,
            run.kind,
            run.part,
            *sorted(run.cells.items()),
            *(() if run.kind == "steps" else run.figures()),
        )
        if (first_run := run_by_key.setdefault(key, run)) is run:
            continue
        first_run.files = tuple(dict.fromkeys((*first_run.files, *run.files)))
        for step, figures in run.steps.items():
            first_run.steps[step] = slower_rank(first_run.steps.get(step, figures), figures)
        for figure in run.peaks.values():
            first_run.peak(figure)
    return list(run_by_key.values())


def slower_rank(first: list[Figure], second: list[Figure]) -> list[Figure]:
    """Return the figures of a step by that of two ranks which is slower, by the first figure: a time or a rate."""
    if not first or not second or first[0].metric != second[0].metric:
        return first or second
    return max(first, second, key=lambda figures: figures[0].value * (1.0 if "time" in figures[0].metric else -1.0))


# Files


def open_file(path: Path, limit: int) -> IO[bytes]:
    """Open a regular file of at most ``limit`` bytes, unpacked where its name ends in ``.gz``, or raise InputError."""
    try:
        path = inputs.check_input(path, limit, ALLOWED)
        return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error), ALLOWED, "check the path") from None


def read_blocks(path: Path, limit: int, size: int = 1 << 20) -> Iterator[bytes]:
    """Yield unpacked content block by block, or raise InputError for a damaged file or more than ``limit`` bytes."""
    n_bytes = 0
    with open_file(path, limit) as file:
        max_bytes = inputs.max_unpacked_bytes(path, limit, ALLOWED)
        while block := _block(file, path, size):
            n_bytes += len(block)
            if n_bytes > max_bytes < limit:
                raise inputs.archive_error(path, ALLOWED)
            if n_bytes > limit:
                raise InputError(str(path), f"more than {limit >> 20:,} MiB", ALLOWED, "give a shorter run, or its end")
            yield block


def _block(file: IO[bytes], path: Path, size: int) -> bytes:
    """Return up to ``size`` bytes of a file, b"" at its end; InputError for a damaged one."""
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(str(path), str(error), ALLOWED, "copy the file again: it is damaged or cut") from None


#: Colours and other codes of terminals.
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a log without codes of terminals, with what is not UTF-8 replaced."""
    remainder = b""
    for block in read_blocks(path, inputs.MAX_TABLE_BYTES):
        *complete_lines, remainder = (remainder + block).replace(b"\r", b"\n").split(b"\n")
        for line in complete_lines:
            yield _CODES.sub("", line[:_LINE].decode("utf-8", "replace"))
        remainder = remainder[:_LINE]
    if remainder:
        yield _CODES.sub("", remainder.decode("utf-8", "replace"))


# Cells

#: Rows of ``cells.toml``: what files of tools tell of as columns.
CELL_ROWS = toml.table(Path(__file__).with_name("cells.toml"))

#: Leaf → choices, of columns of names.
_CHOICES = {
    "mapping.precision": Precision,
    "mapping.recompute": Recompute,
    "mapping.schedule": Schedule,
    "mapping.graph": Graph,
    "mapping.experts.all_to_all": AllToAll,
}


def design_cells(values: Mapping[str, float]) -> dict[str, str]:
    """Return column → text for leaves of a design (path → value), without those without a column or open (-1)."""
    cells = {
        column: number_text(values[path])
        for path, column in CELL_ROWS["numbers"].items()
        if values.get(path, -1.0) >= 0.0
    }
    choices = {
        column: choice_name(_CHOICES[path](int(values[path])))
        for path, column in CELL_ROWS["choices"].items()
        if path in values
    }
    return cells | choices


def number_text(value: float) -> str:
    """Return a number as text with up to 15 digits."""
    return f"{value:.15g}"


def known_model(*names: str) -> str:
    """Return the first of the names of a model that the catalogue knows, else the first that is none, "" for none."""
    given = [name for name in names if name]
    return next((name for name in given if catalog.find("workload", name)), next(iter(given), ""))


# Accelerators

#: Words of slugs that names of devices may leave out; forms of a chip, of which modules are not named.
_IMPLIED, _FORMS = re.compile(r"sxm|\d+gb|nvl\d+|ironwood|hbm\w+"), {"sxm", "pcie", "nvl"}


def device_slug(name: str) -> str:
    """Return the accelerator for the name that a driver gives a device, "" where none or several match.

    >>> device_slug("NVIDIA H100 80GB HBM3"), device_slug("NVIDIA A100 80GB PCIe"), device_slug("NVIDIA X1")
    ('h100-sxm-80gb', 'a100-pcie-80gb', '')
    """
    if catalog_slug := catalog.find("accelerator", name):
        return catalog_slug
    name_words = set(re.findall(r"[a-z0-9]+", re.sub(r"sxm\d", "sxm", name.lower())))
    sizes = {word for word in name_words if re.fullmatch(r"\d+gb", word)}
    matches = []
    for slug in catalog.names("accelerator"):
        slug_words = set(slug.split("-"))
        size = {word for word in slug_words if re.fullmatch(r"\d+gb", word)}
        if {word for word in slug_words - name_words if not _IMPLIED.fullmatch(word)} or (
            size and sizes and size != sizes
        ):
            continue
        form = slug_words & _FORMS
        if (not form or form == (name_words & _FORMS or {"sxm"})) and (
            "hbm2e" not in slug_words or "hbm2e" in name_words
        ):
            matches.append(slug)
    return matches[0] if len(matches) == 1 else ""


def device_cells(name: Any) -> dict[str, str]:
    """Return the cell ``gpu`` for the name that a driver gives a device, {} where it is not known."""
    slug = device_slug(str(name))
    return {"gpu": slug} if slug else {}
