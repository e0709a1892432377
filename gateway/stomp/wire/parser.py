"""Octets to frames, however they are cut. Owns the octets that wait, the limits while they gather, and the memory of header blocks.

What a header block says is read by :mod:`gateway.stomp.wire.head`; this module finds where frames begin and end. It knows no sockets and no sessions.

Theory of operation
-------------------
Octets lie in one of two places. Normally frames are read straight from the `bytes` object received (``_data`` from ``_at``): nothing is copied
but the bodies. Where a frame is incomplete, what there is of it is joined with the next octets; once it is larger than what comes in at a time
it moves to a `bytearray` (``_pending``, the frame beginning at 0), which grows in place. So an octet is copied a bounded number of times,
and a large body exists at most twice: as it gathered, and as the frame's body.

Two readers work on them. ``_run`` takes whole and plain frames in a tight loop and stops at the first thing it does not know, having changed
nothing. ``_finish`` then takes one frame with full care, at any stage of its arrival: it remembers how far it looked (``_scanned``, ``_line_at``,
``_lines``, ``_head``), checks every limit on the way, and is the only one that raises. What ``_run`` takes, ``_finish`` would take alike.

Producers repeat their header blocks octet by octet, so the parser remembers heads by their blocks. A block is remembered at its second sight,
only for SEND, and without ``receipt`` and ``transaction``, which change from frame to frame. A remembered block has neither CR nor NUL nor a
blank line inside, and was within the limits; so the same octets are the same head again, and nothing needs checking. When the memory is full,
what it holds stays until it has failed many times: a producer with a few more blocks than there is room for shall not empty it in turn.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from gateway.stomp.wire.errors import ProtocolError
from gateway.stomp.wire.frame import Frame, Head, Version
from gateway.stomp.wire.grammar import BODY_COMMANDS, CONNECTING_COMMANDS, LONGEST_COMMAND
from gateway.stomp.wire.head import PADDING, read_head, read_plain_head, receipt_of
from gateway.stomp.wire.limits import Limits

#: Heads remembered, and the octets of the largest block remembered.
REMEMBERED: Final = 64
REMEMBERED_BLOCK: Final = 1024

# Hashes of blocks seen once; and how often a full memory may miss before it is emptied.
_SEEN: Final = 256
_MISSES: Final = 4096

# ACK\nid: and NACK\nid: with an id of at most this many octets are read without looking for headers.
_QUICK_ID: Final = 128

# Looking a member up in its enumeration costs more than comparing it.
_V1_0: Final = Version.V1_0

_find_command: Final = re.compile(rb"[^\r\n\0]").search
_new_frame: Final = tuple.__new__


class FrameParser:
    """The octets of one direction of one connection, as frames.

    Serves either side: it takes the frames of clients and of servers. After a ``ProtocolError`` it gives no frame any more; it raises the same again.

    :param limits: what a frame may have; see `limits`.
    :param version: by whose rules headers are read; 1.0 until CONNECT or CONNECTED has settled it; see `version`.
    """

    __slots__ = (
        "_at",
        "_blank",
        "_block",
        "_body_at",
        "_chunks",
        "_data",
        "_error",
        "_head",
        "_last_block",
        "_last_head",
        "_limits",
        "_line_at",
        "_lines",
        "_memo",
        "_misses",
        "_names",
        "_pending",
        "_plain_block",
        "_plain_frame",
        "_queued",
        "_scanned",
        "_seen",
        "_starved",
        "_version",
    )

    def __init__(self, limits: Limits, version: Version = Version.V1_0) -> None:
        self._version = version
        # Octets: those being read, those of a frame that is larger than what arrives at once, those not looked at yet.
        self._data = b""
        self._at = 0
        self._blank = -1  # where the next blank line of LF only is in the data; below `_at` when not known
        self._pending: bytearray | None = None
        self._chunks: deque[bytes] = deque()
        self._queued = 0
        self._starved = True
        self._error: ProtocolError | None = None
        # How far the frame at the front has been read. Offsets count from its first octet.
        self._head: Head | None = None
        self._block = b""
        self._body_at = 0
        self._scanned = 0
        self._line_at = 0
        self._lines = 0
        self._names: set[bytes] = set()
        # Header blocks, blank line included, that come again.
        self._memo: dict[bytes, Head] = {}
        self._seen: set[int] = set()
        self._misses = 0
        self._last_block = b""
        self._last_head: Head | None = None
        self._take_limits(limits)

    @property
    def limits(self) -> Limits:
        """The limits that hold for frames not yet returned. May be set between calls; what waits is then read anew under them."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._take_limits(limits)
        self._forget()

    @property
    def version(self) -> Version:
        """The version whose rules hold for frames not yet returned. May be set between calls; what waits is then read anew by them."""
        return self._version

    @version.setter
    def version(self, version: Version) -> None:
        self._version = version
        self._forget()

    @property
    def buffered(self) -> int:
        """Octets received and not yet returned in a frame or skipped between frames."""
        pending = self._pending
        return len(self._data) - self._at + self._queued + (0 if pending is None else len(pending))

    @property
    def wants_data(self) -> bool:
        """Whether no whole frame can be waiting, so that more octets are of use.

        A caller that reads from its socket only while this is true holds at most one frame within the limits and what one read brings.
        """
        return self._starved and self._error is None

    def receive(self, data: bytes) -> None:
        """Take octets that have arrived, in order. Looks at none of them and raises nothing; after a ``ProtocolError`` they are dropped."""
        if self._error is None and data:
            self._chunks.append(data)
            self._queued += len(data)
            self._starved = False

    def next(self) -> Frame | None:
        """The next frame, or None when more octets are needed first.

        :raises ProtocolError: what comes next is no frame or exceeds a limit; the same at every further call.
        """
        found = self.frames(1)
        return found[0] if found else None

    def frames(self, most: int) -> list[Frame]:
        """The next frames, at most `most`; none when more octets are needed first.

        A run ends early after CONNECT, STOMP and CONNECTED, because the version and limits of what follows may change there; so fewer than `most`
        do not mean that no more wait.

        :raises ProtocolError: as `next`; where good frames come before the fault they are returned first, and the next call raises.
        """
        found: list[Frame] = []
        while len(found) < most:
            error = self._error
            if error is not None:
                if found:
                    break
                raise ProtocolError(error.message, error.receipt_id)
            if self._starved:
                break
            if self._pending is None:
                self._run(found, most)
                if len(found) >= most:
                    break
            try:
                frame = self._finish()
            except ProtocolError as fault:
                self._drop(fault)
                continue
            if frame is None:
                if not self._pull():
                    self._starved = True
                continue
            found.append(frame)
            if frame.head.command in CONNECTING_COMMANDS:
                break
        return found

    # The octets that wait

    def _pull(self) -> bool:
        """Join the next octets received with what is left of those before; False if there are none."""
        if not self._chunks:
            return False
        chunk = self._chunks.popleft()
        self._queued -= len(chunk)
        pending = self._pending
        if pending is not None:
            pending += chunk
            return True
        rest = self._data[self._at :]
        if not rest:
            self._take_data(chunk)
        elif len(rest) <= len(chunk):
            self._take_data(rest + chunk)
        else:
            # Joining anew for each little piece would copy the rest each time.
            pending = bytearray(rest)
            pending += chunk
            self._pending = pending
            self._take_data(b"")
        return True

    def _take_data(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._blank = -1

    def _drop(self, error: ProtocolError) -> None:
        """Nothing is read after `error`; let the octets go."""
        self._error = error
        self._take_data(b"")
        self._pending = None
        self._chunks.clear()
        self._queued = 0
        self._restart()
        self._forget()

    def _restart(self) -> None:
        """Begin with the frame at the front as if nothing of it had been read."""
        self._head = None
        self._block = b""
        self._body_at = 0
        self._scanned = 0
        self._line_at = 0
        self._lines = 0
        if self._names:
            self._names = set()

    # Whole frames, fast

    def _run(self, found: list[Frame], most: int) -> None:
        """Append the frames that lie whole and plain at the front of the data, until there are `most`."""
        data = self._data
        size = len(data)
        start = at = self._at
        room = most - len(found)
        find = data.find
        startswith = data.startswith
        append = found.append
        memo = self._memo
        block = self._last_block
        last = self._last_head
        plain_block = self._plain_block
        plain_frame = self._plain_frame
        any_body = self._version is _V1_0
        key = b""
        while room > 0:
            fresh = False
            if last is not None and startswith(block, at):
                head = last
                body_at = at + len(block)
            else:
                if at >= size:
                    break
                first = data[at]
                if first <= 13:
                    after = _skip(data, at)
                    if after == at:
                        break
                    at = after
                    continue
                if (first == 65 or first == 78) and (startswith(b"ACK\nid:", at) or startswith(b"NACK\nid:", at)):
                    # STOMP 1.2's acknowledgements, with an id as this gateway makes them: letters, digits and "-".
                    id_at = at + 7 if first == 65 else at + 8
                    stop = find(b"\n\n\0", id_at, id_at + _QUICK_ID)
                    if stop >= 0 and stop - at + 2 <= plain_block:
                        text = data[id_at:stop]
                        if text.replace(b"-", b"").isalnum():
                            head = Head("ACK" if first == 65 else "NACK", {"id": text.decode("ascii")})
                            append(_new_frame(Frame, (head, b"")))
                            at = stop + 3
                            room -= 1
                            continue
                if self._blank < at:
                    # Where there are only lines that end in CR LF it is not looked for again at each frame.
                    stop = find(b"\n\n", at)
                    self._blank = stop if stop >= 0 else size
                body_at = self._blank + 2
                if body_at > size or body_at - at > plain_block or find(0, at, body_at) >= 0:
                    # A NUL before the blank line: this frame ends earlier, in lines of CR LF, or is none.
                    break
                key = data[at:body_at]
                known = memo.get(key)
                if known is not None:
                    head = last = known
                    block = key
                else:
                    known = self._plain_head(key)
                    if known is None:
                        break
                    head = known
                    fresh = True
            length = head.content_length
            if length >= 0:
                stop = body_at + length
                if stop >= size or data[stop] != 0:
                    break
            else:
                stop = find(b"\0", body_at)
                if stop < 0 or stop - at > plain_frame:
                    break
                if stop != body_at and not any_body and head.command not in BODY_COMMANDS:
                    break
            if fresh:
                self._remember(key, head)
            append(_new_frame(Frame, (head, data[body_at:stop])))
            at = stop + 1
            room -= 1
        self._last_block = block
        self._last_head = last
        if at != start:
            self._at = at
            self._restart()

    def _plain_head(self, block: bytes) -> Head | None:
        """The head of a plain block that is within the limits, newly read; None if `_finish` must look."""
        head = read_plain_head(block, self._version, self._limits.header_count)
        if head is None:
            return None
        length = head.content_length
        if length > 0:
            limits = self._limits
            if length > limits.body or len(block) + length >= limits.frame:
                return None
            if head.command not in BODY_COMMANDS and self._version is not _V1_0:
                return None
        return head

    # One frame at any stage of its arrival, carefully

    def _finish(self) -> Frame | None:
        """The frame at the front once it is whole; None if the octets pulled so far do not suffice."""
        pending = self._pending
        buffer: bytes | bytearray
        if pending is None:
            buffer = self._data
            start = self._at = _skip(self._data, self._at)
            if start == len(buffer):
                self._take_data(b"")
                return None
        else:
            buffer = pending
            start = 0
        head = self._head
        if head is None:
            end = self._find_block(buffer, start)
            if end < 0:
                return None
            self._block = bytes(buffer[start:end])
            head = self._head = self._read_block(self._block)
            self._body_at = self._scanned = end - start
        body_at = start + self._body_at
        stop = self._find_body_end(buffer, start, head)
        if stop < 0:
            return None
        if pending is None:
            body = self._data[body_at:stop]
            self._at = stop + 1
        else:
            with memoryview(pending) as view:
                # A slice of the bytearray would be one copy more.
                body = bytes(view[body_at:stop])
            self._take_data(bytes(pending[stop + 1 :]))
            self._pending = None
        if not head.repeats:
            self._remember(self._block, head)
        self._restart()
        return Frame(head, body)

    def _find_block(self, buffer: bytes | bytearray, start: int) -> int:
        """Where the header block of the frame at `start` ends, blank line included; -1 if it is not whole yet.

        Reads each octet once over all calls. A fault is found at the same octet however the octets were cut.
        """
        limits = self._limits
        block_most = min(limits.header_block, limits.frame - 1)  # and a NUL
        received = len(buffer) - start
        while True:
            line_at = self._line_at
            line_most = limits.header_line if self._lines else limits.command_length
            # The last place where this line's LF may be: one CR may stand before it.
            last = min(line_at + line_most + 1, block_most - 1)
            end = buffer.find(b"\n", start + self._scanned, start + last + 1)
            nul = buffer.find(b"\0", start + self._scanned, end if end >= 0 else start + last + 1)
            if nul >= 0:
                raise self._bad_block(buffer, start, self._in_line("a NUL octet; a blank line must end the headers"))
            if end < 0:
                if received > last:
                    raise self._bad_block(buffer, start, self._over(last == block_most - 1))
                self._scanned = received
                return -1
            length = end - start - line_at
            if length > 0 and buffer[end - 1] == 13:
                length -= 1
            if length > line_most:
                raise self._bad_block(buffer, start, self._over(False))
            if length == 0 and self._lines:
                return end + 1
            if self._lines:
                if self._lines > limits.header_lines:
                    raise self._bad_block(buffer, start, f"the frame has more than {limits.header_lines} header lines")
                name = bytes(buffer[start + line_at : end]).partition(b":")[0]
                self._names.add(name.strip(PADDING.encode()) if self._version is _V1_0 else name)
                if len(self._names) > limits.header_count:
                    raise self._bad_block(buffer, start, f"the frame has more than {limits.header_count} headers")
            self._lines += 1
            self._line_at = self._scanned = end + 1 - start

    def _in_line(self, what: str) -> str:
        return f"header line {self._lines} has {what}" if self._lines else f"the command line has {what}"

    def _over(self, block: bool) -> str:
        """What is said when a line, or the block, is longer than allowed."""
        limits = self._limits
        if block:
            if limits.frame <= limits.header_block:
                return f"the frame is longer than {limits.frame} octets"
            return f"the headers are longer than {limits.header_block} octets"
        if self._lines:
            return f"header line {self._lines} is longer than {limits.header_line} octets"
        return f"the command line is longer than {limits.command_length} octets"

    def _bad_block(self, buffer: bytes | bytearray, start: int, message: str) -> ProtocolError:
        """The error for a block that cannot be read to its end, with the receipt of the lines before the fault."""
        front = bytes(buffer[start : start + self._line_at])
        if self._lines == 0:
            opening = bytes(buffer[start : start + 8])
            if opening.startswith(b"\x16\x03"):
                message = "this is a TLS handshake, and this port expects STOMP without TLS"
            elif opening.startswith((b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ")):
                message = "this is an HTTP request, and this port expects STOMP"
        return ProtocolError(message, receipt_of(front, self._version))

    def _read_block(self, block: bytes) -> Head:
        """The head of a whole block; raises for what is wrong in it, and for a body announced that may not be."""
        known = self._memo.get(block)
        if known is not None:
            return known
        head = read_head(block, self._version)
        length = head.content_length
        if length > 0:
            limits = self._limits
            receipt = head.headers.get("receipt")
            if self._version is not _V1_0 and head.command not in BODY_COMMANDS:
                raise ProtocolError(f"{head.command} must not have a body, and its content-length is {length}", receipt)
            if length > limits.body:
                raise ProtocolError(f"content-length is {length}, and a body may have {limits.body} octets", receipt)
            if len(block) + length >= limits.frame:
                raise ProtocolError(
                    f"content-length is {length}, and a frame may have {limits.frame} octets with its headers", receipt
                )
        return head

    def _find_body_end(self, buffer: bytes | bytearray, start: int, head: Head) -> int:
        """Where the NUL is that ends the frame at `start`, whose head is read; -1 if it has not come yet."""
        body_at = start + self._body_at
        length = head.content_length
        receipt = head.headers.get("receipt")
        if length >= 0:
            stop = body_at + length
            if len(buffer) <= stop:
                return -1
            if buffer[stop] != 0:
                raise ProtocolError(f"{head.command} has no NUL after the {length} octets of its content-length", receipt)
            return stop
        if head.command not in BODY_COMMANDS and self._version is not _V1_0:
            if len(buffer) == body_at:
                return -1
            if buffer[body_at] != 0:
                raise ProtocolError(f"{head.command} must not have a body; NUL is expected after its blank line", receipt)
            return body_at
        limits = self._limits
        last = min(body_at + limits.body, start + limits.frame - 1)
        stop = buffer.find(b"\0", start + self._scanned, last + 1)
        if stop < 0:
            if len(buffer) > last:
                if last == body_at + limits.body:
                    raise ProtocolError(f"the body is longer than {limits.body} octets", receipt)
                raise ProtocolError(f"the frame is longer than {limits.frame} octets", receipt)
            self._scanned = len(buffer) - start
        return stop

    # The memory of header blocks

    def _remember(self, block: bytes, head: Head) -> None:
        """Called once for each whole frame: keep its head if the block is of the kind that comes again, and has come before."""
        headers = head.headers
        if (
            head.command != "SEND"
            or len(block) > REMEMBERED_BLOCK
            or "receipt" in headers
            or "transaction" in headers
            or b"\r" in block
        ):
            return
        mark = hash(block)
        seen = self._seen
        if mark not in seen:
            if len(seen) >= _SEEN:
                seen.clear()
            seen.add(mark)
            return
        if len(self._memo) >= REMEMBERED:
            self._misses += 1
            if self._misses < _MISSES:
                return
            self._forget_heads()
        head.repeats = True
        self._memo[block] = head

    def _forget_heads(self) -> None:
        self._memo.clear()
        self._seen.clear()
        self._misses = 0
        self._last_block = b""
        self._last_head = None

    def _forget(self) -> None:
        """The rules have changed: what was read by the old ones is read again."""
        self._forget_heads()
        self._restart()
        self._starved = self._error is not None or self.buffered == 0

    def _take_limits(self, limits: Limits) -> None:
        self._limits = limits
        # Blocks and frames up to these are within each limit, whatever they are made of; longer ones are measured by `_finish`.
        self._plain_block = min(limits.header_line, limits.header_block, limits.frame - 1)
        if limits.command_length < LONGEST_COMMAND or limits.header_count < 1 or limits.header_lines < limits.header_count:
            self._plain_block = 0
        self._plain_frame = min(limits.body, limits.frame - 1)


def _skip(data: bytes, at: int) -> int:
    """Where, from `at` on, the next command begins; the end of the data if there are only ends of lines and NULs."""
    found = _find_command(data, at)
    return len(data) if found is None else found.start()
