"""The message processing sequence of a link, step by step.

Open MQ's "Message Processing Sequence Across a Link in a JMS Bridge".

Owns what happens to one message between its source and its target, each step a method in the
guide's order:

1. it is received (:meth:`Transfer.receive`),
2. its expiry is checked (:meth:`Transfer.has_expired`),
3. its JMSReplyTo is dropped or kept (:meth:`Transfer._reply_to`),
4. the target's rules have it, and then the message transformer; each may send it elsewhere or
   nowhere (:meth:`Transfer._transform`, :meth:`Transfer.transformed`),
5. it is tagged with the name of the bridge, and with what HornetQ and the loop guard add
   (:meth:`Transfer._tag`),
6. it is made the message to send, with its time to live, delivery mode and priority
   (:meth:`Transfer._outgoing`).

Steps 7, acknowledgement, and 8, the line in the log, are of batches: :mod:`bridge.link.pump` has
them, and the order in which steps of several messages are taken. Has no connection. A ``ref-name``
is looked up, and a transformer in Java asked, by the caller: no other step waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.config.model import BRIDGE_NAME_PROPERTY, HOPS, MESSAGE_IDS, Bridge, Link
from bridge.dead.message import DeadMessage
from bridge.link.arrivals import Received
from bridge.link.java_transformer import JavaTransformer
from bridge.link.rules import Ruled, Rules
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Headers, Message, Unreadable
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.transformer import (
    BridgeType,
    MessageTransformer,
    Transformed,
    TransformFailed,
    transformed,
)


class LinkStops(MessagingError):
    """The transformer failed, and the link must not consume the message.

    ``consume-no-transfer-on-transform-error`` is false.

    Its ``__cause__`` is the :class:`TransformFailed`, whose own is what the transformer raised.
    """


class UnknownRefName(MessagingError):
    """A transformer branched to a ``ref-name`` that no ``destination`` has."""

    def __init__(self, ref_name: str) -> None:
        super().__init__(
            f"it branched to {ref_name!r}, which is no ref-name of a destination of the bridge"
        )


class CannotBeRead(MessagingError):
    """The source's provider has a message that it cannot read."""

    def __init__(self, message: Unreadable) -> None:
        where = message.headers.destination
        super().__init__(
            f"message {message.message_id or 'without an id'} of {where} cannot be read: {message.reason}"
        )


@dataclass(frozen=True, slots=True)
class ToSend:
    """The message goes on.

    :param message: what to send; not the message received.
    """

    message: Message


@dataclass(frozen=True, slots=True)
class Dead:
    """The message is given up: buried in a dead message queue, and consumed.

    :param exception: what was wrong.
    :param current: where it was going after AS_SOURCE or ``branch_to``; None where that was not
        known yet.
    """

    reason: BridgeDeadReason
    exception: str
    current: Destination | None = None


@dataclass(frozen=True, slots=True)
class NotTransferred:
    """A rule drops it, or the transformer said ``no_transfer``.

    It is consumed, and sent nowhere.
    """


@dataclass(frozen=True, slots=True)
class NeedsLookUp:
    """A rule or the transformer branched to a name that must be looked up.

    :meth:`Transfer.branch` goes on from here.

    :param ref_name: the name.
    :param message: what they made.
    :param before: what it was given.
    """

    ref_name: str
    message: Message
    before: Message


@dataclass(frozen=True, slots=True)
class NeedsJava:
    """The transformer, a class in Java, is to have a message.

    :meth:`Transfer.transformed` goes on from here.

    :param message: what the rules made.
    :param before: what was received.
    :param branch: where the rules send it.
    """

    message: Message
    before: Message
    branch: Destination | str | None


Outcome = ToSend | Dead | NotTransferred
#: An outcome, or what is needed for one.
Undecided = Outcome | NeedsLookUp | NeedsJava


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """What a transfer knows of source and target.

    :param destination: the target's; None is AS_SOURCE.
    :param source: what the source's provider calls itself.
    :param target: likewise.
    :param both_embedded: whether both are the broker of this instance.
    :param source_resource: the source's resource manager, where that is the broker of this
        instance; else "".
    """

    destination: Destination | None
    source: str
    target: str
    both_embedded: bool
    source_resource: str = ""


@dataclass(slots=True)
class Item:
    """A message of the batch, and what is still to be done about it.

    :param outcome: what the sequence made of it.
    :param place: in the batch, from 0.
    """

    received: Received
    outcome: Outcome
    place: int = 0
    #: The message that was handed to the target last; it is the provider's, so each attempt has one
    #: of its own.
    outgoing: Message | None = None
    #: The target may or may not have it.
    doubtful: bool = False
    #: That the target has it, for good.
    sent: bool = False
    #: Given up; None once a dead message queue has it.
    dead: DeadMessage | None = None
    #: Given up, and no dead message queue has taken it.
    lost: bool = False

    @property
    def to_be_sent(self) -> bool:
        """Whether the target is to have it, and has it not."""
        return not self.sent and isinstance(self.outcome, ToSend)

    @property
    def current(self) -> Destination | None:
        """Return where it goes, after AS_SOURCE or ``branch_to``; None if unknown."""
        return (
            self.outcome.message.headers.destination if isinstance(self.outcome, ToSend) else None
        )

    def again(self, message: Message) -> Message:
        """Return a message to hand to the target: itself at first, then a copy."""
        self.outgoing = (
            message
            if self.outgoing is None
            else Message(message.headers, message.body, expires=message.expires)
        )
        return self.outgoing

    def give_up(self, link: str, dead: Dead, sides: LinkEnds) -> None:
        """It is dead; :attr:`dead` has it until a dead message queue has."""
        message = self.received.message
        self.outcome = dead
        self.dead = DeadMessage(
            message=message,
            reason=dead.reason,
            exception=dead.exception,
            link=link,
            source_destination=message.headers.destination,
            source_provider=sides.source,
            target_destination=sides.destination,
            target_provider=sides.target,
            current_destination=None if dead.current == sides.destination else dead.current,
            source_resource=sides.source_resource,
        )


#: Finds the destination of a ``ref-name``, at the target's provider. :raises UnknownRefName:
Resolve = Callable[[str], Awaitable[Destination]]


class Transfer:
    """The sequence of one link.

    :param identity: names this link among all that a message may meet.
    :param transformer: the target's; None for none.
    :param resolve: finds what a transformer names by ``ref-name``.
    :param now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        link: Link,
        bridge: Bridge,
        identity: str,
        transformer: MessageTransformer | JavaTransformer | None,
        resolve: Resolve,
        now_ms: Callable[[], int],
    ) -> None:
        self._link: Final = link
        # They are listed with commas.
        self._identity: Final = identity.replace("%", "%25").replace(",", "%2C")
        self._rules: Final = Rules(link.target.rules)
        #: The transformer, where it is a class in Java.
        self.java: Final = transformer if isinstance(transformer, JavaTransformer) else None
        self._transformer: Final = None if isinstance(transformer, JavaTransformer) else transformer
        self._resolve: Final = resolve
        self._now_ms: Final = now_ms
        #: Whether each message gets an id by which the target knows it again.
        self.marks_duplicates = False
        self._bridge_name = ""
        self._tags = False
        #: The properties that a transformer is given.
        self.for_transformer: Mapping[str, str] = {}
        #: The headers made last, and from which, to where, with which reply-to: producers repeat
        #: themselves.
        self._last: tuple[Headers, Destination, Destination | None, Headers] | None = None
        self.configure(bridge)

    def configure(self, bridge: Bridge) -> None:
        """Heed these attributes of the bridge from the next message on."""
        self._bridge_name = bridge.name
        self._tags = bridge.message_transfer_tag_bridge_name
        self.for_transformer = {**self._link.target.properties, BRIDGE_NAME_PROPERTY: bridge.name}
        self._last = None

    # --- the steps

    def outcome_of(self, message: Message, sides: LinkEnds) -> Undecided:
        """Do steps 1 to 6 for a message received.

        Up to the middle of step 4 where Java must be asked, or a name be looked up.

        :raises LinkStops: the link must stop, and the message stays where it was.
        """
        # 1
        if isinstance(message, Unreadable):
            # Who pumps has tried it again and again. No reason of the table is its own: this is
            # that of all that cannot be sent as it is.
            return Dead(
                BridgeDeadReason.SEND_FAILURE, str(CannotBeRead(message)), sides.destination
            )
        # 2
        if self.has_expired(message):
            return self.expired(message)
        if self.marks_duplicates and not message.message_id:
            return Dead(
                BridgeDeadReason.SEND_FAILURE,
                "it has no message id, by which its target could know it again",
            )
        # 3
        reply_to = self._reply_to(message, sides)
        # 4
        if self._transformer is None and self.java is None and not self._rules:
            return self._addressed(message, message, None, reply_to, sides)
        visible = (
            message
            if reply_to is message.headers.reply_to
            else message.replaced(message.headers.replace(reply_to=reply_to))
        )
        ruled = self._rules.apply(visible)
        if ruled.dropped:
            return NotTransferred()
        if self.java is not None:
            return NeedsJava(ruled.message, message, _branch(ruled))
        try:
            result = self._transform(ruled, sides)
        except TransformFailed as failed:
            return self._failed(failed, sides)
        return self._went_on(result, message, sides)

    def transformed(
        self, asked: NeedsJava, result: Transformed | TransformFailed, sides: LinkEnds
    ) -> Outcome | NeedsLookUp:
        """Go on with a message that the transformer in Java has had.

        :param result: what came of it.
        :raises LinkStops: the link must stop, and the message stays where it was.
        """
        if isinstance(result, TransformFailed):
            return self._failed(result, sides)
        return self._went_on(_with_branch(result, asked.branch), asked.before, sides)

    def _went_on(
        self, result: Transformed, before: Message, sides: LinkEnds
    ) -> Outcome | NeedsLookUp:
        """The rest of step 4, for a message that rules and transformer have had."""
        if result.no_transfer:
            return NotTransferred()
        if isinstance(result.branch_to, str):
            return NeedsLookUp(result.branch_to, result.message, before)
        # Whatever the transformer made of it, if it made anything: it may set a reply-to.
        return self._addressed(
            result.message, before, result.branch_to, result.message.headers.reply_to, sides
        )

    async def branch(self, branched: NeedsLookUp, sides: LinkEnds) -> Outcome:
        """Go on with a message whose transformer branched to a name.

        :raises LinkStops: there is no such name, and the link must stop.
        :raises MessagingError: the target's provider could not be asked for the destination; to be
            tried again.
        """
        try:
            branch = await self._resolve(branched.ref_name)
        except UnknownRefName as unknown:
            failed = TransformFailed(self._name, sides.source, sides.target, str(unknown))
            failed.__cause__ = unknown
            return self._failed(failed, sides)
        message = branched.message
        return self._addressed(message, branched.before, branch, message.headers.reply_to, sides)

    @property
    def _name(self) -> str:
        """The transformer's class."""
        if self.java is not None:
            return self.java.name
        return f"{type(self._transformer).__module__}.{type(self._transformer).__qualname__}"

    def _addressed(
        self,
        message: Message,
        before: Message,
        branch: Destination | None,
        reply_to: Destination | None,
        sides: LinkEnds,
    ) -> Outcome:
        """Steps 5 and 6, for a message of which it is known where it goes.

        :param message: as transformed.
        :param before: as received.
        """
        source = before.headers.destination
        # At another provider it does not matter whose temporary one it was.
        destination = branch or sides.destination or Destination(source.kind, source.name)
        # 5
        if self._link.loop_guard and self._identity in _listed(before.headers, HOPS):
            reason = f"the message has been on this link before: {HOPS} is {', '.join(_listed(before.headers, HOPS))}"
            return Dead(BridgeDeadReason.SEND_FAILURE, reason, destination)
        # 6
        return ToSend(self._outgoing(message, self._tag(message, before, destination, reply_to)))

    def has_expired(self, message: Message) -> bool:
        """Step 2: whether its time to live is over, at JMSExpiration itself too."""
        return 0 < message.expires <= self._now_ms()

    def expired(self, message: Message) -> Dead:
        """What becomes of one that has."""
        late = self._now_ms() - message.expires
        return Dead(
            BridgeDeadReason.MESSAGE_EXPIRED,
            f"it expired {late} milliseconds before it could be sent",
        )

    def _reply_to(self, message: Message, sides: LinkEnds) -> Destination | None:
        """Step 3: keep it where the link retains it, or within this broker.

        A temporary one means nothing elsewhere.
        """
        reply_to = message.headers.reply_to
        if (
            reply_to is None
            or reply_to.temporary
            or not (self._link.target.retain_replyto or sides.both_embedded)
        ):
            return None
        return reply_to

    def _transform(self, ruled: Ruled, sides: LinkEnds) -> Transformed:
        """Step 4: the transformed message, where it goes, or that it does not.

        It may go elsewhere than to the target's destination; what the transformer says of that
        overrides the rules.

        :raises TransformFailed:
        """
        if self._transformer is None:
            return Transformed(ruled.message, _branch(ruled))
        made = transformed(
            self._transformer,
            BridgeType.JMS,
            ruled.message,
            read_only=True,
            charset_name=None,
            source=sides.source,
            target=sides.target,
            properties=self.for_transformer,
        )
        return _with_branch(made, _branch(ruled))

    def _failed(self, failed: TransformFailed, sides: LinkEnds) -> Dead:
        """Step 4, the two policies."""
        cause = failed.__cause__
        reason = (
            str(failed)
            if cause is None or isinstance(cause, UnknownRefName)
            else f"{failed}: {cause}"
        )
        if self._link.target.consume_no_transfer_on_transform_error:
            return Dead(BridgeDeadReason.TRANSFORM_FAILURE, reason, sides.destination)
        raise LinkStops(reason) from failed

    def _tag(
        self,
        message: Message,
        before: Message,
        destination: Destination,
        reply_to: Destination | None,
    ) -> Headers:
        """Step 5, and the headers of what is sent."""
        headers = message.headers
        link = self._link
        alike = not (link.add_message_id_in_header or link.loop_guard or self.marks_duplicates)
        if alike and self._last is not None:
            made_of, made_for, made_to, made = self._last
            if made_of is headers and made_for == destination and made_to == reply_to:
                return made
        # A transformer that makes a message anew must not end the trails.
        added: dict[str, str] = {}
        if self._tags:
            added[BRIDGE_NAME_PROPERTY] = self._bridge_name
        if link.add_message_id_in_header and before.message_id:
            added[MESSAGE_IDS] = ",".join(
                [*_listed(before.headers, MESSAGE_IDS), before.message_id]
            )
        if link.loop_guard:
            added[HOPS] = ",".join([*_listed(before.headers, HOPS), self._identity])
        if self.marks_duplicates:
            added[DUPLICATE_ID] = self._duplicate_id(before)
        changes: dict[str, object] = {"destination": destination, "reply_to": reply_to}
        if added or DUPLICATE_ID in headers.properties:
            # The producer's own id was for where it sent the message: elsewhere it may be
            # another's, and a target that remembers would drop this one.
            kept = {
                name: value for name, value in headers.properties.items() if name != DUPLICATE_ID
            }
            changes["properties"] = {**kept, **added}
        made = headers.replace(**changes)
        if alike:
            self._last = headers, destination, reply_to, made
        return made

    def _duplicate_id(self, before: Message) -> str:
        """Return the id by which the target recognizes the message.

        Of a queue's the same whichever link has it, of a topic's each link's own, as each moves a
        copy.

        What is before the slash has a run of remembered ids of its own.
        """
        source = before.headers.destination
        run = self._identity if source.kind is Kind.TOPIC else str(source)
        return f"{run.replace('/', '%2F')}/{before.message_id}"

    def _outgoing(self, message: Message, headers: Headers) -> Message:
        """Step 6: a new message, without the provider's id and timestamp yet.

        What is left of its time to live follows from JMSExpiration, which is carried as the
        absolute time that it is.
        """
        return Message(headers, message.body, expires=message.expires)


def _listed(headers: Headers, name: str) -> list[str]:
    value = headers.properties.get(name)
    return value.split(",") if isinstance(value, str) and value else []


def _with_branch(made: Transformed, branch: Destination | str | None) -> Transformed:
    """Send what a transformer made where the rules say, unless it said where."""
    return made if made.branch_to is not None else made._replace(branch_to=branch)


def _branch(ruled: Ruled) -> Destination | str | None:
    """Where a rule sends the message; a ``str`` is to be looked up."""
    elsewhere = ruled.destination
    return None if elsewhere is None else elsewhere.by_name or elsewhere.ref_name
