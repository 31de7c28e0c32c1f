"""The standard lines on a card: what is counted, what bounds a line, how it is checked, and the page's section."""

from __future__ import annotations

import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import accounts, gpu
from benchmarks.accounts import Account, Costs, kernels_in, recorded
from benchmarks.gpu import Check, Line, compared
from dse.sweep.engine.programs import persistent_jit

COSTS = Costs(byte=1e-12, kernel=2e-6, call=1e-5, host_byte=5e-11, fetch=1e-5)

HLO = """HloModule jit_f, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  %z = f32[8]{0} custom-call(%y), custom_call_target="sorted"
  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %z)
}

%condition (p: (s32[], f32[8])) -> pred[] {
  %p = (s32[], f32[8]{0}) parameter(0)
  ROOT %less = pred[] fusion(%p), kind=kLoop, calls=%fused.1
}

%graph (q: f32[8]) -> f32[] {
  %q = f32[8]{0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[] reduce(%q, %zero), dimensions={0}, to_apply=%add
}

ENTRY %main (x: f32[8]) -> f32[] {
  %x = f32[8]{0} parameter(0)
  %start = (s32[], f32[8]{0}) tuple(%x, %x)
  %loop = (s32[], f32[8]) while(%start), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %last = f32[8]{0} get-tuple-element(%loop), index=1
  %bits = f32[8]{0:T(128)} bitcast(%last)
  ROOT %total = f32[] call(%bits), to_apply=%graph
}
"""


def test_kernels_of_a_program_by_hand():
    """Five times a fusion, a call of a library and the condition; then the reduction that is called."""
    assert kernels_in(HLO) == 5 * 3 + 1
    assert kernels_in(HLO.replace(', backend_config={"known_trip_count":{"n":"5"}}', "")) == 3 + 1
    assert kernels_in("") == 0


def test_bounds_by_hand():
    """3 ms of bytes, 2 calls of 10 us with 100 kernels of 2 us, 4 MB at 20 GB/s and one fetch of 10 us."""
    asked = Account(calls=2, kernels=100, bytes_accessed=3e9, bytes_in=1_000_000, bytes_out=3_000_000, fetches=1)
    assert COSTS.bounds(asked) == pytest.approx({"bytes": 3e-3, "launches": 2.2e-4, "host copies": 2.1e-4})


class DeviceArray:
    """What an array of JAX is like whose memory the host cannot read: it keeps the first copy."""

    nbytes, _npy_value = 32, None

    @property
    def _value(self):
        self._npy_value = np.ones(8, np.float32)
        return self._npy_value


def test_copies_to_the_host_are_counted_once():
    account, array = Account(), DeviceArray()
    with accounts.fetches_counted(account, DeviceArray):
        assert array._value.sum() == array._value.sum() == 8.0
    assert (account.fetches, account.bytes_out) == (1, 32)
    assert DeviceArray()._value.sum() == 8.0 and account.fetches == 1


def test_calls_and_copies_are_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("DSE_CACHE", str(tmp_path))
    double = persistent_jit()(lambda x: 2.0 * x)
    with recorded() as account:
        before = Account()
        found = double(np.ones(8, np.float32)), double(jnp.ones(8))
        assert [float(value[0]) for value in found] == [2.0, 2.0]  # the host reads a processor's memory
    asked = account.since(before)
    assert (asked.calls, asked.bytes_in, asked.bytes_out, asked.fetches) == (2, 32, 0, 0)
    assert asked.kernels >= 2 and asked.bytes_accessed >= 2 * 64
    double(np.ones(8, np.float32))
    assert account.calls == 2


def test_costs_of_this_device_are_positive():
    costs = accounts.costs_here(length=1 << 12, depth=4)
    assert all(value >= 0.0 for value in costs) and costs.call > 0.0 and costs.byte > 0.0


def test_values_and_feasibility_are_compared():
    expected = np.array([1.0, 2.0, np.inf, 4.0])
    assert compared(expected, expected) == Check(4, 3, 0.0, 0.0) and compared(expected, expected).holds
    assert compared(np.array([1.0, 2.002, np.inf, 4.0]), expected) == Check(4, 3, pytest.approx(1e-3), 0.0)
    assert compared(np.array([1.0, 2.0, 3.0, np.inf]), expected) == Check(4, 2, 0.0, 0.5)
    assert not Check(4, 3, 1e-3, 0.0).holds and not Check(4, 2, 0.0, 0.5).holds
    assert not compared(np.full(3, np.inf), np.full(3, np.inf)).holds  # nothing was compared


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Lines that take no time, one of which fails; record and page in a folder."""

    def fails():
        raise RuntimeError("RESOURCE_EXHAUSTED: no memory\nand more")

    one = Line(lambda: 1000.0, lambda: Check(10, 10, 1e-7, 0.0))
    monkeypatch.setattr(gpu, "LINES", {"first line": lambda: one, "second line": fails, "third line": lambda: one})
    monkeypatch.setattr(gpu, "_TIMED", 0.0)
    monkeypatch.setattr(accounts, "costs_here", lambda: COSTS)
    monkeypatch.setattr(gpu, "RECORD", gpu.ROOT / "docs" / "no-such.json")
    page = tmp_path / "page.md"
    page.write_text(f"# Benchmarks\n\n{gpu.section(tmp_path / 'none')}\n\n## Growth\n\nText.\n", encoding="utf-8")
    return page


def test_a_run_goes_on_after_a_line_that_fails_and_ends_with_its_time(quick):
    found = gpu.run([*gpu.LINES], 60.0, lambda text: None)
    assert [line["holds"] for line in found["lines"].values()] == [True, False, True] and not found["left_out"]
    assert found["lines"]["second line"]["error"] == "RuntimeError: RESOURCE_EXHAUSTED: no memory\nand more"
    assert found["device"] == "cpu" and found["costs"] == COSTS._asdict()
    late = gpu.run([*gpu.LINES], 0.0, lambda text: None)
    assert late["lines"] == {} and late["left_out"] == [*gpu.LINES]


def test_the_page_has_what_was_measured(quick, tmp_path, monkeypatch, capsys):
    record = tmp_path / "gpu.json"
    for name, value in (("RECORD", record), ("PAGE", quick), ("ROOT", tmp_path)):
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(gpu.section, "__defaults__", (record,))
    assert "No card has run" in quick.read_text(encoding="utf-8")
    for only, status in (("line", 1), ("first", 0)):
        monkeypatch.setattr(sys, "argv", ["gpu", "--only", only, "--write"])
        assert gpu.main() == status
        assert json.loads(capsys.readouterr().out) == json.loads(record.read_text(encoding="utf-8"))
        text = quick.read_text(encoding="utf-8")
        rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|") and "line" in line]
        assert len(rows) == (3 if status else 1) and {len(row) for row in rows} == {len(gpu._HEADER)}
        assert rows[0][0] == "first line" and rows[0][-1] == "1e-07 of 10"
        assert ("**failed**: RuntimeError: RESOURCE_EXHAUSTED: no memory" in text) == bool(status)
        assert text.count("## On a card") == 1 and text.endswith("\n\n## Growth\n\nText.\n")
        assert "No card has run" not in text and "1 x cpu" in text


def test_a_section_stands_at_the_end_of_a_page_that_had_none():
    page = gpu.with_section("# Page\n\n## One\n\nText.\n", "## On a card\n\nNew.")
    assert page == "# Page\n\n## One\n\nText.\n\n## On a card\n\nNew.\n"
    assert gpu.with_section(page, "## On a card\n\nNewer.").endswith("Text.\n\n## On a card\n\nNewer.\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", gpu.LINES)
def test_every_line_holds_on_the_processor(name, monkeypatch):
    monkeypatch.setattr(gpu, "_TIMED", 0.0)
    monkeypatch.setattr(accounts, "costs_here", lambda: COSTS)
    found = gpu.run([name], 60.0, lambda text: None)["lines"][name]
    assert found["holds"], found
    assert found["designs_per_second"] > 0.0 and found["asked"]["calls"] > 0
