"""Parts of totals as pages show them: labels, and colours of which no two are the same."""

from __future__ import annotations

from collections.abc import Mapping

from dse.views.plot.style import part

#: Colours of parts without one, told apart by readers without red or green cones.
_COLOURS = ("#0e306e", "#c94804", "#1476de", "#076344", "#a6905e", "#589abc", "#7a3b69", "#5f6b2d", "#6d7270")


def styled_parts(part_names: Mapping[str, str]) -> list[dict[str, str]]:
    """Return ``name``, ``label`` and ``colour`` (hexadecimal) of each part of a total.

    Args:
        part_names: metric → name of the part, or what bounds a time → ``bound_by_`` it.
    """
    parts, used_colours = [], set[str]()
    for i, (name, part_name) in enumerate(part_names.items()):
        look = part(part_name)
        free = (
            colour for colour in (look.colour, *_COLOURS[i:], *_COLOURS) if colour not in {*used_colours, "#6d7270"}
        )
        colour = next(free, look.colour)
        used_colours.add(colour)
        parts.append({"name": name, "label": look.label.removeprefix("bound by "), "colour": colour})
    return parts
