"""Frames of one connection that wait because the provider takes no messages just now.

Owns their order and their octets. Which frames wait and what becomes of them is the session's
business.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.stomp.wire import Frame

#: What a held frame counts for besides its body, and what each of its headers does besides its
#: text.
_FRAME: Final = 256
_HEADER: Final = 144
#: Frames that delimit a transaction: ACK and NACK must not overtake them.
_BOUNDARIES: Final = frozenset(("BEGIN", "COMMIT", "ABORT"))


def weight(frame: Frame) -> int:
    """Roughly the bytes that a frame takes in memory, its headers included."""
    headers = frame.head.headers
    return (
        len(frame.body)
        + _FRAME
        + _HEADER * len(headers)
        + sum(map(len, headers))
        + sum(map(len, headers.values()))
    )


class Held:
    """The frames that wait.

    :param most: octets from which on no more input should be read.
    """

    __slots__ = ("_frames", "_most", "has_boundary", "octets")

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self.clear()

    @property
    def is_full(self) -> bool:
        return self.octets >= self._most

    def add(self, frame: Frame) -> bool:
        """Hold a frame back. :returns: whether it was the one that made it full."""
        before = self.octets
        self._frames.append(frame)
        self.octets += weight(frame)
        if frame.head.command in _BOUNDARIES:
            self.has_boundary = True
        return before < self._most <= self.octets

    def take(self) -> deque[Frame]:
        """All that was held, which is held no longer."""
        frames = self._frames
        self.clear()
        return frames

    def clear(self) -> None:
        """Forget everything."""
        self._frames: deque[Frame] = deque()
        self.octets = 0
        #: Among them is one that begins or ends a transaction.
        self.has_boundary = False
