"""Spans, made of the journal's lines.

Owns which spans there are, when each begins and ends, and whose child it is:

=============  =======================================  ==========================================
Span           From, to                                 Its parent
=============  =======================================  ==========================================
``publish``    produced, confirmed                      the span that the message names
``receive``    delivered, acknowledged or returned      ``publish``
``settle``     acknowledged, deleted                    ``receive``
``transfer``   received by a link, settled              where the source is a queue of this broker,
                                                        ``receive``; a topic of it, ``publish``;
                                                        else the span that the message names
=============  =======================================  ==========================================

Ids of spans are made of the message's id and the step, so nothing has to be kept for them. Runs on
the journal's thread; knows no collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from gateway.journal.lines import numbered
from gateway.journal.schema import Step
from gateway.journal.tracer import TRACES, Context
from gateway.tracing.contexts import span_id

#: Messages on their way that are remembered; the oldest are forgotten.
MOST_TRACED: Final = 20_000

PRODUCER: Final = 4
CONSUMER: Final = 5
INTERNAL: Final = 1
"""Kinds of spans, as OTLP numbers them."""

Fields: TypeAlias = Mapping[str, object]
"""A line, as it is handed to the journal."""

_GIVEN_UP: Final = (Step.EXPIRED.value, Step.DEAD.value)


class Span(NamedTuple):
    """One span.

    :param parent_id: empty for none.
    :param start_us: and ``end_us``: microseconds since the epoch.
    :param error: why it failed; empty where it has not.
    """

    context: Context
    span_id: str
    parent_id: str
    name: str
    kind: int
    start_us: int
    end_us: int
    attributes: dict[str, str | int]
    error: str = ""


class _Receive(NamedTuple):
    """A delivery that is not acknowledged durably.

    :param since_us: when the one or the other began.
    """

    span_id: str
    since_us: int
    attempt: int


class _Transfer:
    """A message on a link."""

    __slots__ = ("attributes", "context", "number", "parent_id", "since_us")

    def __init__(
        self,
        context: Context,
        parent_id: str,
        since_us: int,
        number: int,
        attributes: dict[str, str | int],
    ) -> None:
        self.context = context
        self.parent_id = parent_id
        self.since_us = since_us
        self.number = number
        self.attributes = attributes


class _Traced:
    """A message of the embedded broker on its way."""

    __slots__ = (
        "acknowledged",
        "attempts",
        "context",
        "delivered",
        "destination",
        "last",
        "message_id",
        "number",
        "prefix",
        "produced_us",
        "published",
        "stored_us",
        "transfer",
    )

    def __init__(self, message_id: str, context: Context, destination: str, now_us: int) -> None:
        self.message_id = message_id
        self.context = context
        self.destination = destination
        self.produced_us = self.stored_us = now_us
        self.published = False
        self.attempts = 0
        self.delivered: dict[str, _Receive] = {}
        self.acknowledged: dict[str, _Receive] = {}
        #: The last ``receive``.
        self.last = ""
        #: Of a queue, on the link that has it.
        self.transfer: _Transfer | None = None
        named = numbered([message_id])
        self.prefix, self.number = ("", -1) if named is None else (named[0], named[1][0])

    @property
    def of_queue(self) -> bool:
        return self.destination.startswith("queue:")

    def received(self, key: str, now_us: int) -> None:
        """A consumer was handed it."""
        self.attempts += 1
        self.last = span_id(self.message_id, "receive", key, self.attempts)
        self.delivered[key] = _Receive(self.last, now_us, self.attempts)
        if self.transfer is not None:
            self.transfer.parent_id = self.last

    def transferred(self, transfer: _Transfer) -> None:
        """A link has it, and may say so before the broker does."""
        # Of a topic, several may have received it.
        transfer.parent_id = (self.of_queue and self.last) or self.publish_id
        self.transfer = transfer if self.of_queue else None

    @property
    def publish_id(self) -> str:
        return span_id(self.message_id, "publish")


class SpanMaker:
    """Makes spans of lines.

    :param emit: takes a span that has ended.
    """

    def __init__(self, emit: Callable[[Span], None], most: int = MOST_TRACED) -> None:
        self._emit: Final = emit
        self._most: Final = most
        self._traced: dict[str, _Traced] = {}
        #: What the ids of these end with, where they have numbers.
        self._numbers: set[int] = set()
        self._transfers: dict[tuple[str, str], _Transfer] = {}
        self._number = 0

    def telling(self, lines: Sequence[Fields]) -> Iterator[Fields]:
        """Those of the lines that may tell of messages that are traced.

        Nearly none does, and this is all that the others cost. Each is to be read before the next
        is asked for.
        """
        traced, transfers = self._traced, self._transfers
        for fields in lines:
            if TRACES in fields or traced or transfers:
                yield fields

    def read(self, fields: Fields) -> None:
        """Take one line, as it was handed to the journal."""
        traces: dict[str, Context] | None = fields.get(TRACES)  # type: ignore[assignment]
        if not traces:
            numbers = fields.get("numbers")
            if isinstance(numbers, (range, list)) and not self._has_any(numbers):
                return
        steps = cast("Sequence[str]", fields["steps"])
        if "link" in fields:
            self._read_link(fields, steps, traces or {})
            return
        now_us = cast(int, fields["time"])
        if traces and steps[0] == Step.PRODUCED:
            destination = str(fields["destination"])
            for message_id, context in traces.items():
                self._remember(_Traced(message_id, context, destination, now_us))
        for traced in self._named(fields):
            for step in steps:
                self._take(traced, step, fields, now_us)

    def _has_any(self, numbers: range | list[int]) -> bool:
        """Whether an id that is followed ends in one of these."""
        known = self._numbers
        if isinstance(numbers, range) and len(known) < len(numbers):
            return any(number in numbers for number in known)
        return not known.isdisjoint(numbers)

    # --- at the broker

    def _remember(self, traced: _Traced) -> None:
        self._traced[traced.message_id] = traced
        self._numbers.add(traced.number)
        if len(self._traced) > self._most:
            self._forget(self._traced[next(iter(self._traced))])

    def _forget(self, traced: _Traced) -> None:
        self._publish(traced, traced.stored_us)
        if self._traced.pop(traced.message_id, None) is not None:
            self._numbers.discard(traced.number)

    def _named(self, fields: Fields) -> list[_Traced]:
        """Those of the messages of a line that are traced."""
        numbers = _value(fields.get("numbers"))
        if numbers is None:
            ids = cast("Sequence[str]", _value(fields.get("ids")) or ())
            return [found for each in ids if (found := self._traced.get(each)) is not None]
        prefix = _value(fields.get("prefix"))
        many = cast("Sequence[int]", numbers)
        if len(many) < len(self._traced):
            some = [self._traced.get(f"{prefix}{number}") for number in many]
            return [found for found in some if found is not None]
        those = many if isinstance(many, range) else frozenset(many)
        return [
            traced
            for traced in self._traced.values()
            if traced.number in those and traced.prefix == prefix
        ]

    def _take(self, traced: _Traced, step: str, fields: Fields, now_us: int) -> None:
        if step == Step.STORED:
            traced.stored_us = now_us
        elif step == Step.CONFIRMED:
            self._publish(traced, now_us)
        elif step in (Step.DELIVERED, Step.REDELIVERED):
            traced.received(_consumer(fields), now_us)
        elif step == Step.ACKNOWLEDGED:
            key, received = _taken(traced.delivered, _consumer(fields))
            if received is not None:
                self._receive(traced, received, now_us)
                traced.acknowledged[key] = received._replace(since_us=now_us)
        elif step == Step.RETURNED:
            _, received = _taken(traced.delivered, _consumer(fields))
            if received is not None:
                self._receive(traced, received, now_us, str(fields.get("reason", "returned")))
        elif step in _GIVEN_UP:
            given_up = _Receive(traced.last or traced.publish_id, now_us, traced.attempts)
            self._settle(traced, given_up, now_us, str(fields.get("reason", step)))
        elif step == Step.DELETED:
            _, received = _taken(traced.acknowledged, _consumer(fields))
            if received is not None:
                self._settle(traced, received, now_us)
            # Others may still be owed a message of a topic.
            if traced.of_queue or fields.get("reason") in (
                "unsubscribed",
                "copied",
            ):
                self._forget(traced)

    def _publish(self, traced: _Traced, end_us: int) -> None:
        if not traced.published:
            traced.published = True
            parent = traced.context.parent_id
            start = traced.produced_us
            self._span(traced, "publish", PRODUCER, traced.publish_id, parent, start, end_us)

    def _receive(self, traced: _Traced, received: _Receive, end_us: int, error: str = "") -> None:
        start, parent = received.since_us, traced.publish_id
        more: dict[str, str | int] = {"stomp_gateway.delivery_attempt": received.attempt}
        self._span(
            traced, "receive", CONSUMER, received.span_id, parent, start, end_us, error, more
        )

    def _settle(self, traced: _Traced, received: _Receive, end_us: int, error: str = "") -> None:
        start, parent = received.since_us, received.span_id
        identity = span_id(parent, "settle")
        self._span(traced, "settle", CONSUMER, identity, parent, start, end_us, error)

    def _span(
        self,
        traced: _Traced,
        name: str,
        kind: int,
        identity: str,
        parent: str,
        start_us: int,
        end_us: int,
        error: str = "",
        more: Mapping[str, str | int] | None = None,
    ) -> None:
        attributes = _attributes(name, traced.destination, traced.message_id) | dict(more or {})
        name = f"{name} {traced.destination}"
        self._emit(
            Span(traced.context, identity, parent, name, kind, start_us, end_us, attributes, error)
        )

    # --- on links

    def _read_link(
        self, fields: Fields, steps: Sequence[str], traces: Mapping[str, Context]
    ) -> None:
        link = str(fields["link"])
        now_us = cast(int, fields["time"])
        for place, message_id in enumerate(_ids(fields)):
            key = (link, message_id)
            if steps[0] == Step.RECEIVED:
                traced = self._traced.get(message_id)
                context = traces.get(message_id) or (None if traced is None else traced.context)
                if context is not None:
                    begun = self._begin(key, context, fields, now_us)
                    if traced is not None:
                        traced.transferred(begun)
                continue
            transfer = self._transfers.get(key)
            if transfer is None:
                continue
            for step in steps:
                if step == Step.ARRIVED:
                    transfer.attributes["stomp_gateway.target.destination"] = str(
                        fields["destination"]
                    )
                    ids = cast("Sequence[str]", _value(fields.get("target_ids")) or ())
                    if ids and ids[place]:
                        transfer.attributes["stomp_gateway.target.message.id"] = ids[place]
                elif step == Step.SETTLED:
                    self._end(key, transfer, now_us)
                elif step in (Step.ROLLED_BACK, Step.BURIED, Step.EXPIRED):
                    self._end(key, transfer, now_us, str(fields.get("reason") or step))

    def _begin(
        self,
        key: tuple[str, str],
        context: Context,
        fields: Fields,
        now_us: int,
    ) -> _Transfer:
        link, message_id = key
        self._number += 1
        attributes = _attributes("transfer", str(fields["destination"]), message_id)
        attributes["stomp_gateway.link"] = link
        transfer = _Transfer(context, context.parent_id, now_us, self._number, attributes)
        self._transfers[key] = transfer
        if len(self._transfers) > self._most:
            del self._transfers[next(iter(self._transfers))]
        return transfer

    def _end(self, key: tuple[str, str], transfer: _Transfer, now_us: int, error: str = "") -> None:
        if self._transfers.pop(key, None) is None:
            return
        link, message_id = key
        # A link may have the same message again.
        identity = span_id(message_id, "transfer", link, transfer.since_us, transfer.number)
        self._emit(
            Span(
                transfer.context,
                identity,
                transfer.parent_id,
                f"transfer {link}",
                INTERNAL,
                transfer.since_us,
                now_us,
                transfer.attributes,
                error,
            )
        )


def _attributes(operation: str, destination: str, message_id: str) -> dict[str, str | int]:
    """Those that OpenTelemetry's conventions for messaging name."""
    return {
        "messaging.system": "stomp-gateway",
        "messaging.operation.name": operation,
        "messaging.destination.name": destination.partition(":")[2],
        "stomp_gateway.destination": destination,
        "messaging.message.id": message_id,
    }


def _consumer(fields: Fields) -> str:
    return f"{fields.get('connection', '')}/{fields.get('subscription', '')}"


def _taken(receives: dict[str, _Receive], key: str) -> tuple[str, _Receive | None]:
    """Take out what a consumer has.

    Where the line names no consumer, it is the only one there is.
    """
    if key not in receives and len(receives) == 1:
        key = next(iter(receives))
    return key, receives.pop(key, None)


def _value(said: object) -> object:
    """What a field has: writers may hand over a function that returns it."""
    return said() if callable(said) else said


def _ids(fields: Fields) -> Iterator[str]:
    ids = _value(fields.get("ids"))
    if ids is not None:
        yield from cast("Sequence[str]", ids)
        return
    prefix = _value(fields.get("prefix"))
    for number in cast("Sequence[int]", _value(fields.get("numbers")) or ()):
        yield f"{prefix}{number}"
