"""Whether the limits of destinations leave room for messages that are about to arrive.

Owns the question for a whole run of messages: all or none. Each destination counts for itself
(:meth:`gateway.broker.core.physical.Physical.admit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.broker.core.limits import LimitBehavior
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationFull, MessageRejected
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.operator.limit_reports import LimitReports
    from gateway.broker.sessions.session import Arrivals


def admit(arrivals: Arrivals, messages: Sequence[Message], reports: LimitReports) -> None:
    """Whether there is room for all of these.

    :param messages: those that were asked about, in order: the arrivals, and maybe others between.
    :param reports: told of a destination that refuses. :raises MessageRejected: for the first that
        there is no room for; its place is the one in ``messages``.
    """
    sums: dict[Destination, tuple[int, int]] = {}
    for physical, run in arrivals:
        if (
            not physical.properties.bounded
            or physical.properties.limit_behavior is not LimitBehavior.REJECT_NEWEST
        ):
            continue
        count, octets = sums.get(physical.destination, (0, 0))
        octets += sum([message.size for message in run])
        count += len(run)
        try:
            physical.admit(count, octets)
        except DestinationFull:
            count -= len(run)
            octets -= sum([message.size for message in run])
            for message in run:
                count += 1
                octets += message.size
                try:
                    physical.admit(count, octets)
                except DestinationFull as error:
                    reports.refusing(physical, error)
                    place = next(index for index, asked in enumerate(messages) if asked is message)
                    raise MessageRejected(place, error) from error
        sums[physical.destination] = (count, octets)
