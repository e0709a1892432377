"""The steps of starting and stopping a bridge: its links and the rest at once, for so long and no
longer, and what is told of those that failed or are late.

Owns that waiting and what the log is told. Which steps there are is :mod:`bridge.jms_bridge`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.status import LinkState, WrongState
from bridge.waiting import gather

_LINK: Final = "link "


class Steps:
    """Those of one bridge.

    :param state: the state of the link of that name; None where there is none.
    """

    def __init__(self, reactor: Any, log: Logger, state: Callable[[str], LinkState | None]) -> None:
        self._reactor: Final = reactor
        self._log: Final = log
        self._state: Final = state

    async def take(self, operation: str, awaited: dict[str, Deferred[Any]], seconds: float) -> None:
        """Wait for these at most so long, and tell of what failed or is late.

        :param operation: ``start``, ``stop``, ``pause`` or ``resume``. :param awaited: by what they
            are called, a link as :func:`key` says.
        """
        ended = await gather(self._reactor, awaited, max(0.0, seconds), self._failed)
        for name, failure in ended.failures.items():
            self._failed(name, failure)
        for name in ended.late:
            if operation in ("start", "resume"):
                self._log.info("{name}: still being started", name=name)
            else:
                self._log.warn(
                    "{name}: did not {operation} in time", name=name, operation=operation
                )

    def _failed(self, name: str, failure: Failure) -> None:
        if self._state(name.removeprefix(_LINK)) in (LinkState.FAILED, LinkState.RETRYING):
            # It has told.
            return
        if not isinstance(failure.value, WrongState):
            self._log.failure("{name} failed", failure, name=name)
        else:
            self._log.warn("{error}", error=failure.value)


def key(link: str) -> str:
    """What a link is called where what was asked of it is awaited."""
    return f"{_LINK}{link}"
