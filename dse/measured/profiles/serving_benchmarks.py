"""Results of ``vllm bench serve --save-result``, ``sglang.bench_serving`` (JSON lines), GenAI-Perf and AIPerf (JSON).

Lengths are means over the finished requests. Where requests came at a rate, those in flight are their rate times their
mean latency (Little's law), and the time to the first token, part of which is waiting, is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.errors import ELSEWHERE, InputError, plain
from dse.io import inputs
from dse.measured.profiles import series
from dse.measured.profiles.run import ALLOWED, CELL_ROWS, Figure, MeasuredRun, design_cells, number_text, read_blocks
from dse.tools import values_of

#: Requests that engines run together by default; more of them queue, and are a run offline.
_DEFAULT_BATCH = 256


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
    """Return the run of a result of vLLM's or SGLang's client, which have the same keys; None if nothing finished."""
    n_finished = _number(result.get("completed"))
    if not n_finished:
        return None
    is_sglang = "server_info" in result or "total_output_tokens_retokenized" in result
    run = MeasuredRun("sglang" if is_sglang else "vllm", "serving", _metadata_cells(result))
    run.cells["framework"] = run.tool
    if is_sglang:
        run.cells |= _server_cells(result.get("server_info"))
    if isinstance(model := result.get("model_id"), str):
        run.cells["model"] = model
    for column, key in {"isl": "total_input_tokens", "osl": "total_output_tokens"}.items():
        if total := _number(result.get(key)):
            run.cells[column] = number_text(total / n_finished)
    figures = {
        name: _number(result.get(key)) for key, name in CELL_ROWS["client"]["times"].items() if _number(result.get(key))
    }
    later_tokens = max(float(run.cells.get("osl", 1.0)) - 1.0, 0.0)
    stream_ms = figures.get("ttft_mean", 0.0) + figures.get("tpot_mean", 0.0) * later_tokens
    latency = 1e-3 * (figures.get("latency_total") or stream_ms)
    rate, max_concurrency = _number(result.get("request_rate")), _number(result.get("max_concurrency"))
    batch, batch_kind = min(max_concurrency or n_finished, n_finished), "concurrency"
    # Of requests at a rate fewer may be in flight than the limit allows.
    if rate and not (max_concurrency and rate * latency > max_concurrency):
        batch = max(_number(result.get("request_throughput")) * latency, 1.0)
        run.note = "requests came at a rate: those in flight by Little's law"
        figures = {name: value for name, value in figures.items() if name not in ("ttft_mean", "latency_total")}
    elif not max_concurrency:  # all requests at once
        batch_kind = "static batch" if n_finished <= _DEFAULT_BATCH else "offline"
        figures = {}
    run.cells |= {"batch": number_text(batch)} if batch_kind != "offline" else {}
    run.cells["batch_kind"] = batch_kind
    run.peaks = {name: Figure(name, value, "ms") for name, value in figures.items()}
    _add_output_rate(run, result.get("output_throughput"))
    return run


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
    """Return column → text of the arguments of SGLang's server, {} where there are none."""
    if not isinstance(info, dict):
        return {}
    arguments = {
        "--" + key.replace("_", "-"): "" if value is True else str(value)
        for key, value in info.items()
        if isinstance(value, str | int | float) and value is not False
    }
    cells = {}
    if "--tp-size" in arguments:
        values = values_of("sglang", arguments)
        names = ("tp", "pp", "ep", "etp", "precision")
        cells = {name: value for name, value in design_cells(values).items() if name in names}
        sizes = [values.get(f"mapping.{name}", 1.0) for name in ("tp", "pp", "dp")]
        cells |= {"tp": number_text(sizes[0]), "dp": number_text(sizes[2]), "n_gpus": number_text(math.prod(sizes))}
    if isinstance(info.get("model_path"), str):
        cells["model"] = info["model_path"]
    return cells


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
    config = config if isinstance(config, dict) else {}
    for name, value in _nested_items(config):
        if name in ("model", "model_names", "models") and "model" not in run.cells:
            model_name = value[0] if isinstance(value, list) and value else value
            run.cells |= {"model": model_name} if isinstance(model_name, str) else {}
        if name == "concurrency" and _number(value):
            run.cells |= {"batch": number_text(float(value)), "batch_kind": "concurrency"}
    return run if run.peaks else None


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
