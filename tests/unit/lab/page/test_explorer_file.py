"""The page as a file: what it holds, what it asks of a browser, and what other people's texts become in it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib

import numpy as np
import pytest

from dse.cli import app
from dse.errors import InputError
from dse.lab import page as pages_of
from dse.lab.page import explorer, table
from dse.lab.page.html import as_json
from tests.unit.lab.page.results import many


def read(path) -> tuple[str, dict, bytes]:
    """(text, document, bytes of the columns) of a page."""
    text = path.read_text(encoding="utf-8")
    (document,) = re.findall(r'<script type="application/json" id="document">(.*?)</script>', text, re.DOTALL)
    (columns,) = re.findall(r'<script type="text/plain" id="columns">(.*?)</script>', text, re.DOTALL)

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return text, json.loads(document, parse_constant=refuse), zlib.decompress(base64.b64decode(columns))


def values_of(column: dict, content: bytes, size: int, at: int) -> tuple[np.ndarray, int]:
    """A column's values, and where the next one begins."""
    if column["type"] == "same":
        value = np.nan if column["value"] is None else column["value"]
        return np.full(size, value), at
    width = int(column["type"][1])
    piece = np.frombuffer(content, np.uint8, size * width, at)
    if column["type"] == "f4":
        return piece.reshape(4, -1).T.copy().view("<f4")[:, 0], at + size * width
    return piece.view(f"<{column['type']}"), at + size * width


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    results = many(3000).copy()
    results.step_time_bubble.values[:5] = np.nan
    assert pages_of.write(path, results) == 3000
    return results, *read(path)


def test_columns_are_those_of_the_results(written):
    results, _, document, content = written
    at, found = 0, {}
    for column in document["columns"]:
        found[column["name"]], at = values_of(column, content, document["size"], at)
    assert at == len(content)
    for name in ("step_time", "peak_memory", "step_time_bubble"):
        np.testing.assert_array_equal(found[name], results[name].values)
    tp = next(column for column in document["columns"] if column["name"] == "tp")
    np.testing.assert_array_equal(np.array(tp["numbers"])[found["tp"]], results.tp.values)
    assert [part["label"] for part in document["totals"][0]["parts"]][:2] == ["forward", "backward"]


def test_only_its_own_scripts_run_and_nothing_is_fetched(written):
    _, text, _, _ = written
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    assert policy.startswith("default-src 'none'")
    (scripts,) = re.findall(r"script-src ([^;]*)", policy)
    assert "unsafe" not in scripts
    checksums = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    ]
    assert scripts.split() == [f"'sha256-{checksum}'" for checksum in checksums] and len(checksums) == 1
    assert not re.search(r"<(?:script|link|img|iframe)[^>]* (?:src|href)=", text[: text.index("<script>")])


def test_texts_of_strangers_stay_texts(tmp_path):
    evil = "</script><script>alert(1)</script><!--&\u2028<img src=x onerror=alert(1)>"
    results = many(50, evil).assign(pp=("design", np.where(np.arange(50) % 2, evil, "1"), {"path": "mapping.pp"}))
    pages_of.write(tmp_path / "evil.html", results)
    text, document, _ = read(tmp_path / "evil.html")
    assert "alert(1)</script>" not in text and "<img src=x" not in text
    assert document["title"] == evil and len(re.findall(r"</script>", text)) == 4


def test_a_column_of_one_value_is_one_number():
    packer = explorer.Packer()
    packer.add(np.full(1000, np.nan, np.float32), name="none")
    packer.add(np.full(1000, 7), name="seven")
    packer.add(np.arange(1000), name="all")
    columns = json.loads(as_json({"columns": packer.columns}))["columns"]
    assert [column["type"] for column in columns] == ["same", "same", "u2"]
    assert [column.get("value") for column in columns] == [None, 7.0, None]
    assert len(zlib.decompress(base64.b64decode(packer.text))) == 2000


def test_of_too_many_designs_the_front_the_best_and_a_sample_stay():
    results = many(20_000)
    shown = table.build(results, 3000)
    assert shown.size == 3000 and "too many" in shown.notes[-1]
    time, memory = (shown.column(name).values for name in ("step_time", "peak_memory"))
    able = results.feasible.values
    assert time.min() == results.step_time.values.min()
    kept = set(shown.rows.tolist())
    assert set(np.flatnonzero(able)[np.argsort(results.step_time.values[able])[:1000]]) <= kept
    lightest = np.flatnonzero(able)[results.peak_memory.values[able].argmin()]
    assert lightest in kept and memory.min() <= results.peak_memory.values[lightest]


def test_infeasible_designs_have_a_reason(small_results):
    results, _ = small_results
    shown = table.build(results, 1000)
    status = shown.column("status")
    reasons = np.array(status.texts)[status.values]
    able = results.feasible.values.reshape(-1)[shown.rows]
    assert (reasons[able] == "").all() and all("memory" in reason for reason in reasons[~able])
    assert dict(shown.facts)["workload"] == "gpt-3-13b"
    assert {c.name for c in shown.columns if c.kind == "axis"} >= {"tp", "pp", "dp", "recompute"}


def run(words) -> int:
    with pytest.raises(SystemExit) as ended:
        app([str(word) for word in words])
    return ended.value.code or 0


def test_the_command_writes_beside_the_results(small_results, tmp_path, capsys):
    _, path = small_results
    assert run(["report", path, "-o", tmp_path / "page.html"]) == 0
    assert "44 designs" in capsys.readouterr().out
    assert run(["report", path, "-o", tmp_path / "page.html"]) == 0  # its own page is replaced
    (tmp_path / "mine.html").write_text("my page")
    assert run(["report", path, "-o", tmp_path / "mine.html"]) == 2
    assert "--force" in capsys.readouterr().err and (tmp_path / "mine.html").read_text() == "my page"


@pytest.mark.parametrize("name", ["absent.nc", "text.nc", "foreign.nc", "page.txt"])
def test_what_is_no_result_is_told_in_four_parts(name, small_results, tmp_path, capsys):
    _, path = small_results
    output = tmp_path / "page.html"
    if name == "text.nc":
        (tmp_path / name).write_text("no netCDF")
    if name == "foreign.nc":
        many(5)[["mfu", "tp"]].to_netcdf(tmp_path / name)
    if name == "page.txt":
        output = tmp_path / name
    assert run(["report", path if name == "page.txt" else tmp_path / name, "-o", output]) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in ("error", "got", "allowed", "fix")) and "Traceback" not in told
    assert not output.exists()


def test_nothing_that_can_be_drawn_is_told(tmp_path):
    none = many(5).copy(deep=True)
    none.step_time.values[:] = np.nan
    with pytest.raises(InputError, match="no feasible design"):
        pages_of.write(tmp_path / "page.html", none)


def test_a_page_without_lines_says_why(written):
    _, _, document, _ = written
    assert document["lines"] == {"why": "the results carry no valid specification"} and document["notes"]
