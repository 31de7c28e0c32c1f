"""Parts of totals as pages show them: labels, and colours of which no two are the same."""

from __future__ import annotations

from collections.abc import Sequence

from dse.views.plot.style import part

#: Colours of parts without one, told apart by readers without red or green cones.
_COLOURS = ("#0e306e", "#c94804", "#1476de", "#076344", "#a6905e", "#589abc", "#7a3b69", "#5f6b2d", "#6d7270")


def parts_of(names: Sequence[str], prefix: str) -> list[dict[str, str]]:
    """Return ``name``, ``label`` and ``colour`` (hexadecimal) of each part of a total.

    Args:
        names: metrics of the parts.
        prefix: with which they begin; empty for what bounds a time.
    """
    parts, used_colours = [], set[str]()
    for i, name in enumerate(names):
        look = part(name.removeprefix(prefix) if prefix else f"bound_by_{name}")
        free = (
            colour for colour in (look.colour, *_COLOURS[i:], *_COLOURS) if colour not in {*used_colours, "#6d7270"}
        )
        colour = next(free, look.colour)
        used_colours.add(colour)
        label = look.label if prefix else look.label.removeprefix("bound by ")
        parts.append({"name": name, "label": label, "colour": colour})
    return parts
