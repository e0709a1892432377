r"""Header lines, as they came and as they go.

Most headers of a SEND mean nothing to the broker: they go out in MESSAGE as they came in. Such
headers stay lines of octets until somebody asks what they say.

A line is ``NAME:VALUE`` and LF, in UTF-8. No name has a colon, a backslash, CR or LF. In values
``\\`` is a backslash, ``\c`` a colon, ``\n`` LF and ``\r`` CR, so that a line is one of a frame
of STOMP 1.2; NUL is in none.
"""

from __future__ import annotations

import re
from typing import Final

#: The name under which lines have the JMSCorrelationID.
CORRELATION_ID: Final = "correlation-id"

_are_lines: Final = re.compile(rb"(?:[^:\n\r\0\\]++:[^:\n\r\0]*+\n)++").fullmatch
_escape: Final = re.compile(r"\\(.?)", re.DOTALL)
_PLAIN: Final = {"\\": "\\", "c": ":", "n": "\n", "r": "\r"}


def count_lines(lines: bytes) -> int:
    """Check that these are header lines, and return how many.

    :raises ValueError: they are not.
    """
    if _are_lines(lines) is None:
        raise ValueError(f"no header lines: {lines[:100]!r}")
    if 92 in lines or not lines.isascii():
        read_lines(lines)
    return lines.count(b"\n")


def read_lines(lines: bytes) -> list[tuple[str, str]]:
    """Return names and values of header lines.

    :param lines: those that :func:`count_lines` takes.
    :raises ValueError: an escape is unknown, or this is not UTF-8.
    """
    pairs: list[tuple[str, str]] = []
    for line in lines.decode().split("\n")[:-1]:
        name, _, value = line.partition(":")
        if "\\" in value:
            value = _escape.sub(_unescaped, value)
        pairs.append((name, value))
    return pairs


def _unescaped(found: re.Match[str]) -> str:
    plain = _PLAIN.get(found.group(1))
    if plain is None:
        raise ValueError(f"no escape of a header line: {found.group()!r}")
    return plain
