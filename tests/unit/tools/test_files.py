"""Files of designs: every form of every tool is read back as its line is."""

import sys

import pytest
from hypothesis import given, settings, strategies as st

import dse
from dse.designs import leaf, leaf_path, replace
from dse.doors import STUDIES
from dse.errors import InputError
from dse.tools import TOOLS, launch, read_arguments, settings as read
from dse.tools.files import FORMS
from tests.unit.tools.test_launch import BASES, OF_SERVING, VALUES, assert_stated

PAIRS = [(form, tool) for form, (tools, _) in FORMS.items() for tool in tools]


@pytest.mark.parametrize(("form", "tool"), PAIRS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_a_file_is_read_back(data, form, tool):
    """As the line is, and with the values of the design, but for those that the tool has no option for."""
    study = TOOLS[tool].study
    values = OF_SERVING if study == "serving" else VALUES
    chosen = {
        path: data.draw(st.sampled_from(of), path)
        for path, of in values.items()
        if path not in ("mapping.recompute_share", "mapping.offload_weights")
    }
    design = replace(data.draw(st.sampled_from(BASES[study])), chosen)
    line, file = (launch(design, tool, STUDIES[study], form=one, system="h200") for one in ("line", form))
    stated = read(tool, file.text, design)
    assert stated == {**stated, **read(tool, line.text, design)}, file.text  # a chart states degrees of 1 too
    assert_stated({leaf_path(name): value for name, value in stated.items()}, design, file)


# those that are built on Transformers state no global batch: it follows from the number of processes
@pytest.mark.parametrize(
    "tool", [t for t in FORMS["file"][0] if TOOLS[t].study == "training" and TOOLS[t].stack_tool != "fsdp"]
)
def test_a_recipe_states_degrees_and_batches(tool):
    form = "file"
    design = dse.design(
        "llama-3-70b",
        "eos",
        tp=8,
        pp=1 if tool == "deepspeed" else 4,
        n_devices=512,
        zero_stage=1,
        global_batch=512,
        micro_batch=2,
        recompute="none",
    )
    stated = read(tool, launch(design, tool, STUDIES["training"], form=form).text)
    assert {"tp", "micro_batch", "global_batch"} <= set(stated)
    assert all(stated[name] == float(leaf(design, leaf_path(name))) for name in ("tp", "micro_batch", "global_batch"))


ENGINES = {
    "vllm": "workers:\n- {name: main, args: [--tensor-parallel-size, '8']}\n- {name: other, args: [sleep, '1']}",
    "sglang": "b:\n- name: a\n  command: [sh, -c]\n  args:\n  - |\n    exec python3 -m x --tp 8 \\\n      --seed 1\n",
}


@pytest.mark.parametrize("tool", sorted(ENGINES))
def test_arguments_are_found_in_any_manifest(tool):
    assert read(tool, ENGINES[tool])["tp"] == 8


def test_values_of_a_chart_state_degrees_beside_the_container():
    values = "decode:\n  parallelism: {tensor: 4, data: 2}\n  containers:\n  - {name: vllm, args: ['--seed=1']}"
    assert read("vllm", values) == {"tp": 4, "dp": 2}


def test_defaults_of_variables_count_and_other_frameworks_names_are_those_of_a_recipe():
    primus = "modules:\n  pre_trainer:\n    overrides:\n      tensor_model_parallel_size: ${TP:4}\n      bf16: true\n"
    found = read("megatron-lm", primus)
    assert found == {"tp": 4, "precision": float(dse.types.Precision.bf16)}  # its presets say how the state is split
    assert read("megatron-bridge", "model:\n  tensor_model_parallel_size: 4\n") == {"tp": 4}
    split = read("megatron-lm", primus + "      use_distributed_optimizer: true\n      overlap_grad_reduce: false\n")
    assert split["zero_stage"] == 1 and split["overlap_dp"] == 0
    with pytest.raises(InputError, match="no option of a design"):
        read("megatron-lm", "modules:\n  pre_trainer:\n    overrides:\n      lr: 0.1\n")
    recipe = "trainer:\n  strategy:\n    tensor_model_parallel_size: 2\ndata:\n  global_batch_size: 64\n"
    assert read("nemo", recipe) == {"tp": 2, "global_batch": 64}


@pytest.mark.parametrize(
    ("tool", "text", "told"),
    [
        ("torchtitan", "[parallelism]\ntensor_parallel_degree = 'x'", "numbers for tp"),
        ("maxtext", "steps: 10\n", "no option of a design"),
    ],
)  # fmt: skip
def test_a_file_that_says_nothing_certain_is_refused(tool, text, told):
    with pytest.raises(InputError, match=told):
        read_arguments(tool, text)


def test_the_first_of_several_engines_is_read_and_told():
    two = read_arguments("vllm", "a:\n- {name: p, args: ['-tp=8']}\n- {name: d, args: ['-tp=4']}")
    assert two.settings == {"tp": 8.0} and any("2 commands state different designs" in note for note in two.notes)
    assert not read_arguments("vllm", "a:\n- {name: p, args: ['-tp=8']}\n- {name: d, args: ['-tp=8']}").notes


def test_anchors_that_repeat_a_part_without_end_are_refused():
    text = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 20))
    with pytest.raises(InputError, match="too many values"):
        read_arguments("maxtext", text)


@pytest.mark.parametrize(
    ("form", "tool", "mapping", "told"),
    [
        ("dynamo", "tensorrt-llm", dict(tp=8), "allowed line, kubernetes"),
        ("kubernetes", "tensorrt-llm", dict(tp=8, pp=2), "MPI"),
        ("kubernetes", "vllm", dict(tp=8, dp=2), "ranks that share experts"),
    ],
)
def test_what_a_manifest_cannot_start_is_refused(form, tool, mapping, told):
    design = STUDIES["serving"].complete(dse.design("llama-3-70b", "h100", **mapping))
    with pytest.raises(InputError, match=told):
        launch(design, tool, STUDIES["serving"], form=form)


def test_an_engine_over_nodes_is_a_group_with_a_leader():
    design = STUDIES["serving"].complete(dse.design("llama-3-1-405b", "h100", tp=8, pp=2))
    for tool, option in (("vllm", "--master-addr"), ("sglang", "--dist-init-addr")):
        text = launch(design, tool, STUDIES["serving"], form="kubernetes", system="mi300x").text
        assert "LeaderWorkerSet" in text and option in text and "amd.com/gpu: 8" in text
        assert read(tool, text, design)["pp"] == 2


def test_without_its_package_yaml_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InputError, match=r"no package PyYAML.*install the extra recipes"):
        read("maxtext", "ici_tensor_parallelism: 4")
    assert read("maxtext", "ici_tensor_parallelism=4") == {"tp": 4}
