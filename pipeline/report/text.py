"""What a report writes for a value: harmless text, and units.

Owns that whatever a message may hold (control characters, marks that turn the direction of what
follows, half of a surrogate pair, a megabyte) is shown as something that can be seen and is of a
bounded length. That it is no markup is the template's and the plot's.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Final

#: Characters of a text that a page shows.
LONGEST: Final = 2_000
_LABEL: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The first and the last second that there is, since 1970-01-01 UTC.
FIRST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()
LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
#: Needed inside words of several scripts, and harmless.
_JOINERS: Final = frozenset("\u200c\u200d")
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Cn", "Zl", "Zp"))
_DURATIONS: Final = (
    (1e-3, 1e-6, "µs"),
    (1.0, 1e-3, "ms"),
    (120.0, 1.0, "s"),
    (7_200.0, 60.0, "min"),
    (172_800.0, 3_600.0, "h"),
)
_SECONDS: Final = {
    "s": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "microseconds": 1e-6,
}
_ROUND: Final = (
    *(size * count for size in (1.0, 60.0) for count in (1, 2, 5, 10, 15, 20, 30)),
    *(3_600.0 * count for count in (1, 2, 3, 6, 12)),
)
_OCTETS: Final = frozenset({"octets", "bytes", "B"})
_LARGE: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain(text: str, limit: int = LONGEST) -> str:
    r"""Return the text with invisible characters written out, and shortened.

    They become ``\\x1b`` or ``\\u202e``; what exceeds the limit is counted. Line feeds and tabs
    stay.

    :param limit: characters.
    """
    kept = "".join(
        each if _seen(each) else each.encode("unicode_escape").decode("ascii")
        for each in text[:limit]
    )
    return kept if len(text) <= limit else f"{kept}… ({len(text):,} characters)"


def label(value: object, limit: int = _LABEL) -> str:
    """Return the value as a plot's name: one line, not empty, bounded.

    A longer one loses its middle.
    """
    if value is None:
        return "(none)"
    text = str(value)
    # No more than this is looked at: a name may be a megabyte.
    text = text if len(text) <= 4 * limit else f"{text[: 2 * limit]}…{text[-2 * limit :]}"
    text = " ".join(plain(text, 4 * limit + 1).split())
    if len(text) > limit:
        front = (limit - 1) * 2 // 3
        text = f"{text[:front]}…{text[len(text) - (limit - 1 - front) :]}"
    return text or "(empty)"


def quantity(value: float, unit: str = "") -> str:
    """A number as an axis has it: three digits and a unit of a fitting size.

    :param unit: seconds, ms or microseconds become the unit of time that fits; octets kB, MB and so
        on; of all else the number alone is written.
    """
    if unit in _SECONDS:
        return _duration(value * _SECONDS[unit])
    large, suffix = next(
        ((large, suffix) for large, suffix in _LARGE if abs(value) >= large), (1.0, "")
    )
    if unit in _OCTETS:
        return f"{_digits(value / large)} {suffix}B"
    if abs(value) < 10_000:
        return f"{value:,.0f}" if value == int(value) else _digits(value)
    return f"{_digits(value / large)}{suffix}"


def moment(seconds: float, timespec: str = "minutes") -> str:
    """Return a time in UTC for a sentence.

    :param seconds: since 1970-01-01 UTC.
    :param timespec: as of datetime.
    """
    return (
        (_EPOCH + timedelta(seconds=max(FIRST, min(seconds, LAST))))
        .isoformat(sep=" ", timespec=timespec)
        .removesuffix("+00:00")
    )


def in_seconds(unit: str) -> float:
    """Return how many seconds the unit is; 0 if it is not a unit of time."""
    return _SECONDS.get(unit, 0.0)


def round_duration(seconds: float) -> float:
    """Return the next duration that people count in, of at least ``seconds``."""
    if seconds <= 1 or seconds > 43_200:
        size = 1.0 if seconds <= 1 else 86_400.0
        power: float = 10.0 ** math.floor(math.log10(seconds / size))
        return next(
            size * power * step for step in (1, 2, 2.5, 5, 10, 20) if size * power * step >= seconds
        )
    return next(each for each in _ROUND if each >= seconds)


def is_measure(unit: str) -> bool:
    """Whether :func:`quantity` writes the unit itself."""
    return unit in _SECONDS or unit in _OCTETS


def _duration(seconds: float) -> str:
    if seconds == 0:
        return "0"
    for below, size, name in _DURATIONS:
        if abs(seconds) < below:
            return f"{_digits(seconds / size)} {name}"
    return f"{_digits(seconds / 86_400)} d"


def _digits(value: float) -> str:
    if value and not 0.001 <= abs(value) < 1_000_000:
        return f"{value:.2g}"
    places = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _seen(character: str) -> bool:
    return (
        character in "\n\t"
        or character in _JOINERS
        or unicodedata.category(character) not in _UNSEEN
    )
