"""Bus bandwidth of collectives against message size, by topology."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.designs import catalog
from dse.io import counted
from dse.types import Collective, MessageKind, Pods, System
from dse.views.plot.style import PAGE, canvas, figure_of, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Collective → passes of a member's bytes over its link, times ``(N - 1) / N``: the convention of nccl-tests.
KINDS = {MessageKind.all_reduce: 2.0, MessageKind.all_gather: 1.0, MessageKind.all_to_all: 1.0}

#: Topology → a system of the catalogue that has it.
_TOPOLOGIES = {
    "switch (H100)": "eos",
    "tree 4:1 (H100)": "eos",
    "rack switch (GB200)": "dgx-gb200",
    "full mesh (MI300X)": "mi300x-cluster",
    "torus (TPU v4)": "tpu-v4-pod",
    "cube mesh (V100)": "v100-sxm-32gb",
    "dragonfly (MI250X)": "frontier",
}

#: The tree among them that is over-subscribed, and its leaves.
_TREE, _LEAVES = "tree 4:1 (H100)", Pods(size=32.0, oversubscription=4.0)

#: Message sizes, B; ticks with their labels.
_SIZES = np.logspace(3.0, 9.0, 49)
_TICKS = {1e3: "1 kB", 1e6: "1 MB", 1e9: "1 GB"}

#: Inches of height of a row of panels; least distance of two labels of lines over the height of a panel.
_ROW, _LABEL_GAP = 2.1, 0.09


def topologies() -> dict[str, System]:
    """Return label of a topology → a system of the catalogue with it; the tree is of two levels, tapered 4:1."""
    systems = {label: catalog.record(System, name) for label, name in _TOPOLOGIES.items()}
    tree = systems[_TREE]
    return systems | {_TREE: dataclasses.replace(tree, scale_out=dataclasses.replace(tree.scale_out, pods=_LEAVES))}


def bus_bandwidth(system: System, kind: MessageKind, devices: int, sizes: np.ndarray = _SIZES) -> np.ndarray:
    """Evaluate the bus bandwidth of a collective over ``devices`` adjacent devices, B/s.

    ``c (N - 1) / N size / time`` with ``c`` of 2 for an all-reduce, else 1: the rate of a link in a ring. The time is
    that of steps, by the fastest algorithm, without the slow-down of a software stack.

    Args:
        system: its networks.
        kind: of :data:`KINDS`.
        devices: members of the group, which has the system to itself.
        sizes: bytes reduced or gathered in total; of an all-to-all bytes per member.
    """
    import jax.numpy as jnp

    from dse.model import Route
    from dse.model.groups import exchange_share, in_a_row, ring_share
    from dse.model.links import reach_in
    from dse.model.machine import collectives as timed

    system, members = dataclasses.replace(system, n_devices=float(devices)), float(devices)
    group = in_a_row(members, 1.0, system.scale_up.domain, reach_in(system, 1.0))
    pods = system.scale_out.pods
    if pods and kind is MessageKind.all_to_all:
        group = group._replace(share=exchange_share(pods, pods.size, group, 1.0))
    elif pods:
        group = group._replace(share=ring_share(pods, pods.size, 1.0, 1.0, members))
    times = timed.time(kind, jnp.asarray(sizes), Route(group, system), float(Collective.auto))
    return np.asarray(KINDS[kind] * (members - 1.0) / members * sizes / times)


def collectives(
    systems: Mapping[str, System] | Iterable[str] | None = None, devices: Sequence[int] = (8, 256)
) -> Figure:
    """Draw the bus bandwidth of all-reduce, all-gather and all-to-all against message size, a line per system.

    Args:
        systems: label → system, or names of the catalogue; by default :func:`topologies`.
        devices: group sizes, a row of panels each.

    Returns:
        The figure.

    Raises:
        InputError: for an unknown name.
    """
    if systems is None:
        systems = topologies()
    elif not isinstance(systems, Mapping):
        systems = {name: catalog.record(System, name, "-s") for name in systems}
    title, height = "Bus bandwidth of collectives by topology", _ROW * len(devices)
    shape = len(devices), len(KINDS)
    with canvas(PAGE, height, shape, titles=[title], panels=height, sharex=True, sharey="row") as panels:
        for axes, (count, kind) in zip(panels, itertools.product(devices, KINDS), strict=True):
            _draw(axes, systems, kind, count)
        for last in panels[len(KINDS) - 1 :: len(KINDS)]:
            _label_lines(last)
        for first in panels[:: len(KINDS)]:
            first.set_ylabel("bus bandwidth (GB/s)")
        for axes in panels[-len(KINDS) :]:
            axes.set_xlabel("message size")
    return figure_of(panels[0])


def _draw(axes: Axes, systems: Mapping[str, System], kind: MessageKind, devices: int) -> None:
    """Draw one collective on one panel."""
    for label, line_style in series(list(systems)).items():
        rates = 1e-9 * bus_bandwidth(systems[label], kind, devices)
        axes.plot(_SIZES, rates, label=label, linewidth=1.2, **(line_style | {"marker": ""}))
    axes.set(xscale="log", yscale="log")
    axes.set_title(f"{kind.name.replace('_', '-')}, {counted(devices, 'device')}", loc="left")
    axes.set_xticks(list(_TICKS), list(_TICKS.values()))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def _label_lines(axes: Axes) -> None:
    """Write labels to the right of lines, in their colours, spaced where lines end close to each other."""
    low, high = np.log(axes.get_ylim())
    ends = {line: float((np.log(np.asarray(line.get_ydata())[-1]) - low) / (high - low)) for line in axes.get_lines()}
    place, places = 1.0 + _LABEL_GAP, {}
    for line, end in sorted(ends.items(), key=lambda item: -item[1]):
        place = places[line] = min(end, place - _LABEL_GAP)
    for line, place in places.items():
        text_style: dict[str, Any] = {"color": line.get_color(), "transform": axes.transAxes}
        axes.plot((0.97, 1.08), (ends[line], place), linewidth=0.5, clip_on=False, **text_style)
        axes.text(1.1, place, str(line.get_label()), va="center", **text_style)
