"""Properties of the wire codec.

- However octets are cut, the frames and the error are the same.
- Octets of any kind give frames or a ``ProtocolError``, never another exception.
- What is serialized is read back as it was, in each version, and by stompest, which is not ours;
  and stompest's frames are read alike.
- Shapes of header blocks change nothing: a naive reader of the whole text gives the same
  on streams that repeat, vary and go wrong.
- The limits hold for any values of theirs: a frame is accepted exactly if each of its parts is
  within its limit.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stompest.protocol import StompFrame, StompParser

from gateway.stomp.wire import (
    BODY_COMMANDS,
    COMMANDS,
    CONNECTING_COMMANDS,
    FrameParser,
    Limits,
    ProtocolError,
    Version,
    escape_header,
    serialize,
    unescape_header,
    without_edge_blanks,
)
from tests.gateway.stomp.wire.reading import Plain, read, rule

#: Streams are cheap and their corners are many; and a busy machine is no defect of the code.
MANY = settings(
    max_examples=3 * settings().max_examples, suppress_health_check=[HealthCheck.too_slow]
)

VERSIONS = st.sampled_from(list(Version))

# What is hard about a stream, in one alphabet.
CRUMBS = st.sampled_from(
    [
        *[
            b"\n",
            b"\r\n",
            b"\r",
            b"\0",
            b":",
            b"\\",
            b"\\n",
            b"\\c",
            b"\\r",
            b"\\x",
            b" ",
            b"\t",
            b"a",
            b"b",
            b"\xc3",
            b"\xc3\xa9",
            b"\xff",
        ],
        *[
            b"\n\n",
            b"\n\r\n",
            b"\r\n\r\n",
            b"\n\n\0",
            b"x\0",
            b"a:b\n",
            b"a:c\r\n",
            b"id:1\n",
            b"receipt:r\n",
            b"transaction:t\n",
        ],
        *[
            b"content-length:0\n",
            b"content-length:3\n",
            b"content-length:-1\n",
            b"content-length:99999999999999999999\n",
        ],
        *[
            command.encode() + end
            for command in ("SEND", "ACK", "NACK", "CONNECT", "CONNECTED", "MESSAGE", "SENDX")
            for end in (b"\n", b"\r\n")
        ],
        *[
            b"SEND\na:b\n\nx\0",
            b"SEND\na:b\n\n\0",
            b"SEND\ncontent-length:1\na:b\n\n\0\0",
            b"SEND\r\na:b\r\n\r\nx\0",
            b"SEND\na:b\n\r\nx\0",
        ],
        *[
            b"SEND\na:\\c\n\nx\0",
            b"SEND\na: b\n\nx\0",
            b"SEND\na:1\na:2\n\nx\0",
            b"SEND\nreceipt:1\n\nx\0",
            b"SEND\na:b\r\n\nx\0",
        ],
        *[
            b"SEND\nreceipt:1\na:b\n\nx\0",
            b"SEND\na:b\nreceipt:2\n\nx\0",
            b"SEND\na:b\nreceipt:3\nreceipt:4\n\nx\0",
        ],
        *[
            b"SEND\na:b\nreceipt:\\c\n\nx\0",
            b"SEND\na:b\nreceipt: 5\n\nx\0",
            b"SEND\nreceipt:\xc3\xa9\na:b\n\nx\0",
            b"\nreceipt:6",
        ],
        *[
            b"ACK\nid:1-2\n\n\0",
            b"NACK\nid:1-3\n\n\0",
            b"ACK\nid:1\ncontent-length:0\n\n\0",
            b"ACK\nid:1\n\nx\0",
            b"ACK\nid:\xc3\xa9\n\n\0",
        ],
    ]
)
STREAMS = st.lists(CRUMBS, max_size=60).map(b"".join)
#: The same frames again and again, with something between them.
REPEATS = st.builds(
    lambda pool, picks, noise: b"".join(
        [pool[pick % len(pool)] for pick in picks[:20]]
        + noise
        + [pool[pick % len(pool)] for pick in picks[20:]]
    ),
    st.lists(CRUMBS, min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=20, max_size=40),
    st.lists(CRUMBS, max_size=3),
)
CUTS = st.lists(st.integers(1, 40), max_size=30)


def cut(octets: bytes, sizes: list[int]) -> list[bytes]:
    """The octets in pieces of the sizes, over and over."""
    if not sizes:
        return [octets]
    pieces: list[bytes] = []
    at = 0
    while at < len(octets):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(octets[at : at + size])
        at += size
    return pieces


class Bad(Exception):
    """The naive reader has found a fault."""


def naively(octets: bytes, version: Version) -> tuple[list[Plain], bool]:
    """Frames by the grammar's text, one after another from the whole stream, and whether it ended
    in a fault. No limit but the command line's.
    """
    found: list[Plain] = []
    rest = octets
    try:
        while (rest := rest.lstrip(b"\r\n\0")) and (
            step := _naive_frame(rest, version)
        ) is not None:
            found.append(step[0])
            rest = step[1]
    except Bad:
        return found, True
    return found, False


def _naive_frame(rest: bytes, version: Version) -> tuple[Plain, bytes] | None:
    lines: list[bytes] = []
    while not lines or lines[-1] != b"":
        line, end, rest = rest.partition(b"\n")
        # An unfinished line may yet turn out to have a CR at its end, which does not count.
        longest = len(line.removesuffix(b"\r")) if end else len(line) - 1
        if b"\0" in line or (not lines and longest > 32):
            raise Bad
        if not end:
            return None
        lines.append(line.removesuffix(b"\r"))
    try:
        command, *header_lines = [line.decode() for line in lines[:-1]]
    except UnicodeDecodeError:
        raise Bad from None
    if command not in COMMANDS:
        raise Bad
    pairs = [line.partition(":") for line in header_lines]
    if not all(colon for _, colon, _ in pairs):
        raise Bad
    headers: dict[str, str] = {}
    offers = [
        value
        for name, _, value in pairs
        if name == ("version" if command == "CONNECTED" else "accept-version")
    ]
    later = command in CONNECTING_COMMANDS and offers and ("1.1" in offers[0] or "1.2" in offers[0])
    for name, _, value in pairs:
        if version is Version.V1_0 and not later:
            name, value = name.strip(" \t"), value.strip(" \t")
        elif command not in CONNECTING_COMMANDS:
            name, value = _naive_unescape(name, version), _naive_unescape(value, version)
        if not name:
            raise Bad
        headers.setdefault(name, value)
    length = headers.get("content-length")
    bodied = command in BODY_COMMANDS or version is Version.V1_0
    if length is not None:
        if (
            not length
            or set(length) - set("0123456789")
            or len(length) > 18
            or int(length) > Limits().body
            or (int(length) and not bodied)
        ):
            raise Bad
        body, rest = rest[: int(length)], rest[int(length) :]
        if len(body) < int(length) or not rest:
            return None
        if rest[:1] != b"\0":
            raise Bad
        rest = rest[1:]
    else:
        if not bodied and rest and rest[:1] != b"\0":
            raise Bad
        body, end, rest = rest.partition(b"\0")
        if not end:
            return None
    return (command, tuple(headers.items()), body), rest


def _naive_unescape(text: str, version: Version) -> str:
    out = ""
    known = {"n": "\n", "c": ":", "\\": "\\"} | ({"r": "\r"} if version is Version.V1_2 else {})
    letters = iter(text if version is not Version.V1_0 else "")
    for letter in letters:
        if letter == "\\":
            letter = next(letters, "")
            if letter not in known:
                raise Bad
            letter = known[letter]
        out += letter
    return out if version is not Version.V1_0 else text


@MANY
@given(STREAMS | REPEATS, VERSIONS, CUTS, st.integers(1, 5))
def test_any_cut_gives_what_the_naive_reader_gives(
    octets: bytes, version: Version, sizes: list[int], most: int
) -> None:
    frames, bad = naively(octets, version)
    whole, error = read([octets], version)
    assert (whole, error is not None) == (frames, bad)
    pieces, other = read(cut(octets, sizes), version, most=most)
    assert pieces == whole
    if error is None:
        assert other is None
    else:
        assert other is not None
        assert (other.message, other.receipt_id) == (error.message, error.receipt_id)


@MANY
@given(st.binary(max_size=300), VERSIONS, CUTS)
def test_any_octets_give_frames_or_a_protocol_error(
    octets: bytes, version: Version, sizes: list[int]
) -> None:
    frames, error = read(cut(octets, sizes), version)
    assert (frames, error is not None) == naively(octets, version)


@MANY
@given(REPEATS | STREAMS, st.integers(0, 400), st.binary(max_size=3), VERSIONS, CUTS)
def test_mutated_streams_are_read_alike(
    octets: bytes, at: int, put: bytes, version: Version, sizes: list[int]
) -> None:
    mutated = octets[:at] + put + octets[at + 1 :]
    for stream in (mutated, octets + mutated):
        frames, error = read(cut(stream, sizes), version)
        assert (frames, error is not None) == naively(stream, version)


TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\:\n\r ncr"), max_size=12
)
BODIES = st.binary(max_size=30)


def carried(text: str, version: Version) -> str:
    """Text as a peer of the version gets it: what cannot be escaped has become a space."""
    text = text.replace("\0", " ")
    if version is not Version.V1_2:
        text = text.replace("\r", " ")
    return text.replace("\n", " ") if version is Version.V1_0 else text


@MANY
@given(
    st.sampled_from(sorted(COMMANDS)),
    st.dictionaries(TEXT.filter(bool), TEXT, max_size=5),
    BODIES,
    VERSIONS,
    CUTS,
)
def test_round_trip(
    command: str, headers: dict[str, str], body: bytes, version: Version, sizes: list[int]
) -> None:
    headers.pop("content-length", None)
    if command not in BODY_COMMANDS:
        body = b""
    rules = Version.V1_0 if command in CONNECTING_COMMANDS else version
    expected: dict[str, str] = {}
    for name, value in headers.items():
        # A peer that trims must not take it for another name.
        name, value = carried(without_edge_blanks(name), rules), carried(value, rules)
        if rules is Version.V1_0:
            name = name.replace(":", "_")
        if version is Version.V1_0:
            name, value = name.strip(" \t"), value.strip(" \t")
        expected.setdefault(name, value)
    pairs = [*headers.items(), ("content-length", str(len(body)))]
    frames, error = read(cut(serialize(command, pairs, body, version) * 3, sizes), version)
    assert error is None
    assert frames == [(command, (*expected.items(), ("content-length", str(len(body)))), body)] * 3


@given(TEXT, VERSIONS)
def test_escaping_is_undone(text: str, version: Version) -> None:
    escaped = escape_header(text, version)
    assert not set(escaped) & set("\n\r\0")
    assert unescape_header(escaped, version) == carried(text, version)


@given(TEXT, VERSIONS)
def test_unescaping_gives_text_or_says_that_it_cannot(text: str, version: Version) -> None:
    try:
        expected: str | None = _naive_unescape(text, version)
    except Bad:
        expected = None
    try:
        found: str | None = unescape_header(text, version)
    except ValueError:
        found = None
    assert found == expected


# stompest: takes ASCII only in 1.0, knows STOMP and NACK from 1.1 on, and takes a raw CR at the end
# of a line for the line's in 1.2 only.
SIMPLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
SHARED_COMMANDS = st.sampled_from(sorted(COMMANDS - CONNECTING_COMMANDS - {"NACK"}))


@st.composite
def shared_frames(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes, Version]:
    """Frames that stompest and we can both say in a version."""
    version = draw(VERSIONS)
    command = draw(SHARED_COMMANDS)
    if version is Version.V1_0:
        name, value = SIMPLE.map(lambda text: text.replace(":", "-")), SIMPLE
    else:
        special = st.sampled_from("\\:\n ncré→" + ("\r" if version is Version.V1_2 else ""))
        name = value = st.text(
            special | st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12
        )
    headers = draw(st.lists(st.tuples(name, value), max_size=5))
    headers = [pair for pair in headers if pair[0] != "content-length"]
    body = draw(BODIES) if command in BODY_COMMANDS else b""
    return command, [*headers, ("content-length", str(len(body)))], body, version


@MANY
@given(st.lists(shared_frames(), min_size=1, max_size=3), st.integers(1, 4), CUTS)
def test_stompest_reads_what_we_write(
    frames: list[tuple[str, list[tuple[str, str]], bytes, Version]], times: int, sizes: list[int]
) -> None:
    version = frames[0][3]
    theirs = StompParser(str(version))
    for command, headers, body, own in frames:
        if own is version:
            octets = serialize(command, headers, body, version)
            for piece in cut(octets * times, sizes):
                theirs.add(piece)
            for _ in range(times):
                frame = theirs.get()
                expected = [(without_edge_blanks(name), value) for name, value in headers]
                assert (frame.command, frame.rawHeaders, frame.body) == (command, expected, body)
    assert not theirs.canRead()


@MANY
@given(st.lists(shared_frames(), min_size=1, max_size=3), st.integers(1, 4), CUTS)
def test_we_read_what_stompest_writes(
    frames: list[tuple[str, list[tuple[str, str]], bytes, Version]], times: int, sizes: list[int]
) -> None:
    version = frames[0][3]
    octets = b""
    expected: list[Plain] = []
    for command, headers, body, own in frames:
        if own is version:
            octets += (
                bytes(StompFrame(command, rawHeaders=headers, body=body, version=str(version)))
                * times
            )
            expected += [(command, tuple(dict(reversed(headers)).items()), body)] * times
    found, error = read(cut(octets, sizes), version)
    assert error is None
    # stompest does not keep the order of headers.
    assert [(command, dict(headers), body) for command, headers, body in found] == [
        (c, dict(h), b) for c, h, b in expected
    ]


LIMITS = st.builds(
    Limits,
    command_length=st.integers(1, 14),
    header_line=st.integers(1, 30),
    header_count=st.integers(0, 4),
    header_lines=st.integers(0, 6),
    header_block=st.integers(1, 100),
    body=st.integers(0, 20),
    frame=st.integers(1, 120),
)


@MANY
@given(
    LIMITS,
    st.lists(st.tuples(st.sampled_from("abcde"), st.text("x", max_size=30)), max_size=8),
    st.binary(max_size=25).map(lambda body: body.replace(b"\0", b"x")),
    st.booleans(),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([Version.V1_1, Version.V1_2]),
    CUTS,
)
def test_a_frame_is_accepted_exactly_if_it_is_within_each_limit(
    limits: Limits,
    pairs: list[tuple[str, str]],
    body: bytes,
    length: bool,
    end: bytes,
    version: Version,
    sizes: list[int],
) -> None:
    lines = [f"{name}:{value}".encode() for name, value in pairs]
    if length:
        lines.append(b"content-length:%d" % len(body))
    block = end.join([b"SEND", *lines]) + end + end
    frame = block + body + b"\0"
    within = (
        limits.command_length >= 4
        and all(len(line) <= limits.header_line for line in lines)
        and len({line.partition(b":")[0] for line in lines}) <= limits.header_count
        and len(lines) <= limits.header_lines
        and len(block) <= limits.header_block
        and len(body) <= limits.body
        and len(frame) <= limits.frame
    )
    whole, error = read([frame * 4], version, limits)
    assert (len(whole), error is None) == ((4, True) if within else (0, False))
    pieces, other = read(cut(frame * 4, sizes), version, limits)
    assert pieces == whole
    assert (other and other.message) == (error and error.message)


@MANY
@given(LIMITS, STREAMS, VERSIONS)
def test_no_more_waits_than_a_frame_may_have(
    limits: Limits, octets: bytes, version: Version
) -> None:
    parser = FrameParser(limits, version, rule)
    for at in range(len(octets)):
        parser.receive(octets[at : at + 1])
        try:
            parser.frames(10)
        except ProtocolError:
            assert parser.buffered == 0
            break
        assert parser.buffered <= limits.frame
        # A line is known to be too long when its end fails to come: one octet more, for the CR that
        # may stand there.
        assert parser.buffered <= max(limits.header_block, limits.frame)


@MANY
@given(
    REPEATS,
    st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from([*Version, Limits(body=2), Limits()])),
        max_size=6,
    ),
    CUTS,
)
def test_rules_changed_between_frames_hold_for_what_is_not_yet_read(
    octets: bytes, changes: list[tuple[int, Version | Limits]], sizes: list[int]
) -> None:
    # The same changes at the same frames, once with the octets whole and once in pieces.
    results = []
    for pieces in ([octets], cut(octets, sizes)):
        parser = FrameParser(Limits(), Version.V1_2, rule)
        found: list[str] = []
        waiting = sorted(changes, key=lambda each: each[0])
        try:
            for piece in pieces:
                parser.receive(piece)
                while (frame := parser.next()) is not None:
                    found.append(
                        f"{frame.head.command} {list(frame.head.headers.items())} {frame.body!r}"
                    )
                    while waiting and waiting[0][0] <= len(found):
                        change = waiting.pop(0)[1]
                        if isinstance(change, Version):
                            parser.change_rules(change)
                        else:
                            parser.change_rules(limits=change)
        except ProtocolError as error:
            found.append(error.message)
        results.append(found)
    assert results[0] == results[1]
