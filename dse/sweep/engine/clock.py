"""Time that JAX spends tracing and compiling, of which a process without JAX has none."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

#: How the names of threads begin in which XLA compiles.
COMPILING_THREADS = "compiling"


class CompileClock:
    """Seconds of tracing and compiling in this process, as JAX reports them, and of recording equations."""

    seconds: ClassVar[dict[str, float]] = {"trace": 0.0, "compile": 0.0}
    programs: ClassVar[int] = 0
    _listening: ClassVar[bool] = False

    @classmethod
    def read(cls) -> tuple[float, float, int]:
        """Return (seconds traced, seconds compiled or loaded, programs compiled) since the first reading.

        All are 0 until JAX is imported, which a sweep by NumPy does not need.
        """
        if not cls._listening and "jax" in sys.modules:
            import jax

            jax.monitoring.register_event_duration_secs_listener(cls._note)
            cls._listening = True
        return cls.seconds["trace"], cls.seconds["compile"], cls.programs

    @classmethod
    def _note(cls, event: str, duration_secs: float, **_: Any) -> None:
        """Add the duration of an event of JAX, s, to that of tracing or compiling, unless another thread compiles."""
        compiled = event.endswith("backend_compile_duration")
        cls.programs += compiled
        if threading.current_thread().name.startswith(COMPILING_THREADS):
            return  # what is waited for counts
        if compiled or event.startswith("/jax/core/compile/"):
            cls._count("compile" if compiled else "trace", duration_secs)

    @classmethod
    def _count(cls, what: str, seconds: float) -> None:
        """Add seconds to those of ``what``: trace or compile."""
        cls.seconds[what] += seconds

    @classmethod
    @contextlib.contextmanager
    def loading(cls) -> Iterator[None]:
        """Count the time in the context as compilation."""
        start = time.perf_counter()
        try:
            yield
        finally:
            cls._count("compile", time.perf_counter() - start)

    @classmethod
    @contextlib.contextmanager
    def recording(cls) -> Iterator[None]:
        """Count the time in the context as tracing, with what JAX traces and compiles in it counted once."""
        start, before = time.perf_counter(), sum(cls.read()[:2])
        try:
            yield
        finally:
            cls._count("trace", max(time.perf_counter() - start - (sum(cls.read()[:2]) - before), 0.0))
