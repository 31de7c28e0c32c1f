"""Compiled programs that outlive the process: a second run neither traces nor compiles.

JAX's own cache of compilations asks for the traced program first, which takes longer than a small sweep. Here a
program is found by what it is made from: the code of this package, versions, device and its driver, flags and the
shapes of its arguments. Place of programs, and which of them are trusted: :mod:`dse.io.cache`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import jax
import jaxlib
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from dse.io import cache
from dse.io.environment import processors
from dse.io.files import code_digest, folder_digest, folder_of
from dse.io.plugins import plugins
from dse.sweep.engine.clock import COMPILING_THREADS, CompileClock

#: Options of XLA for CPUs under which compiling takes two fifths of the processor time: no optimisation, loops written
#: by the older of its two emitters, and programs cut for as many processors as there are beside other programs, where
#: XLA would make 32 parts of each.
_QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": min(max(1, processors() // 2), 32),
}

#: Options of XLA for CPUs under which loops over designs take a sixth less time: whole vectors of 512 bits where there
#: are any, and maxima and minima of one instruction, which give the other operand in the place of no number: the model
#: has none.
FAST = {"xla_cpu_prefer_vector_width": 512, "xla_cpu_enable_fast_min_max": True}

#: Those of them that all versions of XLA have.
_COMMON_OPTIONS = {"xla_backend_optimization_level": 0}

#: Environment variables with flags of compilers.
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")

#: Entry points of JAX's plugins, and files in which Linux has the versions of drivers.
_PLUGINS = "jax_plugins"
_DRIVERS = Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version")

#: Threads in which XLA compiles.
_COMPILING = ThreadPoolExecutor(4, COMPILING_THREADS)


class PersistentFunction:
    """A jitted function whose compiled programs are kept on disk.

    Positional arguments are traced. Keyword arguments are static: their ``str`` is part of a program's key.
    """

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._for_processors = options
        self.jitted: Any = jax.jit(function, static_argnames=static)  # JAX's type for it has no clear_cache
        self._loaded: dict[Hashable, Future[Callable[..., Any]]] = {}

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """Return the function's value at these arguments, computed by its compiled program."""
        return self.compiled(*arguments, **static)(*arguments)

    def compiled(self, *arguments: Any, **static: Any) -> Callable[..., Any]:
        """Return the program for arguments of these shapes, to be called with positional arguments alone."""
        if not self._is_cacheable(static) and not self._options():
            return functools.partial(self.jitted, **static)
        program = self._program(arguments, static)[0]
        with CompileClock.loading():
            return program.result()

    def begin(self, *arguments: Any, **static: Any) -> Any:
        """Start to compile the program for arguments like these in another thread, unless it is there already.

        XLA leaves Python to others meanwhile. Returns the shapes of its value; None where nothing is compiled.
        """
        return self._program(arguments, static)[1] if self._options() else None

    def _is_cacheable(self, static: dict[str, Any]) -> bool:
        """Return True where there is a cache and all static arguments are the package's own code."""
        return cache.folder() is not None and all(getattr(value, "is_cacheable", True) for value in static.values())

    def _program(self, arguments: tuple[Any, ...], static: dict[str, Any]) -> tuple[Future[Callable[..., Any]], Any]:
        """Return the program, maybe still compiling, and the shapes of its value, None if it was there already."""
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple(map(jax.typeof, leaves))
        key = (structure, shapes, *sorted(static.items()))
        future = self._loaded.get(key)
        if future and not (future.done() and future.exception()):
            return future, None
        static_texts = ((name, str(static[name])) for name in sorted(static))
        name = self._function.__module__, self._function.__qualname__
        cache_key = environment_text() + str((*name, self._options(), self._digest, structure, shapes, *static_texts))
        self._loaded[key], output_shapes = self._load_or_compile(
            cache_key if self._is_cacheable(static) else None, arguments, static
        )
        return self._loaded[key], output_shapes

    def forget(self) -> None:
        """Release the programs that this process holds: each takes dozens of its memory maps."""
        self._loaded.clear()
        self.jitted.clear_cache()

    def _options(self) -> dict[str, Any] | None:
        """Return the options of XLA on a processor; None without any, and on other devices."""
        return dict(self._for_processors) if self._for_processors and jax.default_backend() == "cpu" else None

    @property
    def _digest(self) -> str:
        """Digest of the files beside the function's own; ``code_digest`` covers files outside of the model."""
        return folder_digest(folder_of(self._function))

    def _load_or_compile(
        self, cache_key: str | None, arguments: tuple[Any, ...], static: dict[str, Any]
    ) -> tuple[Future[Callable[..., Any]], Any]:
        """Return the program from disk and None; or else a new one, saved there, and the shapes of its value."""
        with CompileClock.loading():
            serialized = cache.load(cache_key) if cache_key else None
            if serialized is not None:
                with contextlib.suppress(Exception):  # of another machine's making, say: then it is made again
                    loaded = Future[Callable[..., Any]]()
                    loaded.set_result(_deserialized(*serialized))
                    return loaded, None
        traced = self.jitted.trace(*arguments, **static)
        lowered, options, calls_back = traced.lower(), self._options(), bool(traced.jaxpr.effects)

        def compile_and_save() -> Callable[..., Any]:
            with compiling_uncached():
                compiled = _compile(lowered, options)
            if cache_key and not calls_back:  # into this process
                try:
                    cache.save(cache_key, _serialized(compiled))
                except Exception as error:  # some devices' programs cannot be kept: it only costs time
                    cache.warn_once(f"programs of this device are compiled anew by every process: {error}")
            return compiled

        return _COMPILING.submit(compile_and_save), traced.out_info


def _serialized(compiled: Any) -> tuple[Any, tuple[int, ...]]:
    """Return a program as :mod:`serialize_executable` writes it, and the numbers of its devices."""
    devices = compiled.runtime_executable().local_devices()
    return serialize_executable.serialize(compiled), tuple(device.id for device in devices)


def _deserialized(serialized: Any, device_ids: tuple[int, ...]) -> Callable[..., Any]:
    """Return the program that :func:`_serialized` has written: on its own devices, where JAX would take all."""
    devices = {device.id: device for device in jax.devices()}
    where = {} if set(device_ids) == set(devices) else {"execution_devices": [devices[i] for i in device_ids]}
    program: Callable[..., Any] = serialize_executable.deserialize_and_load(*serialized, **where)
    return program


def _compile(lowered: Any, options: dict[str, Any] | None) -> Any:
    """Return the compiled program of what is lowered, with those of the options that this XLA has."""
    try:
        return lowered.compile(options)
    except jax.errors.JaxRuntimeError:
        if not options or options.items() <= _COMMON_OPTIONS.items():
            raise
        return lowered.compile({name: value for name, value in options.items() if name in _COMMON_OPTIONS})


class _UncachedCompilation:
    """Number of threads that compile without JAX's cache, and the setting to restore after the last."""

    lock: ClassVar[threading.Lock] = threading.Lock()
    threads: ClassVar[int] = 0
    setting: ClassVar[bool] = False


@contextlib.contextmanager
def compiling_uncached() -> Iterator[None]:
    """Switch off JAX's cache of compilations while the context lasts: CPUs cannot save what comes from it again."""
    with _UncachedCompilation.lock:
        if not _UncachedCompilation.threads:
            _UncachedCompilation.setting = _setting("jax_enable_compilation_cache")
            _use_cache(False)
        _UncachedCompilation.threads += 1
    try:
        yield
    finally:
        with _UncachedCompilation.lock:
            _UncachedCompilation.threads -= 1
            if not _UncachedCompilation.threads:
                _use_cache(_UncachedCompilation.setting)


def _use_cache(enabled: bool) -> None:
    """Switch JAX's cache of compilations on or off, and forget what it has loaded."""
    jax.config.update("jax_enable_compilation_cache", enabled)
    compilation_cache.reset_cache()


def persistent_jit(
    *static: str,
    quickly: bool = False,
    options: dict[str, Any] = {},  # noqa: B006
) -> Callable[[Callable[..., Any]], PersistentFunction]:
    """Return a decorator like ``jax.jit`` that keeps the compiled programs of its function on disk.

    Args:
        *static: names of static keyword arguments, whose ``str`` must tell their values apart.
        quickly: for programs that run a few times only: they compile in half the time and run slower.
        options: options of XLA for processors.
    """
    return functools.partial(PersistentFunction, static=static, options=_QUICKLY if quickly else options)


def _setting(name: str) -> Any:
    """Return the value of a setting of JAX, which makes them attributes when it is imported."""
    return getattr(jax.config, name)


@functools.cache
def environment_text() -> str:
    """Return a text of all that a program depends on besides its description: code, versions, flags, device."""
    device = jax.devices()[0]
    versions = code_digest(), jax.__version__, jaxlib.__version__, platform.python_version()
    flags = (os.environ.get(name) for name in _FLAGS)
    devices = device.platform, device.device_kind, len(jax.devices())
    return str((*versions, *flags, *devices, *_platform_versions(device), _processor()))


def _platform_versions(device: Any) -> tuple[str, ...]:
    """Return versions of the platform: its runtime (CUDA, ROCm), plugins of JAX, driver; instructions of the device.

    Machine code of one runtime, plugin or driver may fail, or give other numbers, under another.
    """
    runtime = str(getattr(device.client, "platform_version", ""))
    plugin_versions = (f"{e.name} {e.value} {e.dist.version if e.dist else ''}" for e in plugins(_PLUGINS).values())
    drivers = (file.read_text(encoding="utf-8", errors="replace") for file in _DRIVERS if file.is_file())
    return runtime, str(getattr(device, "compute_capability", "")), *plugin_versions, *drivers


def _processor() -> str:
    """Return the name and features of the processor: compiled code uses what the machine has."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return str(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
