"""The syntax of Java's .properties files, in UTF-8.

Comments, continuation lines, separators and escapes.

Owns the syntax in both directions. Knows neither settings nor files: it is given bytes and gives
entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINE_END = re.compile(r"\r\n|\r|\n")
_LINE_END_OCTETS = re.compile(rb"\r\n|\r|\n")
_AFTER_LINE_END = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_HEX = re.compile(r"[0-9A-Fa-f]{4}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One name with its value.

    :param line: the number, from 1, of the line it begins on.
    :param last: the number of the line it ends on: a later one where lines are continued.
    """

    name: str
    value: str
    line: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is not one of a .properties file.

    :param line: its number, from 1.
    :param expected: what should have been there.
    """

    line: int
    expected: str


def parse(data: bytes) -> tuple[list[Entry], list[Malformed]]:
    """Read a whole file, in the order of its lines.

    A name that comes twice is there twice.

    Never raises: what cannot be read is in the second list, and the lines after it are read all the
    same.
    """
    text = data.decode("utf-8-sig", errors="surrogateescape")
    entries: list[Entry] = []
    malformed: list[Malformed] = []
    for number, last, line in _logical_lines(text):
        if any("\udc80" <= character <= "\udcff" for character in line):
            malformed.append(Malformed(number, "text in UTF-8"))
            continue
        name, value = _split(line)
        try:
            entries.append(Entry(_unescape(name), _unescape(value), number, last))
        except ValueError as refused:
            malformed.append(Malformed(number, str(refused)))
    return entries, malformed


def line(name: str, value: str) -> str:
    """Return the line that :func:`parse` reads as ``name`` and ``value``.

    It is without its end.

    :raises ValueError: one of them has half a surrogate pair, which no UTF-8 file can hold.
    """
    written = [_escape(character) for character in value]
    if (
        value[:1] == " "
    ):  # only the first needs it: blanks after the separator are skipped up to there
        written[0] = "\\ "
    key = "".join(
        "\\" + character if character in " =:#!" else _escape(character) for character in name
    )
    return f"{key}={''.join(written)}"


def rewritten(data: bytes, changes: Mapping[str, str | None]) -> bytes:
    """Return a file with some entries changed and all else as it was.

    Comments and malformed lines stay, too.

    A new value takes the place of the first entry of that name, further ones of that name go; new
    names come at the end.

    :param changes: new values by name; None removes the name.
    :raises ValueError: as :func:`line`.
    """
    entries, _ = parse(data)
    natural: list[bytes | None] = list(_AFTER_LINE_END.split(data))
    pending = {
        name: line(name, value).encode() + b"\n"
        for name, value in changes.items()
        if value is not None
    }
    for entry in entries:
        if entry.name in changes:
            natural[entry.line - 1 : entry.last] = [
                pending.pop(entry.name, None),
                *[None] * (entry.last - entry.line),
            ]
    kept = b"".join(part for part in natural if part is not None)
    if kept and pending:
        if kept[-1:] not in (b"\n", b"\r"):
            kept += b"\n"
        # A last line that ends in a backslash would take the next one for its continuation; a blank
        # one ends it.
        kept += kept[-1:] if _LINE_END_OCTETS.split(kept)[-2].endswith(b"\\") else b""
    return kept + b"".join(pending.values())


def _logical_lines(text: str) -> list[tuple[int, int, str]]:
    """Return lines without comments and blank ones, continuations joined.

    Each is with the numbers of its first and its last line.
    """
    lines: list[tuple[int, int, str]] = []
    pending: list[str] = []
    first = number = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        stripped = natural.lstrip(_BLANKS)
        if not pending:
            if not stripped or stripped[0] in "#!":
                continue
            first = number
        # An odd run of backslashes at the end: the last one continues the line, the others are
        # pairs.
        slashes = len(stripped) - len(stripped.rstrip("\\"))
        if slashes % 2:
            pending.append(stripped[:-1])
            continue
        joined = "".join(pending) + stripped
        pending.clear()
        if joined:
            lines.append((first, number, joined))
    if any(pending):
        lines.append((first, number, "".join(pending)))
    return lines


def _split(line: str) -> tuple[str, str]:
    """The name and the value as written, before escapes are read."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    name, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return name, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\" or at == len(text):
            out.append(character if character != "\\" else "")
            continue
        escaped = text[at]
        at += 1
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[at : at + 4]
        if _HEX.fullmatch(digits) is None:
            raise ValueError("four hexadecimal digits after \\u")
        at += 4
        out.append(chr(int(digits, 16)))
    joined = "".join(out)
    try:
        # Pairs of \uD8xx\uDCxx are one character, as they are to Java.
        return joined.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("both halves of a surrogate pair in \\u escapes") from None


def _escape(character: str) -> str:
    if character in _WRITTEN:
        return _WRITTEN[character]
    if character == " " or character.isprintable():
        return character
    try:
        units = character.encode("utf-16-be")
    except UnicodeEncodeError:
        raise ValueError(
            f"half a surrogate pair, U+{ord(character):04X}, cannot be written"
        ) from None
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
