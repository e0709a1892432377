"""The LIKE of selectors, in linear time (JMS 1.1, section 3.8.1.1).

One client chooses the pattern and another the text, so neither may make the broker slow. A pattern
is cut at its ``%`` into pieces. The first and the last piece are compared at the ends of the text,
by one regular expression. Each piece between is searched for from left to right, and the first
place found is kept: a later place would only leave less text for the pieces that follow. So nothing
is ever tried again. Pieces without ``_`` between other characters are searched for by
``str.find``, which is faster than any regular expression; the others by one made of literal
characters and ``.`` only, which compares each place of the text with at most the whole piece.

Owns matching, the bound of a pattern, and its cost. Knows nothing of selectors. Characters are
Unicode code points.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

#: Characters of a pattern, at most.
MAX_PATTERN: Final = 256

# Microseconds, about, for a text of 10 KiB that is as bad as can be.
_COST_OF_LITERAL: Final = 10
_COST_OF_SEARCH: Final = 60
_COST_OF_CHARACTER: Final = 6

#: Whether a text is like the pattern.
Matcher: TypeAlias = Callable[[str], bool]

#: A character of a piece: itself, or None for ``_``.
_Piece: TypeAlias = tuple[str | None, ...]

#: Finds a piece in a text from a place on, and gives the place after it; -1 when it is not there.
_Finder: TypeAlias = Callable[[str, int], int]


def like(pattern: str, escape: str | None = None) -> Matcher:
    """What decides whether a text is like ``pattern``.

    :param pattern: ``_`` stands for any one character, ``%`` for any number of them, all others for
        themselves.
    :param escape: one character that takes its special meaning from the one after it, whichever
        that is.
    :raises ValueError: the pattern is longer than :data:`MAX_PATTERN`; or ``escape`` is not one
        character, or it is the last of the pattern and so escapes nothing.
    """
    first, *others = _pieces(pattern, escape)
    if not others:
        is_equal = _compiled(_expression(first)).fullmatch
        return lambda text: is_equal(text) is not None
    *middle, last = others
    head, tail = len(first), len(last)
    # What is possessive is not tried again, and the text that it leaves is the last piece's.
    rest = f".{{{sum(map(len, middle)) + tail},}}+(?<={_expression(last)})"
    has_ends = _compiled(_expression(first) + rest).fullmatch
    if not any(middle):
        return lambda text: has_ends(text) is not None
    if len(middle) == 1 and not head and not tail and None not in middle[0]:
        word = _literal(middle[0])
        return lambda text: word in text
    finders = [_finder(piece) for piece in middle if piece]

    def matches(text: str) -> bool:
        if has_ends(text) is None:
            return False
        position = head
        for find in finders:
            position = find(text, position)
            if position < 0:
                return False
        return position <= len(text) - tail

    return matches


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    if len(pattern) > MAX_PATTERN:
        raise ValueError(
            f"the pattern has {len(pattern)} characters, and {MAX_PATTERN} are allowed"
        )
    if escape is not None and len(escape) != 1:
        raise ValueError(f"the escape of LIKE must be one character, not {len(escape)}")
    pieces: list[_Piece] = []
    piece: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError(
                    f"the pattern ends with the escape {escape!r}, which has nothing to escape"
                )
            piece.append(escaped)
        elif character == "%":
            pieces.append(tuple(piece))
            piece = []
        else:
            piece.append(None if character == "_" else character)
    pieces.append(tuple(piece))
    return pieces


def cost(pattern: str, escape: str | None = None) -> int:
    """Return about how many microseconds a text of 10 KiB may take.

    :raises ValueError: as :func:`like`.
    """
    total = _COST_OF_LITERAL
    for piece in _pieces(pattern, escape)[1:-1]:
        core = _core(piece)
        total += (
            _COST_OF_LITERAL
            if None not in core
            else _COST_OF_SEARCH + _COST_OF_CHARACTER * len(core)
        )
    return total


def _literal(piece: _Piece) -> str:
    return "".join([character or "" for character in piece])


def _expression(piece: _Piece) -> str:
    return "".join(["." if character is None else re.escape(character) for character in piece])


def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL)


def _core(piece: _Piece) -> _Piece:
    """Return the piece without the ``_`` at its ends, which only ask for room."""
    given = [index for index, character in enumerate(piece) if character is not None]
    return piece[given[0] : given[-1] + 1] if given else ()


def _finder(piece: _Piece) -> _Finder:
    """Return what looks for a piece, which is not empty."""
    core = _core(piece)
    before = piece.index(core[0]) if core else len(piece)
    size = len(piece) - before
    literal = _literal(core)
    search = None if None not in core else _compiled(_expression(core)).search

    def find(text: str, start: int) -> int:
        if search is None:
            place = text.find(literal, start + before)
        else:
            found = search(text, start + before)
            place = -1 if found is None else found.start()
        end = place + size
        return end if place >= 0 and end <= len(text) else -1

    return find
