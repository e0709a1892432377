"""Listing and removing messages that are to be delivered later.

Owns the values that show them. When they are due, :mod:`gateway.broker.core.scheduled` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from twisted.internet.defer import Deferred

from gateway.broker.broker import Broker
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.waiting.timetable import Due
from gateway.broker.sessions.session import when_durable
from gateway.broker.timing.schedule import Steps
from gateway.messaging.message import Message
from gateway.messaging.scheduled import SCHEDULES
from gateway.reactor.deferreds import deferred

#: Entries that are looked at in one step, and rows that are read at once.
_LOOKED_AT: Final = 5_000
_BLOCK: Final = 500


@dataclass(frozen=True, slots=True)
class ScheduledView:
    """A message that is to be delivered later.

    :param job_id: by which it is removed, and which is the property ``scheduledJobId`` of what is
        delivered.
    :param message_id: its JMSMessageID.
    :param due_ms: when it is delivered next, epoch milliseconds.
    :param delivered: how often it was, where it recurs.
    :param asked: what its sender has asked for, by property.
    """

    job_id: str
    message_id: str
    due_ms: int
    octets: int
    persistent: bool
    delivered: int
    asked: dict[str, str]


class ScheduledAdministration:
    """The operations. Called on the reactor's thread.

    :param find: the destination of a type and name; raises an error for the administrator.
    :param refused: makes the error for a message that there is not.
    """

    def __init__(
        self,
        broker: Broker,
        find: Callable[[str, str], PhysicalDestination],
        refused: Callable[[str], Exception],
    ) -> None:
        self._broker: Final = broker
        self._find: Final = find
        self._refused: Final = refused

    @deferred
    async def first(self, type: str, name: str, most: int) -> Sequence[ScheduledView]:
        """Return those of a destination that are due first, in that order.

        There may be very many: a few are looked at in each turn.

        :returns: at most ``most``; fails where there is no such destination.
        """
        physical = self._find(type, name)
        place = self._broker.scheduled.places.get(physical)
        if place is None:
            return ()

        def steps() -> Steps[list[Due]]:
            first: list[Due] = []
            for block in place.timetable.blocks(_LOOKED_AT):
                first = nsmallest(most, [*first, *block])
                yield
            return first

        first = await self._broker.schedule.finished(steps())
        due = {entry.seq: entry for entry in first}
        found: list[ScheduledView] = []
        seqs = list(due)
        for start in range(0, len(seqs), _BLOCK):
            read: Deferred[Sequence[Message]] = Deferred()
            self._broker.rows.read_back(seqs[start : start + _BLOCK], read.callback)
            found += [self._view(due[message.seq], message, place.fired) for message in await read]
        return found

    def _view(self, due: Due, message: Message, fired: dict[int, int]) -> ScheduledView:
        properties = message.headers.properties
        return ScheduledView(
            job_id=self._broker.scheduled.job_id(due.seq),
            message_id=message.message_id,
            due_ms=due.due_ms,
            octets=due.size,
            persistent=message.headers.persistent,
            delivered=fired.get(due.seq, 0),
            asked={name: str(properties[name]) for name in sorted(SCHEDULES) if name in properties},
        )

    @deferred
    async def remove(self, job_id: str) -> str:
        """Remove one; it is not delivered any more.

        :returns: its destination; fails where there is no such message, or it is due just now.
        """
        physical = self._broker.scheduled.remove(job_id)
        if physical is None:
            raise self._refused(f"there is no scheduled message '{job_id}'")
        await when_durable(self._broker.commits)
        self._broker.log.info(
            "the scheduled message {id} of {destination} is removed by an administrator",
            id=job_id,
            destination=str(physical),
        )
        return str(physical)
