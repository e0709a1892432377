"""Header blocks that come again. Owns which heads are kept, how many and for how long; cannot read
a block itself.

Producers repeat their header blocks octet by octet, so a head once read can be given again without
reading: with all that its user made of it (``Head.plan``). Only what is likely to come again is
kept: SEND, at the second sight of a block, small, and without ``receipt`` and ``transaction``,
which change from frame to frame. The fast reader takes the ``receipt`` out of a block first. A
block with CR is not kept either: the fast reader finds the end of a block by its two LF, and relies
on it that a block kept has no blank line of CR LF inside.
"""

from __future__ import annotations

from typing import Final

from gateway.stomp.wire.frame import Head

#: Heads that one parser keeps, and the octets of the largest block kept: 64 KiB of blocks a
#: connection at most.
MOST_HEADS: Final = 64
MOST_OCTETS: Final = 1024

# Blocks seen once that are known by their hashes.
_SEEN: Final = 256
# How often there may be no room before all is forgotten. A producer with a few more blocks than
# there is room for goes on using those that are kept, where throwing out the oldest would keep none
# of them long enough to be used; one that has changed its ways is learnt in the end.
_REFUSED: Final = 4096


class RepeatedHeads:
    """The heads that one parser gives again."""

    __slots__ = ("_refused", "_seen", "heads")

    def __init__(self) -> None:
        #: By their blocks, blank line included. To be read, not changed.
        self.heads: dict[bytes, Head] = {}
        self._seen: set[int] = set()
        self._refused = 0

    def sight(self, block: bytes, head: Head) -> None:
        """A whole frame with this block, which is not kept, has come; keep `head` for it, and mark
        it so, if it is worth it.

        :param block: header block with its blank line, read without fault and within the limits.
        """
        headers = head.headers
        if (
            head.command != "SEND"
            or len(block) > MOST_OCTETS
            or "receipt" in headers
            or "transaction" in headers
        ):
            return
        mark = hash(block)
        seen = self._seen
        if mark not in seen:
            if len(seen) >= _SEEN:
                seen.clear()
            seen.add(mark)
        elif 13 not in block:
            if len(self.heads) >= MOST_HEADS:
                self._refused += 1
                if self._refused < _REFUSED:
                    return
                self.forget()
            head.repeats = True
            self.heads[block] = head

    def forget(self) -> None:
        """Keep nothing of what has been: by other rules the same octets are other heads."""
        self.heads.clear()
        self._seen.clear()
        self._refused = 0
