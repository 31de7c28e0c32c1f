"""A document written as TOML is read back as it was, in the order of its names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dse.errors import InputError
from dse.io import toml

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.one_of(
    TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


def in_order(value):
    """A value whose dictionaries are lists of pairs: what compares equal has the order of names, too."""
    if isinstance(value, dict):
        return [(key, in_order(inner)) for key, inner in value.items()]
    return [in_order(inner) for inner in value] if isinstance(value, list) else value


@given(st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=4) | PLAIN, max_size=4))
def test_what_is_written_is_read(document):
    read = toml.parse(toml.document_text(document, "sweep"), "sweep")
    assert read == document
    for key, section in document.items():
        assert in_order(read[key]) == in_order(section), "names of a section keep their order"


def test_arrays_tuples_and_ranges_are_lists():
    document = {"axes": {"a": np.arange(3), "b": (1, 2), "c": range(2), "d": np.float64(0.5), "e": np.bool_(True)}}
    read = toml.parse(toml.document_text(document, "sweep"), "sweep")
    assert read == {"axes": {"a": [0, 1, 2], "b": [1, 2], "c": [0, 1], "d": 0.5, "e": True}}


@pytest.mark.parametrize("value", [None, object(), {1, 2}, b"a", 1j, {1: 2}, [[None]], {"a": {"b": None}}])
def test_what_toml_cannot_say_has_four_parts(value):
    with pytest.raises(InputError) as fault:
        toml.document_text({"axes": {"tp": value}}, "sweep")
    assert (
        fault.value.where.startswith("sweep: axes.tp") and fault.value.got and fault.value.allowed and fault.value.fix
    )


def test_a_document_that_contains_itself_is_too_deep():
    document: dict = {}
    document["axes"] = document
    with pytest.raises(InputError, match="nested too deep"):
        toml.document_text(document, "sweep")
