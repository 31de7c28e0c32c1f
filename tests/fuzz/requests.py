"""Mutants of requests of programs: values of other kinds, odd texts, fields that are missing, twice or unknown."""

import copy
import random

_ODD = (
    "", "0", "-1", "nan", "1e999", "tp=", "=8", "h100,", "\x00", "é" * 50, "{}", "'; --", "%s%n", "/etc/passwd", "..",
    "a" * 3000, None, True, -1, 0, 3.5, 1e300, [], {}, ["tp=8"] * 3, [[]], {"name": "h100"}, [None], 10**30,
)  # fmt: skip


def mutants(requests, number, draw: random.Random):
    """So many of (name of an operation, request), one to three changes each."""
    names = sorted(requests)
    for _ in range(number):
        name = draw.choice(names)
        made = copy.deepcopy(requests[name])
        for _ in range(draw.randint(1, 3)):
            _change(made, draw)
        yield name, made


def _odd(draw):
    return copy.deepcopy(draw.choice(_ODD))


def _change(made, draw):
    """Change, remove or add a value at some depth."""
    if isinstance(made, dict):
        keys = sorted(made)
        what = draw.random()
        if what < 0.1 or not keys:
            made[draw.choice(["nonsense", "as_json", "folder", "output", "set", "keep"])] = _odd(draw)
        elif what < 0.2:
            del made[draw.choice(keys)]
        else:
            key = draw.choice(keys)
            if isinstance(made[key], dict | list) and made[key] and draw.random() < 0.7:
                _change(made[key], draw)
            else:
                made[key] = _odd(draw)
    elif isinstance(made, list) and made:
        place = draw.randrange(len(made))
        if isinstance(made[place], dict | list) and made[place] and draw.random() < 0.7:
            _change(made[place], draw)
        else:
            made[place] = _odd(draw)
