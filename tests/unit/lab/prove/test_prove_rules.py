"""Rules of intervals and lines: what an operation gives at numbers of its operands lies in what it gives of ranges."""

import numpy as np
import pytest

from dse.doors.scalars import intervals
from dse.doors.scalars.operations import PLAIN, WITH_PARAMETERS, numpy_function
from dse.lab.prove import check, forms

N, TRIES = 300, 20
TWO = ("add", "add_any", "sub", "mul", "div", "max", "min", "pow", "rem", "lt", "le", "gt", "ge", "eq", "ne")
TRUTH = {"and": 2, "or": 2, "xor": 2, "not": 1}
GIVEN = {
    "integer_pow": [(-2,), (-1,), (0,), (2,), (3,)], "round": [(0,), (1,)], "bitcast_convert_type": [("int32",)],
    "convert_element_type": [("int32",), ("bool",), ("float32",)],
}  # fmt: skip
UNKNOWN = {"is_finite", "one_minus_square", "rem", "xor"}  # no study needs them
CASES = [(name, ()) for name in PLAIN if name not in UNKNOWN]
CASES += [(name, given) for name in WITH_PARAMETERS for given in GIVEN[name]]


def ranges(generator, name, positive):
    """Ends of random ranges: of both signs, small and large, some of one number."""
    size = np.exp(generator.uniform(-3, 3, N)) * (1.0 if positive else generator.choice([-1.0, 1.0], N))
    size = np.where(generator.random(N) < 0.1, 0.0 if not positive else 1.0, size)
    width = np.where(generator.random(N) < 0.2, 0.0, np.exp(generator.uniform(-6, 2, N)))
    return size.astype(np.float32), (size + width).astype(np.float32)


def n_operands(name):
    return 2 if name in TWO else 3 if name in ("clamp", "select_n") else TRUTH.get(name, 1)


def operands(generator, name, positive):
    """Ranges of the operands, and numbers within them."""
    if name in TRUTH or name == "select_n":
        low = generator.random(N) < 0.3
        truths = (low, low | (generator.random(N) < 0.5))
        if name != "select_n":
            return [truths] * n_operands(name)
        return [truths, *(ranges(generator, name, positive) for _ in range(2))]
    return [ranges(generator, name, positive) for _ in range(n_operands(name))]


def inside(generator, pair):
    low, high = pair
    if low.dtype == bool:
        return np.where(generator.random(N) < 0.5, low, high)
    share = generator.choice([0.0, 0.3, 0.7, 1.0], N)
    return np.clip((low + share * (high.astype(float) - low)).astype(np.float32), low, high)


def holds(pair, value):
    """Whether values are within ranges; a range with an end that is no number says nothing."""
    low, high = (np.asarray(end) for end in pair)
    if value.dtype == bool:
        return (low <= value) & (value <= high)
    return np.isnan(low) | np.isnan(high) | ((low <= value) & (value <= high))


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("name", "given"), CASES)
def test_what_an_operation_gives_is_in_its_range(name, given, positive):
    if name == "bitcast_convert_type" and not positive:
        pytest.skip("bits of negative numbers have no order")
    generator, at = np.random.default_rng(0), numpy_function(name, given)
    pairs = operands(generator, name, positive)
    with np.errstate(all="ignore"):
        plain = intervals.operation(name, given)(*pairs)
        line = forms.operation(name, given, len(pairs))(*made(pairs))
        line = forms.pair(line.settled() if isinstance(line, forms.Form) else line)
        for _ in range(TRIES):
            values = [inside(generator, pair) for pair in pairs]
            found = np.asarray(at(*values))
            assert holds(plain, found).all(), name
            assert holds(line, found).all(), name


def made(pairs):
    """Forms of ranges, each along an axis of its own."""
    return [
        pair if pair[0].dtype == bool else forms.leaf_form(*pair, symbol, len(pairs), is_rate=bool(symbol % 2))
        for symbol, pair in enumerate(pairs)
    ]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "max", "min", "neg", "select_n"])
def test_lines_of_the_check_hold_what_an_operation_gives(name):
    generator, at = np.random.default_rng(1), numpy_function(name, ())
    pairs = operands(generator, name, positive=True)
    with np.errstate(all="ignore"):
        lines = [pair if pair[0].dtype == bool else line(pair, i, len(pairs)) for i, pair in enumerate(pairs)]
        found = intervals.operation(name, ())(*pairs)
        value = check._selection(found, *lines) if name == "select_n" else check._RULES[name](found, *lines)
        for _ in range(TRIES):
            assert holds(value.pair, np.asarray(at(*(inside(generator, pair) for pair in pairs)))).all()


def line(pair, axis, n):
    slopes = np.zeros((n, N))
    slopes[axis] = 0.5 * (pair[1].astype(float) - pair[0])
    return check._Line(*pair, 0.5 * (pair[1].astype(float) + pair[0]), slopes, np.zeros(N))
