"""The dead message queues of the bridges, for operators.

List one, replay or purge what is in it.

Owns how that is done without losing or doubling a message: what is taken from the queue and what is
sent in its place are one transaction, of at most :data:`BATCH` messages. The queues are at the
broker of this instance, the built-in one where no other is named.

A message is replayed as the original that its envelope holds, with a new id and timestamp, to where
a link got it from. That place must be on this instance's broker, or the operator names another. A
message that had expired is sent without an expiration. What cannot be replayed is left where it is,
and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bridge.config.model import BUILT_IN_DMQ_DESTINATION
from gateway.admin.service.browsing import Browsing, Reader, Taking, portions, reader
from gateway.admin.service.requests import Refused
from gateway.messaging import dead
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import EnvelopeError, decode
from gateway.messaging.errors import MessageRejected, MessagingError
from gateway.messaging.message import BodyType, Message
from gateway.messaging.provider import DUPLICATE_ID, Credentials, Mode, Provider
from gateway.reactor.clocks import wall_ms

#: Messages that are taken, and sent, in one transaction.
BATCH: Final = 100
#: Messages that are listed by default.
LISTED: Final = 100
#: Reasons that are told of messages left alone; there may be as many as there are messages.
_MOST_REASONS: Final = 10


@dataclass(slots=True)
class Tally:
    """What became of the messages that the selector matched.

    :param matched: all that were looked at.
    :param done: replayed or purged; in a dry run, those that would be.
    :param left: left in the queue because they cannot be replayed.
    :param gone: taken by somebody else meanwhile.
    :param reasons: why messages were left, each reason with how often, the first few.
    """

    matched: int = 0
    done: int = 0
    left: int = 0
    gone: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def leave(self, reason: str) -> None:
        self.left += 1
        if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


class DeadMessages:
    """What an operator can do with a dead message queue.

    :param reactor: the clock.
    :param provider: the broker of this instance.
    :param credentials: as whom it is asked; asked for each time.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        provider: Provider,
        credentials: Callable[[], Credentials],
        log: Logger,
    ) -> None:
        self._reactor = reactor
        self._provider = provider
        self._credentials = credentials
        self._log = log
        self._busy = ""

    async def list(
        self,
        selector: str | None = None,
        limit: int = LISTED,
        *,
        queue: Destination = BUILT_IN_DMQ_DESTINATION,
    ) -> tuple[list[dict[str, object]], bool]:
        """Return the first messages that match, and whether there are more.

        :returns: the messages are in JSON.
        :raises MessagingError: the selector is wrong, or the broker refuses.
        """
        async with reader(self._provider, self._credentials) as reading:
            found = await reading.first(queue, selector, limit + 1)
        return [described(message) for message in found[:limit]], len(found) > limit

    async def replay(
        self,
        selector: str | None = None,
        to: Destination | None = None,
        limit: int = 0,
        *,
        dry_run: bool = False,
        queue: Destination = BUILT_IN_DMQ_DESTINATION,
    ) -> Tally:
        """Send again what the selector matches, and take it out of the queue.

        :param to: where to, instead of to where each came from.
        :param limit: how many messages to send at most; 0 is no limit.
        :param dry_run: only say what would be done.
        :raises MessagingError: the selector is wrong, or the broker refuses. What was committed
            until then stays done.
        :raises Refused: another replay or purge is under way.
        """
        if to is not None and (to == queue or to.temporary):
            raise Refused(f"messages cannot be replayed to {to}", "bad_request")
        here = self._provider.resource

        def original(message: Message) -> Message:
            return original_of(message, queue, here, to, self._now_ms())

        return await self._alone("replay", queue, selector, limit, dry_run, original)

    async def purge(
        self,
        selector: str | None = None,
        limit: int = 0,
        *,
        dry_run: bool = False,
        queue: Destination = BUILT_IN_DMQ_DESTINATION,
    ) -> Tally:
        """Throw away what the selector matches.

        The parameters and errors are those of :meth:`replay`.
        """
        return await self._alone("purge", queue, selector, limit, dry_run, lambda message: None)

    def _now_ms(self) -> int:
        return wall_ms(self._reactor)

    async def _alone(
        self,
        what: str,
        queue: Destination,
        selector: str | None,
        limit: int,
        dry_run: bool,
        replacement: Callable[[Message], Message | None],
    ) -> Tally:
        if self._busy and not dry_run:
            raise Refused(
                f"a {self._busy} of dead messages is under way", "busy", HTTPStatus.CONFLICT
            )
        if not dry_run:
            self._busy = what
        tally = Tally()
        try:
            await self._go_through(tally, queue, selector, limit, dry_run, replacement)
        finally:
            if not dry_run:
                self._busy = ""
                self._log.info(
                    "{what} of {queue}: {done} done, {left} left, {gone} gone of {matched} messages",
                    what=what,
                    queue=queue,
                    done=tally.done,
                    left=tally.left,
                    gone=tally.gone,
                    matched=tally.matched,
                )
        return tally

    async def _go_through(
        self,
        tally: Tally,
        queue: Destination,
        selector: str | None,
        limit: int,
        dry_run: bool,
        replacement: Callable[[Message], Message | None],
    ) -> None:
        # What dies again on the way is not sent round and round: only what was there at the
        # beginning is looked at.
        began_ms = self._now_ms()
        async with reader(self._provider, self._credentials) as reading:
            browsing = Browsing(reading, queue, selector)
            while not limit or tally.done < limit:
                batch = await browsing.next(min(BATCH, limit - tally.done) if limit else BATCH)
                if not batch:
                    return
                wanted: dict[str, Message | None] = {}
                for message in batch:
                    if message.timestamp > began_ms or message.message_id in wanted:
                        continue
                    tally.matched += 1
                    try:
                        wanted[message.message_id] = replacement(message)
                    except NotAnEnvelope as error:
                        tally.leave(str(error))
                if dry_run:
                    tally.done += len(wanted)
                    continue
                for ids in portions(wanted):
                    await self._exchange(
                        reading, queue, {each: wanted[each] for each in ids}, tally
                    )

    async def _exchange(
        self,
        reading: Reader,
        queue: Destination,
        wanted: dict[str, Message | None],
        tally: Tally,
    ) -> None:
        """Take messages and send their replacements, in one transaction."""
        session = reading.connection.session(Mode.TRANSACTED)
        taking = Taking(reading, session, queue, wanted)
        try:
            got = await taking.all(self._reactor)
            sent = 0
            for number, message in got:
                replacing = wanted[message.message_id]
                if replacing is not None:
                    try:
                        session.send([replacing])
                    except MessageRejected as error:
                        # The queue keeps it; the others go on.
                        tally.leave(str(error))
                        continue
                taking.consumer.acknowledge([number])
                sent += 1
            done: Deferred[MessagingError | None] = Deferred()
            session.commit(done.callback)
            failed = await done
            if failed is not None:
                raise failed
            tally.done += sent
            tally.gone += len(wanted) - len(got)
        finally:
            session.close()


# --- dead messages and their originals


class NotAnEnvelope(Exception):
    """The message cannot be replayed; ``str`` says why."""


def original_of(
    message: Message, queue: Destination, here: str, to: Destination | None, now_ms: int
) -> Message:
    """The message to send for a dead one.

    :param queue: where it is.
    :param here: the resource manager that the broker of this instance is.
    :param to: where to send it; None is where it came from.
    :param now_ms: epoch milliseconds now.
    :raises NotAnEnvelope: it holds no message, or there is no place here that it came from.
    """
    original = _decoded(message)
    said = message.headers.properties
    if to is None:
        if said.get(dead.BRIDGE_SOURCE_RESOURCE) != here:
            # Not by its name, which the broker of every instance has.
            raise NotAnEnvelope("it came from another provider: name a destination")
        to = (
            destination_of(str(said.get(dead.BRIDGE_SOURCE_DESTINATION, "")))
            or original.headers.destination
        )
        if to == queue or to.temporary:
            raise NotAnEnvelope(
                "it came from a place that it cannot go back to: name a destination"
            )
    expires = original.expires if original.expires > now_ms else 0
    # Its id is remembered where it was, which must not drop what an operator sends again.
    properties = {
        name: value for name, value in original.headers.properties.items() if name != DUPLICATE_ID
    }
    return Message(
        original.headers.replace(destination=to, properties=properties),
        original.body,
        expires=expires,
    )


def _decoded(message: Message) -> Message:
    if message.headers.body_type is not BodyType.BYTES:
        raise NotAnEnvelope(
            f"its body is no envelope: it is of type {message.headers.body_type.name}"
        )
    try:
        return decode(message.body)
    except EnvelopeError as error:
        raise NotAnEnvelope(
            "its body is no envelope" if not message.body.startswith(b"\xabSGE") else str(error)
        ) from None


def destination_of(text: str) -> Destination | None:
    """Return the destination of ``queue:NAME`` or ``topic:NAME``.

    None where the text has neither form.
    """
    kind, _, name = text.partition(":")
    kinds = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}
    return Destination(kinds[kind], name) if kind in kinds and name else None


def described(message: Message) -> dict[str, object]:
    """Return a dead message in JSON: why it is dead, and its original."""
    properties = message.headers.properties
    shown: dict[str, object] = {
        "message_id": message.message_id,
        "timestamp_ms": message.timestamp,
        "expires_ms": message.expires,
        "octets": len(message.body),
        "reason": properties.get(dead.BRIDGE_REASON),
        "exception": properties.get(dead.BRIDGE_EXCEPTION),
        "dead_since_ms": number_of(properties.get(dead.BRIDGE_TIMESTAMP)),
        "source": properties.get(dead.BRIDGE_SOURCE_DESTINATION),
        "source_provider": properties.get(dead.BRIDGE_SOURCE_PROVIDER),
        "source_message_id": properties.get(dead.BRIDGE_SOURCE_MESSAGE_ID),
        "target": properties.get(dead.BRIDGE_TARGET_DESTINATION),
        "target_provider": properties.get(dead.BRIDGE_TARGET_PROVIDER),
        "properties": {
            name: shown_value(value)
            for name, value in properties.items()
            if name not in dead.BRIDGE_PROPERTIES
        },
    }
    try:
        original = _decoded(message)
    except NotAnEnvelope as error:
        return {**shown, "original": None, "problem": str(error)}
    shown["original"] = {
        "destination": str(original.headers.destination),
        "body_type": original.headers.body_type.name,
        "octets": len(original.body),
        "persistent": original.headers.persistent,
        "priority": original.headers.priority,
        "correlation_id": original.headers.correlation_id,
        "timestamp_ms": original.timestamp,
        "expires_ms": original.expires,
    }
    return {**shown, "problem": ""}


def shown_value(value: object) -> object:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def number_of(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None
