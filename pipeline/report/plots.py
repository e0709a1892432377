"""A chart of a table as a drawing, its legend, and the same in words.

Owns which kind of plot shows what. Knows no job, and no colour.

Series are named in a legend beside the drawing, not in it, so that names of any length and script
have room.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.report import curves, journey, rows
from pipeline.report.axes import colour_number
from pipeline.report.series import Data, Place, data
from pipeline.report.svg import drawing, inlined
from pipeline.report.text import label, moment, quantity
from pipeline.summary import Chart, Table


@dataclass(frozen=True)
class Key:
    """A line of the legend.

    :param colour: the number of the series' colour in the page, 0 for the one of what is not told
        apart.
    :param dashes: of its line, as SVG writes them; None: it is an area.
    """

    name: str
    colour: int
    dashes: str | None = None


@dataclass(frozen=True)
class Plot:
    """What stands in the page.

    :param svg: an element, safe as it is.
    :param legend: empty where there is one series only.
    :param note: what is not drawn.
    :param text: the text alternative.
    """

    svg: str
    legend: tuple[Key, ...]
    note: str
    text: str


def plot(table: Table, chart: Chart, name: str) -> Plot | None:
    """Draw a table.

    :param name: of the plot within its page.
    :returns: None where there is nothing to draw.
    :raises ValueError: when the chart speaks of a column that the table does not have.
    """
    with drawing(name):
        if chart.kind == "timeline":
            journeys, note = journey.journeys(table, chart)
            if not journeys:
                return None
            text = journey.told(journeys)
            return Plot(
                inlined(journey.draw(journeys), name, label(table.title, 200), text), (), note, text
            )
        found = data(table, chart)
        if not found.series:
            return None
        text = told(chart, found)
        if found.along == "name":
            figure = (
                rows.ranges(found) if chart.kind == "range" else rows.bars(found, bool(chart.by))
            )
            legend = _legend(found, False)
        elif chart.kind == "bar":
            figure, legend = curves.columns(found), tuple(reversed(_legend(found, False)))
        else:
            figure, legend = curves.lines(found), _legend(found, True)
        return Plot(
            inlined(figure, name, label(table.title, 200), text), legend, found.left_out, text
        )


def told(chart: Chart, found: Data) -> str:
    """What the plot shows, in words."""
    kind = {"line": "Line plot", "bar": "Bar chart", "range": "Range plot"}.get(chart.kind, "Plot")
    what = f"{kind} of {', '.join(map(label, chart.y))}{f' in {label(chart.unit)}' if chart.unit else ''} by {label(chart.x)}"
    places = found.places
    span = f"{len(places)} {'place' if len(places) == 1 else 'places'}"
    if found.along == "time":
        first, last = _where(places[0], found), _where(places[-1], found)
        span = f"{first} to {last}" if len(places) > 1 else f"at {first}"
    each = []
    for series in found.series:
        lowest, highest = (
            min(series.points, key=lambda point: point[1]),
            max(series.points, key=lambda point: point[1]),
        )
        between = quantity(highest[1], found.unit)
        if lowest[1] != highest[1]:
            between = f"{quantity(lowest[1], found.unit)} to {between}"
        each.append(f"{series.name}: {between}, highest at {_where(highest[0], found)}")
    return f"{what}, {span}. {'; '.join(each)}. The table below has all of it."


def _where(place: Place, found: Data) -> str:
    if isinstance(place, str):
        return place
    return f"{moment(place)} UTC" if found.along == "time" else quantity(place)


def _legend(found: Data, dashed: bool) -> tuple[Key, ...]:
    if len(found.series) < 2:
        return ()
    return tuple(
        Key(
            series.name,
            colour_number(series.name, number),
            curves.DASHES[number] if dashed else None,
        )
        for number, series in enumerate(found.series)
    )
