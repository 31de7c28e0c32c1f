"""Programs kept on disk: found again by what they are made from, and made again when anything is wrong."""

import os
import shutil
import subprocess
import sys
import threading
import time
import types

import jax
import numpy as np
import pytest

from dse.io import cache
from dse.sweep import execute, plan
from dse.sweep.engine import devices, programs
from dse.sweep.engine.engine import SweepEngine
from tests.conftest import QUICK_COMPILATION, slow
from tests.unit.sweep import toy
from tests.unit.sweep.toy import sweep

_RUN = """
import sys
import jax
from dse.sweep import execute
from dse.sweep.engine import engine
from tests.unit.sweep import toy
engine.MAX_NUMPY_DESIGNS = 0
for keep in ("all", "top:20"):
    dataset, summary = execute(toy.sweep(), output=False, keep=keep, chunk=701)
    for name in dataset.data_vars:
        sys.stdout.buffer.write(dataset[name].values.tobytes())
    print(len(jax.devices()), summary.n_programs, summary.seconds["trace"] > 0.0, file=sys.stderr)
"""


def run(folder, flags=None):
    """(bytes of the results, devices, programs compiled, whether anything was traced) of a fresh process."""
    environment = os.environ | {"DSE_CACHE": str(folder)} | ({"XLA_FLAGS": flags} if flags else {})
    for name in ("JAX_COMPILATION_CACHE_DIR", *(() if flags else ("XLA_FLAGS",))):
        environment.pop(name, None)  # as users have it
    done = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, env=environment, check=True)
    lines = [line.split() for line in done.stderr.decode().splitlines()[-2:]]
    return done.stdout, int(lines[0][0]), sum(int(line[1]) for line in lines), any(line[2] == "True" for line in lines)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """A folder of kept programs, and what the process gave that made them; compiled in less time than users' are."""
    folder = tmp_path_factory.mktemp("kept")
    return folder, run(folder, QUICK_COMPILATION)


@pytest.mark.parametrize(
    "flags",
    [QUICK_COMPILATION, slow(None), slow(f"{QUICK_COMPILATION} --xla_force_host_platform_device_count=2")],
)
def test_a_second_process_neither_traces_nor_compiles(tmp_path, flags, first_run):
    """With the flags of the tests, with those that users have, with two devices."""
    folder, first = first_run if flags == QUICK_COMPILATION else (tmp_path, run(tmp_path, flags))
    second = run(folder, flags)
    assert first[1] == second[1] == (2 if "device_count" in str(flags) else 1)
    assert first[2] > 0 and first[3]
    assert second[2] == 0 and not second[3]
    assert first[0] == second[0] and len(first[0]) > 10_000


@pytest.mark.slow  # tests/unit/io/test_cache.py holds it for the store itself
def test_broken_programs_are_made_again(tmp_path, first_run):
    kept, first = first_run
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.rglob("?" * 64):
        file.write_bytes(b"broken")
    again = run(tmp_path, QUICK_COMPILATION)
    assert again[0] == first[0] and again[3]
    assert not run(tmp_path, QUICK_COMPILATION)[3]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DSE_CACHE", str(tmp_path))
    return cache.folder()


@pytest.mark.filterwarnings("ignore::dse.errors.Notice")  # of a model that NumPy cannot evaluate
def test_models_of_others_are_not_kept(folder):
    execute(sweep("tp = [1, 2]"), output=False)  # what sweeps of any constraints share is loaded, whatever ran before
    own = '[constraints]\nall = ["mfu < 0.1234"]'  # a program that no test of this process has loaded
    execute(sweep("tp = [1, 2]", more=own), output=False, study=toy.STUDY)
    kept = len(list(folder.glob("?" * 64)))
    execute(sweep("tp = [1, 2]", more=own), output=False)
    assert len(list(folder.glob("?" * 64))) == kept + 2  # the model's program, and the choice of its nest


def test_a_program_depends_on_constraints_objectives_and_circumstances(monkeypatch):
    def told(more):
        return str(SweepEngine(plan(sweep("tp = [1, 2]", more=more))[0]).program)

    assert (
        len(
            {
                told(""),
                told('[objective]\nmaximize = "mfu"'),
                told('[objective]\nminimize = "mfu"'),
                told('[constraints]\nall = ["mfu < 0.2"]'),
                told('[constraints]\nall = ["mfu < 0.3"]'),
            }
        )
        == 5
    )


def _device(**versions):
    """A GPU, with its platform's version and other attributes."""
    client = types.SimpleNamespace(platform_version=versions.pop("runtime", "cuda 12080"))
    return types.SimpleNamespace(platform="gpu", device_kind="NVIDIA H100", client=client, **versions)


def test_a_program_depends_on_code_flags_processor_and_the_versions_of_the_platform(tmp_path, monkeypatch):
    """Runtime, compute capability, plugins of JAX and driver."""
    driver = tmp_path / "version"
    driver.write_text("NVRM version: 570.86.15")
    distribution = types.SimpleNamespace(version="0.10.2")
    plugin = types.SimpleNamespace(name="xla_cuda12", value="jax_plugins.xla_cuda12", dist=distribution)

    def text():
        programs.environment_text.cache_clear()
        return programs.environment_text()

    monkeypatch.setattr(jax, "devices", lambda: [_device(compute_capability="9.0")])
    monkeypatch.setattr(programs, "_DRIVERS", (driver, tmp_path / "no such driver"))
    monkeypatch.setattr(programs, "plugins", lambda group: {plugin.name: plugin} if group == "jax_plugins" else {})
    texts = [text()]
    assert all(version in texts[0] for version in ("cuda 12080", "9.0", "xla_cuda12", "0.10.2", "570.86.15"))
    distribution.version = "0.10.3"
    texts.append(text())
    driver.write_text("NVRM version: 570.124.06")
    texts.append(text())
    for name, value in (("code_digest", lambda: "other"), ("_processor", lambda: "other")):
        monkeypatch.setattr(programs, name, value)
        texts.append(text())
    for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        monkeypatch.setenv(name, "--other")
        texts.append(text())
    for device in (
        _device(compute_capability="9.0", runtime="cuda 12090"),
        _device(compute_capability="10.0"),
        types.SimpleNamespace(platform="gpu", device_kind="a card without attributes", client=object()),
    ):
        monkeypatch.setattr(jax, "devices", lambda device=device: [device])
        texts.append(text())
    programs.environment_text.cache_clear()
    assert len(set(texts)) == len(texts) == 10


def test_a_disk_that_refuses_keeps_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DSE_CACHE", str(tmp_path / "file"))
    assert cache.get_or_compute("seven", lambda: 7) == 7
    doubled = programs.persistent_jit()(lambda x: 2.0 * x)
    np.testing.assert_array_equal(doubled(np.float32(3.0)), 6.0)


@pytest.mark.parametrize("error", [jax.errors.JaxRuntimeError("UNIMPLEMENTED: serialisation"), TypeError("no pickle")])
def test_devices_whose_programs_cannot_be_kept_run_them(tmp_path, monkeypatch, caplog, error):
    """Plugins of PJRT need not serialise executables; a run says once that nothing is kept."""

    def refuse(*_):
        raise error

    monkeypatch.setenv("DSE_CACHE", str(tmp_path))
    monkeypatch.setattr(programs.serialize_executable, "serialize", refuse)
    monkeypatch.setattr(cache, "_logged", [])
    double = programs.persistent_jit()(lambda x: 2.0 * x)
    assert float(double(np.float32(3.0))) == float(double(np.float32(3.0))) == 6.0
    assert float(programs.persistent_jit()(lambda x: 4.0 * x)(np.float32(3.0))) == 12.0
    assert [file.name for file in cache.folder().iterdir()] in ([], ["key"])
    assert [record.getMessage().count("compiled anew") for record in caplog.records] == [1]


def test_kept_programs_that_a_device_refuses_are_made_again(tmp_path, monkeypatch):
    """Of another driver, say, whose version nobody told."""

    refused = []

    def refuse(*_):
        refused.append(True)
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no kernel image")

    monkeypatch.setenv("DSE_CACHE", str(tmp_path))
    double = programs.persistent_jit()(lambda x: 2.0 * x)
    assert float(double(np.float32(3.0))) == 6.0
    double.forget()
    monkeypatch.setattr(programs.serialize_executable, "deserialize_and_load", refuse)
    assert float(double(np.float32(3.0))) == 6.0
    assert refused


def _scale_of(monkeypatch, *machines):
    """``chunk_scale`` of a process with devices of (platform, what they tell of their memory)."""
    local = [types.SimpleNamespace(platform=platform, memory_stats=tell) for platform, tell in machines]
    monkeypatch.setattr(jax, "local_devices", lambda: local)
    devices.chunk_scale.cache_clear()
    try:
        return devices.chunk_scale()
    finally:
        devices.chunk_scale.cache_clear()


def test_devices_that_do_not_tell_their_memory_have_chunks(monkeypatch):
    def refuse():
        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: memory_stats")

    for tell in (refuse, lambda: None, dict):
        assert _scale_of(monkeypatch, ("other", tell)) == devices.scale_in_memory(1 << 34)


def test_chunks_grow_with_devices_and_with_the_memory_that_jax_preallocates(monkeypatch):
    """By hand: a quarter of 60 GiB, three quarters of a card of 80, holds 30 times 2^19 designs of 1024 bytes."""

    def gpu(share, card=80):
        return "gpu", lambda: {"bytes_limit": int(share * card * 2**30), "bytes_in_use": 2**30}

    assert [_scale_of(monkeypatch, *[gpu(0.75)] * n) for n in (1, 3, 8)] == [30, 90, 240]
    assert [_scale_of(monkeypatch, gpu(share)) for share in (0.1, 0.4, 0.75, 0.9)] == [4, 16, 30, 36]
    assert _scale_of(monkeypatch, gpu(0.75), gpu(0.75, card=24)) == 2 * 9  # the smallest card's share is everyone's
    assert [_scale_of(monkeypatch, *[("cpu", None)] * n) for n in (1, 4)] == [1, 4]


def test_without_a_folder_programs_are_plain_jit(monkeypatch):
    monkeypatch.setenv("DSE_CACHE", "0")
    doubled = programs.persistent_jit("times")(lambda x, *, times: times * x)
    assert float(doubled(np.float32(3.0), times=2)) == 6.0


def test_threads_that_compile_at_once_leave_jax_its_cache(monkeypatch):
    """Each is told that there is a cache, whatever the others have switched off meanwhile."""
    before, together, seen = jax.config.jax_enable_compilation_cache, threading.Barrier(2), []

    def compiling():
        with programs.compiling_uncached():
            together.wait(timeout=60)
            seen.append(jax.config.jax_enable_compilation_cache)
            together.wait(timeout=60)

    jax.config.update("jax_enable_compilation_cache", True)
    try:
        threads = [threading.Thread(target=compiling) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [False, False]
        assert jax.config.jax_enable_compilation_cache
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


def test_options_that_this_xla_does_not_know_are_left_out(tmp_path, monkeypatch):
    """Versions differ in what programs that are made quickly may ask for."""
    monkeypatch.setenv("DSE_CACHE", str(tmp_path))
    monkeypatch.setattr(programs, "_QUICKLY", {"xla_backend_optimization_level": 0, "xla_cpu_no_such_option": False})
    double = programs.persistent_jit(quickly=True)(lambda x: 2.0 * x)
    assert float(double(np.float32(3.0))) == 6.0


def test_options_hold_where_nothing_is_kept(monkeypatch):
    asked, compiled = [], programs._compile
    monkeypatch.setenv("DSE_CACHE", "0")
    monkeypatch.setattr(programs, "_compile", lambda *given: (asked.append(given[1]), compiled(*given))[1])
    double = programs.persistent_jit(options={"xla_backend_optimization_level": 0})(lambda x: 2.0 * x)
    assert [float(double(np.float32(x))) for x in (3.0, 4.0)] == [6.0, 8.0]
    assert asked == [{"xla_backend_optimization_level": 0}]


def test_recording_counts_as_tracing_and_nothing_twice():
    """What JAX traces and compiles within the time of a recording is a part of it."""
    before, start = programs.CompileClock.read()[:2], time.perf_counter()
    with programs.CompileClock.recording():
        time.sleep(0.02)
        jax.jit(lambda x: x * 3.25 + 1.0)(np.float32(2.0))
    elapsed = time.perf_counter() - start
    trace, compiled = (now - then for now, then in zip(programs.CompileClock.read()[:2], before, strict=True))
    assert trace >= 0.02 and compiled > 0.0
    assert trace + compiled == pytest.approx(elapsed, rel=0.05)
