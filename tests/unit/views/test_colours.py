"""Colours of one figure are told apart by readers without red or green cones, and in grey.

Colour vision deficiency by the matrices of Machado, Oliveira and Fernandes 2009 (A Physiologically-based Model for
Simulation of Color Vision Deficiency, severity 1.0, in linear RGB); differences by CIEDE2000 (Sharma, Wu and Dalal
2005). A difference of 2.3 is just noticeable (Mahy et al. 1994); the bounds here are four times as much.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from dse.views.plot import style

VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
#: Linear sRGB to XYZ at D65 (IEC 61966-2-1).
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)

#: Least differences: of colours, and of lightness alone between parts of the same hatch.
LEAST, LEAST_IN_GREY = 10.0, 10.0

#: The colours that one figure may hold beside one another.
FIGURES = {
    "breakdown": [*style.PARTS.values(), style.part("unknown")],
    "serving": [*style.SERVING_PARTS.values(), style.PARTS["host"]],
    "bounds": list(style.BOUNDS.values()),
    "pareto": [
        style.PlottedPart(name, colour)
        for name, colour in (("front", style.FRONT), ("fits", style.FITS), ("large", style.TOO_LARGE))
    ],
    # Lines of the same dash count as bars of the same hatch: dashes tell neighbours apart.
    "lines": [style.PlottedPart(str(i), colour, str(style.dash(i))) for i, colour in enumerate(style.shades(8))],
}


def lab(colour, vision: str) -> np.ndarray:
    """CIELAB of a colour as it is seen; in grey by its luminance alone."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.full(3, TO_XYZ[1] @ linear) if vision == "grey" else np.clip(VISION[vision] @ linear, 0.0, 1.0)
    ratio = TO_XYZ @ linear / TO_XYZ.sum(axis=1)
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(first: np.ndarray, second: np.ndarray) -> float:
    """CIEDE2000."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    if c1 * c2 == 0:
        hue = h1 + h2
    elif abs(h1 - h2) <= 180:
        hue = (h1 + h2) / 2
    else:
        hue = (h1 + h2 + (360 if h1 + h2 < 360 else -360)) / 2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1 + sum(
        weight * np.cos(np.radians(times * hue + shift))
        for weight, times, shift in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.2, 4, -63))
    )
    s_l = 1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    rotation = (
        -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    )
    dl, dc, dh = (l2 - l1) / s_l, (c2 - c1) / s_c, 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / s_h
    return float(np.sqrt(dl**2 + dc**2 + dh**2 + rotation * dc * dh))


#: Least contrast of lines, markers, bars and text against the page (WCAG 2.1, 1.4.11), and the sources held to it.
LEAST_CONTRAST = 3.0
ROOT = Path(__file__).parents[3]
DRAWING = [
    *(ROOT / "dse" / "views" / "plot").glob("*.py"),
    *(ROOT / "docs" / "make").rglob("*.py"),
    *(ROOT / "notebooks").glob("*.py"),
]

#: Backgrounds, on which other things are drawn, are pale on purpose: their lines say so.
BACKGROUND = ("axvspan(", "axhspan(")


def contrast(colour) -> float:
    """Contrast against white by WCAG 2.1: of black 21, of white 1."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(1.05 / (np.array([0.2126, 0.7152, 0.0722]) @ linear + 0.05))


def test_the_contrast_is_that_of_its_authors():
    assert contrast("#000000") == pytest.approx(21.0) and contrast("#ffffff") == pytest.approx(1.0)
    assert contrast("#767676") == pytest.approx(4.54, abs=5e-3), "the lightest grey of 4.5, as their guides tell"


@pytest.mark.parametrize("figure", FIGURES)
def test_white_paper_swallows_no_colour(figure):
    for looks in FIGURES[figure]:
        assert contrast(looks.colour) >= LEAST_CONTRAST, f"{looks.label}: {contrast(looks.colour):.2f}"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 12, 40])
def test_white_paper_swallows_no_shade(count):
    assert min(map(contrast, style.shades(count))) >= LEAST_CONTRAST


def test_white_paper_swallows_no_text():
    assert min(map(contrast, (style.INK, style.PALE, style.OTHER, style.FRONT))) >= 4.5


@pytest.mark.parametrize("path", DRAWING, ids=lambda path: path.name)
def test_no_source_names_a_pale_colour(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not any(b in line for b in BACKGROUND)]
    pale = {c for line in lines for c in re.findall(r"#[0-9a-fA-F]{6}\b", line) if contrast(c) < LEAST_CONTRAST}
    assert not pale, f"{path.name}: {sorted(pale)}"


def test_a_name_has_one_look_in_all_panels():
    """As many names as a figure tells apart, no two alike; the same for whoever asks."""
    looks = style.series([f"machine {i}" for i in range(8)])
    assert looks == style.series(list(looks))
    assert len({(one["color"], str(one["linestyle"]), one["marker"]) for one in looks.values()}) == 8


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619), 2.0373),
        ((90.8027, -2.0831, 1.441), (91.1528, -1.6435, 0.0447), 1.4441),
    ],
)
def test_the_measure_is_that_of_its_authors(first, second, expected):
    """Pairs 1, 9, 17, 23 and 24 of the test data of Sharma, Wu and Dalal 2005, table 1."""
    assert difference(np.array(first), np.array(second)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart(figure, vision):
    for a, b in itertools.combinations(FIGURES[figure], 2):
        found = difference(lab(a.colour, vision), lab(b.colour, vision))
        dashed = figure == "lines" and a.hatch != b.hatch
        assert dashed or found >= LEAST, f"{a.label} and {b.label}: {found:.1f}"


@pytest.mark.parametrize("figure", FIGURES)
def test_what_has_the_same_hatch_is_told_apart_in_grey(figure):
    for a, b in itertools.combinations(FIGURES[figure], 2):
        found = difference(lab(a.colour, "grey"), lab(b.colour, "grey"))
        assert a.hatch != b.hatch or found >= LEAST_IN_GREY, f"{a.label} and {b.label}: {found:.1f}"
