"""The page as a file, and the command that writes it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex

import pytest

from dse.cli import app
from dse.doors import STUDIES
from dse.lab import page
from tests.unit.lab.page.designs import NAMES, start

#: Largest page, in bytes.
MOST = 3_000_000


def document(text: str) -> dict:
    (found,) = re.findall(r'<script type="application/json" id="live-document">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def run(words) -> int:
    with pytest.raises(SystemExit) as ended:
        app([str(word) for word in words])
    return ended.value.code or 0


def test_a_page_is_small_and_runs_its_own_script_alone(pages):
    for path in pages.values():
        text = path.read_text(encoding="utf-8")
        assert len(text) < MOST
        policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
        (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert policy.startswith("default-src 'none'") and f"script-src 'sha256-{checksum}';" in policy
        assert "unsafe-eval" not in policy and not re.search(
            r"\beval\(|new Function|https?://(?!www\.w3\.org/2000/svg)", script
        )
        assert not re.search(r"<(?:script|link|img|iframe)[^>]* (?:src|href)=", text)


def test_names_of_strangers_stay_texts(tmp_path):
    evil = "</script><script>alert(1)</script><!--"
    named = NAMES["training"]._replace(same={evil: evil}, stated={evil: evil})
    page.write(tmp_path / "evil.html", start=page.Start(STUDIES["training"], start("training"), named))
    text = (tmp_path / "evil.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text and text.count("</script>") == 4 and document(text)["same"] == {evil: evil}


def test_every_leaf_that_figures_read_has_a_control(pages):
    found = document(pages["serving"].read_text(encoding="utf-8"))
    read = {leaf["path"] for leaf in found["leaves"] if leaf["read"]}
    assert {
        "system.accelerator.memory.bandwidth",
        "system.prices.electricity",
        "system.accelerator.made.price",
        "mapping.tp",
        "workload.requests.prompt_tokens",
        "system.accelerator.power.clock",
    } <= read
    assert "workload.dropout" not in read and all(leaf["label"] and leaf["allowed"] for leaf in found["leaves"])
    bandwidth = next(leaf for leaf in found["leaves"] if leaf["name"] == "memory.bandwidth")
    assert (bandwidth["units"], round(bandwidth["value"] * bandwidth["factor"], 6), bandwidth["high"]) == (
        "TB/s",
        3.35,
        None,
    )


def test_the_command_writes_results_a_model_or_both_and_refuses_what_is_neither(small_results, tmp_path, capsys):
    _, path = small_results
    design = ["-w", "gpt-3-13b", "-s", "selene", "-n", "16", "--set", "tp=2"]
    cases = {"results": [path], "live": [path, "--live"], "both": [path, *design], "model": design}
    for name, words in cases.items():
        assert run(["page", *words, "-o", tmp_path / f"{name}.html"]) == 0
        text = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert (document(text) is None) == (name == "results")
        assert ('id="document">null<' in text) == (name == "model")
    assert run(["report", path, "-o", tmp_path / "report.html"]) == 0
    assert (tmp_path / "report.html").read_bytes() == (tmp_path / "results.html").read_bytes()
    capsys.readouterr()
    for words in ([], ["-w", "gpt-3-13b"], [path, "-s", "selene"], [path, "--set", "tp=2"]):
        assert run(["page", *words, "-o", tmp_path / "none.html"]) == 2
        told = capsys.readouterr().err
        assert all(part in told for part in ("error", "got", "allowed", "fix"))
    assert not (tmp_path / "none.html").exists()


def test_the_command_writes_a_page_that_says_how_to_come_back(tmp_path, capsys):
    place = tmp_path / "page.html"
    words = ["page", "-w", "llama-3-8b", "-s", "h100", "-n", "16", "--set", "tp=2", "--set", "memory.bandwidth=3 TB/s"]
    assert run([*words, "-o", place]) == 0
    assert str(place) in capsys.readouterr().out
    found = document(place.read_text(encoding="utf-8"))
    assert shlex.split(found["command"]) == ["dse", "evaluate", "-w", "llama-3-8b", "-s", "h100"]
    assert found["stated"] == {"tp": "2", "memory.bandwidth": "3 TB/s"}
    (tmp_path / "mine.html").write_text("mine")
    assert run([*words, "-o", tmp_path / "mine.html"]) == 2 and "--force" in capsys.readouterr().err
    assert run([*words, "-o", tmp_path / "page.txt"]) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in ("error", "got", "allowed", "fix")) and not (tmp_path / "page.txt").exists()
