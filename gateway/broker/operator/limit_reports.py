"""Log destinations at their limits, and destinations that come and go.

What begins at a limit is told at once, what goes on once a minute, as a number. Of destinations
that come or go the first few of a second are told by name, the others as a number.

Owns how often. What happens at a limit is the destination's to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from twisted.logger import Logger

from gateway.broker.durability.rows import Destined
from gateway.broker.schedule import Schedule
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationFull

#: Between two log lines about one destination and one thing that happens to it.
REPORT_MS: Final = 60_000
#: Destinations that came, and those that went, that are told by name in a second.
NAMED: Final = 20
_SECOND_MS: Final = 1000


class LimitReports:
    """Of one broker, on its schedule."""

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        #: What has happened since the last line, by what it is and where.
        self._since: dict[tuple[str, Destination], int] = {}
        self._holding: dict[Destination, _Holding] = {}
        #: Destinations, subscriptions and consumers refused since the last line.
        self._refused = 0

    def evicting(self, physical: Destined, reason: DeadReason) -> None:
        """A destination gives a message up to make room."""
        if self._is_first("gave up", physical.destination):
            self._log.warn(
                "{destination} is at its limit and begins to give up messages ({reason})",
                destination=str(physical.destination),
                reason=reason.value,
            )

    def refusing(self, physical: Destined, error: DestinationFull) -> None:
        """A destination refuses a message that it has no room for."""
        if self._is_first("refused", physical.destination):
            self._log.warn(
                "{destination} is at its limit and begins to refuse messages: {limit} is {value}",
                destination=str(physical.destination),
                limit=error.limit,
                value=error.value,
            )

    def no_room(self, used: int, most: int) -> None:
        """Clients can make no more destinations, subscriptions and consumers."""
        self._refused += 1
        if self._refused == 1:
            self._log.warn(
                "no memory for more destinations, subscriptions and consumers of clients, which are refused: those there are take {used} bytes, and "
                "clients may make more up to {most}, half of imq.memory.waiting",
                used=used,
                most=most,
            )

            def report() -> None:
                more, self._refused = self._refused - 1, 0
                if more:
                    self._log.warn(
                        "{count} more destinations, subscriptions and consumers were refused in a minute, for lack of memory",
                        count=more,
                    )

            self._later(report)

    def _is_first(self, what: str, destination: Destination) -> bool:
        key = (what, destination)
        count = self._since.get(key)
        if count is not None:
            self._since[key] = count + 1
            return False
        self._since[key] = 0

        def report() -> None:
            more = self._since.pop(key, 0)
            if more:
                self._log.warn(
                    "{destination} {what} {count} more messages in a minute",
                    destination=str(destination),
                    what=what,
                    count=more,
                )

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
            )
        else:
            self._log.info(
                "{destination} has room again, and its senders go on", destination=destination
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
        self._made = 0
        self._removed = 0
        self._reporting = False

    def made(self, destination: Destination, user: str) -> None:
        """A client has made it."""
        self._made += 1
        if self._made <= NAMED:
            self._log.info(
                "{destination} is made, because user '{user}' uses it",
                destination=str(destination),
                user=user,
            )
        self._report_later()

    def removed(self, destination: Destination) -> None:
        """It was not used for the reap time."""
        self._removed += 1
        if self._removed <= NAMED:
            seconds = self._reap_time
            self._log.info(
                "{destination} is removed: nobody has used it for {seconds} seconds",
                destination=str(destination),
                seconds=seconds,
            )
        self._report_later()

    def report(self) -> None:
        """Tell the number of those that were not told by name."""
        self._reporting = False
        made, self._made = self._made - NAMED, 0
        removed, self._removed = self._removed - NAMED, 0
        if made > 0:
            self._log.info(
                "{count} more destinations are made in a second, because clients use them",
                count=made,
            )
        if removed > 0:
            seconds = self._reap_time
            self._log.info(
                "{count} more destinations are removed in a second: nobody has used them for {seconds} seconds",
                count=removed,
                seconds=seconds,
            )

    def _report_later(self) -> None:
        if not self._reporting:
            self._reporting = True
            self._schedule.after(_SECOND_MS, self.report)


@dataclass(slots=True)
class _Holding:
    """A destination that holds senders back, or did in the last minute.

    ``now``: it does. ``quiet``: the log was told within the last minute. ``more``: how often it has
    begun again since, untold.
    """

    now: bool = False
    quiet: bool = False
    more: int = 0
