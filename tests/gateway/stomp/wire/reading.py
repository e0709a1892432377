"""How the tests of the wire codec feed a parser: one stream of octets, cut in every way that
matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.stomp.wire import Frame, FrameParser, Limits, ProtocolError, Varying, Version

#: What a test compares: command, headers in their order, body.
Plain = tuple[str, tuple[tuple[str, str], ...], bytes]


def rule(name: str) -> Varying:
    """Something of everything for the few names that the streams have."""
    if name.startswith("b"):
        return Varying.MEANING
    return Varying.IGNORED if name.startswith("i") else Varying.PASSED


def plain(frame: Frame) -> Plain:
    """A frame as values that compare."""
    return frame.head.command, tuple(frame.head.headers.items()), frame.body


def read(
    pieces: Iterable[bytes],
    version: Version = Version.V1_2,
    limits: Limits | None = None,
    most: int = 100,
) -> tuple[list[Plain], ProtocolError | None]:
    """All frames of the pieces, taken after each piece, and the error that ended them."""
    parser = FrameParser(limits or Limits(), version, rule)
    found: list[Plain] = []
    for piece in pieces:
        parser.receive(piece)
        try:
            while frames := parser.frames(most):
                assert len(frames) <= most
                found += [plain(frame) for frame in frames]
        except ProtocolError as error:
            return found, error
    return found, None


def cuts(octets: bytes) -> Iterator[list[bytes]]:
    """The octets whole, one by one, and cut into pieces of some sizes."""
    yield [octets]
    for size in (1, 2, 3, 7, 64):
        yield [octets[at : at + size] for at in range(0, len(octets), size)]


def read_alike(
    octets: bytes, version: Version = Version.V1_2, limits: Limits | None = None
) -> tuple[list[Plain], ProtocolError | None]:
    """All frames of the octets, and the error that ended them; the same however they are cut."""
    results = [read(pieces, version, limits, most) for pieces in cuts(octets) for most in (1, 100)]
    found, error = results[0]
    for others, other in results[1:]:
        assert (others, other is None) == (found, error is None)
        if other is not None and error is not None:
            assert (other.message, other.receipt_id) == (error.message, error.receipt_id)
    return found, error


def error_of(
    octets: bytes, version: Version = Version.V1_2, limits: Limits | None = None
) -> ProtocolError:
    """The error that the octets end in, before which there is no frame."""
    found, error = read_alike(octets, version, limits)
    assert found == []
    assert error is not None
    return error
