"""One whole header block to a :class:`Head`.

UTF-8, command, lines, escapes, repeats, ``content-length``. Knows nothing of buffers and of limits.

There are two readers. :func:`read_head` takes every block and says what is wrong with a bad one.
:func:`read_plain_head` takes the blocks that nearly all clients send, several times faster, and
gives None wherever it would have to look closer; for the rest both give the same.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.stomp.wire.errors import Exceeded, ProtocolError, shown
from gateway.stomp.wire.frame import Head, Version
from gateway.stomp.wire.grammar import (
    COMMANDS,
    CONNECTING_COMMANDS,
    COUNTED_COMMANDS,
    PADDING,
    STRICT,
    Leniency,
)
from gateway.stomp.wire.serializer import ESCAPES

# 10 ** 18 octets are above any limit, and int() of 18 digits costs nothing.
_MOST_DIGITS: Final = 18

# Looking a member up in its enumeration costs more than comparing it.
_V1_0: Final = Version.V1_0

_PLAIN_COMMANDS: Final = COMMANDS - CONNECTING_COMMANDS

_escapes: Final = re.compile(r"\\(.?)", re.DOTALL)
#: By version, the character that the one behind a backslash means.
_PLAIN: Final = {
    version: {sent[1]: character for character, sent in pairs if sent[0] == "\\"}
    for version, pairs in ESCAPES.items()
}


class UndefinedEscape(ValueError):
    """A backslash that is followed by nothing the version defines.

    Its text is the two characters, fit to be quoted.
    """


def read_head(block: bytes, version: Version, leniency: Leniency = STRICT) -> Head:
    """Read a header block.

    :param block: the octets from the first of the command to the end of the blank line, inclusive;
        lines end in LF or CR LF, and no NUL is in it.
    :param version: the version negotiated, or 1.0 before that.
    :param leniency: what is taken beyond the grammar.
    :raises ProtocolError: unknown command, bad UTF-8, a header without colon or name, an undefined
        escape, a bad ``content-length``.
    """
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        # Counted from the command line as 0, so that header lines count from 1.
        number = block.count(b"\n", 0, error.start)
        where = "the command line" if number == 0 else f"header line {number}"
        raise ProtocolError(f"{where} is not UTF-8", receipt_of(block, version)) from None
    lines = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")[:-2]]
    command = lines[0]
    if command not in COMMANDS and not leniency.any_command:
        raise ProtocolError(
            f"unknown command '{shown(command)}'", receipt_of(block, version), shown(command)
        )
    try:
        headers = _headers(lines, version, leniency)
        if leniency.counts_messages_only and command not in COUNTED_COMMANDS:
            return Head(command, headers)
        return Head(command, headers, content_length(headers))
    except ProtocolError as error:
        raise ProtocolError(error.message, receipt_of(block, version)) from None


def read_plain_head(block: bytes, version: Version, most: int) -> Head | None:
    """Read a header block if it is plain, else return None.

    Plain is: no CR, escape (1.0: padding) or repeated header, and nothing wrong with it.

    :param block: as `read_head` takes it, ending in two LF.
    :param most: the headers allowed.
    """
    # An int in bytes is a memchr; a bytes in bytes costs an exception within CPython.
    if 13 in block:
        return None
    if version is _V1_0:
        if 32 in block or 9 in block:
            return None
    elif 92 in block:
        return None
    try:
        lines = block.decode().split("\n")
    except UnicodeDecodeError:
        return None
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon:
            return None
        headers[name] = value
    command = lines[0]
    count = len(lines) - 3
    if len(headers) != count or count > most or "" in headers or command not in _PLAIN_COMMANDS:
        return None
    digits = headers.get("content-length")
    if digits is None:
        return Head(command, headers)
    if len(digits) > _MOST_DIGITS or not digits.isdigit() or not digits.isascii():
        return None
    return Head(command, headers, int(digits))


def content_length(headers: dict[str, str]) -> int:
    """The ``content-length`` header as a number, -1 when absent.

    :raises ProtocolError: not 1 to 18 ASCII digits; no sign, no space, no other digits that Python
        would take.
    """
    digits = headers.get("content-length")
    if digits is None:
        return -1
    if not digits.isascii() or not digits.isdigit():
        raise ProtocolError(
            f"content-length is '{shown(digits)}', expected a decimal number of octets"
        )
    if len(digits) > _MOST_DIGITS:
        raise ProtocolError(
            f"content-length has {len(digits)} digits, which is above every limit",
            exceeded=Exceeded.BODY,
        )
    return int(digits)


def receipt_of(lines: bytes, version: Version) -> str | None:
    """Return the ``receipt`` header of a block that is bad elsewhere.

    None if it has no such header that can be read.

    :param lines: the command line and header lines, whole ones only, each with its end.
    """
    for line in lines.split(b"\n")[1:-1]:
        name, colon, value = line.partition(b":")
        if colon and (name.strip(PADDING.encode()) if version is _V1_0 else name) == b"receipt":
            try:
                text = value.removesuffix(b"\r").decode("utf-8")
                return text.strip(PADDING) if version is _V1_0 else unescape_header(text, version)
            except ValueError:  # bad UTF-8 or a bad escape: nothing that an answer could name
                return None
    return None


def unescape_header(text: str, version: Version) -> str:
    """Return a header name or value as it was meant.

    1.0 has no escapes and gets the text back.

    :raises UndefinedEscape: an escape that `version` does not define (STOMP 1.2: "MUST be treated
        as a fatal protocol error").
    """
    if version == Version.V1_0 or "\\" not in text:
        return text
    plain = _PLAIN[version]
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


def _unescape_known(text: str, version: Version) -> str:
    """As :func:`unescape_header`, with what is not defined left as it is."""
    plain = _PLAIN[version]
    return _escapes.sub(lambda escape: plain.get(escape.group(1), escape.group()), text)


def _headers(lines: list[str], version: Version, leniency: Leniency) -> dict[str, str]:
    """The headers of a frame by their lines, the command line first."""
    connecting = lines[0] in CONNECTING_COMMANDS
    trimmed = version is _V1_0 and not (connecting and _forbids_trimming(lines))
    escaped = version is not _V1_0 and not connecting
    headers: dict[str, str] = {}
    for number in range(1, len(lines)):
        name, colon, value = lines[number].partition(":")
        if not colon and not leniency.any_header:
            raise ProtocolError(f"header line {number} of {lines[0]} has no colon")
        if trimmed:
            name = name.strip(PADDING)
            value = value.strip(PADDING)
            if leniency.any_escape and not connecting:
                value = _unescape_known(value, Version.V1_2)
        elif escaped and leniency.any_escape:
            name = _unescape_known(name, version)
            value = _unescape_known(value, version)
        elif escaped:
            try:
                name = unescape_header(name, version)
                value = unescape_header(value, version)
            except UndefinedEscape as escape:
                raise ProtocolError(
                    f"header line {number} of {lines[0]} has the escape '{escape}', which STOMP {version} does not define"
                ) from None
        if not name:
            raise ProtocolError(f"header line {number} of {lines[0]} has no name")
        if name not in headers:
            headers[name] = value
    return headers


def _forbids_trimming(lines: list[str]) -> bool:
    """Return whether padding is part of the text, while still in 1.0.

    A CONNECT offers, or a CONNECTED chooses, a version that says so.
    """
    wanted = "version" if lines[0] == "CONNECTED" else "accept-version"
    for line in lines:
        name, _, value = line.partition(":")
        if name == wanted:
            return "1.1" in value or "1.2" in value
    return False
