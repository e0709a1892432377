"""One subscription: its MESSAGE frames, and the credit that bounds them.

Owns what was delivered, what of it is settled, and why the consumer may not deliver just now. An
auto delivery counts as acknowledged when its octets are in the kernel; that is also when its credit
comes back. Credit in messages of the other kinds comes back as they are settled, credit in octets
for all kinds as the client reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntFlag
from typing import Final, TypeAlias

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Consumer, ConsumerSpec
from gateway.messaging.provider import Session as ProviderSession
from gateway.messaging.transformer import TransformFailed
from gateway.stomp.counters import Counters
from gateway.stomp.message_encoder import MessageEncoder
from gateway.stomp.message_layouts import Delivered, Layout
from gateway.stomp.output import Output
from gateway.stomp.session.outstanding import (
    DeliveryOrder,
    OrderedOutstanding,
    Outstanding,
    SizedOutstanding,
)
from gateway.stomp.session.receipts import Fail
from gateway.stomp.wire import escape_header

#: Messages on their way to a subscription with ack:auto; the octets are bounded, too.
AUTO_WINDOW: Final = 1000


_NONE: Final[Mapping[Destination, str]] = {}

#: Told of the number of a delivery that cannot be sent, and why.
Unsendable: TypeAlias = Callable[["Subscription", int, Exception], None]


class Ack(Enum):
    """The ``ack`` header of SUBSCRIBE."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


class Hold(IntFlag):
    """Why a consumer is stopped; it runs when there is no reason left."""

    #: Its RECEIPT, or the first start, is still to come.
    STARTING = 1
    #: The operator paused the bridge.
    PAUSED = 2
    #: The client does not read what it was sent.
    CHOKED = 4
    #: A transacted subscription outside of a transaction.
    NO_TRANSACTION = 8
    #: The connection or the subscription is over.
    ENDING = 16
    #: Its user has got as much as it may for now.
    RATE = 32


class Subscription:
    """One subscription of one connection.

    :param number: of the subscription, in the connection; the first half of its ``ack`` headers.
    :param id: the ``id`` header, or the 1.0 default.
    :param named: the client gave the id, so that MESSAGE tells it. No 1.0 client knows one that it
        never gave.
    :param spec: what it receives.
    :param ack: how the client acknowledges; transacted ones acknowledge cumulatively.
    :param session: the provider's session, which is its own unless it is transacted.
    :param window: messages that may be unsettled at once.
    :param octets: octets of bodies that the client may not have read yet.
    :param fresh: those of the connection that have added frames to the output since the last flush.
    :param fail: ends the connection, because the provider ended the consumer.
    :param unsendable: called when a delivery cannot be sent to this client; those after it were not
        looked at.
    :param transform: turns a delivery into what is sent, or None where nothing is to be done.
    :param enveloped: each message goes out in an envelope.
    :param layout: makes the frames in place of the encoder, and is told
    :param subscribed: the destination as the client named it, and
    :param connected: the connection's ``session``, and
    :param own: what the client calls temporary destinations of its own.
    :param order: of the deliveries of the connection, where a cumulative ACK is of all of them.
    :param most: messages that may be delivered at a time, as the user has a rate; 0 for any number.
    :param frames: bytes of frames that may be unsettled when another follows, in place of
        ``window``; 0 where that counts. Only with a layout, and an ``ack`` of the client's.
    """

    __slots__ = (
        "_asked",
        "_attempted",
        "_connected",
        "_counters",
        "_encoder",
        "_fail",
        "_frames",
        "_fresh",
        "_fresh_octets",
        "_granted",
        "_holds",
        "_in_kernel",
        "_kept_back",
        "_layout",
        "_most",
        "_named",
        "_octets",
        "_output",
        "_overdrawn",
        "_own",
        "_plain",
        "_running",
        "_sized",
        "_subscribed",
        "_tail",
        "_transform",
        "_unsendable",
        "_window",
        "_written",
        "_written_octets",
        "ack",
        "acked",
        "closed",
        "consumer",
        "delivered",
        "id",
        "is_fresh",
        "is_unread",
        "number",
        "outstanding",
        "receipt",
        "session",
        "spec",
        "transacted",
        "unused",
        "version",
    )

    def __init__(
        self,
        number: int,
        id: str,
        named: bool,
        spec: ConsumerSpec,
        ack: Ack,
        transacted: bool,
        session: ProviderSession,
        encoder: MessageEncoder,
        output: Output,
        counters: Counters,
        fresh: list[Subscription],
        fail: Fail,
        unsendable: Unsendable,
        window: int,
        octets: int,
        transform: Callable[[Message], Message] | None,
        enveloped: bool,
        layout: Layout | None = None,
        subscribed: str = "",
        connected: str = "",
        own: Mapping[Destination, str] = _NONE,
        order: DeliveryOrder | None = None,
        most: int = 0,
        frames: int = 0,
    ) -> None:
        self.number: Final = number
        self.id: Final = id
        self.spec: Final = spec
        self.ack: Final = ack
        self.transacted: Final = transacted
        self.session: Final = session
        self.version: Final = encoder.version
        self._output: Final = output
        self._counters: Final = counters
        self._fresh: Final = fresh
        self._fail: Final = fail
        self._unsendable: Final = unsendable
        self._window: Final = window
        self._octets: Final = octets
        self._transform: Final = transform
        self._encoder: Final = encoder
        self._layout: Final = None if enveloped or spec.browse else layout
        self._named: Final = named
        self._subscribed: Final = subscribed
        self._connected: Final = connected
        self._own: Final = own
        head = b"MESSAGE\n"
        if named:
            head += f"subscription:{escape_header(id, encoder.version)}\n".encode(
                "utf-8", "replace"
            )
        counted = ack is not Ack.AUTO or transacted
        tag = b"ack:%d-" % number if counted else b""
        self._plain: Final = head + b"redelivered:false\n" + tag
        self._attempted: Final = head + b"redelivered:true\n" + tag
        # A queue's message goes to one consumer; remembering its encoding would be for nothing.
        fanned = spec.destination.kind is Kind.TOPIC
        tail = encoder.fanned if fanned else encoder.tail
        if enveloped:
            tail = encoder.fanned_enveloped if fanned else encoder.enveloped
        if spec.browse:
            tail = encoder.browsed_enveloped if enveloped else encoder.browsed
        self._tail: Final[Callable[[Message], bytes]] = tail
        self._frames: Final = frames
        self._sized: Final = SizedOutstanding() if frames else None
        #: The deliveries that the client is to settle; None where the gateway does that.
        self.outstanding: Final[Outstanding | None] = (
            None if not counted else _outstanding(order) if self._sized is None else self._sized
        )
        #: One delivery was asked for that has not come; where the window is in bytes.
        self._asked = False
        #: The last delivery made, and in a transacted subscription the last acknowledged.
        self.delivered = 0
        self.acked = 0
        self.closed = False
        self.is_fresh = False
        self.is_unread = False
        self._fresh_octets = 0
        self._written = 0
        self._written_octets = 0
        self._in_kernel = 0
        #: Settlements that were undone after they had made room: as many to come make no room.
        self._overdrawn = 0
        #: Credit in messages that the consumer was given, and what it will be given as its
        #: messages go out.
        self._granted = self._kept_back = 0
        self._most = most
        self._holds = Hold.STARTING
        self._running = False
        #: What its SUBSCRIBE has asked a RECEIPT by, until that is due.
        self.receipt: str | None = None
        #: Headers of its SUBSCRIBE that mean nothing here.
        self.unused: tuple[str, ...] = ()
        self.consumer: Consumer

    def attach(self) -> None:
        """Make the provider's consumer, stopped.

        :raises MessagingError: as ``Session.consumer``.
        """
        self.consumer = self.session.consumer(self.spec, self.deliver, self._failed)
        self._asked = self._sized is not None
        self._grant(1 if self._asked else self._window, self._octets)

    @property
    def holds(self) -> Hold:
        """Why nothing is delivered just now."""
        return self._holds

    @property
    def unsent(self) -> int:
        """Octets for its client that the client's kernel has not taken."""
        return self._output.unsent

    def hold(self, reason: Hold) -> None:
        """Deliver nothing while ``reason`` stands."""
        self._holds |= reason
        if self._running:
            self._running = False
            self.consumer.stop()

    def begin(self) -> None:
        """Its RECEIPT is on its way: deliver.

        If something else holds it, whatever a broker has sent ahead goes to others.
        """
        self.receipt = None
        self.free(Hold.STARTING)
        if not self._running and not self.closed:
            self.consumer.stop()

    def free(self, reason: Hold) -> None:
        """``reason`` stands no longer."""
        self._holds &= ~reason
        if not self._holds and not self._running and not self.closed:
            self._running = True
            self.consumer.start()

    def deliver(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        """The provider's callback: encode a run and hand it to the output."""
        if self._holds and self._holds & Hold.ENDING:
            return
        if not messages:
            self._end_of_browse()
            return
        parts = self._output.parts
        tail = self._tail
        number = first
        try:
            if self._layout is not None:
                for at, message in enumerate(messages):
                    octets = self._laid_out(
                        number, 1 if attempts is None else attempts[at], message
                    )
                    parts.append(octets)
                    if self._sized is not None:
                        self._sized.frame = len(octets)
                    number += 1
            elif self._transform is not None:
                for at, message in enumerate(messages):
                    octets = self._transformed(message)
                    parts += (self._head(number, 1 if attempts is None else attempts[at]), octets)
                    number += 1
            elif attempts is not None:
                for message, attempt in zip(messages, attempts, strict=True):
                    octets = tail(message)
                    parts += (self._head(number, attempt), octets)
                    number += 1
            elif self.outstanding is None:
                plain = self._plain
                for message in messages:
                    octets = tail(message)
                    parts += (plain, octets)
                    number += 1
            else:
                plain = self._plain
                for message in messages:
                    octets = tail(message)
                    parts += (b"%s%d\n" % (plain, number), octets)
                    number += 1
        except Exception as error:  # noqa: BLE001
            # A transformer may raise anything; the connection's end is what the documentation
            # promises then.
            if number > first:
                self._account(first, messages[: number - first])
            self._unsendable(self, number, error)
            return
        self._account(first, messages)

    def repeat(self, number: int, message: Message) -> None:
        """Send an unsettled delivery again, for a client that had given it up."""
        if self.closed or self._holds & Hold.ENDING:
            return
        try:
            if self._layout is not None:
                octets = self._laid_out(number, 2, message)
            else:
                body = (
                    self._tail(message) if self._transform is None else self._transformed(message)
                )
                octets = self._head(number, 2) + body
        except Exception as error:  # noqa: BLE001
            # As for the first time: a transformer may raise anything.
            self._unsendable(self, number, error)
            return
        self._counters.messages_out += 1
        self._counters.frames_out += 1
        self._output.add(octets)

    def _laid_out(self, number: int, attempt: int, message: Message) -> bytes:
        assert self._layout is not None
        token = f"{self.number}-{number}"
        sent = message if self._transform is None else self._transform(message)
        return self._layout.frame(
            Delivered(
                self.version,
                self.id if self._named else None,
                self._subscribed,
                self._connected,
                "" if self.outstanding is None else token,
                token,
                attempt,
                sent,
                self._own,
                self._encoder.user_of(message),
            )
        )

    def _transformed(self, message: Message) -> bytes:
        assert self._transform is not None
        try:
            changed = self._transform(message)
        except TransformFailed as failed:
            if not self.spec.browse:
                raise
            # Not as it is: the transformer may be there to hide something of it.
            return self._encoder.without_contents(message, str(failed))
        return self._tail(changed)

    def _account(self, first: int, messages: Sequence[Message]) -> None:
        self.delivered = first + len(messages) - 1
        self._counters.messages_out += len(messages)
        self._counters.frames_out += len(messages)
        self._fresh_octets += sum([len(message.body) for message in messages])
        if self.outstanding is not None:
            self.outstanding.add(first, messages)
            if self._sized is not None:
                self._asked = False
                self._ask()
        if not self.is_fresh:
            self.is_fresh = True
            self._fresh.append(self)
        if not self._output.flagged:
            self._output.flag()

    def _head(self, number: int, attempt: int) -> bytes:
        if attempt <= 1:
            return self._plain if self.outstanding is None else b"%s%d\n" % (self._plain, number)
        if self.outstanding is None:
            return b"%sJMSXDeliveryCount:%d\n" % (self._attempted, attempt)
        return b"%s%d\nJMSXDeliveryCount:%d\n" % (self._attempted, number, attempt)

    def _end_of_browse(self) -> None:
        destination = escape_header(f"/queue/{self.spec.destination.name}", self.version).encode(
            "utf-8", "replace"
        )
        self._output.add(
            b"%sdestination:%s\nmessage-id:%d-end\nbrowser:end\ncontent-length:0\n\n\0\n"
            % (self._plain, destination, self.number)
        )

    def bound(self, most: int) -> None:
        """Bound the messages that are delivered at a time.

        :param most: 0 for any number.
        """
        self._most = most
        if self._kept_back and not self.closed:
            self._grant(0)

    def _grant(self, count: int, octets: int = 0) -> None:
        """Let that many more be delivered, as many of them at once as may be."""
        if self._most or self._kept_back:
            self._kept_back += count
            count = self._kept_back
            if self._most:
                count = max(0, min(count, self._most - (self._granted - self.delivered)))
            self._kept_back -= count
            if not count and not octets:
                return
        self._granted += count
        self.consumer.grant(count, octets)

    def flushed(self) -> int:
        """All frames added so far are being written to the transport.

        :returns: how many messages they are.
        """
        self.is_fresh = False
        written = self.delivered - self._written
        self._written = self.delivered
        self._written_octets += self._fresh_octets
        self._fresh_octets = 0
        if self._kept_back and not self.closed:
            self._grant(0)
        return written

    def drained(self) -> None:
        """All that was written is in the kernel.

        Acknowledge auto deliveries, and let as much follow as was taken.
        """
        octets, self._written_octets = self._written_octets, 0
        count = self._written - self._in_kernel
        self._in_kernel = self._written
        if self.outstanding is not None:
            if octets and not self.closed:
                self._grant(0, octets)
            return
        if not count:
            return
        if not self.spec.browse:
            self.consumer.acknowledge_through(self._written)
        if not self.closed:
            self._grant(count, octets)

    @property
    def outstanding_count(self) -> int:
        """Deliveries not settled, with ack:auto not yet in the kernel."""
        outstanding = self.outstanding
        return self.delivered - self._in_kernel if outstanding is None else len(outstanding)

    def settled(self, count: int) -> None:
        """Let as many deliveries follow as were settled.

        Those that have followed already are subtracted.
        """
        if self._sized is not None:
            self._ask()
            return
        if self._overdrawn:
            paid = min(count, self._overdrawn)
            self._overdrawn -= paid
            count -= paid
        if count and not self.closed:
            self._grant(count)

    def _ask(self) -> None:
        """Ask for the next delivery, unless the window is full."""
        sized = self._sized
        if sized is not None and not self._asked and not self.closed and sized.total < self._frames:
            self._asked = True
            self._grant(1)

    def unsettled(self, count: int) -> None:
        """Count settled deliveries that are outstanding again."""
        self._overdrawn += count

    def given_back(self) -> None:
        """The provider has taken all deliveries back: their numbers are void."""
        if self.outstanding is not None:
            self.acked = self.delivered
            self.settled(len(self.outstanding.clear()))

    def close(self, requeue: bool) -> None:
        """Receive no more; see ``Consumer.close``."""
        if not self.closed:
            self.hold(Hold.ENDING)
            self.closed = True
            self.consumer.close(requeue)

    def _failed(self, error: MessagingError) -> None:
        self._fail(error, self.receipt)


def _outstanding(order: DeliveryOrder | None) -> Outstanding:
    return Outstanding() if order is None else OrderedOutstanding(order)
