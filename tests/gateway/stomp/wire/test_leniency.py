"""What the parser takes beyond STOMP, however the bytes are cut."""

from __future__ import annotations

import pytest

from gateway.stomp.wire import FrameParser, Leniency, Limits, ProtocolError, Version
from tests.gateway.stomp.wire.reading import Plain, cuts, plain, rule


def read(octets: bytes, leniency: Leniency, version: Version) -> tuple[list[Plain], str]:
    """All frames and the text of the error behind them, the same for all cuts."""
    results = []
    for pieces in cuts(octets):
        parser = FrameParser(Limits(), version, rule, leniency)
        found: list[Plain] = []
        error = ""
        for piece in pieces:
            parser.receive(piece)
            try:
                while frames := parser.frames(100):
                    found += [plain(frame) for frame in frames]
            except ProtocolError as fault:
                error = fault.message
                break
        results.append((found, error))
    assert all(each == results[0] for each in results)
    return results[0]


@pytest.mark.parametrize("version", Version)
def test_a_line_without_a_colon_is_a_header(version: Version) -> None:
    frames, error = read(b"ACK\nodd\nid:1\n\n\0" * 9, Leniency(any_header=True), version)
    assert (frames, error) == ([("ACK", (("odd", ""), ("id", "1")), b"")] * 9, "")


def test_a_name_is_needed_all_the_same() -> None:
    _, error = read(b"ACK\n:odd\n\n\0", Leniency(any_header=True), Version.V1_2)
    assert error == "header line 1 of ACK has no name"


@pytest.mark.parametrize("version", Version)
def test_any_frame_has_a_body(version: Version) -> None:
    octets = b"ACK\nid:1\n\nbody\0ACK\nid:2\ncontent-length:3\n\na\0b\0"
    frames, error = read(octets * 5, Leniency(any_body=True), version)
    assert [body for _, _, body in frames] == [b"body", b"a\0b"] * 5
    assert not error


@pytest.mark.parametrize("version", Version)
def test_lengths_of_other_frames_do_not_count(version: Version) -> None:
    leniency = Leniency(any_body=True, counts_messages_only=True)
    octets = b"ACK\nid:1\ncontent-length:many\n\n\0SEND\ncontent-length:3\n\na\0b\0"
    octets += b"ACK\nid:1\ncontent-length:8511\n\n\0"
    frames, error = read(octets * 5, leniency, version)
    assert [body for _, _, body in frames] == [b"", b"a\0b", b""] * 5
    assert not error


@pytest.mark.parametrize("version", Version)
def test_the_rest_is_dropped(version: Version) -> None:
    octets = b"SEND\ncontent-length:3\n\na\0bcde\0SEND\ncontent-length:2\n\nxy\0\n"
    frames, error = read(octets * 9, Leniency(drops_rest=True), version)
    assert [body for _, _, body in frames] == [b"a\0b", b"xy"] * 9
    assert not error


def test_the_rest_counts_for_the_limit() -> None:
    parser = FrameParser(Limits(body=10), Version.V1_2, None, Leniency(drops_rest=True))
    parser.receive(b"SEND\ncontent-length:3\n\nabc" + 20 * b"x")
    with pytest.raises(ProtocolError, match="longer than 10"):
        parser.next()


def test_values_have_escapes_in_1_0() -> None:
    octets = rb"SEND" + b"\n" + rb"a\c:b\c\n\\\t\r" + b"\n\n\0"
    frames, _ = read(octets * 9, Leniency(any_escape=True), Version.V1_0)
    assert frames == [("SEND", (("a\\c", "b:\n\\\\t\r"),), b"")] * 9


@pytest.mark.parametrize("version", [Version.V1_1, Version.V1_2])
def test_undefined_escapes_stay(version: Version) -> None:
    octets = b"SEND\n" + rb"na\tme:c1\:\n\23\c" + b"\n\n\0"
    frames, _ = read(octets * 9, Leniency(any_escape=True), version)
    assert frames == [("SEND", (("na\\tme", "c1\\:\n\\23:"),), b"")] * 9


def test_a_passcode_has_no_escapes() -> None:
    frames, _ = read(b"CONNECT\npasscode:a\\nb\n\n\0", Leniency(any_escape=True), Version.V1_0)
    assert frames == [("CONNECT", (("passcode", "a\\nb"),), b"")]


def test_an_unknown_command_is_a_frame() -> None:
    octets = b"WRONG\nreceipt:r\n\nbody\0ACK\nid:1\n\n\0"
    frames, error = read(octets, Leniency(any_body=True, any_command=True), Version.V1_2)
    assert [command for command, _, _ in frames] == ["WRONG", "ACK"]
    assert not error


def test_a_command_with_nul_is_an_error_late() -> None:
    leniency = Leniency(nul_in_command=True)
    frames, error = read(b"SEND\n\nfirst\0_length\0\n", leniency, Version.V1_0)
    assert (len(frames), error) == (1, "")
    _, error = read(b"SEND\n\nfirst\0_length\0\nid:1\n\n\0", leniency, Version.V1_0)
    assert error == "unknown command '_length?'"
    _, error = read(b"SEND\nid\0:1\n\n\0", leniency, Version.V1_0)
    assert "NUL" in error
