"""The showdown from what it has kept: no tool is installed here."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.showdown import formulas, harness, kept, rows
from docs.make import showdown
from docs.make.markdown import linked

LINES = kept.lines()
PAGE = Path("docs/showdown.md")


def test_the_page_is_written_from_what_was_kept_word_for_word():
    text = showdown.page(LINES)
    assert linked(text) == PAGE.read_text(encoding="utf-8"), f"run: python -m docs.make.showdown {PAGE}"
    filed = Path("docs/tables/showdown_sources.csv").read_text(encoding="utf-8")
    assert filed in text


def test_every_tool_has_a_figure_or_a_reason_of_each_row_of_its_kind():
    assert max(Counter(line.row for line in LINES).values()) == 1
    kinds = {name: about["kind"] for name, about in kept.tools().items() if "kind" in about}
    for line in LINES:
        assert set(line.tools) == {name for name, kind in kinds.items() if kind == line.kind}, line.row
        for cell in (line.dse, *line.tools.values()):
            assert cell in harness.REASONS if isinstance(cell, str) else 0.0 < cell < math.inf, line.row
        assert line.left_out != "configuration", "dse's error is of a source left out"


def test_rows_of_the_projects_own_tables_are_all_there_and_the_formulas_give_what_was_kept():
    known = {row["row"]: row for row in rows.published()}
    carried = {line.row: line for line in LINES if line.measured is not None}
    assert set(carried) == set(known)
    for name, line in carried.items():
        assert line.measured == pytest.approx(known[name]["measured"], rel=1e-4), name
    tools = {"6ND": formulas.six_nd, "Megatron's FLOPs": formulas.megatron, "SimuMax": formulas.simumax}
    found = {tool: harness._figures(list(known.values()), predict) for tool, predict in tools.items()}
    assert kept.others(list(known.values()), found) == []
    wrong = {"6ND": {"figures": {name: 0.0 for name in known}}}
    assert len(kept.others(list(known.values()), wrong)) == len(known)


def test_one_knob_takes_the_median_of_other_sources_and_nothing_of_the_rows_own():
    def line(source, ratio, metric="step_time"):
        return kept.Line("row", "training", source, metric, None, "source", 1.0, {"a": ratio})

    lines = [line("one", 0.45), line("one", 0.9), line("one", 0.3),
             line("two", 0.25), line("two", 4.0, "output_tokens_per_second")]  # fmt: skip
    assert showdown.one_knob(lines, "a") == pytest.approx([0.8, 2.6, 0.2, 0.25 / 0.45 - 1.0, 4.0 * 0.45 - 1.0])
    assert all(math.isnan(error) for error in showdown.one_knob(lines[:3], "a"))


def test_an_adapter_writes_figures_reasons_and_what_its_tool_refuses(tmp_path, monkeypatch):
    asked_for = [{"row": name, "kind": "training"} for name in ("good", "missing", "bad")]
    asked, to = tmp_path / "rows.json", tmp_path / "found.json"
    asked.write_text(json.dumps([*asked_for, {"row": "other", "kind": "serving"}]))

    def predict(row):
        harness.need(row["row"] != "missing", harness.CHIP)
        return {"good": 2.0}[row["row"]]

    monkeypatch.setattr("sys.argv", ["adapter", str(asked), str(to)])
    harness.main("1.0", {"tool": ("training", predict)})
    found = json.loads(to.read_text())["tool"]
    assert found["version"] == "1.0" and found["kind"] == "training" and found["seconds"] >= 0.0
    assert found["figures"] == {"good": 2.0, "missing": "chip", "bad": "refused"}


def test_a_constant_number_in_flight_is_one_batch_which_knows_no_queue():
    row = {"concurrency": 8.0, "osl": 100.0, "dp": 2.0, "devices": 4.0, "load": "concurrency"}
    assert harness.batch_of(row) == 4
    figures = {
        name: harness.static_figure({**row, "metric": name}, 1.0, 0.01)
        for name in (
            "time_per_output_token",
            "request_latency",
            "output_tokens_per_second",
            "output_tokens_per_second_per_device",
        )
    }
    assert figures["time_per_output_token"] == 0.01 and figures["request_latency"] == pytest.approx(2.0)
    assert figures["output_tokens_per_second"] == pytest.approx(400.0)
    assert figures["output_tokens_per_second_per_device"] == pytest.approx(100.0)
    with pytest.raises(harness.Missing, match=harness.LOAD):
        harness.static_figure({**row, "metric": "time_to_first_token"}, 1.0, 0.01)
