"""What a page shows as printed, compared with what is printed.

A page cannot have the figures of each run. So two texts are equal if their words are, in their order:
a number stands for any number, a time for any time, an id in hexadecimal for any such id; blanks, ends
of lines and the rules of tables for any number of them. ``...`` stands for any text, as in
:mod:`doctest`; alone in a line, for any lines. A page may begin and end within what is printed, at the
ends of lines, but in between nothing is left out without ``...``.
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


def pattern(shown: str) -> str:
    """Return what a line that is printed must match."""
    parts = []
    for part in shown.split(ANY):
        made, at = "", 0
        for found in _FIGURE.finditer(part):
            made += re.escape(part[at : found.start()]) + _figure(found[0])
            at = found.end()
        parts.append(made + re.escape(part[at:]))
    return r".*?".join(parts).replace(r"\ ", r"\s+")


def _lines(text: str) -> list[str]:
    return [words for words in map(_words, text.splitlines()) if words]


def has(printed: str, shown: str) -> bool:
    """Tell whether something is printed that a page may show so."""
    wanted = r"\s+".join(
        r"(?:.*\n)*?.*" if line == ANY else pattern(line) for line in _lines(shown)
    )
    return re.search(f"(?m)^{wanted}$", "\n".join(_lines(printed))) is not None
