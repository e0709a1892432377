"""Log lines that anybody can cause who reaches a port: some a second of each kind, and then how
many more there were.

Owns how often. The lines and their kinds are those of whoever logs them.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger, LogLevel

#: Lines of one kind that are written in a second; of more only the number is told.
MOST_A_SECOND: Final = 10
#: Seconds after the first line that was left out until their number is told.
REPORT_S: Final = 60.0
#: Addresses of one kind that are told apart; strangers must not fill the memory either.
_MOST_ADDRESSES: Final = 10_000


class _Kind:
    """The lines of one kind. ``second``: when the present second began. ``written``: lines in it.
    ``more``: lines left out since the last report.
    """

    __slots__ = ("addresses", "more", "second", "written")

    def __init__(self) -> None:
        self.second = float("-inf")
        self.written = 0
        self.more = 0
        self.addresses: set[str] = set()


class Strangers:
    """The limit of one service.

    :param clock: the reactor. :param log: is told the numbers, at the level of the lines.
    """

    def __init__(self, clock: Any, log: Logger) -> None:
        self._clock: Final = clock
        self._log: Final = log
        self._kinds: Final[dict[tuple[str, LogLevel], _Kind]] = {}
        self._reporting: IDelayedCall | None = None

    def may_log(self, kind: str, level: LogLevel, address: str) -> bool:
        """Whether a line is to be written; one that is not is counted.

        :param kind: what the line is about, in words for "and 5 more: KIND"; there are few of them.
            :param address: who has caused it.
        """
        now = self._clock.seconds()
        known = self._kinds.get((kind, level))
        if known is None:
            known = self._kinds[kind, level] = _Kind()
        if now - known.second >= 1:
            known.second, known.written = now, 0
        if known.written < MOST_A_SECOND:
            known.written += 1
            return True
        known.more += 1
        if len(known.addresses) < _MOST_ADDRESSES:
            known.addresses.add(address)
        if self._reporting is None:
            self._reporting = self._clock.callLater(REPORT_S, self.report)
        return False

    def report(self) -> None:
        """Tell what was left out until now; also for the end of the service."""
        reporting, self._reporting = self._reporting, None
        if reporting is not None and reporting.active():
            reporting.cancel()
        for (kind, level), known in self._kinds.items():
            more, known.more = known.more, 0
            if more:
                addresses = len(known.addresses)
                known.addresses.clear()
                self._log.emit(
                    level,
                    "and {more} more from {addresses} {noun} in the last minute: {kind}",
                    more=more,
                    addresses=f"{addresses} or more" if addresses == _MOST_ADDRESSES else addresses,
                    noun="address" if addresses == 1 else "addresses",
                    kind=kind,
                )
