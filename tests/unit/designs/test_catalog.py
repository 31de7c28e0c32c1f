"""The catalogue: units, names, files and their errors, and the numbers in it."""

from __future__ import annotations

import csv
import dataclasses
import math
import shutil
import time
from pathlib import Path

import jax
import pytest
from hypothesis import given, strategies as st

import dse
from calibration.kernel_parameters import HIGHEST_THRESHOLD
from calibration.power import CHIPS
from dse import types
from dse.designs import catalog, records
from dse.designs.catalog import schema, units
from dse.errors import InputError, Notice
from tests.oracles.units import by_pint

REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "hardware"

TEN_LINES = """
source = "vendor announcement"
confidence = "paper"

[matrix_rate]
bf16 = "500 TFLOP/s"

[memory]
capacity = "96 GB"
bandwidth = "4 TB/s"
"""

ALL = [(kind, slug) for kind in catalog.kinds() for slug in catalog.names(kind)]


@pytest.fixture
def user_folder(tmp_path):
    """An empty folder of a user's own entries."""
    for kind in ("accelerators", "workloads", "systems", "networks", "software"):
        (tmp_path / kind).mkdir()
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


# Units

USUAL = {symbol: si for si, symbols in units.usual_units().items() for symbol in symbols if symbol}


@given(number=st.floats(1e-3, 1e6), unit=st.sampled_from(sorted(USUAL)))
def test_the_table_of_units_agrees_with_pint(number, unit):
    si = USUAL[unit]
    text = f"{number!r} {unit}"
    assert units.quantity(text, si) == pytest.approx(by_pint(text, si), rel=1e-12)
    by_grammar = units.quantity(f"1 * {text}", si)  # a product is no entry of the table
    assert by_grammar == pytest.approx(by_pint(text, si), rel=1e-12)


@pytest.mark.parametrize(
    ("text", "si"),
    [
        ("12 * 50 Gbit/s", "B/s"), ("3 kWh", "J"), ("2 hours", "s"), ("90 min", "s"), ("6 pJ / 8 bit", "J * B"),
        ("91.2e6 / mm**2", "1/m^2"), ("3 (GB / s) / cm", "B/s/m"), ("5 cm^2", "m^2"), ("2 W h", "J"), ("1 J/s/%", "W"),
        ("4 MiB*OP/m3", "B * FLOP / m**3"), ("8 / us", "Hz"), ("3 V^-1 V^2", "V"), ("20 USD / year", "USD/s"),
    ],
)  # fmt: skip
def test_the_grammar_of_units_agrees_with_pint(text, si):
    assert units.quantity(text, si) == pytest.approx(by_pint(text, si), rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9 B",
        "9**9**9",
        "2**64 B",
        "9^9^9 B",
        "B**9**9",
        "B^99",
        "9" * 10_000_000 + " B",
        "9" * 90 + "e" + "9" * 8,
        "1e999999999 B",
        "1e99999 * 1e99999 B",
        "1 / 0 B",
        "1 B / (0 / 1)",
        "(" * 99,
        "((((1 B)",
        "1 B)",
        "* B",
        "B *",
        "1 // B",
        "1 + 1 B",
        "B 1 ; 2",
        "__import__('os').getcwd() B",
        "lambda: 1",
        "1" + " " * 98,
        "1 B" + "\0",
    ],
    ids=lambda text: text[:20].replace("\0", "0"),
)
def test_what_is_no_quantity_is_refused_at_once(text):
    began = time.perf_counter()
    with pytest.raises(InputError) as caught:
        units.quantity(text, "B")
    assert time.perf_counter() - began < 0.2, "microseconds on a quiet machine"
    assert len(str(caught.value)) < 400


def test_a_bit_written_b_is_offered_first():
    for text in ("400 Gb/s", "400 Gbps"):
        with pytest.raises(InputError, match="did you mean 'Gbit/s' or 'GB/s'"):
            units.quantity(text, "B/s")


@given(number=st.floats(0, 1e300, allow_subnormal=False))
def test_a_plain_number_stays_itself(number):
    assert units.quantity(repr(number), "1") == number


@pytest.mark.parametrize(
    ("text", "si", "value"),
    [
        ("3.35 TB/s", "B/s", 3.35e12),
        ("400 Gbit/s", "B/s", 50e9),
        ("80 GiB", "B", 80 * 2**30),
        ("80 GB", "B", 80e9),
        ("5 us", "s", 5e-6),
        ("624 TOP/s", "FLOP/s", 624e12),
        ("826 mm2", "m^2", 826e-6),
        ("6 pJ/bit", "J/B", 48e-12),
        ("12 * 200 Gbit/s", "B/s", 300e9),
        ("85 %", "1", 0.85),
    ],
)
def test_quantities_in_si(text, si, value):
    assert units.quantity(text, si) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["3 W", "300", "3 GB", "3 Gb/s", "fast", "", "3 TB/", "nan GB/s", "1e999 GB/s", "__import__('os')"]
)
def test_bad_quantities_are_told_in_four_parts(text):
    with pytest.raises(InputError) as caught:
        units.quantity(text, "B/s", "x.toml: memory.bandwidth")
    error = caught.value
    assert error.where == "x.toml: memory.bandwidth"
    assert repr(text) in error.got and "B/s" in error.allowed and error.fix


def test_a_misspelt_unit_is_suggested():
    with pytest.raises(InputError, match="did you mean 'TFLOP/s'"):
        units.quantity("989 TFLOPS", "FLOP/s")


# Names


@pytest.mark.parametrize(
    ("kind", "name", "slug"),
    [
        ("accelerator", "A100-SXM4-80", "a100-sxm-80gb"),
        ("accelerator", "H100", "h100-sxm-80gb"),
        ("accelerator", "b200_sxm", "b200-sxm-180gb"),
        ("accelerator", "H100-96GB-HBM2e-500W", "h100-sxm-96gb-hbm2e"),
        ("workload", "GPT-1T", "megatron-1t"),
        ("workload", "gpt3-175b", "gpt-3-175b"),
        ("workload", "GPT-1.3B", "gpt-3-1-3b"),
        ("workload", "GPT-13B", "gpt-3-13b"),
        ("workload", "Megatron-145.6B", "megatron-145-6b"),
        ("network", "NVLink3", "nvlink-3"),
        ("network", "InfiniBand HDR", "infiniband-hdr"),
        ("system", "Selene", "selene"),
        ("system", "A100", "a100-sxm-80gb"),
    ],
)
def test_aliases(kind, name, slug):
    assert catalog.resolve(kind, name) == slug


@pytest.mark.parametrize(("name", "slug"), [
    ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
    ("Qwen3-30B-A3B-Thinking-2507-FP8", "qwen3-30b-a3b"),
    ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
    ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
    ("mistralai/Mistral-Large-Instruct-2407", "mistral-large-2-123b"),
    ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
    ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", None),  # it has a vision encoder, too
    ("gpt-3-1750", None),
    ("owner/", None),
])  # fmt: skip
def test_checkpoints_have_the_shape_of_their_model(name, slug):
    assert catalog.find("workload", name) == slug


@pytest.mark.parametrize(
    ("kind", "name", "suggestion"),
    [
        ("workload", "lama-3-70b", "llama-3-70b"),
        ("accelerator", "h100-sxm-80g", "h100-sxm-80gb"),
        ("system", "selenne", "selene"),
        ("system", "a100-sxm-80b", "a100-sxm-80gb"),
        ("network", "infiniband-hrd", "infiniband-hdr"),
    ],
)
def test_a_misspelt_name_is_suggested(kind, name, suggestion):
    with pytest.raises(InputError) as caught:
        catalog.resolve(kind, name, where="sweep.toml: system")
    assert caught.value.where == "sweep.toml: system"
    assert repr(suggestion) in caught.value.fix


def test_an_unknown_kind_is_an_input_error():
    with pytest.raises(InputError, match="accelerator, architecture, cost, kernels, memory"):
        catalog.names("gpu")


# The catalogue that is shipped


def test_check_finds_nothing():
    assert catalog.check() == []


@pytest.mark.parametrize(("kind", "slug"), ALL)
def test_every_value_has_a_source(kind, slug):
    for field, value in catalog.entry(kind, slug).values.items():
        assert value.source and value.confidence, field
        assert value.units == "" or math.isfinite(value.value), field


@pytest.mark.parametrize("record", [types.Workload, types.Accelerator, types.Network, types.Software])
def test_every_entry_makes_its_noun(record):
    for slug in catalog.names(record.__name__.lower()):
        noun = catalog.record(record, slug)
        assert all(type(leaf) is float for leaf in jax.tree.leaves(noun)), slug


@pytest.mark.parametrize("slug", catalog.names("system"))
def test_every_system_loads(slug):
    system = catalog.record(types.System, slug)
    assert system.n_devices == system.scale_up.domain == catalog.entry("system", slug).value("devices_per_node")
    assert all(type(leaf) is float for leaf in jax.tree.leaves(system))
    assert catalog.default_software(slug) in catalog.names("software")


def test_an_accelerator_alone_is_a_system():
    system = catalog.record(types.System, "h100")
    assert system.scale_up.bandwidth == 450e9 and system.scale_up.domain == 8
    assert system.scale_out.bandwidth == 50e9
    assert system.accelerator == catalog.record(types.Accelerator, "h100-sxm-80gb")
    assert catalog.default_software("h100") in catalog.names("software")


@pytest.mark.parametrize("slug", [*catalog.names("system"), *catalog.names("accelerator")])
def test_what_serves_by_default_is_an_engine_of_its_vendor(slug):
    """But for machines whose whole stack is their own."""
    engine = catalog.default_software(slug, serving=True)
    assert catalog.vendor_mismatch(engine, slug) is None
    assert catalog.serving_defaults(engine) or engine == catalog.default_software(slug)


def test_a_design_that_serves_has_an_engine():
    served, trained = dse.design("llama-3-8b", "h100", concurrency=8), dse.design("llama-3-8b", "h100")
    assert served.software.engine is not None and trained.software.engine is None
    assert served.software == dse.design("llama-3-8b", "h100", "vllm").software


def test_an_accelerator_without_links_of_its_own_is_refused_as_a_system():
    with pytest.raises(InputError, match="links of wse-3 are not in the catalogue"):
        catalog.record(types.System, "wse-3")


def test_links_without_a_switch_join_one_domain_and_none_beyond():
    links = catalog.record(types.System, "tpu-v4").scale_up.links
    assert (links.topology, links.per_device, links.wrap) == (types.Topology.torus, 6.0, 4.0)
    with pytest.raises(InputError, match="a network that joins domains"):
        catalog.check_between(catalog.values("network", "ici-v4"), "sweep.toml: system.scale_out", "ici-v4")


def test_a_node_without_a_network_divides_nothing_by_zero():
    network = catalog.record(types.System, "b200-node").scale_out
    assert (network.domain, network.bandwidth) == (1.0, 1.0)


def test_numbers_that_people_know():
    a100, selene = catalog.record(types.Accelerator, "a100"), catalog.record(types.System, "selene")
    model = catalog.record(types.Workload, "megatron-1t")
    assert a100.matrix_rate.bf16 == 312e12 and a100.matrix_rate.fp8 == 0
    assert a100.memory == types.MemoryTier(capacity=79.15 * 2**30, bandwidth=2039e9)
    assert (selene.scale_up.bandwidth, selene.scale_out.bandwidth) == (300e9, 25e9)
    assert (model.n_layers, model.hidden, model.global_batch, model.dropout) == (128, 25600, 3072, 1)
    assert catalog.record(types.Software, "megatron-2022").attention == types.Attention.unfused
    assert catalog.entry("software", "fsdp").value("zero_stage") == 3


def test_a_workload_without_a_batch_trains_on_four_mi_tokens():
    batch = catalog.entry("workload", "llama-3-70b").values["global_batch"]
    assert batch.value * 8192 == 2**22
    assert batch.source.startswith("default")


@pytest.mark.parametrize("slug", catalog.names("workload"))
def test_published_parameter_counts(slug):
    from dse.model import main_model, parameter_count

    published = catalog.entry("workload", slug).value("parameters_published")
    counted = parameter_count(main_model(catalog.record(types.Workload, slug)))
    assert float(counted) == pytest.approx(published, rel=0.04)


#: Models whose names are their published counts, rounded; 109B of Llama 4 Scout have its vision tower in them.
ROUNDED = (
    "GPT-3-350M",
    "GPT-3-1.3B",
    "GPT-3-2.7B",
    "GPT-3-13B",
    "Megatron-1.7B",
    "Megatron-3.6B",
    "Megatron-5B",
    "Llama-4-Scout",
)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference tables are not beside this checkout")
def test_parameter_counts_of_the_reference_table():
    from dse.model import main_model, parameter_count

    rows = []
    for name in ("models.csv", "models_extra.csv"):
        with open(REFERENCE / name, encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    shapes = {row["name"]: catalog.record(types.Workload, row["name"]) for row in rows}  # no row is missing
    assert len(rows) == 124
    for row in rows:
        shape = shapes[row["name"]]
        count = float(parameter_count(main_model(shape)))
        # GPT-20B and -89B, of the second table, are counted without their 2,048 learned positions.
        positions = 2048 * float(shape.hidden) if row["name"] in ("GPT3-20B", "GPT-89B") else 0
        plain = shape.experts is None and shape.latent is None and shape.recurrent is None
        # Small vectors (biases of routers, norms of heads, decays) are in one count and not in the other.
        near = 1e-9 if plain else 1e-3 + 1e-4 * count / 1e9
        counted = round((count - positions) / 1e9, 3)
        assert counted == pytest.approx(float(row["params_calc_total_B"]), abs=near), row["name"]
        near = 0.03 if row["name"] in ROUNDED else 0.01
        assert count / 1e9 == pytest.approx(float(row["params_total_B"]), rel=near), row["name"]


def test_provenance_follows_what_a_system_names():
    sources = catalog.provenance("system", "selene")
    assert len(sources) == len(set(sources))
    assert any("A100 datasheet" in source for source, _ in sources)


# A user's own entries


def test_a_ten_line_accelerator(user_folder):
    write(user_folder / "accelerators", "my-chip", TEN_LINES)
    chip = catalog.record(types.Accelerator, "My Chip", folder=user_folder)
    assert chip.matrix_rate.bf16 == 500e12 and chip.matrix_rate.fp8 == 0
    assert chip.kernels == catalog.record(types.Accelerator, "wse-3").kernels  # the generic family
    assert chip.vector_rate > 0 and chip.cores > 0 and chip.cache > 0
    assert catalog.record(types.System, "my-chip", folder=user_folder).n_devices == 8
    assert catalog.check(user_folder) == []


def test_the_environment_adds_a_folder(user_folder, monkeypatch):
    write(user_folder / "accelerators", "my-chip", TEN_LINES)
    monkeypatch.setenv("DSE_CATALOG", str(user_folder))
    assert "my-chip" in catalog.names("accelerator")
    monkeypatch.setenv("DSE_CATALOG", str(user_folder / "absent"))
    with pytest.raises(InputError, match="DSE_CATALOG"):
        catalog.names("accelerator")


def test_a_users_entry_hides_the_shipped_one(user_folder):
    write(user_folder / "accelerators", "h100-sxm-80gb", TEN_LINES)
    assert catalog.record(types.Accelerator, "h100-sxm-80gb", folder=user_folder).matrix_rate.bf16 == 500e12
    assert catalog.record(types.Accelerator, "h100-sxm-80gb").matrix_rate.bf16 == 989.4e12


def test_a_stack_may_state_its_graphs(user_folder, monkeypatch):
    """A mapping that leaves them open has those of its stack, none where the stack states none."""
    shipped = catalog.entry("software", "nemo").path.read_text(encoding="utf-8")
    graphs = 'graph = "layer"\nattention ='
    write(user_folder / "software", "of-layers", shipped.replace("attention =", graphs, 1))
    monkeypatch.setenv("DSE_CATALOG", str(user_folder))
    options = dict(n_devices=8, tp=8)
    assert dse.design("llama-3-8b", "h100", "nemo", **options).mapping.graph is None
    assert dse.design("llama-3-8b", "h100", "of-layers", **options).mapping.graph == types.Graph.layer
    assert dse.design("llama-3-8b", "h100", "of-layers", graph="none", **options).mapping.graph == types.Graph.none


def test_an_edit_counts_at_once(user_folder):
    write(user_folder / "accelerators", "my-chip", TEN_LINES)
    before = catalog.digest([("accelerator", "my-chip")], user_folder)
    assert catalog.record(types.Accelerator, "my-chip", folder=user_folder).memory.capacity == 96e9
    write(user_folder / "accelerators", "my-chip", TEN_LINES.replace("96 GB", "128 GB"))
    assert catalog.record(types.Accelerator, "my-chip", folder=user_folder).memory.capacity == 128e9
    assert catalog.digest([("accelerator", "my-chip")], user_folder) != before


def test_the_digest_of_a_system_covers_what_it_names(tmp_path):
    copy = tmp_path / "hw_catalog"
    shutil.copytree(catalog.catalog_root(), copy)
    whole, selene, eos = (catalog.digest(used, copy) for used in (None, [("system", "selene")], [("system", "eos")]))
    path = copy / "networks" / "infiniband-hdr.toml"
    path.write_text(path.read_text() + "# edited\n")
    assert catalog.digest(None, copy) != whole
    assert catalog.digest([("system", "selene")], copy) != selene
    assert catalog.digest([("system", "eos")], copy) == eos


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("capacity", "capasity", "", "did you mean 'memory.capacity'"),
        ('"4 TB/s"', '"4 W"', "memory.bandwidth", "another dimension"),
        ('"4 TB/s"', "4e12", "memory.bandwidth", "no unit"),
        ('"4 TB/s"', '"-4 TB/s"', "memory.bandwidth", "more than 0"),
        ('"4 TB/s"', '{ value = "4 TB/s", sorce = "x" }', "memory.bandwidth", "did you mean 'source'"),
        ('"4 TB/s"', '{ value = "4 TB/s", confidence = "sure" }', "memory.bandwidth", "datasheet"),
        ('"paper"', '"rumour"', "confidence", "datasheet"),
        ('bf16 = "500 TFLOP/s"', "", "matrix_rate", "at least one"),
        ('source = "vendor announcement"', "", "source", "required"),
        ("[matrix_rate]", 'kernels = "hoper"\n[matrix_rate]', "kernels.family", "did you mean 'hopper'"),
    ],
)
def test_a_bad_field_is_named(user_folder, old, new, where, message):
    path = write(user_folder / "accelerators", "my-chip", TEN_LINES.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        catalog.record(types.Accelerator, "my-chip", folder=user_folder)
    assert caught.value.where == (f"{path}: {where}" if where else str(path))
    assert message in str(caught.value)
    assert len(catalog.check(user_folder)) == 1


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9])
def test_a_truncated_file_is_an_input_error(tmp_path, kept):
    copy = tmp_path / "hw_catalog"
    shutil.copytree(catalog.catalog_root(), copy)
    path = copy / "accelerators" / "a100-sxm-80gb.toml"
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"capacity") + 20] if kept == 0.5 else data[: int(kept * len(data)) - 1])
    with pytest.raises(InputError, match=r"a100-sxm-80gb\.toml"):
        catalog.record(types.Accelerator, "a100-sxm-80gb", folder=copy)
    assert catalog.check(copy)


def test_invalid_toml_names_the_line(user_folder):
    write(user_folder / "accelerators", "my-chip", 'source = "x"\nconfidence = = "paper"\n')
    with pytest.raises(InputError, match=r"my-chip\.toml: line 2"):
        catalog.record(types.Accelerator, "my-chip", folder=user_folder)


def test_a_file_that_is_no_text_is_an_input_error(user_folder):
    (user_folder / "accelerators" / "my-chip.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        catalog.record(types.Accelerator, "my-chip", folder=user_folder)


def test_a_mixture_of_experts_has_a_table_of_its_own(user_folder):
    source = catalog.entry("workload", "llama-3-8b").path.read_text()
    write(user_folder / "workloads", "my-moe", source + "\nn_experts = 8\n")
    with pytest.raises(InputError, match=r"state a mixture of experts under \[experts\]"):
        catalog.record(types.Workload, "my-moe", folder=user_folder)
    write(user_folder / "workloads", "my-dense", source + "\nn_experts = 1\n")
    with pytest.warns(Notice, match="my-moe.toml"):
        own = catalog.record(types.Workload, "my-dense", folder=user_folder)
    assert own == catalog.record(types.Workload, "llama-3-8b")


def test_key_value_heads_divide_the_heads(user_folder):
    source = catalog.entry("workload", "llama-3-8b").path.read_text()
    write(user_folder / "workloads", "odd", source.replace("n_kv_heads = 8", "n_kv_heads = 5"))
    with pytest.raises(InputError, match="divisors of n_heads = 32"):
        catalog.record(types.Workload, "odd", folder=user_folder)


def test_check_finds_dangling_references_and_shared_aliases(user_folder):
    selene = catalog.entry("system", "selene").path.read_text()
    write(user_folder / "systems", "moon", selene.replace("infiniband-hdr", "infiniband-hdd"))
    write(user_folder / "accelerators", "my-chip", 'aliases = ["H100"]\n' + TEN_LINES)
    problems = "\n".join(catalog.check(user_folder))
    assert "scale_out" in problems and "'infiniband-hdr'" in problems
    assert "my-chip.toml: aliases: 'H100' is also a name of 'h100-sxm-80gb'" in problems


# Optional records: stepped efficiencies and stated volumes


def test_steps_are_sorted_and_filled_up(user_folder):
    matrix = '[["128 GFLOP", 0.9], ["0 FLOP", 0.1]]'
    steps = f'[kernels.steps]\nmatrix = {matrix}\nvector = [["0 FLOP", 1]]\nmemory = [["0 B", 1]]'
    write(user_folder / "accelerators", "stepped", f"{TEN_LINES}\n{steps}")
    found = catalog.record(types.Accelerator, "stepped", folder=user_folder).kernels.steps
    assert found.matrix[:2] == ((0.0, 0.1), (128e9, 0.9)) and len(found.matrix) == len(found.memory) == 8
    assert catalog.record(types.Accelerator, "a100-sxm-80gb").kernels.steps is None


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ('matrix = [["1 GFLOP", 0.5]]', "begins at 0"),
        ('matrix = [["0 FLOP", 1.5]]', "at most 1"),
        ("matrix = 0.5", "pairs"),
        (f"matrix = {[['0 FLOP', 0.5]] * 9}", "1 to 8"),
        ('matrix = [["0 FLOP", 0.5]]', "all or none"),
    ],
)
def test_bad_steps(user_folder, steps, wanted):
    write(user_folder / "accelerators", "stepped", f"{TEN_LINES}\n[kernels.steps]\n{steps}")
    with pytest.raises(InputError) as raised:
        catalog.record(types.Accelerator, "stepped", folder=user_folder)
    assert "kernels.steps" in raised.value.where and wanted in str(raised.value)


def test_a_host_is_the_system_s_else_the_accelerator_s_link():
    assert catalog.record(types.System, "calculon-a100-80g").host.capacity == 512 * 2.0**30
    assert catalog.record(types.System, "selene").host.bandwidth == 31.5e9


def test_a_fitted_value_has_its_spread_and_others_none():
    values = catalog.entry("accelerator", "h100-sxm-80gb").values
    assert 0.0 < values["kernels.fine.gemm_efficiency"].spread < 0.1
    assert values["memory.bandwidth"].spread == 0.0


def test_constants_that_nobody_checked_are_listed():
    listed = {str(constant) for constant in catalog.unverified("system", "selene")}
    assert any("a100-sxm-80gb: cores = 108 [estimate]" in one for one in listed)
    assert not any("memory.bandwidth" in one for one in listed)  # of the data sheet
    assert any("infiniband-hdr: latency" in one for one in listed)
    fields = {c.field for c in catalog.unverified("accelerator", "mi300x")}
    assert "power.matrix_energy" in fields and "price" not in fields


def test_power_is_as_sold_with_the_energies_of_the_family():
    names = ("h200-sxm-141gb", "gh200-144gb", "rubin-r200")
    h200, gh200, rubin = (catalog.record(types.Accelerator, name).power for name in names)
    assert (h200.tdp, h200.nominal_clock, h200.clock, h200.feed) == (700.0, 1.98e9, 1.98e9, 5.6e12)
    assert gh200.uncore / gh200.tdp == pytest.approx(h200.uncore / h200.tdp)
    assert gh200.matrix_energy == h200.matrix_energy
    assert rubin.clock == 1.5e9  # the generic family's: none is stated
    found = catalog.entry("accelerator", "rubin-r200").values["power.clock"]
    assert (found.source, found.confidence) == ("typical of the family", "estimate")


def test_an_accelerator_may_state_its_own_power(tmp_path):
    folder = tmp_path / "accelerators"
    folder.mkdir()
    text = (catalog.catalog_root() / "accelerators" / "h200-sxm-141gb.toml").read_text()
    (folder / "own.toml").write_text(
        text.replace('"NVIDIA H200-SXM-141"', '"Own"').replace("aliases = [", "aliases = [] #")
        + '\n[power]\nuncore = "90 W"\nlimit = "500 W"\n'
    )
    own = catalog.record(types.Accelerator, "own", folder=tmp_path).power
    assert (own.uncore, own.limit, own.tdp) == (90.0, 500.0, 700.0)


@pytest.mark.parametrize("slug", catalog.names("accelerator"))
def test_voltage_curves_are_those_of_transistors(slug):
    """A threshold of at most 0.35 V over 0.9 V; above it no clock but the highest would ever be frugal."""
    power = catalog.record(types.Accelerator, slug).power
    assert 0.0 <= power.threshold <= HIGHEST_THRESHOLD
    assert 0.65 <= power.lowest_voltage <= 0.9


@pytest.mark.parametrize(("family", "node"), [("ampere", "n7"), ("volta", "n12"), ("ada", "n5"), ("cdna", "n5")])
def test_families_without_readings_take_the_energies_of_hopper_by_their_node(family, node):
    hopper, own = (catalog.entry("kernels", name) for name in ("hopper", family))
    ratio = catalog.record(types.LogicNode, node).energy / catalog.record(types.LogicNode, "n5").energy
    for name in ("matrix_energy", "cache_energy"):
        assert own.value(f"power.{name}") == pytest.approx(hopper.value(f"power.{name}") * ratio, rel=0.02), name


@pytest.mark.parametrize(("slug", "plain"), [("a30", "a100-sxm-80gb"), ("v100-pcie-32gb", "v100-sxm-32gb")])
def test_priors_of_the_fit_to_power_are_the_family_s(slug, plain):
    prior, family = CHIPS[slug], catalog.record(types.Accelerator, plain).power
    for name in ("matrix_energy", "cache_energy", "memory_energy"):
        assert getattr(prior, name) == pytest.approx(getattr(family, name), rel=0.01), name
    control = next(p.prior for p in prior.parameters if p.path.endswith("control"))
    for name, watts in (prior.fixed | dict(control=control)).items():
        if not name.endswith("energy"):
            assert watts / prior.tdp == pytest.approx(getattr(family, name) / family.tdp, rel=0.02), name


def test_a_board_of_less_power_is_the_same_chip_under_a_limit():
    """torchtitan's H100s of 500 W: what they lack of the 700 W module's clock is theirs, not their software's."""
    small, whole = (catalog.record(types.Accelerator, name).power for name in ("h100-sxm-96gb-hbm2e", "h100-sxm-80gb"))
    assert (small.limit, small.tdp, whole.limit) == (500.0, 700.0, None)
    assert small.uncore / small.tdp == pytest.approx(whole.uncore / whole.tdp, rel=0.05)


def _leaks(slug):
    return catalog.record(types.Accelerator, slug).power.leakage


def test_leakage_is_that_of_the_transistors_that_are_on():
    """A die leaks as much whatever the limit that its board is sold with, less where cores have no supply."""
    for one, other in (("a100-pcie-40gb", "a100-sxm-80gb"), ("h200-sxm-141gb", "gh200-144gb"), ("b100", "b200")):
        assert _leaks(one) == pytest.approx(_leaks(other))
    on = (208.0 * 148 / 160) / (80.0 * 132 / 144)
    assert _leaks("b200") / _leaks("h200-sxm-141gb") == pytest.approx(on)
    assert _leaks("a30") / _leaks("a100-sxm-80gb") == pytest.approx(56 / 108)
    assert _leaks("gaudi-3") / 900.0 == pytest.approx(0.12)  # which states no transistors


def test_more_cores_than_there_are_is_refused(tmp_path):
    """They would leak more than all transistors do."""
    (tmp_path / "accelerators").mkdir()
    own = (catalog.catalog_root() / "accelerators" / "h100-sxm-80gb.toml").read_text()
    (tmp_path / "accelerators" / "mine.toml").write_text(own.replace("full_cores = 144", "full_cores = 100"))
    with pytest.raises(InputError, match=r"structure\.full_cores.*132 or more"):
        catalog.record(types.Accelerator, "mine", folder=tmp_path)


_IDLE = [
    "a30", "a100-pcie-40gb", "a100-sxm-80gb", "b200-sxm-180gb", "gb200-nvl72", "h100-pcie-80gb", "h100-sxm-80gb",
    "h200-sxm-141gb", "mi250x-module", "mi300x", "p100-pcie-16gb", "v100-pcie-32gb", "v100-sxm-32gb",
]  # fmt: skip


@pytest.mark.parametrize("slug", _IDLE)
def test_boards_draw_at_rest_what_is_told_of_idle_ones_and_less_than_twice_that(slug):
    """Of boards with HBM; idle ones lower the clocks of memory and links and are cool (figures from memory)."""
    power, idle = catalog.record(types.Accelerator, slug).power, catalog.entry("accelerator", slug).value("idle_power")
    low = power.lowest_voltage
    leaks = power.leakage * low * math.exp(power.leakage_slope * (low - 1.0))
    assert 1.0 <= (power.uncore + leaks) / idle <= 1.8


def test_every_link_has_its_energy():
    assert catalog.record(types.Network, "nvlink-4").energy == pytest.approx(40e-12, rel=1e-6, abs=0.0)


@pytest.mark.parametrize(
    "slug",
    [
        "v100-sxm-16gb",
        "a100-sxm-80gb",
        "h100-sxm-80gb",
        "h200-sxm-141gb",
        "b200-sxm-180gb",
        "l40s",
        "tpu-v4",
    ],
)
def test_a_power_limit_that_nobody_states_is_about_what_chips_are_sold_with(slug, tmp_path):
    (tmp_path / "accelerators").mkdir()
    text = (catalog.catalog_root() / "accelerators" / f"{slug}.toml").read_text(encoding="utf-8")
    kept = [line for line in text.splitlines() if not line.startswith("tdp")]
    (tmp_path / "accelerators" / "unstated.toml").write_text("\n".join(kept).replace("aliases", "#"), encoding="utf-8")
    unstated = catalog.record(types.Accelerator, "unstated", folder=tmp_path).power
    sold = catalog.record(types.Accelerator, slug).power
    # A B200 is sold with the least over what its units could draw at full rates, which it never reaches.
    assert sold.tdp / unstated.tdp == pytest.approx(1.0, abs=0.18 if slug == "b200-sxm-180gb" else 0.16)


def test_every_accelerator_states_its_power_limit_or_its_budget():
    entries = [catalog.entry("accelerator", slug) for slug in catalog.names("accelerator")]
    assert not [one.path.name for one in entries if not {"tdp", "chip.power_budget"} & set(one.values)]


@pytest.mark.parametrize(
    ("text", "fix"), [("8k", "8192 or 8000"), ("128K", "131072 or 128000"), ("1M", "1048576 or 1000000"),
                      ("1.5k", "write 1.5e3"), ("300B", "write 300e9")]
)  # fmt: skip
def test_a_letter_for_thousands_may_be_of_two_kinds(text, fix):
    with pytest.raises(InputError, match=fix):
        catalog.quantity(text, "1")


def test_every_optional_record_has_a_table():
    """Records of a model's shape and of a network that files may have, by the fields that hold them."""
    shape = {path.removeprefix("workload.") for path in (records.EXPERTS, *records.OF_SHAPE)}
    assert shape == set(schema.ROWS["workload"]["optional"])
    optional = {field.name for field in dataclasses.fields(types.Network) if field.default is None}
    assert optional - {"alone"} == set(schema.ROWS["network"]["optional"])
