"""Names of other tools are told ours, wherever a name may be written; the table knows only names that exist."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs import all_leaves
from dse.designs.leaves import path_endings
from dse.doors import STUDIES
from dse.errors import ELSEWHERE, InputError, plain
from dse.spec.search import METHOD_OPTIONS
from dse.spec.space import CATALOGUE_KEYS
from dse.spec.sweep import from_text
from dse.types import Precision

OURS = {
    "gpus": "n_devices", "world_size": "n_devices", "mbs": "micro_batch", "gbs": "global_batch",
    "micro_batch_size": "micro_batch", "global_batch_size": "global_batch", "tensor_parallel": "tp",
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp", "vpp": "virtual_stages",
    "seq_length": "seq_len", "num_layers": "n_layers", "hidden_size": "hidden", "num_attention_heads": "n_heads",
    "ffn_hidden_size": "ffn_hidden", "vocab_size": "vocab", "activation_checkpointing": "recompute",
    "seq": "seq_len",
    "zero": "zero_stage", "hbm": "memory.bandwidth", "nvlink": "scale_up.bandwidth", "--num-layers": "n_layers",
}  # fmt: skip


def known() -> set[str]:
    """Every name that some place knows."""
    endings = {ending for path in all_leaves() for ending in path_endings(path)}
    metrics = {name for study in STUDIES.values() for name in study.units}
    names = {"name", "mapping", "serving", *METHOD_OPTIONS}
    return endings | set(CATALOGUE_KEYS) | metrics | names | {p.name for p in Precision}


def test_the_table_holds_names_of_others_for_names_of_ours():
    ours = known()
    assert {name for names in ELSEWHERE.values() for name in names} <= ours
    assert not set(ELSEWHERE) & set(map(plain, ours))


@pytest.mark.parametrize(("theirs", "ours"), OURS.items())
def test_a_name_of_another_tool_is_told_ours(theirs, ours):
    with pytest.raises(InputError) as raised:
        dse.design("gpt-3-13b", "selene", **{theirs: 8})
    assert raised.value.fix.startswith("did you mean") and repr(ours) in raised.value.fix
    sweep = '[workload]\nname = "gpt-3-13b"\n[system]\nname = "selene"\n'
    for text in (f"{sweep}[axes]\n{theirs} = [8]", f"{sweep}[mapping]\n{theirs} = 8"):
        with pytest.raises(InputError) as raised:
            from_text(text)
        assert raised.value.fix.startswith("did you mean") and repr(ours) in raised.value.fix
        assert theirs in raised.value.where


#: A name of engines and benchmarks of serving → ours, which it is read as.
READ = {
    "isl": "prompt_tokens",
    "osl": "output_tokens",
    "batch_size": "concurrency",
    "batch": "concurrency",
    "max_num_seqs": "most_sequences",
    "max_concurrency": "concurrency",
}


@pytest.mark.parametrize(("theirs", "ours"), READ.items())
def test_a_name_of_serving_tools_is_read_as_ours(theirs, ours):
    made = dse.design("llama-3-8b", "h100", kind="serving", **{theirs: 48})
    assert made == dse.design("llama-3-8b", "h100", kind="serving", **{ours: 48})
    head = '[workload]\nname = "llama-3-8b"\n[system]\nname = "h100"\n'
    texts = (
        "[serving]\n[axes]\n{} = [8, 48]",
        "[serving]\n{} = 8",
        "[serving]\n[constraints]\nall = ['{} <= 4']",
        "[serving]\n[axes]\n{} = [8, 48]\ntp = [1, 2]\n[zip]\ngroups = [['tp', '{}']]",
    )
    for text in texts:
        if ours == "most_sequences" and "[serving]\n{}" in text:
            continue
        own, other = (from_text(head + text.replace("{}", name)) for name in (ours, theirs))
        assert [(a.name, a.key, a.values) for a in own.axes] == [(a.name, a.key, a.values) for a in other.axes]
        assert own.zips == other.zips and set(own.fixed) == set(other.fixed)
        assert [c.names for c in own.constraints] == [c.names for c in other.constraints]
    asked = ["evaluate", "-w", "llama-3-8b", "-s", "h100", "--serving", "--set", f"{theirs}=8"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0 and f"{theirs} is read as {ours}" in done.stderr


def test_a_batch_size_is_of_the_kind_of_study():
    assert dse.design("llama-3-8b", "h100", batch_size=48).workload.global_batch == 48.0
    served = dse.design("llama-3-8b", "h100", batch_size=48, isl=100)
    assert served.workload.requests.concurrency == 48.0
    with pytest.raises(InputError, match="of a model that is served"):
        from_text('[workload]\nname = "llama-3-8b"\n[system]\nname = "h100"\n[axes]\nisl = [8]')


#: What only the other kind of study knows: section and text → what was meant, and what is to be done.
OF_ANOTHER = {
    "[objective]\nminimize = 'ttft'": ("that is time_to_first_token, a metric of serving", "add a section [serving]"),
    "[objective]\nminimize = 'time_per_output_token'": ("a metric of serving", "add a section [serving]"),
    "[constraints]\nall = ['concurrency <= 4']": ("of a model that is served", "add a section [serving]"),
    "[serving]\n[objective]\nminimize = 'step_time'": ("a metric of training", "leave out the section [serving]"),
    "[serving]\n[constraints]\nall = ['mfu > 0.4']": ("a metric of training", "leave out the section [serving]"),
    "[serving]\n[constraints]\nall = ['micro_batch <= 4']": ("which serving does not read", "leave out [serving]"),
}


@pytest.mark.parametrize(("text", "told"), OF_ANOTHER.items())
def test_what_only_training_or_serving_has_is_told_with_the_way_there(text, told):
    with pytest.raises(InputError) as raised:
        from_text(text)
    assert told[0] in raised.value.got and told[1] in raised.value.fix


@pytest.mark.parametrize(
    ("study", "metric", "way"), [("serving", "step_time", "leave out --serving"), ("training", "ttft", "add --serving")]
)
def test_elasticities_of_a_metric_of_the_other_kind(study, metric, way):
    with pytest.raises(InputError) as raised:
        dse.explain(dse.design("gpt-3-13b", "selene", tp=8), metric, study)
    assert "a metric of" in raised.value.got and way in raised.value.fix


def test_the_command_line_tells_it_too():
    done = CliRunner().invoke(app, ["evaluate", "-w", "gpt-3-13b", "-s", "selene", "--set", "world_size=8"])
    assert done.exit_code == 2 and "did you mean 'n_devices'?" in done.output


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("[model]\nname = 1", "workload"), ("[parallelism]\ntp = 1", "mapping"), ("[hardware]\n", "system"),
        ("[inference]\n", "serving"), ("[serving]\nprompt = 2048", "prompt_tokens"),
        ("[system]\nnodes = 4", "n_devices"),
        ("[workload]\nmodel = 'x'", "name"), ("[constraints]\nall = ['throughput > 1']", "tokens_per_second"),
        ("[serving]\n[constraints]\nall = ['ttft < 1']", "time_to_first_token"),
        ("[constraints]\nall = ['power_per_device < 700']", "device_power"),
        ("[mapping]\nprecision = 'bfloat16'", "bf16"), ("[axes]\nnvlink = ['x']", "scale_up"),
        ("[axes]\ngpu = ['h100']", "accelerator"),
    ],
)  # fmt: skip
def test_sections_and_words_of_others(text, ours):
    with pytest.raises(InputError) as raised:
        from_text(text)
    assert repr(ours) in raised.value.fix
