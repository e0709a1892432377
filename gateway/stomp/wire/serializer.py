"""Frames to bytes.

Owns what leaves; knows nothing of sockets, sessions or messages.

A message that goes to many subscribers is not encoded by :func:`serialize` each time: its shared
headers are encoded once by
:func:`header_lines`, and the frame is put together as
``b"MESSAGE\\n" + own + shared + b"\\n" + body + b"\\0"``.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.stomp.wire.escaping import escaper, name_escaper
from gateway.stomp.wire.frame import Version
from gateway.stomp.wire.grammar import COMMANDS, CONNECTING_COMMANDS

__all__ = ["header_lines", "serialize"]


def header_lines(headers: Iterable[tuple[str, str]], version: Version) -> bytes:
    """Return header lines, each with its LF, escaped for `version`.

    Nothing for no headers. For any frame but CONNECT, STOMP and CONNECTED.

    Names and values may be any text: what `version` cannot carry is replaced (see
    :mod:`gateway.stomp.wire.escaping`), a lone surrogate by ``?``.

    :raises ValueError: a name is empty.
    """
    name_of = name_escaper(version)
    value_of = escaper(version)
    lines: list[str] = []
    for name, value in headers:
        if not name:
            raise ValueError("a header needs a name")
        lines.append(f"{name_of(name)}:{value_of(value)}\n")
    return "".join(lines).encode("utf-8", "replace")


def serialize(
    command: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
    version: Version = Version.V1_2,
) -> bytes:
    """Return one whole frame as it is sent.

    With LF as end of line, its NUL included and no LF after it.

    The headers are sent in the order given. ``content-length`` is the caller's to give, because JMS
    peers tell text from bytes by it; only where a body has NUL octets and the caller gave none it
    is added here as the last header, for without it the frame would end early. CONNECT, STOMP and
    CONNECTED are not escaped in any version; line ends in their headers are replaced by spaces, as
    for 1.0.

    :param version: the version negotiated with the receiver.
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
    return b"%s\n%s\n%s\0" % (command.encode("ascii"), header_lines(pairs, version), body)
