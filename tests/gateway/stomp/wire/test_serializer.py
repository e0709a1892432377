"""Frames to octets: escapes, what cannot be escaped, and lengths."""

from __future__ import annotations

import pytest

from gateway.stomp.wire import (
    UndefinedEscape,
    Version,
    bare_name,
    escape_header,
    escape_name,
    header_lines,
    serialize,
    unescape_header,
    without_edge_blanks,
)

TEXT = "a:b\\c\nd\re\0f"


def test_each_version_escapes_what_it_can() -> None:
    assert escape_header(TEXT, Version.V1_0) == "a:b\\c d e f"
    assert escape_header(TEXT, Version.V1_1) == "a\\cb\\\\c\\nd e f"
    assert escape_header(TEXT, Version.V1_2) == "a\\cb\\\\c\\nd\\re f"
    assert escape_name(TEXT, Version.V1_0) == "a_b\\c d e f"


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *(
            ("a b", "a b"),
            (" a", "_a"),
            ("a\t ", "a__"),
            (" ", "_"),
            ("\t \t", "___"),
            ("\0", "_"),
            ("\r\n", "__"),
            ("\ra\n", "_a_"),
        ),
        *(
            ("\xa0é\u2003", "_é_"),
            ("\ufeffa\u200b", "_a_"),
            ("\x7fa\x85", "_a_"),
            ("\u2028a", "_a"),
            ("→", "→"),
        ),
    ],
)
def test_blanks_at_the_edges_of_a_name_are_underscores(
    name: str, shown: str, version: Version
) -> None:
    """Peers trim: Java's all up to the space, Python's and JavaScript's what Unicode calls white
    space, and more.
    """
    assert escape_name(name, version) == shown
    assert header_lines([(name, " v ")], version) == f"{shown}: v \n".encode()
    assert without_edge_blanks(name) == shown
    assert bare_name(name) == shown.strip("_")


def test_an_escape_is_not_escaped_again() -> None:
    assert escape_header("\\n", Version.V1_2) == "\\\\n"
    assert escape_header("\\:\n", Version.V1_2) == "\\\\\\c\\n"


@pytest.mark.parametrize("version", list(Version))
def test_nothing_to_escape_gives_the_same_object(version: Version) -> None:
    text = "/queue/orders é→"
    assert escape_header(text, version) is text
    assert escape_name(text, version) is text


@pytest.mark.parametrize("version", [Version.V1_1, Version.V1_2])
@pytest.mark.parametrize("text", ["\\t", "a\\", "\\\\\\x", "\\N", "\\\n"])
def test_undefined_escapes(text: str, version: Version) -> None:
    with pytest.raises(UndefinedEscape):
        unescape_header(text, version)
    assert unescape_header(text, Version.V1_0) == text


def test_unescaping() -> None:
    assert unescape_header("\\\\n\\n\\c", Version.V1_1) == "\\n\n:"
    assert unescape_header("\\r", Version.V1_2) == "\r"
    with pytest.raises(UndefinedEscape, match=r"^\\r$"):
        unescape_header("\\r", Version.V1_1)


def test_a_frame() -> None:
    assert (
        serialize("MESSAGE", [("a", "b:c"), ("a", "2")], b"body", Version.V1_2)
        == b"MESSAGE\na:b\\cc\na:2\n\nbody\0"
    )
    assert serialize("RECEIPT", [], version=Version.V1_0) == b"RECEIPT\n\n\0"
    assert serialize("SEND", [("fenêtre", "→")]) == "SEND\nfenêtre:→\n\n\0".encode()


@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
@pytest.mark.parametrize("version", list(Version))
def test_connecting_frames_are_not_escaped(command: str, version: Version) -> None:
    octets = serialize(command, [("session", "a:\\n\nb"), ("x\ny:z", "")], b"", version)
    assert octets == command.encode() + b"\nsession:a:\\n b\nx y_z:\n\n\0"


@pytest.mark.parametrize("version", list(Version))
def test_no_header_ends_its_line_or_the_frame(version: Version) -> None:
    octets = serialize("MESSAGE", [("x\ndestination", "\r\n\nBODY\0"), ("y", "z")], b"", version)
    assert (octets.count(b"\n"), octets.count(b"\r"), octets.count(b"\0")) == (4, 0, 1)


def test_a_lone_surrogate_is_replaced() -> None:
    assert header_lines([("a", "x\ud800y")], Version.V1_2) == b"a:x?y\n"


def test_a_body_with_nul_gets_its_length() -> None:
    assert (
        serialize("MESSAGE", [("a", "b")], b"x\0y", Version.V1_1)
        == b"MESSAGE\na:b\ncontent-length:3\n\nx\0y\0"
    )
    assert (
        serialize("MESSAGE", [("content-length", "3"), ("a", "b")], b"x\0y")
        == b"MESSAGE\ncontent-length:3\na:b\n\nx\0y\0"
    )
    assert serialize("MESSAGE", [("content-length", "0")]) == b"MESSAGE\ncontent-length:0\n\n\0"


def test_misuse() -> None:
    with pytest.raises(ValueError, match="no STOMP command: 'SENT'"):
        serialize("SENT", [])
    with pytest.raises(ValueError, match="content-length is '4', and the body has 3 octets"):
        serialize("SEND", [("content-length", "4")], b"abc")
    with pytest.raises(ValueError, match="a header needs a name"):
        serialize("SEND", [("", "x")])


def test_shared_lines_make_the_same_frame() -> None:
    own, shared = [("subscription", "0")], [("destination", "/queue/a:b"), ("content-length", "2")]
    frame = (
        b"MESSAGE\n"
        + header_lines(own, Version.V1_2)
        + header_lines(shared, Version.V1_2)
        + b"\n"
        + b"hi"
        + b"\0"
    )
    assert frame == serialize("MESSAGE", own + shared, b"hi")
    assert header_lines([], Version.V1_2) == b""
