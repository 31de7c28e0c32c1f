"""Configurations of models made wrong are read or refused in four parts, each within two seconds."""

from __future__ import annotations

import copy
import json
import random
import time
import tomllib

import pytest

from dse.designs.catalog import huggingface
from tests.conftest import full_size
from tests.contract.fuzz.mutants import error_of
from tests.hub_configs import INT4_EXPERTS, MODELS

#: Values that no key is glad of.
VALUES = (
    None, True, False, 0, 1, -1, -8, 2, 3, 7, 2**31, 2**63, 10**40, 10**400, 0.5, -0.5, 1e308, 1e-308, "", "8", "4096",
    "auto", "none", "null", "\x00", "\x1b[31m", "x" * 5000, "٣", "1e9", "full_attention", "LLLG", [], [0], [8], [1, 2],
    [None], [True] * 5, ["full_attention"], ["sliding_attention"] * 64, [0, 1] * 40, [[]], [[1]], {}, {"a": 1},
    {"a": {"b": {"c": []}}}, {"quant_method": "fp8"}, {"num_bits": 4}, {"original_max_position_embeddings": -1},
        "3,4,5",
    list(range(200)), ["mamba"] * 40, "M*-E" * 20,
)  # fmt: skip

_QUANTIZED = (
    INT4_EXPERTS, {"quant_method": "fp8", "weight_block_size": [128, 128]}, {"quant_method": "awq", "bits": 4},
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.1.mlp*"]},
    {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
)  # fmt: skip


def places(value, path=()):
    """Paths of all keys of a configuration."""
    for key, inner in value.items():
        yield (*path, key)
        if isinstance(inner, dict):
            yield from places(inner, (*path, key))


def mutant(rng):
    """A configuration with one to four changes."""
    given = copy.deepcopy(rng.choice([row[0] for row in MODELS.values()]))
    if rng.random() < 0.3:
        given["quantization_config"] = copy.deepcopy(rng.choice(_QUANTIZED))
    donor = rng.choice([row[0] for row in MODELS.values()])
    for _ in range(rng.randint(1, 4)):
        *path, key = rng.choice(list(places(given)) or [("a",)])
        table = given
        for name in path:
            table = table[name]
        change, value = rng.randint(0, 8), table.get(key)
        if change == 0:
            table.pop(key, None)
        elif change == 1 and isinstance(value, int):
            table[key] = str(value)
        elif change == 2:
            table[key] = {key: value}
        elif change == 3:
            table[key] = [value] * rng.randint(0, 70)
        elif change == 4 and isinstance(value, int):
            table[key] = -value if rng.random() < 0.5 else value * 10 ** rng.randint(1, 30)
        elif change == 5:  # a key of another model
            table |= dict([rng.choice(list(donor.items()))])
        elif change == 6:
            table[key.swapcase()] = table.pop(key, None)
        elif change == 7 and isinstance(value, list) and value:
            value[rng.randrange(len(value))] = rng.choice(VALUES)
        else:
            table[key] = copy.deepcopy(rng.choice(VALUES))
    return given


def fault(given, text=None):
    """What is wrong with how a configuration is taken, "" for nothing."""

    def take():
        model = huggingface.read_config(huggingface.parse(text, "config.json") if text is not None else given)
        tomllib.loads(huggingface.as_toml(model, "made"))
        assert all(isinstance(remark, str) for remark in model.remarks)

    start = time.perf_counter()
    if words := error_of(take):
        return words
    taken = time.perf_counter() - start
    return f"{taken:.1f} s" if taken > 2.0 else ""


def test_mutants_of_configurations():
    rng = random.Random(60)
    faults = [(fault(given), given) for given in (mutant(rng) for _ in range(full_size(150, 2000)))]
    wrong = [(words, json.dumps(given)[:1500]) for words, given in faults if words]
    assert not wrong, wrong[:3]


def test_texts_cut_and_changed():
    rng = random.Random(61)
    for _ in range(full_size(60, 500)):
        text = json.dumps(rng.choice([row[0] for row in MODELS.values()]))
        start, end = sorted(rng.sample(range(len(text)), 2))
        cut = (
            text[:start]
            + rng.choice(["", "{", "]", '"', "NaN", "9" * 5000, "\\u0000", text[start:end] * 2])
            + text[end:]
        )
        assert fault({}, cut) == "", cut[:1500]


@pytest.mark.parametrize(
    "key", ["layer_types", "moe_layers_enum", "num_hidden_layers", "quantization_config", "unheard_of"]
)
def test_large_values_are_taken_within_two_seconds(key):
    large = (["full_attention"] * 400_000, ",".join(map(str, range(300_000))), 10**9, "9" * 10**6,
        {"a": ["x"] * 400_000},
        {"quant_method": "fp8", "modules_to_not_convert": [f"layers.{n}.mlp.down_proj" for n in range(60_000)]},
        {f"k{n}": n for n in range(19_000)})  # fmt: skip
    for name in ("Llama-3.1-8B", "Step-3.5-Flash"):
        for value in large:
            assert fault(MODELS[name][0] | {key: value}) == "", (name, str(value)[:60])
