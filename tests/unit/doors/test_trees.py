"""Trees without JAX: the leaves and structures that JAX has, and records that are its trees in any order of imports."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest

import dse
from dse.types import Network, trees
from dse.types.paths import leaves

DESIGN = dse.design("deepseek-v3", "h100", tp=8, n_devices=64)
TREES = {
    "design": DESIGN,
    "metrics": dse.evaluate(DESIGN),
    "containers": ({"b": (1.0, None, [2.0]), "a": DESIGN.system}, None, np.ones(2)),
    "leaf": 1.0,
    "nothing": None,
    "fields": trees.Structure(None, 1),  # a dataclass that is no record
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_trees_are_those_of_jax(tree):
    values, structure = trees.flatten(tree)
    expected = jax.tree.leaves(tree)
    assert len(values) == len(expected) and all(a is b for a, b in zip(values, expected, strict=True))
    assert structure.to_jax() == jax.tree.structure(tree)
    assert trees.from_jax(jax.tree.structure(tree)) == structure
    assert pickle.loads(pickle.dumps(structure)) == structure and hash(structure) == hash(trees.tree_structure(tree))
    rebuilt = structure.unflatten(values)
    assert jax.tree.structure(rebuilt) == jax.tree.structure(tree)
    assert all(a is b for a, b in zip(jax.tree.leaves(rebuilt), expected, strict=True))


def test_a_map_takes_leaves_of_several_trees():
    sums = trees.tree_map(lambda a, b: a + b, {"x": (1, 2)}, {"x": (10, 20)})
    assert sums == {"x": (11, 22)}


def test_records_have_the_methods_of_frozen_dataclasses():
    values = dict.fromkeys(leaves(Network), 1.0)
    network = Network(**values)
    assert network == Network(**values) and hash(network) == hash(Network(**values)) and network != 1.0
    assert network != Network(**values | {"latency": 2.0})
    assert copy.deepcopy(network) == pickle.loads(pickle.dumps(network)) == network
    assert eval(repr(network)) == network  # the call that makes it
    with pytest.raises(AttributeError):
        network.latency = 2.0
    with pytest.raises(TypeError, match="no value for latency"):
        Network(**{name: value for name, value in values.items() if name != "latency"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Network(**values, colour=1.0)


@pytest.mark.parametrize(
    "imports",
    [
        "import jax; import dse; d = dse.design('gpt-3-13b', 'selene', tp=8, n_devices=8)",
        "import dse; import jax; d = dse.design('gpt-3-13b', 'selene', tp=8, n_devices=8)",
        "from dse import design, evaluate; d = design('gpt-3-13b', 'selene', tp=8, n_devices=8); import jax, dse",
        "from dse.types import Design; import jax.numpy; import jax, dse; "
        "d = dse.design('gpt-3-13b', 'selene', tp=8, n_devices=8)",
        "import dse.types, importlib.util as u; u.find_spec('jax'); from jax import tree_util; import jax, dse; "
        "d = dse.design('gpt-3-13b', 'selene', tp=8, n_devices=8)",
    ],
    ids=["jax first", "jax before designs", "jax last", "jax after records", "jax by its parts"],
)
def test_designs_are_pytrees_whenever_jax_is_imported(imports):
    code = (
        f"{imports}\n"
        "batch = jax.tree.map(lambda leaf: jax.numpy.array([leaf, leaf], float), d)\n"
        "times = jax.vmap(dse.evaluate)(batch).step_time\n"
        "assert times.shape == (2,) and abs(times[0] / dse.evaluate(d).step_time - 1.0) < 1e-5, times"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_design_is_evaluated_without_jax_once_its_equations_are_cached(tmp_path):
    code = (
        "import sys, dse; d = dse.design('gpt-3-13b', 'selene', tp=8, n_devices=8)\n"
        "print(float(dse.evaluate(d).step_time), 'jax' in sys.modules)"
    )
    environment = {"DSE_CACHE": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    answers = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    first, second = (done.stdout.split() for done in answers)
    assert first[1] == "True" and second == [first[0], "False"]
