"""References of configurations, in the forms of OmegaConf, Primus and Kubernetes."""

from __future__ import annotations

import time

import pytest

from dse.tools.interpolation import resolved

#: Table, value of its key ``x``, with TP=8 in the environment.
VALUES = [
    ({"a": {"b": 3}, "x": "${a.b}"}, 3),
    ({"a": {"b": 3, "x": "${.b}", "c": {"y": "${..b}"}}, "x": "${a.c.y}"}, 3),
    ({"h": 4096, "x": "${multiply:4, ${h}}"}, 16384),
    ({"h": 4096, "x": "${int_div:${h},32}"}, 128),
    ({"x": "${TP:2}"}, "8"),
    ({"x": "${PP:2}"}, 2),
    ({"x": "${oc.env:PP,4}"}, 4),
    ({"x": "${PP:-bf16}"}, "bf16"),
    ({"x": "--tp $(TP)"}, "--tp 8"),
    ({"x": "${nothing.here}"}, "${nothing.here}"),
    ({"n": "llama", "x": "${n}-${TP:1}"}, "llama-8"),
    ({"l": [1, 2], "x": "${l.1}"}, 2),
]


@pytest.mark.parametrize(("table", "right"), VALUES, ids=range(len(VALUES)))
def test_references_are_replaced(table, right):
    assert resolved(table, {"TP": "8"})["x"] == right


def test_circles_and_fans_end():
    fan = {f"k{i}": f"${{k{i + 1}}}" * 40 for i in range(30)}
    start = time.perf_counter()
    table = resolved({"a": "${b}", "b": "${a}", "c": "x${c}x", **fan}, {})
    assert set(table) == {"a", "b", "c", *fan} and time.perf_counter() - start < 2.0
