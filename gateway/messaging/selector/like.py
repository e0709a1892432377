"""The LIKE of selectors (JMS 1.1, section 3.8.1.1), in time that grows with the text and not with
its square.

One client chooses the pattern and another the text, so neither may make the broker slow. A pattern
is cut at its ``%`` into pieces. The first and the last piece are compared at the ends of the text.
Each piece between is searched for from left to right, and the first place found is kept: a later
place would only leave less text for the pieces that follow. So nothing is ever tried again, as if
each ``%`` with its piece were an atomic group of a regular expression. A piece without ``_`` is
searched for by ``str.find``, one with ``_`` by a regular expression made of literal characters and
``.`` only, which compares each place of the text with at most the whole piece.

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

_ANY: Final = None


def like(pattern: str, escape: str | None = None) -> Matcher:
    """What decides whether a text is like ``pattern``.

    :param pattern: ``_`` stands for any one character, ``%`` for any number of them, all others for
        themselves.
    :param escape: one character that takes its special meaning from the one after it, whichever
        that is.
    :raises ValueError: the pattern is longer than :data:`MAX_PATTERN`; or ``escape`` is not one
        character, or it is the last of the pattern and so escapes nothing.
    """
    pieces = _pieces(pattern, escape)
    if len(pieces) == 1:
        return _equal(pieces[0])
    first, *middle, last = pieces
    finders = [_finder(piece) for piece in middle if piece]
    at_start = _anchored(first)
    at_end = _anchored(last)
    shortest = len(first) + sum(map(len, middle)) + len(last)
    head = len(first)
    tail = len(last)

    def matches(text: str) -> bool:
        end = len(text) - tail
        if len(text) < shortest or not at_start(text, 0) or not at_end(text, end):
            return False
        position = head
        for find in finders:
            position = find(text, position)
            if position < 0:
                return False
        return position <= end

    if not finders and _is_literal(first) and _is_literal(last):
        # abc% and %abc and abc%xyz, which most patterns are.
        prefix = _literal(first)
        suffix = _literal(last)
        return lambda text: (
            len(text) >= shortest and text.startswith(prefix) and text.endswith(suffix)
        )
    if len(middle) == 1 and not first and not last and _is_literal(middle[0]):
        word = _literal(middle[0])
        return lambda text: word in text
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
            piece.append(_ANY if character == "_" else character)
    pieces.append(tuple(piece))
    return pieces


def cost(pattern: str, escape: str | None = None) -> int:
    """How many microseconds a text of 10 KiB may take, about. :raises ValueError: as
    :func:`like`.
    """
    total = _COST_OF_LITERAL
    for piece in _pieces(pattern, escape)[1:-1]:
        core = _core(piece)
        total += (
            _COST_OF_LITERAL
            if _is_literal(core)
            else _COST_OF_SEARCH + _COST_OF_CHARACTER * len(core)
        )
    return total


def _is_literal(piece: _Piece) -> bool:
    return None not in piece


def _literal(piece: _Piece) -> str:
    return "".join([character or "" for character in piece])


def _equal(piece: _Piece) -> Matcher:
    if _is_literal(piece):
        return _literal(piece).__eq__
    at = _anchored(piece)
    length = len(piece)
    return lambda text: len(text) == length and at(text, 0)


def _anchored(piece: _Piece) -> Callable[[str, int], bool]:
    """Whether the piece stands in a text at a place, from which the text is long enough."""
    if _is_literal(piece):
        literal = _literal(piece)
        return lambda text, start: text.startswith(literal, start)
    wanted = [
        (offset, character) for offset, character in enumerate(piece) if character is not None
    ]

    return lambda text, start: all(
        text[start + offset] == character for offset, character in wanted
    )


def _core(piece: _Piece) -> _Piece:
    """The piece from its first character to its last; without the ``_`` at its ends, which only ask
    for room.
    """
    given = [index for index, character in enumerate(piece) if character is not None]
    return piece[given[0] : given[-1] + 1] if given else ()


def _finder(piece: _Piece) -> _Finder:
    """What looks for a piece, which is not empty."""
    length = len(piece)
    core = _core(piece)
    if not core:
        # Any characters will do, if there are so many.
        return lambda text, start: start + length if start + length <= len(text) else -1
    before = next(index for index, character in enumerate(piece) if character is not None)
    after = length - before - len(core)
    size = len(core) + after
    if _is_literal(core):
        literal = _literal(core)

        def find(text: str, start: int) -> int:
            place = text.find(literal, start + before)
            return place + size if place >= 0 and place + size <= len(text) else -1

        return find
    expression = "".join(["." if character is None else re.escape(character) for character in core])
    search = re.compile(expression, re.DOTALL).search

    def find_with_gaps(text: str, start: int) -> int:
        found = search(text, start + before)
        if found is None:
            return -1
        end = found.end() + after
        return end if end <= len(text) else -1

    return find_with_gaps
