"""Figures as SVG in the colours and letters of the page around them.

Owns the paper's names of colours. A figure is drawn in the colours of :data:`INK` and its
neighbours, each of which stands for a variable of the page's style sheet, so that one drawing is
right in a light page, in a dark one and on paper. Nothing in the SVG points outside of the page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

#: Stand for ``--ink``, ``--muted``, ``--grid``, ``--paper`` and ``--series-0``;
#: :func:`series_colour` for ``--series-1`` and so on.
INK: Final = "#0101f0"
MUTED: Final = "#0101f1"
GRID: Final = "#0101f2"
PAPER: Final = "#0101f3"
OTHER: Final = "#0101f4"
_NAMED: Final = {"f0": "ink", "f1": "muted", "f2": "grid", "f3": "paper", "f4": "series-0"}
_COLOUR: Final = re.compile(r"#0101([0-9a-f]{2})")
_FONT: Final = re.compile(r"font: (?:bold )?([\d.]+)px[^;]*")
_REFERENCE: Final = re.compile(r"url\(#([^)]*)\)")
_SETTINGS: Final[Mapping[Any, Any]] = {
    # Letters stay letters: to be read aloud, to be searched for, and of any script that the browser
    # has.
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    # A dollar in a queue's name is no formula.
    "text.parse_math": False,
    "text.usetex": False,
    "axes.unicode_minus": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_WITHOUT: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


def series_colour(number: int) -> str:
    """The colour of a series. :param number: from 0 on."""
    return f"#0101{number + 1:02x}"


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """Apply the reports' settings to what the body draws as SVG.

    Settings of this process and of its user do not matter.

    :param name: of the plot in its page; equal plots of equal names are equal, byte for byte.
    """
    # The context gives back what was there before.
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_SETTINGS, "svg.hashsalt": name})
        # Only for measuring; it is the browser that writes.
        warnings.filterwarnings("ignore", r"Glyph .* missing from")
        yield


def inlined(figure: Figure, name: str, title: str, description: str) -> str:
    """The figure as an ``svg`` element for HTML.

    :param name: what its ids begin with; each plot of a page has its own.
    :param title: and
    :param description: what is read aloud in its place.
    """
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata=_WITHOUT, transparent=True)
    root = ElementTree.fromstring(written.getvalue())
    for parent in root.iter():
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    used = set(_references(root))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = dict(_attributes(element, used, name))
    size = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-text",
        "class": "plot",
    }
    root.attrib = size
    for place, (tag, text) in enumerate((("title", title), ("text", description))):
        told = ElementTree.Element("desc" if tag == "text" else tag, {"id": f"{name}-{tag}"})
        told.text = text
        root.insert(place, told)
    return ElementTree.tostring(root, encoding="unicode")


def _references(root: ElementTree.Element) -> Iterator[str]:
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href"):
                yield value.removeprefix("#")
            yield from _REFERENCE.findall(value)


def _attributes(
    element: ElementTree.Element, used: set[str], name: str
) -> Iterator[tuple[str, str]]:
    for key, value in element.attrib.items():
        key = key.rpartition("}")[2]
        if key == "id":
            if value in used:
                yield key, f"{name}-{value}"
        elif key == "href":
            yield key, f"#{name}-{value.removeprefix('#')}"
        else:
            value = _COLOUR.sub(
                lambda found: f"var(--{_NAMED.get(found[1]) or f'series-{int(found[1], 16)}'})",
                value,
            )
            value = _FONT.sub(r"font-size: \1px", value)
            yield key, _REFERENCE.sub(rf"url(#{name}-\1)", value)
