"""What every adapter shares; run in a tool's own environment, so of the standard library alone.

``python benchmarks/showdown/TOOL.py ROWS.json FOUND.json``: predicted figures by row, or why there is none.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: Why a tool cannot express a row.
CHIP, MODEL, ENGINE, MAPPING, PRECISION, LOAD, UNPUBLISHED, REFUSED = REASONS = (
    "chip",
    "model",
    "engine",
    "mapping",
    "precision",
    "load",
    "unpublished",
    "refused",
)


class Missing(Exception):  # noqa: N818 (an answer, not a mistake)
    """A row that a tool cannot express, with the reason."""


def need(holds: object, reason: str) -> None:
    """Raise Missing where a condition does not hold."""
    if not holds:
        raise Missing(reason)


def plain(row: Row) -> None:
    """Raise Missing where a model is no dense transformer of full attention, all of it trained."""
    need(not row["kinds"] and not row["n_experts"], MODEL)


def static_figure(row: Row, first: float, token: float) -> float:
    """A serving figure by seconds of a prompt pass and of a decode step of one batch, of one of ``dp`` replicas.

    A constant number in flight is read as one batch of it: such tools know neither queues nor mixed steps, so that they
    have a time to the first token of a batch alone.
    """
    tokens = row["concurrency"] * row["osl"] / (first + row["osl"] * token)
    if row["metric"] == "time_to_first_token":
        need(row["load"] == "static" or row["concurrency"] <= row["dp"], LOAD)
        return first
    return {
        "time_per_output_token": token,
        "inter_token_latency": token,
        "request_latency": first + row["osl"] * token,
        "output_tokens_per_second": tokens,
        "output_tokens_per_second_per_device": tokens / row["devices"],
    }[row["metric"]]


def batch_of(row: Row) -> int:
    """Sequences in one batch of a replica; raises Missing where the load does not state them."""
    need(row["load"] in ("static", "concurrency"), LOAD)
    return max(1, round(row["concurrency"] / row["dp"]))


def main(version: str, tools: dict[str, tuple[str, Callable[[Row], float]]]) -> None:
    """Predict, by each tool of a version, the rows of its kind; write figures, reasons of none, and seconds."""
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {
        tool: {"version": version, "kind": kind, **_figures([row for row in rows if row["kind"] == kind], predict)}
        for tool, (kind, predict) in tools.items()
    }
    Path(sys.argv[2]).write_text(json.dumps(found, indent=1), encoding="utf-8")


def _figures(rows: list[Row], predict: Callable[[Row], float]) -> dict[str, Any]:
    """Row → its figure or the reason of none, and the processor seconds a figure once the tool is imported."""
    figures: dict[str, float | str] = {}
    seconds = 0.0
    for row in rows:
        before = time.process_time()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                figures[row["row"]] = float(predict(row))
            seconds += time.process_time() - before
        except Missing as missing:
            figures[row["row"]] = str(missing)
        except Exception as error:  # whatever a tool raises is its refusal of the row
            figures[row["row"]] = REFUSED
            print(row["row"], f"{type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    predicted = sum(not isinstance(figure, str) for figure in figures.values())
    return {"seconds": seconds / max(predicted, 1), "figures": figures}
