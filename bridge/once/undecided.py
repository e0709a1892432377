"""Messages whose transaction ended otherwise than was decided, until a dead message queue has each
of them.

Owns these: nobody gives them out again, so what is here is all there is of them, and what no queue
takes is in the log, whole. When to try again is the link's to say. There are never more than one
transaction had, as a link moves nothing while it keeps any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from twisted.logger import Logger

from bridge.dead.chain import DeadMessage, NotBuried
from bridge.dead.message import whole
from bridge.link.pump import Buries

#: Characters of a message that one line of the log has at most.
_LINE: Final = 12_000


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """One of these.

    :param tell: called when a dead message queue has it.
    """

    dead: DeadMessage
    tell: Callable[[], None]


class Undecided:
    """Those of one link, from one run to the next.

    :param link: its name.
    """

    def __init__(self, link: str, dead_queues: Buries, log: Logger) -> None:
        self._link: Final = link
        self._dead_queues: Final = dead_queues
        self._log: Final = log
        self._kept: Final[list[Lost]] = []

    def __len__(self) -> int:
        """How many are in no dead message queue."""
        return len(self._kept)

    def keep(self, lost: Sequence[Lost]) -> None:
        """Keep these for the next :meth:`bury`."""
        self._kept.extend(lost)

    async def bury(self, lost: Sequence[Lost], buried: Callable[[DeadMessage], None]) -> None:
        """Have these in a dead message queue, and those that are kept from before.

        :param buried: called with each that is in one now, for the run that has it there.
        :raises NotBuried: some are in none. They are kept, and each that is new is in the log,
            whole.
        """
        known = len(self._kept)
        self._kept.extend(lost)
        failure: NotBuried | None = None
        for number, each in enumerate(list(self._kept)):
            try:
                await self._dead_queues.bury(each.dead)
            except NotBuried as error:
                failure = error
                if number >= known:
                    self._tell(each.dead, error)
            else:
                if each in self._kept:
                    self._kept.remove(each)
                    each.tell()
                    buried(each.dead)
        if failure is not None:
            raise failure

    def _tell(self, dead: DeadMessage, error: NotBuried) -> None:
        text = whole(dead.message).decode("utf-8")
        parts = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
        for number, part in enumerate(parts, 1):
            self._log.error(
                "link {link}: message {id} is at its source no more, and may be at its target or not; it is kept as long as this bridge runs, and this is "
                "part {number} of {parts} of it: {part}\n{error}",
                link=self._link,
                id=dead.message.message_id,
                number=number,
                parts=len(parts),
                part=part,
                error=error,
            )
