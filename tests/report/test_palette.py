"""One hue, one meaning: eight families that everybody tells apart, and shades that touch, too."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lstmprof.breakdown.attribution import CALL, LATENCY, QUEUED, UNATTRIBUTED
from lstmprof.breakdown.mean_step import WAITS_FOR_HOST
from lstmprof.diagnose.findings.causes import KINDS
from lstmprof.events.annotate.rules import RULES
from lstmprof.events.threads import HOST, STATES
from lstmprof.report import drawing, page
from lstmprof.report.palette import (
    BY_HOST,
    FAMILIES,
    HUES,
    MOVING,
    OTHERWISE,
    PARTS,
    PRODUCTS,
    UNKNOWN,
    Part,
    families_of,
    family_of,
    label_of,
    part_of,
    part_of_kind,
)

#: Of linear RGB, severity 1 (G. Machado et al., IEEE TVCG 15, 2009).
SEEN = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
THEMES = ("light", "dark")
#: A colour of less chroma is a grey; shades of one hue turn by no more degrees from the first.
LEAST_CHROMA, MOST_TURN = 8, 40
#: Of graphical objects against what is behind them, and of text (WCAG 2.2, 1.4.11 and 1.4.3).
LEAST_CONTRAST, LEAST_OF_TEXT = 3.0, 4.5
#: CIE76; 2.3 is just noticeable. Of shades that touch, of any two shades, of any two families.
LEAST_OF_NEIGHBOURS, LEAST_OF_SHADES, LEAST_OF_FAMILIES = 10, 6, 25
#: Of L* of any two parts of the host's overhead, which often lie side by side.
LEAST_OF_LIGHTNESS = 5


def lab(colour: str, seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIELAB (D65) of ``#rrggbb`` as seen."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(seen @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_every_part_of_a_ledger_has_a_colour_and_a_meaning() -> None:
    for category in {rule.category for rule in RULES if rule.category}:
        assert part_of("busy", category).name == category
    for cause in (*STATES, HOST, CALL, LATENCY, QUEUED, UNATTRIBUTED):
        assert part_of("idle", cause).name == cause
        assert part_of("idle", f"tail:{cause}") is part_of("idle", cause)
    assert part_of("input", "gemm").name == "input"
    assert part_of("busy", "no such category").name == "other"
    assert label_of("idle", "tail:python").startswith("Python, ")
    assert label_of("input", "gemm") == "input: matmul"


def test_every_kind_of_a_finding_has_a_colour_of_its_own() -> None:
    parts = [part_of_kind(kind) for kind in KINDS]
    assert UNKNOWN not in parts
    assert len(set(parts)) == len(KINDS)


def test_no_two_parts_have_one_colour() -> None:
    for theme in THEMES:
        assert len({shade(part, theme) for part in PARTS.values()}) == len(PARTS)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SEEN)
def test_shades_can_be_told_apart_by_every_sight_and_families_by_far(
    sight: str, theme: str
) -> None:
    parts = [part for family in FAMILIES for part in family.parts]
    close = {
        (one.name, other.name): round(apart, 1)
        for pairs, least in (
            (itertools.pairwise(parts), LEAST_OF_NEIGHBOURS),
            (itertools.combinations(parts, 2), LEAST_OF_SHADES),
            (itertools.combinations(HUES.values(), 2), LEAST_OF_FAMILIES),
        )
        for one, other in pairs
        if (apart := difference(one, other, sight, theme)) < least
    }
    assert close == {}


def difference(one: Part, other: Part, sight: str, theme: str) -> float:
    """How far two parts are apart as ``sight`` sees them (CIE76)."""
    seen = [lab(shade(part, theme), SEEN[sight]) for part in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def hue(part: Part, theme: str) -> float | None:
    """The hue angle of a part in CIELAB, degrees; None of a grey."""
    _, a, b = lab(shade(part, theme), SEEN["normal"])
    return None if np.hypot(a, b) < LEAST_CHROMA else float(np.degrees(np.arctan2(b, a)) % 360)


@pytest.mark.parametrize("theme", THEMES)
def test_parts_of_a_family_are_shades_of_one_hue(theme: str) -> None:
    for family in FAMILIES:
        hues = [hue(part, theme) for part in family.parts]
        first = hues[0]
        assert all((h is None) == (first is None) for h in hues), family.name
        turns = [abs((h - first + 180) % 360 - 180) for h in hues if h and first]
        assert max(turns, default=0) <= MOST_TURN, (family.name, hues)


def test_there_are_eight_families_and_all_waits_for_the_host_are_one() -> None:
    assert len(FAMILIES) <= 8
    assert {part.name for part in BY_HOST.parts} == set(WAITS_FOR_HOST)
    for part in (part for family in FAMILIES for part in family.parts):
        assert part in family_of(part).parts
    named = families_of(["gemm", "python", "cast", "sync", "host", MOVING.name])
    assert [(family.name, [part.name for part in family.parts]) for family in named] == [
        (PRODUCTS.name, ["gemm"]),
        (MOVING.name, [MOVING.name, "cast"]),
        (BY_HOST.name, ["python", "host"]),
        (OTHERWISE.name, ["sync"]),
    ]


@pytest.mark.parametrize("theme", THEMES)
def test_the_browns_of_the_host_differ_in_lightness(theme: str) -> None:
    lightness = sorted(lab(shade(p, theme), SEEN["normal"])[0] for p in BY_HOST.parts)
    assert min(b - a for a, b in itertools.pairwise(lightness)) >= LEAST_OF_LIGHTNESS


def variables(theme: str) -> dict[str, str]:
    """The colours that page.css gives a theme, by name."""
    css = (Path(page.__file__).parent / "page.css").read_text(encoding="utf-8")
    rule = {"light": r":root \{(.*?)\}", "dark": r':root\[data-theme="dark"\] \{(.*?)\}'}[theme]
    found = re.search(rule, css, re.DOTALL)
    assert found
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", found[1]))


def shade(part: Part, theme: str) -> str:
    return part.dark if theme == "dark" else part.colour


def contrast(one: str, other: str) -> float:
    """Contrast ratio (WCAG 2.2)."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)
def test_every_part_stands_out_from_its_ground(part: Part, theme: str) -> None:
    assert contrast(shade(part, theme), variables(theme)["ground"]) >= LEAST_CONTRAST


@pytest.mark.parametrize("theme", THEMES)
def test_an_interval_stands_out_from_the_bar_that_it_lies_on(theme: str) -> None:
    assert contrast(shade(PARTS["step"], theme), variables(theme)["ink"]) >= LEAST_CONTRAST


@pytest.mark.parametrize("theme", THEMES)
def test_what_stands_for_no_part_stands_out_too(theme: str) -> None:
    known = variables(theme)
    drawn = [drawing.ACCENT, *drawing.OFF_COLOURS, drawing.EDGE, known["range"], known["edge"]]
    assert min(contrast(colour, known["ground"]) for colour in drawn) >= LEAST_CONTRAST
    assert contrast(known["edge"], known["raised"]) >= LEAST_CONTRAST
    for ground in (known["ground"], known["raised"]):
        texts = [known[name] for name in ("ink", "soft", "accent", "doubt")]
        assert min(contrast(text, ground) for text in texts) >= LEAST_OF_TEXT


@pytest.mark.parametrize("theme", THEMES)
def test_names_are_read_on_a_box_that_is_tinted_by_its_part(theme: str) -> None:
    css = (Path(page.__file__).parent / "page.css").read_text(encoding="utf-8")
    of_parts = r"button\.part \{ background: color-mix\(in srgb, \S+ (\d+)%"
    (share,) = {int(text) / 100 for text in re.findall(of_parts, css)}
    of_pairs = r"color-mix\(in srgb, var\(--(?:slower|faster)\) (?:calc\()?(\d+)%"
    (most,) = {int(text) / 100 for text in re.findall(of_pairs, css)}
    known = variables(theme)
    for part in PARTS.values():
        box = mixed(shade(part, theme), known["ground"], share)
        assert contrast(known["ink"], box) >= LEAST_OF_TEXT, part.name
    for name in ("slower", "faster"):
        box = mixed(known[name], known["line"], most)
        assert contrast(known["ink"], box) >= LEAST_OF_TEXT, name


def mixed(colour: str, ground: str, share: float) -> str:
    """``share`` of a colour on a ground, as CSS mixes them in sRGB."""
    both = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (colour, ground)]
    return "#" + "".join(
        f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(*both, strict=True)
    )


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
