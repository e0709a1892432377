"""The chain of dead message queues of one bridge.

Open MQ, "Dead Message Queue (DMQ) Processing".

A message goes to the built-in queue first, always. Then it goes to the others that are enabled, in
the order of the file, up to the first of these that takes it. It is kept if any queue has taken it,
the built-in one or another. The attempts at one queue are made in :mod:`bridge.dead.queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from bridge.config.model import Bridge, Dmq
from bridge.connections.connections import Connections
from bridge.connections.factories import Factories
from bridge.dead.java_transformer import JavaDeadTransformer
from bridge.dead.message import Burial, DeadMessage, headers_line, properties_line
from bridge.dead.queue import DeadMessageQueue, DmqStatus, NotTaken
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Unreadable
from gateway.messaging.transformer import MessageTransformer
from gateway.reactor.clocks import wall_ms

__all__ = ["DeadMessage", "DeadMessageQueues", "DmqStatus", "NotBuried", "NotTaken"]

#: Finds a transformer: the class's name, for errors what names it, and the queue.
LoadTransformer = Callable[[str, str, Dmq], MessageTransformer | JavaDeadTransformer]

#: Characters of a message that one line of the log has at most; what is longer has several.
_LINE: Final = 12_000


class NotBuried(MessagingError):
    """No queue has taken a dead message; the source must keep it.

    It is also raised when the chain was stopped before its end.

    :param message_id: of the original.
    :param failures: of each queue that did not take it.
    :param taken_by: queues that have it nevertheless.
    """

    def __init__(
        self, message_id: str, failures: Sequence[NotTaken], taken_by: Sequence[str] = ()
    ) -> None:
        reasons = "; ".join([str(failure) for failure in failures]) or "the bridge is stopping"
        super().__init__(
            f"message {message_id} is dead, and no dead message queue has taken it for good: {reasons}"
        )
        self.failures = tuple(failures)
        self.taken_by = tuple(taken_by)


class DeadMessageQueues:
    """The dead message queues of one bridge.

    :param reactor: its clock.
    :param bridge: the configuration.
    :param load_transformer: finds the classes that ``message-transformer-class`` names; what it
        raises, the constructor raises.
    :param log: the bridge's. Each dead message is logged before anything else is done with it.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        bridge: Bridge,
        factories: Factories,
        connections: Connections,
        load_transformer: LoadTransformer,
        log: Logger,
    ) -> None:
        self._reactor: Final = reactor
        self._factories: Final = factories
        self._connections: Final = connections
        self._load_transformer: Final = load_transformer
        self._log: Final = log
        self._stopped = False
        self._queues = tuple([self._made(config) for config in (bridge.built_in_dmq, *bridge.dmqs)])

    async def start(self) -> None:
        """Connect the queues that are enabled and stay connected.

        A failure is logged, and each message tries again.
        """
        await gatherResults(
            [Deferred.fromCoroutine(queue.connect()) for queue in self._queues], consumeErrors=True
        )

    async def bury(self, dead: DeadMessage) -> None:
        """Keep a dead message.

        When this returns, the message is durable in a dead message queue, and its source may forget
        it.

        At least once: one that is buried again after a failure may be in a queue twice, with the
        same ``JMS_SUN_JMSBRIDGE_SOURCE_MESSAGEID``. Calls may overlap. Messages that are buried one
        after the other keep their order in the queues.

        :raises NotBuried: no queue took it, or :meth:`stop` was called. Then the log has all that is
            known of the message.
        """
        burial = Burial(dead, wall_ms(self._reactor))
        self._log_dead(burial)
        failures: list[NotTaken] = []
        taken_by: list[str] = []
        for queue in self._queues:
            if not queue.enabled:
                continue
            try:
                await queue.send(burial)
            except NotTaken as failure:
                failures.append(failure)
            else:
                taken_by.append(queue.name)
                if not queue.config.built_in:
                    return
        if taken_by and not self._stopped:
            return
        if taken_by and not failures:
            return
        self._log_everything(burial, failures, taken_by)
        raise NotBuried(dead.message.message_id, failures, taken_by)

    async def stop(self) -> None:
        """Make no further attempt, and close the connections.

        Callers that wait between two attempts get :class:`NotBuried` at once.
        """
        self._stopped = True
        await gatherResults(
            [Deferred.fromCoroutine(queue.close()) for queue in self._queues], consumeErrors=True
        )

    def status(self) -> Sequence[DmqStatus]:
        """Return the status of each queue, also of disabled ones, in their order."""
        return [queue.status() for queue in self._queues]

    def _made(self, config: Dmq) -> DeadMessageQueue:
        transformer: MessageTransformer | JavaDeadTransformer | None = None
        if config.message_transformer_class is not None and (config.enabled or config.built_in):
            transformer = self._load_transformer(
                config.message_transformer_class,
                f"dmq {config.name}, message-transformer-class",
                config,
            )
        return DeadMessageQueue(
            self._reactor, config, self._factories, self._connections, transformer, self._log
        )

    # --- the log

    def _log_dead(self, burial: Burial) -> None:
        dead = burial.dead
        level = LogLevel.info if dead.reason is BridgeDeadReason.MESSAGE_EXPIRED else LogLevel.warn
        if isinstance(dead.message, Unreadable):
            level = LogLevel.error
        self._log.emit(
            level,
            "link {link}: message {message_id} is dead, {reason}{colon}{exception}; headers: {headers}; properties: {properties}",
            link=dead.link,
            message_id=dead.message.message_id,
            reason=dead.reason.value,
            colon=": " if dead.exception else "",
            exception=dead.exception,
            headers=headers_line(dead.message),
            properties=properties_line(dead.message.headers.properties),
        )

    def _log_everything(
        self, burial: Burial, failures: Sequence[NotTaken], taken_by: Sequence[str]
    ) -> None:
        """Log all that is known of a message that no queue has: step 6."""
        dead = burial.dead
        everything = "; ".join(
            (
                f"dead message: {properties_line(burial.properties)}",
                f"headers: {headers_line(dead.message)}",
                f"properties: {properties_line(dead.message.headers.properties)}",
            )
        )
        parts = [everything[start : start + _LINE] for start in range(0, len(everything), _LINE)]
        for number, part in enumerate(parts, 1):
            self._log.error(
                "link {link}: message {message_id} is dead and {where}, part {part} of {parts}: {message}; the queues: {failures}"
                if len(parts) > 1
                else "link {link}: message {message_id} is dead and {where}: {message}; the queues: {failures}",
                link=dead.link,
                message_id=dead.message.message_id,
                where=f"in {', '.join(taken_by)} only" if taken_by else "in no dead message queue",
                part=number,
                parts=len(parts),
                message=part,
                failures="; ".join([str(failure) for failure in failures]) or "none was tried",
            )
