"""A session with a message transformer, a class in Java.

Owns the layout of what it is asked and answers, which ``TransformerWork.java`` shares, and what of
a message a transformer may change. When it is asked, and what follows from its answers, is for
links to say (:mod:`bridge.link.java_transformer`).

Numbers, texts, pairs and messages are as in :mod:`bridge.providers.jms.batches` and
:mod:`bridge.providers.jms.wire`. One question is asked at a time. Questions, each begun by one
byte:

==== ========= ===================================================================================================================
Code Question  Then
==== ========= ===================================================================================================================
1    make      texts: key, class, the jar or folder that has it; u32 number of further jars, texts
2    transform texts: what source and target call themselves; pairs of properties; u32 number of messages, the messages
==== ========= ===================================================================================================================

Answers:

==== =========== =================================================================================================================
1    made        i32 kind of failure or -1, text
2    transformed u32 number of messages; for each u8 0 where it is the one given, 1 where that was changed, 2 for another, 3 for a
                 failure. Of a failure a text follows. Of the others u8 1 where it is not to be transferred, else 0; u8 0 for the
                 target's destination, or 1 for a ref-name, 2 a queue and 3 a topic and then its text; of 1 and 2 the message
3    note        text for the log
==== =========== =================================================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from bridge.providers.jms import wire
from bridge.providers.jms.channels import JavaFailure
from bridge.providers.jms.failures import TransformerUnusable
from bridge.providers.jms.session import ChannelMaker
from bridge.providers.jms.transformer_class import TransformerClass
from bridge.providers.jms.wire import Payload
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import EnvelopeError, decode_head, encode_head
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.transformer import Transformed, TransformFailed

#: In one question at most, which has the time of one call: messages, and bytes of several.
_MOST_MESSAGES: Final = 32
_MOST_OCTETS: Final = 1 << 20

_LENGTHS: Final = struct.Struct(">II")
_MAKE: Final = b"\x01"
_TRANSFORM: Final = b"\x02"
_MADE: Final = 1
_TRANSFORMED: Final = 2
_NOTE: Final = 3
_SAME: Final = 0
_CHANGED: Final = 1
_FAILED: Final = 3
_BY_NAME: Final = 1
_TOPIC: Final = 3

T = TypeVar("T")

_log: Final = Logger(namespace="bridge.jms")


class _Encoded(NamedTuple):
    place: int
    message: Message
    octets: bytes


class TransformerSession:
    """A transformer at work. Made by a connection.

    :param of: its class.
    :param channel: makes its channel.
    :param broke: ends the connection with an error.
    :param provider: the connection's, for the log.
    """

    def __init__(
        self,
        of: TransformerClass,
        channel: ChannelMaker,
        broke: Callable[[MessagingError], None],
        provider: str,
    ) -> None:
        self.channel: Final = channel(self._answered, self._broke)
        self._of: Final = of
        self._fail: Final = broke
        self._provider: Final = provider
        self._made = False
        self._closed: MessagingError | None = None
        #: The question that is not answered.
        self._asking: Deferred[Any] | None = None
        #: The code of that answer, and what reads it.
        self._expected = 0
        self._read: Callable[[Payload], Any] = Payload.rest

    @property
    def hangs(self) -> bool:
        """Whether it is in a call that was given up."""
        return self.channel.abandoned

    async def ready(self) -> None:
        """Make the transformer, if that has not been done.

        :raises TransformerUnusable:
        :raises MessagingError: the connection was lost or closed.
        """
        if self._made:
            return
        of = self._of
        texts = (of.key, of.name, of.home)
        jars = wire.number(len(of.jars)) + b"".join(map(wire.text, of.jars))
        kind, reason = await self._ask(
            _MAKE + b"".join(map(wire.text, texts)) + jars,
            _MADE,
            lambda answer: (answer.kind(), answer.text()),
        )
        if kind >= 0:
            raise TransformerUnusable(of.name, f"{reason}; it is in {of.home}")
        self._made = True

    async def transform(
        self, messages: Sequence[Message], source: str, target: str, properties: Mapping[str, str]
    ) -> list[Transformed | TransformFailed]:
        """Transform messages, in order.

        They are asked for some at a time, each time with the time of one call of the provider's
        client.

        :returns: one for each.
        :raises TransformerUnusable:
        :raises MessagingError: the connection was lost or closed, also because the transformer did
            not return in time.
        """
        await self.ready()
        made: list[Transformed | TransformFailed] = []

        def failed(reason: str) -> TransformFailed:
            return TransformFailed(self._of.name, source, target, reason)

        about = wire.text(source) + wire.text(target) + wire.pairs(properties)
        encoded: list[_Encoded] = []
        for place, message in enumerate(messages):
            # A failure until the answer is there.
            made.append(failed("it was not asked"))
            try:
                encoded.append(_Encoded(place, message, _octets(message)))
            except EnvelopeError as error:
                made[place] = failed(f"the message cannot be given to Java: {error}")
        for some in _questions(encoded):
            question = [_TRANSFORM, about, wire.number(len(some)), *[one.octets for one in some]]
            outcomes = await self._ask(b"".join(question), _TRANSFORMED, partial(_outcomes, some))
            for one, outcome in zip(some, outcomes, strict=True):
                made[one.place] = failed(outcome) if isinstance(outcome, str) else outcome
        return made

    def close(self) -> None:
        """End it; what is being asked fails. Idempotent."""
        self.lost(ProviderUnavailable("the message transformer's session was closed"))

    def lost(self, error: MessagingError) -> None:
        """The connection is lost, and so is what it is asked."""
        if self._closed is None:
            self._closed = error
            self.channel.end()
            asking, self._asking = self._asking, None
            if asking is not None:
                asking.errback(error)

    # --- inside

    def _ask(self, question: bytes, expected: int, read: Callable[[Payload], T]) -> Deferred[T]:
        """Ask something. :param read: its answer, which has the code expected."""
        if self._closed is not None:
            return fail(self._closed)
        asked: Deferred[T] = Deferred()
        self._asking, self._expected, self._read = asked, expected, read
        self.channel.ask(question)
        return asked

    def _answered(self, octets: bytes) -> None:
        payload = Payload(octets)
        answers: list[Any] = []
        try:
            while payload.position < len(octets):
                code = payload.rest(1)[0]
                if code == _NOTE:
                    _log.warn("{provider}: {text}", provider=self._provider, text=payload.text())
                elif code == self._expected:
                    answers.append(self._read(payload))
                else:
                    raise wire.WireError(f"answer {code}: expected {self._expected}")
        except Exception as error:  # noqa: BLE001
            # Without this, the link would wait for ever.
            self._broke(
                ProviderUnavailable(f"a message transformer's answer cannot be read: {error}")
            )
            return
        for answer in answers:
            asking, self._asking = self._asking, None
            if asking is not None:
                asking.callback(answer)

    def _broke(self, error: BaseException) -> None:
        """The channel has ended, or was abandoned."""
        if self._closed is not None:
            return
        if isinstance(error, JavaFailure):
            error = ProviderUnavailable(error.reason)
        elif not isinstance(error, MessagingError):
            error = ProviderUnavailable(f"the session of a message transformer failed: {error}")
        self._fail(error)


def _octets(message: Message) -> bytes:
    """A message as Java reads it. :raises EnvelopeError:"""
    destination = message.headers.destination
    if destination.temporary:
        # It is another provider's, which this one need not know.
        message = message.replaced(
            message.headers.replace(destination=Destination(destination.kind, destination.name))
        )
    head = encode_head(message)
    return _LENGTHS.pack(len(head), len(message.body)) + head + message.body


def _questions(encoded: Sequence[_Encoded]) -> Iterator[list[_Encoded]]:
    some: list[_Encoded] = []
    octets = 0
    for one in encoded:
        if some and (len(some) == _MOST_MESSAGES or octets + len(one.octets) > _MOST_OCTETS):
            yield some
            some, octets = [], 0
        some.append(one)
        octets += len(one.octets)
    if some:
        yield some


def _outcomes(asked: Sequence[_Encoded], answer: Payload) -> list[Transformed | str]:
    """What became of messages. :raises WireError: the answer is about others."""
    count = answer.number()
    if count != len(asked):
        raise wire.WireError(f"{count} messages were transformed: expected {len(asked)}")
    return [_outcome(answer, one.message) for one in asked]


def _outcome(answer: Payload, original: Message) -> Transformed | str:
    """What became of a message, or why that failed."""
    what = answer.rest(1)[0]
    if what == _FAILED:
        return answer.text()
    dropped = answer.flag()
    where = answer.rest(1)[0]
    branch: Destination | str | None = None
    if where:
        name = answer.text()
        kind = Kind.TOPIC if where == _TOPIC else Kind.QUEUE
        branch = name if where == _BY_NAME else Destination(kind, name)
    if what == _SAME:
        return Transformed(original, branch, dropped)
    head, body = answer.number(), answer.number()
    made = decode_head(answer.rest(head), answer.rest(body))
    return Transformed(_merged(original, made, what == _CHANGED), branch, dropped)


def _merged(original: Message, made: Message, changed: bool) -> Message:
    """Return the message that goes on.

    What a transformer cannot change is as it came.

    :param changed: it is the original, which has properties that providers do not let others set.
    """
    before, after = original.headers, made.headers
    properties = dict(after.properties)
    if changed:
        for name, value in before.properties.items():
            if name.startswith("JMSX"):
                properties.setdefault(name, value)
    headers = after.replace(
        destination=before.destination,
        persistent=before.persistent,
        priority=before.priority,
        properties=properties,
    )
    return original.replaced(headers, made.body)
