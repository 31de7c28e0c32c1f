"""Included specifications behind every door; a group of commands that does something alone."""

from __future__ import annotations

import dse
from dse.cli.service.worker import answer
from dse.io.examples import find_example, names
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree, run

STANDARD = "megatron_1t_4096_a100"


def test_examples_are_listed():
    report = dse.examples()
    assert_renderers_agree(report, "examples")
    assert report.to_dataframe()["name"].tolist() == names()
    assert answer("examples", {})["document"] == report.to_dict()
    assert run("examples", "--csv").stdout.startswith("name,asks,command\n")


def test_one_is_shown():
    report = dse.examples_show(STANDARD)
    assert_renderers_agree(report, "examples", "show", STANDARD)
    assert report["text"] == find_example(STANDARD).file.read_text(encoding="utf-8")
    assert answer("examples_show", {"name": STANDARD})["document"]["text"] == report["text"]
    assert_refused(lambda: dse.examples_show("megatron_1t_4096_a10"), STANDARD)
