"""Which dead messages a dead message queue has already, though their source has yet to hear of
that: so that it is not given them twice.

Owns these ids, the last so many of them. One that is forgotten too early is in the queue twice,
which is better than not at all.
"""

from __future__ import annotations

from typing import Final

#: Ids that are kept. Some never come again: another consumer has the message, or its transaction
#: ended otherwise than was decided.
MOST: Final = 10_000


class Buried:
    """Those of one run of a link."""

    def __init__(self) -> None:
        self._ids: Final[dict[str, None]] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, id: str) -> None:
        """A dead message queue has this one. By no id nobody is known again."""
        if id:
            self._ids[id] = None
            if len(self._ids) > MOST:
                del self._ids[next(iter(self._ids))]

    def discard(self, id: str) -> None:
        """Its source has forgotten it."""
        self._ids.pop(id, None)
