"""One dead message queue: connection, transformer, attempts to send.

It does what the ``dmq`` element configures (Open MQ's Table 12-7). The order of the queues is in
:mod:`bridge.dead.chain`, the form of a dead message in :mod:`bridge.dead.message`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from bridge.config.model import BUILT_IN_DMQ_DESTINATION, BUILT_IN_DMQ_NAME, ConnectionFactory, Dmq
from bridge.connections.administered import AdministeredFactory, FactoryError
from bridge.connections.connections import ConnectionKind, ConnectionLender, Connections, Lease
from bridge.connections.factories import Factories
from bridge.dead.java_transformer import JavaDeadTransformer
from bridge.dead.message import Body, Burial, DeadMessage, body_of, headers_of
from bridge.providers.jms.failures import JavaMissing
from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    MessageRejected,
    MessagingError,
    OutcomeUnknown,
    ProviderUnavailable,
)
from gateway.messaging.message import Message, Unreadable
from gateway.messaging.provider import Mode
from gateway.messaging.transformer import (
    BridgeType,
    MessageTransformer,
    TransformFailed,
    transformed,
)
from gateway.reactor.clocks import wall_ms
from gateway.reactor.deferreds import timeout

#: Seconds that closing waits for what is being sent.
CLOSING_S: Final = 5.0
#: Errors that an operator must mend: the queue has failed.
_FINAL: Final = (FactoryError, JavaMissing)
#: The broker of this instance, for the built-in queue; no element of a file may have this name.
_THIS_INSTANCE: Final = ConnectionFactory(BUILT_IN_DMQ_NAME)
_STOPPING: Final = "the bridge is stopping, or its dead message queues were configured anew"


class NotTaken(MessagingError):
    """A dead message queue did not take a message.

    :param queue: its name.
    :param attempts: how many were made.
    :param cause: why the last failed.
    """

    def __init__(self, queue: str, attempts: int, cause: str) -> None:
        super().__init__(
            f"{queue}, after {attempts} attempt{'' if attempts == 1 else 's'}: {cause}"
        )
        self.queue = queue
        self.attempts = attempts
        self.cause = cause


@dataclass(frozen=True, slots=True)
class DmqStatus:
    """A dead message queue at one moment.

    :param destination: ``queue:NAME`` or ``topic:NAME``, or its look-up name until it is looked up.
    :param connection_factory: its ``ref-name``; "" for the broker of this instance, where the
        built-in one is.
    :param embedded: whether it is at the broker of this instance.
    :param sent: messages it has taken.
    :param not_taken: messages given up after all attempts.
    :param failed_attempts: attempts that failed, also where a later one succeeded.
    :param last_error: the last failure's text, "" without one.
    :param last_error_ms: when that was, epoch milliseconds; 0 for never.
    :param kind: of its connections; None until it is known.
    :param failed: whether it cannot work as it is configured; no attempts are made then.
    """

    name: str
    destination: str
    connection_factory: str
    embedded: bool
    built_in: bool
    enabled: bool
    stay_connected: bool
    kind: ConnectionKind | None
    failed: bool
    sent: int
    not_taken: int
    failed_attempts: int
    last_error: str
    last_error_ms: int


class DeadMessageQueue:
    """One dead message queue.

    Any number of messages may be sent at the same time. One that waits between two attempts does
    not hold up the others.

    :param reactor: its clock.
    :param transformer: of the queue's ``message-transformer-class``; None without one.
    :param log: the bridge's.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        config: Dmq,
        factories: Factories,
        connections: Connections,
        transformer: MessageTransformer | JavaDeadTransformer | None,
        log: Logger,
    ) -> None:
        self.config: Final = config
        self.name: Final = config.name
        #: The built-in one can be neither disabled nor moved, and keeps its connection.
        self.enabled: Final = config.enabled or config.built_in
        self.stay_connected: Final = config.stay_connected or config.built_in
        self._reactor: Final = reactor
        self._factories: Final = factories
        self._connections: Final = connections
        self._transformer: Final = transformer
        self._log: Final = log
        self._factory: AdministeredFactory | None = None
        self._lender: ConnectionLender | None = None
        self._destination: Destination | None = (
            BUILT_IN_DMQ_DESTINATION
            if config.built_in or config.destination is None
            else config.destination.by_name
        )
        self._closed = False
        #: Why it cannot work; "" as long as it may.
        self._final = ""
        #: Messages that are being sent, also those that wait between attempts; and what fires
        #: when it is empty.
        self._under_way = 0
        self._idle: Deferred[None] | None = None
        #: Pauses between attempts, which are cancelled when the queue is closed.
        self._pauses: Final[set[Deferred[None]]] = set()
        self._sent = 0
        self._not_taken = 0
        self._failed_attempts = 0
        self._last_error = ""
        self._last_error_ms = 0

    async def connect(self) -> None:
        """Connect now, if it stays connected.

        Makes one attempt; a failure is logged, and the first message tries again.
        """
        if not self.enabled or not self.stay_connected or self._closed:
            return
        try:
            lease = await self._factory_and_lender()[1].borrow(_completion_tells)
            await lease.give_back()
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            # A provider of another package may raise anything. Nothing may keep the bridge from
            # starting.
            self._failed(error)
            if not self._final:
                self._log.warn(
                    "dead message queue {queue} cannot be connected: {error}",
                    queue=self.name,
                    error=str(error),
                )

    async def send(self, burial: Burial) -> None:
        """Send a dead message, with up to ``send-attempts`` attempts.

        When this returns, the message is durable in the queue.

        A queue that has failed gets no further attempt. The transformer is called, and the body is
        made, once for all attempts.

        :raises NotTaken: no attempt succeeded, or the queue was closed meanwhile.
        """
        self._under_way += 1
        try:
            await self._send(burial)
        except NotTaken:
            self._not_taken += 1
            raise
        finally:
            self._under_way -= 1
            if self._idle is not None and not self._under_way:
                idle, self._idle = self._idle, None
                idle.callback(None)

    async def close(self) -> None:
        """Make no further attempt, and return the connection.

        What is being sent has :data:`CLOSING_S` to complete; pauses between attempts end at once.
        """
        self._closed = True
        for pause in list(self._pauses):
            pause.cancel()
        if self._under_way:
            self._idle = Deferred()
            if not await timeout(self._reactor, CLOSING_S, self._idle):
                self._log.warn(
                    "dead message queue {queue} is closed while it sends", queue=self.name
                )
        if self._lender is not None:
            await self._lender.close()
        if isinstance(self._transformer, JavaDeadTransformer):
            await self._transformer.close()

    def status(self) -> DmqStatus:
        """Return its status."""
        config = self.config
        unknown = config.destination.lookup_name if config.destination is not None else None
        return DmqStatus(
            name=self.name,
            destination=str(self._destination or unknown or ""),
            connection_factory=""
            if config.built_in or config.connection_factory is None
            else config.connection_factory.ref_name,
            embedded=config.built_in
            or config.connection_factory is None
            or config.connection_factory.embedded,
            built_in=config.built_in,
            enabled=self.enabled,
            stay_connected=self.stay_connected,
            kind=None if self._lender is None else self._lender.kind,
            failed=bool(self._final),
            sent=self._sent,
            not_taken=self._not_taken,
            failed_attempts=self._failed_attempts,
            last_error=self._last_error,
            last_error_ms=self._last_error_ms,
        )

    # --- inside

    def _factory_and_lender(self) -> tuple[AdministeredFactory, ConnectionLender]:
        """Return the connection factory and its connections, made at first use.

        :raises FactoryError:
        """
        if self._factory is None or self._lender is None:
            config = self.config.connection_factory
            if self.config.built_in or config is None:
                config = _THIS_INSTANCE
            factory = self._factories.get(config)
            self._lender = self._connections.for_sending(
                factory,
                self.stay_connected,
                self.config.clientid,
                f"dead message queue {self.name}",
            )
            self._factory = factory
        return self._factory, self._lender

    async def _send(self, burial: Burial) -> None:
        attempts = self.config.send_attempts
        body: Body | None = None
        for attempt in range(1, attempts + 1):
            if self._closed:
                raise NotTaken(self.name, attempt - 1, _STOPPING)
            if self._final:
                raise NotTaken(self.name, attempt - 1, self._final)
            try:
                factory, lender = self._factory_and_lender()
                if body is None:
                    body = await self._body(burial, factory)
                sent = await self._attempt(factory, lender, burial, body)
            except CancelledError:
                raise
            except Exception as error:
                # As in connect.
                self._failed(error)
                if not self._final:
                    self._tell(error, burial.dead, attempt)
                if attempt == attempts or self._final:
                    raise NotTaken(self.name, attempt, str(error)) from error
                await self._pause()
            else:
                self._sent += 1
                self._log.debug(
                    "message {message_id} of link {link} is in dead message queue {queue} as {dead_id}",
                    message_id=burial.dead.message.message_id,
                    link=burial.dead.link,
                    queue=self.name,
                    dead_id=sent.message_id,
                )
                return

    async def _attempt(
        self,
        factory: AdministeredFactory,
        lender: ConnectionLender,
        burial: Burial,
        body: Body,
    ) -> Message:
        destination, configured = self._destination, self.config.destination
        if destination is None or (configured is not None and configured.by_name is None):
            assert configured is not None
            destination = self._destination = await factory.destination(configured)
        headers = headers_of(burial.dead, burial.properties, body, destination)
        lease = await lender.borrow(_completion_tells)
        broken = True
        try:
            # Made anew, as a provider keeps what it was given.
            lives_ms = self.config.time_to_live_ms
            expires = self._now_ms() + lives_ms if lives_ms > 0 else 0
            message = Message(headers, body.octets, expires=expires)
            await _durably(lease, message)
            broken = False
        except MessagingError as error:
            broken = _ends_connection(error)
            raise
        finally:
            await lease.give_back(broken)
        return message

    async def _body(self, burial: Burial, factory: AdministeredFactory) -> Body:
        """Return the body: of what the transformer made, or of the original.

        Steps 2 and 3 of the sequence.
        """
        whole = not isinstance(burial.dead.message, Unreadable)
        content = (
            await self._transformed(self._transformer, burial.dead, factory)
            if self._transformer is not None and whole
            else None
        )
        body = burial.body if content is None else body_of(burial.dead.message, content)
        if body.failure:
            self._log.warn(
                "dead message queue {queue}: message {message_id} of link {link} is kept as text, because {failure}",
                queue=self.name,
                message_id=burial.dead.message.message_id,
                link=burial.dead.link,
                failure=body.failure,
            )
        return body

    async def _transformed(
        self,
        transformer: MessageTransformer | JavaDeadTransformer,
        dead: DeadMessage,
        factory: AdministeredFactory,
    ) -> Message | None:
        """Call the transformer.

        Return None, for the original itself, where it fails.
        """
        source, target = dead.source_provider, factory.product
        try:
            if isinstance(transformer, JavaDeadTransformer):
                result = await transformer.transform(
                    dead.message, source, target, self.config.properties
                )
            else:
                result = transformed(
                    transformer,
                    BridgeType.JMS,
                    dead.message,
                    read_only=True,
                    charset_name=None,
                    source=source,
                    target=target,
                    properties=self.config.properties or None,
                )
        except TransformFailed as failed:
            self._log.failure(
                "dead message queue {queue}: {failed}; message {message_id} of link {link} is kept as it was",
                failure=Failure(failed.__cause__ or failed),  # type: ignore[no-untyped-call]
                level=LogLevel.warn,
                queue=self.name,
                failed=failed,
                message_id=dead.message.message_id,
                link=dead.link,
            )
            return None
        if result.no_transfer or result.branch_to is not None:
            self._log.warn(
                "dead message queue {queue}: its message transformer's {what} is ignored, as what is dead goes to the queue",
                queue=self.name,
                what="no_transfer()" if result.no_transfer else "branch_to()",
            )
        return result.message

    async def _pause(self) -> None:
        if self._closed:
            return
        pause: Deferred[None] = deferLater(self._reactor, self.config.send_attempt_interval_s)
        self._pauses.add(pause)
        try:
            await pause
        except CancelledError:
            if not self._closed:
                raise
        finally:
            self._pauses.discard(pause)

    def _failed(self, error: Exception) -> None:
        self._failed_attempts += 1
        self._last_error = str(error) or type(error).__name__
        self._last_error_ms = self._now_ms()
        if isinstance(error, _FINAL) and not self._final:
            self._final = self._last_error
            self._log.error(
                "dead message queue {queue} has failed, and takes no message until its bridge is started anew: {error}",
                queue=self.name,
                error=self._final,
            )

    def _tell(self, error: Exception, dead: DeadMessage, attempt: int) -> None:
        text = "dead message queue {queue}: attempt {attempt} of {attempts} to send message {message_id} of link {link} failed: {error}"
        fields = {
            "queue": self.name,
            "attempt": attempt,
            "attempts": self.config.send_attempts,
            "message_id": dead.message.message_id,
            "link": dead.link,
            "error": str(error),
        }
        if isinstance(error, MessagingError):
            self._log.warn(text, **fields)
        else:
            self._log.failure(text, failure=Failure(error), level=LogLevel.warn, **fields)  # type: ignore[no-untyped-call]

    def _now_ms(self) -> int:
        return wall_ms(self._reactor)


async def _durably(lease: Lease, message: Message) -> None:
    """Send a message, and return when it is durable."""
    session = lease.connection.session(Mode.AUTO)
    try:
        session.send([message])
        done: Deferred[MessagingError | None] = Deferred()
        session.completion(done.callback)
        error = await done
        if error is not None:
            raise error
    finally:
        session.close()


def _ends_connection(error: MessagingError) -> bool:
    """Return whether this error ends the connection.

    A queue that is full or denied does not.
    """
    cause = error.cause if isinstance(error, MessageRejected) else error
    return isinstance(cause, ProviderUnavailable | OutcomeUnknown)


def _completion_tells(error: MessagingError) -> None:
    """Ignore the loss of a connection.

    The completion reports it for the message being sent; the next message borrows another.
    """
