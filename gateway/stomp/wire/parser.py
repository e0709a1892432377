"""Bytes to frames, however they are cut.

Owns the bytes that wait, and the fast way through those that wait for nothing.

Header blocks are read by :mod:`gateway.stomp.wire.head`, and those of producers that repeat
themselves are recognised by :mod:`gateway.stomp.wire.shapes`; a frame that comes in parts is read by
:mod:`gateway.stomp.wire.partial`. This module knows no sockets and no sessions.

Theory of operation
-------------------
Octets lie in one of three places. Those just received wait as they came (``_chunks``). Frames are read straight from one `bytes` object (``_data``
from ``_at``): nothing is copied but their bodies. Where the last frame in it is incomplete, what there is of it is joined with the next chunk; once
it is larger than the chunks are, it moves to a `bytearray` (``_pending``, the frame beginning at 0), which grows in place. So each octet is
copied a bounded number of times, and a large body exists at most twice: as it gathered, and as the frame's body.

Two readers work on them. ``_run`` takes whole and plain frames in a tight loop and stops at the
first thing it does not know. ``_finish`` then takes one frame with full care, and is the only one
that raises. What ``_run`` takes, ``_finish`` would take alike; that is tested.

``_run`` need not read a block that has a shape: the shape finds whole blocks only, whose values have
no NUL, no CR and no LF, and a block of the same names has been read without fault and within the
limits on lines. Nor need it look at a block that came last, octet by octet.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from gateway.stomp.wire.errors import ProtocolError, again
from gateway.stomp.wire.frame import Frame, Head, Version
from gateway.stomp.wire.grammar import (
    BODY_COMMANDS,
    CONNECTING_COMMANDS,
    COUNTED_COMMANDS,
    LONG_COMMANDS,
    LONGEST_COMMAND,
    STRICT,
    Leniency,
    Limits,
)
from gateway.stomp.wire.head import read_plain_head
from gateway.stomp.wire.partial import PartialFrame
from gateway.stomp.wire.shapes import LONGEST, Rule, ShapedHead, Shapes

# ACK and NACK with nothing but an id of at most this many octets are read without looking for
# headers.
_QUICK_ID: Final = 128

# Looking a member up in its enumeration costs more than comparing it.
_V1_0: Final = Version.V1_0

_find_command: Final = re.compile(rb"[^\r\n\0]").search
_new_frame: Final = tuple.__new__


class FrameParser:
    """The octets of one direction of one connection, as frames.

    Serves either side: it takes the frames of clients and of servers. After a ``ProtocolError`` it
    gives no frame any more and raises the same again.

    :param limits: what a frame may have.
    :param version: by whose rules headers are read; 1.0 until CONNECT or CONNECTED has settled it.
        Both may change, see `change_rules`.
    :param rule: which headers of SEND may vary within a shape. Without it heads have no shapes.
    :param leniency: what is taken beyond the grammar.
    """

    __slots__ = (
        "_any_body",
        "_at",
        "_blank",
        "_chunks",
        "_data",
        "_error",
        "_last_block",
        "_last_head",
        "_leniency",
        "_limits",
        "_partial",
        "_pending",
        "_plain_block",
        "_plain_frame",
        "_queued",
        "_shapes",
        "_starved",
        "_version",
    )

    def __init__(
        self,
        limits: Limits,
        version: Version = Version.V1_0,
        rule: Rule | None = None,
        leniency: Leniency = STRICT,
    ) -> None:
        self._leniency: Final = leniency
        self._any_body = True
        self._version = version
        self._limits = limits
        self._data = b""
        self._at = 0
        # Where the next two LF are in the data; below `_at` if not known.
        self._blank = -1
        self._pending: bytearray | None = None
        self._chunks: deque[bytes] = deque()
        self._queued = 0
        # All that has been received has been looked at, and is not a whole frame.
        self._starved = True
        self._error: ProtocolError | None = None
        self._shapes: Shapes | None = None if rule is None else Shapes(rule)
        self._partial = PartialFrame(limits, version, self._shapes, leniency)
        # The head that came twice in succession, tried first.
        self._last_block = b""
        self._last_head: ShapedHead | None = None
        self._plain_block = 0
        self._plain_frame = 0
        self.change_rules()

    def change_rules(self, version: Version | None = None, limits: Limits | None = None) -> None:
        """Read by another version or other limits what was not returned yet.

        May be called between calls of `frames`. What is None stays.
        """
        if version is not None:
            self._version = version
        self._any_body = self._version is _V1_0 or self._leniency.any_body
        if limits is None:
            limits = self._limits
        self._limits = limits
        # Blocks and frames up to these are within each limit, whatever they are made of. Longer
        # ones are for the careful reader.
        self._plain_block = min(limits.header_line, limits.header_block, limits.frame - 1)
        self._plain_frame = min(limits.body, limits.frame - 1)
        if (
            limits.command_length < LONGEST_COMMAND
            or limits.header_count < 1
            or limits.header_lines < limits.header_count
        ):
            self._plain_block = 0
        self._partial.limits = limits
        self._partial.version = self._version
        self._partial.restart()
        if self._shapes is not None:
            self._shapes.forget()
        self._last_head = None
        self._starved = self._error is not None or self.buffered == 0

    @property
    def buffered(self) -> int:
        """Bytes received and neither returned nor skipped between frames."""
        pending = self._pending
        return len(self._data) - self._at + self._queued + (0 if pending is None else len(pending))

    @property
    def needed(self) -> int:
        """Bytes that wait here once the frame at the front is whole.

        As far as its ``content-length`` tells; at least `buffered`.
        """
        announced = self._partial.announced
        buffered = self.buffered
        return announced if announced > buffered else buffered

    @property
    def wants_data(self) -> bool:
        """Whether no whole frame can be waiting, so that more octets are of use.

        A caller that reads from its socket only while this is true holds at most one frame within
        the limits and what one read brings.
        """
        return self._starved and self._error is None

    def receive(self, data: bytes) -> None:
        """Take bytes that have arrived, in order.

        Looks at none of them and raises nothing; after a ``ProtocolError`` they are dropped.
        """
        if self._error is None and data:
            self._chunks.append(data)
            self._queued += len(data)
            self._starved = False

    def close(self) -> None:
        """Let go of all that waits. Idempotent.

        What is received from now on is dropped, and no more frames come.
        """
        if self._error is None:
            self._drop(ProtocolError("the connection is over"))

    def next(self) -> Frame | None:
        """The next frame, or None when more octets are needed first.

        :raises ProtocolError: what comes next is no frame or exceeds a limit; the same at every
            further call.
        """
        found = self.frames(1)
        return found[0] if found else None

    def frames(self, most: int) -> list[Frame]:
        """The next frames, at most `most`; none when more octets are needed first.

        A run ends early after CONNECT, STOMP and CONNECTED, because the version and limits of what
        follows may change there, and after SUBSCRIBE, which may take long; so fewer than `most` do
        not mean that no more wait.

        :raises ProtocolError: as `next`; where good frames come before the fault they are returned
            first, and the next call raises.
        """
        found: list[Frame] = []
        while len(found) < most:
            error = self._error
            if error is not None:
                if found:
                    break
                raise again(error)
            if self._starved:
                break
            if self._pending is None:
                if self._at == len(self._data) and not self._begin_chunk():
                    break
                self._run(found, most)
                if len(found) >= most or (found and found[-1].head.command in LONG_COMMANDS):
                    break
                if self._at == len(self._data):
                    continue
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
            if frame.head.command in CONNECTING_COMMANDS or frame.head.command in LONG_COMMANDS:
                break
        return found

    # The octets that wait

    def _begin_chunk(self) -> bool:
        """Go on with the next bytes received: nothing is left of those before.

        :returns: False if nothing was received.
        """
        if not self._chunks:
            self._take_data(b"")
            self._starved = True
            return False
        chunk = self._chunks.popleft()
        self._queued -= len(chunk)
        self._take_data(chunk)
        return True

    def _pull(self) -> bool:
        """Join the next bytes received with what is left of those before.

        :returns: False if nothing was received.
        """
        if not self._chunks:
            return False
        chunk = self._chunks.popleft()
        self._queued -= len(chunk)
        pending = self._pending
        if pending is not None:
            pending += chunk
            return True
        rest = self._data[self._at :]
        if len(rest) <= len(chunk):
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

    # Whole frames, fast

    def _run(self, found: list[Frame], most: int) -> None:
        """Append up to `most` whole and plain frames from the front of the data."""
        data = self._data
        size = len(data)
        start = at = self._at
        room = most - len(found)
        find = data.find
        startswith = data.startswith
        append = found.append
        shapes = self._shapes
        block = self._last_block
        last = self._last_head
        plain_block = self._plain_block
        plain_frame = self._plain_frame
        any_body = self._any_body
        head: Head | None
        while room > 0:
            key = b""
            head = None
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
                if (first == 65 or first == 78) and (
                    startswith(b"ACK\nid:", at) or startswith(b"NACK\nid:", at)
                ):
                    # STOMP 1.2's acknowledgements, with an id as this gateway makes them: letters,
                    # digits and "-".
                    id_at = at + 7 if first == 65 else at + 8
                    stop = find(b"\n\n\0", id_at, id_at + _QUICK_ID)
                    if stop >= 0 and stop - at + 2 <= plain_block:
                        text = data[id_at:stop]
                        if text.replace(b"-", b"").isalnum():
                            head = Head(
                                "ACK" if first == 65 else "NACK", {"id": text.decode("ascii")}
                            )
                            append(_new_frame(Frame, (head, b"")))
                            at = stop + 3
                            room -= 1
                            continue
                if first == 83 and shapes is not None:
                    shape = shapes.recent
                    if shape is not None:
                        found_block = shape.match(data, at, at + LONGEST)
                        if found_block is None:
                            found_block = shapes.find(data, at)
                        if found_block is not None:
                            body_at = found_block.end()
                            if body_at - at > plain_block:
                                break
                            shaped = shapes.head(found_block, body_at - at)
                            if shaped is None or (
                                shaped.content_length > plain_frame - body_at + at
                            ):
                                break
                            if shaped.is_repeated:
                                last = shaped
                                block = data[at:body_at]
                            head = shaped
                if head is None:
                    if self._blank < at:
                        # Where there are only lines that end in CR LF it is not looked for again at
                        # each frame.
                        stop = find(b"\n\n", at)
                        self._blank = stop if stop >= 0 else size
                    body_at = self._blank + 2
                    if body_at > size or body_at - at > plain_block or find(0, at, body_at) >= 0:
                        # A NUL before the blank line: this frame ends earlier, in lines of CR LF,
                        # or there is no frame.
                        break
                    key = data[at:body_at]
                    head = self._plain_head(key)
                    if head is None:
                        break
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
            if key and shapes is not None:
                shapes.sight(key, head, self._version)
            append(_new_frame(Frame, (head, data[body_at:stop])))
            at = stop + 1
            room -= 1
            if head.command in LONG_COMMANDS:
                break
        self._last_block = block
        self._last_head = last
        if shapes is not None:
            shapes.release()
        if at != start:
            self._at = at
            self._partial.restart()

    def _plain_head(self, block: bytes) -> Head | None:
        """Read the head of a plain block that is within the limits.

        :returns: None if the careful reader must look.
        """
        leniency = self._leniency
        if leniency.any_escape and 92 in block:
            return None
        head = read_plain_head(block, self._version, self._limits.header_count)
        if head is None:
            return None
        length = head.content_length
        if length > 0:
            limits = self._limits
            if length > limits.body or len(block) + length >= limits.frame:
                return None
            if not self._any_body and head.command not in BODY_COMMANDS:
                return None
        if length >= 0 and leniency.counts_messages_only and head.command not in COUNTED_COMMANDS:
            return None
        return head

    # One frame, carefully

    def _finish(self) -> Frame | None:
        """Return the frame at the front once it is whole.

        None if the bytes pulled so far do not suffice. What comes first is not an end of a line:
        those `_run` has skipped.
        """
        partial = self._partial
        pending = self._pending
        if pending is None:
            data = self._data
            start = self._at
            stop = partial.find_end(data, start)
            if stop < 0:
                return None
            body = data[start + partial.body_at : stop]
            self._at = stop + 1
        else:
            stop = partial.find_end(pending, 0)
            if stop < 0:
                return None
            with memoryview(pending) as view:
                # A slice of the bytearray would be one copy more.
                body = bytes(view[partial.body_at : stop])
                self._take_data(bytes(view[stop + 1 :]))
            self._pending = None
        return partial.take(body)

    # Rules and faults

    def _drop(self, error: ProtocolError) -> None:
        """Nothing is read after `error`; let go of all that is held."""
        # Another one, since its traceback would hold the reader.
        self._error = again(error)
        self._take_data(b"")
        self._pending = None
        self._chunks.clear()
        self._queued = 0
        self._starved = True
        self._partial.restart()
        if self._shapes is not None:
            self._shapes.forget()
        self._last_head = None


def _skip(data: bytes, at: int) -> int:
    """Return where, from `at` on, the next command begins.

    The end of the data if there are only ends of lines and NULs.
    """
    found = _find_command(data, at)
    return len(data) if found is None else found.start()
