"""Entries of the catalogue behind every door."""

from __future__ import annotations

import dse
from dse.cli.service.worker import answer
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree, run


def test_names_of_entries():
    report = dse.catalog_list("system")
    assert_renderers_agree(report, "catalog", "list", "system")
    assert report["system"] == dse.catalog.names("system")
    assert answer("catalog", {"kind": "system"})["document"] == report.to_dict()
    assert set(dse.catalog_list()) == set(dse.catalog.kinds())
    assert_refused(lambda: dse.catalog_list("systems"), "did you mean 'system'?")


def test_values_of_an_entry_with_their_sources():
    report = dse.show("A100")
    assert_renderers_agree(report, "catalog", "show", "A100")
    assert answer("show", {"name": "A100"})["document"] == report.to_dict()
    rows = report.table("accelerator").values()
    bandwidth = next(row for row in rows if row["field"] == "memory.bandwidth")
    assert bandwidth["value"] == 2039e9 and bandwidth["units"] == "B/s" and bandwidth["source"]
    assert [entry["kind"] for entry in dse.show("hopper", kind="kernels").to_dict()] == ["kernels"]
    shown = run("catalog", "show", "A100", "--show", "all").stdout
    values = report.to_dict()[0]["values"]
    assert all(field in shown and value["source"] in shown for field, value in values.items())
    assert "kernels.matrix_efficiency" not in str(report) and report.details == ["kernels", "power"]
    assert_refused(lambda: dse.show("a1000-sxm-80gb"), "a100-sxm-80gb")
    assert "error" in answer("show", {"name": "A100", "folder": "/etc"})


def test_the_module_of_the_catalogue_keeps_its_name():
    """Its capabilities have others: attributes of a module are functions of the room, which knows no report."""
    assert dse.catalog.__name__ == "dse.designs.catalog" and dse.catalog.entry("system", "eos").slug == "eos"
    assert run("catalog").exit_code == 2 and "from-config" in run("catalog").output


def test_a_catalogue_with_faults(tmp_path):
    report = dse.catalog_check()
    assert_renderers_agree(report, "catalog", "check")
    assert report["problems"] == [] and report["entries"] > 400
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "odd.toml").write_text("name = 'odd'\nrate = 3\n")
    faulty = dse.catalog_check(folder=tmp_path)
    assert faulty.status == 2 and "odd.toml" in str(faulty)
    assert "error" in answer("catalog_check", {})


def test_a_configuration_becomes_a_workload(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, '
        '"intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 128}'
    )
    output = tmp_path / "workloads" / "tiny.toml"
    output.parent.mkdir()
    report = dse.catalog_from_config(config, output=output)
    assert report.files == [output] and dse.show("tiny", folder=tmp_path)
    assert_renderers_agree(report, "catalog", "from-config", config, "-o", output, "--force")
    assert_refused(lambda: dse.catalog_from_config(tmp_path / "absent.json", output=output), "absent.json")
