"""A study's figures at one structure of designs as a list of operations that a browser runs.

The list is that of :class:`dse.equations.ScalarFunction`, which NumPy runs for ``dse.evaluate``: the browser runs the
same operations on the same single precision, so that both give the same figures but for the last bits of powers,
exponentials and logarithms. All leaves are inputs; fixed are the records that a design has, and its catalogue names.

What each operation does says the column ``script`` of the table of primitives; :func:`kernels_script` makes loops of
these expressions. Truth values are numbers 0 and 1, whole numbers are stored as their bits; changes of type that keep
the bits, and what equals its input, are no operations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path

from dse.doors import Study
from dse.equations import ScalarFunction
from dse.equations.operations import Operations, live_operations, steps, walk
from dse.equations.primitives import primitive
from dse.errors import InputError
from dse.types import Design, Scalar
from dse.views.explanation import design_numbers

#: A loop of the browser: an expression of ``x``, ``y`` and ``z``, the kinds of these, and the kind of the result.
Kernel = tuple[str, str, str]


class Value(NamedTuple):
    """A value of the program: where it is, and how its bits are read."""

    place: int
    kind: str  #: ``f`` for numbers, ``i`` for whole numbers, ``b`` for truth values


class PageProgram:
    """Operations as they are written for the browser; inputs, constants and results are numbered in this order."""

    def __init__(self, operations: Operations, n_inputs: int) -> None:
        self.n_inputs = n_inputs
        self.constants: list[tuple[str, float]] = []
        self.operations: list[tuple[Kernel, tuple[int, ...]]] = []
        values = {i: Value(i, "f") for i in range(n_inputs)}
        values |= {n_inputs + i: self._constant(constant) for i, constant in enumerate(operations.constants)}
        live = live_operations(operations.operations, operations.outputs)
        walk(steps(live, lambda *operation: functools.partial(self._lowered, *operation)), values)
        self.outputs = [values[i].place for i in operations.outputs]
        self.kinds = [values[i].kind for i in operations.outputs]
        self.kernels = sorted({kernel for kernel, _ in self.operations})

    def as_dict(self) -> dict[str, Any]:
        """Return the program for JSON: its kernels, and of each operation, flat, the kernel and three inputs."""
        index = {kernel: i for i, kernel in enumerate(self.kernels)}
        flat = [[index[kernel], *inputs, *[-1] * (3 - len(inputs))] for kernel, inputs in self.operations]
        return {
            "inputs": self.n_inputs,
            "constants": [[kind, _json_number(value)] for kind, value in self.constants],
            "kernels": self.kernels,
            "operations": [number for operation in flat for number in operation],
            "outputs": self.outputs,
            "whole": [i for i, kind in enumerate(self.kinds) if kind == "i"],
        }

    def _constant(self, value: Any) -> Value:
        """Add a constant and return it as a value."""
        kind = _kind(np.asarray(value).dtype)
        self.constants.append((kind, float(value)))
        return Value(self.n_inputs + len(self.constants) - 1, kind)

    def _lowered(self, name: str, parameters: tuple[Any, ...], *inputs: Value) -> Value:
        """Add an operation, unless it keeps the bits of its input, and return its value.

        Raises:
            InputError: for an operation without a script for the kinds of its inputs.
        """
        row, first, case = primitive(name), inputs[0], inputs[0].kind
        result = inputs[1].kind if name == "select_n" else first.kind
        if name in ("convert_element_type", "bitcast_convert_type"):
            result = _kind(np.dtype(parameters[0]))
            case = f"{case} to {result}"
        if row.is_identity or name == "bitcast_convert_type" or case in ("f to f", "i to i", "b to b", "b to f"):
            return first._replace(kind=result)
        script = row.script.get(case) or (row.script.get("f") if case == "b" else None)
        if script is None:
            raise _unknown("a choice between more than two cases" if name == "select_n" else name)
        result = "b" if row.is_truth else result
        kernel = script.format(*parameters), "".join(value.kind for value in inputs), result
        self.operations.append((kernel, tuple(value.place for value in inputs)))
        return Value(self.n_inputs + len(self.constants) + len(self.operations) - 1, result)


def _kind(dtype: np.dtype[Any]) -> str:
    """Return how bits of a data type are read in the browser."""
    return {"f": "f", "i": "i", "u": "i", "b": "b"}[dtype.kind]


def kernels_script(kernels: Iterable[Kernel]) -> str:
    """Return the JavaScript function ``kernelsOn`` (stores of numbers and of whole numbers) → a loop for each kernel.

    A loop has n results from o on, of inputs from a, b and c on, which go on by p, q and r: by 1 where they vary along
    x, by 0 where they are the same. Storing a number rounds to single precision.
    """
    loops = []
    for script, kinds, result in kernels:
        *stores, output = ("I" if kind == "i" else "F" for kind in kinds + result)
        reads = ", ".join(
            f"{name} = {store}[{place} + i * {step}]"
            for name, store, place, step in zip("xyz", stores, "abc", "pqr", strict=False)
        )
        loops.append(
            f"  (o, n, a, p, b, q, c, r) => {{ for (let i = 0; i < n; i++) {{ const {reads};"
            f" {output}[o + i] = {script}; }} }},\n"
        )
    return f"const kernelsOn = (F, I) => [\n{''.join(loops)}];"


def _json_number(value: float) -> Any:
    """Return a number for JSON, as text (``nan``, ``inf``) where it is not finite."""
    return value if np.isfinite(value) else str(value)


def _unknown(what: str) -> InputError:
    """Return the error for what pages cannot compute."""
    return InputError(
        "page", f"a model with {what}, which pages cannot compute", "the package's own models", "use dse evaluate"
    )


# --- what is computed -------------------------------------------------------------------------------------


def _figures(study: Study, design: Design) -> tuple[dict[str, Any], Any]:
    """Return all figures of one design for a page, and the names of its operators."""
    (_, numbers), operator_names = design_numbers(study, study.objective, {}, design)
    metrics = study.evaluate(design)
    bounds = study.bounds(design)._asdict() if study.bounds else {}
    shortfalls: dict[str, Scalar] = {
        reason.name: degree for reason, degree in study.shortfalls(design, metrics).items()
    }
    return {
        "metrics": numbers.metrics,
        "capacity": numbers.capacity,
        "bounds": dict(bounds),
        "over": shortfalls,
        "layer": numbers.layer,
        "operators": [kernels._asdict() for kernels in numbers.kernels],
        "phases": numbers.phases,
    }, operator_names


class LiveModel(NamedTuple):
    """A study's figures of designs of one structure."""

    program: PageProgram
    paths: list[str]  #: of the leaves that are its inputs, in order
    read: frozenset[str]  #: those that figures depend on
    outputs: Any  #: pytree of the positions of figures among the outputs
    operators: list[tuple[str, str]]  #: section and name


def leaf_values(design: Design) -> dict[str, Scalar]:
    """Return the full path and value of all leaves of a design, presets included, in the order of its structure."""
    return {keystr(key).lstrip("."): value for key, value in tree_leaves_with_path(design)}


def model_of(study: Study, design: Design) -> LiveModel:
    """Return the program of the figures of designs that have the records of ``design``, with its inputs and outputs.

    Raises:
        InputError: for a model with operations that are none of a page's.
    """
    cache_key = f"page {study.name}" if study.is_builtin else None
    operations = ScalarFunction(lambda traced: _figures(study, traced), cache_key).operations(design)
    if operations is None:
        raise _unknown("operations of its own")
    paths = [*leaf_values(design)]
    program = PageProgram(operations, len(paths))
    used_values = {place for _, inputs in program.operations for place in inputs} | {*program.outputs}
    outputs = jax.tree.unflatten(operations.structure, range(len(program.outputs)))
    read = frozenset(path for i, path in enumerate(paths) if i in used_values)
    return LiveModel(program, paths, read, outputs, [(section, name) for section, name, _ in operations.static])
