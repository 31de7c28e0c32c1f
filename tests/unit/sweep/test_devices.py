"""Four devices of a fake backend, in a process of their own: sweeps and a search give the bits of one device."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from dse.optimizers import evaluation, execute as search
from dse.sweep import execute
from dse.sweep.engine import engine
from dse.sweep.engine.clock import CompileClock
from dse.sweep.engine.devices import chunk_scale
from dse.sweep.engine.programs import persistent_jit
from tests.conftest import QUICK_COMPILATION
from tests.unit.optimizers import toy as spaces
from tests.unit.sweep import toy

MORE = '[objective]\nminimize = ["step_time", "peak_memory"]\n[output]\nhistogram = 12'
METHOD = 'method = "evolution"\nevaluations = 320\nseeds = 2'

#: Flags of XLA that users have.
OPTIMISED = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"


def computed(kept):
    """The bytes of all results of sweeps that keep what ``kept`` says, and of a search, by compiled programs."""
    engine.MAX_NUMPY_DESIGNS = evaluation.MAX_NUMPY_DESIGNS = 0
    results = []
    for keep in kept:
        axes = toy.MAPPING_AXES + 'memory.capacity = ["1 GB", "30 GB", "90 GB"]'
        dataset, told = execute(toy.sweep(axes, more=MORE), output=False, keep=keep, chunk=701, study=toy.STUDY)
        results += [keep.encode(), *_bytes(dataset), str((told.n_feasible, told.reasons)).encode()]
    dataset, _ = search(spaces.search(spaces.MAPPING_AXES + spaces.CONTINUOUS, search=METHOD), False, study=toy.STUDY)
    return b"".join([*results, *_bytes(dataset)])


def _bytes(dataset):
    for name in sorted(set(dataset.variables) - {"mapping"}):
        values = dataset[name].values
        yield str(values.tolist()).encode() if values.dtype == object else values.tobytes()


def started(n_devices, flags, kept):
    """A process of so many devices, each with its share of a chunk, that prints what it computed."""
    return _process(n_devices, flags, f"main({n_devices}, {kept})")


def _process(n_devices, flags, call, **environment):
    """A process of so many devices that prints the bytes of a call of this module."""
    code = f"import sys; from {__name__} import *; sys.stdout.buffer.write({call})"
    environment["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={n_devices}"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | environment)


def main(n_devices, kept):
    """What such a process prints."""
    assert len(jax.devices()) == chunk_scale() == n_devices
    return computed(kept)


def printed(process):
    found, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return found


@persistent_jit()
def double(x):
    """Twice a number, on one device."""
    return 2.0 * x


def twice():
    """What a program gives, and again once it is loaded from disk; whether it was compiled a second time."""
    first, compiled = float(double(np.float32(3.0))), CompileClock.read()[2]
    double.forget()
    return str((first, float(double(np.float32(3.0))), CompileClock.read()[2] - compiled)).encode()


def test_kept_programs_of_one_device_run_where_there_are_four(tmp_path):
    assert printed(_process(4, os.environ["XLA_FLAGS"], "twice()", DSE_CACHE=str(tmp_path))) == b"(6.0, 6.0, 0)"


@pytest.fixture
def numpy_again(monkeypatch):
    """Small sweeps and searches are evaluated by NumPy after the test, as before."""
    monkeypatch.setattr(engine, "MAX_NUMPY_DESIGNS", 0)
    monkeypatch.setattr(evaluation, "MAX_NUMPY_DESIGNS", 0)


@pytest.mark.usefixtures("numpy_again")
def test_four_devices_give_the_bits_of_one():
    """Two kinds of program: every output, and scores."""
    kept = ["all", "pareto"]
    process = started(4, os.environ["XLA_FLAGS"], kept)
    one = computed(kept)
    assert printed(process) == one and len(one) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("flags", [QUICK_COMPILATION, OPTIMISED])
def test_any_number_of_devices_changes_nothing(flags):
    kept = ["all", "feasible", "best", "top:20", "pareto"]
    one, *others = (printed(started(n_devices, flags, kept)) for n_devices in (1, 2, 3, 4))
    assert all(other == one for other in others) and len(one) > 10_000
