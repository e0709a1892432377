"""What a page shows as printed, compared with what is printed.

A page cannot have the figures of each run. So two lines are equal if their words are, in their
order: a number stands for any number, a time for any time, an id in hexadecimal for any such id,
blanks and the rules of tables for any number of them. ``...`` stands for any text within a line,
and alone in a line for any lines, as in :mod:`doctest`. A page may begin and end within what is
printed, but between its first and its last line nothing is left out without ``...``.
"""

from __future__ import annotations

import re
from typing import Final

ANY: Final = "..."
_RULE: Final = re.compile(r"(?:[-━─┏┓└┘┡┩┳┴╇┼╋├┤]+ *)+")
#: Numbers with their commas and points, and ids in hexadecimal.
_FIGURE: Final = re.compile(r"(?<![A-Za-z])[0-9a-f]*\d[0-9a-f]*(?![0-9A-Za-z])(?:[.,]\d+)*|\d+")


def _words(line: str) -> str:
    line = re.sub(r"[│┃]", " ", line.strip())
    return "---" if len(line) > 3 and _RULE.fullmatch(line) else " ".join(line.split())


def _figure(text: str) -> str:
    if re.fullmatch(r"[\d.,]+", text):
        return r"[\d.,]+"
    return r"[0-9a-f.]+"


def pattern(shown: str) -> re.Pattern[str]:
    """Return what a line that is printed must match."""
    parts = []
    for part in shown.split(ANY):
        made, at = "", 0
        for found in _FIGURE.finditer(part):
            made += re.escape(part[at : found.start()]) + _figure(found[0])
            at = found.end()
        parts.append(made + re.escape(part[at:]))
    return re.compile(".*".join(parts))


def _lines(text: str) -> list[str]:
    return [words for words in map(_words, text.splitlines()) if words]


def _fits(shown: list[str], printed: list[str]) -> bool:
    """Whether what is printed begins with what is shown."""
    if not shown:
        return True
    if shown[0] == ANY:
        return any(_fits(shown[1:], printed[at:]) for at in range(len(printed) + 1))
    if not printed or not pattern(shown[0]).fullmatch(printed[0]):
        return False
    return _fits(shown[1:], printed[1:])


def has(printed: str, shown: str) -> bool:
    """Tell whether something is printed that a page may show so."""
    there = _lines(printed)
    return any(_fits(_lines(shown), there[at:]) for at in range(len(there) + 1))
