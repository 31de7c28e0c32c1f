"""Results of ``vllm bench serve --save-result``, ``sglang.bench_serving`` (JSON lines), GenAI-Perf and AIPerf (JSON).

Lengths are means over the finished requests. Where requests came at a rate, those in flight are their rate times their
mean latency (Little's law), and the time to the first token, part of which is waiting, is left out.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.errors import ELSEWHERE, InputError, plain
from dse.io import inputs
from dse.measured.profiles import series
from dse.measured.profiles.engines import engine_cells
from dse.measured.profiles.run import (
    ALLOWED,
    CELL_ROWS,
    Figure,
    MeasuredRun,
    TimeWindow,
    known_model,
    number_text,
    read_blocks,
    seconds_of,
)
from dse.measured.table import joined_remarks

#: Requests that engines run together by default; more of them queue, and are a run offline.
_DEFAULT_BATCH = 256

#: Times, part of which is waiting; remarks on loads.
_WAITING = ("ttft_mean", "latency_total")
_RATE = "requests came at a rate: those in flight by Little's law"
_BURST = "a burst, all requests at once: of its times none is that of a steady state"


def read(path: Path) -> list[MeasuredRun]:
    """Read the runs of a file, one per JSON document, or raise InputError for a file that has none."""
    runs = []
    for document in _documents(path):
        reader = next((read for keys, read in _READERS.items() if set(keys) <= document.keys()), None)
        if reader is None:
            keys = ", ".join(list(document)[:8])
            raise _foreign_file(path, f"JSON with the keys {keys}" if keys else "JSON without keys")
        if (run := reader(document)) is None:
            raise InputError(str(path), "no finished requests", "a result with finished requests", "run it again")
        runs.append(run)
    if not runs:
        raise _foreign_file(path, "JSON that is no table of results")
    return runs


def _foreign_file(path: Path, got: str) -> InputError:
    """Return the error for a file of no such tool, for the caller to raise."""
    return InputError(str(path), got, ALLOWED, "give the file that the tool wrote, whole")


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, or raise InputError for other content."""
    content = b"".join(read_blocks(path, inputs.MAX_TABLE_BYTES)).decode("utf-8-sig", "replace").rstrip()
    decoder = json.JSONDecoder()
    position = 0
    while position < len(content):
        try:
            document, position = decoder.raw_decode(content, _BLANK.match(content, position).end())  # type: ignore[union-attr]
        except (ValueError, RecursionError) as error:
            raise _foreign_file(path, f"JSON that is cut or damaged ({error})") from None
        if not isinstance(document, dict):
            raise _foreign_file(path, f"JSON of a {type(document).__name__}")
        yield document


_BLANK = re.compile(r"\s*")


def _number(value: Any) -> float:
    """Return a value as a number where it is a positive one, else 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0.0 < value < 1e18 else 0.0


def _client_run(result: Mapping[str, Any]) -> MeasuredRun | None:
    """Return the run of a result of vLLM's or SGLang's client, which have the same keys; None if nothing finished.

    The engine is the server where it states itself, else that of the client's protocol, which another file may replace.
    """
    n_finished, info = _number(result.get("completed")), result.get("server_info")
    if not n_finished:
        return None
    is_sglang = "server_info" in result or "total_output_tokens_retokenized" in result
    run = MeasuredRun("sglang" if is_sglang else "vllm", "serving", _metadata_cells(result))
    protocol = str(result.get("backend") or result.get("endpoint_type"))
    run.cells["framework"] = CELL_ROWS["client"]["engines"].get(protocol.partition("-")[0], run.tool)
    server_cells = _server_cells(info)
    run.cells |= server_cells | ({"framework": "sglang"} if server_cells else {})
    run.guessed = () if server_cells else ("framework",)
    if isinstance(model := result.get("model_id"), str):
        run.cells["model"] = known_model(model, server_cells.get("model", ""))
    for column, key in {"isl": "total_input_tokens", "osl": "total_output_tokens"}.items():
        if total := _number(result.get(key)):
            run.cells[column] = number_text(total / n_finished)
    figures = {
        name: _number(result.get(key)) for key, name in CELL_ROWS["client"]["times"].items() if _number(result.get(key))
    }
    if _is_chunked(result):
        figures.pop("itl_median", None)
    if _has_roles(info):
        run.note = "prefill and decode are servers of their own: mapping and times are those of a server that decodes"
        figures = {name: value for name, value in figures.items() if name in ("tpot_mean", "itl_median")}
    _add_load(run, result, n_finished, figures)
    run.window = _window(result)
    if not _has_roles(info):
        _add_output_rate(run, result.get("output_throughput"))
    return run


def _add_load(run: MeasuredRun, result: Mapping[str, Any], n_finished: float, figures: dict[str, float]) -> None:
    """Add to a run, in place, its requests in flight and those times that a steady state of them has.

    Where as many requests are allowed in flight as there are, all come at once: a burst has no steady state, and its
    rate alone counts.
    """
    later_tokens = max(float(run.cells.get("osl", 1.0)) - 1.0, 0.0)
    stream_ms = figures.get("ttft_mean", 0.0) + figures.get("tpot_mean", 0.0) * later_tokens
    latency = 1e-3 * (figures.get("latency_total") or stream_ms)
    rate, max_concurrency = _number(result.get("request_rate")), _number(result.get("max_concurrency"))
    batch, batch_kind = min(max_concurrency or n_finished, n_finished), "concurrency"
    # Of requests at a rate fewer may be in flight than the limit allows.
    if rate and not (max_concurrency and rate * latency > max_concurrency):
        batch = max(_number(result.get("request_throughput")) * latency, 1.0)
        run.note = joined_remarks(run.note, _RATE)
        figures = {name: value for name, value in figures.items() if name not in _WAITING}
    elif max_concurrency < (_number(result.get("num_prompts")) or n_finished):
        if not max_concurrency:
            batch_kind = "static batch" if n_finished <= _DEFAULT_BATCH else "offline"
            figures = {}
    else:
        batch_kind, figures = "static batch", {}
    if batch_kind != "concurrency":
        run.note = joined_remarks(run.note, _BURST)
    run.cells |= {"batch": number_text(batch)} if batch_kind != "offline" else {}
    run.cells["batch_kind"] = batch_kind
    run.peaks = {name: Figure(name, value, "ms") for name, value in figures.items()}


#: Mean time between messages over that between tokens from which a message has several tokens; share of the mean time
#: between messages below which their median is that of messages which arrived together.
_CHUNKED, _TOGETHER = 1.2, 0.1


def _is_chunked(result: Mapping[str, Any]) -> bool:
    """Return True where messages of a stream have several tokens, or arrive together: no step has their median."""
    between, token, median = (_number(result.get(f"{key}_ms")) for key in ("mean_itl", "mean_tpot", "median_itl"))
    return bool(token and between > _CHUNKED * token) or median < _TOGETHER * between


def _has_roles(info: Any) -> bool:
    """Return True where a server states that prefill and decode are apart."""
    if not isinstance(info, dict):
        return False
    nested = info.get("internal_states")
    states = [info, *(state for state in nested if isinstance(state, dict))] if isinstance(nested, list) else [info]
    return "decode" in info or any(state.get("disaggregation_mode") in ("prefill", "decode") for state in states)


def _window(result: Mapping[str, Any]) -> TimeWindow | None:
    """Return when a benchmark ran, None where its result does not say it."""
    rows = CELL_ROWS["client"]["windows"]
    start, end = (
        next(filter(None, (seconds_of(result.get(key)) for key in rows[name])), 0.0) for name in ("start", "end")
    )
    if start and end > start:
        return TimeWindow(start, end, is_utc=True)
    end, duration = seconds_of(result.get("date")), _number(result.get("duration"))
    return TimeWindow(end - duration, end, is_utc=False) if end and duration else None


#: The begin and the end of a printed table; a label with its value; a printed argument with its value.
PRINTED, _END = re.compile(r"=+ Serving Benchmark Result =+"), re.compile(r"={30}\s*$")
_LABELS = sorted(CELL_ROWS["client"]["labels"], key=len, reverse=True)
_LABEL = re.compile(rf"(?:^|\s)({'|'.join(map(re.escape, _LABELS))}):\s+(\S+(?: \S+)?)\s*$")
_ARGUMENT = re.compile(r"\b([a-z_]{3,40})=('[^']{0,500}'|\"[^\"]{0,500}\"|[\w.\-/+]{1,100})")


def read_printed(lines: Iterable[str]) -> list[MeasuredRun]:
    """Read the runs of the tables that a client printed, one each, or raise InputError for a table without figures."""
    runs: list[MeasuredRun] = []
    arguments: dict[str, Any] = {}
    result: dict[str, Any] | None = None
    for line in itertools.chain(lines, ["Namespace("]):
        is_begin = PRINTED.search(line) is not None
        if (is_begin or "Namespace(" in line) and result is not None:
            runs.append(_printed_run(arguments | result))
            result = None
        if "Namespace(" in line:
            names = CELL_ROWS["client"]["arguments"]
            pairs = {name: text.strip("'\"") for name, text in _ARGUMENT.findall(line)}
            arguments = {names[name]: _typed(text) for name, text in pairs.items() if name in names and text != "None"}
        elif is_begin:
            result = {}
        elif result is not None and _END.search(line):
            runs.append(_printed_run(arguments | result))
            result = None
        elif result is not None and (label := _LABEL.search(line)) and label[2] != "not set":
            result[CELL_ROWS["client"]["labels"][label[1]]] = _typed(label[2])
    return runs


def _printed_run(result: Mapping[str, Any]) -> MeasuredRun:
    """Return the run of a printed table, or raise InputError for one without figures."""
    run = _client_run(result)
    if run is None or not run.peaks:
        texts = [f"{name} {value}" for name, value in result.items() if not isinstance(value, float | bool)]
        numbers = (
            ", ".join(f"{name} {run.cells[name]}" for name in ("isl", "osl", "batch") if name in run.cells)
            if run
            else ""
        )
        got = f"a printed table without figures ({'; '.join(filter(None, (numbers, *texts)))[:300]})"
        raise InputError("Serving Benchmark Result", got, "numbers beside its labels", "give what the client printed")
    return run


def _typed(text: str) -> Any:
    """Return a text as a number where it is one, with or without separators of thousands."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text


def _add_output_rate(run: MeasuredRun, value: Any) -> None:
    """Add a rate of output tokens per second to a run, where it is a positive number."""
    if rate := _number(value):
        run.peak(Figure("output_throughput_total", rate, "token/s"))


def _metadata_cells(result: Mapping[str, Any]) -> dict[str, str]:
    """Return column → text of keys that are a number or a name, by the names of any tool."""
    cells, columns = {}, CELL_ROWS["client"]["columns"]
    for key, value in result.items():
        column = next((columns[name] for name in (key, *ELSEWHERE.get(plain(key), ())) if name in columns), "")
        if column and isinstance(value, str | int | float) and str(value).strip() not in ("", "auto"):
            cells[column] = str(value).strip()
    return cells


def _server_cells(info: Any) -> dict[str, str]:
    """Return column → text of the arguments of SGLang's server, {} where there are none.

    Where prefill and decode are servers of their own, they are those of the first that decodes.
    """
    for name in ("decode", "internal_states"):
        nested = info.get(name) if isinstance(info, dict) and "model_path" not in info else None
        info = nested[0] if isinstance(nested, list) and nested else info
    scalars = info.items() if isinstance(info, dict) else ()
    return engine_cells("sglang", {key: str(value) for key, value in scalars if not isinstance(value, dict | list)})


def _genai_perf_run(result: Mapping[str, Any]) -> MeasuredRun | None:
    """Return the run of a result of GenAI-Perf, None where no times or rates can be read."""
    run, rows = MeasuredRun("genai-perf", "serving", {}), CELL_ROWS["genai_perf"]
    for key, name in rows["times"].items():
        value, unit = _mean(result, key)
        if value and unit in rows["units"]:
            run.peak(Figure(name, value * rows["units"][unit], "ms"))
    if run.peaks.get("ttft_mean", ("", 0.0))[1] == run.peaks.get("latency_total", ("", 1.0))[1]:
        run.peaks.pop("ttft_mean")  # answers came whole, without streaming
    for column, keys in rows["lengths"].items():
        if value := next((mean for key in keys if (mean := _mean(result, key)[0])), 0.0):
            run.cells[column] = number_text(value)
    _add_output_rate(run, _mean(result, "output_token_throughput")[0])
    config = result.get("input_config")
    cells, has_rate = _config_cells(config if isinstance(config, dict) else {})
    run.cells |= cells
    run.window = _window(result)
    rate, latency = _mean(result, "request_throughput")[0], run.peaks.get("latency_total")
    n_finished, batch = _mean(result, "request_count")[0], float(run.cells.get("batch", 0.0))
    in_flight = max(1e-3 * rate * latency.value, 1.0) if rate and latency else 0.0
    if batch and n_finished and n_finished <= batch:
        run.cells |= {"batch": number_text(n_finished), "batch_kind": "static batch"}
        run.note, run.peaks = _BURST, {name: peak for name, peak in run.peaks.items() if peak.unit != "ms"}
    elif in_flight and (not batch or (has_rate and in_flight < batch)):
        run.cells |= {"batch": number_text(in_flight), "batch_kind": "concurrency"}
        run.note = _RATE
        run.peaks = {name: peak for name, peak in run.peaks.items() if name not in _WAITING}
    return run if run.peaks else None


def _config_cells(config: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
    """Return model and requests in flight of a configuration, of its last phase that does not warm up.

    Also whether its requests come at a rate.
    """
    cells: dict[str, str] = {}
    has_rate = False
    phases = config.get("phases")
    listed = [phase for phase in phases if isinstance(phase, dict)] if isinstance(phases, list) else []
    measured = [phase for phase in listed if "warm" not in f"{phase.get('name')} {phase.get('type')}".lower()]
    for name, value in _nested_items({**config, "phases": measured[-1]} if measured else config):
        if name in ("model", "model_names", "models") and "model" not in cells:
            cells |= {"model": model} if (model := _first_name(value)) else {}
        if name == "concurrency" and _number(value):
            cells |= {"batch": number_text(float(value)), "batch_kind": "concurrency"}
        has_rate |= name in ("rate", "request_rate") and _number(value) > 0.0
    return cells, has_rate


def _first_name(value: Any, depth: int = 4) -> str:
    """Return the first name of a text, a list, or a table with items or a name, "" for none."""
    if isinstance(value, list):
        value = value[0] if value else ""
    elif isinstance(value, dict):
        value = value.get("items", value.get("name", ""))
    return value if isinstance(value, str) else _first_name(value, depth - 1) if value and depth else ""


def _mean(result: Mapping[str, Any], key: str) -> tuple[float, str]:
    """Return the mean of a metric, 0 where there is none, and its unit."""
    statistics = result.get(key)
    if not isinstance(statistics, dict):
        return 0.0, ""
    value = statistics.get("avg")
    try:
        value = float(value) if isinstance(value, str) else value
    except ValueError:
        value = 0.0
    return _number(value), str(statistics.get("unit", ""))


def _nested_items(config: Mapping[str, Any], depth: int = 4) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of nested tables, down to ``depth`` levels below the first."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, dict) and depth:
            yield from _nested_items(value, depth - 1)


_READERS: dict[tuple[str, ...], Callable[[Mapping[str, Any]], MeasuredRun | None]] = {
    ("completed", "output_throughput"): _client_run,
    ("request_latency", "request_throughput"): _genai_perf_run,
} | {(key,): series.golden_run for key in series.GOLDEN_KEYS}
