"""Supervises the Java processes of JMS providers.

There is one for each class path and set of options. It is started when it is first needed, and
again when it has died.

Owns when a process is started, the pauses between failures, and how many messages a client may
fetch ahead after its heap was full. The life of one process is
:mod:`bridge.providers.jms.process`'s.
"""

from __future__ import annotations

import os
from typing import Any, Final

from twisted.logger import Logger

from bridge.providers.jms.java_command import MIB, Command, JavaOptions, NoHeapLeft, command
from bridge.providers.jms.process import JavaProcess, Times
from bridge.providers.jms.wire import WireError
from gateway.messaging.errors import ProviderUnavailable
from gateway.reactor.deferreds import deferred, timeout

#: A process that has lived this many seconds does not repeat an earlier failure.
_LASTING: Final = 10.0
_LONGEST_PAUSE: Final = 30.0
#: Seconds that a process must live until earlier full heaps no longer count.
_FORGIVEN: Final = 86_400.0
#: Messages that a client may fetch ahead, where the provider says how that is bounded: at first,
#: and divided by so much each time that the heap was full.
_MOST_AHEAD: Final = 1000
_LESS_AHEAD: Final = 8

_log: Final = Logger(namespace="bridge.jms")


class Supervisor:
    """Runs the process for one class path and set of options.

    :func:`supervisor_of` finds it.
    """

    def __init__(self, reactor: Any, options: JavaOptions, times: Times = Times()) -> None:  # noqa: B008
        self._reactor = reactor
        self._options = options
        self._times = times
        self.process: JavaProcess | None = None
        self._deaths = 0
        self._not_before = 0.0
        self._reason = ""
        self._ahead = _MOST_AHEAD

    @deferred
    async def running(self, seconds: float) -> JavaProcess:
        """The process, ready to be asked. Start it if none runs.

        :param seconds: how long that may take.
        :returns: fails with ProviderUnavailable: it did not start, or has just failed and is not to
            be started again yet; with its ClientMissing: Java or a part of the class path is
            missing.
        """
        try:
            process = self.process or self._start()
        except WireError as error:
            raise ProviderUnavailable(
                f"system properties with names of secrets (-D in imq.jms.jvmOptions) are too long: {error}"
            ) from error
        except OSError as error:
            raise ProviderUnavailable(
                f"Java cannot be started: the gateway's machine refuses another process: {error}"
            ) from error
        if not await timeout(self._reactor, seconds, process.ready()):
            raise ProviderUnavailable(
                f"Java did not start within {seconds:g} s; the machine may have too little processor time for it"
            )
        return process

    def _start(self) -> JavaProcess:
        left = self._not_before - self._reactor.seconds()
        if left > 0:
            raise ProviderUnavailable(f"{self._reason}; it is started again in {left:.0f} s")
        made = self._command()
        taken = [process.heap for process in _running()]
        made.properties["stompgateway.ahead"] = str(self._ahead)
        together = sum(taken) + made.heap
        if together > self._options.heaps:
            _log.warn(
                "Java heaps may take {together} MiB together, by -Xmx in imq.jms.jvmOptions; beside the broker there are {heaps} MiB for them",
                together=together // MIB,
                heaps=self._options.heaps // MIB,
            )
        process = JavaProcess(self._reactor, made, self._times, self._ended)
        self.process = process
        return process

    def _command(self) -> Command:
        """The command. End unused processes if their heaps leave no memory for it.

        :raises NoHeapLeft: the heaps of processes in use leave too little.
        """
        try:
            return command(self._options, [process.heap for process in _running()], os.environ)
        except NoHeapLeft:
            # Raises again, before a process is ended, where ending them would not be enough.
            command(
                self._options,
                [process.heap for process in _running() if process.unused_until is None],
                os.environ,
            )
        longest = min(
            (process for process in _running() if process.unused_until is not None),
            key=lambda one: one.unused_until or 0.0,
        )
        longest.close()
        return self._command()

    def _ended(self, process: JavaProcess) -> None:
        self.process = None
        if process.orderly:
            return
        self._reason = str(process.error)
        now = self._reactor.seconds()
        if now - process.started >= _LASTING:
            self._deaths = 0
        if now - process.started >= _FORGIVEN:
            self._ahead = _MOST_AHEAD
        if process.exhausted:
            self._ahead = max(1, self._ahead // _LESS_AHEAD)
        # After its first death it is started at once.
        pause = min(_LONGEST_PAUSE, 2.0 ** min(self._deaths - 1, 10)) if self._deaths else 0.0
        self._not_before = now + pause
        self._deaths += 1
        _log.warn("{reason}", reason=self._reason)


_supervisors: Final[dict[JavaOptions, Supervisor]] = {}


def _running() -> list[JavaProcess]:
    return [process for one in _supervisors.values() if (process := one.process) is not None]


def supervisor_of(reactor: Any, options: JavaOptions) -> Supervisor:
    """The supervisor of the process for these options.

    Factories of equal options share it, also those of different bridges.
    """
    found = _supervisors.get(options)
    if found is None:
        found = _supervisors[options] = Supervisor(reactor, options)
    return found
