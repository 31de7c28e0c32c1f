"""Lines of the check of certificates: what an operation gives at numbers lies on what it gives of lines.

Those of the proof are in the table of primitives (``tests/unit/equations/test_primitives.py``).
"""

import numpy as np
import pytest

from dse.equations.primitives import numpy_function, range_function
from dse.lab.prove import check
from tests.unit.equations.test_primitives import TRIES, N, holds, inside, operands


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "max", "min", "neg", "select_n"])
def test_lines_of_the_check_hold_what_an_operation_gives(name):
    generator, at = np.random.default_rng(1), numpy_function(name, ())
    pairs = operands(generator, name, positive=True)
    with np.errstate(all="ignore"):
        lines = [pair if pair[0].dtype == bool else line(pair, i, len(pairs)) for i, pair in enumerate(pairs)]
        found = range_function(name, ())(*pairs)
        value = check._selection(found, *lines) if name == "select_n" else check._RULES[name](found, *lines)
        for _ in range(TRIES):
            assert holds(value.pair, np.asarray(at(*(inside(generator, pair) for pair in pairs)))).all()


def line(pair, axis, n):
    slopes = np.zeros((n, N))
    slopes[axis] = 0.5 * (pair[1].astype(float) - pair[0])
    return check._Line(*pair, 0.5 * (pair[1].astype(float) + pair[0]), slopes, np.zeros(N))
