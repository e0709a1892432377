"""Log destinations at their limits, and destinations that come and go.

What begins at a limit is told at once, what goes on once a minute, as a number. Of destinations
that come or go the first few of a second are told by name, the others as a number.

Owns how often. What happens at a limit is the destination's to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar, Final

from twisted.logger import Logger

from gateway.broker.durability.rows import Destined
from gateway.broker.timing.schedule import Schedule
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationFull

#: Between two log lines about one destination and one thing that happens to it.
REPORT_MS: Final = 60_000
#: Destinations that came, and those that went, that are told by name in a second.
NAMED: Final = 20
_SECOND_MS: Final = 1000
#: While in which messages that die are counted.
DEAD_MS: Final = 10_000
_GAVE_UP: Final = "{destination} gave up {count} more messages in a minute"
_REFUSED: Final = "{destination} refused {count} more messages in a minute"
_NO_ROOM: Final = "{count} more destinations, subscriptions and consumers were refused in a minute, for lack of memory"
_MADE: Final = "{count} more destinations are made in a second, because clients use them"
_REMOVED: Final = (
    "{count} more destinations are removed in a second: nobody has used them for {seconds} seconds"
)


class LimitReports:
    """Of one broker, on its schedule."""

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        #: How often something has happened since the last line, by what it is and where.
        self._since: dict[tuple[str, Destination | None], int] = {}
        self._holding: dict[Destination, _Holding] = {}
        #: Told of a destination that begins to hold senders back or to refuse messages; None where
        #: no client listens.
        self.listener: Callable[[Destined], None] | None = None

    def evicting(self, physical: Destined, reason: DeadReason) -> None:
        """A destination gives a message up to make room."""
        if self._is_first(_GAVE_UP, physical.destination):
            self._log.warn(
                "{destination} is at its limit and begins to give up messages ({reason})",
                destination=str(physical.destination),
                reason=reason.value,
                event="destination.full",
            )

    def refusing(self, physical: Destined, error: DestinationFull) -> None:
        """A destination refuses a message that it has no room for."""
        if self._is_first(_REFUSED, physical.destination):
            if self.listener is not None:
                self.listener(physical)
            self._log.warn(
                "{destination} is at its limit and begins to refuse messages: {limit} is {value}",
                destination=str(physical.destination),
                limit=error.limit,
                value=error.value,
                event="destination.full",
            )

    def no_room(self, used: int, most: int) -> None:
        """Clients can make no more destinations, subscriptions and consumers."""
        if self._is_first(_NO_ROOM, None):
            self._log.warn(
                "no memory for more destinations, subscriptions and consumers of clients, which are refused: those there are take {used} bytes, and "
                "clients may make more up to {most}, half of imq.memory.waiting",
                used=used,
                most=most,
            )

    def _is_first(self, more: str, destination: Destination | None) -> bool:
        """Whether it happens there for the first time in a minute.

        :param more: what the log is told at the end of that, of how often it has happened again.
        """
        key = (more, destination)
        count = self._since.get(key)
        if count is not None:
            self._since[key] = count + 1
            return False
        self._since[key] = 0

        def report() -> None:
            count = self._since.pop(key)
            if count:
                self._log.warn(more, destination=str(destination), count=count)

        self._later(report)
        return True

    # --- senders held back

    def holding_back(self, physical: Destined) -> None:
        """Note that a destination at its limit holds its senders back.

        Called for every arrival there.
        """
        holding = self._holding.setdefault(physical.destination, _Holding())
        if not holding.now:
            holding.now = True
            if self.listener is not None:
                self.listener(physical)
            if holding.quiet:
                holding.more += 1
            else:
                self._say(physical)
                holding.quiet = True
                self._later(partial(self._report, physical))

    def has_room(self, physical: Destined) -> None:
        """A destination that held its senders back has room for them."""
        holding = self._holding.get(physical.destination)
        if holding is None or not holding.now:
            return
        holding.now = False
        if not holding.more:
            self._say(physical)
        if not holding.quiet:
            del self._holding[physical.destination]

    def forget(self, physical: Destined) -> None:
        """A destination is removed."""
        self._holding.pop(physical.destination, None)

    def _report(self, physical: Destined) -> None:
        """A minute has passed since the last line."""
        holding = self._holding.get(physical.destination)
        if holding is None or physical.removed:
            return
        if holding.more:
            self._log.warn(
                "{destination} was at its limit and held its senders back {count} more times in a minute, and {state} now",
                destination=str(physical.destination),
                count=holding.more,
                state="does so" if holding.now else "has room",
                event="destination.full" if holding.now else "destination.room",
            )
            holding.more = 0
            self._later(partial(self._report, physical))
        elif holding.now:
            holding.quiet = False
        else:
            del self._holding[physical.destination]

    def _say(self, physical: Destined) -> None:
        destination = str(physical.destination)
        if self._holding[physical.destination].now:
            self._log.warn(
                "{destination} is at its limit and begins to hold its senders back: {limits}",
                destination=destination,
                limits=physical.properties.bounds,
                event="destination.full",
            )
        else:
            self._log.info(
                "{destination} has room again, and its senders go on",
                destination=destination,
                event="destination.room",
            )

    def _later(self, report: Callable[[], None]) -> None:
        self._schedule.after(REPORT_MS, report)


class UseReports:
    """Reports of one broker on destinations made and removed by use.

    Clients have made them by using them; they are removed when they are not used any more.

    :param reap_time: after how many seconds without use a destination is removed.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, schedule: Schedule, reap_time: int) -> None:
        self._schedule = schedule
        self._reap_time = reap_time
        #: How many there were in this second, by what the log is told of those not named.
        self._counts = {_MADE: 0, _REMOVED: 0}
        self._reporting = False

    def made(self, destination: Destination, user: str) -> None:
        """A client has made it."""
        if self._is_named(_MADE):
            self._log.info(
                "{destination} is made, because user '{user}' uses it",
                destination=str(destination),
                user=user,
                event="destination.created",
            )

    def removed(self, destination: Destination) -> None:
        """It was not used for the reap time."""
        if self._is_named(_REMOVED):
            self._log.info(
                "{destination} is removed: nobody has used it for {seconds} seconds",
                destination=str(destination),
                seconds=self._reap_time,
                event="destination.destroyed",
            )

    def report(self) -> None:
        """Tell the number of those that were not told by name."""
        self._reporting = False
        for more, count in self._counts.items():
            self._counts[more] = 0
            if count > NAMED:
                self._log.info(
                    more,
                    count=count - NAMED,
                    seconds=self._reap_time,
                    event="destination.created" if more == _MADE else "destination.destroyed",
                )

    def _is_named(self, more: str) -> bool:
        self._counts[more] += 1
        if not self._reporting:
            self._reporting = True
            self._schedule.after(_SECOND_MS, self.report)
        return self._counts[more] <= NAMED


class DeadReports:
    """Reports of one broker on messages that die, counted.

    The first of a destination and a reason is told at once, the others as a number. They are for
    those who follow the events; the log has them at FINE.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        #: How many in this while.
        self._counts: dict[tuple[Destination, DeadReason], int] = {}

    def died(self, destination: Destination, reason: DeadReason, comment: str) -> None:
        """A message is dead."""
        if not self._counts:
            self._schedule.after(DEAD_MS, self.report)
        key = (destination, reason)
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count and len(self._counts) <= NAMED:
            self._tell("a message of {destination} is dead: {reason}, {comment}", key, 1, comment)

    def report(self) -> None:
        """Tell the number of those that were not told."""
        counts, self._counts = self._counts, {}
        for key in islice(counts, NAMED):
            if counts[key] > 1:
                more = counts[key] - 1
                self._tell("{count} more messages of {destination} are dead: {reason}", key, more)
        if len(counts) > NAMED:
            self._log.debug(
                "{count} messages of {destinations} more destinations are dead",
                count=sum(islice(counts.values(), NAMED, None)),
                destinations=len({destination for destination, _ in islice(counts, NAMED, None)}),
                event="message.dead",
            )

    def _tell(
        self, text: str, key: tuple[Destination, DeadReason], count: int, comment: str = ""
    ) -> None:
        self._log.debug(
            text,
            destination=str(key[0]),
            reason=key[1].value,
            comment=comment,
            count=count,
            event="message.dead",
        )


@dataclass(slots=True)
class _Holding:
    """A destination that holds senders back, or did in the last minute.

    ``now``: it does. ``quiet``: the log was told within the last minute. ``more``: how often it has
    begun again since, untold.
    """

    now: bool = False
    quiet: bool = False
    more: int = 0
