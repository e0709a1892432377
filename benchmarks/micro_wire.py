"""What the wire codec costs: microseconds a frame, parsed and serialized.

    python -m benchmarks.micro_wire [--seconds 0.3]

Parsing takes a buffer of 64 KiB, which is what one read of a socket brings, again and again, by
``receive`` and ``frames(1000)``: as the session does it. For each kind of frame the best of five
rounds is printed, and the rate it means. "constant" repeats its header block octet by octet, as
producers do, so that the parser knows it; "varying" has another value in one header in each frame,
so that each head is read anew; "receipt" asks for a receipt in each frame, which is never
remembered. What only constant headers gain is no gain for clients that vary them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

from gateway.stomp.wire import FrameParser, Limits, Version, serialize

READ: Final = 64 * 1024
Headers = list[tuple[str, str]]

THREE: Final[Headers] = [("destination", "/queue/orders"), ("content-type", "text/plain")]
TEN: Final[Headers] = [
    *THREE,
    ("persistent", "true"),
    ("priority", "4"),
    ("expires", "0"),
    ("correlation-id", "4c5f1f2e-53d8-4cf6"),
    ("reply-to", "/queue/answers"),
    ("type", "order"),
    ("region", "north-west"),
]


def sends(
    headers: Headers, body: int, varying: str | None, version: Version
) -> Callable[[int], bytes]:
    """Return a maker of SEND frames with the headers and ``content-length``.

    Header `varying` has another value each time.
    """

    def frame(number: int) -> bytes:
        own = [(name, f"{value}-{number}" if name == varying else value) for name, value in headers]
        if varying == "receipt":
            own.append(("receipt", f"r-{number}"))
        return serialize("SEND", [*own, ("content-length", str(body))], b"x" * body, version)

    return frame


def acknowledgement(number: int) -> bytes:
    """An ACK of STOMP 1.2 with the gateway's own kind of id."""
    return serialize("ACK", [("id", f"1-{number}")], b"", Version.V1_2)


def acknowledgement_1_1(number: int) -> bytes:
    """An ACK of STOMP 1.1, read as any other frame."""
    return serialize(
        "ACK", [("message-id", f"m-{number}"), ("subscription", "0")], b"", Version.V1_1
    )


def with_line_end(frame: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """The same frames, each followed by LF, as some clients send them."""
    return lambda number: frame(number) + b"\n"


def best(round_of: Callable[[], int], seconds: float) -> float:
    """Return processor microseconds a frame in the best of five rounds.

    `round_of` works once through a buffer and returns its frames.
    """
    figures: list[float] = []
    for _ in range(5):
        frames = 0
        began = time.process_time()
        while (spent := time.process_time() - began) < seconds / 5:
            frames += round_of()
        figures.append(spent / frames * 1e6)
    return min(figures)


def parsing(frame: Callable[[int], bytes], version: Version, seconds: float) -> float:
    """Microseconds to parse one of the frames that `frame` makes."""
    # Several buffers, so that what varies does not come again soon enough to be remembered.
    buffers: list[bytes] = []
    number = 1_000_000
    for _ in range(20):
        made: list[bytes] = []
        size = 0
        while size < READ:
            made.append(frame(number))
            size += len(made[-1])
            number += 1
        buffers.append(b"".join(made))
    parser = FrameParser(Limits(), version)

    def round_of() -> int:
        count = 0
        for data in buffers:
            parser.receive(data)
            while found := parser.frames(1000):
                count += len(found)
        return count

    return best(round_of, seconds)


def serializing(headers: Headers, body: int, seconds: float) -> float:
    """Microseconds to serialize one whole MESSAGE with the headers given."""
    octets = b"x" * body

    def round_of() -> int:
        for _ in range(100):
            serialize("MESSAGE", headers, octets, Version.V1_2)
        return 100

    return best(round_of, seconds)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description="Microseconds a frame of the wire codec.")
    arguments.add_argument(
        "--seconds",
        type=float,
        default=0.3,
        help="how long each kind of frame is measured (default: %(default)s)",
    )
    seconds: float = arguments.parse_args().seconds
    version = Version.V1_2
    print(f"{'frame':44} {'us/frame':>9} {'frames/s':>10}")

    def line(name: str, figure: float) -> None:
        print(f"{name:44} {figure:9.2f} {1e6 / figure:10,.0f}", flush=True)

    for count, headers in (("3", THREE), ("10", TEN)):
        for body in (100, 1024):
            for kind, varying in (
                ("constant", None),
                ("varying", "content-type"),
                ("receipt", "receipt"),
            ):
                line(
                    f"parse SEND, {count} headers, {body} B, {kind}",
                    parsing(sends(headers, body, varying, version), version, seconds),
                )
    constant = sends(THREE, 100, None, version)
    line(
        "parse SEND, 3 headers, 100 B, constant, LF after",
        parsing(with_line_end(constant), version, seconds),
    )
    plain = serialize("SEND", THREE, b"x" * 100, version)
    line("parse SEND, 2 headers, 100 B, no length", parsing(lambda number: plain, version, seconds))
    crlf = serialize("SEND", THREE, b"x" * 100, version).replace(b"\n", b"\r\n")
    line("parse SEND, 2 headers, 100 B, CR LF", parsing(lambda number: crlf, version, seconds))
    line("parse ACK id (1.2)", parsing(acknowledgement, version, seconds))
    line(
        "parse ACK message-id, subscription (1.1)",
        parsing(acknowledgement_1_1, Version.V1_1, seconds),
    )
    for count, headers in (("3", THREE), ("10", TEN)):
        line(
            f"serialize MESSAGE, {count} headers, 100 B",
            serializing([*headers, ("content-length", "100")], 100, seconds),
        )


if __name__ == "__main__":
    main()
