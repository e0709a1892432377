"""The signals that the gateway hears: SIGHUP, SIGTERM, SIGINT.

Owns that the first of those that end it counts. What is done then is its user's.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Final


class Signals:
    """What the gateway hears. On the main thread only.

    :param reactor: the reactor, to be stopped once: it calls a second time an error, and its own
        handlers stop it at each signal.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor: Final = reactor
        self._ending = False

    def on_hang_up(self, reload: Callable[[], None]) -> None:
        """Call ``reload`` in the reactor at each SIGHUP, where there is one."""

        def hang_up(number: int, frame: object) -> None:
            self._reactor.callFromThread(reload)

        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, hang_up)

    def end_once(self) -> None:
        """Let only the first SIGTERM or SIGINT have an effect.

        It does what the reactor has it do. To be called when the reactor runs.
        """

        def once(stop: Callable[[int, Any], object]) -> Callable[[int, Any], None]:
            def heard(number: int, frame: object) -> None:
                if not self._ending:
                    self._ending = True
                    stop(number, frame)

            return heard

        for number in (signal.SIGTERM, signal.SIGINT):
            stop = signal.getsignal(number)
            if callable(stop):
                signal.signal(number, once(stop))

    def stop_reactor(self) -> None:
        """Stop the reactor as a signal would; nothing where one has."""
        if not self._ending:
            self._ending = True
            self._reactor.stop()
