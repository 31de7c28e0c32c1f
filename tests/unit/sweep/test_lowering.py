"""Programs for GPUs, lowered without one: in single precision throughout, and without calls of Python."""

import csv
import importlib
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dse
from benchmarks.lowering import CASES, OF_PROCESSORS, lowered, lowering, program_of
from docs.make import lowering as page
from dse.io.environment import double_precision
from dse.sweep.engine.devices import scale_in_memory
from dse.sweep.engine.programs import PersistentFunction, persistent_jit
from tests.conftest import slow
from tests.pages import ROOT

#: Cases whose programs other ones have too, but for their size.
LONG = ("sweep of mixtures of experts", "search, co-design by descent", "gradients of serving", "plan of a service")

#: Case → functions that it asks for, by the ends of their names.
ASKED = {
    "sweep": {"full_chunk", "score_chunk", "summarise", "count_below", "gathered"},
    "search": {"_begin", "_learn_and_ask", "_evaluate_blocks", "_neighbourhood", "_place_points"},
    "search, co-design by descent": {"Hardware.project", "_leaves", "_all_mappings", "_pull_back", "_advance"},
    "gradients": {"value_and_slopes"},
    "posterior": set(),
    "plan": {"full_chunk"},
    "post-training": {"full_chunk", "answer_lengths", "_decode_steps"},
}


def listed():
    """The rows of the list that the page of benchmarks links to."""
    with (ROOT / page.LIST).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("case", [slow(case) if case in LONG else case for case in CASES])
def test_all_programs_lower_for_cuda(case):
    programs = lowered(case)
    assert not [program for program in programs if program.has_float64]
    names = {program.name.rpartition(":")[2] for program in programs}
    assert names == ASKED.get(case, ASKED.get(case.partition(" of ")[0]))
    assert {row["program"] for row in listed() if row["asked by"] == case} == {program.name for program in programs}


def test_every_function_whose_programs_are_kept_is_in_the_list():
    modules = (module.name for module in pkgutil.walk_packages(dse.__path__, "dse.") if "__main__" not in module.name)
    functions = {
        f"{value.__module__}:{value.__qualname__}"
        for name in modules
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, PersistentFunction)
    }
    rows = listed()
    assert {row["program"] for row in rows} >= functions - OF_PROCESSORS and functions >= OF_PROCESSORS
    assert {row["asked by"] for row in rows} == set(CASES) - {"posterior"}
    assert {row["float64"] for row in rows} == {"no"}


def test_the_page_sums_the_list_up(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(
        "asked by,program,arguments,operations,custom calls,float64\n"
        "search,dse.a:b,3,1200,,no\nplan of a run,dse.a:b,3,900,,no\npost-training,dse.c:d,3,7,,yes\n"
    )
    heading, text, table = page.section(path)
    assert heading == "## Programs for a card" and "3 programs of 2 functions, 1 with float64" in text
    assert "|`a:b`|search; plan of a run|900 to 1,200|" in table.splitlines()
    assert "|`c:d`|post-training|7|" in table.splitlines()


def test_double_precision_is_found_and_calls_of_python_are_refused():
    def doubled(x):
        return jnp.asarray(x, float) * 2.0

    def called(x):
        return jax.pure_callback(lambda value: value, jax.ShapeDtypeStruct((), np.float32), x)

    number = np.float32(1.0)
    assert not program_of("single", jax.jit(doubled), (number,), {}, "cuda").has_float64
    with double_precision():
        assert program_of("double", jax.jit(doubled), (number,), {}, "cuda").has_float64
    for platform, error in (("cuda", ValueError), ("cpu", NotImplementedError)):
        with pytest.raises(error):
            program_of("called", jax.jit(called), (number,), {}, platform)


def test_programs_are_as_before_once_they_have_been_lowered():
    tripled, plain = persistent_jit()(lambda x: 3.0 * x), jax.jit
    with lowering() as programs:
        assert jax.default_backend() == "gpu" and float(tripled(np.float32(2.0))) == 1.0
        assert float(jax.jit(lambda x: 3.0 * x)(np.float32(2.0))) == 1.0
    assert len(programs) == 2
    assert jax.jit is plain and jax.default_backend() == "cpu" and float(tripled(np.float32(2.0))) == 6.0


def test_chunks_of_gpus_are_as_long_as_their_memory_allows():
    assert [scale_in_memory(memory << 30) for memory in (1, 16, 40, 80, 192)] == [1, 8, 20, 40, 64]
