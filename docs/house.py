"""Draw ``docs/house.svg``, the map of the house, from the code's imports.

A box is a package with the first line of its docstring; an arrow goes to what it imports. A package
is above everything that it imports, and an arrow that others already imply is left out. Red
lines join packages whose modules import each other. Nearly all packages import those in
``EVERYWHERE``, so these arrows are left out.

Run it after a package was added, or may import another: ``.venv/bin/python docs/house.py``.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

import networkx

TOP: Final = Path(__file__).parents[1]
PICTURE: Final = TOP / "docs" / "house.svg"
PACKAGES: Final = ("gateway", "bridge", "certs", "pipeline")

#: What nearly all packages import.
EVERYWHERE: Final = ("gateway.messaging", "gateway.instance", "gateway.reactor")
#: Pixels.
WIDTH, HEIGHT, GAP, RISE = 182, 62, 12, 54
#: Boxes in a row, and characters in a line of a box.
ROW, LINE = 6, 30
COLOURS: Final = {
    "gateway": "#dbeafe",
    "bridge": "#dcfce7",
    "certs": "#fef9c3",
    "pipeline": "#fae8ff",
}


def packages() -> dict[str, str]:
    """Return the first line of each package's docstring, by package."""
    found = {}
    for top in PACKAGES:
        for init in sorted((TOP / top).rglob("__init__.py")):
            name = ".".join(init.parent.relative_to(TOP).parts)
            found[name] = (ast.get_docstring(ast.parse(init.read_text())) or "").split("\n")[0]
    return found


def imports(names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of packages where the first imports from the second."""
    for name in names:
        for path in TOP.joinpath(*name.split(".")).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.ImportFrom):
                    continue
                for alias in node.names:
                    target = f"{node.module}.{alias.name}"
                    while target and target not in names:
                        target = target.rpartition(".")[0]
                    # Who takes the version from "gateway" does not depend on the composition.
                    if target not in ("", name, "gateway"):
                        yield name, target


def rows(graph: networkx.DiGraph[str]) -> list[list[str]]:
    """Return the packages from top to bottom, each above its imports."""
    circles = networkx.condensation(graph)
    height: dict[int, int] = {}
    for node in reversed(list(networkx.topological_sort(circles))):
        height[node] = max((height[below] + 1 for below in circles.successors(node)), default=0)
    found: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for node, members in circles.nodes(data="members"):
        found[-1 - height[node]] += sorted(members)
    full = [sorted(row) for row in found]
    return [row[i : i + ROW] for row in full for i in range(0, len(row), ROW)]


def draw() -> str:
    """Return the picture as SVG."""
    names = packages()
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(imports(names))
    circles = [found for found in networkx.strongly_connected_components(graph) if len(found) > 1]
    within = [(a, b) for a, b in graph.edges if any(a in one and b in one for one in circles)]
    plain = graph.copy()
    plain.remove_edges_from(within)
    across = (
        networkx.transitive_reduction(plain) if networkx.is_directed_acyclic_graph(plain) else plain
    )
    place = {}
    lines = rows(graph)
    across_width = ROW * (WIDTH + GAP)
    for y, row in enumerate(lines):
        indent = (across_width - len(row) * (WIDTH + GAP)) // 2
        for x, name in enumerate(row):
            place[name] = (indent + x * (WIDTH + GAP) + GAP, y * (HEIGHT + RISE) + GAP)
    height = len(lines) * (HEIGHT + RISE)
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across_width + GAP} {height}"'
        ' font-family="sans-serif">',
        '<marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z" fill="#64748b"/></marker>',
    ]
    for a, b in sorted(across.edges):
        if b in EVERYWHERE:
            continue
        (x1, y1), (x2, y2) = place[a], place[b]
        svg.append(
            f'<line x1="{x1 + WIDTH // 2}" y1="{y1 + HEIGHT}" x2="{x2 + WIDTH // 2}" y2="{y2}"'
            ' stroke="#94a3b8" marker-end="url(#to)"/>'
        )
    for a, b in sorted(within):
        (x1, y1), (x2, y2) = place[a], place[b]
        svg.append(
            f'<line x1="{x1 + WIDTH // 2}" y1="{y1}" x2="{x2 + WIDTH // 2}" y2="{y2}"'
            ' stroke="#dc2626"/>'
        )
    for name, (x, y) in sorted(place.items()):
        svg.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"'
            f' fill="{COLOURS[name.split(".")[0]]}" stroke="#64748b"/>'
            f'<text x="{x + 6}" y="{y + 15}" font-size="11" font-weight="bold">{name}</text>'
        )
        for number, line in enumerate(textwrap.wrap(names[name].replace("``", ""), LINE)[:3]):
            svg.append(
                f'<text x="{x + 6}" y="{y + 29 + 12 * number}" font-size="10">{escape(line)}</text>'
            )
    return "\n".join([*svg, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
