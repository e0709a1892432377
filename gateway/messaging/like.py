"""The LIKE of selectors (JMS 1.1, section 3.8.1.1), in time that grows with the text and not with its square.

A client chooses the pattern and another the text, so neither may make the broker slow: there is no backtracking here, and no regular
expression made from a pattern. A pattern falls into pieces at its ``%``. The first and the last piece are compared where they must stand;
each piece between is looked for from left to right, and the first place found is kept, which is enough: a later place leaves less text
for the pieces that follow. A piece without ``_`` is looked for by ``str.find``, which is linear in CPython for all but short texts; one with ``_``
by the Shift-And method (Baeza-Yates and Gonnet, 1992), which looks at each character of the text once.

Owns matching; knows nothing of selectors. Characters are Unicode code points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

#: Whether a text is like the pattern.
Matcher: TypeAlias = Callable[[str], bool]

#: A character of a piece: itself, or None for ``_``.
_Piece: TypeAlias = tuple[str | None, ...]

#: Finds a piece in a text from a place on, and gives the place after it; -1 when it is not there.
_Finder: TypeAlias = Callable[[str, int], int]

_ANY: Final = None


def like(pattern: str, escape: str | None = None) -> Matcher:
    """What decides whether a text is like ``pattern``.

    :param pattern: ``_`` stands for any one character, ``%`` for any number of them, all others for themselves.
    :param escape: one character that takes its special meaning from the one after it, whichever that is.
    :raises ValueError: ``escape`` is not one character, or it is the last of the pattern and so escapes nothing.
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
        return lambda text: len(text) >= shortest and text.startswith(prefix) and text.endswith(suffix)
    if len(middle) == 1 and not first and not last and _is_literal(middle[0]):
        word = _literal(middle[0])
        return lambda text: word in text
    return matches


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    if escape is not None and len(escape) != 1:
        raise ValueError(f"the escape of LIKE must be one character, not {len(escape)}")
    pieces: list[_Piece] = []
    piece: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError(f"the pattern ends with the escape {escape!r}, which has nothing to escape")
            piece.append(escaped)
        elif character == "%":
            pieces.append(tuple(piece))
            piece = []
        else:
            piece.append(_ANY if character == "_" else character)
    pieces.append(tuple(piece))
    return pieces


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
    wanted = [(offset, character) for offset, character in enumerate(piece) if character is not None]

    return lambda text, start: all(text[start + offset] == character for offset, character in wanted)


def _finder(piece: _Piece) -> _Finder:
    """What looks for a piece, which is not empty."""
    length = len(piece)
    before = next((index for index, character in enumerate(piece) if character is not None), length)
    if before == length:
        # Only "_": any characters will do, if there are so many.
        return lambda text, start: start + length if start + length <= len(text) else -1
    after = next(index for index, character in enumerate(reversed(piece)) if character is not None)
    core = piece[before : length - after]
    if not _is_literal(core):
        return _shift_and(piece)
    literal = _literal(core)
    size = len(literal) + after

    def find(text: str, start: int) -> int:
        # Without "_" at the ends the piece is a plain word; at its ends they only ask for room.
        place = text.find(literal, start + before)
        return place + size if place >= 0 and place + size <= len(text) else -1

    return find


def _shift_and(piece: _Piece) -> _Finder:
    """Shift-And: bit i of ``state`` says that the piece up to its character i ends at the character of the text just read."""
    everywhere = sum(1 << index for index, character in enumerate(piece) if character is None)
    masks: dict[str, int] = {}
    for index, character in enumerate(piece):
        if character is not None:
            masks[character] = masks.get(character, everywhere) | 1 << index
    whole = 1 << len(piece) - 1
    mask_of = masks.get

    def find(text: str, start: int) -> int:
        state = 0
        for place in range(start, len(text)):
            state = (state << 1 | 1) & mask_of(text[place], everywhere)
            if state & whole:
                return place + 1
        return -1

    return find
