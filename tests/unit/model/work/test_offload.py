"""Shares of what is offloaded: linear on the device, whole at the ends, and of something."""

import pytest
from hypothesis import given, strategies as st

import dse
from dse.errors import InputError
from dse.model.work.offload import resident_layers
from dse.sweep import from_text, plan


@given(held=st.integers(1, 500).map(float), share=st.floats(0.0, 1.0), depth=st.integers(0, 9))
def test_what_stays_is_linear_in_the_share(held, share, depth):
    here, away = float(resident_layers(held, 0.0, depth)), float(resident_layers(held, 1.0, depth))
    assert here == held
    assert away == pytest.approx(min(held, 1.0 + depth))
    rounding = 1e-6 * held  # of the difference of two numbers of this size in single precision
    assert float(resident_layers(held, share, depth)) == pytest.approx(
        (1.0 - share) * here + share * away, abs=rounding
    )


@pytest.mark.parametrize(
    ("share", "option"),
    [("storage_weights", "offload_weights"), ("storage_activations", "offload_activations"),
     ("storage_optimizer", "offload_optimizer"), ("host_update", "offload_optimizer")],
)  # fmt: skip
def test_a_share_of_what_is_not_offloaded_is_refused(share, option):
    """By name and in a sweep, unless some mapping offloads it; 0 of it is nothing said."""
    settings = dict(n_devices=8, any_option=True)
    with pytest.raises(InputError, match=rf"{share} = 1 without {option}"):
        dse.design("llama-2-7b", "eos", **settings, **{share: 1})
    assert dse.design("llama-2-7b", "eos", **settings, **{share: 0}).mapping.tiers is not None
    assert dse.design("llama-2-7b", "eos", **settings, **{share: 1, option: 0.5}).mapping.tiers is not None
    text = (
        'workload.name = "llama-2-7b"\nsystem.name = "eos"\nsystem.n_devices = 8\nsoftware.any_option = true\n'
        f"mapping.{share} = 1\n[axes]\n{option} = "
    )
    with pytest.raises(InputError, match=rf"{share} = 1 without {option}"):
        plan(from_text(f"{text}[0]"))
    assert plan(from_text(f"{text}[0, 1]"))[0].table.n_mappings
