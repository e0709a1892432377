r"""Header text to wire text and back, version by version.

STOMP 1.1 and 1.2, "Value Encoding". Knows no frames.

==========  =======================  ==================  ==================
Character   1.0, and CONNECT frames  1.1                 1.2
==========  =======================  ==================  ==================
backslash   raw                      ``\\``              ``\\``
colon       raw (in names ``_``)     ``\c``              ``\c``
LF          a space                  ``\n``              ``\n``
CR          a space                  a space             ``\r``
NUL         a space                  a space             a space
==========  =======================  ==================  ==================

Many readers trim names, in every version. To them ``message-id`` with a blank behind it is the gateway's own header, so each blank at an edge of a name
is sent as ``_``. A blank is whatever the trim function of some language removes: spaces, control and format characters.

What a version has no escape for becomes a space: sent raw, it could end the line or the frame for some client, and what follows would be taken for
headers or frames of the gateway. 1.1 would allow a raw CR, but common line readers end a line there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from unicodedata import category

from gateway.stomp.wire.errors import shown
from gateway.stomp.wire.frame import Version

#: Unicode's categories of control and format characters, and of separators.
_BLANKS: Final = frozenset(("Cc", "Cf", "Zl", "Zp", "Zs"))

_escapes: Final = re.compile(r"\\(.?)", re.DOTALL)

_PLAIN_1_1: Final = {"n": "\n", "c": ":", "\\": "\\"}
_PLAIN_1_2: Final = {"n": "\n", "c": ":", "\\": "\\", "r": "\r"}


class UndefinedEscape(ValueError):
    """A backslash that is followed by nothing the version defines.

    Its text is the two characters, fit to be quoted.
    """


# Containment and replace are the fastest that CPython has for short text; translate() and a regular
# expression cost several times as much.


def escape_1_0(text: str) -> str:
    """Return a header value as a 1.0 peer takes it.

    CONNECT, STOMP and CONNECTED carry it like this in every version. The same object if nothing
    changes.
    """
    if "\n" in text:
        text = text.replace("\n", " ")
    if "\r" in text:
        text = text.replace("\r", " ")
    if "\0" in text:
        text = text.replace("\0", " ")
    return text


def bare_name(name: str) -> str:
    """Return a header name as readers that trim see it.

    Without the blanks at its edges; the same object if it has no such blanks.
    """
    start, end = _inner(name)
    return name if end - start == len(name) else name[start:end]


def without_edge_blanks(name: str) -> str:
    """Return a header name with ``_`` for each blank at its edges.

    The same object if it has no such blanks.
    """
    start, end = _inner(name)
    return (
        name
        if end - start == len(name)
        else "_" * start + name[start:end] + "_" * (len(name) - end)
    )


def _inner(name: str) -> tuple[int, int]:
    """Where a name begins and ends without the blanks at its edges."""
    start, end = 0, len(name)
    while start < end and _is_blank(name[start]):
        start += 1
    while end > start and _is_blank(name[end - 1]):
        end -= 1
    return start, end


def _is_blank(character: str) -> bool:
    return character <= " " or (character > "~" and category(character) in _BLANKS)


def escape_name_1_0(text: str) -> str:
    """Return a header name for a 1.0 peer.

    As `escape_1_0`, with ``_`` for blanks at the edges, and for a colon, at which the peer would
    split.
    """
    text = without_edge_blanks(text)
    if ":" in text:
        text = text.replace(":", "_")
    return escape_1_0(text)


def escape_name_1_1(text: str) -> str:
    """Return a header name for a 1.1 peer.

    As `escape_1_1`, with ``_`` for blanks at the edges.
    """
    return escape_1_1(without_edge_blanks(text))


def escape_name_1_2(text: str) -> str:
    """Return a header name for a 1.2 peer.

    As `escape_1_2`, with ``_`` for blanks at the edges.
    """
    return escape_1_2(without_edge_blanks(text))


def escape_1_1(text: str) -> str:
    """Return a header value for a 1.1 peer.

    The same object if there is nothing to escape.
    """
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if ":" in text:
        text = text.replace(":", "\\c")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\r" in text:
        text = text.replace("\r", " ")
    if "\0" in text:
        text = text.replace("\0", " ")
    return text


def escape_1_2(text: str) -> str:
    """Return a header value for a 1.2 peer.

    The same object if there is nothing to escape.
    """
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if ":" in text:
        text = text.replace(":", "\\c")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    if "\0" in text:
        text = text.replace("\0", " ")
    return text


_VALUES: Final[dict[Version, Callable[[str], str]]] = {
    Version.V1_0: escape_1_0,
    Version.V1_1: escape_1_1,
    Version.V1_2: escape_1_2,
}
_NAMES: Final[dict[Version, Callable[[str], str]]] = {
    Version.V1_0: escape_name_1_0,
    Version.V1_1: escape_name_1_1,
    Version.V1_2: escape_name_1_2,
}


def escaper(version: Version) -> Callable[[str], str]:
    """Return the function that escapes header values for `version`.

    For callers that serialize much.
    """
    return _VALUES[version]


def name_escaper(version: Version) -> Callable[[str], str]:
    """The function that escapes header names for `version`."""
    return _NAMES[version]


def escape_header(text: str, version: Version) -> str:
    """Return a header value as it is sent in `version`.

    The same object if there is nothing to escape.
    """
    return _VALUES[version](text)


def unescape_header(text: str, version: Version) -> str:
    """Return a header name or value as it was meant.

    1.0 has no escapes and gets the text back.

    :raises UndefinedEscape: an escape that `version` does not define (STOMP 1.2: "MUST be treated
        as a fatal protocol error").
    """
    if version == Version.V1_0 or "\\" not in text:
        return text
    plain = _PLAIN_1_1 if version == Version.V1_1 else _PLAIN_1_2
    parts: list[str] = []
    at = 0
    for escape in _escapes.finditer(text):
        character = plain.get(escape.group(1))
        if character is None:
            raise UndefinedEscape(shown(escape.group()))
        parts.append(text[at : escape.start()])
        parts.append(character)
        at = escape.end()
    parts.append(text[at:])
    return "".join(parts)
