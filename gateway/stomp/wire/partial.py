"""One frame at any stage of its arrival.

Owns how far it has been read, and every limit on the way; owns no bytes.

The octets are given at each call, as far as they have come, and each is looked at a bounded number
of times however often that is: what was searched without success is not searched again. A fault is
found at the same octet, and said in the same words, however the octets were cut.
"""

from __future__ import annotations

from typing import Final

from gateway.stomp.wire.errors import Exceeded, ProtocolError
from gateway.stomp.wire.frame import Frame, Head, Version
from gateway.stomp.wire.grammar import BODY_COMMANDS, PADDING, STRICT, Leniency, Limits
from gateway.stomp.wire.head import read_head, receipt_of
from gateway.stomp.wire.shapes import Shapes

_V1_0: Final = Version.V1_0
_PADDING: Final = PADDING.encode()


#: Ends of lines that a frame without a body may have before its NUL.
_MOST_LINE_ENDS: Final = 16


class PartialFrame:
    """What is known of the frame at the front of a stream.

    All offsets count from the first byte of its command.

    :param limits: what a frame may have.
    :param version: by whose rules it is read.
    :param shapes: told of each block, if its heads may have shapes.
    :param leniency: what is taken beyond the grammar.
    """

    __slots__ = (
        "_block",
        "_head",
        "_leniency",
        "_line_at",
        "_lines",
        "_names",
        "_scanned",
        "_shapes",
        "body_at",
        "limits",
        "version",
    )

    def __init__(
        self,
        limits: Limits,
        version: Version,
        shapes: Shapes | None,
        leniency: Leniency = STRICT,
    ) -> None:
        self._leniency: Final = leniency
        self.limits = limits
        self.version = version
        self._shapes = shapes
        # How far has been searched for what is searched for just now.
        self._scanned = 0
        # The line being read: where it begins, and how many came before it, of which the first is
        # the command line.
        self._line_at = 0
        self._lines = 0
        # The different header names so far, as sent.
        self._names: set[bytes] = set()
        # Known once the header block is whole.
        self._block = b""
        self._head: Head | None = None
        #: Where the body begins, once `find_end` has found where it ends.
        self.body_at = 0

    def restart(self) -> None:
        """Begin as if nothing had been read."""
        self._scanned = 0
        self._line_at = 0
        self._lines = 0
        if self._names:
            self._names = set()
        self._block = b""
        self._head = None
        self.body_at = 0

    @property
    def announced(self) -> int:
        """Bytes of the whole frame by its ``content-length``.

        0 while the header block is not whole.
        """
        head = self._head
        return 0 if head is None else self.body_at + max(head.content_length, 0) + 1

    def find_end(self, octets: bytes | bytearray, start: int) -> int:
        """Return where in `octets` the NUL that ends the frame is.

        The frame begins at `start`; -1 if the NUL has not come yet.

        :param octets: what has come of the frame since the last `restart`, and may be more behind
            it.
        :raises ProtocolError: this is no frame, or it exceeds a limit.
        """
        head = self._head
        if head is None:
            end = self._find_block(octets, start)
            if end < 0:
                return -1
            self._block = bytes(octets[start:end])
            head = self._head = self._read_block(self._block)
            self.body_at = self._scanned = end - start
        return self._find_nul(octets, start, head)

    def take(self, body: bytes) -> Frame:
        """Return the frame whose end has been found, with its body.

        Then all is as after `restart`, for the next.
        """
        head = self._head
        assert head is not None
        if self._leniency.drops_rest and 0 <= head.content_length < len(body):
            body = body[: head.content_length]
        if self._shapes is not None:
            self._shapes.sight(self._block, head, self.version)
        self.restart()
        return Frame(head, body)

    # The header block

    def _find_block(self, octets: bytes | bytearray, start: int) -> int:
        """Return where the header block ends, blank line included.

        -1 if it has not come yet.
        """
        limits = self.limits
        most = min(limits.header_block, limits.frame - 1)  # and a NUL
        received = len(octets) - start
        while True:
            line_at = self._line_at
            line_most = limits.header_line if self._lines else limits.command_length
            # The last place where this line's LF may be: one CR may stand before it.
            last = min(line_at + line_most + 1, most - 1)
            end = octets.find(b"\n", start + self._scanned, start + last + 1)
            nul = octets.find(b"\0", start + self._scanned, end if end >= 0 else start + last + 1)
            if nul >= 0 and not (self._leniency.nul_in_command and not self._lines):
                raise self._fault(
                    octets,
                    start,
                    f"{self._line()} has a NUL octet; a blank line must end the headers",
                )
            if end < 0:
                if received > last:
                    if last == most - 1:
                        raise self._fault(octets, start, self._block_too_long(), Exceeded.FRAME)
                    raise self._line_too_long(octets, start)
                self._scanned = received
                return -1
            length = end - start - line_at
            if length > 0 and octets[end - 1] == 13:
                length -= 1
            if length > line_most:
                raise self._line_too_long(octets, start)
            if self._lines:
                if length == 0:
                    return end + 1
                self._count(octets, start, bytes(octets[start + line_at : end]))
            self._lines += 1
            self._line_at = self._scanned = end + 1 - start

    def _count(self, octets: bytes | bytearray, start: int, line: bytes) -> None:
        """One header line more."""
        limits = self.limits
        if self._lines > limits.header_lines:
            what = f"the frame has more than {limits.header_lines} header lines"
            raise self._fault(octets, start, what, Exceeded.HEADERS)
        name = line.partition(b":")[0]
        self._names.add(name.strip(_PADDING) if self.version is _V1_0 else name)
        if len(self._names) > limits.header_count:
            what = f"the frame has more than {limits.header_count} headers"
            raise self._fault(octets, start, what, Exceeded.HEADERS)

    def _line(self) -> str:
        return f"header line {self._lines}" if self._lines else "the command line"

    def _line_too_long(self, octets: bytes | bytearray, start: int) -> ProtocolError:
        limits = self.limits
        most = limits.header_line if self._lines else limits.command_length
        what = f"{self._line()} is longer than {most} octets"
        exceeded = Exceeded.HEADER if self._lines else Exceeded.COMMAND
        return self._fault(octets, start, what, exceeded)

    def _block_too_long(self) -> str:
        limits = self.limits
        if limits.frame <= limits.header_block:
            return f"the frame is longer than {limits.frame} octets"
        return f"the headers are longer than {limits.header_block} octets"

    def _fault(
        self,
        octets: bytes | bytearray,
        start: int,
        message: str,
        exceeded: Exceeded = Exceeded.NONE,
    ) -> ProtocolError:
        """Make the error for a block that cannot be read to its end.

        It carries the receipt among the lines before the fault.
        """
        if self._lines == 0:
            opening = bytes(octets[start : start + 8])
            if opening.startswith(b"\x16\x03"):
                message = "this is a TLS handshake, and this port expects STOMP without TLS"
            elif opening.startswith((b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ")):
                message = "this is an HTTP request, and this port expects STOMP"
        receipt = receipt_of(bytes(octets[start : start + self._line_at]), self.version)
        return ProtocolError(message, receipt, exceeded=exceeded)

    def _read_block(self, block: bytes) -> Head:
        """Read the head of a whole block.

        Raises for what is wrong in it, and for a body announced that may not be.
        """
        head = read_head(block, self.version, self._leniency)
        length = head.content_length
        if length > 0:
            limits = self.limits
            receipt = head.headers.get("receipt")
            if not self._may_have_body(head.command):
                raise ProtocolError(
                    f"{head.command} must not have a body, and its content-length is {length}",
                    receipt,
                )
            if length > limits.body:
                raise ProtocolError(
                    f"content-length is {length}, and a body may have {limits.body} octets",
                    receipt,
                    exceeded=Exceeded.BODY,
                )
            if len(block) + length >= limits.frame:
                raise ProtocolError(
                    f"content-length is {length}, and a frame may have {limits.frame} octets with its headers",
                    receipt,
                    exceeded=Exceeded.FRAME,
                )
        return head

    # The body

    def _find_nul(self, octets: bytes | bytearray, start: int, head: Head) -> int:
        """Where the body ends; -1 if its end has not come yet."""
        body_at = start + self.body_at
        length = head.content_length
        if length < 0 and self._may_have_body(head.command):
            return self._search_nul(octets, start, head)
        # A frame that may have no body is like one that says it has none.
        stop = body_at + max(length, 0)
        if length < 0:
            most = min(len(octets), body_at + _MOST_LINE_ENDS)
            while stop < most and octets[stop] in b"\r\n":
                stop += 1
        if len(octets) <= stop:
            return -1
        if octets[stop] == 0:
            return stop
        if self._leniency.drops_rest and length >= 0:
            self._scanned = max(self._scanned, self.body_at + length)
            return self._search_nul(octets, start, head)
        if length < 0:
            message = f"{head.command} must not have a body; NUL is expected after its blank line"
        else:
            message = f"{head.command} has no NUL after the {length} octets of its content-length"
        raise ProtocolError(message, head.headers.get("receipt"))

    def _may_have_body(self, command: str) -> bool:
        return command in BODY_COMMANDS or self.version is _V1_0 or self._leniency.any_body

    def _search_nul(self, octets: bytes | bytearray, start: int, head: Head) -> int:
        """Return where a body without ``content-length`` ends.

        -1 if its end has not come yet.
        """
        limits = self.limits
        most_body = self.body_at + limits.body
        last = min(most_body, limits.frame - 1)
        stop = octets.find(b"\0", start + self._scanned, start + last + 1)
        if stop < 0:
            if len(octets) - start > last:
                what = f"the frame is longer than {limits.frame} octets"
                exceeded = Exceeded.FRAME
                if last == most_body:
                    what = f"the body is longer than {limits.body} octets"
                    exceeded = Exceeded.BODY
                raise ProtocolError(what, head.headers.get("receipt"), exceeded=exceeded)
            self._scanned = len(octets) - start
        return stop
