"""What bounds a compiled round: bytes of device memory, launches of kernels, copies between host and device.

:func:`recorded` counts what a round asks of the device: calls of programs, the bytes that XLA's cost analysis says each
accesses, the kernels in its optimised HLO, and the bytes that go in from and out to the host. :func:`costs_here`
measures what a byte, a kernel, a call and a copy take on this device. Their products are lower bounds of the seconds of
a round, but for bytes that lie in caches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dse.sweep.engine.programs import PersistentFunction


@dataclasses.dataclass
class Account:
    """What was asked of the device since the account was opened."""

    calls: int = 0  #: of programs
    kernels: int = 0
    bytes_accessed: float = 0.0  #: of device memory
    bytes_in: int = 0  #: from the host
    bytes_out: int = 0  #: to the host
    fetches: int = 0  #: copies to the host, each of which is waited for

    def since(self, before: Account) -> Account:
        """Return what was added after ``before``."""
        mine, earlier = dataclasses.astuple(self), dataclasses.astuple(before)
        return Account(*(now - then for now, then in zip(mine, earlier, strict=True)))


class Costs(NamedTuple):
    """Seconds of a device, each the least of several measurements."""

    byte: float  #: of its memory, read or written in long arrays
    kernel: float  #: within a program
    call: float  #: of a program with one small kernel, one after the other
    host_byte: float  #: between host and device
    fetch: float  #: of one number to the host

    def bounds(self, account: Account) -> dict[str, float]:
        """Return name → lower bound of the seconds: by bytes, launches and host copies."""
        copied = account.bytes_in + account.bytes_out
        return {
            "bytes": self.byte * account.bytes_accessed,
            "launches": self.call * account.calls + self.kernel * account.kernels,
            "host copies": self.host_byte * copied + self.fetch * account.fetches,
        }


# --- programs -----------------------------------------------------------------------------------------------

#: The head of a computation in the text of HLO, an instruction with its operation, and what it refers to.
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*?\s([a-z][a-z0-9\-]*)\(")
_REFERENCE = re.compile(
    r"\b(body|condition|to_apply|branch_computations|true_computation|false_computation)=\{?([^}\s]*)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')

#: Operations that launch nothing.
_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "partition-id",
     "replica-id", "add-dependency", "async-done", "copy-done")
)  # fmt: skip


def kernels_in(text: str) -> int:
    """Return the number of kernels that optimised HLO launches; loops of an unknown length count once.

    Args:
        text: of the module, in which a fusion is one kernel.
    """
    lines_of: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            name = head[2]
            lines_of[name] = []
            entry = name if head[1] else entry
        elif name:
            lines_of[name].append(line)

    def kernels_of(computation: str) -> int:
        return sum(kernels_by(line) for line in lines_of.get(computation, ()))

    def kernels_by(line: str) -> int:
        instruction = _INSTRUCTION.match(line)
        if not instruction or instruction[1] in _FREE:
            return 0
        called = {key: [name.strip("% ") for name in names.split(",")] for key, names in _REFERENCE.findall(line)}
        if instruction[1] == "while":
            trips = _TRIPS.search(line)
            return (int(trips[1]) if trips else 1) * sum(
                kernels_of(name) for names in called.values() for name in names
            )
        if instruction[1] == "call":
            return sum(map(kernels_of, called.get("to_apply", ())))
        if instruction[1] == "conditional":
            return max((kernels_of(name) for names in called.values() for name in names), default=0)
        return 1

    return kernels_of(entry)


def _accessed(program: Any) -> float:
    """Return the bytes of device memory that a compiled program accesses, 0 where its compiler does not tell."""
    analysis: Any = None
    with contextlib.suppress(Exception):  # a plugin need not have it
        analysis = program.cost_analysis()
    analysis = analysis[0] if isinstance(analysis, list) else analysis
    return float((analysis or {}).get("bytes accessed", 0.0))


def _text(program: Any) -> str:
    """Return the optimised HLO of a compiled program, "" where its compiler does not tell."""
    with contextlib.suppress(Exception):
        return program.as_text() or ""
    return ""


@contextlib.contextmanager
def recorded() -> Iterator[Account]:
    """Count calls of the package's programs, and copies to the host, in the account that is yielded."""
    account, original = Account(), PersistentFunction.compiled
    costs: dict[int, tuple[Any, int, float]] = {}

    def compiled(self: PersistentFunction, *arguments: Any, **static: Any) -> Callable[..., Any]:
        program = original(self, *arguments, **static)
        if id(program) not in costs:
            costs[id(program)] = program, kernels_in(_text(program)), _accessed(program)
        _, kernels, accessed = costs[id(program)]

        def call(*values: Any) -> Any:
            account.calls += 1
            account.kernels += kernels
            account.bytes_accessed += accessed
            account.bytes_in += sum(leaf.nbytes for leaf in jax.tree.leaves(values) if isinstance(leaf, np.ndarray))
            return program(*values)

        return call

    PersistentFunction.compiled = compiled  # type: ignore[method-assign]
    try:
        with fetches_counted(account, type(jnp.zeros(()))):
            yield account
    finally:
        PersistentFunction.compiled = original  # type: ignore[method-assign]


@contextlib.contextmanager
def fetches_counted(account: Account, array_type: Any) -> Iterator[None]:
    """Count copies to the host: an array of JAX keeps the first one, and has none where host and device share memory.

    Args:
        account: that they are added to.
        array_type: class of JAX's arrays.
    """
    original = array_type._value

    def value(array: Any) -> Any:
        had_copy, copy = array._npy_value is not None, original.fget(array)
        if array._npy_value is not None and not had_copy:
            account.fetches += 1
            account.bytes_out += array.nbytes
        return copy

    array_type._value = property(value)
    try:
        yield
    finally:
        array_type._value = original


# --- the device ---------------------------------------------------------------------------------------------


def seconds_of(once: Callable[[], Any], repeats: int = 20) -> float:
    """Return the least seconds of a call after a first one."""
    once()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def costs_here(length: int = 1 << 25, depth: int = 128) -> Costs:
    """Return the costs of JAX's default device.

    Args:
        length: of the array of float32 that memory and copies are measured with.
        depth: small kernels of the program that launches are measured with.
    """
    on_device = jnp.zeros(length)
    small, added = jnp.zeros(8), jax.jit(lambda x: x + 1.0)
    chain = jax.jit(lambda x: lax.fori_loop(0, depth, lambda _, y: lax.sort(y)[::-1] + 1.0, x)).lower(small).compile()
    call = seconds_of(lambda: jax.block_until_ready([added(small) for _ in range(depth)])) / depth
    kernels = max(kernels_in(_text(chain)), depth)
    in_chain = max(seconds_of(lambda: chain(small).block_until_ready(), 50) - call, 0.0)
    memory = max(seconds_of(lambda: added(on_device).block_until_ready()) - call, 1e-9)
    numbers = [jnp.full((), float(i)) for i in range(21)]
    fetch = seconds_of(lambda: float(numbers.pop()))
    arrays = [added(jnp.full(length, float(i))) for i in range(3)]
    jax.block_until_ready((numbers, arrays))
    host = max(seconds_of(lambda: np.array(arrays.pop()), 2) - fetch, 1e-9)
    return Costs(memory / (8.0 * length), in_chain / kernels, call, host / (4.0 * length), fetch)
