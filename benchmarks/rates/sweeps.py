"""The sweeps that are measured."""

from __future__ import annotations

from pathlib import Path

#: The source checkout.
ROOT = Path(__file__).parents[2]

#: The sweep whose start is measured.
STANDARD_SWEEP = ROOT / "sweeps" / "megatron_1t_4096_a100.toml"

#: The sweep of a billion designs.
LARGE_SWEEP = ROOT / "sweeps" / "billion_designs.toml"

#: The sweep of node x memory x network x clock x mapping.
MACHINES_SWEEP = ROOT / "sweeps" / "technology_nodes_training.toml"

#: Every mapping of a mixture of experts on one machine: five dimensions, schedules, formats.
EXPERTS_SWEEP = ROOT / "sweeps" / "deepseek_v3_2048_h800.toml"

#: What serves one model, by machine, format, mapping and load.
SERVING_SWEEP = ROOT / "sweeps" / "llama3_70b_serving.toml"

#: A search by four methods of several kinds.
SEARCH = ROOT / "sweeps" / "search_gpt3_mapping.toml"


def shown(sweep: Path) -> str:
    """A sweep as pages name it: from the checkout on."""
    return sweep.relative_to(ROOT).as_posix()
