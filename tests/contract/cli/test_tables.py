"""Tables lose nothing, however narrow the terminal is; progress has units and says how long there is to wait."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from dse.optimizers.progress import SearchProgress
from dse.reports import Column, Table
from dse.reports.terminal import print_table
from dse.sweep import Progress
from dse.sweep.progress import time_left

WIDTHS = [40, 60, 80, 200]
COLUMNS = ["", "step_time", "peak_memory", "gap %", "accelerator.memory.bandwidth", "chip_die_area", "tp", "found by"]
ROWS = [
    ["1", "1.70 s", "15.9 GiB", "0.000", "6.413 TB/s", "814 mm²", "8", "cross_entropy, evolution"],
    ["2", "2.25 s", "12.8 GiB", "32.659", "extrapolated-a5-with-a-name", "300 mm²", "16", "random"],
]


def printed(width: int, columns, rows, left=(), prose=(), spare=()) -> list[str]:
    out = Console(file=io.StringIO(), width=width, highlight=False)
    made = [
        Column(name, f"c{i}", left=name in left, prose=name in prose, spare=name in spare)
        for i, name in enumerate(columns)
    ]
    print_table(out, Table("table", made, [{f"c{i}": cell for i, cell in enumerate(row)} for row in rows]))
    assert out.width == width
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_cell_and_no_heading_is_cut_off(width):
    lines = printed(width, COLUMNS, ROWS, left=["found by"])
    text = "\n".join(lines)
    assert "…" not in text
    assert all(cell in text for row in [COLUMNS, *ROWS] for cell in row)
    assert max(map(len, lines)) <= width


def test_parts_of_a_table_name_their_rows():
    lines = printed(40, COLUMNS, ROWS)
    assert sum(line.startswith("1 ") for line in lines) == sum(line.startswith("2 ") for line in lines) > 2
    assert len(printed(200, COLUMNS, ROWS)) == 4, "one table where there is room"


def test_what_says_nothing_new_goes_first():
    rows = [["forward", "1.70 s", "█" * 30], ["backward", "3.40 s", "█" * 40]]
    columns = ["part", "value", "bar"]
    assert not any("█" in line for line in printed(40, columns, rows, spare=["bar"]))
    assert any("█" in line for line in printed(80, columns, rows, spare=["bar"]))


def test_prose_is_broken_into_lines():
    reason = "peak memory exceeds the device's capacity, by far more than offloading could mend in any way"
    lines = printed(40, ["cannot", "because"], [["33,583", reason]], left=["because"], prose=["because"])
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(line[8:] for line in lines[2:]).split()) == reason


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.lists(st.text("abc_-.", min_size=1, max_size=30), min_size=n, max_size=n, unique=True),
            st.lists(st.lists(st.text("xyz0", max_size=40), min_size=n, max_size=n), min_size=1, max_size=3),
        )
    ),
    st.integers(10, 200),
)
def test_every_table_at_every_width(table, width):
    columns, rows = table
    text = "\n".join(printed(width, columns, rows))
    assert all(cell in text for row in [columns, *rows] for cell in row)


# Progress


def test_progress_has_units():
    state = Progress(5_000, 10_000, 2.0, 100, 62.93, "step_time", units="s")
    assert str(state) == "2,500 designs/s, 2.0 % feasible, best step time 62.9 s"
    rate = Progress(5_000, 10_000, 2.0, 100, 2983.0, "output_tokens_per_second", units="tokens/s")
    assert str(rate).endswith("best output tokens per second 2,983 tokens/s")
    memory = Progress(5_000, 10_000, 2.0, 100, 70.0 * 2**30, "peak_memory", units="B")
    assert str(memory).endswith("best peak memory 70.0 GiB")
    assert str(Progress(1, 2, 1.0, 0, None, "step_time")).endswith("none feasible yet")
    found = SearchProgress("evolution", 0.5, 8924.0, 3968, 1.69844, "step_time", "s")
    assert str(found) == "evolution: 3,968 evaluations, 8,924 designs/s, best step time 1.70 s"


@pytest.mark.parametrize(
    ("finished", "remaining", "taken", "text"),
    [
        (False, 80.0, None, "1 min 20 s left"), (False, None, None, ""), (True, 0.0, 7500.0, "in 2 h 5 min"),
        (False, 42.3, None, "42 s left"),
    ],
)  # fmt: skip
def test_time_left_in_words(finished, remaining, taken, text):
    assert time_left(finished, remaining, taken) == text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bar_cuts_nothing_off(width, monkeypatch, capsys):
    from dse.sweep import progress_bar

    monkeypatch.setenv("COLUMNS", str(width))
    with progress_bar() as report:
        report(Progress(5_000, 5_000, 2.0, 100, 62.93, "energy_per_step * step_time", units="1"))
    text = " ".join(capsys.readouterr().err.split())
    assert "…" not in text and "100 %" in text
    for word in ("2,500 designs/s", "feasible", "energy", "62.93", "in 0 s"):
        assert all(part in text for part in word.split())
