"""Every test runs under JAX's strict promotion rules; a small sweep that several test files share.

Property tests are small and the same in every run; ``--hypothesis-profile=fuzz`` makes them long. Tests that spoil or
kill real runs try a few of many; ``DSE_FULL_SIZE=1`` makes them try all.
"""

from __future__ import annotations

import functools
import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from typer import main, testing

#: How long an example takes says more about the machine than about the strategy.
_ANY_SPEED = dict(deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Examples of a property in CI.
_EXAMPLES = 40

settings.register_profile("dse", **_ANY_SPEED, max_examples=_EXAMPLES, derandomize=True)
settings.register_profile("fuzz", **_ANY_SPEED, max_examples=2000)
settings.load_profile("dse")

#: A sweep of 44 designs, six (tp, pp), of which three fit into memory.
SMALL_SWEEP = """
title = "a small sweep"

[workload]
name = "gpt-3-13b"
global_batch = 64

[system]
name = "selene"
n_devices = 16

[software]
any_option = true

[axes]
tp = [1, 2, 8]
pp = [1, 2]
micro_batch = [1, 2]
recompute = ["none", "full"]
overlap_dp = [false, true]

[objective]
minimize = "step_time"
"""

#: A chip whose power moves less than its stacks of memory have, in the nodes of another, below measured loads.
CHIP_SERVING_SWEEP = """
title = "Llama 3 70B on a generated chip"
[workload]
name = "llama-3-70b"
[system]
name = "generated-b200"
accelerator = "gpu"
n_devices = 8
[serving]
[axes]
memory = ["hbm3-6-4", "hbm4-8-0"]
concurrency = [1, 16]
tp = [4, 8]
[objective]
minimize = "time_per_output_token"
"""

#: Folders of tests, which mark what is in them: rooms one by one, laws over many designs, published numbers, what users
#: rely on, pages and package.
KINDS = ("unit", "laws", "published", "contract", "repo")

#: Files whose programs take minutes to compile.
LONG = (
    "laws/test_laws.py",
    "unit/sweep/test_chips.py",
    "contract/cli/test_cli.py",
    "unit/model/accounts/test_energy.py",
    "unit/optimizers/test_codesign.py",
)


#: Files of rooms that take seconds of a processor each, which ``make test-unit`` leaves to ``make test``.
HEAVY = frozenset(Path(__file__).with_name("heavy.txt").read_text(encoding="utf-8").split())


#: XLA compiles in less time under these, and what it makes runs slower: tests compile much and run little. Tests
#: of rates and of fused outputs run processes with the flags that users have, of kept programs the slow ones.
#: (Without its emitters of fusions it would be faster still, but some programs then take all memory.)
QUICK_COMPILATION = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion --xla_backend_optimization_level=0"


def full_size(few: int, many: int) -> int:
    """How many a test tries: many under ``--hypothesis-profile=fuzz``, as property tests do."""
    return many if settings().max_examples > _EXAMPLES else few


def slow(*values: object):
    """A case of a test that only ``make test-slow`` runs: other cases of it are quick and take the same path."""
    return pytest.param(*values, marks=pytest.mark.slow)


def pytest_configure(config: pytest.Config) -> None:
    """Share compiled programs between processes and runs, then make JAX strict."""
    os.environ.setdefault("XLA_FLAGS", QUICK_COMPILATION)
    kept = config.rootpath / ".cache"
    os.environ.setdefault("DSE_CACHE", str(kept / "dse"))
    for name, value in (
        ("COMPILATION_CACHE_DIR", kept / "jax"),
        ("PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", 0),
        ("PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", -1),
    ):
        os.environ.setdefault(f"JAX_{name}", str(value))
    os.environ.pop("DSE_CATALOG", None)
    os.environ.pop(
        "COLUMNS", None
    )  # set for workers of pytest-xdist: tables are as wide as in a pipe, unless a test says so
    from dse.io import fuse_outputs

    fuse_outputs()
    import jax

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector of garbage would look through it over and over."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by folder, and heavy files; long files first, so that at the end no worker is left alone with one."""
    root = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(root)
        if path.parts[0] in KINDS:
            item.add_marker(path.parts[0])
        if path.as_posix() in HEAVY:
            item.add_marker("heavy")
    items.sort(key=lambda item: item.path.relative_to(root).as_posix() not in LONG)


@pytest.fixture(scope="session", autouse=True)
def commands_are_built_once() -> None:
    """Typer would make all commands of their functions for every command line, a fifth of a second each."""
    main.get_command = testing._get_command = functools.cache(main.get_command)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps are compiled however small they are: those of tests are so small that NumPy would evaluate them."""
    from dse.sweep.engine import engine

    monkeypatch.setattr(engine, "MAX_NUMPY_DESIGNS", 0)


@pytest.fixture
def small_sweep(tmp_path: Path) -> Path:
    """The file of the small sweep."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL_SWEEP)
    return path


@pytest.fixture(scope="session")
def small_results(tmp_path_factory: pytest.TempPathFactory):
    """The results of the small sweep, in memory and on disk: (dataset, path)."""
    import dse

    folder = tmp_path_factory.mktemp("small")
    (folder / "small.toml").write_text(SMALL_SWEEP)
    path = folder / "small.nc"
    return dse.run(folder / "small.toml", output=path), path


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Leave room for programs: each takes some dozen memory maps, and the kernel grants a process 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 15_000:
        import jax

        jax.clear_caches()
