"""What all plots share: colours of series, and axes with units.

Owns when an axis is logarithmic. Knows no kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from matplotlib import ticker
from matplotlib.axis import Axis

from pipeline.report.series import OTHERS, Data
from pipeline.report.svg import OTHER, series_colour
from pipeline.report.text import in_seconds, is_measure, label, quantity, round_duration

#: Inches; a page shows them larger.
WIDTH: Final = 9.6
SIZE: Final = 8.5
#: Of two values in one plot, from where on it is logarithmic.
_WIDE: Final = 150.0
_MARKS: Final = 5


def colour_number(name: str, number: int) -> int:
    """Return the number of a series' colour, from 1 on; 0 without series.

    :param number: of the series, from 0 on.
    """
    return 0 if name == OTHERS else number + 1


def colour_of(name: str, number: int) -> str:
    """The same colour as a drawing has it."""
    return OTHER if name == OTHERS else series_colour(number)


def is_wide(found: Data) -> bool:
    """Whether only a logarithmic axis shows values of such different sizes."""
    values = found.values
    return min(values) > 0 and max(values) > _WIDE * min(values)


def span(ends: Iterable[float], room: float) -> tuple[float, float]:
    """Return an axis' range: from 0 to the values and a little further.

    :param room: the factor.
    """
    found = (0.0, *ends)
    low, high = min(found) * room, max(found) * room
    return low, high if low or high else 1.0


def caption(found: Data, logarithmic: bool) -> str:
    """What is up, of what size."""
    what = "" if is_measure(found.unit) else found.unit
    what = what or (found.series[0].name if len(found.series) == 1 else "")
    return f"{label(what, 40) if what else ''}{', ' if what and logarithmic else ''}{'logarithmic scale' if logarithmic else ''}"


def measure(axis: Axis, found: Data, logarithmic: bool) -> None:
    """Give an axis the marks of the values."""
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: quantity(value, found.unit)))
    if not logarithmic and (scale := in_seconds(found.unit)) and max(map(abs, found.values)):
        # Nobody counts minutes by thousands of milliseconds.
        axis.set_major_locator(
            ticker.MultipleLocator(
                round_duration(max(map(abs, found.values)) * scale / _MARKS) / scale
            )
        )
    elif logarithmic:
        axis.set_major_locator(ticker.LogLocator(numticks=8))
        axis.set_minor_formatter(ticker.NullFormatter())
    else:
        whole = all(value == int(value) for value in found.values) and not is_measure(found.unit)
        axis.set_major_locator(ticker.MaxNLocator(5, integer=whole, steps=[1, 2, 2.5, 5, 10]))
