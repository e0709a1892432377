r"""Frames and header text to bytes, version by version.

STOMP 1.1 and 1.2, "Value Encoding". Owns what leaves, and the table of escapes; knows nothing of
sockets, sessions or messages.

A message that goes to many subscribers is not encoded by :func:`serialize` each time: its shared
headers are encoded once by
:func:`header_lines`, and the frame is put together as
``b"MESSAGE\n" + own + shared + b"\n" + body + b"\0"``.

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

from collections.abc import Iterable
from typing import Final
from unicodedata import category

from gateway.stomp.wire.frame import Version
from gateway.stomp.wire.grammar import COMMANDS, CONNECTING_COMMANDS

#: Unicode's categories of control and format characters, and of separators.
_BLANKS: Final = frozenset(("Cc", "Cf", "Zl", "Zp", "Zs"))

# Looking a member up in its enumeration costs more than comparing it.
_V1_0: Final = Version.V1_0

#: By version, what is sent in place of a character. The backslash is first, since others add some.
ESCAPES: Final[dict[Version, tuple[tuple[str, str], ...]]] = {
    Version.V1_0: (("\n", " "), ("\r", " "), ("\0", " ")),
    Version.V1_1: (("\\", "\\\\"), (":", "\\c"), ("\n", "\\n"), ("\r", " "), ("\0", " ")),
    Version.V1_2: (("\\", "\\\\"), (":", "\\c"), ("\n", "\\n"), ("\r", "\\r"), ("\0", " ")),
}


def escape_header(text: str, version: Version) -> str:
    """Return a header value as it is sent in `version`.

    CONNECT, STOMP and CONNECTED carry it as 1.0 does, in every version. The same object if there is
    nothing to escape.
    """
    # Containment and replace are the fastest that CPython has for short text; translate() and a
    # regular expression cost several times as much.
    if text.isprintable():
        # As nearly all text is: only these two may be in it.
        if (":" not in text and "\\" not in text) or version is _V1_0:
            return text
        return text.replace("\\", "\\\\").replace(":", "\\c")
    for character, sent in ESCAPES[version]:
        if character in text:
            text = text.replace(character, sent)
    return text


def escape_name(name: str, version: Version) -> str:
    """Return a header name as it is sent in `version`.

    As `escape_header`, with ``_`` for blanks at the edges, and in 1.0 for a colon, at which the
    peer would split.
    """
    text = without_edge_blanks(name)
    if version is _V1_0 and ":" in text:
        text = text.replace(":", "_")
    return escape_header(text, version)


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


def header_lines(
    headers: Iterable[tuple[str, str]], version: Version, padded: bool = False
) -> bytes:
    """Return header lines, each with its LF, escaped for `version`.

    Nothing for no headers. For any frame but CONNECT, STOMP and CONNECTED.

    Names and values may be any text: what `version` cannot carry is replaced, a lone surrogate by ``?``.

    :param padded: names keep the blanks at their edges in 1.1 and 1.2. Its readers must not trim.
    :raises ValueError: a name is empty.
    """
    lines: list[str] = []
    padded = padded and version is not _V1_0
    for name, value in headers:
        if not name:
            raise ValueError("a header needs a name")
        shown = escape_header(name, version) if padded else escape_name(name, version)
        lines.append(f"{shown}:{escape_header(value, version)}\n")
    return "".join(lines).encode("utf-8", "replace")


def serialize(
    command: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
    version: Version = Version.V1_2,
    padded: bool = False,
) -> bytes:
    """Return one whole frame as it is sent.

    Lines end with LF. The frame ends with its NUL, with no LF after it.

    The headers are sent in the order given. ``content-length`` is the caller's to give, because JMS
    peers tell text from bytes by it; only where a body has NUL octets and the caller gave none it
    is added here as the last header, for without it the frame would end early. CONNECT, STOMP and
    CONNECTED are not escaped in any version; line ends in their headers are replaced by spaces, as
    for 1.0.

    :param version: the version negotiated with the receiver.
    :param padded: as `header_lines` has it.
    :raises ValueError: no STOMP command, a header without a name, or a ``content-length`` that is
        not the body's.
    """
    if command not in COMMANDS:
        raise ValueError(f"no STOMP command: {command!r}")
    if command in CONNECTING_COMMANDS:
        version = Version.V1_0
    pairs = list(headers)
    declared: str | None = None
    for name, value in pairs:
        if name == "content-length":
            declared = value
            break
    if declared is not None:
        if declared != str(len(body)):
            raise ValueError(f"content-length is {declared!r}, and the body has {len(body)} octets")
    elif b"\0" in body:
        pairs.append(("content-length", str(len(body))))
    lines = header_lines(pairs, version, padded)
    return b"%s\n%s\n%s\0" % (command.encode("ascii"), lines, body)
